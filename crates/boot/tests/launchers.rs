//! Ranks that `mpirun` has started, of Open MPI and of MPICH. They are this program again, without MPI.

#[path = "common/foreign.rs"]
mod foreign;
#[path = "../../../tests/common/held.rs"]
mod held;

use foreign::{Ended, exchange, find, join, report, reports, reports_in, run, run_with, skip};
use held::Held;
use std::process::Command;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tidegate_boot::{BootError, TcpControl};
use tidegate_hal::control::{Control, Event};

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// A launcher of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mpirun {
    OpenMpi,
    Mpich,
}

const BOTH: [Mpirun; 2] = [Mpirun::OpenMpi, Mpirun::Mpich];

impl Mpirun {
    fn program(self) -> &'static str {
        match self {
            Mpirun::OpenMpi => "mpirun.openmpi",
            Mpirun::Mpich => "mpirun.mpich",
        }
    }

    /// Its MPI library, for programs with MPI.
    fn library(self) -> &'static str {
        match self {
            Mpirun::OpenMpi => "libmpi.so.40",
            Mpirun::Mpich => "libmpich.so.12",
        }
    }

    /// A command that starts this program `ranks` times. `None`: the launcher is missing, and the test is skipped.
    fn job(self, test: &str, role: &str, ranks: usize) -> Option<Command> {
        self.job_with(test, role, ranks, &[])
    }

    fn job_with(self, test: &str, role: &str, ranks: usize, args: &[&str]) -> Option<Command> {
        let Some(program) = find(self.program()) else {
            skip(test, &format!("there is no {}", self.program()));
            return None;
        };
        let mut command = Command::new(program);
        if self == Mpirun::OpenMpi {
            command.args(["--allow-run-as-root", "--oversubscribe"]);
        }
        command.args(args).arg("-n").arg(ranks.to_string());
        command.arg(std::env::current_exe().expect("this program"));
        command.args(["--exact", "role_of_a_rank", "--nocapture", "--quiet"]);
        command.env("TEST_ROLE", role);
        command.env("TEST_MPI", self.library());
        Some(command)
    }
}

/// This is not a test, but a rank's program.
#[test]
fn role_of_a_rank() {
    let Ok(role) = std::env::var("TEST_ROLE") else {
        return;
    };
    play(&role);
    // It does not return, because the test harness would go on.
    std::process::exit(0);
}

fn play(role: &str) {
    match role {
        "exchange" => {
            let control = join();
            exchange(&control);
            control.leave();
        }
        "again" => {
            let control = join();
            exchange(&control);
            let error = TcpControl::from_env().expect_err("the first is still there");
            let rank = control.rank();
            assert!(
                matches!(error, BootError::Joined { rank: own } if own == rank),
                "{error}"
            );
            drop(control);
            for _ in 0..4 {
                exchange(&join());
            }
        }
        "die" => {
            let control = join();
            exchange(&control);
            if control.rank() == 1 {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("a kill");
            }
            // The launcher ends it, or it gets the error of a lost rank.
            let error = control.exchange("never", Vec::new());
            error.expect_err("rank 1 is dead");
        }
        "exit without leaving" => {
            let control = join();
            let events = events(&control);
            exchange(&control);
            if control.rank() == 1 {
                std::process::exit(0);
            }
            let event = events.recv_timeout(LONG).expect("an event");
            assert!(matches!(event, Event::Lost { rank: 1, .. }), "{event:?}");
            report("lost 1");
            control.leave();
        }
        "one does not come" => {
            let rank = ["PMIX_RANK", "PMI_RANK"].map(std::env::var);
            if rank.into_iter().flatten().any(|rank| rank == "1") {
                std::thread::sleep(LONG);
                return;
            }
            let began = Instant::now();
            let error = TcpControl::from_env().expect_err("rank 1 does not come");
            assert!(began.elapsed() < LONG / 2, "{error}");
            report(&format!("{error}"));
            std::process::exit(3);
        }
        "the launcher hangs" => {
            use rustix::process::{Signal, getppid, kill_process};
            // The launcher must start the other rank first.
            report("here");
            let began = Instant::now();
            while reports() < 2 {
                assert!(began.elapsed() < LONG / 2, "the other does not come");
                std::thread::sleep(Duration::from_millis(1));
            }
            let launcher = getppid().expect("a parent");
            kill_process(launcher, Signal::STOP).expect("a signal");
            let error = TcpControl::from_env().expect_err("nobody answers");
            report(&format!("error {error}"));
        }
        "alone" => {
            let control = join();
            report(&format!("{} of {}", control.rank(), control.size()));
        }
        "mpi" => mpi(),
        other => panic!("no such role: {other}"),
    }
}

