//! `particles` on GPUs: particles that move along a closed line, which is cut in slabs.
//!
//! The steps are the same text (`particles/swarm.rs`). Here are the prelude and the kernels, whose sources are in
//! `kernels/examples.cu`. Threads take places in a list by an atomic counter, which is the list's header: so particles come
//! in any order, and go to the same places all the same.
//!
//! Run it with `cargo run --example particles_cuda`, or on 8 ranks:
//! `cargo run --bin tidegate -- run -n 8 target/debug/examples/particles_cuda`.

#[path = "particles/swarm.rs"]
mod swarm;

use prelude::*;
use swarm::Particle;
use tidegate::cuda::prelude;

const CODE: &[u8] = include_bytes!("../kernels/examples.ptx");

/// Threads that go through a list.
const THREADS: usize = 1024;

tidegate::kernel! {
    /// The device code.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe struct Code {
        /// Makes three lists empty.
        fn clear = "clear_lists"(stay: &mut [Particle], left: &mut [Particle], right: &mut [Particle]);
        /// Moves each particle to one of three lists.
        fn advance = "move_particles"(own: &[Particle], stay: &mut [Particle], left: &mut [Particle], right: &mut [Particle]);
        /// How long the lists are that are put.
        fn lengths = "list_lengths"(left: &[Particle], right: &[Particle], lengths: &mut [u64]);
        /// Takes in what came.
        fn arrive = "take_particles"(came: Slots<Particle>, own: &mut [Particle]);
        /// How many there are, and the sum of their numbers, by one block.
        fn count = "count_particles"(own: &[Particle], sums: &mut [u64]);
    }
}

struct Kernels {
    code: Code<Cuda>,
}

impl Kernels {
    fn new(world: &World) -> Result<Self> {
        let module = Module::load(world, CODE)?;
        // SAFETY: it is `examples.cu`.
        let code = unsafe { Code::bind(&module) }?;
        Ok(Kernels { code })
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
        let (clear, advance) = (&self.code.clear, &self.code.advance);
        s.launch(clear.threads(1, 32), (&mut *stay, &mut *left, &mut *right))?;
        let lists = (own, stay, &mut *left, &mut *right);
        s.launch(advance.threads(THREADS, 128), lists)?;
        let said = (&*left, &*right, lengths);
        s.launch(self.code.lengths.threads(1, 32), said)
    }

    /// Takes in what came.
    fn arrive<'s>(
        &self,
        s: &Stream<'s>,
        came: InboxView<'_, 's, Particle>,
        own: &mut Region<Particle, On<'s>>,
    ) -> Result<()> {
        s.launch(self.code.arrive.threads(THREADS, 128), (came, own))
    }

    /// How many there are, and the sum of their numbers.
    fn count<'s>(
        &self,
        s: &Stream<'s>,
        own: &Region<Particle, On<'s>>,
        sums: &mut Region<u64, On<'s>>,
    ) -> Result<()> {
        s.launch(self.code.count.threads(128, 128), (own, sums))
    }
}

fn main() -> Result<()> {
    swarm::run()
}
