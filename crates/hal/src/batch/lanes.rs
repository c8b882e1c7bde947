//! A batch as a whole: its lanes, what it keeps alive, and the form in which a device executes it.

use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use super::Step;
#[cfg(doc)]
use super::{Check, Landed, Landing, Pull, QUANTUM, Ring, Store, Turn};
use crate::lock;

/// A lane: `steps[first .. first + len]` of its batch.
#[derive(Clone, Copy, Debug)]
pub struct Lane {
    /// Index of its first step.
    pub first: u32,
    /// How many steps it has.
    pub len: u32,
}

/// A set of independent lanes.
pub struct Batch {
    id: u64,
    steps: Box<[Step]>,
    lanes: Box<[Lane]>,
    /// What must live as long as the batch may run.
    _keep: Box<[Arc<dyn Any + Send + Sync>]>,
    /// Whether it rings doorbells of a NIC, or waits for words that a NIC adds to.
    helped: bool,
    moves: bool,
    /// The bytes that its steps move, or more if a number in memory says how many. And those that others move for it.
    bytes: u64,
    bytes_of_others: u64,
    /// For each lane, the bytes that a NIC or the target moves for it. Empty if none does.
    by_others: Box<[u64]>,
    /// Whether tools know what it does.
    told: AtomicBool,
    /// The batch in the form that its device executes.
    lowered: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
}

/// The most bytes that the moves of a quick batch move.
const QUICK: u64 = 16 << 10;

/// The bytes that the moves among these steps move, or more if a number in memory says how many.
fn bytes_of(steps: &[Step]) -> u64 {
    let moves = steps.iter().map(|step| match step {
        Step::Move(step) => (step.count as u64).saturating_mul(step.size.into()),
        Step::Pull(pull) => pull.bytes as u64,
        _ => 0,
    });
    moves.fold(0, u64::saturating_add)
}

impl std::fmt::Debug for Batch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list()
            .entries(self.lanes.iter().map(|lane| self.steps(*lane)))
            .finish()
    }
}

impl Batch {
    /// Makes a batch, which keeps `keep` alive (index tables, for instance) until the last stream has dropped it.
    ///
    /// # Safety
    ///
    /// The following holds from the submission of the batch until the stream has passed it, at every execution:
    /// - every `word`, `operand`, `parity` and `bell` that is not null points to a live, 8-byte aligned word (a
    ///   live bell) that the device can reach, and operands are written by streams ordered with this one only;
    /// - the target of every [`Store`] is live, at an address that the device reaches, and may be written at that point
    ///   of its lane;
    /// - an add to a word that is waited for by [`QUANTUM`] adds one quantum, or is one of the
    ///   [parts](crate::nic::part) by which a NIC is rung;
    /// - if an operand is the `parity` of a move, its lane does not advance it again before an add;
    /// - the flags of a [`Ring`] are live, aligned to 8 bytes, and written by the one lane that signals by them. The
    ///   operand of a [`Turn`] is that of a wait for the same peer, and only this stream advances it;
    /// - the address of a [`Pull`] is live, initialised, and put before the wait in front of it. Its destination may be
    ///   written, as that of a move, and its guard is the word of that wait;
    /// - index tables are written before the batch is submitted, and not again;
    /// - every side, result, comparand and index table is live for all the elements that its shape (and flip)
    ///   reaches, aligned for elements of `size` bytes; sources are initialised;
    /// - a count, of a move or a [`Check`], is live, initialised and aligned to 8 bytes. Nobody writes it while its
    ///   batch may be executed, or before the wait in front of it if a peer writes it. Both sides of its move are
    ///   linear;
    /// - no memory that a move writes is accessed by anything that is not ordered with the move by the words of
    ///   its lane or by stream order, unless both are atomic; the sides of one move do not overlap;
    /// - `scalar` fits `size`, and no bitwise operation has floats;
    /// - the landing and the slot that a [`Landed`] names are live for its `bytes` (the slot for twice as many with a
    ///   flip), and aligned to 4. The wait is for one quantum, and the only step of its lane; or behind it stands one
    ///   copy of all bytes of the slot to a linear side that is aligned to 4; or it belongs to a short reduction. While
    ///   it is under way, only the origin that adds to its word writes the slot, and only in epochs that come by the
    ///   word;
    /// - the landing of a move is live for [`Landing::room`] bytes (twice as many with a flip), and zero before its
    ///   first epoch. The move copies all bytes of a slot, a multiple of 4, from one linear side to the other. Before
    ///   it, its lane has a wait of one quantum for the slot's exposure. After it, the lane has only the add of one
    ///   quantum to the word whose wait looks at this landing, or the rest of a short reduction; both waits' operands
    ///   number the epochs alike. Only the move and that wait write the landing (the wait leaves its tag there when an
    ///   epoch has come by the word);
    /// - a lane that is a [short reduction](super#short-reductions) is the only such lane of the batch.
    ///
    /// # Panics
    ///
    /// If there are more than `u32::MAX` steps.
    pub unsafe fn new(
        lanes: impl IntoIterator<Item = Vec<Step>>,
        keep: Vec<Arc<dyn Any + Send + Sync>>,
    ) -> Self {
        let mut steps = Vec::new();
        let lanes = lanes
            .into_iter()
            .map(|lane| {
                let first = u32::try_from(steps.len()).expect("steps fit u32");
                let len = u32::try_from(lane.len()).expect("steps fit u32");
                steps.extend(lane);
                Lane { first, len }
            })
            .collect();
        let moves = steps
            .iter()
            .any(|step| matches!(step, Step::Move(_) | Step::Pull(_)));
        let bytes = bytes_of(&steps);
        static LAST: AtomicU64 = AtomicU64::new(0);
        Batch {
            id: LAST.fetch_add(1, Ordering::Relaxed) + 1,
            helped: false,
            by_others: Box::default(),
            told: AtomicBool::new(false),
            moves,
            bytes,
            bytes_of_others: 0,
            steps: steps.into(),
            lanes,
            _keep: keep.into(),
            lowered: Mutex::new(None),
        }
    }

