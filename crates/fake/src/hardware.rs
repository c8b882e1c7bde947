//! The hardware: its open objects, waiting operations, and the thread that carries them out.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tidegate_ffi::fabric::sys::*;

use crate::config::Config;
use crate::register::Register;
use tidegate_hal::lock;

/// How long the thread sleeps when there is nothing to do.
const IDLE: Duration = Duration::from_micros(20);

/// An open object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as libfabric's")]
pub enum Kind {
    Domain,
    Vector,
    Queue,
    Counter,
    Endpoint,
    Region,
}

/// The action of an operation. Addresses are numbers, for which the poster vouches.
#[derive(Clone, Debug)]
pub(crate) enum What {
    Write {
        from: usize,
        len: usize,
        key: u64,
        at: u64,
        data: Option<u64>,
    },
    Read {
        into: usize,
        len: usize,
        key: u64,
        at: u64,
    },
    Add {
        operand: usize,
        key: u64,
        at: u64,
    },
    Count {
        counter: u64,
        value: u64,
        set: bool,
    },
}

/// An operation.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) what: What,
    pub(crate) endpoint: u64,
    pub(crate) peer: u64,
    pub(crate) context: usize,
    pub(crate) flags: u64,
    pub(crate) counter: Option<u64>,
    /// The key of a deferred work.
    pub(crate) work: Option<usize>,
}

struct Waiting {
    trigger: u64,
    threshold: u64,
    operation: Operation,
}

#[derive(Default)]
struct Endpoint {
    queue: Option<u64>,
    selective: bool,
    counters: Vec<u64>,
}

#[derive(Default)]
struct Counter {
    value: u64,
    failures: u64,
    register: Option<Register>,
    /// The memory that the counter is written to.
    back: Option<usize>,
}

struct Region {
    endpoint: Option<u64>,
    base: usize,
    len: usize,
}

/// An entry of a queue.
pub(crate) enum Entry {
    Done(fi_cq_data_entry),
    Failed(usize),
}

// SAFETY: the entries hold numbers and addresses that are only handed on.
unsafe impl Send for Entry {}

#[derive(Default)]
struct State {
    random: u64,
    next: u64,
    open: HashMap<u64, Kind>,
    held: bool,
    /// How many operations may still be carried out while the card is held.
    let_through: usize,
    crowded: bool,
    deaf: bool,
    complaints: Vec<String>,
    endpoints: HashMap<u64, Endpoint>,
    queues: HashMap<u64, VecDeque<Entry>>,
    counters: HashMap<u64, Counter>,
    regions: HashMap<u64, Region>,
    waiting: Vec<Waiting>,
    ready: Vec<Operation>,
    most: usize,
    ever: usize,
    strikes: u64,
}

/// The state of a card.
pub(crate) struct Hardware {
    pub(crate) config: Config,
    state: Mutex<State>,
}

/// How many works of the pool an operation takes.
fn weight(operation: &Operation) -> usize {
    match operation.work {
        None => 0,
        Some(_) => 1 + usize::from(operation.flags & FI_CXI_CNTR_WB != 0),
    }
}

impl Hardware {
    pub(crate) fn start(config: Config) -> Arc<Self> {
        let card = Arc::new(Hardware {
            state: Mutex::new(State {
                random: config.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
                // Numbers begin here, so that they differ from small numbers elsewhere.
                next: 1000,
                ..State::default()
            }),
            config,
        });
        let weak: Weak<Hardware> = Arc::downgrade(&card);
        std::thread::Builder::new()
            .name("fake-card".into())
            .spawn(move || {
                while let Some(card) = weak.upgrade() {
                    let (busy, plain) = (card.turn(), card.config.plain);
                    drop(card);
                    match busy {
                        true => {}
                        // Look at plain pages all the time, because a store that is not seen before the next one is
                        // never seen.
                        false if plain => std::thread::yield_now(),
                        false => std::thread::sleep(IDLE),
                    }
                }
            })
            .expect("a thread");
        card
    }

    pub(crate) fn hold(&self, hold: bool) {
        lock(&self.state).held = hold;
    }

    pub(crate) fn deafen(&self, deaf: bool) {
        lock(&self.state).deaf = deaf;
    }

    pub(crate) fn crowd(&self, full: bool) {
        lock(&self.state).crowded = full;
    }

    pub(crate) fn strays(&self, count: usize) {
        for queue in lock(&self.state).queues.values_mut() {
            queue.extend((0..count).map(|_| Entry::Failed(0)));
        }
    }

    pub(crate) fn complaints(&self) -> Vec<String> {
        lock(&self.state).complaints.clone()
    }

