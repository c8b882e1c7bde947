//! `tidegate run --trace` and `tidegate trace`.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use tidegate::host::prelude::*;

use tidegate_cli::Bed;

use crate::hydra;
use crate::processes;
use crate::skip::{provided, skipped, tcp};

#[path = "../../src/trace/tests/format.rs"]
mod format;

/// How many epochs the program has.
const EPOCHS: usize = 60;
/// How many it has on GPUs. Without a GPU, each takes long.
const FEW_EPOCHS: usize = 30;
/// How long a rank is late.
const DELAY: Duration = Duration::from_millis(10);

/// `rank epoch place`: which rank of the program is late, when, and in which place.
const LATE: &str = "LATE";

/// This is not a test, but the program of the ranks.
#[test]
fn a_rank() {
    if std::env::var("TIDEGATE_TEST_ROLE").is_ok_and(|role| role == "gpu steps") {
        gpus::steps().unwrap();
        std::process::exit(0);
    }
    processes::play(|role, world| match role {
        "steps" => steps(&world),
        "grid" => grid(&world),
        "dies" => dies(&world),
        other => panic!("no such role: {other}"),
    });
}

/// Whether this rank is late in an epoch.
fn is_late(rank: usize, epoch: usize, place: &str) -> bool {
    let late = std::env::var(LATE);
    late.is_ok_and(|late| late == format!("{rank} {epoch} {place}"))
}

/// Work without rest.
fn compute(src: &mut [u64]) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(200) {
        src[0] = src[0].wrapping_mul(3);
    }
}

/// Exchanges with both neighbours, with a kernel in front, and now and then a barrier and a sum.
fn steps(world: &World) -> Result<()> {
    let (left, right) = world.ring();
    let rank = world.rank();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u64>::new("halo");
    let _ = [
        window.slot_from(left, 0, 64),
        window.slot_from(right, 1, 64),
    ];
    let to = [window.slot_to(right, 0), window.slot_to(left, 1)];
    let (mut inbox, mut outbox) = window.open(&s)?;
    let mut barrier = Barrier::open(&s, "checkpoint")?;
    let mut sum = AllReduce::<u64>::open(&s, "residual", 1, Op::Sum)?;
    let mut src = Region::from_slice(world, &[1; 64])?.on(&s)?;
    let mut total = Region::from_slice(world, &[1])?.on(&s)?;
    for epoch in 0..EPOCHS {
        if is_late(rank, epoch, "program") {
            std::thread::sleep(DELAY);
        }
        let exposed = inbox.post(&s)?;
        let late = is_late(rank, epoch, "kernel");
        let kernel = move |src: &mut [u64]| {
            compute(src);
            if late {
                std::thread::sleep(DELAY);
            }
        };
        s.launch(kernel, &mut src)?;
        let mut puts = outbox.start();
        for to in to {
            puts.put(&src, to)?;
        }
        outbox = puts.complete(&s)?;
        inbox = exposed.wait(&s)?;
        if epoch % 8 == 3 {
            barrier.enqueue(&s)?;
        }
        if epoch % 8 == 7 {
            sum.enqueue(&s, &mut total)?;
        }
        s.synchronize()?;
    }
    Ok(())
}

/// Ranks of a grid of 2 by 2 exchange in their rows and in their columns, which have windows of one name. Each row has a
/// barrier, and each column a sum.
fn grid(world: &World) -> Result<()> {
    let me = world.rank();
    let row = world.split("rows", me / 2, me)?.unwrap();
    let column = world.split("columns", me % 2, 4 - me)?.unwrap();
    stream!(let s = world.stream()?);
    let src = Region::from_slice(world, &[1; 64])?.on(&s)?;
    let mut halves = Vec::new();
    for team in [&row, &column] {
        let mut window = SlotWindow::<u64>::new("halo");
        window.slot_from(1 - team.rank(), 0, 64);
        let to = window.slot_to(1 - team.rank(), 0);
        halves.push((window.open(&team.on(&s))?, to));
    }
    let mut barrier = Barrier::open(&row.on(&s), "checkpoint")?;
    let mut sum = AllReduce::<u64>::open(&column.on(&s), "residual", 1, Op::Sum)?;
    let mut total = Region::from_slice(world, &[1])?.on(&s)?;
    for epoch in 0..EPOCHS {
        for ((inbox, outbox), to) in std::mem::take(&mut halves) {
            let mut puts = outbox.start();
            puts.put(&src, to)?;
            halves.push((exchange(&s, inbox, puts)?, to));
        }
        if epoch % 8 == 3 {
            barrier.enqueue(&s)?;
        }
        if epoch % 8 == 7 {
            sum.enqueue(&s, &mut total)?;
        }
    }
    s.synchronize()
}

