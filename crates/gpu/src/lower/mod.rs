//! From batches to programs of the batch kernel.
//!
//! # Model
//!
//! A lane that moves little or nothing is carried out by a warp. A lane that moves much is carried out by several
//! blocks. Blocks are scarce: all blocks that may wait at a time, of all streams of the device, must be resident, and
//! must leave room for the kernels that others wait for. So a stream has a *quota* of blocks. The lanes that move much
//! divide the blocks that are left by the amount of data.
//!
//! # Failure
//!
//! A batch with more lanes than the quota can hold at a time is refused, because no lane may wait for another to end.

pub(crate) mod apart;
mod blocks;
pub(crate) mod folds;
pub(crate) mod landings;
mod lane;
#[allow(
    missing_docs,
    reason = "only tests of the vendors' crates see it; `kernels/batch_layout.cuh` explains the fields"
)]
pub mod layout;
mod lists;
mod moves;
pub(crate) mod operands;
pub(crate) mod parts;
#[cfg(test)]
#[path = "../../../../tests/common/random.rs"]
mod random;
mod reductions;
mod rows;
mod short;
mod turns;

pub(crate) use layout::*;

use tidegate_hal::batch::{Action, Batch, QUANTUM, Shape, Step};
use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::Ptr;

pub(crate) use lane::Sizes;
use lane::{Lane, MOST_LISTED};
use lists::List;
use turns::Turns;

/// A batch, lowered.
pub(crate) struct Program {
    /// The bytes to be placed in device memory: a record for each block, the steps of all lanes, and the counters,
    /// which are zero.
    pub(crate) bytes: Vec<u8>,
    /// How many blocks carry it out.
    pub(crate) blocks: usize,
    /// Bytes of a record.
    pub(crate) stride: usize,
    /// Whether the program has lists.
    pub(crate) lists: bool,
    /// Whether it would have lists if they had been allowed.
    pub(crate) divides: bool,
    /// Whether waits share the places for reports, so that not all are seen at once.
    pub(crate) crowded: bool,
    /// Whether a lane reduces. Another kernel carries out such a program.
    pub(crate) reduces: bool,
    /// Offsets in `bytes` of addresses of counters and lists. The program's own address has to be added to these.
    relocations: Vec<usize>,
}

/// What stamps call a batch and its lanes.
#[derive(Debug, Default)]
pub(crate) struct Names {
    batch: u64,
    /// The name of each lane. If it is empty, the lanes have their own numbers.
    lanes: Vec<u32>,
}

impl Names {
    /// Those of a batch.
    pub(crate) fn of(batch: &Batch) -> Self {
        Names {
            batch: batch.id(),
            lanes: Vec::new(),
        }
    }

    /// Those of some lanes of a batch.
    pub(crate) fn of_lanes(batch: &Batch, lanes: Vec<u32>) -> Self {
        Names {
            batch: batch.id(),
            lanes,
        }
    }

    /// Those of a program that is not stamped.
    pub(crate) fn none() -> Self {
        Names::default()
    }

    fn of_lane(&self, number: usize) -> u32 {
        let named = self.lanes.get(number).copied();
        named.unwrap_or(lane_name(number, 0))
    }
}

/// The work of a block.
struct Task {
    record: Record,
    /// The numbers of its lanes.
    lanes: Vec<usize>,
}

impl Program {
    /// Lowers a batch for a stream that may use `quota` blocks of a device with this `wave` width. Its stamps have these
    /// `names`. `lists` says whether the program may have lists.
    /// `count` gives the address in device memory at which a word of the host is counted, and 0 for any other word.
    pub(crate) fn new(
        batch: &Batch,
        names: &Names,
        quota: usize,
        wave: usize,
        lists: bool,
        count: impl FnMut(Ptr) -> Result<u64, DeviceError>,
    ) -> Result<Self, DeviceError> {
        let sizes = Sizes {
            lists: if lists { MOST_LISTED } else { 0 },
            ..Sizes::of_wave(wave)
        };
        Self::sized(batch, names, quota, sizes, count)
    }

