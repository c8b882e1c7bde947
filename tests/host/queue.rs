//! Streams under pressure: more work than a queue holds, and several that wait for one stream at different points.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier};
use tidegate::prelude::*;

/// More than any queue holds at a time.
const ITEMS: u64 = 5_000;

fn count(sum: &mut [u64]) {
    sum[0] += 1;
}

#[test]
fn a_full_queue_makes_its_owner_wait_and_loses_nothing() {
    World::local(1, |world| -> Result<()> {
        stream!(let s = world.stream()?);
        let mut sum = Region::<u64>::zeroed(&world, 1)?.on(&s)?;
        // The stream does nothing until its queue has been full for a while.
        let (gate, behind) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU64::new(0)));
        let hold = gate.clone();
        let first = move |_: &mut [u64]| {
            hold.wait();
        };
        s.launch(first, &mut sum)?;
        let seen = behind.clone();
        std::thread::spawn(move || {
            while seen.load(Ordering::Relaxed) < 1_000 {
                std::thread::yield_now();
            }
            std::thread::sleep(std::time::Duration::from_millis(20));
            gate.wait();
        });
        for item in 0..ITEMS {
            s.launch(count, &mut sum)?;
            behind.store(item, Ordering::Relaxed);
        }
        assert_eq!(sum.into_host(&s)?[0], ITEMS);
        Ok(())
    })
    .remove(0)
    .unwrap();
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
            // Two streams and (now and then) the host wait for different points of the first.
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
