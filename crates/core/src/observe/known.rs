//! What events refer to, and events as text.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use tidegate_hal::control::Group;
use tidegate_hal::ids::{TeamId, WindowId};
use tidegate_hal::stamps::Leg;

use super::event::{Declared, Event, Joined, Part, Recorded, TeamMade};

/// What earlier events of a rank have said of its teams, windows, streams, batches and recordings. Events name those by
/// numbers.
///
/// It grows with each new team, window, stream, batch and recording, and not with what streams do.
///
/// # Examples
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use tidegate::host::prelude::*;
/// use tidegate::observe::{Event, Known, Observer};
/// use tidegate::WorldOptions;
///
/// /// Keeps the events as lines of text.
/// #[derive(Default)]
/// struct Lines(Mutex<(Known, Vec<String>)>);
///
/// impl Observer for Lines {
///     fn event(&self, event: &Event) {
///         let (known, lines) = &mut *self.0.lock().unwrap();
///         known.learn(event);
///         lines.push(known.line(event).to_string());
///     }
/// }
///
/// let lines = Arc::new(Lines::default());
/// World::local_with(1, |_| WorldOptions::new().observer(lines.clone()), |world| {
///     stream!(let s = world.stream().unwrap());
///     s.synchronize().unwrap();
/// });
/// let lines = &lines.0.lock().unwrap().1;
/// assert_eq!(lines[1], "stream `s`: made");
/// assert!(lines[2].starts_with("stream `s`: synchronize, "), "{}", lines[2]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Known {
    joined: Option<Joined>,
    teams: HashMap<TeamId, TeamMade>,
    windows: HashMap<WindowId, (Arc<str>, Arc<str>)>,
    streams: HashMap<u32, String>,
    batches: HashMap<u64, Declared>,
    recordings: HashMap<u64, Recorded>,
}

impl Known {
    /// Knows nothing.
    pub fn new() -> Self {
        Known::default()
    }

    /// Keeps what an event says, if later events refer to it.
    pub fn learn(&mut self, event: &Event) {
        match event {
            Event::Joined(joined) => self.joined = Some(joined.clone()),
            Event::Opened {
                window, what, name, ..
            } => {
                let named = (what.clone(), name.clone());
                self.windows.insert(*window, named);
            }
            Event::TeamMade(made) => {
                self.teams.insert(made.team, made.clone());
            }
            Event::Made { stream, name, .. } => {
                self.streams.insert(*stream, name.clone());
            }
            Event::Declared(batch) => {
                self.batches.insert(batch.batch, batch.clone());
            }
            Event::Recorded(recorded) => {
                let number = recorded.recording;
                self.recordings.insert(number, recorded.clone());
            }
            _ => {}
        }
    }

    /// The rank, if it has joined.
    pub fn joined(&self) -> Option<&Joined> {
        self.joined.as_ref()
    }

    /// A team that this rank has made; `None` for the team of all ranks, which nobody makes.
    pub fn team(&self, team: TeamId) -> Option<&TeamMade> {
        self.teams.get(&team)
    }

    /// The name of a window or a collective.
    pub fn window(&self, window: WindowId) -> Option<&Arc<str>> {
        self.windows.get(&window).map(|(_, name)| name)
    }

    /// The name of a stream.
    pub fn stream(&self, stream: u32) -> Option<&str> {
        self.streams.get(&stream).map(String::as_str)
    }

    /// What a batch does.
    pub fn batch(&self, batch: u64) -> Option<&Declared> {
        self.batches.get(&batch)
    }

    /// What a stream has done in a leg.
    pub fn part(&self, leg: &Leg) -> Option<&Part> {
        self.batch(leg.batch)?.part(leg.lane, leg.leg)
    }

    /// A recorded step.
    pub fn recording(&self, recording: u64) -> Option<&Recorded> {
        self.recordings.get(&recording)
    }

    /// An event as a line of text, without its time. Names that are not known are numbers.
    pub fn line<'a>(&'a self, event: &'a Event) -> impl fmt::Display + 'a {
        Line(self, event)
    }
}

/// As a line of text, without the time. [`Known::line`] has names in place of numbers.
impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Line(&Known::default(), self).fmt(f)
    }
}

