//! The streams that a stream follows.
//!
//! # Model
//!
//! If a stream waits for an event of another stream that has failed by then, it fails too. The device sees to that.
//! Before a batch does anything, it looks at the states of up to two other streams ([`LOOKED_AT`]), and if any has
//! failed, it fails like the first of them. This module keeps the list of streams that no batch has looked at yet.
//!
//! - *Only a batch looks.* So an event takes a copy of the list when it is recorded. If only kernels lie between two
//!   hand-offs, the state of the middle stream does not show the failure of the first.
//! - *Batches of a recording look at the streams that were followed when they were recorded*, and at no others. So a
//!   batch that only looks ([`Placed::look`](crate::place::Placed::look)) comes before a replay, and before a batch if
//!   more than two streams are followed.
//! - *The host looks, too.* A synchronisation, and a question for the stream's state, also ask the streams of the list.
//!
//! # Failure
//!
//! If the device refuses a batch that was to look, the list is as it was before.

use std::cell::RefCell;
use std::sync::Arc;

/// How many other streams a batch looks at.
pub(crate) const LOOKED_AT: usize = 2;

/// Streams whose failure makes the owner fail, from its next batch on. Each is in the list once.
#[derive(Debug)]
pub(crate) struct Followed<S>(RefCell<Vec<Arc<S>>>);

impl<S> Default for Followed<S> {
    fn default() -> Self {
        Followed(RefCell::default())
    }
}

impl<S> Followed<S> {
    /// Follows these streams, too. A stream (`own`) never follows itself.
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

    /// Whether there are more streams than a batch looks at.
    pub(crate) fn are_too_many(&self) -> bool {
        self.0.borrow().len() > LOOKED_AT
    }

    /// All streams of the list.
    pub(crate) fn all(&self) -> Vec<Arc<S>> {
        self.0.borrow().clone()
    }

    /// Takes all streams out of the list.
    pub(crate) fn take(&self) -> Vec<Arc<S>> {
        self.0.take()
    }

    /// Follows these streams, and no others.
    pub(crate) fn set(&self, streams: Vec<Arc<S>>) {
        self.0.replace(streams);
    }

    /// Takes out the streams at which the next batch looks. They are not followed any more, since that batch fails if
    /// they did.
    pub(crate) fn next(&self) -> Vec<Arc<S>> {
        let mut all = self.0.borrow_mut();
        let count = all.len().min(LOOKED_AT);
        all.drain(..count).collect()
    }

    /// The first result of `look` that is not `None`.
    pub(crate) fn find_map<T>(&self, look: impl FnMut(&Arc<S>) -> Option<T>) -> Option<T> {
        self.0.borrow().iter().find_map(look)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Name(&'static str);

    /// A stream, and the streams that it follows.
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
        // A batch of b looks at a. From then on b's own state shows a failure of a.
        assert_eq!(b.followed.next().len(), 1);
        d.wait_for(&b);
        assert_eq!(d.names(), ["b"]);
        // Each stream is followed once, and never by itself.
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
