//! What a report says about ranks that wait for each other.

use tidegate_hal::ids::TeamId;

use super::*;
use crate::message::Calling;

const DEADLINE: Duration = Duration::from_secs(30);

fn window(sequence: u32) -> WindowId {
    let team = TeamId::WORLD;
    WindowId { team, sequence }
}

fn report_of(size: usize, answers: &BTreeMap<usize, Answer>) -> String {
    describe(size, answers, &BTreeMap::new(), DEADLINE)
}

fn waits_for(peer: u32) -> Answer {
    let wait = Waiting {
        stream: "s".into(),
        window: "halo".into(),
        epoch: 7,
        peer,
        id: Some(window(5)),
        half: Some(HalfKind::Inbox),
        awaited: "its post".into(),
        enqueued: Some(Enqueued::At("src/main.rs:12:5".into())),
        millis: 31_000,
    };
    Answer {
        waits: vec![wait],
        ..Answer::default()
    }
}

/// A rank whose program is in its exchange number `come`, or about to be.
fn in_a_call(come: u64, waits: bool) -> Answer {
    let inside = Inside {
        what: "all-gather `results`".into(),
        millis: 31_000,
        waits,
        gathering: 0,
        members: None,
    };
    Answer {
        come: vec![(0, come)],
        inside: vec![inside],
        ..Answer::default()
    }
}

fn graph(edges: &[(usize, usize)]) -> BTreeMap<usize, BTreeSet<usize>> {
    let mut graph: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    for (from, to) in edges {
        graph.entry(*from).or_default().insert(*to);
    }
    graph
}

#[test]
fn a_ring_is_one_cycle_and_a_chain_is_none() {
    assert_eq!(cycles(&graph(&[(0, 1), (1, 2), (2, 0)])), [vec![0, 1, 2]]);
    assert_eq!(cycles(&graph(&[(0, 1), (1, 2)])), Vec::<Vec<usize>>::new());
    assert_eq!(
        cycles(&graph(&[(0, 1), (1, 2), (2, 1), (3, 3)])),
        [vec![1, 2], vec![3]]
    );
}

#[test]
fn the_report_names_windows_and_cycles() {
    let answers = BTreeMap::from([(0, waits_for(1)), (1, waits_for(0)), (2, Answer::default())]);
    let text = report_of(4, &answers);
    assert!(
        text.contains(
            "rank 0: rank 1, its post (window `halo`, number 5, epoch 7, stream `s`, enqueued at src/main.rs:12:5, for 31000 ms)"
        ),
        "{text}"
    );
    assert!(
        text.ends_with("cycle: rank 0 -> rank 1 -> rank 0"),
        "{text}"
    );
    assert!(text.contains("rank 3: did not answer"), "{text}");
}

#[test]
fn ranks_that_have_ended_wait_for_nobody() {
    let answers = BTreeMap::from([(1, waits_for(2)), (2, Answer::default())]);
    let rank = 3;
    let reason = "its program has panicked".into();
    let gone = BTreeMap::from([
        (0, Cause::PeerLeft { rank: 0 }),
        (rank, Cause::PeerLost { rank, reason }),
    ]);
    let text = describe(4, &answers, &gone, DEADLINE);
    for part in [
        "  rank 0: has left the job\n",
        "  rank 3: is lost (its program has panicked)\n",
        "no cycle: ",
    ] {
        assert!(text.contains(part), "{text}");
    }
}

#[test]
fn a_collective_call_waits_for_all_who_have_not_come() {
    let answers = BTreeMap::from([
        (
            0,
            Answer {
                come: vec![(0, 4)],
                ..waits_for(2)
            },
        ),
        (
            1,
            Answer {
                come: vec![(0, 4)],
                ..Answer::default()
            },
        ),
        (2, in_a_call(5, true)),
    ]);
    let text = report_of(3, &answers);
    assert!(
        text.contains("rank 2: ranks 0, 1, to come to all-gather `results` (for 31000 ms)"),
        "{text}"
    );
    assert!(
        text.contains("cycle: rank 0 -> rank 2 -> rank 0 (unless "),
        "{text}"
    );
    // A rank that waits for nobody is late.
    let late = BTreeMap::from([(0, Answer::default()), (1, in_a_call(1, true))]);
    let text = report_of(2, &late);
    assert!(
        text.contains("rank 1: rank 0, to come to all-gather") && text.contains("no cycle: "),
        "{text}"
    );
}