/// Rank 1 ends in the middle, without a word.
fn dies(world: &World) -> Result<()> {
    stream!(let s = world.stream()?);
    let mut barrier = Barrier::open(&s, "end")?;
    barrier.enqueue(&s)?;
    s.synchronize()?;
    if world.rank() == 1 {
        std::process::exit(7);
    }
    barrier.enqueue(&s)?;
    s.synchronize()
}

/// `tidegate run --trace` of this program in a role.
fn traced(folder: &Path, ranks: usize, role: &str) -> Command {
    let mut command = super::launcher();
    command.args(["run", "-n", &ranks.to_string(), "--trace"]);
    command.arg(folder);
    command.args(["-e", &format!("TIDEGATE_TEST_ROLE={role}")]);
    command.arg(std::env::current_exe().unwrap());
    command.args(["--exact", "trace::a_rank", "--nocapture", "--quiet"]);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The line of the summary on late ranks.
fn late(said: &str) -> &str {
    let line = said.lines().find(|line| line.starts_with("Late: "));
    line.unwrap_or_else(|| panic!("{said}"))
}

/// Runs a program of 8 ranks 20 times as it is, and 20 times with a random rank that is late by 10 ms at a random epoch,
/// in one of these places. The summary must name no rank, and that rank.
fn is_named_20_times(role: &str, epochs: usize, places: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let seed = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let mut random = seed.unwrap().as_nanos() as u64;
    let mut below = |most: usize| {
        // The constants are Knuth's.
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) as usize % most
    };
    let mut wrong = Vec::new();
    let mut run = |late_one: Option<(usize, usize, &str)>| {
        let mut command = traced(folder.path(), 8, role);
        let expected = match late_one {
            None => "Late: no rank".to_owned(),
            Some((rank, epoch, place)) => {
                command.env(LATE, format!("{rank} {epoch} {place}"));
                format!("Late: rank {rank}.")
            }
        };
        let said = said(&command.output().unwrap());
        println!("{late_one:?}: {}", late(&said));
        if !late(&said).starts_with(&expected) {
            wrong.push(said);
        }
    };
    for turn in 0..20 {
        run(None);
        run(Some((
            below(8),
            2 + below(epochs - 4),
            places[turn % places.len()],
        )));
    }
    assert!(
        wrong.is_empty(),
        "{} are wrong: {}",
        wrong.len(),
        wrong.join("\n")
    );
}

#[test]
#[ignore = "40 jobs, whose times depend on what else the machine does"]
fn the_late_rank_is_named_in_20_of_20_runs() {
    is_named_20_times("steps", EPOCHS, &["kernel", "program"]);
}

/// How many waits of three ranks have a signal. In each of 60 epochs there are two for exposure and two for puts; 8
/// barriers have two rounds; 7 sums have an exchange with the two others. With two buffers, nobody posts the first
/// exposure of a window.
const WAITS: usize = 3 * (60 * 4 + 8 * 2 + 7 * 2 * 2 - (2 + 2));

/// Checks the files of a trace, and returns how many arrows there are.
fn files(folder: &Path) -> usize {
    let page = std::fs::read_to_string(folder.join("trace.html")).unwrap();
    assert!(
        page.contains("<canvas") && !page.contains("http"),
        "it loads nothing"
    );
    let json = std::fs::read_to_string(folder.join("trace.json")).unwrap();
    format::check(&json)
}

