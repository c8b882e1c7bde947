//! Runs one rank's program on the library.

use std::collections::HashMap;
use tidegate::error::CaptureError;

use tidegate::generic::{Layout, World};
use tidegate::host::prelude::*;

use super::bag::{Adjust, Elem, Keep, put, take, with_kind, with_ty};
use super::context::Context;
use super::device::{Bench, change};
use super::exec::enqueue;
use super::job::{Act, Chunk, Item, Job, LaneKind, Lay, Op, Res, What};
use super::lane::{Lane, Recorded};
use super::open::See;
use super::oracle::Outcome;
use super::parts::{Surface, on_one, on_two};
use super::value::{changed, checksum};

struct Rank<'j, 'a, 'b, 'c, D: Bench> {
    cx: Context<'j, D>,
    lanes: (Lane<'a, D>, Lane<'b, D>, Lane<'c, D>),
    homes: HashMap<Res, usize>,
    /// How often each region was split, joined, or made again. A recording is only valid for what it was made with.
    versions: HashMap<Res, u64>,
    reads: Vec<u64>,
}

macro_rules! with_lane {
    ($rank:expr, $index:expr, $lane:ident => $body:expr) => {
        match $index {
            0 => {
                let $lane = &mut $rank.lanes.0;
                $body
            }
            1 => {
                let $lane = &mut $rank.lanes.1;
                $body
            }
            _ => {
                let $lane = &mut $rank.lanes.2;
                $body
            }
        }
    };
}

macro_rules! with_lanes {
    ($rank:expr, $one:expr, $two:expr, ($a:ident, $b:ident) => $body:expr) => {{
        let (first, second, third) = (&mut $rank.lanes.0, &mut $rank.lanes.1, &mut $rank.lanes.2);
        match ($one, $two) {
            (0, 1) => {
                let ($a, $b) = (first, second);
                $body
            }
            (1, 0) => {
                let ($a, $b) = (second, first);
                $body
            }
            (0, 2) => {
                let ($a, $b) = (first, third);
                $body
            }
            (2, 0) => {
                let ($a, $b) = (third, first);
                $body
            }
            (1, 2) => {
                let ($a, $b) = (second, third);
                $body
            }
            (2, 1) => {
                let ($a, $b) = (third, second);
                $body
            }
            other => unreachable!("{other:?} are not two streams"),
        }
    }};
}

/// Runs the program of this rank; collective.
pub(crate) fn run<D: Bench>(
    job: &Job,
    program: &[Item],
    world: World<D>,
    adjust: &Adjust,
) -> Result<Outcome> {
    // This comes before any stream exists.
    let kernels = D::kernels(&world)?;
    let lane = |index: usize| match job.lanes[world.rank()].get(index) {
        Some(LaneKind::Thread) => world.named_stream(&format!("stream {index}")),
        // An unused stream needs no thread either.
        Some(LaneKind::Inline) | None => world.inline_stream(),
    };
    stream!(let a = lane(0)?);
    stream!(let b = lane(1)?);
    stream!(let c = lane(2)?);
    let lanes = (Lane::new(a), Lane::new(b), Lane::new(c));
    let mut rank = Rank {
        cx: Context {
            job,
            rank: world.rank(),
            kernels,
            layouts: HashMap::new(),
            groups: HashMap::new(),
        },
        lanes,
        homes: HashMap::new(),
        versions: HashMap::new(),
        reads: Vec::new(),
    };
    rank.prepare(program, &world, adjust)?;
    for item in program {
        match item {
            Item::Do(op) => rank.eager(op)?,
            Item::Loop {
                graph,
                body,
                main,
                side,
                chunks,
            } => match side {
                None => rank.repeat(*graph, body, *main, chunks)?,
                Some(side) => rank.repeat_on_two(body, *main, *side, chunks)?,
            },
        }
    }
    rank.finish()
}

impl<D: Bench> Rank<'_, '_, '_, '_, D> {
    /// Opens windows and makes regions, layouts and groups.
    fn prepare(&mut self, program: &[Item], world: &World<D>, adjust: &Adjust) -> Result<()> {
        let (job, rank) = (self.cx.job, self.cx.rank);
        let streams = job.lanes[rank].len();
        for number in 0..job.windows.len() {
            let index = number % streams;
            with_lane!(self, index, lane => {
                lane.bag.open(&self.cx.kernels, &lane.stream, job, number, adjust)?;
            });
            self.homes.insert(Res::Inbox(number), index);
            self.homes.insert(Res::Outbox(number), index);
        }
        for (id, reg) in job.regions[rank].iter().enumerate() {
            let index = id % streams;
            with_ty!(reg.ty, T => {
                let value = |index| T::of(reg.first_value(rank, id, index));
                let values: Vec<T> = (0..reg.len).map(value).collect();
                let region = Region::from_slice(world, &values)?;
                with_lane!(self, index, lane => {
                    put(&mut T::shelf(&mut lane.bag).0, id, region.on(&lane.stream)?);
                });
            });
            self.homes.insert(Res::Region(id), index);
        }
        for item in program {
            match item {
                Item::Do(op) => self.prepare_op(op, world)?,
                Item::Loop { body, .. } => {
                    body.iter().try_for_each(|op| self.prepare_op(op, world))?;
                }
            }
        }
        Ok(())
    }

