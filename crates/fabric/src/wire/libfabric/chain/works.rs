//! The works of a firing: what the table of the [chain](super) says of each.

use std::sync::Arc;

use tidegate_ffi::fabric::{Desc, Endpoint, Local, OpFlags, Remote as Target, Work};
use tidegate_hal::batch::QUANTUM;
use tidegate_hal::nic::NicError;

use super::super::super::Op;
use super::super::super::chain::{Signal, Signals};
use super::super::region::{PAD, Remote, system};
use super::FabricChain;

/// The layout of a firing's works.
pub(super) struct Plan {
    /// How many pieces begin at the trigger.
    pub(super) free: usize,
    /// Whether the signal is the last piece.
    pub(super) merged: bool,
    /// Whether the gate must be told of the ring.
    pub(super) told: bool,
    /// Whether the signal begins at the trigger.
    pub(super) at_once: bool,
}

impl Plan {
    pub(super) fn works(&self) -> usize {
        self.free + usize::from(self.told) + 1
    }
}

impl FabricChain {
    /// Makes the layout of a firing with these pieces. `alone` says that no firing with data is before it.
    pub(super) fn plan(&self, pieces: &[Op<'_, Remote>], alone: bool) -> Plan {
        let writes_last = matches!(pieces.last(), Some(Op::Write { .. }));
        let merged = writes_last && self.signals == Signals::Notice;
        let free = pieces.len() - usize::from(merged);
        let at_once = pieces.is_empty() && alone;
        Plan {
            free,
            merged,
            told: free == 0 && !at_once,
            at_once,
        }
    }

    /// A place in the peer's memory.
    fn remote(&self, base: u64, key: u64, offset: usize) -> Target {
        Target {
            peer: self.peer,
            address: base + offset as u64,
            key,
        }
    }

    /// A piece as a work, and whether it is a write.
    fn piece(
        &self,
        endpoint: &Arc<Endpoint>,
        op: &Op<'_, Remote>,
    ) -> Result<(Work, bool), NicError> {
        let local = |address: *mut u8, len| Local {
            address: address.cast(),
            len,
            desc: Desc::NONE,
        };
        let made = match *op {
            Op::Write {
                from,
                bytes,
                to,
                offset,
                ..
            } => {
                let to = self.remote(to.region.base(), to.region.key(), offset);
                (
                    Work::write(endpoint, local(from.cast_mut(), bytes), to),
                    true,
                )
            }
            Op::Read {
                to,
                bytes,
                from,
                offset,
            } => {
                let from = self.remote(from.region.base(), from.region.key(), offset);
                (Work::read(endpoint, local(to, bytes), from), false)
            }
            Op::Notify(_) => unreachable!("only a signal is a notice"),
        };
        let work = made.0.map_err(system("making a deferred work"))?;
        Ok((work, made.1))
    }

    /// The work that is a firing's signal.
    fn signal(
        &self,
        endpoint: &Arc<Endpoint>,
        last: Option<&Op<'_, Remote>>,
        signal: &Signal<'_, Remote>,
    ) -> Result<Work, NicError> {
        let mut flags = OpFlags::DELIVERY_COMPLETE | OpFlags::COMPLETION;
        if self.gates[0].writes_back() {
            flags = flags | OpFlags::CXI_CNTR_WB;
        }
        let refused = system("making a deferred work");
        let work = match (self.signals, last) {
            (Signals::Add, _) => {
                let (Remote { region }, offset) = signal.word;
                let word = self.remote(region.base(), region.key(), offset);
                return Work::add(endpoint, QUANTUM, word)
                    .map(|work| work.flags(flags))
                    .map_err(refused);
            }
            (Signals::Notice, Some(op)) => self.piece(endpoint, op)?.0,
            (Signals::Notice, None) => {
                let from = Local {
                    address: self.bytes.at(),
                    len: PAD,
                    desc: Desc::NONE,
                };
                let pad = self.remote(self.pad.0, self.pad.1, 0);
                Work::write(endpoint, from, pad)
                    .map_err(refused)?
                    .keep(self.bytes.clone())
            }
        };
        Ok(work
            .flags(flags | OpFlags::REMOTE_CQ_DATA)
            .data(signal.notice))
    }

    /// Work `index` of the newest firing.
    pub(super) fn work(
        &self,
        index: usize,
        plan: &Plan,
        pieces: &[Op<'_, Remote>],
        signal: &Signal<'_, Remote>,
    ) -> Result<Work, NicError> {
        let number = self.queued;
        let firing = self.firings.back().expect("it is being queued");
        let (gate, next) = (self.gate(number), self.gate(number + 1));
        let (gate, next) = (self.gates[gate].counter(), self.gates[next].counter());
        if plan.told && index == 0 {
            return Ok(Work::counter_add(gate, 1).after(&self.trigger, self.ring(number)));
        }
        let endpoint = self.endpoint.upgrade().ok_or_else(|| NicError::System {
            what: "queueing a deferred work",
            detail: "the endpoint is closed".into(),
        })?;
        if index < plan.free {
            let (work, writes) = self.piece(&endpoint, &pieces[index])?;
            let flags = if writes {
                OpFlags::DELIVERY_COMPLETE
            } else {
                OpFlags(0)
            };
            return Ok(work
                .flags(flags)
                .after(&self.trigger, self.ring(number))
                .completes(gate));
        }
        let last = pieces.last().filter(|_| plan.merged);
        let work = self.signal(&endpoint, last, signal)?.completes(next);
        Ok(if plan.at_once {
            work.after(&self.trigger, self.ring(number))
        } else {
            work.after(gate, firing.base + firing.own)
        })
    }
}
