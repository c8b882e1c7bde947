//! The host as a device: streams are threads, and regions are ordinary memory. It needs no hardware and no other library.
//!
//! ```
//! use tidegate::host::prelude::*;
//!
//! # fn main() -> Result<()> {
//! let world = World::init()?;
//! stream!(let s = world.stream()?);
//! let mut x = Region::from_slice(&world, &[1.0, 2.0])?.on(&s)?;
//! s.launch(|x: &mut [f64]| x[0] += x[1], &mut x)?;
//! assert_eq!(x.into_host(&s)?[..], [3.0, 2.0]);
//! # Ok(())
//! # }
//! ```

use crate::devices;

#[doc(inline)]
pub use tidegate_host::{Host, HostStream};

devices::names!(Host, CarryHost, prelude {});
