//! A lane that only waits, by the PTX.
//!
//! # Model
//!
//! The thread is carried out under many conditions: states of the stream, times at which the word comes, and results of
//! the called functions. It must do what the source says, with the same addresses and values, in the same order. Before
//! `griddepcontrol.wait` it reads only its program. It stores the operand exactly when an acquire, or `wait_long`, has
//! seen the word come far enough. The next launch may begin once, by the last team of the block that passes: when all
//! is promised, or when the word has come.
//!
//! Whether the test finds errors is tested as well: each instruction of the thread is changed or left out.

use tidegate_hal::batch::{POISON, QUANTUM};

use super::flow::body;
use super::random::Rng;
use super::thread::{Did, PARAMETER, SHARED, Start, Trace, carry_out};
use super::{TEXTS, entry, functions};
use tidegate_gpu::layout::{
    LANE_WAITS, LAUNCH_NEXT, LaunchParameter, MOST_BLOCKS, Plain, Record, ShortLane, TEAM_WARPS,
};

const PROGRAM: u64 = 0x10_0000;
const STATE: u64 = 0x20_0000;
const WORD: u64 = 0x30_0000;
const OPERAND: u64 = 0x40_0000;
const STEPS: u32 = 0x123;

const ACQUIRE: &str = "ld.acquire.sys.global.u64";
const COUNT_DOWN: &str = "atom.relaxed.cta.shared::cta.add.u32";
const LET: &str = "griddepcontrol.launch_dependents";
const HAS_FAILED: &str = "_Z10has_failedRK6Launch";
const WAIT_LONG: &str = "_Z9wait_longRK6LaunchPK8WaitStepyb";
/// How often it looks before the wait counts as a long one.
const LOOKS: usize = 64;

/// The conditions for the thread.
#[derive(Clone, Debug)]
struct Case {
    /// How many lanes its block has, and which of them it carries out.
    lanes: u64,
    member: u64,
    next: bool,
    stop: bool,
    follows: bool,
    from: u64,
    quantum: u64,
    /// The values of the word at each look. The last one stays.
    values: Vec<u64>,
    failed: bool,
    comes: bool,
    /// Whether it is the last of its block to pass.
    last: bool,
}

impl Case {
    fn new(rng: &mut Rng) -> Self {
        let from = rng.of(&[0, 1, 5, 77]) * QUANTUM;
        let quantum = rng.of(&[0, QUANTUM, QUANTUM, 3 * QUANTUM]);
        let end = from + quantum;
        let early = [
            end.wrapping_sub(1) & !POISON,
            end.wrapping_sub(1) | POISON,
            end.wrapping_sub(MOST_BLOCKS) & !POISON,
            end.wrapping_sub(MOST_BLOCKS) | POISON,
            end.wrapping_sub(MOST_BLOCKS + 1) & !POISON,
            end.wrapping_sub(QUANTUM / 2) & !POISON,
            // A promise of the epoch before.
            from.wrapping_sub(1) & !POISON,
            end.wrapping_sub(QUANTUM) & !POISON,
            // An old value, less than the operand.
            from.wrapping_sub(QUANTUM) & !POISON,
        ];
        // Before an operand of 0 there is nothing, and a ticket of 0 has come at once.
        let early: Vec<_> = early
            .into_iter()
            .filter(|value| value & !POISON < end && value >> 63 == 0)
            .collect();
        let looks = rng.of(&[0, 0, 1, 2, LOOKS - 1, LOOKS, LOOKS + 9]);
        let looks = if early.is_empty() { 0 } else { looks };
        let mut values: Vec<_> = (0..looks).map(|_| rng.of(&early)).collect();
        values.push(rng.of(&[end, end, end + 1, end + 7 * QUANTUM, end | POISON]));
        let lanes = rng.of(&[1, 3]);
        Case {
            lanes,
            member: rng.below(lanes as usize) as u64,
            next: rng.once_in(2),
            stop: rng.once_in(4),
            follows: rng.once_in(4),
            from,
            quantum,
            values,
            failed: rng.once_in(2),
            comes: rng.once_in(2),
            last: rng.once_in(2),
        }
    }

    fn start(&self, thread: u64) -> Start {
        let lane = ShortLane {
            kind: LANE_WAITS,
            steps: STEPS,
            word: WORD,
            operand: OPERAND,
            quantum: self.quantum,
            ..ShortLane::default()
        };
        let other = ShortLane {
            kind: LANE_WAITS,
            word: 8,
            operand: 8,
            quantum: 8,
            ..ShortLane::default()
        };
        let record = Record {
            team: TEAM_WARPS,
            lanes: self.lanes as u8,
            ..Record::default()
        };
        let mut own = record.bytes().to_vec();
        for member in 0..self.lanes {
            let lane = if member == self.member { lane } else { other };
            own.extend_from_slice(lane.bytes());
        }
        let stride = own.len();
        // The record of another block must not be read.
        let parameter = LaunchParameter {
            program: PROGRAM,
            state: STATE,
            mirror: 0x50_0000,
            follow: [if self.follows { 0x60_0000 } else { 0 }, 0],
            stride: stride as u32,
            flags: if self.next { LAUNCH_NEXT } else { 0 },
        };
        let memory = vec![
            (PROGRAM + stride as u64, own),
            (PARAMETER, parameter.bytes().to_vec()),
        ];
        Start {
            block: 1,
            thread,
            memory,
        }
    }

