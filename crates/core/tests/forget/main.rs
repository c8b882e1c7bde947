//! Losing tokens: each kind of token in each state is forgotten or dropped, while transfers are pending and the peer
//! goes on.
//!
//! No loss of a program may lead to a use after free or to a data race. Miri and AddressSanitizer look for those in
//! these tests (`cargo xtask test --only miri asan`). And the peer must learn of the loss: at once if an epoch was
//! dropped, or by its limit if it was forgotten.

mod owned;
mod scene;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use scene::{
    Alarm, HostMemory, How, Inbox, LEN, LIMIT, LONG, Learns, Outbox, Queue, World, access, alone,
    filled, first, noticed, open, poll_once_and_lose, ranks, scene, scribble, unnoticed,
};
use tidegate_core::stream;
use tidegate_core::window::{AtomicWindow, LastSlots, Op, OutSlots, SlotWindow, Slots, exchange};
use tidegate_core::{AllReduce, Barrier, CellsMut, IndexSet, Layout, Region, Result};
use tidegate_host::Host;

#[test]
fn regions() {
    alone(|how, world, gate| {
        how.lose(Region::<u64, _>::zeroed(world, LEN)?);
        stream!(let s = world.stream()?);
        gate.hold_up(&s)?;
        // The test loses a region with pending kernels, one half of another, and one part of a third; then the other
        // half and part.
        let mut whole = filled(&s, 1)?;
        s.launch(scribble, &mut whole)?;
        how.lose(whole);
        let (mut low, mut high) = filled(&s, 2)?.split_at(LEN / 2)?;
        s.launch(scribble, &mut low)?;
        s.launch(scribble, &mut high)?;
        how.lose(low);
        let sets = [0..LEN / 2, LEN / 2..LEN].map(|range| IndexSet::from_ranges([range]));
        let [a, b] = sets;
        let [mut a, mut b] = filled(&s, 3)?.partition([a?, b?])?;
        s.launch(|mut cells: CellsMut<'_, u64>| cells.set(0, 9), &mut a)?;
        s.launch(|mut cells: CellsMut<'_, u64>| cells.set(LEN - 1, 9), &mut b)?;
        how.lose(a);
        how.lose(b);
        gate.open();
        // What was not lost is unchanged.
        let high: HostMemory = high.into_host(&s)?;
        assert_eq!(high[..], [3; LEN / 2]);
        Ok(())
    });
}

#[test]
fn kernels_and_what_they_capture() {
    alone(|how, world, gate| {
        let seen = Arc::new(AtomicUsize::new(0));
        {
            stream!(let s = world.stream()?);
            gate.hold_up(&s)?;
            let mut memory = filled(&s, 1)?;
            let (counter, ballast) = (seen.clone(), vec![1u64; 100]);
            let kernel = move |memory: &mut [u64]| {
                memory[0] += ballast[99];
                counter.fetch_add(1, Ordering::Relaxed);
            };
            s.launch(kernel.clone(), &mut memory)?;
            // A kernel behind one that panics is not called, but dropped.
            s.launch(|_: &mut [u64]| panic!("on purpose"), &mut memory)?;
            s.launch(kernel, &mut memory)?;
            how.lose(memory);
            gate.open();
            assert!(s.synchronize().is_err());
        }
        assert_eq!(seen.load(Ordering::Relaxed), 1);
        assert_eq!(Arc::strong_count(&seen), 1);
        Ok(())
    });
}

#[test]
fn streams() {
    alone(|how, world, gate| {
        stream!(let a = world.stream()?);
        stream!(let b = world.stream()?);
        gate.hold_up(&a)?;
        let (mut stays, mut goes) = (filled(&a, 1)?, filled(&a, 2)?);
        a.launch(scribble, &mut stays)?;
        a.launch(scribble, &mut goes)?;
        let mut goes = a.hand_off(goes, &b)?;
        b.launch(scribble, &mut goes)?;
        // A stream that is dropped first executes the rest of its work.
        if how == How::Dropped {
            gate.open();
        }
        how.lose(a);
        gate.open();
        let goes = goes.into_host(&b)?;
        assert_eq!(goes[..], [4; LEN]);
        // Its stream is gone, or works without an owner.
        drop(stays);
        how.lose(b);
        Ok(())
    });
}

#[test]
fn worlds() {
    unnoticed(2, |how, world, gate| {
        if world.rank() == 1 {
            return Ok(());
        }
        stream!(let s = world.stream()?);
        gate.hold_up(&s)?;
        let mut memory = filled(&s, 1)?;
        how.lose(world);
        s.launch(scribble, &mut memory)?;
        gate.open();
        assert_eq!(memory.into_host(&s)?[..], [2; LEN]);
        Ok(())
    });
}

#[test]
fn futures() {
    alone(|how, world, gate| {
        let alarm = Arc::new(Alarm::default());
        stream!(let s = world.stream()?);
        gate.hold_up(&s)?;
        let (mut moved, mut stays) = (filled(&s, 1)?, filled(&s, 2)?);
        s.launch(scribble, &mut moved)?;
        s.launch(scribble, &mut stays)?;
        poll_once_and_lose(how, s.synchronized(), &alarm);
        // The region is lost with the future.
        poll_once_and_lose(how, moved.into_host_async(&s), &alarm);
        gate.open();
        assert_eq!(stays.into_host(&s)?[..], [3; LEN]);
        Ok(())
    });
}

#[test]
fn an_idle_inbox() {
    scene(Learns::Late, |how, _s, inbox, outbox, _gate| {
        how.lose(inbox);
        drop(outbox);
        Ok(())
    });
}

#[test]
fn an_idle_outbox() {
    scene(Learns::Late, |how, s, inbox, outbox, _gate| {
        how.lose(outbox);
        let exposed = inbox.post(s)?;
        std::mem::forget(exposed);
        Ok(())
    });
}

#[test]
fn an_exposed_inbox() {
    scene(Learns::AtOnce, |how, s, inbox, outbox, _gate| {
        // The peer's puts and gets arrive when nobody owns the memory any more.
        how.lose(inbox.post(s)?);
        how.lose(outbox);
        Ok(())
    });
}

#[test]
fn an_inbox_whose_wait_is_pending() {
    scene(Learns::Late, |how, s, inbox, outbox, _gate| {
        let (src, mut dst) = (filled(s, 5)?, filled(s, 0)?);
        let exposed = inbox.post(s)?;
        let outbox = access(s, outbox, &src, &mut dst)?;
        let mut inbox = exposed.wait(s)?;
        // A kernel behind the wait reads the memory.
        let look = |memory: &mut [u64], dst: &[u64]| {
            assert_eq!(memory[..LEN / 2], [7; LEN / 2]);
            scribble(memory);
            assert_eq!(dst[..LEN / 2], [0; LEN / 2]);
        };
        s.launch(look, (inbox.memory_mut(), &dst))?;
        how.lose(inbox);
        how.lose(outbox);
        how.lose(dst);
        how.lose(src);
        Ok(())
    });
}

#[test]
fn an_access_epoch_with_notes() {
    scene(Learns::AtOnce, |how, s, inbox, outbox, gate| {
        let (mut src, mut dst) = (filled(s, 5)?, filled(s, 0)?);
        let exposed = inbox.post(s)?;
        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        epoch.get(dst.slice_mut(0..2)?, to)?;
        how.lose(epoch);
        // Nothing of the epoch was enqueued, so the sources are free.
        s.launch(scribble, &mut src)?;
        s.launch(scribble, &mut dst)?;
        gate.open();
        let (src, dst) = (src.into_host(s)?, dst.into_host(s)?);
        assert_eq!((src[0], dst[0]), (6, 1));
        how.lose(exposed);
        Ok(())
    });
}

#[test]
fn an_epoch_behind_a_refusal() {
    scene(Learns::AtOnce, |how, s, inbox, outbox, _gate| {
        let src = filled(s, 5)?;
        let exposed = inbox.post(s)?;
        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        epoch.put(&src, to)?;
        let refused = epoch.try_complete(s).expect_err("the puts overlap");
        how.lose(refused);
        drop(src);
        how.lose(exposed);
        Ok(())
    });
}

#[test]
fn an_outbox_whose_epoch_is_pending() {
    scene(Learns::Late, |how, s, inbox, outbox, _gate| {
        let (src, mut dst) = (filled(s, 5)?, filled(s, 0)?);
        let exposed = inbox.post(s)?;
        let outbox = access(s, outbox, &src, &mut dst)?;
        how.lose((src, dst));
        how.lose(outbox);
        let inbox = exposed.wait(s)?;
        how.lose(inbox);
        Ok(())
    });
}

#[test]
fn layouts_of_pending_puts() {
    scene(Learns::Late, |how, s, mut inbox, mut outbox, _gate| {
        let src = filled(s, 5)?;
        let evens = Layout::indexed(s.world(), &[0, 2, 4, 6])?;
        let strided = Layout::strided(1, &[(4, 2)])?;
        let exposed = inbox.post(s)?;
        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(src.with(&evens)?, to.with(&strided))?;
        outbox = epoch.complete(s)?;
        inbox = exposed.wait(s)?;
        how.lose((evens, strided));
        // There are so many other epochs that the outbox has forgotten the first one. Then only the queue knows its
        // layouts.
        for first in 0..LEN {
            let exposed = inbox.post(s)?;
            let to = scene::first(&outbox);
            let mut epoch = outbox.start();
            epoch.put(src.slice(0..1)?, to.at(first))?;
            outbox = epoch.complete(s)?;
            inbox = exposed.wait(s)?;
        }
        how.lose(src);
        how.lose(outbox);
        how.lose(inbox);
        Ok(())
    });
}

#[test]
fn an_exchange() {
    scene(Learns::Late, |how, s, inbox, outbox, _gate| {
        let src = filled(s, 5)?;
        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        let both = exchange(s, inbox, epoch)?;
        how.lose(src);
        how.lose(both);
        Ok(())
    });
}

type Lent<'s> = (scene::Memory<'s>, scene::Memory<'s>, Inbox<'s>, Outbox<'s>);

fn step<'s>(s: &Queue<'s>, (src, mut dst, inbox, outbox): Lent<'s>) -> Result<Lent<'s>> {
    let exposed = inbox.post(s)?;
    let outbox = access(s, outbox, &src, &mut dst)?;
    let mut inbox = exposed.wait(s)?;
    s.launch(scribble, inbox.memory_mut())?;
    Ok((src, dst, inbox, outbox))
}

#[test]
fn graphs() {
    scene(Learns::Late, |how, s, inbox, outbox, _gate| {
        let lent = (filled(s, 5)?, filled(s, 0)?, inbox, outbox);
        let (unused, lent) = s.capture(lent, step)?;
        let (graph, lent) = s.capture(lent, step)?;
        how.lose(unused);
        let lent = graph.replay(s, lent, 2)?;
        how.lose(graph);
        how.lose(lent);
        Ok(())
    });
}

#[test]
fn what_was_lent_to_a_capture_that_fails() {
    scene(Learns::Anyway, |how, s, inbox, outbox, _gate| {
        let lent = (filled(s, 5)?, filled(s, 0)?, inbox, outbox);
        let failed = s.capture(lent, |s, (src, dst, inbox, outbox)| {
            let exposed = inbox.post(s)?;
            how.lose(exposed);
            how.lose(outbox.start());
            how.lose(src);
            drop(dst);
            Err(tidegate_core::Error::other("on purpose"))
        });
        assert!(failed.is_err());
        Ok(())
    });
}

#[test]
fn a_stream_with_everything_on_it() {
    scene(Learns::Late, |how, s, inbox, outbox, gate| {
        let world = s.world().clone();
        let lent = (filled(s, 5)?, filled(s, 0)?, inbox, outbox);
        let lent = step(s, lent)?;
        // The tokens move to a stream that is lost while its work is pending.
        stream!(let other = world.stream()?);
        let lent = s.hand_off(lent, &other)?;
        let lent = step(&other, lent)?;
        gate.open();
        how.lose(other);
        how.lose(lent);
        Ok(())
    });
}

/// The two ranks work in different buffers of the slots; the target reads while the origin is one step ahead.
#[test]
fn slots_in_two_buffers() {
    unnoticed(2, |how, world, gate| {
        let other = 1 - world.rank();
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<u64>::new("slots").fail_after(LONG);
        let from = window.slot_from(other, 0, LEN);
        let to = window.slot_to(other, 0);
        let (mut inbox, mut outbox) = window.open(&s)?;
        let mut src = filled(&s, 1)?;
        if world.rank() == 0 {
            gate.hold_up(&s)?;
        }
        for epoch in 1..4u64 {
            let exposed = inbox.post(&s)?;
            let mut access = outbox.start();
            access.put(&src, to)?;
            outbox = access.complete(&s)?;
            s.launch(scribble, &mut src)?;
            inbox = exposed.wait(&s)?;
            let look = move |slots: Slots<'_, u64>| assert_eq!(slots.slot(from), [epoch; LEN]);
            s.launch(look, inbox.view())?;
        }
        if world.rank() == 0 {
            how.lose((inbox, outbox, src));
            gate.open();
            return Ok(());
        }
        assert_eq!(inbox.read(&s)?.slot(from), [3; LEN]);
        Ok(())
    });
}

/// Kernels put straight into the peer's memory. Rank 0 loses the epoch before its kernels run, and its peer learns of
/// that while they put.
#[test]
fn an_epoch_that_kernels_fill() {
    for how in [How::Forgotten, How::Dropped] {
        // The first epochs must not pass the limit, however late one of the ranks is.
        let limit = match how {
            How::Forgotten => 5 * LIMIT,
            How::Dropped => LONG,
        };
        let results = ranks(2, |world, gate| {
            let other = 1 - world.rank();
            stream!(let s = world.stream()?);
            let mut window = SlotWindow::<u64>::new("filled").fail_after(limit);
            let from = window.slot_from(other, 0, LEN);
            let to = window.slot_to(other, 0);
            let (mut inbox, mut outbox) = window.open(&s)?;
            let look = move |slots: Slots<'_, u64>| assert_eq!(slots.slot(from), [3; LEN]);
            let put = move |mut out: OutSlots<'_, u64>| out.put(to, 0, &[3; LEN]);
            let last = move |mut out: LastSlots<'_, u64>| out.put(to, 0, &[3; LEN]);
            for epoch in 0..2 {
                let exposed = inbox.post(&s)?;
                let mut opened = outbox.open(&s)?;
                match epoch {
                    0 => s.launch(put, opened.slots())?,
                    _ => s.launch(last, opened.last(other)?)?,
                }
                outbox = opened.complete(&s)?;
                inbox = exposed.wait(&s)?;
                s.launch(look, inbox.view())?;
            }
            s.synchronize()?;
            if world.rank() == 1 {
                loop {
                    let exposed = inbox.post(&s)?;
                    outbox = outbox.start().complete(&s)?;
                    inbox = exposed.wait(&s)?;
                    s.launch(look, inbox.view())?;
                    s.synchronize()?;
                }
            }
            gate.hold_up(&s)?;
            let exposed = inbox.post(&s)?;
            let mut opened = outbox.open(&s)?;
            s.launch(put, opened.slots())?;
            how.lose(opened.last(other)?);
            if how == How::Dropped {
                let forget = |out: LastSlots<'_, u64>| std::mem::forget(out);
                s.launch(forget, opened.last(other)?)?;
            }
            how.lose(opened);
            gate.open();
            how.lose(exposed);
            Ok(())
        });
        let said = noticed(results);
        let expected = match how {
            How::Forgotten => "limit",
            How::Dropped => "rank 0 dropped an `Opened` before its complete",
        };
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn atomics_and_their_results() {
    unnoticed(2, |how, world, gate| {
        let other = 1 - world.rank();
        stream!(let s = world.stream()?);
        let mut window = AtomicWindow::<u64>::new("sums", LEN).fail_after(LONG);
        let there = window.target(other);
        let here = window.target(world.rank());
        let (inbox, outbox) = window.open(&s)?;
        gate.hold_up(&s)?;
        let (ones, mut old) = (filled(&s, 1)?, filled(&s, 0)?);
        let exposed = inbox.post(&s)?;
        let mut epoch = outbox.start();
        epoch.accumulate(&ones, there, Op::Sum)?;
        epoch.fetch_and_op(&ones, &mut old, here, Op::Sum)?;
        let outbox = epoch.complete(&s)?;
        how.lose((ones, old));
        let mut inbox = exposed.wait(&s)?;
        how.lose(outbox);
        gate.open();
        assert_eq!(inbox.host_mut(&s)?, [2; LEN]);
        how.lose(inbox);
        Ok(())
    });
}

#[test]
fn barriers() {
    unnoticed(3, |how, world, gate| {
        stream!(let s = world.stream()?);
        let mut barrier = Barrier::<Host>::open(&s, "all here")?;
        gate.hold_up(&s)?;
        barrier.enqueue(&s)?;
        barrier.enqueue(&s)?;
        how.lose(barrier);
        gate.open();
        s.synchronize()
    });
}

#[test]
fn all_reduces() {
    unnoticed(3, |how, world, gate| {
        stream!(let s = world.stream()?);
        let mut reduce = AllReduce::<u64, Host>::open(&s, "all here", LEN, Op::Sum)?;
        let (mut kept, mut lost) = (filled(&s, 1)?, filled(&s, 1)?);
        gate.hold_up(&s)?;
        reduce.enqueue(&s, &mut kept)?;
        reduce.enqueue(&s, &mut lost)?;
        reduce.enqueue(&s, &mut kept)?;
        how.lose(lost);
        how.lose(reduce);
        gate.open();
        let kept: HostMemory = kept.into_host(&s)?;
        assert_eq!(kept[..], [9; LEN]);
        Ok(())
    });
}

/// A rank's thread panics with everything open. Its peer is told, and its own threads end.
#[test]
fn a_rank_that_unwinds() {
    let result = std::panic::catch_unwind(|| {
        World::local(2, |world: World| -> Result<()> {
            stream!(let s = world.stream()?);
            let (inbox, outbox) = open(&s)?;
            let (src, mut dst) = (filled(&s, 5)?, filled(&s, 0)?);
            let exposed = inbox.post(&s)?;
            let outbox = access(&s, outbox, &src, &mut dst)?;
            if world.rank() == 0 {
                let _epoch = outbox.start();
                panic!("on purpose");
            }
            let inbox = exposed.wait(&s)?;
            let exposed = inbox.post(&s)?;
            let _inbox = exposed.wait(&s)?;
            let error = s.synchronize().expect_err("rank 0 is gone");
            assert!(matches!(error, tidegate_core::Error::Wait(_)), "{error}");
            Ok(())
        })
    });
    assert!(result.is_err());
}
