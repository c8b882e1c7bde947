//! Processes that use one GPU by MPS. Their kernels run at the same time, so waits have no gates, and the blocks that
//! may wait are divided.
//!
//! # Model
//!
//! Each test starts a control daemon of its own, with folders of its own, and ends it, even if the test fails. Only the
//! children know the daemon, by their environment, and no setting of the GPU is changed. The controls are the same
//! programs without the rule: `rules::waits_on_a_shared_gpu_take_no_slices` (without MPS), and here as many jobs of one
//! rank as the job has ranks, which do not know each other.

use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tidegate::cuda::QUEUES;
use tidegate::cuda::gpu::COPY_ENGINE_FROM;
use tidegate::cuda::prelude::*;

use super::rules::{EPOCHS, Ended, LOADING, child, job, say, to_and_fro_on_one_gpu};
use crate::gpu::common::W;

const CONTROL: &str = "nvidia-cuda-mps-control";
const PIPES: &str = "CUDA_MPS_PIPE_DIRECTORY";
const LOGS: &str = "CUDA_MPS_LOG_DIRECTORY";
const PERCENTAGE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";

/// The variable with a folder in which each process leaves a file when its blocks wait, and with the number of
/// processes.
const READY: &str = "TIDEGATE_GPU_ALL_READY";
const COUNT: &str = "TIDEGATE_GPU_ALL";

/// If this many processes each believe to be alone, they want more blocks than any GPU of today holds at a time: 49 for
/// a stream on a GPU of 132 multiprocessors, each of which holds four at most.
const RANKS: usize = 12;

/// A control daemon, for the test that has started it.
struct Daemon {
    folder: PathBuf,
    started: bool,
}

impl Daemon {
    fn start(name: &str) -> Self {
        // Sockets are there, so their paths must be short.
        let folder = format!("tg-mps-{}-{name}", std::process::id());
        let folder = Path::new("/tmp").join(folder);
        for part in ["pipe", "log", "ready"] {
            std::fs::create_dir_all(folder.join(part)).unwrap();
        }
        let mut daemon = Daemon {
            folder,
            started: false,
        };
        match daemon.control().arg("-d").status() {
            Ok(status) => assert!(
                status.success(),
                "`{CONTROL} -d` ended with {status}: {}",
                daemon.logs()
            ),
            Err(error) if error.kind() == ErrorKind::NotFound => panic!(
                "there is no `{CONTROL}` on the PATH ({:?}): it comes with the driver (nvidia-compute-utils), and so does the `nvidia-cuda-mps-server` that it starts",
                std::env::var_os("PATH").unwrap_or_default()
            ),
            Err(error) => panic!("`{CONTROL} -d` cannot be started: {error}"),
        }
        daemon.started = true;
        daemon
    }

