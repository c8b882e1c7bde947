//! Reads the events of a rank.
//!
//! # Model
//!
//! The calls of the program say what each stream was to do ([`Expected`]). The stamps say what it did ([`Item`]). Both
//! are in the order of the stream, so the stamps are matched with the calls one after another. If stamps were dropped,
//! the number of the epoch says which execution of a batch a stamp is of.
//!
//! Streams of GPUs stamp batches and not kernels. A kernel ran after the batch before it had ended, and before the batch
//! behind it began. So it becomes an item between these two, and the item says that it is inferred.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_core::observe::{Awaits, Declared, Event, Leg, Part, RecordedStep};

use super::check;
use super::rank::{Call, Done, Item, Rank, Stream, Time, Window, Work, short};

/// A piece of work that the program has asked for.
struct Expected {
    work: Asked,
    called: Time,
    site: Arc<str>,
    /// Expected work of other streams that comes first.
    after: Vec<(usize, usize)>,
    /// The index of the item, once it is known.
    item: Option<usize>,
}

enum Asked {
    /// A batch, and the epoch of its first part that waits.
    Batch(u64, Option<u64>),
    Kernel(Arc<str>),
}

/// What the stamps say, in the order of the stream.
enum Stamped {
    Batch(u64, Vec<Leg>),
    Kernel(Arc<str>, Time, Time, Time),
}

/// Reads the events of one rank.
#[derive(Default)]
struct Reader {
    rank: Rank,
    declared: HashMap<u64, Arc<Declared>>,
    recordings: HashMap<u64, Vec<(u32, RecordedStep)>>,
    expected: Vec<Vec<Expected>>,
    stamped: Vec<Vec<Stamped>>,
    /// For each stream, what its next work comes after.
    after: Vec<Vec<(usize, usize)>>,
    /// How many waits there were for each word.
    waits: HashMap<Awaits, u64>,
    /// No recording can have been replayed more often than this.
    most: u64,
    /// How many pieces of work there may still be in replays.
    room: usize,
}

/// The most pieces of work of all replays of a file, since each takes memory. Those behind that are not matched with
/// calls.
const MOST_REPLAYED: usize = if cfg!(test) { 1 << 12 } else { 1 << 24 };

impl Rank {
    /// Makes a rank of its events.
    pub(super) fn new(events: &[Event]) -> Self {
        let stamps = events.iter().map(|event| match event {
            Event::Leg { .. } | Event::Ran { .. } => 1,
            Event::Dropped { stamps, .. } => *stamps,
            _ => 0,
        });
        let mut reader = Reader {
            most: stamps.fold(1, u64::saturating_add),
            room: MOST_REPLAYED,
            ..Reader::default()
        };
        for event in events {
            reader.event(event);
        }
        reader.end()
    }
}

impl Reader {
    fn stream(&mut self, number: u32) -> usize {
        let number = number as usize;
        let rank = &mut self.rank;
        if rank.streams.len() <= number {
            rank.streams.resize_with(number + 1, Stream::default);
            self.expected.resize_with(number + 1, Vec::new);
            self.stamped.resize_with(number + 1, Vec::new);
            self.after.resize_with(number + 1, Vec::new);
        }
        number
    }

    fn call(&mut self, (at, lost): (&u64, &u64), name: String, site: &Arc<str>) {
        self.rank.calls.push(Call {
            at: *at as Time,
            name,
            site: site.clone(),
            lost: *lost as Time,
            waited: None,
        });
    }

