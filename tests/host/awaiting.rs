//! Awaiting streams on a tokio runtime: with one thread and with several, several streams at once, in tasks that move
//! between threads, and given up halfway.

use std::collections::HashSet;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use tidegate::IndexSet;
use tidegate::error::StreamError;
use tidegate::host::prelude::*;
use tokio::runtime::Handle;

const LEN: usize = 16;

/// A kernel that runs until it is released.
#[derive(Clone, Default)]
struct Held(Arc<AtomicBool>);

impl Held {
    fn kernel(&self) -> impl Fn(&mut [u64]) + Clone + Send + 'static {
        let go = self.0.clone();
        move |memory: &mut [u64]| {
            while !go.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            memory.iter_mut().for_each(|x| *x += 1);
        }
    }

    fn let_go(&self) {
        self.0.store(true, Ordering::Release);
    }
}

fn current_thread() -> tokio::runtime::Runtime {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_time().build().unwrap()
}

fn increment(memory: &mut [u64]) {
    memory.iter_mut().for_each(|x| *x += 1);
}

/// Two streams of one rank are awaited together. The one that waits for the other is awaited first.
async fn two_streams(world: &World) -> Result<()> {
    stream!(let a = world.stream()?);
    stream!(let b = world.stream()?);
    let held = Held::default();
    let (mut x, mut y) = (
        Region::<u64>::zeroed(world, LEN)?.on(&a)?,
        Region::<u64>::zeroed(world, LEN)?.on(&b)?,
    );
    a.launch(held.kernel(), &mut x)?;
    b.launch(increment, &mut y)?;
    let (x, (), y) = tokio::join!(
        x.into_host_async(&a),
        // The runtime's thread is free meanwhile; otherwise this would not be reached.
        async { held.let_go() },
        y.into_host_async(&b),
    );
    assert_eq!((x?[..] == [1; LEN], y?[..] == [1; LEN]), (true, true));
    // There is nothing to wait for, so it is ready at once.
    a.synchronized().await
}

#[test]
fn several_streams_on_one_thread() {
    World::local(1, |world| {
        current_thread().block_on(two_streams(&world)).unwrap()
    });
}

/// Ranks are tasks of one runtime, and each awaits its stream. No thread is blocked by a rank that waits for another.
#[test]
fn ranks_as_tasks() {
    async fn rank(world: World) -> Result<()> {
        let other = 1 - world.rank();
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<u64>::new("tasks");
        let from = window.slot_from(other, 0, LEN);
        let to = window.slot_to(other, 0);
        let (mut inbox, mut outbox) = window.open(&s)?;
        let mut src = Region::zeroed(&world, LEN)?;
        for round in 1..20u64 {
            src.fill(round);
            let on_stream = src.on(&s)?;
            let exposed = inbox.post(&s)?;
            let mut epoch = outbox.start();
            epoch.put(&on_stream, to)?;
            outbox = epoch.complete(&s)?;
            inbox = exposed.wait(&s)?;
            src = on_stream.into_host_async(&s).await?;
            assert_eq!(inbox.read(&s)?.slot(from), [round; LEN]);
        }
        Ok(())
    }
    for threads in [1, 2] {
        World::local(2, |world| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            let runtime = builder.worker_threads(threads).build().unwrap();
            runtime.block_on(rank(world)).unwrap();
        });
    }
}

