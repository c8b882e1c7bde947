//! Windows at the end of their counters, as if they had had nearly all epochs that these can count.

use tidegate::error::EpochError;
use tidegate::generic::{Barrier, Region};
use tidegate::host::Host;
use tidegate::host::prelude::*;
use tidegate::try_exchange;

/// The most epochs of a window.
const MOST: u64 = (1 << 36) - (1 << 20);

fn is_last(error: &Error) -> bool {
    let said = error.to_string();
    matches!(error, Error::Epoch(EpochError::LastEpoch { .. }))
        && said.contains("`last` (number ")
        && said.contains("can have 68718428160 epochs")
        && said.contains("open a new one")
}

/// A window from each of two ranks to the other.
fn pair(world: &World, buffers: Buffers, left: u64) -> SlotWindow<u64> {
    let other = 1 - world.rank();
    let window = SlotWindow::new("last").buffers(buffers);
    let mut window = window.after_epochs(MOST - left);
    window.slot_from(other, 0, 3);
    window.slot_to(other, 0);
    window
}

/// The one slot of such a window.
fn first(outbox: &Outbox<'_, u64>) -> Out<u64> {
    outbox.slots().next().expect("there is one")
}

type Halves<'s> = (Inbox<'s, u64>, Outbox<'s, u64>);

/// An epoch in which a rank puts its number, which the other sees.
fn turn<'s>(s: &Stream<'s>, (inbox, outbox): Halves<'s>, number: u64) -> Result<Halves<'s>> {
    let other = 1 - s.world().rank() as u64;
    let src = Region::from_slice(s.world(), &[number + s.world().rank() as u64; 3])?.on(s)?;
    let exposed = inbox.post(s)?;
    let to = first(&outbox);
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    let outbox = epoch.complete(s)?;
    let mut inbox = exposed.wait(s)?;
    let came = inbox.read(s)?;
    assert!(came.iter().all(|slot| slot == [number + other; 3]));
    Ok((inbox, outbox))
}

/// Both ranks carry out the last epochs, and refuse the same one in every form. They have the data of the last epoch,
/// and go on with a new window.
#[test]
fn all_ranks_refuse_the_same_epoch() {
    for buffers in [Buffers::Single, Buffers::Double] {
        World::local(2, |world| {
            stream!(let s = world.stream().unwrap());
            let mut halves = pair(&world, buffers, 5).open(&s).unwrap();
            for number in 0..5 {
                halves = turn(&s, halves, 10 * number).unwrap();
            }
            let (inbox, outbox) = halves;
            let refused = inbox.try_post(&s).expect_err("it is refused");
            assert!(is_last(&refused.error), "{}", refused.error);
            let refused = refused.value.try_expose(&s).expect_err("it is refused");
            assert!(is_last(&refused.error), "{}", refused.error);
            let inbox = refused.value;
            let epoch = outbox.start();
            let refused = epoch.try_complete(&s).expect_err("it is refused");
            assert!(is_last(&refused.error), "{}", refused.error);
            let refused = try_exchange(&s, inbox, refused.value).expect_err("it is refused");
            assert!(is_last(&refused.error), "{}", refused.error);
            let (mut inbox, epoch) = refused.value;
            let came = inbox.read(&s).unwrap();
            let last = [41 - world.rank() as u64; 3];
            assert!(came.iter().all(|slot| slot == last));
            drop((inbox, epoch));
            s.synchronize().unwrap();

            stream!(let anew = world.stream().unwrap());
            let mut barrier = Barrier::<Host>::open(&anew, "all have dropped it").unwrap();
            barrier.enqueue(&anew).unwrap();
            anew.synchronize().unwrap();
            let halves = pair(&world, buffers, MOST).open(&anew).unwrap();
            drop(turn(&anew, halves, 7).unwrap());
        });
    }
}

/// A recording has as many epochs in each replay. Too many replays are refused as a whole.
#[test]
fn replays_count() {
    World::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        let halves = pair(&world, Buffers::Double, 9).open(&s).unwrap();
        let halves = turn(&s, halves, 1).unwrap();
        let src = Region::from_slice(&world, &[world.rank() as u64; 3])
            .unwrap()
            .on(&s)
            .unwrap();
        // Each replay has three epochs; recording them has none.
        let (graph, lent) = s
            .capture((halves, src), |s, ((mut inbox, mut outbox), src)| {
                for _ in 0..3 {
                    let to = first(&outbox);
                    let mut epoch = outbox.start();
                    epoch.put(&src, to)?;
                    (inbox, outbox) = exchange(s, inbox, epoch)?;
                }
                Ok(((inbox, outbox), src))
            })
            .unwrap();
        let refused = graph
            .try_replay(&s, lent, 3)
            .expect_err("nine are too many");
        assert!(is_last(&refused.error), "{}", refused.error);
        let refused = graph
            .try_replay(&s, refused.value, usize::MAX)
            .expect_err("and all");
        assert!(is_last(&refused.error), "{}", refused.error);
        let lent = graph.replay(&s, refused.value, 2).unwrap();
        let refused = graph.try_replay(&s, lent, 1).expect_err("two are left");
        assert!(is_last(&refused.error), "{}", refused.error);
        let (halves, _src) = refused.value;
        let halves = turn(&s, halves, 20).unwrap();
        let (inbox, _outbox) = turn(&s, halves, 30).unwrap();
        let error = inbox.post(&s).expect_err("that was the last");
        assert!(is_last(&error), "{error}");
        s.synchronize().unwrap();
    });
}

/// Rank 0 is at the end of its epochs with rank 1 only, and an epoch with both is refused. Rank 2 waits for that epoch,
/// and is told that rank 0 has dropped it.
#[test]
fn a_dropped_group_of_which_one_member_is_at_its_end_revokes() {
    World::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("last").after_epochs(MOST - 1);
        if world.rank() != 0 {
            window.slot_from(0, 0, 0);
            let (inbox, _outbox) = window.open(&s).unwrap();
            // The window may be revoked even before this rank posts: rank 0 waits for no post in the first epoch.
            let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
            let ended = s.synchronize();
            match world.rank() {
                1 => drop((waited, ended)),
                _ => {
                    let error = waited.and(ended).unwrap_err();
                    let said = error.to_string();
                    assert!(said.contains("an `Access` before its complete"), "{said}");
                }
            }
            return;
        }
        window.slot_to(1, 0);
        window.slot_to(2, 0);
        let (_inbox, outbox) = window.open(&s).unwrap();
        let one = outbox.start_to(&Group::new([1])).unwrap();
        let outbox = one.complete(&s).unwrap();
        s.synchronize().unwrap();
        let both = outbox.start_to(&Group::new([1, 2]));
        let refused = both
            .unwrap()
            .try_complete(&s)
            .expect_err("rank 1 is at its end");
        assert!(is_last(&refused.error), "{}", refused.error);
    });
}
