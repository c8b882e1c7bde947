//! The control plane of ranks that are threads. Everything here also runs under Miri.

mod common;

use common::{contract, events};
use std::sync::{Arc, Barrier};
use std::thread;
use tidegate_boot::{LocalControl, local};
use tidegate_hal::control::{
    Control, ControlError, Decision, Event, Handle, Letter, Objection, Packet, Proposal,
};

/// Runs `body` for each rank, in a thread of its own.
fn job<R: Send>(size: usize, body: impl Fn(LocalControl) -> R + Sync) -> Vec<R> {
    thread::scope(|scope| {
        let ranks: Vec<_> = local(size)
            .into_iter()
            .map(|control| scope.spawn(|| body(control)))
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}

#[test]
fn exchanges_in_order_of_ranks_and_of_calls() {
    let rounds = if cfg!(miri) { 5u8 } else { 100 };
    job(4, |control| contract::exchanges_in_order(&control, rounds));
}

/// A letter of few bytes and one handle.
fn letter(rank: usize, bytes: &[u8], handle: u64) -> Letter {
    let packet = Packet {
        bytes: bytes.to_vec(),
        handles: vec![Handle::Local(Arc::new(handle))],
    };
    Letter { rank, packet }
}

#[test]
fn letters_come_to_those_to_whom_they_are_written() {
    let rounds = if cfg!(miri) { 3u8 } else { 50 };
    job(4, |control| {
        let me = control.rank();
        // Rank 3 writes to nobody. The others write to the next rank and to themselves.
        let written = |rank: usize| match rank {
            3 => Vec::new(),
            rank => vec![rank, rank + 1],
        };
        for round in 0..rounds {
            let said = [me as u8, round];
            let letters = written(me)
                .into_iter()
                .map(|to| letter(to, &said, (10 * me + to) as u64));
            let proposal = Proposal {
                flags: 1 << me,
                letters: letters.collect(),
                ..Proposal::default()
            };
            let Decision::Agreed { flags, letters } = control.confer("write", proposal).unwrap()
            else {
                panic!("nobody objects")
            };
            assert_eq!(flags, 0b1111);
            let came: Vec<_> = letters
                .iter()
                .map(|letter| {
                    let [Handle::Local(handle)] = &letter.packet.handles[..] else {
                        panic!("{letter:?}")
                    };
                    let number = *handle.downcast_ref::<u64>().unwrap();
                    (letter.rank, letter.packet.bytes.clone(), number)
                })
                .collect();
            let expected: Vec<_> = (0..4)
                .filter(|from| written(*from).contains(&me))
                .map(|from| (from, vec![from as u8, round], (10 * from + me) as u64))
                .collect();
            assert_eq!(came, expected);
        }
    });
}

#[test]
fn ranks_that_do_not_agree_go_on() {
    job(4, |control| {
        let me = control.rank();
        let objection = (me % 2 == 1).then(|| Objection {
            kind: 7,
            reason: vec![me as u8],
        });
        let proposal = |alike| Proposal {
            header: vec![5, me as u8 / 2],
            alike,
            objection: objection.clone(),
            letters: vec![letter(0, b"in vain", 0)],
            ..Proposal::default()
        };
        let decision = control.confer("refuse", proposal(1)).unwrap();
        let Decision::Refused {
            kind,
            ranks,
            reason,
        } = decision
        else {
            panic!("{decision:?}")
        };
        assert_eq!((kind, ranks, reason), (7, vec![1, 3], vec![1]));
        let decision = control.confer("differ", proposal(2)).unwrap();
        let Decision::Differs { first, rank, other } = decision else {
            panic!("{decision:?}")
        };
        assert_eq!((first, rank, other), (vec![5, 0], 2, vec![5, 1]));
        let decision = control.confer("agree", Proposal::default()).unwrap();
        let Decision::Agreed { flags, letters } = decision else {
            panic!("{decision:?}")
        };
        assert!(flags == 0 && letters.is_empty(), "{letters:?}");
    });
}

#[test]
#[should_panic(expected = "ascending")]
fn letters_have_an_order() {
    let letters = vec![letter(0, b"", 0), letter(0, b"", 0)];
    let proposal = Proposal {
        letters,
        ..Proposal::default()
    };
    let _ = local(1)[0].confer("twice", proposal);
}

#[test]
fn names_both_labels_of_a_mismatch_and_stays_failed() {
    job(3, |control| {
        contract::names_both_labels_of_a_mismatch_and_stays_failed(&control)
    });
}

#[test]
fn too_large_fails_before_it_counts() {
    job(2, |control| {
        let error = control
            .exchange("big", vec![0; Packet::MAX_BYTES + 1])
            .unwrap_err();
        assert_eq!(
            error.to_string(),
            "big: a rank brings at most 1048576 bytes to such a call, and this one 1048577; \
             what is larger goes through a window, or by several calls"
        );
        assert!(
            control
                .notify(None, &vec![0; Packet::MAX_BYTES + 1])
                .is_err()
        );
        control.exchange("small", b"x".to_vec()).unwrap();
    });
}

#[test]
fn a_killed_rank_ends_the_exchange_and_is_lost() {
    job(3, |control| {
        let events = events(&control);
        control.exchange("first", Vec::new()).unwrap();
        if control.rank() == 2 {
            control.kill();
            let closed = control.exchange("second", Vec::new());
            assert!(matches!(closed, Err(ControlError::Closed(_))));
            assert!(control.notify(None, b"x").is_err());
            return;
        }
        let error = control.exchange("second", Vec::new()).unwrap_err();
        let ControlError::PeerLost { rank, label, .. } = error else {
            panic!("{error}")
        };
        assert_eq!((rank, label.as_str()), (2, "second"));
        assert!(matches!(
            events.recv().unwrap(),
            Event::Lost { rank: 2, .. }
        ));
    });
}

#[test]
fn leaving_dropping_and_panicking() {
    let mut ranks = local(4);
    let watcher = ranks.remove(0);
    let events = events(&watcher);
    let panicking = ranks.pop().unwrap();
    let dropped = ranks.pop().unwrap();
    ranks[0].leave();
    ranks[0].leave();
    drop(dropped);
    let result = thread::spawn(move || {
        let _control = panicking;
        std::panic::resume_unwind(Box::new("a test"));
    })
    .join();
    assert!(result.is_err());
    assert_eq!(events.recv().unwrap(), Event::Left { rank: 1 });
    assert_eq!(events.recv().unwrap(), Event::Left { rank: 2 });
    assert!(matches!(
        events.recv().unwrap(),
        Event::Lost { rank: 3, .. }
    ));
    drop(ranks);
    drop(watcher);
    assert!(
        events.recv().is_err(),
        "the sink is let go, and leaving counts once"
    );
}

#[test]
fn messages_arrive_in_order_even_before_a_sink_is_there() {
    let ranks = local(3);
    for n in 0..10 {
        ranks[0].notify(Some(&[2]), &[n]).unwrap();
    }
    ranks[0].notify(None, b"all").unwrap();
    let events = [events(&ranks[0]), events(&ranks[1]), events(&ranks[2])];
    for n in 0..10 {
        let bytes = vec![n];
        assert_eq!(events[2].recv().unwrap(), Event::Message { from: 0, bytes });
    }
    for watched in &events[1..] {
        let bytes = b"all".to_vec();
        assert_eq!(watched.recv().unwrap(), Event::Message { from: 0, bytes });
    }
    drop(ranks);
    assert!(
        events[0]
            .iter()
            .all(|e| !matches!(e, Event::Message { .. }))
    );
}

#[test]
fn an_exchange_that_waits_ends_when_its_own_rank_is_killed() {
    let ranks = local(2);
    let started = Barrier::new(2);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| {
            started.wait();
            ranks[0].exchange("alone", Vec::new())
        });
        started.wait();
        ranks[0].kill();
        let result = waiting.join().unwrap();
        assert!(matches!(result, Err(ControlError::Closed(_))), "{result:?}");
    });
}

#[test]
fn a_sink_may_use_the_control_plane_and_may_panic() {
    let ranks: Vec<Arc<LocalControl>> = local(2).into_iter().map(Arc::new).collect();
    let answers = events(&*ranks[0]);
    let weak = Arc::downgrade(&ranks[1]);
    ranks[1].subscribe(Arc::new(move |event| {
        if let Event::Message { bytes, .. } = event
            && let Some(control) = weak.upgrade()
        {
            if bytes == b"panic" {
                std::panic::resume_unwind(Box::new("a test"));
            }
            control.notify(Some(&[0]), &bytes).unwrap();
        }
    }));
    ranks[0].notify(Some(&[1]), b"panic").unwrap();
    ranks[0].notify(Some(&[1]), b"ping").unwrap();
    let bytes = b"ping".to_vec();
    assert_eq!(answers.recv().unwrap(), Event::Message { from: 1, bytes });
}