    fn prepare_op(&mut self, op: &Op, world: &World<D>) -> Result<()> {
        let (group, acts): (_, &[Act]) = match &op.what {
            What::Post { group, .. } | What::Expose { group, .. } => (group, &[]),
            What::Complete { group, acts, .. }
            | What::Exchange { group, acts, .. }
            | What::Surface { group, acts, .. } => (group, acts),
            _ => return Ok(()),
        };
        if let Some(ranks) = group {
            let make = || Group::new(ranks.iter().copied());
            self.cx.groups.entry(ranks.clone()).or_insert_with(make);
        }
        for lay in acts.iter().flat_map(|act| [&act.lay, &act.remote]) {
            if self.cx.layouts.contains_key(lay) {
                continue;
            }
            let layout = match lay {
                Lay::Whole | Lay::Run { .. } => continue,
                Lay::Strided { first, loops } => Layout::strided(*first, loops)?,
                indexed @ Lay::Indexed { .. } => {
                    let indices = indexed.elements(0).into_iter().map(|i| i as u32);
                    Layout::indexed(world, &indices.collect::<Vec<_>>())?
                }
            };
            self.cx.layouts.insert(lay.clone(), layout);
        }
        Ok(())
    }

    /// Hands over to stream `to` everything that is on other streams.
    fn gather(&mut self, what: &[Res], to: usize) -> Result<()> {
        for from in 0..3 {
            let away: Vec<_> = what
                .iter()
                .copied()
                .filter(|res| from != to && self.homes[res] == from)
                .collect();
            if away.is_empty() {
                continue;
            }
            let cx = &self.cx;
            with_lanes!(self, from, to, (one, two) => one.hand(cx, &away, two)?);
            for res in away {
                self.homes.insert(res, to);
            }
        }
        Ok(())
    }

    fn eager(&mut self, op: &Op) -> Result<()> {
        let needs = op.what.needs();
        let home = needs.first().map_or(0, |res| self.homes[res]);
        let on = op.on.unwrap_or(home);
        self.gather(&needs, on)?;
        let (job, rank) = (self.cx.job, self.cx.rank);
        match op.what {
            What::Synchronize => with_lane!(self, on, lane => lane.stream.synchronize()),
            What::Read { window, salt } => self.read(window, salt, on),
            What::Trip { region, salt } => with_ty!(job.regions[rank][region].ty, T => {
                with_lane!(self, on, lane => {
                    let held = take(&mut T::shelf(&mut lane.bag).0, region);
                    let mut held = held.into_host(&lane.stream)?;
                    D::region(&mut held, |all| change(all, salt))?;
                    put(&mut T::shelf(&mut lane.bag).0, region, held.on(&lane.stream)?);
                });
                Ok(())
            }),
            What::Renew { region, salt } => {
                self.touch(Res::Region(region));
                with_ty!(job.regions[rank][region].ty, T => with_lane!(self, on, lane => {
                    let old = take(&mut T::shelf(&mut lane.bag).0, region);
                    let value = |index| T::of(changed(T::TY, 0, index, salt));
                    let values: Vec<T> = (0..old.len()).map(value).collect();
                    // The stream may still work with it, and must not touch the new one.
                    drop(old);
                    let new = Region::from_slice(lane.stream.world(), &values)?;
                    put(&mut T::shelf(&mut lane.bag).0, region, new.on(&lane.stream)?);
                    Ok(())
                }))
            }
            What::Split { region, at, rest } => {
                self.touch(Res::Region(region));
                self.touch(Res::Region(rest));
                self.homes.insert(Res::Region(rest), on);
                with_ty!(job.regions[rank][region].ty, T => with_lane!(self, on, lane => {
                    let regions = &mut T::shelf(&mut lane.bag).0;
                    let (low, high) = take(regions, region).split_at(at)?;
                    put(regions, region, low);
                    put(regions, rest, high);
                    Ok(())
                }))
            }
            What::Join { region, rest } => {
                self.touch(Res::Region(region));
                with_ty!(job.regions[rank][region].ty, T => with_lane!(self, on, lane => {
                    let regions = &mut T::shelf(&mut lane.bag).0;
                    let (low, high) = (take(regions, region), take(regions, rest));
                    put(regions, region, low.join(high)?);
                    Ok(())
                }))
            }
            What::Parts {
                region,
                step,
                side,
                salt,
            } => {
                let surface = Surface {
                    region,
                    step,
                    salt,
                    epoch: None,
                };
                self.parts(on, side, &surface)
            }
            What::Surface {
                window,
                ref group,
                ref acts,
                region,
                step,
                side,
                salt,
            } => {
                let surface = Surface {
                    region,
                    step,
                    salt,
                    epoch: Some((window, group, acts)),
                };
                self.parts(on, side, &surface)
            }
            _ => {
                let cx = &self.cx;
                with_lane!(self, on, lane => enqueue(cx, &lane.stream, &mut lane.bag, op))
            }
        }
    }

