//! Chains of deferred works: a put with a signal, expressed by `FI_QUEUE_WORK`.
//!
//! # Model
//!
//! A chain has a *trigger counter* T, which a strike increments, and K *gate counters* G, in short *gates*, which
//! firings use by turns. Firing n (from 0) uses gate n mod K, and hands on to gate n+1 mod K. A deferred work waits for
//! *one* counter only. A signal must wait for three things: its own ring of the doorbell, its own data, and the signal
//! before it. So one gate counts all three. While a firing is in progress, its gate serves that firing alone:
//!
//! | work | begins when | counts at |
//! |---|---|---|
//! | each piece of data (write or read; delivered when complete) | T ≥ n+1 | G\[n\] |
//! | if no piece begins at T: add 1 to G\[n\] | T ≥ n+1 | G\[n\] |
//! | the signal | G\[n\] ≥ all of these, and 1 for the signal before | G\[n+1\] |
//!
//! With [`Signals::Notice`], the signal *is* the last write of the data, which brings 64 bits along. Then only the
//! other pieces begin at T. With [`Signals::Add`], or if the last piece is not a write, the signal is an operation of
//! its own: a write of 8 bytes to the peer's pad that brings the notice, or an atomic add to the peer's word.
//!
//! The number of triggers of the NIC that this takes, for p pieces:
//!
//! | | p = 0 | p = 1 | p ≥ 2 |
//! |---|---|---|---|
//! | notice | 2 (1, see below) | 2 | p |
//! | add | 2 (1) | 2 | p + 1 |
//!
//! A signal without data that follows others without data waits for nothing but its ring, since all of them say the
//! same. So it begins at T. A post is always of this kind. If gates are [written back](super::gate), a signal takes one
//! more trigger.
//!
//! *Thresholds.* Counters only rise. The chain knows how far each gate will have come when everything that was queued
//! for it has counted, and adds what the new firing adds. This is exact: a gate is used again only when the firing that
//! used it is through, so K-1 firings can be queued at a time. (One counter for all firings would not do. A stream may
//! ring twice before the first firing's data is delivered, and then the pieces of the second would stand for those of
//! the first.)
//!
//! *Counters that come far.* `sockets` counts with 31 bits. Before a counter comes near that limit, the chain queues
//! nothing until all firings are through. It then sets its counters to their first values, and goes on from there.
//!
//! *Through.* G\[n+1\] counts the signal of firing n, and also the pieces of firing n+1, in any order. If firing n+1
//! has not been rung for, a count means the signal. If it has, the signal is proved when the gate has counted
//! everything that is *queued* for it by now. (The rest may be waiting for works that firing n holds.) In between, the
//! engine asks the chain again. Each work counts without waiting for the others, so the count gets there unless an
//! operation fails.
//!
//! *Memory.* Each work keeps what it names until a counter has proved it complete ([`WorkQueue`]).
//!
//! # Failure
//!
//! A work that fails counts nothing. Its signal does not begin, and neither does any later one, since each waits for
//! the one before. The failure is reported by the endpoint's queue, whose entry names the work, or by the gate's count
//! of failures. (If only that count reports a failed piece, the firing before it may be taken for one that is not
//! through. Its data is there, and its sent word is poisoned.) Sockets cannot take works back. Works that never fire
//! leak, together with the endpoint.

mod works;

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use tidegate_ffi::fabric::{Counter, Endpoint, Peer, RemoteRegion, WaitObject, WorkId, WorkQueue};
use tidegate_hal::nic::{Keep, NicError, Register};

use super::super::chain::{Chain, Signal, Signals, Stuck};
use super::super::{Op, Posted};
use super::gate::{self, Gate};
use super::pool::{Pool, Share};
use super::region::{Pad, Remote, system};
use crate::base::NAME;

/// The most firings that a chain holds at a time, if the budget is not smaller. Each takes a counter. More than a few
/// only help a stream that rings faster than an agent can queue.
const DEPTH: usize = 8;
/// How far software counters may count: those of sockets have 31 bits.
pub(super) const FAR: u64 = 1 << 30;
/// How often a waiting chain is looked at before its counters are poked. Providers with many works lose sight of some.
const POKE: u32 = 256;

