//! Memory, streams, kernels, recordings: the device without peers.

use std::time::{Duration, Instant};
use tidegate::error::RegionError;

use super::common::{Kernels, ranks};
use crate::vendor::GpuStream;
use crate::vendor::prelude::*;
use tidegate::kernel::{Module, Parameters, foreign};

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn memory_is_zero_and_keeps_what_is_written() {
    ranks(1, |world, _| {
        for len in [1, 3, 1000, 1 << 20] {
            let mut region = Region::<u32, _>::zeroed(&world, len).unwrap();
            let mut back = vec![7; len];
            region.read(0, &mut back).unwrap();
            assert!(back.iter().all(|x| *x == 0));
            let values: Vec<u32> = (0..len as u32).collect();
            region.write(0, &values).unwrap();
            region.read(0, &mut back).unwrap();
            assert_eq!(back, values);
            assert!(matches!(
                region.read(len, &mut [0]),
                Err(Error::Region(RegionError::OutOfBounds { .. }))
            ));
        }
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn kernels_run_in_order_and_recordings_replay() {
    ranks(1, |world, k| {
        stream!(let s = world.stream().unwrap());
        let mut x = Region::<f64, _>::zeroed(&world, 1000)
            .unwrap()
            .on(&s)
            .unwrap();
        for _ in 0..10 {
            s.launch(k.increment.threads(1000, 128), (&mut x,)).unwrap();
        }
        let (graph, x) = s
            .capture(x, |s, mut x| {
                s.launch(k.increment.threads(500, 64), (&mut x,))?;
                s.launch(k.increment.threads(1, 32), (&mut x,))?;
                Ok(x)
            })
            .unwrap();
        let mut x = graph.replay(&s, x, 100).unwrap();
        s.launch(k.increment.threads(1000, 128), (&mut x,)).unwrap();
        let x = x.into_host(&s).unwrap();
        let mut back = vec![0.0; 1000];
        x.read(0, &mut back).unwrap();
        assert!(back.iter().all(|v| *v == 211.0), "{:?}", &back[..3]);
    });
}

/// An item that has just been submitted has not been passed, however many things the stream holds.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn what_is_submitted_is_not_idle() {
    ranks(1, |world, k| {
        stream!(let s = world.stream().unwrap());
        let mut x = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        for _ in 0..70 {
            let (graph, back) = s
                .capture(x, |s, mut x| {
                    s.launch(k.busy.threads(1, 32), (&mut x, 1_000_000u64))?;
                    Ok(x)
                })
                .unwrap();
            x = graph.replay(&s, back, 1).unwrap();
            while !s.is_idle() {}
            x = graph.replay(&s, x, 20).unwrap();
            assert!(!s.is_idle());
            while !s.is_idle() {}
        }
        let mut back = [0];
        x.into_host(&s).unwrap().read(0, &mut back).unwrap();
        assert_eq!(back, [70 * 21]);
    });
}

/// The driver's pool for graphs must not grow or shrink while a stream waits, so a recording that needs a larger one is
/// refused.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn recordings_are_made_and_dropped_behind_a_wait() {
    ranks(2, |world, k| {
        let other = 1 - world.rank();
        stream!(let s = world.stream().unwrap());
        stream!(let a = world.stream().unwrap());
        stream!(let b = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("late");
        window.slot_from(other, 0, 1);
        window.slot_to(other, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let exposed = inbox.post(&s).unwrap();
        if world.rank() == 1 {
            world.all_gather("made", Vec::new()).unwrap();
            drop(outbox.start().complete(&s).unwrap());
            drop(exposed);
            return;
        }
        let inbox = exposed.wait(&s).unwrap();
        let region = || Region::<u64, _>::zeroed(&world, 1).unwrap();
        let mut made = Vec::new();
        let refused = loop {
            let x = region().on(&a).unwrap();
            let begin = Instant::now();
            let recorded = a.capture_with(&mut b, (x, ()), |a, b, (mut x, ())| {
                a.launch(k.tick.threads(1, 32), (&mut x,))?;
                let mut x = a.hand_off(x, b)?;
                b.launch(k.tick.threads(1, 32), (&mut x,))?;
                Ok((b.hand_off(x, a)?, ()))
            });
            assert!(
                begin.elapsed() < Duration::from_secs(60),
                "recording {} waited",
                made.len()
            );
            match recorded {
                Ok(pair) => made.push(pair),
                Err(error) => break error,
            }
            assert!(made.len() < 500, "nothing is ever refused");
        };
        assert!(made.len() > 100, "only {} recordings", made.len());
        assert!(
            refused.to_string().contains("more than was reserved"),
            "{refused}"
        );
        let (graph, x) = made.pop().unwrap();
        let (x, ()) = graph.replay(&a, &b, x, 10).unwrap();
        let x = x.into_host(&a).unwrap();
        let begin = Instant::now();
        drop((graph, made));
        assert!(begin.elapsed() < Duration::from_secs(60), "dropping waited");
        world.all_gather("made", Vec::new()).unwrap();
        s.synchronize().unwrap();
        let mut back = [0];
        x.read(0, &mut back).unwrap();
        assert_eq!(back, [20]);
        // Now there is room again.
        let x = region().on(&a).unwrap();
        let again = a.capture(x, |a, mut x| {
            a.launch(k.tick.threads(1, 32), (&mut x,))?;
            Ok(x)
        });
        again.unwrap();
        drop((inbox, outbox));
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn wrong_bindings_are_refused() {
    ranks(1, |world, _| {
        let module = Module::load(&world, tidegate_kernels::SAMPLES).unwrap();
        // SAFETY: it is refused.
        let missing = unsafe { module.function::<(u64,)>("no_such_kernel") };
        assert!(matches!(missing, Err(Error::Device(_))));
        // SAFETY: it is refused.
        let other = unsafe { module.function::<(&'static mut [f64], u32)>("increment") };
        let error = other.err().unwrap().to_string();
        assert!(
            error.contains("takes parameters of [8, 8] bytes"),
            "{error}"
        );
        for (code, said) in [
            (&b"this is no PTX, but text"[..], "device code was refused"),
            (&[0xff; 64], "begins as no code does"),
            (b"\x7fELF", "not whole"),
            (b"", "no bytes of code"),
        ] {
            let error = Module::<Gpu>::load(&world, code).err().unwrap();
            assert!(error.to_string().contains(said), "{error}");
        }
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn streams_hand_over_without_the_host() {
    ranks(1, |world, k| {
        stream!(let a = world.stream().unwrap());
        stream!(let b = world.stream().unwrap());
        let mut x = Region::<u64, _>::zeroed(&world, 4096)
            .unwrap()
            .on(&a)
            .unwrap();
        a.launch(k.busy.threads(1, 32), (&mut x, 20_000_000u64))
            .unwrap();
        a.launch(k.count.threads(4096, 256), (&mut x, 5u64))
            .unwrap();
        let mut x = a.hand_off(x, &b).unwrap();
        b.launch(k.tick.threads(1, 32), (&mut x,)).unwrap();
        let x = b.hand_off(x, &a).unwrap().into_host(&a).unwrap();
        let mut back = vec![0; 4096];
        x.read(0, &mut back).unwrap();
        assert_eq!((back[0], back[1], back[4095]), (6, 6, 4100));
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn awaiting_blocks_no_thread() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    ranks(1, |world, k| {
        stream!(let s = world.stream().unwrap());
        // On a busy machine the thread may not have a processor three times in a short kernel. Then the next one takes
        // ten times as long.
        let mut kernels = [50_000_000u64, 500_000_000, 5_000_000_000].into_iter();
        let is_free = kernels.any(|cycles| {
            let mut x = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
            s.launch(k.busy.threads(1, 32), (&mut x, cycles)).unwrap();
            runtime.block_on(async {
                let mut ticks = 0;
                let done = x.into_host_async(&s);
                tokio::pin!(done);
                loop {
                    tokio::select! {
                        host = &mut done => {
                            let mut back = [0];
                            host.unwrap().read(0, &mut back).unwrap();
                            assert_eq!(back, [1]);
                            return ticks >= 3;
                        }
                        () = tokio::time::sleep(Duration::from_millis(5)) => ticks += 1,
                    }
                }
            })
        });
        assert!(is_free, "the one thread had no time beside a kernel");
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn code_is_not_loaded_behind_a_wait() {
    ranks(1, |world, _| {
        stream!(let s = world.stream().unwrap());
        stream!(let t = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("own");
        window.slot_from(0, 0, 8);
        window.slot_to(0, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let outbox = s.hand_off(outbox, &t).unwrap();
        // The stream waits for this thread.
        let _inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
        let error = Module::<Gpu>::load(&world, tidegate_kernels::SAMPLES)
            .err()
            .unwrap();
        assert!(error.to_string().contains("may be waiting"), "{error}");
        let _outbox = outbox.start().complete(&t).unwrap();
        s.synchronize().unwrap();
        Kernels::load(&world).unwrap();
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn events_have_times_eagerly_and_in_recordings() {
    ranks(1, |world, k| {
        stream!(let s = world.stream().unwrap());
        let mut region = Region::<u64, _>::zeroed(&world, 1000)
            .unwrap()
            .on(&s)
            .unwrap();
        let mut event = None;
        let note = |stream: &GpuStream, _: &Parameters| {
            event = Some(stream.timed_event()?);
            Ok(())
        };
        // SAFETY: it enqueues an event, which accesses no memory.
        s.launch(unsafe { foreign(note) }, (&region,)).unwrap();
        let base = event.unwrap();
        s.synchronize().unwrap();
        assert_eq!(base.us_since(&base).unwrap(), Some(0.0));
        let mut events = Vec::new();
        let (graph, back) = s
            .capture(region, |s, mut region| {
                for _ in 0..2 {
                    let note = |stream: &GpuStream, _: &Parameters| {
                        events.push(stream.timed_event()?);
                        Ok(())
                    };
                    // SAFETY: as above; the recording holds the events.
                    s.launch(unsafe { foreign(note) }, (&region,))?;
                    s.launch(k.tick.threads(1, 32), (&mut region,))?;
                }
                Ok(region)
            })
            .unwrap();
        region = back;
        let mut last = 0.0;
        for _ in 0..3 {
            region = graph.replay(&s, region, 1).unwrap();
            s.synchronize().unwrap();
            let times: Vec<f64> = events
                .iter()
                .map(|event| event.us_since(&base).unwrap().unwrap())
                .collect();
            // Each replay has times of its own, after those of the one before.
            assert!(last < times[0] && times[0] < times[1], "{last} {times:?}");
            last = times[1];
        }
        drop(region.into_host(&s).unwrap());
    });
}
