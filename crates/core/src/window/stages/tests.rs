//! A stage must send what the stream has copied with it, however puts are cut.

use std::panic::Location;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_hal::batch::{QUANTUM, Step};
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{
    Atomics, Connection, Key, Memory, Nic, NicError, NicQueue, Prepared, Program, QueueConfig,
    Registration, RemoteMemory, Transfer,
};
use tidegate_host::{Host, HostMover};
use tidegate_loopback::Loopback;
use tidegate_words::Mover as _;

use super::super::edge::{Edge, Staging};
use super::super::note::{What, lower_note};
use super::super::programs::staged_transfers;
use super::super::{Buffers, BySlot, Inbox, Outbox, SlotWindow};
use super::*;
use crate::error::SlotName;
use crate::random::Rng;
use crate::{Layout, On, Region, Result, Route, Stream, World, WorldOptions};

fn ptr(bytes: &mut [u8]) -> Ptr {
    Ptr(bytes.as_mut_ptr())
}

/// A slot of so many elements, with its staging at `base`.
fn edge(lane: usize, base: Ptr, offset: usize, len: usize) -> Edge {
    Edge {
        lane,
        base: Ptr::NULL,
        offset,
        by_nic: true,
        landing: None,
        staging: Some(Staging { base, flip: 0 }),
        layout: None,
        flip: 0,
        buffers: 2,
        len,
        taken: 0,
        name: Box::new(SlotName {
            what: "slot",
            rank: lane,
            key: Some(0),
            index: 0,
            declared: Location::caller(),
        }),
    }
}

fn put(edge: u32, first: usize, count: usize) -> Note<Host> {
    Note {
        what: What::Put,
        edge,
        first,
        count,
        local: (Ptr::NULL, 0),
        local_layout: None,
        remote_layout: None,
    }
}

/// A nest of loops over at least one element, which never reaches below 0.
fn nest(rng: &mut Rng, most: usize) -> Layout<Host> {
    let mut loops = Vec::new();
    let (mut count, mut low) = (1, 0);
    for _ in 0..rng.within(1..=4) {
        let turns = rng.within(1..=(most / count).clamp(1, 12));
        let stride = rng.within(0..=12) as i32 - 4;
        count *= turns;
        low += (stride.min(0) * (turns as i32 - 1)).unsigned_abs() as usize;
        loops.push((turns as u32, stride));
    }
    Layout::strided(low + rng.below(3), &loops).unwrap()
}

/// Puts to two targets, the first of which has two slots. The sources lie in `source`.
struct Case {
    edges: Vec<Edge>,
    notes: Vec<Note<Host>>,
}

const LEN: usize = 600;
/// The number of elements of a source.
const SOURCE: usize = 4096;

fn case(world: &World<Host>, rng: &mut Rng, size: usize, staging: Ptr, source: Ptr) -> Case {
    let base = |index: usize| staging.byte_add(index * LEN * size);
    let edges = vec![
        edge(0, base(0), 1 << 20, LEN),
        edge(1, base(1), 2 << 20, LEN),
        edge(0, base(2), 3 << 20, LEN),
    ];
    let mut notes = Vec::new();
    for index in [0, 1, 2] {
        let mut first = 0;
        while first < LEN - 60 && rng.below(8) != 0 {
            first += rng.below(3) * rng.below(9);
            let most = rng.within(1..=LEN - first);
            let mut note = put(index, first, rng.within(1..=most));
            match rng.below(5) {
                0 | 1 => note.local_layout = Some(nest(rng, most)),
                2 => {
                    let any: Vec<_> = (0..note.count).map(|_| rng.below(SOURCE) as u32).collect();
                    note.local_layout = Some(Layout::indexed(world, &any).unwrap());
                }
                _ => {}
            }
            if let Some(layout) = &note.local_layout {
                note.count = layout.count();
            }
            let mut reach = note.count;
            if 2 * note.count <= most && rng.below(4) == 0 {
                let scattered = Layout::strided(0, &[(note.count as u32, 2)]).unwrap();
                reach = scattered.extent();
                note.remote_layout = Some(scattered);
            }
            let extent = note
                .local_layout
                .as_ref()
                .map_or(note.count, Layout::extent);
            let beyond = rng.below(SOURCE + 1 - extent);
            note.local = (source.byte_add(beyond * size), 1);
            first += reach;
            notes.push(note);
        }
    }
    // The puts are in random order.
    for index in (1..notes.len()).rev() {
        notes.swap(index, rng.below(index + 1));
    }
    Case { edges, notes }
}

