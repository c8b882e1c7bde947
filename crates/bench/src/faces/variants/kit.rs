//! The parts that all variants share: the neighbours, the kernels, and a count of launches.

use super::setup::{Goal, SetupOn};
use crate::faces::device::{FacesDevice, Inbox, Outbox, Values};
use crate::faces::layout::{Dim, Direction, Geometry};
use crate::faces::schedule::{self, Exchange};
use crate::faces::timeline::{self, Begun, Lane, Timeline};
use std::cell::Cell;
use std::time::Duration;
use tidegate_core::window::SlotWindow;
use tidegate_core::{
    Error, Layout, Priority, Result, Stream, StreamOptions, Throttle, UnboundStream, World,
};

/// The NIC's operations take less than this.
const NIC_LIMIT: Duration = Duration::from_secs(60);

/// The error of a variant whose data an earlier error has lost.
pub(super) fn lost() -> Error {
    Error::other("an earlier error has ended this variant")
}

/// One rank's neighbours and kernels.
pub(super) struct Kit<'a, D: FacesDevice> {
    pub(super) setup: &'a SetupOn<'a, D>,
    pub(super) kernels: &'a D::Kernels,
    pub(super) geometry: &'a Geometry,
    /// The neighbours, in the order of their slots (the same inbound and outbound).
    pub(super) neighbours: Vec<Neighbour<D>>,
    /// The timeline, if one is made.
    timeline: Option<&'a Timeline<D>>,
    launches: Cell<u64>,
    /// How many neighbours are reached by the NIC.
    pub(super) by_nic: usize,
    /// Operations of the NIC that were enqueued since the streams were last synchronised; before the first time it is not known.
    enqueued: Cell<Option<usize>>,
    /// Whether work is being recorded: then there is nothing to wait for.
    recording: Cell<bool>,
}

/// One neighbour of this rank, and the messages that go to and fro.
pub(super) struct Neighbour<D: FacesDevice> {
    pub(super) direction: Direction,
    pub(super) rank: usize,
    /// Whether that is reached by the NIC.
    pub(super) by_nic: bool,
    /// Where the message to it lies in the block.
    pub(super) layout: Layout<D>,
}

