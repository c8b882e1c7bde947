//! The ids of windows.

use tidegate_host::Host;

use super::super::{SlotWindow, TeamId, WindowId};
use crate::error::{Cause, WindowError};
use crate::{AllReduce, Barrier, Error, World};

/// Ranks open windows in one order, one of which fails, and drop them at different times. Each has the same id on all
/// ranks.
#[test]
fn ranks_that_open_windows_in_order_agree_on_their_ids() {
    World::<Host>::local(3, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let open = |name| SlotWindow::<f64>::new(name).open(&s);
        let (inbox, outbox) = open("first").unwrap();
        let barrier = Barrier::open(&s, "barrier").unwrap();
        let taken = open("first").map(drop).unwrap_err();
        assert!(
            matches!(taken, Error::Open(WindowError::NameTaken { .. })),
            "{taken}"
        );
        let sum = AllReduce::<f64, _>::open(&s, "sum", 1, tidegate_hal::batch::Op::Sum).unwrap();
        let mut ids = vec![inbox.id(), barrier.id(), sum.id()];
        // On rank 1 they are gone before the next window comes.
        let kept = (world.rank() != 1).then_some((inbox, outbox, barrier, sum));
        ids.push(open("last").unwrap().1.id());
        let expected = [0, 1, 3, 4].map(|sequence| WindowId {
            team: TeamId::WORLD,
            sequence,
        });
        assert_eq!(ids, expected, "rank {}", world.rank());
        drop(kept);
    });
}

/// The second window with a name has another id than the first.
#[test]
fn errors_name_the_window_by_its_id() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let peer = 1 - world.rank();
        let open = || {
            let mut window = SlotWindow::<f64>::new("w");
            window.slot_from(peer, 0, 1);
            window.slot_to(peer, 0);
            window.open(&s).unwrap()
        };
        let first = open();
        drop(first);
        let (inbox, outbox) = open();
        let named = "window `w` (number 1)";
        assert!(format!("{inbox:?}").contains("number 1"), "{inbox:?}");
        if world.rank() == 0 {
            drop(outbox.start());
            let revoked = inbox.post(&s).map(drop).unwrap_err().to_string();
            assert!(
                revoked.starts_with(&format!("{named} is revoked: ")),
                "{revoked}"
            );
        } else {
            let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
            let error = waited.map(drop).and_then(|()| s.synchronize()).unwrap_err();
            let (window, cause) = match &error {
                Error::Wait(failed) => (failed.window.as_ref().unwrap(), &failed.cause),
                Error::Revoked { window, cause } => (window, cause),
                other => panic!("{other}"),
            };
            assert!(matches!(cause, Cause::Dropped { rank: 0, .. }), "{cause}");
            assert_eq!((&*window.name, window.id), ("w", outbox.id()));
            assert!(error.to_string().starts_with(named), "{error}");
        }
        world.all_gather("over", Vec::new()).unwrap();
    });
}
