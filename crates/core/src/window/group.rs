//! Groups: some of the neighbours.

use std::sync::Arc;

use crate::ground::fresh_id;

/// A set of ranks, for posts and starts that name only some of the neighbours.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
/// let peer = Group::new([1 - s.world().rank()]);
/// let exposed = inbox.post_to(s, &peer)?;
/// let epoch = outbox.start_to(&peer)?;
/// let (_outbox, _inbox) = (epoch.complete(s)?, exposed.wait(s)?);
/// # Ok(()) });
/// ```
#[derive(Clone, Debug)]
pub struct Group {
    ranks: Arc<[usize]>,
    pub(super) id: u64,
}

impl Group {
    /// The group of these ranks. Their order does not matter, and repetitions are ignored.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Group;
    ///
    /// assert_eq!(Group::new([5, 1, 3, 1]).ranks(), [1, 3, 5]);
    /// ```
    pub fn new(ranks: impl IntoIterator<Item = usize>) -> Self {
        let mut ranks: Vec<_> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        Group {
            ranks: ranks.into(),
            id: fresh_id(),
        }
    }

    /// The ranks, in ascending order.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::Group;
    ///
    /// assert_eq!(Group::new([3, 1]).ranks(), [1, 3]);
    /// ```
    pub fn ranks(&self) -> &[usize] {
        &self.ranks
    }
}
