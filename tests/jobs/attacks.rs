//! Attacks by safe code on reports and departures: ranks that leave, end and come back while others wait. Each job ends
//! in bounded time, and every rank whose wait cannot succeed is told why.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use fork::Fork;
use tidegate::host::prelude::*;
use tidegate_cli::Outcome;

use crate::processes::{self, FAILED, LONG, assert_success, error, lines};

fn run(role: &str, ranks: usize) -> Outcome {
    processes::run("attacks::a_rank", role, ranks)
}

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| match role {
        "two left" => two_left(world),
        "killed" => killed(world),
        "panic beside" => panic_beside(world),
        "back" => back(world),
        "stuck kernel" => stuck_kernel(world),
        "one by one" => one_by_one(world),
        "exit 0 in a kernel" => exits_in_a_kernel(world, 0),
        "exit 1 in a kernel" => exits_in_a_kernel(world, 1),
        "exit beside" => exits_beside(world),
        "forgotten" => {
            wait_for_the_other(&world)?;
            std::mem::forget(world);
            Ok(())
        }
        "static" => kept(world, |world| {
            static KEPT: OnceLock<World> = OnceLock::new();
            assert!(KEPT.set(world).is_ok());
        }),
        "thread local" => kept(world, in_thread_local),
        "dropped in a kernel" => dropped_in_a_kernel(world),
        "gathers while it unwinds" => gathers_while_it_unwinds(world),
        "two inits" => two_inits(world),
        "fork in a capture" => fork_in_a_capture(world),
        "crossed" => crossed(world),
        other => match other.strip_prefix("in call ") {
            Some(call) => in_call(world, call),
            None => panic!("there is no role {other}"),
        },
    });
}

type Halves<'s> = (Inbox<'s, u64>, Outbox<'s, u64>);

/// A window in which two ranks wait for each other, and no other rank takes part.
fn pair<'s>(s: &Stream<'s>, ranks: [usize; 2]) -> Result<Halves<'s>> {
    let mut window = SlotWindow::<u64>::new("pair").buffers(Buffers::Single);
    let me = s.world().rank();
    if let Some(index) = ranks.iter().position(|rank| *rank == me) {
        window.slot_from(ranks[1 - index], 0, 1);
        window.slot_to(ranks[1 - index], 0);
    }
    window.open(s)
}

/// The deadlock in the tutorial: both complete first. After the cycle is reported, the first of the two prints that,
/// and ends.
fn deadlock<'s>(s: &Stream<'s>, (inbox, outbox): Halves<'s>, ranks: [usize; 2]) -> Result<()> {
    let world = s.world().clone();
    let cycle = format!("cycle: rank {} -> rank {}", ranks[0], ranks[1]);
    if world.rank() == ranks[0] {
        std::thread::spawn(move || {
            let report = report(&world, &[&cycle]);
            println!("report: {}", report.replace('\n', "; "));
            std::process::exit(0)
        });
    }
    let outbox = outbox.start().complete(s)?;
    let ended = s.synchronize();
    drop((inbox, outbox));
    ended
}

