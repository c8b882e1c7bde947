//! What observers get to know: every call of a program, and everything that its streams do, in order.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use tidegate::host::prelude::*;
use tidegate::observe::{Declared, EpochCall, Event, Known, Leg, Observer, Operation};
use tidegate::{Choice, StreamOptions, WorldOptions};

/// Keeps all events.
#[derive(Default)]
struct Kept(Mutex<Vec<Event>>);

impl Observer for Kept {
    fn event(&self, event: &Event) {
        self.0.lock().unwrap().push(event.clone());
    }
}

/// The events of all ranks of a program.
fn events(ranks: usize, program: impl Fn(World) -> Result<()> + Sync) -> Vec<Vec<Event>> {
    let kept: Vec<_> = (0..ranks).map(|_| Arc::<Kept>::default()).collect();
    let options = |rank: usize| WorldOptions::new().observer(kept[rank].clone());
    World::local_with(ranks, options, |world| program(world).unwrap());
    let take = |kept: &Arc<Kept>| std::mem::take(&mut *kept.0.lock().unwrap());
    kept.iter().map(take).collect()
}

/// What the events of a rank say.
#[derive(Default)]
struct Told {
    declared: HashMap<u64, Declared>,
    /// How often each batch was enqueued, replays included.
    enqueued: HashMap<u64, u64>,
    legs: Vec<Leg>,
    kernels: Vec<Arc<str>>,
    ran: Vec<Arc<str>>,
}

impl Told {
    fn of(events: &[Event]) -> Self {
        let mut told = Told::default();
        let mut recorded = HashMap::new();
        for event in events {
            match event {
                Event::Declared(batch) => {
                    let before = told.declared.insert(batch.batch, batch.clone());
                    assert_eq!(before, None);
                }
                Event::Enqueued { batch, .. } => *told.enqueued.entry(*batch).or_default() += 1,
                Event::Launched { kernel, .. } => told.kernels.push(kernel.clone()),
                Event::Recorded(recording) => {
                    recorded.insert(recording.recording, recording.steps.clone());
                }
                Event::Replayed {
                    recording, times, ..
                } => {
                    for (_, step) in &recorded[recording] {
                        match step {
                            tidegate::observe::RecordedStep::Batch(batch) => {
                                *told.enqueued.entry(*batch).or_default() += times;
                            }
                            tidegate::observe::RecordedStep::Kernel(name) => {
                                told.kernels.extend((0..*times).map(|_| name.clone()));
                            }
                            _ => {}
                        }
                    }
                }
                Event::Leg { leg, .. } => told.legs.push(*leg),
                Event::Ran { kernel, .. } => told.ran.push(kernel.clone()),
                Event::Dropped { stamps, .. } => panic!("{stamps} were dropped"),
                _ => {}
            }
        }
        told
    }

    /// Each part of each batch has a leg for each time that the batch was enqueued, and its times are in order.
    fn is_whole(&self) {
        let mut seen: HashMap<_, Vec<&Leg>> = HashMap::new();
        for leg in &self.legs {
            let times = [leg.begun, leg.satisfied, leg.moved, leg.ended];
            assert!(times.is_sorted(), "{leg:?}");
            let of = (leg.batch, leg.lane, leg.leg);
            seen.entry(of).or_default().push(leg);
        }
        for (batch, times) in &self.enqueued {
            for part in &self.declared[batch].parts {
                let legs = seen.remove(&(*batch, part.lane, part.leg));
                let legs = legs.unwrap_or_else(|| panic!("no leg of {part:?}"));
                assert_eq!(legs.len() as u64, *times, "{part:?}");
                assert!(legs.is_sorted_by_key(|leg| leg.begun));
                if part.awaits.is_some() {
                    assert!(legs.is_sorted_by(|one, next| one.epoch < next.epoch));
                }
            }
        }
        assert_eq!(seen.len(), 0, "{seen:?}");
    }
}