fn events(control: &TcpControl) -> Receiver<Event> {
    let (sender, events) = channel();
    let sender = Mutex::new(sender);
    control.subscribe(Arc::new(move |event| {
        let _ = sender.lock().expect("a lock").send(event);
    }));
    events
}

/// A program with MPI, which it initialises, finalises and drops in the order of `TEST_ORDER`.
fn mpi() {
    type Init = unsafe extern "C" fn(usize, usize) -> i32;
    type Finalize = unsafe extern "C" fn() -> i32;
    let name = std::env::var("TEST_MPI").expect("a name");
    use libloading::os::unix;
    // SAFETY: the library is MPI, which programs are linked with.
    let library = unsafe { unix::Library::open(Some(name), unix::RTLD_NOW | unix::RTLD_GLOBAL) };
    let library = library.expect("MPI is there, since its launcher is");
    let mut control = None;
    for step in std::env::var("TEST_ORDER").expect("an order").split(' ') {
        match step {
            "init" => {
                // SAFETY: null pointers are allowed for both arguments, and have the size of a number.
                let code = unsafe { library.get::<Init>(b"MPI_Init").expect("a function")(0, 0) };
                assert_eq!(code, 0);
            }
            "finalize" => {
                // SAFETY: it takes no arguments.
                let code = unsafe {
                    library
                        .get::<Finalize>(b"MPI_Finalize")
                        .expect("a function")()
                };
                assert_eq!(code, 0);
            }
            "join" => {
                let joined = join();
                exchange(&joined);
                control = Some(joined);
            }
            "leave" => drop(control.take()),
            other => panic!("no such step: {other}"),
        }
    }
    report("done");
    // Its code is still needed when the process ends.
    std::mem::forget(library);
}

fn all_are_there(ended: &Ended, ranks: usize, times: usize) {
    assert!(ended.status.success(), "{ended:#?}");
    for rank in 0..ranks {
        let report = format!("rank {rank} of {ranks} on 1 nodes");
        assert_eq!(ended.count(&report), times, "{report}: {ended:#?}");
    }
}

#[test]
fn ranks_of_mpirun_join_and_leave() {
    for mpirun in BOTH {
        for ranks in [1, 2, 3, 8] {
            let Some(job) = mpirun.job("ranks_of_mpirun_join_and_leave", "exchange", ranks) else {
                continue;
            };
            let ended = run(job);
            all_are_there(&ended, ranks, 1);
            println!("{mpirun:?}, {ranks} ranks: {:?}", ended.took);
        }
    }
}

#[test]
fn hydra_may_be_met_at_a_port_or_in_version_2() {
    let test = "hydra_may_be_met_at_a_port_or_in_version_2";
    for (args, launcher) in [
        (&["-pmi-port"][..], "pmi"),
        (&[], "pmi2"),
        (&["-pmi-port"], "pmi2"),
    ] {
        let Some(mut job) = Mpirun::Mpich.job_with(test, "exchange", 3, args) else {
            return;
        };
        job.env("TIDEGATE_LAUNCHER", launcher);
        all_are_there(&run(job), 3, 1);
    }
}

