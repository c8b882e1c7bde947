//! How many messages a collective call costs a rank.

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