fn report(world: &World, parts: &[&str]) -> String {
    let start = Instant::now();
    loop {
        match world.last_report() {
            Some(report) if parts.iter().all(|part| report.contains(part)) => return report,
            other => assert!(start.elapsed() < LONG, "no such report, but {other:?}"),
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn soon(world: &World) {
    world.report_waits_after(Duration::from_millis(200));
}

/// Checks that the rank saw the report, and that the other rank ended because of it.
fn is_reported(outcome: &Outcome, ranks: [usize; 2]) {
    assert_eq!(
        lines(&outcome.ranks[ranks[0]], "report: ").count(),
        1,
        "{outcome:?}"
    );
    let told = error(&outcome.ranks[ranks[1]]);
    assert!(
        told.contains(&format!("rank {} is lost (", ranks[0])),
        "{told}"
    );
}

fn two_left(world: World) -> Result<()> {
    soon(&world);
    stream!(let s = world.stream()?);
    let halves = pair(&s, [2, 3])?;
    match world.rank() {
        2 | 3 => deadlock(&s, halves, [2, 3]),
        _ => Ok(()),
    }
}

#[test]
fn those_that_remain_are_reported_when_the_lowest_ranks_have_left() {
    let outcome = run("two left", 4);
    assert_success(&outcome, &[3]);
    is_reported(&outcome, [2, 3]);
}

/// Rank 0 is killed while others wait for each other, and not for rank 0.
fn killed(world: World) -> Result<()> {
    stream!(let s = world.stream()?);
    let (_inbox, outbox) = pair(&s, [1, 2])?;
    processes::ready(&world);
    if world.rank() == 0 {
        std::thread::sleep(LONG);
    }
    let _outbox = outbox.start().complete(&s)?;
    s.synchronize()
}

#[test]
fn the_death_of_rank_0_ends_waits_for_others() {
    let job = processes::start("attacks::a_rank", "killed", 3);
    job.wait_ready();
    job.kill(0);
    let outcome = job.finish();
    for rank in [1, 2] {
        let told = error(&outcome.ranks[rank]);
        assert!(told.contains("rank 0 is lost ("), "{told}");
    }
}

/// A thread of rank 0 panics with a clone of the world, and the program goes on with its own.
fn panic_beside(world: World) -> Result<()> {
    soon(&world);
    stream!(let s = world.stream()?);
    let (inbox, outbox) = pair(&s, [0, 1])?;
    if world.rank() == 0 {
        let clone = world.clone();
        let thread = std::thread::spawn(move || {
            let _clone = clone;
            panic!("on purpose");
        });
        assert!(thread.join().is_err());
    }
    let exposed = inbox.post(&s)?;
    let outbox = outbox.start().complete(&s)?;
    let inbox = exposed.wait(&s)?;
    s.synchronize()?;
    drop((inbox, outbox));
    world.all_gather("after", Vec::new()).map(drop)
}

#[test]
fn a_panic_of_one_thread_ends_all_ranks_or_none() {
    let outcome = run("panic beside", 2);
    let codes = [0, 1].map(|rank| outcome.ranks[rank].status.code());
    println!(
        "{codes:?} {:?}",
        lines(&outcome.ranks[1], "error: ").collect::<Vec<_>>()
    );
    assert!(
        codes == [Some(0); 2] || codes == [Some(FAILED); 2],
        "{outcome:?}"
    );
}

/// Rank 0 leaves, and tries to come back while others wait for each other.
fn back(world: World) -> Result<()> {
    soon(&world);
    if world.rank() != 0 {
        stream!(let s = world.stream()?);
        let halves = pair(&s, [1, 2])?;
        return deadlock(&s, halves, [1, 2]);
    }
    {
        stream!(let s = world.stream()?);
        drop(pair(&s, [1, 2])?);
    }
    drop(world);
    let refused = World::init().map(drop);
    println!("refused: {}", refused.unwrap_err());
    Ok(())
}

#[test]
fn a_rank_that_comes_back_alone_gets_an_error_and_the_others_a_report() {
    let back = |timeout| {
        let timeout = [("TIDEGATE_RENDEZVOUS_TIMEOUT", timeout)];
        processes::start_with("attacks::a_rank", "back", 3, &timeout).finish()
    };
    let mut outcome = back("5");
    // On a slow machine the job itself may not begin within this time. Then the test tries a longer one.
    if lines(&outcome.ranks[0], "refused: ").next().is_none() {
        outcome = back("60");
    }
    assert_success(&outcome, &[2]);
    assert_eq!(
        lines(&outcome.ranks[0], "refused: ").count(),
        1,
        "{outcome:?}"
    );
    println!(
        "{:?}",
        lines(&outcome.ranks[0], "refused: ").collect::<Vec<_>>()
    );
    is_reported(&outcome, [1, 2]);
}

/// The lowest remaining rank makes the reports, even if it is in a kernel that ends only after it has seen one.
fn stuck_kernel(world: World) -> Result<()> {
    soon(&world);
    stream!(let s = world.named_stream("stuck")?);
    let (inbox, mut outbox) = pair(&s, [1, 2])?;
    if world.rank() == 0 {
        return Ok(());
    }
    if world.rank() == 1 {
        let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        let seen = world.clone();
        let stuck = move |_: &mut [u64]| {
            println!(
                "report: {}",
                report(&seen, &["rank 2: rank 1", "runs the kernel"]).replace('\n', "; ")
            );
        };
        s.launch(stuck, &mut x)?;
    }
    let exposed = inbox.post(&s)?;
    outbox = outbox.start().complete(&s)?;
    let inbox = exposed.wait(&s)?;
    s.synchronize()?;
    drop((inbox, outbox));
    Ok(())
}

#[test]
fn a_rank_that_is_stuck_itself_reports_others() {
    let outcome = run("stuck kernel", 3);
    assert_success(&outcome, &[]);
    let said = lines(&outcome.ranks[1], "report: ")
        .next()
        .expect("a report");
    assert!(said.contains("kernel"), "{said}");
}

/// Ranks leave one by one, at any time while a report is gathered.
fn one_by_one(world: World) -> Result<()> {
    world.report_waits_after(Duration::from_millis(20));
    stream!(let s = world.stream()?);
    let halves = pair(&s, [5, 6])?;
    match world.rank() {
        rank @ (5 | 6) => {
            if rank == 5 {
                // The first reports do not count, since other ranks are still there.
                processes::take_flag("gone");
            }
            deadlock(&s, halves, [5, 6])
        }
        rank => {
            std::thread::sleep(Duration::from_millis(7 * rank as u64 + 20));
            if rank == 4 {
                processes::set_flag("gone");
            }
            Ok(())
        }
    }
}

#[test]
fn ranks_leave_while_reports_are_gathered() {
    for _ in 0..3 {
        let outcome = run("one by one", 7);
        assert_success(&outcome, &[6]);
        is_reported(&outcome, [5, 6]);
    }
}

/// Rank 0 waits for a rank that ends as its role says.
fn wait_for_the_other(world: &World) -> Result<()> {
    if world.rank() == 1 {
        return Ok(());
    }
    stream!(let s = world.stream()?);
    let all = world.all_gather("never", Vec::new());
    drop(s);
    all.map(drop)
}

fn is_lost_or_left(outcome: &Outcome, code: i32) {
    assert_eq!(outcome.ranks[1].status.code(), Some(code), "{outcome:?}");
    let told = error(&outcome.ranks[0]);
    assert!(told.contains("rank 1 will not come"), "{told}");
}

fn exits_in_a_kernel(world: World, code: i32) -> Result<()> {
    if world.rank() == 1 {
        stream!(let s = world.stream()?);
        let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        s.launch(move |_: &mut [u64]| std::process::exit(code), &mut x)?;
        return s.synchronize();
    }
    wait_for_the_other(&world)
}

fn exits_beside(world: World) -> Result<()> {
    if world.rank() == 1 {
        stream!(let s = world.stream()?);
        let window = RangeWindow::<u64>::new("never", 1);
        let (_inbox, _outbox) = window.open(&s)?;
        std::thread::spawn(|| std::process::exit(0));
        std::thread::sleep(LONG);
    }
    wait_for_the_other(&world)
}

#[test]
fn a_process_that_exits_anywhere_is_named() {
    is_lost_or_left(&run("exit 0 in a kernel", 2), 0);
    is_lost_or_left(&run("exit 1 in a kernel", 2), 1);
    let outcome = run("exit beside", 2);
    assert!(
        outcome.ranks[0].status.code() == Some(FAILED),
        "{outcome:?}"
    );
}

fn kept(world: World, keep: impl Fn(World)) -> Result<()> {
    wait_for_the_other(&world)?;
    keep(world);
    Ok(())
}

/// Uses the library when the thread ends, or the process.
struct AtTheEnd(Option<World>);

impl Drop for AtTheEnd {
    fn drop(&mut self) {
        let Some(world) = self.0.take() else { return };
        let work = || -> Result<()> {
            stream!(let s = world.stream()?);
            let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
            s.launch(|x: &mut [u64]| x[0] += 1, &mut x)?;
            println!("at the end: {}", x.into_host(&s)?[0]);
            Ok(())
        };
        if let Err(error) = work() {
            println!("at the end: {error}");
        }
    }
}

thread_local! {
    static KEPT: std::cell::RefCell<AtTheEnd> = const { std::cell::RefCell::new(AtTheEnd(None)) };
}

fn in_thread_local(world: World) {
    let thread = std::thread::spawn(|| KEPT.with_borrow_mut(|kept| kept.0 = Some(world)));
    thread.join().unwrap();
}

#[test]
fn worlds_that_nobody_drops_or_that_a_thread_drops_at_its_end() {
    for role in ["forgotten", "static", "thread local"] {
        let outcome = run(role, 2);
        is_lost_or_left(&outcome, 0);
        if role == "thread local" {
            assert_eq!(lines(&outcome.ranks[1], "at the end: ").next(), Some("1"));
        }
    }
}

/// A kernel drops the last reference to everything that the program had.
fn dropped_in_a_kernel(world: World) -> Result<()> {
    let rank = world.rank();
    let last = Arc::new(Mutex::new(None));
    {
        stream!(let s = world.stream()?);
        let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        *last.lock().unwrap() = Some(world);
        let taken = last.clone();
        s.launch(
            move |_: &mut [u64]| drop(taken.lock().unwrap().take()),
            &mut x,
        )?;
        std::mem::forget(s);
    }
    while last.lock().unwrap().is_some() {
        std::thread::yield_now();
    }
    // The forgotten stream keeps the rank in the job.
    let second: Result<World> = World::init();
    assert!(second.is_err(), "rank {rank} is there still");
    Ok(())
}

#[test]
fn a_kernel_may_drop_the_world() {
    let outcome = run("dropped in a kernel", 2);
    assert_success(&outcome, &[]);
}

struct Gathers(World);

impl Drop for Gathers {
    fn drop(&mut self) {
        let gathered = self.0.all_gather("unwinding", Vec::new());
        println!("gathered: {}", gathered.is_ok());
    }
}

/// Rank 1 tries to gather while it unwinds.
fn gathers_while_it_unwinds(world: World) -> Result<()> {
    if world.rank() == 1 {
        let _gathers = Gathers(world.clone());
        stream!(let s = world.stream()?);
        let _s = &s;
        panic!("on purpose");
    }
    world.all_gather("unwinding", Vec::new())?;
    world.all_gather("after", Vec::new()).map(drop)
}

#[test]
fn what_a_rank_does_while_it_unwinds_ends() {
    let outcome = run("gathers while it unwinds", 2);
    assert_eq!(outcome.ranks[1].status.code(), Some(101));
    let told = error(&outcome.ranks[0]);
    assert!(told.contains("rank 1 will not come"), "{told}");
}

/// Two threads try to join at the same time.
fn two_inits(world: World) -> Result<()> {
    drop(world);
    let joined = AtomicUsize::new(0);
    let begun = std::sync::Barrier::new(2);
    let init = || -> Result<()> {
        begun.wait();
        let world: Result<World> = World::init();
        let counted = world.is_ok();
        joined.fetch_add(usize::from(counted), Ordering::SeqCst);
        begun.wait();
        match world {
            Ok(world) => world.all_gather("in", Vec::new()).map(drop),
            Err(error) => {
                println!("refused: {error}");
                Ok(())
            }
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(init);
        init()?;
        other.join().unwrap()
    })?;
    assert_eq!(joined.into_inner(), 1);
    Ok(())
}

#[test]
fn of_two_threads_that_join_at_once_one_does() {
    for _ in 0..3 {
        let outcome = run("two inits", 3);
        assert_success(&outcome, &[]);
        println!(
            "{:?}",
            lines(&outcome.ranks[0], "refused: ").collect::<Vec<_>>()
        );
    }
}

/// A step forks while it is recorded and other threads work. Its child ends the recording, and drops everything.
fn fork_in_a_capture(world: World) -> Result<()> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                drop(world.last_report());
                drop(world.clone());
            }
        });
        for _ in 0..10 {
            stream!(let mut s = world.stream()?);
            let x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
            let mut child = None;
            let captured = s.capture(x, |s, mut x| {
                s.launch(|x: &mut [u64]| x[0] += 1, &mut x)?;
                if let Fork::Parent(pid) = fork::fork().unwrap() {
                    child = Some(pid);
                }
                s.launch(|x: &mut [u64]| x[0] += 1, &mut x)?;
                Ok(x)
            });
            let Some(child) = child else {
                let error = captured.err();
                drop(s);
                std::process::exit(if matches!(error, Some(Error::Forked(_))) {
                    0
                } else {
                    1
                });
            };
            assert_eq!(crate::common::child::ended(child).exit_status(), Some(0));
            let (graph, x) = captured?;
            assert_eq!(graph.replay(&s, x, 5)?.into_host(&s)?[0], 10);
        }
        stop.store(true, Ordering::Relaxed);
        Ok(())
    })
}

