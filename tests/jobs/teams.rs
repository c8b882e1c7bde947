//! Teams of processes: all kinds of calls at a time, and the death of a rank inside and outside.

use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use tidegate::host::prelude::*;

use crate::processes::{self, assert_success, error, lines, longest_survival, ready};

/// How soon after a rank's death the others must have ended. The margin is for busy machines.
const SOON: Duration = Duration::from_secs(120);

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| match role {
        "many" => many(&world),
        "killed" => killed(&world),
        other => panic!("there is no role {other}"),
    });
}

/// A ring of a team, turned and summed some times. Returns the sum.
fn turn(team: &Team, s: &Stream<'_>, times: usize) -> Result<u64> {
    let (left, right) = team.ring();
    let mut window = SlotWindow::<u64>::new("ring");
    let (from, to) = (window.slot_from(left, 0, 1), window.slot_to(right, 0));
    let (mut inbox, mut outbox) = window.open(&team.on(s))?;
    let mut sum = AllReduce::open(&team.on(s), "sum", 1, Op::Sum)?;
    let mut x = Region::from_slice(team.world(), &[team.world().rank() as u64])?.on(s)?;
    for _ in 0..times {
        let mut epoch = outbox.start();
        epoch.put(&x, to)?;
        (inbox, outbox) = exchange(s, inbox, epoch)?;
        let take = move |slots: Slots<'_, u64>, x: &mut [u64]| x[0] = slots.slot(from)[0];
        s.launch(take, (inbox.view(), &mut x))?;
    }
    let mut total = Region::zeroed(team.world(), 1)?.on(s)?;
    sum.enqueue_into(s, &x, &mut total)?;
    Ok(total.into_host(s)?[0])
}

/// Makes random teams, drops them, and uses those of a node.
fn many(world: &World) -> Result<()> {
    let (me, size) = (world.rank(), world.size());
    stream!(let s = world.stream()?);
    for round in 0..20 {
        let color = |rank: usize| (rank * 7 + round * 5) % 3;
        let Some(team) = world.split("some", (color(me) < 2).then_some(color(me)), size - me)?
        else {
            continue;
        };
        let ranks: Vec<_> = (0..size)
            .rev()
            .filter(|rank| color(*rank) == color(me))
            .collect();
        assert_eq!(team.ranks(), ranks);
        let expected: usize = ranks.iter().sum();
        assert_eq!(turn(&team, &s, round)?, expected as u64);
    }
    let node = world.node_team()?;
    let expected: usize = node.ranks().iter().sum();
    assert_eq!(turn(&node, &s, 3)?, expected as u64);
    if let Some(leaders) = world.leaders()? {
        assert!(leaders.ranks().contains(&me) && node.rank() == 0);
        let expected: usize = leaders.ranks().iter().sum();
        assert_eq!(turn(&leaders, &s, 3)?, expected as u64);
    }
    Ok(())
}

#[test]
fn teams_of_processes() {
    for ranks in [1, 2, 5] {
        assert_success(&processes::run("teams::a_rank", "many", ranks), &[]);
    }
}

/// Ranks 0 and 1 are a team without rank 3, which is killed. Ranks 1, 2 and 3 are one, too.
fn killed(world: &World) -> Result<()> {
    let me = world.rank();
    let low = (me < 2).then(|| world.team("low", &[1, 0])).transpose()?;
    let high = (me > 0)
        .then(|| world.team("high", &[3, 1, 2]))
        .transpose()?;
    stream!(let s = world.stream()?);
    stream!(let t = world.stream()?);
    let mut barrier = high
        .as_ref()
        .map(|high| Barrier::open(&high.on(&t), "b"))
        .transpose()?;
    let mut below = low
        .as_ref()
        .map(|low| Barrier::open(&low.on(&s), "b"))
        .transpose()?;
    ready(world);
    let mut fate = Ok(());
    while let Some(barrier) = &mut barrier {
        fate = barrier.enqueue(&t).and_then(|()| t.synchronize());
        if fate.is_err() {
            break;
        }
    }
    if let (Some(low), Some(below)) = (&low, &mut below) {
        // Rank 0 may not have heard of it yet, and rank 1 has.
        for _ in 0..1000 {
            below.enqueue(&s)?;
        }
        s.synchronize()?;
        low.all_gather("both are here", Vec::new())?;
        while world.all_gather("all", Vec::new()).is_ok() {}
        assert_eq!(turn(low, &s, 10)?, 1);
        assert_eq!(turn(&world.team("new", &[0, 1])?, &s, 10)?, 1);
        println!("survived: yes");
    }
    fate
}

#[test]
fn a_death_ends_its_teams_and_leaves_the_others() {
    const VICTIM: usize = 3;
    let job = processes::start("teams::a_rank", "killed", 4);
    job.wait_ready();
    std::thread::sleep(Duration::from_millis(20));
    job.kill(VICTIM);
    let outcome = job.finish();
    assert_eq!(outcome.ranks[VICTIM].status.signal(), Some(9));
    for rank in [1, 2] {
        let error = error(&outcome.ranks[rank]);
        assert!(
            error.contains("high/b") && error.contains("rank 3 is lost ("),
            "{error}"
        );
    }
    assert_success(&outcome, &[1, 2, VICTIM]);
    for rank in [0, 1] {
        assert_eq!(
            lines(&outcome.ranks[rank], "survived: ").next(),
            Some("yes")
        );
    }
    assert!(longest_survival(&outcome, VICTIM) < SOON);
}
