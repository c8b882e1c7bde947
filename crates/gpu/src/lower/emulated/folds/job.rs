//! A short reduction of one rank, and the ranks around it.

use tidegate_hal::batch::{
    Action, Add, Awaited, Landed, Landing, MOST_REDUCED, Move, Op, POISON, QUANTUM, Scalar, Step,
    Tag, Wait,
};
use tidegate_hal::memory::Ptr;
use tidegate_host::HostMover;
use tidegate_words::Mover as _;

use super::super::super::{PART, RawStamp};
use super::super::launched::Launched;
use super::super::memory::{Arena, change, value};
use super::super::steps::{WINDOW, linear};
use super::EPOCHS;
use crate::lower::random::{Rng, mix};

/// The elements of all vectors.
#[derive(Clone, Copy)]
pub(super) struct Kind {
    scalar: Scalar,
    count: usize,
}

impl Kind {
    pub(super) fn bytes(self) -> usize {
        self.scalar.bytes() * self.count
    }

    /// The contents of a vector. Sums and products of floats depend on their order.
    fn vector(self, salt: u64, epoch: u64) -> Vec<u8> {
        let element = |index: usize| {
            let bits = mix(salt ^ epoch << 32 ^ index as u64);
            let sign = if bits & 1 == 0 { 1.0 } else { -1.0 };
            let number = sign * (0.1 + (bits >> 34) as f64 / 1e8);
            match self.scalar {
                Scalar::F32 => (number as f32).to_le_bytes().to_vec(),
                Scalar::F64 => number.to_le_bytes().to_vec(),
                Scalar::Bf16 => (((number as f32).to_bits() >> 16) as u16)
                    .to_le_bytes()
                    .to_vec(),
                // Any finite number.
                Scalar::F16 => ((bits >> 16) as u16 & 0xbfff).to_le_bytes().to_vec(),
                _ => bits.to_le_bytes()[..self.scalar.bytes()].to_vec(),
            }
        };
        (0..self.count).flat_map(element).collect()
    }
}

/// Another rank: its landing, here or there, and the words between the two.
pub(super) struct Peer {
    pub(super) number: u32,
    salt: u64,
    pub(super) landing: Landing,
    /// What this rank waits for, and its operand.
    pub(super) awaited: (Ptr, Ptr),
    /// The first epoch. Sometimes it is one after which tags soon begin again.
    pub(super) begin: u64,
    /// An origin's slot. What a target's words are added to, and what is put.
    slot: (Ptr, usize),
    pub(super) told: Ptr,
    src: Ptr,
    /// The epochs that have come, what is still to come of the next one, and whether nothing more will come.
    pub(super) epoch: u64,
    pub(super) pieces: Vec<Piece>,
    pub(super) ended: bool,
}

/// A piece of an epoch's data or of its signal.
#[derive(Clone, Copy)]
pub(super) enum Piece {
    Unit(usize),
    Part,
    Promise,
    Slot,
}

fn tag(peer: u32, awaited: Awaited) -> Tag {
    Tag {
        window: WINDOW,
        peer,
        awaited,
    }
}

impl Peer {
    fn new(arena: &mut Arena, rng: &mut Rng, number: u32, bytes: usize, double: bool) -> Self {
        let begin = match rng.below(3) {
            0 => (1 << 32) - 3,
            _ => rng.below(4) as u64,
        };
        let room = Landing::room(bytes);
        let flip = |step: usize| if double { step.next_multiple_of(64) } else { 0 };
        let base = Ptr(arena.take(flip(room) + room, 0, true));
        for at in (0..flip(room) + room).step_by(8) {
            change(base.byte_add(at), |_| 0);
        }
        Peer {
            number,
            salt: rng.next(),
            landing: Landing {
                base,
                flip: flip(room),
            },
            awaited: (arena.word(begin * QUANTUM), arena.word(begin * QUANTUM)),
            begin,
            slot: (Ptr(arena.take(flip(bytes) + bytes, 0, true)), flip(bytes)),
            told: arena.word(begin * QUANTUM),
            src: Ptr::NULL,
            epoch: begin,
            pieces: Vec::new(),
            ended: false,
        }
    }

