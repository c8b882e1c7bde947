//! What the NIC of one rank refuses: a window, after all ranks have met, or the programs of an epoch.

use crate::error::WindowError;
use std::sync::atomic::AtomicUsize;
use std::sync::{Barrier as Meeting, OnceLock};

use tidegate_boot::LocalControl;
use tidegate_hal::control::{Control, ControlError, Decision, Proposal, Sink};
use tidegate_hal::ids::TeamId;
use tidegate_hal::nic::*;

use super::*;
use crate::window::exchange;

/// The function by which a NIC reports that it has failed.
type Report = Arc<OnceLock<Box<dyn Fn(String) + Send + Sync>>>;

/// What a NIC refuses.
#[derive(Clone)]
enum Refuses {
    /// It refuses nothing. It counts what it keeps until the endpoint is closed.
    Nothing(Arc<AtomicUsize>),
    /// It refuses to make a queue.
    Queues,
    /// It refuses the memory of a window's peer. (It has accepted the bells before.)
    Memory,
    /// It refuses programs, since it has failed. It reports that a moment later, by this function.
    Programs(Report),
}

/// A NIC that refuses something.
struct Spent(Loopback, Refuses);

// SAFETY: the other NIC does everything, or the call is refused.
unsafe impl Nic for Spent {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn atomics(&self) -> Atomics {
        self.0.atomics()
    }

    fn address(&self) -> Vec<u8> {
        self.0.address()
    }

    unsafe fn register(&self, memory: Memory<'_>) -> Result<Registration, NicError> {
        // SAFETY: the caller promises the same.
        unsafe { self.0.register(memory) }
    }

    unsafe fn connect(&self, mut connection: Connection) -> Result<(), NicError> {
        if let Refuses::Programs(report) = &self.1 {
            let nothing = Box::new(|_| unreachable!("the other NIC does not fail"));
            let _ = report.set(std::mem::replace(&mut connection.failed, nothing));
        }
        // SAFETY: the caller promises the same.
        unsafe { self.0.connect(connection) }
    }

    fn import(&self, peer: usize, key: Key, bytes: usize) -> Result<RemoteMemory, NicError> {
        match self.1 {
            Refuses::Memory if bytes > 64 => Err(NicError::BadKey("it is refused".into())),
            _ => self.0.import(peer, key, bytes),
        }
    }

    unsafe fn queue(
        &self,
        peer: usize,
        config: QueueConfig,
    ) -> Result<Arc<dyn NicQueue>, NicError> {
        match &self.1 {
            // SAFETY: the caller promises the same.
            Refuses::Nothing(_) => unsafe { self.0.queue(peer, config) },
            Refuses::Memory => unreachable!("its memory has been refused"),
            Refuses::Programs(report) => {
                // SAFETY: as above.
                let queue = unsafe { self.0.queue(peer, config) }?;
                Ok(Arc::new(GivenUp(queue, report.clone())))
            }
            Refuses::Queues => Err(NicError::Exhausted {
                nic: self.name(),
                what: "queues",
                detail: "there is none left".into(),
            }),
        }
    }

    fn keep(&self, what: Keep) {
        if let Refuses::Nothing(kept) = &self.1 {
            kept.fetch_add(1, Ordering::SeqCst);
        }
        self.0.keep(what);
    }

    fn budget(&self) -> usize {
        self.0.budget()
    }

    fn armed(&self) -> usize {
        self.0.armed()
    }

    fn await_armed(&self, most: usize, limit: Duration) -> usize {
        self.0.await_armed(most, limit)
    }

    fn quiesce(&self, limit: Duration) -> bool {
        self.0.quiesce(limit)
    }
}

/// A queue that has given up because its NIC has failed.
struct GivenUp(Arc<dyn NicQueue>, Report);

// SAFETY: nothing is armed.
unsafe impl NicQueue for GivenUp {
    unsafe fn prepare(&self, program: Program) -> Result<Prepared, NicError> {
        // SAFETY: the caller promises the same.
        unsafe { self.0.prepare(program) }
    }

    fn arm(&self, _programs: &Arc<[Prepared]>, _times: u64) -> Result<(), NicError> {
        let report = self.1.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(50));
            report.get().expect("it is connected")("the cable is out".to_owned());
        });
        Err(NicError::GivenUp)
    }

    fn counts(&self) -> (u64, u64) {
        self.0.counts()
    }
}

/// The call that is refused does not return before the report, so that both ranks hear of what has failed.
#[test]
fn a_refusal_that_comes_before_the_report_of_a_failure_names_the_failure() {
    let nic = |rank| match rank {
        0 => WorldOptions::new()
            .nic(Spent(
                Loopback::default(),
                Refuses::Programs(Arc::default()),
            ))
            .route(Route::Nic),
        _ => WorldOptions::new().nic(Loopback::default()),
    };
    World::local_with(2, nic, |world: World<Host>| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w");
        let error = if world.rank() == 0 {
            let to = window.slot_to(1, 0);
            let (_inbox, outbox) = window.open(&s).unwrap();
            let value = Region::from_slice(&world, &[7; LEN]).unwrap();
            let value = value.on(&s).unwrap();
            let mut epoch = outbox.start();
            epoch.put(&value, to).unwrap();
            epoch.complete(&s).err().unwrap()
        } else {
            window.slot_from(0, 0, LEN);
            let (inbox, _outbox) = window.open(&s).unwrap();
            let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
            waited.and_then(|_inbox| s.synchronize()).unwrap_err()
        };
        let error = error.to_string();
        let cause = "the NIC of rank 0 has failed (the cable is out)";
        assert!(error.contains(cause), "{error}");
    });
}

#[test]
fn a_window_that_one_rank_cannot_build_no_rank_has() {
    refused(Refuses::Queues, "out of queues");
}