/// An exchange around a ring, as single calls, as one call, and replayed; a kernel; a barrier, which has several legs.
fn ring(world: &World, replays: usize) -> Result<()> {
    let (left, right) = world.ring();
    stream!(let s = world.stream_with(StreamOptions::new().name("ring"))?);
    let mut window = SlotWindow::<u64>::new("halo");
    window.slot_from(left, 0, 8);
    let to = window.slot_to(right, 0);
    let (inbox, outbox) = window.open(&s)?;
    let mut barrier = Barrier::open(&s, "end")?;
    let src = Region::from_slice(world, &[1; 8])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    let outbox = epoch.complete(&s)?;
    let inbox = exposed.wait(&s)?;
    let lent = (inbox, outbox, src);
    let (graph, lent) = s.capture(lent, |s, (inbox, outbox, mut src)| {
        s.launch(|src: &mut [u64]| src[0] += 1, &mut src)?;
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        let (inbox, outbox) = tidegate::exchange(s, inbox, epoch)?;
        Ok((inbox, outbox, src))
    })?;
    let lent = graph.replay(&s, lent, replays)?;
    barrier.enqueue(&s)?;
    s.synchronize()?;
    drop(lent);
    Ok(())
}

#[test]
fn every_leg_of_every_execution_is_told() {
    for events in events(3, |world| ring(&world, 7)) {
        let told = Told::of(&events);
        told.is_whole();
        assert_eq!(told.kernels.len(), 7);
        assert_eq!(told.kernels, told.ran);
        let bytes = |call| {
            let batch = told.declared.values().find(|batch| batch.call == call);
            let parts = batch.unwrap().parts.iter();
            parts.map(|part| part.bytes).sum::<u64>()
        };
        assert_eq!(bytes(EpochCall::Complete), 64);
        assert_eq!(bytes(EpochCall::Exchange), 64);
        assert_eq!(bytes(EpochCall::Post), 0);
        assert!(matches!(events[0], Event::Joined(_)));
        assert!(matches!(events.last(), Some(Event::Left { .. })));
        let named = |event: &Event| match event {
            Event::Opened { name, what, .. } => Some((what.to_string(), name.to_string())),
            Event::Made { name, stamped, .. } => {
                assert!(stamped);
                Some(("stream".to_owned(), name.clone()))
            }
            _ => None,
        };
        let names: Vec<_> = events.iter().filter_map(named).collect();
        let name = |what: &str, name: &str| (what.to_owned(), name.to_owned());
        assert_eq!(
            names,
            [
                name("stream", "ring"),
                name("window", "halo"),
                name("barrier", "end")
            ]
        );
    }
}

/// A wait ends after the peer has made what it waits for. All ranks of a machine share a clock.
#[test]
fn a_wait_is_over_after_its_put() {
    let events = events(3, |world| ring(&world, 20));
    let told: Vec<_> = events.iter().map(|events| Told::of(events)).collect();
    let mut compared = 0;
    for (rank, told_here) in told.iter().enumerate() {
        for leg in &told_here.legs {
            let part = |told: &Told, leg: &Leg| {
                let mut parts = told.declared[&leg.batch].parts.iter();
                let part = parts.find(|part| (part.lane, part.leg) == (leg.lane, leg.leg));
                part.unwrap().clone()
            };
            let Some(awaits) = part(told_here, leg).awaits else {
                continue;
            };
            if awaits.operation != Operation::Complete {
                continue;
            }
            let peer = &told[awaits.peer as usize];
            let puts = peer.legs.iter().filter(|put| {
                let tells = part(peer, put).tells;
                tells.iter().any(|tells| {
                    tells.peer as usize == rank && tells.operation == Operation::Complete
                }) && put.epoch == leg.epoch
            });
            let puts: Vec<_> = puts.collect();
            assert_eq!(puts.len(), 1);
            assert!(puts[0].moved <= leg.satisfied);
            compared += 1;
        }
    }
    assert_eq!(compared, 3 * 21);
}

