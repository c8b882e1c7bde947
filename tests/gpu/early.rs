//! Kernels that begin early, and those that must not.
//!
//! # Model
//!
//! A kernel that can begin early stands behind an epoch that waits. Its blocks fill the whole GPU. The epoch waits for
//! another stream, on which a kernel comes first that needs half of a multiprocessor in one piece. If the first kernel
//! were on the GPU while the epoch waits, the second would find no room, and neither would go on. The control launches
//! the first kernel as early as the epoch's batch allows.

use std::ffi::{CString, c_void};
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use tidegate::cuda::Cuda;
use tidegate::cuda::CudaStream;
use tidegate::cuda::QUEUES;
use tidegate::cuda::gpu::{EARLY, GATES};
use tidegate::cuda::prelude::*;
use tidegate::error::DeviceError;
use tidegate::kernel::Parameters;
use tidegate::kernel::{Function, Module, foreign};
use tidegate_ffi::cuda::{Dependency, Driver, Edge, LaunchConfig, Stream as RawStream};

use super::rules::{Halves, LOADING, ends, hangs, own_window, say};
use crate::gpu::common::{Kernels, R, W, ranks};

tidegate::kernel! {
    /// `state[0] += 1`.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    unsafe fn tick_early = "tick_early"(state: &mut [u64]);
}

/// Blocks of so many threads: several times as many as any GPU of today holds.
const FILL: u32 = 8192;
const BLOCK: u32 = 256;

/// How many times everything is done eagerly, and then again by recordings: in rows, short rows, and singly.
const ROUNDS: u64 = 6;
const TIMES: u64 = 85;

type Tick = Function<Cuda, (&'static mut [u64],)>;

fn launch<'s>(s: &Stream<'s>, tick: &Tick, x: &mut R<'s, u64>) -> Result<()> {
    let threads = (FILL * BLOCK) as usize;
    s.launch(tick.threads(threads, BLOCK), (x,))
}

/// A kernel of another program, launched as early as the work in front of it allows.
type Enqueue = Box<dyn FnOnce(&CudaStream, &Parameters) -> std::result::Result<(), DeviceError>>;

/// The same kernel, loaded by other means.
fn too_early() -> Enqueue {
    let driver = Driver::load().unwrap();
    let code = CString::new(tidegate_kernels::SAMPLES_SM_90_PTX).unwrap();
    let module = driver.module_load_ptx(&code).unwrap();
    // SAFETY: the module is never unloaded.
    let function = unsafe { driver.module_function(module, c"tick_early") }.unwrap();
    Box::new(move |stream, parameters| {
        let addresses = parameters.addresses();
        let mut arguments: Vec<_> = addresses
            .map(|address| address.cast_mut().cast::<c_void>())
            .collect();
        let config =
            LaunchConfig::new([FILL, 1, 1], [BLOCK, 1, 1]).programmatic_stream_serialization(true);
        let raw = RawStream::from_raw(stream.as_raw());
        // SAFETY: the stream is live; these are the parameters of the function, which waits before it writes the slice.
        unsafe { driver.launch_kernel_ex(function, &config, raw, &mut arguments) }.map_err(
            |error| DeviceError::System {
                what: "launching tick_early",
                detail: error.to_string(),
            },
        )
    })
}

