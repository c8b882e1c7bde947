//! Launching a kernel.

use std::panic::Location;

use tidegate_hal::device::{Device, Stream as _};

use super::Kernel;
use crate::error::Result;
#[cfg(doc)]
use crate::error::{Error, KernelError};
use crate::stream::{NotedStep, Stream};

impl<'s, D: Device> Stream<'s, D> {
    /// Enqueues a kernel with its arguments: regions (`&` or `&mut`), views of inboxes, or a tuple of up to 16 of them
    /// and of numbers. The kernel gets numbers by value: `s.launch(|x: &mut [f64], dt: f64| x[0] += dt, (&mut x,
    /// 0.1))?`. They are integers and floats of a fixed size (`u64` and `f64`, but not `usize` or `bool`).
    ///
    /// On the host a kernel is any `Fn` over the views of the arguments: `fn increment(src: &mut [f64])` for one `&mut
    /// Region<f64, _>`, or `fn compare(inbox: Slots<'_, f64>, src: &[f64])` for `(inbox.view(), &src)`. A recording
    /// calls it again for each replay, and on another thread, so it must be `Clone + Send + 'static`. Capture large
    /// data that is only read (a table, a sparse matrix) in an `Arc`, like `examples/cg.rs`.
    ///
    /// Write the types of a closure's arguments (or the compiler says "implementation of `FnOnce` is not general
    /// enough"), and move what it captures: `s.launch(move |x: &mut [f64]| x[0] = dt, &mut src)?`. A function can
    /// return a kernel as `impl Fn(&[f64], &mut [f64]) + Clone + Send + 'static`.
    ///
    /// On GPUs a kernel is a function of [`kernel!`](crate::kernel!), over a grid.
    ///
    /// # Errors
    ///
    /// The error that made the stream fail; [`Error::Forked`]; or [`Error::Device`] if the device refuses, for a grid
    /// that is too large or has no threads, say. For device code also [`KernelError::TooManyArguments`] if there is no
    /// room for its parameters, and [`KernelError::ForeignSlot`] if a handle belongs to another window than the slots
    /// before it. With a half that is lent, also the errors of [`Inbox::lend`](crate::window::Inbox::lend).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// let x = Region::from_slice(world, &[1.0, 2.0])?.on(s)?;
    /// let mut y = Region::<f64>::zeroed(world, 2)?.on(s)?;
    /// let scale = |x: &[f64], y: &mut [f64], by: f64| {
    ///     for (y, x) in y.iter_mut().zip(x) {
    ///         *y = by * x;
    ///     }
    /// };
    /// s.launch(scale, (&x, &mut y, 10.0))?;
    /// // A kernel that a function makes:
    /// fn add(dt: f64) -> impl Fn(&[f64], &mut [f64]) + Clone + Send + 'static {
    ///     move |x, y| y.iter_mut().zip(x).for_each(|(y, x)| *y += dt * x)
    /// }
    /// s.launch(add(0.5), (&x, &mut y))?;
    /// assert_eq!(y.into_host(s)?[..], [10.5, 21.0]);
    /// # Ok(()) });
    /// ```
    #[track_caller]
    pub fn launch<A, K: Kernel<'s, D, A>>(&self, kernel: K, arguments: A) -> Result<()> {
        self.healthy()?;
        let site = Location::caller();
        self.called_at(site);
        let Some(observed) = self.observed() else {
            return kernel.enqueue(self, arguments);
        };
        let name = kernel.name();
        if self.raw().capturing() {
            kernel.enqueue(self, arguments)?;
            self.note_step(NotedStep::Kernel(name));
            return Ok(());
        }
        observed.launches(name, site);
        let launched = kernel.enqueue(self, arguments);
        observed.returned();
        launched
    }
}
