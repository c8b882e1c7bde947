//! Tickets: what a region waits for before it may be touched again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tidegate_hal::batch::Batch;
use tidegate_hal::device::{Device, Stream as _};
use tidegate_hal::nic::Keep;

use super::Line;
use crate::error::Result;
use crate::ground::lock;
use crate::stream::Stream;

/// What is about to be done to a region, or is still being done to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Touch {
    Read,
    /// Or given away, to somebody who may write it.
    Write,
}

impl Touch {
    /// Whether one must wait for the other.
    fn collides(self, other: Touch) -> bool {
        self == Touch::Write || other == Touch::Write
    }
}

/// Not before the line has sent what its stream has issued.
#[derive(Clone)]
pub(crate) struct Ticket {
    line: Arc<Line>,
    /// What the NIC may still be doing.
    touch: Touch,
}

/// The tickets of one region. Made when a NIC first has to do with it.
pub(crate) struct Tickets {
    /// The region's memory, for programs.
    memory: Keep,
    /// Whether there are any. Regions are enqueued by one thread at a time, which sees what it wrote.
    any: AtomicBool,
    held: Mutex<Vec<Ticket>>,
}

impl Tickets {
    pub(crate) fn new(memory: Keep) -> Self {
        Tickets {
            memory,
            any: AtomicBool::new(false),
            held: Mutex::default(),
        }
    }

    /// The same tickets for another part of the memory, to be waited for (and forgotten) on its own.
    pub(crate) fn copy(&self) -> Self {
        let held = lock(&self.held).clone();
        Tickets {
            memory: self.memory.clone(),
            any: AtomicBool::new(!held.is_empty()),
            held: Mutex::new(held),
        }
    }

    /// Takes over those of another part of the memory.
    pub(crate) fn merge(&self, other: &Tickets) {
        let others = lock(&other.held).clone();
        for ticket in others {
            self.add(&ticket.line, ticket.touch);
        }
    }

