//! Worlds of communicators, in jobs that an MPI's launcher has started. The ranks are this test program again, each in
//! a role.
//!
//! The launcher is that of the MPI with which this was built; `TIDEGATE_MPIRUN` names another one.

#[path = "common/hydra.rs"]
mod hydra;
#[path = "processes/ring.rs"]
mod ring;

use std::path::PathBuf;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate::host::prelude::*;
use tidegate::mpi::MpiError;
use tidegate::mpi::mpi::collective::SystemOperation;
use tidegate::mpi::mpi::topology::SimpleCommunicator;
use tidegate::mpi::mpi::traits::*;
use tidegate::mpi::mpi::{self, Threading, ffi};

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(600);
const ROLE: &str = "TIDEGATE_TEST_ROLE";
/// The variable that marks the processes of a job.
const MARK: &str = "TIDEGATE_TEST_MARK";

/// How a job ended.
struct Ended {
    status: ExitStatus,
    said: String,
}

impl Ended {
    /// How many ranks printed this.
    fn count(&self, what: &str) -> usize {
        self.said.matches(what).count()
    }

    fn all_said(&self, what: &str, ranks: usize) {
        assert!(
            self.status.success() && self.count(what) == ranks,
            "{}: {}",
            self.status,
            self.said
        );
    }
}

