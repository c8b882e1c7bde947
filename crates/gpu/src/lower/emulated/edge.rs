//! The data that one rank puts to another in every epoch.

use std::cell::Cell;

use tidegate_hal::batch::{
    Action, Add, Awaited, Landed, Landing, Move, POISON, QUANTUM, Shape, Side, Step, Tag,
};
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::part;

use super::memory::value;
use super::steps::window;
use crate::lower::random::{Rng, mix};

/// The value that is stored to registers.
pub(super) const STRIKE: u64 = 0x57;

/// The data that one rank puts to another.
pub(super) struct Edge {
    pub(super) origin: usize,
    pub(super) target: usize,
    /// At the origin: the word and operand of the target's post.
    pub(super) exposed: (Ptr, Ptr),
    /// At the target: the word and operand of the origin's complete.
    pub(super) done: (Ptr, Ptr),
    /// The count of *done*, if *done* stands for a word of the host. Then the kernel only stores to *done*.
    pub(super) rung: Option<Ptr>,
    /// A register that is stored to after *done*; or just before it, if *done* is no word of the host.
    pub(super) struck: Option<Ptr>,
    /// How often the register was stored to.
    pub(super) strikes: Cell<u64>,
    /// If the lane rings in parts: how many doubles have come with each part but the last.
    pub(super) parts: Vec<usize>,
    /// How often the word has announced a part.
    pub(super) parts_seen: Cell<u64>,
    pub(super) src: Ptr,
    /// The distance in doubles from one double that is read to the next.
    pub(super) gap: usize,
    pub(super) dst: Ptr,
    /// The number of doubles.
    pub(super) count: usize,
    /// The distance in doubles from one double that is written to the next.
    pub(super) stride: usize,
    /// The distance in bytes between the target's two buffers, if it has two.
    pub(super) flip: usize,
    /// Where the target copies the data behind its wait, if it does. Then the data is contiguous.
    pub(super) taken: Option<Ptr>,
    /// The landing of both buffers, if the data may land.
    pub(super) landing: Option<Landing>,
    /// Whether its origin does not use the landing.
    pub(super) plain: bool,
    /// A counter at the target. Everyone whose lane does more than one copy adds 1 to it in every epoch.
    pub(super) counter: Option<Ptr>,
}

impl Edge {
    pub(super) fn tag(&self, awaited: Awaited) -> Tag {
        let (sequence, peer) = match awaited {
            Awaited::Exposure => (10 + self.origin as u32, self.target),
            _ => (20 + self.target as u32, self.origin),
        };
        Tag {
            window: window(sequence),
            peer: peer as u32,
            awaited,
        }
    }

    pub(super) fn pattern(&self, epoch: u64, index: usize) -> u64 {
        let edge = (self.origin * 64 + self.target) as u64;
        mix(edge << 48 | epoch) ^ (index as u64).wrapping_mul(0x9e37_79b9)
    }

    pub(super) fn fill(&self, epoch: u64) {
        for index in 0..self.count {
            // SAFETY: the piece is as long, and no move is reading it, because the rank's batches have ended.
            unsafe {
                let at = self.src.0.cast::<u64>().add(index * self.gap);
                at.write(self.pattern(epoch, index));
            }
        }
    }

    /// The data at the target, at the place of this epoch.
    pub(super) fn found(&self, epoch: u64) -> Vec<u64> {
        let base = self
            .dst
            .byte_add(if epoch % 2 == 1 { self.flip } else { 0 });
        (0..self.count)
            // SAFETY: the piece is as long; between primitives nothing writes.
            .map(|index| unsafe { base.0.cast::<u64>().add(index * self.stride).read() })
            .collect()
    }

    /// The data that its origin writes. A failed origin writes nothing.
    pub(super) fn written(&self) -> Vec<u64> {
        let Some(landing) = self.landing.filter(|_| !self.plain) else {
            return [self.found(0), self.found(1)].concat();
        };
        let words = (landing.flip + Landing::room(8 * self.count)) / 8;
        // SAFETY: the piece is as long; between primitives nothing writes.
        let word = |index| unsafe { landing.base.0.cast::<u64>().add(index).read() };
        (0..words).map(word).collect()
    }

    pub(super) fn landed(&self) -> Option<Landed> {
        self.landing.map(|from| Landed {
            from,
            slot: self.dst,
            flip: self.flip,
            bytes: 8 * self.count,
        })
    }

