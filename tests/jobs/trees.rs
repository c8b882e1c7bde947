//! Jobs so large that their ranks form a tree, in which a rank dies that connects others to rank 0.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use tidegate::host::prelude::*;

use crate::jobs::{SOON, opens};
use crate::processes::{self, error, lines, longest_survival};

/// Up to 32 ranks are all connected to rank 0.
const RANKS: usize = 40;

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| {
        let micros = role.parse().expect("the role is a time");
        dies(&world, Duration::from_micros(micros))
    });
}

/// Opens windows, until the rank with the most connections is killed.
fn dies(world: &World, after: Duration) -> Result<()> {
    let mine = connections();
    let all = world.all_gather("connections", mine.to_le_bytes().to_vec())?;
    let count = |bytes: &Vec<u8>| u64::from_le_bytes(bytes[..].try_into().expect("eight bytes"));
    let most = all[1..].iter().map(count).max();
    let victim = (1..world.size()).find(|rank| Some(count(&all[*rank])) == most);
    opens(world, || {
        if Some(world.rank()) == victim {
            println!("connections: {mine}");
            std::thread::spawn(move || {
                std::thread::sleep(after);
                kill_process(getpid(), Signal::KILL)
            });
        }
    })
}

/// How many TCP connections this process has. They are all of the control plane.
fn connections() -> u64 {
    let sockets: Vec<_> = std::fs::read_dir("/proc/self/fd")
        .expect("this process has descriptors")
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .filter_map(|link| {
            let inode = link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?;
            Some(inode.to_owned())
        })
        .collect();
    let table = std::fs::read_to_string("/proc/self/net/tcp").expect("there is a table");
    // `sl local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode ...`
    let established = table.lines().filter(|line| {
        let fields: Vec<_> = line.split_whitespace().collect();
        fields.get(3) == Some(&"01")
            && fields
                .get(9)
                .is_some_and(|inode| sockets.iter().any(|own| own == inode))
    });
    established.count() as u64
}

/// The ranks below the dead one find another parent, and hear the same as all others: the call in which it died fails
/// on all, and what they have opened is revoked.
#[test]
fn if_a_rank_dies_that_connects_others_all_fail_alike_and_no_window_stays_open() {
    for micros in [0, 1500, 7000] {
        let outcome = processes::run("trees::a_rank", &micros.to_string(), RANKS);
        let killed = |rank: &usize| outcome.ranks[*rank].status.signal() == Some(9);
        let victim = (0..RANKS).find(killed).expect("a rank was killed");
        let connections = lines(&outcome.ranks[victim], "connections: ").next();
        let connections: u64 = connections.and_then(|count| count.parse().ok()).unwrap();
        assert!(connections > 2, "rank {victim} has no ranks below it");
        let mut counts = Vec::new();
        for (rank, end) in outcome.ranks.iter().enumerate() {
            if rank == victim {
                continue;
            }
            let error = error(end);
            assert!(error.contains(&format!("rank {victim} ")), "{error}");
            counts.extend(lines(end, "opened: "));
        }
        assert!(
            counts.len() == RANKS - 1 && counts.iter().all(|count| *count == counts[0]),
            "{counts:?}"
        );
        let took = longest_survival(&outcome, victim);
        assert!(took < SOON, "{took:?}");
    }
}
