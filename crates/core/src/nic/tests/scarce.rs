//! A device that lacks what a batch needs. It refuses before anything is armed, and the call can be repeated.

mod reduced;
mod tickets;

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::future::Future as _;
use std::pin::pin;
use std::sync::OnceLock;
use std::task::{Context, Poll, Waker};

use tidegate_hal::batch::{Action, Batch, Move, Step};
use tidegate_hal::device::{self, Blocked, DeviceError, Fault, Reclaim, Stand};
use tidegate_hal::site::CallSite;
use tidegate_host::HostStream;

use super::hosted::{By, Over};
use super::*;
use crate::error::{Cause, Rejected, StreamError};
use crate::window::{exchange, try_exchange};

/// What is wrong with a stream's device.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Lack {
    Nothing,
    /// It has run out of a resource.
    Room,
    /// It has run out of a resource for batches that accumulate.
    RoomToAccumulate,
    /// It has run out of a resource for batches that only wait.
    RoomToWait,
    /// It cannot carry out so many lanes at a time.
    Lanes(usize),
    /// It breaks when something is submitted.
    Health,
    /// It breaks off halfway what is submitted, which then counts as submitted.
    End,
    /// It accepts all but the last of so many submissions, and breaks at that one.
    Later(usize),
    /// It follows a stream that has failed, and has not noticed that yet.
    Leader,
}

type HostReclaim = <HostStream as device::Stream>::Reclaim;

/// The state of a stream that may have broken something off.
struct Broken {
    host: Arc<HostReclaim>,
    off: OnceLock<Fault>,
}

impl Reclaim for Broken {
    fn retire(&self, garbage: Box<dyn Any + Send>) {
        self.host.retire(garbage);
    }

    fn fault(&self) -> Option<Fault> {
        self.off.get().cloned().or_else(|| self.host.fault())
    }

    fn abort(&self) {
        self.host.abort();
    }

    fn blocked(&self) -> Option<Blocked> {
        self.host.blocked()
    }

    fn stand(&self) -> Stand {
        self.host.stand()
    }

    fn calls(&self) -> &device::Calls {
        self.host.calls()
    }

    fn progress(&self) -> u64 {
        self.host.progress()
    }

    fn passed(&self) -> u64 {
        self.host.passed()
    }

    fn wake_at(&self, mark: u64, future: u64, waker: &Waker) -> bool {
        self.host.wake_at(mark, future, waker)
    }

    fn forget_waker(&self, future: u64) {
        self.host.forget_waker(future);
    }
}

/// A stream of a device that may lack something.
struct Scarce {
    host: HostStream,
    reclaim: Arc<Broken>,
    lacks: Cell<Lack>,
    /// How often it was asked in advance.
    asked: Cell<usize>,
    /// What was submitted, if the test wants it noted.
    noted: RefCell<Option<Vec<Arc<Batch>>>>,
}

impl Over for Scarce {
    fn over(host: HostStream) -> Self {
        let (lacks, asked) = (Cell::new(Lack::Nothing), Cell::new(0));
        let reclaim = Arc::new(Broken {
            host: device::Stream::reclaim(&host).clone(),
            off: OnceLock::new(),
        });
        Scarce {
            host,
            reclaim,
            lacks,
            asked,
            noted: RefCell::default(),
        }
    }

    fn host(&self) -> &HostStream {
        &self.host
    }
}

fn accumulates(batch: &Batch) -> bool {
    let mut steps = batch.lanes().iter().flat_map(|lane| batch.steps(*lane));
    steps.any(|step| {
        matches!(
            step,
            Step::Move(Move {
                action: Action::Accumulate { .. } | Action::Fold { .. },
                ..
            })
        )
    })
}

fn only_waits(batch: &Batch) -> bool {
    let mut steps = batch.lanes().iter().flat_map(|lane| batch.steps(*lane));
    steps.all(|step| matches!(step, Step::Wait(_)))
}

