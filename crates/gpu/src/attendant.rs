//! The thread that wakes the futures that wait for GPU streams.
//!
//! # Model
//!
//! The driver says on a thread of its own how far a stream has come. That thread must not call the driver, and the other
//! streams' calls wait behind this one. But a waker is the program's code. It may drop the task that it should wake,
//! with a stream in it. So the driver's thread only passes on what it says, and the attendant wakes the futures.
//!
//! A kernel that faults destroys the context, and then the driver makes no more calls (CUDA driver API,
//! `cuLaunchHostFunc`). So as long as a future waits, the attendant also asks the driver every [`LOOK`] how far its
//! stream has come. That call may wait for the driver. So the watch, which must never wait, cannot make it.
//!
//! There is one attendant for all GPUs of the process. It is started for the first future that waits.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use crate::position::Position;

/// How often the attendant asks the driver.
const LOOK: Duration = Duration::from_millis(200);

/// A stream for which futures wait.
pub(crate) trait Attended: Send + Sync {
    /// Asks the driver whether the stream has passed everything, and notes that. Returns whether it has not.
    fn ask(&self) -> bool;
}

enum Message {
    /// A future begins to wait for the stream.
    Awaited(Weak<dyn Attended>, Arc<Position>),
    /// The stream has passed the mark.
    Passed(Arc<Position>, u64),
}

/// `None` if the system has no thread to spare.
static MAILBOX: OnceLock<Option<Sender<Message>>> = OnceLock::new();

/// Has the attendant ask for the stream's position from now on, until no future waits for it any more.
pub(crate) fn attend(stream: Weak<dyn Attended>, position: &Arc<Position>) {
    let mailbox = MAILBOX.get_or_init(|| {
        let (mailbox, messages) = channel();
        let thread = std::thread::Builder::new().name("tidegate-wake".into());
        let started = thread.spawn(move || serve(&messages));
        started.ok().map(|_| mailbox)
    });
    if let Some(mailbox) = mailbox {
        let message = Message::Awaited(stream, position.clone());
        mailbox.send(message).expect("the attendant never ends");
    }
}

/// Has the futures woken that wait until the stream has passed the mark. This does not call the driver.
pub(crate) fn pass(position: Arc<Position>, mark: u64) {
    match MAILBOX.get().and_then(Option::as_ref) {
        Some(mailbox) => {
            let message = Message::Passed(position, mark);
            mailbox.send(message).expect("the attendant never ends");
        }
        None => {
            position.pass(mark);
            position.wake();
        }
    }
}

fn serve(messages: &Receiver<Message>) {
    let mut awaited: Vec<(Weak<dyn Attended>, Arc<Position>)> = Vec::new();
    let mut looked = Instant::now();
    loop {
        let message = match awaited.is_empty() {
            true => messages.recv().map_err(RecvTimeoutError::from),
            false => messages.recv_timeout(LOOK.saturating_sub(looked.elapsed())),
        };
        match message {
            Ok(Message::Passed(position, mark)) => {
                position.pass(mark);
                position.wake();
            }
            Ok(Message::Awaited(stream, position)) => {
                if awaited.is_empty() {
                    looked = Instant::now();
                }
                if !awaited
                    .iter()
                    .any(|(_, known)| Arc::ptr_eq(known, &position))
                {
                    awaited.push((stream, position));
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if looked.elapsed() >= LOOK {
            awaited.retain(|(stream, position)| {
                // The stream may end while it is asked. Nobody waits for it then.
                let stream = stream.upgrade().filter(|_| position.is_awaited());
                let is_awaited = stream.is_some_and(|stream| stream.ask());
                position.wake();
                is_awaited
            });
            looked = Instant::now();
        }
    }
}