    fn parts(&mut self, on: usize, side: usize, surface: &Surface<'_>) -> Result<()> {
        self.touch(Res::Region(surface.region));
        let cx = &self.cx;
        with_ty!(cx.job.regions[cx.rank][surface.region].ty, T => if side == on {
            with_lane!(self, on, lane => on_one::<T, D>(cx, lane, surface))
        } else {
            with_lanes!(self, on, side, (one, two) => on_two::<T, D>(cx, one, two, surface))
        })
    }

    fn touch(&mut self, res: Res) {
        *self.versions.entry(res).or_default() += 1;
    }

    fn read(&mut self, window: usize, salt: u64, on: usize) -> Result<()> {
        let (kernels, win) = (&self.cx.kernels, &self.cx.job.windows[window]);
        // The holder of a lock is not certain.
        let certain = win.memory - win.locks().len();
        let sum = with_kind!(win, T, K => with_lane!(self, on, lane => {
            let inbox = K::halves(T::shelf(&mut lane.bag)).0[window].as_mut().expect("it is here");
            let alter = |memory: &mut [T]| change(&mut memory[..certain], salt);
            let mut seen = K::see(kernels, inbox, &lane.stream, win, alter)?;
            if !matches!(win.kind, Kind::Slots { .. }) {
                seen[0].truncate(certain);
            }
            checksum_all(&seen)
        }));
        self.reads.push(sum);
        Ok(())
    }

    fn needs(body: &[Op]) -> Vec<Res> {
        let mut needs: Vec<_> = body.iter().flat_map(|op| op.what.needs()).collect();
        needs.sort_unstable();
        needs.dedup();
        needs
    }

    fn versions(&self, what: &[Res]) -> Vec<u64> {
        let version = |res| self.versions.get(res).copied().unwrap_or(0);
        what.iter().map(version).collect()
    }

    fn repeat(&mut self, number: usize, body: &[Op], main: usize, chunks: &[Chunk]) -> Result<()> {
        let what = Self::needs(body);
        self.gather(&what, main)?;
        let versions = self.versions(&what);
        let cx = &self.cx;
        with_lane!(self, main, lane => for chunk in chunks {
            match *chunk {
                Chunk::Eager(times) => for _ in 0..times {
                    for op in body {
                        enqueue(cx, &lane.stream, &mut lane.bag, op)?;
                    }
                },
                Chunk::Replay(times) => {
                    let old = match lane.graphs.remove(&number) {
                        Some(old) => old,
                        None => Recorded {
                            graph: lane.record(cx, body, &what)?,
                            versions: versions.clone(),
                        },
                    };
                    let lent = lane.bag.lend(cx.job, cx.rank, &what);
                    let (mut back, kept) = match old.graph.try_replay(&lane.stream, lent, times as usize) {
                        Ok(back) => {
                            assert_eq!(old.versions, versions, "the recording is stale");
                            (back, old)
                        }
                        Err(rejected) if matches!(rejected.error, Error::Capture(CaptureError::OtherGraph { .. })) => {
                            assert_ne!(old.versions, versions, "the recording still fits");
                            let mut lent = rejected.value;
                            lent.shift(cx.job, cx.rank, &what, &mut lane.bag);
                            let graph = lane.record(cx, body, &what)?;
                            let lent = lane.bag.lend(cx.job, cx.rank, &what);
                            let back = graph.replay(&lane.stream, lent, times as usize)?;
                            (back, Recorded { graph, versions: versions.clone() })
                        }
                        Err(rejected) => return Err(rejected.error),
                    };
                    back.shift(cx.job, cx.rank, &what, &mut lane.bag);
                    lane.graphs.insert(number, kept);
                }
            }
        });
        Ok(())
    }

