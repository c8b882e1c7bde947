//! The prelude and the kernel for GPUs, with its source in `kernels/examples.cu`.

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
        fn flow = "flow_along"(came: Slots<f64>, left: In<f64>, right: In<f64>, heat: &[f64], next: &mut [f64], flow: f64);
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

    /// Lets heat flow between the cells, and from the neighbours' cells to the left and to the right.
    pub(crate) fn flow<'s>(
        &self,
        s: &Stream<'s>,
        came: InboxView<'_, 's, f64>,
        [left, right]: [In<f64>; 2],
        heat: &Region<f64, On<'s>>,
        next: &mut Region<f64, On<'s>>,
        flow: f64,
    ) -> Result<()> {
        let kernel = self.functions.flow.threads(heat.len(), 128);
        s.launch(kernel, (came, left, right, heat, next, flow))
    }
}
