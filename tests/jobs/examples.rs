//! The examples run on 1, 2, 3 and 8 ranks that are processes, and some on two nodes. (Each checks its own result.)
//! Those for GPUs run on 1, 2, and as many ranks as there are GPUs: the step `cuda` has 8, of a driver without real
//! ones. And the commands in the README, the guide and CONTRIBUTING name existing programs.

use std::path::PathBuf;
use std::process::Command;

use tidegate::cuda::Cuda;
use tidegate_cli::{Job, Nodes, Output};
use tidegate_fabric::wire::libfabric::Choice;

use crate::common::skip::{provided, tcp};

pub(crate) fn program(name: &str) -> PathBuf {
    // Cargo does not tell tests where the examples are. They are beside the tests' folder.
    let test = std::env::current_exe().expect("this program");
    let path = test.with_file_name("../examples").join(name);
    assert!(
        path.exists(),
        "{} is missing: `cargo build --examples` makes it",
        path.display()
    );
    path
}

/// The output of each rank, in the order of ranks.
fn run(name: &str, ranks: usize) -> Vec<String> {
    outputs(name, Job::new(program(name), ranks))
}

/// The same, with ranks on two nodes, which reach each other by the loopback interface.
fn run_between_nodes(name: &str, each: usize) -> Vec<String> {
    let job = Job::new(program(name), 2 * each).nodes(Nodes::split(2, each));
    outputs(name, job.env(Choice::PROVIDER, tcp()))
}

