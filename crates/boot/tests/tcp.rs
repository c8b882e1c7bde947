//! Jobs over TCP whose ranks are threads of the test: collective calls, handles, messages, ends in good order.

mod common;

use common::{LONG, configs, contract, events, job, letter, run, write, write_to_all};
use std::fs::File;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::Duration;
use tidegate_boot::{BootError, Config, TcpControl};
use tidegate_hal::control::{Control, ControlError, Decision, Event, Handle, Packet, Proposal};

fn memory(text: &str) -> Handle {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    let mut file = File::from(fd);
    file.write_all(text.as_bytes()).unwrap();
    Handle::Fd(Arc::new(OwnedFd::from(file)))
}

fn text(handle: &Handle) -> String {
    let Handle::Fd(fd) = handle else {
        panic!("not a descriptor")
    };
    let flags = rustix::io::fcntl_getfd(fd).unwrap();
    assert!(
        flags.contains(rustix::io::FdFlags::CLOEXEC),
        "descriptors do not leak into children"
    );
    // This reads at an offset, because all ranks share the position, and read at the same time.
    let mut bytes = [0; 64];
    let count = File::from(fd.try_clone().unwrap())
        .read_at(&mut bytes, 0)
        .unwrap();
    String::from_utf8(bytes[..count].to_vec()).unwrap()
}

#[test]
fn exchanges_in_order_of_ranks_and_of_calls() {
    for (size, rounds) in [(2, 50), (5, 50), (40, 5)] {
        job(size, |control| {
            assert_eq!(control.size(), size);
            contract::exchanges_in_order(&control, rounds);
        });
    }
}

#[test]
fn bytes_may_be_as_many_as_promised() {
    job(3, |control| {
        let large = vec![control.rank() as u8; Packet::MAX_BYTES];
        let larger = vec![0; Packet::MAX_BYTES + 1];
        let said = control.exchange("large", large.clone()).unwrap();
        let written = write_to_all(&control, "large", &large, &[]).unwrap();
        let written = written.into_iter().map(|packet| packet.bytes);
        for (number, bytes) in said.into_iter().chain(written).enumerate() {
            assert_eq!(bytes.len(), Packet::MAX_BYTES);
            assert!(bytes.iter().all(|byte| *byte == (number % 3) as u8));
        }
        // Two headers of the greatest length travel at once.
        let proposal = |header: &[u8]| Proposal {
            header: header.to_vec(),
            alike: 1,
            ..Proposal::default()
        };
        let decision = control.confer("large", proposal(&large)).unwrap();
        let Decision::Differs { first, rank, other } = decision else {
            panic!("{decision:?}")
        };
        let of = |rank| vec![rank; Packet::MAX_BYTES];
        assert!(first == of(0) && rank == 1 && other == of(1));
        for error in [
            control.exchange("larger", larger.clone()).map(drop),
            write_to_all(&control, "larger", &larger, &[]).map(drop),
            control.confer("larger", proposal(&larger)).map(drop),
        ] {
            assert!(matches!(error, Err(ControlError::TooLarge { .. })));
        }
        control.exchange("after", Vec::new()).unwrap();
    });
}

#[test]
fn letters_come_to_those_to_whom_they_are_written() {
    job(5, |control| {
        let (me, size) = (control.rank(), 5);
        for round in 0..20 {
            // Rank 2 writes to nobody, and nobody writes to rank 3.
            let writes = |from: usize, to: usize| {
                from != 2 && to != 3 && (from == to || (from + round) % 3 == to % 3)
            };
            let text = |from, to| format!("{round}: {from} to {to}").into_bytes();
            let letters = (0..size).filter(|to| writes(me, *to));
            let letters = letters.map(|to| letter(to, &text(me, to), Vec::new()));
            let proposal = Proposal {
                flags: 1 << me,
                letters: letters.collect(),
                ..Proposal::default()
            };
            let decision = control.confer("write", proposal).unwrap();
            let Decision::Agreed { flags, letters } = decision else {
                panic!("{decision:?}")
            };
            assert_eq!(flags, 0b11111);
            let came = letters.into_iter().map(|l| (l.rank, l.packet.bytes));
            let expected = (0..size).filter(|from| writes(*from, me));
            assert!(came.eq(expected.map(|from| (from, text(from, me)))));
        }
    });
}

