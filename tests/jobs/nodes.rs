//! Jobs over libfabric whose nodes are network namespaces, and their ends when a rank dies or a link is cut.

use std::path::Path;
use std::time::{Duration, Instant};

use tidegate::WorldOptions;
use tidegate::host::prelude::*;
use tidegate_cli::{Job, Nodes, Outcome, Output, Running, Signal};
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fabric::{ENVIRONMENT, Fabric, Options};
use tidegate_testbed::Bed;

use crate::common::skip::tcp;
use crate::common::{panics, ring, signals};

const ROLE: &str = "TEST_NODES_ROLE";
/// The variable with a folder in which ranks leave marks.
const MARKS: &str = "TEST_NODES_MARKS";
/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(600);
/// Addresses of the NICs of two ranks. Data that is sent to them never arrives.
const HOLES: [&str; 2] = ["198.51.100.1", "198.51.100.2"];
/// The role of ranks that exchange for ever, of those that exchange much each time, and of those whose subscriber
/// panics over every event.
const FOR_EVER: &str = "for ever";
const MUCH: &str = "for ever, and much each time";
const PANICS: &str = "for ever, over a subscriber that panics";
/// How long ranks may go on after one has died.
const GRACE: Duration = Duration::from_secs(30);
/// How long an endpoint may be silent in these tests.
const SILENCE: Duration = Duration::from_secs(3);

/// Two nodes of two ranks, in namespaces. `None` if these cannot be made.
fn start(test: &str, role: &str, provider: &str, engine: EngineChoice) -> Option<(Bed, Running)> {
    let bed = Bed::builder(2).build_or_skip(test)?;
    let job = job(&bed, 4, Nodes::split(2, 2), role, provider, engine);
    Some((bed, job.spawn().unwrap()))
}

/// Like `start`, with ranks that exchange for ever. Returns when all of them exchange.
fn start_for_ever(
    test: &str,
    role: &str,
    provider: &str,
    engine: EngineChoice,
) -> Option<(Bed, Running)> {
    let bed = Bed::builder(2).build_or_skip(test)?;
    let marks = tempfile::tempdir().unwrap();
    let job = job(&bed, 4, Nodes::split(2, 2), role, provider, engine);
    let running = job.env(MARKS, marks.path()).spawn().unwrap();
    let begun = Instant::now();
    let all_are_at_it = || (0..4).all(|rank| marks.path().join(rank.to_string()).exists());
    while !all_are_at_it() {
        assert!(begun.elapsed() < LONG, "the ranks do not start");
        std::thread::sleep(Duration::from_millis(5));
    }
    // By now it is in the middle of some epoch.
    std::thread::sleep(Duration::from_millis(300));
    Some((bed, running))
}

fn job(
    bed: &Bed,
    ranks: usize,
    nodes: Nodes,
    role: &str,
    provider: &str,
    engine: EngineChoice,
) -> Job {
    let mut job = Job::new(std::env::current_exe().unwrap(), ranks)
        .args(["--exact", "nodes::role_of_a_rank", "--nocapture"])
        .env(ROLE, role)
        .env(Choice::PROVIDER, provider)
        .env(EngineChoice::VARIABLE, engine.name())
        // A busy machine may keep a rank silent for long. A rank that is cut off is given up all the same.
        .env("TIDEGATE_SILENCE_MS", "10000")
        .output(Output::Captured)
        .grace(GRACE)
        .nodes(nodes)
        .bed(bed);
    for (name, value) in ENVIRONMENT {
        job = job.default_env(name, value);
    }
    job
}

/// This is not a test, but the program of the other tests' ranks.
#[test]
fn role_of_a_rank() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let world = match role.as_str() {
        // The library adds the NIC by itself.
        "ring" => World::init(),
        "no NIC" => {
            let error = World::init().map(|_: World| ()).unwrap_err();
            return println!("refused: {error}");
        }
        _ => World::init_with(WorldOptions::new().nic(nic(role == "unheard"))),
    };
    let world: World = world.unwrap();
    match role.as_str() {
        "ring" => ring::run(world, Buffers::Double, 50).unwrap(),
        "signals" => signals::run(&world).unwrap(),
        "counters" => counters(&world).unwrap(),
        "refused" => {
            stream!(let s = world.stream().unwrap());
            let mut window = AtomicWindow::<u64>::new("refused", 1);
            window.target((world.rank() + 2) % world.size());
            println!("refused: {}", window.open(&s).err().unwrap());
        }
        "unheard" | FOR_EVER | MUCH | PANICS => {
            // 4 MiB are more than connections hold, so something is always arriving.
            let elements = if role == MUCH { 1 << 19 } else { 100 };
            let error = for_ever(&world, elements, role == PANICS).unwrap_err();
            println!("ended with: {error}");
            // An error that names the rank at fault, or that says that a transfer or the wire has failed.
            let is_typed = matches!(error, Error::Revoked { .. } | Error::Wait(_));
            println!("typed: {is_typed}");
        }
        other => panic!("there is no role {other}"),
    }
}

