//! What a rank remembers of windows that were opened and dropped, and for how long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_hal::device::{Device as _, Reclaim as _, Stream as _};
use tidegate_hal::ids::{TeamId, WindowId};
use tidegate_host::Host;

use super::{KEPT, Known, Members};
use crate::error::{Cause, WindowError};
use crate::ground::lock;
use crate::message::Message;
use crate::window::{BySlot, Inbox, Outbox, SlotWindow};
use crate::{Barrier, Error, Result, Stream, World};

type Halves<'s> = (Inbox<'s, u8, Host, BySlot>, Outbox<'s, u8, Host, BySlot>);

/// A window with one slot in each direction between two ranks.
fn open<'s>(s: &Stream<'s, Host>, name: &str) -> Result<Halves<'s>> {
    let other = 1 - s.world().rank();
    let mut window = SlotWindow::new(name);
    window.slot_from(other, 0, 8);
    window.slot_to(other, 0);
    window.open(s)
}

fn known(world: &World<Host>) -> usize {
    lock(&world.inner.events).windows.entries.len()
}

#[test]
fn what_never_came_to_be_is_closed_once() {
    let mut known = Known::<Host>::default();
    let name = Arc::from("w");
    let world = (TeamId::WORLD, &Members::All(1));
    let first = known.reserve(world, "a window", &name);
    for _ in 0..3 * KEPT {
        let id = known.reserve(world, "a window", &name);
        known.release(id);
    }
    assert_eq!(known.closed, [first]);
}

#[test]
fn what_is_known_does_not_grow_with_every_window() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let held = open(&s, "held").unwrap();
        let first = held.0.id();
        for _ in 0..500 {
            drop(open(&s, "w").unwrap());
            Barrier::open(&s, "w").unwrap();
        }
        // Windows that are not opened count like the others.
        for _ in 0..500 {
            let error = open(&s, "held").map(drop).unwrap_err();
            assert!(
                matches!(error, Error::Open(WindowError::NameTaken { .. })),
                "{error}"
            );
        }
        // The window that is held, and the one that was opened last, may not be counted as closed yet.
        assert!(known(&world) <= KEPT + 2, "{}", known(&world));
        let name = |id| world.inner.window(id).0;
        assert_eq!(&*name(first), "held");
        assert_eq!(
            &*name(first.next()),
            "-",
            "the first that was dropped is forgotten"
        );
        drop(held);
        world.all_gather("done", Vec::new()).unwrap();
        drop(open(&s, "held").unwrap());
    });
}

/// Rank 0's stream fails by a wait of `w`, before the news of the cause, and another stream still waits in `q`. Then
/// the halves are dropped, and more windows are opened than are remembered.
#[test]
fn a_cause_that_comes_late_is_named() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.named_stream("fails").unwrap());
        crate::stream!(let other = world.stream().unwrap());
        crate::stream!(let waits = world.stream().unwrap());
        let (inbox, outbox) = open(&s, "w").unwrap();
        let (waited, _) = open(&waits, "q").unwrap();
        let (id, q) = (inbox.id(), waited.id());
        if world.rank() == 0 {
            drop(waited.post(&waits).unwrap().wait(&waits).unwrap());
        }
        let window = world.inner.window(id).1.unwrap();
        let halves = match world.rank() {
            0 => {
                let inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
                for (word, _) in &window.words {
                    // SAFETY: the window is held, and so are its words. The bell is the world's.
                    unsafe { world.device().poison(*word, world.inner.bells.own()) };
                }
                let since = Instant::now();
                while s.raw().reclaim().fault().is_none() {
                    assert!(
                        since.elapsed() < Duration::from_secs(300),
                        "it has not failed"
                    );
                    std::thread::yield_now();
                }
                (inbox, outbox)
            }
            _ => (inbox, outbox),
        };
        drop((halves, window));
        for _ in 0..2 * KEPT {
            drop(open(&other, "w").unwrap());
        }
        let limit = Duration::from_millis(7);
        if world.rank() == 1 {
            assert_eq!(
                &*world.inner.window(id).0,
                "-",
                "here nobody can ask for it"
            );
            let cause = Cause::Limit {
                rank: 1,
                peer: Some(0),
                limit,
            };
            for window in [id, q] {
                let cause = cause.clone();
                let message = Message::Revoke { window, cause };
                let control = world.inner.control();
                control.notify(None, &message.encode()).unwrap();
            }
        } else {
            fails_by(&s, "w", id);
            fails_by(&waits, "q", q);
        }
        world.all_gather("done", Vec::new()).unwrap();
    });
}

/// A stream's wait has ended by the limit. Its error names the window.
fn fails_by(s: &Stream<'_, Host>, name: &str, id: WindowId) {
    assert_eq!(&*s.world().inner.window(id).0, name);
    let Err(Error::Wait(failed)) = s.synchronize() else {
        panic!("its stream has failed");
    };
    let window = failed.window.as_ref().unwrap();
    assert_eq!((&*window.name, window.id), (name, id));
    let limit = matches!(failed.cause, Cause::Limit { rank: 1, .. });
    assert!(limit, "{}", failed.cause);
}
