//! A process that has no room for descriptors.

use super::ground::job;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tidegate_boot::TcpControl;
use tidegate_hal::control::{Control, Decision, Handle, Letter, Packet, Proposal};

/// A rank's program. `victim` has room for as many descriptors as it has, and later for more. If the ranks have `met`
/// before, they have connections to each other.
pub(super) fn play(victim: usize, met: bool, control: &TcpControl) {
    let me = control.rank();
    let mine: Arc<OwnedFd> = Arc::new(File::open("/dev/null").unwrap().into());
    let write_to_all =
        |label: &str, look: &dyn Fn(usize, &[Handle])| write_to_all(control, &mine, label, look);
    if met {
        write_to_all("before", &|_, handles| all_there(handles));
    }
    // After this, no process holds descriptors that it has to pass on.
    control.exchange("all has come", Vec::new()).unwrap();
    let mut files = Vec::new();
    if me == victim {
        let former = getrlimit(Resource::Nofile);
        let limit = Rlimit {
            current: Some(64),
            ..former
        };
        setrlimit(Resource::Nofile, limit).unwrap();
        while let Ok(file) = File::open("/dev/null") {
            files.push(file);
        }
    }
    write_to_all("short", &|from, handles| {
        let sends_none = from == victim && !met;
        let is_lost = from != me && (me == victim || sends_none);
        if !is_lost {
            return all_there(handles);
        }
        for handle in handles {
            let Handle::Lost(why) = handle else {
                panic!("of rank {from}: {handle:?}")
            };
            assert!(why.contains("RLIMIT_NOFILE"), "{why}");
            let names_it = met || why.contains(&format!("rank {victim}"));
            assert!(names_it, "{why}");
        }
    });
    drop(files);
    write_to_all("after", &|_, handles| all_there(handles));
    control.leave();
}

fn all_there(handles: &[Handle]) {
    let is_there = |handle: &Handle| matches!(handle, Handle::Fd(_));
    assert!(handles.iter().all(is_there), "{handles:?}");
}

/// Sends three descriptors to each rank, and looks at what comes from each.
fn write_to_all(
    control: &TcpControl,
    mine: &Arc<OwnedFd>,
    label: &str,
    look: &dyn Fn(usize, &[Handle]),
) {
    control.exchange("ready", Vec::new()).unwrap();
    let letters = (0..control.size()).map(|rank| Letter {
        rank,
        packet: Packet {
            bytes: Vec::new(),
            handles: vec![Handle::Fd(mine.clone()); 3],
        },
    });
    let proposal = Proposal {
        letters: letters.collect(),
        ..Proposal::default()
    };
    let decision = control.confer(label, proposal).unwrap();
    let Decision::Agreed { letters, .. } = decision else {
        panic!("{decision:?}")
    };
    assert_eq!(letters.len(), control.size());
    for letter in letters {
        assert_eq!(letter.packet.handles.len(), 3, "of rank {}", letter.rank);
        look(letter.rank, &letter.packet.handles);
    }
}

#[test]
fn a_process_without_room_for_descriptors_gets_letters_that_say_so() {
    for role in ["short: 0", "short: 2", "short: 0 unmet", "short: 2 unmet"] {
        let outcome = job(role, 4).run().unwrap();
        assert!(outcome.success(), "{outcome:?}");
    }
}