#[test]
fn a_step_forks_while_it_is_recorded() {
    assert_success(&run("fork in a capture", 1), &[]);
}

/// Rank 1 is in a call that waits for a kernel, which ends when a report names the call. Rank 0 waits for rank 1.
fn in_call(world: World, call: &str) -> Result<()> {
    soon(&world);
    if world.rank() == 0 {
        return world.all_gather("after", Vec::new()).map(drop);
    }
    let seen = world.clone();
    let until_reported = move |_: &mut [u64]| {
        let report = report(&seen, &["rank 1: its own stream `stuck`"]);
        println!("report: {}", report.replace('\n', "; "));
    };
    {
        stream!(let s = world.stream_with(stream_options(call))?);
        let mut x = Region::<u64, _>::zeroed(&world, 1)?.on(&s)?;
        s.launch(until_reported, &mut x)?;
        match call {
            "into_host" => drop(x.into_host(&s)?),
            "awaits" => {
                let mut future = std::pin::pin!(x.into_host_async(&s));
                let waker = std::task::Waker::noop();
                let mut context = std::task::Context::from_waker(waker);
                while future.as_mut().poll(&mut context).is_pending() {
                    std::thread::yield_now();
                }
            }
            _ => {}
        }
    }
    world.all_gather("after", Vec::new()).map(drop)
}