#[test]
fn who_has_dropped_what_others_wait_for_is_named() {
    let report = |dropped: [(u32, HalfKind); 2]| {
        let dropped = dropped
            .map(|(sequence, half)| (window(sequence), half))
            .to_vec();
        let late = Answer {
            dropped,
            ..Answer::default()
        };
        report_of(2, &BTreeMap::from([(0, waits_for(1)), (1, late)]))
    };
    let text = report([(4, HalfKind::Inbox), (5, HalfKind::Inbox)]);
    let dropped = "rank 1: nothing, and it has dropped its inbox of window `halo`, number 5";
    assert!(text.contains(dropped), "{text}");
    let text = report([(4, HalfKind::Inbox), (5, HalfKind::Outbox)]);
    assert!(text.contains(&format!("rank 1: {NOTHING}\n")), "{text}");
}

#[test]
fn streams_that_are_at_work_are_named() {
    let busy = [
        ("a", At::Kernel(None)),
        ("b", At::Stream),
        ("c", At::Something),
        ("d", At::Kernel(Some("relax".to_owned()))),
    ];
    let busy = busy.map(|(name, at)| (name.to_owned(), at)).to_vec();
    let late = Answer {
        busy,
        ..Answer::default()
    };
    let text = report_of(2, &BTreeMap::from([(0, waits_for(1)), (1, late)]));
    for part in [
        "rank 1: no rank, but its stream `a` runs a kernel: ",
        "rank 1: no rank, but its stream `b` waits for another of its streams (`a` or `c` or `d`): ",
        "rank 1: no rank, but its stream `d` runs the kernel `relax`: ",
        "rank 1: no rank, but its stream `c` may be at work (it runs a kernel, ",
        "no cycle: ",
    ] {
        assert!(text.contains(part), "{text}");
    }
    assert!(!text.contains("nothing"), "{text}");
}

fn in_a_call_on(stream: &str, call: &str, answer: Answer) -> Answer {
    let call = Calling {
        stream: stream.into(),
        call: call.into(),
        site: Some("src/main.rs:13:5".into()),
        millis: 31_000,
    };
    Answer {
        calls: vec![call],
        ..answer
    }
}

/// Neither program enqueues what the other's stream waits for.
#[test]
fn programs_that_wait_for_their_own_streams_are_named() {
    let one = in_a_call_on("s", "`synchronize`", waits_for(1));
    let two = in_a_call_on("t", "`launch`", waits_for(0));
    let text = report_of(2, &BTreeMap::from([(0, one), (1, two.clone())]));
    for part in [
        "rank 0: its own stream `s`, in `synchronize` at src/main.rs:13:5 (for 31000 ms)\n",
        "rank 1: its own stream `t`, in `launch` at src/main.rs:13:5 (for 31000 ms)\n",
        "cycle: rank 0 -> rank 1 -> rank 0 (the program waits for a stream of its own on ranks 0, 1)",
    ] {
        assert!(text.contains(part), "{text}");
    }
    let text = report_of(2, &BTreeMap::from([(0, waits_for(1)), (1, two)]));
    assert!(text.ends_with("a stream of its own on rank 1)"), "{text}");
}