#[test]
fn a_traced_job_is_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    // Files of an earlier trace go, and others stay.
    let old =
        ["rank-7.tidegate", "notes.txt", "rank-x.tidegate"].map(|name| folder.path().join(name));
    old.iter()
        .for_each(|path| std::fs::write(path, "old").unwrap());
    let output = traced(folder.path(), 3, "steps").output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(old.map(|path| path.exists()), [false, true, true]);
    for words in [
        "the trace of an earlier job",
        "3 ranks on 1 host, ",
        "Who waited for whom",
        "Critical path",
        "kernel steps",
        "put of halo",
        "one host, one clock",
        "dropped  none",
        "Open ",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    assert!(said.lines().count() <= 40, "{said}");
    assert_eq!(files(folder.path()), WAITS);

    // The same again, of the files.
    let again = |args: &[&str]| {
        let mut command = super::launcher();
        let output = command.arg("trace").arg(folder.path()).args(args).output();
        let output = output.unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let whole = again(&[]);
    assert!(said.ends_with(&whole), "{said}\n{whole}");
    std::fs::remove_file(folder.path().join("trace.html")).unwrap();
    let short = again(&["--summary"]);
    assert!(whole.starts_with(&short) && !folder.path().join("trace.html").exists());
    let page = folder.path().join("other.html");
    again(&["--html", page.to_str().unwrap()]);
    assert!(page.exists());
}

/// Each wait finds its signal, though two teams have windows of one name and number. Ranks have their numbers in the
/// job, and windows the names of their teams.
#[test]
fn a_job_of_teams_is_traced() {
    let folder = tempfile::tempdir().unwrap();
    let output = traced(folder.path(), 4, "grid").output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    // Two rows and two columns have two windows each. The first exposures of windows and sums need no post.
    let waits = 4 * (60 * 2 * 2 - 2 + 8 + 7 * 2 - 1);
    assert_eq!(files(folder.path()), waits, "{said}");
    assert!(said.contains(": 8 windows, "), "{said}");
    // The table has the pairs that waited longest.
    let lines = said
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("rank "));
    let pairs = lines.filter_map(|line| {
        let (rank, rest) = line.split_once(" for rank ")?;
        let (other, rest) = rest.split_once(' ')?;
        let [rank, other] = [rank, other].map(|number| number.parse::<usize>().unwrap());
        Some((rank, other, rest))
    });
    let mut found = 0;
    for (rank, other, line) in pairs {
        let team = match (rank / 2 == other / 2, rank % 2 == other % 2) {
            (true, false) => "rows/",
            (false, true) => "columns/",
            _ => panic!("ranks {rank} and {other} share no team: {said}"),
        };
        assert!(
            line.contains(&format!(" {team}")),
            "{rank}, {other}: {line}"
        );
        found += 1;
    }
    assert!(found >= 4, "{said}");
}

#[test]
fn a_job_that_fails_is_summed_up() {
    let folder = tempfile::tempdir().unwrap();
    let output = traced(folder.path(), 3, "dies").output().unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(7), "{said}");
    assert!(said.contains("The files of rank 1 end early."), "{said}");
    assert!(said.contains("First failure, at "), "{said}");
    files(folder.path());
}

#[test]
fn a_folder_without_a_trace_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let said = |path: &Path| {
        let output = super::launcher().arg("trace").arg(path).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        said(&output)
    };
    assert!(said(folder.path()).contains("no rank has written events there"));
    assert!(said(&folder.path().join("none")).contains("No such file"));
    std::fs::write(folder.path().join("rank-0.tidegate"), "something else").unwrap();
    assert!(said(folder.path()).contains("no file of events of tidegate"));
    // A job whose ranks are no ranks of tidegate's.
    let mut command = super::launcher();
    command
        .args(["run", "-n", "2", "--trace"])
        .arg(folder.path())
        .arg("true");
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        self::said(&output).contains("no rank has written events there"),
        "{output:?}"
    );
}

/// Between nodes, clocks are compared, puts go through NICs, and waits still find their signals.
#[test]
fn a_job_on_two_nodes_is_traced() {
    let test = "a_job_on_two_nodes_is_traced";
    if !provided(test, tcp()) {
        return;
    }
    let run = |netns: bool| {
        let folder = tempfile::tempdir().unwrap();
        let mut command = super::launcher();
        command
            .args(["run", "--nodes", "2x2", "--trace"])
            .arg(folder.path());
        if netns {
            command.arg("--netns");
        }
        command.args(["-e", "TIDEGATE_TEST_ROLE=steps"]);
        command.args(["-e", &format!("TIDEGATE_PROVIDER={}", tcp())]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "trace::a_rank", "--nocapture", "--quiet"]);
        let output = command.output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        assert!(said.contains("4 ranks on 1 host"), "{said}");
        // A sum has one exchange with the other node, and two with the other rank of this node: the second passes on
        // what has come from the other node.
        let waits = 60 * 4 + 8 * 2 + 7 * 2 * 3;
        assert_eq!(files(folder.path()), 4 * (waits - 2 - 2), "{said}");
    };
    run(false);
    if Bed::builder(2).build_or_skip(test).is_some() {
        run(true);
    }
}

