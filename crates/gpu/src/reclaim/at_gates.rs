//! The gates that a stream has still to pass.

use tidegate_hal::batch::Tag;

use super::StreamState;
use crate::gates::{Bar, Bars};
use crate::gpu::lock;
use crate::lower::Mirror;

impl StreamState {
    /// Adds a gate, and returns its number; `None` if the stream was ended, and gets no more gates.
    pub(crate) fn add_gate(&self, bars: Bars) -> Option<u32> {
        let mut gates = lock(&self.gates);
        gates.come_to(self.mirror.gate());
        gates.add(bars)
    }

    /// Takes the newest gate back.
    pub(crate) fn take_gate_back(&self) {
        lock(&self.gates).take_back();
    }

    /// The address to which the stream writes the number of the gate that it has come to.
    pub(crate) fn gate_address(&self) -> u64 {
        self.mirror_address() + std::mem::offset_of!(Mirror, gate) as u64
    }

    /// Calls `look` for each bar that is still closed: of the gate that the stream has come to, or of `all` gates that
    /// it has still to pass. Returns whether the stream may wait for more words behind the gate that it has come to.
    fn closed_bars(&self, all: bool, mut look: impl FnMut(&Bar)) -> bool {
        let (bars, more) = {
            let mut gates = lock(&self.gates);
            let number = self.mirror.gate();
            gates.come_to(number);
            let bars: Vec<_> = if all {
                gates.bars().copied().collect()
            } else {
                gates.at(number).to_vec()
            };
            (bars, gates.more_behind(number))
        };
        // The driver is asked now, which may take long. So no lock is held that an enqueuing thread needs. (If the
        // stream passes a gate meanwhile, the gate's word shows it as open, since words never go back.)
        for bar in &bars {
            let Some(_held) = self.gpu.operands.hold(bar.word, bar.piece) else {
                continue;
            };
            // SAFETY: the word's memory is still the same, and is held.
            let value = unsafe { self.gpu.look_at(bar.word) };
            if value.is_some_and(|value| !bar.is_open(value)) {
                look(bar);
            }
        }
        more
    }

    /// Opens the gates that the stream has still to pass, because it has failed, or is to end.
    pub(super) fn open_gates(&self) {
        self.closed_bars(true, |bar| {
            // SAFETY: as for reading it.
            unsafe { self.gpu.poison(bar.word) };
        });
    }

    /// The words that the stream waits for at a gate, and whether there may be more.
    pub(super) fn blocked_at_gate(&self) -> (Vec<(Tag, u64)>, bool) {
        let mut on = Vec::new();
        let more = self.closed_bars(false, |bar| on.push((bar.tag, bar.epoch)));
        (on, more)
    }
}
