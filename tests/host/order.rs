//! Data comes before its signal, over real wires: a kernel behind `wait` checks that every byte has the number of its
//! epoch. And the check notices a wire whose signals are too early.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::host::prelude::*;
use tidegate::{Route, WorldOptions};
use tidegate_cli::{Job, Output};
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fabric::wire::{Event, Limits, Op, Posted, Wire};
use tidegate_fabric::{ENVIRONMENT, Fabric, Options};
use tidegate_fake::wire::{Faults, Net};

use crate::common::skip::{provided, providers, tcp};
use crate::wrapped::{Far, Hooks, Outcome, Wrapped};

const BUFFERS: [Buffers; 2] = [Buffers::Single, Buffers::Double];
const ROLE: &str = "TEST_ORDER_PROVIDER";

/// The shape of a put.
#[derive(Clone, Copy, Debug)]
enum Shape {
    /// This many contiguous numbers.
    Linear(usize),
    /// This many, to every second place: as many pieces.
    Strided(usize),
    /// This many, from every second place, which are gathered. The last one is of two pieces.
    Gathered(usize),
    /// At most this many. The stream counts them in each epoch.
    Counted(usize),
}

const SHAPES: [Shape; 8] = [
    Shape::Linear(1),
    Shape::Linear(1000),
    Shape::Linear(40_000),
    Shape::Strided(33),
    Shape::Gathered(33),
    Shape::Gathered(40_000),
    Shape::Counted(1000),
    Shape::Counted(40_000),
];

/// Epochs in which every received number is checked. Returns how many were wrong. `through` is called before the memory
/// is dropped.
fn wrong(
    world: &World,
    shape: Shape,
    buffers: Buffers,
    epochs: u64,
    through: impl Fn(),
) -> Result<u64> {
    let peer = 1 - world.rank();
    stream!(let s = world.stream()?);
    // How many, and their distances at both ends.
    let (len, here, there) = match shape {
        Shape::Linear(len) | Shape::Counted(len) => (len, 1, 1),
        Shape::Strided(len) => (len, 1, 2),
        Shape::Gathered(len) => (len, 2, 1),
    };
    let mut window = SlotWindow::<u64>::new("order").buffers(buffers);
    let from = window.slot_from(peer, 0, len * there);
    let way = window.slot_to(peer, 0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    let mut src = Region::<u64, _>::zeroed(world, len * here)?.on(&s)?;
    let mut wrong = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    let layout = Layout::strided(0, &[(len as u32, 2)])?;
    // How many should come in an epoch; the contents behind them are unspecified.
    let counted = matches!(shape, Shape::Counted(_));
    let some = move |epoch: u64| match counted {
        true => 1 + (epoch as usize * 7919) % len,
        false => len,
    };
    let mut count = Region::<u64, _>::zeroed(world, 1)?.on(&s)?;
    for _ in 0..epochs {
        s.launch(
            move |x: &mut [u64], count: &mut [u64]| {
                x.iter_mut().for_each(|x| *x += 1);
                count[0] = some(x[0]) as u64;
            },
            (&mut src, &mut count),
        )?;
        let mut epoch = outbox.start();
        match shape {
            Shape::Linear(_) => epoch.put(&src, way)?,
            Shape::Counted(_) => epoch.put_counted(&src, &count, way)?,
            Shape::Strided(_) => epoch.put(&src, way.with(&layout))?,
            Shape::Gathered(_) => epoch.put(src.with(&layout)?, way)?,
        };
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
        s.launch(
            move |inbox: Slots<'_, u64>, src: &[u64], wrong: &mut [u64]| {
                let seen = inbox.slot(from).iter().step_by(there).take(some(src[0]));
                wrong[0] += seen.filter(|x| **x != src[0]).count() as u64;
            },
            (inbox.view(), &src, &mut wrong),
        )?;
    }
    let wrong = wrong.into_host(&s)?;
    // All that this rank has sent has arrived when its sources are free again.
    src.into_host(&s)?;
    through();
    drop((inbox, outbox));
    Ok(wrong[0])
}

/// All shapes between two ranks of this process. Returns how many numbers were wrong.
fn all<W: Wire>(wire: impl Fn(usize) -> W + Sync, epochs: u64) -> u64 {
    let nic = |rank| {
        WorldOptions::new()
            .nic(Fabric::over(wire(rank), Options::default()))
            .route(Route::Nic)
    };
    // Late data must find its memory.
    let both = std::sync::Barrier::new(2);
    let through = || {
        both.wait();
    };
    let ranks = World::local_with(2, nic, |world: World| {
        let mut sum = 0;
        for shape in SHAPES {
            for buffers in BUFFERS {
                sum += wrong(&world, shape, buffers, epochs, through).unwrap();
            }
        }
        sum
    });
    ranks.iter().sum()
}

/// A wire that works wrongly, or has smaller limits than another.
struct Altered<W: Wire> {
    /// The most bytes of one operation.
    most: usize,
    /// How much later than its notice data is sent.
    late: Option<Duration>,
    held: Vec<Held<W>>,
}

