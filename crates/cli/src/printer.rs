//! Prints the output of the ranks on threads of its own, so that a missing reader blocks nothing else.
//!
//! # Model
//!
//! There is a thread for each file, which writes the contents of its queue in order. Stdout and stderr have a queue
//! each, unless they are the same file, whose lines need one order. Before the launcher fills a queue it checks that
//! there is room. While there is none, it reads nothing from the ranks, so that they wait as for any reader of a pipe.
//! An event descriptor is ready when there is room again, and, if someone waits for that, when everything is written.
//!
//! # Failure
//!
//! Output that cannot be written is lost, as with a closed terminal, because that should not stop the ranks. The first
//! reason is kept, unless the reader has closed its end, as `head` does. A thread that waits for a reader cannot be
//! ended. It is left behind with the piece that it is writing, and nothing else.

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tidegate_hal::lock;

/// A queue with this many bytes is full, until half of them are written.
const FULL: usize = 1 << 20;
/// How much is written at a time. A pipe takes this much as a whole, even if others write to it. And a slow reader is
/// seen to read.
const PIECE: usize = 4096;

/// The streams of a rank's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum StdStream {
    Out,
    Err,
}

impl StdStream {
    pub(crate) const BOTH: [Self; 2] = [Self::Out, Self::Err];
}

#[derive(Debug)]
struct PrintState {
    texts: VecDeque<(StdStream, Vec<u8>)>,
    /// How many bytes are not written yet, including those that are being written.
    bytes: usize,
    /// When something was last written, or was put into the empty queue.
    moved: Instant,
    is_full: bool,
    /// Someone waits until everything is written.
    is_awaited: bool,
    is_closed: bool,
    /// Why something could not be written, unless the reader has closed its end.
    error: Option<io::Error>,
}

#[derive(Debug)]
struct PrintQueue {
    state: Mutex<PrintState>,
    changed: Condvar,
    event: Arc<OwnedFd>,
}

impl PrintQueue {
    fn push(&self, stream: StdStream, text: Vec<u8>) {
        let mut state = lock(&self.state);
        if state.bytes == 0 {
            state.moved = Instant::now();
        }
        state.bytes += text.len();
        state.is_full |= state.bytes >= FULL;
        state.texts.push_back((stream, text));
        self.changed.notify_all();
    }

