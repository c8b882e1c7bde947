//! Teams of ranks, by both control planes: calls of several teams at a time, and what ends them.

mod common;

use std::sync::mpsc::Receiver;
use std::sync::{Arc, Barrier};
use std::thread;

use tidegate_boot::{TcpControl, local};
use tidegate_hal::control::{
    Control, ControlError, Decision, Event, Handle, Letter, Packet, Proposal,
};
use tidegate_hal::ids::TeamId;

/// Runs `body` for each rank of a job of threads, and then of a job over TCP.
fn jobs(size: usize, body: impl Fn(&dyn Control) + Sync) {
    thread::scope(|scope| {
        for control in local(size) {
            let body = &body;
            scope.spawn(move || body(&control));
        }
    });
    common::job(size, |control| body(&control));
}

fn lost(error: ControlError) -> usize {
    match error {
        ControlError::PeerLost { rank, .. } => rank,
        other => panic!("{other}"),
    }
}

/// Ranks of a 3 by 4 grid make teams of rows and of columns, and use them in turn.
#[test]
fn rows_and_columns_have_calls_of_their_own() {
    jobs(12, |control| {
        let me = control.rank();
        let (row, column) = (me / 4, me % 4);
        let rows: Vec<_> = (0..4).map(|column| row * 4 + column).collect();
        let columns: Vec<_> = (0..3).rev().map(|row| row * 4 + column).collect();
        let by_row = control.found("row", &rows).unwrap();
        let by_column = control.found("column", &columns).unwrap();
        assert_ne!(by_row, by_column);
        for round in 0..5 {
            // The rows are unequally busy.
            for _ in 0..row {
                let all = control.exchange_in(by_row, "row", vec![me as u8, round]);
                let expected: Vec<_> = rows.iter().map(|rank| vec![*rank as u8, round]).collect();
                assert_eq!(all.unwrap(), expected);
            }
            let to = columns[1];
            let proposal = Proposal {
                letters: vec![Letter {
                    rank: to,
                    packet: Packet::default(),
                }],
                flags: 1 << row,
                ..Proposal::default()
            };
            match control.confer_in(by_column, "column", proposal).unwrap() {
                Decision::Agreed { flags, letters } => {
                    assert_eq!(flags, 0b111);
                    let from: Vec<_> = letters.iter().map(|letter| letter.rank).collect();
                    let expected = if me == to {
                        vec![column, column + 4, column + 8]
                    } else {
                        vec![]
                    };
                    assert_eq!(from, expected);
                }
                other => panic!("{other:?}"),
            }
        }
        control.dissolve(by_row);
        let after = control.exchange_in(by_row, "row", Vec::new());
        assert!(matches!(after, Err(ControlError::Closed(_))), "{after:?}");
        control.exchange("all", Vec::new()).unwrap();
    });
}

/// Several threads of each rank are in calls of different teams. If one waited for another, none would end.
#[test]
fn calls_of_several_teams_are_open_at_a_time() {
    jobs(3, |control| {
        let teams = [[0, 1, 2], [2, 1, 0], [1, 0, 2]];
        let teams = teams.map(|ranks| control.found("all", &ranks).unwrap());
        thread::scope(|scope| {
            let (first, last) = (teams[control.rank()], teams[(control.rank() + 1) % 3]);
            let call = |team: TeamId| control.exchange_in(team, "call", vec![1]).unwrap();
            scope.spawn(move || call(first));
            scope.spawn(move || call(last));
            call(teams[(control.rank() + 2) % 3]);
        });
    });
}

