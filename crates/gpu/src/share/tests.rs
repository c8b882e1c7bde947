use super::*;
use crate::driver::SharedMemory;

/// How many launches an H200 can have resident at a time.
const LAUNCHES: usize = 128;

/// The users as a process sees them that shares an H200 at the same time.
fn together(others: usize, own: usize, least: usize) -> Users {
    Users {
        others,
        own,
        launches: LAUNCHES,
        sharing: Sharing::Together,
        least,
    }
}

fn limits(multiprocessors: usize) -> Limits {
    Limits {
        vendor: "test",
        name: "a GPU".into(),
        ordinal: 0,
        uuid: [0; 16],
        multiprocessors,
        shared_memory: SharedMemory::default(),
        wave: 32,
        dependent_launch: true,
        word_operations: true,
        sharing: Sharing::Together,
        launches: LAUNCHES,
        queues: 8,
        queue_advice: String::new(),
        sharing_advice: "this is why",
    }
}

fn admitted(multiprocessors: usize) -> Admitted {
    Admitted::of(&limits(multiprocessors), Early::Resident)
}

fn by_turns(others: usize) -> Users {
    Users {
        others,
        own: 132,
        launches: LAUNCHES,
        sharing: Sharing::InTurn,
        least: 0,
    }
}

#[test]
fn who_takes_turns_has_gates_and_all_blocks() {
    for (mode, others, waits) in [
        (Mode::Auto, 0, Waits::Spin),
        (Mode::Auto, 1, Waits::Gated),
        (Mode::Never, 1, Waits::Spin),
        (Mode::Always, 0, Waits::Gated),
        (Mode::Always, 1, Waits::Gated),
    ] {
        let got = terms(mode, by_turns(others), true);
        let alone = Terms {
            waits,
            blocks: 99,
            streams: usize::MAX,
            multiprocessors: if others > 0 { 0 } else { 132 },
        };
        assert_eq!(got, alone, "{mode:?}, {others}");
        // A device without the operations has no gates; that does not matter if none are wanted.
        let without = terms(mode, by_turns(others), false).waits;
        assert_eq!(without == Waits::Crawl, waits == Waits::Gated);
    }
}

#[test]
fn together_there_are_no_gates_and_blocks_are_divided() {
    for (others, blocks, streams) in [
        (0, 99, usize::MAX),
        (1, 49, 24),
        (3, 24, 12),
        (7, 12, 6),
        (11, 8, 4),
        (47, 2, 1),
        (59, 1, 0),
        (200, 0, 0),
    ] {
        let divided = Terms {
            waits: Waits::Spin,
            blocks,
            streams,
            multiprocessors: 132 / (others + 1),
        };
        let users = together(others, 132, 132);
        for word_operations in [false, true] {
            for mode in [Mode::Auto, Mode::Never] {
                assert_eq!(terms(mode, users, word_operations), divided);
            }
        }
        // A process whose environment asks for gates still has waits without one.
        let gated = Terms {
            waits: Waits::Gated,
            ..divided
        };
        assert_eq!(terms(Mode::Always, users, true), gated);
    }
}

#[test]
fn one_process_in_turn_makes_turns_of_it() {
    let waits = Waits::Gated;
    // This process shares the GPU at the same time, and another does not.
    let got = terms(Mode::Auto, together(2, 132, 0), true);
    assert_eq!((got.waits, got.blocks), (waits, 33));
    assert_eq!(got.multiprocessors, 0);
    let other = Users {
        least: 0,
        ..by_turns(2)
    };
    assert_eq!(terms(Mode::Auto, other, true).waits, waits);
}

/// Portions may be the same multiprocessors. So all blocks of half a multiprocessor each, and as many early ones, must
/// find room on the smallest portion, and leave a quarter of it.
#[test]
fn all_processes_fit_the_least_portion() {
    for processes in 2..=60 {
        for portions in [[132, 132], [132, 66], [16, 132], [2, 132], [7, 9]] {
            let least = *portions.iter().min().unwrap();
            let of = |process: usize| portions[process % 2];
            let all: usize = (0..processes)
                .map(|process| {
                    terms(
                        Mode::Auto,
                        together(processes - 1, of(process), least),
                        true,
                    )
                })
                .map(|terms| terms.blocks)
                .sum();
            assert!(4 * all <= 3 * least, "{processes} of {portions:?}: {all}");
            let streams = terms(Mode::Auto, together(processes - 1, 132, 132), true).streams;
            assert!(
                4 * 2 * streams * processes <= 3 * LAUNCHES,
                "{processes}: {streams}"
            );
        }
    }
}

