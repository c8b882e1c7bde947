//! What is left to do towards a rank that has left in good order, or died: over real providers.

#[path = "rig/late.rs"]
mod late;
#[path = "../../../tests/common/skip.rs"]
mod skip;

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use late::Late;
use tidegate_boot::LocalControl;
use tidegate_core::error::Cause;
use tidegate_core::window::{Buffers, Slot, Window, exchange};
use tidegate_core::{Error, Region, Result, Route, World, WorldOptions, stream};
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_fabric::{Fabric, Options};
use tidegate_host::Host;

const EPOCHS: u64 = 4;

/// Rank 1 produces and leaves; rank 0 consumes the last epoch some time after that, and leaves, too. How long that takes
/// it. (There are two buffers: its last post is for an epoch that nobody starts.)
fn run(world: World<Host>) -> Result<Duration> {
    let last;
    {
        stream!(let s = world.stream()?);
        let window = Window::<u64, _>::by_slot("products").fail_after(Duration::from_secs(60));
        let window = match world.rank() {
            0 => window.slot_from(1, 0, 8),
            _ => window.slot_to(0, 0),
        };
        let (mut inbox, mut outbox) = window.open(&s)?;
        let mut begun = Instant::now();
        for epoch in 0..EPOCHS {
            if world.rank() == 1 {
                let product = Region::from_slice(&world, &[epoch; 8])?.on(&s)?;
                let mut access = outbox.start();
                access.put(&product, Slot(0))?;
                outbox = access.complete(&s)?;
                continue;
            }
            if epoch + 1 == EPOCHS {
                // What it waits for has long come, and the producer is gone.
                s.synchronize()?;
                std::thread::sleep(Duration::from_millis(500));
                begun = Instant::now();
            }
            inbox = inbox.post(&s)?.wait(&s)?;
            assert_eq!(inbox.read(&s)?.slot(0), [epoch; 8]);
        }
        s.synchronize()?;
        last = begun;
    }
    drop(world);
    Ok(last.elapsed())
}

/// What endpoints there are, and what they are called.
fn choices(test: &str) -> Vec<(String, Choice)> {
    let software = skip::providers().into_iter();
    let all = software
        .map(|provider| (provider, EngineChoice::Software))
        .chain([("sockets", EngineChoice::Triggered)]);
    let mut choices = Vec::new();
    for (provider, engine) in all {
        let choice = Choice::at("127.0.0.1").provider(provider).engine(engine);
        match FabricWire::open(&choice) {
            Err(error) => skip::skipped(test, &error.to_string()),
            Ok(_) => choices.push((format!("{provider}, {engine:?}"), choice)),
        }
    }
    choices
}

fn options(choice: &Choice) -> WorldOptions {
    let wire = FabricWire::open(choice).unwrap();
    // Some providers say nothing of a peer that is gone: then silence does.
    let nic = Fabric::over(wire, Options::default().silence(Duration::from_secs(2)));
    WorldOptions::new().nic(nic).route(Route::Nic)
}

#[test]
fn a_consumer_does_not_wait_for_a_producer_that_has_left() {
    for (label, choice) in choices("leaving over libfabric") {
        let options = |_: usize| options(&choice);
        let times = World::<Host>::local_with(2, options, run);
        let took = *times[0].as_ref().unwrap();
        // As long as a wire may be silent, if it is waited for.
        assert!(took < Duration::from_secs(5), "{label}: {took:?}");
    }
}

/// Rank 0's control plane tells of rank 1 when it is let go.
type Plane = Late<LocalControl>;

/// Epochs of ranks 0 and 2 after rank 0's NIC has met with something of which it does not know the cause.
const AFTER: u64 = 20;