#[test]
fn what_a_stage_sends_has_been_copied_with_it() {
    let (parted, cases) = (AtomicU64::new(0), 600);
    World::<Host>::local(1, |world| {
        for seed in 0..cases {
            let rng = &mut Rng::new(seed);
            let size = [1, 2, 4, 8, 12, 24][rng.below(6)];
            let mut source: Vec<u8> = (0..SOURCE * size).map(|_| rng.below(256) as u8).collect();
            // Bytes that no put writes differ between the two.
            let mut whole = vec![0xaau8; 3 * LEN * size];
            let mut copied = vec![0x55u8; 3 * LEN * size];
            let staging = ptr(&mut copied);
            let Case { edges, notes } = case(&world, rng, size, staging, ptr(&mut source));
            let chunks =
                Chunks::of(rng.within(1..=200) * rng.within(1..=size)).from(rng.below(2000));
            let remote = RemoteMemory(Arc::new(()));
            let lower = |piece: &StagePart<'_, Host>| {
                let edge = &edges[piece.note.edge as usize];
                cut(lower_note(piece.note, edge, Ptr::NULL, size), piece)
            };
            // The result without chunks.
            let to_first = |note: &&Note<Host>| edges[note.edge as usize].lane == 0;
            let notes: Vec<_> = notes.iter().filter(to_first).collect();
            let uncut = stages(&notes, size, Chunks::NEVER);
            assert_eq!(uncut.len(), 1);
            for piece in &uncut[0] {
                let mut mv = lower(piece);
                let into = mv.dst.base.0.addr() - staging.0.addr();
                mv.dst.base = ptr(&mut whole[into..]);
                // SAFETY: both sides lie in these vectors: slots have room for their puts, and the source has what they
                // send.
                unsafe { HostMover.carry(&mv) };
            }
            let sent_uncut = staged_transfers(&uncut, &edges, &remote, size);
            let stages = stages(&notes, size, chunks);
            let sent = staged_transfers(&stages, &edges, &remote, size);
            assert!(sent.iter().all(|one| (one.stage as usize) < stages.len()));
            parted.fetch_add(u64::from(stages.len() > 1), Ordering::Relaxed);
            // The bytes of a transfer.
            let place = |one: &Transfer| {
                let from = one.local.base.0.addr() - staging.0.addr();
                let there = edges[from / (LEN * size)].offset + from % (LEN * size);
                assert_eq!(one.remote.base.offset, there, "seed {seed}");
                assert_eq!(
                    (one.local.shape, one.remote.shape),
                    (Shape::Linear, Shape::Linear)
                );
                from..from + one.count * size
            };
            for (index, stage) in stages.iter().enumerate() {
                for piece in stage {
                    // SAFETY: as above.
                    unsafe { HostMover.carry(&lower(piece)) };
                }
                for one in sent.iter().filter(|one| one.stage as usize == index) {
                    let place = place(one);
                    // SAFETY: the vector is alive, and nothing writes it now. (Moves write it by its address, so it is
                    // not borrowed elsewhere.)
                    let now = unsafe { std::slice::from_raw_parts(staging.0, 3 * LEN * size) };
                    assert_eq!(
                        now[place.clone()],
                        whole[place],
                        "seed {seed}: stage {index}"
                    );
                }
            }
            // Everything is sent exactly once.
            let bytes = |sent: &[Transfer]| {
                let mut bytes: Vec<usize> = sent.iter().flat_map(&place).collect();
                bytes.sort_unstable();
                bytes
            };
            assert_eq!(bytes(&sent), bytes(&sent_uncut), "seed {seed}");
        }
    });
    let parted = parted.into_inner();
    assert!(parted > cases / 3, "{parted} of {cases} were cut");
}