    fn buffers(&self) -> u64 {
        if self.landing.flip == 0 { 1 } else { 2 }
    }

    fn turn(&self, epoch: u64, flip: usize) -> usize {
        if epoch % 2 == 1 { flip } else { 0 }
    }

    pub(super) fn unit(&self, epoch: u64, index: usize) -> Ptr {
        let flip = self.turn(epoch, self.landing.flip);
        self.landing.base.byte_add(flip + 8 * index)
    }

    /// Whether a unit of an epoch has landed. Tags have 32 bits.
    pub(super) fn has_landed(&self, epoch: u64, index: usize) -> bool {
        let tag = (value(self.unit(epoch, index)) >> 32) as u32;
        tag == (epoch as u32).wrapping_add(1)
    }

    /// The contents of a landing after an epoch has landed.
    fn landed(vector: &[u8], epoch: u64, index: usize) -> u64 {
        let word = vector.chunks_exact(4).nth(index);
        let data = word.map_or(0, |word| u32::from_le_bytes(word.try_into().unwrap()));
        u64::from(data) | (epoch + 1) << 32
    }

    /// The wait for an origin's data.
    fn wait(&self, bytes: usize) -> Step {
        Step::Wait(Wait {
            word: self.awaited.0,
            operand: self.awaited.1,
            quantum: QUANTUM,
            tag: tag(self.number, Awaited::Completion),
            landed: Some(Landed {
                from: self.landing,
                slot: self.slot.0,
                flip: self.slot.1,
                bytes,
            }),
            ring: None,
        })
    }

    /// The steps of a put to a target.
    fn put(&self, kind: Kind, bell: Ptr) -> [Step; 4] {
        let wait = Wait {
            word: self.awaited.0,
            operand: self.awaited.1,
            quantum: QUANTUM,
            tag: tag(self.number, Awaited::Exposure),
            landed: None,
            ring: None,
        };
        let mut dst = linear(self.slot.0);
        dst.flip = self.slot.1;
        let put = Move {
            action: Action::Copy,
            size: kind.scalar.bytes() as u32,
            count: kind.count,
            src: linear(self.src),
            dst,
            parity: if dst.flip == 0 {
                Ptr::NULL
            } else {
                self.awaited.1
            },
            early: true,
            landing: Some(self.landing),
            buffers: 2,
        };
        let add = Add {
            tag: None,
            word: self.told,
            value: QUANTUM,
            bell,
            turn: None,
        };
        [
            Step::Wait(wait),
            Step::Move(put),
            Step::Flush,
            Step::Add(add),
        ]
    }

    /// Goes on a little: another piece of an origin's epoch.
    pub(super) fn send(&mut self, rng: &mut Rng, kind: Kind, looked: u64) {
        let last = self.begin + EPOCHS;
        if self.pieces.is_empty() {
            // Exposures ensure this: a buffer is free after its data has been read.
            if self.ended
                || self.epoch == last
                || self.epoch >= self.begin + looked + self.buffers()
            {
                return;
            }
            self.pieces = match rng.once_in(3) {
                // The pieces are in reverse order.
                true => vec![Piece::Slot, Piece::Promise, Piece::Part],
                false => {
                    let units = Landing::room(kind.bytes()) / 8;
                    let mut units: Vec<_> = (0..units).map(Piece::Unit).collect();
                    rng.shuffle(&mut units);
                    // Often the first pair comes first, and others are missing for a while.
                    if rng.once_in(2) {
                        let first = |piece: &Piece| matches!(piece, Piece::Unit(0 | 1));
                        units.sort_by_key(first);
                    }
                    units
                }
            };
        }
        let vector = kind.vector(self.salt, self.epoch);
        match self.pieces.pop() {
            Some(Piece::Unit(index)) => {
                let unit = Self::landed(&vector, self.epoch, index);
                change(self.unit(self.epoch, index), |_| unit);
            }
            Some(Piece::Part) => change(self.awaited.0, |value| value + PART - 1),
            Some(Piece::Promise) => change(self.awaited.0, |value| value + QUANTUM - PART - 1),
            Some(Piece::Slot) => {
                let slot = self.slot.0.byte_add(self.turn(self.epoch, self.slot.1));
                // SAFETY: `Peer::new` has taken the slot with this length; between two primitives nothing else happens.
                unsafe {
                    slot.0
                        .copy_from_nonoverlapping(vector.as_ptr(), vector.len())
                };
                change(self.awaited.0, |value| value + 2);
            }
            None => unreachable!("there are pieces"),
        }
        self.epoch += u64::from(self.pieces.is_empty());
    }

