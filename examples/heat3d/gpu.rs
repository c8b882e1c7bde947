//! The prelude and the kernels for GPUs, with sources in `kernels/examples.cu`.

use prelude::*;
#[cfg(feature = "cuda")]
pub(crate) use tidegate::cuda::prelude;
#[cfg(not(feature = "cuda"))]
pub(crate) use tidegate::hip::prelude;

const CODE: Code = code!("../../kernels/examples", gfx90a, gfx942, gfx950, gfx1100);

tidegate::kernel! {
    /// The kernels.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe struct Functions {
        fn inner = "heat_inner"(u: &[f64], next: &mut [f64], sides: Plain<Sides>);
        fn outer = "heat_outer"(ghosts: &[f64], u: &[f64], next: &mut [f64], sides: Plain<Sides>);
        fn change = "largest_change"(u: &[f64], before: &[f64], parts: &mut [f64]);
    }
}

/// The sides of a block, including ghosts.
#[derive(Clone, Copy, Element)]
#[repr(C)]
struct Sides([u64; 3]);

/// The kernels, for blocks of these sides.
pub(crate) struct Kernels {
    functions: Functions<Gpu>,
    sides: Sides,
    elements: usize,
}

impl Kernels {
    /// How many numbers `change` writes: one for each block of threads.
    pub(crate) const CHANGES: usize = 8;

    pub(crate) fn new(world: &World, dims: [usize; 3]) -> Result<Self> {
        let module = Module::load(world, CODE)?;
        Ok(Kernels {
            // SAFETY: it is `examples.cu`.
            functions: unsafe { Functions::bind(&module) }?,
            sides: Sides(dims.map(|dim| dim as u64)),
            elements: dims.iter().product(),
        })
    }

    /// A step of the elements without a ghost beside them.
    pub(crate) fn inner<'s>(
        &self,
        s: &Stream<'s>,
        u: &Region<f64, On<'s>>,
        next: &mut Region<f64, On<'s>>,
    ) -> Result<()> {
        let kernel = self.functions.inner.threads(self.elements, 128);
        s.launch(kernel, (u, next, Plain(self.sides)))
    }

    /// A step of the other elements.
    pub(crate) fn outer<'s>(
        &self,
        s: &Stream<'s>,
        ghosts: Memory<'_, 's, f64>,
        u: &Region<f64, On<'s>>,
        next: &mut Region<f64, On<'s>>,
    ) -> Result<()> {
        let kernel = self.functions.outer.threads(self.elements, 128);
        s.launch(kernel, (ghosts, u, next, Plain(self.sides)))
    }

    /// The largest differences between two arrays. (The ghosts of both are zero.)
    pub(crate) fn change<'s>(
        &self,
        s: &Stream<'s>,
        u: &Region<f64, On<'s>>,
        before: &Region<f64, On<'s>>,
        change: &mut Region<f64, On<'s>>,
    ) -> Result<()> {
        let kernel = self.functions.change.threads(Self::CHANGES * 128, 128);
        s.launch(kernel, (u, before, change))
    }
}
