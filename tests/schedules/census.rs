//! Counts the things in the cases, so that no test relies on things that are never generated.

use std::collections::BTreeMap;

use super::job::{Act, Chunk, Edge, Item, Job, Kind, LaneKind, Lay, Op, Verb, What};

/// How often each thing occurs.
#[derive(Default)]
pub(crate) struct Census(pub(crate) BTreeMap<String, usize>);

impl Census {
    fn count(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    pub(crate) fn job(&mut self, job: &Job) {
        self.count(format!("{} ranks", job.ranks));
        for lanes in &job.lanes {
            self.count(format!("{} streams", lanes.len()));
            let inline = lanes.contains(&LaneKind::Inline);
            if inline && lanes.contains(&LaneKind::Thread) {
                self.count("inline streams beside others");
            }
        }
        for win in &job.windows {
            self.count(format!("window {:?}", win.ty));
            self.count(match win.kind {
                Kind::Slots { double: true } => "slots, double",
                Kind::Slots { double: false } => "slots, single",
                Kind::Ranges => "ranges",
                Kind::Atomic { .. } => "atomic",
            });
            for edge in &win.edges {
                if edge.origin == edge.target {
                    self.count("edge to itself");
                }
                let between = |other: &Edge| {
                    other.target == edge.target && other.first.abs_diff(edge.first) % 2 == 1
                };
                if edge.step != 1
                    && win
                        .edges
                        .iter()
                        .any(|other| other.step != 1 && between(other))
                {
                    self.count("layouts that interleave");
                }
                if edge.key > 0 {
                    self.count("several slots of a pair");
                }
            }
        }
        for (rank, program) in job.programs.iter().enumerate() {
            for item in program {
                match item {
                    Item::Do(op) => self.op(job, rank, op, "eager"),
                    Item::Loop {
                        body, side, chunks, ..
                    } => self.repeated(job, rank, body, *side, chunks),
                }
            }
        }
    }

    fn repeated(
        &mut self,
        job: &Job,
        rank: usize,
        body: &[Op],
        side: Option<usize>,
        chunks: &[Chunk],
    ) {
        if body.is_empty() {
            return;
        }
        let replayed = chunks.iter().any(|chunk| matches!(chunk, Chunk::Replay(_)));
        let mixed = chunks.iter().any(|chunk| matches!(chunk, Chunk::Eager(_))) && replayed;
        if mixed {
            self.count("eager steps and replays of one loop");
        }
        if replayed && side.is_some() && body.iter().any(|op| op.on == side) {
            self.count("replays of two streams");
        }
        if let Some(Op {
            what: What::Post { .. },
            ..
        }) = body.last()
            && replayed
        {
            self.count("exposed from one replay to the next");
        }
        for op in body {
            self.op(job, rank, op, if replayed { "replayed" } else { "eager" });
        }
    }

    fn op(&mut self, job: &Job, rank: usize, op: &Op, how: &str) {
        let name = format!("{:?}", op.what);
        let name = name.split([' ', '(']).next().unwrap_or_default();
        self.count(format!("{how} {name}"));
        if op.on.is_some() {
            self.count("on a chosen stream");
        }
        match &op.what {
            What::Post {
                group: Some(group), ..
            } if !group.is_empty() => self.count("post to a group"),
            What::Expose {
                group: Some(group), ..
            } if !group.is_empty() => self.count("whole to a group"),
            What::Wait { polls, .. } if *polls > 0 => self.count("test"),
            What::Parts { side, .. } if job.lanes[rank].len() > 1 && Some(*side) != op.on => {
                self.count("parts on two streams");
            }
            What::Complete {
                group,
                acts,
                window,
            }
            | What::Exchange {
                group,
                acts,
                window,
            } => {
                self.count(match acts.len() {
                    0 => "epoch of nothing",
                    1 => "epoch of one operation",
                    _ => "epoch of several operations",
                });
                if group.is_some() {
                    self.count("start with a group");
                }
                for act in acts {
                    let win = &job.windows[*window];
                    self.act(act, win.kind);
                    let way = win.outbound(rank).nth(act.edge);
                    if matches!(win.kind, Kind::Ranges) && way.is_some_and(|way| way.step != 1) {
                        let verb = format!("{:?}", act.verb);
                        let verb = verb.split('(').next().unwrap_or_default();
                        self.count(format!("{verb} by a layout"));
                    }
                }
            }
            _ => {}
        }
    }

    fn act(&mut self, act: &Act, kind: Kind) {
        let verb = match act.verb {
            Verb::Put => "put",
            Verb::Get => "get",
            Verb::Accumulate(_) => "accumulate",
            Verb::Fetch { .. } => "fetch",
            Verb::Swap { .. } => "swap",
        };
        let kind = match kind {
            Kind::Slots { .. } => "slot",
            Kind::Ranges => "range",
            Kind::Atomic { .. } => "atomic",
        };
        self.count(format!("{verb} in {kind}"));
        for (lay, side) in [(&act.lay, "here"), (&act.remote, "there")] {
            self.count(match lay {
                Lay::Whole => format!("whole {side}"),
                Lay::Run { count: 0, .. } => format!("nothing {side}"),
                Lay::Run { count: 1, .. } => format!("one element {side}"),
                Lay::Run { .. } => format!("run {side}"),
                Lay::Strided { .. } => format!("strided {side}"),
                Lay::Indexed { .. } => format!("indexed {side}"),
            });
        }
    }
}

/// The things that must occur.
pub(crate) const ALL: &[&str] = &[
    "1 ranks",
    "2 ranks",
    "5 ranks",
    "1 streams",
    "2 streams",
    "3 streams",
    "inline streams beside others",
    "window U64",
    "window U32",
    "window U8",
    "window I32",
    "window F64",
    "window Pixel",
    "window Triple",
    "slots, double",
    "slots, single",
    "ranges",
    "atomic",
    "edge to itself",
    "several slots of a pair",
    "eager steps and replays of one loop",
    "replays of two streams",
    "exposed from one replay to the next",
    "eager Post",
    "eager Wait",
    "eager Expose",
    "eager Complete",
    "eager Exchange",
    "eager Consume",
    "eager Change",
    "eager Fold",
    "eager Log",
    "eager Read",
    "eager Trip",
    "eager Split",
    "eager Join",
    "eager Parts",
    "eager Surface",
    "eager Renew",
    "eager Synchronize",
    "replayed Post",
    "replayed Wait",
    "replayed Expose",
    "replayed Complete",
    "replayed Exchange",
    "replayed Consume",
    "replayed Change",
    "replayed Fold",
    "replayed Log",
    "on a chosen stream",
    "post to a group",
    "whole to a group",
    "start with a group",
    "test",
    "parts on two streams",
    "epoch of nothing",
    "epoch of one operation",
    "epoch of several operations",
    "layouts that interleave",
    "Put by a layout",
    "Get by a layout",
    "Accumulate by a layout",
    "put in slot",
    "put in range",
    "get in range",
    "accumulate in range",
    "accumulate in atomic",
    "get in atomic",
    "fetch in atomic",
    "swap in atomic",
    "whole here",
    "nothing here",
    "one element here",
    "run here",
    "strided here",
    "indexed here",
    "whole there",
    "strided there",
    "indexed there",
];