#[test]
fn failures_and_hand_offs_are_told() {
    let events = events(1, |world| {
        stream!(let s = world.stream()?);
        stream!(let t = world.stream()?);
        let x = Region::from_slice(&world, &[1.0])?.on(&s)?;
        drop(world);
        let x = s.hand_off(x, &t)?;
        t.launch(|_: &[f64]| panic!("on purpose"), &x)?;
        // The rank leaves with the last stream, and its failure is told before.
        Ok(())
    });
    let told = &events[0];
    let handed = |event: &&Event| matches!(event, Event::HandedOff { from: 0, to: 1, .. });
    assert_eq!(told.iter().filter(handed).count(), 1);
    let failed = |event: &Event| match event {
        Event::Failed { stream: 1, why, .. } => why.contains("on purpose"),
        _ => false,
    };
    assert_eq!(told.iter().filter(|event| failed(event)).count(), 1);
}

/// Keeps all events, and asks for other ones than observers do that ask for nothing.
#[derive(Default)]
struct Calls(Kept);

impl Observer for Calls {
    fn event(&self, event: &Event) {
        self.0.event(event);
    }

    fn stamps(&self) -> bool {
        false
    }

    fn returns(&self) -> bool {
        true
    }
}

/// Each call that begins returns, on the thread that made it, before the next one of its stream begins.
#[test]
fn calls_return() {
    let calls = Arc::<Calls>::default();
    let options = |_| WorldOptions::new().observer(calls.clone());
    World::local_with(1, options, |world| ring(&world, 3).unwrap());
    let events = calls.0.0.lock().unwrap();
    let (mut open, mut begun) = (None, Vec::new());
    for event in &*events {
        match event {
            Event::Enqueued { .. }
            | Event::Launched { .. }
            | Event::Replayed { .. }
            | Event::Synchronizes { .. } => {
                assert_eq!(open.replace(event.at().unwrap()), None);
                begun.push(event.clone());
            }
            Event::Returned { stream: 0, at } => {
                assert!(open.take().is_some_and(|begun| begun <= *at));
            }
            Event::Made { stamped, .. } => assert!(!stamped, "nobody asks for stamps"),
            Event::Leg { .. } | Event::Ran { .. } => panic!("{event}"),
            _ => {}
        }
    }
    assert_eq!(open, None);
    // Post, complete, wait, the replays, the barrier, and one that waits.
    assert_eq!(begun.len(), 6, "{begun:?}");
    let last = begun.last().unwrap();
    assert!(matches!(last, Event::Synchronizes { call, .. } if **call == *"synchronize"));
}

/// An observer gets what it asks for, and none gets a return without asking.
#[test]
fn observers_of_a_rank_ask_for_different_things() {
    let (kept, calls) = (Arc::<Kept>::default(), Arc::<Calls>::default());
    let options = |_| {
        let options = WorldOptions::new().observer(kept.clone());
        options.observer(calls.clone())
    };
    World::local_with(1, options, |world| ring(&world, 3).unwrap());
    let of = |kept: &Kept, is: fn(&Event) -> bool| {
        let events = kept.0.lock().unwrap();
        events.iter().filter(|event| is(event)).count()
    };
    let legs = |event: &Event| matches!(event, Event::Leg { .. });
    let returns = |event: &Event| matches!(event, Event::Returned { .. });
    assert_eq!((of(&kept, returns), of(&calls.0, returns)), (0, 6));
    assert!(of(&kept, legs) > 0);
    Told::of(&kept.0.lock().unwrap()).is_whole();
}

/// Makes a stream when it hears that a kernel has run, and counts those streams.
#[derive(Default)]
struct Maker(OnceLock<World>, AtomicUsize);

