//! The control plane of ranks that are threads. Everything here also runs under Miri.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Barrier};
use std::thread;
use tidegate_boot::{LocalControl, local};
use tidegate_hal::control::{Control, ControlError, Event, Handle, Packet};

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

fn bytes(bytes: &[u8]) -> Packet {
    Packet {
        bytes: bytes.to_vec(),
        handles: Vec::new(),
    }
}

fn events(control: &LocalControl) -> Receiver<Event> {
    let (sender, receiver) = channel();
    control.subscribe(Arc::new(move |event| {
        let _ = sender.send(event);
    }));
    receiver
}

#[test]
fn exchanges_in_order_of_ranks_and_of_calls() {
    let rounds = if cfg!(miri) { 5u8 } else { 100 };
    job(4, |control| {
        for round in 0..rounds {
            let all = control
                .exchange("step", bytes(&[control.rank() as u8, round]))
                .unwrap();
            let got: Vec<_> = all.into_iter().map(|p| p.bytes).collect();
            assert_eq!(got, (0..4).map(|r| vec![r, round]).collect::<Vec<_>>());
        }
    });
}

#[test]
fn passes_handles_by_reference() {
    let sums = job(3, |control| {
        let mine: Arc<dyn std::any::Any + Send + Sync> = Arc::new(control.rank() as u64 + 1);
        let packet = Packet {
            bytes: Vec::new(),
            handles: vec![Handle::Local(mine)],
        };
        let all = control.exchange("handles", packet).unwrap();
        all.iter()
            .flat_map(|p| &p.handles)
            .map(|handle| match handle {
                Handle::Local(shared) => *shared.downcast_ref::<u64>().unwrap(),
                _ => panic!("nobody gave anything else"),
            })
            .sum::<u64>()
    });
    assert_eq!(sums, [6, 6, 6]);
}

#[test]
fn names_both_labels_of_a_mismatch_and_stays_failed() {
    job(3, |control| {
        let label = if control.rank() == 1 {
            "free"
        } else {
            "create"
        };
        let error = control.exchange(label, Packet::default()).unwrap_err();
        let ControlError::Mismatch { rank, mine, theirs } = error else {
            panic!("{error}")
        };
        assert_eq!(mine, label);
        assert_ne!(theirs, label);
        assert_eq!(rank == 1, control.rank() != 1);
        let again = control.exchange("create", Packet::default());
        assert!(matches!(again, Err(ControlError::Closed(_))), "{again:?}");
    });
}

#[test]
fn too_large_fails_before_it_counts() {
    job(2, |control| {
        let error = control
            .exchange("big", bytes(&vec![0; Packet::MAX_BYTES + 1]))
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
        control.exchange("small", bytes(b"x")).unwrap();
    });
}

#[test]
fn a_killed_rank_ends_the_exchange_and_is_lost() {
    job(3, |control| {
        let events = events(&control);
        control.exchange("first", Packet::default()).unwrap();
        if control.rank() == 2 {
            control.kill();
            let closed = control.exchange("second", Packet::default());
            assert!(matches!(closed, Err(ControlError::Closed(_))));
            assert!(control.notify(None, b"x").is_err());
            return;
        }
        let error = control.exchange("second", Packet::default()).unwrap_err();
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
            ranks[0].exchange("alone", Packet::default())
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
    let answers = events(&ranks[0]);
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
