//! Faces: the nearest-neighbour exchange of a spectral-element code.
//!
//! # Model
//!
//! A non-periodic grid of `lx * ly * lz` ranks covers a box. Each rank owns a block of `mx * my *
//! mz` elements, each with `n * n * n` points. Neighbouring elements have the points of their
//! common face, edge or corner twice (four times, eight times): the *copies* of one global point. A
//! *share* replaces every copy of a point on the surface of a block by the sum of all its copies,
//! wherever they are, so each rank needs the surfaces of up to 26 neighbours.
//!
//! ```text
//! share:  pack ---> 26 messages ---> unpack           (the surface of the block)
//!         compute ----------------------------->      (points strictly inside: may overlap with all of that)
//! ```
//!
//! | module | holds |
//! |---|---|
//! | [`params`] | rank grid, size, counts, initial values; refused early if they cannot work |
//! | [`layout`] | where each point is, the points of each message, the neighbours |
//! | [`kernels`] | `init`, `pack`, `compute`, `unpack` on the CPU |
//! | [`device`] | those kernels on the devices that there are |
//! | [`verify`] | two independent references, and the error measure |
//! | [`schedule`] | the loops around the clock |
//! | [`timeline`] | timelines of a few shares, for pictures |
//! | [`variants`] | how the messages travel, over this library |
//! | [`driver`] | a rank's part: rounds of variants, results |
//!
//! # Failures
//!
//! [`params::ParamsError`] refuses parameters, and [`verify::Verdict`] reports a wrong result.

pub mod device;
pub mod driver;
pub mod kernels;
pub mod layout;
pub mod params;
pub mod schedule;
pub mod timeline;
pub mod variants;
pub mod verify;
