//! `tidegate doctor` finds what is wrong, by itself.

use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

use tidegate_cli::Bed;

use crate::skip::{provided, tcp};
use crate::waits::without_waits;

/// A shell that runs `tidegate doctor` with little time for figures, after `first`, without variables of tidegate's.
fn doctor_after(first: &str, args: &[&str]) -> Command {
    let mut command = Command::new("/bin/sh");
    for (name, _) in std::env::vars_os() {
        if name.as_bytes().starts_with(b"TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command.args([
        "-c",
        &format!("{first}; exec \"$0\" doctor --seconds 1 \"$@\""),
    ]);
    command.arg(env!("CARGO_BIN_EXE_tidegate")).args(args);
    command
}

fn doctor(args: &[&str]) -> Command {
    doctor_after("true", args)
}

/// What it says, if it ends with this code.
fn said(command: &mut Command, code: i32) -> String {
    let output: Output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert_eq!(without_waits(&String::from_utf8_lossy(&output.stderr)), "");
    String::from_utf8(output.stdout).unwrap()
}

/// The one finding of a report, with the advice.
fn finding(said: &str) -> (&str, &str) {
    let lines = || said.lines().map(str::trim);
    let found: Vec<_> = lines().filter_map(|line| line.strip_prefix("- ")).collect();
    let advice: Vec<_> = lines()
        .filter_map(|line| line.strip_prefix("do: "))
        .collect();
    match (&found[..], &advice[..]) {
        ([found], [advice]) => (found, advice),
        _ => panic!("{said}"),
    }
}

/// Whether there are figures of all pairs.
fn has_figures(said: &str, ranks: usize) -> bool {
    let rows = said.lines().filter(|line| {
        let mut cells = line.split_whitespace();
        let is_row = cells
            .next()
            .is_some_and(|cell| cell.parse::<usize>().is_ok());
        let numbers = cells.filter(|cell| cell.parse::<f64>().is_ok_and(|number| number > 0.0));
        is_row && numbers.count() == ranks - 1
    });
    rows.count() == 2 * ranks
}

const TWO: [&str; 4] = ["-n", "2", "--device", "host"];

/// Allows enough of everything, as far as the machine does.
const ENOUGH: &str = "ulimit -n 1024; ulimit -l $(ulimit -H -l)";

#[test]
fn a_healthy_job_has_no_findings_and_figures_of_each_pair() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("report.html");
    let mut command = doctor_after(ENOUGH, &TWO);
    let said = said(command.arg("--html").arg(&page), 0);
    let begin = "tidegate doctor: 2 ranks on 1 node, 1 host, host streams\n\nNothing is wrong.\n";
    assert!(said.starts_with(begin), "{said}");
    assert!(has_figures(&said, 2), "{said}");
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.starts_with("<!doctype html>"), "{page}");
    for part in ["Nothing is wrong.", "title=\"0 to 1\"", "title=\"1 to 0\""] {
        assert!(page.contains(part), "{part}: {page}");
    }
}

#[test]
fn a_rank_of_another_launcher_can_be_examined() {
    let mut command = super::launcher();
    command.args(["run", "-n", "2", "--no-label"]);
    command.arg(env!("CARGO_BIN_EXE_tidegate"));
    command.args(["doctor", "--rank", "--device", "host", "--seconds", "0"]);
    let said = said(&mut command, 0);
    assert_eq!(
        said.matches("tidegate doctor: 2 ranks").count(),
        1,
        "{said}"
    );
    assert!(has_figures(&said, 2), "{said}");
}

#[test]
fn too_few_descriptors_are_found() {
    let said = said(&mut doctor_after("ulimit -n 64", &TWO), 1);
    let (found, advice) = finding(&said);
    assert!(
        found.starts_with("ranks 0-1 on node 0 may have 64 descriptors: "),
        "{said}"
    );
    assert!(advice.starts_with("`ulimit -n 256` in the shell"), "{said}");
    assert!(advice.contains("the hard limit is 64"), "{said}");
}

/// Nothing in this job locks memory, which the note says.
#[test]
fn little_locked_memory_is_found() {
    let said = said(&mut doctor_after("ulimit -l 64", &TWO), 0);
    let (found, advice) = finding(&said);
    let words = "note: ranks 0-1 on node 0 may lock 64 KiB of memory; this job locks none";
    assert!(found.starts_with(words), "{said}");
    assert!(advice.contains("`ulimit -l unlimited`"), "{said}");
}

#[test]
fn an_address_of_another_host_is_found_before_a_nic_waits_for_it() {
    let address = ["-e", "TIDEGATE_ADDRESS=192.0.2.7"];
    for (job, who) in [
        (&TWO[..], "ranks 0-1 on node 0"),
        (
            &["--nodes", "2x1", "--device", "host"],
            "ranks 0-1 on nodes 0-1",
        ),
    ] {
        let said = said(&mut doctor(&[job, &address].concat()), 1);
        let (found, advice) = finding(&said);
        let words = format!("{who}: TIDEGATE_ADDRESS=192.0.2.7 is no address of their host: ");
        assert!(found.starts_with(&words), "{said}");
        assert!(
            advice.starts_with("unset TIDEGATE_ADDRESS, or set it"),
            "{said}"
        );
    }
}