    fn sized(
        batch: &Batch,
        names: &Names,
        quota: usize,
        sizes: Sizes,
        mut count: impl FnMut(Ptr) -> Result<u64, DeviceError>,
    ) -> Result<Self, DeviceError> {
        let mut slot = 0;
        let steps = || batch.lanes().iter().map(|lane| batch.steps(*lane));
        let mut lanes = steps()
            .map(|steps| lower(steps, &mut slot, &mut count))
            .collect::<Result<Vec<_>, _>>()?;
        let reduces = lanes.iter().any(|lane| lane.reductions != 0);
        if reduces {
            with_few_forms(&mut lanes)?;
        }
        let full = Sizes {
            lists: MOST_LISTED,
            ..sizes
        };
        let (mut left, mut divides) = (sizes.lists, false);
        // Lanes with shapes come first, since they gain most.
        let shorts = lanes.iter_mut().filter(|_| !reduces);
        let (shaped, linear): (Vec<_>, Vec<_>) = shorts.partition(|lane| lane.shaped);
        for lane in shaped.into_iter().chain(linear) {
            if let Some(landing) = lane.landing {
                lane.short = landing;
                continue;
            }
            let most = |sizes: Sizes| {
                if lane.shaped {
                    sizes.lists
                } else {
                    sizes.lists_of_linear
                }
            };
            (lane.short, lane.lists) = lane.in_short(left.min(most(sizes)));
            left -= lane.lists.entries(lane.short.count);
            let gains = || lane.in_short(most(full)).0.kind & LANE_LISTED != 0;
            divides |= sizes.lists == 0 && lane.short.kind & LANE_LISTED == 0 && gains();
        }
        let quota = quota.min(MAX_BLOCKS) as u64;
        blocks::share_out(&mut lanes, quota, sizes)?;
        for lane in lanes.iter_mut() {
            if lane.blocks != 0 {
                rows::mark(&mut lane.steps);
            } else if lane.lands_on_a_block(sizes) && lane.short.kind & LANE_ADDS != 0 {
                // A warp is faster with a fence.
                (lane.short, lane.landing) = (lane.in_short(0).0, None);
            }
        }
        // The blocks of a lane share its counters.
        let mut counters = 0;
        for lane in lanes.iter_mut().filter(|lane| lane.blocks > 1) {
            lane.counter = counters;
            counters += lane.waits.len();
        }
        let of = |team: u8| {
            (0..lanes.len())
                .filter(|lane| lanes[*lane].team() == team)
                .collect::<Vec<_>>()
        };
        let mut tasks = Vec::new();
        let small = of(TEAM_WARPS);
        let blocks = sizes.small_blocks(small.len(), quota) as usize;
        // Lanes are dealt in turn. Posts, puts and waits stand together in the batch, and lanes that end in a fence
        // should not share a block.
        for first in 0..blocks {
            let lanes: Vec<_> = small.iter().skip(first).step_by(blocks).copied().collect();
            tasks.push(Task::new(TEAM_WARPS, &lanes, 0, 1));
        }
        for lane in of(TEAM_BLOCKS) {
            let blocks = lanes[lane].blocks;
            tasks.extend((0..blocks).map(|index| Task::new(TEAM_BLOCKS, &[lane], index, blocks)));
        }
        let mut program = Self::placed(&lanes, &tasks, counters, names);
        (program.divides, program.reduces) = (divides, reduces);
        program.crowded = slot > MAX_BLOCKED as u32;
        program.lists = left != sizes.lists;
        Ok(program)
    }

