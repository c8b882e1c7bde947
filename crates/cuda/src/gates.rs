//! Gates: waits that no kernel runs for.
//!
//! # Model
//!
//! When several processes use one GPU (without MPS), it gives them time in slices, of milliseconds. A kernel that waits
//! for a peer of another process waits until its slice is over: 4.4 ms a round trip. So there every wait gets a *gate*
//! in front of it, a stream memory operation that ends when the word has come far enough (12 us). What a batch becomes
//! then stands in [`crate::lower::parts`]; how far a word must come, in [`crate::lower::operands`].
//!
//! Whether a GPU is shared is found out when the ranks meet: each tells the others the UUID of its device, a number of
//! its process, and whether that uses the device by MPS. If all do, their kernels run at the same time, and nothing
//! has a gate; what is to be minded instead stands in `share.rs`. If one does not, all have gates.
//!
//! In recordings there are no gates, for the values would be fixed: without MPS, replays work on a shared GPU, and crawl.
//!
//! # Failure
//!
//! A gate must end whenever the kernel's wait behind it would. That ends by
//!
//! - the count; and by poison, which is greater than any count (the comparison is of the difference, with a sign, and
//!   [`POISON`](tidegate_hal::batch::POISON) is bit 62): so by all that poisons words, such as a peer's death, a
//!   revocation, a limit;
//! - the stream's own failure, in a batch before or by the host
//!   ([`Reclaim::abort`](tidegate_hal::device::Reclaim::abort)), at which a gate does not look. So the host poisons the
//!   words of the gates that are still to be passed: at once when it ends the stream itself, else when somebody asks
//!   what the stream is blocked on, which the watch of every job does five times a second. Only words that have not
//!   come: a gate that was passed may be one of a window that has gone to another stream, or is gone (whether the
//!   memory is still the same is known from [`crate::lower::operands`]);
//! - the failure of a stream that this one follows. So the batch behind a hand-off, which looks at the other stream's
//!   state, has no gates.
//!
//! Which gate a stream is at is written by the stream itself, into its mirror, before it waits there: so a wait at a
//! gate is reported like any other, and limits hold.

use std::collections::VecDeque;

use tidegate_hal::batch::{QUANTUM, Tag, Wait};

/// The environment variable that says when waits have gates: `auto` (if it is not set: where several processes of the
/// job use the GPU, and not all by MPS), `always` (outside of recordings), or `never`.
pub const GATES: &str = "TIDEGATE_CUDA_GATES";

/// When waits have gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Auto,
    Always,
    Never,
}

/// What the variable says; what cannot be read counts as if it were not set.
pub(crate) fn mode(value: Option<&str>) -> Mode {
    match value.map(str::trim) {
        None | Some("auto") => Mode::Auto,
        Some("always") => Mode::Always,
        Some("never") => Mode::Never,
        Some(other) => {
            tracing::warn!("{GATES} is `{other}`: `auto`, `always` or `never` is wanted");
            Mode::Auto
        }
    }
}

/// One wait of a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bar {
    pub(crate) word: u64,
    /// The number of the piece of memory in which it lies.
    pub(crate) piece: u64,
    /// How far it must come.
    pub(crate) value: u64,
    pub(crate) tag: Tag,
    pub(crate) epoch: u64,
}

/// The most bars of a gate: the driver takes 256 operations at a time, of which one says that the stream is there.
pub(crate) const MOST: usize = 255;

/// What of some waits a gate waits for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Bars {
    pub(crate) bars: Vec<Bar>,
    /// Whether there are others, which are for the kernel alone.
    pub(crate) more: bool,
}

impl Bars {
    /// `awaited` says of a wait how far its word must come, and the number of the piece in which that lies, if that is
    /// known.
    pub(crate) fn new(waits: &[Wait], awaited: impl Fn(&Wait) -> Option<(u64, u64)>) -> Self {
        let mut all = Bars::default();
        for (index, wait) in waits.iter().enumerate() {
            let before = &waits[..index];
            // What comes after another wait with this operand is for the kernel.
            if before.iter().any(|other| other.operand == wait.operand) {
                continue;
            }
            // What may land instead of being signalled, no gate would see: windows have landings only where nobody
            // shared the GPU when they were made, but others may have come since.
            let known = awaited(wait).filter(|_| wait.landed.is_none());
            match known {
                Some((value, piece)) if all.bars.len() < MOST => all.bars.push(Bar {
                    word: wait.word.0.addr() as u64,
                    piece,
                    value,
                    tag: wait.tag,
                    // As the kernel counts them: a ticket's operand has been advanced already by the epoch that it
                    // stands for.
                    epoch: (value / QUANTUM).saturating_sub(1),
                }),
                // What is too much for one gate is for the kernel, too.
                _ => all.more = true,
            }
        }
        all
    }
}

/// The gates of a stream that it may not have passed yet.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    last: u32,
    queue: VecDeque<(u32, Bars)>,
    /// The stream has been ended: it gets no more.
    ended: bool,
}

impl Gates {
    /// Notes a gate, whose number the stream will write before it waits there. None if the stream has been ended.
    pub(crate) fn add(&mut self, bars: Bars) -> Option<u32> {
        if self.ended {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        self.queue.push_back((self.last, bars));
        Some(self.last)
    }

    /// The stream has come to the gate of this number. Who has come to the next has passed those before.
    pub(crate) fn come_to(&mut self, number: u32) {
        let passed = |gate: &(u32, Bars)| (number.wrapping_sub(gate.0) as i32) > 0;
        while self.queue.front().is_some_and(passed) {
            self.queue.pop_front();
        }
    }

    /// The gate of this number, if it is among those.
    pub(crate) fn at(&self, number: u32) -> &[Bar] {
        self.gate(number).map_or(&[], |gate| &gate.bars)
    }

    /// Whether who stands at the gate of this number may wait behind it for more.
    pub(crate) fn more_behind(&self, number: u32) -> bool {
        self.gate(number).is_some_and(|gate| gate.more)
    }

    fn gate(&self, number: u32) -> Option<&Bars> {
        let (first, bars) = self.queue.front()?;
        (*first == number).then_some(bars)
    }

    /// From now on there are no more.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// What all of them wait for.
    pub(crate) fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.queue.iter().flat_map(|(_, gate)| &gate.bars)
    }
}