    /// The next text; `None`: there will be no more.
    fn next(&self) -> Option<(StdStream, Vec<u8>)> {
        let mut state = lock(&self.state);
        loop {
            match state.texts.pop_front() {
                Some(next) => return Some(next),
                None if state.is_closed => return None,
                None => {
                    let waited = self.changed.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn wrote(&self, bytes: usize) {
        let mut state = lock(&self.state);
        state.bytes = state.bytes.saturating_sub(bytes);
        state.moved = Instant::now();
        let has_room = state.is_full && state.bytes <= FULL / 2;
        let is_done = state.is_awaited && state.bytes == 0;
        if has_room || is_done {
            (state.is_full, state.is_awaited) = (false, false);
            // It fails only if the counter is full, and then the reader is awake already.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        if state.bytes == 0 {
            self.changed.notify_all();
        }
    }

    /// The work of its thread.
    fn serve(&self) {
        while let Some((stream, text)) = self.next() {
            // The stream is locked for the whole text, so that its lines do not mix with those of this program.
            let (mut locked, file): (Box<dyn Write>, _) = match stream {
                StdStream::Out => (Box::new(io::stdout().lock()), rustix::stdio::stdout()),
                StdStream::Err => (Box::new(io::stderr().lock()), rustix::stdio::stderr()),
            };
            let _ = locked.flush();
            let mut rest = &text[..];
            while !rest.is_empty() {
                let most = &rest[..rest.len().min(PIECE)];
                let lines = most.iter().rposition(|byte| *byte == b'\n');
                let (piece, others) = rest.split_at(lines.map_or(most.len(), |last| last + 1));
                if let Err(error) = write_all(file, piece)
                    && error != Errno::PIPE
                {
                    lock(&self.state).error.get_or_insert(error.into());
                }
                self.wrote(piece.len());
                rest = others;
            }
        }
    }

    /// Drops everything in the queue, except for the piece that is being written.
    fn clear(&self) {
        let mut state = lock(&self.state);
        let waiting: usize = state.texts.drain(..).map(|(_, text)| text.len()).sum();
        state.bytes -= waiting;
    }
}

/// Writes all bytes, even if the parent has made the file non-blocking.
fn write_all(file: BorrowedFd<'_>, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match rustix::io::write(file, bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => {
                let mut ready = [PollFd::from_borrowed_fd(file, PollFlags::OUT)];
                match poll(&mut ready, None) {
                    Ok(_) | Err(Errno::INTR) => {}
                    Err(error) => return Err(error),
                }
            }
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The queues, and the threads that print them.
#[derive(Debug)]
pub(super) struct Printer {
    /// The queues of stdout and of stderr.
    queues: [Arc<PrintQueue>; 2],
    threads: Vec<(Arc<PrintQueue>, JoinHandle<()>)>,
    event: Arc<OwnedFd>,
}

impl AsFd for Printer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Whether stdout and stderr are the same file, as far as this can be seen.
fn are_one_file() -> bool {
    let [out, err] = [rustix::stdio::stdout(), rustix::stdio::stderr()].map(rustix::fs::fstat);
    match (out, err) {
        (Ok(out), Ok(err)) => (out.st_dev, out.st_ino) == (err.st_dev, err.st_ino),
        _ => true,
    }
}

impl Printer {
    pub(super) fn start() -> io::Result<Self> {
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let event = Arc::new(event);
        let queue = || {
            Arc::new(PrintQueue {
                state: Mutex::new(PrintState {
                    texts: VecDeque::new(),
                    bytes: 0,
                    moved: Instant::now(),
                    is_full: false,
                    is_awaited: false,
                    is_closed: false,
                    error: None,
                }),
                changed: Condvar::new(),
                event: Arc::clone(&event),
            })
        };
        let out = queue();
        let err = if are_one_file() {
            Arc::clone(&out)
        } else {
            queue()
        };
        let mut printer = Self {
            queues: [out, err],
            threads: Vec::new(),
            event,
        };
        let [out, err] = printer.queues.clone();
        let second = (!Arc::ptr_eq(&out, &err)).then_some(err);
        for queue in [Some(out), second].into_iter().flatten() {
            let served = Arc::clone(&queue);
            let thread = std::thread::Builder::new()
                .name("tidegate-print".into())
                .spawn(move || served.serve())?;
            printer.threads.push((queue, thread));
        }
        Ok(printer)
    }

    fn queue(&self, stream: StdStream) -> &PrintQueue {
        &self.queues[usize::from(stream == StdStream::Err)]
    }

    /// Queues whole lines.
    pub(super) fn push(&self, stream: StdStream, lines: Vec<u8>) {
        self.queue(stream).push(stream, lines);
    }

    /// Whether the queue has room. If not, the descriptor is ready when it has.
    pub(super) fn has_room(&self, stream: StdStream) -> bool {
        !lock(&self.queue(stream).state).is_full
    }

    /// Whether there is plenty of room, so that one rank may take several pieces of it.
    pub(super) fn has_much_room(&self, stream: StdStream) -> bool {
        lock(&self.queue(stream).state).bytes <= FULL / 2
    }

    /// Notes that the descriptor was ready.
    pub(super) fn hear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    /// Since when nobody has read any of the unwritten output. `None`: everything is written. If not, the descriptor is
    /// ready when it is.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        let moved = self.threads.iter().filter_map(|(queue, _)| {
            let mut state = lock(&queue.state);
            state.is_awaited = state.bytes > 0;
            state.is_awaited.then_some(state.moved)
        });
        moved.max()
    }

    /// Why output was lost that could not be written. It is returned once.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        let mut queues = self.queues.iter();
        queues.find_map(|queue| lock(&queue.state).error.take())
    }

    /// Drops the unwritten output. A message to a reader about that can be queued afterwards.
    pub(super) fn give_up(&self) {
        self.threads.iter().for_each(|(queue, _)| queue.clear());
    }

    /// Waits at most `limit` until those queues are written that have moved since `since`.
    pub(super) fn finish(&self, since: Instant, limit: Duration) {
        let until = Instant::now() + limit;
        for (queue, _) in &self.threads {
            let state = lock(&queue.state);
            if state.moved >= since {
                let left = until.saturating_duration_since(Instant::now());
                let unwritten = |state: &mut PrintState| state.bytes > 0;
                let _ = queue.changed.wait_timeout_while(state, left, unwritten);
            }
        }
    }
}

impl Drop for Printer {
    fn drop(&mut self) {
        for (queue, thread) in self.threads.drain(..) {
            queue.clear();
            let mut state = lock(&queue.state);
            state.is_closed = true;
            queue.changed.notify_all();
            let is_idle = state.bytes == 0;
            drop(state);
            if is_idle {
                let _ = thread.join();
            }
        }
    }
}