    /// Checks that all data of an epoch is there.
    pub(super) fn check(&self, epoch: u64) -> Result<(), String> {
        self.check_first(epoch, self.count)
    }

    /// The step behind the target's wait, if there is one.
    pub(super) fn take(&self) -> Option<Step> {
        let to = self.taken?;
        let side = |base, flip| Side {
            base,
            flip,
            shape: Shape::Linear,
        };
        Some(Step::Move(Move {
            action: Action::Copy,
            size: 8,
            count: self.count,
            src: side(self.dst, self.flip),
            dst: side(to, 0),
            parity: if self.flip == 0 {
                Ptr::NULL
            } else {
                self.done.1
            },
            early: false,
            landing: None,
            buffers: 2,
        }))
    }

    /// Checks that the target has taken all data of an epoch, if it takes any.
    pub(super) fn check_taken(&self, epoch: u64) -> Result<(), String> {
        let Some(taken) = self.taken else {
            return Ok(());
        };
        for index in 0..self.count {
            // SAFETY: the piece is as long; between primitives nothing writes.
            let found = unsafe { taken.0.cast::<u64>().add(index).read() };
            if found != self.pattern(epoch, index) {
                return Err(format!(
                    "epoch {epoch}: {index} of {} was not taken",
                    self.count
                ));
            }
        }
        Ok(())
    }

    /// Checks that the first `count` doubles of an epoch are there.
    pub(super) fn check_first(&self, epoch: u64, count: usize) -> Result<(), String> {
        for (index, found) in self.found(epoch).into_iter().take(count).enumerate() {
            if found != self.pattern(epoch, index) {
                // (A wrong kernel may have counted far.)
                let last = epoch.saturating_sub(100)..epoch;
                let old = last.rev().find(|e| found == self.pattern(*e, index));
                return Err(format!(
                    "{} -> {}, epoch {epoch}: {index} of {} is {found:#x} (of {old:?})",
                    self.origin, self.target, self.count
                ));
            }
        }
        Ok(())
    }

    /// Notes that the register was stored to. Checks that its word was rung as often, and that all data is there.
    pub(super) fn check_strike(&self) -> Result<(), String> {
        let epoch = self.strikes.get();
        self.strikes.set(epoch + 1);
        let (done, stored) = (value(self.done.0), self.struck.map(value));
        let before = epoch + u64::from(self.rung.is_some());
        if done & !POISON != before * QUANTUM || stored != Some(STRIKE) {
            return Err(format!(
                "strike {epoch} of {stored:?} at a word of {done:#x}"
            ));
        }
        self.check(epoch)
    }

    /// The steps between its lane's wait and its last add. `bell` is that of *done*.
    pub(super) fn moves(&self, bell: Ptr, rng: &mut Rng) -> Vec<Step> {
        let parity = if self.flip == 0 {
            Ptr::NULL
        } else {
            self.exposed.1
        };
        let side = |base, flip, shape| Side { base, flip, shape };
        let mut steps = Vec::new();
        let mut first = 0;
        while first < self.count {
            let rung = self.parts.iter().position(|end| *end > first);
            let count = match rng.below(3) {
                _ if self.counter.is_none() => {
                    rung.map_or(self.count, |index| self.parts[index]) - first
                }
                0 => self.count - first,
                _ => rng.within(1..=self.count - first),
            };
            let apart = |stride| {
                if stride == 1 {
                    return Shape::Linear;
                }
                let mut dims = [(1, 0); Shape::MAX_DIMS];
                dims[0] = (count as u32, stride as i32);
                Shape::Strided { dims, rank: 1 }
            };
            steps.push(Step::Move(Move {
                action: Action::Copy,
                size: 8,
                count,
                src: side(self.src.byte_add(8 * first * self.gap), 0, apart(self.gap)),
                dst: side(
                    self.dst.byte_add(8 * first * self.stride),
                    self.flip,
                    apart(self.stride),
                ),
                parity,
                early: true,
                landing: self.landing.filter(|_| !self.plain),
                buffers: 2,
            }));
            first += count;
            steps.extend(rung.map(|index| self.ring(index, bell)));
        }
        steps
    }

    /// A part of its ring, or the whole ring.
    pub(super) fn ring(&self, index: usize, bell: Ptr) -> Step {
        Step::Add(Add {
            tag: None,
            word: self.done.0,
            value: part(index as u64, self.parts.len() as u64 + 1),
            bell,
            turn: None,
        })
    }
}
