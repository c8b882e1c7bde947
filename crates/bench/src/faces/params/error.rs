//! Why parameters are refused.

/// Why parameters were refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParamsError {
    /// A piece of text is not of the form that was expected.
    #[error("`{text}` is not {expected}")]
    Syntax {
        /// The text as it was given.
        text: String,
        /// The texts that are accepted.
        expected: &'static str,
    },
    /// A number that must be at least one (or three) is smaller.
    #[error("{what} must be at least {least}, not {got}")]
    TooSmall {
        /// The name of the number that is too small.
        what: &'static str,
        /// The least value allowed.
        least: usize,
        /// The value that was given.
        got: usize,
    },
    /// The block, the rank grid or the whole domain has more points or ranks than can be addressed.
    #[error("{what} is too large to be addressed")]
    TooLarge {
        /// The name of the quantity that is too large.
        what: &'static str,
    },
    /// So many shares that the result would not be finite.
    #[error(
        "{shares} shares in a row overflow at this size: at most {limit} stay finite (the last number of --counts)"
    )]
    Overflow {
        /// The inner count that was asked for.
        shares: u64,
        /// The largest that stays finite.
        limit: u64,
    },
    /// No variant, or the same one twice.
    #[error("{0}")]
    Variants(String),
    /// A rank outside of the grid.
    #[error("rank {rank} is not in a grid of {ranks} ranks")]
    NoSuchRank {
        /// The rank that was asked for.
        rank: usize,
        /// How many ranks the grid has.
        ranks: usize,
    },
}