    fn event(&mut self, event: &Event) {
        match event {
            Event::Joined(joined) => {
                self.rank.joined = joined.clone();
                self.rank.begun = joined.at as Time;
            }
            Event::Opened {
                window,
                what,
                name,
                exposed,
                ..
            } => {
                let opened = Window {
                    what: what.clone(),
                    name: name.clone(),
                    exposed: *exposed,
                };
                self.rank.windows.insert(*window, opened);
            }
            Event::Made { stream, name, .. } => {
                let stream = self.stream(*stream);
                self.rank.streams[stream].name.clone_from(name);
            }
            Event::Declared(batch) => {
                self.declared.insert(batch.batch, Arc::new(batch.clone()));
            }
            Event::Enqueued {
                stream,
                batch,
                at,
                lost,
            } => {
                if let Some(declared) = self.declared.get(batch).cloned() {
                    self.call((at, lost), declared.call.to_string(), &declared.site);
                    self.expect_batch(*stream, &declared, *at as Time, None);
                }
            }
            Event::Launched {
                stream,
                kernel,
                site,
                at,
                lost,
            } => {
                self.call((at, lost), format!("launch {}", short(kernel)), site);
                let work = Asked::Kernel(kernel.clone());
                self.expect(*stream, work, *at as Time, site.clone());
            }
            Event::Synchronized {
                stream,
                site,
                begun,
                at,
                lost,
            } => {
                let waited = Some((self.stream(*stream), *begun as Time));
                self.call((at, lost), "synchronize".to_owned(), site);
                self.rank
                    .calls
                    .last_mut()
                    .expect("it was just added")
                    .waited = waited;
            }
            Event::HandedOff { from, to, .. } => {
                let (from, to) = (self.stream(*from), self.stream(*to));
                let last = self.expected[from].len().checked_sub(1);
                self.after[to].extend(last.map(|last| (from, last)));
            }
            Event::Recorded(recorded) => {
                self.recordings
                    .insert(recorded.recording, recorded.steps.clone());
            }
            Event::Replayed {
                recording,
                times,
                site,
                at,
                lost,
            } => {
                self.call((at, lost), format!("replay {times} times"), site);
                self.replayed(*recording, *times, site, *at as Time);
            }
            Event::Leg { stream, leg } => {
                let stream = self.stream(*stream);
                if check::is_timeless(leg) {
                    let dropped = &mut self.rank.streams[stream].dropped;
                    *dropped = dropped.saturating_add(1);
                } else {
                    self.leg(stream, leg);
                }
            }
            Event::Ran {
                stream,
                kernel,
                begun,
                ended,
                lost,
            } => {
                let stream = self.stream(*stream);
                let [begun, ended, lost] = [*begun, *ended, *lost].map(|time| time as Time);
                let ran = Stamped::Kernel(kernel.clone(), begun, ended, lost);
                self.stamped[stream].push(ran);
            }
            Event::Dropped { stream, stamps } => {
                let stream = self.stream(*stream);
                // It says how many there are in all, without those that have come and said nothing.
                let dropped = &mut self.rank.streams[stream].dropped;
                *dropped = (*dropped).max(*stamps);
            }
            Event::Clock { error, .. } => {
                self.rank.clock_error = self.rank.clock_error.max((*error).min(check::LATEST));
            }
            Event::Failed { stream, why, at } => {
                self.failed(*at, format!("stream {stream}: {why}"));
            }
            Event::Revoked { window, why, at } => {
                let name = self.rank.windows.get(window).map(|window| &*window.name);
                let name = name.unwrap_or("?");
                self.failed(*at, format!("window {name:?} is revoked: {why}"));
            }
            Event::Gone { rank, why, at } => {
                self.rank.gone.push((*at as Time, *rank, why.clone()));
            }
            Event::Left { at } => self.rank.left = Some(*at as Time),
            _ => {}
        }
    }

    fn failed(&mut self, at: u64, why: String) {
        self.rank.failures.push((at as Time, why));
    }

    fn expect(&mut self, stream: u32, work: Asked, called: Time, site: Arc<str>) -> usize {
        let stream = self.stream(stream);
        self.expected[stream].push(Expected {
            work,
            called,
            site,
            after: std::mem::take(&mut self.after[stream]),
            item: None,
        });
        stream
    }

    /// `replay` is the line of the program that replays.
    fn expect_batch(
        &mut self,
        stream: u32,
        batch: &Declared,
        called: Time,
        replay: Option<&Arc<str>>,
    ) {
        let mut first = None;
        for awaits in batch.parts.iter().filter_map(|part| part.awaits) {
            let count = self.waits.entry(awaits).or_default();
            first = first.or(Some(*count));
            *count += 1;
        }
        let site = replay.unwrap_or(&batch.site).clone();
        self.expect(stream, Asked::Batch(batch.batch, first), called, site);
    }

    fn replayed(&mut self, recording: u64, times: u64, site: &Arc<str>, called: Time) {
        let Some(steps) = self.recordings.get(&recording).cloned() else {
            return;
        };
        for _ in 0..times.min(self.most) {
            let Some(room) = self.room.checked_sub(steps.len().max(1)) else {
                return;
            };
            self.room = room;
            let mut signals = HashMap::new();
            for (stream, step) in &steps {
                match step {
                    RecordedStep::Batch(batch) => {
                        if let Some(declared) = self.declared.get(batch).cloned() {
                            self.expect_batch(*stream, &declared, called, Some(site));
                        }
                    }
                    RecordedStep::Kernel(name) => {
                        self.expect(*stream, Asked::Kernel(name.clone()), called, site.clone());
                    }
                    RecordedStep::Signal(number) => {
                        let stream = self.stream(*stream);
                        if let Some(last) = self.expected[stream].len().checked_sub(1) {
                            signals.insert(*number, (stream, last));
                        }
                    }
                    RecordedStep::Await(number) => {
                        let stream = self.stream(*stream);
                        self.after[stream].extend(signals.get(number));
                    }
                    _ => {}
                }
            }
        }
    }

    /// A leg belongs to the execution before, unless that has such a leg.
    fn leg(&mut self, stream: usize, leg: &Leg) {
        let of = (leg.lane, leg.leg);
        if let Some(Stamped::Batch(batch, legs)) = self.stamped[stream].last_mut()
            && *batch == leg.batch
            && legs.iter().all(|other| (other.lane, other.leg) != of)
        {
            legs.push(*leg);
        } else {
            self.stamped[stream].push(Stamped::Batch(leg.batch, vec![*leg]));
        }
    }

