//! What answers and reports say if there is more than fits into a message.

use tidegate_hal::ids::TeamId;

use super::*;
use crate::message::Inside;

/// The longest id.
const LAST: WindowId = WindowId {
    team: TeamId::new(TeamId::MOST).unwrap(),
    sequence: u32::MAX,
};

fn wait(stream: &str, peer: usize, millis: u64) -> Waiting {
    Waiting {
        stream: stream.to_owned(),
        window: "w".to_owned(),
        id: Some(WindowId::first(TeamId::WORLD)),
        half: Some(HalfKind::Inbox),
        epoch: 7,
        peer: peer as u32,
        awaited: "its post".to_owned(),
        enqueued: None,
        millis,
    }
}

fn waits(waits: impl IntoIterator<Item = Waiting>) -> Answer {
    Answer {
        waits: waits.into_iter().collect(),
        ..Answer::default()
    }
}

/// The report from the ranks' answers, after they have been sent as messages.
fn report(answers: impl IntoIterator<Item = Answer>) -> String {
    let answers = answers.into_iter().map(|mut answer| {
        brief(&mut answer);
        let message = WatchMessage::Answer { round: 1, answer };
        let bytes = Message::Watch(message).encode();
        assert!(bytes.len() <= Packet::MAX_BYTES, "{} bytes", bytes.len());
        match Message::decode(&bytes) {
            Some(Message::Watch(WatchMessage::Answer { answer, .. })) => answer,
            _ => panic!("it was an answer"),
        }
    });
    let answers: BTreeMap<_, _> = answers.enumerate().collect();
    let text = graph::describe(answers.len(), &answers, &BTreeMap::new(), TICK);
    assert!(text.len() <= graph::MOST, "{} bytes", text.len());
    text
}

/// What follows the rank in each line about it.
fn of(rank: usize, text: &str) -> Vec<&str> {
    let begin = format!("  rank {rank}: ");
    text.lines()
        .filter_map(|line| line.strip_prefix(&*begin))
        .collect()
}

#[test]
fn who_misses_a_report_can_find_out_why() {
    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl std::io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            lock(&self.0).write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    let told = |sent| {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || heed(sent));
        String::from_utf8(lock(&log.0).clone()).unwrap()
    };
    let too_large = ControlError::TooLarge {
        label: "a message".into(),
        bytes: 2000,
        most: 1000,
        handles: 0,
    };
    let reason = too_large.to_string();
    assert!(told(Err(too_large)).contains(&reason));
    assert_eq!(told(Ok(())), "");
    assert_eq!(told(Err(ControlError::Closed("left".into()))), "");
}

/// Names may have any length, and there may be any number of streams.
#[test]
fn an_answer_is_a_message() {
    let name = "ä".repeat(1 << 20);
    let named = |_| Waiting {
        window: name.clone(),
        epoch: u64::MAX,
        enqueued: Some(Enqueued::LastAt(format!("{name}.rs:1:2"))),
        ..wait(&name, u32::MAX as usize, u64::MAX)
    };
    let mut answer = Answer {
        waits: (0..3).map(named).collect(),
        busy: vec![(name.clone(), At::Kernel(Some(name.clone()))); 3],
        calls: vec![
            Calling {
                stream: name.clone(),
                call: "`synchronize`".to_owned(),
                site: Some(name.clone()),
                millis: u64::MAX,
            };
            2 * CALLS
        ],
        come: vec![(u64::MAX, u64::MAX); 2 * TEAMS],
        inside: vec![
            Inside {
                what: name.clone(),
                millis: u64::MAX,
                waits: true,
                gathering: u64::MAX,
                members: Some((0..4096).collect()),
            };
            2 * INSIDE
        ],
        dropped: vec![(LAST, HalfKind::Inbox); DROPPED],
        ..Answer::default()
    };
    brief(&mut answer);
    answer.waits = vec![answer.waits[0].clone(); 2 * LINES];
    answer.busy = vec![answer.busy[0].clone(); 2 * LINES];
    let text = report([answer]);
    assert!(
        of(0, &text)[0].contains("which all ranks that answered have come"),
        "{text}"
    );
}

