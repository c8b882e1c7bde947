//! Other launchers, for tests: those that this machine has, and runs of this program's ranks under one of them.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]

#[path = "../../../../tests/common/hydra.rs"]
mod hydra;
#[path = "../../../../tests/common/skipped.rs"]
mod skipped;

pub(crate) use skipped::skipped as skip;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tidegate_boot::TcpControl;
use tidegate_hal::control::Control;

/// Longer than any run here takes on a loaded machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

/// The program's place on `PATH`.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// The result of a run.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// The output of the launcher and of the ranks.
    pub(crate) printed: String,
    /// The reports of all ranks, sorted.
    pub(crate) reports: Vec<String>,
    pub(crate) took: Duration,
}

impl Ended {
    /// How many reports equal this one.
    pub(crate) fn count(&self, report: &str) -> usize {
        self.reports.iter().filter(|own| *own == report).count()
    }

    /// The report that begins with `begin`.
    pub(crate) fn report(&self, begin: &str) -> &str {
        let found = self.reports.iter().find(|own| own.starts_with(begin));
        found.unwrap_or_else(|| panic!("no report {begin:?}: {self:?}"))
    }
}

/// The variable with the folder for the ranks' reports. It also marks their processes.
pub(crate) const REPORTS: &str = "TEST_REPORTS";

fn folder() -> PathBuf {
    PathBuf::from(std::env::var_os(REPORTS).expect("started by `run`"))
}

/// The reports in a folder that are complete.
pub(crate) fn reports_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).expect("a folder");
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some()).collect()
}

/// How many reports all ranks have left so far.
pub(crate) fn reports() -> usize {
    reports_in(&folder()).len()
}

/// Leaves a report. It is complete or missing, since a launcher may end the rank at any moment.
pub(crate) fn report(text: &str) {
    let folder = folder();
    let pid = std::process::id();
    let draft = folder.join(pid.to_string());
    std::fs::write(&draft, text).expect("a report");
    let free = (0..).map(|number| folder.join(format!("{pid}.{number}")));
    let path = free.into_iter().find(|path| !path.exists());
    std::fs::rename(draft, path.expect("a free name")).expect("a report");
}

/// One launcher runs at a time, since launchers are not made for many at once.
static ALONE: Mutex<()> = Mutex::new(());

/// Joins the job. If that fails, reports why, and panics.
pub(crate) fn join() -> TcpControl {
    TcpControl::from_env().unwrap_or_else(|error| {
        report(&format!("error {error}"));
        std::process::exit(3);
    })
}

/// Every rank sends its number to every other, and reports it, with the number of nodes.
pub(crate) fn exchange(control: &TcpControl) {
    let (rank, size) = (control.rank(), control.size());
    let all = control.exchange("number", vec![rank as u8]);
    let all = all.expect("an exchange");
    let numbers: Vec<_> = all.iter().map(|said| usize::from(said[0])).collect();
    assert_eq!(numbers, (0..size).collect::<Vec<_>>());
    let mut nodes: Vec<_> = (0..size).map(|rank| control.node(rank)).collect();
    nodes.dedup();
    report(&format!("rank {rank} of {size} on {} nodes", nodes.len()));
}

/// Runs a launcher to its end. Panics if it does not end, or leaves a process behind.
pub(crate) fn run(mut command: Command) -> Ended {
    run_with(&mut command, |_, _, _| {})
}

/// Like [`run`], but calls `meanwhile` with the launcher after its start, and with the paths of its output and of the
/// reports. The result of `meanwhile` is kept until nothing of the job is left.
pub(crate) fn run_with<T>(
    command: &mut Command,
    mut meanwhile: impl FnMut(&mut Child, &Path, &Path) -> T,
) -> Ended {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut jobs = (0..hydra::TIMES).map(|_| launch(command, &mut meanwhile));
    let ended = jobs.find_map(|(ended, died)| (!died).then_some(ended));
    ended.expect("a launcher that does not die of SIGPIPE")
}

/// Like [`run_with`], once. Also returns whether the launcher itself failed.
fn launch<T>(
    command: &mut Command,
    meanwhile: impl FnOnce(&mut Child, &Path, &Path) -> T,
) -> (Ended, bool) {
    let folder = tempfile::tempdir().expect("a folder");
    let printed = folder.path().join("printed");
    let file = std::fs::File::create(&printed).expect("a file");
    let reports = folder.path().join("reports");
    std::fs::create_dir(&reports).expect("a folder");
    command
        .env(REPORTS, &reports)
        // Open MPI's launcher keeps its files here.
        .env("TMPDIR", folder.path())
        .stdin(Stdio::null())
        .stdout(file.try_clone().expect("a file"))
        .stderr(file);
    let began = Instant::now();
    let mut child = command.spawn().expect("the launcher starts");
    let mut kept = Some(meanwhile(&mut child, &printed, &reports));
    let status = wait(&mut child, &printed);
    let took = began.elapsed();
    // A launcher that died has not ended its processes.
    let died = hydra::died_of_sigpipe(status);
    if died {
        kept = None;
    }
    // The launcher's own processes may take a moment longer than the launcher.
    let left = || left_behind(&reports);
    while began.elapsed() < took + Duration::from_secs(30) && !left().is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    let printed = String::from_utf8_lossy(&std::fs::read(&printed).expect("a file")).into_owned();
    assert!(left().is_empty(), "left behind: {:?}\n{printed}", left());
    drop(kept);
    let texts = reports_in(&reports)
        .into_iter()
        .map(std::fs::read_to_string);
    let mut reports: Vec<_> = texts.map(|text| text.expect("a report")).collect();
    reports.sort();
    let ended = Ended {
        status,
        printed,
        reports,
        took,
    };
    (ended, died)
}

fn wait(child: &mut Child, printed: &Path) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            return status;
        }
        if began.elapsed() > LIMIT {
            let _ = child.kill();
            let _ = child.wait();
            let printed = std::fs::read_to_string(printed).unwrap_or_default();
            panic!("the launcher does not end:\n{printed}");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The processes, other than zombies, that have this folder in their environment and still run.
fn left_behind(reports: &Path) -> Vec<u32> {
    let mark = format!("{REPORTS}={}", reports.display());
    let processes = std::fs::read_dir("/proc").expect("a list of processes");
    let numbers = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let marked = |pid: &u32| {
        std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|all| {
            all.split(|byte| *byte == 0)
                .any(|one| one == mark.as_bytes())
        })
    };
    numbers.filter(marked).collect()
}
