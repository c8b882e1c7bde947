//! The examples under `mpirun`, of Open MPI and of MPICH, on 1, 2, 3 and 8 ranks. They are programs without MPI, which
//! join their job all the same. (Each checks its own result.)

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::common::hydra;
use crate::common::skip::skipped;

const SIZES: [usize; 4] = [1, 2, 3, 8];

fn program(name: &str) -> PathBuf {
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

/// Whether there is such a program.
fn is_there(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// The output of the ranks, sorted. `None`: this launcher is missing, which was reported.
fn run(test: &str, mpirun: &str, name: &str, ranks: usize) -> Option<Vec<String>> {
    if !is_there(mpirun) {
        skipped(test, &format!("there is no {mpirun}"));
        return None;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(mpirun);
    if mpirun == "mpirun.openmpi" {
        command.args(["--allow-run-as-root", "--oversubscribe"]);
    }
    command.args(["-n", &ranks.to_string()]).arg(program(name));
    // Open MPI's launcher keeps its files there, and two launchers may disturb each other.
    command.env("TMPDIR", folder.path()).stdin(Stdio::null());
    let mut outputs = (0..hydra::TIMES).map(|_| command.output().expect("the launcher starts"));
    let output = outputs.find(|output| !hydra::died_of_sigpipe(output.status));
    let output = output.expect("a launcher that does not die of SIGPIPE");
    let errors = String::from_utf8_lossy(&output.stderr);
    let status = output.status;
    assert!(
        status.success(),
        "{mpirun} -n {ranks} {name}: {status}\n{errors}"
    );
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    Some(lines)
}

fn under(test: &str, mpirun: &str) {
    for ranks in SIZES {
        let Some(lines) = run(test, mpirun, "ring", ranks) else {
            return;
        };
        let expected = |rank| format!("rank {rank} of {ranks}: 1001 steps, all equal");
        let expected: Vec<_> = (0..ranks).map(expected).collect();
        assert_eq!(lines, expected);
        let lines = run(test, mpirun, "halo2d", ranks).expect("it was there");
        assert_eq!(lines.len(), 1, "{lines:?}");
        let begin = format!("{ranks} ranks, 24x24 unknowns: ");
        assert!(lines[0].starts_with(&begin), "{lines:?}");
        let lines = run(test, mpirun, "particles", ranks).expect("it was there");
        assert_eq!(lines.len(), 1, "{lines:?}");
        let begin = format!("{ranks} ranks, 2000 particles: 200 steps, ");
        assert!(lines[0].starts_with(&begin), "{lines:?}");
        let lines = run(test, mpirun, "pipeline", ranks).expect("it was there");
        assert_eq!(lines.len(), ranks, "{lines:?}");
        for (rank, line) in lines.iter().enumerate() {
            let begin = format!("rank {rank} of {ranks}: 200 blocks, ");
            assert!(line.starts_with(&begin), "{line}");
        }
    }
}

#[test]
fn examples_under_open_mpis_launcher() {
    under("examples_under_open_mpis_launcher", "mpirun.openmpi");
}

#[test]
fn examples_under_mpichs_launcher() {
    under("examples_under_mpichs_launcher", "mpirun.mpich");
}