    pub(crate) fn works(&self) -> (usize, usize, usize) {
        let state = lock(&self.state);
        (state.works(), state.most, state.ever)
    }

    pub(crate) fn let_through(&self, count: usize) {
        lock(&self.state).let_through = count;
    }

    pub(crate) fn posted(&self) -> usize {
        lock(&self.state).ready.len()
    }

    pub(crate) fn reads(&self) -> Vec<usize> {
        let state = lock(&self.state);
        let into = |operation: &Operation| match operation.what {
            What::Read { into, .. } => Some(into),
            _ => None,
        };
        state.ready.iter().filter_map(into).collect()
    }

    pub(crate) fn strikes(&self) -> u64 {
        lock(&self.state).strikes
    }

    pub(crate) fn open(&self) -> Vec<Kind> {
        lock(&self.state).open.values().copied().collect()
    }

    /// Adds an object, and returns its number.
    pub(crate) fn make(&self, kind: Kind) -> u64 {
        let mut state = lock(&self.state);
        state.next += 1;
        let id = state.next;
        state.open.insert(id, kind);
        match kind {
            Kind::Queue => drop(state.queues.insert(id, VecDeque::new())),
            Kind::Endpoint => drop(state.endpoints.insert(id, Endpoint::default())),
            Kind::Counter => drop(state.counters.insert(id, Counter::default())),
            Kind::Domain | Kind::Vector | Kind::Region => {}
        }
        id
    }

    /// Closes an object. Returns `false` if something still needs it.
    pub(crate) fn close(&self, kind: Kind, id: u64) -> bool {
        let mut state = lock(&self.state);
        let needed = |operation: &Operation| match kind {
            Kind::Endpoint => operation.work.is_some() && operation.endpoint == id,
            Kind::Counter => {
                operation.counter == Some(id)
                    || matches!(operation.what, What::Count { counter, .. } if counter == id)
            }
            _ => false,
        };
        let waits = |waiting: &Waiting| {
            needed(&waiting.operation) || kind == Kind::Counter && waiting.trigger == id
        };
        if state.waiting.iter().any(waits) || state.ready.iter().any(needed) {
            state
                .complaints
                .push(format!("{kind:?} {id} was closed while works need it"));
            return false;
        }
        match kind {
            Kind::Queue => drop(state.queues.remove(&id)),
            Kind::Counter => drop(state.counters.remove(&id)),
            Kind::Region => drop(state.regions.remove(&id)),
            Kind::Endpoint => {
                // Operations that were posted at an endpoint end with it.
                state.ready.retain(|operation| operation.endpoint != id);
                state.endpoints.remove(&id);
            }
            Kind::Domain | Kind::Vector => {}
        }
        state.open.remove(&id);
        true
    }

    pub(crate) fn bind_queue(&self, endpoint: u64, queue: u64, flags: u64) {
        let mut state = lock(&self.state);
        let endpoint = state.endpoints.entry(endpoint).or_default();
        endpoint.queue = Some(queue);
        endpoint.selective |= flags & FI_TRANSMIT != 0 && flags & FI_SELECTIVE_COMPLETION != 0;
    }

    pub(crate) fn bind_counter(&self, endpoint: u64, counter: u64) {
        let mut state = lock(&self.state);
        let endpoint = state.endpoints.entry(endpoint).or_default();
        endpoint.counters.push(counter);
    }

    /// Registers memory. The number of the region is its key.
    pub(crate) fn register(&self, base: usize, len: usize) -> u64 {
        let key = self.make(Kind::Region);
        let region = Region {
            endpoint: None,
            base,
            len,
        };
        lock(&self.state).regions.insert(key, region);
        key
    }

    pub(crate) fn bind_region(&self, region: u64, endpoint: u64) {
        if let Some(region) = lock(&self.state).regions.get_mut(&region) {
            region.endpoint = Some(endpoint);
        }
    }

    pub(crate) fn post(&self, operation: Operation) {
        lock(&self.state).ready.push(operation);
    }

    /// Queues a deferred work. Returns `false` if there is no room.
    pub(crate) fn defer(&self, trigger: u64, threshold: u64, operation: Operation) -> bool {
        let mut state = lock(&self.state);
        let works = state.works() + weight(&operation);
        let refused = state.draw() % 1000 < u64::from(self.config.refuses);
        if works > self.config.works || refused || state.crowded {
            return false;
        }
        state.most = state.most.max(works);
        state.ever += 1;
        state.waiting.push(Waiting {
            trigger,
            threshold,
            operation,
        });
        true
    }