impl Bar {
    /// Whether it is open when the word says so.
    pub(crate) fn is_open(&self, word: u64) -> bool {
        // What the stream's front end compares: the difference, with a sign.
        word.wrapping_sub(self.value) as i64 >= 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_hal::batch::{Awaited, Landed, Landing, POISON};
    use tidegate_hal::memory::Ptr;

    fn bar(word: u64) -> Bar {
        Bar {
            word,
            piece: 1,
            value: 1,
            tag: Tag {
                window: None,
                peer: 1,
                awaited: Awaited::Completion,
            },
            epoch: 0,
        }
    }

    #[test]
    fn the_variable_is_read() {
        for (value, means) in [
            (None, Mode::Auto),
            (Some("auto"), Mode::Auto),
            (Some(" always "), Mode::Always),
            (Some("never"), Mode::Never),
            (Some("perhaps"), Mode::Auto),
        ] {
            assert_eq!(mode(value), means, "{value:?}");
        }
    }

    fn all(words: &[u64]) -> Bars {
        Bars {
            bars: words.iter().map(|word| bar(*word)).collect(),
            more: false,
        }
    }

    fn words(gates: &Gates) -> Vec<u64> {
        gates.bars().map(|bar| bar.word).collect()
    }

    #[test]
    fn gates_are_kept_until_the_stream_is_past_them() {
        let mut gates = Gates::default();
        assert_eq!(gates.add(all(&[8, 16])), Some(1));
        assert_eq!(gates.add(all(&[16])), Some(2));
        assert_eq!(gates.add(all(&[24])), Some(3));
        // Before the first.
        gates.come_to(0);
        assert!(gates.at(0).is_empty());
        assert_eq!(words(&gates), [8, 16, 16, 24]);
        // At one it may still be waiting.
        gates.come_to(1);
        assert_eq!(gates.at(1), [bar(8), bar(16)]);
        gates.come_to(3);
        assert_eq!(gates.at(3), [bar(24)]);
        assert_eq!(words(&gates), [24]);
        gates.end();
        assert_eq!(gates.add(all(&[32])), None);
        assert_eq!(words(&gates), [24]);
    }

    #[test]
    fn numbers_may_wrap_round() {
        let mut gates = Gates {
            last: u32::MAX - 1,
            ..Gates::default()
        };
        for word in [8, 16, 24] {
            gates.add(all(&[word]));
        }
        gates.come_to(0);
        assert_eq!(gates.at(0), [bar(16)]);
        gates.come_to(1);
        assert_eq!(words(&gates), [24]);
    }

    #[test]
    fn poison_opens_a_gate_whatever_the_count() {
        for count in [0, 1 << 20, 1 << 56] {
            for value in [1, 1 << 20, (1 << 56) + (1 << 20)] {
                let bar = Bar { value, ..bar(8) };
                assert!(bar.is_open(count | POISON));
                assert_eq!(bar.is_open(count), count >= value);
            }
        }
    }

    fn wait(number: usize, operand: usize) -> Wait {
        let at = |address| Ptr(std::ptr::without_provenance_mut(address));
        Wait {
            word: at(0x1000 + 64 * number),
            operand: at(0x9000 + 64 * operand),
            quantum: QUANTUM,
            tag: bar(0).tag,
            landed: None,
        }
    }

    #[test]
    fn what_a_gate_does_not_wait_for_is_said() {
        let known = |_: &Wait| Some((2 * QUANTUM, 5));
        let some = |count| {
            (0..count)
                .map(|number| wait(number, number))
                .collect::<Vec<_>>()
        };
        let all = Bars::new(&some(MOST), known);
        assert_eq!((all.bars.len(), all.more), (MOST, false));
        assert_eq!((all.bars[1].word, all.bars[1].value), (0x1040, 2 * QUANTUM));
        assert_eq!((all.bars[1].piece, all.bars[1].epoch), (5, 1));
        let cut = Bars::new(&some(MOST + 1), known);
        assert_eq!((cut.bars.len(), cut.more), (MOST, true));
        // The second is for the same word, an epoch later.
        let again = Bars::new(&[wait(0, 0), wait(0, 0)], known);
        assert_eq!((again.bars.len(), again.more), (1, false));
        let landed = Some(Landed {
            from: Landing {
                base: Ptr::NULL,
                flip: 0,
            },
            slot: Ptr::NULL,
            flip: 0,
            bytes: 8,
        });
        let lands = Wait {
            landed,
            ..wait(1, 1)
        };
        let without = Bars::new(&[wait(0, 0), lands], known);
        assert_eq!((without.bars.len(), without.more), (1, true));
        let first = |each: &Wait| known(each).filter(|_| each.word == wait(0, 0).word);
        let without = Bars::new(&some(3), first);
        assert_eq!((without.bars.len(), without.more), (1, true));
        // Who stands at the gate hears of it.
        let mut gates = Gates::default();
        gates.add(again);
        gates.add(without);
        assert!(!gates.more_behind(0) && !gates.more_behind(1));
        gates.come_to(2);
        assert!(gates.more_behind(2) && !gates.more_behind(3));
    }
}
