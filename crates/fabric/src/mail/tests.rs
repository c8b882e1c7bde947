//! Requests that a peer would never send, or sends twice.

use std::sync::Arc;

use super::*;

/// A window of 16 numbers, with a word before them, and its mail.
struct Bed {
    memory: Arc<Zeroed>,
    mail: Mail,
}

const WINDOW: usize = 17 * 8;
const SUM: Action = Action::Accumulate {
    op: Op::Sum,
    scalar: Scalar::U64,
    atomic: true,
};
const FETCH: Action = Action::FetchOp {
    op: Op::Sum,
    scalar: Scalar::U64,
    result: Ptr::NULL,
    atomic: true,
};

impl Bed {
    fn new() -> Self {
        let memory = Arc::new(Zeroed::new(WINDOW).unwrap());
        // SAFETY: the memory is as long, and is kept.
        let mail = unsafe { Mail::new(memory.at(0), WINDOW, (1, 8), memory.clone()) }.unwrap();
        Bed { memory, mail }
    }

    fn number(&self, at: usize) -> u64 {
        self.memory.word(8 + 8 * at).load()
    }

    /// Writes these numbers as the request.
    fn writes(&self, request: &[u64]) {
        let to = self.mail.room(0, Letter::Request).cast::<u64>();
        // SAFETY: the room has so many bytes.
        unsafe { to.copy_from_nonoverlapping(request.as_ptr(), request.len()) };
    }

    fn applies(&self, number: u64, answer: &mut [u64]) -> Result<Applied, &'static str> {
        assert!(answer.len() * 8 >= ROOM);
        // SAFETY: the answer has room.
        unsafe { self.mail.apply(0, number, answer.as_mut_ptr().cast()) }
    }
}

fn what(action: Action, count: u64) -> u64 {
    count | u64::from(code_of(action).unwrap()) << 32
}

fn sizes(steps: u64, answer: u64) -> u64 {
    steps | answer << 32
}

#[test]
fn a_request_is_applied_once_and_in_its_turn() {
    let (bed, mut answer) = (Bed::new(), vec![0; ROOM / 8]);
    let (sum, fetch) = (what(SUM, 2), what(FETCH, 2));
    bed.writes(&[0, 77, sizes(2, 16), 8, sum, 3, 4, 16, fetch, 5, 6]);
    let applied = bed.applies(0, &mut answer).unwrap();
    assert_eq!((applied.notice, applied.answer), (77, 16));
    // The second step came behind the first one.
    assert_eq!(answer[..2], [4, 0]);
    assert_eq!([0, 1, 2].map(|at| bed.number(at)), [3, 9, 6]);
    for other in [1, 2, u64::MAX] {
        let refused = bed.applies(other, &mut answer).unwrap_err();
        assert!(refused.contains("come twice"), "{refused}");
    }
    assert_eq!(bed.number(0), 3);
}

#[test]
fn a_request_that_makes_no_sense_changes_nothing() {
    let (bed, mut answer) = (Bed::new(), vec![0; ROOM / 8]);
    let first = [8, what(SUM, 1), 9];
    let (long, most) = ((ROOM / 8) as u64, u64::from(u32::MAX));
    let end = WINDOW as u64;
    let swap = Action::CompareSwap {
        scalar: Scalar::U64,
        compare: Ptr::NULL,
        result: Ptr::NULL,
    };
    for (steps, size, second) in [
        (most, 0, vec![8, what(SUM, 1), 1]),
        (2, 0, vec![end, what(SUM, 1), 1]),
        (2, 0, vec![end - 8, what(SUM, 2), 1, 1]),
        (2, 0, vec![u64::MAX, what(SUM, 1), 1]),
        (2, 0, vec![u64::MAX - 7, what(SUM, 1), 1]),
        (2, 0, vec![12, what(SUM, 1), 1]),
        (2, 0, vec![8, what(SUM, 1) - 1, 1]),
        (2, 0, vec![8, what(SUM, long), 1]),
        (2, 0, vec![8, what(SUM, most), 1]),
        (2, 4 * long, vec![8, what(swap, long / 2), 1]),
        (2, 0, vec![8, what(FETCH, 1), 1]),
        (2, 16, vec![8, what(FETCH, 1), 1]),
        (2, 8, vec![8, what(SUM, 1), 1]),
        // Bitwise on floats, and an action, operation, type and kind of access that do not exist.
        (2, 0, vec![8, 1 | 0x0109_0800 << 32, 1]),
        (2, 0, vec![8, 1 | 3 << 32, 1]),
        (2, 0, vec![8, 1 | 9 << 40, 1]),
        (2, 0, vec![8, 1 | (Scalar::ALL.len() as u64) << 48, 1]),
        (2, 0, vec![8, 1 | 2 << 56, 1]),
    ] {
        let request = [&[0, 1, sizes(steps, size)], &first[..], &second[..]].concat();
        bed.writes(&request);
        assert!(bed.applies(0, &mut answer).is_err(), "{second:?}");
        assert_eq!(bed.number(0), 0, "{second:?}");
    }
}

#[test]
fn every_update_has_a_number_of_its_own() {
    let mut seen = std::collections::HashSet::new();
    for (scalar, op) in Scalar::ALL
        .into_iter()
        .flat_map(|scalar| Op::ALL.map(|op| (scalar, op)))
    {
        for atomic in [false, true] {
            let result = Ptr::NULL;
            let fetch = Action::FetchOp {
                op,
                scalar,
                result,
                atomic,
            };
            for action in [Action::Accumulate { op, scalar, atomic }, fetch] {
                let code = code_of(action).unwrap();
                assert!(seen.insert(code));
                let float = scalar.is_float();
                let known = Code::of(code);
                assert_eq!(known.is_none(), float && op.is_bitwise());
                let said = known.map(|code| (code.op, code.scalar, code.atomic));
                assert!(said.is_none_or(|said| said == (Some(op), scalar, atomic)));
            }
        }
    }
    assert_eq!(code_of(Action::Copy), None);
}

#[test]
fn letters_lie_apart() {
    for lines in [1, 2, 3, 100] {
        let mut last = rooms(lines);
        assert!(word_at(2 * lines) <= last);
        for line in 0..lines {
            for letter in [Letter::Request, Letter::Answer] {
                let number = letter.number(line);
                assert_eq!(Letter::of(number), (line, letter));
                assert_eq!(room_at(lines, number), last);
                last += ROOM;
            }
        }
        assert_eq!(bytes_of(lines), Some(last));
    }
    assert_eq!(bytes_of(usize::MAX), None);
}

/// The mail of a rank with many peers has room for all of them, of which most never write.
#[test]
#[cfg_attr(miri, ignore = "it reads how much memory the process has")]
fn zeroed_memory_is_not_touched() {
    const BYTES: usize = 256 << 20;
    let resident = || {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("RssAnon:"));
        let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
        kib.unwrap().parse::<usize>().unwrap() << 10
    };
    let before = resident();
    let memory = Zeroed::new(BYTES).unwrap();
    // Other tests of the process have far less.
    assert!(resident().saturating_sub(before) < BYTES / 2);
    memory.word(BYTES - 8).add(1);
    assert_eq!([0, BYTES - 8].map(|at| memory.word(at).load()), [0, 1]);
}
