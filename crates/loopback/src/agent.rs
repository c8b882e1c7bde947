//! The agent: the one thread that serves the queues of a rank.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tidegate_hal::nic::Connection;
use tidegate_hal::slots::TriggerSlots;
use tidegate_words::{Bell, Patience};

use crate::options::Options;
use crate::queue::{Queue, Seen};
use tidegate_hal::lock;

/// The agent has a little patience, because a stream that has rung once often rings again at once.
const PATIENCE: Patience = Patience {
    spins: 0,
    yields: 4,
};

/// The agent. The endpoint and its queues share it with the thread that runs it.
pub(crate) struct Agent {
    connection: Connection,
    options: Options,
    slots: Arc<TriggerSlots>,
    queues: Mutex<Vec<Arc<Queue>>>,
    /// How often `queues` has changed, so that the agent locks it only then.
    changes: AtomicU64,
    pub(crate) stop: AtomicBool,
}

impl Agent {
    pub(crate) fn new(connection: Connection, options: Options, slots: Arc<TriggerSlots>) -> Self {
        Agent {
            connection,
            options,
            slots,
            queues: Mutex::default(),
            changes: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        }
    }

    fn bell(&self) -> &Bell {
        // SAFETY: `Nic::connect` promises a live bell for as long as `connection.keep`, which this holds.
        unsafe { &*self.connection.bell.0.cast::<Bell>() }
    }

    pub(crate) fn wake(&self) {
        self.bell().wake_all();
    }

    pub(crate) fn add(&self, queue: Arc<Queue>) {
        lock(&self.queues).push(queue);
        self.changes.fetch_add(1, Ordering::SeqCst);
        self.wake();
    }

    /// Whether everything that was rung for is through.
    pub(crate) fn is_idle(&self) -> bool {
        lock(&self.queues).iter().all(|queue| queue.is_idle())
    }

    /// The loop of the agent's thread.
    pub(crate) fn run(&self) {
        let mut known = 0;
        let mut queues: Vec<Arc<Queue>> = Vec::new();
        loop {
            let stop = self.bell().wait(
                PATIENCE,
                || {
                    let stop = self.stop.load(Ordering::SeqCst);
                    let changes = self.changes.load(Ordering::SeqCst);
                    if changes != known {
                        known = changes;
                        queues = lock(&self.queues).clone();
                    }
                    let busy = self.look(&mut queues);
                    match (busy, stop) {
                        (Some(false), _) | (None, true) => Some(true),
                        (Some(true), _) => Some(false),
                        (None, false) => None,
                    }
                },
                || {},
            );
            if stop {
                return;
            }
        }
    }

    /// Takes every queue one step on. `None` if there is nothing to do; otherwise whether to go on.
    fn look(&self, queues: &mut Vec<Arc<Queue>>) -> Option<bool> {
        let mut busy = None;
        let mut index = 0;
        while index < queues.len() {
            match queues[index].look() {
                Seen::Nothing => index += 1,
                Seen::Rung => {
                    if let Some(gate) = &self.options.gate
                        && !gate.pass(&self.stop)
                    {
                        return Some(false);
                    }
                    if !self.options.delay.is_zero() {
                        std::thread::sleep(self.options.delay);
                    }
                    queues[index].fire();
                    busy = Some(true);
                    index += 1;
                }
                Seen::Over => {
                    let over = queues.swap_remove(index);
                    lock(&self.queues).retain(|queue| !Arc::ptr_eq(queue, &over));
                }
            }
        }
        // A slot that came back may have gone to a queue that this turn had already passed.
        busy.or(self.slots.take_again().then_some(true))
    }
}