    pub(crate) fn memory(&self) -> &Keep {
        &self.memory
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// Notes that a program is under way.
    pub(crate) fn add(&self, line: &Arc<Line>, touch: Touch) {
        // Dropped under no lock: the last of a line takes its register back, and calls the device.
        let mut over = Vec::new();
        let mut held = lock(&self.held);
        if !held
            .iter()
            .any(|ticket| ticket.touch == touch && ticket.line.is(line))
        {
            // Of a region that is only ever put, nobody asks for its tickets: those of windows that are gone must not pile up.
            over.extend(held.extract_if(.., |ticket| ticket.line.is_over()));
            let line = line.clone();
            held.push(Ticket { line, touch });
        }
        self.any.store(true, Ordering::Relaxed);
        drop(held);
        drop(over);
    }

    /// Adds the lines that stand against `touch`.
    pub(crate) fn gather(&self, touch: Touch, into: &mut Vec<Arc<Line>>) {
        for ticket in lock(&self.held).iter() {
            if touch.collides(ticket.touch) && !into.iter().any(|line| line.is(&ticket.line)) {
                into.push(ticket.line.clone());
            }
        }
    }

    /// The lines that read, in the order in which [`Tickets::gather`] finds them; those that are over are forgotten.
    pub(crate) fn readers(&self) -> Vec<Arc<Line>> {
        let mut held = lock(&self.held);
        // Dropped under no lock, as where one is added.
        let over: Vec<_> = held
            .extract_if(.., |ticket| ticket.line.is_over())
            .collect();
        let readers = held.iter().filter(|ticket| ticket.touch == Touch::Read);
        let readers = readers.map(|ticket| ticket.line.clone()).collect();
        self.any.store(!held.is_empty(), Ordering::Relaxed);
        drop(held);
        drop(over);
        readers
    }

    /// Forgets what [`Tickets::gather`] has found: the wait has been enqueued.
    pub(crate) fn clear(&self, touch: Touch) {
        let mut held = lock(&self.held);
        held.retain(|ticket| !touch.collides(ticket.touch));
        self.any.store(!held.is_empty(), Ordering::Relaxed);
    }

    /// Enqueues the wait for what stands against `touch`.
    #[cold]
    pub(crate) fn settle<D: Device>(&self, stream: &Stream<'_, D>, touch: Touch) -> Result<()> {
        settle_all(stream, [(self, touch)])
    }
}

/// Enqueues the wait for what stands against several touches.
pub(crate) fn settle_all<'a, D: Device>(
    stream: &Stream<'_, D>,
    touched: impl IntoIterator<Item = (&'a Tickets, Touch)> + Clone,
) -> Result<()> {
    let mut lines = Vec::new();
    for (tickets, touch) in touched.clone() {
        tickets.gather(touch, &mut lines);
    }
    wait_for(stream, &lines)?;
    for (tickets, touch) in touched {
        tickets.clear(touch);
    }
    Ok(())
}

/// Enqueues the wait for the tickets of some lines.
pub(crate) fn wait_for<D: Device>(stream: &Stream<'_, D>, lines: &[Arc<Line>]) -> Result<()> {
    if stream.world().ignores_tickets() {
        return Ok(());
    }
    waits(lines).try_for_each(|wait| {
        // SAFETY: as promised where the waits were made; a batch keeps its words alive.
        Ok(unsafe { stream.raw().submit(&wait) }?)
    })
}

/// Has the device refuse that wait now, if it would, and says how many items it takes. A line that is there already may be
/// named again.
pub(crate) fn prepare_wait<D: Device>(
    stream: &Stream<'_, D>,
    lines: impl IntoIterator<Item = Arc<Line>>,
) -> Result<usize> {
    if stream.world().ignores_tickets() {
        return Ok(0);
    }
    let mut different: Vec<Arc<Line>> = Vec::new();
    for line in lines {
        if !different.iter().any(|other| other.is(&line)) {
            different.push(line);
        }
    }
    waits(&different).try_fold(0, |before, wait| {
        stream.raw().prepare(&wait, 1)?;
        Ok(before + 1)
    })
}

/// A wait for several lines, which was made once: what a device makes of a batch, it keeps with it.
pub(super) struct Together {
    /// Without the first, which holds this. Gone or not, each is known by its address, which no other has meanwhile.
    others: Vec<Weak<Line>>,
    wait: Arc<Batch>,
}

/// How many of them are remembered with one line.
const TOGETHER: usize = 8;

/// The waits for some lines, of each window one: so what is remembered keeps no other window's memory.
fn waits(lines: &[Arc<Line>]) -> impl Iterator<Item = Arc<Batch>> {
    let first_of_window = |index: &usize| {
        let before = &lines[..*index];
        before
            .iter()
            .all(|line| line.window != lines[*index].window)
    };
    (0..lines.len()).filter(first_of_window).map(|index| {
        let (first, behind) = (&lines[index], &lines[index + 1..]);
        let of_window = |line: &&Arc<Line>| line.window == first.window;
        let others: Vec<_> = behind.iter().filter(of_window).collect();
        match &others[..] {
            [] => first.wait.clone(),
            others => together(first, others),
        }
    })
}

/// The wait for some lines of one window, as it was made before, if it is remembered.
fn together(first: &Line, others: &[&Arc<Line>]) -> Arc<Batch> {
    let mut known = lock(&first.together);
    let is = |one: &Together| {
        let pairs = || one.others.iter().zip(others);
        one.others.len() == others.len()
            && pairs().all(|(known, line)| known.as_ptr() == Arc::as_ptr(line))
    };
    if let Some(one) = known.iter().find(|one| is(one)) {
        return one.wait.clone();
    }
    let all = std::iter::once(&first.wait).chain(others.iter().map(|line| &line.wait));
    // SAFETY: each batch's own promise; they only read different words.
    let wait = Arc::new(unsafe { Batch::join(&all.collect::<Vec<_>>()) });
    let oldest = (known.len() == TOGETHER).then(|| known.remove(0));
    known.push(Together {
        others: others.iter().map(|line| Arc::downgrade(line)).collect(),
        wait: wait.clone(),
    });
    drop(known);
    // Under no lock: what the device has made of it goes, too.
    drop(oldest);
    wait
}