#[test]
fn a_window_whose_memory_one_rank_cannot_reach_no_rank_has() {
    refused(Refuses::Memory, "it is refused");
}

fn refused(what: Refuses, why: &str) {
    let nic = |rank| match rank {
        0 => WorldOptions::new()
            .nic(Spent(Loopback::default(), what.clone()))
            .route(Route::Nic),
        _ => WorldOptions::new().nic(Loopback::default()),
    };
    World::local_with(3, nic, |world: World<Host>| {
        crate::stream!(let s = world.stream().unwrap());
        // Rank 2 does not exchange anything with rank 0.
        // A slot from one rank to the other.
        let open = |name, from, to| {
            let mut window = SlotWindow::<u64>::new(name);
            if world.rank() == from {
                window.slot_to(to, 0);
            } else if world.rank() == to {
                window.slot_from(from, 0, LEN);
            }
            window.open(&s)
        };
        let verdict = |error: Option<Error>| {
            let error = error.expect("one rank cannot create it");
            match (world.rank(), &error) {
                (0, Error::Nic(_)) if matches!(what, Refuses::Memory) => {}
                // All ranks get the same error for a shortage.
                (_, Error::Open(WindowError::NotCreated { rank: 0, .. }))
                    if matches!(what, Refuses::Queues) =>
                {
                    assert!(error.to_string().contains(why), "{error}");
                }
                (1 | 2, Error::Open(WindowError::Disagreement { .. }))
                    if matches!(what, Refuses::Memory) =>
                {
                    let text = error.to_string();
                    assert!(
                        text.contains("rank 0 could not") && text.contains(why),
                        "{text}"
                    );
                }
                _ => panic!("{error}"),
            }
        };
        verdict(open("w", 0, 1).err());
        // The name is free again.
        verdict(open("w", 0, 1).err());
        verdict(crate::Barrier::open(&s, "b").err());
        // The job goes on.
        let (inbox, outbox) = open("x", 1, 2).unwrap();
        let value = Region::from_slice(&world, &[7; LEN])
            .unwrap()
            .on(&s)
            .unwrap();
        let to = outbox.slots().next();
        let mut epoch = outbox.start();
        if let Some(to) = to {
            epoch.put(&value, to).unwrap();
        }
        let (mut inbox, _outbox) = exchange(&s, inbox, epoch).unwrap();
        if world.rank() == 2 {
            assert_eq!(inbox.read(&s).unwrap().iter().next().unwrap(), [7; LEN]);
        }
        s.synchronize().unwrap();
    });
}

/// A control plane that this rank loses just when all ranks have agreed on a window.
struct Lost(LocalControl);

impl Control for Lost {
    fn rank(&self) -> usize {
        self.0.rank()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn node(&self, rank: usize) -> usize {
        self.0.node(rank)
    }

    fn exchange_in(
        &self,
        team: TeamId,
        label: &str,
        bytes: Vec<u8>,
    ) -> std::result::Result<Vec<Vec<u8>>, ControlError> {
        self.0.exchange_in(team, label, bytes)
    }

    fn confer_in(
        &self,
        team: TeamId,
        label: &str,
        proposal: Proposal,
    ) -> std::result::Result<Decision, ControlError> {
        let decision = self.0.confer_in(team, label, proposal)?;
        match (label, self.rank()) {
            ("agreeing on a window", 1) => Err(ControlError::Closed("on purpose".into())),
            _ => Ok(decision),
        }
    }

    fn found(&self, name: &str, ranks: &[usize]) -> std::result::Result<TeamId, ControlError> {
        self.0.found(name, ranks)
    }

    fn dissolve(&self, team: TeamId) {
        self.0.dissolve(team);
    }

    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> std::result::Result<(), ControlError> {
        self.0.notify(to, bytes)
    }

    fn subscribe(&self, sink: Sink) {
        self.0.subscribe(sink);
    }

    fn leave(&self) {
        self.0.leave();
    }

    fn fail(&self, reason: &str) {
        self.0.fail(reason);
    }
}

/// Rank 0 has the window, and may put to rank 1, which has not heard that it is open.
#[test]
fn memory_stays_where_a_peer_may_have_the_window() {
    let kept = Arc::new(AtomicUsize::new(0));
    let gone = Meeting::new(2);
    let rank = |control: LocalControl| {
        let here = control.rank();
        let nic = Spent(Loopback::default(), Refuses::Nothing(kept.clone()));
        let options = WorldOptions::new().nic(nic).route(Route::Nic);
        let control = Arc::new(Lost(control));
        // SAFETY: the control plane of `tidegate-boot` carries what it is given.
        let world =
            unsafe { World::from_control_with(control, Host::for_threads(), options) }.unwrap();
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w");
        if here == 0 {
            window.slot_to(1, 0);
            let _halves = window.open(&s).unwrap();
            gone.wait();
        } else {
            window.slot_from(0, 0, LEN);
            let refused = window.open(&s).err();
            assert!(matches!(refused, Some(Error::Control(_))), "{refused:?}");
        }
    };
    std::thread::scope(|scope| {
        for control in tidegate_boot::local(2) {
            let (rank, kept, gone) = (&rank, &kept, &gone);
            scope.spawn(move || {
                let is_first = control.rank() == 0;
                rank(control);
                if !is_first {
                    // Rank 0 still has the window. The stream's thread may drop the memory a little later.
                    let end = Instant::now() + Duration::from_secs(60);
                    while kept.load(Ordering::SeqCst) == 0 && Instant::now() < end {
                        std::thread::yield_now();
                    }
                    let kept = kept.load(Ordering::SeqCst);
                    gone.wait();
                    assert_eq!(kept, 1, "it was freed");
                }
            });
        }
    });
}