/// All ranks take numbers from rank 0's counter, and print them. A rank that holds a lock of rank 3 adds to a number of
/// its own beside it, so that the sum of these says how often the lock was held.
fn counters(world: &World) -> std::result::Result<(), Error> {
    const ROUNDS: u64 = 30;
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::<u64>::new("counters", 4096 + 5);
    let to: Vec<_> = (0..world.size()).map(|rank| window.target(rank)).collect();
    let (mut inbox, mut outbox) = window.open(&s)?;
    let one = Region::from_slice(world, &[1u64])?.on(&s)?;
    let many = Region::from_slice(world, &vec![1u64; 4096])?.on(&s)?;
    let free = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    let mine = Region::from_slice(world, &[world.rank() as u64 + 1])?.on(&s)?;
    for round in 0..ROUNDS {
        let mut old = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
        let mut owner = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
        let mut epoch = outbox.start();
        epoch.fetch_and_op(&one, &mut old, to[0].at(4096), Op::Sum)?;
        epoch.compare_and_swap(&free, &mine, &mut owner, to[3].at(4096 + 1))?;
        for to in &to {
            // More than one message, side by side with all others.
            epoch.accumulate(&many, *to, Op::Sum)?;
        }
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
        println!("took {}", old.into_host(&s)?[0]);
        if owner.into_host(&s)?[0] == 0 {
            println!("held in round {round}");
        }
        if world.rank() == 3 {
            inbox.host_mut(&s)?[4096 + 1] = 0;
        }
    }
    let all = world.size() as u64 * ROUNDS;
    let here = inbox.host_mut(&s)?;
    assert!(
        here[..4096].iter().all(|sum| *sum == all),
        "{:?}",
        &here[..8]
    );
    assert_eq!(here[4096], if world.rank() == 0 { all } else { 0 });
    Ok(())
}

/// A NIC of the program, possibly at an address at which nothing arrives.
fn nic(unheard: bool) -> Fabric<FabricWire> {
    let mut choice = Choice::from_env().unwrap();
    let mut options = Options::default();
    if unheard {
        options = options.silence(SILENCE);
        let rank: usize = std::env::var("RANK").unwrap().parse().unwrap();
        choice = choice.address(HOLES[rank]);
    }
    let wire = FabricWire::open(&choice).unwrap();
    let engine = std::env::var(EngineChoice::VARIABLE).unwrap();
    assert_eq!(wire.triggered().is_some(), engine == "triggered");
    Fabric::over(wire, options)
}

/// Exchanges so many elements with each of the others until something fails. With `panics`, the subscriber to events
/// panics after the first exchange.
fn for_ever(world: &World, elements: usize, panics: bool) -> std::result::Result<(), Error> {
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u64>::new("for ever");
    let others: Vec<_> = (0..world.size())
        .filter(|rank| *rank != world.rank())
        .collect();
    for rank in &others {
        window.slot_from(*rank, 0, elements);
        window.slot_to(*rank, 0);
    }
    let (mut inbox, mut outbox) = window.open(&s)?;
    let src = Region::<u64, _>::zeroed(world, elements)?.on(&s)?;
    println!("at it");
    let mut marks = std::env::var_os(MARKS);
    loop {
        let slots = outbox.slots();
        let mut epoch = outbox.start();
        for slot in slots {
            epoch.put(&src, slot)?;
        }
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
        s.synchronize()?;
        if let Some(marks) = marks.take() {
            if panics {
                tracing::subscriber::set_global_default(panics::Panics).unwrap();
            }
            std::fs::write(Path::new(&marks).join(world.rank().to_string()), "").unwrap();
        }
    }
}

fn texts(outcome: &Outcome) -> Vec<String> {
    let ranks = outcome.ranks.iter();
    ranks
        .map(|rank| {
            let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
            format!("{}{}", text(&rank.stdout), text(&rank.stderr))
        })
        .collect()
}

#[test]
fn rings_between_nodes() {
    for (provider, engine) in [
        (tcp(), EngineChoice::Auto),
        ("sockets", EngineChoice::Software),
        ("sockets", EngineChoice::Triggered),
    ] {
        let Some((_bed, running)) = start("rings_between_nodes", "ring", provider, engine) else {
            return;
        };
        let outcome = running.wait();
        let texts = texts(&outcome);
        assert!(outcome.success(), "{provider}, {engine:?}: {texts:#?}");
    }
}

