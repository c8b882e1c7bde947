//! The prelude and the kernels for GPUs, with sources in `kernels/examples.cu`.

use prelude::*;
#[cfg(feature = "cuda")]
pub(crate) use tidegate::cuda::prelude;
#[cfg(not(feature = "cuda"))]
pub(crate) use tidegate::hip::prelude;

use crate::token::{EXPERTS, MOST, Places, Row, TOKENS, Token};

const CODE: Code = code!("../../kernels/examples", gfx90a, gfx942, gfx950, gfx1100);

tidegate::kernel! {
    /// The kernels.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe struct Functions {
        /// Sets the numbers of rows to 0.
        fn clear = "clear_counts"(counts: &mut [u64]);
        /// Chooses the experts for each token, and writes a row for each. Counts the rows for each rank.
        fn route = "route_tokens"(tokens: &[Token], rows: &mut [Row], places: &mut [Places], counts: &mut [u64], experts: u32);
        /// Applies the experts from `first` on to the rows that came.
        fn experts = "apply_experts"(came: &[Row], received: &[u64], results: &mut [Token], first: u32);
        /// Makes the next tokens of the results.
        fn gather = "mix_tokens"(back: &[Token], places: &[Places], tokens: &mut [Token]);
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

    /// Chooses the experts for each token, and writes a row for each. Counts the rows for each rank.
    pub(crate) fn route<'s>(
        &self,
        s: &Stream<'s>,
        tokens: &Region<Token, On<'s>>,
        rows: &mut Region<Row, On<'s>>,
        places: &mut Region<Places, On<'s>>,
        counts: &mut Region<u64, On<'s>>,
    ) -> Result<()> {
        let ranks = s.world().size();
        let clear = self.functions.clear.threads(ranks, 32);
        s.launch(clear, (&mut *counts,))?;
        let route = self.functions.route.threads(TOKENS, 64);
        s.launch(route, (tokens, rows, places, counts, EXPERTS as u32))
    }

    /// Applies this rank's experts to the rows that came.
    pub(crate) fn experts<'s>(
        &self,
        s: &Stream<'s>,
        came: &Region<Row, On<'s>>,
        received: &Region<u64, On<'s>>,
        results: &mut Region<Token, On<'s>>,
    ) -> Result<()> {
        let first = (s.world().rank() * EXPERTS) as u32;
        let experts = self.functions.experts.threads(MOST * s.world().size(), 128);
        s.launch(experts, (came, received, results, first))
    }

    /// Makes the next tokens of the results.
    pub(crate) fn gather<'s>(
        &self,
        s: &Stream<'s>,
        back: &Region<Token, On<'s>>,
        places: &Region<Places, On<'s>>,
        tokens: &mut Region<Token, On<'s>>,
    ) -> Result<()> {
        let gather = self.functions.gather.threads(TOKENS, 64);
        s.launch(gather, (back, places, tokens))
    }
}
