//! Jobs of several processes: they work; every failure is a typed error on every rank that depends on it; and nothing
//! is left behind. (Each job is checked for that at its end: see `processes`.)

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use tidegate::host::prelude::*;
use tidegate_cli::{Outcome, RankOutcome, Signal};

use crate::processes::{self, LONG, assert_success, error, lines, longest_survival, ready};
use crate::ring;

/// How soon after a rank's death the others must have ended with their errors. It takes milliseconds; the margin is for
/// machines that are busy with other tests.
pub(crate) const SOON: Duration = Duration::from_secs(120);

fn start(role: &str, ranks: usize) -> processes::Started {
    processes::start("jobs::a_rank", role, ranks)
}

fn run(role: &str, ranks: usize) -> Outcome {
    processes::run("jobs::a_rank", role, ranks)
}

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| match role {
        "ring" => ring_of(&world, 500),
        "forever" => forever(&world),
        "panic" => panics(&world),
        "panics early" => panics_early(&world, false),
        "panics early beside a stream" => panics_early(&world, true),
        "fails alone" => fails_alone(&world),
        "again" => again(world),
        "opens" => opens(&world, || ready(&world)),
        "survivors" => survivors(&world),
        "left needed" => leaves(&world, 5),
        "left unneeded" => leaves(&world, 20),
        "limit" => limit(&world),
        "cycle" => cycle(&world),
        "late" => late(&world),
        "window mismatch" => window_mismatch(&world),
        "collective mismatch" => collective_mismatch(&world),
        "dropped" => dropped(&world),
        "stopped" => stopped(&world),
        "reduces" => reduces(&world, 300),
        "reduces forever" => reduces(&world, u64::MAX),
        other => panic!("there is no role {other}"),
    });
}

fn ring_of(world: &World, steps: u64) -> Result<()> {
    stream!(let s = world.stream()?);
    let ring = ring::open(&s)?;
    ring::steps(&s, ring, steps)
}

#[test]
fn rings_of_all_sizes() {
    for ranks in [1, 2, 3, 8] {
        assert_success(&run("ring", ranks), &[]);
    }
}

fn forever(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let ring = ring::open(&s)?;
    ready(world);
    Err(ring::forever(&s, ring))
}

/// Whether a rank ended with an error of this kind.
fn is(rank: &RankOutcome, kind: &str) -> bool {
    lines(rank, "kind: ").next() == Some(kind)
}

/// Kills each rank of a job in turn, in the middle of its epochs. Every other rank ends soon, with an error that names
/// the dead rank, and the wait or the window.
#[test]
fn a_killed_rank_is_named_by_all_others() {
    for (victim, ranks) in [(0, 2), (1, 3), (0, 8), (3, 8), (7, 8)] {
        let job = start("forever", ranks);
        job.wait_ready();
        std::thread::sleep(Duration::from_millis(20));
        job.kill(victim);
        let outcome = job.finish();
        assert_eq!(outcome.ranks[victim].status.signal(), Some(9));
        let cause = format!(": rank {victim} is lost (");
        for (rank, end) in outcome.ranks.iter().enumerate() {
            if rank == victim {
                continue;
            }
            let error = error(end);
            assert!(
                error.contains("window `ring`") && error.contains(&cause),
                "{error}"
            );
            let waited = format!(": rank {rank}'s wait for rank ");
            let wait = [", epoch ", &waited, ") failed: "];
            assert!(
                is(end, "revoked")
                    || is(end, "wait") && wait.iter().all(|part| error.contains(part)),
                "{error}"
            );
        }
        let took = longest_survival(&outcome, victim);
        println!("rank {victim} of {ranks} killed: the last error came {took:?} later");
        assert!(took < SOON, "{took:?}");
    }
}

fn panics(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let ring = ring::open(&s)?;
    if world.rank() == 1 {
        std::thread::sleep(Duration::from_millis(20));
        panic!("rank 1 panics on purpose");
    }
    Err(ring::forever(&s, ring))
}