    /// Lays out the records, the steps of all lanes, their lists, and the counters.
    fn placed(lanes: &[Lane], tasks: &[Task], counters: usize, names: &Names) -> Self {
        let stride = tasks.iter().map(Task::len).max().unwrap_or(0);
        let mut program = Program {
            bytes: vec![0; tasks.len() * stride],
            blocks: tasks.len(),
            stride,
            lists: false,
            divides: false,
            crowded: false,
            reduces: false,
            relocations: Vec::new(),
        };
        // Counters come behind everything that is only read, each in a cache line of its own.
        let steps = lanes
            .iter()
            .map(|lane| lane.steps.len() + size_of_val(&lane.vectors[..]));
        let mut first = (program.bytes.len() + steps.sum::<usize>()).next_multiple_of(128);
        // The lists that have been written, with their offsets; and the offsets of each lane's lists.
        let mut written = Vec::new();
        let mut list_at = |list: &List| match list {
            List::None => 0,
            List::Given(table) => *table,
            List::Written(_) => {
                let (places, at) = (list.places(), first);
                first += (4 * places.len()).next_multiple_of(128);
                written.push((at, places));
                at as u64
            }
        };
        let lists: Vec<_> = lanes
            .iter()
            .map(|lane| match lane.short.kind & LANE_LISTED {
                0 => [lane.short.from, lane.short.to],
                _ => [&lane.lists.from, &lane.lists.to].map(&mut list_at),
            })
            .collect();
        let counter =
            |lane: &Lane, wait: usize| ((first + (lane.counter + wait) * 128) as u64).to_ne_bytes();
        let mut places = Vec::new();
        for lane in lanes {
            let place = program.bytes.len();
            program.bytes.extend_from_slice(&lane.steps);
            for (number, wait) in lane.waits.iter().enumerate().filter(|_| lane.blocks > 1) {
                program.bytes[place + wait..place + wait + 8]
                    .copy_from_slice(&counter(lane, number));
                program.relocations.push(place + wait);
            }
            let vectors = lane.vectors.iter().flat_map(Plain::bytes);
            program.bytes.extend(vectors);
            places.push((place / 16) as u32);
        }
        for (index, task) in tasks.iter().enumerate() {
            let mut at = index * stride;
            let record = Record {
                batch: names.batch,
                ..task.record
            };
            program.bytes[at..at + size_of::<Record>()].copy_from_slice(record.bytes());
            at += size_of::<Record>();
            for number in &task.lanes {
                let lane = &lanes[*number];
                let short = ShortLane {
                    steps: places[*number],
                    from: lists[*number][0],
                    to: lists[*number][1],
                    ..lane.short
                };
                program.bytes[at..at + size_of::<ShortLane>()].copy_from_slice(short.bytes());
                let sides = [
                    (&lane.lists.from, std::mem::offset_of!(ShortLane, from)),
                    (&lane.lists.to, std::mem::offset_of!(ShortLane, to)),
                ];
                for (list, place) in sides {
                    if let List::Written(_) = list {
                        program.relocations.push(at + place);
                    }
                }
                let counts = short.kind & LANE_WAITS != 0 || lane.folds();
                if lane.blocks > 1 && counts && !lane.waits.is_empty() {
                    let place = at + std::mem::offset_of!(ShortLane, arrivals);
                    program.bytes[place..place + 8].copy_from_slice(&counter(lane, 0));
                    program.relocations.push(place);
                }
                at += size_of::<ShortLane>();
            }
            for number in &task.lanes {
                program.bytes[at..at + 4].copy_from_slice(&names.of_lane(*number).to_ne_bytes());
                at += 4;
            }
        }
        for (at, places) in written {
            program.bytes.resize(at + 4 * places.len(), 0);
            let entries = program.bytes[at..].chunks_exact_mut(4).zip(&places);
            entries.for_each(|(entry, place)| entry.copy_from_slice(&place.to_ne_bytes()));
        }
        program.bytes.resize(first + counters * 128, 0);
        program
    }