/// Near and far ranks update the same counters.
#[test]
fn counters_between_nodes() {
    for provider in [tcp(), "sockets"] {
        let started = start(
            "counters_between_nodes",
            "counters",
            provider,
            EngineChoice::Software,
        );
        let Some((_bed, running)) = started else {
            return;
        };
        let outcome = running.wait();
        let texts = texts(&outcome);
        assert!(outcome.success(), "{provider}: {texts:#?}");
        let said = |what: &str| -> Vec<u64> {
            let lines = texts.iter().flat_map(|text| text.lines());
            let mut said: Vec<_> = lines
                .filter_map(|line| line.split_once(what)?.1.parse().ok())
                .collect();
            said.sort_unstable();
            said
        };
        assert_eq!(said("took "), (0..120).collect::<Vec<_>>(), "{provider}");
        assert_eq!(
            said("held in round "),
            (0..30).collect::<Vec<_>>(),
            "{provider}"
        );
    }
}

/// Hardware that fires by itself makes no updates, and all ranks hear so.
#[test]
fn counters_over_hardware_are_refused() {
    let test = "counters_over_hardware_are_refused";
    let Some((_bed, running)) = start(test, "refused", "sockets", EngineChoice::Triggered) else {
        return;
    };
    let outcome = running.wait();
    let texts = texts(&outcome);
    assert!(outcome.success(), "{texts:#?}");
    for text in &texts {
        let names = text.contains("atomic operations on rank") && text.contains("TIDEGATE_ENGINE");
        assert!(names, "{text}");
    }
}

/// With libfabric and without.
#[test]
fn without_a_nic_all_ranks_of_two_nodes_are_refused_alike() {
    let job = Job::new(std::env::current_exe().unwrap(), 3)
        .args(["--exact", "nodes::role_of_a_rank", "--nocapture"])
        .env(ROLE, "no NIC")
        .env(Choice::PROVIDER, "no-such-provider")
        .output(Output::Captured)
        .nodes(Nodes::of([2, 1]));
    let outcome = job.run().unwrap();
    let texts = texts(&outcome);
    assert!(outcome.success(), "{texts:#?}");
    for text in &texts {
        let refused = "refused: rank 0 could not open the NIC that the job needs: ";
        assert!(text.contains(refused), "{texts:#?}");
    }
}

/// Nodes of two ranks, of one, and of different numbers. Some ranks map each other, and some have no other rank on
/// their node.
#[test]
fn signals_and_barriers_between_nodes() {
    for (provider, engine) in [
        (tcp(), EngineChoice::Auto),
        ("sockets", EngineChoice::Software),
        ("sockets", EngineChoice::Triggered),
    ] {
        for nodes in [&[2, 2][..], &[1, 1], &[3, 1]] {
            let Some(bed) = Bed::builder(2).build_or_skip("signals_and_barriers_between_nodes")
            else {
                return;
            };
            let (ranks, of) = (nodes.iter().sum(), Nodes::of(nodes.iter().copied()));
            let job = job(&bed, ranks, of, "signals", provider, engine);
            let outcome = job.run().unwrap();
            let texts = texts(&outcome);
            assert!(
                outcome.success(),
                "{provider}, {engine:?}, {nodes:?}: {texts:#?}"
            );
        }
    }
}

#[test]
fn a_killed_rank_ends_the_waits_on_both_nodes() {
    let test = "a_killed_rank_ends_the_waits_on_both_nodes";
    for (provider, engine) in [
        (tcp(), EngineChoice::Software),
        ("sockets", EngineChoice::Triggered),
    ] {
        let Some((_bed, running)) = start_for_ever(test, FOR_EVER, provider, engine) else {
            return;
        };
        kill_one(running, provider);
    }
}

/// The rank dies in the middle of long puts, and the others close their endpoints while more arrive. They end with an
/// error all the same, and not by a signal. (From libfabric 1.18 on, `tcp;ofi_rxm` crashes if a write with a notice
/// breaks off because its origin dies.)
#[test]
fn a_rank_that_is_killed_in_the_middle_of_long_puts_ends_the_waits() {
    let test = "a_rank_that_is_killed_in_the_middle_of_long_puts_ends_the_waits";
    for _ in 0..5 {
        let Some((_bed, running)) = start_for_ever(test, MUCH, tcp(), EngineChoice::Software)
        else {
            return;
        };
        for (rank, text) in kill_one(running, tcp())[..3].iter().enumerate() {
            assert!(text.contains("typed: true"), "rank {rank}: {text}");
        }
    }
}

