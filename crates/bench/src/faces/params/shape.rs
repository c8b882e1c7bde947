//! The three groups of numbers: rank grid, size and counts.

use super::error::ParamsError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// The grid of ranks: `[lx, ly, lz]`, not periodic. Rank `(kz*ly + ky)*lx + kx` is at `[kx, ky,
/// kz]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Grid(pub [usize; 3]);

impl Grid {
    /// How many ranks there are.
    pub fn ranks(self) -> usize {
        self.0.iter().product()
    }

    /// The place `[kx, ky, kz]` of a rank, which must be in the grid.
    pub fn place(self, rank: usize) -> [usize; 3] {
        let [lx, ly, _] = self.0;
        [rank % lx, rank / lx % ly, rank / (lx * ly)]
    }

    /// The rank at a place.
    pub fn rank(self, [kx, ky, kz]: [usize; 3]) -> usize {
        (kz * self.0[1] + ky) * self.0[0] + kx
    }

    /// Checks that there is a rank, and that ranks can be counted.
    ///
    /// # Errors
    ///
    /// A side of zero, or more than `u32::MAX` ranks.
    pub fn validate(self) -> Result<(), ParamsError> {
        at_least("every side of the rank grid", 1, self.0)?;
        let ranks = self.0.iter().try_fold(1usize, |all, &l| all.checked_mul(l));
        match ranks {
            Some(ranks) if u32::try_from(ranks).is_ok() => Ok(()),
            _ => Err(ParamsError::TooLarge {
                what: "the rank grid",
            }),
        }
    }
}

impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.0;
        write!(f, "{x}x{y}x{z}")
    }
}

impl FromStr for Grid {
    type Err = ParamsError;
    fn from_str(text: &str) -> Result<Self, ParamsError> {
        let grid = Grid(numbers(text, 'x', "a rank grid such as `2x2x2`")?);
        grid.validate()?;
        Ok(grid)
    }
}

/// The size of the block that each rank owns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Size {
    /// Elements in each dimension: `[mx, my, mz]`, each at least 1. (Kernels that treat each kind
    /// of inner point separately need 2; those of this crate do not.)
    pub m: [usize; 3],
    /// Points along a side of an element, both ends included; at least 3.
    pub n: usize,
}

impl Size {
    /// Small enough for eight ranks on a desktop machine with two cores.
    pub const DESK: Size = Size { m: [4, 4, 4], n: 6 };
    /// The small size of the published runs.
    pub const SMALL: Size = Size {
        m: [15, 14, 13],
        n: 12,
    };
    /// The large size of the published runs: 11.5 GB a rank.
    pub const LARGE: Size = Size {
        m: [95, 94, 93],
        n: 12,
    };

    const NAMED: [(&'static str, Size, Counts); 3] = [
        ("desk", Size::DESK, Counts::DESK),
        ("small", Size::SMALL, Counts::SMALL),
        ("large", Size::LARGE, Counts::LARGE),
    ];

    /// Elements of a block.
    pub fn elements(self) -> usize {
        self.m.iter().product()
    }

    /// Values of a block: elements times `n * n * n`.
    pub fn values(self) -> usize {
        self.elements() * self.n.pow(3)
    }

    /// The counts that go with this size if none are given: the published ones for the published
    /// sizes, else those of [`Size::DESK`].
    pub fn default_counts(self) -> Counts {
        Size::NAMED
            .iter()
            .find(|(_, s, _)| *s == self)
            .map_or(Counts::DESK, |(_, _, c)| *c)
    }

    /// The elements as text: `15x14x13`.
    pub fn elements_text(self) -> String {
        Grid(self.m).to_string()
    }

    /// Checks that the kernels can handle this size.
    ///
    /// # Errors
    ///
    /// No elements in a dimension, `n < 3`, or 2^32 values or more (32 GiB).
    pub fn validate(self) -> Result<(), ParamsError> {
        at_least("the elements in every dimension", 1, self.m)?;
        at_least("the points along a side of an element", 3, [self.n])?;
        let [x, y, z] = self.m;
        let values = [x, y, z, self.n, self.n, self.n]
            .into_iter()
            .try_fold(1u32, |all, l| all.checked_mul(u32::try_from(l).ok()?));
        match values {
            Some(_) => Ok(()),
            None => Err(ParamsError::TooLarge { what: "the block" }),
        }
    }
}

/// The name where there is one, else `MXxMYxMZxN`.
impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, ..)) = Size::NAMED.iter().find(|(_, s, _)| s == self) {
            return f.write_str(name);
        }
        let [x, y, z] = self.m;
        write!(f, "{x}x{y}x{z}x{}", self.n)
    }
}