    /// The heads of the records.
    #[cfg(test)]
    fn records(&self) -> Vec<Record> {
        let records = (0..self.blocks).map(|index| {
            let bytes = &self.bytes[index * self.stride..][..size_of::<Record>()];
            // SAFETY: the bytes were a record's, and any bytes are a valid record.
            unsafe { bytes.as_ptr().cast::<Record>().read_unaligned() }
        });
        records.collect()
    }

    /// Bytes of device memory that it needs.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Relocates the program to this address.
    pub(crate) fn placed_at(&mut self, base: u64) {
        for at in &self.relocations {
            let place = u64::from_ne_bytes(self.bytes[*at..*at + 8].try_into().expect("8 bytes"));
            self.bytes[*at..*at + 8].copy_from_slice(&(base + place).to_ne_bytes());
        }
    }
}

impl Task {
    fn new(team: u8, lanes: &[usize], index: u64, count: u64) -> Self {
        let record = Record {
            team,
            lanes: lanes.len() as u8,
            index: index as u16,
            count: count as u16,
            ..Record::default()
        };
        Task {
            record,
            lanes: lanes.to_vec(),
        }
    }

    /// Bytes of the task's record.
    fn len(&self) -> usize {
        let names = (4 * self.lanes.len()).next_multiple_of(16);
        size_of::<Record>() + self.lanes.len() * size_of::<ShortLane>() + names
    }
}

/// Chooses the form of each lane, in a program that reduces. The kernel for such programs has only these forms.
fn with_few_forms(lanes: &mut [Lane]) -> Result<(), DeviceError> {
    let only = lanes.iter().all(Lane::only_reduces);
    let mut folds = 0;
    for lane in lanes {
        let landing = lane.landing.take();
        let kind = if only { LANE_REDUCES } else { LANE_STEPS };
        lane.short = match landing {
            Some(fold) if lane.folds() => {
                folds += 1;
                lane.landing = landing;
                fold
            }
            Some(waits) if waits.kind & LANE_ADDS == 0 => {
                return Err(DeviceError::Unsupported {
                    device: "gpu",
                    what: "a reduction beside a wait whose data may land".into(),
                });
            }
            _ => match lane.in_short(0).0 {
                post if post.kind == LANE_ADDS => post,
                _ => ShortLane {
                    kind,
                    count: lane.steps.len() as u64,
                    ..ShortLane::default()
                },
            },
        };
    }
    match folds {
        ..2 => Ok(()),
        _ => Err(DeviceError::Unsupported {
            device: "gpu",
            what: "several reductions of data that may land".into(),
        }),
    }
}