/// A child's program.
///
/// A slot of up to 4096 bytes has a landing, at which its wait looks, too. For a longer slot it looks at the word
/// alone.
pub(super) fn behind_a_wait(world: &W, k: &Kernels, len: usize, lie: bool) {
    let module = Module::load(world, tidegate_kernels::SAMPLES_SM_90_PTX.as_bytes()).unwrap();
    // SAFETY: the module is `samples.cu`, whose kernel keeps to the length; compiled for 9.0 it waits first of all.
    let tick = unsafe { tick_early(&module).unwrap().waits_itself() };
    stream!(let s = world.stream().unwrap());
    stream!(let t = world.stream().unwrap());
    let region = || Region::<u64, _>::zeroed(world, 1).unwrap();
    let (mut x, mut y) = (region().on(&s).unwrap(), region().on(&t).unwrap());
    let mut window = SlotWindow::new("own");
    window.slot_from(0, 0, len);
    window.slot_to(0, 0);
    let (mut inbox, outbox): Halves<'_> = window.open(&s).unwrap();
    let mut outbox = s.hand_off(outbox, &t).unwrap();
    let mut early = lie.then(too_early);
    // When the other stream begins, the kernel behind the wait would be on the GPU.
    let settle = || std::thread::sleep(Duration::from_millis(100));
    for _ in 0..if lie { 1 } else { ROUNDS } {
        inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
        match early.take() {
            // SAFETY: it writes the slice that it is given, in stream order. Launching it early behind an epoch's call
            // breaks the contract: it keeps other kernels from running. This process is killed for that.
            Some(early) => s.launch(unsafe { foreign(early) }, (&mut x,)).unwrap(),
            None => launch(&s, &tick, &mut x).unwrap(),
        }
        settle();
        say("waiting");
        let_wait_end(&t, k, &mut y);
        outbox = outbox.start().complete(&t).unwrap();
        s.synchronize().unwrap();
        t.synchronize().unwrap();
    }
    if lie {
        say("went on");
        return drop((inbox, outbox));
    }
    let (graph, back) = s
        .capture((inbox, x), |s, (inbox, mut x)| {
            let inbox = inbox.post(s)?.wait(s)?;
            launch(s, &tick, &mut x)?;
            Ok((inbox, x))
        })
        .unwrap();
    let (other, there) = t
        .capture((outbox, y), |t, (outbox, mut y)| {
            let_wait_end(t, k, &mut y);
            Ok((outbox.start().complete(t)?, y))
        })
        .unwrap();
    let (inbox, x) = graph.replay(&s, back, TIMES as usize).unwrap();
    settle();
    let (outbox, y) = other.replay(&t, there, TIMES as usize).unwrap();
    let mut ticks = [0];
    x.into_host(&s).unwrap().read(0, &mut ticks).unwrap();
    assert_eq!(ticks, [ROUNDS + TIMES]);
    t.synchronize().unwrap();
    say("went on");
    drop((inbox, outbox, y));
}

/// The kernel in front of the signal that ends the wait: it needs half of a multiprocessor, in one block.
fn let_wait_end<'t>(t: &Stream<'t>, k: &Kernels, y: &mut R<'t, u64>) {
    t.launch(k.busy.threads(1024, 1024), (y, 20_000u64))
        .unwrap();
}

fn can_begin_early() -> bool {
    let capability = ranks(1, |world, _| world.device().compute_capability())[0];
    let can = capability >= (9, 0);
    if !can {
        println!("skipped: nothing begins early on a GPU of compute capability {capability:?}");
    }
    can
}

/// Rule 20, for kernels that begin early.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn no_kernel_takes_room_before_its_turn() {
    if !can_begin_early() {
        return;
    }
    // The environment without the launcher's two settings.
    let environment = [
        (QUEUES, "32"),
        (LOADING, "EAGER"),
        (EARLY, ""),
        (GATES, "auto"),
    ];
    ends("early", &environment);
    ends("early, by words", &environment);
    hangs("early, and a lie", &environment);
    // If no batch lets the next launch begin while it waits, kernels follow early from the first time on.
    let mut always = environment;
    always[2] = (EARLY, "launch");
    ends("early", &always);
    ends("early, by words", &always);
}