    fn repeat_on_two(
        &mut self,
        body: &[Op],
        main: usize,
        side: usize,
        chunks: &[Chunk],
    ) -> Result<()> {
        // Things that only the second stream uses are at home there, if it has the higher number. Otherwise they are
        // handed over and back.
        let (stay, what): (Vec<_>, Vec<_>) = Self::needs(body).into_iter().partition(|res| {
            let mut users = body.iter().filter(|op| op.what.needs().contains(res));
            main < side && users.all(|op| op.on == Some(side))
        });
        // The graph's type names both streams, so there is one arm for each pair.
        macro_rules! chunk_by_chunk {
            ($($one:literal, $two:literal, $first:tt, $second:tt;)*) => {
                match (main, side) {
                    $(($one, $two) => {
                        let mut graph = None;
                        for chunk in chunks {
                            self.gather(&what, main)?;
                            self.gather(&stay, side)?;
                            match *chunk {
                                Chunk::Eager(times) => for _ in 0..times {
                                    body.iter().try_for_each(|op| self.eager(op))?;
                                },
                                Chunk::Replay(times) => {
                                    let cx = &self.cx;
                                    let (one, two) = (&mut self.lanes.$first, &mut self.lanes.$second);
                                    let graph = match &graph {
                                        Some(graph) => graph,
                                        None => graph.insert(
                                            one.record_with(cx, two, (main, side), body, (&what, &stay))?,
                                        ),
                                    };
                                    let lent = one.bag.lend(cx.job, cx.rank, &what);
                                    let over = two.bag.lend(cx.job, cx.rank, &stay);
                                    let (mut back, mut over) =
                                        graph.replay(&one.stream, &two.stream, (lent, over), times as usize)?;
                                    back.shift(cx.job, cx.rank, &what, &mut one.bag);
                                    over.shift(cx.job, cx.rank, &stay, &mut two.bag);
                                }
                            }
                        }
                        Ok(())
                    })*
                    other => unreachable!("{other:?} are not two streams"),
                }
            };
        }
        chunk_by_chunk! {
            0, 1, 0, 1;
            1, 0, 1, 0;
            0, 2, 0, 2;
            2, 0, 2, 0;
            1, 2, 1, 2;
            2, 1, 2, 1;
        }
    }

    /// Reads all final values.
    fn finish(mut self) -> Result<Outcome> {
        let (job, rank) = (self.cx.job, self.cx.rank);
        let mut regions = Vec::new();
        for (id, reg) in job.regions[rank].iter().enumerate() {
            let on = self.homes[&Res::Region(id)];
            with_ty!(reg.ty, T => with_lane!(self, on, lane => {
                let places = &mut T::shelf(&mut lane.bag).0;
                // The second part of a region that was joined again does not exist.
                let Some(region) = places.get_mut(id).and_then(Option::take) else {
                    regions.push(Vec::new());
                    continue;
                };
                let mut region = region.into_host(&lane.stream)?;
                let bits = |all: &mut [T]| all.iter().map(|element| element.bits()).collect();
                regions.push(D::region(&mut region, bits)?);
            }));
        }
        let mut windows = Vec::new();
        for (number, win) in job.windows.iter().enumerate() {
            let on = self.homes[&Res::Inbox(number)];
            let contents = with_kind!(win, T, K => with_lane!(self, on, lane => {
                let mut inbox = take(&mut K::halves(T::shelf(&mut lane.bag)).0, number);
                K::see(&self.cx.kernels, &mut inbox, &lane.stream, win, |_| {})?
            }));
            windows.push(contents);
        }
        Ok(Outcome {
            regions,
            windows,
            reads: self.reads,
        })
    }
}

fn checksum_all(seen: &[Vec<u64>]) -> u64 {
    let slot = |sum, slot: &Vec<u64>| checksum(sum, slot.iter().copied());
    seen.iter().fold(0, slot)
}
