//! The streams of a rank: registering them, ending them, and explaining why one has failed.

use std::sync::Arc;
use std::time::Duration;

use tidegate_hal::batch::{Awaited, Tag};
use tidegate_hal::device::{Device, Fault, Priority, Reclaim as _, StreamConfig, StreamName};

use super::inner::{Inner, World};
use crate::error::{Cause, Error, PutFault, StreamError, WaitFailed, WindowName};
use crate::ground::{ReclaimOf, lock};
use crate::message::Message;

impl<D: Device> World<D> {
    /// The configuration that a device gets for a stream with this name.
    pub(crate) fn stream_config(&self, name: StreamName) -> StreamConfig {
        let inner = &self.inner;
        let node = inner.control.node(self.rank());
        StreamConfig {
            name,
            bell: inner.bells.own(),
            keep: inner.bells.clone(),
            inline: false,
            ranks_on_node: (0..self.size())
                .filter(|rank| inner.control.node(*rank) == node)
                .count(),
            priority: Priority::Normal,
            stamped: (inner.observed.as_ref()).is_some_and(|observed| observed.stamps()),
            helper: (inner.nic.as_ref()).and_then(|attached| attached.nic.helper()),
        }
    }

    /// Remembers a stream for as long as it lives.
    pub(crate) fn knows_stream(&self, name: StreamName, stream: &Arc<ReclaimOf<D>>) {
        let mut events = lock(&self.inner.events);
        events
            .streams
            .retain(|(_, stream)| stream.strong_count() > 0);
        events.streams.push((name, Arc::downgrade(stream)));
    }

    /// Ends the waits of all streams of this rank, because a panic unwinds past one of them. Tells the others that the
    /// rank is of no more use.
    #[cold]
    pub(crate) fn abort_streams(&self, past: &StreamName) {
        if !self.inner.process.is_this() {
            return;
        }
        // The first panic counts, since others may follow from it.
        let _ = self.inner.unwound.set(past.clone());
        let streams: Vec<_> = {
            let events = lock(&self.inner.events);
            let alive = events
                .streams
                .iter()
                .filter_map(|(_, stream)| stream.upgrade());
            alive.collect()
        };
        // The others must not wait for ranks that wait for this one.
        let _ = self.inner.control.notify(None, &Message::Panicked.encode());
        streams.iter().for_each(|stream| stream.abort());
    }

    /// The error for a fault of a stream.
    #[cold]
    pub(crate) fn explain(&self, fault: Fault, stream: &str) -> Error {
        let (tag, epoch, site) = match fault {
            Fault::Kernel(ref message) => {
                let (cause, message) = (self.inner.cause_of_fault(stream, &fault), message.clone());
                if let Some(cause) = cause {
                    self.inner.follows(&cause);
                    self.inner.tell_failed(cause);
                }
                return Error::Stream(StreamError::KernelPanicked {
                    rank: self.rank(),
                    stream: stream.to_owned(),
                    message,
                });
            }
            Fault::Count { tag, count } => {
                if let Some(cause) = self.inner.cause_of_fault(stream, &fault) {
                    self.inner.follows(&cause);
                    self.inner.tell_failed(cause);
                }
                let id = tag.window.expect("a count belongs to a window");
                let name = self.inner.window(id).0;
                if tag.awaited == Awaited::Kernel
                    && let Some(fault) = PutFault::decode(count)
                {
                    return Error::Stream(StreamError::KernelFault {
                        rank: self.rank(),
                        stream: stream.to_owned(),
                        window: WindowName { name, id },
                        fault: Box::new(fault),
                    });
                }
                return Error::Stream(StreamError::CountTooGreat {
                    rank: self.rank(),
                    stream: stream.to_owned(),
                    window: WindowName { name, id },
                    target: tag.peer as usize,
                    count,
                });
            }
            Fault::Transport(detail) => {
                return Error::Stream(StreamError::Transport {
                    rank: self.rank(),
                    stream: stream.to_owned(),
                    detail,
                });
            }
            Fault::Aborted => {
                let stream = stream.to_owned();
                return Error::Stream(match self.inner.unwound.get() {
                    Some(past) => StreamError::Unwound {
                        rank: self.rank(),
                        stream,
                        past: past.as_str().to_owned(),
                    },
                    None => StreamError::Aborted { stream },
                });
            }
            Fault::Wait { tag, epoch, site } => (tag, epoch, site),
        };
        let cause = self.cause_of(tag);
        self.inner.follows(&cause);
        self.inner.tell_failed(cause.clone());
        let window = tag.window.map(|id| WindowName {
            name: self.inner.window(id).0,
            id,
        });
        // If there are several places, it is not known which of them it was.
        let only = || self.inner.last_wait(tag).filter(|(_, several)| !several);
        let site = site.or_else(|| Some(only()?.0));
        Error::Wait(Box::new(WaitFailed {
            window,
            epoch,
            site,
            waiting: self.rank(),
            rank: tag.peer as usize,
            awaited: tag.awaited,
            cause,
        }))
    }

    /// Why this rank cannot go on, if a kernel of its own is the reason.
    pub(crate) fn cause_of_kernel(&self, fault: &Fault) -> Cause {
        let rank = self.rank();
        let first = lock(&self.inner.events).failed.get(&rank).cloned();
        first
            .or_else(|| self.inner.cause_of_fault("-", fault))
            .unwrap_or(Cause::PeerFailed { rank })
    }

    /// Why a wait failed.
    pub(crate) fn cause_of(&self, tag: Tag) -> Cause {
        // The cause may arrive later than the failure. A peer that failed because a third rank died may have been
        // quicker than the news of that death. And the news of a kernel that panicked waits for the watch, if the
        // peer's program does not look. (An interpreter is slow, so it gets more time.)
        let looks = if cfg!(miri) {
            1000
        } else {
            3 * crate::watch::TICK.as_millis() / 5
        };
        for _ in 0..looks {
            if let Some(cause) = self.inner.cause(tag) {
                return cause;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let rank = tag.peer as usize;
        Cause::PeerFailed { rank }
    }
}

impl<D: Device> Inner<D> {
    /// Tells the control plane why a call of the program fails.
    fn follows(&self, cause: &Cause) {
        self.control.follows(cause.rank(), &cause.to_string());
    }

    /// Fills a list, which may be reused, with the streams of this rank that are alive.
    pub(crate) fn streams(&self, into: &mut Vec<Arc<ReclaimOf<D>>>) {
        let events = lock(&self.events);
        into.extend(
            events
                .streams
                .iter()
                .filter_map(|(_, stream)| stream.upgrade()),
        );
    }
}