/// Lowers the steps of a lane. `slot` numbers the waits of the batch; `count` gives the addresses at which words of the
/// host are counted.
fn lower(
    steps: &[Step],
    slot: &mut u32,
    count: &mut impl FnMut(Ptr) -> Result<u64, DeviceError>,
) -> Result<Lane, DeviceError> {
    let mut lane = Lane::default();
    let mut last = Ptr::NULL;
    let mut changed = Vec::new();
    let mut turns = Turns::default();
    // Whether one of several blocks knows that it is the last, because it has just stored the common count.
    let mut rung = false;
    let mut rest = steps;
    while let [step, behind @ ..] = rest {
        let folds = reductions::of(rest);
        if !folds.is_empty() {
            (rest, rung) = (&rest[folds.len()..], false);
            // Until this lane waits, all its blocks find the same parities.
            lane.whole |= folds
                .iter()
                .any(|mv| !mv.parity.is_null() && !last.is_null() && mv.parity != last);
            let work = reductions::lower(&folds, last, &mut lane.steps)?;
            lane.units += work.lines + reductions::ELEMENT_WORTH * work.elements;
            lane.reductions += 1;
            continue;
        }
        rest = behind;
        lane.mixed = true;
        rung &= matches!(step, Step::Flush | Step::Add(_) | Step::Store(_));
        match step {
            Step::Wait(wait) => {
                lane.whole |= changed.contains(&wait.operand) || changed.contains(&wait.word);
                changed.push(wait.operand);
                if wait.quantum != 0 {
                    lane.waits
                        .push(lane.steps.len() + std::mem::offset_of!(WaitStep, arrivals));
                }
                let wait_step = WaitStep {
                    head: Head::of::<WaitStep>(STEP_WAIT),
                    word: address(wait.word),
                    operand: address(wait.operand),
                    quantum: wait.quantum,
                    arrivals: 0,
                    tag: wait.tag.into(),
                    slot: *slot % MAX_BLOCKED as u32,
                };
                *slot += 1;
                push(&wait_step, &mut lane.steps);
                last = wait.operand;
            }
            Step::Move(mv) => {
                lane.whole |= !mv.parity.is_null() && mv.parity != last;
                let behind = turns.is_behind(mv);
                lane.whole |= behind;
                lane.units += moves::lower(mv, last, behind, &mut lane.steps);
                lane.copies += usize::from(mv.count != 0 && matches!(mv.action, Action::Copy));
                lane.shaped |= (mv.src.shape, mv.dst.shape) != (Shape::Linear, Shape::Linear);
            }
            Step::Check(check) => {
                let check_step = CheckStep {
                    head: Head::of::<CheckStep>(STEP_CHECK),
                    count: address(check.count),
                    most: check.most,
                    tag: check.tag.into(),
                    unused: 0,
                };
                push(&check_step, &mut lane.steps);
            }
            Step::Pull(_) => unreachable!("GPUs have no rings"),
            // An add releases everything that the team has written, and so does a store.
            Step::Flush => {}
            Step::Store(store) => {
                // The store is made once, after all blocks have come to it.
                lane.whole |= !rung;
                let store_step = StoreStep {
                    head: Head::of::<StoreStep>(STEP_STORE),
                    to: address(store.to),
                    value: store.value,
                };
                push(&store_step, &mut lane.steps);
            }
            Step::Add(add) => {
                let count = count(add.word)?;
                // A waiting kernel would take such a small add for data that has been promised. (An add of 0 is there
                // only to be poisoned.)
                debug_assert!(
                    add.bell.is_null() || count != 0 || add.value == 0 || add.value > MOST_BLOCKS,
                    "an add of {} to a word that a kernel may wait for",
                    add.value
                );
                rung = count != 0;
                lane.rings |= count != 0;
                // If several blocks count, whole quanta are stored. A value that is not a multiple is stored by one
                // team.
                lane.whole |= add.value < MOST_BLOCKS * PART
                    || (count != 0 && !add.value.is_multiple_of(QUANTUM));
                changed.push(add.word);
                let add_step = AddStep {
                    head: Head {
                        flags: if add.bell.is_null() {
                            0
                        } else {
                            ADD_HAS_WAITER
                        },
                        ..Head::of::<AddStep>(STEP_ADD)
                    },
                    word: address(add.word),
                    value: add.value,
                    count,
                };
                push(&add_step, &mut lane.steps);
            }
        }
    }
    let landed = |step: &Step| matches!(step, Step::Wait(wait) if wait.landed.is_some());
    // Now no step is missing.
    lane.end();
    if !lane.rings {
        let list = lane.steps.len() as u64 / 16;
        let fold = folds::in_short(steps, &lane.waits, list);
        lane.landing = match fold {
            Some((short, vectors)) => {
                lane.vectors = vectors;
                Some(short)
            }
            None => landings::in_short(steps),
        };
    }
    // The origin may not add to a word.
    if lane.landing.is_none() && steps.iter().any(landed) {
        return Err(DeviceError::Unsupported {
            device: "gpu",
            what: "a wait whose data may land, among other steps".into(),
        });
    }
    Ok(lane)
}

#[cfg(test)]
mod emulated;
#[cfg(test)]
mod forms;
#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
