//! Kernels are bound without the promise of their contract.
use tidegate::cuda::prelude::*;

tidegate::kernel! {
    /// # Safety
    ///
    /// The module has `scale(double *x, size_t len)`.
    pub unsafe struct Kernels {
        fn scale = "scale"(x: &mut [f64]);
    }
}

pub fn bound(module: &Module<Cuda>) -> Result<Kernels<Cuda>> {
    Kernels::bind(module)
}

fn main() {}