/// An event, with what is known.
struct Line<'a>(&'a Known, &'a Event);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Line(known, event) = *self;
        let stream = |number: u32| Stream(known, number);
        match event {
            Event::Joined(Joined {
                rank,
                ranks,
                node,
                host,
                process,
                device,
                ..
            }) => write!(
                f,
                "rank {rank} of {ranks} joins: node {node} ({host}), process {process}, device {device}"
            ),
            Event::Opened { what, name, .. } => write!(f, "{what} `{name}`: opened"),
            Event::TeamMade(made) => {
                let name = made.name.to_string();
                let ranks = made.ranks.iter().map(|rank| *rank as usize).collect();
                write!(f, "team {}: made", Group { name, ranks })
            }
            Event::Made { stream: number, .. } => write!(f, "{}: made", stream(*number)),
            Event::Declared(batch) => write!(f, "batch {}: {}", batch.batch, Batch(known, batch)),
            Event::Enqueued {
                stream: number,
                batch,
                ..
            } => match known.batch(*batch) {
                Some(batch) => write!(f, "{}: {}", stream(*number), Batch(known, batch)),
                None => write!(f, "{}: enqueue of batch {batch}", stream(*number)),
            },
            Event::Launched {
                stream: number,
                kernel,
                site,
                ..
            } => write!(f, "{}: launch of `{kernel}`, {site}", stream(*number)),
            Event::HandedOff { from, to, .. } => {
                write!(f, "{}: hand-off to {}", stream(*from), stream(*to))
            }
            Event::Recorded(recorded) => {
                let Recorded {
                    recording, steps, ..
                } = recorded;
                write!(f, "recording {recording}: {} pieces of work", steps.len())
            }
            Event::Replayed {
                recording,
                times,
                site,
                ..
            } => write!(f, "recording {recording}: replay, {times} times, {site}"),
            Event::Synchronizes {
                stream: number,
                call,
                site,
                ..
            } => write!(f, "{}: {call}, {site}", stream(*number)),
            Event::Synchronized {
                stream: number,
                begun,
                at,
                ..
            } => {
                let took = Micros(at.saturating_sub(*begun));
                write!(f, "{}: the program has waited {took}", stream(*number))
            }
            Event::Returned { stream: number, .. } => write!(f, "{}: returned", stream(*number)),
            Event::Leg {
                stream: number,
                leg,
            } => {
                write!(f, "{}: ", stream(*number))?;
                match known.part(leg) {
                    Some(part) => Done(known, leg, part).fmt(f),
                    None => write!(
                        f,
                        "leg {} of lane {} of batch {} ended",
                        leg.leg, leg.lane, leg.batch
                    ),
                }
            }
            Event::Ran {
                stream: number,
                kernel,
                begun,
                ended,
                ..
            } => {
                let took = Micros(ended.saturating_sub(*begun));
                write!(f, "{}: `{kernel}` ran {took}", stream(*number))
            }
            Event::Dropped {
                stream: number,
                stamps,
            } => write!(f, "{}: {stamps} stamps dropped in all", stream(*number)),
            Event::Clock {
                stream: number,
                error,
            } => write!(f, "{}: clock off by at most {error} ns", stream(*number)),
            Event::Failed {
                stream: number,
                why,
                ..
            } => write!(f, "{}: failed: {why}", stream(*number)),
            Event::Revoked { window, why, .. } => {
                write!(f, "{}: revoked: {why}", Window(known, Some(*window)))
            }
            Event::Gone { rank, why, .. } => write!(f, "rank {rank} has ended: {why}"),
            Event::Left { .. } => f.write_str("the rank leaves"),
        }
    }
}

struct Stream<'a>(&'a Known, u32);

impl fmt::Display for Stream<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.stream(self.1) {
            Some(name) => write!(f, "stream `{name}`"),
            None => write!(f, "stream {}", self.1),
        }
    }
}

struct Window<'a>(&'a Known, Option<WindowId>);

impl fmt::Display for Window<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Window(known, Some(window)) = *self else {
            return f.write_str("no window");
        };
        match known.windows.get(&window) {
            Some((what, name)) => write!(f, "{what} `{name}`"),
            None => write!(f, "window {window}"),
        }
    }
}

/// A call, and its line.
struct Batch<'a>(&'a Known, &'a Declared);

impl fmt::Display for Batch<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Batch(known, Declared { call, site, .. }) = *self;
        match self.1.window() {
            Some(window) => write!(f, "{call} ({}), {site}", Window(known, Some(window))),
            None => write!(f, "{call}, {site}"),
        }
    }
}

/// What a leg did.
struct Done<'a>(&'a Known, &'a Leg, &'a Part);

impl fmt::Display for Done<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Done(known, leg, part) = *self;
        let mut first = true;
        let mut comma = |f: &mut fmt::Formatter<'_>| match std::mem::take(&mut first) {
            true => Ok(()),
            false => f.write_str(", "),
        };
        if let Some(awaits) = part.awaits {
            comma(f)?;
            let (waited, window) = (
                Micros(leg.satisfied.saturating_sub(leg.begun)),
                awaits.window,
            );
            let (peer, operation) = (awaits.peer, awaits.operation);
            let window = Window(known, window);
            write!(
                f,
                "waited {waited} for rank {peer} to {operation} ({window})"
            )?;
        }
        if part.bytes != 0 {
            comma(f)?;
            write!(f, "moved {} bytes", part.bytes)?;
        }
        for tells in &part.tells {
            comma(f)?;
            let window = Window(known, tells.window);
            write!(
                f,
                "told rank {} of its {} ({window})",
                tells.peer,
                Noun(tells.operation)
            )?;
        }
        if first {
            f.write_str("nothing")?;
        }
        Ok(())
    }
}

/// What a rank has done, as a thing.
struct Noun(super::event::Operation);

impl fmt::Display for Noun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use super::event::Operation::*;
        f.write_str(match self.0 {
            Post => "post",
            Complete => "completion",
            Arrive => "arrival",
            Read | Pull => "read",
        })
    }
}

/// Nanoseconds, as microseconds.
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03} us", self.0 / 1000, self.0 % 1000)
    }
}
