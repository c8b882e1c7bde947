//! What the check has found, for the program.

use std::fmt;

use tidegate_hal::ids::WindowId;

use crate::error::{Error, Result};
use crate::observe::Operation;

/// What [`Graph::verify`](crate::Graph::verify) has found. It is the same on all ranks.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::verify::Verdict;
///
/// # tidegate::doc::ranks(2, |world| {
/// # stream!(let s = world.stream()?);
/// # let mut window = SlotWindow::<f64>::new("halo");
/// # let other = 1 - world.rank();
/// # window.slot_from(other, 0, 4);
/// # let to = window.slot_to(other, 0);
/// # let (inbox, outbox) = window.open(&s)?;
/// # let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
/// # let (graph, _) = s.capture((inbox, outbox, src), |s, (inbox, outbox, src)| {
/// #     let mut epoch = outbox.start();
/// #     epoch.put(&src, to)?;
/// #     let (inbox, outbox) = exchange(s, inbox, epoch)?;
/// #     Ok((inbox, outbox, src))
/// # })?;
/// match graph.verify(&s)? {
///     Verdict::Proved(proof) => println!("{proof}"),
///     Verdict::Refused(flaw) => panic!("{flaw}"),
///     Verdict::Unknown(doubt) => println!("{doubt}"),
/// }
/// # Ok(()) });
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Every number of replays ends, under the assumptions of the guide.
    Proved(Proof),
    /// Some number of replays waits for ever.
    Refused(Flaw),
    /// Nothing is known.
    Unknown(Doubt),
}

impl Verdict {
    /// Returns the proof, so that `?` ends a program that has none.
    ///
    /// # Errors
    ///
    /// The flaw or the doubt, as an error.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::stream(|world, s| {
    /// # stream!(let t = world.stream()?);
    /// let (graph, ()) = t.capture((), |_, ()| Ok(()))?;
    /// let proof = graph.verify(&t)?.proof()?;
    /// assert_eq!(proof.steps, 0);
    /// # Ok(()) });
    /// ```
    pub fn proof(self) -> Result<Proof> {
        match self {
            Verdict::Proved(proof) => Ok(proof),
            Verdict::Refused(flaw) => Err(Error::other(flaw)),
            Verdict::Unknown(doubt) => Err(Error::other(doubt)),
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Verdict::Proved(proof) => proof.fmt(f),
            Verdict::Refused(flaw) => flaw.fmt(f),
            Verdict::Unknown(doubt) => doubt.fmt(f),
        }
    }
}

/// A proof that replays end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Proof {
    /// How many ranks there are.
    pub ranks: usize,
    /// How many waits and signals all ranks have recorded.
    pub steps: usize,
    /// Slots that some epoch does not put. Their readers see the data of an earlier epoch.
    pub unput: Vec<Unput>,
}

impl fmt::Display for Proof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Proof { ranks, steps, .. } = self;
        write!(
            f,
            "every number of replays ends ({steps} waits and signals of {ranks} ranks)"
        )?;
        self.unput
            .iter()
            .try_for_each(|unput| write!(f, "\n  {unput}"))
    }
}

/// Slots that an epoch leaves as they were.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unput {
    /// The rank whose epoch leaves them as they were.
    pub rank: usize,
    /// The window's id.
    pub window: WindowId,
    /// The window's name.
    pub name: String,
    /// Each slot, by its target, its key and the line that declares it.
    pub slots: Vec<String>,
    /// The line that completes the epoch.
    pub site: String,
}

impl fmt::Display for Unput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unput {
            rank, name, site, ..
        } = self;
        let slots = self.slots.join(", ");
        write!(
            f,
            "note: rank {rank} does not put {slots} of window `{name}` in the epoch at {site}, so its reader sees older data"
        )
    }
}

/// A call of a rank, in a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RankCall {
    /// The rank.
    pub rank: usize,
    /// The name of the stream.
    pub stream: String,
    /// The call: `post`, `complete`, `exchange`, …
    pub call: String,
    /// The line of the program, with its file.
    pub site: String,
}

impl fmt::Display for RankCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RankCall {
            rank,
            stream,
            call,
            site,
        } = self;
        write!(f, "rank {rank}, {call} at {site} (stream `{stream}`)")
    }
}

