//! A job as rows of slices, with arrows: what the file for ui.perfetto.dev and the page both draw.
//!
//! # Model
//!
//! A rank has a row for the calls of its program, and for each stream a row of kernels and batches. The legs of a batch
//! that has several lanes have rows of their own, one for each lane, since they overlap. On a row, slices do not overlap,
//! unless one lies within the other: a leg contains its wait and its move.

use tidegate_core::observe::{EpochCall, Operation};

use super::job::Job;
use super::rank::{LegRef, Rank, Time, Work, short};
use super::tables::awaited;

/// The rows of a job.
pub(super) struct View {
    pub(super) rows: Vec<Row>,
    pub(super) arrows: Vec<Arrow>,
}

/// A row.
pub(super) struct Row {
    /// The number of the rank.
    pub(super) rank: u32,
    pub(super) name: String,
    /// The row of its stream. A row of a lane has another one.
    pub(super) main: usize,
    pub(super) slices: Vec<Slice>,
}

/// A slice of a row.
pub(super) struct Slice {
    pub(super) kind: Kind,
    pub(super) begun: Time,
    pub(super) ended: Time,
    pub(super) name: String,
    pub(super) site: String,
    pub(super) bytes: u64,
    pub(super) epoch: Option<u64>,
}

/// What a slice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A batch, or one leg.
    Batch,
    Wait,
    Move,
    Kernel,
    /// A kernel that ran for some time within the slice.
    Inferred,
    /// A call of the program. It has no length, unless it waits.
    Call,
}

impl Kind {
    pub(super) const ALL: [Kind; 6] = [
        Kind::Batch,
        Kind::Wait,
        Kind::Move,
        Kind::Kernel,
        Kind::Inferred,
        Kind::Call,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Batch => "epoch",
            Kind::Wait => "wait",
            Kind::Move => "move",
            Kind::Kernel => "kernel",
            Kind::Inferred => "kernel, at most",
            Kind::Call => "call",
        }
    }
}

/// A signal that ended a wait: from a point on a row to another.
pub(super) struct Arrow {
    pub(super) operation: Operation,
    pub(super) from: (usize, Time),
    pub(super) to: (usize, Time),
}

impl Arrow {
    pub(super) fn name(&self) -> &'static str {
        match self.operation {
            Operation::Post => "post",
            Operation::Complete => "put",
            _ => "signal",
        }
    }
}

impl View {
    pub(super) fn of(job: &Job) -> Self {
        let mut view = View {
            rows: Vec::new(),
            arrows: Vec::new(),
        };
        // The row of each lane, by rank and stream. Lane 0 of a batch without others is on the row of the stream.
        let mut first_row = Vec::new();
        for (index, rank) in job.ranks.iter().enumerate() {
            view.calls(rank);
            let mut of_rank = Vec::new();
            for stream in 0..rank.streams.len() {
                of_rank.push(view.rows.len());
                view.stream(job, index, stream);
            }
            first_row.push(of_rank);
        }
        let row = |at: LegRef| {
            let first = first_row[at.rank][at.stream];
            match &job.item(at).work {
                Work::Batch(batch, legs) if lanes(&batch.parts) > 1 => {
                    first + 1 + batch.parts[legs[at.leg].part].lane as usize
                }
                _ => first,
            }
        };
        for (at, batch, leg) in job.legs() {
            let Some(signal) = leg.signal else { continue };
            let Some(awaits) = Rank::part(batch, leg).awaits else {
                continue;
            };
            let told = job.leg(signal).1;
            // Both ends lie inside of their slices.
            let from = told.satisfied + (told.ended - told.satisfied) / 2;
            let to = leg.satisfied - i64::from(leg.waited() > 0);
            view.arrows.push(Arrow {
                operation: awaits.operation,
                from: (row(signal), from),
                to: (row(at), to),
            });
        }
        view
    }

    fn calls(&mut self, rank: &Rank) {
        let slice = |call: &super::rank::Call| Slice {
            kind: Kind::Call,
            begun: call.waited.map_or(call.at, |(_, begun)| begun),
            ended: call.at,
            name: call.name.clone(),
            site: call.site.to_string(),
            bytes: 0,
            epoch: None,
        };
        let mut slices: Vec<_> = rank.calls.iter().map(slice).collect();
        apart(&mut slices);
        self.rows.push(Row {
            rank: rank.joined.rank,
            name: "program".to_owned(),
            main: self.rows.len(),
            slices,
        });
    }