#[test]
fn streams_have_equal_parts() {
    assert_eq!(quota_of(99, 2), 49);
    assert_eq!(quota_of(99, 0), 99);
    assert_eq!(quota_of(12, 2), 6);
    // A quota is at least 1. If there is no block left, granting it fails.
    assert_eq!(quota_of(0, 2), 1);
    assert_eq!(quota_of(10_000, 1), MAX_BLOCKS);
}

#[test]
fn what_is_dealt_is_never_more_than_there_is() {
    let mut admitted = admitted(132);
    assert_eq!(admitted.deal(2, 0).unwrap(), 49);
    assert_eq!(admitted.deal(2, 0).unwrap(), 49);
    let refused = |admitted: &mut Admitted| admitted.deal(2, 0).unwrap_err().to_string();
    let error = refused(&mut admitted);
    assert!(error.contains("98 of 99 are granted, and"), "{error}");
    admitted.take_back((49, 0));
    // A process that uses the GPU in turn takes nothing away.
    assert!(!admitted.renew(terms(Mode::Auto, by_turns(3), true), 3) && admitted.dealing == 0);
    // Seven others have come, so all blocks are dealt again.
    let of = |others| terms(Mode::Auto, together(others, 132, 132), true);
    assert!(admitted.renew(of(7), 7) && admitted.dealing == 1);
    assert_eq!(admitted.deal(2, 0).unwrap(), 6);
    assert_eq!(admitted.deal(2, 0).unwrap(), 6);
    let error = refused(&mut admitted);
    assert!(error.contains("with 7 other processes"), "{error}");
    // A quota of an earlier dealing that comes back late does not count.
    admitted.take_back((49, 0));
    assert!(admitted.deal(2, 0).is_err());
    // Another world has fewer processes, but those seven still exist.
    assert!(!admitted.renew(of(1), 1));
    assert!(admitted.deal(2, 0).is_err());
    // If only the blocks become fewer, no more streams may wait either.
    let small = terms(Mode::Auto, together(1, 132, 16), true);
    assert!(small.blocks < 12 && small.streams > 6);
    assert!(admitted.renew(small, 1) && admitted.waiting == 6 && admitted.others == 7);
    // As many streams have quotas as there are launches, so the remaining blocks cannot be granted.
    assert!(admitted.renew(of(47), 47));
    assert_eq!(admitted.deal(2, 0).unwrap(), 2);
    assert!(refused(&mut admitted).contains("to 1 streams of 1 at most"));
    // With one more process there are as many blocks, but no launch is left for any stream.
    assert_eq!(of(48).blocks, of(47).blocks);
    assert!(admitted.renew(of(48), 48) && admitted.deal(1, 0).is_err());
    // There is nothing left for any stream: an error, and no block.
    assert!(admitted.renew(of(200), 200));
    assert!(matches!(
        admitted.deal(1, 0),
        Err(DeviceError::Exhausted { .. })
    ));
}

/// The example in the documentation of all-reduces: three lanes for each rank, of which a block carries out 16.
#[test]
fn ranks_that_an_all_reduce_may_have() {
    let ranks = |multiprocessors, expected| {
        admitted(multiprocessors).quota(expected) * (crate::lower::THREADS / 32) / 3
    };
    assert_eq!(
        [2, 1, 12].map(|expected| ranks(132, expected)),
        [261, 528, 42]
    );
}

