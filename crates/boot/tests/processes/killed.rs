//! A rank that is killed while all confer.

use super::ground::{has, job, lines, mark, wait_for};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use tidegate_boot::TcpControl;
use tidegate_cli::{Outcome, Signal};
use tidegate_hal::control::{Control, ControlError, Decision, Handle, Letter, Packet, Proposal};

/// Small jobs, in which all are connected to rank 0, and large ones, in which some ranks connect others to it.
const SIZES: [usize; 2] = [6, 40];

/// A rank's program. It writes to its neighbours, with descriptors, until a call fails.
pub(super) fn play(control: &TcpControl) {
    let (me, size) = (control.rank(), control.size());
    let mine = Handle::Fd(Arc::new(File::open("/dev/null").unwrap().into()));
    let mut neighbours = [(me + 1) % size, (me + size - 1) % size];
    neighbours.sort_unstable();
    for calls in 0.. {
        let letters = neighbours.map(|rank| Letter {
            rank,
            packet: Packet {
                bytes: format!("{calls}").into_bytes(),
                handles: vec![mine.clone(); 2],
            },
        });
        let proposal = Proposal {
            letters: letters.into(),
            ..Proposal::default()
        };
        match control.confer("step", proposal) {
            Ok(Decision::Agreed { letters, .. }) => {
                assert!(letters.iter().map(|letter| letter.rank).eq(neighbours));
                for Letter { packet, .. } in letters {
                    assert_eq!(packet.bytes, format!("{calls}").into_bytes());
                    assert!(matches!(packet.handles[..], [Handle::Fd(_), Handle::Fd(_)]));
                }
            }
            Err(ControlError::PeerLost { rank, .. }) => {
                println!("after {calls} calls rank {rank} is lost");
                return control.leave();
            }
            other => panic!("{other:?}"),
        }
        if calls == 5 {
            mark("ready", me);
        }
    }
}

/// Runs a job, and kills these ranks while it confers.
fn kill(size: usize, victims: &[usize], delay: Duration) -> Outcome {
    let marks = tempfile::tempdir().unwrap();
    let job = job("killed", size).env("TEST_MARKS", marks.path());
    let job = job.spawn().unwrap();
    for rank in 0..size {
        wait_for(&marks, &format!("ready.{rank}"));
    }
    std::thread::sleep(delay);
    for victim in victims {
        job.signal(*victim, Signal::KILL).unwrap();
    }
    job.wait()
}

/// Rank 0 is the hub. As long as it lives, a call succeeds on all ranks or on none.
fn all_end_alike(size: usize, victims: &[usize], delay: Duration) {
    let outcome = kill(size, victims, delay);
    let others = (0..size).filter(|rank| !victims.contains(rank));
    let said = others.map(|rank| {
        let lines = lines(&outcome, rank).into_iter();
        lines.filter(|line| line.contains("is lost")).collect()
    });
    let mut said: Vec<Vec<String>> = said.collect();
    said.dedup();
    assert!(said.len() == 1 && said[0].len() == 1, "{outcome:?}");
    let names = |victim: &usize| said[0][0].contains(&format!("calls rank {victim} is lost"));
    assert!(victims.iter().any(names), "{outcome:?}");
}

#[test]
fn the_others_end_after_the_same_call() {
    for size in SIZES {
        for time in 0..12 {
            let victim = 1 + time % (SIZES[0] - 1);
            all_end_alike(size, &[victim], Duration::from_micros(317 * time as u64));
        }
    }
}

/// Several ranks may end at once, and some of them connect others to rank 0.
#[test]
fn the_others_end_after_the_same_call_if_several_are_killed() {
    for time in 0..4 {
        let victims = [1, 2, 5 + time, 9, 20 + 4 * time];
        all_end_alike(SIZES[1], &victims, Duration::from_micros(317 * time as u64));
    }
}

/// If rank 0 is killed, all others learn it from the ends of their connections.
#[test]
fn all_others_end_if_rank_0_is_killed() {
    for (size, times) in [(SIZES[0], 4), (SIZES[1], 2)] {
        for time in 0..times {
            let outcome = kill(size, &[0], Duration::from_micros(317 * time));
            for rank in 1..size {
                assert!(has(&outcome, rank, "calls rank 0 is lost"), "{outcome:?}");
            }
        }
    }
}
