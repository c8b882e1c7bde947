//! What ranks are told about each other's mistakes.

use std::time::Duration;

use tidegate_host::Host;

use crate::error::{Cause, Error, Result};
use crate::{Layout, Region, SlotWindow, World};

/// The cause by which this rank's epoch has ended.
fn cause(ended: Result<()>) -> Cause {
    match ended.unwrap_err() {
        Error::Wait(failed) => failed.cause,
        Error::Revoked { cause, .. } => cause,
        other => panic!("{other}"),
    }
}

/// A program returns by `?` from a put that is refused, and so drops the epoch. Its peers are told about the put, too.
#[test]
fn peers_hear_of_an_operation_that_was_refused() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let peer = 1 - world.rank();
        let mut window = SlotWindow::<u64>::new("halo");
        window.slot_from(peer, 0, 4);
        let to = window.slot_to(peer, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        if world.rank() == 0 {
            let src = Region::from_slice(&world, &[7; 5]).unwrap().on(&s).unwrap();
            let put = || {
                let mut epoch = outbox.start();
                epoch.put(&src, to)?;
                epoch.complete(&s).map(drop)
            };
            assert!(matches!(put(), Err(Error::Epoch(_))));
        } else {
            let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
            let told = cause(waited.map(drop).and_then(|()| s.synchronize())).to_string();
            let refused = "refused: window `halo` (number 0): elements 0..5 do not fit";
            assert!(
                told.contains("dropped an `Access`") && told.contains(refused),
                "{told}"
            );
        }
        world.all_gather("over", Vec::new()).unwrap();
    });
}

/// A rank whose limit has passed names the rank that it waited for: that rank made the mistake, or waits itself.
#[test]
fn peers_hear_for_whom_a_rank_has_waited_too_long() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let peer = 1 - world.rank();
        let mut window = SlotWindow::<u64>::new("halo");
        if world.rank() == 0 {
            window = window.fail_after(Duration::from_millis(20));
        }
        window.slot_from(peer, 0, 4);
        window.slot_to(peer, 0);
        let (inbox, _outbox) = window.open(&s).unwrap();
        if world.rank() == 0 {
            let waited = inbox.post(&s).unwrap().wait(&s).map(drop);
            waited.and_then(|()| s.synchronize()).unwrap_err();
            world.all_gather("over", Vec::new()).unwrap();
        } else {
            world.all_gather("over", Vec::new()).unwrap();
            // The news may arrive later than this call, and then it ends a wait.
            let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
            let told = cause(waited.map(drop).and_then(|()| s.synchronize())).to_string();
            assert_eq!(
                told,
                "rank 0 had waited for rank 1 for 20ms, the limit of the window"
            );
        }
    });
}

/// A struct that a step is lent can hold the layouts of its faces, and the handles of their slots.
#[test]
fn a_step_can_be_lent_layouts() {
    World::<Host>::local(1, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("column");
        let (from, to) = (window.slot_from(0, 0, 2), window.slot_to(0, 0));
        let (inbox, outbox) = window.open(&s).unwrap();
        let matrix = Region::from_slice(&world, &[0, 1, 2, 3]).unwrap();
        let faces = vec![(Layout::subarray(&[2, 2], &[0..2, 1..2]).unwrap(), to)];
        let lent = (matrix.on(&s).unwrap(), inbox, outbox, faces);
        let (graph, lent) = s
            .capture(lent, |s, (matrix, inbox, outbox, faces)| {
                let mut epoch = outbox.start();
                for (column, to) in &faces {
                    epoch.put(matrix.with(column)?, *to)?;
                }
                let (inbox, outbox) = crate::window::exchange(s, inbox, epoch)?;
                Ok((matrix, inbox, outbox, faces))
            })
            .unwrap();
        let (_matrix, mut inbox, _outbox, faces) = graph.replay(&s, lent, 3).unwrap();
        drop(faces);
        assert_eq!(inbox.read(&s).unwrap().slot(from), [1, 3]);
    });
}
