//! What teams open, what ends it, and what remains of them.

use std::sync::Barrier as Meeting;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tidegate_hal::batch::Op;
use tidegate_hal::control::ControlError;
use tidegate_host::Host;
use tidegate_loopback::{Loopback, Options};

use crate::error::{Cause, Disagreement, Error, Result, TeamError, WindowError};
use crate::ground::lock;
use crate::window::{BySlot, Group, Inbox, Outbox, exchange};
use crate::{
    AllReduce, AtomicWindow, Barrier, On, RangeWindow, Region, Route, SlotWindow, Stream, Team,
    World, WorldOptions, stream,
};

type Halves<'s> = (Inbox<'s, u64, Host, BySlot>, Outbox<'s, u64, Host, BySlot>);

/// A ring of a team: each rank has one slot from its left neighbour.
struct Ring<'s> {
    halves: Option<Halves<'s>>,
    from: crate::In<u64>,
    to: crate::Out<u64>,
    src: Region<u64, On<'s, Host>>,
    left: usize,
}

impl<'s> Ring<'s> {
    fn open(team: &Team<Host>, s: &Stream<'s, Host>, name: &str) -> Result<Self> {
        let (left, right) = team.ring();
        let mut window = SlotWindow::new(name);
        let (from, to) = (window.slot_from(left, 0, 2), window.slot_to(right, 0));
        let me = team.world().rank() as u64;
        Ok(Ring {
            halves: Some(window.open(&team.on(s))?),
            from,
            to,
            src: Region::from_slice(team.world(), &[me, team.id().number().into()])?.on(s)?,
            left: team.world_rank(left)?,
        })
    }

    fn turn(&mut self, s: &Stream<'s, Host>) -> Result<()> {
        let (inbox, outbox) = self.halves.take().expect("the last turn succeeded");
        let mut epoch = outbox.start();
        epoch.put(&self.src, self.to)?;
        let (mut inbox, outbox) = exchange(s, inbox, epoch)?;
        let team = inbox.id().team.number();
        let got = inbox.read(s)?.slot(self.from).to_vec();
        assert_eq!(got, [self.left as u64, u64::from(team)]);
        self.halves = Some((inbox, outbox));
        Ok(())
    }
}

/// How many teams and windows of teams a rank remembers.
fn remembered(world: &World<Host>) -> usize {
    let progress = lock(&world.inner.progress).said().0.len();
    progress + lock(&world.inner.events).windows.teams()
}

#[test]
fn rows_and_columns_have_windows_of_one_name() {
    let rank = |world: World<Host>| -> Result<()> {
        let me = world.rank();
        let row = world.split("rows", me / 3, me)?.unwrap();
        let column = world.split("columns", me % 3, 9 - me)?.unwrap();
        stream!(let s = world.stream()?);
        let mut rings = [&row, &column, &world.everyone()]
            .into_iter()
            .map(|team| Ring::open(team, &s, "halo"))
            .collect::<Result<Vec<_>>>()?;
        let names: Vec<_> = rings
            .iter()
            .map(|ring| ring.halves.as_ref().unwrap().0.name().to_owned())
            .collect();
        assert_eq!(names, ["rows/halo", "columns/halo", "halo"]);
        // The windows outlive the handles of their teams.
        drop((row, column));
        for _ in 0..3 {
            for ring in &mut rings {
                ring.turn(&s)?;
            }
        }
        Ok(())
    };
    for result in World::<Host>::local(9, rank) {
        result.unwrap();
    }
    let nic = |_| {
        WorldOptions::new()
            .nic(Loopback::new(Options::default()))
            .route(Route::Nic)
    };
    for result in World::<Host>::local_with(9, nic, rank) {
        result.unwrap();
    }
}

