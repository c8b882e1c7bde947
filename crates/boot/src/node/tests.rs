//! A node without a service.

use super::*;
use std::os::fd::OwnedFd;
use std::sync::Arc;

#[test]
fn a_member_that_was_sent_away_for_being_slow_comes_again() {
    let key = Key::of_job(b"a key for tests", "", 2);
    let [mut leader, mut member] = [0, 1].map(|me| Node::new(me, key.clone()));
    leader.start(&[0, 0]);
    member.start(&[0, 0]);
    let Some(Message::Door { name }) = leader.to_hub.pop() else {
        panic!("{leader:?}")
    };
    member.visit(name);
    leader.ready(NodeToken::Porch, Instant::now());
    leader.tick(Instant::now() + PATIENCE);
    std::thread::sleep(Duration::from_secs(1));
    // The member notices, is accepted again, proves itself, and gets the leader's proof.
    member.ready(NodeToken::Leader, Instant::now());
    leader.ready(NodeToken::Porch, Instant::now());
    member.ready(NodeToken::Leader, Instant::now());
    leader.ready(NodeToken::Guest(0), Instant::now());
    member.ready(NodeToken::Leader, Instant::now());
    for node in [leader, member] {
        assert!(matches!(node.to_hub[..], [Message::Ready]), "{node:?}");
    }
}

#[test]
fn nothing_overtakes_what_is_held() {
    let mut node = Node::new(1, Key::of_job(b"a key for tests", "", 2));
    node.role = NodeRole::Outside;
    let fd = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
    let letter = |round, fds| Outgoing {
        to: 0,
        round,
        bytes: Vec::new(),
        fds,
    };
    node.write(letter(0, vec![Arc::new(fd)]));
    node.write(letter(1, Vec::new()));
    node.say(Message::Leave);
    assert!(node.to_hub.is_empty());
    let rounds = node.held.iter().map(|message| match message {
        Message::Letter { round, .. } => Some(*round),
        _ => None,
    });
    assert_eq!(rounds.collect::<Vec<_>>(), [Some(0), Some(1), None]);
}
