//! Particles that move along a closed line, which is cut in slabs, one a rank: how many leave a slab in a step is known
//! on the stream only, and differs from step to step.
//!
//! So each message has a header that says how many particles are behind it, and as much is put as the kernel has counted,
//! in every step, also where nothing leaves: what a step does not put would be what the one before last left
//! (`tidegate::varying_messages`). And so a step can be recorded, and the host waits once, at the end.
//!
//! No particle feels another, so that where each ends does not depend on the ranks: rank 0 moves all of them by itself,
//! and compares, bit by bit.
//!
//! Run it with `cargo run --example particles`, or on 8 ranks:
//! `cargo run --bin tidegate -- run -n 8 target/debug/examples/particles`.

use tidegate::host::prelude::*;

/// Particles in all; a rank has room for every one of them.
const PARTICLES: usize = 2000;
/// The most that may leave a slab at one end in one step.
const ROOM: usize = 100;
const STEPS: u64 = 1000;
const DT: f64 = 1e-3;

/// A particle; or the header of a list, whose `id` is how many particles are behind it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
struct Particle {
    x: f64,
    v: f64,
    id: u64,
}

impl Particle {
    /// The particles are spread evenly at first, and some are fast.
    fn new(id: u64) -> Self {
        let x = (id as f64 + 0.5) / PARTICLES as f64;
        let v = (id % 201) as f64 / 20.0 - 5.0;
        Particle { x, v, id }
    }

    /// The particle a step later.
    fn moved(self) -> Self {
        let force = -20.0 * (4.0 * std::f64::consts::PI * self.x).sin();
        let v = self.v + DT * force;
        // Of a tiny negative number the remainder is rounded to the end of the line, which is its beginning.
        let x = (self.x + DT * v).rem_euclid(1.0) % 1.0;
        Particle { x, v, ..self }
    }
}

/// Adds a particle to a list.
fn append(list: &mut [Particle], particle: Particle) {
    list[0].id += 1;
    let last = list[0].id as usize;
    assert!(last < list.len(), "a list has room for {}", list.len() - 1);
    list[last] = particle;
}

/// The particles of a list.
fn content(list: &[Particle]) -> &[Particle] {
    &list[1..][..list[0].id as usize]
}

/// Which part of the line is this rank's.
#[derive(Clone, Copy)]
struct Slab {
    rank: usize,
    size: usize,
}

impl Slab {
    /// The ranks to the left and to the right.
    fn neighbours(self) -> [usize; 2] {
        [self.size - 1, 1].map(|step| (self.rank + step) % self.size)
    }

    fn owner(self, particle: Particle) -> usize {
        (particle.x * self.size as f64) as usize
    }

    /// The kernel before the exchange: moves all particles, packs those that leave, and says how long each list is, with
    /// its header.
    fn advance(
        self,
        own: &mut [Particle],
        left: &mut [Particle],
        right: &mut [Particle],
        lengths: &mut [u64],
    ) {
        let count = content(own).len();
        for list in [&mut *own, left, right] {
            list[0].id = 0;
        }
        for index in 1..=count {
            let particle = own[index].moved();
            let owner = self.owner(particle);
            // Of two ranks each is both neighbours of the other: then all goes to the left.
            if owner == self.rank {
                append(own, particle);
            } else if owner == self.neighbours()[0] {
                append(left, particle);
            } else {
                assert_eq!(owner, self.neighbours()[1], "a particle is too fast");
                append(right, particle);
            }
        }
        for (length, list) in lengths.iter_mut().zip([left, right]) {
            *length = 1 + list[0].id;
        }
    }
}

/// The kernel behind it: takes in what came.
fn receive(came: Slots<'_, Particle>, own: &mut [Particle]) {
    for message in came.iter() {
        for particle in content(message) {
            append(own, *particle);
        }
    }
}

/// What a step needs; each region is a list, but for the lengths of those that go.
#[derive(Carry)]
struct State<'s> {
    own: Region<Particle, On<'s>>,
    left: Region<Particle, On<'s>>,
    right: Region<Particle, On<'s>>,
    lengths: Region<u64, On<'s>>,
    inbox: Inbox<'s, Particle>,
    outbox: Outbox<'s, Particle>,
    to_left: Out<Particle>,
    to_right: Out<Particle>,
}

