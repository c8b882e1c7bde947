//! Ranges whose elements NICs access in a copy, as between GPUs, over a network that delays and reorders, loses messages,
//! and whose ranks die. Gets see what the target has exposed, and updates are applied once, within their exposure.

#[path = "rig/wild.rs"]
mod wild;

use std::time::Duration;

use tidegate_boot::LocalControl;
use tidegate_core::window::{ByRange, Inbox, Op, Out, Outbox, RangeWindow, exchange};
use tidegate_core::{Layout, On, Region, Result, Stream, World, WorldOptions, stream};
use tidegate_fabric::Options;
use tidegate_fake::wire::Net;
use tidegate_host::Host;
use wild::{LONG, by_nic, lossy, rank_2_dies, wild};

fn copied(net: &Net, options: &Options) -> impl Fn(usize) -> WorldOptions + Sync {
    let by_nic = by_nic(net, options);
    move |rank| by_nic(rank).staged()
}

/// Two ranks get from each other, and use what they got, before either waits for the other's epoch.
#[test]
fn a_get_waits_for_no_program() {
    for seed in 0..4 {
        let (net, options) = (Net::new(2, wild(seed)), Options::default().budget(1));
        let outcome = World::<Host>::local_with(2, copied(&net, &options), |world| -> Result<_> {
            stream!(let s = world.stream()?);
            let mut window = RangeWindow::<u64>::new("each", 3).fail_after(LONG);
            let there = window.range_to(1 - world.rank(), 1..3);
            let (mut inbox, outbox) = window.open(&s)?;
            let here = [7, 8, 9].map(|x| x + 10 * world.rank() as u64);
            inbox.host_mut(&s)?.copy_from_slice(&here);
            let exposed = inbox.post(&s)?;
            let mut old = Region::<u64, _>::zeroed(&world, 2)?.on(&s)?;
            let mut epoch = outbox.start();
            epoch.get(&mut old, there)?;
            let _outbox = epoch.complete(&s)?;
            let old = old.into_host(&s)?.to_vec();
            let _inbox = exposed.wait(&s)?;
            Ok(old)
        });
        let outcome: Vec<_> = outcome.into_iter().map(Result::unwrap).collect();
        assert_eq!(outcome, [[18, 19], [8, 9]]);
    }
}

type On1<'s> = Region<u64, On<'s, Host>>;
/// The halves of a window, what was got from the peer, and ones.
type Both<'s> = (
    Inbox<'s, u64, Host, ByRange>,
    Outbox<'s, u64, Host, ByRange>,
    On1<'s>,
    On1<'s>,
);

const LEN: usize = 40;

/// Opens a window of two ranks, whose elements are their numbers at first. Returns the peer's odd elements, from the last
/// to the first, and the even ones.
fn open<'s>(world: &World<Host>, s: &Stream<'s, Host>) -> Result<(Both<'s>, [Out<u64>; 2])> {
    let mut window = RangeWindow::<u64>::new("both", 2 * LEN).fail_after(LONG);
    let peer = 1 - world.rank();
    let odd = Layout::<Host>::strided(2 * LEN - 1, &[(LEN as u32, -2)])?;
    let even = Layout::<Host>::strided(0, &[(LEN as u32, 2)])?;
    let to = [odd, even].map(|layout| window.layout_to(peer, &layout));
    let (mut inbox, outbox) = window.open(s)?;
    let here = inbox.host_mut(s)?;
    here.iter_mut().zip(0..).for_each(|(x, at)| *x = at);
    let got = Region::zeroed(world, LEN)?.on(s)?;
    let ones = Region::from_slice(world, &[1; LEN])?.on(s)?;
    Ok(((inbox, outbox, got, ones), to))
}

/// An epoch in which the peer gets the odd elements, which their owner has just changed, and adds to the even ones; and
/// one in which it only adds.
fn step<'s>(s: &Stream<'s, Host>, [odd, even]: [Out<u64>; 2], both: Both<'s>) -> Result<Both<'s>> {
    let (mut inbox, outbox, mut got, ones) = both;
    let count = |x: &mut [u64]| x.iter_mut().skip(1).step_by(2).for_each(|x| *x += 100);
    s.launch(count, inbox.memory_mut())?;
    let mut epoch = outbox.start();
    epoch.get(&mut got, odd)?;
    epoch.accumulate(&ones, even, Op::Sum)?;
    epoch.accumulate(&ones, even, Op::Sum)?;
    let (mut inbox, outbox) = exchange(s, inbox, epoch)?;
    s.launch(count, inbox.memory_mut())?;
    let mut epoch = outbox.start();
    epoch.accumulate(ones.slice(0..3)?, even.at(1), Op::Sum)?;
    let (inbox, outbox) = exchange(s, inbox, epoch)?;
    Ok((inbox, outbox, got, ones))
}