/// The streams that have waited longest may have been made last.
#[test]
fn the_longest_wait_is_said_whatever_else_is() {
    let short = (0..3 * LINES).map(|number| wait(&format!("short {number}"), 0, 5));
    let long = [wait("overdue", 0, 40_000), wait("late", 0, 31_000)];
    let text = report([Answer::default(), waits(short.chain(long))]);
    let of_it = of(1, &text);
    assert!(
        of_it[0].contains("stream `overdue`, for 40000 ms"),
        "{}",
        of_it[0]
    );
    assert!(
        of_it[1].contains("stream `late`, for 31000 ms"),
        "{}",
        of_it[1]
    );
    let last = of_it.last().unwrap();
    let more = format!("and {} more waits, none of them longer", 2 * LINES + 2);
    assert_eq!(*last, more);
    assert_eq!(of_it.len(), LINES + 1);
}

/// Rank 1 waits for rank 0, too, but its answer has no room for that.
#[test]
fn there_may_be_a_cycle_through_a_wait_that_is_not_said() {
    let many = (0..LINES).map(|_| wait("s", 2, 50_000));
    let all = waits(many.chain([wait("s", 0, 40_000)]));
    let text = report([waits([wait("s", 1, 31_000)]), all, Answer::default()]);
    let may_be = "no cycle is seen, but there may be one: rank 1 has more waits than its answer had room for";
    assert!(text.contains(may_be), "{text}");
    // A cycle that is seen is reported.
    let back = waits((0..=LINES).map(|_| wait("s", 0, 50_000)));
    let text = report([waits([wait("s", 1, 31_000)]), back]);
    assert!(
        text.ends_with("cycle: rank 0 -> rank 1 -> rank 0"),
        "{text}"
    );
    assert!(!text.contains("no cycle"), "{text}");
}

#[test]
fn there_may_be_a_cycle_through_a_wait_that_a_device_does_not_say() {
    let some = Answer {
        unsaid: true,
        ..waits([wait("s", 2, 50_000)])
    };
    let text = report([waits([wait("s", 1, 31_000)]), some, Answer::default()]);
    assert!(
        of(1, &text)[0].starts_with("perhaps more than this report says: "),
        "{text}"
    );
    assert!(
        text.contains("but there may be one: rank 1 may wait for more than "),
        "{text}"
    );
}

/// Each stream waits for another one, but it is not known for which.
#[test]
fn of_the_streams_that_another_may_wait_for_some_are_named() {
    let busy = |count| Answer {
        busy: (0..count)
            .map(|number| (format!("s{number:04}"), At::Stream))
            .collect(),
        ..Answer::default()
    };
    let text = report([busy(4)]);
    let all =
        "its stream `s0000` waits for another of its streams (`s0001` or `s0002` or `s0003`): ";
    assert!(text.contains(all), "{text}");
    let text = report([busy(20)]);
    let some = " or `s0007` or `s0008` or another one): ";
    assert!(of(0, &text)[0].contains(some), "{text}");
    // The device says that it is at work, and the answer has no room for the streams.
    let text = report([busy(LINES + 5)]);
    assert!(text.len() < 300 * LINES, "{} bytes", text.len());
    let text = report([busy(LINES + 5), Answer::default()]);
    assert!(of(0, &text).last().unwrap().starts_with("and "), "{text}");
}

/// Whatever has no room is counted, and there is always room for the conclusion.
#[test]
fn a_report_of_many_ranks_is_short_and_ends_with_its_cycles() {
    const RANKS: usize = 3000;
    let name = "n".repeat(NAME);
    let ring = |rank: usize| {
        waits([
            wait(&name, (rank + 1) % RANKS, 50_000),
            wait(&name, rank, 1),
        ])
    };
    let text = report((0..RANKS).map(ring));
    assert!(
        text.contains(" more ranks, for which this report has no room"),
        "{}",
        text.len()
    );
    let pairs = |rank: usize| waits([wait(&name, rank ^ 1, 50_000)]);
    let text = report((0..RANKS).map(pairs));
    let cycles = text
        .lines()
        .filter(|line| line.starts_with("  cycle: "))
        .count();
    let last = text.lines().last().unwrap();
    assert_eq!(last, format!("  and {} more cycles", RANKS / 2 - cycles));
    let long = |rank: usize| waits([wait(&name, (rank + 1) % RANKS, 50_000)]);
    let text = report((0..RANKS).map(long));
    let last = text.lines().last().unwrap();
    assert!(
        last.starts_with("  cycle: rank 0 -> rank 1 -> rank 2 -> "),
        "{last}"
    );
    assert!(
        last.ends_with(" -> rank 31 -> (2967 more) -> rank 2999 -> rank 0"),
        "{last}"
    );
}
