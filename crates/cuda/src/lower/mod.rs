//! From batches to programs of the batch kernel.
//!
//! # Model
//!
//! A lane that moves little, or nothing, is carried out by a warp, and one that moves much by several blocks. Blocks are scarce: all blocks
//! that may wait at a time, of all streams of the device, must be resident, and must leave room for the kernels that others wait for. So a stream
//! has a *quota* of them, and lanes that move much share what of it is left by the amount that they move.
//!
//! # Failure
//!
//! A batch with more lanes than the quota can hold at a time is refused: none of its lanes may wait for another to end.

mod layout;
mod moves;

pub(crate) use layout::*;

use tidegate_hal::batch::{Batch, Step};
use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::Ptr;

/// Units of a copy (36 KiB) that a block must have for the bulk engine to be worth starting: as much as it has on its way at a time.
const BULK: u64 = 2304;
/// The most blocks of one lane.
const MOST: u64 = 255;

/// How large teams are, and from when on they are worth it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    /// Threads of a block. A block moves as many units at a time.
    threads: usize,
    /// Warps of a block.
    warps: usize,
    /// Units that a warp moves as quickly as anything else would.
    small: u64,
    /// The longest record, in bytes.
    window: usize,
    /// Units of a copy that are worth the bulk engine, for each block.
    bulk: u64,
}

impl Sizes {
    const KERNEL: Sizes = Sizes {
        threads: THREADS,
        warps: WARPS,
        small: 256,
        window: WINDOW,
        bulk: u64::MAX,
    };
}

/// A batch, lowered.
pub(crate) struct Program {
    /// To be placed in memory of the device: a record for each block, lanes that did not fit into records, and counters, which are zero.
    pub(crate) bytes: Vec<u8>,
    /// How many blocks carry it out.
    pub(crate) blocks: usize,
    /// Bytes of a record.
    pub(crate) stride: usize,
    /// Whether there are moves for the bulk engine.
    pub(crate) bulk: bool,
    /// Where in `bytes` the address of a counter stands: to be added to where the program is placed.
    relocations: Vec<usize>,
}

/// What a block is to do.
struct Task<'a> {
    record: Record,
    lanes: Vec<&'a Lane>,
}

/// A lane on its way.
struct Lane {
    steps: Vec<u8>,
    units: u64,
    /// Where in `steps` the addresses of counters of arrivals stand.
    waits: Vec<usize>,
    /// Where in `steps` the flags of copies stand that the bulk engine could do, and how many units they have.
    linear: Vec<(usize, u64)>,
    /// The number of the first of these counters.
    counter: usize,
    /// Whether it must have one team: an add is too small to be made of several parts, or a step needs an operand as an earlier step of the lane has left it, which
    /// several blocks do at different times.
    whole: bool,
    blocks: u64,
}

impl Lane {
    /// Leaves copies to the bulk engine of which a block has at least `least` units; whether there are any.
    fn mark_bulk(&mut self, least: u64) -> bool {
        let (blocks, mut any) = (self.blocks, false);
        for (flags, units) in &self.linear {
            if blocks != 0 && *units / blocks >= least {
                self.steps[*flags] |= MOVE_BULK as u8;
                any = true;
            }
        }
        any
    }

    fn team(&self) -> u8 {
        if self.blocks == 0 { TEAM_WARPS } else { TEAM_BLOCKS }
    }
}

impl Program {
    /// Lowers a batch for a stream that may use `quota` blocks.
    /// `bulk` says whether the device has an engine for large copies.
    pub(crate) fn new(batch: &Batch, quota: usize, bulk: bool) -> Result<Self, DeviceError> {
        let least = if bulk { BULK } else { u64::MAX };
        Self::sized(batch, quota, Sizes { bulk: least, ..Sizes::KERNEL })
    }

