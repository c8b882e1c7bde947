//! Attacks by safe code, with ranks as threads: closures, wakers and tokens that act when they are dropped, and threads
//! that act at the same time. Each ends in bounded time, with a typed error or without an effect.

#![forbid(unsafe_code)]

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::ThreadId;
use tidegate::error::{StreamError, WindowError};

use tidegate::host::prelude::*;
use tidegate::window::Tested;

fn alone(program: impl Fn(World) -> Result<()> + Sync) {
    World::local(1, program).remove(0).unwrap();
}

/// Panics when it is dropped, and so does its panic's payload. Only the thread that made it may drop it unharmed: that is
/// the test's own, which drops the closure of a launch that is refused.
struct Bomb(Arc<AtomicU64>, ThreadId);

impl Drop for Bomb {
    fn drop(&mut self) {
        if std::thread::current().id() == self.1 {
            return;
        }
        let left = self.0.fetch_add(1, Ordering::Relaxed);
        if left < 3 {
            std::panic::panic_any(self.clone());
        }
    }
}

impl Clone for Bomb {
    fn clone(&self) -> Self {
        Bomb(self.0.clone(), self.1)
    }
}

#[test]
fn a_queue_of_closures_that_explode_ends() {
    alone(|world| {
        let exploded = Arc::new(AtomicU64::new(0));
        stream!(let s = world.stream()?);
        let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        for _ in 0..5_000 {
            let bomb = Bomb(exploded.clone(), std::thread::current().id());
            let _ = s.launch(
                move |x: &mut [u64]| {
                    let _ = &bomb;
                    x[0] += 1;
                },
                &mut x,
            );
        }
        let error = s.synchronize().unwrap_err();
        assert!(
            matches!(error, Error::Stream(StreamError::KernelPanicked { .. })),
            "{error}"
        );
        assert!(x.into_host(&s).is_err());
        Ok(())
    });
}

/// Closures of the queue, and values that they drop, use the library: streams, windows of other ranks, their own world.
#[test]
fn kernels_and_drops_that_call_the_library_come_back() {
    struct Calls(World, Arc<AtomicU64>);
    impl Calls {
        fn call(&self) {
            stream!(let t = self.0.stream().unwrap());
            let mut y = Region::<u64, _>::zeroed(&self.0, 1)
                .unwrap()
                .on(&t)
                .unwrap();
            t.launch(|y: &mut [u64]| y[0] += 1, &mut y).unwrap();
            let y = y.into_host(&t).unwrap();
            self.1.fetch_add(y[0], Ordering::Relaxed);
        }
    }
    impl Clone for Calls {
        fn clone(&self) -> Self {
            self.call();
            Calls(self.0.clone(), self.1.clone())
        }
    }
    impl Drop for Calls {
        fn drop(&mut self) {
            self.call();
        }
    }
    alone(|world| {
        let count = Arc::new(AtomicU64::new(0));
        stream!(let mut s = world.stream()?);
        stream!(let inline = world.inline_stream()?);
        let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        let mut y = Region::<u64, _>::zeroed(&world, 1)?.on(&inline)?;
        for _ in 0..20 {
            let (one, two) = (
                Calls(world.clone(), count.clone()),
                Calls(world.clone(), count.clone()),
            );
            s.launch(move |_: &mut [u64]| one.call(), &mut x)?;
            inline.launch(move |_: &mut [u64]| two.call(), &mut y)?;
        }
        let three = Calls(world.clone(), count.clone());
        let (graph, x) = s.capture(x, |s, mut x| {
            s.launch(move |_: &mut [u64]| three.call(), &mut x)?;
            Ok(x)
        })?;
        let x = graph.replay(&s, x, 10)?;
        drop(graph);
        drop(x.into_host(&s)?);
        inline.synchronize()?;
        assert!(count.load(Ordering::Relaxed) > 2 * 20 * 2 + 10);
        Ok(())
    });
}

/// A thread drops open windows while another uses its stream.
#[test]
fn tokens_are_dropped_on_other_threads_while_their_stream_works() {
    let told = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let peer = 1 - world.rank();
        let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        for round in 0..20 {
            let mut window = SlotWindow::<u64>::new(&format!("w{round}"));
            window.slot_from(peer, 0, 1);
            window.slot_to(peer, 0);
            let (inbox, outbox) = window.open(&s)?;
            // This is refused if the other rank has already dropped its own.
            let exposed = inbox.post(&s);
            let refused = exposed.as_ref().err();
            assert!(matches!(refused, None | Some(Error::Revoked { .. })));
            let access = outbox.start();
            std::thread::scope(|scope| {
                scope.spawn(move || drop(exposed));
                scope.spawn(move || drop(access));
                for _ in 0..50 {
                    s.launch(|x: &mut [u64]| x[0] += 1, &mut x).unwrap();
                }
            });
        }
        s.synchronize()?;
        assert_eq!(x.into_host(&s)?[0], 1_000);
        Ok(())
    });
    told.into_iter().for_each(Result::unwrap);
}

/// Rank 1 opens and drops windows. Rank 0 tests its posts, moves them to threads and back, and finally gives up.
#[test]
fn a_token_goes_through_threads_and_is_what_it_was() {
    World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let peer = 1 - world.rank();
        let mut window = SlotWindow::<u64>::new("w").buffers(Buffers::Single);
        let from = window.slot_from(peer, 0, 1);
        let to = window.slot_to(peer, 0);
        let (mut inbox, mut outbox) = window.open(&s)?;
        let x = Region::from_slice(&world, &[7])?.on(&s)?;
        for _ in 0..50 {
            let mut exposed = std::thread::scope(|scope| {
                let s = Mutex::new(inbox.post(&s));
                scope.spawn(move || s.into_inner().unwrap()).join().unwrap()
            })?;
            let mut epoch = outbox.start();
            epoch.put(&x, to)?;
            outbox = epoch.complete(&s)?;
            inbox = loop {
                match exposed.test(&s)? {
                    Tested::Done(inbox) => break inbox,
                    Tested::Pending(again) => exposed = again,
                }
            };
            assert_eq!(inbox.read(&s)?.slot(from), [7]);
        }
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
}

