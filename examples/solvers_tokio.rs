//! Several solvers as tokio tasks, beside a timer and a file that is written meanwhile.
//!
//! Each solver is a rod whose ends meet: the ranks share its cells, and heat flows between neighbours. A solver records a
//! step once, replays it, and *awaits* its stream. The stream wakes the task; no thread spins or blocks for it. So one
//! worker thread drives all solvers, the timer, and the file.
//!
//! What may be awaited: a stream ([`Stream::synchronized`]) and a region that comes to the host
//! ([`Region::into_host_async`]). Opening a window is collective and blocks, and all ranks open their windows in the same
//! order: so the solvers open theirs by turns, before they start.
//!
//! Run it with `cargo run --example solvers_tokio`, or on 4 ranks:
//! `cargo run --bin tidegate -- run -n 4 target/debug/examples/solvers_tokio`.

use std::time::Duration;

use tidegate::host::prelude::*;
use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot};

/// Cells of a rod that a rank has, beside a ghost cell at each end.
const CELLS: usize = 64;
const SOLVERS: usize = 4;
/// Steps of a replay.
const STEPS: u64 = 50;
const REPLAYS: usize = 20;

/// What a step needs; `'s` is the stream that it is at home on.
#[derive(Carry)]
struct Rod<'s> {
    heat: Region<f64, On<'s>>,
    inbox: Inbox<'s, f64>,
    outbox: Outbox<'s, f64>,
}

/// The slots of a rod: plain data, which a kernel may have.
#[derive(Clone, Copy)]
struct Ends {
    from_left: In<f64>,
    from_right: In<f64>,
    to_left: Out<f64>,
    to_right: Out<f64>,
}

/// One step: the ghost cells come from the neighbours, then the heat flows.
fn step<'s>(s: &Stream<'s>, ends: Ends, flow: f64, mut rod: Rod<'s>) -> Result<Rod<'s>> {
    let mut epoch = rod.outbox.start();
    epoch.put(rod.heat.slice(1..2)?, ends.to_left)?;
    epoch.put(rod.heat.slice(CELLS..CELLS + 1)?, ends.to_right)?;
    let (inbox, outbox) = exchange(s, rod.inbox, epoch)?;
    let kernel = move |came: Slots<'_, f64>, heat: &mut [f64]| {
        heat[0] = came.slot(ends.from_left)[0];
        heat[CELLS + 1] = came.slot(ends.from_right)[0];
        let mut left = heat[0];
        for cell in 1..=CELLS {
            let here = heat[cell];
            heat[cell] += flow * (left - 2.0 * here + heat[cell + 1]);
            left = here;
        }
    };
    s.launch(kernel, (inbox.view(), &mut rod.heat))?;
    Ok(Rod {
        heat: rod.heat,
        inbox,
        outbox,
    })
}

/// A place in the order in which windows are opened: one waits for the turn, and gives it to the next.
struct Turn {
    comes: oneshot::Receiver<()>,
    next: oneshot::Sender<()>,
}

/// Runs one solver, and says after each replay how hot its hottest cell is. Returns the heat of this rank's cells.
async fn solve(
    world: World,
    number: usize,
    turn: Turn,
    log: mpsc::Sender<String>,
) -> anyhow::Result<f64> {
    let (left, right) = world.ring();
    stream!(let s = world.stream()?);

    let mut window = SlotWindow::new(&format!("rod {number}"));
    // If left and right are the same rank, the key says which slot is which: 0 for what goes left, 1 for what goes right.
    let ends = Ends {
        from_right: window.slot_from(right, 0, 1),
        from_left: window.slot_from(left, 1, 1),
        to_left: window.slot_to(left, 0),
        to_right: window.slot_to(right, 1),
    };
    turn.comes.await?;
    let (inbox, outbox) = window.open(&s)?;
    // The last solver has nobody to tell.
    let _ = turn.next.send(());

    let mut heat = [0.0; CELLS + 2];
    if world.rank() == 0 {
        heat[CELLS / 2] = 1.0;
    }
    let heat = Region::from_slice(&world, &heat)?.on(&s)?;
    let rod = Rod {
        heat,
        inbox,
        outbox,
    };
    let flow = 0.1 * (number + 1) as f64;
    let (graph, mut rod) = s.capture(rod, move |s, rod| step(s, ends, flow, rod))?;
    for _ in 0..REPLAYS {
        rod = graph.replay(&s, rod, STEPS)?;
        let heat = rod.heat.into_host_async(&s).await?; // the task sleeps here; the stream wakes it
        let hottest = heat[1..=CELLS].iter().copied().fold(0.0, f64::max);
        log.send(format!("rod {number}: {hottest:.6}\n")).await?;
        rod.heat = heat.on(&s)?;
    }
    let heat = rod.heat.into_host_async(&s).await?;
    Ok(heat[1..=CELLS].iter().sum())
}

async fn run(world: World) -> anyhow::Result<()> {
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

    let (first, mut comes) = oneshot::channel();
    let mut solvers = Vec::new();
    for number in 0..SOLVERS {
        let (next, after) = oneshot::channel();
        let turn = Turn { comes, next };
        comes = after;
        solvers.push(tokio::spawn(solve(
            world.clone(),
            number,
            turn,
            log.clone(),
        )));
    }
    drop(log);
    first.send(()).expect("the first solver waits for its turn");

    let mut sums = Vec::new();
    for solver in solvers {
        sums.push(solver.await??);
    }
    timer.await?;
    assert_eq!(writer.await??, SOLVERS * REPLAYS);
    tokio::fs::remove_file(&path).await?;

    // No heat is lost: over all ranks, each rod has what it began with.
    let bytes = sums.iter().flat_map(|sum| sum.to_ne_bytes()).collect();
    let all = world.all_gather("heat", bytes)?;
    for number in 0..SOLVERS {
        let of_rank = |bytes: &Vec<u8>| {
            let bytes = &bytes[8 * number..][..8];
            f64::from_ne_bytes(bytes.try_into().expect("they are eight"))
        };
        let total: f64 = all.iter().map(of_rank).sum();
        assert!((total - 1.0).abs() < 1e-9, "rod {number} has {total}");
    }
    if world.rank() == 0 {
        println!("{SOLVERS} rods on {} ranks: no heat is lost", world.size());
    }
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 1)]
async fn main() -> anyhow::Result<()> {
    run(World::init()?).await
}
