//! What one rank did: the work of each stream, in order, with its times.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::observe::{Declared, Joined, Part, WindowId};
use tidegate_hal::device::Device;

/// Nanoseconds. In files, of the `CLOCK_MONOTONIC` of the rank's host; in a [`Job`](super::job::Job), since its start.
pub(super) type Time = i64;

/// The sum of times. In a file that no rank has written, it may be longer than any time.
pub(super) fn total(times: impl IntoIterator<Item = Time>) -> Time {
    times.into_iter().fold(0, Time::saturating_add)
}

/// A rank.
#[derive(Default)]
pub(super) struct Rank {
    pub(super) joined: Joined,
    pub(super) windows: HashMap<WindowId, Window>,
    pub(super) streams: Vec<Stream>,
    pub(super) calls: Vec<Call>,
    /// What failed: streams and windows.
    pub(super) failures: Vec<(Time, String)>,
    /// The ends of other ranks that this one has seen.
    pub(super) gone: Vec<(Time, u32, String)>,
    /// When the rank joined.
    pub(super) begun: Time,
    /// When it left. `None` if its file ends before that.
    pub(super) left: Option<Time>,
    /// The greatest error of the times of a device.
    pub(super) clock_error: u64,
}

/// A window, a barrier or an all-reduce.
pub(super) struct Window {
    pub(super) what: Arc<str>,
    pub(super) name: Arc<str>,
    /// How many epochs each origin may begin before the first post.
    pub(super) exposed: u64,
}

/// A call of the program.
pub(super) struct Call {
    pub(super) at: Time,
    pub(super) name: String,
    pub(super) site: Arc<str>,
    /// How long other threads had the processor of the program's thread, since its last call.
    pub(super) lost: Time,
    /// If the program waited for a stream: which, and since when.
    pub(super) waited: Option<(usize, Time)>,
}

/// A stream.
#[derive(Default)]
pub(super) struct Stream {
    pub(super) name: String,
    pub(super) items: Vec<Item>,
    /// How many stamps are missing.
    pub(super) dropped: u64,
}

/// A piece of work that a stream has done.
pub(super) struct Item {
    pub(super) work: Work,
    pub(super) begun: Time,
    pub(super) ended: Time,
    /// When the program enqueued it, if that is known.
    pub(super) called: Option<Time>,
    /// How long other threads had its processor meanwhile, as far as that is known.
    pub(super) lost: Time,
    /// The line of the program.
    pub(super) site: Arc<str>,
    /// Items of other streams that came first, by stream and index.
    pub(super) after: Vec<(usize, usize)>,
}

/// What an item is.
pub(super) enum Work {
    Batch(Arc<Declared>, Vec<Done>),
    /// A kernel.
    Kernel(Arc<str>),
    /// Kernels that ran at some time between the begin and the end.
    Inferred(Vec<Arc<str>>),
}

/// A leg of a batch that a stream has carried out.
pub(super) struct Done {
    /// The index of the part in the declaration of the batch.
    pub(super) part: usize,
    pub(super) epoch: u64,
    pub(super) begun: Time,
    pub(super) satisfied: Time,
    pub(super) moved: Time,
    pub(super) ended: Time,
    /// The leg that ended its wait.
    pub(super) signal: Option<LegRef>,
}

/// Where a leg is: rank, stream, item and leg, as indices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct LegRef {
    pub(super) rank: usize,
    pub(super) stream: usize,
    pub(super) item: usize,
    pub(super) leg: usize,
}

impl Done {
    /// How long it waited.
    pub(super) fn waited(&self) -> Time {
        (self.satisfied - self.begun).max(0)
    }

    /// All its times.
    fn times(&mut self) -> [&mut Time; 4] {
        [
            &mut self.begun,
            &mut self.satisfied,
            &mut self.moved,
            &mut self.ended,
        ]
    }
}

impl Work {
    /// What it is called.
    pub(super) fn name(&self) -> String {
        match self {
            Work::Batch(batch, _) => batch.call.to_string(),
            Work::Kernel(name) => short(name).to_owned(),
            Work::Inferred(names) => match &names[..] {
                [name] => short(name).to_owned(),
                [first, rest @ ..] => format!("{} and {} more", short(first), rest.len()),
                [] => String::new(),
            },
        }
    }

    pub(super) fn is_kernel(&self) -> bool {
        !matches!(self, Work::Batch(..))
    }
}

/// The name of a kernel without the modules in front. A closure is called after its function.
pub(super) fn short(name: &str) -> &str {
    let end = name.trim_end_matches("::{{closure}}");
    // Generic arguments contain paths, too.
    let head = end.split('<').next().unwrap_or(end);
    let from = head.rfind("::").map_or(0, |at| at + 2);
    if from >= end.len() {
        name
    } else {
        &end[from..]
    }
}

impl Rank {
    /// Whether the kernels of this rank have no times of their own.
    pub(super) fn infers_kernels(&self) -> bool {
        self.joined.device != tidegate_host::Host::NAME
    }

    /// Changes all its times.
    pub(super) fn shift(&mut self, shift: impl Fn(Time) -> Time) {
        let change = |time: &mut Time| *time = shift(*time);
        change(&mut self.begun);
        self.left.iter_mut().for_each(change);
        for call in &mut self.calls {
            change(&mut call.at);
            call.waited.iter_mut().for_each(|(_, begun)| change(begun));
        }
        self.failures.iter_mut().for_each(|(at, _)| change(at));
        self.gone.iter_mut().for_each(|(at, ..)| change(at));
        for item in self.streams.iter_mut().flat_map(|stream| &mut stream.items) {
            item.called.iter_mut().for_each(change);
            change(&mut item.begun);
            change(&mut item.ended);
            if let Work::Batch(_, legs) = &mut item.work {
                let times = legs.iter_mut().flat_map(Done::times);
                times.for_each(change);
            }
        }
    }

    /// When it did its last work, or left.
    pub(super) fn ended(&self) -> Time {
        let items = self.streams.iter().flat_map(|stream| &stream.items);
        let ends = items.map(|item| item.ended);
        let last = ends.chain(self.calls.iter().map(|call| call.at)).max();
        self.left.or(last).unwrap_or(self.begun)
    }

    /// The part of a leg.
    pub(super) fn part<'a>(batch: &'a Declared, leg: &Done) -> &'a Part {
        &batch.parts[leg.part]
    }
}