    fn end(mut self) -> Rank {
        // Threads may have told of their calls in another order.
        self.rank.calls.sort_by_key(|call| call.at);
        let infers = self.rank.infers_kernels();
        let stamped = std::mem::take(&mut self.stamped);
        for (stream, stamped) in stamped.into_iter().enumerate() {
            self.rank.streams[stream].items =
                matched(stamped, &mut self.expected[stream], &self.declared, infers);
        }
        // What comes after what, by items.
        for stream in 0..self.expected.len() {
            for expected in &self.expected[stream] {
                let Some(item) = expected.item else { continue };
                let before = expected.after.iter().filter_map(|(other, at)| {
                    // The stamps of the last work may be missing.
                    let mut before = self.expected[*other][..=*at].iter().rev();
                    Some((*other, before.find_map(|expected| expected.item)?))
                });
                self.rank.streams[stream].items[item].after = before.collect();
            }
        }
        self.rank
    }
}

/// How many calls are looked through for the one that belongs to a stamp.
const FAR: usize = 1 << 16;

/// Makes items of stamps, and matches them with what is expected.
fn matched(
    stamped: Vec<Stamped>,
    expected: &mut [Expected],
    declared: &HashMap<u64, Arc<Declared>>,
    infers: bool,
) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    // How far the calls have been matched.
    let mut next = 0;
    for stamped in stamped {
        let (work, begun, ended, lost, found) = match stamped {
            Stamped::Batch(batch, legs) => {
                let Some(declared) = declared.get(&batch) else {
                    continue;
                };
                let found = find_batch(&expected[next..], declared, &legs);
                let done = |leg: &Leg| done(declared, leg);
                let done: Vec<Done> = legs.iter().filter_map(done).collect();
                let begun = done.iter().map(|leg| leg.begun).min().unwrap_or_default();
                let ended = done.iter().map(|leg| leg.ended).max().unwrap_or_default();
                (Work::Batch(declared.clone(), done), begun, ended, 0, found)
            }
            Stamped::Kernel(name, begun, ended, lost) => {
                let is = |expected: &Expected| matches!(&expected.work, Asked::Kernel(asked) if *asked == name);
                let found = expected[next..].iter().take(FAR).position(is);
                (Work::Kernel(name), begun, ended, lost, found)
            }
        };
        let mut item = Item {
            work,
            begun,
            ended,
            called: None,
            lost,
            site: Arc::from(""),
            after: Vec::new(),
        };
        if let Some(found) = found {
            let skipped = &mut expected[next..next + found];
            if infers {
                items.extend(inferred(skipped, items.len(), items.last(), begun));
            }
            let expected = &mut expected[next + found];
            expected.item = Some(items.len());
            item.called = Some(expected.called);
            item.site = expected.site.clone();
            next += found + 1;
        } else if let Work::Batch(batch, _) = &item.work {
            item.site = batch.site.clone();
        }
        items.push(item);
    }
    items
}

/// The next call that has enqueued these legs.
fn find_batch(expected: &[Expected], batch: &Declared, legs: &[Leg]) -> Option<usize> {
    let waits = batch.parts.iter().find(|part| part.awaits.is_some());
    let leg = waits.and_then(|part| {
        let is = |leg: &&Leg| (leg.lane, leg.leg) == (part.lane, part.leg);
        legs.iter().find(is)
    });
    let is = |expected: &Expected, exactly: bool| match expected.work {
        Asked::Batch(number, epoch) => {
            let epoch = epoch.filter(|_| exactly);
            let differs = leg.is_some_and(|leg| epoch.is_some_and(|epoch| epoch != leg.epoch));
            number == batch.batch && !differs
        }
        Asked::Kernel(_) => false,
    };
    // If the device has refused a call, the epochs are not those that were counted.
    let first = expected.iter().position(|expected| is(expected, false))?;
    let mut near = expected[first..].iter().take(FAR);
    let exact = near.position(|expected| is(expected, true));
    Some(first + exact.unwrap_or(0))
}

/// The kernels in front of a batch that has begun at `begun`.
fn inferred(
    skipped: &mut [Expected],
    index: usize,
    before: Option<&Item>,
    begun: Time,
) -> Option<Item> {
    let mut names = Vec::new();
    for expected in &mut *skipped {
        match &expected.work {
            Asked::Kernel(name) => names.push(name.clone()),
            // The stamps of a batch are missing, so nobody knows when the kernels around it ran.
            Asked::Batch(..) => return None,
        }
    }
    let first = skipped.first_mut()?;
    let called = first.called;
    let from = before.map_or(called, |before| before.ended.max(called));
    let from = from.min(begun);
    let site = first.site.clone();
    for expected in skipped {
        expected.item = Some(index);
    }
    Some(Item {
        work: Work::Inferred(names),
        begun: from,
        ended: begun,
        called: Some(called),
        lost: 0,
        site,
        after: Vec::new(),
    })
}

fn done(batch: &Declared, leg: &Leg) -> Option<Done> {
    let is = |part: &Part| (part.lane, part.leg) == (leg.lane, leg.leg);
    Some(Done {
        part: batch.parts.iter().position(is)?,
        epoch: leg.epoch,
        begun: leg.begun as Time,
        satisfied: leg.satisfied as Time,
        moved: leg.moved as Time,
        ended: leg.ended as Time,
        signal: None,
    })
}