#[test]
fn a_rank_that_panics_is_named_by_all_others() {
    let outcome = run("panic", 4);
    assert_eq!(outcome.ranks[1].status.code(), Some(101));
    for rank in [0, 2, 3] {
        let error = error(&outcome.ranks[rank]);
        let is_named = error.contains("rank 1 is lost (")
            // Its tokens are dropped before its end is known.
            || error.contains("rank 1 dropped ");
        assert!(is_named, "{error}");
    }
    assert!(longest_survival(&outcome, 1) < SOON);
}

/// Rank 1 panics before anything is opened.
fn panics_early(world: &World, with_a_stream: bool) -> Result<()> {
    if world.rank() == 1 && with_a_stream {
        stream!(let s = world.stream()?);
        let _s = &s;
        panic!("rank 1 panics on purpose");
    }
    assert_ne!(world.rank(), 1, "rank 1 panics on purpose");
    world.all_gather("x", Vec::new()).map(drop)
}

#[test]
fn a_rank_that_panics_before_anything_is_open_has_not_left() {
    for role in ["panics early", "panics early beside a stream"] {
        let outcome = run(role, 3);
        assert_eq!(outcome.ranks[1].status.code(), Some(101));
        for rank in [0, 2] {
            let error = error(&outcome.ranks[rank]);
            let says =
                "rank 1 will not come (its program has panicked); all-gather `x` takes all ranks";
            assert!(error.contains(says), "{error}");
        }
    }
}