/// Under another launcher, the ranks write their files by themselves.
fn a_job_of_mpirun_is_traced(test: &str, mpirun: &str, options: &[&str]) {
    if Command::new(mpirun).arg("--version").output().is_err() {
        return skipped(test, &format!("there is no {mpirun}"));
    }
    let [folder, own] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let run = || {
        let mut command = Command::new(mpirun);
        command.args(options).args(["-n", "3"]);
        command.arg(std::env::current_exe().unwrap());
        command.args(["--exact", "trace::a_rank", "--nocapture", "--quiet"]);
        command.env("TIDEGATE_TEST_ROLE", "steps");
        command.env("TIDEGATE_TRACE", folder.path());
        // Open MPI's launcher keeps its files there, and two launchers may disturb each other.
        command.env("TMPDIR", own.path()).stdin(Stdio::null());
        command.output().unwrap()
    };
    let mut outputs = (0..hydra::TIMES).map(|_| run());
    let output = outputs.find(|output| !hydra::died_of_sigpipe(output.status));
    let output = output.expect("a launcher that does not die of SIGPIPE");
    assert!(output.status.success(), "{output:?}");
    let mut command = super::launcher();
    let output = command.arg("trace").arg(folder.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(text.starts_with("3 ranks on 1 host, "), "{text}");
    assert_eq!(files(folder.path()), WAITS, "{text}");
}

#[test]
fn a_job_of_open_mpis_launcher_is_traced() {
    let test = "a_job_of_open_mpis_launcher_is_traced";
    let options = ["--allow-run-as-root", "--oversubscribe"];
    a_job_of_mpirun_is_traced(test, "mpirun.openmpi", &options);
}

#[test]
fn a_job_of_mpichs_launcher_is_traced() {
    let test = "a_job_of_mpichs_launcher_is_traced";
    a_job_of_mpirun_is_traced(test, "mpirun.mpich", &[]);
}

/// On GPUs, or over the driver without one.
mod gpus {
    use tidegate::cuda::prelude::*;

    use super::{DELAY, FEW_EPOCHS, files, is_late, is_named_20_times, said, traced};

    /// Exchanges with both neighbours, and now and then a barrier or a sum.
    pub(super) fn steps() -> Result<()> {
        let world = World::init()?;
        let (left, right) = world.ring();
        let rank = world.rank();
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<u64>::new("halo");
        let _ = [window.slot_from(left, 0, 8), window.slot_from(right, 1, 8)];
        let to = [window.slot_to(right, 0), window.slot_to(left, 1)];
        let (mut inbox, mut outbox) = window.open(&s)?;
        let mut barrier = Barrier::open(&s, "checkpoint")?;
        let mut sum = AllReduce::<u64>::open(&s, "residual", 1, Op::Sum)?;
        let src = Region::from_slice(&world, &[1; 8])?.on(&s)?;
        let mut total = Region::from_slice(&world, &[1])?.on(&s)?;
        for epoch in 0..FEW_EPOCHS {
            if is_late(rank, epoch, "program") {
                std::thread::sleep(DELAY);
            }
            let mut puts = outbox.start();
            for to in to {
                puts.put(&src, to)?;
            }
            // One batch, and so one kernel, whose puts take a warp each: without a GPU, kernels are slow.
            (inbox, outbox) = exchange(&s, inbox, puts)?;
            if epoch % 8 == 3 {
                barrier.enqueue(&s)?;
            }
            if epoch % 8 == 7 {
                sum.enqueue(&s, &mut total)?;
            }
            s.synchronize()?;
        }
        Ok(())
    }

    /// `cargo xtask test cuda` runs it over the driver without a GPU.
    #[test]
    #[ignore = "it needs a GPU, or the driver without one"]
    fn a_job_on_gpus_is_traced() {
        let folder = tempfile::tempdir().unwrap();
        let output = traced(folder.path(), 3, "gpu steps").output().unwrap();
        let said = said(&output);
        assert_eq!(output.status.code(), Some(0), "{said}");
        let waits = 30 * 4 + 4 * 2 + 3 * 2 * 2;
        assert_eq!(files(folder.path()), 3 * (waits - (2 + 2)), "{said}");
        assert!(said.contains("dropped  none"), "{said}");
    }

    #[test]
    #[ignore = "40 jobs over the driver without a GPU; their times depend on what else the machine does"]
    fn the_late_rank_is_named_in_20_of_20_runs() {
        is_named_20_times("gpu steps", FEW_EPOCHS, &["program"]);
    }
}