    /// The first actions of any thread. If nothing begins early, there is nothing to count.
    fn begins(&self, thread: u64, new: bool) -> Vec<Did> {
        let mut did = Vec::new();
        if new && self.lanes > 1 {
            if thread == 0 {
                did.push(Did::new("st.shared.u32", &[SHARED, self.lanes]));
            }
            did.push(Did::new("bar.sync", &[0]));
        }
        did
    }

    /// The actions of the lane's thread, as the source says.
    fn expected(&self, new: bool) -> Vec<Did> {
        let mut did = self.begins(32 * self.member, new);
        if new {
            did.push(Did::new("griddepcontrol.wait", &[]));
            if self.next {
                did.push(Did::new(LET, &[]));
            }
        }
        let pass = |did: &mut Vec<Did>| {
            if !new {
                return;
            }
            if self.lanes > 1 {
                did.push(Did::new(COUNT_DOWN, &[SHARED, u64::MAX]));
            }
            if self.lanes == 1 || self.last {
                did.push(Did::new(LET, &[]));
            }
        };
        let mut passed = false;
        did.push(Did::new("ld.relaxed.sys.global.u64", &[OPERAND]));
        did.push(Did::new("ld.relaxed.sys.global.u32", &[STATE]));
        did.push(Did::new(ACQUIRE, &[WORD]));
        let late = self.stop || self.follows || self.values.len() > LOOKS;
        if !self.stop && !self.follows {
            let again = LOOKS.min(self.values.len() - 1);
            for value in &self.values[..again] {
                let lacks = (self.from + self.quantum).wrapping_sub(value & !POISON);
                if self.quantum == QUANTUM && lacks <= MOST_BLOCKS && !passed {
                    pass(&mut did);
                    passed = true;
                }
                did.push(Did::new(ACQUIRE, &[WORD]));
            }
        }
        if late {
            did.push(Did::new(HAS_FAILED, &[PARAMETER]));
            if self.failed {
                return did;
            }
            let step = PROGRAM + 16 * u64::from(STEPS);
            did.push(Did::new(WAIT_LONG, &[PARAMETER, step, self.from, 1]));
            if !self.comes {
                return did;
            }
        }
        if !passed {
            pass(&mut did);
        }
        if self.quantum != 0 {
            let end = self.from + self.quantum;
            did.push(Did::new("st.relaxed.sys.global.u64", &[OPERAND, end]));
        }
        did
    }

    /// Carries out a thread of the block.
    fn carry_out(&self, body: &[String], thread: u64) -> Result<Trace, String> {
        let mut values = self.values.iter();
        let mut last = 0;
        carry_out(body, &self.start(thread), |did| match did.what.as_str() {
            "ld.relaxed.sys.global.u64" => self.from,
            "ld.relaxed.sys.global.u32" => u64::from(self.stop),
            HAS_FAILED => u64::from(self.failed),
            COUNT_DOWN => 2 - u64::from(self.last),
            WAIT_LONG => u64::from(self.comes),
            _ if did.with == [WORD] => {
                last = values.next().copied().unwrap_or(last);
                last
            }
            _ => 0,
        })
    }
}

/// Carries out all cases, and returns all lines and branches that they took.
fn check(body: &[String], new: bool) -> Result<Trace, String> {
    let rng = &mut Rng::new(0x9a17);
    let mut all = Trace::default();
    for _ in 0..600 {
        let case = Case::new(rng);
        let trace = case.carry_out(body, 32 * case.member)?;
        let expected = case.expected(new);
        if trace.did != expected {
            return Err(format!("{case:?}: {:?} and not {expected:?}", trace.did));
        }
        all.lines.extend(trace.lines);
        all.branches.extend(trace.branches);
        // The other threads of its warp, and the warps behind, have nothing else to do.
        for thread in [32 * case.member + 1, 32 * case.member + 31, 32 * case.lanes] {
            let trace = case.carry_out(body, thread)?;
            if trace.did != case.begins(thread, new) {
                return Err(format!("thread {thread} does {:?}", trace.did));
            }
        }
    }
    Ok(all)
}