#[test]
fn windows_of_all_kinds_take_the_ranks_of_the_team() {
    World::<Host>::local(4, |world| {
        // Ranks 3 and 1 are ranks 0 and 1 of their team.
        let order = 4 - world.rank();
        let team = world
            .split("odd and even", world.rank() % 2, order)
            .unwrap();
        let team = team.unwrap();
        let (me, other) = (team.rank(), 1 - team.rank());
        stream!(let s = world.stream().unwrap());
        let src = Region::from_slice(&world, &[10 + me as u64; 2]).unwrap();
        let src = src.on(&s).unwrap();
        let mut window = RangeWindow::new("range", 4);
        let out = window.range_to(other, 2 * me..2 * me + 2);
        let (inbox, outbox) = window.open(&team.on(&s)).unwrap();
        assert!(inbox.origins().eq([other]) && outbox.targets().eq([other]));
        let group = Group::new([other]);
        let exposed = inbox.post_to(&s, &group).unwrap();
        let mut epoch = outbox.start_to(&group).unwrap();
        epoch.put(&src, out).unwrap();
        let _outbox = epoch.complete(&s).unwrap();
        let mut inbox = exposed.wait(&s).unwrap();
        let got = inbox.host_mut(&s).unwrap()[2 * other..2 * other + 2].to_vec();
        assert_eq!(got, [10 + other as u64; 2]);
        let none = Group::new([2]);
        let error = inbox.try_post_to(&s, &none).map(drop).unwrap_err().error;
        assert!(
            matches!(error, Error::NoSuchRank { rank: 2, size: 2 }),
            "{error}"
        );

        let mut window = AtomicWindow::new("sum", 2);
        let out = window.target(0);
        let (inbox, outbox) = window.open(&team.on(&s)).unwrap();
        let mut epoch = outbox.start();
        epoch.accumulate(&src, out, Op::Sum).unwrap();
        let (mut inbox, _outbox) = exchange(&s, inbox, epoch).unwrap();
        let sum = if me == 0 { 10 + 11 } else { 0 };
        assert_eq!(inbox.host_mut(&s).unwrap()[0], sum);
    });
}

/// The order of the team is not that of the job, in which peers are kept.
#[test]
fn groups_are_of_ranks_of_the_team_in_any_order() {
    World::<Host>::local(3, |world| {
        let team = world.team("turned", &[2, 1, 0]).unwrap();
        stream!(let s = world.stream().unwrap());
        let src = Region::from_slice(&world, &[7_u64]).unwrap();
        let src = src.on(&s).unwrap();
        let mut window = SlotWindow::new("slots");
        if team.rank() == 2 {
            let to = [0, 1].map(|rank| window.slot_to(rank, 0));
            let (_inbox, outbox) = window.open(&team.on(&s)).unwrap();
            let mut epoch = outbox.start_to(&Group::new([0, 1])).unwrap();
            for to in to {
                epoch.put(&src, to).unwrap();
            }
            let _outbox = epoch.complete(&s).unwrap();
            s.synchronize().unwrap();
            return;
        }
        let from = window.slot_from(2, 0, 1);
        let (inbox, _outbox) = window.open(&team.on(&s)).unwrap();
        let exposed = inbox.post_to(&s, &Group::new([2])).unwrap();
        let mut inbox = exposed.wait(&s).unwrap();
        assert_eq!(inbox.read(&s).unwrap().slot(from), [7]);
    });
}

#[test]
fn a_rank_that_the_team_does_not_have_is_named_with_the_team() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        if world.rank() == 1 {
            return;
        }
        let team = world.team("ends", &[2, 0]).unwrap();
        let mut window = SlotWindow::<u8>::new("halo");
        if team.rank() == 0 {
            window.slot_to(2, 0);
        }
        let error = window.open(&team.on(&s)).map(drop).unwrap_err();
        assert_eq!(
            error.to_string(),
            "window `ends/halo` (number 0 of team 1): rank 2 names rank 2, but team `ends` has 2 ranks"
        );
        assert!(team.world_rank(2).is_err());
    });
}

#[test]
fn names_are_taken_per_team() {
    World::<Host>::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        let one = world.team("one", &[0, 1]).unwrap();
        let two = world.team("two", &[1, 0]).unwrap();
        let first = Barrier::open(&one.on(&s), "b").unwrap();
        let second = Barrier::open(&two.on(&s), "b").unwrap();
        let error = Barrier::open(&one.on(&s), "b").map(drop).unwrap_err();
        assert!(
            matches!(&error, Error::Open(WindowError::NameTaken { window, .. }) if &*window.name == "one/b"),
            "{error}"
        );
        assert_ne!(first.id(), second.id());
        // Different windows of one team.
        let name = ["x", "y"][world.rank()];
        let error = Barrier::open(&two.on(&s), name).map(drop).unwrap_err();
        let Error::Open(WindowError::Disagreement { disagreement, .. }) = error else {
            panic!("{error}")
        };
        assert!(matches!(
            *disagreement,
            Disagreement::Windows {
                lowest: 0,
                rank: 1,
                ..
            }
        ));
    });
}

