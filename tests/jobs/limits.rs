//! Ranks that reach a limit of the system. The window that meets the limit fails on all ranks, with an error that names
//! the limit, and the job goes on.

use std::fs::File;
use tidegate::error::WindowError;

use memmap2::{Mmap, MmapMut};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tidegate::host::prelude::*;
use tidegate_cli::Outcome;

use crate::processes::{self, assert_success};

fn run(role: &str, ranks: usize) -> Outcome {
    processes::run("limits::a_rank", role, ranks)
}

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| match role {
        "descriptors of rank 0" => descriptors(&world, 0),
        "descriptors of another" => descriptors(&world, 5),
        "many windows" => many_windows(&world),
        "address space" => address_space(&world),
        "mappings" => mappings(&world),
        other => panic!("there is no role {other}"),
    });
}

fn limit(which: Resource, most: u64) {
    let maximum = getrlimit(which).maximum;
    let current = Some(most);
    setrlimit(which, Rlimit { current, maximum }).unwrap();
}

/// All ranks have the same error, which names the rank and the limit.
#[track_caller]
fn is_short<T>(opened: Result<T>, short: usize, limit: &str) {
    match opened.map(drop) {
        Err(Error::Open(WindowError::NotCreated { rank, reason, .. })) => {
            assert!(
                rank == short && reason.contains(limit),
                "rank {rank}: {reason}"
            );
        }
        other => panic!("{other:?}"),
    }
}

/// A sum over all ranks shows that the job works.
fn all_is_well(s: &Stream<'_>, name: &str) -> Result<()> {
    let mut sum = AllReduce::<u64>::open(s, name, 1, Op::Sum)?;
    let mut x = Region::from_slice(s.world(), &[1])?.on(s)?;
    sum.enqueue(s, &mut x)?;
    assert_eq!(x.into_host(s)?[0], s.world().size() as u64);
    Ok(())
}

/// One rank has descriptors left for some of its peers, and then for none at all.
fn descriptors(world: &World, victim: usize) -> Result<()> {
    stream!(let s = world.stream()?);
    all_is_well(&s, "before")?;
    let mut files = Vec::new();
    if world.rank() == victim {
        limit(Resource::Nofile, 200);
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
    }
    for left in [8, 4, 1, 0] {
        for turn in 0..2 {
            if world.rank() == victim {
                while let Ok(file) = File::open("/dev/null") {
                    files.push(file);
                }
                files.truncate(files.len() - left);
            }
            is_short(
                AllReduce::<u64>::open(&s, "short", 4, Op::Sum),
                victim,
                "RLIMIT_NOFILE",
            );
            // A rank has few neighbours in a barrier, and needs no descriptors for the other ranks.
            if left <= 1 {
                is_short(Barrier::open(&s, "barrier"), victim, "RLIMIT_NOFILE");
            }
            let said = world.all_gather("still", vec![turn])?;
            assert!(said.iter().all(|said| *said == [turn]));
        }
    }
    drop(files);
    all_is_well(&s, "short")
}

#[test]
fn a_rank_without_descriptors_fails_the_window_for_all() {
    for role in ["descriptors of rank 0", "descriptors of another"] {
        assert_success(&run(role, 16), &[]);
    }
}

/// Windows use no descriptors.
fn many_windows(world: &World) -> Result<()> {
    limit(Resource::Nofile, 200);
    stream!(let s = world.stream()?);
    let count = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let open = |name: &str| AllReduce::<u64>::open(&s, name, 2, Op::Sum);
    let mut windows = vec![open("first")?];
    let before = count();
    for number in 0..40 {
        windows.push(open(&number.to_string())?);
    }
    assert_eq!(count(), before);
    Ok(())
}

#[test]
fn windows_keep_no_descriptors() {
    assert_success(&run("many windows", 16), &[]);
}

/// Opens windows until rank 1 reaches its limit, twice: dropped windows give everything back.
fn until_short(s: &Stream<'_>, elements: usize, limit: &str) -> Result<()> {
    let mut counts = Vec::new();
    for _ in 0..2 {
        let mut windows = Vec::new();
        let error = loop {
            let name = format!("w{}", windows.len());
            match RangeWindow::<u64>::new(&name, elements).open(s) {
                Ok(window) => windows.push(window),
                Err(error) => break error,
            }
            assert!(windows.len() < 100, "there is no limit");
        };
        is_short(Err::<(), _>(error), 1, limit);
        assert!(!windows.is_empty());
        counts.push(windows.len());
        drop(windows);
        s.synchronize()?;
    }
    println!("windows: {counts:?}");
    all_is_well(s, "after")
}

fn address_space(world: &World) -> Result<()> {
    const WINDOW: usize = 256 << 20;
    stream!(let s = world.stream()?);
    if world.rank() == 1 {
        let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = pages.split(' ').next().unwrap().parse().unwrap();
        let used = pages * rustix::param::page_size() as u64;
        // The rest, without three windows, is for everything else.
        limit(Resource::As, used + 3 * WINDOW as u64 + (WINDOW as u64) / 2);
    }
    until_short(&s, WINDOW / size_of::<u64>(), "RLIMIT_AS")
}

fn mappings(world: &World) -> Result<()> {
    /// Neighbouring mappings differ, so that they stay separate.
    #[expect(dead_code, reason = "held to be there")]
    enum Piece {
        Written(MmapMut),
        Read(Mmap),
    }
    stream!(let s = world.stream()?);
    let mut pieces = Vec::new();
    if world.rank() == 1 {
        let most = std::fs::read_to_string("/proc/sys/vm/max_map_count").unwrap();
        let most: usize = most.trim().parse().unwrap();
        let used = std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .count();
        // There is room for some windows, with one mapping each.
        let wanted = most - used - 40;
        pieces.reserve(wanted);
        while pieces.len() < wanted {
            let piece = MmapMut::map_anon(1).unwrap();
            pieces.push(match pieces.len() % 2 {
                0 => Piece::Written(piece),
                _ => Piece::Read(piece.make_read_only().unwrap()),
            });
        }
    }
    until_short(&s, 1, "max_map_count")
}

#[test]
fn a_rank_without_addresses_fails_the_window_for_all() {
    assert_success(&run("address space", 3), &[]);
}

#[test]
fn a_rank_without_mappings_fails_the_window_for_all() {
    assert_success(&run("mappings", 2), &[]);
}
