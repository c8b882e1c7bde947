//! Peers behind a NIC. The data that it sends and gets is staged in pinned memory, and its agent polls the doorbells.
//! Or streams store to its registers themselves: a register is in a page of ordinary memory here, which a fake card
//! looks at.

use std::time::{Duration, Instant};

use super::common::{I, O, ranks_with};
use super::epochs::{layouts_with, ring_with};
use super::sums::small_sums_with;
use crate::common::signals;
use crate::vendor::gpu::STRIKES;
use crate::vendor::prelude::*;
use tidegate::fabric::wire::libfabric::{Choice, FabricWire};
use tidegate::fabric::{Fabric, Options};
use tidegate::{Chunks, Route, WorldOptions};
use tidegate_fake::wire::{Faults, Net};
use tidegate_fake::{Card, Config};

const BOTH: [Buffers; 2] = [Buffers::Single, Buffers::Double];

/// Rings, all over the wire or with a neighbour that is mapped.
fn rings(
    wire: impl Fn(usize) -> Box<dyn Fn(usize) -> WorldOptions + Sync>,
    lens: &[usize],
    rounds: u64,
) {
    for n in [1, 2, 3] {
        for buffers in BOTH {
            for (index, len) in lens.iter().enumerate() {
                let nic = wire(n);
                let options = |rank: usize| match index % 2 {
                    0 => nic(rank).route(Route::Nic),
                    // A rank that is reached by the NIC from one side is so from the other.
                    _ => nic(rank).route(Route::NicTo([(rank + 1) % n].into())),
                };
                ring_with(n, options, buffers, *len, rounds);
            }
        }
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn rings_over_a_wire_in_memory() {
    let faults = Faults {
        full: 100,
        delay: 3,
        ..Faults::default()
    };
    let wire = |n: usize| -> Box<dyn Fn(usize) -> WorldOptions + Sync> {
        let net = Net::new(n, faults.clone());
        let nic = move |rank| Fabric::over(net.wire(rank), Options::default());
        Box::new(move |rank| WorldOptions::new().nic(nic(rank)))
    };
    rings(wire, &[1, 31, 600, 5_000, 200_000], 8);
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn rings_over_libfabric() {
    let wire = |_| -> Box<dyn Fn(usize) -> WorldOptions + Sync> {
        Box::new(|_| {
            let choice = Choice::at("127.0.0.1").provider("tcp;ofi_rxm");
            let wire = FabricWire::open(&choice).unwrap();
            WorldOptions::new().nic(Fabric::over(wire, Options::default()))
        })
    };
    rings(wire, &[1, 600, 30_000, 1_000_003], 6);
}

/// All ranks are far; or only rank 0 is far from the others, as if on a node of its own.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn signals_without_data_and_barriers() {
    for n in [1, 2, 4] {
        for all in [true, false] {
            let net = Net::new(n, Faults::default());
            let nic = |rank: usize| {
                let nic = Fabric::over(net.wire(rank), Options::default());
                let world = WorldOptions::new().nic(nic);
                match (all, rank) {
                    (true, _) | (false, 0) => world.route(Route::Nic),
                    _ => world.route(Route::NicTo([0].into())),
                }
            };
            for result in ranks_with(n, nic, |world, _| signals::run(&world)) {
                result.unwrap();
            }
        }
    }
    let over_libfabric = |_| {
        let choice = Choice::at("127.0.0.1").provider("tcp;ofi_rxm");
        let wire = FabricWire::open(&choice).unwrap();
        let nic = Fabric::over(wire, Options::default());
        WorldOptions::new().nic(nic).route(Route::Nic)
    };
    for result in ranks_with(2, over_libfabric, |world, _| signals::run(&world)) {
        result.unwrap();
    }
}

/// Rings in parts. The agent sees some parts before the rest has come: by a warp, and by a block.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn rings_in_chunks() {
    let faults = Faults {
        full: 100,
        delay: 3,
        ..Faults::default()
    };
    for chunk in [512, 16 << 10] {
        let wire = |n: usize| -> Box<dyn Fn(usize) -> WorldOptions + Sync> {
            let net = Net::new(n, faults.clone());
            let nic = move |rank| Fabric::over(net.wire(rank), Options::default());
            Box::new(move |rank| {
                let world = WorldOptions::new().nic(nic(rank));
                world.chunks(Chunks::of(chunk))
            })
        };
        rings(wire, &[400, 5_000, 200_003], 6);
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_budget_of_two_holds_nothing_up() {
    let net = Net::new(2, Faults::default());
    let nic = |rank| {
        let options = Options::default().budget(2);
        WorldOptions::new()
            .nic(Fabric::over(net.wire(rank), options))
            .route(Route::Nic)
    };
    ring_with(2, nic, Buffers::Double, 5_000, 8);
}

/// A window is opened while a stream of the same GPU waits. No step of that may block behind the wait.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_window_is_made_while_a_stream_waits() {
    let net = Net::new(2, Faults::default());
    made_while_a_stream_waits(|rank| {
        WorldOptions::new()
            .nic(Fabric::over(net.wire(rank), Options::default()))
            .route(Route::Nic)
    });
}

fn made_while_a_stream_waits(nic: impl Fn(usize) -> WorldOptions + Sync) {
    ranks_with(2, nic, |world, k| {
        let rank = world.rank();
        stream!(let s = world.stream().unwrap());
        stream!(let t = world.stream().unwrap());
        let open = |name: &str, len: usize| {
            let mut window = SlotWindow::<u64>::new(name);
            let to = match rank {
                0 => {
                    window.slot_from(1, 0, len);
                    None
                }
                _ => Some(window.slot_to(0, 0)),
            };
            (window, to)
        };
        let (first, to) = open("first", 8);
        let first = first.buffers(Buffers::Single);
        let (inbox, outbox): (I<u64>, O<u64>) = first.open(&s).unwrap();
        let src = Region::<u64, _>::zeroed(&world, 8).unwrap().on(&s).unwrap();
        // Rank 1 waits for an exposure that comes later.
        let mut outbox = Some(outbox);
        if let Some(to) = to {
            let mut epoch = outbox.take().unwrap().start();
            epoch.put(&src, to).unwrap();
            outbox = Some(epoch.complete(&s).unwrap());
        }
        std::thread::sleep(Duration::from_millis(100));
        let begin = Instant::now();
        let second = open("second", 100_000).0.open(&t).unwrap();
        let mut x = Region::<u64, _>::zeroed(&world, 8).unwrap().on(&t).unwrap();
        t.launch(k.count.threads(8, 32), (&mut x, 1u64)).unwrap();
        x.into_host(&t).unwrap();
        let took = begin.elapsed();
        assert!(took < Duration::from_secs(60), "{took:?}");
        world.all_gather("made", Vec::new()).unwrap();
        let mut inbox = Some(inbox);
        if rank == 0 {
            let exposed = inbox.take().unwrap().post(&s).unwrap();
            inbox = Some(exposed.wait(&s).unwrap());
        }
        s.synchronize().unwrap();
        drop((inbox, outbox, second));
    });
}

/// A card whose registers are memory: of two stores at the same time it sees one. So slots have one buffer here. Then a
/// stream that rings a doorbell waits, before the next ring, for the result of the last.
fn card(data: bool, pages: bool) -> Card {
    Card::new(Config {
        data,
        pages,
        plain: true,
        ..Config::default()
    })
}

fn on(card: &Card) -> WorldOptions {
    let wire = FabricWire::open_by(&tidegate_fake::library(), &Choice::at(card.name())).unwrap();
    WorldOptions::new()
        .nic(Fabric::over(wire, Options::default()))
        .route(Route::Nic)
}

/// A ring over a card. Returns how many stores its registers got, and how often doorbells were rung.
fn ring_over(card: &Card, n: usize, len: usize) -> (u64, u64) {
    let steps = ring_with(n, |_| on(card), Buffers::Single, len, 8);
    assert_eq!(card.complaints(), [""; 0]);
    // The mapping of a page is dropped when the GPU's registration has ended, as the last stream ends.
    let begin = Instant::now();
    while !card.open().is_empty() {
        let left = card.open();
        assert!(begin.elapsed() < Duration::from_secs(60), "left: {left:?}");
        std::thread::sleep(Duration::from_millis(1));
    }
    // There is a post and a complete for each neighbour; with two ranks each has one neighbour.
    let neighbours = if n > 2 { 2 } else { 1 };
    (card.strikes(), n as u64 * steps * 2 * neighbours)
}

/// From the stream's store to the peer's signal there is no software of this library, except for the card. Each ring,
/// eager or replayed, by a warp or several blocks, stores once, and the result is right.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn streams_strike_a_card_once_for_each_ring() {
    for n in [1, 2, 3] {
        for data in [true, false] {
            for len in [1, 31, 600, 5_000, 100_000] {
                let (strikes, rings) = ring_over(&card(data, true), n, len);
                assert_eq!(
                    strikes, rings,
                    "{n} ranks, {len} elements, by notices: {data}"
                );
            }
        }
    }
}

/// The same without registers: an agent sees the doorbells, and stores.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn an_agent_strikes_a_card_without_registers() {
    for data in [true, false] {
        let (strikes, rings) = ring_over(&card(data, false), 2, 600);
        assert!(strikes == 0 && rings > 0);
    }
}

