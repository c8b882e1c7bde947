//! Particles that move along a closed line, which is cut in slabs, one a rank: how many leave a slab in a step is known
//! on the stream only, differs from step to step, and is often none.
//!
//! So each message has a header that says how many particles are behind it, and as much is put as the kernel has counted,
//! in every step, also where nothing leaves: what a step does not put would be what the one before last left
//! (`tidegate::varying_messages`). And so many steps can be recorded, and the host waits now and then only: to see that no
//! particle is lost, by two sums over all ranks. At the end each rank compares its particles, bit by bit, with where they
//! should be.
//!
//! Run it with `cargo run --example particles`, or on 8 ranks:
//! `cargo run --bin tidegate -- run -n 8 target/debug/examples/particles`. `particles_cuda` is the same on GPUs: the steps
//! are one text for both (`particles/swarm.rs`), and a program has its prelude and its kernels.

#[path = "particles/swarm.rs"]
mod swarm;

use prelude::*;
use swarm::Particle;
use tidegate::host::prelude;

/// Adds a particle to a list.
fn append(list: &mut [Particle], particle: Particle) {
    list[0].id += 1;
    let last = list[0].id as usize;
    list[last] = particle;
}

/// The particles of a list.
fn content(list: &[Particle]) -> &[Particle] {
    &list[1..][..list[0].id as usize]
}

struct Kernels;

impl Kernels {
    fn new(_: &World) -> Result<Self> {
        Ok(Kernels)
    }

    /// Moves all particles to the list of those that stay, or to one of those that leave; and says how long these are.
    fn leave<'s>(
        &self,
        s: &Stream<'s>,
        own: &Region<Particle, On<'s>>,
        stay: &mut Region<Particle, On<'s>>,
        left: &mut Region<Particle, On<'s>>,
        right: &mut Region<Particle, On<'s>>,
        lengths: &mut Region<u64, On<'s>>,
    ) -> Result<()> {
        let kernel = |own: &[Particle],
                      stay: &mut [Particle],
                      left: &mut [Particle],
                      right: &mut [Particle],
                      lengths: &mut [u64]| {
            for list in [&mut *stay, left, right] {
                list[0].id = 0;
            }
            for (particle, slabs) in content(own).iter().map(|particle| particle.moved()) {
                let list = match slabs {
                    0 => &mut *stay,
                    1 => &mut *right,
                    _ => &mut *left,
                };
                append(list, particle);
            }
            lengths[0] = 1 + left[0].id;
            lengths[1] = 1 + right[0].id;
        };
        s.launch(kernel, (own, stay, left, right, lengths))
    }

    /// Takes in what came.
    fn arrive<'s>(
        &self,
        s: &Stream<'s>,
        came: InboxView<'_, 's, Particle>,
        own: &mut Region<Particle, On<'s>>,
    ) -> Result<()> {
        let kernel = |came: Slots<'_, Particle>, own: &mut [Particle]| {
            for message in came.iter() {
                for particle in content(message) {
                    append(own, *particle);
                }
            }
        };
        s.launch(kernel, (came, own))
    }

    /// How many there are, and the sum of their numbers.
    fn count<'s>(
        &self,
        s: &Stream<'s>,
        own: &Region<Particle, On<'s>>,
        sums: &mut Region<u64, On<'s>>,
    ) -> Result<()> {
        let kernel = |own: &[Particle], sums: &mut [u64]| {
            sums[0] = own[0].id;
            sums[1] = content(own).iter().map(|particle| particle.id).sum();
        };
        s.launch(kernel, (own, sums))
    }
}

fn main() -> Result<()> {
    swarm::run()
}
