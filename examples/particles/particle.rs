//! A particle, and where each particle must end.

use tidegate::Element;

/// The number of particles. A list has room for all of them.
pub(crate) const PARTICLES: usize = 2000;
pub(crate) const STEPS: u64 = 200;

/// A particle, or the header of a list: then `id` is the number of particles that follow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Element)]
#[repr(C)]
pub(crate) struct Particle {
    /// The place in its rank's slab, from 0 to 1.
    pub(crate) x: f64,
    /// The distance of a step, which is less than a slab.
    pub(crate) v: f64,
    pub(crate) id: u64,
}

impl Particle {
    /// At first all particles are in the first two slabs, and some are fast. So for a while the other ranks have
    /// nothing to send.
    pub(crate) fn new(id: u64) -> Self {
        let x = (id as f64 + 0.5) / PARTICLES as f64;
        let v = (id % 41) as f64 / 200.0 - 0.1;
        Particle { x, v, id }
    }

    pub(crate) fn first_slab(id: u64, ranks: usize) -> usize {
        (id % 2) as usize % ranks
    }

    /// The particle one step later, and by how many slabs it has moved: -1, 0 or 1.
    pub(crate) fn moved(self) -> (Self, i8) {
        let x = self.x + self.v;
        let (x, slabs) = match x {
            x if x < 0.0 => (x + 1.0, -1),
            x if x >= 1.0 => (x - 1.0, 1),
            x => (x, 0),
        };
        (Particle { x, ..self }, slabs)
    }

    /// The slab in which it ends, and the particle as it is then. Particles do not affect each other.
    pub(crate) fn at_end(id: u64, ranks: usize) -> (usize, Self) {
        let mut particle = Self::new(id);
        let mut slab = Self::first_slab(id, ranks) as i64;
        for _ in 0..STEPS {
            let (moved, slabs) = particle.moved();
            (particle, slab) = (moved, slab + i64::from(slabs));
        }
        (slab.rem_euclid(ranks as i64) as usize, particle)
    }
}