impl Scarce {
    fn ask(&self, batch: Option<&Batch>) -> Result<(), DeviceError> {
        self.asked.set(self.asked.get() + 1);
        let lacks = match self.lacks.get() {
            Lack::RoomToAccumulate => batch.is_some_and(accumulates),
            Lack::RoomToWait => batch.is_some_and(only_waits),
            Lack::Lanes(most) => batch.is_some_and(|batch| batch.lanes().len() > most),
            lacks => lacks == Lack::Room,
        };
        match lacks {
            true => Err(DeviceError::Exhausted {
                what: "room",
                detail: "of which there is little".into(),
            }),
            false => Ok(()),
        }
    }

    /// Whether a submission goes on to the host.
    fn take(&self, batch: Option<&Batch>) -> Result<bool, DeviceError> {
        self.ask(batch)?;
        match self.lacks.get() {
            Lack::Later(more @ 2..) => {
                self.lacks.set(Lack::Later(more - 1));
                Ok(true)
            }
            Lack::Health | Lack::Later(_) => Err(DeviceError::System {
                what: "submitting",
                detail: "it is broken".into(),
            }),
            Lack::End => {
                let fault = Fault::Transport("it was broken off".into());
                let _ = self.reclaim.off.set(fault);
                Ok(false)
            }
            Lack::Nothing
            | Lack::Room
            | Lack::RoomToAccumulate
            | Lack::RoomToWait
            | Lack::Lanes(_)
            | Lack::Leader => Ok(true),
        }
    }
}

// SAFETY: the host's stream does everything, or the call is refused before anything is done.
unsafe impl device::Stream for Scarce {
    type Reclaim = Broken;
    type Graph = <HostStream as device::Stream>::Graph;
    type Event = <HostStream as device::Stream>::Event;

    fn reclaim(&self) -> &Arc<Self::Reclaim> {
        &self.reclaim
    }

    fn most_lanes(&self) -> usize {
        match self.lacks.get() {
            Lack::Lanes(most) => most,
            _ => usize::MAX,
        }
    }

    fn prepare(&self, batch: &Arc<Batch>, items: usize) -> Result<(), DeviceError> {
        self.ask(Some(batch))?;
        self.host.prepare(batch, items)
    }

    unsafe fn submit(&self, batch: &Arc<Batch>, site: CallSite) -> Result<(), DeviceError> {
        if !self.take(Some(batch))? {
            return Ok(());
        }
        if let Some(noted) = &mut *self.noted.borrow_mut() {
            noted.push(batch.clone());
        }
        // SAFETY: the caller promises the same, here and below.
        unsafe { self.host.submit(batch, site) }
    }

    fn mark(&self) -> u64 {
        self.host.mark()
    }

    fn fault(&self) -> Option<Fault> {
        let followed = self.followed();
        let fault = self.reclaim.fault();
        fault.or_else(|| followed.iter().find_map(|other| other.fault()))
    }

    fn followed(&self) -> Vec<Arc<Broken>> {
        let leader = || {
            let host = self.reclaim.host.clone();
            let off = OnceLock::from(Fault::Aborted);
            Arc::new(Broken { host, off })
        };
        let follows = self.lacks.get() == Lack::Leader;
        follows.then(leader).into_iter().collect()
    }

    fn synchronize(&self) -> Result<Result<(), device::Fault>, DeviceError> {
        self.host.synchronize()
    }

    fn record(&self) -> Result<Self::Event, DeviceError> {
        self.host.record()
    }

    fn wait_event(&self, event: &Self::Event) -> Result<(), DeviceError> {
        self.host.wait_event(event)
    }

    fn begin_capture(&self, others: &[&Self]) -> Result<(), DeviceError> {
        let others: Vec<_> = others.iter().map(|other| &other.host).collect();
        self.host.begin_capture(&others)
    }

    fn end_capture(&self, others: &[&Self]) -> Result<Self::Graph, DeviceError> {
        let others: Vec<_> = others.iter().map(|other| &other.host).collect();
        self.host.end_capture(&others)
    }

    fn capturing(&self) -> bool {
        self.host.capturing()
    }

    fn enqueued(&self) -> Result<(), DeviceError> {
        self.host.enqueued()
    }

    fn prepare_replay(
        &self,
        others: &[&Self],
        graph: &Arc<Self::Graph>,
    ) -> Result<(), DeviceError> {
        self.ask(None)?;
        let others: Vec<_> = others.iter().map(|other| &other.host).collect();
        self.host.prepare_replay(&others, graph)
    }