#[test]
fn a_device_that_nobody_has_seen_shared_has_one_process() {
    let limits = Limits {
        sharing: Sharing::Unknown,
        ..limits(132)
    };
    let mut admitted = Admitted::of(&limits, Early::Resident);
    assert_eq!(admitted.deal(2, 0).expect("the process is alone"), 49);
    let users = |others| Users {
        sharing: Sharing::Unknown,
        ..by_turns(others)
    };
    assert!(!admitted.renew(terms(Mode::Auto, users(0), false), 0));
    assert!(admitted.renew(terms(Mode::Auto, users(3), false), 3));
    let error = admitted.deal(2, 0).expect_err("it is shared").to_string();
    assert!(
        error.contains("nobody has seen") && error.contains("a GPU"),
        "{error}"
    );
    // Once it was shared, it stays refused: the other processes may come back.
    assert!(!admitted.renew(terms(Mode::Auto, users(0), false), 0));
    assert!(admitted.deal(2, 0).is_err());
}

/// Kernels that own halves and batches of other streams, in either order.
#[test]
fn kernels_that_wait_leave_room_for_other_streams() {
    let mut admitted = admitted(132);
    let large = |blocks| Shape { blocks, each: 1 };
    let quota = admitted.deal(2, 1).unwrap();
    assert_eq!(quota, 49);
    let error = admitted.own(1, large(132), quota).unwrap_err().to_string();
    assert!(
        error.contains("It has 132, and a multiprocessor has room for 1."),
        "{error}"
    );
    // A stream alone leaves half a multiprocessor. The next kernel of the same stream comes behind it.
    admitted.own(1, large(131), quota).unwrap();
    admitted.own(1, large(100), quota).unwrap();
    // Nobody else has room then.
    assert!(admitted.deal(2, 2).is_err());
    assert_eq!(admitted.granted, quota);
    admitted.owners.remove(1);
    let other = admitted.deal(2, 2).unwrap();
    // The other stream has two batches of 49 blocks: one that waits, and an early one.
    assert!(admitted.own(1, large(35), quota).is_err());
    admitted.own(1, large(34), quota).unwrap();
    // In the other order, the same fits.
    admitted.take_back((other, 0));
    assert!(admitted.deal(2, 2).is_ok());
    // A kernel of the other stream has what the first one, or its batches, leave.
    assert!(admitted.own(2, large(35), other).is_err());
    admitted.own(2, large(34), other).unwrap();
}

/// When processes come that use the GPU in turn, or take a part of it, kernels from before do not count any more, and
/// recordings of them are refused.
#[test]
fn kernels_that_wait_are_dealt_with_again_when_others_come() {
    for (users, left) in [(by_turns(1), 0), (together(1, 132, 132), 66)] {
        let mut admitted = admitted(132);
        let quota = admitted.deal(2, 1).unwrap();
        let shape = |blocks| Shape { blocks, each: 2 };
        admitted.own(1, shape(263), quota).unwrap();
        assert!(admitted.renew(terms(Mode::Never, users, true), 1));
        assert_eq!(admitted.dealing, 1);
        assert_eq!(admitted.owners.multiprocessors, left);
        let quota = admitted.deal(2, 1).unwrap();
        assert!(admitted.own(1, shape(2 * left), quota).is_err());
        if left > 0 {
            admitted.own(1, shape(2 * left - 1), quota).unwrap();
        }
    }
}

/// Each process counts halves, and a block that needs more than a half may find none on one multiprocessor.
#[test]
fn together_a_block_of_a_kernel_that_waits_needs_half_a_multiprocessor() {
    let mut admitted = admitted(132);
    let quota = admitted.deal(2, 1).unwrap();
    let one = |each| Shape { blocks: 1, each };
    admitted.own(1, one(1), quota).unwrap();
    assert!(admitted.renew(terms(Mode::Auto, together(1, 132, 132), true), 1));
    let quota = admitted.deal(2, 1).unwrap();
    let error = admitted.own(1, one(1), quota).unwrap_err();
    assert!(matches!(error, DeviceError::Exhausted { .. }));
    let error = error.to_string();
    assert!(
        error.contains("at most half of a multiprocessor") && error.contains("processes: 1"),
        "{error}"
    );
    admitted.own(1, one(2), quota).unwrap();
    // The other process may come back.
    assert!(!admitted.renew(terms(Mode::Auto, together(0, 132, 132), true), 0));
    assert!(admitted.own(1, one(1), quota).is_err());
}
