//! The prelude and the kernels for host streams.

use prelude::*;
pub(crate) use tidegate::host::prelude;

use crate::particle::Particle;

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

pub(crate) struct Kernels;

impl Kernels {
    pub(crate) fn new(_: &World) -> Result<Self> {
        Ok(Kernels)
    }

    /// Moves each particle to the list of those that stay or to one of those that leave, and writes the lengths of the
    /// latter.
    pub(crate) fn leave<'s>(
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

    /// Adds the particles that came.
    pub(crate) fn arrive<'s>(
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

    /// Computes the number of particles and the sum of their ids.
    pub(crate) fn count<'s>(
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
