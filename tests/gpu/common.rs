//! The kernels that the tests launch, and worlds.

use crate::vendor::prelude::*;
use tidegate::WorldOptions;
use tidegate::kernel::{Function, Module};

pub(crate) type W = World;
pub(crate) type S<'s> = Stream<'s>;
pub(crate) type R<'s, T> = Region<T, On<'s>>;
pub(crate) type I<'s, T, K = BySlot> = Inbox<'s, T, K>;
pub(crate) type O<'s, T, K = BySlot> = Outbox<'s, T, K>;

tidegate::kernel! {
    /// `x += 1`.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    pub(crate) unsafe fn increment = "increment"(x: &mut [f64]);
    /// `x[i] = first + i`.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    pub(crate) unsafe fn count = "count"(x: &mut [u64], first: u64);
    /// `x[i] = state[0] * scale + i`.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    pub(crate) unsafe fn produce = "produce"(x: &mut [u64], state: &mut [u64], scale: u64);
    /// `state[0] += 1`.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    pub(crate) unsafe fn tick = "tick"(state: &mut [u64]);
    /// Counts the wrong elements of a slot.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    pub(crate) unsafe fn consume = "consume"(slots: Slots<u64>, which: u64, first: u64, end: u64, state: &[u64], scale: u64, errors: &mut [u64]);
    /// Copies a slot.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    pub(crate) unsafe fn copy_slot = "copy_slot"(slots: Slots<u64>, which: u64, to: &mut [u64]);
    /// Writes where a kernel must not. This breaks its contract, and is only for a test of the stream's failure.
    ///
    /// # Safety
    ///
    /// The process does not use the GPU any more.
    pub(crate) unsafe fn trespass = "trespass"(x: &mut [u64]);
    /// Keeps a multiprocessor busy.
    ///
    /// # Safety
    ///
    /// The module is `samples.cu`.
    pub(crate) unsafe fn busy = "busy"(x: &mut [u64], nanoseconds: u64);
}

/// The sample kernels, bound.
pub(crate) struct Kernels {
    pub(crate) increment: Function<Gpu, (&'static mut [f64],)>,
    pub(crate) count: Function<Gpu, (&'static mut [u64], u64)>,
    pub(crate) produce: Function<Gpu, (&'static mut [u64], &'static mut [u64], u64)>,
    pub(crate) tick: Function<Gpu, (&'static mut [u64],)>,
    #[expect(clippy::type_complexity, reason = "a signature, plainly")]
    pub(crate) consume: Function<
        Gpu,
        (
            Slots<'static, u64>,
            u64,
            u64,
            u64,
            &'static [u64],
            u64,
            &'static mut [u64],
        ),
    >,
    pub(crate) copy_slot: Function<Gpu, (Slots<'static, u64>, u64, &'static mut [u64])>,
    pub(crate) busy: Function<Gpu, (&'static mut [u64], u64)>,
}

impl Kernels {
    pub(crate) fn load(world: &W) -> Result<Self> {
        let module = Module::load(world, tidegate_kernels::SAMPLES)?;
        // SAFETY: the module is `samples.cu`, whose kernels keep to the lengths that they are given.
        unsafe {
            Ok(Kernels {
                increment: increment(&module)?,
                count: count(&module)?,
                produce: produce(&module)?,
                tick: tick(&module)?,
                consume: consume(&module)?,
                copy_slot: copy_slot(&module)?,
                busy: busy(&module)?,
            })
        }
    }
}

/// Whether each of so many ranks has a GPU of its own. Otherwise says that a test is skipped, and why.
pub(crate) fn each_has_a_gpu(ranks: usize, why: &str) -> bool {
    let gpus = Gpu::count().unwrap();
    if gpus < ranks {
        println!("skipped: {ranks} ranks need a GPU each, and there are {gpus}: {why}");
    }
    gpus >= ranks
}

/// A number from the environment.
pub(crate) fn number(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .ok()
        .and_then(|value| value.parse().ok())
        .unwrap_or(default)
}

/// More than a driver's queue holds, which is about 1,023 launches behind a wait.
const LAUNCHES: usize = 1030;

/// Launches that fill a stream's queue.
pub(crate) struct Filler<'s> {
    x: R<'s, u64>,
    /// The graph for replays, if there are any.
    graph: Option<Graph<'s>>,
}

impl<'s> Filler<'s> {
    /// Made before the stream has work, since recordings may have to wait for it.
    pub(crate) fn new(s: &mut S<'s>, k: &Kernels, replays: bool) -> Self {
        let x = Region::zeroed(s.world(), 8).unwrap().on(s).unwrap();
        if !replays {
            return Filler { x, graph: None };
        }
        let (graph, x) = s
            .capture(x, |s, mut x| {
                s.launch(k.count.threads(8, 32), (&mut x, 1u64))?;
                Ok(x)
            })
            .unwrap();
        let graph = Some(graph);
        Filler { x, graph }
    }

    /// Enqueues more than the queue has room for.
    pub(crate) fn fill(self, s: &S<'s>, k: &Kernels) -> Result<()> {
        let mut x = self.x;
        for _ in 0..LAUNCHES {
            match &self.graph {
                Some(graph) => x = graph.replay(s, x, 1)?,
                None => s.launch(k.count.threads(8, 32), (&mut x, 1u64))?,
            }
        }
        s.synchronize()
    }
}

/// Runs `n` ranks as threads. Kernels are loaded before any rank goes on, because loading is refused while another rank
/// waits.
pub(crate) fn ranks<T: Send>(n: usize, program: impl Fn(W, Kernels) -> T + Sync) -> Vec<T> {
    ranks_with(n, |_| WorldOptions::new(), program)
}

/// Like [`ranks`], with options for each rank.
pub(crate) fn ranks_with<T: Send>(
    n: usize,
    options: impl Fn(usize) -> WorldOptions + Sync,
    program: impl Fn(W, Kernels) -> T + Sync,
) -> Vec<T> {
    W::local_with(n, options, |world| {
        let kernels = Kernels::load(&world).unwrap();
        world.all_gather("loaded", Vec::new()).unwrap();
        program(world, kernels)
    })
}
