//! The steps of `particles`, for any device.

use crate::device::Kernels;
use crate::device::prelude::*;
use crate::particle::{PARTICLES, Particle, STEPS};

/// The number of steps between two looks. It is even, since each step swaps two lists.
const LOOK: u64 = 10;

/// What a step needs. All lists begin with a header.
#[derive(Carry)]
struct Swarm<'s> {
    own: Region<Particle, On<'s>>,
    /// The particles that stay in a step. This list becomes `own`.
    stay: Region<Particle, On<'s>>,
    left: Region<Particle, On<'s>>,
    right: Region<Particle, On<'s>>,
    /// The lengths of `left` and `right`, including their headers.
    lengths: Region<u64, On<'s>>,
    /// The number of particles and the sum of their ids: first for this rank, then for all.
    sums: Region<u64, On<'s>>,
    total: AllReduce<'s, u64>,
    inbox: Inbox<'s, Particle>,
    outbox: Outbox<'s, Particle>,
    to_left: Out<Particle>,
    to_right: Out<Particle>,
}

/// One step. Nothing here waits.
fn step<'s>(s: &Stream<'s>, k: &Kernels, mut w: Swarm<'s>) -> Result<Swarm<'s>> {
    let (left, right) = (&mut w.left, &mut w.right);
    k.leave(s, &w.own, &mut w.stay, left, right, &mut w.lengths)?;
    (w.own, w.stay) = (w.stay, w.own);
    // This happens in every step, even if no particle leaves; then only a header is put.
    let mut epoch = w.outbox.start();
    epoch.put_counted(&w.left, w.lengths.slice(0..1)?, w.to_left)?;
    epoch.put_counted(&w.right, w.lengths.slice(1..2)?, w.to_right)?;
    (w.inbox, w.outbox) = exchange(s, w.inbox, epoch)?;
    k.arrive(s, w.inbox.view(), &mut w.own)?;
    Ok(w)
}

pub(crate) fn run() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    let (left, right) = world.ring();
    let kernels = Kernels::new(&world)?;

    stream!(let s = world.stream()?);
    // If left and right are the same rank, the key says which slot is which: 0 for what goes left, 1 for what goes
    // right.
    let mut window = SlotWindow::new("leaving");
    window.slot_from(right, 0, 1 + PARTICLES);
    window.slot_from(left, 1, 1 + PARTICLES);
    let (to_left, to_right) = (window.slot_to(left, 0), window.slot_to(right, 1));
    let (inbox, outbox) = window.open(&s)?;

    let mut own = vec![Particle::default(); 1 + PARTICLES];
    for id in (0..PARTICLES as u64).filter(|id| Particle::first_slab(*id, ranks) == rank) {
        own[0].id += 1;
        let last = own[0].id as usize;
        own[last] = Particle::new(id);
    }
    let list = || -> Result<_> { Region::zeroed(&world, 1 + PARTICLES)?.on(&s) };
    let swarm = Swarm {
        own: Region::from_vec(&world, own)?.on(&s)?,
        stay: list()?,
        left: list()?,
        right: list()?,
        lengths: Region::zeroed(&world, 2)?.on(&s)?,
        sums: Region::zeroed(&world, 2)?.on(&s)?,
        total: AllReduce::open(&s, "particles", 2, Op::Sum)?,
        inbox,
        outbox,
        to_left,
        to_right,
    };
    let (graph, mut swarm) = s.capture(swarm, |s, mut swarm| {
        for _ in 0..LOOK {
            swarm = step(s, &kernels, swarm)?;
        }
        kernels.count(s, &swarm.own, &mut swarm.sums)?;
        swarm.total.enqueue(s, &mut swarm.sums)?;
        Ok(swarm)
    })?;
    graph.verify(&s)?.proof()?;

    let all = [PARTICLES as u64, (0..PARTICLES as u64).sum()];
    for _ in 0..STEPS / LOOK {
        swarm = graph.replay(&s, swarm, 1)?;
        let sums = swarm.sums.to_vec(&s)?;
        assert_eq!(sums, all, "a particle is lost, or twice there");
    }

    let own = swarm.own.to_vec(&s)?;
    let mut own = own[1..][..own[0].id as usize].to_vec();
    own.sort_by_key(|particle| particle.id);
    let ends = |id| Particle::at_end(id, ranks);
    let expected = (0..PARTICLES as u64).map(ends);
    let expected = expected.filter_map(|(slab, particle)| (slab == rank).then_some(particle));
    assert!(own.into_iter().eq(expected), "a particle is elsewhere");
    if rank == 0 {
        let changed = |id: &u64| ends(*id).0 != Particle::first_slab(*id, ranks);
        let changed = (0..PARTICLES as u64).filter(changed).count();
        println!(
            "{ranks} ranks, {PARTICLES} particles: {STEPS} steps, {changed} are in another slab"
        );
    }
    Ok(())
}
