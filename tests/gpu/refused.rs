//! Each call of the driver is refused once. The program ends, with the right result or with an error.
//!
//! Only the driver without a GPU (`crates/fake-cuda`) can refuse calls. Each call is tested in another program: this
//! one, started again.

use std::panic::{catch_unwind, resume_unwind};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::common::{Kernels, W};
use super::epochs::{Plan, Ring};
use crate::vendor;
use crate::vendor::prelude::*;
use tidegate::generic::Device;

const ROLE: &str = "TIDEGATE_GPU_REFUSED";
const SETTINGS: &str = "TIDEGATE_FAKE_CUDA";

/// How long a program may take: many times its usual time.
const PATIENCE: Duration = Duration::from_secs(60);

/// Which calls of a function are refused, each in a program of its own.
const CALLS: [u32; 8] = [1, 2, 3, 5, 9, 17, 30, 60];

/// Epochs of two ranks, eager, recorded, and on two streams. Returns whether all results are right.
fn program(world: &W) -> Result<bool> {
    const LEN: usize = 700;
    const TIMES: u64 = 9;
    let k = Kernels::load(world)?;
    world.all_gather("loaded", Vec::new())?;
    let plan = Plan::new(&k, world, LEN);
    stream!(let s = world.named_stream("s")?);
    stream!(let t = world.named_stream("t")?);
    let mut ring = Ring::open(world, &s, Buffers::Double, LEN)?;
    for fused in [false, true] {
        ring = plan.part(0, LEN, fused).step(&s, ring)?;
    }
    let (graph, back) = s.capture(ring, |s, r| plan.step(s, r))?;
    ring = graph.replay(&s, back, TIMES as usize)?;
    let there = s.hand_off(ring, &t)?;
    let there = plan.step(&t, there)?;
    ring = t.hand_off(there, &s)?;
    // If the driver does not tell the order, an edge may be lost, and then the result is wrong.
    let (both, back) = s.capture_with(&mut t, (ring, ()), |s, t, (r, ())| {
        let there = plan.step(t, s.hand_off(r, t)?)?;
        Ok((t.hand_off(there, s)?, ()))
    })?;
    let (ring, ()) = both.replay(&s, &t, back, TIMES as usize)?;
    Ok(ring.verdict(&s)? == (3 + 2 * TIMES, 0))
}

/// The programs' part. It does nothing in a normal test run.
#[test]
#[ignore = "is started by the tests of this module"]
fn a_program() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    // (A world of threads uses only devices that can be opened.)
    for number in 0..2 {
        if let Err(error) = Gpu::open(number) {
            return println!("refused: {error}");
        }
    }
    let ranks = catch_unwind(|| W::local(2, |world| program(&world)));
    let results = ranks.unwrap_or_else(|panic| match panic.downcast_ref::<String>() {
        // The error of the program: a device cannot be opened, or a rank cannot come.
        Some(why)
            if ["the device opens: ", "the ranks meet: "]
                .iter()
                .any(|how| why.starts_with(how)) =>
        {
            println!("refused: {why}");
            Vec::new()
        }
        _ => resume_unwind(panic),
    });
    for result in results {
        match result {
            Ok(right) => assert!(right, "something was wrong, and nobody said so"),
            Err(error) => println!("refused: {error}"),
        }
    }
}

/// Starts a program whose driver has these settings, and those of this process.
fn start(settings: &str) -> Child {
    let before = std::env::var(SETTINGS).unwrap_or_default();
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "gpu::refused::a_program", "--ignored"])
        .args(["--nocapture", "--quiet"])
        .env(ROLE, "1")
        .env(SETTINGS, format!("{before},{settings}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// The program's output, if it has ended well and in time.
fn end(mut child: Child) -> std::result::Result<String, String> {
    let begin = Instant::now();
    let late = loop {
        match child.try_wait().unwrap() {
            Some(_) => break false,
            None if begin.elapsed() > PATIENCE => break true,
            None => std::thread::sleep(Duration::from_millis(2)),
        }
    };
    if late {
        child.kill().unwrap();
    }
    let output = child.wait_with_output().unwrap();
    let [text, errors] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    match (late, output.status.success()) {
        (false, true) => Ok(text.into_owned()),
        (late, _) => Err(format!(
            "{} (late: {late})\n{text}\n{errors}",
            output.status
        )),
    }
}

#[test]
#[ignore = "needs the driver without a GPU: run by `cargo xtask test --only cuda`"]
fn whatever_the_driver_refuses_is_an_error_or_makes_no_difference() {
    let device = Gpu::open(0).unwrap();
    let name = device.name();
    if !name.contains("without a GPU") {
        println!("skipped: {name} refuses nothing on request");
        return;
    }
    // If nothing is refused, the results are right.
    assert_eq!(
        end(start(""))
            .as_deref()
            .map(|text| text.contains("refused")),
        Ok(false)
    );
    let (mut refused, mut wrong) = (0, Vec::new());
    for function in vendor::calls() {
        for call in CALLS {
            let settings = format!("{function}={call}");
            match end(start(&settings)) {
                Ok(text) if text.contains("refused") => refused += 1,
                // The refusal made no difference, or there was no such call.
                Ok(_) => {}
                Err(what) => wrong.push(format!("{settings}: {what}")),
            }
        }
    }
    println!("{refused} refusals were errors of the program");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert!(refused > 40, "{refused}");
}
