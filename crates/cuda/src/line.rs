//! What one stream records: where that begins, what it ends with, and whether it may begin early behind itself.
//!
//! # Model
//!
//! A recording that is replayed many times at once stands many times in one graph (`unroll.rs`). There its first node
//! on a stream follows the last ones of the time before, as it would if both had been enqueued. So that node must be
//! known, and whether it is one that may begin early. Both are noted together, when its launch has succeeded: one that
//! was refused has recorded nothing, and what comes after it is the first.

use tidegate_ffi::cuda::GraphNode;

/// What a recording begins with, and so behind what it may begin early, if it is replayed at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// A batch: behind everything.
    Batch,
    /// A kernel that waits by itself: behind a kernel.
    Early,
    /// Anything else: behind nothing.
    Other,
}

/// Where a stream's part of a recording begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Began {
    /// There is nothing of it yet.
    #[default]
    Nothing,
    With(GraphNode, First),
    /// It was enqueued by other means, or the driver did not say.
    Unknown,
}

/// What was recorded on one stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// The first node.
    pub(crate) first: GraphNode,
    /// What the stream's next one would follow.
    pub(crate) last: Vec<GraphNode>,
    /// Whether the first may begin early behind the last.
    pub(crate) early: bool,
}

impl Began {
    /// A kernel has been launched, which is what the stream's next one would follow.
    pub(crate) fn launched(self, first: First, last: impl FnOnce() -> Vec<GraphNode>) -> Self {
        match self {
            Began::Nothing => match last()[..] {
                [node] => Began::With(node, first),
                _ => Began::Unknown,
            },
            began => began,
        }
    }

    /// Something has been enqueued by other means.
    pub(crate) fn enqueued(self) -> Self {
        match self {
            Began::Nothing => Began::Unknown,
            began => began,
        }
    }

    /// What was recorded, if anything; an error if that is not known. `behind_kernel`: a kernel of the user's stands
    /// last.
    pub(crate) fn line(
        self,
        last: impl FnOnce() -> Vec<GraphNode>,
        behind_kernel: bool,
    ) -> Result<Option<Line>, Began> {
        match self {
            Began::Nothing => Ok(None),
            Began::With(node, first) => Ok(Some(Line {
                first: node,
                last: last(),
                early: match first {
                    First::Batch => true,
                    First::Early => behind_kernel,
                    First::Other => false,
                },
            })),
            Began::Unknown => Err(self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(at: usize) -> GraphNode {
        GraphNode::from_raw(std::ptr::without_provenance_mut(at))
    }

    #[test]
    fn the_first_launch_that_succeeds_is_where_it_begins() {
        // A batch that was refused is not heard of: the plain kernel behind it begins, and never early.
        let began = Began::default().launched(First::Other, || vec![node(1)]);
        let began = began.launched(First::Batch, || unreachable!());
        let line = began.line(|| vec![node(2)], false).unwrap().unwrap();
        let expected = Line {
            first: node(1),
            last: vec![node(2)],
            early: false,
        };
        assert_eq!(line, expected);
    }

    #[test]
    fn what_may_begin_early_does_behind_what_it_may() {
        for (first, behind_kernel, early) in [
            (First::Batch, false, true),
            (First::Batch, true, true),
            (First::Early, false, false),
            (First::Early, true, true),
            (First::Other, true, false),
        ] {
            let began = Began::default().launched(first, || vec![node(1)]);
            let line = began.line(|| vec![node(1)], behind_kernel).unwrap();
            assert_eq!(line.unwrap().early, early, "{first:?} {behind_kernel}");
        }
    }

    #[test]
    fn what_began_by_other_means_is_not_known() {
        let unknown = Began::default().enqueued();
        assert!(unknown.launched(First::Batch, || vec![node(1)]) == Began::Unknown);
        assert!(unknown.line(Vec::new, true).is_err());
        let joined = Began::default().launched(First::Batch, || vec![node(1), node(2)]);
        assert!(joined.line(Vec::new, true).is_err());
        let began = Began::default().launched(First::Batch, || vec![node(1)]);
        assert_eq!(began.enqueued(), began);
        assert_eq!(Began::default().line(Vec::new, true), Ok(None));
    }
}
