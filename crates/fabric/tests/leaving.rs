//! A rank goes on after a peer has left in good order or has died: with real providers.

#[path = "rig/late.rs"]
mod late;
#[path = "../../../tests/common/skip.rs"]
mod skip;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use late::Late;
use tidegate_boot::{LocalControl, TcpControl};
use tidegate_cli::{Job, Output};
use tidegate_core::error::Cause;
use tidegate_core::window::{Buffers, SlotWindow, exchange};
use tidegate_core::{Error, Region, Result, Route, World, WorldOptions, stream};
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fabric::{ENVIRONMENT, Fabric, Options};
use tidegate_hal::control::Control;
use tidegate_host::Host;

const EPOCHS: u64 = 4;

/// Rank 1 produces and leaves. Rank 0 consumes the last epoch some time after that, and leaves, too. (There are two
/// buffers, so its last post is for an epoch that nobody starts.)
fn run(world: World<Host>) -> Result<()> {
    {
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<u64>::new("products").fail_after(LONG);
        let (mut from, mut to) = (None, None);
        match world.rank() {
            0 => from = Some(window.slot_from(1, 0, 8)),
            _ => to = Some(window.slot_to(0, 0)),
        }
        let (mut inbox, mut outbox) = window.open(&s)?;
        for epoch in 0..EPOCHS {
            if let Some(to) = to {
                let product = Region::from_slice(&world, &[epoch; 8])?.on(&s)?;
                let mut access = outbox.start();
                access.put(&product, to)?;
                outbox = access.complete(&s)?;
                continue;
            }
            if epoch + 1 == EPOCHS {
                // The data of this epoch has come long ago, and the producer is gone.
                s.synchronize()?;
                std::thread::sleep(Duration::from_millis(500));
            }
            inbox = inbox.post(&s)?.wait(&s)?;
            let came = inbox.read(&s)?;
            assert!(from.is_some_and(|from| came[from] == [epoch; 8]));
        }
        s.synchronize()?;
    }
    drop(world);
    Ok(())
}

/// The providers and engines that this machine has, each with its `Choice`.
fn choices(test: &str) -> Vec<(&'static str, EngineChoice, Choice)> {
    let software = skip::providers().into_iter();
    let all = software
        .map(|provider| (provider, EngineChoice::Software))
        .chain([("sockets", EngineChoice::Triggered)]);
    let mut choices = Vec::new();
    for (provider, engine) in all {
        let choice = Choice::at("127.0.0.1").provider(provider).engine(engine);
        match FabricWire::open(&choice) {
            Err(error) => skip::skipped(test, &error.to_string()),
            Ok(_) => choices.push((provider, engine, choice)),
        }
    }
    choices
}

fn options(choice: &Choice, silence: Duration) -> WorldOptions {
    let wire = FabricWire::open(choice).unwrap();
    let nic = Fabric::over(wire, Options::default().silence(silence));
    WorldOptions::new().nic(nic).route(Route::Nic)
}

#[test]
fn a_consumer_does_not_wait_for_a_producer_that_has_left() {
    for (provider, engine, choice) in choices("leaving over libfabric") {
        // Long enough that no wait ends by silence.
        let options = |_: usize| options(&choice, Duration::from_secs(3600));
        for ended in World::<Host>::local_with(2, options, run) {
            ended.unwrap_or_else(|error| panic!("{provider}, {engine:?}: {error}"));
        }
    }
}

/// How rank 1 ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Leaves,
    Dies,
}

/// How many epochs ranks 0 and 2 play after rank 0's NIC has met a failure whose cause it does not know.
const AFTER: u64 = 20;
/// Longer than any wait here takes.
const LONG: Duration = Duration::from_secs(600);

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Ranks 0 and 1 exchange, and so do ranks 0 and 2. Then rank 1 leaves, or dies by `die`. Before rank 0 hears of that,
/// it posts to rank 1 once more. Rank 0 returns the cause with which its wait fails.
///
/// `is_closed` tells whether rank 1's NIC is closed, which happens soon after its end is known. A post of rank 0 before
/// that would still arrive, and then nobody would have to ask.
fn rank<C: Control>(
    plane: &Late<C>,
    world: World<Host>,
    end: End,
    die: impl Fn(&C),
    is_closed: impl Fn(u64) -> bool,
) -> Result<Option<Cause>> {
    let me = world.rank();
    let window = |name: &str, ranks: [usize; 2]| {
        let mut window = SlotWindow::<u64>::new(name).buffers(Buffers::Double);
        if let Some(at) = ranks.iter().position(|rank| *rank == me) {
            window.slot_from(ranks[1 - at], 0, 8);
            window.slot_to(ranks[1 - at], 0);
        }
        window
    };
    let gone = {
        stream!(let s = world.stream()?);
        let (mut inbox, mut outbox) = window("ends", [0, 1]).open(&s)?;
        let (mut stays, mut goes) = window("stays", [0, 2]).open(&s)?;
        if me == 0 {
            plane.hold();
        }
        if let Some(to) = outbox.slots().next() {
            let src = Region::from_slice(&world, &[u64::from(std::process::id()); 8])?.on(&s)?;
            let mut epoch = outbox.start();
            epoch.put(&src, to)?;
            (inbox, outbox) = exchange(&s, inbox, epoch)?;
        }
        s.synchronize()?;
        // If a rank dies, data that is still in its NIC is lost. So rank 1 dies only after its data has arrived.
        let through = plane.exchange("through", Vec::new());
        through.expect("all three are there");
        let mut exposed = None;
        if me == 0 {
            let process = inbox.read(&s)?.iter().next().expect("there is one")[0];
            until("rank 1 does not end", || plane.knows_of_its_end());
            until("rank 1 does not close", || is_closed(process));
            exposed = Some(inbox.post(&s)?);
        }
        // If rank 1 dies, rank 2 hears of that, and its window ends.
        let mut left = match (me, end) {
            (1, _) | (_, End::Dies) => 0,
            _ => AFTER,
        };
        while left > 0 {
            left -= u64::from(me == 0 && plane.asked() > 0);
            let src = Region::from_slice(&world, &[left; 8])?.on(&s)?;
            let to = goes.slots().next().expect("rank 1 has left the loop");
            let mut epoch = goes.start();
            epoch.put(&src, to)?;
            (stays, goes) = exchange(&s, stays, epoch)?;
            // Rank 0 waits for each epoch, too. Otherwise it would enqueue work for minutes.
            let came = stays.read(&s)?.iter().next().expect("there is one")[0];
            if me == 2 {
                left = came;
            }
        }
        let Some(exposed) = exposed else {
            drop((outbox, stays, goes));
            break_off(me, end, || die(&plane.control));
            return Ok(None);
        };
        until("nobody is asked", || plane.asked() > 0);
        plane.let_go();
        let waited = exposed.wait(&s);
        match waited.and_then(|mut inbox| inbox.read(&s).map(drop)) {
            Err(Error::Wait(why)) => why.cause,
            Err(Error::Revoked { cause, .. }) => cause,
            other => panic!("it has waited for who is gone: {other:?}"),
        }
    };
    Ok(Some(gone))
}