    /// A number that no other batch of this process has, and which is not 0. [Stamps](crate::stamps) name batches by
    /// it.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// Joins several batches to one, with all of their lanes in order.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold for all lanes together, ordered by nothing but their words.
    ///
    /// # Panics
    ///
    /// Those of [`Batch::new`].
    pub unsafe fn join(batches: &[&Arc<Batch>]) -> Self {
        let lanes = batches
            .iter()
            .flat_map(|batch| batch.lanes.iter().map(|lane| batch.steps(*lane).to_vec()));
        let keep = batches
            .iter()
            .map(|batch| -> Arc<dyn Any + Send + Sync> { Arc::clone(*batch) as _ })
            .collect();
        let helped = batches.iter().any(|batch| batch.helped);
        let by_others = batches.iter().flat_map(|batch| {
            (0..batch.lanes.len()).map(|lane| batch.bytes_by_others(lane as u32))
        });
        let by_others = by_others.collect();
        // SAFETY: the caller's promise; the batches themselves keep what they keep.
        (unsafe { Batch::new(lanes, keep) })
            .helped(helped)
            .moved_by_others(by_others)
    }

    /// Says how many bytes a NIC moves for each lane, or the target pulls, for tools. No device looks at it.
    #[must_use]
    pub fn moved_by_others(mut self, bytes: Vec<u64>) -> Self {
        self.bytes_of_others = bytes.iter().sum();
        self.by_others = bytes.into();
        self
    }

    /// How many bytes a NIC moves for a lane, or the target pulls.
    pub fn bytes_by_others(&self, lane: u32) -> u64 {
        self.by_others.get(lane as usize).copied().unwrap_or(0)
    }

    /// Notes that tools are told what the batch does. Returns whether they were told before.
    pub fn mark_told(&self) -> bool {
        self.told.swap(true, Ordering::Relaxed)
    }

    /// Says whether the batch rings doorbells of a NIC, or waits for words that a NIC adds to. If so, streams that are
    /// threads call their [`Helper`](crate::device::Helper) for it. A new batch is not helped.
    #[must_use]
    pub fn helped(mut self, helped: bool) -> Self {
        self.helped = helped;
        self
    }

    /// Whether streams that are threads call their helper for it.
    pub fn is_helped(&self) -> bool {
        self.helped
    }

    /// Whether some step is a move. A batch without moves takes no time but that of its waits.
    pub fn has_moves(&self) -> bool {
        self.moves
    }

    /// Whether its own work takes a microsecond or so. A stream may then put off what others hear of it until it has done
    /// the next batch, too.
    pub fn is_quick(&self) -> bool {
        self.bytes <= QUICK
    }

    /// Whether some step is a wait.
    pub fn waits(&self) -> bool {
        self.steps.iter().any(|step| matches!(step, Step::Wait(_)))
    }

    /// The bytes that its steps move, or more if a number in memory says how many.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The bytes that a NIC moves for it, or that targets pull.
    pub fn bytes_of_others(&self) -> u64 {
        self.bytes_of_others
    }

    /// The lanes; [`Batch::steps`] has the steps of each.
    pub fn lanes(&self) -> &[Lane] {
        &self.lanes
    }

    /// The batch in the form of its device, which is kept as long as the batch lives. If there is none yet, or `fits`
    /// rejects it (it may have been made for a stream with more room), `make` makes it.
    ///
    /// # Errors
    ///
    /// That of `make`.
    pub fn lowered<L: Any + Send + Sync, E>(
        &self,
        fits: impl FnOnce(&L) -> bool,
        make: impl FnOnce() -> Result<L, E>,
    ) -> Result<Arc<L>, E> {
        let mut lowered = lock(&self.lowered);
        if let Some(made) = &*lowered
            && let Ok(made) = Arc::clone(made).downcast::<L>()
            && fits(&made)
        {
            return Ok(made);
        }
        let made = Arc::new(make()?);
        *lowered = Some(made.clone());
        Ok(made)
    }

    /// The steps of one lane.
    pub fn steps(&self, lane: Lane) -> &[Step] {
        &self.steps[lane.first as usize..][..lane.len as usize]
    }
}
