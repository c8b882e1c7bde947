//! Memory that is forgotten, dropped early, empty, too large, or moved to another thread.

use std::mem::forget;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc};

use tidegate::host::prelude::*;

use super::{named, slot, window};

/// Leaks, in every state of every token. The runtime keeps everything that the queue needs.
#[test]
fn forgetting() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    for state in 0..5 {
        // A forgotten window keeps its name.
        let (inbox, outbox) = named(&format!("w{state}"), &s)?;
        let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
        s.launch(|x: &mut [f64]| x.fill(2.0), &mut src)?;
        let exposed = inbox.post(&s)?;
        if state == 0 {
            forget((exposed, outbox, src));
            continue;
        }
        let to = slot(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        if state == 1 {
            forget(epoch);
            forget((exposed, src));
            continue;
        }
        let outbox = epoch.complete(&s)?;
        if state == 2 {
            forget(outbox);
            drop((exposed, src));
            continue;
        }
        let inbox = exposed.wait(&s)?;
        s.launch(
            |slots: Slots<'_, f64>| slots.iter().for_each(|slot| assert_eq!(slot, [2.0; 4])),
            inbox.view(),
        )?;
        if state == 3 {
            forget(inbox);
        } else {
            drop((inbox, outbox, src));
        }
    }
    s.synchronize()
}

/// Memory is freed when the stream has passed, whatever was dropped before.
#[test]
fn dropping_while_kernels_run() -> Result<()> {
    let world: World = World::init()?;
    let total = Arc::new(AtomicU64::new(0));
    {
        stream!(let s = world.stream()?);
        for _ in 0..100 {
            let mut region = Region::<u64>::zeroed(&world, 10_000)?.on(&s)?;
            s.launch(|x: &mut [u64]| x.fill(3), &mut region)?;
            let total = total.clone();
            let sum = move |x: &[u64]| {
                total.fetch_add(x.iter().sum(), Ordering::Relaxed);
            };
            s.launch(sum, &region)?;
        }
    }
    assert_eq!(total.load(Ordering::Relaxed), 100 * 30_000);
    Ok(())
}

/// Empty memory has nothing to address, and gives no null slices.
#[test]
fn regions_of_no_elements() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut empty = Region::<f64>::zeroed(&world, 0)?;
    empty.write(0, &[])?;
    empty.read(0, &mut [])?;
    assert!(empty.write(0, &[1.0]).is_err() && empty.write(usize::MAX, &[1.0]).is_err());
    assert!(empty.is_empty() && empty[..].is_empty());
    empty.fill(1.0);
    let mut empty = empty.on(&s)?;
    s.launch(|x: &mut [f64]| assert!(x.is_empty()), &mut empty)?;
    let whole = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let (whole, mut end) = whole.split_at(4)?;
    s.launch(|x: &mut [f64]| assert!(x.is_empty()), &mut end)?;
    let (inbox, outbox) = window(&s)?;
    let exposed = inbox.post(&s)?;
    let to = slot(&outbox);
    let mut epoch = outbox.start();
    epoch.put(&empty, to)?;
    epoch.put(&end, to.at(4))?;
    epoch.put(whole.slice(0..4)?, to)?;
    assert!(epoch.put(&end, to.at(5)).is_err());
    assert!(epoch.put(&whole, to.at(usize::MAX)).is_err());
    assert!(whole.slice(3..5).is_err() && whole.slice(usize::MAX..usize::MAX).is_err());
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    s.synchronize()
}

/// Sizes that overflow, in the product or in the sum.
#[test]
fn sizes_that_cannot_be() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    for len in [
        usize::MAX,
        usize::MAX / 8,
        isize::MAX as usize / 8 + 1,
        1 << 60,
    ] {
        assert!(Region::<f64>::zeroed(&world, len).is_err());
        let mut window = SlotWindow::<f64>::new("w");
        window.slot_from(0, 0, len);
        window.slot_to(0, 0);
        assert!(window.open(&s).is_err());
        assert!(RangeWindow::<f64>::new("w", len).open(&s).is_err());
    }
    assert!(Layout::strided(usize::MAX, &[(2, 1)]).is_err());
    assert!(Layout::strided(0, &[(u32::MAX, i32::MAX)]).is_err());
    assert!(Layout::strided(0, &[(2, -1)]).is_err());
    Ok(())
}

/// The types that may go to another thread, and those that may be shared.
#[test]
fn what_may_cross_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Stream<'_>>();
    send::<Region<f64>>();
    sync::<Region<f64>>();
    send::<Region<f64, On<'_>>>();
    sync::<Region<f64, On<'_>>>();
    send::<Inbox<'_, f64>>();
    send::<Exposed<'_, f64>>();
    send::<Outbox<'_, f64>>();
    send::<Access<'_, '_, f64>>();
    send::<Graph<'_>>();
    sync::<Graph<'_>>();
    send::<Layout>();
    sync::<Layout>();
    send::<World>();
    sync::<World>();
}

/// A region whose stream is owned by another thread can be dropped here.
#[test]
fn a_region_dropped_by_another_thread() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn(move || receiver.into_iter().for_each(drop));
        for _ in 0..1000 {
            let mut region = Region::<u64>::zeroed(&world, 1000)?.on(&s)?;
            s.launch(|x: &mut [u64]| x.fill(3), &mut region)?;
            sender.send(region).expect("the other thread listens");
        }
        s.synchronize()
    })
}