/// The simplest way to write it: everything is at home in one task, which a runtime moves between its threads.
async fn solver(world: World) -> Result<(f64, usize)> {
    const TURNS: usize = 10;
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    stream!(let s = world.stream()?);
    stream!(let other = world.stream()?);
    let mut window = SlotWindow::<f64>::new("spawned");
    let from = window.slot_from(left, 0, 4);
    let way = window.slot_to(right, 0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    let mut barrier = Barrier::open(&s, "turns")?;
    let mut sums = AllReduce::open(&s, "sums", 1, Op::Sum)?;
    let mut x = Region::from_slice(&world, &[rank as f64; 4])?.on(&s)?;
    let mut sum = Region::from_slice(&world, &[1.0])?.on(&s)?;
    let sets = [
        IndexSet::from_indices([0, 1])?,
        IndexSet::from_indices([2, 3])?,
    ];
    let mut threads = HashSet::new();
    for turn in 0..TURNS {
        let mut epoch = outbox.start();
        epoch.put(&x, way)?;
        // An open epoch, an exposure, parts, and things of another stream go along.
        let exposed = inbox.post(&s)?;
        s.synchronized().await?;
        outbox = epoch.complete(&s)?;
        inbox = exposed.wait(&s)?;
        tokio::time::sleep(Duration::from_millis(1)).await;
        threads.insert(std::thread::current().id());
        s.launch(
            move |slots: Slots<'_, f64>, x: &mut [f64]| x.copy_from_slice(slots.slot(from)),
            (inbox.view(), &mut x),
        )?;
        let parts = s.hand_off(x, &other)?.partition(sets.clone())?;
        other.synchronized().await?;
        x = other.hand_off(Region::reunite(parts)?, &s)?;
        if turn == TURNS / 2 {
            sums.enqueue(&s, &mut sum)?;
            barrier.enqueue(&s)?;
        }
        // A time-out that passes at once, so nothing is left of it.
        let none = Duration::ZERO;
        let _ = tokio::time::timeout(none, s.synchronized()).await;
    }
    let (graph, (back, _inbox, _outbox)) =
        s.capture((x, inbox, outbox), |s, (x, inbox, outbox)| {
            let mut epoch = outbox.start();
            epoch.put(&x, way)?;
            let (inbox, outbox) = exchange(s, inbox, epoch)?;
            Ok((x, inbox, outbox))
        })?;
    s.synchronized().await?;
    let lent = graph.replay(&s, (back, _inbox, _outbox), 3)?;
    let (x, sum) = (
        lent.0.into_host_async(&s).await?,
        sum.into_host_async(&s).await?,
    );
    // The data has gone `TURNS` ranks to the right.
    assert_eq!(x[..], [((rank + TURNS * size - TURNS) % size) as f64; 4]);
    Ok((sum[0], threads.len()))
}

/// A task that changes to the other runtime, and so to another thread, whenever it is woken.
fn hops<T: Send + 'static>(
    mut task: Pin<Box<dyn Future<Output = T> + Send>>,
    [here, there]: [Handle; 2],
    result: Sender<T>,
) {
    here.clone().spawn(async move {
        let mut is_woken = false;
        let ended = poll_fn(|context| match std::mem::replace(&mut is_woken, true) {
            true => Poll::Ready(None),
            false => task.as_mut().poll(context).map(Some),
        });
        match ended.await {
            Some(ended) => result.send(ended).unwrap(),
            None => hops(task, [there, here], result),
        }
    });
}

#[test]
fn solvers_spawned() {
    for ranks in [2, 4] {
        let runtimes = [(); 2].map(|()| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            // There is a thread for each rank that opens a window, and one more.
            let builder = builder.worker_threads(ranks + 1).enable_time();
            builder.build().unwrap()
        });
        let handles = runtimes.each_ref().map(|runtime| runtime.handle().clone());
        let threads = World::local(ranks, |world| {
            let (result, ended) = std::sync::mpsc::channel();
            hops(Box::pin(solver(world)), handles.clone(), result);
            let (sum, threads) = ended.recv().unwrap().unwrap();
            assert_eq!(sum, ranks as f64);
            threads
        });
        assert!(threads.iter().all(|threads| *threads > 1), "{threads:?}");
    }
}

