//! What an endpoint's threads cost the processor where nobody rings a bell, as with GPUs, and where hardware fires; in
//! time that they run and not in time that passes: so it holds on a loaded machine, too.

mod rig;
#[path = "../../../tests/common/skip.rs"]
mod skip;

use std::time::{Duration, Instant};

use rig::{Rig, SENT};
use tidegate_fabric::Options;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};

/// For how long it is looked.
const LOOK: Duration = Duration::from_secs(2);
/// How many per cent of a processor it may be, with nothing armed and with something. What is asked for is 1 and 5, of
/// a build that is optimised, on a machine that does nothing else.
const MOST: [f64; 2] = [3., 10.];
/// How many epochs are counted.
const EPOCHS: u64 = 2000;

/// Environment of the process that measures: what it measures.
const ROLE: &str = "TEST_AGENT_ROLE";

/// Nanoseconds that a thread has run.
fn ran_by(task: &std::path::Path) -> u64 {
    // It may have ended meanwhile.
    let text = std::fs::read_to_string(task.join("schedstat")).unwrap_or_default();
    let first = text.split(' ').next().and_then(|x| x.parse().ok());
    first.unwrap_or(0)
}

/// Nanoseconds that the threads of this process have run, but for this one.
fn ran() -> u64 {
    let own = rustix::thread::gettid().as_raw_nonzero().to_string();
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .map(|task| task.unwrap().path())
        .filter(|task| !task.ends_with(&own))
        .map(|task| ran_by(&task))
        .sum()
}

/// How much of one processor they take while this thread sleeps.
fn share(of: Duration) -> f64 {
    // What was done just before is still looked after.
    std::thread::sleep(Duration::from_millis(300));
    let (before, since) = (ran(), Instant::now());
    std::thread::sleep(of);
    (ran() - before) as f64 / since.elapsed().as_nanos() as f64
}

/// The measuring is done by a process of its own, whose threads are all that there is.
fn measure(test: &str, role: &str, provider: &str, most: [f64; 2]) {
    let choice = Choice::at("127.0.0.1").provider(provider);
    if let Err(error) = FabricWire::open(&choice) {
        return skip::skipped(test, &error.to_string());
    }
    let output = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "role_of_a_process", "--nocapture"])
        .envs(tidegate_fabric::ENVIRONMENT.iter().copied())
        .env(ROLE, format!("{role},{provider}"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.success(),
        "{role}, {provider}: {text}{errors}"
    );
    let line = text.lines().find(|line| line.starts_with("idle "));
    let line = line.unwrap_or_else(|| panic!("{text}{errors}"));
    println!("{role}, {provider}: {line}");
    let numbers: Vec<f64> = line
        .split(' ')
        .filter_map(|word| word.parse().ok())
        .collect();
    assert!(
        numbers[0] <= most[0] && numbers[1] <= most[1],
        "{role}, {provider}: {line}; at most {most:?}"
    );
}

/// Not a test: what that process does. It looks with nothing armed, then with something that is not rung for; then it
/// counts what epochs cost.
#[test]
fn role_of_a_process() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let (role, provider) = role.split_once(',').unwrap();
    let engine = match role {
        "triggered" | "triggered and polled" => EngineChoice::Triggered,
        _ => EngineChoice::Software,
    };
    let choice = Choice::at("127.0.0.1").provider(provider).engine(engine);
    let wire = FabricWire::open(&choice).unwrap();
    let rig = match role {
        "polled" | "triggered and polled" => Rig::polled(wire, Options::default()),
        _ => Rig::new(wire, Options::default(), false),
    };
    // Once, so that connections are made.
    let put = [rig.put(1)];
    rig.arm(&put, 1).unwrap();
    rig.ring();
    rig.wait(SENT, 1);
    let idle = share(LOOK);
    rig.arm(&put, EPOCHS + 1).unwrap();
    let armed = share(LOOK);
    rig.ring();
    rig.wait(SENT, 2);
    let before = ran();
    for epoch in 0..EPOCHS {
        rig.ring();
        rig.wait(SENT, 3 + epoch);
    }
    let each = (ran() - before) as f64 / EPOCHS as f64 / 1e3;
    println!(
        "idle {:.2} % of a processor, armed {:.2} %, {each:.1} us an epoch",
        100. * idle,
        100. * armed
    );
}

#[test]
fn agents_that_poll_doorbells_rest() {
    for provider in ["tcp;ofi_rxm", "sockets"] {
        measure("agents_that_poll_doorbells_rest", "polled", provider, MOST);
    }
}

#[test]
fn agents_of_hardware_rest() {
    for role in ["triggered", "triggered and polled"] {
        measure("agents_of_hardware_rest", role, "sockets", MOST);
    }
}
