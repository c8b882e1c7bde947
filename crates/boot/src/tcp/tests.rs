//! How many messages a collective call costs a rank, and what a rank does that connects others to rank 0.

use super::*;
use std::net::TcpListener;
use std::sync::Barrier;
use std::sync::atomic::Ordering;
use tidegate_hal::control::{Letter, Packet};

const SIZE: usize = 200;

#[test]
fn a_call_costs_a_rank_its_letters_and_two_messages() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut listener = Some(listener);
    let configs = (0..SIZE).map(|rank| {
        let mut config = Config::new(rank, SIZE, &*address, "a secret of this test");
        config.listener = listener.take();
        // Heartbeats would be messages, too.
        (config.heartbeat, config.silence) = (Duration::MAX, Duration::MAX);
        config
    });
    let configs: Vec<_> = configs.collect();
    let meet = Barrier::new(SIZE);
    let count = |config: Config| {
        let control = TcpControl::join(config).unwrap();
        let Inner::Rank(member) = &control.inner else {
            panic!("there are {SIZE} ranks")
        };
        let messages = || member.shared.messages.load(Ordering::Relaxed);
        let me = control.rank();
        let mut neighbours = [(me + 1) % SIZE, (me + SIZE - 1) % SIZE];
        neighbours.sort_unstable();
        [&[][..], &neighbours, &[me]].map(|to| {
            let letters = to.iter().map(|rank| Letter {
                rank: *rank,
                packet: Packet::default(),
            });
            let proposal = Proposal {
                letters: letters.collect(),
                ..Proposal::default()
            };
            let before = messages();
            meet.wait();
            let decision = control.confer("counted", proposal);
            let count = messages() - before;
            // Others may not begin the next call before this rank has counted.
            meet.wait();
            (count, decision)
        })
    };
    let counted = std::thread::scope(|scope| {
        let ranks = configs
            .into_iter()
            .map(|config| scope.spawn(|| count(config)));
        let ranks: Vec<_> = ranks.collect();
        let ends = ranks.into_iter().map(|rank| rank.join().unwrap());
        ends.collect::<Vec<_>>()
    });
    // Those that it sends, and those that it gets. A letter to oneself is no message.
    let expected = [(2, 0), (4 + 2, 2), (2, 1)];
    for counted in counted {
        for ((count, decision), (messages, came)) in counted.into_iter().zip(expected) {
            let decision = decision.unwrap();
            assert!(matches!(&decision, Decision::Agreed { letters, .. } if letters.len() == came));
            assert_eq!(count, messages);
        }
    }
}

/// A job of threads in which each rank has two children.
fn deep_tree<R: Send>(
    size: usize,
    body: impl Fn(TcpControl) -> R + Sync,
) -> Vec<std::thread::Result<R>> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let mut listener = Some(listener);
    let configs = (0..size).map(|rank| {
        let mut config = Config::new(rank, size, &*address, "a secret of this test");
        config.listener = listener.take();
        config.arity = Some(2);
        config
    });
    let configs: Vec<_> = configs.collect();
    std::thread::scope(|scope| {
        let ranks = configs.into_iter().map(|config| {
            let body = &body;
            scope.spawn(move || body(TcpControl::join(config).unwrap()))
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join()).collect()
    })
}

const DEEP: usize = 15;

#[test]
fn exchanges_teams_and_messages_pass_through_ranks() {
    let all = deep_tree(DEEP, |control| {
        let me = control.rank();
        let (sender, events) = std::sync::mpsc::channel();
        let sender = Mutex::new(sender);
        control.subscribe(Arc::new(move |event| {
            let _ = sender.lock().unwrap().send(event);
        }));
        for round in 0..20u8 {
            let all = control.exchange("step", vec![round, me as u8]).unwrap();
            let expected = (0..DEEP as u8).map(|rank| vec![round, rank]);
            assert!(all.into_iter().eq(expected));
        }
        let odd: Vec<_> = (0..DEEP).filter(|rank| rank % 2 == me % 2).collect();
        let team = control.found("halves", &odd).unwrap();
        for round in 0..20u8 {
            let all = control
                .exchange_in(team, "half", vec![round, me as u8])
                .unwrap();
            assert!(
                all.into_iter()
                    .eq(odd.iter().map(|rank| vec![round, *rank as u8]))
            );
        }
        control
            .notify(Some(&[(me + 1) % DEEP]), &[me as u8])
            .unwrap();
        let event = events.recv_timeout(Duration::from_secs(60)).unwrap();
        let from = (me + DEEP - 1) % DEEP;
        let bytes = vec![from as u8];
        assert_eq!(event, tidegate_hal::control::Event::Message { from, bytes });
        control.exchange("end", Vec::new()).unwrap();
    });
    assert!(all.iter().all(Result::is_ok));
}

/// A rank that leaves, and one whose thread panics, connect others to rank 0. Those go on in teams without these two.
#[test]
fn ranks_go_on_when_those_above_them_have_ended() {
    for ends in [[1, 2], [2, 1], [3, 1]] {
        let all = deep_tree(DEEP, |control| {
            let me = control.rank();
            let rest: Vec<_> = (0..DEEP).filter(|rank| !ends.contains(rank)).collect();
            control.exchange("begin", Vec::new()).unwrap();
            if me == ends[0] {
                return control.leave();
            }
            assert!(me != ends[1], "this rank fails");
            let team = control.found("the rest", &rest).unwrap();
            for round in 0..200u8 {
                let all = control
                    .exchange_in(team, "step", vec![round, me as u8])
                    .unwrap();
                assert!(
                    all.into_iter()
                        .eq(rest.iter().map(|rank| vec![round, *rank as u8]))
                );
                std::thread::sleep(Duration::from_millis(3));
            }
        });
        let failed = all.iter().map(Result::is_err);
        assert!(failed.eq((0..DEEP).map(|rank| rank == ends[1])));
    }
}