impl FromStr for Size {
    type Err = ParamsError;
    fn from_str(text: &str) -> Result<Self, ParamsError> {
        if let Some((_, size, _)) = Size::NAMED.iter().find(|(name, ..)| *name == text) {
            return Ok(*size);
        }
        let [x, y, z, n] = numbers(
            text,
            'x',
            "`desk`, `small`, `large`, or MXxMYxMZxN such as `4x4x4x6`",
        )?;
        let size = Size { m: [x, y, z], n };
        size.validate()?;
        Ok(size)
    }
}

/// The counts of the loops: `nk` times build windows and buffers; in each, `nj` timed runs (and one
/// before them that is not counted); in each, `ni` shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Counts {
    /// Outer count: windows and buffers are built anew.
    pub nk: u64,
    /// Middle count: timed runs, each from the initial values.
    pub nj: u64,
    /// Inner count: shares in a run.
    pub ni: u64,
}

impl Counts {
    /// For [`Size::DESK`]: runs of some ten milliseconds, since ranks do not begin them at the same
    /// moment.
    pub const DESK: Counts = Counts {
        nk: 3,
        nj: 4,
        ni: 200,
    };
    /// The published counts of the small size.
    pub const SMALL: Counts = Counts {
        nk: 10,
        nj: 10,
        ni: 100,
    };
    /// The published counts of the large size.
    pub const LARGE: Counts = Counts {
        nk: 3,
        nj: 1,
        ni: 10,
    };

    /// How many shares are timed: the divisor that turns a total time into a time per share.
    /// Saturates.
    pub fn timed_shares(self) -> u64 {
        self.nk.saturating_mul(self.nj).saturating_mul(self.ni)
    }

    /// Checks that every count is at least 1.
    ///
    /// # Errors
    ///
    /// A count of zero.
    pub fn validate(self) -> Result<(), ParamsError> {
        let small = |c: u64| usize::from(c > 0);
        at_least(
            "every count",
            1,
            [small(self.nk), small(self.nj), small(self.ni)],
        )
    }
}

impl FromStr for Counts {
    type Err = ParamsError;
    fn from_str(text: &str) -> Result<Self, ParamsError> {
        let [nk, nj, ni] =
            numbers(text, ',', "three counts NK,NJ,NI such as `3,4,50`")?.map(|c| c as u64);
        let counts = Counts { nk, nj, ni };
        counts.validate()?;
        Ok(counts)
    }
}

/// Parses exactly `N` decimal numbers that are separated by `by`.
fn numbers<const N: usize>(
    text: &str,
    by: char,
    expected: &'static str,
) -> Result<[usize; N], ParamsError> {
    let syntax = || ParamsError::Syntax {
        text: text.into(),
        expected,
    };
    let parts: Vec<usize> = text
        .split(by)
        // `parse` would accept a leading plus sign.
        .map(|p| {
            if p.starts_with('+') {
                None
            } else {
                p.parse().ok()
            }
        })
        .collect::<Option<_>>()
        .ok_or_else(syntax)?;
    parts.try_into().map_err(|_| syntax())
}

fn at_least<const N: usize>(
    what: &'static str,
    least: usize,
    got: [usize; N],
) -> Result<(), ParamsError> {
    match got.into_iter().find(|&g| g < least) {
        Some(got) => Err(ParamsError::TooSmall { what, least, got }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trips() {
        for text in ["2x2x2", "1x7x3"] {
            assert_eq!(text.parse::<Grid>().unwrap().to_string(), text);
        }
        for text in ["desk", "small", "large", "2x3x5x10"] {
            assert_eq!(text.parse::<Size>().unwrap().to_string(), text);
        }
        assert_eq!("4x4x4x6".parse::<Size>().unwrap(), Size::DESK);
        assert_eq!("10,10,100".parse::<Counts>().unwrap(), Counts::SMALL);
        assert_eq!(Size::SMALL.default_counts(), Counts::SMALL);
        assert_eq!(Size { m: [2; 3], n: 3 }.default_counts(), Counts::DESK);
    }

    #[test]
    fn refuses_other_text() {
        for text in [
            "", "2x2", "2x2x2x2", "2,2,2", "axbxc", "0x1x1", "-1x1x1", "+1x1x1", "2x2x2 ",
        ] {
            assert!(text.parse::<Grid>().is_err(), "{text:?}");
        }
        for text in [
            "tiny",
            "2x2x2",
            "2x2x2x2",
            "0x2x2x3",
            "9999999999x9999999999x9x9",
        ] {
            assert!(text.parse::<Size>().is_err(), "{text:?}");
        }
        for text in ["1,2", "0,1,1", "1x1x1", "1,1,99999999999999999999"] {
            assert!(text.parse::<Counts>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn ranks_and_places_agree() {
        let grid = Grid([3, 2, 4]);
        for rank in 0..grid.ranks() {
            assert_eq!(grid.rank(grid.place(rank)), rank);
        }
        assert_eq!(grid.place(grid.rank([2, 1, 3])), [2, 1, 3]);
    }
}