    /// The control program for this daemon, with one GPU, however many there are.
    fn control(&self) -> Command {
        let mut command = Command::new(CONTROL);
        command
            .env(PIPES, self.folder.join("pipe"))
            .env(LOGS, self.folder.join("log"))
            .env("CUDA_VISIBLE_DEVICES", "0")
            .env_remove(PERCENTAGE)
            // The daemon keeps its standard streams open.
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// The environment for children. They have fewer connections than usual, since MPS has about 100 for all of them.
    fn environment(&self) -> Vec<(&'static str, String)> {
        let path = |part: &str| self.folder.join(part).to_str().unwrap().to_owned();
        vec![
            (PIPES, path("pipe")),
            (LOGS, path("log")),
            (READY, path("ready")),
            (COUNT, RANKS.to_string()),
            ("CUDA_VISIBLE_DEVICES", "0".into()),
            (QUEUES, "6".into()),
            (LOADING, "EAGER".into()),
            // Blocks should wait, and no couriers.
            (COPY_ENGINE_FROM, "never".into()),
        ]
    }

    /// The logs of the daemon and its server.
    fn logs(&self) -> String {
        let read = |name: &str| {
            let text = std::fs::read_to_string(self.folder.join("log").join(name));
            format!(
                "{name}: {}\n",
                text.unwrap_or_else(|error| error.to_string())
            )
        };
        read("control.log") + &read("server.log")
    }

    /// Asks the daemon to end, and its server. Returns whether it confirmed that in time.
    fn quit(&self) -> std::io::Result<bool> {
        let mut quit = self.control().stdin(Stdio::piped()).spawn()?;
        // After some seconds it ends by force, since clients that hung may not be quite gone.
        let asked = quit.stdin.take().map(|mut to| to.write_all(b"quit -t 5\n"));
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_secs(30) {
            if let Some(status) = quit.try_wait()? {
                return Ok(status.success() && asked.is_some_and(|asked| asked.is_ok()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        quit.kill()?;
        quit.wait()?;
        Ok(false)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if !self.started {
            return drop(std::fs::remove_dir_all(&self.folder));
        }
        if std::thread::panicking() {
            eprintln!("{}", self.logs());
        }
        match self.quit() {
            Ok(true) => drop(std::fs::remove_dir_all(&self.folder)),
            other => eprintln!(
                "the daemon in {} has not ended: {other:?}",
                self.folder.display()
            ),
        }
    }
}

fn borrowed<'a>(environment: &'a [(&'a str, String)]) -> Vec<(&'a str, &'a str)> {
    let each = environment.iter();
    each.map(|(name, value)| (*name, value.as_str())).collect()
}

/// Under MPS processes have no time slices, so waits need no gates, and have none.
#[test]
#[ignore = "needs a GPU and MPS: run by scripts/gpu.sh"]
fn waits_by_mps_are_short_without_gates() {
    let daemon = Daemon::start("gates");
    let environment = daemon.environment();
    let (spinning, text) = to_and_fro_on_one_gpu("auto", &borrowed(&environment));
    assert_eq!(
        text.matches("by MPS: true").count(),
        2,
        "the ranks do not use the GPU by MPS: {text}"
    );
    let (gated, _) = to_and_fro_on_one_gpu("always", &borrowed(&environment));
    let each = |took: Duration| took.as_micros() as f64 / f64::from(EPOCHS);
    println!(
        "to and fro by MPS, us: {:.1}, and {:.1} with gates",
        each(spinning),
        each(gated)
    );
    // With time slices it takes thousands, and with gates hundreds.
    assert!(each(spinning) < 150.0, "{spinning:?}");
    assert!(
        spinning < gated,
        "{spinning:?} without gates, {gated:?} with them: were there gates in both?"
    );
}

/// A rank puts to itself, and wants all blocks of its stream. They wait for another stream, which goes on when all
/// processes wait. Prints the result.
pub(super) fn all_wait() {
    let world = W::init().unwrap();
    match together(&world) {
        Ok(()) => say("went on"),
        Err(error) => say(&format!("refused: {error}")),
    }
    // No process ends while others wait.
    world.all_gather("end", Vec::new()).unwrap();
}

fn together(world: &W) -> Result<()> {
    const LEN: usize = 1 << 20;
    let me = world.rank();
    stream!(let s = world.stream()?);
    stream!(let t = world.stream()?);
    let mut window = SlotWindow::<u64>::new("own").buffers(Buffers::Single);
    window.slot_from(me, 0, LEN);
    let to = window.slot_to(me, 0);
    let (inbox, outbox) = window.open(&s)?;
    let inbox = s.hand_off(inbox, &t)?;
    let src = Region::from_slice(world, &vec![7u64; LEN])?.on(&s)?;
    // The first launch is made before. After that the second is only a launch, and needs nothing else of a full GPU.
    let exposed = inbox.post(&t)?;
    t.synchronize()?;
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    let outbox = epoch.complete(&s)?;
    let inbox = exposed.wait(&t)?;
    s.synchronize()?;
    t.synchronize()?;
    all_have_come("begin");

    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    let outbox = epoch.complete(&s)?;
    // By now as many of its blocks as find room are resident.
    std::thread::sleep(Duration::from_millis(300));
    assert!(!s.is_idle(), "nothing is exposed");
    all_have_come("waiting");
    say("waiting");
    let inbox = inbox.post(&t)?.wait(&t)?;
    t.synchronize()?;
    s.synchronize()?;
    drop((inbox, outbox));
    Ok(())
}

/// Waits until all processes have come here, whether or not they are of one job.
fn all_have_come(place: &str) {
    let folder = std::env::var_os(READY).unwrap();
    let folder = Path::new(&folder).join(place);
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join(std::process::id().to_string()), "").unwrap();
    let count: usize = std::env::var(COUNT).unwrap().parse().unwrap();
    let begin = Instant::now();
    while std::fs::read_dir(&folder).unwrap().count() < count {
        assert!(
            begin.elapsed() < Duration::from_secs(50),
            "not all have come to `{place}`"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

const ROLE: &str = "all wait";

/// Rule 20, for all processes of a GPU together. Its control comes below.
#[test]
#[ignore = "needs a GPU and MPS: run by scripts/gpu.sh"]
fn blocks_of_all_processes_leave_room() {
    let daemon = Daemon::start("room");
    let Ended { well, hung, text } = job(RANKS, ROLE, &borrowed(&daemon.environment()));
    let went_on = text.matches("went on").count();
    assert!(
        well && went_on == RANKS,
        "{went_on} of {RANKS} ranks that divide a GPU went on (hung: {hung}): {text}"
    );
}

/// More connections than MPS has: either the driver makes no context, which is an error that says so, or all ranks go
/// on.
#[test]
#[ignore = "needs a GPU and MPS: run by scripts/gpu.sh"]
fn connections_that_are_not_there_are_refused() {
    let daemon = Daemon::start("queues");
    let mut environment = daemon.environment();
    environment.push((QUEUES, "32".into()));
    let Ended { well, hung, text } = job(RANKS, ROLE, &borrowed(&environment));
    let refused = text
        .matches("what the MPS server has for processes")
        .count();
    println!("{RANKS} ranks with 32 connections each: well: {well}, {refused} were refused");
    let went_on = text.matches("went on").count();
    assert!(
        !hung && (well && went_on == RANKS || refused > 0),
        "well: {well}, hung: {hung}: {text}"
    );
}

/// The control for that room: processes that have not met each take the blocks of a process that is alone.
#[test]
#[ignore = "needs a GPU and MPS: run by scripts/gpu.sh"]
fn processes_that_do_not_divide_keep_each_other_out() {
    let daemon = Daemon::start("control");
    let mut environment = daemon.environment();
    environment.push(("TIDEGATE_LAUNCHER", "none".into()));
    let environment = borrowed(&environment);
    let ended: Vec<Ended> = std::thread::scope(|scope| {
        let children = [(); RANKS].map(|()| scope.spawn(|| child(ROLE, &environment)));
        children.map(|child| child.join().unwrap()).into()
    });
    let hung = ended.iter().filter(|ended| ended.hung).count();
    println!("{hung} of {RANKS} processes that do not divide a GPU hung");
    let texts: String = ended.iter().map(|ended| ended.text.as_str()).collect();
    assert!(
        hung > 0,
        "processes that each take all of the GPU should keep each other out: dividing is not what helps here\n{texts}"
    );
}

/// A portion of the GPU that is too small for a block of each process is an error, and no process hangs.
#[test]
#[ignore = "needs a GPU and MPS: run by scripts/gpu.sh"]
fn a_portion_that_is_too_small_is_refused() {
    let daemon = Daemon::start("portion");
    let mut environment = daemon.environment();
    environment.push((PERCENTAGE, "8".into()));
    let Ended { hung, text, .. } = job(RANKS, ROLE, &borrowed(&environment));
    // A rank is refused by its own device, or because the first rank that was refused tells the others.
    let is_refused = |line: &&str| {
        line.starts_with("refused: ") && line.contains("out of blocks that may wait on the device")
    };
    let refused = text.lines().filter(is_refused).count();
    assert!(
        !hung && refused == RANKS,
        "{refused} of {RANKS} ranks were refused (hung: {hung}); does the driver say how many multiprocessors a portion has? {text}"
    );
}