/// Two threads of each rank open windows, in an order on which the ranks do not agree.
#[test]
fn collectives_of_several_threads_end() {
    World::local(2, |world: World| {
        let begun = std::sync::Barrier::new(2);
        let open = |name: &str| {
            for round in 0..20 {
                begun.wait();
                stream!(let s = world.stream().unwrap());
                let window = RangeWindow::<u64>::new(&format!("{name}{round}"), 1);
                let opened = window.open(&s);
                if let Err(error) = opened {
                    let is_typed = matches!(
                        error,
                        Error::Control(_) | Error::Open(WindowError::Disagreement { .. })
                    );
                    assert!(is_typed, "{error}");
                }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| open("one"));
            scope.spawn(|| open("two"));
        });
    });
}

/// A value that drops a waker panics, past a stream of its own, too. This ends the waits of all streams of the rank.
#[test]
fn wakers_that_panic_when_they_are_dropped_hold_nothing_up() {
    struct Panics(World, bool);
    impl std::task::Wake for Panics {
        fn wake(self: Arc<Self>) {}
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            let unwinds = || {
                stream!(let t = self.0.stream().unwrap());
                let _t = &t;
                panic!("on purpose");
            };
            if self.1 {
                unwinds();
            }
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(unwinds));
        }
    }
    for past in [false, true] {
        World::local(1, |world: World| {
            stream!(let s = world.stream().unwrap());
            let mut x = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
            let (send, sent) = std::sync::mpsc::channel::<()>();
            let sent = Arc::new(Mutex::new(sent));
            s.launch(
                move |_: &mut [u64]| {
                    let _ended = sent.lock().unwrap().recv();
                },
                &mut x,
            )
            .unwrap();
            let mut future = std::pin::pin!(s.synchronized());
            for _ in 0..3 {
                let waker = Arc::new(Panics(world.clone(), past)).into();
                let mut context = std::task::Context::from_waker(&waker);
                let polled = std::future::Future::poll(future.as_mut(), &mut context);
                assert!(polled.is_pending());
            }
            drop(send);
        });
    }
}

/// Replays that would go on for years end when their program panics.
#[test]
fn a_panic_ends_replays_without_end() {
    let ended = std::panic::catch_unwind(|| {
        World::local(1, |world: World| {
            stream!(let mut s = world.stream().unwrap());
            let x = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
            let (graph, x) = s
                .capture(x, |s, mut x| {
                    s.launch(|x: &mut [u64]| x[0] += 1, &mut x)?;
                    Ok(x)
                })
                .unwrap();
            let _x = graph.replay(&s, x, usize::MAX).unwrap();
            drop(graph);
            panic!("on purpose");
        })
    });
    assert!(ended.is_err());
}

/// A value that a kernel has left to its thread uses the library when that thread ends.
#[test]
fn a_stream_s_thread_has_streams_of_its_own_when_it_ends() {
    struct AtTheEnd(World, Arc<AtomicU64>);
    impl Drop for AtTheEnd {
        fn drop(&mut self) {
            stream!(let t = self.0.stream().unwrap());
            let mut x = Region::<u64, _>::zeroed(&self.0, 1)
                .unwrap()
                .on(&t)
                .unwrap();
            t.launch(|x: &mut [u64]| x[0] += 1, &mut x).unwrap();
            self.1
                .fetch_add(x.into_host(&t).unwrap()[0], Ordering::Relaxed);
        }
    }
    thread_local! {
        static KEPT: std::cell::RefCell<Vec<AtTheEnd>> = const { std::cell::RefCell::new(Vec::new()) };
    }
    let count = Arc::new(AtomicU64::new(0));
    World::local(2, |world: World| {
        stream!(let s = world.stream().unwrap());
        let mut x = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        let (kept, counter) = (world.clone(), count.clone());
        let keeps = move |_: &mut [u64]| {
            let at_the_end = AtTheEnd(kept.clone(), counter.clone());
            KEPT.with_borrow_mut(|all| all.push(at_the_end));
        };
        s.launch(keeps.clone(), &mut x).unwrap();
        s.launch(keeps, &mut x).unwrap();
    });
    assert_eq!(count.load(Ordering::Relaxed), 4);
}

/// A type that is larger than a thread's stack.
#[derive(Copy, Element)]
#[repr(C)]
struct Large([[u64; 1024]; 512]);

#[expect(clippy::non_canonical_clone_impl, reason = "it is the attack")]
impl Clone for Large {
    fn clone(&self) -> Self {
        panic!("elements are copied")
    }
}

#[test]
fn elements_larger_than_a_stack_are_copied_where_they_lie() {
    alone(|world| {
        stream!(let s = world.stream()?);
        let mut x = Region::<Large, _>::zeroed(&world, 2)?;
        x[1].0[511][1023] = 7;
        let x = x.on(&s)?;
        let values = x.to_vec(&s)?;
        assert_eq!(values[1].0[511][1023], 7);
        let (first, _second) = x.into_host(&s)?.split_at(1)?;
        assert_eq!(first.into_vec()?[0].0[511][1023], 0);
        Ok(())
    });
}
