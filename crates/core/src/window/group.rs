//! Some of the neighbours.

use std::sync::Arc;

use crate::ground::fresh_id;

/// A set of ranks, for posts and starts that name only some of the neighbours.
#[derive(Clone, Debug)]
pub struct Group {
    ranks: Arc<[usize]>,
    pub(super) id: u64,
}

impl Group {
    /// The group of these ranks; order and repetition do not matter.
    pub fn new(ranks: impl IntoIterator<Item = usize>) -> Self {
        let mut ranks: Vec<_> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        Group {
            ranks: ranks.into(),
            id: fresh_id(),
        }
    }

    /// The ranks, ascending.
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }
}