/// Ranks 0 and 1 exchange, and so do ranks 0 and 2. Rank 1 leaves, or dies, and its endpoint is closed before rank 0 hears
/// of it, which posts to it once more. Rank 0 returns why it waits in vain then.
fn rank(plane: &Plane, world: World<Host>, dies: bool, closed: &Barrier) -> Result<Option<Cause>> {
    let me = world.rank();
    let window = |name: &str, ranks: [usize; 2]| {
        let window = Window::<u64, _>::by_slot(name).buffers(Buffers::Double);
        match ranks.iter().position(|rank| *rank == me) {
            Some(at) => window
                .slot_from(ranks[1 - at], 0, 8)
                .slot_to(ranks[1 - at], 0),
            None => window,
        }
    };
    {
        stream!(let s = world.stream()?);
        let (mut inbox, mut outbox) = window("ends", [0, 1]).open(&s)?;
        let (mut stays, mut goes) = window("stays", [0, 2]).open(&s)?;
        if me != 2 {
            let src = Region::from_slice(&world, &[1; 8])?.on(&s)?;
            let mut epoch = outbox.start();
            epoch.put(&src, Slot(0))?;
            (inbox, outbox) = exchange(&s, inbox, epoch)?;
        }
        s.synchronize()?;
        if me == 0 {
            plane.hold();
        }
        closed.wait();
        if me != 1 {
            closed.wait();
            let mut exposed = None;
            if me == 0 {
                exposed = Some(inbox.post(&s)?);
            }
            // A dead rank's peers end with it.
            let mut left = if dies { 0 } else { AFTER };
            while left > 0 {
                left -= u64::from(me == 0 && plane.asked() > 0);
                let src = Region::from_slice(&world, &[left; 8])?.on(&s)?;
                let mut epoch = goes.start();
                epoch.put(&src, Slot(0))?;
                (stays, goes) = exchange(&s, stays, epoch)?;
                let said = stays.read(&s)?.slot(0)[0];
                if me == 2 {
                    left = said;
                }
            }
            let Some(exposed) = exposed else {
                return Ok(None);
            };
            let begun = Instant::now();
            while plane.asked() == 0 && begun.elapsed() < Duration::from_secs(20) {
                std::thread::sleep(Duration::from_millis(1));
            }
            plane.let_go();
            let waited = exposed.wait(&s).map_err(Error::from);
            return match waited.and_then(|mut inbox| inbox.read(&s).map(drop)) {
                Err(Error::Wait(why)) => Ok(Some(why.cause)),
                Err(Error::Revoked { cause, .. }) => Ok(Some(cause)),
                other => panic!("it has waited for who is gone: {other:?}"),
            };
        }
        drop((inbox, outbox, stays, goes));
    }
    if dies {
        plane.control.kill();
    }
    drop(world);
    closed.wait();
    Ok(None)
}

/// The cause that rank 0 has found.
fn cause(choice: &Choice, dies: bool) -> Cause {
    let closed = Barrier::new(3);
    let results: Vec<_> = std::thread::scope(|scope| {
        let ranks = tidegate_boot::local(3).into_iter().map(|control| {
            let closed = &closed;
            scope.spawn(move || {
                let plane = Arc::new(Late::new(control, 1));
                let (device, options) = (Host::for_threads(), options(choice));
                // SAFETY: the control plane below carries what it is given.
                let world = unsafe { World::from_control_with(plane.clone(), device, options) };
                rank(&plane, world?, dies, closed)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    let [first, _, _] = results.try_into().unwrap_or_else(|_| unreachable!());
    first.unwrap().expect("rank 0 waits in vain")
}

/// What fails before the news of that is no failure of this rank's NIC, whose windows go on.
#[test]
fn a_rank_that_has_left_before_that_is_heard_of_fails_nobody() {
    for (label, choice) in choices("late news of a departure") {
        let cause = cause(&choice, false);
        assert!(
            matches!(cause, Cause::PeerLeft { rank: 1 }),
            "{label}: {cause}"
        );
    }
}

/// Nor is it this rank that is to blame, but the one that has died.
#[test]
fn a_rank_that_has_died_before_that_is_heard_of_is_to_blame() {
    for (label, choice) in choices("late news of a loss") {
        let cause = cause(&choice, true);
        assert!(
            matches!(cause, Cause::PeerLost { rank: 1, .. }),
            "{label}: {cause}"
        );
    }
}
