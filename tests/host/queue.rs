//! Streams under pressure: programs that run far ahead, a full queue, and several streams that wait for one stream at
//! different points.

use std::sync::{Arc, Mutex, mpsc};

use tidegate::error::DeviceError;
use tidegate::host::prelude::*;
use tidegate::try_exchange;

/// Rounds of a program that does not wait for them.
const ITEMS: u64 = 5_000;

fn count(sum: &mut [u64]) {
    sum[0] += 1;
}

type Halves<'s> = (Inbox<'s, u64>, Outbox<'s, u64>);

fn step<'s>(s: &Stream<'s>, x: &Region<u64, On<'s>>, halves: Halves<'s>) -> Result<Halves<'s>> {
    let to = halves.1.slots().next().expect("there is one");
    let mut epoch = halves.1.start();
    epoch.put(x, to)?;
    exchange(s, halves.0, epoch)
}

/// Rank 0 takes its checkpoint before its steps, and rank 1 after them. The steps are only enqueued, so neither rank
/// blocks.
fn runs_ahead(steps: usize) {
    let results = World::local(2, |world| -> Result<()> {
        let peer = 1 - world.rank();
        stream!(let a = world.named_stream("steps")?);
        stream!(let b = world.named_stream("checkpoint")?);
        let window = |name: &str| {
            let mut window = SlotWindow::<u64>::new(name);
            window.slot_from(peer, 0, 8);
            window.slot_to(peer, 0);
            window
        };
        let mut halo = window("halo").open(&a)?;
        let mut checkpoint = window("checkpoint").open(&b)?;
        let x = Region::<u64>::zeroed(&world, 8)?.on(&a)?;
        let y = Region::<u64>::zeroed(&world, 8)?.on(&b)?;
        for is_first in [true, false] {
            if is_first == (world.rank() == 0) {
                checkpoint = step(&b, &y, checkpoint)?;
                b.synchronize()?;
            } else {
                for _ in 0..steps {
                    halo = step(&a, &x, halo)?;
                }
            }
        }
        a.synchronize()
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn a_program_that_runs_far_ahead_is_not_held_up() {
    runs_ahead(1_500);
    runs_ahead(100_000);
}

/// A kernel that ends when a message is sent.
fn until_sent<'s>(s: &Stream<'s>, sum: &mut Region<u64, On<'s>>) -> Result<mpsc::Sender<()>> {
    let (send, sent) = mpsc::channel();
    let sent = Arc::new(Mutex::new(sent));
    s.launch(
        move |_: &mut [u64]| sent.lock().unwrap().recv().unwrap(),
        sum,
    )?;
    Ok(send)
}

fn is_full(error: &Error) {
    let Error::Device(DeviceError::QueueFull { stream, most }) = error else {
        panic!("{error}");
    };
    assert_eq!((&**stream, *most), ("full", 1 << 20));
    let text = "the queue of stream `full` is full: it holds up to 1048576 items";
    assert!(error.to_string().contains(text), "{error}");
}

#[test]
fn a_full_queue_refuses_with_an_error_and_loses_nothing() {
    let results = World::local(2, |world| -> Result<()> {
        let peer = 1 - world.rank();
        stream!(let s = world.named_stream("full")?);
        stream!(let other = world.stream()?);
        let mut window = SlotWindow::<u64>::new("w").buffers(Buffers::Single);
        let from = window.slot_from(peer, 0, 1);
        let to = window.slot_to(peer, 0);
        let (mut inbox, outbox) = window.open(&s)?;
        let mut energy = AllReduce::open(&s, "energy", 1, Op::Sum)?;
        let cell = || Region::<u64>::zeroed(&world, 1);
        let mut more_energy = Region::from_slice(&world, &[3u64])?.on(&s)?;
        let (mut sum, mut kept) = (cell()?.on(&s)?, cell()?.on(&other)?);
        let (graph, mut more) = s.capture(cell()?.on(&s)?, |s, mut more| {
            s.launch(count, &mut more)?;
            Ok(more)
        })?;
        // Both streams are busy until everything has been checked.
        let gates = [until_sent(&s, &mut sum)?, until_sent(&other, &mut kept)?];
        let mut items = 0;
        loop {
            match s.launch(count, &mut sum) {
                Ok(()) => items += 1,
                Err(error) => break is_full(&error),
            }
        }
        assert!((1_040_000..1 << 20).contains(&items), "{items}");
        // A call that takes a token returns it, in its `try_` form.
        let refused = inbox.try_post(&s).err().unwrap();
        is_full(&refused.error);
        inbox = refused.value;
        let refused = graph.try_replay(&s, more, 3).err().unwrap();
        is_full(&refused.error);
        more = refused.value;
        is_full(&energy.enqueue(&s, &mut more_energy).err().unwrap());
        // A capture queues nothing.
        let captured = s.capture((energy, more_energy), |s, (mut energy, mut x)| {
            energy.enqueue(s, &mut x)?;
            Ok((energy, x))
        });
        let (reduces, lent) = captured?;
        let refused = other.try_hand_off(kept, &s).err().unwrap();
        is_full(&refused.error);
        kept = refused.value;
        let source = cell()?.on(&s)?;
        let mut epoch = outbox.start();
        epoch.put(&source, to)?;
        let refused = try_exchange(&s, inbox, epoch).err().unwrap();
        is_full(&refused.error);
        let (inbox, epoch) = refused.value;
        // After the stream has gone on, everything is done.
        gates.iter().for_each(|gate| gate.send(()).unwrap());
        s.synchronize()?;
        let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
        assert_eq!(inbox.read(&s)?.slot(from)[0], 0);
        let (_energy, x) = reduces.replay(&s, lent, 1)?;
        assert_eq!(x.into_host(&s)?[0], 6);
        more = graph.replay(&s, more, 3)?;
        let kept = other.hand_off(kept, &s)?;
        let values = [sum, more, kept].map(|region| region.into_host(&s).unwrap()[0]);
        assert_eq!(values, [items, 3, 0]);
        Ok(())
    });
    results.into_iter().for_each(|result| result.unwrap());
}

#[test]
fn waits_for_different_points_of_one_stream_all_end() {
    World::local(1, |world| -> Result<()> {
        stream!(let a = world.stream()?);
        stream!(let b = world.stream()?);
        stream!(let c = world.stream()?);
        let mut sum = Region::<u64>::zeroed(&world, 1)?.on(&a)?;
        let (mut left, mut right) = (
            Region::<u64>::zeroed(&world, 1)?.on(&a)?,
            Region::<u64>::zeroed(&world, 1)?.on(&a)?,
        );
        for round in 0..ITEMS {
            // Two streams and (from time to time) the host wait for different points of the first.
            let mut there = a.hand_off(left, &b)?;
            b.launch(count, &mut there)?;
            a.launch(count, &mut sum)?;
            let mut other = a.hand_off(right, &c)?;
            c.launch(count, &mut other)?;
            a.launch(count, &mut sum)?;
            if round % 7 == 0 {
                a.synchronize()?;
            }
            (left, right) = (b.hand_off(there, &a)?, c.hand_off(other, &a)?);
        }
        assert_eq!(sum.into_host(&a)?[0], 2 * ITEMS);
        assert_eq!(left.into_host(&a)?[0], ITEMS);
        assert_eq!(right.into_host(&a)?[0], ITEMS);
        Ok(())
    })
    .remove(0)
    .unwrap();
}
