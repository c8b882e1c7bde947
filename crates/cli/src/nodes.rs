//! How the ranks of a job are spread over nodes.
//!
//! # Model
//!
//! Ranks of one node, as [`Control::node`](tidegate_hal::control::Control::node) says, pass descriptors to each other,
//! and so map each other's memory. Ranks of different nodes do not, and need a NIC. [`Nodes`] spreads the ranks in
//! blocks: with `2x4` the ranks 0 to 3 are on node 0, and 4 to 7 on node 1. The launcher gives each node its own name
//! (`TIDEGATE_NODE`), so one machine can act as several nodes.
//!
//! # Failure
//!
//! A job is refused if the number of its ranks is not that of its nodes.

use std::fmt;
use std::str::FromStr;

/// How many ranks each node has.
///
/// # Examples
///
/// ```
/// use tidegate_cli::Nodes;
///
/// let nodes: Nodes = "2x4".parse().unwrap();
/// assert_eq!((nodes.count(), nodes.ranks(), nodes.node(4)), (2, 8, Some(1)));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nodes(Vec<usize>);

/// The place of one rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RankPlace {
    pub(crate) node: usize,
    /// The number of the rank on its node, and the number of ranks there.
    pub(crate) local: usize,
    pub(crate) of: usize,
}

impl Nodes {
    /// `nodes` nodes of `each` ranks.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Nodes;
    ///
    /// assert_eq!(Nodes::split(2, 4).to_string(), "2x4");
    /// ```
    pub fn split(nodes: usize, each: usize) -> Self {
        Self(vec![each; nodes])
    }

    /// Nodes of different sizes.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Nodes;
    ///
    /// assert_eq!(Nodes::of([3, 1]).to_string(), "3,1");
    /// ```
    pub fn of(ranks: impl IntoIterator<Item = usize>) -> Self {
        Self(ranks.into_iter().collect())
    }

    /// How many nodes there are.
    pub fn count(&self) -> usize {
        self.0.len()
    }

    /// The number of ranks on all nodes.
    pub fn ranks(&self) -> usize {
        self.0
            .iter()
            .fold(0, |sum, ranks| sum.saturating_add(*ranks))
    }

    /// The node of a rank; `None` if there is no such rank.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Nodes;
    ///
    /// let nodes = Nodes::of([3, 1]);
    /// assert_eq!((nodes.node(2), nodes.node(3), nodes.node(4)), (Some(0), Some(1), None));
    /// ```
    pub fn node(&self, rank: usize) -> Option<usize> {
        self.place(rank).map(|place| place.node)
    }

    pub(crate) fn place(&self, rank: usize) -> Option<RankPlace> {
        let mut local = rank;
        for (node, of) in self.0.iter().copied().enumerate() {
            match local.checked_sub(of) {
                None => return Some(RankPlace { node, local, of }),
                Some(rest) => local = rest,
            }
        }
        None
    }
}

impl fmt::Display for Nodes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.0 {
            [first, rest @ ..] if rest.iter().all(|ranks| ranks == first) => {
                write!(f, "{}x{first}", self.0.len())
            }
            all => {
                let all: Vec<_> = all.iter().map(usize::to_string).collect();
                f.write_str(&all.join(","))
            }
        }
    }
}

/// `2x4` is two nodes of four ranks each; `3,1` is one of three and one of one.
impl FromStr for Nodes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(number) if (1..=tidegate_boot::starter::MAX_RANKS).contains(&number) => Ok(number),
            _ => Err(format!(
                "{text:?} is no number of nodes or ranks; `2x4` are two nodes of four ranks, `3,1` one of three and one of one"
            )),
        };
        match text.split_once('x') {
            Some((nodes, each)) => Ok(Self::split(number(nodes)?, number(each)?)),
            // A single number could mean nodes or ranks.
            None if !text.contains(',') => Err(format!(
                "{text:?} does not say how many nodes of how many ranks; `2x4` are two of four"
            )),
            None => text
                .split(',')
                .map(number)
                .collect::<Result<_, _>>()
                .map(Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_spread_in_blocks() {
        let nodes: Nodes = "2x3".parse().unwrap();
        assert_eq!(nodes, Nodes::split(2, 3));
        assert_eq!((nodes.count(), nodes.ranks()), (2, 6));
        let places: Vec<_> = (0..7).map(|rank| nodes.node(rank)).collect();
        let expected = [Some(0), Some(0), Some(0), Some(1), Some(1), Some(1), None];
        assert_eq!(places, expected);
        let nodes: Nodes = "3,1".parse().unwrap();
        assert_eq!(nodes, Nodes::of([3, 1]));
        let (node, local, of) = (1, 0, 1);
        assert_eq!(nodes.place(3), Some(RankPlace { node, local, of }));
        assert_eq!(nodes.place(4), None);
    }

    #[test]
    fn they_are_said_as_they_are_read() {
        for text in ["2x4", "1x1", "3,1", "1,2,3"] {
            assert_eq!(text.parse::<Nodes>().unwrap().to_string(), text);
        }
        for text in [
            "", "2", "x", "2x", "0x4", "2x0", "1,", "2x4x2", "-1", "9999999",
        ] {
            assert!(text.parse::<Nodes>().is_err(), "{text}");
        }
    }
}