    fn sized(batch: &Batch, quota: usize, sizes: Sizes) -> Result<Self, DeviceError> {
        let mut slot = 0;
        let mut lanes: Vec<_> = batch
            .lanes()
            .iter()
            .map(|lane| lower(batch.steps(*lane), &mut slot))
            .collect();
        let quota = quota.min(MAX_BLOCKS) as u64;
        share_out(&mut lanes, quota, sizes)?;
        let mut bulk = false;
        for lane in &mut lanes {
            bulk |= lane.mark_bulk(sizes.bulk);
        }
        // The blocks of a lane share counters.
        let mut counters = 0;
        for lane in lanes.iter_mut().filter(|lane| lane.blocks > 1) {
            lane.counter = counters;
            counters += lane.waits.len();
        }
        let of = |team: u8| lanes.iter().filter(move |lane| lane.team() == team);
        let mut tasks = Vec::new();
        for lanes in of(TEAM_WARPS).collect::<Vec<_>>().chunks(sizes.warps) {
            tasks.push(Task::new(TEAM_WARPS, lanes, 0, 1));
        }
        for lane in of(TEAM_BLOCKS) {
            tasks.extend((0..lane.blocks).map(|index| Task::new(TEAM_BLOCKS, &[lane], index, lane.blocks)));
        }
        let mut program = Self::placed(&tasks, counters, sizes.window);
        program.bulk = bulk;
        Ok(program)
    }

