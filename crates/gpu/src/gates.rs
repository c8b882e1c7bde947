//! Gates: waits for which no kernel has to run.
//!
//! # Model
//!
//! If several processes use a GPU in turn, it gives them time slices of milliseconds. A kernel that waits for a
//! peer of another process waits until its slice is over, which makes a round trip take 4.4 ms. So every wait gets a
//! *gate* in front of it: a stream memory operation that ends when the word has come far enough. With gates a round
//! trip takes 12 us. [`crate::lower::parts`] describes a batch with gates, and [`crate::lower::operands`] how far a
//! word must come.
//!
//! Ranks find out whether they share a GPU when they meet. Each sends the UUID of its device, a number of its process,
//! and how the process shares the device. If kernels of all processes run at the same time, no wait has a gate
//! (`share.rs` says what else follows). If one process uses the GPU in turn, all have gates.
//!
//! Recordings have no gates, because the values would be fixed. So where processes take turns, replays on a shared GPU work, but
//! slowly.
//!
//! # Failure
//!
//! A gate must end whenever the kernel's wait behind it would end. Three things end that wait:
//!
//! - The count, or poison, which is greater than any count. (The gate compares the signed difference, and
//!   [`POISON`](tidegate_hal::batch::POISON) is bit 62.) So whatever poisons words opens gates: the death of a peer, a
//!   revocation, a limit.
//! - The failure of the stream itself, in an earlier batch or by the host
//!   ([`Reclaim::abort`](tidegate_hal::device::Reclaim::abort)). A gate does not see it. So the host poisons the words
//!   of the gates that the stream has still to pass. It does so at once if it ends the stream itself. Otherwise it does
//!   so when it is asked what the stream is blocked on, which the watch of every job asks five times a second. It
//!   poisons only words that have not come far enough. A gate that the stream has passed may belong to a window that
//!   has gone to another stream, or that is closed. ([`crate::lower::operands`] knows whether the memory is still the
//!   same.)
//! - The failure of a stream that this one follows. So the batch behind a hand-off, which looks at the other stream's
//!   state, has no gates.
//!
//! A stream writes the number of each gate into its mirror before it waits there. So a wait at a gate is reported like
//! any other, and limits apply to it.

use std::collections::VecDeque;

use tidegate_hal::batch::{QUANTUM, Tag, Wait};

/// The environment variable that says when waits have gates. `auto` (the default): if several processes of the job use
/// the GPU in turn. `always`: outside of recordings. `never`: no wait has a gate.
pub const GATES: &str = "TIDEGATE_GPU_GATES";

/// When waits have gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Auto,
    Always,
    Never,
}

/// The mode by the variable's value. A value that cannot be read counts as not set.
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
    /// The number of the piece of memory that contains the word.
    pub(crate) piece: u64,
    /// The value that the word must reach.
    pub(crate) value: u64,
    pub(crate) tag: Tag,
    pub(crate) epoch: u64,
}

/// The most bars of a gate. The driver takes 256 operations at a time, and one of them writes the gate's number.
pub(crate) const MOST: usize = 255;

/// The waits of a gate, out of the waits of some lanes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Bars {
    pub(crate) bars: Vec<Bar>,
    /// Whether there are other waits, for which only the kernel waits.
    pub(crate) more: bool,
}

impl Bars {
    /// `awaited` gives the value that a wait's word must reach, and the number of the word's piece of memory, if they
    /// are known.
    pub(crate) fn new(waits: &[Wait], awaited: impl Fn(&Wait) -> Option<(u64, u64)>) -> Self {
        let mut all = Bars::default();
        for (index, wait) in waits.iter().enumerate() {
            let before = &waits[..index];
            // If several waits have the same operand, the kernel alone waits for those after the first.
            if before.iter().any(|other| other.operand == wait.operand) {
                continue;
            }
            // A gate would not see data that lands without a signal. Windows get landings only if no other process
            // shares the GPU when they are opened, but others may have come since.
            let known = awaited(wait).filter(|_| wait.landed.is_none());
            match known {
                Some((value, piece)) if all.bars.len() < MOST => all.bars.push(Bar {
                    word: wait.word.0.addr() as u64,
                    piece,
                    value,
                    tag: wait.tag,
                    // The kernel counts in the same way: a ticket's epoch has already advanced the operand.
                    epoch: (value / QUANTUM).saturating_sub(1),
                }),
                // If a gate has no room for a wait, the kernel alone waits for it.
                _ => all.more = true,
            }
        }
        all
    }
}

/// The gates that a stream may not have passed yet.
#[derive(Debug, Default)]
pub(crate) struct Gates {
    last: u32,
    queue: VecDeque<(u32, Bars)>,
    /// The stream has been ended, and gets no more gates.
    ended: bool,
}

impl Gates {
    /// Adds a gate, and returns the number that the stream will write before it waits there. Returns `None` if the
    /// stream has been ended.
    pub(crate) fn add(&mut self, bars: Bars) -> Option<u32> {
        if self.ended {
            return None;
        }
        self.last = self.last.wrapping_add(1);
        self.queue.push_back((self.last, bars));
        Some(self.last)
    }

    /// Takes the newest gate back, because the driver has refused it. Otherwise a failure of the stream would poison its
    /// words, for which nobody waits here.
    pub(crate) fn take_back(&mut self) {
        self.queue.pop_back();
    }

    /// Notes that the stream has come to the gate of this number. So it has passed all gates before it.
    pub(crate) fn come_to(&mut self, number: u32) {
        let passed = |gate: &(u32, Bars)| (number.wrapping_sub(gate.0) as i32) > 0;
        while self.queue.front().is_some_and(passed) {
            self.queue.pop_front();
        }
    }

    /// The bars of the gate of this number, if it is in the list.
    pub(crate) fn at(&self, number: u32) -> &[Bar] {
        self.gate(number).map_or(&[], |gate| &gate.bars)
    }

    /// Whether the stream, at the gate of this number, may wait for more words behind it.
    pub(crate) fn more_behind(&self, number: u32) -> bool {
        self.gate(number).is_some_and(|gate| gate.more)
    }

    fn gate(&self, number: u32) -> Option<&Bars> {
        let (first, bars) = self.queue.front()?;
        (*first == number).then_some(bars)
    }

    /// From now on the stream gets no more gates.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    /// The bars of all gates.
    pub(crate) fn bars(&self) -> impl Iterator<Item = &Bar> {
        self.queue.iter().flat_map(|(_, gate)| &gate.bars)
    }
}

impl Bar {
    /// Whether the bar is open if its word has this value.
    pub(crate) fn is_open(&self, word: u64) -> bool {
        // The driver compares the signed difference, too.
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
        // The stream is before the first gate.
        gates.come_to(0);
        assert!(gates.at(0).is_empty());
        assert_eq!(words(&gates), [8, 16, 16, 24]);
        // At gate 1 it may still be waiting.
        gates.come_to(1);
        assert_eq!(gates.at(1), [bar(8), bar(16)]);
        gates.come_to(3);
        assert_eq!(gates.at(3), [bar(24)]);
        assert_eq!(words(&gates), [24]);
        // The driver refuses one.
        assert_eq!(gates.add(all(&[32])), Some(4));
        gates.take_back();
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
            ring: None,
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
        // The second wait is for the same word, an epoch later.
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
        // The report at the gate says so.
        let mut gates = Gates::default();
        gates.add(again);
        gates.add(without);
        assert!(!gates.more_behind(0) && !gates.more_behind(1));
        gates.come_to(2);
        assert!(gates.more_behind(2) && !gates.more_behind(3));
    }
}