/// How many elements the pieces of each stage have.
fn counts(notes: &[Note<Host>], size: usize, chunks: Chunks) -> Vec<Vec<usize>> {
    let notes: Vec<_> = notes.iter().collect();
    let stages = stages(&notes, size, chunks);
    let counts = stages
        .iter()
        .map(|stage| stage.iter().map(|piece| piece.count).collect());
    counts.collect()
}

#[test]
fn stages_are_of_about_a_chunk() {
    let (kib, chunks) = (1024, Chunks::of(256 << 10));
    let linear = |bytes: usize| counts(&[put(0, 0, bytes / 8)], 8, chunks);
    // Small puts are not cut.
    assert_eq!(linear(8), [[1]]);
    assert_eq!(linear(512 * kib - 8), [[64 * kib - 1]]);
    assert_eq!(linear(512 * kib), [[32 * kib], [32 * kib]]);
    assert_eq!(linear(1024 * kib), [[32 * kib]; 4]);
    // The pieces are even, and no small one remains at the end.
    assert_eq!(linear(512 * kib + 8), [[32 * kib + 16], [32 * kib - 15]]);
    assert_eq!(linear(700 * kib), [[44_800], [44_800]]);
    // Elements of any size can be cut; neighbours stay together.
    let odd = counts(&[put(0, 0, 100_000)], 12, chunks);
    assert_eq!(odd, [[25_008], [25_008], [25_008], [24_976]]);
    assert_eq!(counts(&[put(0, 0, 5)], 300 * kib, chunks), [[1]; 5]);
    // With several puts, a stage is full when it has a chunk. A small rest goes with the last stage.
    let eight: Vec<_> = (0..8).map(|at| put(0, at * 12_800, 12_800)).collect();
    assert_eq!(
        counts(&eight, 8, chunks),
        [vec![12_800; 3], vec![12_800; 3], vec![12_800; 2]]
    );
    let pair = [put(0, 0, 64 * kib), put(0, 64 * kib, 3)];
    assert_eq!(
        counts(&pair, 8, chunks),
        [vec![32 * kib], vec![32 * kib, 3]]
    );
    // In the other order, the first stage has both.
    let pair = [put(0, 64 * kib, 3), put(0, 0, 64 * kib)];
    assert_eq!(
        counts(&pair, 8, chunks),
        [vec![3, 32 * kib], vec![32 * kib]]
    );
    // Very large data gets longer chunks.
    let much = linear(1 << 30);
    assert_eq!((much.len(), much[0][0]), (256, 512 * kib));
    assert!(counts(&[put(0, 0, 1 << 40)], 1, Chunks::of(1)).len() <= 257);
    assert_eq!(counts(&[put(0, 0, 7)], 1, Chunks::of(1)), [[1]; 7]);
    // The chunks that were asked for, or the default.
    let best = |bytes: usize| counts(&[put(0, 0, bytes / 8)], 8, Chunks::default()).len();
    assert_eq!([2048 * kib - 8, 2048 * kib].map(best), [1, 2]);
    assert_eq!(counts(&[put(0, 0, 1 << 20)], 8, Chunks::NEVER), [[1 << 20]]);
    let later = chunks.from(1 << 20);
    assert_eq!(counts(&[put(0, 0, 1 << 16)], 8, later), [[1 << 16]]);
    assert_eq!(counts(&[put(0, 0, 1 << 17)], 8, later), [[1 << 15]; 4]);
}