/// A firing that was queued, at least in part.
struct Firing {
    /// How many works it has, and how many of those were queued.
    works: usize,
    queued: usize,
    /// At the gate where it begins: the count after the signal before it, and what the firing itself adds.
    base: u64,
    own: u64,
    /// How many of its works are queued, count there, and have not failed.
    counting: u64,
    /// The count of the next gate without this firing's signal.
    next: u64,
    /// How many works of the pool it takes.
    cost: usize,
    bare: bool,
    ids: Vec<WorkId>,
    /// Its works that can fail.
    moves: Vec<Move>,
}

/// A work that moves data, or is the signal.
struct Move {
    context: usize,
    /// Whether the gate where its firing begins must still count it.
    counts: bool,
}

/// The parts that a chain is made of.
pub(super) struct Parts<'a> {
    pub(super) endpoint: &'a Arc<Endpoint>,
    pub(super) peer: Peer,
    pub(super) pad: &'a RemoteRegion,
    pub(super) bytes: &'a Arc<Pad>,
    pub(super) signals: Signals,
    pub(super) pool: Option<&'a Arc<Pool>>,
    pub(super) budget: usize,
    /// How far counters may count.
    pub(super) far: u64,
}

/// A chain over libfabric.
pub(super) struct FabricChain {
    works: WorkQueue,
    /// This is weak, because the endpoint ends with the wire, or stays with leaked works.
    endpoint: Weak<Endpoint>,
    peer: Peer,
    /// The address of the peer's pad, and its key.
    pad: (u64, u64),
    bytes: Arc<Pad>,
    signals: Signals,
    share: Option<Share>,
    trigger: Arc<Counter>,
    /// Whether streams strike by themselves.
    struck: bool,
    gates: Vec<Gate>,
    /// The number of the next firing when the counters were last reset, and how far they may count.
    origin: u64,
    far: u64,
    /// Firings that are not through, the oldest first. The newest may be queued only in part.
    firings: VecDeque<Firing>,
    through: u64,
    /// How many firings were queued completely.
    queued: u64,
    /// How often an agent has struck.
    fired: u64,
    looks: u32,
    cancelled: bool,
}

impl FabricChain {
    pub(super) fn new(parts: Parts<'_>) -> Result<Self, NicError> {
        let domain = parts.endpoint.domain();
        let counter = || {
            Counter::open(domain, WaitObject::NONE).map_err(|error| NicError::Exhausted {
                nic: NAME,
                what: "counters",
                detail: error.to_string(),
            })
        };
        let share = parts.pool.map(Pool::take).transpose()?;
        let trigger = counter()?;
        let depth = DEPTH.min(parts.budget).max(1);
        Ok(FabricChain {
            // A gate counts works of two firings, in any order.
            works: WorkQueue::new(domain),
            endpoint: Arc::downgrade(parts.endpoint),
            peer: parts.peer,
            pad: (parts.pad.base(), parts.pad.key()),
            bytes: parts.bytes.clone(),
            signals: parts.signals,
            share,
            trigger,
            struck: false,
            gates: (0..=depth)
                .map(|_| counter().map(Gate::new))
                .collect::<Result<_, NicError>>()?,
            origin: 0,
            far: parts.far,
            firings: VecDeque::new(),
            through: 0,
            queued: 0,
            fired: 0,
            looks: 0,
            cancelled: false,
        })
    }

    fn gate(&self, firing: u64) -> usize {
        (firing % self.gates.len() as u64) as usize
    }

    /// The count of the trigger counter when a firing has been rung for.
    fn ring(&self, firing: u64) -> u64 {
        firing + 1 - self.origin
    }

    /// Whether one more firing could bring a counter too far. If streams strike, this never happens: such counters are
    /// in hardware, and have at least 48 bits.
    fn is_far(&self) -> bool {
        let gates = self.gates.iter().map(|gate| gate.expected).max();
        !self.struck && gates.max(Some(self.queued - self.origin)) >= Some(self.far)
    }

