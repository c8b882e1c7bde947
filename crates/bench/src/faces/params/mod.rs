//! The parameters of a run of Faces: rank grid, size, counts and variants.
//!
//! # Model
//!
//! [`Params`] is plain data (serialisable). Its parts
//! ([`Grid`], [`Size`], [`Counts`], [`Init`], [`Variant`]) are parsed from the command line, and
//! [`Params::validate`] checks them together.
//!
//! # Failures
//!
//! [`ParamsError`] names the wrong value and the allowed ones. A share multiplies a point by the number of its copies, so
//! results overflow after some number of shares. [`Params::max_shares`] is that number, and more are refused beforehand.

mod error;
mod init;
mod limit;
mod shape;

pub use error::ParamsError;
pub use init::Init;
pub use limit::max_shares;
pub use shape::{Counts, Grid, Size};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the messages of a share travel. The first line of each is its [meaning](Variant::meaning).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Variant {
    /// Stream-triggered one-sided epochs: the host enqueues all shares, then waits once.
    St,
    /// As st; one share is recorded in a graph, and replayed.
    StGraph,
    /// As st, without a pack kernel: the puts gather from the block.
    StStrided,
    /// As st-strided; one share is recorded in a graph, and replayed.
    StStridedGraph,
    /// As st, with a batch of its own for the post, for each message, and for the wait.
    StSeparate,
    /// One kernel gathers, puts and completes; the host enqueues all shares, then waits once.
    Device,
    /// As device; one share is recorded in a graph, and replayed.
    DeviceGraph,
    /// One kernel makes all shares: it gathers, puts, completes, waits and unpacks; the host waits once.
    DevicePersistent,
    /// One-sided epochs over tidegate; the host waits for the stream in every share.
    Rma,
    /// Two-sided messages over tidegate; the host waits for the stream in every share.
    P2p,
    /// As rma, by the one-sided calls of an MPI.
    MpiRma,
    /// As p2p, by the sends and receives of an MPI.
    MpiP2p,
    /// As mpi-rma without a stream: the calling thread does the kernels.
    MpiRmaDirect,
    /// As mpi-p2p without a stream: the calling thread does the kernels.
    MpiP2pDirect,
}

impl Variant {
    /// Those that need an MPI.
    pub const MPI: [Variant; 4] = [
        Variant::MpiRma,
        Variant::MpiP2p,
        Variant::MpiRmaDirect,
        Variant::MpiP2pDirect,
    ];

    /// All variants over this library.
    pub const ALL: [Variant; 10] = [
        Variant::St,
        Variant::StGraph,
        Variant::StStrided,
        Variant::StStridedGraph,
        Variant::StSeparate,
        Variant::Device,
        Variant::DeviceGraph,
        Variant::DevicePersistent,
        Variant::Rma,
        Variant::P2p,
    ];

    /// Those that are run if none are named, in the order in which they are run and shown: each
    /// kind in its best form.
    pub const DEFAULT: [Variant; 4] = [Variant::St, Variant::StGraph, Variant::Rma, Variant::P2p];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Variant::St => "st",
            Variant::StGraph => "st-graph",
            Variant::StStrided => "st-strided",
            Variant::StStridedGraph => "st-strided-graph",
            Variant::StSeparate => "st-separate",
            Variant::Device => "device",
            Variant::DeviceGraph => "device-graph",
            Variant::DevicePersistent => "device-persistent",
            Variant::Rma => "rma",
            Variant::P2p => "p2p",
            Variant::MpiRma => "mpi-rma",
            Variant::MpiP2p => "mpi-p2p",
            Variant::MpiRmaDirect => "mpi-rma-direct",
            Variant::MpiP2pDirect => "mpi-p2p-direct",
        }
    }

    /// What it does, in one sentence.
    pub fn meaning(self) -> String {
        let value = self.to_possible_value();
        let help = value.as_ref().and_then(|value| value.get_help());
        help.map_or(String::new(), ToString::to_string)
    }

    /// Whether the calling thread waits, or computes, in every share.
    pub fn host_waits(self) -> bool {
        self.is_mpi() || matches!(self, Variant::Rma | Variant::P2p)
    }

    /// Whether it needs an MPI.
    pub fn is_mpi(self) -> bool {
        Variant::MPI.contains(&self)
    }
}