/// The entry functions of all texts but those of the stamped kernel, which also notes times. (They are from the same
/// source, and the other tests follow them.)
fn all() -> impl Iterator<Item = (String, Vec<String>, bool)> {
    TEXTS.into_iter().take(2).map(|(text, new)| {
        let name = entry(&functions(text)).0.clone();
        let body = body(text, &name).into_iter().map(str::to_owned).collect();
        (name, body, new)
    })
}

/// A lane that only waits does what its source says, in that order.
#[test]
fn who_only_waits_does_so_in_order() {
    for (name, body, new) in all() {
        let trace = check(&body, new).unwrap_or_else(|why| panic!("{name}: {why}"));
        // The cases are complete if all branches went both ways.
        for (at, _) in &trace.branches {
            let both = [false, true].map(|way| trace.branches.contains(&(*at, way)));
            assert_eq!(both, [true; 2], "{name}: {}", body[*at]);
        }
        assert!(trace.branches.len() >= 2 * 6, "{name}");
        // The first look and the later ones; and one place where the operand is stored.
        let count = |start: &str| {
            let lines = trace.lines.iter();
            lines.filter(|at| body[**at].starts_with(start)).count()
        };
        assert_eq!(count(ACQUIRE), 2, "{name}");
        assert_eq!(count("st."), 1 + count("st.param"), "{name}");
        assert_eq!(count("griddepcontrol.wait"), usize::from(new), "{name}");
    }
}

fn is_primitive(body: &[String], at: usize) -> bool {
    body[at - 1] == "// begin inline asm"
}

/// Errors that a line of the thread could have. `before` are the primitives in front of it.
fn errors(body: &[String], at: usize, before: &[usize]) -> Vec<Vec<String>> {
    let line = &body[at];
    let mut lines = Vec::new();
    if let Some(code) = line.strip_prefix('@') {
        // A branch that is never taken, always taken, or taken in the opposite case.
        let (guard, code) = code.split_once(' ').expect("a guard guards something");
        lines.push(String::new());
        lines.push(code.trim().to_owned());
        lines.push(format!("@!{guard} {code}"));
    }
    if is_primitive(body, at) {
        lines.push(String::new());
    }
    // Orders and scopes that are too weak, and other results.
    let others = [
        ("ld.acquire", "ld.relaxed"),
        (".sys.", ".gpu."),
        ("st.relaxed.sys.global", "st.global"),
        ("add.s64", "sub.s64"),
        ("sub.s64", "add.s64"),
        ("-4611686018427387905", "-1"),
        ("1048320", "1048319"),
        ("1048320", "1048321"),
        ("1048321", "1048320"),
        ("1048321", "1048322"),
        ("1048576", "1048577"),
        ("setp.lt.s64", "setp.lt.u64"),
        ("setp.lt.s64", "setp.le.s64"),
        ("setp.ge.s64", "setp.ge.u64"),
        ("setp.ge.s64", "setp.gt.s64"),
        ("setp.eq.s16", "setp.ne.s16"),
        ("setp.ne.s16", "setp.eq.s16"),
        ("or.pred", "and.pred"),
    ];
    let changed = others.iter().filter(|(from, _)| line.contains(from));
    lines.extend(changed.map(|(from, to)| line.replace(from, to)));
    let with = |line| {
        let mut body = body.to_vec();
        body[at] = line;
        body
    };
    let mut errors: Vec<_> = lines.into_iter().map(with).collect();
    // A primitive that comes too early. (The first look equals the later ones.)
    let others = before.iter().filter(|before| body[**before] != body[at]);
    errors.extend(others.map(|before| {
        let mut body = body.to_vec();
        body.swap(*before, at);
        body
    }));
    // Together with the value that it stores.
    if line.starts_with("st.relaxed") {
        assert!(body[at - 2].starts_with("add.s64"), "{}", body[at - 2]);
        let load = before
            .iter()
            .find(|at| body[**at].starts_with("ld.relaxed"));
        let behind = load.expect("the operand is loaded") + 2;
        let mut body = body.to_vec();
        body[behind..at + 2].rotate_right(4);
        errors.push(body);
    }
    errors
}

/// An error in any line of the thread is found.
#[test]
fn errors_of_who_only_waits_are_found() {
    for (name, body, new) in all() {
        let lines = check(&body, new).expect("as the other test says").lines;
        let mut tried = 0;
        for at in &lines {
            let before: Vec<_> = match is_primitive(&body, *at) {
                true => lines.range(..at).copied().collect(),
                false => Vec::new(),
            };
            let before: Vec<_> = before
                .into_iter()
                .filter(|at| is_primitive(&body, *at))
                .collect();
            for wrong in errors(&body, *at, &before) {
                tried += 1;
                let found = check(&wrong, new).is_err();
                assert!(found, "{name}: {} ({at}) as {}", body[*at], wrong[*at]);
            }
        }
        assert!(tried > 50, "{name}: {tried}");
    }
}
