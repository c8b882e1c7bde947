//! Children of ranks. `fork` is a safe function of a crate, and the child has all values and none of the other threads.
//! What the child does is a typed error, and the job goes on as if there were no child.

use std::future::Future;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use fork::Fork;
use rustix::process::{Signal, WaitStatus, getppid, kill_process};
use tidegate::host::prelude::*;
use tidegate::{Route, WorldOptions};
use tidegate_cli::Job;
use tidegate_loopback::Loopback;

use crate::common::child::ended;
use crate::processes::{self, FAILED, LONG, assert_success, error, lines};
use crate::ring;

fn run(role: &str, ranks: usize) {
    assert_success(&processes::run("forked::a_rank", role, ranks), &[]);
}

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| match role {
        "exits" | "killed" | "returns" | "panics" | "commands" | "outlives" => ends(role, &world),
        "H6" => two_hold_one_inbox(&world),
        "borrowed" => borrowed_before(&world),
        "drops" => drops_everything(world),
        "every entry" => every_entry(&world),
        "future" => future_of_the_parent(&world),
        "kernel" => in_a_kernel(&world),
        "captured" => in_what_a_kernel_drops(&world),
        "waker" => in_a_waker(&world),
        "inline kernel" => in_an_inline_kernel(&world),
        "threads" => while_threads_are_at_work(&world),
        "local" => a_rank_that_is_a_thread(),
        "again" => joins_again(&world),
        "launcher" => drops_a_job(),
        "grandchild" => grandchild(&world),
        "own world" => own_world(&world),
        other => panic!("there is no role {other}"),
    });
}

/// Lets a child do something, and waits for its end. A child that panics sets no exit code of its own.
fn in_child(work: impl FnOnce()) -> WaitStatus {
    match fork::fork().unwrap() {
        Fork::Child => {
            work();
            std::process::exit(0)
        }
        Fork::Parent(child) => ended(child),
    }
}

fn assert_well(status: WaitStatus) {
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
}

#[track_caller]
fn is_forked<T>(result: Result<T, impl Into<Error>>) {
    match result.map_err(Into::into) {
        Err(Error::Forked(_)) => {}
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("the child was served"),
    }
}