/// A write that comes after its notice.
struct Held<W: Wire> {
    due: Instant,
    peer: usize,
    from: *const u8,
    bytes: usize,
    to: Arc<W::Remote>,
    offset: usize,
    cookie: u64,
}

// SAFETY: the pointer is only passed to the wire below.
unsafe impl<W: Wire> Send for Held<W> {}

impl<W: Wire> Altered<W> {
    fn cut(wire: W, most: usize) -> Wrapped<Self> {
        Self::over(wire, most, None)
    }

    fn early(wire: W) -> Wrapped<Self> {
        Self::over(wire, usize::MAX, Some(Duration::from_millis(2)))
    }

    fn over(wire: W, most: usize, late: Option<Duration>) -> Wrapped<Self> {
        let held = Vec::new();
        let hooks = Altered { most, late, held };
        Wrapped { hooks, wire }
    }
}

// SAFETY: operations are the wire's, with the memory with which they were posted, and their events come when that
// wire's do. (A notice may come before its data; this is the purpose. The checks race with that write, as they would
// with a faulty NIC's. The memory stays, since both ends of the job live until everything is over.)
unsafe impl<W: Wire> Hooks for Altered<W> {
    type Wire = W;

    fn limits(&self, limits: Limits) -> Limits {
        Limits {
            bytes: limits.bytes.min(self.most),
            ..limits
        }
    }

    unsafe fn post(
        &mut self,
        wire: &mut W,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        // Odd cookies belong to notices that were sent ahead.
        let even = 2 * cookie;
        if let (
            Some(late),
            &Op::Write {
                from,
                bytes,
                to,
                offset,
                notice: Some(notice),
            },
        ) = (self.late, &op)
        {
            // SAFETY: a notice names no memory of this end.
            let posted = unsafe { wire.post(peer, Op::Notify(notice), even + 1) }?;
            if posted == Posted::Taken {
                self.held.push(Held {
                    due: Instant::now() + late,
                    peer,
                    from,
                    bytes,
                    to: to.clone(),
                    offset,
                    cookie: even,
                });
            }
            return Ok(posted);
        }
        let op = op.handed_on(|remote| &**remote);
        // SAFETY: the caller's promise.
        unsafe { wire.post(peer, op, even) }
    }

    fn poll(&mut self, wire: &mut W, events: &mut Vec<Event>) -> Outcome<()> {
        let mut index = 0;
        while index < self.held.len() {
            let held = &self.held[index];
            let op = Op::Write {
                from: held.from,
                bytes: held.bytes,
                to: &*held.to,
                offset: held.offset,
                notice: None,
            };
            // SAFETY: no event has come yet for the operation to which this data belongs.
            let taken = held.due <= Instant::now()
                && unsafe { wire.post(held.peer, op, held.cookie) }? == Posted::Taken;
            if taken {
                self.held.swap_remove(index);
            } else {
                index += 1;
            }
        }
        let mut inner = Vec::new();
        wire.poll(&mut inner)?;
        events.extend(inner.into_iter().filter_map(|event| match event {
            Event::Done(cookie) => (cookie % 2 == 0).then_some(Event::Done(cookie / 2)),
            Event::Failed(cookie, why) => {
                (cookie % 2 == 0).then_some(Event::Failed(cookie / 2, why))
            }
            other => Some(other),
        }));
        Ok(())
    }

    fn may_sleep(&self) -> bool {
        self.held.is_empty()
    }
}

fn open(provider: &str) -> FabricWire {
    FabricWire::open(&Choice::at("127.0.0.1").provider(provider)).unwrap()
}

#[test]
fn data_comes_before_its_signal() {
    let test = "data_comes_before_its_signal";
    for provider in providers() {
        if !provided(test, provider) {
            return;
        }
        // The plain wire, and one that cuts every put but the smallest into pieces.
        assert_eq!(all(|_| open(provider), 100), 0, "{provider}");
        assert_eq!(
            all(|_| Altered::cut(open(provider), 512), 20),
            0,
            "{provider}, cut"
        );
    }
}

/// A put that is larger than one operation of libfabric.
#[test]
fn data_comes_before_its_signal_when_it_is_much() {
    let test = "data_comes_before_its_signal_when_it_is_much";
    let provider = tcp();
    if !provided(test, provider) {
        return;
    }
    let most = open(provider).limits().bytes;
    let shape = Shape::Linear(most / 8 + 1000);
    let nic = |_| {
        WorldOptions::new()
            .nic(Fabric::over(open(provider), Options::default()))
            .route(Route::Nic)
    };
    let wrong = World::local_with(2, nic, |world: World| {
        wrong(&world, shape, Buffers::Double, 5, || ()).unwrap()
    });
    assert_eq!(wrong, [0, 0]);
}

/// The check notices the error for which it is made.
#[test]
fn a_signal_before_its_data_is_found() {
    let test = "a_signal_before_its_data_is_found";
    let net = Net::new(2, Faults::default());
    assert_eq!(all(|rank| Altered::cut(net.wire(rank), 512), 5), 0);
    let net = Net::new(2, Faults::default());
    assert!(
        all(|rank| Altered::early(net.wire(rank)), 5) > 0,
        "in memory"
    );
    for provider in providers() {
        if !provided(test, provider) {
            return;
        }
        assert!(all(|_| Altered::early(open(provider)), 5) > 0, "{provider}");
    }
}