fn step<'s>(s: &Stream<'s>, slab: Slab, mut st: State<'s>) -> Result<State<'s>> {
    let exposed = st.inbox.post(s)?;
    let advance =
        move |own: &mut [Particle],
              left: &mut [Particle],
              right: &mut [Particle],
              lengths: &mut [u64]| slab.advance(own, left, right, lengths);
    let lists = (&mut st.own, &mut st.left, &mut st.right, &mut st.lengths);
    s.launch(advance, lists)?;
    let mut epoch = st.outbox.start();
    epoch.put_counted(&st.left, st.lengths.slice(0..1)?, st.to_left)?;
    epoch.put_counted(&st.right, st.lengths.slice(1..2)?, st.to_right)?;
    st.outbox = epoch.complete(s)?;
    st.inbox = exposed.wait(s)?;
    s.launch(receive, (st.inbox.view(), &mut st.own))?;
    Ok(st)
}

/// What all ranks have in the end is what they would have if one had moved all. How many have changed slabs?
fn check(mut all: Vec<Particle>, slab: Slab) -> usize {
    all.sort_by_key(|particle| particle.id);
    let first: Vec<_> = (0..PARTICLES as u64).map(Particle::new).collect();
    let alone = |start: &Particle| (0..STEPS).fold(*start, |particle, _| particle.moved());
    let last: Vec<_> = first.iter().map(alone).collect();
    assert!(all == last, "a particle is lost, twice there, or elsewhere");
    let pairs = first.iter().zip(&last);
    pairs
        .filter(|(a, b)| slab.owner(**a) != slab.owner(**b))
        .count()
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, size) = (world.rank(), world.size());
    let slab = Slab { rank, size };
    let [left, right] = slab.neighbours();

    stream!(let s = world.stream()?);
    // If left and right are the same rank, the key says which slot is which: 0 for what goes left, 1 for what goes right.
    let mut window = SlotWindow::new("leaving");
    window.slot_from(right, 0, 1 + ROOM);
    window.slot_from(left, 1, 1 + ROOM);
    let (to_left, to_right) = (window.slot_to(left, 0), window.slot_to(right, 1));
    let (inbox, outbox) = window.open(&s)?;
    let mut own = vec![Particle::default(); 1 + PARTICLES];
    for particle in (0..PARTICLES as u64).map(Particle::new) {
        if slab.owner(particle) == rank {
            append(&mut own, particle);
        }
    }
    let state = State {
        own: Region::from_slice(&world, &own)?.on(&s)?,
        left: Region::zeroed(&world, 1 + ROOM)?.on(&s)?,
        right: Region::zeroed(&world, 1 + ROOM)?.on(&s)?,
        lengths: Region::zeroed(&world, 2)?.on(&s)?,
        inbox,
        outbox,
        to_left,
        to_right,
    };

    let (graph, state) = s.capture(state, |s, state| step(s, slab, state))?;
    let state = graph.replay(&s, state, STEPS)?;
    let own = state.own.into_host(&s)?; // the one place where the host waits

    let words = content(&own)
        .iter()
        .flat_map(|p| [p.x.to_bits(), p.v.to_bits(), p.id]);
    let all = world.all_gather("particles", words.flat_map(u64::to_le_bytes).collect())?;
    if rank == 0 {
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("it has 8 bytes"));
        let particle = |bytes: &[u8]| Particle {
            x: f64::from_bits(word(&bytes[..8])),
            v: f64::from_bits(word(&bytes[8..16])),
            id: word(&bytes[16..]),
        };
        let all = all
            .iter()
            .flat_map(|bytes| bytes.chunks_exact(24))
            .map(particle);
        let changed = check(all.collect(), slab);
        println!(
            "{size} ranks, {PARTICLES} particles: {STEPS} steps, {changed} are in another slab"
        );
    }
    Ok(())
}