fn break_off(me: usize, end: End, die: impl Fn()) {
    if (me, end) == (1, End::Dies) {
        die();
    }
}

/// Checks the cause that rank 0 has found: it is the end of rank 1, and no failure of a NIC.
fn check(label: &str, end: End, cause: &Cause) {
    let is_right = match end {
        End::Leaves => matches!(cause, Cause::PeerLeft { rank: 1 }),
        End::Dies => matches!(cause, Cause::PeerLost { rank: 1, .. }),
    };
    assert!(is_right, "{label}, {end:?}: {cause}");
}

/// One rank of a job.
fn joins<C: Control>(
    control: C,
    choice: &Choice,
    end: End,
    die: impl Fn(&C),
    is_closed: impl Fn(u64) -> bool,
) -> Result<Option<Cause>> {
    let plane = Arc::new(Late::new(control, 1));
    // Some providers do not report that a peer is gone. Then the engine notices it by the silence.
    let options = options(choice, Duration::from_secs(2));
    let device = Host::for_processes();
    // SAFETY: the control plane below passes everything on.
    let world = unsafe { World::from_control_with(plane.clone(), device, options) };
    rank(&plane, world?, end, die, is_closed)
}

#[test]
fn news_of_a_rank_comes_late() {
    for (provider, engine, choice) in choices("late news") {
        let label = format!("{provider}, {engine:?}");
        for end in [End::Leaves, End::Dies] {
            let is_closed = AtomicBool::new(false);
            let first = std::thread::scope(|scope| {
                let ranks = tidegate_boot::local(3).into_iter().map(|control| {
                    let (choice, is_closed) = (&choice, &is_closed);
                    scope.spawn(move || {
                        let (me, asks) = (control.rank(), |_| is_closed.load(Ordering::SeqCst));
                        let ended = joins(control, choice, end, LocalControl::kill, asks);
                        is_closed.fetch_or(me == 1, Ordering::SeqCst);
                        ended
                    })
                });
                let ranks: Vec<_> = ranks.collect();
                let results = ranks.into_iter().map(|rank| rank.join().unwrap());
                results.collect::<Vec<_>>().swap_remove(0)
            });
            check(&label, end, &first.unwrap().expect("rank 0 waits in vain"));
        }
    }
}

/// The environment variable that tells the ranks that are processes how rank 1 ends.
const ROLE: &str = "TEST_LEAVING_ROLE";

/// Not a test: the program of the ranks of the next test.
#[test]
fn a_rank_that_is_a_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let end = match role.as_str() {
        "leaves" => End::Leaves,
        _ => End::Dies,
    };
    let choice = Choice::from_env().unwrap();
    let control = TcpControl::from_env().unwrap();
    let die = |_: &TcpControl| std::process::abort();
    // The launcher reaps a rank at once. Until then, its `stat` says `Z` behind the name in brackets.
    let has_ended = |process: u64| {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    };
    if let Some(cause) = joins(control, &choice, end, die, has_ended).unwrap_or_default() {
        check(&role, end, &cause);
        println!("rank 0 has found out");
    }
}

#[test]
fn news_of_a_process_comes_late() {
    for (provider, engine, _) in choices("late news of processes") {
        for role in ["leaves", "dies"] {
            let mut job = Job::new(std::env::current_exe().unwrap(), 3)
                .args(["--exact", "a_rank_that_is_a_process", "--nocapture"])
                .env(ROLE, role)
                .env(Choice::PROVIDER, provider)
                .env(EngineChoice::VARIABLE, engine.name())
                .output(Output::Captured)
                .grace(LONG);
            for (name, value) in ENVIRONMENT {
                job = job.default_env(name, value);
            }
            let outcome = job.spawn().unwrap().wait();
            let first = &outcome.ranks[0];
            let said = String::from_utf8_lossy(&first.stdout);
            let is_right = first.status.success() && said.contains("rank 0 has found out");
            let errors = String::from_utf8_lossy(&first.stderr);
            assert!(
                is_right,
                "{provider}, {engine:?}, {role}: {said}{errors}{:?}",
                outcome.ranks
            );
        }
    }
}