pub(crate) fn outputs(name: &str, job: Job) -> Vec<String> {
    let outcome = job.output(Output::Captured).run().unwrap();
    let ranks = outcome.ranks.len();
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

pub(crate) const SIZES: [usize; 4] = [1, 2, 3, 8];

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
fn grid() {
    for (ranks, columns) in [(1, 1), (2, 1), (3, 1), (6, 2), (9, 3)] {
        for (rank, text) in run("grid", ranks).iter().enumerate() {
            let begins = format!("rank {rank}: {columns} columns, ");
            assert!(
                text.starts_with(&begins) && text.ends_with(": all sums are right\n"),
                "{text}"
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

/// It is the calculation of `halo2d`, so it takes as many sweeps.
#[test]
fn jacobi() {
    for ranks in SIZES {
        assert_eq!(run("jacobi", ranks), run("halo2d", ranks));
    }
}

#[test]
fn jacobi_persistent() {
    for ranks in SIZES {
        assert_eq!(run("jacobi_persistent", ranks), run("halo2d", ranks));
    }
}

#[test]
fn spmv() {
    let mut said = Vec::new();
    for ranks in SIZES {
        let texts = run("spmv", ranks);
        let rest =
            texts[0].strip_prefix(&format!("{ranks} ranks, 60 products of 1200 rows: norm "));
        said.push(rest.expect(&texts[0]).to_owned());
        assert!(texts[1..].iter().all(String::is_empty));
    }
    assert!(said.iter().all(|text| *text == said[0]), "{said:?}");
}

#[test]
fn moe() {
    for ranks in SIZES {
        let texts = run("moe", ranks);
        let steps = "20 steps of 64 tokens each, all equal";
        let experts = 2 * ranks;
        assert_eq!(
            texts[0],
            format!("{ranks} ranks, {experts} experts: {steps}\n")
        );
        assert!(texts[1..].iter().all(String::is_empty));
    }
}

#[test]
fn fft() {
    for ranks in SIZES {
        let texts = run("fft", ranks);
        let said = format!("{ranks} ranks, 32x32 values: the spectrum is right");
        assert!(texts[0].starts_with(&said), "{}", texts[0]);
    }
}

#[test]
fn heat3d() {
    let mut said = Vec::new();
    for ranks in SIZES {
        let texts = run("heat3d", ranks);
        let rest = texts[0].strip_prefix(&format!("{ranks} ranks, 18x18x18 elements: "));
        said.push(rest.expect(&texts[0]).to_owned());
        assert!(texts[1..].iter().all(String::is_empty));
    }
    assert!(
        said.iter().all(|text| *text == said[0]),
        "however it is spread, it is the same calculation: {said:?}"
    );
}

#[test]
fn particles() {
    for ranks in SIZES {
        let texts = run("particles", ranks);
        let begins = format!("{ranks} ranks, 2000 particles: 200 steps, ");
        let rest = texts[0].strip_prefix(&begins).expect(&texts[0]);
        assert!(texts[1..].iter().all(String::is_empty));
        let changed: usize = rest.split(' ').next().unwrap().parse().unwrap();
        assert_eq!(changed > 0, ranks > 1, "{rest}");
    }
}

#[test]
fn solvers_tokio() {
    for ranks in SIZES {
        let texts = run("solvers_tokio", ranks);
        assert_eq!(
            texts[0],
            format!("4 rods on {ranks} ranks: no heat is lost\n")
        );
        assert!(texts[1..].iter().all(String::is_empty));
    }
}

#[test]
fn verify() {
    for ranks in SIZES {
        let texts = run("verify", ranks);
        let (refused, proved) = texts[0].split_once("\nevery number").expect(&texts[0]);
        let never = "to post (window `ring`) once, and rank ";
        assert!(
            refused.contains(never) && refused.contains("examples/verify.rs:"),
            "{refused}"
        );
        let steps = 4 * ranks;
        let ends = format!(" of replays ends ({steps} waits and signals of {ranks} ranks)\n");
        assert_eq!(proved, ends);
        assert!(texts[1..].iter().all(String::is_empty));
    }
}

/// The output does not depend on how the ranks reach each other.
#[test]
fn between_two_nodes() {
    if !provided("examples::between_two_nodes", tcp()) {
        return;
    }
    for name in ["grid", "heat3d", "particles", "solvers_tokio"] {
        for each in [1, 4] {
            assert_eq!(run_between_nodes(name, each), run(name, 2 * each));
        }
    }
}

/// How many iterations `cg`, or `cg_gpu`, takes.
fn cg_iterations(name: &str, ranks: usize) -> u64 {
    let texts = run(name, ranks);
    let begins = format!("{ranks} ranks, 1500 vertices: ");
    let rest = texts[0].strip_prefix(&begins).expect(&texts[0]);
    assert!(texts[1..].iter().all(String::is_empty));
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// Convergence is checked once in 20 iterations, and the parts' sums are rounded in another order. So there may be one
/// check more or less.
fn about_as_many(iterations: &[u64]) {
    let (least, most) = (iterations.iter().min(), iterations.iter().max());
    assert!(most.unwrap() - least.unwrap() <= 20, "{iterations:?}");
}

#[test]
fn cg() {
    about_as_many(&SIZES.map(|ranks| cg_iterations("cg", ranks)));
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

#[test]
fn atomic() {
    for ranks in SIZES {
        let texts = run("atomic", ranks);
        for (rank, text) in texts.iter().enumerate() {
            let rounds = format!("rank {rank} of {ranks}: 20 rounds of 5 tasks, ");
            assert!(text.starts_with(&rounds), "{text}");
        }
        let prizes = texts.iter().filter(|text| text.ends_with(", the prize\n"));
        assert_eq!(prizes.count(), 1, "{texts:?}");
    }
}

/// One rank, two, which may have to share a GPU, and one for each GPU.
fn sizes_on_gpus() -> Vec<usize> {
    let mut sizes = vec![1, 2, Cuda::count().unwrap()];
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn ring_on_gpus() {
    for ranks in sizes_on_gpus() {
        assert_eq!(run("ring_gpu", ranks), run("ring", ranks));
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn halo2d_on_gpus() {
    for ranks in sizes_on_gpus() {
        // They have the same sweeps, and the same error in the end.
        assert_eq!(run("halo2d_gpu", ranks), run("halo2d", ranks));
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn cg_on_gpus() {
    let on_gpus = sizes_on_gpus().into_iter();
    let mut all: Vec<_> = on_gpus
        .map(|ranks| cg_iterations("cg_gpu", ranks))
        .collect();
    all.push(cg_iterations("cg", 1));
    about_as_many(&all);
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn pipeline_on_gpus() {
    for ranks in sizes_on_gpus() {
        assert_eq!(run("pipeline_gpu", ranks), run("pipeline", ranks));
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn heat3d_on_gpus() {
    for ranks in sizes_on_gpus() {
        // They have the same bits, and so the same steps.
        assert_eq!(run("heat3d_gpu", ranks), run("heat3d", ranks));
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn particles_on_gpus() {
    for ranks in sizes_on_gpus() {
        assert_eq!(run("particles_gpu", ranks), run("particles", ranks));
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn moe_on_gpus() {
    for ranks in sizes_on_gpus() {
        assert_eq!(run("moe_gpu", ranks), run("moe", ranks));
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn fft_on_gpus() {
    for ranks in sizes_on_gpus() {
        assert_eq!(run("fft_gpu", ranks), run("fft", ranks));
    }
}

/// All of them are the calculation of `halo2d`.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn jacobi_on_gpus() {
    for ranks in sizes_on_gpus() {
        let expected = run("halo2d", ranks);
        assert_eq!(run("jacobi_gpu", ranks), expected);
        assert_eq!(run("jacobi_persistent_gpu", ranks), expected);
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn solvers_on_gpus() {
    for ranks in sizes_on_gpus() {
        assert_eq!(run("solvers_tokio_gpu", ranks), run("solvers_tokio", ranks));
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn between_two_nodes_on_gpus() {
    if !provided("examples::between_two_nodes_on_gpus", tcp()) {
        return;
    }
    for name in ["particles", "solvers_tokio", "heat3d"] {
        let on_gpus = format!("{name}_gpu");
        assert_eq!(run_between_nodes(&on_gpus, 1), run(name, 2));
    }
}

#[test]
fn without_a_gpu_they_say_so() {
    if Cuda::count().is_ok_and(|gpus| gpus > 0) {
        println!("skipped: there is a GPU");
        return;
    }
    for name in [
        "ring_gpu",
        "halo2d_gpu",
        "pipeline_gpu",
        "cg_gpu",
        "heat3d_gpu",
        "particles_gpu",
        "solvers_tokio_gpu",
        "moe_gpu",
        "fft_gpu",
    ] {
        let ended = Command::new(program(name)).output().unwrap();
        let errors = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(1), "{name}: {errors}");
        assert!(
            errors.contains("there is no cuda device here: "),
            "{name}: {errors}"
        );
    }
}

/// The words behind `word` in commands: `example` for each `--example example`.
fn named<'a>(text: &'a str, word: &str) -> Vec<&'a str> {
    let ends = |c: char| !(c.is_ascii_alphanumeric() || "_-.".contains(c));
    text.split(word)
        .skip(1)
        .map(|rest| rest.split(ends).next().unwrap_or_default())
        .collect()
}

/// The commands in the README, the guide and CONTRIBUTING name existing programs. (Their Rust programs are
/// documentation tests.)
#[test]
fn the_commands_of_the_documentation_name_what_there_is() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let pages = std::fs::read_dir(root.join("docs")).unwrap();
    let pages = pages.map(|page| page.unwrap().path());
    let pages = pages.filter(|page| page.extension().is_some_and(|kind| kind == "md"));
    let others = ["README.md", "CONTRIBUTING.md"].map(|name| root.join(name));
    let texts = pages.chain(others);
    let text: String = texts
        .map(|page| std::fs::read_to_string(page).unwrap())
        .collect();
    for (word, folder, ending) in [
        ("--example ", "examples", ".rs"),
        ("release/examples/", "examples", ".rs"),
        ("`examples/", "examples", ""),
        ("--bench ", "benches", ".rs"),
        ("`scripts/", "scripts", ""),
    ] {
        let names = named(&text, word);
        assert!(!names.is_empty(), "nothing behind {word}");
        for name in names {
            let path = root.join(folder).join(format!("{name}{ending}"));
            let tool = root.join(format!("examples/tools/{name}.rs"));
            let exists = path.exists() || folder == "examples" && tool.exists();
            assert!(exists, "{word}{name}: no {}", path.display());
        }
    }
}