/// A recording of kernels, copied by hand, with both kinds of edges. They read back as they were made.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn edges_are_of_the_kind_that_was_asked_for() {
    if !can_begin_early() {
        return;
    }
    ranks(1, |world, _| {
        // The thread has the device's context by now.
        let x = Region::<u64, _>::zeroed(&world, 1).unwrap();
        let driver = Driver::load().unwrap();
        let code = CString::new(tidegate_kernels::SAMPLES_PTX).unwrap();
        let module = driver.module_load_ptx(&code).unwrap();
        let raw = driver.stream_create(0).unwrap();
        // SAFETY: all handles are made here and live to the end. The graphs are never launched, so nothing is executed.
        // The parameters of `tick` are an address and a length.
        unsafe {
            let tick = driver.module_function(module, c"tick").unwrap();
            driver.stream_begin_capture(raw).unwrap();
            let (mut at, mut len) = (0u64, 0u64);
            for _ in 0..4 {
                let mut arguments = [(&raw mut at).cast(), (&raw mut len).cast()];
                let config = LaunchConfig::new([1, 1, 1], [32, 1, 1]);
                driver
                    .launch_kernel_ex(tick, &config, raw, &mut arguments)
                    .unwrap();
            }
            let recorded = driver.stream_end_capture(raw).unwrap();
            let copy = driver.graph_create().unwrap();
            let nodes: Vec<_> = driver
                .graph_nodes(recorded)
                .unwrap()
                .into_iter()
                .map(|node| {
                    let kernel = driver.graph_kernel_node(node).unwrap().unwrap();
                    driver.graph_add_kernel(copy, &kernel).unwrap()
                })
                .collect();
            assert_eq!(nodes.len(), 4);
            let [plain, early] = [Dependency::OVER, Dependency::PROGRAMMATIC];
            let edges: Vec<_> = [early, plain, early]
                .into_iter()
                .enumerate()
                .map(|(at, how)| Edge {
                    from: nodes[at],
                    to: nodes[at + 1],
                    how,
                })
                .collect();
            driver.graph_add_edges(copy, &edges).unwrap();
            let made = driver.graph_edges(copy).unwrap();
            assert_eq!(made.len(), edges.len());
            for edge in edges {
                let same = |other: &&Edge| (other.from, other.to) == (edge.from, edge.to);
                let other = made.iter().find(same).unwrap();
                assert!(other.how == edge.how, "{other:?}, and not {edge:?}");
            }
            driver.graph_destroy(copy).unwrap();
            driver.graph_destroy(recorded).unwrap();
            driver.stream_destroy(raw).unwrap();
        }
        drop(x);
    });
}

/// How the last recorded item of a stream follows the work in front of it.
fn follows(stream: &CudaStream) -> Vec<Dependency> {
    let (driver, raw) = (
        Driver::load().unwrap(),
        RawStream::from_raw(stream.as_raw()),
    );
    // SAFETY: the stream is live and records; the graph is the recording's, and nothing changes it meanwhile.
    unsafe {
        let info = driver.stream_capture_info(raw).unwrap();
        let edges = driver.graph_edges(info.graph).unwrap().into_iter();
        let last = edges.filter(|edge| info.last.contains(&edge.to));
        last.map(|edge| edge.how).collect()
    }
}

/// Sends how the last recorded item follows.
fn look<'s>(s: &Stream<'s>, x: &mut R<'s, u64>, tell: &Sender<Vec<Dependency>>) -> Result<()> {
    let tell = tell.clone();
    let enqueue: Enqueue = Box::new(move |stream, _| {
        tell.send(follows(stream)).unwrap();
        Ok(())
    });
    // SAFETY: it enqueues nothing.
    s.launch(unsafe { foreign(enqueue) }, (x,))
}

/// If these kernels did not begin early, only time would be lost.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn recorded_kernels_begin_early_behind_epochs_and_kernels() {
    if !can_begin_early() {
        return;
    }
    ranks(1, |world, _| {
        let module = Module::load(&world, tidegate_kernels::SAMPLES_SM_90_PTX.as_bytes()).unwrap();
        // SAFETY: as above; the other one does not say that it waits.
        let [tick, plain] = [(), ()].map(|()| unsafe { tick_early(&module) }.unwrap());
        // SAFETY: as above.
        let tick = unsafe { tick.waits_itself() };
        stream!(let s = world.stream().unwrap());
        let x = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        let (inbox, outbox) = own_window("own", &s).unwrap();
        let (tell, told) = channel();
        let (graph, back) = s
            .capture((inbox, outbox, x), |s, (inbox, outbox, mut x)| {
                let exposed = inbox.post(s)?;
                let outbox = outbox.start().complete(s)?;
                let inbox = exposed.wait(s)?;
                let (may, may_not) = (&tick, &plain);
                s.launch(may.threads(32, 32), (&mut x,))?;
                look(s, &mut x, &tell)?;
                // Nothing begins early behind an item of another library.
                s.launch(may.threads(32, 32), (&mut x,))?;
                look(s, &mut x, &tell)?;
                // This kernel may be followed early.
                s.launch(may.threads(32, 32), (&mut x,))?;
                s.launch(may.threads(32, 32), (&mut x,))?;
                look(s, &mut x, &tell)?;
                // This kernel does not wait by itself.
                s.launch(may.threads(32, 32), (&mut x,))?;
                s.launch(may_not.threads(32, 32), (&mut x,))?;
                look(s, &mut x, &tell)?;
                Ok((inbox, outbox, x))
            })
            .unwrap();
        let found: Vec<_> = told.try_iter().collect();
        let [early, over] = [Dependency::PROGRAMMATIC, Dependency::OVER];
        assert!(found == [[early], [over], [early], [over]], "{found:?}");
        let (inbox, outbox, x) = graph.replay(&s, back, TIMES as usize).unwrap();
        let mut ticks = [0];
        x.into_host(&s).unwrap().read(0, &mut ticks).unwrap();
        assert_eq!(ticks, [6 * TIMES]);
        drop((inbox, outbox));
    });
}

