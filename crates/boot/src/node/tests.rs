//! A node without a service.

use super::*;
use crate::door::tests::seed;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;

fn node(me: usize, size: usize) -> Node {
    let mut node = Node::new(me, Key::of_job(b"a key for tests of nodes", "", size));
    node.start(&vec![0; size], *seed());
    assert!(matches!(node.to_hub[..], [Message::Ready]), "{node:?}");
    node.to_hub.clear();
    node
}

fn letter(to: usize, round: u64, handles: usize) -> Outgoing {
    let fd = Arc::new(OwnedFd::from(File::open("/dev/null").unwrap()));
    Outgoing {
        to,
        round,
        bytes: Vec::new(),
        fds: vec![fd; handles],
    }
}

/// Lets all nodes go on until nothing is held.
fn run(nodes: &mut [Node]) {
    let begun = Instant::now();
    while nodes.iter().any(|node| !node.is_flushed()) {
        assert!(begun.elapsed() < Duration::from_secs(30), "{nodes:?}");
        for node in &mut *nodes {
            let now = Instant::now();
            let visits: Vec<_> = node.visits.iter().map(|visit| visit.to).collect();
            for token in visits.into_iter().map(NodeToken::Visit) {
                node.ready(token, now);
            }
            node.ready(NodeToken::Door, now);
            node.ready(NodeToken::Guests, now);
            node.flush();
        }
    }
    let now = Instant::now();
    nodes
        .iter_mut()
        .for_each(|node| node.ready(NodeToken::Guests, now));
}

/// More ranks write to each other than can be visited at a time.
#[test]
fn each_gets_what_was_written_to_it() {
    const SIZE: usize = 2 * MOST_VISITS + 3;
    let mut nodes: Vec<_> = (0..SIZE).map(|me| node(me, SIZE)).collect();
    for round in 0..2 {
        for (me, node) in nodes.iter_mut().enumerate() {
            (0..SIZE)
                .filter(|to| *to != me)
                .for_each(|to| node.write(letter(to, round, 1 + to % 3)));
        }
        run(&mut nodes);
        for (me, node) in nodes.iter_mut().enumerate() {
            let sent = std::mem::take(&mut node.to_hub);
            assert!(
                sent.iter()
                    .all(|message| matches!(message, Message::Letter { lost: None, .. }))
            );
            assert_eq!(sent.len(), SIZE - 1);
            let mut from: Vec<_> = node
                .arrived
                .drain(..)
                .map(|one| {
                    assert_eq!((one.round, one.fds.unwrap().len()), (round, 1 + me % 3));
                    one.from
                })
                .collect();
            from.sort_unstable();
            assert!(from.into_iter().eq((0..SIZE).filter(|from| *from != me)));
            assert!(node.visits.len() <= MOST_VISITS);
        }
    }
}

#[test]
fn nothing_overtakes_what_is_held() {
    let mut nodes = [100, 101].map(|me| node(me, 102));
    nodes[0].write(letter(101, 0, 1));
    nodes[0].write(letter(101, 1, 0));
    nodes[0].say(Message::Leave);
    assert!(nodes[0].to_hub.is_empty() && !nodes[0].is_flushed());
    run(&mut nodes);
    assert!(matches!(
        nodes[0].to_hub[..],
        [
            Message::Letter {
                round: 0,
                handles: 1,
                ..
            },
            Message::Letter { round: 1, .. },
            Message::Leave
        ]
    ));
}

#[test]
fn a_letter_says_why_its_descriptors_are_lost() {
    // Nobody opens this door.
    let mut nodes = [node(103, 105)];
    nodes[0].write(letter(104, 7, 2));
    nodes[0].say(Message::Leave);
    run(&mut nodes);
    let [
        Message::Letter {
            lost: Some(why),
            handles: 2,
            ..
        },
        Message::Leave,
    ] = &nodes[0].to_hub[..]
    else {
        panic!("{nodes:?}")
    };
    assert!(
        why.contains("rank 103") && why.contains("rank 104"),
        "{why}"
    );
}

#[test]
fn nothing_waits_for_a_rank_that_is_gone() {
    let mut nodes = [106, 107].map(|me| node(me, 108));
    nodes[0].write(letter(107, 0, 1));
    nodes[0].flush();
    assert!(!nodes[0].is_flushed());
    nodes[0].forget(107);
    assert!(nodes[0].is_flushed() && nodes[0].visits.is_empty());
    assert_eq!(nodes[0].to_hub.len(), 1);
}