impl fmt::Display for Variant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Everything that defines a run of Faces, the same on every rank.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Params {
    /// The grid of ranks.
    pub grid: Grid,
    /// Elements of a block, and points of an element.
    pub size: Size,
    /// Outer, middle and inner counts.
    pub counts: Counts,
    /// Where the initial values come from.
    pub init: Init,
    /// Whether the compute kernel runs beside the exchange.
    pub compute: bool,
    /// The variants, in the order in which they are run.
    pub variants: Vec<Variant>,
}

impl Params {
    /// Checks all parts together.
    ///
    /// # Errors
    ///
    /// [`ParamsError`] for the first thing that cannot work: an empty or unaddressable grid or
    /// block, `n < 3`, a count of zero, so many shares that the result overflows, no variant or one
    /// twice.
    pub fn validate(&self) -> Result<(), ParamsError> {
        self.grid.validate()?;
        self.size.validate()?;
        self.counts.validate()?;
        let elements = (0..3).try_fold(1usize, |all, d| {
            all.checked_mul(self.grid.0[d].checked_mul(self.size.m[d])?)
        });
        if elements
            .and_then(|e| e.checked_mul(self.size.n.pow(3)))
            .is_none()
        {
            return Err(ParamsError::TooLarge {
                what: "the whole domain",
            });
        }
        let limit = self.max_shares();
        if self.counts.ni > limit {
            return Err(ParamsError::Overflow {
                shares: self.counts.ni,
                limit,
            });
        }
        if self.variants.is_empty() {
            return Err(ParamsError::Variants("no variant was asked for".into()));
        }
        for (k, v) in self.variants.iter().enumerate() {
            if self.variants[..k].contains(v) {
                return Err(ParamsError::Variants(format!(
                    "the variant `{v}` was asked for twice"
                )));
            }
        }
        Ok(())
    }

    /// The largest number of shares in a row after which every value is finite; see [`max_shares`].
    pub fn max_shares(&self) -> u64 {
        max_shares(self.grid, self.size, self.init)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn params() -> Params {
        Params {
            grid: Grid([2, 2, 2]),
            size: Size::DESK,
            counts: Counts::DESK,
            init: Init::Same,
            compute: false,
            variants: Variant::DEFAULT.to_vec(),
        }
    }

    #[test]
    fn desk_is_valid_and_names_round_trip() {
        params().validate().unwrap();
        for v in Variant::ALL.into_iter().chain(Variant::MPI) {
            assert_eq!(Variant::from_str(v.name(), false), Ok(v));
            assert_eq!(serde_json::to_string(&v).unwrap(), format!("\"{v}\""));
            assert!(!v.meaning().is_empty() && !v.meaning().ends_with('.'));
        }
        for i in [Init::Same, Init::Global] {
            assert_eq!(Init::from_str(&i.to_string(), false), Ok(i));
        }
    }

    #[test]
    fn refuses_what_cannot_work() {
        let bad = |f: fn(&mut Params)| {
            let mut p = params();
            f(&mut p);
            p.validate().unwrap_err()
        };
        assert!(matches!(
            bad(|p| p.size.n = 2),
            ParamsError::TooSmall {
                least: 3,
                got: 2,
                ..
            }
        ));
        assert!(matches!(
            bad(|p| p.size.m[1] = 0),
            ParamsError::TooSmall { least: 1, .. }
        ));
        assert!(matches!(
            bad(|p| p.grid.0[0] = 0),
            ParamsError::TooSmall { .. }
        ));
        assert!(matches!(
            bad(|p| p.counts.nj = 0),
            ParamsError::TooSmall { .. }
        ));
        assert!(matches!(
            bad(|p| p.counts.ni = 400),
            ParamsError::Overflow { shares: 400, .. }
        ));
        assert!(matches!(
            bad(|p| p.variants.clear()),
            ParamsError::Variants(_)
        ));
        assert!(matches!(
            bad(|p| p.variants = vec![Variant::St, Variant::St]),
            ParamsError::Variants(_)
        ));
        assert!(matches!(
            bad(|p| p.size.m = [1 << 30; 3]),
            ParamsError::TooLarge { .. }
        ));
        assert!(matches!(
            bad(|p| p.grid.0 = [1 << 40; 3]),
            ParamsError::TooLarge { .. }
        ));
        assert!(matches!(
            bad(|p| p.grid.0 = [1 << 20, 1 << 20, 1 << 20]),
            ParamsError::TooLarge { .. }
        ));
    }
}