/// Descriptors come another way than the news that the team has begun, and may be faster.
#[test]
fn descriptors_go_to_members() {
    common::job(4, |control: TcpControl| {
        let me = control.rank();
        for round in 0..20 {
            let team = control.found("pair", &[me & !1, me | 1]).unwrap();
            let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
            rustix::io::write(&fd, &[me as u8, round]).unwrap();
            let letter = Letter {
                rank: me ^ 1,
                packet: Packet {
                    bytes: vec![round],
                    handles: vec![Handle::Fd(Arc::new(fd))],
                },
            };
            let proposal = Proposal {
                letters: vec![letter],
                ..Proposal::default()
            };
            let Decision::Agreed { letters, .. } =
                control.confer_in(team, "files", proposal).unwrap()
            else {
                panic!("they agree")
            };
            let [Letter { rank, packet }] = &letters[..] else {
                panic!("{letters:?}")
            };
            let [Handle::Fd(fd)] = &packet.handles[..] else {
                panic!("{packet:?}")
            };
            let mut bytes = [0; 2];
            rustix::io::pread(fd, &mut bytes, 0).unwrap();
            assert_eq!((*rank, bytes), (me ^ 1, [(me ^ 1) as u8, round]));
            control.dissolve(team);
        }
    });
}

/// Two teams of which each needs a rank of the other: all of their ranks hear of it, and the job goes on.
#[test]
fn different_teams_are_refused_on_all_of_their_ranks() {
    jobs(4, |control| {
        let me = control.rank();
        let ranks: &[usize] = if me < 2 { &[0, 1, 2] } else { &[0, 2, 3] };
        let error = control.found("some", ranks).unwrap_err();
        match error {
            ControlError::Teams { rank, mine, theirs } => {
                assert_eq!(mine.ranks, ranks, "{rank} {mine} {theirs}");
                assert_ne!(theirs.ranks, ranks);
                assert!(theirs.ranks.contains(&rank));
            }
            other => panic!("{other}"),
        }
        control.exchange("they have all heard", Vec::new()).unwrap();
        let team = control.found("some", &[3, 2, 1, 0]).unwrap();
        control.exchange_in(team, "again", Vec::new()).unwrap();
    });
}

#[test]
fn the_end_of_a_rank_ends_calls_of_its_teams_only() {
    fn rank(control: &dyn Control, events: Receiver<Event>, end: impl FnOnce()) {
        let me = control.rank();
        let of_three = control.found("three", &[0, 1, 2]);
        let of_two = (me < 2).then(|| control.found("two", &[0, 1]).unwrap());
        if me == 2 {
            return end();
        }
        let team = of_three.unwrap();
        let error = control.exchange_in(team, "call", Vec::new()).unwrap_err();
        assert_eq!(lost(error), 2);
        let lost_to_all = control.exchange("all", Vec::new()).unwrap_err();
        assert_eq!(lost(lost_to_all), 2);
        let event = events.recv().unwrap();
        assert!(matches!(event, Event::Lost { rank: 2, .. }), "{event:?}");
        let again = control.found("three", &[0, 1, 2]).unwrap_err();
        assert_eq!(lost(again), 2);
        for _ in 0..3 {
            let all = control.exchange_in(of_two.unwrap(), "two", vec![me as u8]);
            assert_eq!(all.unwrap(), [[0], [1]]);
        }
        let new = control.found("new", &[1, 0]).unwrap();
        control.exchange_in(new, "new", Vec::new()).unwrap();
    }
    let events = |control: &dyn Control| {
        let (sender, receiver) = std::sync::mpsc::channel();
        control.subscribe(Arc::new(move |event| {
            let _ = sender.send(event);
        }));
        receiver
    };
    thread::scope(|scope| {
        for control in local(3) {
            scope.spawn(move || rank(&control, events(&control), || control.kill()));
        }
    });
    common::job(3, |control| {
        rank(&control, events(&control), || control.fail("a test"))
    });
}

/// A member that has dropped the team ends calls of the others, and so does nobody else.
#[test]
fn a_member_that_has_dropped_its_team_is_named() {
    let meet = Barrier::new(3);
    jobs(3, |control| {
        let team = control.found("all", &[2, 0, 1]).unwrap();
        control.exchange_in(team, "first", Vec::new()).unwrap();
        if control.rank() == 1 {
            control.dissolve(team);
        } else {
            let error = control.exchange_in(team, "second", Vec::new()).unwrap_err();
            let text = error.to_string();
            assert!(text.contains("it has dropped the team"), "{text}");
            assert_eq!(lost(error), 1);
        }
        meet.wait();
        control.exchange("all", Vec::new()).unwrap();
    });
}
