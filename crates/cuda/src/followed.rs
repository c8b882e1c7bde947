//! Whom a stream follows.
//!
//! # Model
//!
//! A stream that waits for an event of another one fails if that one has failed by then. It is the device that sees to
//! it: before a batch does anything it looks at the states of up to two other streams ([`LOOKED_AT`]), and fails as the
//! first of them that has failed. Until a batch has looked at them, the streams stand here.
//!
//! - *Nothing but a batch looks.* So an event takes along who stands here when it is recorded: if only kernels lie
//!   between two hand-offs, the state of the stream in the middle says nothing of the failure of the first.
//! - *Batches of a recording look at whom they followed when they were recorded*, and nobody else. So before a replay,
//!   and before a batch where more than two stand here, goes one that looks and does nothing else
//!   ([`Placed::look`](crate::place::Placed::look)).
//! - *The host looks, too*: a synchronisation, and whoever asks whether the stream is in good order, ask those that
//!   stand here as well.
//!
//! # Failure
//!
//! If the device refuses a batch that was to look, all stand here as before it.

use std::cell::RefCell;
use std::sync::Arc;

use crate::reclaim::Shared;

/// How many other streams a batch looks at.
pub(crate) const LOOKED_AT: usize = 2;

/// Streams whose failure is to be the owner's, from its next batch on. Each stands here once.
#[derive(Debug)]
pub(crate) struct Followed<S = Shared>(RefCell<Vec<Arc<S>>>);

impl<S> Default for Followed<S> {
    fn default() -> Self {
        Followed(RefCell::default())
    }
}

impl<S> Followed<S> {
    /// From now on these are followed, too; `own`, who follows, never is.
    pub(crate) fn add<'a>(&self, own: &Arc<S>, streams: impl IntoIterator<Item = &'a Arc<S>>)
    where
        S: 'a,
    {
        let mut known = self.0.borrow_mut();
        for stream in streams {
            let is = |other: &Arc<S>| Arc::ptr_eq(other, stream);
            if !is(own) && !known.iter().any(is) {
                known.push(stream.clone());
            }
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Whether a batch cannot look at all of them.
    pub(crate) fn are_too_many(&self) -> bool {
        self.0.borrow().len() > LOOKED_AT
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Arc<S>> {
        self.0.borrow().clone()
    }

    /// All of them; nobody is followed any more.
    pub(crate) fn take(&self) -> Vec<Arc<S>> {
        self.0.take()
    }

    /// These and nobody else are followed.
    pub(crate) fn set(&self, streams: Vec<Arc<S>>) {
        self.0.replace(streams);
    }

    /// Those that a batch is to look at: they are not followed any more, since that batch fails in their stead.
    pub(crate) fn next(&self) -> Vec<Arc<S>> {
        let mut all = self.0.borrow_mut();
        let count = all.len().min(LOOKED_AT);
        all.drain(..count).collect()
    }

    /// What the first of them says that says something.
    pub(crate) fn find_map<T>(&self, look: impl FnMut(&Arc<S>) -> Option<T>) -> Option<T> {
        self.0.borrow().iter().find_map(look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name(&'static str);

    /// A stream, and whom it follows.
    struct Stream {
        name: Arc<Name>,
        followed: Followed<Name>,
    }

    fn stream(name: &'static str) -> Stream {
        Stream {
            name: Arc::new(Name(name)),
            followed: Followed::default(),
        }
    }

    impl Stream {
        fn wait_for(&self, other: &Stream) {
            let all = other.followed.all();
            self.followed
                .add(&self.name, all.iter().chain([&other.name]));
        }

        fn names(&self) -> Vec<&'static str> {
            self.followed.all().iter().map(|name| name.0).collect()
        }
    }

    #[test]
    fn who_hands_on_without_a_batch_hands_on_whom_it_follows() {
        let [a, b, c, d] = ["a", "b", "c", "d"].map(stream);
        b.wait_for(&a);
        c.wait_for(&b);
        assert_eq!(c.names(), ["a", "b"]);
        // A batch of b looks at a; from then on b's own state says it.
        assert_eq!(b.followed.next().len(), 1);
        d.wait_for(&b);
        assert_eq!(d.names(), ["b"]);
        // Once each, and never oneself.
        c.wait_for(&b);
        a.wait_for(&c);
        assert_eq!((c.names(), a.names()), (vec!["a", "b"], vec!["b", "c"]));
    }

    #[test]
    fn a_batch_looks_at_two() {
        let [a, b, c, own] = ["a", "b", "c", "own"].map(stream);
        for other in [&a, &b, &c] {
            assert!(!own.followed.are_too_many());
            own.wait_for(other);
        }
        assert!(own.followed.are_too_many());
        let before = own.followed.all();
        assert_eq!(own.followed.next()[1].0, "b");
        assert_eq!(own.names(), ["c"]);
        own.followed.set(before);
        assert_eq!(own.names(), ["a", "b", "c"]);
        assert_eq!(
            (own.followed.take().len(), own.followed.is_empty()),
            (3, true)
        );
    }
}
