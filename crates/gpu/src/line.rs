//! What one stream records: which of its nodes follow a beginning, what it ends with, and what may begin early.
//!
//! # Model
//!
//! If a recording is replayed many times at once, one graph contains several replays (`unroll.rs`). There each stream
//! continues where it ended in the replay before, as if everything had been enqueued. The driver knows nodes only.
//! Before anything is recorded on a stream, there is no node to follow. So this module notes which nodes follow the
//! *beginnings* of which streams:
//!
//! - The first node of a stream follows the beginning of that stream.
//! - If a stream waits for an event of another stream that has recorded nothing yet, its next node follows the
//!   beginning of the other stream. In the replay before, that is the other stream's end.
//!
//! A launch is noted only if it succeeds. A refused launch records nothing, and the next launch is then the first.

use crate::driver::{GraphNode, Stream};

/// What a recording begins with. This decides behind what it may begin early, when several replays are launched at
/// once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum First {
    /// A batch, which may begin early behind anything.
    Batch,
    /// A kernel that waits by itself, which may begin early behind a kernel.
    Early,
    /// Anything else, which never begins early.
    Other,
}

/// A node that follows beginnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) node: GraphNode,
    /// The streams whose beginnings the node follows.
    pub(crate) behind: Vec<Stream>,
    /// Whether it may begin early behind what its own stream ends with.
    pub(crate) early: bool,
}

/// A stream's part of the current recording.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Began {
    /// The streams whose beginnings the next node follows, unless a known node already does.
    pending: Vec<Stream>,
    entries: Vec<(GraphNode, Vec<Stream>, First)>,
    /// Something was enqueued by other means, or the driver did not tell the node.
    unknown: bool,
}

/// What was recorded on one stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    pub(crate) stream: Stream,
    pub(crate) entries: Vec<Entry>,
    /// The stream's next node would follow these nodes,
    pub(crate) last: Vec<GraphNode>,
    /// and these streams' beginnings.
    pub(crate) begins: Vec<Stream>,
}

impl Began {
    /// The start of a recording on a stream.
    pub(crate) fn of(stream: Stream) -> Self {
        Began {
            pending: vec![stream],
            ..Began::default()
        }
    }

    /// The streams for whose beginnings an event stands that is recorded now.
    pub(crate) fn pending(&self) -> &[Stream] {
        &self.pending
    }

    /// The next node follows these beginnings, too.
    pub(crate) fn follows(&mut self, pending: &[Stream]) {
        for stream in pending {
            if !self.pending.contains(stream) {
                self.pending.push(*stream);
            }
        }
    }

    /// Notes that a kernel was launched. The stream's next node would follow it.
    pub(crate) fn launched(&mut self, first: First, last: impl FnOnce() -> Vec<GraphNode>) {
        if self.pending.is_empty() {
            return;
        }
        let behind = std::mem::take(&mut self.pending);
        match last()[..] {
            [node] => self.entries.push((node, behind, first)),
            _ => self.unknown = true,
        }
    }

    /// Notes that something was enqueued by other means.
    pub(crate) fn enqueued(&mut self) {
        self.unknown |= !self.pending.is_empty();
    }

    /// What was recorded on the stream; `None` if that is not known. `behind_kernel` says that a kernel of the user
    /// stands last.
    pub(crate) fn line(
        &self,
        stream: Stream,
        last: Vec<GraphNode>,
        behind_kernel: bool,
    ) -> Option<Line> {
        let entry = |(node, behind, first): &(GraphNode, Vec<Stream>, First)| Entry {
            node: *node,
            behind: behind.clone(),
            early: match first {
                First::Batch => true,
                First::Early => behind_kernel,
                First::Other => false,
            },
        };
        (!self.unknown).then(|| Line {
            stream,
            entries: self.entries.iter().map(entry).collect(),
            last,
            begins: self.pending.clone(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(at: usize) -> GraphNode {
        GraphNode(std::ptr::without_provenance_mut(at))
    }

    fn stream(at: usize) -> Stream {
        Stream(std::ptr::without_provenance_mut(at))
    }

    #[test]
    fn the_first_launch_that_succeeds_is_where_it_begins() {
        // A refused batch is not noted. So the plain kernel behind it comes first, and never begins early.
        let mut began = Began::of(stream(8));
        began.launched(First::Other, || vec![node(1)]);
        began.launched(First::Batch, || unreachable!());
        let line = began.line(stream(8), vec![node(2)], false).unwrap();
        let expected = Line {
            stream: stream(8),
            entries: vec![Entry {
                node: node(1),
                behind: vec![stream(8)],
                early: false,
            }],
            last: vec![node(2)],
            begins: vec![],
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
            let mut began = Began::of(stream(8));
            began.launched(first, || vec![node(1)]);
            let line = began.line(stream(8), vec![node(1)], behind_kernel).unwrap();
            assert_eq!(line.entries[0].early, early, "{first:?} {behind_kernel}");
        }
    }

    #[test]
    fn who_waits_for_a_stream_that_has_recorded_nothing_follows_its_beginning() {
        let [one, other] = [stream(8), stream(16)];
        let (mut began, mut begun) = (Began::of(one), Began::of(other));
        began.follows(begun.pending());
        began.launched(First::Batch, || vec![node(1)]);
        begun.launched(First::Batch, || vec![node(2)]);
        // From here on nodes say the order.
        began.follows(begun.pending());
        began.launched(First::Batch, || unreachable!());
        let entries = began.line(one, vec![node(3)], false).unwrap().entries;
        assert_eq!(entries.len(), 1);
        assert_eq!(entries[0].behind, [one, other]);
        // The same holds later in a recording, and at its end, where no node follows.
        let (mut began, begun) = (Began::of(one), Began::of(other));
        began.launched(First::Batch, || vec![node(1)]);
        began.follows(begun.pending());
        let line = began.line(one, vec![node(1)], false).unwrap();
        assert_eq!(line.begins, [other]);
        began.launched(First::Batch, || vec![node(2)]);
        let line = began.line(one, vec![node(2)], false).unwrap();
        assert_eq!(
            (line.entries[1].node, &line.entries[1].behind[..]),
            (node(2), &[other][..])
        );
        assert!(line.begins.is_empty());
    }

    #[test]
    fn what_began_by_other_means_is_not_known() {
        let mut began = Began::of(stream(8));
        began.enqueued();
        began.launched(First::Batch, || vec![node(1)]);
        assert_eq!(began.line(stream(8), vec![node(1)], true), None);
        let mut joined = Began::of(stream(8));
        joined.launched(First::Batch, || vec![node(1), node(2)]);
        assert_eq!(joined.line(stream(8), vec![], true), None);
        let mut began = Began::of(stream(8));
        began.launched(First::Batch, || vec![node(1)]);
        began.enqueued();
        assert!(began.line(stream(8), vec![node(1)], true).is_some());
        // Here it is known that nothing was recorded.
        let nothing = Began::of(stream(8)).line(stream(8), vec![], true).unwrap();
        assert_eq!((nothing.entries, nothing.begins), (vec![], vec![stream(8)]));
    }
}
