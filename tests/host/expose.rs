//! Whole exposure epochs: post and wait in one call, beside the other ways to expose, and refused.

use tidegate::error::EpochError;
use tidegate::host::prelude::*;
use tidegate::window::Tested;

/// A window of one number, from each rank in `from` to each in `to`.
fn window(from: &[usize], to: &[usize]) -> SlotWindow<u64> {
    let mut window = SlotWindow::new("w").buffers(Buffers::Double);
    for rank in from {
        window.slot_from(*rank, 0, 1);
    }
    for rank in to {
        window.slot_to(*rank, 0);
    }
    window
}

/// The one outbound slot of such a window.
fn way(outbox: &Outbox<'_, u64>) -> Out<u64> {
    outbox.slots().next().expect("there is one")
}

/// The number in its one inbound slot.
fn came(slots: Slots<'_, u64>) -> u64 {
    slots.iter().next().expect("there is one")[0]
}

fn next(number: &mut [u64]) {
    number[0] += 1;
}

/// Rank 0 puts a number that grows by one each time. Each number comes once, in whatever way the target exposes the
/// slot.
#[test]
fn all_ways_to_expose_follow_each_other() {
    const TIMES: u64 = 5;
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        if world.rank() == 0 {
            let (_inbox, mut outbox) = window(&[], &[1]).open(&s)?;
            let mut number = Region::zeroed(&world, 1)?.on(&s)?;
            for _ in 0..4 * TIMES {
                s.launch(next, &mut number)?;
                let to = way(&outbox);
                let mut epoch = outbox.start();
                epoch.put(&number, to)?;
                outbox = epoch.complete(&s)?;
            }
            return s.synchronize();
        }
        let (mut inbox, outbox) = window(&[0], &[]).open(&s)?;
        let mut outbox = Some(outbox);
        let from = Group::new([0]);
        let mut puts = 0;
        for turn in 0..4 * TIMES {
            inbox = match turn % 4 {
                0 => inbox.expose(&s)?,
                1 => inbox.expose_to(&s, &from)?,
                2 => {
                    let mut exposed = inbox.post_to(&s, &from)?;
                    loop {
                        match exposed.test(&s)? {
                            Tested::Done(inbox) => break inbox,
                            Tested::Pending(pending) => exposed = pending,
                        }
                        std::thread::yield_now();
                    }
                }
                _ => {
                    let epoch = outbox.take().expect("it comes back").start();
                    let (inbox, back) = exchange(&s, inbox, epoch)?;
                    outbox = Some(back);
                    inbox
                }
            };
            puts += 1;
            assert_eq!(came(inbox.read(&s)?), puts, "turn {turn}");
        }
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

/// A refusal returns the inbox, unchanged.
#[test]
fn a_refused_exposure_loses_nothing() {
    let results = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        if world.rank() == 0 {
            let (_inbox, outbox) = window(&[], &[1]).open(&s)?;
            let number = Region::from_slice(&world, &[7u64])?.on(&s)?;
            let to = way(&outbox);
            let mut epoch = outbox.start();
            epoch.put(&number, to)?;
            let _ = epoch.complete(&s)?;
            return s.synchronize();
        }
        let (inbox, _outbox) = window(&[0], &[]).open(&s)?;
        let refused = inbox.try_expose_to(&s, &Group::new([1])).err().unwrap();
        assert!(matches!(
            refused.error,
            Error::Epoch(EpochError::NotInGroup { rank: 1, .. })
        ));
        let mut inbox = refused.value.expose(&s)?;
        assert_eq!(came(inbox.read(&s)?), 7);
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

/// A rank that puts to itself completes before it exposes, even if only one of the two is recorded.
#[test]
fn to_oneself() {
    for recorded in [false, true] {
        let results = World::local(1, |world: World| -> Result<()> {
            stream!(let s = world.stream()?);
            let (mut inbox, mut outbox) = window(&[0], &[0]).open(&s)?;
            let mut number = Region::zeroed(&world, 1)?.on(&s)?;
            let graph = match recorded {
                false => None,
                true => {
                    let (graph, back) = s.capture(inbox, |s, inbox| inbox.expose(s))?;
                    inbox = back;
                    Some(graph)
                }
            };
            for turn in 1..=6 {
                s.launch(next, &mut number)?;
                let to = way(&outbox);
                let mut epoch = outbox.start();
                epoch.put(&number, to)?;
                outbox = epoch.complete(&s)?;
                inbox = match &graph {
                    None => inbox.expose(&s)?,
                    Some(graph) => graph.replay(&s, inbox, 1)?,
                };
                assert_eq!(came(inbox.read(&s)?), turn);
            }
            Ok(())
        });
        results.into_iter().for_each(|result| result.unwrap());
    }
}

/// Completing again before the first epoch is exposed would wait for ever, so it is refused with an error.
#[test]
fn completing_twice_ahead_of_oneself_is_refused() {
    let results = World::local(1, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let (inbox, outbox) = window(&[0], &[0]).open(&s)?;
        let outbox = outbox.start().complete(&s)?;
        let refused = outbox.start().try_complete(&s).err().unwrap();
        assert!(matches!(
            refused.error,
            Error::Epoch(EpochError::SelfDeadlock { .. })
        ));
        // The epoch is still open.
        let inbox = inbox.expose(&s)?;
        let _outbox = refused.value.complete(&s)?;
        let _inbox = inbox.expose(&s)?;
        s.synchronize()
    });
    results.into_iter().for_each(|result| result.unwrap());
}