impl Observer for Maker {
    fn event(&self, event: &Event) {
        if let (Some(world), Event::Ran { .. }) = (self.0.get(), event) {
            drop(world.stream().unwrap());
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[test]
fn an_observer_may_make_a_stream() {
    let maker = Arc::<Maker>::default();
    let options = |_| WorldOptions::new().observer(maker.clone());
    World::local_with(1, options, |world| {
        maker.0.set(world.clone()).ok().unwrap();
        stream!(let s = world.stream().unwrap());
        let mut x = Region::<u64>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        s.launch(|x: &mut [u64]| x[0] += 1, &mut x).unwrap();
        while maker.1.load(Ordering::Relaxed) == 0 {
            std::thread::yield_now();
        }
        stream!(let another = world.stream().unwrap());
        another.synchronize().unwrap();
    });
}

/// Each kind of event is a line, with the names of what it is about.
#[test]
fn events_are_lines_of_text() {
    let events = events(2, |world| ring(&world, 2));
    let mut known = Known::new();
    let mut lines = Vec::new();
    for event in &events[1] {
        known.learn(event);
        lines.push(known.line(event).to_string());
    }
    let has = |parts: &[&str]| {
        let found = lines
            .iter()
            .any(|line| parts.iter().all(|part| line.contains(part)));
        assert!(found, "{parts:?}\n{}", lines.join("\n"));
    };
    has(&["rank 1 of 2 joins: node 0 (", "device host"]);
    has(&["window `halo`: opened"]);
    has(&["stream `ring`: made"]);
    has(&["stream `ring`: post (window `halo`), ", "observe.rs:"]);
    has(&["recording ", ": replay, 2 times, "]);
    has(&[
        "stream `ring`: waited ",
        " us for rank 0 to post (window `halo`), moved 64 bytes, told rank 0 of its completion",
    ]);
    has(&["barrier `end`"]);
    has(&["stream `ring`: `", "` ran "]);
    has(&["stream `ring`: synchronize, "]);
    has(&["the rank leaves"]);
    assert!(!lines.iter().any(|line| line.contains("window number")));
    // Without names there are numbers.
    let posted = events[1]
        .iter()
        .find(|event| matches!(event, Event::Enqueued { .. }));
    assert!(
        posted
            .unwrap()
            .to_string()
            .starts_with("stream 0: enqueue of batch ")
    );
}

/// Rows of three ranks, the highest first, with a window each; columns of two ranks, with a sum each.
fn grid(world: &World) -> Result<()> {
    let me = world.rank();
    let row = world.split("rows", me / 3, 6 - me)?.unwrap();
    let column = world.split("columns", me % 3, me)?.unwrap();
    stream!(let s = world.stream_with(StreamOptions::new().name("grid"))?);
    let (left, right) = row.ring();
    let mut window = SlotWindow::new("halo");
    window.slot_from(left, 0, 1);
    let to = window.slot_to(right, 0);
    let (inbox, outbox) = window.open(&row.on(&s))?;
    let mut sum = AllReduce::open(&column.on(&s), "sum", 1, Op::Sum)?;
    let mut x = Region::from_slice(world, &[me as u64])?.on(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&x, to)?;
    let halves = exchange(&s, inbox, epoch)?;
    sum.enqueue(&s, &mut x)?;
    s.synchronize()?;
    drop(halves);
    Ok(())
}

/// Windows have the id and the name of their team. Ranks have their numbers in the job, and the team's event says what
/// their numbers in the team are.
#[test]
fn windows_of_teams_are_told_with_their_teams() {
    for (rank, events) in (0..).zip(events(6, |world| grid(&world))) {
        let told = Told::of(&events);
        told.is_whole();
        let made = |name: &str| {
            let team = events.iter().find_map(|event| match event {
                Event::TeamMade(made) if *made.name == *name => Some(made),
                _ => None,
            });
            team.unwrap()
        };
        let (row, column) = (made("rows"), made("columns"));
        let first = rank / 3 * 3;
        assert_eq!(row.ranks, [first + 2, first + 1, first]);
        assert_eq!(column.ranks, [rank % 3, rank % 3 + 3]);
        let others = [rank, (rank + 3) % 6].map(|rank| row.rank_of(rank));
        assert_eq!(others, [Some(2 - rank % 3), None]);

        let (mut known, mut lines) = (Known::new(), Vec::new());
        for event in &events {
            if let Event::Opened { window, .. } = event {
                assert!(known.team(window.team).is_some(), "a team comes first");
            }
            known.learn(event);
            lines.push(known.line(event).to_string());
        }
        let mut seen = HashMap::new();
        for leg in &told.legs {
            let part = known.part(leg).unwrap();
            let awaited = part
                .awaits
                .iter()
                .map(|awaits| (awaits.window, awaits.peer));
            let told = part.tells.iter().map(|tells| (tells.window, tells.peer));
            for (window, peer) in awaited.chain(told) {
                let window = window.unwrap();
                let name = &**known.window(window).unwrap();
                *seen.entry(name.to_owned()).or_insert(0) += 1;
                match name {
                    "rows/halo" => {
                        assert_eq!(known.team(window.team), Some(row));
                        assert!(peer != rank && row.ranks.contains(&peer), "rank {peer}");
                    }
                    "columns/sum" => {
                        assert_eq!(known.team(window.team), Some(column));
                        assert_eq!(peer, (rank + 3) % 6);
                    }
                    other => panic!("{other}"),
                }
            }
        }
        assert_eq!(seen.len(), 2, "{seen:?}");
        // The left neighbour in the row is the next rank of the job.
        let left = first + (rank + 1) % 3;
        let [last, middle] = [first, first + 1];
        for part in [
            format!(
                "team `rows` of ranks {}, {middle} and {last}: made",
                first + 2
            ),
            "window `rows/halo`: opened".to_owned(),
            "window `columns/sum`: opened".to_owned(),
            format!("for rank {left} to complete (window `rows/halo`)"),
            format!(
                "told rank {} of its completion (window `columns/sum`)",
                (rank + 3) % 6
            ),
        ] {
            let found = lines.iter().any(|line| line.contains(&part));
            assert!(found, "{part}\n{}", lines.join("\n"));
        }
    }
}

/// Data that targets read from the root's memory count once, as what the root sends. So do data that go through slots.
#[test]
fn what_targets_read_is_what_their_origin_sends() {
    const RANKS: usize = 3;
    for (len, pulls) in [(1000, 0), (300_000, 3)] {
        let events = events(RANKS, |world| {
            stream!(let s = world.stream()?);
            let mut blocks = Scatter::open(&s, "blocks", 0, len)?;
            let count = if world.rank() == 0 { RANKS * len } else { 0 };
            let x = Region::from_slice(&world, &vec![2.0; count])?.on(&s)?;
            let mut y = Region::zeroed(&world, len)?.on(&s)?;
            blocks.enqueue(&s, &x, &mut y)?;
            assert_eq!(y.into_host(&s)?[len - 1], 2.0);
            Ok(())
        });
        for (rank, events) in events.iter().enumerate() {
            let told = Told::of(events);
            let parts = || told.declared.values().flat_map(|declared| &declared.parts);
            let sends = parts().filter(|part| part.completes().is_some());
            let sent: u64 = sends.map(|part| part.bytes).sum();
            let all = if rank == 0 { (RANKS - 1) * len * 8 } else { 0 };
            assert_eq!(sent, all as u64);
            // Pieces have 1 MiB.
            let read = |operation: Operation| operation == Operation::Pull;
            let reads = parts().flat_map(|part| &part.tells);
            let reads = reads.filter(|tells| read(tells.operation)).count();
            let awaited = parts().filter_map(|part| part.awaits);
            let awaited = awaited.filter(|awaits| read(awaits.operation)).count();
            let pulls = if rank == 0 {
                [0, 2 * pulls]
            } else {
                [pulls, 0]
            };
            assert_eq!([reads, awaited], pulls);
        }
    }
}

/// The bytes that a rank has sent, by its events.
fn sent(events: &[Event]) -> u64 {
    let told = Told::of(events);
    let mut sent = 0;
    for (number, times) in &told.enqueued {
        let parts = &told.declared[number].parts;
        let sends = parts.iter().filter(|part| part.completes().is_some());
        sent += times * sends.map(|part| part.bytes).sum::<u64>();
    }
    sent
}

/// The bytes that each rank sends in two all-reduces of `len` numbers.
fn all_reduces(ranks: usize, len: usize, choice: Choice) -> Vec<u64> {
    let events = events(ranks, |world| {
        stream!(let s = world.stream()?);
        let mut sums = AllReduce::open_with(&s, "sums", len, Op::Sum, choice)?;
        let mut x = Region::from_slice(&world, &vec![1.0; len])?.on(&s)?;
        sums.enqueue(&s, &mut x)?;
        sums.enqueue(&s, &mut x)?;
        assert_eq!(x.into_host(&s)?[len - 1], (ranks * ranks) as f64);
        Ok(())
    });
    events.iter().map(|events| sent(events)).collect()
}

/// Above the length of short vectors, an all-reduce sends as few bytes as a ring does.
#[test]
fn long_all_reduces_send_as_few_bytes_as_a_ring() {
    const LEN: usize = 100_000;
    for ranks in [2, 3, 4] {
        let ring = (2 * 2 * (ranks - 1) * LEN * 8) as u64;
        let sent = all_reduces(ranks, LEN, Choice::default());
        assert_eq!(sent.iter().sum::<u64>(), ring);
        let most = (ring / ranks as u64) as f64 * 1.05;
        assert!(sent.iter().all(|sent| *sent as f64 <= most), "{sent:?}");
        // The algorithm for short vectors sends more, and this test sees it.
        let short = Choice {
            short: usize::MAX,
            ..Choice::default()
        };
        let sent = all_reduces(ranks, LEN, short);
        assert_eq!(sent.iter().sum::<u64>(), ring * ranks as u64 / 2);
    }
}

/// Of more than two ranks, each sends to the next one only, however short the vectors are. A `Choice` lets each send to
/// all higher ranks.
#[test]
fn scans_go_from_rank_to_rank() {
    for ranks in [2, 3, 5] {
        for choice in [None, Some(ranks)] {
            let events = events(ranks, |world| {
                stream!(let s = world.stream()?);
                let usual = Choice::on(&s);
                let scan = choice.unwrap_or(usual.scan);
                let mut ends = Scan::open_with(&s, "ends", 1, Op::Sum, Choice { scan, ..usual })?;
                let mut x = Region::from_slice(&world, &[1_u64])?.on(&s)?;
                ends.enqueue(&s, &mut x)?;
                assert_eq!(x.into_host(&s)?[0], world.rank() as u64 + 1);
                Ok(())
            });
            for (rank, events) in events.iter().enumerate() {
                let higher = ranks - 1 - rank;
                let targets = if choice.is_some() {
                    higher
                } else {
                    higher.min(1)
                };
                assert_eq!(sent(events), 8 * targets as u64, "rank {rank} of {ranks}");
            }
        }
    }
}

/// Each call of a kernel that owns halves has its legs, with the line of the launch. The host has enqueued the kernel,
/// and the two batches behind it.
#[test]
fn the_epochs_of_a_kernel_are_seen() {
    const EPOCHS: usize = 5;
    let all = events(2, |world| {
        let other = 1 - world.rank();
        stream!(let s = world.stream()?);
        let mut window = SlotWindow::<u64>::new("halo");
        window.slot_from(other, 0, 8);
        let to = window.slot_to(other, 0);
        let (mut inbox, mut outbox) = window.open(&s)?;
        let kernel = move |mut inbox: KernelInbox<'_, u64>, mut outbox: KernelOutbox<'_, u64>| {
            for _ in 0..EPOCHS {
                let exposed = inbox.post();
                let mut epoch = outbox.start();
                epoch.put(to, 0, &[1; 8]);
                outbox = epoch.complete();
                inbox = exposed.wait();
            }
        };
        s.launch(kernel, (inbox.lend(), outbox.lend()))?;
        s.synchronize()
    });
    for events in all {
        let told = Told::of(&events);
        assert_eq!((told.kernels.len(), told.ran.len()), (1, 1));
        let calls = told.enqueued.keys().map(|batch| told.declared[batch].call);
        assert_eq!(calls.collect::<Vec<_>>(), [EpochCall::Close; 2]);
        for call in [
            EpochCall::Post,
            EpochCall::Open,
            EpochCall::Complete,
            EpochCall::Wait,
        ] {
            let mut declared = told.declared.values().filter(|each| each.call == call);
            let batch = declared.next().unwrap();
            assert!(batch.site.contains("observe.rs"), "{batch:?}");
            let legs: Vec<_> = (told.legs.iter())
                .filter(|leg| leg.batch == batch.batch)
                .collect();
            assert_eq!(legs.len(), EPOCHS, "{call}");
            if matches!(call, EpochCall::Open | EpochCall::Wait) {
                assert!(
                    legs.iter().map(|leg| leg.epoch).eq(0..EPOCHS as u64),
                    "{call}"
                );
            }
        }
    }
}