fn stream_options(call: &str) -> tidegate::StreamOptions {
    let options = tidegate::StreamOptions::new().name("stuck");
    match call {
        "inline" => options.inline(),
        _ => options,
    }
}

#[test]
fn every_call_that_waits_for_a_stuck_kernel_is_reported() {
    let calls = [
        ("into_host", "`into_host`"),
        ("awaits", "`synchronized`"),
        ("inline", "`launch`"),
        ("drops", "the drop of the stream"),
    ];
    for (call, named) in calls {
        let outcome = run(&format!("in call {call}"), 2);
        assert_success(&outcome, &[]);
        let said = lines(&outcome.ranks[1], "report: ").next();
        // A drop has no place in the program's source.
        let place = match call {
            "drops" => "(for ".to_owned(),
            _ => format!("at {}:", file!()),
        };
        let part = format!("rank 1: its own stream `stuck`, in {named} {place}");
        assert!(said.is_some_and(|said| said.contains(&part)), "{said:?}");
    }
}

/// One rank waits in a collective call, and the other for its epoch.
fn crossed(world: World) -> Result<()> {
    soon(&world);
    stream!(let s = world.stream()?);
    let (inbox, _outbox) = pair(&s, [0, 1])?;
    let seen = world.clone();
    std::thread::spawn(move || {
        let report = report(&seen, &["  cycle: rank"]);
        println!("report: {}", report.replace('\n', "; "));
        std::process::exit(0)
    });
    if world.rank() == 0 {
        return world.all_gather("never", Vec::new()).map(drop);
    }
    let _inbox = inbox.post(&s)?.wait(&s)?;
    s.synchronize()
}

#[test]
fn a_cycle_through_a_collective_call_is_reported() {
    let outcome = run("crossed", 2);
    let said = (outcome.ranks.iter()).any(|rank| lines(rank, "report: ").count() == 1);
    assert!(said, "{outcome:?}");
}