    /// Lays records out, and behind them what does not fit.
    fn placed(tasks: &[Task<'_>], counters: usize, window: usize) -> Self {
        let near = |task: &&Task<'_>| task.head() + task.lanes.iter().map(|lane| lane.steps.len()).sum::<usize>();
        let lengths = tasks.iter().map(|task| match near(&task) {
            length if length <= window => length,
            _ => task.head(),
        });
        let stride = lengths.max().unwrap_or(0);
        let mut program = Program {
            bytes: vec![0; tasks.len() * stride],
            blocks: tasks.len(),
            stride,
            bulk: false,
            relocations: Vec::new(),
        };
        let mut waiting = Vec::new();
        for (index, task) in tasks.iter().enumerate() {
            let base = index * stride;
            let far = near(&task) > window;
            let mut at = base + task.head();
            let mut places = Vec::new();
            for lane in &task.lanes {
                let (place, from) = if far {
                    program.bytes.extend_from_slice(&lane.steps);
                    (program.bytes.len() - lane.steps.len(), 0)
                } else {
                    program.bytes[at..at + lane.steps.len()].copy_from_slice(&lane.steps);
                    at += lane.steps.len();
                    (at - lane.steps.len(), base)
                };
                places.push(((place - from) / 16) as u32);
                if lane.blocks > 1 {
                    let waits = lane.waits.iter().enumerate();
                    waiting.extend(waits.map(|(number, wait)| (place + wait, lane.counter + number)));
                }
            }
            let record = Record {
                far: u16::from(far),
                ..task.record
            };
            let head: Vec<u8> = record
                .bytes()
                .iter()
                .copied()
                .chain(places.iter().flat_map(|place| place.to_ne_bytes()))
                .collect();
            program.bytes[base..base + head.len()].copy_from_slice(&head);
        }
        // Counters come behind everything that is only read, each in a line of its own.
        let first = program.bytes.len().next_multiple_of(128);
        for (place, counter) in waiting {
            let at = (first + counter * 128) as u64;
            program.bytes[place..place + 8].copy_from_slice(&at.to_ne_bytes());
            program.relocations.push(place);
        }
        program.bytes.resize(first + counters * 128, 0);
        program
    }

    /// The heads of the records.
    #[cfg(test)]
    fn records(&self) -> Vec<Record> {
        let records = (0..self.blocks).map(|index| {
            let bytes = &self.bytes[index * self.stride..][..size_of::<Record>()];
            // SAFETY: the bytes were a record's; any bytes are one.
            unsafe { bytes.as_ptr().cast::<Record>().read_unaligned() }
        });
        records.collect()
    }

    /// Bytes of device memory that it needs.
    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Makes it one for this address.
    pub(crate) fn placed_at(&mut self, base: u64) {
        for at in &self.relocations {
            let counter = u64::from_ne_bytes(self.bytes[*at..*at + 8].try_into().expect("8 bytes"));
            self.bytes[*at..*at + 8].copy_from_slice(&(base + counter).to_ne_bytes());
        }
    }
}

impl<'a> Task<'a> {
    fn new(team: u8, lanes: &[&'a Lane], index: u64, count: u64) -> Self {
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

    /// Bytes of the record before its steps.
    fn head(&self) -> usize {
        (size_of::<Record>() + self.lanes.len() * size_of::<u32>()).next_multiple_of(16)
    }
}

fn address(ptr: Ptr) -> u64 {
    ptr.0.addr() as u64
}

/// The steps of a lane; `slot` numbers the waits of the batch.
fn lower(steps: &[Step], slot: &mut u32) -> Lane {
    let mut lane = Lane {
        steps: Vec::new(),
        units: 0,
        waits: Vec::new(),
        linear: Vec::new(),
        counter: 0,
        whole: false,
        blocks: 0,
    };
    let mut last = Ptr::NULL;
    let mut changed = Vec::new();
    for step in steps {
        match step {
            Step::Wait(wait) => {
                lane.whole |= changed.contains(&wait.operand) || changed.contains(&wait.word);
                changed.push(wait.operand);
                if wait.quantum != 0 {
                    lane.waits
                        .push(lane.steps.len() + std::mem::offset_of!(WaitStep, arrivals));
                }
                let wait_step = WaitStep {
                    head: Head {
                        kind: STEP_WAIT,
                        length: size_of::<WaitStep>().div_ceil(16) as u16,
                        flags: 0,
                    },
                    word: address(wait.word),
                    operand: address(wait.operand),
                    quantum: wait.quantum,
                    arrivals: 0,
                    window: wait.tag.window,
                    peer: wait.tag.peer,
                    awaited: crate::reclaim::awaited_code(wait.tag.awaited),
                    slot: *slot % MAX_BLOCKED as u32,
                };
                *slot += 1;
                lane.steps.extend_from_slice(wait_step.bytes());
                lane.steps.resize(lane.steps.len().next_multiple_of(16), 0);
                last = wait.operand;
            }
            Step::Move(mv) => {
                lane.whole |= !mv.parity.is_null() && mv.parity != last;
                lane.units += moves::lower(mv, last, &mut lane.steps, &mut lane.linear);
            }
            // An add releases what the team has written.
            Step::Flush => {}
            Step::Add(add) => {
                lane.whole |= add.value < MOST;
                changed.push(add.word);
                let add_step = AddStep {
                    head: Head {
                        kind: STEP_ADD,
                        length: (size_of::<AddStep>() / 16) as u16,
                        flags: if add.bell.is_null() {
                            0
                        } else {
                            ADD_HAS_WAITER
                        },
                    },
                    word: address(add.word),
                    value: add.value,
                    unused: 0,
                };
                lane.steps.extend_from_slice(add_step.bytes());
            }
        }
    }
    let end = Head {
        kind: STEP_END,
        length: 1,
        flags: 0,
    };
    lane.steps.extend_from_slice(end.bytes());
    lane.steps.resize(lane.steps.len().next_multiple_of(16), 0);
    lane
}

/// Gives the lanes that move much their blocks.
fn share_out(lanes: &mut [Lane], quota: u64, sizes: Sizes) -> Result<(), DeviceError> {
    let mut large: Vec<usize> = (0..lanes.len())
        .filter(|lane| lanes[*lane].units > sizes.small && !lanes[*lane].whole)
        .collect();
    large.sort_unstable_by_key(|lane| std::cmp::Reverse(lanes[*lane].units));
    let all = lanes.len();
    let warps = |large: usize| (all - large).div_ceil(sizes.warps) as u64;
    // If there is not a block for each, the lesser ones are left to warps.
    while !large.is_empty() && warps(large.len()) + large.len() as u64 > quota {
        large.pop();
    }
    let rest = quota
        .checked_sub(warps(large.len()))
        .ok_or_else(|| DeviceError::Exhausted {
            what: "blocks that may wait on the device",
            detail: format!(
                "a batch of {} lanes needs more than the {quota} of its stream",
                lanes.len()
            ),
        })?;
    let wanted = |lane: &Lane| lane.units.div_ceil(sizes.threads as u64).min(MOST);
    let total: u64 = large.iter().map(|lane| wanted(&lanes[*lane])).sum();
    for lane in &large {
        let wanted = wanted(&lanes[*lane]);
        lanes[*lane].blocks = if total <= rest {
            wanted
        } else {
            // Each has one; what is left goes by size. Rounded down, so that the sum fits.
            let spare = rest - large.len() as u64;
            1 + (wanted - 1) * spare / (total - large.len() as u64).max(1)
        };
    }
    Ok(())
}

#[cfg(test)]
mod emulated;
#[cfg(test)]
mod tests;
