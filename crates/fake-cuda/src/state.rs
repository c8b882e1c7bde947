//! The driver's state for the process, and how work reaches it.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::args::Function;
use crate::capture::{Capture, Recording};
use crate::codes;
use crate::graph::{Exec, Graph, Node};
use crate::handle::Handle;
use crate::ptx::Entry;
use crate::work::{Number, Works};

pub(crate) struct State {
    last: Handle,
    /// Whether the device is lost. Then nothing goes on any more.
    pub(crate) lost: bool,
    pub(crate) works: Works,
    pub(crate) streams: HashMap<Handle, Stream>,
    pub(crate) events: HashMap<Handle, Event>,
    pub(crate) graphs: HashMap<Handle, Graph>,
    pub(crate) nodes: HashMap<Handle, Node>,
    pub(crate) execs: HashMap<Handle, Exec>,
    pub(crate) captures: HashMap<u64, Capture>,
    pub(crate) modules: HashMap<Handle, Vec<Entry>>,
    pub(crate) functions: HashMap<Handle, Arc<Function>>,
}

#[derive(Default)]
pub(crate) struct Stream {
    /// The pieces that the next work follows.
    pub(crate) last: Vec<Number>,
    /// Whether that is a single grid, which a kernel may follow early.
    pub(crate) grid: bool,
    /// Events that the stream has not reached yet.
    pub(crate) stamps: Vec<Number>,
    /// The work that takes up places of its queue, in order.
    pub(crate) queued: VecDeque<Number>,
    pub(crate) recording: Option<Recording>,
}

#[derive(Default)]
pub(crate) struct Event {
    pub(crate) timed: bool,
    /// The work whose end it stands for; empty before it is recorded.
    pub(crate) work: Option<Number>,
    /// In a capture, the nodes that it stands for.
    pub(crate) nodes: Option<(u64, Vec<Handle>)>,
    pub(crate) time: Option<Instant>,
}

static STATE: Mutex<Option<State>> = Mutex::new(None);
/// Signalled when there is work.
pub(crate) static CHANGED: Condvar = Condvar::new();
/// Signalled when work is over.
pub(crate) static DONE: Condvar = Condvar::new();

/// The state, locked.
pub(crate) struct Locked(MutexGuard<'static, Option<State>>);

impl std::ops::Deref for Locked {
    type Target = State;

    fn deref(&self) -> &State {
        self.0
            .as_ref()
            .expect("it was made when it was first locked")
    }
}

impl std::ops::DerefMut for Locked {
    fn deref_mut(&mut self) -> &mut State {
        self.0
            .as_mut()
            .expect("it was made when it was first locked")
    }
}

pub(crate) fn state() -> Locked {
    let mut state = STATE.lock().unwrap_or_else(PoisonError::into_inner);
    state.get_or_insert_with(State::new);
    Locked(state)
}

impl Locked {
    pub(crate) fn wait(self, on: &Condvar) -> Self {
        Locked(on.wait(self.0).unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until the condition holds, or the device is lost.
    pub(crate) fn until(mut self, over: impl Fn(&State) -> bool) -> Result<Self, i32> {
        loop {
            if self.lost {
                return Err(codes::LAUNCH_FAILED);
            }
            if over(&self) {
                return Ok(self);
            }
            self = self.wait(&DONE);
        }
    }
}

impl State {
    fn new() -> Self {
        State {
            last: 0x1000,
            lost: false,
            works: Works::default(),
            streams: HashMap::new(),
            events: HashMap::new(),
            graphs: HashMap::new(),
            nodes: HashMap::new(),
            execs: HashMap::new(),
            captures: HashMap::new(),
            modules: HashMap::new(),
            functions: HashMap::new(),
        }
    }

    /// A new number.
    pub(crate) fn fresh(&mut self) -> Handle {
        // It is aligned as pointers are, so that it looks like a pointer.
        self.last += 16;
        self.last
    }

    pub(crate) fn stream(&mut self, stream: Handle) -> Result<&mut Stream, i32> {
        self.streams.get_mut(&stream).ok_or(codes::INVALID_HANDLE)
    }

    pub(crate) fn event(&mut self, event: Handle) -> Result<&mut Event, i32> {
        self.events.get_mut(&event).ok_or(codes::INVALID_HANDLE)
    }

    /// Whether all that was enqueued on the stream is over.
    pub(crate) fn is_idle(&self, stream: Handle) -> bool {
        self.streams.get(&stream).is_none_or(|stream| {
            let mut all = stream.last.iter().chain(&stream.stamps);
            all.all(|number| self.works.is_over(*number))
        })
    }
}