/// If the GPU cannot reach registers, or must not, an agent stores as well. (It must not in a process of its own.)
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn an_agent_strikes_where_streams_may_not() {
    if std::env::var(STRIKES).is_ok_and(|value| value == "no") {
        let (strikes, rings) = ring_over(&card(true, true), 2, 600);
        assert!(strikes == 0 && rings > 0);
        return;
    }
    let name = "gpu::nic::an_agent_strikes_where_streams_may_not";
    let again = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--ignored"])
        .env(STRIKES, "no")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&again.stdout);
    assert!(
        again.status.success() && said.contains("1 passed"),
        "{said}"
    );
}

/// Mapping a register does not block behind a wait either.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_window_whose_registers_are_mapped_is_made_while_a_stream_waits() {
    let card = card(true, true);
    made_while_a_stream_waits(|_| on(&card));
    // One post and one complete.
    assert_eq!(card.strikes(), 2);
}

/// Ranges of far origins have copies in pinned memory. What is put comes to the elements, and what is not put stays as
/// the target's kernels have left it.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn ranges_are_put_behind_a_nic() {
    let faults = Faults {
        full: 100,
        delay: 3,
        ..Faults::default()
    };
    for len in [1, 33, 5_000, 700_000] {
        let net = Net::new(2, faults.clone());
        let nic = |rank| {
            WorldOptions::new()
                .nic(Fabric::over(net.wire(rank), Options::default()))
                .route(Route::Nic)
        };
        ranks_with(2, nic, |world, k| {
            let other = 1 - world.rank();
            stream!(let s = world.stream().unwrap());
            let mut window = RangeWindow::<u64>::new("ranges", len);
            let to = window.range_to(other, 0..len);
            let (mut inbox, mut outbox) = window.open(&s).unwrap();
            let values = vec![100 + world.rank() as u64; len];
            let src = Region::from_slice(&world, &values).unwrap().on(&s).unwrap();
            let mut seen = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
            let came = 100 + other as u64;
            // Each epoch puts from this element on. Before it, the target has counted its first element up.
            for (first, expected) in [(1, 1), (0, came), (1, came + 1), (len, came + 2), (0, came)]
            {
                let tick = k.tick.threads(1, 32);
                s.launch(tick, (inbox.memory_mut(),)).unwrap();
                let exposed = inbox.post(&s).unwrap();
                let mut epoch = outbox.start();
                if first < len {
                    let some = src.slice(0..len - first).unwrap();
                    epoch.put(some, to.at(first)).unwrap();
                }
                outbox = epoch.complete(&s).unwrap();
                inbox = exposed.wait(&s).unwrap();
                let look = k.produce.threads(1, 32);
                s.launch(look, (&mut seen, inbox.memory_mut(), 1u64))
                    .unwrap();
                let host = seen.into_host(&s).unwrap();
                let mut found = [0];
                host.read(0, &mut found).unwrap();
                assert_eq!(found, [expected], "{len} elements, put from {first} on");
                seen = host.on(&s).unwrap();
            }
        });
    }
}

