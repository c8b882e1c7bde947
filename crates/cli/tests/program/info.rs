//! `tidegate info`.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Output};

use tidegate_cli::Bed;
use tidegate_fabric::wire::libfabric;

use crate::skip::{provided, tcp};

/// `tidegate info` in an environment without variables of tidegate's.
fn info(args: &[&str]) -> Command {
    let mut command = super::launcher();
    for (name, _) in std::env::vars_os() {
        if name.as_bytes().starts_with(b"TIDEGATE_") {
            command.env_remove(name);
        }
    }
    command.arg("info").args(args);
    command
}

/// What it prints, if it succeeds.
fn told(command: &mut Command) -> String {
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    text(&output)
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Whether a line has these words, however wide its columns are.
fn has_line(text: &str, words: &str) -> bool {
    let of = |line: &str| line.split_whitespace().collect::<Vec<_>>().join(" ");
    text.lines().any(|line| of(line) == words)
}

#[test]
fn output_that_finds_no_room_is_an_error_and_said() {
    let full = std::fs::File::options().write(true).open("/dev/full");
    let output = info(&[]).stdout(full.unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    let why = "tidegate: writing to standard output: No space left";
    assert!(said.contains(why), "{said}");
}

#[test]
fn who_reads_no_more_is_told_nothing() {
    let (read, written) = std::io::pipe().unwrap();
    drop(read);
    let output = info(&[]).stdout(written).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!said.contains("standard output"), "{said}");
}

#[test]
fn it_tells_of_drivers_providers_and_limits() {
    let told = told(&mut info(&[]));
    match tidegate_cuda::here() {
        Ok(here) => {
            let count = format!("NVIDIA GPUs  {}, by {}", here.gpus.len(), here.library);
            assert!(told.contains(&count), "{told}");
        }
        Err(_) => {
            let none =
                "NVIDIA GPUs  none: no CUDA driver library could be opened; tried libcuda.so.1";
            assert!(told.contains(none), "{told}");
        }
    }
    match libfabric::here() {
        Ok(here) => {
            let (major, minor) = here.version;
            let library = format!("libfabric {major}.{minor}, with {}", here.providers[0]);
            assert!(told.contains(&library), "{told}");
        }
        Err(error) => assert!(told.contains(&error.to_string()), "{told}"),
    }
    assert!(told.contains("of locked memory (ulimit -l)"), "{told}");
    assert!(!told.contains("Look at these variables"), "{told}");
    assert!(!told.contains("A job of"), "{told}");
}

#[test]
fn what_is_wrong_with_variables_comes_first() {
    let mut command = info(&[]);
    command
        .env("TIDEGATE_RUOTE", "nic")
        .env("TIDEGATE_RAILS", "9")
        .env("TIDEGATE_ROUTE", "both")
        .env("TIDEGATE_CHUNKS", "many")
        .env("TIDEGATE_GPU_GATES", "open")
        .env("TIDEGATE_DEVICE", OsStr::from_bytes(b"\xff"));
    let told = told(&mut command);
    let first: Vec<_> = told.lines().take_while(|line| !line.is_empty()).collect();
    assert_eq!(first[0], "Look at these variables:");
    for words in [
        "TIDEGATE_RUOTE is set, and nothing reads it; the nearest name is TIDEGATE_ROUTE",
        "TIDEGATE_RAILS=9: it must be a number from 1 to 4",
        "TIDEGATE_ROUTE=both: ",
        "TIDEGATE_CHUNKS=many: ",
        "TIDEGATE_GPU_GATES=open: it must be one of: auto, always, never",
        "TIDEGATE_DEVICE=\u{fffd}: it is not UTF-8",
    ] {
        assert!(
            first.iter().any(|line| line.contains(words)),
            "{words}: {told}"
        );
    }
    assert_eq!(first.len(), 7, "{told}");
}

#[test]
fn variables_have_values_and_sources() {
    let mut command = info(&[
        "-n",
        "1",
        "--device",
        "host",
        "-e",
        "TIDEGATE_JOB_ID=mine",
        "-x",
        "TIDEGATE_RAILS=2",
    ]);
    command
        .env("TIDEGATE_SECRET", "nobody may read this")
        .env("TIDEGATE_RAILS", "1");
    command.env_remove("CUDA_MODULE_LOADING");
    let told = told(&mut command);
    for words in [
        "TIDEGATE_JOB_ID mine option -e",
        "TIDEGATE_RAILS 2 option -x",
        "TIDEGATE_SECRET (20 bytes) environment",
        "CUDA_MODULE_LOADING EAGER tidegate run",
    ] {
        assert!(has_line(&told, words), "{words}: {told}");
    }
    assert!(!told.contains("nobody"), "{told}");
    assert!(!told.contains("TIDEGATE_ENGINE"), "{told}");
    let told = self::told(&mut info(&["--all"]));
    assert!(has_line(&told, "TIDEGATE_ENGINE auto"), "{told}");
}

#[test]
fn ranks_of_one_node_map_each_other() {
    let told = told(&mut info(&["-n", "3", "--device", "host"]));
    assert!(
        told.contains("A job of 3 ranks on 1 node, 1 host:"),
        "{told}"
    );
    let words = "all ranks to all others: mapped memory, because they are on one node";
    assert!(has_line(&told, words), "{told}");
    assert!(!told.contains("NIC"), "{told}");
}

/// The processes of another launcher are ranks by themselves; here it is the same launcher.
#[test]
fn it_is_a_rank_of_any_launcher() {
    let program = env!("CARGO_BIN_EXE_tidegate");
    let mut command = super::launcher();
    command.args(["run", "-n", "2", "--no-label", "-e", "TIDEGATE_JOB_ID=mine"]);
    let told = told(command.args([program, "info", "--rank", "--device", "host"]));
    assert_eq!(
        told.matches("A job of 2 ranks on 1 node, 1 host:").count(),
        1,
        "{told}"
    );
    assert_eq!(told.matches("limits").count(), 1, "{told}");
    assert!(
        has_line(&told, "TIDEGATE_JOB_ID mine environment"),
        "{told}"
    );
}

#[test]
fn a_job_that_lacks_its_provider_says_which_there_are() {
    if !provided("a_job_that_lacks_its_provider_says_which_there_are", tcp()) {
        return;
    }
    let args = [
        "--nodes",
        "2x1",
        "--device",
        "host",
        "-e",
        "TIDEGATE_PROVIDER=pigeon",
    ];
    let output = info(&args).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("TIDEGATE_PROVIDER=pigeon: libfabric has no such provider here"),
        "{said}"
    );
    assert!(said.contains("sockets"), "{said}");
}

