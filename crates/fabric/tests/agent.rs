//! How often the threads of an endpoint wake. This is tested with streams that ring no bell, as those of GPUs, and with
//! hardware that fires. The number is the same on every machine. The processor time is measured by hand, with an
//! optimised build of the same program.

#[path = "../../../tests/common/rest.rs"]
mod rest;
mod rig;
#[path = "../../../tests/common/skip.rs"]
mod skip;

use std::time::Duration;

use rest::{Rest, ran, rests};
use rig::{Rig, SENT, SETTLES, SIGNAL};
use tidegate_fabric::Options;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_hal::nic::Direction;

/// The most sleeps a second if an arrival ends a sleep. Each sleeping thread needs one a second. If a signal stayed in
/// doubt, there would be more than this.
const HEARS: f64 = 8.;
/// The most sleeps a second if an arrival does not end a sleep: one in 4 ms, and some more.
const DEAF: f64 = 275.;
/// The most sleeps a second if doorbells are polled: one in a millisecond, and some more.
const POLLS: f64 = 1100.;
/// How many epochs are counted.
const EPOCHS: u64 = 2000;

/// Elements of a put that goes by rails.
const LONG: usize = 20_000;

/// The environment variable that tells the measuring process what to measure.
const ROLE: &str = "TEST_AGENT_ROLE";

/// How often the threads sleep while nothing happens.
#[track_caller]
fn rest(what: &str, most: f64) -> Rest {
    // The threads are still busy with what was done just before.
    std::thread::sleep(Duration::from_millis(300));
    rests(what, most, &[])
}

/// Rings, and waits until the put is sent and has come. (A stream would wait for the target's exposure before it rang
/// again. Without that, puts by several rails would overtake each other.)
fn through(rig: &Rig, puts: u64) {
    rig.ring();
    rig.wait(SENT, puts);
    rig.wait(SIGNAL, puts);
}

/// Measures in a process of its own, which has no other threads.
fn measure(test: &str, role: &str, provider: &str) {
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
    // On a machine with one processor, the test harness begins the line with the test's name.
    let mut lines = text.lines();
    let said = lines.find_map(|line| line.split_once("idle "));
    let (_, said) = said.unwrap_or_else(|| panic!("{text}{errors}"));
    println!("{role}, {provider}: idle {said}");
}

/// Not a test: the program of that process. It counts sleeps with nothing armed, and then with a program that is armed
/// but not rung for. Then it measures the time of an epoch.
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
    let (idles, looks) = match role {
        "triggered" => (DEAF, DEAF),
        "triggered and polled" => (DEAF, POLLS),
        _ => (HEARS, POLLS),
    };
    let rig = match role {
        "polled" | "triggered and polled" => Rig::polled(wire, Options::default()),
        "by rails" => Rig::sized(wire, Options::default().rails(3), (false, true), 1 << 20),
        _ => Rig::new(wire, Options::default(), false),
    };
    // The first firing makes the connections.
    let put = match role {
        "by rails" => {
            let mut long = rig.transfer(&rig.memory, Direction::Put, LONG);
            long.count = LONG;
            [rig.program(vec![long])]
        }
        _ => [rig.put(1)],
    };
    rig.arm(&put, 1).unwrap();
    through(&rig, 1);
    let idle = rest("idle", idles);
    rig.arm(&put, EPOCHS + 1).unwrap();
    let armed = rest("armed", looks);
    through(&rig, 2);
    let before = ran(&[]);
    for epoch in 0..EPOCHS {
        through(&rig, 3 + epoch);
    }
    let each = (ran(&[]) - before) as f64 / EPOCHS as f64 / 1e3;
    println!("idle {idle} a second, armed {armed}, {each:.1} us an epoch");
    // Some providers do not bear it if an endpoint is closed while something arrives.
    assert!(rig.nic.quiesce(SETTLES));
}

#[test]
fn agents_that_poll_doorbells_rest() {
    for provider in skip::providers() {
        for role in ["polled", "by rails"] {
            measure("agents_that_poll_doorbells_rest", role, provider);
        }
    }
}

#[test]
fn agents_of_hardware_rest() {
    for role in ["triggered", "triggered and polled"] {
        measure("agents_of_hardware_rest", role, "sockets");
    }
}
