//! Jobs of processes, one for each GPU (or several on one).

use std::time::{Duration, Instant, SystemTime};

use super::common::{self, Filler, Kernels, each_has_a_gpu, number};
use super::epochs::{Plan, Ring};
use super::own;
use crate::vendor::{self, prelude::*};
use tidegate::fabric::{ENVIRONMENT, Fabric, Options};
use tidegate::{Error, WorldOptions};
use tidegate_cli::{Job, Nodes, Output, Running, Signal};

const ROLE: &str = "TIDEGATE_GPU_ROLE";

/// The variable with a folder in which each rank leaves a file when it is ready.
const READY: &str = "TIDEGATE_GPU_READY";

fn job(role: &str, ranks: usize) -> Job {
    let job = Job::this_program(ranks)
        .unwrap()
        .args([
            "--exact",
            "gpu::processes::a_rank",
            "--ignored",
            "--nocapture",
            "--quiet",
        ])
        .env(ROLE, role)
        .output(Output::Captured);
    with(job, &vendor::ENVIRONMENT)
}

/// The same on two nodes, as which this machine acts.
fn between_nodes(role: &str, ranks: usize) -> Job {
    let job = job(role, ranks).nodes(Nodes::split(2, ranks / 2));
    with(job, ENVIRONMENT)
}

fn with(job: Job, environment: &[(&str, &str)]) -> Job {
    let set = |job: Job, (name, value): &(&str, &str)| job.default_env(name, value);
    environment.iter().fold(job, set)
}

/// The processes' program. It does nothing in a normal test run.
#[test]
#[ignore = "is started by the tests of this module"]
fn a_rank() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut options = WorldOptions::new();
    if std::env::var_os("TIDEGATE_NODE").is_some() {
        options = options.nic(Fabric::from_env(Options::default()).unwrap());
    }
    let world = World::init_with(options).unwrap();
    let k = Kernels::load(&world).unwrap();
    world.all_gather("loaded", Vec::new()).unwrap();
    match role.as_str() {
        "epochs" => epochs(&world, &k),
        "victim" => victim(&world, &k),
        "owners" => survives(&world, &k, &own::until_killed(&world, &k, || ready(&world))),
        "stopped" => own::while_stopped(&world, &k, || ready(&world)),
        "launches" => full(&world, &k, false),
        "replays" => full(&world, &k, true),
        "trespasser" => trespasses(&world),
        _ => panic!("no such role: {role}"),
    }
}

/// Epochs of random sizes and alignments, eager and replayed, all checked.
fn epochs(world: &World, k: &Kernels) {
    const LEN: usize = 100_000;
    let target = number("TIDEGATE_GPU_EPOCHS", 20_000);
    let begin = Instant::now();
    stream!(let s = world.stream().unwrap());
    let mut ring = Ring::open(world, &s, Buffers::Double, LEN).unwrap();
    let plan = Plan::new(k, world, LEN);
    let (mut seed, mut done, mut plans) = (number("TIDEGATE_GPU_SEED", 7), 0, 0);
    while done < target {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let first = (seed >> 33) as usize % LEN;
        let most = [16, 300, 5_000, LEN][(seed >> 3) as usize % 4];
        let used = 1 + (seed >> 20) as usize % most.min(LEN - first);
        let part = plan.part(first, used, seed & 4 == 0);
        plans += 1;
        let (graph, back) = s.capture(ring, |s, r| part.step(s, r)).unwrap();
        ring = graph.replay(&s, back, (400 + seed % 200) as usize).unwrap();
        done += 400 + seed % 200;
        for _ in 0..seed % 50 {
            ring = part.step(&s, ring).unwrap();
            done += 1;
        }
        s.synchronize().unwrap();
    }
    let (epochs, errors) = ring.verdict(&s).unwrap();
    println!(
        "rank {}: {epochs} epochs, {plans} plans, {errors} wrong elements, {:?}",
        world.rank(),
        begin.elapsed()
    );
    assert_eq!((epochs, errors), (done, 0));
}

/// Exchanges until a peer dies; then the error must come soon.
fn victim(world: &World, k: &Kernels) {
    stream!(let s = world.stream().unwrap());
    let mut ring = Ring::open(world, &s, Buffers::Double, 1000).unwrap();
    let plan = Plan::new(k, world, 1000);
    ready(world);
    let error = loop {
        ring = match plan.step(&s, ring) {
            Ok(ring) => ring,
            Err(error) => break error,
        };
        if let Err(error) = s.synchronize() {
            break error;
        }
    };
    survives(world, k, &error);
}

/// Awaits a kernel that faults. Then nothing can be done with the GPU any more, and every call says so.
fn trespasses(world: &World) {
    let module = Module::load(world, tidegate_kernels::SAMPLES).unwrap();
    stream!(let s = world.stream().unwrap());
    let mut x = Region::<u64, _>::zeroed(world, 1).unwrap().on(&s).unwrap();
    // SAFETY: this process does not use the GPU any more, except to see that it cannot.
    let trespass = unsafe { common::trespass(&module) }.unwrap();
    s.launch(trespass.threads(1, 1), (&mut x,)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let awaited = runtime.unwrap().block_on(s.synchronized());
    for error in [
        awaited,
        s.synchronize(),
        s.launch(trespass.threads(1, 1), (&mut x,)),
    ] {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Stream(_)), "{error:?}");
        println!("told: {error}");
    }
    assert!(x.into_host(&s).is_err());
}

/// Notes that this rank has reached the point at which a peer dies.
fn ready(world: &World) {
    if let Some(folder) = std::env::var_os(READY) {
        let file = std::path::Path::new(&folder).join(world.rank().to_string());
        std::fs::write(file, "").unwrap();
    }
}