impl<'a, D: FacesDevice> Kit<'a, D> {
    pub(super) fn new(
        setup: &'a SetupOn<'a, D>,
        kernels: &'a D::Kernels,
        timeline: Option<&'a Timeline<D>>,
    ) -> Result<Self> {
        let geometry = setup.verifier.geometry();
        let neighbours = geometry
            .neighbours()
            .map(|(direction, rank)| {
                Ok(Neighbour {
                    direction,
                    rank,
                    by_nic: setup.world.reaches_by_nic(rank)?,
                    layout: layout(geometry, direction)?,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let by_nic = neighbours.iter().filter(|each| each.by_nic).count();
        Ok(Kit {
            setup,
            kernels,
            geometry,
            neighbours,
            timeline,
            launches: Cell::new(0),
            by_nic,
            enqueued: Cell::new(None),
            recording: Cell::new(false),
        })
    }

    /// Notes that so many kernels, batches or graphs were enqueued.
    pub(super) fn launched(&self, count: u64) {
        self.launches.set(self.launches.get() + count);
    }

    /// Throttles as an application does: before it enqueues more operations than there are trigger slots, it waits until
    /// its earlier ones are over. All are enqueued on one stream.
    pub(super) fn make_room(&self, stream: &Stream<'_, D>, needed: usize) -> Result<()> {
        let world = self.setup.world;
        let (Throttle::Application, Some((slots, _))) = (self.setup.throttle, world.nic_slots())
        else {
            return Ok(());
        };
        if self.recording.get() {
            return Ok(());
        }
        let fits = |enqueued: usize| enqueued == 0 || enqueued + needed <= slots;
        if !self.enqueued.get().is_some_and(fits) {
            self.on_host("throttle", || {
                stream.synchronize()?;
                match world.nic_room(usize::MAX, NIC_LIMIT) {
                    true => Ok(()),
                    false => Err(Error::other("the NIC does not come to its end")),
                }
            })?;
            self.enqueued.set(Some(0));
        }
        self.enqueued
            .set(self.enqueued.get().map(|enqueued| enqueued + needed));
        Ok(())
    }

    /// Runs the part that is recorded.
    pub(super) fn recorded<T>(&self, record: impl FnOnce() -> T) -> T {
        self.recording.set(true);
        let value = record();
        self.recording.set(false);
        value
    }

    /// How many shares an application enqueues at a time that throttles by itself.
    pub(super) fn at_a_time(&self) -> u64 {
        match (self.setup.throttle, self.setup.world.nic_slots()) {
            (Throttle::Application, Some((slots, _))) => {
                (slots / (2 * self.by_nic).max(1)).max(1) as u64
            }
            _ => u64::MAX,
        }
    }

    /// Measures a variant, or records its timeline.
    pub(super) fn measured<X: Exchange<Error = Error>>(
        &self,
        exchange: &mut X,
        goal: Goal<'_>,
    ) -> Result<()> {
        let setup = self.setup;
        match goal {
            Goal::Measure { sample, step } => {
                let (counts, launches) = (setup.params.counts, || self.launches.get());
                *sample = schedule::measure(counts, setup.verifier, exchange, launches, step)?;
            }
            Goal::Record { variant, spans } => {
                let timeline = self
                    .timeline
                    .ok_or_else(|| Error::other("there is no timeline to record"))?;
                *spans = timeline::record(timeline, setup.verifier, variant, exchange)?;
            }
        }
        Ok(())
    }

    /// Says that a share begins, where a timeline is recorded.
    pub(super) fn next_share(&self) {
        if let Some(timeline) = self.timeline {
            timeline.next_share();
        }
    }

    /// An operation is about to be enqueued; `moment` enqueues a moment.
    pub(super) fn begin(
        &self,
        moment: impl FnOnce() -> Result<D::Moment>,
    ) -> Result<Option<Begun<D>>> {
        self.timeline
            .map_or(Ok(None), |timeline| timeline.begin(moment))
    }

    /// It has been enqueued.
    pub(super) fn end(
        &self,
        begun: Option<Begun<D>>,
        lane: Lane,
        what: &'static str,
        moment: impl FnOnce() -> Result<D::Moment>,
    ) -> Result<()> {
        self.timeline
            .map_or(Ok(()), |timeline| timeline.end(begun, lane, what, moment))
    }

    /// Notes work of the host.
    pub(super) fn on_host<T>(&self, what: &'static str, work: impl FnOnce() -> T) -> T {
        match self.timeline {
            None => work(),
            Some(timeline) => timeline.on_host(what, work),
        }
    }

    /// Waits for streams that nothing more is enqueued on; a timeline has its base on the first.
    pub(super) fn settle<'s>(
        &self,
        stream: &Stream<'s, D>,
        side: Option<&Stream<'_, D>>,
        at: &Values<'s, D>,
    ) -> Result<()> {
        synchronize(stream, side)?;
        self.timeline.map_or(Ok(()), |timeline| {
            timeline.take_base(|| D::moment(stream, at), || stream.synchronize())
        })
    }

    /// The timeline of a capture, in which there are many shares.
    pub(super) fn timeline(&self) -> Option<&'a Timeline<D>> {
        self.timeline
    }

    /// Creates the window; collective.
    pub(super) fn window<'s>(
        &self,
        stream: &Stream<'s, D>,
    ) -> Result<(Inbox<'s, D>, Outbox<'s, D>)> {
        self.opened(SlotWindow::new("faces"), stream)
    }

    /// The same, for kernels that own its halves.
    pub(super) fn window_for_kernels<'s>(
        &self,
        stream: &Stream<'s, D>,
    ) -> Result<(Inbox<'s, D>, Outbox<'s, D>)> {
        self.opened(SlotWindow::new("faces").for_kernels(), stream)
    }

    fn opened<'s>(
        &self,
        mut window: SlotWindow<f64>,
        stream: &Stream<'s, D>,
    ) -> Result<(Inbox<'s, D>, Outbox<'s, D>)> {
        for neighbour in &self.neighbours {
            let (rank, direction) = (neighbour.rank, neighbour.direction);
            // A message from there was sent in the opposite direction.
            let key = direction.opposite().index() as u64;
            window.slot_from(rank, key, self.geometry.message_len(direction));
            window.slot_to(rank, direction.index() as u64);
        }
        window.throttle(self.setup.throttle).open(stream)
    }
}

/// The stream of packing, messages and unpacking. Where there is a choice it goes before the compute kernel, which has
/// nobody waiting for it.
pub(super) fn urgent<D: FacesDevice>(world: &World<D>) -> Result<UnboundStream<D>> {
    let options = StreamOptions::new().name("faces");
    world.stream_with(options.priority(Priority::High))
}

/// A message as the library wants it.
fn layout<D: FacesDevice>(geometry: &Geometry, direction: Direction) -> Result<Layout<D>> {
    let invalid = |_| Error::other("the block is too large for a layout");
    let message = geometry.strided(direction);
    let mut loops = message
        .dims()
        .iter()
        .map(|Dim { count, stride }| {
            Ok((
                u32::try_from(*count).map_err(invalid)?,
                i32::try_from(*stride).map_err(invalid)?,
            ))
        })
        .collect::<Result<Vec<_>>>()?;
    if loops.is_empty() {
        // A corner.
        loops.push((1, 1));
    }
    Layout::strided(message.base, &loops)
}

/// Waits for both streams.
pub(super) fn synchronize<D: FacesDevice>(
    stream: &Stream<'_, D>,
    side: Option<&Stream<'_, D>>,
) -> Result<()> {
    stream.synchronize()?;
    side.map_or(Ok(()), Stream::synchronize)
}
