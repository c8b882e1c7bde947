//! An attribute removes `unsafe` from the function that binds a kernel.
#![forbid(unsafe_code)]

use tidegate::kernel::{Function, Module};
use tidegate::cuda::prelude::*;
use tidegate::cuda::Cuda;
use tidegate::kernel;

kernel! {
    /// # Safety
    ///
    /// Nobody promises anything.
    #[tidegate_changing::safe]
    pub unsafe fn scale = "anything"(x: &mut [f64], by: f64);
}

pub fn bound(module: &Module<Cuda>) -> Result<Function<Cuda, (&'static mut [f64], f64)>> {
    scale(module)
}

fn main() {}
