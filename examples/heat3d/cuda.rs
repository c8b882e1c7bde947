//! The prelude and the kernels for GPUs, with sources in `kernels/examples.cu`.

use prelude::*;
pub(crate) use tidegate::cuda::prelude;

const CODE: &[u8] = include_bytes!("../../kernels/examples.ptx");

tidegate::kernel! {
    /// The device code.
    ///
    /// # Safety
    ///
    /// The module is `examples.cu`.
    unsafe struct Code {
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
    code: Code<Cuda>,
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
            code: unsafe { Code::bind(&module) }?,
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
        let kernel = self.code.inner.threads(self.elements, 128);
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
        let kernel = self.code.outer.threads(self.elements, 128);
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
        let kernel = self.code.change.threads(Self::CHANGES * 128, 128);
        s.launch(kernel, (u, before, change))
    }
}