#[test]
fn ranks_of_mpirun_may_join_again() {
    for mpirun in BOTH {
        let job = mpirun.job("ranks_of_mpirun_may_join_again", "again", 3);
        if let Some(job) = job {
            all_are_there(&run(job), 3, 5);
        }
    }
    // The same with `RANK`.
    let job = tidegate_cli::Job::this_program(3).unwrap();
    let reports = tempfile::tempdir().unwrap();
    let outcome = job
        .args(["--exact", "role_of_a_rank", "--nocapture", "--quiet"])
        .env("TEST_ROLE", "again")
        .env("TEST_REPORTS", reports.path())
        .output(tidegate_cli::Output::Captured)
        .run()
        .unwrap();
    assert!(outcome.success(), "{outcome:?}");
}

#[test]
fn a_dead_rank_ends_the_job() {
    for mpirun in BOTH {
        let Some(job) = mpirun.job("a_dead_rank_ends_the_job", "die", 4) else {
            continue;
        };
        let ended = run(job);
        assert!(!ended.status.success(), "{ended:#?}");
        assert!(ended.took < LONG / 2, "{ended:#?}");
        // The launcher may end the others before they can report.
        assert_eq!(ended.count("rank 1 of 4 on 1 nodes"), 1, "{ended:#?}");
        println!("{mpirun:?}: {:?} after {:?}", ended.status, ended.took);
    }
}

