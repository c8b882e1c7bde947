//! The processor time of tidegate's own threads while there is nothing to do: how often they wake, which is the same on
//! every machine.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tidegate::host::prelude::*;
use tidegate::{Route, WorldOptions};
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fabric::{ENVIRONMENT, Fabric, Options};

use crate::common::rest;
use crate::common::skip::{provided, providers};

/// The beginnings of the names of the tests' own threads.
const TESTS: &[&str] = &["agent::", "host-", "main"];
/// Sleeps per second of both ranks: one for each thread of each rank that sleeps, and some for earlier work.
const MOST: f64 = 18.;

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

/// The environment variable of the measuring process: the provider over which it measures.
const ROLE: &str = "TEST_AGENT_PROVIDER";

/// A process of its own measures, so that it has no other threads, and so that its environment tells libfabric not to
/// spin.
#[test]
fn agents_rest_while_there_is_nothing_to_do() {
    let test = "agents_rest_while_there_is_nothing_to_do";
    for provider in providers() {
        if !provided(test, provider) {
            return;
        }
        let output = std::process::Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "agent::cpu_time_without_anything_to_do",
                "--nocapture",
            ])
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

/// This is not a test, but that process's program. First nothing is enqueued. Then an epoch is, whose doorbell cannot
/// be rung yet, since the peer delays its exposure.
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
            let mut window = SlotWindow::new("quiet").buffers(tidegate::Buffers::Single);
            window.slot_from(peer, 0, 1);
            let to = window.slot_to(peer, 0);
            let (inbox, outbox) = window.open(&s)?;
            let src = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
            // One epoch comes first, so that connections are made.
            let mut epoch = outbox.start();
            epoch.put(&src, to)?;
            let (inbox, outbox) = exchange(&s, inbox, epoch)?;
            s.synchronize()?;
            ready.wait();
            if world.rank() == 1 {
                // Its main thread only sleeps meanwhile.
                while !go.load(Ordering::Acquire) {
                    std::thread::sleep(Duration::from_millis(50));
                }
                let inbox = inbox.post(&s)?.wait(&s)?;
                s.synchronize()?;
                drop((inbox, outbox));
                return Ok(());
            }
            // Rank 1 goes on even if this rank panics, since nothing else ends its wait.
            let go = Go(&go);
            std::thread::sleep(Duration::from_millis(200));
            let idle = rest::rests(&provider, MOST, TESTS);
            let mut epoch = outbox.start();
            epoch.put(&src, to)?;
            let outbox = epoch.complete(&s)?;
            std::thread::sleep(Duration::from_millis(200));
            let unrung = rest::rests(&provider, MOST, TESTS);
            drop(go);
            s.synchronize()?;
            println!("{provider}, both ranks: idle {idle} a second, unrung {unrung}");
            drop((inbox, outbox));
            Ok(())
        });
    }
}

/// Lets rank 1 go on when it is dropped.
struct Go<'a>(&'a AtomicBool);

impl Drop for Go<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}