#[test]
fn wrong_lists_are_refused_on_all_ranks_and_nothing_is_left_of_them() {
    World::<Host>::local(3, |world| {
        let me = world.rank();
        let before = remembered(&world);
        let error = world.team("t", &[0, 1, 2, 1]).unwrap_err();
        assert!(
            matches!(error, Error::Team(TeamError::Twice { rank: 1, .. })),
            "{error}"
        );
        let error = world.team("t", &[0, 1, 2, 3]).unwrap_err();
        assert!(
            matches!(error, Error::NoSuchRank { rank: 3, size: 3 }),
            "{error}"
        );
        let error = world.team("t", &[(me + 1) % 3]).unwrap_err();
        assert!(
            matches!(error, Error::Team(TeamError::NotListed { rank, .. }) if rank == me),
            "{error}"
        );
        // One rank gives another list, or a wrong one, or another name. The name may be as long as can be.
        let lists: [&[usize]; 2] = [&[2, 1, 0], &[0, 1, 2, 2]];
        let long = "t".repeat(4000);
        for (list, name) in lists.into_iter().zip(["t", &long]) {
            let mine: &[usize] = if me == 1 { list } else { &[0, 1, 2] };
            let error = world.team(name, mine).unwrap_err();
            let typed = matches!(
                error,
                Error::Team(TeamError::Differ { .. } | TeamError::Twice { .. })
            );
            assert!(typed, "{error}");
            world.all_gather("heard", Vec::new()).unwrap();
        }
        // One rank gives a name that no team can have.
        let name = if me == 1 {
            "t".repeat(4097)
        } else {
            "t".into()
        };
        let error = world.team(&name, &[0, 1, 2]).unwrap_err();
        let typed = matches!(
            error,
            Error::Team(TeamError::Differ { .. })
                | Error::Control(ControlError::TooLarge { bytes: 4097, .. })
        );
        assert!(typed, "{error}");
        let error = world.split(["a", "b"][me % 2], 0, 0).unwrap_err();
        assert!(
            matches!(&error, Error::Team(TeamError::Names { lowest: 0, rank: 1, first, other }) if first == "a" && other == "b"),
            "{error}"
        );
        for _ in 0..3 {
            assert_eq!(world.split("t", 0, 0).unwrap().unwrap().ranks(), [0, 1, 2]);
        }
        assert_eq!(remembered(&world), before.max(1));
    });
}

#[test]
fn nothing_grows_with_every_team() {
    World::<Host>::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        for _ in 0..600 {
            let team = world.team("t", &[1, 0]).unwrap();
            let mut barrier = Barrier::open(&team.on(&s), "b").unwrap();
            barrier.enqueue(&s).unwrap();
        }
        s.synchronize().unwrap();
        let team = world.team("t", &[1, 0]).unwrap();
        assert!(team.id().number() > 600, "numbers come back last");
        drop(team);
        let until = Instant::now() + Duration::from_secs(10);
        while remembered(&world) > 0 && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(remembered(&world), 0);
    });
}