    /// Lands so many units of an origin's first epoch, and leaves the rest for later.
    pub(super) fn begin(&mut self, kind: Kind, units: usize) {
        let all = Landing::room(kind.bytes()) / 8;
        let vector = kind.vector(self.salt, self.epoch);
        for index in 0..units {
            let unit = Self::landed(&vector, self.epoch, index);
            change(self.unit(self.epoch, index), |_| unit);
        }
        self.pieces = (units..all).map(Piece::Unit).collect();
    }

    /// How many epochs of it have passed at this rank.
    pub(super) fn passed(&self) -> u64 {
        value(self.awaited.1) / QUANTUM - self.begin
    }
}

/// Where this rank's own vector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    /// In memory of its own.
    Apart,
    /// Where the result goes, and it is saved before.
    Saved,
    /// Where the result goes: it is the first term, or the second, or none is.
    First,
    Second,
    None,
}

pub(super) struct Job {
    pub(super) kind: Kind,
    op: Op,
    pub(super) origins: Vec<Peer>,
    pub(super) targets: Vec<Peer>,
    own: Own,
    /// Before which origin the own vector stands.
    place: usize,
    src: Ptr,
    dst: Ptr,
    saved: Ptr,
    salt: u64,
    /// The word of a post beside the lane, if there is one.
    pub(super) post: Option<Ptr>,
}

impl Job {
    pub(super) fn new(arena: &mut Arena, rng: &mut Rng) -> Self {
        let scalar = rng.of(&Scalar::ALL);
        let op = rng.of(if scalar.is_float() {
            &Op::ALL[..4]
        } else {
            &Op::ALL
        });
        // Sometimes there are as many ranks as may be, and more vectors than threads of a warp.
        let crowd = rng.once_in(8);
        let words = if crowd {
            12
        } else {
            rng.of(&[6, 40, 300, 1200])
        };
        let count = 4 * rng.within(1..=words) / scalar.bytes();
        let kind = Kind {
            scalar,
            count: count
                .max(1)
                .next_multiple_of(4usize.div_ceil(scalar.bytes())),
        };
        let bytes = kind.bytes();
        let double = rng.once_in(2);
        let peers = |arena: &mut Arena, rng: &mut Rng, first: u32, many: usize| -> Vec<Peer> {
            let numbers = first..first + many as u32;
            let peer = |number| Peer::new(arena, rng, number, bytes, double);
            numbers.map(peer).collect()
        };
        let many = if crowd {
            MOST_REDUCED
        } else {
            rng.of(&[1, 2, 3, 6])
        };
        let origins = peers(arena, rng, 10, many);
        let many = if crowd {
            MOST_REDUCED
        } else {
            rng.of(&[0, 1, 3, 5])
        };
        let mut targets = peers(arena, rng, 50, many);
        let own = match origins.len() {
            1 => rng.of(&[Own::Apart, Own::Saved, Own::First, Own::Second]),
            _ => rng.of(&[
                Own::Apart,
                Own::Saved,
                Own::Saved,
                Own::First,
                Own::Second,
                Own::None,
            ]),
        };
        let place = match own {
            Own::First => 0,
            Own::Second => 1,
            _ => rng.below(origins.len() + 1),
        };
        let mut take = |arena: &mut Arena| Ptr(arena.take(bytes, 4 * rng.below(4), true));
        let dst = take(arena);
        let src = match own {
            Own::Apart | Own::None => take(arena),
            _ => dst,
        };
        let other = take(arena);
        let saved = take(arena);
        for target in &mut targets {
            target.src = if rng.once_in(4) { other } else { src };
        }
        Job {
            kind,
            op,
            origins,
            targets,
            own,
            place,
            src,
            dst,
            saved,
            salt: rng.next(),
            post: rng.once_in(2).then(|| arena.word(0)),
        }
    }