/// Sends how many items have been recorded.
fn count<'s>(s: &Stream<'s>, x: &mut R<'s, u64>, tell: &Sender<usize>) -> Result<()> {
    let tell = tell.clone();
    let enqueue: Enqueue = Box::new(move |stream, _| {
        let (driver, raw) = (
            Driver::load().unwrap(),
            RawStream::from_raw(stream.as_raw()),
        );
        // SAFETY: the stream is live and records; the graph is the recording's, and nothing changes it meanwhile.
        let items = unsafe {
            let info = driver.stream_capture_info(raw).unwrap();
            driver.graph_nodes(info.graph).unwrap().len()
        };
        tell.send(items).unwrap();
        Ok(())
    });
    // SAFETY: it enqueues nothing.
    s.launch(unsafe { foreign(enqueue) }, (x,))
}

/// Short data lands, and the wait that finds it copies it, or reduces it; several blocks may do that. Longer data has a
/// signal, and the same launch copies it. Its reduction is a launch of its own.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn collectives_that_copy_or_reduce_are_one_launch_each() {
    ranks(2, |world, _| {
        stream!(let s = world.stream().unwrap());
        let region = |len| Region::<u64, _>::zeroed(&world, len).unwrap();
        // (Ranks that share a GPU have fewer blocks. So they may reduce less than 64 KiB in one launch.)
        for len in [1, 512, 513, 1024, 8193] {
            let gather = AllGather::open(&s, "all-gather", len).unwrap();
            let news = Broadcast::open(&s, "broadcast", 1, len).unwrap();
            let blocks = AllToAll::open(&s, "all-to-all", len).unwrap();
            let sums = AllReduce::open(&s, "all-reduce", len, Op::Sum).unwrap();
            let [x, y, z] = [len, 2 * len, 2 * len].map(|len| region(len).on(&s).unwrap());
            let (tell, told) = channel();
            let lent = (gather, news, blocks, sums, x, y, z);
            let (graph, back) = s
                .capture(lent, |s, lent| {
                    let (mut gather, mut news, mut blocks, mut sums, mut x, mut y, mut z) = lent;
                    count(s, &mut x, &tell)?;
                    gather.enqueue(s, &x, &mut y)?;
                    count(s, &mut x, &tell)?;
                    news.enqueue(s, &mut x)?;
                    count(s, &mut x, &tell)?;
                    blocks.enqueue(s, &y, &mut z)?;
                    count(s, &mut x, &tell)?;
                    sums.enqueue(s, &mut x)?;
                    count(s, &mut x, &tell)?;
                    Ok((gather, news, blocks, sums, x, y, z))
                })
                .unwrap();
            let items: Vec<_> = told.try_iter().collect();
            let each: Vec<_> = items.windows(2).map(|pair| pair[1] - pair[0]).collect();
            let sum = if len <= 1024 { 1 } else { 2 };
            assert_eq!(each, [1, 1, 1, sum], "{len} elements");
            drop(graph.replay(&s, back, 1).unwrap());
        }
    });
}
