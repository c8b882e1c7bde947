//! Launches: batches that are lowered and placed in memory of the host, and the state of their streams.

use tidegate_hal::batch::Batch;
use tidegate_hal::device::DeviceError;
use tidegate_hal::memory::Ptr;

use super::super::*;
use super::machine::Range;
use super::stamps::legs;

/// How many stamps a ring holds.
pub(super) const RING: usize = 64;

/// A ring of stamps.
#[repr(C, align(64))]
#[derive(Default)]
struct Ring {
    head: RingHead,
    stamps: [RawStamp; 32],
    more: [RawStamp; 32],
}

/// The state, the mirror and the stamps of a stream.
pub(super) struct Home {
    state: *mut State,
    mirror: *mut Mirror,
    ring: *mut Ring,
}

impl Home {
    pub(super) fn new() -> Self {
        let empty = Mirror {
            failed: 0,
            gate: 0,
            fault: RawFault::default(),
            blocked: [RawBlocked::default(); MAX_BLOCKED],
        };
        let ring = Box::into_raw(Box::<Ring>::default());
        let state = State {
            stamps: StampState {
                ring: ring.addr() as u64,
                slots: RING as u64,
                ..StampState::default()
            },
            ..State::default()
        };
        Home {
            state: Box::into_raw(Box::new(state)),
            ring,
            mirror: Box::into_raw(Box::new(empty)),
        }
    }

    pub(super) fn state(&self) -> State {
        // SAFETY: live until this is dropped; nothing is written between primitives.
        unsafe { *self.state }
    }

    pub(super) fn mirror(&self) -> Mirror {
        // SAFETY: as above.
        unsafe { *self.mirror }
    }

    /// Takes the stamps that are there, as the host does.
    pub(super) fn take(&self) -> Vec<RawStamp> {
        let mut taken = Vec::new();
        loop {
            // SAFETY: as above. The ring has a head and so many stamps behind it.
            unsafe {
                let done = (*self.ring).head.taken;
                let stamps = (&raw const (*self.ring).stamps).cast::<RawStamp>();
                let stamp = stamps.add(done as usize % RING).read();
                if stamp.number != done + 1 {
                    return taken;
                }
                taken.push(stamp);
                (*self.ring).head.taken = done + 1;
            }
        }
    }

    /// How many stamps were dropped.
    pub(super) fn dropped(&self) -> u64 {
        // SAFETY: as above.
        unsafe { (*self.ring).head.dropped }
    }

    /// Ends the stream, as the host does.
    pub(super) fn stop(&self) {
        // SAFETY: as above.
        unsafe { (*self.state).stop |= 0x100 };
    }

    pub(super) fn address(&self) -> u64 {
        self.state.addr() as u64
    }

    pub(super) fn failed(&self) -> bool {
        self.mirror().failed != 0
    }

    /// The stream's fault, if it has failed. The state and the mirror must agree.
    pub(super) fn fault(&self) -> Result<RawFault, String> {
        let fields = |f: &RawFault| (f.kind, f.tag, f.epoch);
        let (state, mirror) = (self.state(), self.mirror());
        if state.stop & 1 == 0
            || mirror.failed != 1
            || fields(&state.fault) != fields(&mirror.fault)
        {
            return Err(format!(
                "state and mirror differ: {state:?}, {} {:?}",
                mirror.failed, mirror.fault
            ));
        }
        Ok(state.fault)
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        // SAFETY: all came from boxes.
        unsafe {
            drop(Box::from_raw(self.state));
            drop(Box::from_raw(self.mirror));
            drop(Box::from_raw(self.ring));
        }
    }
}

/// A batch that can be launched repeatedly.
pub(super) struct Launched {
    program: Vec<u128>,
    bytes: usize,
    pub(super) parameter: Box<LaunchParameter>,
    pub(super) blocks: usize,
    /// Whether it is for the kernel that only reduces.
    pub(super) reduces: bool,
    /// The batch's number, and the legs of each lane.
    pub(super) id: u64,
    pub(super) legs: Vec<Vec<bool>>,
    records: Vec<(Record, Vec<ShortLane>)>,
}

