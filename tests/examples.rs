//! The examples run on 1, 2, 3 and 8 ranks that are processes. (Each checks its own result.)

use std::path::PathBuf;

use tidegate::launch::{Job, Output};

fn program(name: &str) -> PathBuf {
    // Cargo tells tests where the binaries are, but not the examples, which lie beside them.
    let binary = PathBuf::from(env!("CARGO_BIN_EXE_tidegate"));
    let path = binary.with_file_name("examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: `cargo build --examples` makes it",
        path.display()
    );
    path
}

/// What each rank prints, in order of ranks.
fn run(name: &str, ranks: usize) -> Vec<String> {
    let job = Job::new(program(name), ranks).output(Output::Captured);
    let outcome = job.run().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    for (rank, ended) in outcome.ranks.iter().enumerate() {
        let errors = text(&ended.stderr);
        assert!(
            ended.status.success(),
            "{name}, rank {rank} of {ranks}: {}\n{errors}",
            ended.status
        );
    }
    outcome
        .ranks
        .iter()
        .map(|rank| text(&rank.stdout))
        .collect()
}

const SIZES: [usize; 4] = [1, 2, 3, 8];

#[test]
fn ring() {
    for ranks in SIZES {
        for (rank, text) in run("ring", ranks).iter().enumerate() {
            assert_eq!(
                *text,
                format!("rank {rank} of {ranks}: 1001 steps, all equal\n")
            );
        }
    }
}

#[test]
fn halo2d() {
    let mut sweeps = Vec::new();
    for ranks in SIZES {
        let texts = run("halo2d", ranks);
        assert!(texts[0].starts_with(&format!("{ranks} ranks, 24x24 unknowns: ")));
        assert!(texts[1..].iter().all(String::is_empty));
        let number = texts[0].split(' ').nth(4).unwrap();
        sweeps.push(number.parse::<u64>().unwrap());
    }
    assert!(
        sweeps.iter().all(|count| *count == sweeps[0]),
        "however it is spread, it is the same calculation: {sweeps:?}"
    );
}

#[test]
fn pipeline() {
    for ranks in SIZES {
        for (rank, text) in run("pipeline", ranks).iter().enumerate() {
            assert!(
                text.starts_with(&format!("rank {rank} of {ranks}: 200 blocks, ")),
                "{text}"
            );
        }
    }
}