/// Rank 0's program fails at once. Rank 1 computes until rank 0's process has ended, which must not wait for rank 1.
fn fails_alone(world: &World) -> Result<()> {
    let pids = world.all_gather("processes", std::process::id().to_le_bytes().to_vec())?;
    if world.rank() == 0 {
        return Err(Error::other("a mistake of rank 0 alone"));
    }
    let pid = u32::from_le_bytes(pids[0][..].try_into().expect("four bytes"));
    let process = std::path::PathBuf::from(format!("/proc/{pid}"));
    let start = Instant::now();
    while process.exists() {
        assert!(start.elapsed() < LONG, "rank 0 waits for this rank");
        std::thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

#[test]
fn the_error_of_rank_0_waits_for_nobody() {
    let outcome = run("fails alone", 2);
    let own = error(&outcome.ranks[0]);
    assert!(own.contains("a mistake of rank 0 alone"), "{own}");
    assert_eq!(outcome.first_failure, Some(0));
    assert!(outcome.ranks[1].status.success(), "{outcome:?}");
}

/// A world after a world.
fn again(world: World) -> Result<()> {
    let mut world = Some(world);
    for time in 0..5 {
        let world = match world.take() {
            Some(first) => first,
            None => World::init()?,
        };
        let second: Result<World> = World::init();
        let second = second.expect_err("the first is still there");
        assert!(
            second.to_string().contains("when that rank has left"),
            "{second}"
        );
        stream!(let s = world.stream()?);
        ring::steps(&s, ring::open(&s)?, 10 + time)?;
    }
    Ok(())
}

#[test]
fn a_program_may_have_one_world_after_the_other() {
    for ranks in [2, 4, 8] {
        assert_success(&run("again", ranks), &[]);
    }
}

/// Sums that each rank computes from its last result. The bits are printed at the end.
fn reduces(world: &World, steps: u64) -> Result<()> {
    let part = 1.0 / (world.rank() as f64 + 3.7);
    stream!(let s = world.stream()?);
    let mut energy = AllReduce::open(&s, "energy", 3, Op::Sum)?;
    let mut x = Region::from_slice(world, &[part; 3])?.on(&s)?;
    if steps == u64::MAX {
        ready(world);
    }
    for _ in 0..steps {
        let next = move |x: &mut [f64]| x.iter_mut().for_each(|x| *x = (*x + part).fract() * part);
        s.launch(next, &mut x)?;
        energy.enqueue(&s, &mut x)?;
    }
    println!("sum: {:x}", x.into_host(&s)?[0].to_bits());
    Ok(())
}

#[test]
fn sums_have_the_same_bits_on_all_ranks() {
    for ranks in [1, 2, 5] {
        let outcome = run("reduces", ranks);
        assert_success(&outcome, &[]);
        let sums: Vec<_> = (outcome.ranks.iter())
            .map(|rank| lines(rank, "sum: ").next().expect("a sum is printed"))
            .collect();
        assert!(sums.iter().all(|sum| *sum == sums[0]), "{sums:?}");
    }
}

#[test]
fn of_a_rank_that_was_killed_those_hear_that_reduce() {
    let job = start("reduces forever", 3);
    job.wait_ready();
    std::thread::sleep(Duration::from_millis(20));
    job.kill(1);
    let outcome = job.finish();
    for rank in [0, 2] {
        let error = error(&outcome.ranks[rank]);
        let is_named = error.contains("window `energy`") && error.contains(": rank 1 is lost (");
        assert!(is_named, "{error}");
    }
    assert!(longest_survival(&outcome, 1) < SOON);
}

/// Opens one window after the other with the ranks on both sides, until a rank is lost. The last window is revoked.
/// Calls `begun` when some are open.
pub(crate) fn opens(world: &World, begun: impl FnOnce()) -> Result<()> {
    let (left, right) = world.ring();
    stream!(let s = world.stream()?);
    let mut last = None;
    let mut count = 0;
    let mut begun = Some(begun);
    let failed = loop {
        let mut window = SlotWindow::<u64>::new(&format!("window {count}"));
        window.slot_from(left, 0, 1);
        window.slot_to(right, 0);
        match window.open(&s) {
            Ok(opened) => last = Some(opened),
            Err(error) => break error,
        }
        count += 1;
        if count == 3
            && let Some(begun) = begun.take()
        {
            begun();
        }
    };
    println!("opened: {count}");
    let (_inbox, mut outbox) = last.expect("three were opened before a rank was killed");
    let nobody = Group::new([]);
    let start = Instant::now();
    loop {
        assert!(start.elapsed() < LONG, "the window is not revoked");
        std::thread::sleep(Duration::from_millis(1));
        match outbox.start_to(&nobody)?.complete(&s) {
            Ok(again) => outbox = again,
            Err(Error::Revoked { .. }) => return Err(failed),
            Err(other) => panic!("{other}"),
        }
    }
}

#[test]
fn a_rank_that_is_killed_while_windows_are_opened_is_named_by_all_and_leaves_none_open() {
    for time in 0..8 {
        let victim = 1 + time % 7;
        let job = start("opens", 8);
        job.wait_ready();
        std::thread::sleep(Duration::from_micros(613 * time as u64));
        job.kill(victim);
        let outcome = job.finish();
        let mut counts = Vec::new();
        for (rank, end) in outcome.ranks.iter().enumerate() {
            if rank == victim {
                continue;
            }
            let error = error(end);
            assert!(error.contains(&format!("rank {victim} ")), "{error}");
            counts.extend(lines(end, "opened: "));
        }
        // As long as rank 0 lives, a window opens on all ranks or on none.
        assert!(
            counts.len() == 7 && counts.iter().all(|count| *count == counts[0]),
            "{counts:?}"
        );
        let took = longest_survival(&outcome, victim);
        assert!(took < SOON, "{took:?}");
    }
}

/// Rank 2 is lost. The others have a window of their own, without rank 2.
fn survivors(world: &World) -> Result<()> {
    let rank = world.rank();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u64>::new("pair");
    if rank < 2 {
        window.slot_from(1 - rank, 0, 1);
        window.slot_to(1 - rank, 0);
    }
    let (_inbox, mut outbox) = window.open(&s)?;
    let mut barrier = Barrier::open(&s, "all")?;
    let mut mine = Region::from_slice(world, &[rank as u64])?.on(&s)?;
    if rank == 2 {
        panic!("rank 2 panics on purpose");
    }
    let nobody = Group::new([]);
    let start = Instant::now();
    let refused = loop {
        assert!(start.elapsed() < LONG, "the window is not revoked");
        std::thread::sleep(Duration::from_millis(1));
        match outbox.start_to(&nobody)?.complete(&s) {
            Ok(again) => outbox = again,
            Err(refused) => break refused,
        }
    };
    let is_lost = |error: &Error| error.to_string().contains("rank 2 is lost (");
    assert!(matches!(refused, Error::Revoked { .. }) && is_lost(&refused));
    let refused = barrier.enqueue(&s).unwrap_err();
    assert!(matches!(refused, Error::Revoked { .. }) && is_lost(&refused));
    // No wait of the stream has failed, so its memory is still this rank's.
    s.launch(|mine: &mut [u64]| mine[0] += 10, &mut mine)?;
    assert_eq!(mine.into_host(&s)?[..], [rank as u64 + 10]);
    let refused = Barrier::open(&s, "new").expect_err("rank 2 takes no part");
    assert!(matches!(refused, Error::Control(_)), "{refused}");
    let window = SlotWindow::<u64>::new("new");
    let opened = window.open(&s);
    Err(opened.expect_err("rank 2 takes no part"))
}

#[test]
fn after_a_loss_windows_are_revoked_and_none_can_be_opened() {
    let outcome = run("survivors", 3);
    assert_eq!(outcome.ranks[2].status.code(), Some(101));
    for end in &outcome.ranks[..2] {
        let error = error(end);
        assert!(is(end, "control"), "{error}");
        assert!(error.contains("rank 2 will not come ("), "{error}");
    }
}

/// Rank 1 takes part in `steps` steps, the others in 20.
fn leaves(world: &World, steps: u64) -> Result<()> {
    ring_of(world, if world.rank() == 1 { steps } else { 20 })
}

#[test]
fn a_rank_that_leaves_while_it_is_needed_is_an_error() {
    const LEFT: &str = ") failed: rank 1 has left the job";
    let outcome = run("left needed", 3);
    assert!(outcome.ranks[1].status.success());
    for rank in [0, 2] {
        let error = error(&outcome.ranks[rank]);
        assert!(is(&outcome.ranks[rank], "wait"), "{error}");
        // Which of the two ranks the wait is for depends on which was poisoned first.
        let other = 2 - rank;
        let first = error.contains("for rank 1 (") && error.contains(LEFT);
        let second = error.contains(&format!("for rank {other} ("));
        assert!(first || second, "{error}");
    }
    let named = [0, 2].map(|rank| error(&outcome.ranks[rank]).contains(LEFT));
    assert!(named.contains(&true), "{outcome:?}");
}

#[test]
fn a_rank_that_leaves_when_nobody_needs_it_is_no_error() {
    // All do the same number of steps. A rank that is done first leaves while others still work on its data.
    for _ in 0..5 {
        assert_success(&run("left unneeded", 3), &[]);
    }
}

/// Rank 1 forgets its inbox. Its neighbours wait, and only the limit ends that.
fn limit(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let mut window = SlotWindow::<u8>::new("limited")
        .buffers(Buffers::Single)
        .fail_after(Duration::from_millis(300));
    window.slot_from(left, 0, 8);
    window.slot_from(right, 0, 8);
    window.slot_to(left, 0);
    window.slot_to(right, 0);
    let (inbox, mut outbox) = window.open(&s)?;
    if rank == 1 {
        std::mem::forget(inbox);
        // It waits for nobody, so it learns about the limit at its next use of the window.
        let nobody = Group::new([]);
        let start = Instant::now();
        while start.elapsed() < LONG {
            outbox = outbox.start_to(&nobody)?.complete(&s)?;
            std::thread::sleep(Duration::from_millis(10));
        }
        return Ok(());
    }
    let exposed = inbox.post(&s)?;
    let outbox = outbox.start().complete(&s)?;
    let inbox = exposed.wait(&s)?;
    s.synchronize()?;
    drop((inbox, outbox));
    Ok(())
}

#[test]
fn a_limit_ends_all_ranks() {
    let outcome = run("limit", 3);
    for end in &outcome.ranks {
        let error = error(end);
        assert!(
            error.contains("window `limited`") && error.contains(", the limit of the window"),
            "{error}"
        );
    }
}

/// Both ranks complete before they post, with one buffer. Each waits for the other for ever.
fn cycle(world: &World) -> Result<()> {
    world.report_waits_after(Duration::from_millis(300));
    stream!(let s = world.named_stream("main")?);
    let other = 1 - world.rank();
    let mut window = SlotWindow::<u8>::new("knot").buffers(Buffers::Single);
    window.slot_from(other, 0, 8);
    window.slot_to(other, 0);
    let (inbox, outbox) = window.open(&s)?;
    let outbox = outbox.start().complete(&s)?;
    let exposed = inbox.post(&s)?;
    let report = wait_for_report(world, |report| report.contains("  cycle: rank"));
    println!("report: {}", report.replace('\n', "; "));
    // Both have seen the report; now one of them drops its part.
    world.all_gather("seen", Vec::new())?;
    if world.rank() == 0 {
        drop(exposed);
        s.synchronize()?;
    } else {
        let inbox = exposed.wait(&s)?;
        s.synchronize()?;
        drop(inbox);
    }
    drop(outbox);
    Ok(())
}

fn wait_for_report(world: &World, is_it: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        match world.last_report() {
            Some(report) if is_it(&report) => return report,
            other => assert!(start.elapsed() < LONG, "no such report, but {other:?}"),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_cycle_is_reported_by_name_on_all_ranks() {
    let outcome = run("cycle", 2);
    for (rank, end) in outcome.ranks.iter().enumerate() {
        let report = lines(end, "report: ").next().expect("it is printed");
        let other = 1 - rank;
        for part in [
            format!(
                "rank {rank}: rank {other}, its post (window `knot`, number 0, epoch 0, stream `main`"
            ),
            "cycle: rank 0 -> rank 1 -> rank 0".to_owned(),
        ] {
            assert!(report.contains(&part), "{report}");
        }
        let error = error(end);
        assert!(error.contains("rank 0 dropped "), "{error}");
    }
}

/// Rank 1 takes longer for a step than the deadline for reports.
fn late(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut ring = ring::open(&s)?;
    for _ in 0..3 {
        ring = ring::step(&s, ring)?;
    }
    s.synchronize()?;
    // The deadline is set only now, and until all have read the report, so that no other delay of the machine is
    // reported.
    world.all_gather("through", Vec::new())?;
    world.report_waits_after(Duration::from_millis(200));
    if world.rank() != 1 {
        for _ in 0..3 {
            ring = ring::step(&s, ring)?;
        }
    }
    // Until the others have reported it.
    let report = wait_for_report(world, |report| report.contains("rank 1: nothing"));
    println!("report: {}", report.replace('\n', "; "));
    world.all_gather("read", Vec::new())?;
    if world.rank() == 1 {
        for _ in 0..3 {
            ring = ring::step(&s, ring)?;
        }
    }
    s.synchronize()
}

#[test]
fn an_imbalanced_program_is_reported_and_completes() {
    let outcome = run("late", 3);
    assert_success(&outcome, &[]);
    for end in &outcome.ranks {
        let report = lines(end, "report: ").next().expect("it is printed");
        assert!(!report.contains("  cycle: rank"), "{report}");
    }
}

/// Rank 1 names a slot that rank 0 has not declared.
fn window_mismatch(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u32>::new("odd");
    if world.rank() == 1 {
        window.slot_to(0, 42);
    }
    window.open(&s).map(|_| ())
}

#[test]
fn a_window_mismatch_is_the_same_error_on_all_ranks() {
    let outcome = run("window mismatch", 3);
    let first = error(&outcome.ranks[0]);
    assert!(
        is(&outcome.ranks[0], "window mismatch")
            && first.starts_with("window `odd` (number 0): ")
            && first.contains("rank 1 names the slot of rank 0 with key 42"),
        "{first}"
    );
    assert!(outcome.ranks.iter().all(|end| error(end) == first));
}

/// Rank 1 opens a window while the others exchange something else.
fn collective_mismatch(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    if world.rank() == 1 {
        SlotWindow::<u32>::new("mine").open(&s).map(|_| ())
    } else {
        world.all_gather("ours", Vec::new())?;
        Ok(())
    }
}

#[test]
fn different_collectives_are_an_error_on_all_ranks() {
    let outcome = run("collective mismatch", 3);
    for end in &outcome.ranks {
        let error = error(end);
        assert!(is(end, "control"), "{error}");
    }
    // Rank 1 is told about whichever of the others has come by then.
    let one = error(&outcome.ranks[1]);
    let other = [0, 2].map(|rank| format!("window `mine`, rank {rank} in all-gather `ours`"));
    assert!(
        one.contains("this one in opening ") && other.iter().any(|other| one.contains(other)),
        "{one}"
    );
    for rank in [0, 2] {
        let error = error(&outcome.ranks[rank]);
        assert!(
            error.contains("this one in all-gather `ours`, rank 1 in opening a window"),
            "{error}"
        );
    }
}

/// Rank 1 drops an epoch in its middle, and the others' error says so.
fn dropped(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let (rank, size) = (world.rank(), world.size());
    let mut window = SlotWindow::<u8>::new("torn");
    window.slot_from((rank + size - 1) % size, 0, 8);
    window.slot_to((rank + 1) % size, 0);
    let (inbox, outbox) = window.open(&s)?;
    let exposed = inbox.post(&s)?;
    if rank == 1 {
        drop(outbox.start());
        let error = exposed.wait(&s).err();
        return Err(error.expect("the window is revoked"));
    }
    let outbox = outbox.start().complete(&s)?;
    let inbox = exposed.wait(&s)?;
    s.synchronize()?;
    // No wait of rank 0 is ended, so it learns about the failure at its next use of the window.
    std::thread::sleep(Duration::from_millis(100));
    let start = Instant::now();
    let mut inbox = inbox;
    while start.elapsed() < LONG {
        inbox = inbox.post(&s)?.wait(&s)?;
        s.synchronize()?;
    }
    drop(outbox);
    Ok(())
}

#[test]
fn an_epoch_that_is_dropped_is_an_error_on_all_ranks() {
    let outcome = run("dropped", 3);
    for end in &outcome.ranks {
        let error = error(end);
        assert!(
            error.contains("rank 1 dropped an `Access` before its complete"),
            "{error}"
        );
    }
}

/// How many times a rank is stopped.
const STOPS: u32 = 20;

/// Rank 0 goes on enqueueing epochs when it is told to, and reports when it has.
fn stopped(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut ring = ring::open(&s)?;
    for _ in 0..STOPS {
        for step in 0..40 {
            if world.rank() == 0 && step == 20 {
                processes::set_flag("begun");
                processes::take_flag("go on");
            }
            ring = ring::step(&s, ring)?;
        }
        if world.rank() == 0 {
            processes::set_flag("enqueued");
        }
        s.synchronize()?;
    }
    Ok(())
}

/// A neighbour that is stopped at any moment, even in the middle of an epoch, keeps no rank from enqueueing, since
/// there is no lock in shared memory that it could hold. When the neighbour goes on, so does everything.
#[test]
fn a_stopped_rank_keeps_nobody_from_enqueueing() {
    let job = start("stopped", 2);
    for stop in 0..STOPS {
        job.take_flag("begun");
        std::thread::sleep(Duration::from_micros(u64::from(stop) * 100));
        job.signal(1, Signal::STOP);
        job.set_flag("go on");
        job.take_flag("enqueued");
        job.signal(1, Signal::CONT);
    }
    assert_success(&job.finish(), &[]);
}