#[test]
fn nodes_reach_each_other_by_nic() {
    let test = "nodes_reach_each_other_by_nic";
    if !provided(test, tcp()) {
        return;
    }
    let provider = format!("TIDEGATE_PROVIDER={}", tcp());
    let args = ["--nodes", "2x2", "--device", "host", "-e", &provider];
    let check = |told: &str| {
        let nic = format!("NIC ({}, software engine)", tcp());
        for words in [
            "all ranks to their node: mapped memory, because they are on one node".to_owned(),
            format!("all ranks to other nodes: {nic}, because they are on different nodes"),
        ] {
            assert!(has_line(told, &words), "{words}: {told}");
        }
        assert!(
            told.contains("TIDEGATE_PROVIDER names the provider"),
            "{told}"
        );
    };
    check(&told(&mut info(&args)));
    // Rank 0 asks for the NIC to rank 1, which is on its node.
    let asked = told(info(&args).args(["-e", "TIDEGATE_ROUTE=nic:1"]));
    let nic = format!("NIC ({}, software engine)", tcp());
    let words = format!("rank 0 to its node: {nic}, because TIDEGATE_ROUTE=nic:1 asks for it");
    assert!(has_line(&asked, &words), "{asked}");
    let refused = told(info(&args).args(["-e", "TIDEGATE_ROUTE=mapped"]));
    let words = "all ranks to other nodes: none: they are on different nodes, and TIDEGATE_ROUTE=mapped allows no NIC";
    assert!(has_line(&refused, words), "{refused}");
    if Bed::builder(2).build_or_skip(test).is_some() {
        check(&told(info(&args).arg("--netns")));
    }
}

/// `cargo xtask test cuda` runs it over the driver without a GPU.
#[test]
#[ignore = "it needs several GPUs, or the driver without one"]
fn gpus_are_listed_and_shared_out() {
    let count = tidegate_cuda::here().unwrap().gpus.len();
    assert!(count > 1);
    let told = told(&mut info(&["-n", "2"]));
    assert!(
        told.contains(&format!("NVIDIA GPUs  {count}, by libcuda.so")),
        "{told}"
    );
    assert!(
        told.contains(&format!("GPUs 0 to {}: ", count - 1)),
        "{told}"
    );
    for rank in 0..2 {
        let row = told
            .lines()
            .find(|line| line.trim_start().starts_with(&format!("{rank} ")));
        let row = row.unwrap_or_else(|| panic!("{told}"));
        assert!(row.contains(&format!("GPU {rank}, ")), "{told}");
        assert!(row.contains(", 32 hardware queues"), "{told}");
    }
    let words = "all ranks to all others: mapped memory, because they are on one node";
    assert!(has_line(&told, words), "{told}");
}
