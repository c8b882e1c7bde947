//! The wire of user space: a thread that passes frames from TAP device to TAP device.
//!
//! # Model
//!
//! The thread sleeps until a frame comes or one is due. The address of a frame has the number of its node, so there is
//! nothing to learn. The frame goes into that node's queue, with the time at which it arrives: after those before it at
//! the given rate, and after the delay. All frames of a queue have the same delay, so the first is always due first.
//!
//! The seed and n alone determine whether the nth frame from one node to another is lost.
//!
//! # Failure
//!
//! A frame that finds no place in a queue is lost, as in a switch, and counted ([`Traffic`]). So is a frame on a cut
//! link. A TAP device that fails carries nothing any more. The thread ends with the bed.

use crate::address::node_of_mac;
use crate::error::BedError;
use crate::shape::{QUEUE, Shape};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Instant;

/// How many frames of one node are read before another has its turn.
const TURN: usize = 64;
/// The most bytes of a frame.
const FRAME: usize = 64 << 10;
/// How many buffers are kept for later frames.
const SPARE: usize = 256;

/// How many frames a relay has handled so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Traffic {
    /// Frames that arrived.
    pub delivered: u64,
    /// Frames that were lost because the shape says so.
    pub lost: u64,
    /// Frames that were lost because a link was cut.
    pub cut: u64,
    /// Frames that were lost because a queue was full.
    pub crowded: u64,
}

impl std::fmt::Display for Traffic {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            delivered,
            lost,
            cut,
            crowded,
        } = self;
        write!(
            f,
            "{delivered} packets arrived, {lost} were lost, {cut} at cut links, {crowded} in full queues"
        )
    }
}

#[derive(Debug, Default)]
struct Counters {
    delivered: AtomicU64,
    lost: AtomicU64,
    cut: AtomicU64,
    crowded: AtomicU64,
}

/// The state that the thread and its owner share.
#[derive(Debug)]
struct RelayState {
    up: Vec<AtomicBool>,
    counters: Counters,
    stop: OwnedFd,
}

#[derive(Debug)]
pub(crate) struct Relay {
    shared: Arc<RelayState>,
    thread: Option<JoinHandle<()>>,
}