#[test]
fn nests_are_cut_at_turns_of_a_loop() {
    let sent = |loops: &[(u32, i32)]| {
        let layout = Layout::strided(0, loops).unwrap();
        let mut note = put(0, 0, layout.count());
        note.local_layout = Some(layout);
        note
    };
    let cut = |loops: &[(u32, i32)], bytes| counts(&[sent(loops)], 8, Chunks::of(bytes));
    // Planes of a cube are cut between rows.
    assert_eq!(cut(&[(100, 1), (40, 500)], 8000), [[1000]; 4]);
    // Each row that is too long is cut itself.
    let long = cut(&[(4000, 1), (2, 5000)], 8000);
    assert_eq!(long, [[1008], [1008], [1008], [976]].repeat(2));
    // A piece does not reach beyond its row.
    assert_eq!(cut(&[(1100, 1), (3, 5000)], 8000), [[1100]; 3]);
    // A put that is scattered into its slot is not cut.
    let mut scattered = put(0, 0, 4000);
    scattered.remote_layout = Some(Layout::strided(0, &[(4000, 2)]).unwrap());
    assert_eq!(counts(&[scattered], 8, Chunks::of(8000)), [[4000]]);
}

/// A NIC that says it takes rings in parts (and waits for whole rings, as it may), and notes its programs.
struct Parted {
    nic: Loopback,
    noted: Arc<Mutex<Vec<Vec<u32>>>>,
}

struct PartedQueue {
    queue: Arc<dyn NicQueue>,
    noted: Arc<Mutex<Vec<Vec<u32>>>>,
}

// SAFETY: the other queue does everything.
unsafe impl NicQueue for PartedQueue {
    unsafe fn prepare(&self, program: Program) -> Result<Prepared, NicError> {
        let stages = program.transfers.iter().map(|transfer| transfer.stage);
        self.noted.lock().unwrap().push(stages.collect());
        // SAFETY: the caller promises the same.
        unsafe { self.queue.prepare(program) }
    }

    fn arm(&self, programs: &Arc<[Prepared]>, times: u64) -> Result<(), NicError> {
        self.queue.arm(programs, times)
    }

    fn counts(&self) -> (u64, u64) {
        self.queue.counts()
    }

    fn takes_parts(&self) -> bool {
        true
    }
}

// SAFETY: the other NIC does everything.
unsafe impl Nic for Parted {
    fn name(&self) -> &'static str {
        self.nic.name()
    }

    fn atomics(&self) -> Atomics {
        self.nic.atomics()
    }

    fn address(&self) -> Vec<u8> {
        self.nic.address()
    }

    unsafe fn register(&self, memory: Memory<'_>) -> Result<Registration, NicError> {
        // SAFETY: the caller promises the same.
        unsafe { self.nic.register(memory) }
    }

    unsafe fn connect(&self, connection: Connection) -> Result<(), NicError> {
        // SAFETY: the caller promises the same.
        unsafe { self.nic.connect(connection) }
    }

    fn import(&self, peer: usize, key: Key, bytes: usize) -> Result<RemoteMemory, NicError> {
        self.nic.import(peer, key, bytes)
    }

    unsafe fn queue(&self, peer: usize, to: QueueConfig) -> Result<Arc<dyn NicQueue>, NicError> {
        // SAFETY: the caller promises the same.
        let queue = unsafe { self.nic.queue(peer, to) }?;
        let noted = self.noted.clone();
        Ok(Arc::new(PartedQueue { queue, noted }))
    }

    fn budget(&self) -> usize {
        self.nic.budget()
    }

    fn armed(&self) -> usize {
        self.nic.armed()
    }

    fn await_armed(&self, most: usize, limit: Duration) -> usize {
        self.nic.await_armed(most, limit)
    }

    fn quiesce(&self, limit: Duration) -> bool {
        self.nic.quiesce(limit)
    }
}

/// The steps of a lane, abbreviated.
fn names(steps: &[Step]) -> String {
    let name = |step: &Step| match step {
        Step::Wait(_) => "wait".to_owned(),
        Step::Move(mv) => format!("move {}", mv.count),
        Step::Add(add) if add.value == QUANTUM => "ring".to_owned(),
        Step::Add(add) => format!("part {}", add.value),
        Step::Pull(_) | Step::Check(_) | Step::Flush | Step::Store(_) => "?".to_owned(),
    };
    steps.iter().map(name).collect::<Vec<_>>().join(", ")
}

