//! What tidegate's own threads cost the processor, in time that they run and not in time that passes: so it holds on a
//! loaded machine, too.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate::prelude::*;
use tidegate::{Route, WorldOptions};
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fabric::{ENVIRONMENT, Fabric, Options};

#[path = "common/skip.rs"]
mod skip;
use skip::provided;

/// What each thread of this process has run, for messages.
fn threads() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let read = |task: &std::path::Path, file: &str| {
        std::fs::read_to_string(task.join(file)).unwrap_or_default()
    };
    tasks
        .map(|task| task.unwrap().path())
        .map(|task| {
            format!(
                "{}: {}",
                read(&task, "comm").trim(),
                read(&task, "schedstat").trim()
            )
        })
        .collect()
}

/// Nanoseconds that the threads of this process have run, but for those that the tests are: `schedstat` of each.
fn ran() -> u64 {
    let own = ["agent", "cpu_", "main"];
    let mut sum = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        // A thread may end meanwhile.
        let read = |file: &str| std::fs::read_to_string(task.join(file)).unwrap_or_default();
        let name = read("comm");
        if own.iter().any(|own| name.starts_with(own)) {
            continue;
        }
        let nanoseconds = read("schedstat")
            .split(' ')
            .next()
            .and_then(|x| x.parse::<u64>().ok());
        sum += nanoseconds.unwrap_or(0);
    }
    sum
}

/// How much of one processor they take while this thread sleeps.
fn share(of: Duration) -> f64 {
    let (before, since) = (ran(), Instant::now());
    std::thread::sleep(of);
    let after = ran();
    assert!(after >= before, "a thread has ended");
    (after - before) as f64 / since.elapsed().as_nanos() as f64
}

/// Two ranks of this process over libfabric; `act` is called for both.
fn ranks(provider: &str, act: impl Fn(&World) -> Result<()> + Sync) {
    let choice = Choice::at("127.0.0.1").provider(provider);
    let nic = |_| {
        WorldOptions::new()
            .nic(Fabric::over(
                FabricWire::open(&choice).unwrap(),
                Options::default(),
            ))
            .route(Route::Nic)
    };
    for result in World::local_with(2, nic, |world: World| act(&world)) {
        result.unwrap();
    }
}

const LOOK: Duration = Duration::from_secs(2);

/// Environment of the process that measures: the provider that it measures over.
const ROLE: &str = "TEST_AGENT_PROVIDER";

/// The measuring is done by a process of its own, whose threads are all that there is, and whose libfabric is told by
/// the environment not to spin.
#[test]
fn agents_rest_while_there_is_nothing_to_do() {
    let test = "agents_rest_while_there_is_nothing_to_do";
    for provider in ["tcp;ofi_rxm", "sockets"] {
        if !provided(test, provider) {
            return;
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "cpu_time_without_anything_to_do", "--nocapture"])
            .envs(ENVIRONMENT.iter().copied())
            .env(ROLE, provider)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        print!("{text}");
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{provider}: {text}{errors}");
        assert!(text.contains("unrung"), "{text}");
    }
}

/// Not a test: what that process does. Nothing is enqueued; then something, whose doorbell cannot be rung yet, since
/// the peer keeps its exposure back.
#[test]
fn cpu_time_without_anything_to_do() {
    let Ok(provider) = std::env::var(ROLE) else {
        return;
    };
    {
        let (ready, go) = (std::sync::Barrier::new(2), AtomicBool::new(false));
        ranks(&provider, |world| {
            let peer = 1 - world.rank();
            stream!(let s = world.stream()?);
            let window = Window::by_slot("quiet").buffers(tidegate::Buffers::Single);
            let (inbox, outbox) = window.slot_from(peer, 0, 1).slot_to(peer, 0).open(&s)?;
            let src = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
            // Once, so that connections are made.
            let mut epoch = outbox.start();
            epoch.put(&src, Slot(0))?;
            let (inbox, outbox) = exchange(&s, inbox, epoch)?;
            s.synchronize()?;
            ready.wait();
            if world.rank() == 1 {
                // Its main thread does nothing but sleep meanwhile.
                while !go.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(50));
                }
                let inbox = inbox.post(&s)?.wait(&s)?;
                s.synchronize()?;
                drop((inbox, outbox));
                return Ok(());
            }
            std::thread::sleep(Duration::from_millis(200));
            let idle = share(LOOK);
            let mut epoch = outbox.start();
            epoch.put(&src, Slot(0))?;
            let outbox = epoch.complete(&s)?;
            std::thread::sleep(Duration::from_millis(200));
            let unrung = share(LOOK);
            go.store(true, Ordering::Release);
            s.synchronize()?;
            println!(
                "{provider}: of one processor, both ranks: idle {:.2}%, unrung {:.2}%",
                100. * idle,
                100. * unrung
            );
            // What is asked for is 1% and 5% a rank.
            assert!(
                idle < 0.05 && unrung < 0.15,
                "{provider}: idle {idle}, unrung {unrung}: {:#?}",
                threads()
            );
            drop((inbox, outbox));
            Ok(())
        });
    }
}