    unsafe fn replay(
        &self,
        others: &[&Self],
        graph: &Arc<Self::Graph>,
        times: u64,
    ) -> Result<(), DeviceError> {
        if !self.take(None)? {
            return Ok(());
        }
        let others: Vec<_> = others.iter().map(|other| &other.host).collect();
        // SAFETY: as above.
        unsafe { self.host.replay(&others, graph, times) }
    }
}

type Strapped = By<Scarce>;
type On1<'s> = Region<u64, On<'s, Strapped>>;
type Halves<'s> = (
    Inbox<'s, u64, Strapped, BySlot>,
    Outbox<'s, u64, Strapped, BySlot>,
);

/// A rank that reaches itself by a NIC. What one half waits for, the other half does.
fn alone(program: impl Fn(World<Strapped>) + Sync) {
    let nic = |_| {
        WorldOptions::new()
            .nic(Loopback::default())
            .route(Route::Nic)
    };
    World::local_with(1, nic, program);
}

fn window<'s>(s: &Stream<'s, Strapped>) -> Halves<'s> {
    let mut window = SlotWindow::<u64>::new("w");
    window.slot_from(0, 0, LEN);
    window.slot_to(0, 0);
    window.open(s).unwrap()
}

/// Makes a call while there is no room, and returns what it gives back when there is room again.
fn without_room<T, V>(
    s: &Stream<'_, Strapped>,
    call: impl FnOnce() -> Result<T, Rejected<V>>,
) -> V {
    s.raw().lacks.set(Lack::Room);
    let Rejected { error, value } = call().err().expect("there is no room");
    assert!(
        matches!(error, Error::Device(DeviceError::Exhausted { .. })),
        "{error}"
    );
    s.raw().lacks.set(Lack::Nothing);
    value
}

fn fill<'s>(s: &Stream<'s, Strapped>, with: u64) -> On1<'s> {
    let region = Region::from_slice(s.world(), &[with; LEN]).unwrap();
    region.on(s).unwrap()
}

#[test]
fn what_a_device_refuses_can_be_enqueued_again() {
    alone(|world| {
        crate::stream!(let s = world.stream().unwrap());
        let (inbox, outbox) = window(&s);
        let sources = [1, 2, 3].map(|with| fill(&s, with));
        let inbox = without_room(&s, || inbox.try_post(&s));
        let exposed = inbox.post(&s).unwrap();
        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&sources[0], to).unwrap();
        let epoch = without_room(&s, || epoch.try_complete(&s));
        let outbox = epoch.complete(&s).unwrap();
        let mut inbox = exposed.wait(&s).unwrap();
        assert_eq!(inbox.read(&s).unwrap().iter().next().unwrap(), [1; LEN]);

        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&sources[1], to).unwrap();
        let (inbox, epoch) = without_room(&s, || try_exchange(&s, inbox, epoch));
        let (mut inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
        assert_eq!(inbox.read(&s).unwrap().iter().next().unwrap(), [2; LEN]);

        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&sources[2], to).unwrap();
        let _outbox = epoch.complete(&s).unwrap();
        let inbox = without_room(&s, || inbox.try_expose(&s));
        let mut inbox = inbox.expose(&s).unwrap();
        assert_eq!(inbox.read(&s).unwrap().iter().next().unwrap(), [3; LEN]);
    });
}

#[test]
fn so_can_what_is_recorded_and_replayed() {
    alone(|world| {
        crate::stream!(let mut s = world.stream().unwrap());
        let (inbox, outbox) = window(&s);
        let lent = (inbox, outbox, fill(&s, 0));
        let (graph, lent) = s
            .capture(lent, |s, (inbox, outbox, mut src)| {
                let next = |src: &mut [u64]| src.iter_mut().for_each(|each| *each += 1);
                s.launch(next, &mut src)?;
                let to = first(&outbox);
                let mut epoch = outbox.start();
                epoch.put(&src, to)?;
                let (inbox, epoch) = without_room(s, || try_exchange(s, inbox, epoch));
                let (inbox, outbox) = exchange(s, inbox, epoch)?;
                Ok((inbox, outbox, src))
            })
            .unwrap();
        let lent = without_room(&s, || graph.try_replay(&s, lent, 3));
        let (mut inbox, outbox, src) = graph.replay(&s, lent, 3).unwrap();
        assert_eq!(inbox.read(&s).unwrap().iter().next().unwrap(), [3; LEN]);
        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&src, to).unwrap();
        let _halves = exchange(&s, inbox, epoch).unwrap();
        s.synchronize().unwrap();
    });
}