/// The threads of the control plane and of the NIC emit many events, and the others depend on these threads for news.
#[test]
fn a_killed_rank_that_a_subscriber_panics_over_ends_the_waits() {
    let test = "a_killed_rank_that_a_subscriber_panics_over_ends_the_waits";
    for (provider, engine) in [
        (tcp(), EngineChoice::Software),
        ("sockets", EngineChoice::Triggered),
    ] {
        let Some((_bed, running)) = start_for_ever(test, PANICS, provider, engine) else {
            return;
        };
        let survivors = &kill_one(running, provider)[..3];
        for (rank, text) in survivors.iter().enumerate() {
            assert!(text.contains("typed: true"), "rank {rank}: {text}");
        }
        // Otherwise the test shows nothing.
        let mut panicked = survivors.iter().filter(|text| text.contains("an event: "));
        assert!(panicked.next().is_some(), "{survivors:#?}");
    }
}

/// Rank 3 is killed, and the others end with a reason. Returns the ranks' output.
fn kill_one(running: Running, provider: &str) -> Vec<String> {
    running.signal(3, Signal::KILL).unwrap();
    let killed = Instant::now();
    let outcome = running.wait();
    let elapsed = killed.elapsed();
    let texts = texts(&outcome);
    for (rank, text) in texts.iter().enumerate().take(3) {
        // The end of the connection may be noticed before the control plane names the rank.
        let early = ["given up", "could not enqueue"];
        let named = text.contains("rank 3") || early.iter().any(|early| text.contains(early));
        assert!(
            text.contains("ended with: ") && named,
            "rank {rank}: {provider}: {texts:#?}"
        );
        assert!(
            outcome.ranks[rank].status.success(),
            "rank {rank}: {provider}: {texts:#?}"
        );
    }
    // They end by themselves, long before they would be killed.
    assert!(elapsed < GRACE / 2, "{provider}: {elapsed:?}");
    texts
}

#[test]
fn a_link_that_goes_down_ends_the_waits_of_all() {
    let test = "a_link_that_goes_down_ends_the_waits_of_all";
    let Some((bed, running)) = start_for_ever(test, FOR_EVER, tcp(), EngineChoice::Auto) else {
        return;
    };
    bed.cut(1).unwrap();
    let texts = texts(&running.wait());
    for (rank, text) in texts.iter().enumerate() {
        assert!(text.contains("ended with: "), "rank {rank}: {texts:#?}");
    }
}

/// Runs `ip` in a node.
fn ip(bed: &Bed, node: usize, args: &str) {
    let mut command = std::process::Command::new("ip");
    command.args(args.split(' '));
    bed.enter(node, &mut command);
    let output = command.output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "ip {args}: {errors}");
}

/// The job's own connections work, but data to the ranks' NICs is dropped on the way. Nothing reports that: there is no
/// refusal and no lost rank.
#[test]
fn a_nic_that_nothing_reaches_is_an_error() {
    let test = "a_nic_that_nothing_reaches_is_an_error";
    for (provider, engine) in [
        (tcp(), EngineChoice::Software),
        ("sockets", EngineChoice::Software),
        ("sockets", EngineChoice::Triggered),
    ] {
        let Some(bed) = Bed::builder(2).build_or_skip(test) else {
            return;
        };
        let port = tidegate_testbed::INTERFACE;
        for (node, other) in [(0, 1), (1, 0)] {
            let (here, there) = (HOLES[node], HOLES[other]);
            ip(&bed, node, &format!("addr add {here}/32 dev lo"));
            ip(&bed, node, &format!("route add {there}/32 dev {port}"));
            // No device has this address.
            let nobody = "lladdr 02:00:00:00:de:ad nud permanent";
            ip(
                &bed,
                node,
                &format!("neigh add {there} {nobody} dev {port}"),
            );
        }
        let begun = Instant::now();
        let job = job(&bed, 2, Nodes::split(2, 1), "unheard", provider, engine);
        let outcome = job.run().unwrap();
        let elapsed = begun.elapsed();
        let texts = texts(&outcome);
        for text in &texts {
            let named = text.contains("rank 0") || text.contains("rank 1");
            assert!(
                text.contains("ended with: ") && named,
                "{provider}, {engine:?}: {texts:#?}"
            );
        }
        assert!(outcome.success(), "{provider}, {engine:?}: {texts:#?}");
        println!("{provider}, {engine:?}: {elapsed:?}: {texts:#?}");
        assert!(
            elapsed < 10 * SILENCE,
            "{provider}, {engine:?}: {elapsed:?}"
        );
    }
}