/// Gets, accumulates, and layouts of a far target's memory: what NICs access is a copy of it in pinned memory.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn ranges_and_layouts_are_all_that_they_are_nearby() {
    let faults = Faults {
        full: 100,
        delay: 3,
        ..Faults::default()
    };
    let (two, three) = (Net::new(2, faults.clone()), Net::new(3, faults));
    let nic =
        |net: &Net, rank| WorldOptions::new().nic(Fabric::over(net.wire(rank), Options::default()));
    layouts_with(|rank| nic(&two, rank).route(Route::Nic));
    small_sums_with(|rank| nic(&three, rank).route(Route::Nic));
    // Rank 0 is far, as if on a node of its own.
    small_sums_with(|rank| match rank {
        0 => nic(&three, rank).route(Route::Nic),
        _ => nic(&three, rank).route(Route::NicTo([0].into())),
    });
}

/// Long gets and accumulates, whose copies are worth a copy engine.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn long_ranges_are_got_and_accumulated_behind_a_nic() {
    const LEN: usize = 700_000;
    let net = Net::new(2, Faults::default());
    let nic = |rank| {
        let nic = Fabric::over(net.wire(rank), Options::default());
        WorldOptions::new().nic(nic).route(Route::Nic)
    };
    ranks_with(2, nic, |world, k| {
        let (rank, other) = (world.rank() as u64, 1 - world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = RangeWindow::<u64>::new("long", LEN);
        let there = window.range_to(other, 0..LEN);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let count = k.count.threads(LEN, 128);
        s.launch(count, (inbox.memory_mut(), rank << 40)).unwrap();
        let sevens = Region::from_slice(&world, &vec![7u64; LEN]).unwrap();
        let sevens = sevens.on(&s).unwrap();
        for round in 0..3 {
            let mut got = Region::zeroed(&world, LEN).unwrap().on(&s).unwrap();
            let mut epoch = outbox.start();
            epoch.get(&mut got, there).unwrap();
            (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
            let mut epoch = outbox.start();
            epoch.accumulate(&sevens, there, Op::Sum).unwrap();
            (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
            let expected = |at: usize| ((other as u64) << 40) + at as u64 + 7 * round;
            let mut found = vec![0; LEN];
            got.into_host(&s).unwrap().read(0, &mut found).unwrap();
            assert!((0..LEN).all(|at| found[at] == expected(at)), "{round}");
        }
        drop((inbox, outbox));
    });
}

/// Windows that cannot be staged are refused by all ranks.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn atomics_are_refused_behind_a_nic() {
    let net = Net::new(2, Faults::default());
    let nic = |rank| {
        WorldOptions::new()
            .nic(Fabric::over(net.wire(rank), Options::default()))
            .route(Route::Nic)
    };
    ranks_with(2, nic, |world, _| {
        stream!(let s = world.stream().unwrap());
        let mut atomic = AtomicWindow::<u64>::new("counters", 64);
        atomic.target(1 - world.rank());
        let error = atomic.open(&s).err().unwrap().to_string();
        assert!(error.contains("atomic windows cannot use"), "{error}");
    });
}
