//! Awaiting streams on a tokio runtime: of one thread and of several, several streams at once, and given up half-way.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::prelude::*;

const LEN: usize = 16;

/// A kernel that lasts until it is let go.
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

/// Streams of one rank, awaited together; the one that waits for the other is awaited first.
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
        // The runtime's thread is free meanwhile, or this would not be reached.
        async { held.let_go() },
        y.into_host_async(&b),
    );
    assert_eq!((x?[..] == [1; LEN], y?[..] == [1; LEN]), (true, true));
    // Nothing to wait for: ready at once.
    a.synchronized().await
}

#[test]
fn several_streams_on_one_thread() {
    World::local(1, |world| {
        current_thread().block_on(two_streams(&world)).unwrap()
    });
}

/// Ranks as tasks of one runtime, each awaiting its stream: no thread is blocked by a rank that waits for another.
#[test]
fn ranks_as_tasks() {
    async fn rank(world: World) -> Result<()> {
        let other = 1 - world.rank();
        stream!(let s = world.stream()?);
        let (mut inbox, mut outbox) = Window::<u64, _>::by_slot("tasks")
            .slot_from(other, 0, LEN)
            .slot_to(other, 0)
            .open(&s)?;
        let mut src = Region::zeroed(&world, LEN)?;
        for round in 1..20u64 {
            src.fill(round);
            let on_stream = src.on(&s)?;
            let exposed = inbox.post(&s)?;
            let mut epoch = outbox.start();
            epoch.put(&on_stream, Slot(0))?;
            outbox = epoch.complete(&s)?;
            inbox = exposed.wait(&s)?;
            src = on_stream.into_host_async(&s).await?;
            assert_eq!(inbox.read(&s)?.slot(0), [round; LEN]);
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

/// Given up by a time-out: the future's end changes nothing for the stream, and a region that went with it is freed when the
/// stream has passed.
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

/// A failure reaches those who await: with the region, which stays where it was.
#[test]
fn failures() {
    World::local(1, |world: World| {
        let failing = async {
            stream!(let s = world.stream()?);
            let mut memory = Region::<u64>::zeroed(&world, LEN)?.on(&s)?;
            s.launch(|_: &mut [u64]| panic!("on purpose"), &mut memory)?;
            let rejected = memory.into_host_async(&s).await.err().expect("it failed");
            assert_eq!(rejected.value.len(), LEN);
            let error = s.synchronized().await.expect_err("it failed");
            assert!(matches!(error, tidegate::Error::KernelPanicked { .. }));
            Ok::<_, tidegate::Error>(())
        };
        current_thread().block_on(failing).unwrap();
    });
}

/// A stream is not shared between threads, so its futures stay on one; a task that only waits for what comes out may go
/// where it likes.
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
