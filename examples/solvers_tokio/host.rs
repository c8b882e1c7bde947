//! The prelude and the kernel for host streams.

use prelude::*;
pub(crate) use tidegate::host::prelude;

pub(crate) struct Kernels;

impl Kernels {
    pub(crate) fn new(_: &World) -> Result<Self> {
        Ok(Kernels)
    }

    /// Lets heat flow between the cells, and from the neighbours' cells to the left and to the right.
    pub(crate) fn flow<'s>(
        &self,
        s: &Stream<'s>,
        came: InboxView<'_, 's, f64>,
        ends: [In<f64>; 2],
        heat: &Region<f64, On<'s>>,
        next: &mut Region<f64, On<'s>>,
        flow: f64,
    ) -> Result<()> {
        let kernel = move |came: Slots<'_, f64>, heat: &[f64], next: &mut [f64]| {
            let [before, behind] = ends.map(|end| came.slot(end)[0]);
            for (i, next) in next.iter_mut().enumerate() {
                let left = if i == 0 { before } else { heat[i - 1] };
                let right = heat.get(i + 1).copied().unwrap_or(behind);
                *next = heat[i] + flow * (left - 2.0 * heat[i] + right);
            }
        };
        s.launch(kernel, (came, heat, next))
    }
}