    /// Takes a deferred work back. Returns `false` if it has begun.
    pub(crate) fn cancel(&self, work: usize) -> bool {
        let mut state = lock(&self.state);
        let at = state
            .waiting
            .iter()
            .position(|waiting| waiting.operation.work == Some(work));
        at.map(|at| state.waiting.remove(at)).is_some()
    }

    /// A counter's successes and failures. A read also writes it back.
    pub(crate) fn count(&self, counter: u64) -> (u64, u64) {
        let mut state = lock(&self.state);
        state.sense();
        state.write_back(counter);
        let counter = state.counters.get(&counter);
        counter.map_or((0, 0), |counter| (counter.value, counter.failures))
    }

    pub(crate) fn change(&self, counter: u64, change: impl FnOnce(&mut u64)) {
        if let Some(counter) = lock(&self.state).counters.get_mut(&counter) {
            change(&mut counter.value);
        }
    }

    pub(crate) fn set_back(&self, counter: u64, back: usize) {
        if let Some(counter) = lock(&self.state).counters.get_mut(&counter) {
            counter.back = Some(back);
        }
    }

    /// The address and the length of a counter's pages.
    pub(crate) fn pages(&self, counter: u64) -> Option<(usize, usize)> {
        let mut state = lock(&self.state);
        let counter = state.counters.get_mut(&counter)?;
        if counter.register.is_none() {
            counter.register = Register::new(self.config.plain);
        }
        counter.register.as_ref().map(Register::pages)
    }

    /// Takes the next entries of a queue, or says that the first is a failure.
    pub(crate) fn entries(&self, queue: u64, most: usize) -> Result<Vec<fi_cq_data_entry>, ()> {
        let mut state = lock(&self.state);
        let queue = state.queues.entry(queue).or_default();
        if most > 0 && matches!(queue.front(), Some(Entry::Failed(_))) {
            return Err(());
        }
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(Entry::Done(entry)) = queue.front()
        {
            taken.push(*entry);
            queue.pop_front();
        }
        Ok(taken)
    }

    /// Takes the failure at the head of a queue, and returns its context.
    pub(crate) fn failure(&self, queue: u64) -> Option<usize> {
        let mut state = lock(&self.state);
        let queue = state.queues.get_mut(&queue)?;
        let Some(Entry::Failed(context)) = queue.front() else {
            return None;
        };
        let context = *context;
        queue.pop_front();
        Some(context)
    }

    /// Makes one step. Returns `false` if there is nothing to do.
    fn turn(&self) -> bool {
        let mut state = lock(&self.state);
        state.sense();
        let (mut fired, mut index) = (Vec::new(), 0);
        while index < state.waiting.len() {
            let waiting = &state.waiting[index];
            let come = state.counters.get(&waiting.trigger);
            if come.is_some_and(|counter| counter.value >= waiting.threshold) {
                fired.push(state.waiting.swap_remove(index).operation);
            } else {
                index += 1;
            }
        }
        state.ready.extend(fired);
        if state.ready.is_empty() || state.held && state.let_through == 0 {
            return false;
        }
        state.let_through = state.let_through.saturating_sub(1);
        let pick = state.draw() as usize % state.ready.len();
        let operation = state.ready.swap_remove(pick);
        let unlucky =
            operation.work.is_some() && state.draw() % 1000 < u64::from(self.config.fails);
        state.carry_out(operation, unlucky, &self.config);
        true
    }
}

impl State {
    fn works(&self) -> usize {
        let waiting = self
            .waiting
            .iter()
            .map(|waiting| weight(&waiting.operation));
        waiting.chain(self.ready.iter().map(weight)).sum()
    }

    fn draw(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random >> 8
    }

    /// Looks at the stores to pages.
    fn sense(&mut self) {
        for counter in self.counters.values_mut() {
            if let Some(register) = &counter.register {
                let stored = register.take();
                if self.deaf {
                    continue;
                }
                counter.value += stored;
                self.strikes += stored;
            }
        }
    }

    fn write_back(&self, counter: u64) {
        let Some(counter) = self.counters.get(&counter) else {
            return;
        };
        if let Some(back) = counter.back {
            let place: *const AtomicU64 = std::ptr::with_exposed_provenance(back);
            let value = 1 << 63 | counter.failures << 48 | counter.value;
            // SAFETY: the code that set it vouches for the place, as long as the counter is open.
            unsafe { &*place }.store(value, Ordering::Release);
        }
    }