/// One wait of a cycle.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CycleWait {
    /// The call that waits.
    pub wait: RankCall,
    /// The window's id.
    pub window: WindowId,
    /// The window's name.
    pub name: String,
    /// The signal that it waits for.
    pub signal: Operation,
    /// The call that gives the signal. It stands behind the next wait of the cycle.
    pub add: RankCall,
}

/// Why some number of replays waits for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Flaw {
    /// The ranks wait for each other in a circle, already in one replay.
    Cycle(Vec<CycleWait>),
    /// A rank waits more often than its peer signals, or less often.
    Unbalanced(Box<Unbalanced>),
}

/// A word that gets more or fewer signals than waits in a replay. The difference grows with each replay. In the end a
/// wait lacks its signal: a wait for this word, or one for the word in the other direction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Unbalanced {
    /// The window's id.
    pub window: WindowId,
    /// The window's name.
    pub name: String,
    /// The rank that signals.
    pub adder: usize,
    /// The rank that waits.
    pub waiter: usize,
    /// The signal.
    pub signal: Operation,
    /// How many signals there are in a replay.
    pub adds: usize,
    /// How many waits there are in a replay.
    pub waits: usize,
    /// The first call that signals.
    pub add: Option<RankCall>,
    /// The first call that waits.
    pub wait: Option<RankCall>,
}

impl std::error::Error for Flaw {}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Flaw::Cycle(waits) => {
                write!(
                    f,
                    "a replay waits for ever, since these calls wait for each other in a circle:"
                )?;
                for (number, wait) in (1..).zip(waits) {
                    let CycleWait {
                        wait,
                        name,
                        signal,
                        add,
                        ..
                    } = wait;
                    let behind = match number {
                        _ if number == waits.len() => "the first of these calls",
                        _ => "the next of these calls",
                    };
                    write!(
                        f,
                        "\n  {wait}\n    waits for rank {} to {signal} (window `{name}`), which comes behind {behind}:\n    {add}",
                        add.rank
                    )?;
                }
                Ok(())
            }
            Flaw::Unbalanced(unbalanced) => unbalanced.fmt(f),
        }
    }
}

impl fmt::Display for Unbalanced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unbalanced {
            name,
            adder,
            waiter,
            signal,
            ..
        } = self;
        write!(
            f,
            "in each replay, rank {waiter} waits for rank {adder} to {signal} (window `{name}`) {}, and rank {adder} does so {}",
            Times(self.waits),
            Times(self.adds)
        )?;
        let calls = [("the wait", &self.wait), ("the signal", &self.add)];
        let mut calls = calls
            .iter()
            .filter_map(|(what, call)| Some((what, call.as_ref()?)));
        calls.try_for_each(|(what, call)| write!(f, "\n  {what}: {call}"))
    }
}

/// A number of times, in words.
struct Times(usize);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("once"),
            times => write!(f, "{times} times"),
        }
    }
}

/// Why nothing is known.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Doubt {
    /// Before the first replay, a rank has waited more often than its peer has signalled. The missing signals come from
    /// work that is not recorded.
    Behind {
        /// The window's id.
        window: WindowId,
        /// The window's name.
        name: String,
        /// The rank that signals.
        adder: usize,
        /// The rank that waits.
        waiter: usize,
        /// The signal.
        signal: Operation,
        /// How many signals are missing.
        missing: u64,
    },
    /// A kernel makes epochs of a window by itself, or has done so before. Only that kernel knows how many.
    ByKernel {
        /// The rank whose kernel it is.
        rank: usize,
        /// The window's id.
        window: WindowId,
        /// The window's name.
        name: String,
    },
}

impl std::error::Error for Doubt {}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Behind {
                name,
                adder,
                waiter,
                signal,
                missing,
                ..
            } => write!(
                f,
                "it is not known whether replays end: rank {waiter} already waits for rank {adder} to {signal} (window `{name}`), \
                 {} more than rank {adder} has enqueued",
                Times(usize::try_from(*missing).unwrap_or(usize::MAX))
            ),
            Doubt::ByKernel { rank, name, .. } => write!(
                f,
                "it is not known whether replays end: kernels of rank {rank} make epochs of window `{name}` by themselves"
            ),
        }
    }
}
