//! The solvers of `solvers_tokio`, for any device.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot, watch};

use crate::device::Kernels;
use crate::device::prelude::*;

/// The number of cells of a rod that a rank has.
const CELLS: usize = 64;
const SOLVERS: usize = 4;
/// The number of replays between two looks. Each replay is two steps.
const REPLAYS: usize = 25;
const LOOKS: usize = 20;

/// What a step needs. `'s` is the brand of the stream that it is at home on.
#[derive(Carry)]
struct Rod<'s> {
    heat: Region<f64, On<'s>>,
    next: Region<f64, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
    from_left: In<f64>,
    from_right: In<f64>,
    to_left: Out<f64>,
    to_right: Out<f64>,
}

impl<'s> Rod<'s> {
    /// This call is collective, because it opens a window.
    fn open(world: &World, s: &Stream<'s>, number: usize) -> Result<Self> {
        let (left, right) = world.ring();
        let mut window = SlotWindow::new(&format!("rod {number}"));
        // If left and right are the same rank, the key says which slot is which: 0 for what goes left, 1 for what goes
        // right.
        let from_right = window.slot_from(right, 0, 1);
        let from_left = window.slot_from(left, 1, 1);
        let (to_left, to_right) = (window.slot_to(left, 0), window.slot_to(right, 1));
        let (inbox, outbox) = window.open(s)?;
        let mut heat = [0.0; CELLS];
        if world.rank() == 0 {
            heat[CELLS / 2] = 1.0;
        }
        Ok(Rod {
            heat: Region::from_slice(world, &heat)?.on(s)?,
            next: Region::zeroed(world, CELLS)?.on(s)?,
            inbox,
            outbox,
            from_left,
            from_right,
            to_left,
            to_right,
        })
    }

    /// One step: the heat of the outermost cells goes to the neighbours, and then all heat flows. This waits for
    /// nothing, so it may borrow the stream.
    fn step(mut self, s: &Stream<'s>, k: &Kernels, flow: f64) -> Result<Self> {
        let mut epoch = self.outbox.start();
        epoch.put(self.heat.slice(0..1)?, self.to_left)?;
        epoch.put(self.heat.slice(CELLS - 1..CELLS)?, self.to_right)?;
        (self.inbox, self.outbox) = exchange(s, self.inbox, epoch)?;
        let came = self.inbox.view();
        let ends = [self.from_left, self.from_right];
        k.flow(s, came, ends, &self.heat, &mut self.next, flow)?;
        (self.heat, self.next) = (self.next, self.heat);
        Ok(self)
    }
}

/// Tells a solver when it may go on.
struct Turn {
    /// The solver sends this when it is ready: it has made all collective calls, and its step is recorded.
    ready: oneshot::Sender<()>,
    /// The solver receives this when all solvers are ready.
    start: watch::Receiver<()>,
}

/// Runs one solver. After each look it reports the heat of its hottest cell. Returns the heat of this rank's cells.
async fn solve(
    world: World,
    kernels: Arc<Kernels>,
    number: usize,
    mut turn: Turn,
    log: mpsc::Sender<String>,
) -> anyhow::Result<f64> {
    stream!(let s = world.named_stream(&format!("rod {number}"))?);
    let rod = Rod::open(&world, &s, number)?;
    let flow = 0.1 * (number + 1) as f64;
    // Two steps, after which the arrays are in their places again.
    let (graph, mut rod) = s.capture(rod, |s, rod| {
        rod.step(s, &kernels, flow)?.step(s, &kernels, flow)
    })?;
    graph.verify(&s)?.proof()?;
    let _ = turn.ready.send(()); // nobody listens any more if another solver has failed
    turn.start
        .changed()
        .await
        .context("another solver is not ready")?;
    for _ in 0..LOOKS {
        rod = graph.replay(&s, rod, REPLAYS)?;
        let heat = rod.heat.to_vec_async(&s).await?; // the task sleeps here; the stream wakes it
        let hottest = heat.into_iter().fold(0.0, f64::max);
        log.send(format!("rod {number}: {hottest:.6}\n")).await?;
    }
    Ok(rod.heat.to_vec_async(&s).await?.iter().sum())
}

pub(crate) async fn run() -> anyhow::Result<()> {
    // Each solver has a stream that waits, and a GPU divides its room for waits among them.
    let world = World::init_with(WorldOptions::new().waiting_streams(SOLVERS))?;
    let name = format!("solvers-{}-{}.log", std::process::id(), world.rank());
    let path = std::env::temp_dir().join(name);
    let (log, mut lines) = mpsc::channel::<String>(16);
    let writer = tokio::spawn({
        let path = path.clone();
        async move {
            let mut file = tokio::fs::File::create(&path).await?;
            let mut written = 0;
            while let Some(line) = lines.recv().await {
                file.write_all(line.as_bytes()).await?;
                written += 1;
            }
            file.flush().await?;
            std::io::Result::Ok(written)
        }
    });
    let timer = tokio::spawn(async {
        let mut ticks = tokio::time::interval(Duration::from_millis(1));
        for _ in 0..20 {
            ticks.tick().await;
        }
    });

    // All ranks open their windows in the same order, so a solver begins when the one before it is ready.
    let kernels = Arc::new(Kernels::new(&world)?);
    let (all_are_ready, start) = watch::channel(());
    let mut solvers = Vec::new();
    for number in 0..SOLVERS {
        let (ready, is_ready) = oneshot::channel();
        let turn = Turn {
            ready,
            start: start.clone(),
        };
        let solver = solve(world.clone(), kernels.clone(), number, turn, log.clone());
        solvers.push(tokio::spawn(solver));
        if is_ready.await.is_err() {
            break; // it has failed; why, it says below
        }
    }
    drop(log);
    if solvers.len() == SOLVERS {
        all_are_ready.send(())?;
    }
    drop(all_are_ready);

    let mut sums = Vec::new();
    for (number, solver) in solvers.into_iter().enumerate().rev() {
        let sum = solver.await?;
        sums.push(sum.with_context(|| format!("rod {number} on rank {}", world.rank()))?);
    }
    sums.reverse();
    timer.await?;
    let written = writer.await??;
    ensure!(written == SOLVERS * LOOKS, "{written} lines were written");
    tokio::fs::remove_file(&path).await?;

    // No heat is lost: over all ranks, each rod still has its first amount.
    let all = world.all_gather_elements("heat", &sums)?;
    for number in 0..SOLVERS {
        let total: f64 = all.iter().map(|sums| sums[number]).sum();
        ensure!((total - 1.0).abs() < 1e-9, "rod {number} has {total}");
    }
    if world.rank() == 0 {
        println!("{SOLVERS} rods on {} ranks: no heat is lost", world.size());
    }
    Ok(())
}