    fn fold(&self, op: Op, before: bool, from: Ptr) -> Move {
        Move {
            action: Action::Fold {
                op,
                scalar: self.kind.scalar,
                before,
            },
            size: self.kind.scalar.bytes() as u32,
            count: self.kind.count,
            src: linear(from),
            dst: linear(self.dst),
            parity: Ptr::NULL,
            early: false,
            landing: None,
            buffers: 2,
        }
    }

    /// The folds, if these are the vectors of the origins, and the own one.
    fn folds(&self, vectors: &[Ptr], own: Ptr) -> Vec<Move> {
        let mut terms: Vec<_> = vectors.iter().map(|vector| Some(*vector)).collect();
        match self.own {
            Own::None => {}
            Own::First | Own::Second => terms.insert(self.place, None),
            Own::Apart | Own::Saved => terms.insert(self.place, Some(own)),
        }
        let mut folds = Vec::new();
        for (number, term) in terms.iter().enumerate() {
            // What is where the result goes is there before all others.
            let Some(from) = term else { continue };
            folds.push(match number {
                0 if self.own == Own::Second => self.fold(self.op, true, *from),
                0 => self.fold(Op::Replace, false, *from),
                _ => self.fold(self.op, false, *from),
            });
        }
        folds
    }

    /// The steps of the lane: puts, waits, perhaps a copy, and folds.
    pub(super) fn steps(&self, bell: Ptr) -> Vec<Step> {
        let bytes = self.kind.bytes();
        let puts = self
            .targets
            .iter()
            .flat_map(|target| target.put(self.kind, bell));
        let waits = self.origins.iter().map(|origin| origin.wait(bytes));
        let copy = (self.own == Own::Saved).then(|| {
            let to = self.fold(Op::Replace, false, self.src);
            Step::Move(Move {
                action: Action::Copy,
                dst: linear(self.saved),
                ..to
            })
        });
        let slots: Vec<_> = self.origins.iter().map(|origin| origin.slot.0).collect();
        let own = if self.own == Own::Saved {
            self.saved
        } else {
            self.src
        };
        let folds = self.folds(&slots, own).into_iter().map(|mut fold| {
            let origin = self.origins.iter().find(|it| it.slot.0 == fold.src.base);
            if let Some(origin) = origin.filter(|origin| origin.slot.1 != 0) {
                (fold.src.flip, fold.parity) = (origin.slot.1, origin.awaited.1);
            }
            Step::Move(fold)
        });
        puts.chain(waits).chain(copy).chain(folds).collect()
    }

    /// The vector that this rank puts to a target in an epoch, and its own: they are in one place, or in two.
    fn filled(&self, at: Ptr, time: u64) -> Vec<u8> {
        self.kind.vector(self.salt ^ at.0.addr() as u64, time)
    }

    pub(super) fn fill(&self, time: u64) {
        let puts = self.targets.iter().map(|target| target.src);
        for at in puts.chain([self.src]) {
            let vector = self.filled(at, time);
            // SAFETY: `Job::new` has taken the pieces with this length, and no launch is running.
            unsafe { at.0.copy_from_nonoverlapping(vector.as_ptr(), vector.len()) };
        }
    }

