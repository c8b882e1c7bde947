//! What an endpoint's threads cost the processor where nobody rings a bell, as with GPUs, and where hardware fires: how
//! often they wake, which is the same on every machine. What that costs is measured by hand, optimised, with the same
//! program.

#[path = "../../../tests/common/rest.rs"]
mod rest;
mod rig;
#[path = "../../../tests/common/skip.rs"]
mod skip;

use std::time::Duration;

use rest::{Rest, ran, rests};
use rig::{Rig, SENT};
use tidegate_fabric::Options;
use tidegate_fabric::wire::libfabric::{Choice, EngineChoice, FabricWire};
use tidegate_hal::nic::Direction;

/// Sleeps a second where what comes ends them: one a second for each thread that sleeps; fewer than if something stayed
/// in doubt.
const HEARS: f64 = 8.;
/// Where it does not: one in 4 ms, and some.
const DEAF: f64 = 275.;
/// Where doorbells are looked at: one in a millisecond, and some.
const POLLS: f64 = 1100.;
/// How many epochs are counted.
const EPOCHS: u64 = 2000;

/// Elements of a put that goes by rails.
const LONG: usize = 20_000;

/// Environment of the process that measures: what it measures.
const ROLE: &str = "TEST_AGENT_ROLE";

/// What they do while nothing happens.
#[track_caller]
fn rest(what: &str, most: f64) -> Rest {
    // What was done just before is still looked after.
    std::thread::sleep(Duration::from_millis(300));
    rests(what, most, &[])
}

/// The measuring is done by a process of its own, whose threads are all that there is.
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
    // Where there is one processor, the test harness has begun the line with the test's name.
    let mut lines = text.lines();
    let said = lines.find_map(|line| line.split_once("idle "));
    let (_, said) = said.unwrap_or_else(|| panic!("{text}{errors}"));
    println!("{role}, {provider}: idle {said}");
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
    // Once, so that connections are made.
    let put = match role {
        "by rails" => {
            let mut long = rig.transfer(&rig.memory, Direction::Put, LONG);
            long.count = LONG;
            [rig.program(vec![long])]
        }
        _ => [rig.put(1)],
    };
    rig.arm(&put, 1).unwrap();
    rig.ring();
    rig.wait(SENT, 1);
    let idle = rest("idle", idles);
    rig.arm(&put, EPOCHS + 1).unwrap();
    let armed = rest("armed", looks);
    rig.ring();
    rig.wait(SENT, 2);
    let before = ran(&[]);
    for epoch in 0..EPOCHS {
        rig.ring();
        rig.wait(SENT, 3 + epoch);
    }
    let each = (ran(&[]) - before) as f64 / EPOCHS as f64 / 1e3;
    println!("idle {idle} a second, armed {armed}, {each:.1} us an epoch");
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