#[test]
fn a_kernel_that_does_not_end_holds_up_who_waits_for_it() {
    let busy = vec![("s".to_owned(), At::Kernel(Some("relax".to_owned())))];
    let works = Answer {
        busy,
        ..Answer::default()
    };
    let held = in_a_call_on("s", "`synchronize`", works.clone());
    let text = report_of(2, &BTreeMap::from([(0, waits_for(1)), (1, held)]));
    for part in [
        "rank 1: its own stream `s`, in `synchronize` at src/main.rs:13:5 (for 31000 ms)\n",
        "rank 1: no rank, but its stream `s` runs the kernel `relax`: ",
        "no cycle: a kernel that may not end, on a stream that the program waits for, holds up rank 1",
    ] {
        assert!(text.contains(part), "{text}");
    }
    // The kernel is not the reason if the call is short, or if the stream may wait for another one.
    let mut short = in_a_call_on("s", "`synchronize`", works.clone());
    short.calls[0].millis = 29_999;
    let others = [At::Stream, At::Something].map(|at| {
        let busy = vec![("s".to_owned(), at)];
        let works = Answer {
            busy,
            ..Answer::default()
        };
        in_a_call_on("s", "`synchronize`", works)
    });
    for other in others.into_iter().chain([short]) {
        let text = report_of(2, &BTreeMap::from([(0, waits_for(1)), (1, other)]));
        let last = "  no cycle: rank 1 is late, or never posts, completes or makes its call: \
                    it waits for its own stream `s`, ";
        assert!(text.contains(last), "{text}");
    }
    // A rank that does not wait for the kernel may be late for another reason.
    let text = report_of(2, &BTreeMap::from([(0, waits_for(1)), (1, works)]));
    let last = "makes its call: its stream `s` runs the kernel `relax`: \
                the work behind it is not done yet (rank 0 waits for it)";
    assert!(text.ends_with(last), "{text}");
}

#[test]
fn what_is_not_known_is_not_denied() {
    let known = |answers: &[Answer], size| {
        let answers = answers.iter().cloned().enumerate().collect();
        let text = report_of(size, &answers);
        assert_eq!(
            text.contains("there may be one"),
            !text.contains("no cycle: "),
            "{text}"
        );
        text.contains("no cycle: ")
    };
    let nothing = Answer::default();
    assert!(known(&[waits_for(1), nothing.clone()], 2));
    assert!(!known(&[waits_for(1)], 2), "rank 1 has not answered");
    assert!(!known(&[waits_for(1), in_a_call(0, false)], 2));
    let both = [in_a_call(1, true), in_a_call(1, true)];
    assert!(!known(&both, 2), "all have come, and it is not over");
}

/// Many ranks wait for the same thing, and for different times. One is late.
#[test]
fn a_late_rank_of_many_is_named_last() {
    let waits = |rank: u64| {
        let mut answer = waits_for(5);
        answer.waits[0].millis += rank;
        answer
    };
    let mut answers: BTreeMap<_, _> = (0..8).map(|rank| (rank as usize, waits(rank))).collect();
    answers.insert(5, Answer::default());
    let text = report_of(8, &answers);
    let lines: Vec<_> = text.lines().skip(1).collect();
    let expected = [
        "  ranks 0-4, 6, 7, each: rank 5, its post (window `halo`, number 5, epoch 7, stream `s`, \
         enqueued at src/main.rs:12:5, for 31000 to 31007 ms)",
        "  rank 5: nothing: its streams have done all that its program has enqueued",
        "  no cycle: rank 5 is late, or never posts, completes or makes its call: \
         its streams have done all that its program has enqueued (ranks 0-4, 6, 7 wait for it)",
    ];
    assert_eq!(lines, expected);
    // Of a rank that does not answer, it is not known what it does.
    answers.remove(&5);
    let text = report_of(8, &answers);
    let last = "there may be one: rank 5 did not answer (ranks 0-4, 6, 7 wait for it)";
    assert!(text.ends_with(last), "{text}");
    answers.insert(5, Answer::default());
    answers.insert(6, Answer::default());
    answers.insert(7, waits_for(6));
    let text = report_of(8, &answers);
    let last = "no cycle: ranks 5, 6 are late, or never post, complete or make their calls";
    assert!(text.ends_with(last), "{text}");
}
