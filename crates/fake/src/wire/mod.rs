//! A network in memory for the NICs of `tidegate-fabric`, for tests that must come out the same: delays, orders, losses and
//! deaths are drawn from a seed.
//!
//! # Model
//!
//! A [`Net`] gives endpoints to the ranks of one process. What is posted lies in the *origin's* endpoint until its
//! time has come, counted in polls; then the origin's poll carries it out in the target's memory. Nothing is ordered
//! with anything else: of what is due, any comes first. A write with a signal (a notice that is not the
//! [last](LAST)) is copied at the next poll, and done before it is carried out: what an endpoint that is dropped
//! has not carried out is lost.
//!
//! Each call of [`Net::wire`] makes a new endpoint, with an address that no other has. So any number of jobs may use
//! one net, at the same time or one after the other: the ranks of a job know only the addresses of their own job.
//!
//! # Failure
//!
//! [`Faults`] says how often (in a thousand) an operation is refused for now, fails, loses its notice, or ends its
//! rank. Addresses and keys contain their net's name. If each rank has made a net of its own, the foreign ones are
//! refused with [`NicError::BadKey`] when the ranks meet.

mod carry;
mod chair;
mod state;

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_hal::nic::{Keep, NicError};

use tidegate_fabric::wire::{Event, LAST, Limits, Op, Posted, Sleeper, Wire};
use tidegate_hal::lock;

use carry::{Waiting, Work};
use chair::Chair;
pub use state::Faults;
use state::{Endpoint, Health, Region, State};

const NAME: &str = "memory";

/// A network.
#[derive(Clone)]
pub struct Net(Arc<Mutex<State>>);

/// Whether a notice is a signal.
fn is_signal(notice: u64) -> bool {
    notice & LAST == 0
}

impl Net {
    /// Makes a network of `ranks` ranks.
    pub fn new(ranks: usize, faults: Faults) -> Self {
        static NETS: AtomicU64 = AtomicU64::new(0);
        let number = NETS.fetch_add(1, Ordering::Relaxed);
        let random = faults.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        Net(Arc::new(Mutex::new(State {
            // A seed gives the same random numbers in every process.
            id: [number, RandomState::new().hash_one(number)],
            ranks,
            faults,
            random,
            ends: Vec::new(),
            regions: HashMap::new(),
            next_region: 1,
            carried: 0,
        })))
    }

    /// Makes an endpoint for a rank, to which the wires of the same job's other ranks may connect.
    ///
    /// # Panics
    ///
    /// If there is no such rank.
    pub fn wire(&self, rank: usize) -> MemoryWire {
        let mut state = lock(&self.0);
        let ranks = state.ranks;
        assert!(rank < ranks, "rank {rank} of {ranks} in a net in memory");
        MemoryWire::open(self, &mut state, rank, None)
    }

    /// Breaks the last endpoint that a rank was given: its polls fail from now on. Other endpoints of the rank go on.
    ///
    /// # Panics
    ///
    /// If the rank was given none.
    pub fn break_wire(&self, rank: usize) {
        self.break_twin(rank, 0);
    }

    /// Breaks one of a rank's twins, by its number in the order in which they were opened, from 1.
    ///
    /// # Panics
    ///
    /// If the rank has fewer.
    pub fn break_twin(&self, rank: usize, twin: usize) {
        let state = &mut lock(&self.0);
        let end = state.of(rank).nth(twin).expect("it has so many");
        let end = &mut state.ends[end];
        end.health = Health::Broken;
        end.chair.call();
    }

    /// How many operations each endpoint of a rank has accepted: the last that it was given, and then its twins in the
    /// order in which they were opened.
    pub fn taken(&self, rank: usize) -> Vec<usize> {
        let state = lock(&self.0);
        let ends = state.of(rank);
        ends.map(|end| state.ends[end].taken).collect()
    }

    /// How many bytes have been written to the memory of ranks.
    pub fn carried(&self) -> u64 {
        lock(&self.0).carried
    }

    /// How many regions all ranks have registered.
    pub fn registered(&self) -> usize {
        lock(&self.0).regions.len()
    }
}

/// One rank's endpoint, or a twin of it.
pub struct MemoryWire {
    net: Net,
    /// Its number in the net.
    end: usize,
    /// The endpoints of the others, once it is connected.
    peers: Vec<Option<usize>>,
    chair: Arc<Chair>,
    waiting: Vec<Waiting>,
    /// Nothing else has the endpoint.
    kept: Vec<Keep>,
}

impl MemoryWire {
    /// Makes an endpoint, which may be the twin of another.
    fn open(net: &Net, state: &mut State, rank: usize, beside: Option<usize>) -> Self {
        let number = state.ends.len();
        let mut end = Endpoint::of(rank, beside.unwrap_or(number));
        if beside.is_some_and(|first| state.ends[first].health == Health::Dead) {
            end.health = Health::Dead;
        }
        let chair = end.chair.clone();
        state.ends.push(end);
        MemoryWire {
            net: net.clone(),
            end: number,
            peers: Vec::new(),
            chair,
            waiting: Vec::new(),
            kept: Vec::new(),
        }
    }
}

/// Memory of a rank of the same process.
#[derive(Clone)]
pub struct Remote(u64);

/// Ends a registration.
struct Registered(Net, u64);

impl Drop for Registered {
    fn drop(&mut self) {
        let region = lock(&self.0.0).regions.remove(&self.1);
        // Outside the lock, because this may be the last to keep the memory.
        drop(region);
    }
}

// SAFETY: operations are carried out by the poster's polls, between the post and the event that the same poll returns;
// a dropped endpoint polls no more.
unsafe impl Wire for MemoryWire {
    type Remote = Remote;

