//! A rank that is killed while all confer.

use super::ground::{has, job, lines, mark, wait_for};
use std::fs::File;
use std::sync::Arc;
use std::time::Duration;
use tidegate_boot::TcpControl;
use tidegate_cli::Signal;
use tidegate_hal::control::{Control, ControlError, Decision, Handle, Letter, Packet, Proposal};

const SIZE: usize = 6;

/// A rank's program. It writes to its neighbours, with descriptors, until a call fails.
pub(super) fn play(control: &TcpControl) {
    let me = control.rank();
    let mine = Handle::Fd(Arc::new(File::open("/dev/null").unwrap().into()));
    let mut neighbours = [(me + 1) % SIZE, (me + SIZE - 1) % SIZE];
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

/// Rank 0 is the hub. As long as it lives, a call succeeds on all ranks or on none.
#[test]
fn the_others_end_after_the_same_call() {
    for time in 0..12 {
        let victim = 1 + time % (SIZE - 1);
        let marks = tempfile::tempdir().unwrap();
        let job = job("killed", SIZE).env("TEST_MARKS", marks.path());
        let job = job.spawn().unwrap();
        for rank in 0..SIZE {
            wait_for(&marks, &format!("ready.{rank}"));
        }
        std::thread::sleep(Duration::from_micros(317 * time as u64));
        job.signal(victim, Signal::KILL).unwrap();
        let outcome = job.wait();
        let others = (0..SIZE).filter(|rank| *rank != victim);
        let lost = format!("calls rank {victim} is lost");
        let said = |rank| {
            let lines = lines(&outcome, rank).into_iter();
            lines.filter(|line| line.contains(&lost)).collect()
        };
        let mut said: Vec<Vec<String>> = others.map(said).collect();
        said.dedup();
        assert!(said.len() == 1 && said[0].len() == 1, "{outcome:?}");
    }
}

/// If rank 0 is killed, all others learn it from the ends of their connections.
#[test]
fn all_others_end_if_rank_0_is_killed() {
    for time in 0..4 {
        let marks = tempfile::tempdir().unwrap();
        let job = job("killed", SIZE).env("TEST_MARKS", marks.path());
        let job = job.spawn().unwrap();
        for rank in 0..SIZE {
            wait_for(&marks, &format!("ready.{rank}"));
        }
        std::thread::sleep(Duration::from_micros(317 * time));
        job.signal(0, Signal::KILL).unwrap();
        let outcome = job.wait();
        for rank in 1..SIZE {
            assert!(has(&outcome, rank, "calls rank 0 is lost"), "{outcome:?}");
        }
    }
}