fn launcher() -> Command {
    let version = mpi::environment::library_version().expect("it is text");
    let open = version.contains("Open MPI");
    let name = match std::env::var_os("TIDEGATE_MPIRUN") {
        Some(name) => name,
        None if open => "mpirun.openmpi".into(),
        None => "mpirun.mpich".into(),
    };
    let mut command = Command::new(name);
    if open {
        command
            .arg("--oversubscribe")
            .env("OMPI_ALLOW_RUN_AS_ROOT", "1")
            .env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    command
}

fn run(role: &str, ranks: usize) -> Ended {
    run_with(role, &[(ranks, &[])])
}

/// Runs a job with several groups of ranks, each with variables of its own. Asserts that nothing is left.
fn run_with(role: &str, parts: &[(usize, &[(&str, &str)])]) -> Ended {
    let mut jobs = (0..hydra::TIMES).map(|_| run_once(role, parts));
    let ended = jobs.find(|ended| !hydra::died_of_sigpipe(ended.status));
    ended.expect("a launcher that does not die of SIGPIPE")
}

fn run_once(role: &str, parts: &[(usize, &[(&str, &str)])]) -> Ended {
    static JOBS: AtomicUsize = AtomicUsize::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let mark = format!("{}-{number}", std::process::id());
    let folder = folder(&mark);
    std::fs::create_dir(&folder).unwrap();
    let (out, place) = file(&folder, "out");
    let this = std::env::current_exe().unwrap();
    let mut command = launcher();
    for (index, (ranks, variables)) in parts.iter().enumerate() {
        if index > 0 {
            command.arg(":");
        }
        command.args(["-n", &ranks.to_string()]);
        if !variables.is_empty() {
            command.arg("env");
            command.args(
                variables
                    .iter()
                    .map(|(name, value)| format!("{name}={value}")),
            );
        }
        command.arg(&this);
        command.args(["--exact", "a_rank", "--nocapture", "--quiet"]);
    }
    let mut running = command
        .env(ROLE, role)
        .env(MARK, &mark)
        .env("RUST_BACKTRACE", "0")
        .stdin(Stdio::null())
        .stdout(out.try_clone().unwrap())
        .stderr(out)
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let started = Instant::now();
    let status = loop {
        if let Some(status) = running.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LONG {
            let _ = running.kill();
            let _ = running.wait();
            let said = std::fs::read_to_string(&place).unwrap();
            panic!("`{role}` hangs: {said}");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    let said = std::fs::read_to_string(&place).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_nothing_left(&mark);
    Ended { status, said }
}

/// The folder of a job, by its mark.
fn folder(mark: &str) -> PathBuf {
    std::env::temp_dir().join(format!("tidegate-mpi-{mark}"))
}

fn file(folder: &std::path::Path, name: &str) -> (std::fs::File, PathBuf) {
    let place = folder.join(name);
    (std::fs::File::create(&place).unwrap(), place)
}

/// Asserts that no process of the job runs, and that no shared memory of this library has a name.
fn assert_nothing_left(mark: &str) {
    let line = format!("{MARK}={mark}");
    let left = || {
        let all = std::fs::read_dir("/proc").unwrap().flatten();
        let theirs = all.filter(|entry| {
            let variables = std::fs::read(entry.path().join("environ")).unwrap_or_default();
            variables
                .split(|byte| *byte == 0)
                .any(|one| one == line.as_bytes())
        });
        theirs.map(|entry| entry.file_name()).collect::<Vec<_>>()
    };
    // A launcher may return a moment before the processes that it has killed are gone.
    let started = Instant::now();
    while !left().is_empty() {
        assert!(started.elapsed() < LONG, "processes are left: {:?}", left());
        std::thread::sleep(Duration::from_millis(10));
    }
    for entry in std::fs::read_dir("/dev/shm")
        .into_iter()
        .flatten()
        .flatten()
    {
        let name = entry.file_name();
        assert!(
            !name.to_string_lossy().contains("tidegate"),
            "{name:?} is left"
        );
    }
}

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    if role == "states" {
        return states();
    }
    // This asks for no more threads than most programs.
    let universe = mpi::initialize().expect("nobody was here before");
    let comm = universe.world();
    let result = match &*role {
        "ring" => whole(&comm),
        "split" => split(&comm),
        "two" => two(&comm),
        "finalize" => {
            let world = World::from_mpi(&comm).unwrap();
            drop(universe);
            assert!(mpi::environment::is_finalized());
            turn(&world, 100).unwrap();
            drop(world);
            println!("good");
            return;
        }
        "absent" => absent(&comm),
        "refused" => refused(&comm),
        "inter" => inter(&comm),
        "killed" => forever(&comm, |_| {
            let id = std::process::id().to_string();
            let _ = Command::new("kill").args(["-9", &id]).status();
        }),
        "aborts" => forever(&comm, |comm| comm.abort(9)),
        other => panic!("there is no role {other}"),
    };
    result.unwrap();
    println!("good");
}

/// The ring.
fn turn(world: &World, steps: u64) -> Result<()> {
    stream!(let s = world.stream()?);
    let ring = ring::open(&s)?;
    ring::steps(&s, ring, steps)
}

fn agree(world: &World, comm: &SimpleCommunicator) {
    assert_eq!(world.rank() as i32, comm.rank());
    assert_eq!(world.size() as i32, comm.size());
}

fn whole(comm: &SimpleCommunicator) -> Result<()> {
    // `?` makes it the library's error.
    let world = World::from_mpi(comm)?;
    agree(&world, comm);
    turn(&world, 100)?;
    // MPI works beside the world.
    let mut sum = 0;
    comm.all_reduce_into(&1, &mut sum, SystemOperation::sum());
    assert_eq!(sum, comm.size());
    turn(&world, 10)
}

/// Two halves, in reverse order. The communicators are freed before the worlds are used.
fn split(comm: &SimpleCommunicator) -> Result<()> {
    let color = mpi::topology::Color::with_value(comm.rank() % 2);
    let half = comm.split_by_color_with_key(color, -comm.rank()).unwrap();
    let world = World::from_mpi(&half)?;
    agree(&world, &half);
    drop(half);
    let before = (comm.size() - comm.rank() - 1) as usize / 2;
    assert_eq!(world.rank(), before);
    turn(&world, 100)
}

/// Two worlds at the same time, whose ranks are in different orders.
fn two(comm: &SimpleCommunicator) -> Result<()> {
    let all = mpi::topology::Color::with_value(0);
    let back = comm.split_by_color_with_key(all, -comm.rank()).unwrap();
    for forth_first in [true, false] {
        let (forth, back) = match forth_first {
            true => {
                let forth = World::from_mpi(comm)?;
                (forth, World::from_mpi(&back)?)
            }
            false => {
                let back = World::from_mpi(&back)?;
                (World::from_mpi(comm)?, back)
            }
        };
        assert_eq!(forth.rank() + back.rank() + 1, forth.size());
        turn(&forth, 20)?;
        turn(&back, 20)?;
        stream!(let one = forth.stream()?);
        stream!(let other = back.stream()?);
        let (mut a, mut b) = (ring::open(&one)?, ring::open(&other)?);
        for _ in 0..20 {
            a = ring::step(&one, a)?;
            b = ring::step(&other, b)?;
        }
        one.synchronize()?;
        other.synchronize()?;
    }
    Ok(())
}

/// Rank 1 does not come. Then MPI has an unfinished duplicate, so no rank can end in good order.
fn absent(comm: &SimpleCommunicator) -> Result<()> {
    if comm.rank() == 1 {
        std::thread::sleep(LONG);
    }
    let Err(error @ MpiError::Absent { .. }) = <World as FromMpi>::from_mpi(comm) else {
        panic!("nobody can have met");
    };
    println!("absent: {error}");
    // An abort ends the other rank, too, and the launcher, which must have passed on both outputs by then.
    let out = folder(&std::env::var(MARK).unwrap()).join("out");
    let said = || std::fs::read_to_string(&out).unwrap();
    let began = Instant::now();
    while said().matches("absent: ").count() < 2 && began.elapsed() < LONG / 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    comm.abort(7)
}

/// One rank has an invalid variable.
fn refused(comm: &SimpleCommunicator) -> Result<()> {
    match (comm.rank(), <World as FromMpi>::from_mpi(comm)) {
        (1, Err(MpiError::World(Error::Join(error)))) => println!("mine: {error}"),
        (_, Err(MpiError::Peer { rank: 1, reason })) => println!("theirs: {reason}"),
        (_, other) => panic!("{:?}", other.err()),
    }
    // Nothing is broken: the other ranks make a world.
    let color = match comm.rank() {
        1 => mpi::topology::Color::undefined(),
        _ => mpi::topology::Color::with_value(0),
    };
    match comm.split_by_color(color) {
        Some(others) => turn(&World::from_mpi(&others)?, 10),
        None => Ok(()),
    }
}

fn inter(comm: &SimpleCommunicator) -> Result<()> {
    let rank = comm.rank();
    let color = mpi::topology::Color::with_value(rank % 2);
    let half = comm.split_by_color(color).unwrap();
    // SAFETY: both communicators are live. The leaders are rank 0 of this half, and rank 0 or 1 of all ranks, which
    // leads the other half.
    let between = unsafe {
        let mut between = ffi::RSMPI_COMM_NULL;
        let (leader, other) = (0, 1 - rank % 2);
        ffi::MPI_Intercomm_create(half.as_raw(), leader, comm.as_raw(), other, 5, &mut between);
        mpi::topology::InterCommunicator::from_raw(between)
    };
    let error = <World as FromMpi>::from_mpi(&between).err();
    assert!(
        matches!(error, Some(MpiError::InterCommunicator)),
        "{error:?}"
    );
    Ok(())
}

/// Rank 1 ends in the middle of its epochs. The others get errors, or the launcher ends them.
fn forever(comm: &SimpleCommunicator, ends: impl Fn(&SimpleCommunicator)) -> Result<()> {
    let world = World::from_mpi(comm)?;
    stream!(let s = world.stream()?);
    let mut ring = ring::open(&s)?;
    for _ in 0..50 {
        ring = ring::step(&s, ring)?;
    }
    if comm.rank() == 1 {
        ends(comm);
    }
    let error = ring::forever(&s, ring);
    println!("error: {error}");
    Err(error)
}

/// Before, beside and after MPI, with one rank.
fn states() {
    let world = SimpleCommunicator::world();
    let error = <World as FromMpi>::from_mpi(&world).err();
    assert!(matches!(error, Some(MpiError::NotInitialized)), "{error:?}");
    let (universe, provided) = mpi::initialize_with_threading(Threading::Funneled).unwrap();
    std::thread::scope(|scope| {
        let other =
            scope.spawn(|| <World as FromMpi>::from_mpi(&SimpleCommunicator::world()).err());
        let error = other.join().unwrap();
        if matches!(provided, Threading::Single | Threading::Funneled) {
            assert!(
                matches!(error, Some(MpiError::WrongThread { .. })),
                "{error:?}"
            );
        }
    });
    turn(&World::from_mpi(&world).unwrap(), 10).unwrap();
    drop(universe);
    let error = <World as FromMpi>::from_mpi(&world).err();
    assert!(matches!(error, Some(MpiError::Finalized)), "{error:?}");
    let error = Error::from(error.unwrap());
    assert!(matches!(error, Error::Bootstrap(_)), "{error:?}");
    println!("good");
}

#[test]
fn rings_of_all_sizes() {
    for ranks in [1, 2, 3, 8] {
        run("ring", ranks).all_said("good", ranks);
    }
}

#[test]
fn worlds_of_a_split() {
    for ranks in [2, 5] {
        run("split", ranks).all_said("good", ranks);
    }
}

#[test]
fn two_worlds_at_once() {
    for ranks in [2, 3] {
        run("two", ranks).all_said("good", ranks);
    }
}

#[test]
fn a_world_outlives_mpi() {
    run("finalize", 3).all_said("good", 3);
}

#[test]
fn before_beside_and_after_mpi() {
    run("states", 1).all_said("good", 1);
}

#[test]
fn a_rank_that_does_not_come() {
    let ended = run_with("absent", &[(3, &[("TIDEGATE_RENDEZVOUS_TIMEOUT", "1")])]);
    assert!(!ended.status.success());
    assert_eq!(ended.count("absent: after"), 2, "{}", ended.said);
}

#[test]
fn a_rank_that_cannot_take_part_is_named_by_all_others() {
    let ended = run_with(
        "refused",
        &[
            (1, &[]),
            (1, &[("TIDEGATE_HEARTBEAT_MS", "never")]),
            (1, &[]),
        ],
    );
    ended.all_said("good", 3);
    assert_eq!(
        ended.count("mine: TIDEGATE_HEARTBEAT_MS"),
        1,
        "{}",
        ended.said
    );
    assert_eq!(
        ended.count("theirs: TIDEGATE_HEARTBEAT_MS"),
        2,
        "{}",
        ended.said
    );
}

#[test]
fn inter_communicators_are_refused() {
    run("inter", 2).all_said("good", 2);
}

/// The launcher ends the job. A rank that is faster has an error that names the dead rank.
#[test]
fn ranks_that_die_end_the_job() {
    for role in ["killed", "aborts"] {
        for ranks in [2, 4] {
            let ended = run(role, ranks);
            assert!(!ended.status.success(), "{role}: {}", ended.said);
            assert_eq!(ended.count("good"), 0);
            for line in ended.said.lines().filter(|line| line.contains("error: ")) {
                let named = ["rank 1", " dropped ", " is lost ("];
                assert!(
                    !line.starts_with("error: ") || named.iter().any(|part| line.contains(part)),
                    "{line}"
                );
            }
        }
    }
}
