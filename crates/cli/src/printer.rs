//! Writes what the ranks print, where it keeps nobody from anything else: it may be that nobody reads it.
//!
//! # Model
//!
//! A thread for each file writes what was put into its queue, in that order. Stdout and stderr have a queue each, unless they are
//! one file: then whole lines of both need one order. Whoever fills a queue looks for room first, and does not read
//! from the ranks while there is none, so that they wait as they would for any reader of a pipe. An event descriptor
//! says when there is room again, and, to who waits for that, when all is written.
//!
//! # Failure
//!
//! What cannot be written is lost, as it would be with a closed terminal: the ranks should not be stopped by it. The first
//! reason is kept, unless it is that the reader has closed its end, as `head` does. A thread that
//! nobody reads from cannot be ended; it is left behind with what it is writing, and nothing else.

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

/// A queue with this much is full, until half of it is written.
const FULL: usize = 1 << 20;
/// What is written at a time: so much a pipe takes whole, whoever else writes to it. And a slow reader is seen to read.
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
    /// How much is not written yet, of what is being written, too.
    bytes: usize,
    /// When something was last written, or came to what was empty.
    moved: Instant,
    is_full: bool,
    /// Somebody wants to know when all is written.
    is_awaited: bool,
    is_closed: bool,
    /// Why something could not be written, unless it is that the reader has closed its end.
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

    /// The next text; `None`: there will be none.
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
            // It fails only if the counter is full: then whoever waits is awake already.
            let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
        }
        if state.bytes == 0 {
            self.changed.notify_all();
        }
    }

    /// What its thread does.
    fn serve(&self) {
        while let Some((stream, text)) = self.next() {
            // Locked for all of it: lines do not mix with those of this program.
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

    /// Drops what waits, but for what is being written.
    fn clear(&self) {
        let mut state = lock(&self.state);
        let waiting: usize = state.texts.drain(..).map(|(_, text)| text.len()).sum();
        state.bytes -= waiting;
    }
}

/// Writes all of it, also where the parent has made the file one that does not block.
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

/// What is printed, and the threads that do it.
#[derive(Debug)]
pub(super) struct Printer {
    /// For stdout, and for stderr.
    queues: [Arc<PrintQueue>; 2],
    threads: Vec<(Arc<PrintQueue>, JoinHandle<()>)>,
    event: Arc<OwnedFd>,
}

impl AsFd for Printer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

/// Whether stdout and stderr are the same, as far as can be seen.
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

    /// Whole lines to be written.
    pub(super) fn push(&self, stream: StdStream, lines: Vec<u8>) {
        self.queue(stream).push(stream, lines);
    }

    /// Whether more is to be pushed; where not, the descriptor says when.
    pub(super) fn has_room(&self, stream: StdStream) -> bool {
        !lock(&self.queue(stream).state).is_full
    }

    /// The descriptor was ready.
    pub(super) fn hear(&self) {
        let _ = rustix::io::read(&self.event, &mut [0u8; 8]);
    }

    /// Since when nobody has read anything of what is not written yet; `None`: all is written. If not, the
    /// descriptor says when.
    pub(super) fn stuck_since(&self) -> Option<Instant> {
        let moved = self.threads.iter().filter_map(|(queue, _)| {
            let mut state = lock(&queue.state);
            state.is_awaited = state.bytes > 0;
            state.is_awaited.then_some(state.moved)
        });
        moved.max()
    }

    /// Why something is lost that could not be written; said once.
    pub(super) fn take_error(&self) -> Option<io::Error> {
        let mut queues = self.queues.iter();
        queues.find_map(|queue| lock(&queue.state).error.take())
    }

    /// Drops what is not written; what somebody who reads that is to know of it is pushed now.
    pub(super) fn give_up(&self) {
        self.threads.iter().for_each(|(queue, _)| queue.clear());
    }

    /// Waits until all is written to where anything was written after `since`, or came to what was empty, and for no
    /// longer than `limit`.
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