    /// The address of bytes of a peer's region, if the region has them.
    fn place(&self, peer: u64, key: u64, at: u64, len: usize) -> Option<usize> {
        let region = self.regions.get(&key)?;
        let end = usize::try_from(at).ok()?.checked_add(len)?;
        (region.endpoint == Some(peer) && end <= region.len && self.endpoints.contains_key(&peer))
            .then_some(region.base + at as usize)
    }

    fn carry_out(&mut self, operation: Operation, unlucky: bool, config: &Config) {
        let done = match operation.what {
            What::Count {
                counter,
                value,
                set,
            } => {
                if let Some(counter) = self.counters.get_mut(&counter) {
                    let from = if set { 0 } else { counter.value };
                    counter.value = from + value;
                }
                return;
            }
            _ if unlucky => false,
            What::Write {
                from,
                len,
                key,
                at,
                data,
            } => {
                let place = self.place(operation.peer, key, at, len);
                if let Some(place) = place {
                    copy(from, place, len);
                    self.tell(operation.peer, data);
                }
                place.is_some()
            }
            What::Read { into, len, key, at } => {
                let place = self.place(operation.peer, key, at, len);
                if let Some(place) = place {
                    copy(place, into, len);
                }
                place.is_some()
            }
            What::Add { operand, key, at } => {
                let place = self.place(operation.peer, key, at, 8);
                if let Some(place) = place {
                    let word: *const AtomicU64 = std::ptr::with_exposed_provenance(place);
                    let operand: *const u64 = std::ptr::with_exposed_provenance(operand);
                    // SAFETY: the word lies in registered memory, and the operand in the work, which lives until it is
                    // complete. Not one step: a NIC's add is none for a processor.
                    unsafe {
                        let before = (*word).load(Ordering::Acquire);
                        std::thread::sleep(config.torn);
                        let now = before.wrapping_add(operand.read());
                        (*word).store(now, Ordering::Release);
                    }
                    self.tell(operation.peer, None);
                }
                place.is_some()
            }
        };
        let endpoint = self.endpoints.get(&operation.endpoint);
        let queue = endpoint.and_then(|endpoint| endpoint.queue);
        let selective = endpoint.is_some_and(|endpoint| endpoint.selective);
        let entry = if done {
            if let Some(counter) = operation.counter.and_then(|id| self.counters.get_mut(&id)) {
                counter.value += 1;
            }
            if operation.flags & FI_CXI_CNTR_WB != 0
                && let Some(counter) = operation.counter
            {
                self.write_back(counter);
            }
            let reported = !selective || operation.flags & FI_COMPLETION != 0;
            reported.then(|| {
                let mut entry = fi_cq_data_entry::zeroed();
                entry.op_context = std::ptr::without_provenance_mut(operation.context);
                entry.flags = FI_RMA | FI_WRITE;
                Entry::Done(entry)
            })
        } else {
            if config.counts_failures
                && let Some(counter) = operation.counter.and_then(|id| self.counters.get_mut(&id))
            {
                counter.failures += 1;
            }
            let silent = config.silent && operation.work.is_some();
            if let (true, false, Some(queue)) = (config.twice, silent, queue) {
                let queue = self.queues.entry(queue).or_default();
                queue.push_back(Entry::Failed(operation.context));
            }
            (!silent).then_some(Entry::Failed(operation.context))
        };
        if let (Some(entry), Some(queue)) = (entry, queue) {
            self.queues.entry(queue).or_default().push_back(entry);
        }
    }

    /// Notes a write to a peer, perhaps with data for its queue.
    fn tell(&mut self, peer: u64, data: Option<u64>) {
        let Some(endpoint) = self.endpoints.get(&peer) else {
            return;
        };
        let (queue, counters) = (endpoint.queue, endpoint.counters.clone());
        for counter in counters {
            if let Some(counter) = self.counters.get_mut(&counter) {
                counter.value += 1;
            }
        }
        if let (Some(queue), Some(data)) = (queue, data) {
            let mut entry = fi_cq_data_entry::zeroed();
            entry.flags = FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA;
            entry.data = data;
            self.queues
                .entry(queue)
                .or_default()
                .push_back(Entry::Done(entry));
        }
    }
}

/// Copies as hardware does, without regard to other accesses.
fn copy(from: usize, to: usize, len: usize) {
    let from: *const u8 = std::ptr::with_exposed_provenance(from);
    let to: *mut u8 = std::ptr::with_exposed_provenance_mut(to);
    for at in 0..len {
        // SAFETY: the poster of the operation vouches for its own memory, and the peer that registered for the other's.
        unsafe { to.add(at).write_volatile(from.add(at).read_volatile()) };
    }
    std::sync::atomic::fence(Ordering::SeqCst);
}
