//! The software engine: an agent that does, over any wire, what NICs with triggered operations do in hardware.
//!
//! # Model
//!
//! Each rank has one engine. A *turn* polls the wire, carries out notices, and takes every queue as far as it goes.
//! Three kinds of threads turn the engine:
//!
//! - the *listener*, which sleeps on the wire. If nothing rings the doorbells' bell (GPUs), it polls the doorbells
//!   while programs are armed. At first it polls without a pause, then less and less often, so that a late ring is seen
//!   a sixteenth later;
//! - streams that are threads, when they have rung and while they wait, so that no other thread has to wake up;
//! - the *ringer*, if streams are not threads, which sleeps on the doorbells' bell.
//!
//! A thread that finds the engine taken leaves a mark and goes on; the thread in the engine then looks again. A turn
//! looks at doorbells only if one was reported as rung, or if it must poll. It works only on queues that something has
//! happened to. A queue has one firing at a time:
//!
//! 1. Its pieces are posted as the wire accepts them. If a ring comes in parts, the firing begins with the first part,
//!    each piece waits for its part, and the last piece waits for the whole ring.
//! 2. If all pieces are writes, each brings a part of the signal, which is complete when all parts have come. (A single
//!    write brings the whole signal.) If there are gets, or very many pieces, the signal waits for all of them; if the
//!    last piece is a write, it brings the signal.
//! 3. When their sources have been read, the firing is through, and the sent word says so. Whether its signal has come
//!    is found out later, for many firings at a time, by reading the word that it went to: see [`ask`].
//!
//! A signal without data (an exposure) would be a message of its own, and an epoch would have two messages. If the same
//! turn has a short write to the same peer, with a signal of the same registration, one notice names both words
//! instead. If that write fails, so does the signal: it may have come, and must not come twice. The signal waits only
//! for this turn, so no rank waits for another.
//!
//! So a program with one piece, such as a short put of contiguous elements, is one operation. Data that is contiguous
//! only at the target is [gathered](gather), so a strided put is also one operation, or one for each 256 KiB. No word
//! is added to before all data that its signal stands for has arrived: see [`crate::wire`] and [`crate::regions`].
//! (Writes that bring parts of a signal take no other signal along.)
//!
//! If streams are not threads, long writes go by several endpoints, each with a thread of its own: see [`rail`].
//!
//! Updates of a peer's elements (accumulates, say) are [requests](request) to the peer's engine, which applies them
//! with its processor and [answers](answer). The last request of a firing replaces the signal: see [`converse`].
//!
//! If the wire's hardware fires programs by itself, a queue has a [chain](crate::wire::chain) instead of firings, and a
//! turn only watches: see [`chained`].
//!
//! # Failure
//!
//! A piece that fails ends its queue. Its signal never becomes complete, although parts that were handed to rails may
//! still go out. The peer gets a poisoning notice instead, for this program and for every other that is armed. The same
//! happens to a firing whose ring breaks off between two parts, once everything that was posted of it is over at this
//! end. A wire that fails ends all queues of the rank. It can no longer tell the peers, so core tells them over the
//! control plane. When the engine is dropped, operations in progress are left to the wire for as long as the network
//! has its endpoint open: see [`bequest`].

pub(crate) mod agent;
mod answer;
mod ask;
mod bequest;
pub(crate) mod chained;
mod contact;
mod converse;
mod departure;
mod doubt;
mod ear;
mod firing;
mod gather;
pub(crate) mod handle;
mod landing;
mod listen;
mod news;
mod peers;
mod poisoning;
mod post;
mod program;
pub(crate) mod queue;
mod queues;
mod rail;
mod request;
mod rest;
mod rows;
pub(crate) mod silence;
mod slab;
pub(crate) mod state;
mod tell;
mod watch;
mod work;