#[test]
fn passes_descriptors_within_a_node() {
    job(4, |control| {
        let me = control.rank();
        for round in 0..10 {
            // Rank 2 gives none; each other rank gives its rank plus one.
            let count = if me == 2 { 0 } else { me + 1 };
            let handles: Vec<_> = (0..count)
                .map(|n| memory(&format!("{round} {me} {n}")))
                .collect();
            let all = write_to_all(&control, "handles", &[me as u8], &handles).unwrap();
            for (rank, packet) in all.iter().enumerate() {
                assert_eq!(packet.bytes, [rank as u8]);
                let texts: Vec<_> = packet.handles.iter().map(text).collect();
                let count = if rank == 2 { 0 } else { rank + 1 };
                let expected: Vec<_> = (0..count).map(|n| format!("{round} {rank} {n}")).collect();
                assert_eq!(texts, expected);
            }
        }
    });
}

/// Waits until this process has so many descriptors of the file. A rank that has passed one on closes it a moment later.
fn await_descriptors(name: &str, expected: usize) {
    let begun = std::time::Instant::now();
    loop {
        let entries = std::fs::read_dir("/proc/self/fd").unwrap();
        let paths = entries.filter_map(|entry| std::fs::read_link(entry.unwrap().path()).ok());
        let count = paths
            .filter(|path| path.to_string_lossy().contains(name))
            .count();
        if count == expected {
            return;
        }
        assert!(begun.elapsed() < LONG, "{count} descriptors");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// All ranks are in this process, so that one look finds all descriptors.
#[test]
fn descriptors_come_only_to_those_to_whom_they_are_written() {
    const NAME: &str = "a-file-of-one-test-only";
    let meet = std::sync::Barrier::new(5);
    job(5, |control| {
        let me = control.rank();
        let fd = rustix::fs::memfd_create(NAME, rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        let mine = Handle::Fd(Arc::new(fd));
        // Each rank writes to the next one and to itself, and the last one to rank 1.
        let next = if me == 4 { 1 } else { me + 1 };
        let mut letters = [next, me].map(|to| letter(to, &[], vec![mine.clone()]));
        letters.sort_by_key(|letter| letter.rank);
        let came = write(&control, "files", letters.into()).unwrap();
        meet.wait();
        let handles: usize = came.iter().map(|letter| letter.packet.handles.len()).sum();
        assert_eq!(handles, [1, 3, 2, 2, 2][me]);
        // A rank's own handle is the one that it sent.
        await_descriptors(NAME, 5 + 5);
        meet.wait();
        drop(came);
        meet.wait();
        await_descriptors(NAME, 5);
        meet.wait();
    });
}

#[test]
fn nodes_are_numbered_and_keep_their_handles() {
    let mut configs = configs(5);
    for (config, node) in configs.iter_mut().zip(["a", "b", "a", "b", "c"]) {
        config.node = Some(node.into());
    }
    run(configs, |joined| {
        let control = joined.unwrap();
        let nodes: Vec<_> = (0..5).map(|rank| control.node(rank)).collect();
        assert_eq!(nodes, [0, 1, 0, 1, 2]);
        let handles = [memory(&control.rank().to_string())];
        let all = write_to_all(&control, "handles", &[7], &handles).unwrap();
        for (rank, packet) in all.iter().enumerate() {
            assert_eq!(packet.bytes, [7]);
            let near = nodes[rank] == nodes[control.rank()];
            assert_eq!(packet.handles.len(), usize::from(near));
            assert!(packet.handles.iter().all(|h| text(h) == rank.to_string()));
        }
    });
}

#[test]
fn names_both_labels_of_a_mismatch_and_stays_failed() {
    job(3, |control| {
        contract::names_both_labels_of_a_mismatch_and_stays_failed(&control)
    });
}

#[test]
fn a_handle_of_this_process_cannot_leave_it() {
    job(2, |control| {
        let handles = [Handle::Local(Arc::new(1u8))];
        let error = write_to_all(&control, "local", &[], &handles).unwrap_err();
        assert!(matches!(error, ControlError::Io { .. }), "{error}");
    });
}

#[test]
fn a_rank_that_cannot_give_its_handles_leaves_nobody_waiting() {
    let (heard, hear) = std::sync::mpsc::channel();
    let hear = std::sync::Mutex::new(hear);
    job(3, |control| {
        if control.rank() != 1 {
            let error = write_to_all(&control, "give", &[], &[memory("mine")]);
            heard.send(error.unwrap_err()).unwrap();
            return;
        }
        let handles = [Handle::Local(Arc::new(1u8))];
        let error = write_to_all(&control, "give", &[], &handles);
        assert!(matches!(error, Err(ControlError::Io { .. })), "{error:?}");
        // The rank does not leave before, so its end cannot be the reason.
        for _ in 0..2 {
            let error = hear.lock().unwrap().recv_timeout(LONG).unwrap();
            let lost = matches!(error, ControlError::PeerLost { rank: 1, .. });
            assert!(lost, "{error}");
        }
        let after = control.exchange("after", Vec::new());
        assert!(matches!(after, Err(ControlError::Closed(_))), "{after:?}");
    });
}

#[test]
fn messages_arrive_in_order() {
    job(3, |control| {
        let events = events(&control);
        let me = control.rank();
        for n in 0..20 {
            control
                .notify(Some(&[(me + 1) % 3, (me + 1) % 3, 99]), &[n])
                .unwrap();
        }
        control.notify(None, b"all").unwrap();
        let mut ring = Vec::new();
        let mut all = 0;
        while ring.len() < 20 || all < 2 {
            match events.recv_timeout(LONG).unwrap() {
                Event::Message { bytes, .. } if bytes == b"all" => all += 1,
                Event::Message { from, bytes } => {
                    assert_eq!(from, (me + 2) % 3);
                    ring.push(bytes[0]);
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(ring, (0..20).collect::<Vec<_>>());
        control.exchange("done", Vec::new()).unwrap();
    });
}

#[test]
fn leaving_is_seen_as_leaving_and_ends_exchanges() {
    job(3, |control| {
        let events = events(&control);
        control.exchange("first", Vec::new()).unwrap();
        if control.rank() == 1 {
            control.leave();
            control.leave();
            let closed = control.exchange("second", Vec::new());
            assert!(matches!(closed, Err(ControlError::Closed(_))));
            assert!(matches!(
                control.notify(None, b"x"),
                Err(ControlError::Closed(_))
            ));
            return;
        }
        let error = control.exchange("second", Vec::new()).unwrap_err();
        assert!(
            matches!(error, ControlError::PeerLost { rank: 1, .. }),
            "{error}"
        );
        assert_eq!(events.recv_timeout(LONG).unwrap(), Event::Left { rank: 1 });
    });
}

#[test]
fn rank_0_may_leave_first_and_the_others_go_on() {
    job(3, |control| {
        let events = events(&control);
        control.exchange("first", Vec::new()).unwrap();
        if control.rank() == 0 {
            control.leave();
            return;
        }
        assert_eq!(events.recv_timeout(LONG).unwrap(), Event::Left { rank: 0 });
        let other = 3 - control.rank();
        control.notify(Some(&[other]), b"still here").unwrap();
        let bytes = b"still here".to_vec();
        assert_eq!(
            events.recv_timeout(LONG).unwrap(),
            Event::Message { from: other, bytes }
        );
        control.notify(Some(&[other]), b"done").unwrap();
        events.recv_timeout(LONG).unwrap();
        drop(control);
        assert!(!events.iter().any(|e| matches!(e, Event::Lost { .. })));
    });
}

#[test]
fn a_rank_that_panics_is_lost() {
    let results = std::thread::scope(|scope| {
        let ranks: Vec<_> = configs(3)
            .into_iter()
            .map(|config| {
                scope.spawn(|| {
                    let control = TcpControl::join(config).unwrap();
                    let events = events(&control);
                    if control.rank() == 1 {
                        std::panic::resume_unwind(Box::new("a test"));
                    }
                    let error = control.exchange("together", Vec::new()).unwrap_err();
                    assert!(matches!(error, ControlError::PeerLost { rank: 1, .. }), "{error}");
                    let event = events.recv_timeout(LONG).unwrap();
                    assert!(matches!(&event, Event::Lost { rank: 1, reason } if reason.contains("panicked")), "{event:?}");
                })
            })
            .collect();
        ranks
            .into_iter()
            .map(|rank| rank.join().is_err())
            .collect::<Vec<_>>()
    });
    assert_eq!(results, [false, true, false]);
}

#[test]
fn rank_0_that_panics_takes_the_control_plane_with_it() {
    std::thread::scope(|scope| {
        let ranks: Vec<_> = configs(3)
            .into_iter()
            .map(|config| {
                scope.spawn(|| {
                    let control = TcpControl::join(config).unwrap();
                    let events = events(&control);
                    if control.rank() == 0 {
                        std::panic::resume_unwind(Box::new("a test"));
                    }
                    let first = events.recv_timeout(LONG).unwrap();
                    assert!(matches!(first, Event::Lost { rank: 0, .. }), "{first:?}");
                    let other = 3 - control.rank();
                    let second = events.recv_timeout(LONG).unwrap();
                    let expected = match &second {
                        Event::Lost { rank, reason } => {
                            *rank == other && reason.contains("cut off")
                        }
                        // The other rank may already have left.
                        Event::Left { rank } => *rank == other,
                        Event::Message { .. } => false,
                    };
                    assert!(expected, "{second:?}");
                    let both = [control.rank(), other];
                    for _ in 0..2 {
                        assert!(control.exchange("x", Vec::new()).is_err());
                        // Nobody could answer this.
                        let error = control.found("rest", &both).unwrap_err();
                        assert!(
                            matches!(error, ControlError::PeerLost { rank: 0, .. }),
                            "{error}"
                        );
                    }
                })
            })
            .collect();
        for (rank, thread) in ranks.into_iter().enumerate() {
            assert_eq!(thread.join().is_err(), rank == 0);
        }
    });
}

#[test]
fn a_job_of_one_needs_nobody() {
    let control = TcpControl::join(configs(1).remove(0)).unwrap();
    assert_eq!((control.rank(), control.size(), control.node(0)), (0, 1, 0));
    assert_eq!(control.exchange("alone", vec![1]).unwrap(), [[1]]);
    let all = write_to_all(&control, "alone", &[1], &[memory("mine")]).unwrap();
    assert_eq!(text(&all[0].handles[0]), "mine");
    control.leave();
}

#[test]
fn missing_ranks_are_named_everywhere() {
    let mut configs = configs(4);
    configs.remove(2);
    for config in &mut configs {
        config.timeout = std::time::Duration::from_millis(300);
    }
    let errors = run(configs, |joined| joined.map(|_| ()).unwrap_err());
    assert!(
        matches!(&errors[0], BootError::MissingRanks { missing, .. } if missing.contains(&2)),
        "{errors:?}"
    );
    for error in &errors {
        assert!(
            error.to_string().contains('2') || matches!(error, BootError::Unreachable { .. }),
            "{error}"
        );
    }
}

#[test]
fn limits_may_be_without_end() {
    let limits: [fn(&mut Config) -> &mut Duration; 3] = [
        |config| &mut config.timeout,
        |config| &mut config.silence,
        |config| &mut config.heartbeat,
    ];
    for limit in limits {
        let mut configs = configs(3);
        for config in &mut configs {
            *limit(config) = Duration::MAX;
        }
        run(configs, |joined| {
            let control = joined.unwrap();
            let events = events(&control);
            control.exchange("step", Vec::new()).unwrap();
            if control.rank() == 2 {
                control.leave();
            } else {
                let event = events.recv_timeout(LONG).unwrap();
                assert!(matches!(event, Event::Left { rank: 2 }), "{event:?}");
            }
        });
    }
}