/// If the runtime drops a task halfway, its peer is told.
#[test]
fn a_spawned_task_that_is_aborted() {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(3).enable_time().build().unwrap();
    let errors = World::local(2, |world: World| {
        let rank = world.rank();
        let (begun, has_begun) = std::sync::mpsc::channel();
        let task = runtime.spawn(async move {
            let peer = 1 - rank;
            stream!(let s = world.stream()?);
            let mut window = SlotWindow::<u64>::new("aborted");
            window.slot_from(peer, 0, LEN);
            let to = window.slot_to(peer, 0);
            let (inbox, outbox) = window.open(&s)?;
            let src = Region::zeroed(&world, LEN)?.on(&s)?;
            let exposed = inbox.post(&s)?;
            let mut epoch = outbox.start();
            epoch.put(&src, to)?;
            if rank == 0 {
                // It would sleep very long if it were not aborted.
                begun.send(()).unwrap();
                tokio::time::sleep(Duration::from_secs(3600)).await;
            }
            let _outbox = epoch.complete(&s)?;
            let _inbox = exposed.wait(&s)?;
            s.synchronized().await
        });
        if rank == 0 {
            // A task that has not begun is dropped without an epoch.
            has_begun.recv().unwrap();
            task.abort();
        }
        runtime.block_on(task)
    });
    assert!(errors[0].as_ref().unwrap_err().is_cancelled());
    let error = errors[1].as_ref().unwrap().as_ref().unwrap_err();
    let text = error.to_string();
    assert!(text.contains("rank 0 dropped an `"), "{text}");
}

/// A waker that wakes nothing.
struct Counted;

impl Wake for Counted {
    fn wake(self: Arc<Self>) {}
}

/// If many tasks poll a future in turn, it keeps only the last waker; and none when it is dropped.
#[test]
fn a_future_keeps_one_waker() {
    World::local(1, |world: World| {
        stream!(let s = world.stream().unwrap());
        let held = Held::default();
        let mut memory = Region::<u64>::zeroed(&world, LEN).unwrap().on(&s).unwrap();
        s.launch(held.kernel(), &mut memory).unwrap();
        let wakers: Vec<_> = (0..100).map(|_| Arc::new(Counted)).collect();
        let kept = || wakers.iter().map(|waker| Arc::strong_count(waker) - 1);
        {
            let mut future = pin!(s.synchronized());
            // Another future of the same task is not given up with it.
            let mut beside = pin!(s.synchronized());
            for (index, waker) in wakers.iter().enumerate() {
                let waker = Waker::from(waker.clone());
                let mut context = Context::from_waker(&waker);
                assert!(future.as_mut().poll(&mut context).is_pending());
                drop(waker);
                assert_eq!(kept().sum::<usize>(), 1);
                assert_eq!(kept().nth(index), Some(1));
            }
            let last = Waker::from(wakers[99].clone());
            let mut context = Context::from_waker(&last);
            assert!(beside.as_mut().poll(&mut context).is_pending());
            assert!(future.as_mut().poll(&mut context).is_pending());
            drop(last);
            assert_eq!(kept().sum::<usize>(), 2);
        }
        assert_eq!(kept().sum::<usize>(), 0);
        held.let_go();
        s.synchronize().unwrap();
    });
}

/// A future is given up by a time-out. Its end changes nothing for the stream, and its region is freed when the stream
/// has passed.
#[test]
fn time_outs() {
    World::local(1, |world: World| {
        let given_up = async {
            stream!(let s = world.stream()?);
            let held = Held::default();
            let brief = Duration::from_millis(20);
            let (mut kept, mut lost) = (
                Region::<u64>::zeroed(&world, LEN)?.on(&s)?,
                Region::<u64>::zeroed(&world, LEN)?.on(&s)?,
            );
            s.launch(held.kernel(), &mut kept)?;
            s.launch(increment, &mut lost)?;
            assert!(tokio::time::timeout(brief, s.synchronized()).await.is_err());
            let lost = tokio::time::timeout(brief, lost.into_host_async(&s)).await;
            assert!(lost.is_err());
            s.launch(increment, &mut kept)?;
            held.let_go();
            s.synchronized().await?;
            assert_eq!(kept.into_host_async(&s).await?[..], [2; LEN]);
            Ok::<_, tidegate::Error>(())
        };
        current_thread().block_on(given_up).unwrap();
    });
}

