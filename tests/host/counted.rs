//! Puts whose elements are counted on the stream. As many come as a kernel has counted, in recordings, too. The
//! elements behind them are not touched if the stream itself puts.

use tidegate::error::EpochError;
use tidegate::host::prelude::*;
use tidegate::{Chunks, Route, WorldOptions};
use tidegate_loopback::Loopback;

/// An element of the message of an epoch, at one end.
fn value(epoch: u64, index: usize) -> u64 {
    epoch * 1_000_003 + index as u64
}

/// How many elements the kernel of an epoch counts. None, all, and more than there are occur.
fn counted(epoch: u64, len: usize) -> u64 {
    match epoch % 5 {
        0 => 0,
        1 => len as u64,
        2 => u64::MAX,
        3 => len as u64 + 1,
        _ => epoch * 7 % len as u64,
    }
}

#[derive(Carry)]
struct Pair<'s> {
    src: Region<u64, On<'s>>,
    count: Region<u64, On<'s>>,
    epoch: Region<u64, On<'s>>,
    came: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    from: In<u64>,
    to: Out<u64>,
}

/// The length of the source, its place in the slot, and the length of the slot.
#[derive(Clone, Copy)]
struct Sizes {
    src: usize,
    at: usize,
    slot: usize,
}

/// An epoch: the kernel makes a message and counts it, and the next kernel appends the contents of the slot to a list.
fn step<'s>(s: &Stream<'s>, sizes: Sizes, mut p: Pair<'s>) -> Result<Pair<'s>> {
    let make = move |epoch: &mut [u64], src: &mut [u64], count: &mut [u64]| {
        src.iter_mut()
            .enumerate()
            .for_each(|(index, x)| *x = value(epoch[0], index));
        count[0] = counted(epoch[0], sizes.src);
    };
    s.launch(make, (&mut p.epoch, &mut p.src, &mut p.count))?;
    let mut epoch = p.outbox.start();
    epoch.put_counted(&p.src, &p.count, p.to.at(sizes.at))?;
    (p.inbox, p.outbox) = exchange(s, p.inbox, epoch)?;
    let from = p.from;
    let note = move |came: &mut [u64], slots: Slots<'_, u64>, epoch: &mut [u64]| {
        let at = epoch[0] as usize * sizes.slot;
        came[at..at + sizes.slot].copy_from_slice(slots.slot(from));
        epoch[0] += 1;
    };
    s.launch(note, (&mut p.came, p.inbox.view(), &mut p.epoch))?;
    Ok(p)
}

/// The contents of a slot in each epoch.
fn expected(sizes: Sizes, buffers: usize, epochs: u64) -> Vec<u64> {
    let mut slot = vec![vec![0; sizes.slot]; buffers];
    let mut all = Vec::new();
    for epoch in 0..epochs {
        let slot = &mut slot[epoch as usize % buffers];
        let some = counted(epoch, sizes.src).min(sizes.src as u64) as usize;
        for index in 0..some {
            slot[sizes.at + index] = value(epoch, index);
        }
        all.extend_from_slice(slot);
    }
    all
}

/// How the two ranks reach each other.
#[derive(Clone, Copy, Debug, PartialEq)]
enum By {
    Memory,
    /// The NIC sends from the source.
    Nic,
    /// The stream copies to memory from which the NIC sends; long puts in pieces.
    StagedNic,
}

impl By {
    fn options(self) -> WorldOptions {
        let nic = || {
            WorldOptions::new()
                .nic(Loopback::default())
                .route(Route::Nic)
        };
        match self {
            By::Memory => WorldOptions::new(),
            By::Nic => nic(),
            By::StagedNic => nic().staged().chunks(Chunks::of(1000).from(4000)),
        }
    }
}

const EAGER: u64 = 7;
const REPLAYS: u64 = 33;
const EPOCHS: u64 = 2 * EAGER + REPLAYS;

