//! How ranks hear of a revoked window, with a slow control plane.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_boot::LocalControl;
use tidegate_hal::control::{Control, ControlError, Decision, Packet, Proposal, Sink};
use tidegate_hal::ids::TeamId;
use tidegate_host::Host;

use super::{Event, Message, WindowId};
use crate::error::{Cause, WindowError};
use crate::window::{Group, SlotWindow};
use crate::*;

/// A control plane behind a thread that loses its processor just before it sends.
struct Slow(LocalControl);

impl Control for Slow {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn node(&self, rank: usize) -> usize {
        self.0.node(rank)
    }

    fn exchange_in(
        &self,
        team: TeamId,
        label: &str,
        bytes: Vec<u8>,
    ) -> std::result::Result<Vec<Vec<u8>>, ControlError> {
        self.0.exchange_in(team, label, bytes)
    }

    fn confer_in(
        &self,
        team: TeamId,
        label: &str,
        proposal: Proposal,
    ) -> std::result::Result<Decision, ControlError> {
        self.0.confer_in(team, label, proposal)
    }

    fn found(&self, name: &str, ranks: &[usize]) -> std::result::Result<TeamId, ControlError> {
        self.0.found(name, ranks)
    }

    fn dissolve(&self, team: TeamId) {
        self.0.dissolve(team);
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> std::result::Result<(), ControlError> {
        std::thread::sleep(Duration::from_millis(200));
        self.0.notify(to, bytes)
    }

    fn subscribe(&self, sink: Sink) {
        self.0.subscribe(sink);
    }

    fn leave(&self) {
        self.0.leave();
    }

    fn fail(&self, reason: &str) {
        self.0.fail(reason);
    }
}

/// Rank 0 waits until the limit has passed, and leaves as soon as it knows. Rank 1 waits for nobody, so it can hear of
/// that only by rank 0's message.
#[test]
fn a_rank_that_leaves_because_of_a_limit_has_told_its_peers() {
    let cause = std::thread::scope(|scope| {
        let ranks: Vec<_> = tidegate_boot::local(2)
            .into_iter()
            .map(|control| scope.spawn(move || rank(control)))
            .collect();
        let ends = ranks
            .into_iter()
            .map(|rank| rank.join().expect("no rank panics"));
        ends.last().expect("there are two")
    });
    assert!(matches!(cause, Cause::Limit { rank: 0, .. }), "{cause}");
}

fn rank(control: LocalControl) -> Cause {
    let rank = control.rank();
    // SAFETY: the control plane of `tidegate-boot` carries what it is given.
    let world = unsafe { World::from_control(Arc::new(Slow(control)), Host::for_threads()) }
        .expect("the ranks meet");
    crate::stream!(let s = world.stream().unwrap());
    let mut window = SlotWindow::<u64>::new("w").fail_after(Duration::from_millis(20));
    if rank == 0 {
        window.slot_from(1, 0, 1);
        let (inbox, _outbox) = window.open(&s).unwrap();
        let waited = inbox.post(&s).unwrap().wait(&s);
        let failed = waited.map(drop).and_then(|()| s.synchronize());
        return match failed {
            Err(Error::Wait(failed)) => failed.cause,
            Err(Error::Revoked { cause, .. }) => cause,
            other => panic!("{other:?}"),
        };
    }
    window.slot_to(0, 0);
    let (inbox, mut outbox) = window.open(&s).unwrap();
    std::mem::forget(inbox);
    let begun = Instant::now();
    loop {
        assert!(
            begun.elapsed() < Duration::from_secs(300),
            "nobody has told it"
        );
        let accessed = outbox.start_to(&Group::new([]));
        match accessed.and_then(|access| access.complete(&s)) {
            Ok(next) => outbox = next,
            Err(Error::Revoked { cause, .. }) => return cause,
            Err(other) => panic!("{other:?}"),
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Only rank 1 cannot open a window. Its name, which the reason contains, is nearly as long as a message may be.
#[test]
fn a_reason_that_is_too_long_for_a_message_is_told_all_the_same() {
    let name = "w".repeat(Packet::MAX_BYTES - 100);
    let route = |rank| match rank {
        0 => Route::Auto,
        _ => Route::Nic,
    };
    let options = |rank| WorldOptions::new().route(route(rank));
    World::<Host>::local_with(2, options, |world| {
        stream!(let s = world.stream().unwrap());
        let other = 1 - world.rank();
        let mut window = SlotWindow::<u8>::new(&name);
        window.slot_from(other, 0, 1);
        window.slot_to(other, 0);
        match (world.rank(), window.open(&s).err().unwrap()) {
            (1, Error::Open(WindowError::NoNic { .. })) => {}
            (0, Error::Open(WindowError::Disagreement { disagreement, .. })) => {
                let said = disagreement.to_string();
                let begins = "rank 1 could not create its part: window `www";
                assert!(said.starts_with(begins) && said.len() < 5000);
            }
            _ => panic!("rank 1 has no NIC"),
        }
        world.all_gather("done", Vec::new()).unwrap();
    });
}

/// What the other ranks hear in each collective call when rank 1's program panics before it opens anything.
#[test]
fn a_rank_whose_program_has_panicked_has_not_left() {
    type Call = fn(&World<Host>) -> Error;
    let calls: [Call; 3] = [
        |world| world.all_gather("x", Vec::new()).unwrap_err(),
        |world| {
            crate::stream!(let s = world.stream().unwrap());
            let window = SlotWindow::<u64>::new("w");
            let opened = window.open(&s);
            opened.expect_err("rank 1 takes no part")
        },
        |world| {
            crate::stream!(let s = world.stream().unwrap());
            let opened = Barrier::open(&s, "b");
            opened.expect_err("rank 1 takes no part")
        },
    ];
    for call in calls {
        let (say, said) = std::sync::mpsc::channel();
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            World::<Host>::local(3, |world| {
                if world.rank() == 1 {
                    std::panic::resume_unwind(Box::new("a test"));
                }
                say.send(call(&world).to_string()).unwrap();
            })
        }));
        assert!(ended.is_err());
        let errors: Vec<_> = said.try_iter().collect();
        assert_eq!(errors.len(), 2, "{errors:?}");
        for error in errors {
            let why = "rank 1 will not come (its program has panicked); ";
            assert!(error.contains(why), "{error}");
        }
    }
}

/// The rank that is waited for has left, and another one ends because of that; or the other way round.
#[test]
fn the_first_of_a_departure_and_a_loss_is_the_cause() {
    use tidegate_hal::batch::{Awaited, Tag};
    use tidegate_hal::control::Event;

    let left = || Event::Left { rank: 1 };
    let lost_rank = |rank| Event::Lost {
        rank,
        reason: "it has failed".into(),
    };
    let lost = || lost_rank(2);
    let cause = |events: [Event; 2]| {
        let causes = World::<Host>::local(1, |world| {
            let inner = world.downgrade().upgrade().unwrap();
            for event in [&events[0], &events[1]] {
                inner.on_event(event.clone());
            }
            let tag = Tag {
                window: None,
                peer: 1,
                awaited: Awaited::Completion,
            };
            inner.cause(tag).expect("there is one")
        });
        causes.into_iter().next().expect("there is one rank")
    };
    assert!(matches!(
        cause([left(), lost()]),
        Cause::PeerLeft { rank: 1 }
    ));
    assert!(matches!(
        cause([lost(), left()]),
        Cause::PeerLost { rank: 2, .. }
    ));
    // Of two losses, the first counts, whatever the ranks are.
    assert!(matches!(
        cause([lost_rank(3), lost_rank(1)]),
        Cause::PeerLost { rank: 3, .. }
    ));
}

/// A window is revoked, and this rank hears of another cause before its waits have ended. Errors name the first cause.
#[test]
fn what_counts_is_the_first_cause() {
    let hears: [fn(WindowId) -> Event; 2] = [
        |window| {
            let cause = Cause::PeerFailed { rank: 1 };
            let bytes = Message::Revoke { window, cause }.encode();
            Event::Message { from: 1, bytes }
        },
        |_| Event::Lost {
            rank: 1,
            reason: "a test".into(),
        },
    ];
    for hear in hears {
        World::<Host>::local(1, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let (inbox, _outbox) = SlotWindow::<u64>::new("w").open(&s).unwrap();
            let inner = world.downgrade().upgrade().unwrap();
            let (rank, token) = (1, "the first".into());
            let first = Cause::Dropped { rank, token };
            inner.note(inbox.id(), first.clone());
            inner.on_event(hear(inbox.id()));
            match inbox.post(&s) {
                Err(Error::Revoked { cause, .. }) => assert_eq!(cause, first),
                other => panic!("{other:?}"),
            }
        });
    }
}
