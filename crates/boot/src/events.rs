//! Delivers the events of one rank to its sink, on a thread of their own.
//!
//! # Model
//!
//! Events queue up in order until there is a sink. Then one thread passes them to the sink, one at a time. The thread
//! that watches the peers never calls a sink. So a sink that is slow, or waits for a lock, delays only later events.
//! The thread sleeps on a condition variable while there are no events.
//!
//! # Failure
//!
//! If a sink panics, that is logged, and the sink is called again for the next event. Otherwise a death could go
//! unnoticed, and the program would hang.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use tidegate_hal::control::{Event, Sink};
use tidegate_hal::lock;
use tidegate_hal::tell;

#[derive(Default)]
struct State {
    queue: VecDeque<Event>,
    sink: Option<Sink>,
    thread: Option<JoinHandle<()>>,
    closed: bool,
}

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: Condvar,
}

/// The queue of one rank.
#[derive(Default)]
pub(crate) struct Events {
    inner: Arc<Inner>,
}

impl Events {
    pub(crate) fn push(&self, event: Event) {
        let mut state = lock(&self.inner.state);
        if !state.closed {
            state.queue.push_back(event);
            self.inner.changed.notify_one();
        }
    }

    pub(crate) fn subscribe(&self, sink: Sink) {
        let replaced;
        let mut failed = None;
        {
            let mut state = lock(&self.inner.state);
            if state.closed {
                return;
            }
            replaced = state.sink.replace(sink);
            if state.thread.is_none() {
                let inner = Arc::clone(&self.inner);
                let spawned = std::thread::Builder::new()
                    .name("tidegate-events".into())
                    .spawn(move || inner.deliver());
                match spawned {
                    Ok(thread) => state.thread = Some(thread),
                    Err(error) => failed = Some(error),
                }
            }
            self.inner.changed.notify_one();
        }
        // This is outside the lock. A subscriber may do anything, and so may the destructor of a sink, which may own
        // the control plane.
        if let Some(error) = failed {
            tell(|| tracing::error!(%error, "no thread for the events of the control plane"));
        }
        drop(replaced);
    }

    /// Delivers nothing more, and drops the sink. Does not wait for a call that is running.
    pub(crate) fn close(&self) {
        let sink = {
            let mut state = lock(&self.inner.state);
            state.closed = true;
            state.queue.clear();
            self.inner.changed.notify_one();
            state.sink.take()
        };
        drop(sink);
    }

    /// Like [`Events::close`], but also waits for a call that is running, unless this is that call.
    pub(crate) fn close_and_join(&self) {
        self.close();
        let thread = lock(&self.inner.state).thread.take();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
            && thread.join().is_err()
        {
            tell(|| tracing::error!("the event thread of the control plane panicked"));
        }
    }
}

impl Inner {
    fn deliver(&self) {
        let mut state = lock(&self.state);
        while !state.closed {
            let ready = state.sink.clone().filter(|_| !state.queue.is_empty());
            match ready.and_then(|sink| Some((sink, state.queue.pop_front()?))) {
                Some((sink, event)) => {
                    drop(state);
                    if catch_unwind(AssertUnwindSafe(|| sink(event))).is_err() {
                        tell(|| tracing::error!("the receiver of control-plane events panicked"));
                    }
                    drop(sink);
                    state = lock(&self.state);
                }
                None => state = self.changed.wait(state).unwrap_or_else(|e| e.into_inner()),
            }
        }
    }
}
