//! The service of a hub to which many messages come at once.

use super::*;
use crate::hub::tests::{flushes, running};
use crate::secret::Key;

fn service(hub: Hub, size: usize, heartbeat: Duration) -> Service {
    let shared = Arc::new(RankShared::new(0, size).unwrap());
    let node = Node::new(0, Key::of_job(b"a key for tests", "", size));
    let (role, long) = (Role::Hub(Box::new(hub)), Duration::from_secs(3600));
    Service::new(shared, role, node, heartbeat, long, Instant::now(), long)
}

/// All ranks but one send a message to all others at once. Returns the load at each flush, and what the last rank
/// received: the bytes of others, and heartbeats.
fn all_at_once(size: usize, heartbeat: Duration) -> (Vec<usize>, [usize; 2]) {
    let (hub, mut ranks) = running(size);
    let mut service = service(hub, size, heartbeat);
    for (index, link) in ranks.iter_mut().enumerate() {
        let notify = Message::Notify {
            from: index as u32 + 1,
            to: None,
            bytes: vec![index as u8; 100],
        };
        link.push(&Body::of(&notify)).unwrap();
        while link.wants_write() {
            link.flush().unwrap();
        }
    }
    let mut passed_on = 0;
    while passed_on < size - 1 {
        let ready = service.sleep();
        service.serve(ready, Instant::now());
        if let Role::Hub(hub) = &mut service.role {
            let is_one = |message: &Message| matches!(message, Message::Notify { .. });
            passed_on += hub.own.drain(..).filter(is_one).count();
        }
    }
    let Role::Hub(hub) = &mut service.role else {
        unreachable!()
    };
    let queued = flushes(hub).iter().map(|(frames, _)| *frames).collect();
    let last = ranks.last_mut().unwrap();
    let mut heard = [0; 2];
    while heard[0] < size - 2 {
        hub.flush();
        last.fill().unwrap();
        while let Some(message) = last.next().unwrap() {
            heard[match message {
                Message::Notify { bytes, from, .. } => {
                    assert_eq!(bytes, vec![(from - 1) as u8; 100]);
                    0
                }
                Message::Beat => 1,
                other => panic!("{other:?}"),
            }] += 1;
        }
    }
    (queued, heard)
}

/// What is queued at a time is a bounded number of frames, and does not grow with the square of the ranks.
#[test]
fn a_hub_that_has_much_to_pass_on_sends_it_in_turns() {
    let (queued, _) = all_at_once(300, Duration::from_secs(3600));
    let most = queued.iter().max().unwrap();
    // What one more rank says may be added to a turn that is almost full.
    assert!(*most <= 1024 + 300, "{queued:?}");
}

#[test]
fn a_hub_that_has_much_to_pass_on_beats_in_between() {
    // A heartbeat is due whenever one can be sent.
    let (_, heard) = all_at_once(60, Duration::ZERO);
    assert!(heard[1] >= 30, "{heard:?}");
}