/// Rank 3 dies. The team of ranks 0 and 1 goes on, and so do its open windows. That of ranks 1, 2 and 3 does not.
#[test]
fn a_death_ends_what_its_teams_have_and_nothing_else() {
    let opened = Meeting::new(4);
    std::thread::scope(|scope| {
        for control in tidegate_boot::local(4) {
            let opened = &opened;
            scope.spawn(move || {
                let control = std::sync::Arc::new(control);
                // SAFETY: the control plane of `tidegate-boot` carries what it is given.
                let world =
                    unsafe { World::<Host>::from_control(control.clone(), Host::for_threads()) }
                        .unwrap();
                let me = world.rank();
                let low = (me < 2).then(|| world.team("low", &[1, 0]).unwrap());
                let high = (me > 0).then(|| world.team("high", &[1, 2, 3]).unwrap());
                stream!(let s = world.stream().unwrap());
                stream!(let t = world.stream().unwrap());
                let mut ring = low.as_ref().map(|low| Ring::open(low, &s, "w").unwrap());
                let mut upper = high.as_ref().map(|high| Ring::open(high, &t, "w").unwrap());
                opened.wait();
                if me == 3 {
                    return control.kill();
                }
                if let Some(upper) = &mut upper {
                    let error = loop {
                        if let Err(error) = upper.turn(&t) {
                            break error;
                        }
                    };
                    let cause = match &error {
                        Error::Revoked { window, cause } => {
                            assert_eq!(&*window.name, "high/w");
                            cause.clone()
                        }
                        Error::Wait(failed) => failed.cause.clone(),
                        other => panic!("{other}"),
                    };
                    assert!(matches!(cause, Cause::PeerLost { rank: 3, .. }), "{cause}");
                    let high = high.as_ref().unwrap();
                    let error = high.all_gather("gone", Vec::new()).unwrap_err();
                    assert!(error.to_string().contains("rank 3"), "{error}");
                }
                if let (Some(ring), Some(low)) = (&mut ring, &low) {
                    for _ in 0..100 {
                        ring.turn(&s).unwrap();
                    }
                    let mut sum =
                        AllReduce::<u64, Host>::open(&low.on(&s), "new", 1, Op::Sum).unwrap();
                    let x = Region::from_slice(&world, &[me as u64]).unwrap();
                    let mut x = x.on(&s).unwrap();
                    sum.enqueue(&s, &mut x).unwrap();
                    assert_eq!(x.into_host(&s).unwrap()[..], [1]);
                    world.team("more", &[0, 1]).unwrap();
                    assert!(world.all_gather("all", Vec::new()).is_err());
                }
            });
        }
    });
}

/// Ranks 0 and 1 open windows of two teams in different orders.
#[test]
fn different_orders_in_overlapping_teams_are_reported() {
    let seen_by = AtomicUsize::new(0);
    let texts = World::<Host>::local(2, |world| {
        world.report_waits_after(Duration::from_millis(100));
        let teams = [[0, 1], [1, 0]];
        let names = ["rows", "columns"];
        let teams = [0, 1].map(|team| world.team(names[team], &teams[team]).unwrap());
        stream!(let s = world.stream().unwrap());
        let other = world.clone();
        let report = || {
            let until = Instant::now() + Duration::from_secs(20);
            let text = loop {
                match other.last_report() {
                    Some(text) if text.contains("cycle: rank") => break text,
                    _ if Instant::now() > until => panic!("{:?}", other.last_report()),
                    _ => std::thread::sleep(Duration::from_millis(10)),
                }
            };
            // The next report has no cycle, so no rank goes on before both have seen this one.
            seen_by.fetch_add(1, Ordering::SeqCst);
            while seen_by.load(Ordering::SeqCst) < 2 && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
            text
        };
        let seen = Meeting::new(2);
        std::thread::scope(|scope| {
            let watcher = scope.spawn(|| {
                let text = report();
                // The other order comes after all, by another thread.
                stream!(let t = world.stream().unwrap());
                drop(Barrier::open(&teams[1 - world.rank()].on(&t), "b").unwrap());
                seen.wait();
                text
            });
            drop(Barrier::open(&teams[world.rank()].on(&s), "b").unwrap());
            seen.wait();
            watcher.join().unwrap()
        })
    });
    for text in texts {
        for (rank, other, team) in [(0, 1, "rows"), (1, 0, "columns")] {
            let line = format!("rank {rank}: rank {other}, to come to opening barrier `{team}/b`");
            assert!(text.contains(&line), "{text}");
        }
    }
}

