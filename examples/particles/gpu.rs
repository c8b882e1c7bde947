//! The prelude and the kernels for GPUs, with sources in `kernels/examples.cu`.

use prelude::*;
#[cfg(feature = "cuda")]
pub(crate) use tidegate::cuda::prelude;
#[cfg(not(feature = "cuda"))]
pub(crate) use tidegate::hip::prelude;

use crate::particle::Particle;

const CODE: Code = code!("../../kernels/examples", gfx90a, gfx942, gfx950, gfx1100);

/// The number of threads that go through a list.
const THREADS: usize = 1024;

tidegate::kernel! {
    /// The kernels.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe struct Functions {
        /// Makes three lists empty.
        fn clear = "clear_lists"(stay: &mut [Particle], left: &mut [Particle], right: &mut [Particle]);
        /// Moves each particle to one of three lists.
        fn advance = "move_particles"(own: &[Particle], stay: &mut [Particle], left: &mut [Particle], right: &mut [Particle]);
        /// Writes the lengths of the lists that are put.
        fn lengths = "list_lengths"(left: &[Particle], right: &[Particle], lengths: &mut [u64]);
        /// Adds the particles that came.
        fn arrive = "take_particles"(came: Slots<Particle>, own: &mut [Particle]);
        /// Computes the number of particles and the sum of their ids, in one block.
        fn count = "count_particles"(own: &[Particle], sums: &mut [u64]);
    }
}

pub(crate) struct Kernels {
    functions: Functions<Gpu>,
}

impl Kernels {
    pub(crate) fn new(world: &World) -> Result<Self> {
        let module = Module::load(world, CODE)?;
        // SAFETY: it is `examples.cu`.
        let functions = unsafe { Functions::bind(&module) }?;
        Ok(Kernels { functions })
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
        let (clear, advance) = (&self.functions.clear, &self.functions.advance);
        s.launch(clear.threads(1, 32), (&mut *stay, &mut *left, &mut *right))?;
        let lists = (own, stay, &mut *left, &mut *right);
        s.launch(advance.threads(THREADS, 128), lists)?;
        let said = (&*left, &*right, lengths);
        s.launch(self.functions.lengths.threads(1, 32), said)
    }

    /// Adds the particles that came.
    pub(crate) fn arrive<'s>(
        &self,
        s: &Stream<'s>,
        came: InboxView<'_, 's, Particle>,
        own: &mut Region<Particle, On<'s>>,
    ) -> Result<()> {
        s.launch(self.functions.arrive.threads(THREADS, 128), (came, own))
    }

    /// Computes the number of particles and the sum of their ids.
    pub(crate) fn count<'s>(
        &self,
        s: &Stream<'s>,
        own: &Region<Particle, On<'s>>,
        sums: &mut Region<u64, On<'s>>,
    ) -> Result<()> {
        s.launch(self.functions.count.threads(128, 128), (own, sums))
    }
}