#[test]
fn a_rank_that_ends_by_itself_is_no_failure_to_the_launcher() {
    for mpirun in BOTH {
        let test = "a_rank_that_ends_by_itself_is_no_failure_to_the_launcher";
        let Some(job) = mpirun.job(test, "exit without leaving", 3) else {
            continue;
        };
        let ended = run(job);
        all_are_there(&ended, 3, 1);
        assert_eq!(ended.count("lost 1"), 2, "{ended:#?}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_waited_for_no_longer_than_the_timeout() {
    // The launcher ends the job when the first rank gives up, so others may not report.
    let at_the_fence = |ended: &Ended| {
        let parts = ["did not answer", "waiting for all ranks"];
        let is_it = |said: &String| parts.iter().all(|part| said.contains(part));
        ended.reports.iter().any(is_it)
    };
    for mpirun in BOTH {
        let test = "a_rank_that_does_not_come_is_waited_for_no_longer_than_the_timeout";
        let Some(mut job) = mpirun.job(test, "one does not come", 3) else {
            continue;
        };
        let mut run = |timeout: &str| {
            job.env("TIDEGATE_RENDEZVOUS_TIMEOUT", timeout);
            run_with(&mut job, |_, _, _| {})
        };
        // On a slow machine the ranks may not have come to the fence by then. Then the test tries a longer limit.
        let mut ended = run("2");
        if !at_the_fence(&ended) {
            ended = run("15");
        }
        assert!(!ended.status.success(), "{ended:#?}");
        assert!(ended.took < LONG / 2, "{ended:#?}");
        assert!(at_the_fence(&ended), "{ended:#?}");
    }
}

/// (The unit tests of the client cover a PMI server that is silent.)
#[test]
fn a_launcher_that_hangs_is_waited_for_no_longer_than_the_timeout() {
    let test = "a_launcher_that_hangs_is_waited_for_no_longer_than_the_timeout";
    let Some(mut job) = Mpirun::OpenMpi.job(test, "the launcher hangs", 2) else {
        return;
    };
    job.env("TIDEGATE_RENDEZVOUS_TIMEOUT", "1");
    let ended = run_with(&mut job, |launcher, _, reports| {
        let began = Instant::now();
        while reports_in(reports).len() < 4 {
            assert!(began.elapsed() < LONG / 2, "the ranks wait for ever");
            std::thread::sleep(Duration::from_millis(10));
        }
        // The launcher cannot end by itself.
        launcher.kill().expect("a signal");
    });
    let silent = |report: &&String| report.contains("did not answer for");
    let silent = ended.reports.iter().filter(silent).count();
    assert_eq!((ended.count("here"), silent), (2, 2), "{ended:#?}");
}

#[test]
fn a_process_that_wants_no_job_is_alone() {
    for mpirun in BOTH {
        let Some(mut job) = mpirun.job("a_process_that_wants_no_job_is_alone", "alone", 2) else {
            continue;
        };
        job.env("TIDEGATE_LAUNCHER", "none");
        let ended = run(job);
        assert!(
            ended.status.success() && ended.count("0 of 1") == 2,
            "{ended:#?}"
        );
    }
}

#[test]
fn a_secret_of_ones_own_needs_no_store() {
    let test = "a_secret_of_ones_own_needs_no_store";
    let secret = "a secret that only this test knows";
    if let Some(mut job) = Mpirun::OpenMpi.job(test, "exchange", 3) {
        // The library is not there either.
        job.env("TIDEGATE_SECRET", secret);
        job.env("TIDEGATE_LIBPMIX", "/nowhere/libpmix.so.2");
        all_are_there(&run(job), 3, 1);
    }
    if let Some(mut job) = Mpirun::Mpich.job(test, "exchange", 3) {
        job.env("TIDEGATE_SECRET", secret);
        let ended = run(job);
        assert!(ended.report("error").contains("MASTER_PORT"), "{ended:#?}");
    }
    if let Some(mut job) = Mpirun::Mpich.job(test, "exchange", 3) {
        // The port is reserved until rank 0 listens there.
        let held = Held::new();
        job.env("TIDEGATE_SECRET", secret);
        job.env("MASTER_PORT", held.port.to_string());
        all_are_there(&run(job), 3, 1);
    }
}

#[test]
fn a_library_that_is_missing_is_named_with_advice() {
    for library in ["/nowhere/libpmix.so.2", "libc.so.6"] {
        let test = "a_library_that_is_missing_is_named_with_advice";
        let Some(mut job) = Mpirun::OpenMpi.job(test, "exchange", 2) else {
            return;
        };
        job.env("TIDEGATE_LIBPMIX", library);
        let ended = run(job);
        assert!(!ended.status.success(), "{ended:#?}");
        let error = ended.report("error");
        for part in [
            library,
            "Open MPI",
            "TIDEGATE_SECRET",
            "TIDEGATE_LAUNCHER=none",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}

#[test]
fn an_mpi_of_the_programs_own_is_not_disturbed() {
    for mpirun in BOTH {
        for order in [
            "init join leave finalize",
            "init join finalize leave",
            "join init leave finalize",
            "join init finalize leave",
            // MPI is linked, and not used.
            "join leave",
        ] {
            let test = "an_mpi_of_the_programs_own_is_not_disturbed";
            let Some(mut job) = mpirun.job(test, "mpi", 2) else {
                continue;
            };
            job.env("TEST_ORDER", order);
            let ended = run(job);
            all_are_there(&ended, 2, 1);
            assert_eq!(ended.count("done"), 2, "{mpirun:?}, {order}: {ended:#?}");
        }
    }
}

#[test]
fn an_mpi_that_is_over_has_closed_its_descriptor_or_has_not() {
    let test = "an_mpi_that_is_over_has_closed_its_descriptor_or_has_not";
    if let Some(mut job) = Mpirun::OpenMpi.job(test, "mpi", 2) {
        job.env("TEST_ORDER", "init finalize join leave");
        job.env("TIDEGATE_RENDEZVOUS_TIMEOUT", "20");
        // On a loaded machine Open MPI's server sometimes loses a process whose MPI has just ended, as the module
        // `launchers` says.
        let mut jobs = (0..3).map(|_| run_with(&mut job, |_, _, _| {}));
        let ended = jobs.find_map(|ended| match ended.status.success() {
            true => Some(ended),
            false => {
                println!("{ended:#?}");
                None
            }
        });
        all_are_there(&ended.expect("one of three works"), 2, 1);
    }
    if let Some(mut job) = Mpirun::Mpich.job(test, "mpi", 2) {
        job.env("TEST_ORDER", "init finalize join leave");
        let ended = run(job);
        let error = ended.report("error");
        assert!(error.contains("MPI has been finalised"), "{error}");
    }
}