#[test]
fn making_teams_is_reported_too() {
    World::<Host>::local(3, |world| {
        world.report_waits_after(Duration::from_millis(100));
        let ranks = [0, 1, 2];
        // Rank 1 comes when it has seen the report.
        std::thread::scope(|scope| {
            let waits = (world.rank() != 1).then(|| scope.spawn(|| world.team("all", &ranks)));
            let until = Instant::now() + Duration::from_secs(20);
            let line = "ranks 0, 2, each: rank 1, to come to making the team `all`";
            while !world.last_report().is_some_and(|text| text.contains(line)) {
                assert!(Instant::now() < until, "{:?}", world.last_report());
                std::thread::sleep(Duration::from_millis(10));
            }
            let team = match waits {
                Some(waits) => waits.join().unwrap(),
                None => world.team("all", &ranks),
            };
            assert_eq!(team.unwrap().ranks(), ranks);
        });
    });
}

/// Each rank makes a team with the next one, which makes another one. No two of these teams clash, but none can begin.
#[test]
fn teams_that_wait_for_each_other_in_a_cycle_differ_on_all_ranks() {
    World::<Host>::local(3, |world| {
        let me = world.rank();
        let right = world.ring().1;
        for _ in 0..3 {
            let error = world.team("pair", &[me, right]).unwrap_err();
            let Error::Team(TeamError::Differ { rank, mine, theirs }) = error else {
                panic!("{error}");
            };
            assert_eq!(rank, right);
            assert_eq!(mine.ranks, [me, right]);
            assert_eq!(theirs.ranks, [right, (right + 1) % 3]);
            world.all_gather("heard", Vec::new()).unwrap();
        }
        // In one order of all ranks, they can all begin.
        for first in 0..3 {
            let pair = [first, (first + 1) % 3];
            if pair.contains(&me) {
                assert_eq!(world.team("pair", &pair).unwrap().ranks(), pair);
            }
        }
    });
}

#[test]
fn a_stream_of_another_world_is_refused_on_all_ranks() {
    let (one, two) = (tidegate_boot::local(2), tidegate_boot::local(2));
    std::thread::scope(|scope| {
        for (one, two) in one.into_iter().zip(two) {
            scope.spawn(move || {
                let world = |control: tidegate_boot::LocalControl| {
                    let control = std::sync::Arc::new(control);
                    // SAFETY: the control plane of `tidegate-boot` carries what it is given.
                    unsafe { World::<Host>::from_control(control, Host::for_threads()) }.unwrap()
                };
                let (one, two) = (world(one), world(two));
                let team = one.team("pair", &[0, 1]).unwrap();
                stream!(let s = one.stream().unwrap());
                stream!(let t = two.stream().unwrap());
                let error = if one.rank() == 0 {
                    Barrier::open(&team.on(&t), "b").map(drop).unwrap_err()
                } else {
                    Barrier::open(&team.on(&s), "b").map(drop).unwrap_err()
                };
                let text = error.to_string();
                assert!(
                    text.contains("belongs to another world than team `pair`"),
                    "{text}"
                );
                assert_eq!(
                    matches!(error, Error::Team(TeamError::OtherWorld { rank: 0, .. })),
                    one.rank() == 0
                );
                let first = Barrier::open(&team.on(&s), "b").unwrap();
                let second = Barrier::open(&t, "b").unwrap();
                let (first, first_back) = recorded(&mut s, first);
                let (second, second_back) = recorded(&mut t, second);
                // The words of both recordings have the same names.
                let verdict = if one.rank() == 0 {
                    first.verify(&two.everyone().on(&s))
                } else {
                    second.verify(&two.everyone().on(&t))
                };
                let error = verdict.unwrap_err();
                assert_eq!(
                    error.to_string(),
                    "the stream of rank 0 belongs to another world than the team of all ranks"
                );
                assert!(first.verify(&team.on(&s)).unwrap().proof().is_ok());
                assert!(second.verify(&t).unwrap().proof().is_ok());
                drop((first_back, second_back));
            });
        }
    });
}

fn recorded<'s>(
    s: &mut Stream<'s, Host>,
    barrier: Barrier<'s, Host>,
) -> (crate::Graph<'s, Host>, Barrier<'s, Host>) {
    let recorded = s.capture(barrier, |s, mut barrier| {
        barrier.enqueue(s)?;
        Ok(barrier)
    });
    recorded.unwrap()
}