/// Rank 1 has a child in the middle of a ring of epochs, and the child ends in its own way.
fn ends(how: &str, world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut ring = ring::open(&s)?;
    for step in 0..200 {
        ring = ring::step(&s, ring)?;
        if step != 50 || world.rank() != 1 {
            continue;
        }
        s.synchronize()?;
        if how == "commands" {
            commands();
            continue;
        }
        match fork::fork().unwrap() {
            Fork::Child => match how {
                "exits" => std::process::exit(0),
                "killed" => kill_process(rustix::process::getpid(), Signal::KILL).unwrap(),
                "panics" => panic!("a child panics on purpose"),
                "outlives" => {
                    let parent = getppid();
                    while getppid() == parent {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                }
                // The next call fails, and everything is dropped on the way out.
                _ => {}
            },
            Fork::Parent(_) if how == "outlives" => {
                kill_process(rustix::process::getpid(), Signal::KILL).unwrap();
            }
            Fork::Parent(child) => {
                let status = ended(child);
                let expected = match how {
                    "exits" => status.exit_status() == Some(0),
                    "killed" => status.terminating_signal() == Some(Signal::KILL.as_raw()),
                    "returns" => status.exit_status() == Some(FAILED),
                    // It does not end by a signal. A panic within a drop during another panic would abort.
                    _ => status.exited(),
                };
                assert!(expected, "{how}: {status:?}");
            }
        }
    }
    s.synchronize()
}

/// Other programs are no copies, whether `posix_spawn` starts them, or `fork` and `exec`.
fn commands() {
    let mut spawned = Command::new("true");
    let mut forked = Command::new("true");
    forked.uid(rustix::process::getuid().as_raw());
    for command in [&mut spawned, &mut forked] {
        assert!(command.status().unwrap().success());
    }
}

#[test]
fn however_a_child_ends_the_job_goes_on() {
    for how in ["exits", "killed", "returns", "panics", "commands"] {
        run(how, 3);
    }
    let outcome = processes::run("forked::a_rank", "returns", 3);
    let child: Vec<_> = lines(&outcome.ranks[1], "error: ").collect();
    assert_eq!(child.len(), 1, "{child:?}");
    assert!(child[0].contains("made by `fork`"), "{child:?}");
}

/// The child has the parent's connections, and ends by itself once it looks.
#[test]
fn a_rank_that_dies_is_named_though_its_child_lives() {
    let outcome = processes::run("forked::a_rank", "outlives", 3);
    assert_eq!(outcome.ranks[1].status.signal(), Some(9));
    for rank in [0, 2] {
        let error = error(&outcome.ranks[rank]);
        assert!(error.contains("rank 1 is lost ("), "{error}");
    }
}

fn two_hold_one_inbox(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let window = RangeWindow::<u64>::new("w", 4);
    let (mut inbox, outbox) = window.open(&s)?;
    inbox.host_mut(&s)?[0] = 1;
    assert_well(in_child(|| {
        for _ in 0..3 {
            is_forked(inbox.host_mut(&s).map(|memory| memory[0] += 100));
        }
        is_forked(s.synchronize());
    }));
    assert_eq!(inbox.host_mut(&s)?[0], 1);
    drop(outbox);
    Ok(())
}

/// A reference from before the fork is invalid in the child, and never leads to memory that the child has allocated
/// since.
fn borrowed_before(world: &World) -> Result<()> {
    const LEN: usize = 1 << 20;
    stream!(let s = world.stream()?);
    let window = AtomicWindow::<u64>::new("w", LEN);
    let (mut inbox, outbox) = window.open(&s)?;
    let memory = inbox.host_mut(&s)?;
    memory[7] = 1;
    let status = in_child(|| {
        // These would fill a hole of any of these sizes.
        let allocated: Vec<_> = (0..64).map(|n| vec![5u64; LEN + 64 * n]).collect();
        memory[7] = 100;
        println!(
            "survived: {}",
            allocated.iter().any(|each| each.contains(&100))
        );
    });
    assert_eq!(
        status.terminating_signal(),
        Some(Signal::SEGV.as_raw()),
        "{status:?}"
    );
    assert_eq!(memory[7], 1);
    drop(outbox);
    Ok(())
}

/// The child drops everything, in the middle of its use: an open exposure, an open access, a graph, a barrier.
fn drops_everything(world: World) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = world.ring();
    stream!(let mut s = world.named_stream("one")?);
    stream!(let other = world.named_stream("two")?);
    let mut window = SlotWindow::<u64>::new("w");
    let from = window.slot_from(left, 0, 4);
    let to = window.slot_to(right, 0);
    let (inbox, mut outbox) = window.open(&s)?;
    let window = RangeWindow::<u64>::new("ranges", 4);
    let (ranges, to_ranges) = window.open(&other)?;
    let mut barrier = Barrier::open(&s, "barrier")?;
    let mut sum = AllReduce::<u64>::open(&s, "sum", 1, Op::Sum)?;
    let mut x = Region::from_slice(&world, &[1u64])?.on(&s)?;
    let (graph, lent) = s.capture(x, |s, mut x| {
        s.launch(|x: &mut [u64]| x[0] += 1, &mut x)?;
        Ok(x)
    })?;
    x = lent;
    let src = Region::from_slice(&world, &[rank as u64; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut access = outbox.start();
    access.put(&src, to)?;
    match fork::fork().unwrap() {
        Fork::Child => {
            drop((exposed, access));
            drop((graph, sum, barrier, ranges, to_ranges, x, src));
            drop(s);
            drop(other);
            drop(world);
            std::process::exit(0)
        }
        Fork::Parent(child) => assert_well(ended(child)),
    }
    outbox = access.complete(&s)?;
    let mut inbox = exposed.wait(&s)?;
    assert_eq!(inbox.read(&s)?.slot(from), [left as u64; 4]);
    barrier.enqueue(&s)?;
    x = graph.replay(&s, x, 3)?;
    sum.enqueue(&s, &mut x)?;
    assert_eq!(x.into_host(&s)?[0], 4 * size as u64);
    drop((inbox, outbox, ranges, to_ranges));
    Ok(())
}

/// Every call that needs the job says that this is a child.
fn every_entry(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    stream!(let other = world.stream()?);
    let me = world.rank();
    let mut window = SlotWindow::<u64>::new("w");
    window.slot_from(me, 0, 1);
    window.slot_to(me, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut barrier = Barrier::open(&s, "barrier")?;
    let mut sum = AllReduce::<u64>::open(&s, "sum", 1, Op::Sum)?;
    let mut x = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    let handed = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    let came = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    assert_well(in_child(move || {
        is_forked(world.all_gather("x", Vec::new()));
        is_forked(world.stream());
        is_forked(RangeWindow::<u64>::new("new", 4).open(&s));
        is_forked(Barrier::open(&s, "new"));
        is_forked(AllReduce::<u64>::open(&s, "new", 1, Op::Sum));
        is_forked(s.launch(|x: &mut [u64]| x[0] = 1, &mut x));
        is_forked(s.synchronize());
        is_forked(barrier.enqueue(&s));
        is_forked(sum.enqueue(&s, &mut x));
        is_forked(s.hand_off(handed, &other));
        is_forked(came.into_host(&s));
        is_forked(Region::<u64, _>::zeroed(world, 1).unwrap().on(&s));
        is_forked(inbox.post(&s));
        is_forked(outbox.start().complete(&s));
        assert_eq!(
            (world.rank(), world.last_report(), world.nic_slots()),
            (me, None, None)
        );
        world.report_waits_after(LONG);
        assert!(world.nic_room(1, LONG));
    }));
    world.all_gather("after", Vec::new()).map(drop)
}

/// A future that began in the parent ends in the child, too.
fn future_of_the_parent(world: &World) -> Result<()> {
    static GO_ON: AtomicBool = AtomicBool::new(false);
    stream!(let s = world.stream()?);
    let mut x = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    let wait = |_: &mut [u64]| {
        while !GO_ON.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    s.launch(wait, &mut x)?;
    let mut future = pin!(s.synchronized());
    let mut context = Context::from_waker(Waker::noop());
    assert!(future.as_mut().poll(&mut context).is_pending());
    assert_well(in_child(|| match future.as_mut().poll(&mut context) {
        Poll::Ready(result) => is_forked(result),
        Poll::Pending => panic!("it is awaited in vain"),
    }));
    GO_ON.store(true, Ordering::Release);
    s.synchronize()
}

/// Only one process may drop this; the others abort.
struct Ours(u32);

impl Drop for Ours {
    fn drop(&mut self) {
        if std::process::id() != self.0 {
            std::process::abort();
        }
    }
}

/// The child of a kernel has only the executor's thread, and cannot go on.
fn in_a_kernel(world: &World) -> Result<()> {
    static CHILD: AtomicI32 = AtomicI32::new(0);
    stream!(let mut s = world.stream()?);
    let ring = ring::open(&s)?;
    let mut x = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    let forks = |x: &mut [u64]| {
        if let Fork::Parent(child) = fork::fork().unwrap() {
            CHILD.store(child, Ordering::Release);
            x[0] += 1;
        }
    };
    s.launch(forks, &mut x)?;
    ring::steps(&s, ring, 50)?;
    assert!(ended(CHILD.load(Ordering::Acquire)).exited());
    let (graph, x) = s.capture(x, |s, mut x| {
        s.launch(forks, &mut x)?;
        Ok(x)
    })?;
    let x = graph.replay(&s, x, 1)?.into_host(&s)?;
    assert!(ended(CHILD.load(Ordering::Acquire)).exited());
    assert_eq!(x[0], 2);
    // The kernel of a dropped recording forks. Its captured values are not dropped in the child.
    static GO_ON: AtomicBool = AtomicBool::new(false);
    let ours = Arc::new(Ours(std::process::id()));
    let (graph, x) = s.capture(x.on(&s)?, |s, mut x| {
        let ours = ours.clone();
        let kernel = move |x: &mut [u64]| {
            let _ours = &ours;
            while !GO_ON.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            forks(x);
        };
        s.launch(kernel, &mut x)?;
        Ok(x)
    })?;
    let x = graph.replay(&s, x, 1)?;
    drop((graph, ours));
    GO_ON.store(true, Ordering::Release);
    assert_eq!(x.into_host(&s)?[0], 3);
    assert!(ended(CHILD.load(Ordering::Acquire)).exited());
    Ok(())
}

/// The child of a kernel that the calling thread executes comes back from the launch.
fn in_an_inline_kernel(world: &World) -> Result<()> {
    static CHILD: AtomicI32 = AtomicI32::new(0);
    stream!(let s = world.inline_stream()?);
    let mut x = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    let launched = s.launch(
        |_: &mut [u64]| match fork::fork().unwrap() {
            Fork::Child => CHILD.store(-1, Ordering::Relaxed),
            Fork::Parent(child) => CHILD.store(child, Ordering::Relaxed),
        },
        &mut x,
    );
    match CHILD.load(Ordering::Relaxed) {
        -1 => {
            is_forked(launched);
            is_forked(s.synchronize());
            std::process::exit(0)
        }
        child => assert_well(ended(child)),
    }
    launched?;
    s.synchronize()
}

/// Other threads may hold locks at that moment. The child neither waits for them nor panics because of them.
fn while_threads_are_at_work(world: &World) -> Result<()> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for number in 0..2 {
            let stop = &stop;
            scope.spawn(move || {
                stream!(let s = world.stream().unwrap());
                for turn in 0.. {
                    if stop.load(Ordering::Relaxed) {
                        break;
                    }
                    let name = format!("w{number}-{turn}");
                    let window = RangeWindow::<u64>::new(&name, 64);
                    let window = window.open(&s).unwrap();
                    let mut x = Region::<u64, _>::zeroed(world, 1).unwrap().on(&s).unwrap();
                    s.launch(|x: &mut [u64]| x[0] += 1, &mut x).unwrap();
                    drop((window, x));
                }
            });
        }
        stream!(let s = world.stream().unwrap());
        let held = Mutex::new(Some(RangeWindow::<u64>::new("held", 4).open(&s).unwrap()));
        for _ in 0..200 {
            let status = in_child(|| {
                is_forked(world.all_gather("x", Vec::new()));
                is_forked(s.synchronize());
                is_forked(world.stream());
                drop(held.lock().unwrap().take());
                drop(world.clone());
            });
            assert_well(status);
        }
        stop.store(true, Ordering::Relaxed);
    });
    Ok(())
}

/// Ranks are threads. The child has one of them, and the others do not exist there. Once with NICs, whose agents do not
/// exist there either.
fn a_rank_that_is_a_thread() -> Result<()> {
    let program = |world: World| {
        let next = (world.rank() + 1) % 3;
        stream!(let s = world.stream().unwrap());
        let last = (world.rank() + 2) % 3;
        let mut window = SlotWindow::<u64>::new("w");
        let came_from = window.slot_from(last, 0, 1);
        let to = window.slot_to(next, 0);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let x = Region::from_slice(&world, &[7u64]).unwrap().on(&s).unwrap();
        if world.rank() == 1 {
            assert_well(in_child(|| {
                is_forked(world.all_gather("x", Vec::new()));
                is_forked(inbox.read(&s).map(drop));
                is_forked(s.synchronize());
            }));
            // This thread returns from its part of the program.
            match fork::fork().unwrap() {
                Fork::Child => return,
                Fork::Parent(child) => assert!(ended(child).exited()),
            }
        }
        for _ in 0..20 {
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            epoch.put(&x, to).unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
        }
        assert_eq!(inbox.read(&s).unwrap().slot(came_from), [7]);
    };
    World::local(3, program);
    let nic = |_| {
        WorldOptions::new()
            .nic(Loopback::default())
            .route(Route::Nic)
    };
    World::local_with(3, nic, program);
    Ok(())
}

/// The child is no rank of the job, whatever its environment says.
fn joins_again(world: &World) -> Result<()> {
    assert_well(in_child(|| {
        let refused = World::init().map(drop);
        println!("refused: {}", refused.unwrap_err());
    }));
    world.all_gather("after", Vec::new()).map(drop)
}

/// A child of a launcher does not end the launcher's job.
fn drops_a_job() -> Result<()> {
    let job = Job::new("sleep", 1).arg("1000").spawn().unwrap();
    match fork::fork().unwrap() {
        Fork::Child => {
            drop(job);
            std::process::exit(0)
        }
        Fork::Parent(child) => assert_well(ended(child)),
    }
    // Dropping a job would have killed it by another signal.
    job.signal(0, Signal::TERM).unwrap();
    assert_eq!(
        job.wait().ranks[0].status.signal(),
        Some(Signal::TERM.as_raw())
    );
    Ok(())
}

/// The same holds for a child of a child.
fn grandchild(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let window = RangeWindow::<u64>::new("w", 4);
    let (mut inbox, outbox) = window.open(&s)?;
    assert_well(in_child(|| {
        assert_well(in_child(|| {
            is_forked(inbox.host_mut(&s).map(drop));
            is_forked(world.all_gather("x", Vec::new()));
        }));
    }));
    drop(outbox);
    world.all_gather("after", Vec::new()).map(drop)
}

/// A child may have a world of its own, whose ranks are threads. Its values are not the parent's.
fn own_world(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    assert_well(in_child(|| {
        World::local(2, |own: World| {
            stream!(let t = own.stream().unwrap());
            let mut sum = AllReduce::<u64>::open(&t, "sum", 1, Op::Sum).unwrap();
            let mut x = Region::from_slice(&own, &[1u64]).unwrap().on(&t).unwrap();
            sum.enqueue(&t, &mut x).unwrap();
            assert_eq!(x.into_host(&t).unwrap()[0], 2);
        });
        is_forked(s.synchronize());
    }));
    s.synchronize()
}

#[test]
fn parent_and_child_never_hold_one_inbox() {
    run("H6", 2);
}

#[test]
fn what_was_borrowed_before_leads_nowhere_in_the_child() {
    run("borrowed", 1);
}

#[test]
fn what_a_child_drops_nobody_hears_of() {
    run("drops", 3);
}

#[test]
fn every_entry_says_that_this_is_a_child() {
    run("every entry", 2);
}

#[test]
fn a_future_ends_in_the_child() {
    run("future", 1);
}

#[test]
fn a_kernel_that_forks_leaves_its_child_nothing_to_do() {
    run("kernel", 2);
    run("inline kernel", 1);
}

#[test]
fn locks_of_threads_that_are_not_there_are_not_waited_for() {
    run("threads", 1);
}

#[test]
fn ranks_that_are_threads_have_children_too() {
    run("local", 1);
}

#[test]
fn a_child_is_no_rank_of_the_job() {
    let outcome = processes::run("forked::a_rank", "again", 2);
    assert_success(&outcome, &[]);
    for rank in &outcome.ranks {
        println!("{:?}", lines(rank, "refused: ").collect::<Vec<_>>());
        assert_eq!(lines(rank, "refused: ").count(), 1, "{rank:?}");
    }
}

#[test]
fn a_child_of_a_launcher_does_not_end_its_job() {
    run("launcher", 1);
}

#[test]
fn children_of_children_are_children_too() {
    run("grandchild", 2);
    run("own world", 1);
}

/// Forks when it is dropped, or woken.
#[derive(Clone)]
struct Forks(std::sync::Arc<AtomicI32>);

impl Forks {
    fn fork(&self) {
        if let Fork::Parent(child) = fork::fork().unwrap() {
            self.0.store(child, Ordering::Release);
        }
    }
}

struct ForksAtDrop(Forks);

impl Drop for ForksAtDrop {
    fn drop(&mut self) {
        self.0.fork();
    }
}

impl std::task::Wake for Forks {
    fn wake(self: std::sync::Arc<Self>) {
        self.fork();
    }
}

/// A value that a stream's thread drops forks. Its child cannot go on either.
fn in_what_a_kernel_drops(world: &World) -> Result<()> {
    let forks = Forks(std::sync::Arc::default());
    stream!(let s = world.stream()?);
    let mut x = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    let dropped = std::sync::Arc::new(ForksAtDrop(forks.clone()));
    let kernel = move |x: &mut [u64]| {
        let _held = &dropped;
        x[0] += 1;
    };
    s.launch(kernel, &mut x)?;
    s.synchronize()?;
    assert!(ended(forks.0.load(Ordering::Acquire)).exited());
    assert_eq!(x.into_host(&s)?[0], 1);
    Ok(())
}

/// The same for a waker.
fn in_a_waker(world: &World) -> Result<()> {
    static GO_ON: AtomicBool = AtomicBool::new(false);
    let forks = Forks(std::sync::Arc::default());
    stream!(let s = world.stream()?);
    let mut x = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    let wait = |_: &mut [u64]| {
        while !GO_ON.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
    };
    s.launch(wait, &mut x)?;
    let waker = std::sync::Arc::new(forks.clone()).into();
    let mut future = pin!(s.synchronized());
    assert!(
        future
            .as_mut()
            .poll(&mut Context::from_waker(&waker))
            .is_pending()
    );
    GO_ON.store(true, Ordering::Release);
    // The waker is called when the stream is done.
    while forks.0.load(Ordering::Acquire) == 0 {
        std::thread::yield_now();
    }
    assert!(ended(forks.0.load(Ordering::Acquire)).exited());
    s.synchronize()
}

#[test]
fn what_a_stream_s_thread_drops_or_wakes_may_fork() {
    run("captured", 1);
    run("waker", 1);
}
