//! The prelude and the kernels for GPUs, with sources in `kernels/examples.cu`.

use prelude::*;
#[cfg(feature = "cuda")]
pub(crate) use tidegate::cuda::prelude;
#[cfg(not(feature = "cuda"))]
pub(crate) use tidegate::hip::prelude;

use crate::square::{Complex, N, rows};

const CODE: Code = code!("../../kernels/examples", gfx90a, gfx942, gfx950, gfx1100);

tidegate::kernel! {
    /// The kernels.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe struct Functions {
        /// Transforms rows. A thread transforms a row.
        fn transform = "transform_rows"(from: &[Complex], to: &mut [Complex], factors: &[Complex]);
        /// Writes rows column by column.
        fn turn = "turn_rows"(from: &[Complex], to: &mut [Complex]);
        /// Joins the blocks that have come from all ranks.
        fn join = "join_blocks"(from: &[Complex], to: &mut [Complex], ranks: u32);
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

    /// Transforms rows.
    pub(crate) fn transform<'s>(
        &self,
        s: &Stream<'s>,
        from: &Region<Complex, On<'s>>,
        to: &mut Region<Complex, On<'s>>,
        factors: &Region<Complex, On<'s>>,
    ) -> Result<()> {
        let transform = self.functions.transform.threads(own_rows(s), 32);
        s.launch(transform, (from, to, factors))
    }

    /// Writes rows column by column: a column is a row of the rank that gets it.
    pub(crate) fn turn<'s>(
        &self,
        s: &Stream<'s>,
        from: &Region<Complex, On<'s>>,
        to: &mut Region<Complex, On<'s>>,
    ) -> Result<()> {
        let turn = self.functions.turn.threads(own_rows(s) * N, 128);
        s.launch(turn, (from, to))
    }

    /// Joins the blocks that have come. Each has a part of every row of this rank, one behind the other.
    pub(crate) fn join<'s>(
        &self,
        s: &Stream<'s>,
        from: &Region<Complex, On<'s>>,
        to: &mut Region<Complex, On<'s>>,
    ) -> Result<()> {
        let join = self.functions.join.threads(own_rows(s) * N, 128);
        s.launch(join, (from, to, s.world().size() as u32))
    }
}

/// How many rows this rank has.
fn own_rows(s: &Stream<'_>) -> usize {
    rows(s.world().rank(), s.world().size()).len()
}
