//! An attribute gives the functions of a struct of kernels other parameters than the declared ones.
use tidegate::kernel::Function;

tidegate::kernel! {
    /// # Safety
    ///
    /// The module has `scale(double *x, size_t len)`.
    #[tidegate_changing::fields(Function<D, (u64, u64)>)]
    pub unsafe struct Kernels {
        fn scale = "scale"(x: &mut [f64]);
    }
}

fn main() {}