    /// Resets the counters, if the hardware has nothing that they count. Otherwise the next firing must wait for that.
    fn begin_anew(&mut self) -> Result<bool, NicError> {
        if !self.firings.is_empty() || self.works.reclaim() > 0 {
            return Ok(false);
        }
        let refused = || system("setting a counter");
        // Rings of firings that are not queued yet stay counted.
        let ahead = self.fired - self.queued;
        self.trigger.set(ahead).map_err(refused())?;
        for gate in &mut self.gates {
            gate.begin_anew().map_err(refused())?;
        }
        self.origin = self.queued;
        Ok(true)
    }

    fn cost(&self, works: usize) -> usize {
        works + usize::from(self.gates[0].writes_back())
    }

    /// Whether the oldest firing is through.
    fn is_through(&self, rung: &dyn Fn() -> u64) -> bool {
        let number = self.through;
        let firing = &self.firings[0];
        let gate = &self.gates[self.gate(number + 1)];
        if gate.is_quiet(firing.next) {
            return false;
        }
        let counted = gate.beyond(firing.next);
        // The works of the next firing that count at the same gate, as far as they are queued. The others may be
        // waiting for the works that this firing has.
        let own = self
            .firings
            .get(1)
            .map_or(0, |behind| behind.counting as i32);
        counted > 0 && (counted == 1 + own || own == 0 || rung() < number + 2)
    }

    /// Pokes the counters, which a work that waits for long may need.
    fn poke(&mut self) -> Result<(), Stuck> {
        // The oldest firing comes first, because a gate counts the works of the firing that begins there, and the
        // signal before it.
        let failing = (self.through..).take(self.gates.len()).find_map(|at| {
            let failures = self.gates[self.gate(at)].failures();
            (failures > 0).then_some((at, failures))
        });
        if let Some((at, failures)) = failing {
            let gate = self.gate(at);
            let error = NicError::System {
                what: "a deferred work",
                detail: format!("gate {gate} has counted {failures} failures"),
            };
            return Err(Stuck { at, error });
        }
        if !self.struck {
            let gate = &self.gates[self.gate(self.through)];
            for counter in [&self.trigger, gate.counter()] {
                let at = self.through;
                let refused = |error| Stuck {
                    at,
                    error: system("poking a counter")(error),
                };
                counter.add(0).map_err(refused)?;
            }
        }
        Ok(())
    }
}

impl Chain<Remote> for FabricChain {
    fn depth(&self) -> usize {
        self.gates.len() - 1
    }

    fn fits(&self, pieces: usize) -> Result<(), NicError> {
        // One more work may tell the gate of the ring, and one may be the signal.
        let needed = self.cost(pieces + 2);
        match &self.share {
            Some(share) if needed > share.works => Err(NicError::Unsupported {
                nic: NAME,
                what: format!(
                    "a put of {pieces} pieces, which takes {needed} deferred works of {}",
                    share.works
                ),
            }),
            _ => Ok(()),
        }
    }

    fn register(&self) -> Option<Register> {
        gate::register(&self.trigger)
    }

    fn struck_by_streams(&mut self) {
        self.struck = true;
    }

    fn missing(&self, rung: u64) -> u64 {
        let missing = Counter::distance(self.trigger.read(), self.ring(rung) - 1);
        if self.struck {
            missing.max(0) as u64
        } else {
            0
        }
    }