#[test]
fn variables_that_nothing_reads_or_that_cannot_be_read_are_found() {
    let said = said(
        doctor(&TWO).args(["-e", "TIDEGATE_RUOTE=nic", "-e", "TIDEGATE_RAILS=9"]),
        1,
    );
    for words in [
        "2 things are wrong:",
        "- ranks 0-1 on node 0: TIDEGATE_RUOTE is set, and nothing reads it; the nearest name is TIDEGATE_ROUTE",
        "- ranks 0-1 on node 0: TIDEGATE_RAILS=9: it must be a number from 1 to 4",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn ranks_on_one_processor_are_found() {
    // The first processor that this process may use.
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let allowed = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = allowed
        .and_then(|list| list.trim().split([',', '-']).next())
        .unwrap();
    let bind = format!("taskset -p -c {first} $$ > /dev/null");
    let said = said(&mut doctor_after(&bind, &TWO), 1);
    let (found, advice) = finding(&said);
    let words = format!("ranks 0-1 on node 0 share processor {first}, and may use no other");
    assert_eq!(found, words, "{said}");
    assert!(advice.starts_with("`tidegate run --bind core`"), "{said}");
}

#[test]
fn a_rank_without_its_job_says_what_it_knows() {
    let mut command = doctor_after("ulimit -n 64", &["--rank", "--device", "host"]);
    // Rank 1 of 2, and no rank 0 listens at this port.
    command.env("RANK", "1").env("WORLD_SIZE", "2");
    command
        .env("MASTER_ADDR", "127.0.0.1")
        .env("MASTER_PORT", "1");
    command.env("TIDEGATE_SECRET", "0123456789abcdef");
    command.env("TIDEGATE_RENDEZVOUS_TIMEOUT", "1");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8(output.stdout).unwrap();
    for words in [
        "rank 1 on node 0 may have 64 descriptors",
        "rank 1 on node 0 does not join the job: ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn options_that_do_not_exist_end_it_with_2() {
    let output = doctor(&["--seconds", "1000"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}

#[test]
fn nodes_are_measured_and_their_addresses_tried() {
    let test = "nodes_are_measured_and_their_addresses_tried";
    if !provided(test, tcp()) {
        return;
    }
    let provider = format!("TIDEGATE_PROVIDER={}", tcp());
    let nodes = ["--nodes", "2x1", "--device", "host", "-e", &provider];
    let check = |args: &[&str]| {
        let said = said(&mut doctor_after(ENOUGH, args), 0);
        let begin =
            "tidegate doctor: 2 ranks on 2 nodes, 1 host, host streams\n\nNothing is wrong.\n";
        assert!(said.starts_with(begin), "{said}");
        assert!(has_figures(&said, 2), "{said}");
    };
    check(&nodes);
    if Bed::builder(2).build_or_skip(test).is_none() {
        return;
    }
    let apart = [&nodes[..], &["--netns"]].concat();
    check(&apart);
    // Each node has this address, and so it leads to the caller itself.
    let said = said(
        &mut doctor(&[&apart[..], &["-e", "TIDEGATE_ADDRESS=127.0.0.1"]].concat()),
        1,
    );
    for words in [
        "2 things are wrong:",
        "- rank 0 on node 0 does not reach rank 1 on node 1 at TIDEGATE_ADDRESS=127.0.0.1: port ",
        "- rank 1 on node 1 does not reach rank 0 on node 0 at TIDEGATE_ADDRESS=127.0.0.1: port ",
        "do: set TIDEGATE_ADDRESS on each host",
        "(the pairs were not measured)",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
}

#[test]
fn a_route_that_is_not_allowed_is_found() {
    let args = [
        "--nodes",
        "2x1",
        "--device",
        "host",
        "-e",
        "TIDEGATE_ROUTE=mapped",
    ];
    let said = said(&mut doctor(&args), 1);
    for (rank, other) in [(0, 1), (1, 0)] {
        let words = format!(
            "- rank {rank} on node {rank} has no route to rank {other}: another node, and TIDEGATE_ROUTE allows no NIC"
        );
        assert!(said.contains(&words), "{said}");
    }
}

/// `cargo xtask test cuda` runs these over the driver without a GPU.
mod gpus {
    use super::*;

    /// Two ranks, with these devices of the driver without a GPU.
    fn doctor(devices: &str, args: &[&str]) -> Command {
        let mut command = doctor_after(ENOUGH, &["-n", "2", "--device", "cuda"]);
        command.env("TIDEGATE_FAKE_CUDA", devices).args(args);
        command
    }

    #[test]
    #[ignore = "it needs the driver without a GPU"]
    fn ranks_on_gpus_of_their_own_are_healthy() {
        let said = said(&mut doctor("devices=2", &[]), 0);
        assert!(said.contains("Nothing is wrong."), "{said}");
        assert!(has_figures(&said, 2), "{said}");
    }

    #[test]
    #[ignore = "it needs the driver without a GPU"]
    fn ranks_that_share_a_gpu_without_mps_are_found() {
        let said = said(&mut doctor("devices=1", &[]), 1);
        let (found, advice) = finding(&said);
        let words = "ranks 0-1 on node 0 share GPU 0 without MPS, so their kernels run in turn";
        assert_eq!(found, words, "{said}");
        assert!(advice.starts_with("`nvidia-cuda-mps-control -d`"), "{said}");
        assert!(has_figures(&said, 2), "{said}");
        let said = self::said(&mut doctor("devices=1,mps=1", &[]), 0);
        assert!(said.contains("Nothing is wrong."), "{said}");
    }

    #[test]
    #[ignore = "it needs the driver without a GPU"]
    fn too_few_hardware_queues_are_found() {
        let few = ["-e", "CUDA_DEVICE_MAX_CONNECTIONS=1"];
        let said = said(&mut doctor("devices=2", &few), 1);
        let (found, advice) = finding(&said);
        let words = "ranks 0-1 on node 0 have 3 hardware queues of the GPU: room for 1 stream";
        assert_eq!(found, words, "{said}");
        assert!(
            advice.starts_with("CUDA_DEVICE_MAX_CONNECTIONS=32 for all ranks"),
            "{said}"
        );
    }
}
