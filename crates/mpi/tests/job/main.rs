//! Jobs of MPI: this program starts itself under `mpirun`, for each case and number of ranks.
//!
//! Without arguments (or with a part of a case's name) it is the driver. It needs the `mpirun` of the MPI that it was
//! built with: `MPIRUN`, or else `mpirun.openmpi` or `mpirun.mpich`. If there is none, the test fails under `CI=true`.

mod cases;
mod ends;
mod epochs;
mod faces;
mod faulty;
mod hosts;
#[path = "../../../../tests/common/hydra.rs"]
mod hydra;
mod random;
mod rank;
#[allow(dead_code, reason = "other test programs have this module, too")]
#[path = "../../../../tests/schedules/mod.rs"]
mod schedules;
#[path = "../../../../tests/common/skipped.rs"]
mod skipped;
mod teams;

use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use hosts::Hosts;

/// How long the launcher may take to end after the other ranks, if a rank has died.
const LAUNCHER: Duration = Duration::from_secs(5);

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    if let [role, case] = &arguments[..]
        && role == "rank"
    {
        return cases::run(case);
    }
    let mpirun = Mpirun::find();
    if !mpirun.works() {
        let what = format!("`{}` does not run", mpirun.program);
        skipped::skipped("jobs of MPI", &what);
        return ExitCode::SUCCESS;
    }
    let wanted = |name: &str| {
        let mut parts = arguments.iter().filter(|each| !each.starts_with('-'));
        let mut none = parts.clone();
        none.next().is_none() || parts.any(|part| name.contains(part.as_str()))
    };
    if !cases::ALL.iter().any(|case| wanted(case.name)) {
        eprintln!("no job of MPI has a name that is asked for");
        return ExitCode::FAILURE;
    }
    let mut failed = 0;
    for case in cases::ALL.iter().filter(|case| wanted(case.name)) {
        for ranks in mpirun.jobs(case) {
            let began = Instant::now();
            let outcome = mpirun.run(case, ranks, None);
            let took = began.elapsed().as_secs_f64();
            match outcome {
                Ok(()) => println!("{} on {ranks} ranks ... ok ({took:.1} s)", case.name),
                Err(text) => {
                    println!("{} on {ranks} ranks ... FAILED: {text}", case.name);
                    failed += 1;
                }
            }
        }
    }
    if mpirun.open_mpi {
        println!(
            "several hosts: left out, because Open MPI 4 makes no windows over TCP for MPI_THREAD_MULTIPLE"
        );
    }
    for case in cases::ALL.iter().filter(|case| wanted(case.name)) {
        for (nodes, each) in case.hosts.iter().filter(|_| !mpirun.open_mpi) {
            let began = Instant::now();
            let Some(mut hosts) = Hosts::new(*nodes, *each) else {
                continue;
            };
            let outcome = mpirun.run(case, hosts.ranks(), Some(&mut hosts));
            let took = began.elapsed().as_secs_f64();
            let what = format!("{} on {nodes} hosts of {each}", case.name);
            match outcome {
                Ok(()) => println!("{what} ... ok ({took:.1} s)"),
                Err(text) => {
                    println!("{what} ... FAILED: {text}");
                    failed += 1;
                }
            }
        }
    }
    if failed > 0 {
        println!("{failed} jobs failed");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

struct Mpirun {
    program: String,
    open_mpi: bool,
}

impl Mpirun {
    fn find() -> Self {
        let version = mpi::environment::library_version().unwrap_or_default();
        let open_mpi = version.contains("Open MPI");
        let usual = if open_mpi {
            "mpirun.openmpi"
        } else {
            "mpirun.mpich"
        };
        let program = std::env::var("MPIRUN").unwrap_or_else(|_| usual.to_owned());
        println!("{}, {program}", version.lines().next().unwrap_or_default());
        Mpirun { program, open_mpi }
    }

    fn works(&self) -> bool {
        let mut command = Command::new(&self.program);
        command.arg("--version").stdout(Stdio::null());
        command.status().is_ok_and(|status| status.success())
    }

    /// The numbers of ranks of a case. MPICH never yields its processor. If there are more ranks than processors, each
    /// step of one rank takes the time slices of the others. So on few processors MPICH runs four ranks where others
    /// run more.
    fn jobs(&self, case: &cases::Case) -> Vec<usize> {
        let most = match thread::available_parallelism() {
            _ if self.open_mpi => usize::MAX,
            Ok(processors) if processors.get() >= 8 => usize::MAX,
            _ => 4,
        };
        let mut jobs: Vec<_> = case.ranks.iter().map(|ranks| *ranks.min(&most)).collect();
        jobs.dedup();
        jobs
    }

    /// Runs a case. The error says what went wrong.
    fn run(
        &self,
        case: &cases::Case,
        ranks: usize,
        mut hosts: Option<&mut Hosts>,
    ) -> Result<(), String> {
        for _ in 0..hydra::TIMES {
            if let Some(outcome) = self.run_once(case, ranks, hosts.as_deref_mut()).transpose() {
                return outcome;
            }
            if let Some(hosts) = &mut hosts {
                hosts.clear();
            }
        }
        Err("the launcher itself dies of SIGPIPE".to_owned())
    }

    /// Like `run`, once. `None`: the launcher itself failed.
    fn run_once(
        &self,
        case: &cases::Case,
        ranks: usize,
        mut hosts: Option<&mut Hosts>,
    ) -> Result<Option<()>, String> {
        let mut command = Command::new(&self.program);
        if self.open_mpi {
            command
                .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
                .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            command.args(["--oversubscribe", "--bind-to", "none"]);
            if case.dies {
                command.args([
                    "--enable-recovery",
                    "--mca",
                    "orte_abort_on_non_zero_status",
                    "0",
                ]);
            }
        } else if case.dies {
            command.arg("-disable-auto-cleanup");
        }
        if let Some(hosts) = &hosts {
            hosts.place(&mut command);
            command.env(rank::HOSTS, "1");
        }
        let secret = rank::secret();
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        command
            .arg("-n")
            .arg(ranks.to_string())
            .arg(own)
            .args(["rank", case.name])
            .env(rank::SECRET, secret)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = command.spawn().map_err(|e| e.to_string())?;
        let mut out = child.stdout.take().expect("it is piped");
        let said = Arc::new(Mutex::new(String::new()));
        let hears = said.clone();
        let heard = std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(bytes @ 1..) = std::io::Read::read(&mut out, &mut part) {
                let text = String::from_utf8_lossy(&part[..bytes]);
                hears.lock().expect("nobody panics").push_str(&text);
            }
        });
        let saw = || {
            let said = said.lock().expect("nobody panics");
            said.matches(rank::SAID).count()
        };
        let (began, limit) = (Instant::now(), (case.limit)());
        let mut all_said = None;
        let status = loop {
            if let Some(status) = child.try_wait().map_err(|e| e.to_string())? {
                break status;
            }
            if let Some(hosts) = &mut hosts {
                hosts.attend(&said.lock().expect("nobody panics"));
            }
            // A launcher that has lost a rank may not end after the others. And MPICH over TCP sometimes hangs in
            // MPI_Finalize if there are few processors (three of four ranks wait for the process manager, and the
            // fourth waits for them). The ranks have reported everything that matters.
            let enough = match hosts {
                Some(_) => ranks,
                None if case.dies => ranks - 1,
                None => usize::MAX,
            };
            if saw() == enough {
                let since: Instant = *all_said.get_or_insert_with(Instant::now);
                if since.elapsed() > LAUNCHER {
                    let _ = child.kill();
                    let _ = child.wait();
                    return Ok(Some(()));
                }
            }
            if began.elapsed() > limit {
                let _ = child.kill();
                let _ = child.wait();
                return Err(format!("it was stuck for {limit:?}"));
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        // Processes that the launcher has left behind end without it, and hold the pipe until then.
        if hydra::died_of_sigpipe(status) {
            return Ok(None);
        }
        let _ = heard.join();
        if !case.dies {
            return if status.success() {
                Ok(Some(()))
            } else {
                Err(format!("{status}\n{}", said.lock().expect("nobody panics")))
            };
        }
        // `mpirun` may report anything about a rank that died. The other ranks report what they saw.
        match saw() {
            all if all == ranks - 1 => Ok(Some(())),
            some => {
                let said = said.lock().expect("nobody panics");
                Err(format!("{some} of {} ranks saw it\n{said}", ranks - 1))
            }
        }
    }
}