const LEN_OF_SLOT: usize = 512;

type Halves<'s> = (
    Inbox<'s, u64, Host, BySlot>,
    Outbox<'s, u64, Host, BySlot>,
    Region<u64, On<'s, Host>>,
);

/// Puts the first `len` elements of a region that counts the steps to this rank itself.
fn step<'s>(s: &Stream<'s, Host>, halves: Halves<'s>, len: usize) -> Result<Halves<'s>> {
    let (inbox, outbox, mut src) = halves;
    s.launch(|x: &mut [u64]| x.iter_mut().for_each(|x| *x += 1), &mut src)?;
    let exposed = inbox.post(s)?;
    let to = outbox.slots().next().expect("there is one");
    let mut epoch = outbox.start();
    epoch.put(src.slice(0..len)?, to)?;
    let outbox = epoch.complete(s)?;
    Ok((exposed.wait(s)?, outbox, src))
}

fn long_step<'s>(s: &Stream<'s, Host>, halves: Halves<'s>) -> Result<Halves<'s>> {
    step(s, halves, LEN_OF_SLOT)
}

/// From the program to the NIC: a lane rings between its moves if the engine takes that. The result is the same, eager
/// and replayed.
#[test]
fn lanes_ring_between_their_moves_where_that_is_of_use() {
    for (takes, buffers) in [
        (true, Buffers::Single),
        (true, Buffers::Double),
        (false, Buffers::Double),
    ] {
        let noted = Arc::<Mutex<Vec<Vec<u32>>>>::default();
        let options = |_| {
            let nic = Loopback::default();
            let noted = noted.clone();
            let options = match takes {
                true => WorldOptions::new().nic(Parted { nic, noted }),
                false => WorldOptions::new().nic(nic),
            };
            let chunks = Chunks::of(1024).from(3000);
            options.route(Route::Nic).staged().chunks(chunks)
        };
        World::local_with(1, options, |world: World<Host>| {
            crate::stream!(let s = world.stream().unwrap());
            let mut window = SlotWindow::<u64>::new("w").buffers(buffers);
            let from = window.slot_from(0, 0, LEN_OF_SLOT);
            window.slot_to(0, 0);
            let (inbox, outbox) = window.open(&s).unwrap();
            let src = Region::<u64, _>::zeroed(&world, LEN_OF_SLOT).unwrap();
            let mut halves = (inbox, outbox, src.on(&s).unwrap());
            for (len, value) in [(LEN_OF_SLOT, 1), (300, 2), (LEN_OF_SLOT, 3)] {
                halves = step(&s, halves, len).unwrap();
                let slots = halves.0.read(&s).unwrap();
                assert!(
                    slots.slot(from)[..len].iter().all(|x| *x == value),
                    "{value}"
                );
            }
            let (graph, back) = s.capture(halves, long_step).unwrap();
            halves = graph.replay(&s, back, 5).unwrap();
            let slots = halves.0.read(&s).unwrap();
            assert!(slots.slot(from).iter().all(|x| *x == 8));
            let batches = halves.1.held.plans.batches();
            let lanes: Vec<_> = batches
                .map(|batch| names(batch.steps(batch.lanes()[0])))
                .collect();
            let (long, programs) = match takes {
                true => (
                    "wait, wait, move 128, part 1, move 128, part 1, move 128, part 1, move 128, part 1048573",
                    vec![vec![0, 1, 2, 3], vec![0]],
                ),
                false => ("wait, wait, move 512, ring", Vec::new()),
            };
            // There are two plans, however often they are used. The short one is not cut.
            assert_eq!(lanes, [long, "wait, wait, move 300, ring"]);
            let noted = noted.lock().unwrap();
            // Posts have no transfers.
            let puts: Vec<_> = noted.iter().filter(|one| !one.is_empty()).collect();
            assert_eq!(puts, programs.iter().collect::<Vec<_>>());
        });
    }
}