impl Relay {
    pub(crate) fn start(taps: Vec<OwnedFd>, shape: Shape, seed: u64) -> Result<Self, BedError> {
        let stop = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| BedError::io("making an event descriptor", e))?;
        let shared = Arc::new(RelayState {
            up: taps.iter().map(|_| AtomicBool::new(true)).collect(),
            counters: Counters::default(),
            stop,
        });
        let now = Instant::now();
        let nodes = taps.len();
        let ports = taps.into_iter().enumerate().map(|(to, tap)| Port {
            tap,
            dead: false,
            queue: VecDeque::new(),
            free_at: now,
            dice: (0..nodes).map(|from| Dice::new(seed, from, to)).collect(),
        });
        let wires = Wires {
            shape,
            shared: Arc::clone(&shared),
            ports: ports.collect(),
            spare: Vec::new(),
        };
        let thread = std::thread::Builder::new()
            .name("tidegate-relay".into())
            .spawn(move || wires.run())
            .map_err(|e| BedError::io("starting the thread of the relay", e))?;
        let thread = Some(thread);
        Ok(Self { shared, thread })
    }

    pub(crate) fn set_link(&self, node: usize, up: bool) {
        self.shared.up[node].store(up, Relaxed);
    }

    pub(crate) fn traffic(&self) -> Traffic {
        let counters = &self.shared.counters;
        Traffic {
            delivered: counters.delivered.load(Relaxed),
            lost: counters.lost.load(Relaxed),
            cut: counters.cut.load(Relaxed),
            crowded: counters.crowded.load(Relaxed),
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.shared.stop, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The port of one node.
struct Port {
    tap: OwnedFd,
    dead: bool,
    /// Frames on their way, and when each arrives.
    queue: VecDeque<(Instant, Vec<u8>)>,
    /// When the wire is free again after the last frame of the queue.
    free_at: Instant,
    /// The dice for frames from each node.
    dice: Vec<Dice>,
}

struct Wires {
    shape: Shape,
    shared: Arc<RelayState>,
    ports: Vec<Port>,
    /// Buffers of frames that have arrived.
    spare: Vec<Vec<u8>>,
}

impl Wires {
    fn run(mut self) {
        // By default the kernel may wake a thread 50 us late, which is much for a delay of 100. If this fails, frames
        // are a little late.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let mut scratch = vec![0; FRAME];
        loop {
            self.deliver(Instant::now());
            let Some(ready) = self.sleep() else { return };
            for from in ready {
                self.read(from, &mut scratch);
            }
        }
    }

    /// Sleeps until there is something to do. Returns the nodes that have sent something, or `None` at the end.
    fn sleep(&self) -> Option<Vec<usize>> {
        let alive = || self.ports.iter().enumerate().filter(|(_, port)| !port.dead);
        let mut fds = vec![PollFd::new(&self.shared.stop, PollFlags::IN)];
        fds.extend(alive().map(|(_, port)| PollFd::new(&port.tap, PollFlags::IN)));
        let due = self.ports.iter().filter_map(|port| port.queue.front());
        let timeout = due.map(|(due, _)| *due).min().map(|due| {
            let wait = due.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: wait.as_secs() as _,
                tv_nsec: wait.subsec_nanos().into(),
            }
        });
        if poll(&mut fds, timeout.as_ref()).is_err() {
            return Some(Vec::new());
        }
        let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
        if ready.next() == Some(true) {
            return None;
        }
        let ready = alive().zip(ready).filter(|(_, ready)| *ready);
        Some(ready.map(|((node, _), _)| node).collect())
    }

    fn read(&mut self, from: usize, scratch: &mut [u8]) {
        for _ in 0..TURN {
            match rustix::io::read(self.ports[from].tap.as_fd(), &mut *scratch) {
                Ok(bytes) => self.pass_on(from, &scratch[..bytes], Instant::now()),
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return,
                Err(error) => {
                    tracing::warn!(node = from, %error, "the device of a node failed");
                    self.ports[from].dead = true;
                    return;
                }
            }
        }
    }

    fn pass_on(&mut self, from: usize, frame: &[u8], now: Instant) {
        let mac = frame.first_chunk::<6>();
        // Neighbours already know each other, so frames to all nodes (such as a multicast of IPv6) tell nobody
        // anything.
        let Some(to) = mac
            .and_then(node_of_mac)
            .filter(|to| *to < self.ports.len())
        else {
            return;
        };
        let counters = &self.shared.counters;
        let port = &mut self.ports[to];
        if port.dice[from].roll() < self.shape.loss {
            counters.lost.fetch_add(1, Relaxed);
        } else if !self.shared.up[from].load(Relaxed) || !self.shared.up[to].load(Relaxed) {
            counters.cut.fetch_add(1, Relaxed);
        } else if port.queue.len() >= QUEUE {
            counters.crowded.fetch_add(1, Relaxed);
        } else {
            port.free_at = port.free_at.max(now) + self.shape.occupies(frame.len());
            let mut buffer = self.spare.pop().unwrap_or_default();
            buffer.extend_from_slice(frame);
            port.queue
                .push_back((port.free_at + self.shape.delay, buffer));
        }
    }

    /// Delivers the frames that are due.
    fn deliver(&mut self, now: Instant) {
        let counters = &self.shared.counters;
        for port in &mut self.ports {
            while let Some((due, _)) = port.queue.front()
                && *due <= now
                && let Some((_, mut frame)) = port.queue.pop_front()
            {
                let counter = match rustix::io::write(&port.tap, &frame) {
                    Ok(_) => &counters.delivered,
                    Err(_) => &counters.crowded,
                };
                counter.fetch_add(1, Relaxed);
                if self.spare.len() < SPARE {
                    frame.clear();
                    self.spare.push(frame);
                }
            }
        }
    }
}

/// The dice of one direction of one pair of nodes (SplitMix64).
struct Dice(u64);

impl Dice {
    fn new(seed: u64, from: usize, to: usize) -> Self {
        let mut mixed = Self(seed);
        let pair = (from as u64) << 32 | to as u64;
        Self(mixed.next() ^ Self(pair).next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 to 1, without 1.
    fn roll(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rolls(seed: u64, from: usize, to: usize) -> Vec<f64> {
        let mut dice = Dice::new(seed, from, to);
        (0..10_000).map(|_| dice.roll()).collect()
    }

    #[test]
    fn losses_are_the_same_again() {
        assert_eq!(rolls(7, 0, 1), rolls(7, 0, 1));
        assert_ne!(rolls(7, 0, 1), rolls(8, 0, 1));
        assert_ne!(rolls(7, 0, 1), rolls(7, 1, 0));
        let lost = rolls(7, 0, 1).iter().filter(|roll| **roll < 0.01).count();
        assert!((50..200).contains(&lost), "{lost} of 10000 at 1%");
    }
}