/// A failure reaches the tasks that await, with the region, which stays where it was.
#[test]
fn failures() {
    World::local(1, |world: World| {
        let failing = async {
            stream!(let s = world.stream()?);
            let mut memory = Region::<u64>::zeroed(&world, LEN)?.on(&s)?;
            s.launch(|_: &mut [u64]| panic!("on purpose"), &mut memory)?;
            let rejected = memory.try_into_host_async(&s).await.expect_err("it failed");
            assert_eq!(rejected.value.len(), LEN);
            let error = s.synchronized().await.expect_err("it failed");
            assert!(matches!(
                error,
                tidegate::Error::Stream(StreamError::KernelPanicked { .. })
            ));
            Ok::<_, tidegate::Error>(())
        };
        current_thread().block_on(failing).unwrap();
    });
}

/// A task that only waits for the result of another.
#[test]
fn a_local_task_beside_others() {
    World::local(1, |world: World| {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(2).enable_time().build().unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let held = Held::default();
        let release = held.clone();
        let elsewhere = runtime.spawn(async move {
            tokio::time::sleep(Duration::from_millis(5)).await;
            release.let_go();
            receiver.await
        });
        let here = async {
            stream!(let s = world.stream()?);
            let mut memory = Region::<u64>::zeroed(&world, LEN)?.on(&s)?;
            s.launch(held.kernel(), &mut memory)?;
            let memory = memory.into_host_async(&s).await?;
            sender.send(memory[0]).expect("somebody waits for it");
            Ok::<_, tidegate::Error>(())
        };
        runtime.block_on(here).unwrap();
        assert_eq!(runtime.block_on(elsewhere).unwrap(), Ok(1));
    });
}

/// Looking at a region leaves it on its stream, and waits for earlier work, including epochs.
#[test]
fn a_look_waits_and_leaves_the_region_where_it_is() {
    async fn rank(world: World) -> Result<()> {
        let peer = 1 - world.rank();
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<u64>::new("looked at");
        let (from, to) = (window.slot_from(peer, 0, 1), window.slot_to(peer, 0));
        let mut halves = window.open(&s)?;
        let mut x = Region::from_slice(&world, &[world.rank() as u64])?.on(&s)?;
        for round in 1..=20 {
            let mut epoch = halves.1.start();
            epoch.put(&x, to)?;
            halves = exchange(&s, halves.0, epoch)?;
            let add = move |came: Slots<'_, u64>, x: &mut [u64]| x[0] += came.slot(from)[0];
            s.launch(add, (halves.0.view(), &mut x))?;
            let sum = if round % 2 == 0 {
                x.to_vec_async(&s).await?
            } else {
                x.to_vec(&s)?
            };
            assert_eq!(sum, [1 << (round - 1)]);
        }
        Ok(())
    }
    for outcome in World::local(2, |world| current_thread().block_on(rank(world))) {
        outcome.unwrap();
    }
}

/// Looking fails if the stream has failed, and inside a capture.
#[test]
fn a_look_that_fails() {
    World::local(1, |world| {
        stream!(let s = world.stream().unwrap());
        let mut x = Region::<u64>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        let inside = s.capture(x, |s, x| x.to_vec(s).map(|_| x));
        let inside = inside.expect_err("a recording executes nothing");
        assert!(matches!(inside, Error::Capture(_)), "{inside}");
        x = Region::zeroed(&world, 1).unwrap().on(&s).unwrap();
        s.launch(|_: &mut [u64]| panic!("on purpose"), &mut x)
            .unwrap();
        let failed = x.to_vec(&s).expect_err("the kernel has panicked");
        let failed_async = current_thread().block_on(x.to_vec_async(&s));
        assert_eq!(failed.to_string(), failed_async.unwrap_err().to_string());
        assert!(failed.to_string().contains("on purpose"), "{failed}");
    });
}