/// Fills the driver's queue behind a wait for a peer that dies. The call that blocks must return.
fn full(world: &World, k: &Kernels, replays: bool) {
    let last = world.size() - 1;
    stream!(let s = world.stream().unwrap());
    let mut window = SlotWindow::<u64>::new("full").buffers(Buffers::Single);
    if world.rank() == last {
        for rank in 0..last {
            window.slot_to(rank, 0);
        }
        let _halves = window.open(&s).unwrap();
        ready(world);
        loop {
            std::thread::park();
        }
    }
    window.slot_from(last, 0, 8);
    let (inbox, _outbox) = window.open(&s).unwrap();
    let filler = Filler::new(&mut s, k, replays);
    let _inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
    ready(world);
    let error = filler.fill(&s, k).unwrap_err();
    survives(world, k, &error);
}

/// The program of a rank after its error.
fn survives(world: &World, k: &Kernels, error: &tidegate::Error) {
    assert!(error.to_string().contains("is lost"), "{error}");
    println!("survived at {} ms: {error}", now());
    // The GPU still works.
    stream!(let t = world.stream().unwrap());
    let mut x = Region::<u64, _>::zeroed(world, 100)
        .unwrap()
        .on(&t)
        .unwrap();
    t.launch(k.count.threads(100, 32), (&mut x, 1u64)).unwrap();
    x.into_host(&t).unwrap();
}

/// Milliseconds on the clock that all processes share.
fn now() -> u128 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap().as_millis()
}

/// Why a test with such kernels needs a GPU for each process.
const IN_TURN: &str = "these processes use it in turn, so none may have kernels that own halves";

/// One rank for each GPU, and at least two; or more, if the environment says so.
fn ranks() -> usize {
    number("TIDEGATE_GPU_RANKS", Gpu::count().unwrap().max(2) as u64) as usize
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn many_epochs_of_random_sizes() {
    all_right(job("epochs", ranks()));
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn many_epochs_between_nodes() {
    all_right(between_nodes("epochs", ranks()));
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn an_awaited_kernel_that_faults_is_an_error() {
    all_right(job("trespasser", 1));
}

fn all_right(job: Job) {
    let outcome = job.run().unwrap();
    for rank in &outcome.ranks {
        print!("{}", String::from_utf8_lossy(&rank.stdout));
        eprint!("{}", String::from_utf8_lossy(&rank.stderr));
    }
    assert!(outcome.success());
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_killed_rank_ends_the_waits_of_the_others() {
    let ranks = ranks();
    kill(job("victim", ranks), ranks, "one-node");
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_killed_rank_ends_the_waits_of_other_nodes() {
    let ranks = ranks();
    kill(between_nodes("victim", ranks), ranks, "nodes");
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_killed_rank_ends_the_kernels_of_the_others() {
    let ranks = ranks();
    if !each_has_a_gpu(ranks, IN_TURN) {
        return;
    }
    kill(job("owners", ranks), ranks, "owners");
}

/// A kernel that owns its halves needs no host. (Without a GPU, this process is the device.)
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn kernels_go_on_while_their_hosts_are_stopped() {
    let ranks = ranks();
    if !each_has_a_gpu(ranks, IN_TURN) {
        return;
    }
    let running = when_ready(job("stopped", ranks), ranks, "stopped");
    let all = |signal: Signal| (0..ranks).for_each(|rank| running.signal(rank, signal).unwrap());
    all(Signal::STOP);
    std::thread::sleep(Duration::from_secs(2));
    all(Signal::CONT);
    let outcome = running.wait();
    for rank in &outcome.ranks {
        print!("{}", String::from_utf8_lossy(&rank.stdout));
        eprint!("{}", String::from_utf8_lossy(&rank.stderr));
    }
    assert!(outcome.success());
}

/// With launches (more than the driver takes), and with replays.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_killed_rank_ends_calls_that_a_full_queue_blocks() {
    let ranks = ranks();
    for role in ["launches", "replays"] {
        kill(job(role, ranks), ranks, role);
    }
}

/// Starts a job. Returns it a second after all of its ranks are ready.
fn when_ready(job: Job, ranks: usize, name: &str) -> Running {
    let folder = format!("tidegate-ready-{name}-{}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).unwrap();
    let running = job
        .env(READY, &folder)
        .grace(Duration::from_secs(30))
        .spawn()
        .unwrap();
    // Starting takes seconds where a machine has many GPUs.
    let begin = Instant::now();
    while std::fs::read_dir(&folder).unwrap().count() < ranks {
        assert!(
            begin.elapsed() < Duration::from_secs(60),
            "the ranks are not ready"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    std::fs::remove_dir_all(&folder).unwrap();
    // By now they are in their epochs.
    std::thread::sleep(Duration::from_secs(1));
    running
}

fn kill(job: Job, ranks: usize, name: &str) {
    let running = when_ready(job, ranks, name);
    running.signal(ranks - 1, Signal::KILL).unwrap();
    let (begin, killed) = (Instant::now(), now());
    let outcome = running.wait();
    let elapsed = begin.elapsed();
    let mut latest = 0;
    for (rank, ended) in outcome.ranks.iter().enumerate() {
        let text = String::from_utf8_lossy(&ended.stdout);
        if rank != ranks - 1 {
            assert!(
                ended.status.success() && text.contains("survived"),
                "rank {rank}: {text}\n{}",
                String::from_utf8_lossy(&ended.stderr)
            );
            let at = text.split("survived at ").nth(1).unwrap();
            let at: u128 = at.split(' ').next().unwrap().parse().unwrap();
            latest = latest.max(at.saturating_sub(killed));
        }
    }
    println!(
        "all survivors had their error {latest} ms after the kill, and had ended after {elapsed:?}"
    );
}
