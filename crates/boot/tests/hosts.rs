//! Ranks of several hosts, which are network namespaces, under MPICH's launcher. The test starts the launcher's daemons
//! there itself, as the launcher allows.

#[path = "common/foreign.rs"]
mod foreign;

use foreign::{Ended, REPORTS, exchange, find, join, run_with, skip};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_hal::control::Control;
use tidegate_testbed::Bed;

/// This is not a test, but a rank's program.
#[test]
fn role_of_a_rank() {
    if std::env::var_os("TEST_ROLE").is_none() {
        return;
    }
    let control = join();
    exchange(&control);
    control.leave();
    // It does not return, because the test harness would go on.
    std::process::exit(0);
}

/// Runs `each` ranks on each node of a bed; `env` is for all of them.
fn run(bed: &Bed, each: usize, env: &[(&str, &str)]) -> Ended {
    let ranks = (each * bed.nodes()).to_string();
    let hosts: Vec<_> = (0..bed.nodes())
        .map(|node| format!("node{node}:{each}"))
        .collect();
    let mut mpirun = Command::new(find("mpirun.mpich").expect("it was there"));
    mpirun.args(["-launcher", "manual", "-hosts", &hosts.join(",")]);
    mpirun.args(["-localhost", &bed.address(0).to_string(), "-n", &ranks]);
    mpirun.arg(std::env::current_exe().expect("this program"));
    mpirun.args(["--exact", "role_of_a_rank", "--nocapture", "--quiet"]);
    mpirun
        .env("TEST_ROLE", "exchange")
        .envs(env.iter().copied());
    bed.enter(0, &mut mpirun);
    run_with(&mut mpirun, |launcher, printed, reports| {
        let daemons = asked_for(launcher, printed);
        if let Some(daemons) = &daemons {
            assert_eq!(daemons.len(), bed.nodes(), "{daemons:?}");
        }
        start(bed, &daemons.unwrap_or_default(), reports)
    })
}

/// A daemon of the launcher. Dropping it ends it.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The daemons that the launcher asks for, a command each, in the order of nodes. `None`: the launcher has ended
/// before.
fn asked_for(launcher: &mut Child, printed: &Path) -> Option<Vec<String>> {
    let began = Instant::now();
    loop {
        // This is checked before the output is read, so that the output is complete.
        let has_ended = launcher.try_wait().expect("it can be waited for").is_some();
        let text = std::fs::read_to_string(printed).expect("a file");
        if text.contains("HYDRA_LAUNCH_END") {
            let lines = text
                .lines()
                .filter_map(|line| line.strip_prefix("HYDRA_LAUNCH: "));
            return Some(lines.map(str::to_owned).collect());
        }
        if has_ended {
            return None;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{text}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn start(bed: &Bed, daemons: &[String], reports: &Path) -> Vec<Daemon> {
    let start = |(node, line): (usize, &String)| {
        let mut words = line.split_whitespace();
        let mut daemon = Command::new(words.next().expect("a program"));
        daemon
            .args(words)
            .env(REPORTS, reports)
            .stdin(Stdio::null());
        daemon.stdout(Stdio::null()).stderr(Stdio::null());
        bed.enter(node, &mut daemon);
        Daemon(daemon.spawn().expect("the daemon starts"))
    };
    daemons.iter().enumerate().map(start).collect()
}

#[test]
fn ranks_of_several_hosts_find_rank_0_at_one_of_its_addresses() {
    let test = "ranks_of_several_hosts_find_rank_0_at_one_of_its_addresses";
    if find("mpirun.mpich").is_none() {
        return skip(test, "there is no mpirun.mpich");
    }
    for (nodes, each) in [(2, 1), (2, 3), (3, 2)] {
        let Some(bed) = Bed::builder(nodes).build_or_skip(test) else {
            return;
        };
        let ended = run(&bed, each, &[]);
        assert!(ended.status.success(), "{ended:#?}");
        let size = nodes * each;
        for rank in 0..size {
            let report = format!("rank {rank} of {size} on {nodes} nodes");
            assert_eq!(ended.count(&report), 1, "{ended:#?}");
        }
        println!("{nodes} hosts of {each} ranks: {:?}", ended.took);
    }
}

#[test]
fn an_address_that_others_cannot_reach_is_said_so() {
    let test = "an_address_that_others_cannot_reach_is_said_so";
    if find("mpirun.mpich").is_none() {
        return skip(test, "there is no mpirun.mpich");
    }
    let Some(bed) = Bed::builder(2).build_or_skip(test) else {
        return;
    };
    let run_there = |timeout: &str| {
        let env = [
            ("TIDEGATE_ADDRESS", "127.0.0.1"),
            ("TIDEGATE_RENDEZVOUS_TIMEOUT", timeout),
        ];
        let ended = run(&bed, 1, &env);
        assert!(!ended.status.success(), "{ended:#?}");
        ended
    };
    // Before any attempt.
    let about = |report: &&String| report.contains("and 0 attempts");
    // Rank 0 waits this long for the other rank, and both for the launcher's store, which takes longer on a slow
    // machine.
    let mut ended = run_there("3");
    if !ended.reports.iter().any(|report| about(&report)) {
        ended = run_there("30");
    }
    let error = ended.reports.iter().find(about);
    let error = error.unwrap_or_else(|| panic!("{ended:#?}"));
    assert!(
        error.contains("loopback") && error.contains("TIDEGATE_ADDRESS"),
        "{error}"
    );
    // The address that is right for rank 0.
    let address = bed.address(0).to_string();
    let ended = run(&bed, 1, &[("TIDEGATE_ADDRESS", &address)]);
    assert!(ended.status.success(), "{ended:#?}");
}