/// Checks the state after so many steps.
fn check<'s>(s: &Stream<'s, Host>, both: &mut Both<'s>, steps: u64) -> Result<()> {
    let first = |at: usize| 200 * (steps - 1) + 100 + 2 * (LEN - at) as u64 - 1;
    assert_eq!(both.2.to_vec(s)?, (0..LEN).map(first).collect::<Vec<_>>());
    let here = both.0.host_mut(s)?;
    for at in 0..LEN {
        let more = u64::from((1..4).contains(&at));
        assert_eq!(here[2 * at], 2 * at as u64 + (2 + more) * steps, "{at}");
        assert_eq!(here[2 * at + 1], 2 * at as u64 + 1 + 200 * steps, "{at}");
    }
    Ok(())
}

/// Nothing is applied before the target has posted, everything before its wait is over, and once. Eager and replayed.
#[test]
fn updates_and_gets_stay_within_their_exposure() {
    for seed in 0..4 {
        let (net, options) = (
            Net::new(2, wild(seed)),
            Options::default().budget(1 + seed as usize),
        );
        let outcome = World::<Host>::local_with(2, copied(&net, &options), |world| -> Result<()> {
            stream!(let mut s = world.stream()?);
            let (mut both, to) = open(&world, &s)?;
            let mut steps = 0;
            for _ in 0..4 {
                both = step(&s, to, both)?;
                steps += 1;
                check(&s, &mut both, steps)?;
            }
            let (graph, mut both) = s.capture(both, |s, both| step(s, to, both))?;
            for times in [1, 9, 10] {
                both = graph.replay(&s, both, times)?;
                steps += times as u64;
                check(&s, &mut both, steps)?;
                both = step(&s, to, both)?;
                steps += 1;
                check(&s, &mut both, steps)?;
            }
            Ok(())
        });
        outcome.into_iter().for_each(Result::unwrap);
    }
}

/// Messages are lost, and operations fail. Every wait ends, and what has come is right.
#[test]
fn what_is_lost_ends_in_an_error() {
    let mut failed = 0;
    for seed in 0..8 {
        let options = Options::default().silence(Duration::from_millis(200));
        let net = Net::new(2, lossy(seed));
        let outcome = World::<Host>::local_with(2, copied(&net, &options), |world| -> Result<()> {
            stream!(let s = world.stream()?);
            let (mut both, to) = open(&world, &s)?;
            for steps in 1..=10 {
                both = step(&s, to, both)?;
                check(&s, &mut both, steps)?;
            }
            Ok(())
        });
        failed += outcome.into_iter().filter(Result::is_err).count();
    }
    assert!(failed > 0, "nothing was lost");
}

/// A rank dies in the middle of its epochs. Every survivor's waits end, and name it.
#[test]
fn the_death_of_a_target_ends_the_waits() {
    for seed in 0..4 {
        let (net, options) = (Net::new(3, wild(seed)), Options::default());
        rank_2_dies(seed, copied(&net, &options), until_death);
    }
}

/// Gets from all ranks, and adds to their elements. Rank 2 dies in its fourth epoch.
fn until_death(plane: &LocalControl, world: &World<Host>) -> Result<()> {
    stream!(let s = world.stream()?);
    let (rank, ranks) = (world.rank(), world.size());
    let mut window = RangeWindow::<u64>::new("mortal", 2 * ranks).fail_after(LONG);
    let own = |rank: usize| 2 * rank..2 * rank + 2;
    let to: Vec<_> = (0..ranks)
        .map(|target| window.range_to(target, own(rank)))
        .collect();
    let (mut inbox, mut outbox) = window.open(&s)?;
    let one = Region::from_slice(world, &[1u64])?.on(&s)?;
    for round in 0.. {
        let mut old = (0..ranks)
            .map(|_| Region::<u64, _>::zeroed(world, 1)?.on(&s))
            .collect::<Result<Vec<_>>>()?;
        let exposed = inbox.post(&s)?;
        let mut epoch = outbox.start();
        for (to, old) in to.iter().zip(&mut old) {
            epoch.accumulate(&one, *to, Op::Sum)?;
            epoch.get(old, to.at(1))?;
        }
        outbox = epoch.complete(&s)?;
        if (round, rank) == (3, 2) {
            plane.kill();
            break;
        }
        inbox = exposed.wait(&s)?;
        s.synchronize()?;
    }
    Ok(())
}