/// This is not a test, but the program of the next test's ranks.
#[test]
fn role_of_a_rank() {
    let Ok(provider) = std::env::var(ROLE) else {
        return;
    };
    let nic = Fabric::over(open(&provider), Options::default());
    let world = World::init_with(WorldOptions::new().nic(nic).route(Route::Nic)).unwrap();
    for shape in SHAPES {
        for buffers in BUFFERS {
            assert_eq!(
                wrong(&world, shape, buffers, 100, || ()).unwrap(),
                0,
                "{shape:?}"
            );
        }
    }
}

#[test]
fn data_comes_before_its_signal_between_processes() {
    let test = "data_comes_before_its_signal_between_processes";
    for provider in providers() {
        if !provided(test, provider) {
            return;
        }
        let mut job = Job::new(std::env::current_exe().unwrap(), 2)
            .args(["--exact", "order::role_of_a_rank", "--nocapture"])
            .env(ROLE, provider)
            .output(Output::Captured);
        for (name, value) in ENVIRONMENT {
            job = job.default_env(name, value);
        }
        let outcome = job.run().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let said: Vec<_> = outcome
            .ranks
            .iter()
            .map(|rank| text(&rank.stderr))
            .collect();
        assert!(outcome.success(), "{provider}: {said:#?}");
    }
}

/// The main threads of both ranks sleep while epochs are enqueued that need both ranks' NICs. Only tidegate's own
/// threads can serve them.
#[test]
fn epochs_go_on_while_their_callers_are_asleep() {
    const EPOCHS: u64 = 1000;
    let test = "epochs_go_on_while_their_callers_are_asleep";
    for (provider, recorded) in [(tcp(), false), (tcp(), true), ("sockets", false)] {
        if !provided(test, provider) {
            return;
        }
        let seen: [AtomicU64; 2] = Default::default();
        let nic = |_| {
            WorldOptions::new()
                .nic(Fabric::over(open(provider), Options::default()))
                .route(Route::Nic)
        };
        World::local_with(2, nic, |world: World| {
            let rank = world.rank();
            alone(&world, recorded, EPOCHS, &seen[rank]).unwrap();
        });
        let seen = seen.map(AtomicU64::into_inner);
        assert_eq!(seen, [EPOCHS; 2], "{provider}, recorded: {recorded}");
    }
}

#[derive(Carry)]
struct Ends<'s> {
    src: Region<u64, On<'s>>,
    seen: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    from: In<u64>,
    to: Out<u64>,
}

fn step<'s>(s: &Stream<'s>, ends: Ends<'s>) -> Result<Ends<'s>> {
    let Ends {
        mut src,
        mut seen,
        inbox,
        outbox,
        from,
        to,
    } = ends;
    s.launch(|x: &mut [u64]| x[0] += 1, &mut src)?;
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    let (inbox, outbox) = exchange(s, inbox, epoch)?;
    s.launch(
        move |inbox: Slots<'_, u64>, src: &[u64], seen: &mut [u64]| {
            seen[0] += u64::from(inbox.slot(from)[0] == src[0]);
        },
        (inbox.view(), &src, &mut seen),
    )?;
    Ok(Ends {
        src,
        seen,
        inbox,
        outbox,
        from,
        to,
    })
}

/// Epochs that the stream cannot begin before all of them are enqueued. Then this thread does nothing until a word in
/// memory says that the stream is done.
fn alone(world: &World, recorded: bool, epochs: u64, count: &AtomicU64) -> Result<()> {
    /// Fewer items than a queue holds.
    const BURST: u64 = 250;
    let peer = 1 - world.rank();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("alone");
    let (from, to) = (window.slot_from(peer, 0, 1), window.slot_to(peer, 0));
    let (inbox, outbox) = window.open(&s)?;
    let mut ends = Ends {
        src: Region::zeroed(world, 1)?.on(&s)?,
        seen: Region::zeroed(world, 1)?.on(&s)?,
        inbox,
        outbox,
        from,
        to,
    };
    let graph;
    (graph, ends) = s.capture(ends, step)?;
    let burst = if recorded { epochs } else { BURST };
    for _ in 0..epochs / burst {
        let (begun, ended) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let begin = begun.clone();
        s.launch(
            move |_: &[u64]| {
                while begin.load(Ordering::Acquire) == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
            },
            &ends.seen,
        )?;
        if recorded {
            ends = graph.replay(&s, ends, burst as usize)?;
        } else {
            for _ in 0..burst {
                ends = step(&s, ends)?;
            }
        }
        let end = ended.clone();
        s.launch(move |_: &[u64]| end.store(1, Ordering::Release), &ends.seen)?;
        begun.store(1, Ordering::Release);
        while ended.load(Ordering::Acquire) == 0 {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
    let seen = ends.seen.into_host(&s)?;
    count.store(seen[0], Ordering::Relaxed);
    Ok(())
}