impl Launched {
    /// `next` says whether the next launch of the stream may begin before it is over.
    pub(super) fn new(
        batch: &Batch,
        quota: usize,
        sizes: Sizes,
        next: bool,
        home: &Home,
        follow: [u64; 2],
    ) -> Result<Self, DeviceError> {
        Self::counting(batch, quota, sizes, next, home, follow, |_| 0)
    }

    /// Like [`Launched::new`]. `count` gives the address of a word's count, or 0.
    pub(super) fn counting(
        batch: &Batch,
        quota: usize,
        sizes: Sizes,
        next: bool,
        home: &Home,
        follow: [u64; 2],
        count: impl Fn(Ptr) -> u64,
    ) -> Result<Self, DeviceError> {
        let mut lowered = Program::sized(batch, &Names::of(batch), quota, sizes, |word| {
            Ok(count(word))
        })?;
        let mut program = vec![0u128; lowered.len().div_ceil(16).max(1)];
        let base = program.as_mut_ptr();
        lowered.placed_at(base.addr() as u64);
        // SAFETY: the vector has as many bytes.
        unsafe {
            let bytes = lowered.bytes.as_ptr();
            std::ptr::copy_nonoverlapping(bytes, base.cast::<u8>(), lowered.bytes.len());
        }
        let blocks = lowered.blocks;
        assert!(blocks <= quota, "{blocks} blocks of {quota}");
        let parameter = LaunchParameter {
            program: base.addr() as u64,
            state: home.address(),
            mirror: home.mirror.addr() as u64,
            follow,
            stride: lowered.stride as u32,
            flags: if next { LAUNCH_NEXT } else { 0 },
        };
        Ok(Launched {
            program,
            bytes: lowered.bytes.len(),
            parameter: Box::new(parameter),
            blocks,
            reduces: lowered.reduces,
            id: batch.id(),
            legs: (batch.lanes().iter().map(|lane| legs(batch.steps(*lane)))).collect(),
            records: lanes_of(&lowered),
        })
    }

    /// The memory of the program.
    pub(super) fn range(&self) -> Range {
        let begin = self.program.as_ptr().addr() as u64;
        Range {
            begin,
            end: begin + self.bytes as u64,
            writable: 0,
        }
    }

    /// How many teams of a kind carry out a lane for which `is` is true.
    pub(super) fn teams(&self, team: u8, is: impl Fn(&ShortLane) -> bool) -> usize {
        let records = self
            .records
            .iter()
            .filter(|(record, _)| record.team == team);
        records
            .flat_map(|(_, lanes)| lanes)
            .filter(|lane| is(lane))
            .count()
    }

    /// How many blocks let the next launch begin when they do not wait any more: those whose lanes have short forms, if
    /// the next launch may not begin earlier.
    pub(super) fn passes(&self) -> u64 {
        if self.parameter.flags & LAUNCH_NEXT != 0 {
            return 0;
        }
        let passes = |(_, lanes): &&(Record, Vec<ShortLane>)| {
            lanes.iter().all(|lane| lane.kind & LANE_STEPS == 0)
        };
        self.records.iter().filter(passes).count() as u64
    }

    /// How many teams carry it out.
    pub(super) fn all_teams(&self) -> u64 {
        let records = self.records.iter();
        records.map(|(record, _)| u64::from(record.lanes)).sum()
    }
}

/// The records of a program, with their lanes.
fn lanes_of(program: &Program) -> Vec<(Record, Vec<ShortLane>)> {
    let records = program.records().into_iter().enumerate();
    let with_lanes = records.map(|(block, record)| {
        let begin = block * program.stride + size_of::<Record>();
        let lane = |index| read(&program.bytes[begin + index * size_of::<ShortLane>()..]);
        (record, (0..usize::from(record.lanes)).map(lane).collect())
    });
    with_lanes.collect()
}