/// Otherwise the region would come back with what the failed stream left in it.
#[test]
fn what_a_stream_follows_is_asked_by_who_awaits_it() {
    alone(|world| {
        crate::stream!(let s = world.stream().unwrap());
        let region = fill(&s, 7);
        s.raw().lacks.set(Lack::Leader);
        let awaited =
            pin!(region.try_into_host_async(&s)).poll(&mut Context::from_waker(Waker::noop()));
        let Poll::Ready(Err(Rejected { error, value })) = awaited else {
            panic!("nothing is under way, and the stream it follows has failed");
        };
        assert!(
            matches!(error, Error::Stream(StreamError::Aborted { .. })),
            "{error}"
        );
        s.raw().lacks.set(Lack::Nothing);
        assert_eq!(*value.into_host(&s).unwrap(), [7; LEN]);
    });
}

/// If nothing is armed, the device is not asked in advance.
#[test]
fn who_arms_nothing_asks_once() {
    World::local(1, |world: World<Strapped>| {
        crate::stream!(let s = world.stream().unwrap());
        let (inbox, outbox) = window(&s);
        let before = s.raw().asked.get();
        let _halves = exchange(&s, inbox, outbox.start()).unwrap();
        assert_eq!(s.raw().asked.get(), before + 1);
        s.synchronize().unwrap();
    });
}

/// The NIC has been armed by then, and nobody can tell which ring would fire the program.
#[test]
fn a_device_that_breaks_behind_the_arms_revokes_the_window() {
    alone(|world| {
        crate::stream!(let s = world.stream().unwrap());
        let (inbox, _outbox) = window(&s);
        s.raw().lacks.set(Lack::Health);
        let Rejected { error, value } = inbox.try_post(&s).expect_err("it is broken");
        assert!(matches!(error, Error::Device(DeviceError::System { .. })));
        match value.post(&s) {
            Err(Error::Revoked { cause, .. }) => {
                assert!(
                    matches!(cause, Cause::NotEnqueued { rank: 0, .. }),
                    "{cause}"
                );
            }
            Err(error) => panic!("{error}"),
            Ok(_) => panic!("it was posted"),
        }
    });
}

/// No part of it rings or poisons, but it counts as submitted. Peers that wait for it must hear of that.
#[test]
fn what_is_broken_off_behind_the_arms_revokes_the_window() {
    let is_revoked = |error: Error| match error {
        Error::Revoked { cause, .. } => {
            let Cause::NotEnqueued { rank: 0, reason } = &cause else {
                panic!("{cause}");
            };
            assert!(reason.contains("broken off"), "{reason}");
        }
        error => panic!("{error}"),
    };
    alone(|world| {
        crate::stream!(let s = world.stream().unwrap());
        crate::stream!(let t = world.stream().unwrap());
        let (inbox, outbox) = window(&s);
        let outbox = s.hand_off(outbox, &t).unwrap();
        s.raw().lacks.set(Lack::End);
        let _exposed = inbox.post(&s).unwrap();
        let refused = outbox.start().complete(&t);
        is_revoked(refused.expect_err("nobody exposes"));
    });
    alone(|world| {
        crate::stream!(let mut s = world.stream().unwrap());
        crate::stream!(let t = world.stream().unwrap());
        let (inbox, outbox) = window(&s);
        let inbox = s.hand_off(inbox, &t).unwrap();
        let (completes, outbox) = s
            .capture(outbox, |s, outbox| outbox.start().complete(s))
            .unwrap();
        s.raw().lacks.set(Lack::End);
        let _outbox = completes.replay(&s, outbox, 3).unwrap();
        is_revoked(inbox.post(&t).expect_err("nobody completes"));
    });
}