    fn name(&self) -> &'static str {
        NAME
    }

    fn limits(&self) -> Limits {
        Limits {
            bytes: 1 << 20,
            depth: 256,
        }
    }

    fn address(&self) -> Vec<u8> {
        lock(&self.net.0).label(self.end as u64)
    }

    fn connect(&mut self, addresses: &[Vec<u8>]) -> Result<(), NicError> {
        let state = lock(&self.net.0);
        let end = |address: &Vec<u8>| {
            if address.is_empty() {
                return Ok(None);
            }
            let end = state.number(address)? as usize;
            let bad = || NicError::BadKey(format!("no endpoint has the number {end}"));
            (end < state.ends.len())
                .then_some(Some(end))
                .ok_or_else(bad)
        };
        self.peers = addresses.iter().map(end).collect::<Result<_, _>>()?;
        Ok(())
    }

    /// A rank dies with all of its endpoints.
    fn twin(&self) -> Result<Option<Self>, NicError> {
        let mut state = lock(&self.net.0);
        let Endpoint { of, first, .. } = state.ends[self.end];
        Ok(Some(Self::open(&self.net, &mut state, of, Some(first))))
    }

    unsafe fn register(
        &mut self,
        base: *mut u8,
        bytes: usize,
        keep: Keep,
    ) -> Result<(Vec<u8>, Keep), NicError> {
        let mut state = lock(&self.net.0);
        let number = state.next_region;
        state.next_region += 1;
        let region = Region {
            base: base.expose_provenance(),
            bytes,
            _keep: keep,
        };
        state.regions.insert(number, region);
        let key = state.label(number);
        drop(state);
        Ok((key, Arc::new(Registered(self.net.clone(), number))))
    }

    fn import(&mut self, _peer: usize, key: &[u8], _bytes: usize) -> Result<Remote, NicError> {
        Ok(Remote(lock(&self.net.0).number(key)?))
    }

    unsafe fn post(
        &mut self,
        peer: usize,
        op: Op<'_, Remote>,
        cookie: u64,
    ) -> Result<Posted, NicError> {
        let net = self.net.clone();
        let Some(peer) = self.peers.get(peer).copied().flatten() else {
            return Err(NicError::BadKey(format!("rank {peer} has no endpoint")));
        };
        let mut state = lock(&net.0);
        let faults = state.faults.clone();
        if self.waiting.len() >= self.limits().depth || state.happens(faults.full) {
            return Ok(Posted::Full);
        }
        if state.happens(faults.die) {
            let first = state.ends[self.end].first;
            let ends = state.ends.iter_mut().filter(|end| end.first == first);
            let well = ends.filter(|end| end.health == Health::Well);
            well.for_each(|end| end.health = Health::Dead);
        }
        let (work, notice) = match op {
            Op::Write {
                from,
                bytes,
                to,
                offset,
                notice,
            } => {
                let work = Work::Write {
                    from: from.expose_provenance(),
                    region: to.0,
                    offset,
                    bytes,
                };
                (work, notice)
            }
            Op::Read {
                to,
                bytes,
                from,
                offset,
            } => {
                let to = to.expose_provenance();
                (
                    Work::Read {
                        to,
                        region: from.0,
                        offset,
                        bytes,
                    },
                    None,
                )
            }
            Op::Notify(notice) => (Work::Nothing, Some(notice)),
        };
        state.ends[self.end].taken += 1;
        let polls = state.draw(faults.delay + 1);
        self.waiting.push(Waiting {
            peer,
            cookie,
            signals: notice.is_some_and(is_signal),
            done: false,
            polls,
            work,
            notice,
        });
        Ok(Posted::Taken)
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Result<(), NicError> {
        let net = self.net.clone();
        let mut state = lock(&net.0);
        let end = self.end;
        match state.ends[end].health {
            Health::Broken => {
                return Err(NicError::System {
                    what: "polling",
                    detail: "the wire is broken".into(),
                });
            }
            Health::Dead => return Ok(()),
            Health::Well | Health::Gone => {}
        }
        events.append(&mut state.ends[end].arrived);
        let mut index = 0;
        let fail = state.faults.fail;
        while index < self.waiting.len() {
            let one = &mut self.waiting[index];
            if one.polls > 0 && (one.done || !one.signals) {
                one.polls -= 1;
                index += 1;
                continue;
            }
            if !one.done && state.happens(fail) {
                let one = self.waiting.swap_remove(index);
                events.push(Event::Failed(one.cookie, "an injected fault".into()));
                continue;
            }
            if one.signals && !one.done {
                one.copy();
                one.done = true;
                events.push(Event::Done(one.cookie));
                // The operation may be carried out at once.
                continue;
            }
            let one = self.waiting.swap_remove(index);
            let event = state.carry(&one);
            // An operation that counts as done has no later event here, whatever becomes of it.
            events.extend((!one.done).then_some(event));
        }
        Ok(())
    }

    fn keep(&mut self, what: Keep) {
        self.kept.push(what);
    }

    fn may_sleep(&mut self) -> bool {
        let state = lock(&self.net.0);
        let end = &state.ends[self.end];
        end.health == Health::Dead || (self.waiting.is_empty() && end.arrived.is_empty())
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        Box::new(Rest(self.chair.clone()))
    }
}

/// The sleeper of a wire.
struct Rest(Arc<Chair>);

impl Sleeper for Rest {
    fn sleep(&self, limit: Duration) {
        self.0.sit(limit);
    }

    fn wake(&self) {
        self.0.call();
    }
}

impl Drop for MemoryWire {
    fn drop(&mut self) {
        let mut state = lock(&self.net.0);
        let end = &mut state.ends[self.end];
        end.health = Health::Gone;
        end.arrived = Vec::new();
    }
}