    fn stream(&mut self, job: &Job, rank: usize, stream: usize) {
        let of = &job.ranks[rank].streams[stream];
        let number = job.number(rank);
        let name = match of.name.is_empty() {
            true => format!("stream {stream}"),
            false => of.name.clone(),
        };
        let most = of.items.iter().map(|item| match &item.work {
            Work::Batch(batch, _) => lanes(&batch.parts),
            _ => 1,
        });
        let most = most.max().unwrap_or(1);
        let mut main = Vec::new();
        let mut own: Vec<Vec<Slice>> = Vec::new();
        own.resize_with(if most > 1 { most } else { 0 }, Vec::new);
        for item in &of.items {
            let (begun, ended) = (item.begun, item.ended);
            let site = item.site.to_string();
            let plain = |kind, name| Slice {
                kind,
                begun,
                ended,
                name,
                site: site.clone(),
                bytes: 0,
                epoch: None,
            };
            match &item.work {
                Work::Kernel(name) => main.push(plain(Kind::Kernel, short(name).to_owned())),
                Work::Inferred(_) => main.push(plain(Kind::Inferred, item.work.name())),
                Work::Batch(batch, legs) => {
                    let several = lanes(&batch.parts) > 1;
                    let window = batch.parts.iter().find_map(|part| {
                        let tells = part.tells.first().map(|tells| tells.window);
                        part.awaits.map(|awaits| awaits.window).or(tells)
                    });
                    let window = job.window(rank, window.flatten());
                    // The name of a barrier has the word already.
                    let name = match batch.call {
                        EpochCall::Barrier => window.clone(),
                        call => format!("{call} {window}").trim_end().to_owned(),
                    };
                    main.push(Slice {
                        bytes: (legs.iter().map(|leg| batch.parts[leg.part].bytes))
                            .fold(0, u64::saturating_add),
                        epoch: legs.iter().map(|leg| leg.epoch).max(),
                        ..plain(Kind::Batch, name)
                    });
                    let waits = legs
                        .iter()
                        .filter(|leg| batch.parts[leg.part].awaits.is_some());
                    let last = waits.map(|leg| leg.satisfied).max();
                    if let Some(last) = last.filter(|_| several) {
                        main.push(Slice {
                            ended: last,
                            ..plain(Kind::Wait, "wait: until all lanes went on".to_owned())
                        });
                    }
                    for leg in legs {
                        let part = &batch.parts[leg.part];
                        let row = match several {
                            true => &mut own[part.lane as usize],
                            false => &mut main,
                        };
                        let slice = |kind, begun, ended, name| Slice {
                            begun,
                            ended,
                            epoch: Some(leg.epoch),
                            ..plain(kind, name)
                        };
                        if let Some(awaits) = part.awaits {
                            let what = match awaits.operation {
                                Operation::Read => awaited(Operation::Read).to_owned(),
                                operation => format!("{} of {}", awaited(operation), awaits.peer),
                            };
                            let name = format!("wait: {what}, {window}");
                            row.push(slice(Kind::Wait, leg.begun, leg.satisfied, name));
                        }
                        if let Some(tells) = part.tells.first() {
                            let verb = match tells.operation {
                                Operation::Post => "post",
                                Operation::Complete => "put",
                                _ => "signal",
                            };
                            let name = format!("{verb} to {}, {window}", tells.peer);
                            row.push(Slice {
                                bytes: part.bytes,
                                ..slice(Kind::Move, leg.satisfied, leg.ended, name)
                            });
                        }
                    }
                }
            }
        }
        let first = self.rows.len();
        let mut add = |name: String, mut slices: Vec<Slice>| {
            apart(&mut slices);
            self.rows.push(Row {
                rank: number,
                name,
                main: first,
                slices,
            });
        };
        add(name.clone(), main);
        for (lane, slices) in own.into_iter().enumerate() {
            add(format!("{name}: lane {lane}"), slices);
        }
    }
}

/// How many lanes a batch has.
fn lanes(parts: &[tidegate_core::observe::Part]) -> usize {
    let lanes = parts.iter().map(|part| part.lane as usize + 1);
    lanes.max().unwrap_or(0)
}

/// Sorts slices. If one begins before the one in front has ended, and ends later, it is cut: batches of GPUs may begin a
/// little early.
fn apart(slices: &mut [Slice]) {
    slices.sort_by_key(|slice| (slice.begun, -slice.ended));
    // The ends of the slices around the next one, from the outermost.
    let mut around: Vec<Time> = Vec::new();
    for slice in slices.iter_mut() {
        while let Some(end) = around.last() {
            if *end <= slice.begun {
                around.pop();
            } else if *end < slice.ended {
                // It sticks out of this one, but not of those around it.
                slice.begun = *end;
                around.pop();
            } else {
                break;
            }
        }
        slice.ended = slice.ended.max(slice.begun);
        if slice.begun < slice.ended {
            around.push(slice.ended);
        }
    }
}