    /// Marks what no failed launch writes, and which is no source of one.
    pub(super) fn mark(&self) {
        let vector = self.filled(self.saved, u64::MAX);
        // SAFETY: `Job::new` has taken the pieces with this length, and no launch is running.
        unsafe {
            self.saved
                .0
                .copy_from_nonoverlapping(vector.as_ptr(), vector.len())
        };
    }

    pub(super) fn is_marked(&self) -> bool {
        self.read(self.saved) == self.filled(self.saved, u64::MAX)
    }

    /// What is at a place.
    fn read(&self, at: Ptr) -> Vec<u8> {
        // SAFETY: `Job::new` has taken the pieces with this length; between two primitives nothing else happens.
        unsafe { std::slice::from_raw_parts(at.0, self.kind.bytes()) }.to_vec()
    }

    /// The result of an epoch, as the host computes it.
    fn result(&self, time: u64) -> Vec<u8> {
        let vector = |origin: &Peer| self.kind.vector(origin.salt, origin.begin + time);
        let mut vectors: Vec<_> = self.origins.iter().map(vector).collect();
        let mut own = self.filled(self.src, time);
        let mut result = own.clone();
        let at: Vec<_> = vectors.iter_mut().map(|it| Ptr(it.as_mut_ptr())).collect();
        for fold in self.folds(&at, Ptr(own.as_mut_ptr())) {
            let dst = linear(Ptr(result.as_mut_ptr()));
            // SAFETY: all vectors have the length of `Kind::vector`, and nobody else uses them.
            unsafe { HostMover.carry(&Move { dst, ..fold }) };
        }
        result
    }

    /// Whether the lane has stamped a leg for each of its waits, in order.
    pub(super) fn are_legs(&self, stamps: &[RawStamp], launched: &Launched, time: u64) -> bool {
        let peers = self.targets.iter().chain(&self.origins);
        let expected = (0..).zip(peers.map(|peer| peer.begin + time));
        let lane = usize::from(self.post.is_some());
        let legs = stamps
            .iter()
            .filter(|stamp| stamp.leg as u32 == lane as u32);
        let found = legs.clone().map(|stamp| (stamp.leg >> 32, stamp.epoch));
        let in_order =
            |s: &RawStamp| s.begun <= s.satisfied && s.satisfied <= s.moved && s.moved <= s.ended;
        let all = found.clone().count() == launched.legs[lane].len();
        all && found.eq(expected) && legs.clone().all(in_order)
    }

    /// Checks everything after an epoch.
    pub(super) fn check(&self, time: u64) -> Result<(), String> {
        let (found, expected) = (self.read(self.dst), self.result(time));
        if found != expected {
            let at = found.iter().zip(&expected).position(|(a, b)| a != b);
            return Err(format!("the result differs from byte {at:?} on"));
        }
        if self.own == Own::Saved && self.read(self.saved) != self.filled(self.src, time) {
            return Err("the own vector is not saved".into());
        }
        for origin in &self.origins {
            // The word may be ahead by epochs that came by the word.
            let now = (origin.begin + time + 1) * QUANTUM;
            let word = value(origin.awaited.0) & !POISON;
            if origin.passed() != time + 1 || word < now || word > now + QUANTUM {
                return Err(format!("origin {}: {word:#x}", origin.number));
            }
        }
        for target in &self.targets {
            let epoch = target.begin + time;
            let vector = self.filled(target.src, time);
            for index in 0..Landing::room(self.kind.bytes()) / 8 {
                let found = value(target.unit(epoch, index));
                if found != Peer::landed(&vector, epoch, index) {
                    return Err(format!("target {}: {index} is {found:#x}", target.number));
                }
            }
            if target.passed() != time + 1 || value(target.told) != target.begin * QUANTUM {
                return Err(format!("target {}: the words", target.number));
            }
        }
        match self
            .post
            .is_none_or(|post| value(post) == (time + 1) * QUANTUM)
        {
            true => Ok(()),
            false => Err("the post beside the lane".into()),
        }
    }
}