/// The contents of the slot after each epoch.
fn exchanged(world: &World, sizes: Sizes, buffers: Buffers) -> Result<Vec<u64>> {
    let peer = 1 - world.rank();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("counted").buffers(buffers);
    let from = window.slot_from(peer, 0, sizes.slot);
    let to = window.slot_to(peer, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut p = Pair {
        src: Region::zeroed(world, sizes.src)?.on(&s)?,
        count: Region::zeroed(world, 1)?.on(&s)?,
        epoch: Region::zeroed(world, 1)?.on(&s)?,
        came: Region::zeroed(world, EPOCHS as usize * sizes.slot)?.on(&s)?,
        inbox,
        outbox,
        from,
        to,
    };
    for _ in 0..EAGER {
        p = step(&s, sizes, p)?;
    }
    let (graph, p) = s.capture(p, |s, p| step(s, sizes, p))?;
    let mut p = graph.replay(&s, p, REPLAYS as usize)?;
    for _ in 0..EAGER {
        p = step(&s, sizes, p)?;
    }
    Ok(p.came.into_host(&s)?.to_vec())
}

fn as_many_come_as_are_counted(by: By) {
    let sizes = |src, at, slot| Sizes { src, at, slot };
    for sizes in [sizes(1, 0, 1), sizes(9, 3, 20), sizes(4000, 1, 4001)] {
        for (buffers, number) in [(Buffers::Double, 2), (Buffers::Single, 1)] {
            let results = World::local_with(
                2,
                |_| by.options(),
                |world: World| exchanged(&world, sizes, buffers),
            );
            let expected = expected(sizes, number, EPOCHS);
            for came in results {
                let came = came.unwrap();
                let slots = came.chunks(sizes.slot).zip(expected.chunks(sizes.slot));
                for (epoch, (came, expected)) in slots.enumerate() {
                    // Further elements of a NIC's put are not specified, but they never reach beyond the source.
                    let some = counted(epoch as u64, sizes.src).min(sizes.src as u64) as usize;
                    let end = sizes.at + sizes.src;
                    let wrong = (came.iter().zip(expected).enumerate())
                        .filter(|(at, _)| by == By::Memory || !(sizes.at + some..end).contains(at))
                        .find(|(_, (came, expected))| came != expected);
                    assert_eq!(wrong, None, "{by:?}, epoch {epoch}, {number} buffers");
                }
            }
        }
    }
}

#[test]
fn as_many_come_as_are_counted_also_in_replays() {
    as_many_come_as_are_counted(By::Memory);
}

#[test]
fn so_they_do_over_nics() {
    as_many_come_as_are_counted(By::Nic);
    as_many_come_as_are_counted(By::StagedNic);
}

/// With another region for the count it is another epoch; and two messages of an epoch have counts of their own.
#[test]
fn each_message_has_the_number_of_its_own_region() {
    let results = World::local(2, |world: World| -> Result<()> {
        let peer = 1 - world.rank();
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::new("two").buffers(Buffers::Single);
        let from_0 = window.slot_from(peer, 0, 4);
        let from_1 = window.slot_from(peer, 1, 4);
        let to_0 = window.slot_to(peer, 0);
        let to_1 = window.slot_to(peer, 1);
        let (mut inbox, mut outbox) = window.open(&s)?;
        let src = Region::from_slice(&world, &[1u64, 2, 3, 4])?.on(&s)?;
        let counts = Region::from_slice(&world, &[3u64, 1])?.on(&s)?;
        let mut epoch = outbox.start();
        epoch.put_counted(&src, counts.slice(0..1)?, to_0)?;
        epoch.put_counted(src.slice(1..4)?, counts.slice(1..2)?, to_1)?;
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
        let slots = inbox.read(&s)?;
        assert_eq!(slots.slot(from_0), [1, 2, 3, 0]);
        assert_eq!(slots.slot(from_1), [2, 0, 0, 0]);
        // The same epoch, except for the region with the count.
        let mut epoch = outbox.start();
        epoch.put_counted(&src, counts.slice(1..2)?, to_0)?;
        epoch.put_counted(src.slice(1..4)?, counts.slice(0..1)?, to_1)?;
        (inbox, _) = exchange(&s, inbox, epoch)?;
        assert_eq!(inbox.read(&s)?.slot(from_1), [2, 3, 4, 0]);
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn what_cannot_be_counted_is_refused_and_the_epoch_goes_on() {
    let results = World::local(2, |world: World| -> Result<()> {
        let peer = 1 - world.rank();
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::new("refused");
        let from = window.slot_from(peer, 0, 4);
        let to = window.slot_to(peer, 0);
        let (inbox, outbox) = window.open(&s)?;
        let foreign = SlotWindow::new("never opened").slot_to(peer, 0);
        let src = Region::from_slice(&world, &[1u64, 2, 3, 4, 5])?.on(&s)?;
        let counts = Region::from_slice(&world, &[2u64, 1])?.on(&s)?;
        let every_second = Layout::strided(0, &[(2, 2)])?;
        let one = Layout::strided(0, &[(1, 1)])?;
        let mut epoch = outbox.start();
        let count = || counts.slice(0..1);
        for many in [0, 2] {
            let refused = epoch.put_counted(src.slice(0..4)?, counts.slice(0..many)?, to);
            let error = refused.unwrap_err().to_string();
            assert!(
                error.contains(&format!("one element, but has {many}")),
                "{error}"
            );
        }
        // The maximum must fit.
        let refused = epoch.put_counted(&src, count()?, to);
        assert!(matches!(
            refused,
            Err(Error::Epoch(EpochError::OutOfBounds { .. }))
        ));
        let refused = epoch.put_counted(src.slice(0..4)?, count()?, foreign);
        assert!(matches!(
            refused,
            Err(Error::Epoch(EpochError::ForeignSlot { slot: 0, .. }))
        ));
        for refused in [
            epoch.put_counted(src.with(&every_second)?, count()?, to),
            epoch.put_counted(src.slice(0..2)?, count()?, to.with(&every_second)),
            epoch.put_counted(src.slice(0..4)?, counts.with(&one)?, to),
        ] {
            let error = refused.unwrap_err();
            assert!(error.to_string().contains("counted"), "{error}");
        }
        epoch.put_counted(src.slice(1..5)?, count()?, to)?;
        let (mut inbox, _) = exchange(&s, inbox, epoch)?;
        assert_eq!(inbox.read(&s)?.slot(from), [2, 3, 0, 0]);
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}