    unsafe fn queue(
        &mut self,
        pieces: &[Op<'_, Remote>],
        signal: &Signal<'_, Remote>,
        keep: &Keep,
    ) -> Result<Posted, NicError> {
        if self.cancelled {
            return Err(NicError::GivenUp);
        }
        let begun = self.through + self.firings.len() as u64 > self.queued;
        let number = self.queued;
        if !begun {
            if self.firings.len() == self.depth() || self.is_far() && !self.begin_anew()? {
                return Ok(Posted::Full);
            }
            let alone = self.firings.iter().all(|firing| firing.bare);
            let plan = self.plan(pieces, alone);
            let cost = self.cost(plan.works());
            if let Some(share) = &mut self.share {
                if share.used + cost > share.works {
                    return Ok(Posted::Full);
                }
                share.used += cost;
            }
            let (gate, next) = (self.gate(number), self.gate(number + 1));
            self.firings.push_back(Firing {
                works: plan.works(),
                queued: 0,
                base: self.gates[gate].expected,
                own: (plan.free + usize::from(plan.told)) as u64,
                counting: 0,
                next: self.gates[next].expected,
                cost,
                bare: plan.at_once,
                ids: Vec::new(),
                moves: Vec::new(),
            });
        }
        // Use the plan of when it was begun: firings that have come through meanwhile do not change what was queued.
        let bare = self.firings.back().is_some_and(|firing| firing.bare);
        let plan = self.plan(pieces, bare);
        loop {
            let firing = self.firings.back().expect("it was begun");
            let index = firing.queued;
            if index == firing.works {
                break;
            }
            let work = self.work(index, &plan, pieces, signal)?.keep(keep.clone());
            let told = plan.told && index == 0;
            let moves = (!told).then(|| Move {
                context: work.context(),
                counts: index < plan.free,
            });
            // SAFETY: the caller's promise for the memory, which the work keeps. The work runs entirely between the
            // strike and the end of the firing. Only works of this queue count at the gates, and pads live as long as
            // they are shared.
            match unsafe { self.works.queue(work) } {
                Ok(id) => {
                    let firing = self.firings.back_mut().expect("it was begun");
                    firing.queued += 1;
                    // The last work is the signal, which counts at the next gate.
                    firing.counting += u64::from(firing.queued < firing.works);
                    firing.ids.push(id);
                    firing.moves.extend(moves);
                }
                Err(error) if error.is_full() => return Ok(Posted::Full),
                Err(error) => {
                    return Err(NicError::System {
                        what: "queueing a deferred work",
                        detail: error.to_string(),
                    });
                }
            }
        }
        let (gate, next) = (self.gate(number), self.gate(number + 1));
        self.gates[gate].expected += self.firings.back().map_or(0, |firing| firing.own);
        self.gates[next].expected += 1;
        self.queued += 1;
        Ok(Posted::Taken)
    }

    fn fire(&mut self, firings: u64) -> Result<(), NicError> {
        self.fired += firings;
        self.trigger
            .add(firings)
            .map_err(system("firing a deferred work"))
    }

    fn poll(&mut self, rung: &dyn Fn() -> u64) -> Result<u64, Stuck> {
        let before = self.through;
        while self.through < self.queued && self.is_through(rung) {
            let firing = self.firings.pop_front().expect("it was queued");
            self.through += 1;
            if let Some(share) = &mut self.share {
                share.used -= firing.cost;
            }
        }
        if self.through != before {
            self.looks = 0;
            self.works.reclaim();
        } else if !self.firings.is_empty() && rung() > self.through {
            self.looks += 1;
            if self.looks.is_multiple_of(POKE) {
                self.poke()?;
            }
        }
        Ok(self.through)
    }

    fn failed(&mut self, context: usize) -> Option<u64> {
        let own = self.works.failed(context);
        // The newest comes first, because the memory of a completed work may belong to another work by now.
        for (at, firing) in self.firings.iter_mut().enumerate().rev() {
            let failed = firing.moves.iter_mut().find(|one| one.context == context);
            if let Some(failed) = failed {
                // The failed work will not count. So the count that proves the firing before it is less, by one,
                // however often the failure is reported. The count that its own signal waits for is never reached.
                firing.counting -= u64::from(std::mem::take(&mut failed.counts));
                return Some(self.through + at as u64);
            }
        }
        own.then_some(self.through)
    }

    fn cancel(&mut self) {
        self.cancelled = true;
        for firing in &self.firings {
            for id in &firing.ids {
                // Works that have begun, or cannot be taken back, stay until they are complete.
                let _ = self.works.cancel(*id);
            }
        }
        let left = self.works.reclaim();
        if let Some(share) = &mut self.share {
            share.used = share.used.min(2 * left);
        }
    }
}
