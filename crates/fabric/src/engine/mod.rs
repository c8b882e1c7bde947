//! The software engine: what NICs with triggered operations do by themselves, done by an agent over any wire.
//!
//! # Model
//!
//! Each rank has one engine. A *turn* polls the wire, does what notices say, and takes every queue as far as it goes.
//! Three kinds of threads turn it: the *listener*, which sleeps on the wire; streams that are threads, when they have rung
//! and while they wait, so that no thread must wake for it; and, where streams are no threads, the *ringer*, which sleeps on
//! the doorbells' bell. Where nothing rings that bell (GPUs), the listener polls the doorbells while programs are armed:
//! without a pause at first, then less and less often, so that a doorbell that is rung late is seen a sixteenth later.
//! A thread that finds the engine taken leaves word and goes on: the other looks again. A turn looks at doorbells only when
//! somebody has said that one was rung (or when it must poll), and works on queues that something has happened to, and
//! no others. A queue has one firing at a time:
//!
//! 1. its pieces are posted, as the wire takes them, and, where a ring comes in parts, as their parts have come: the
//!    firing begins with the first part, and the last piece waits for the whole ring;
//! 2. if they are writes, each brings a part of the signal, which is there when all have come: nobody waits in between.
//!    (One alone brings all of it.) Where there are gets, or very many pieces, the signal waits for all of them, and goes
//!    with the last one, if that is a write;
//! 3. when their sources have been read, the firing is through: the sent word says so. Whether its signal has come is
//!    found out later, for many at a time, by reading the word that it went to: see [`ask`].
//!
//! A signal without data (an exposure) does not go alone if, in the same turn, a short write to the same peer has a
//! signal of the same registration: one notice names both words. It would be a message of its own otherwise, and an
//! epoch would have two. If that write fails, so has the signal: it may have come, and must not come twice. It waits
//! for nothing but this turn, so nobody waits for each other.
//!
//! So a program with one piece, which is what a short put of contiguous elements is, is one operation; and what is
//! contiguous at the target only is [gathered](gather), so that a strided put is one, too, or one for each 256 KiB. A
//! word is never added to before all data that its signal stands for has arrived: see [`crate::wire`] and
//! [`crate::regions`]. (Parts take no other signal along.)
//!
//! Where streams are no threads, long writes go by several endpoints, with a thread for each: see [`rail`].
//!
//! Where the wire's hardware fires programs by itself, a queue has a [chain](crate::wire::chain) instead of firings,
//! and a turn only watches: see [`chained`].
//!
//! # Failure
//!
//! A piece that fails ends its queue: the signal is never whole (parts that were handed to rails may still go out), and
//! the peer gets a poisoning notice instead, for this program and every other that is armed. So does a firing whose ring
//! breaks off between two parts, when what was posted of it is over at this end. A wire that fails ends all queues of
//! the rank; peers cannot be told by it then, and core tells them by the control plane. What is under way when the
//! engine is dropped is left to the wire, for as long as the network has its endpoint open: see [`bequest`].

pub(crate) mod agent;
mod ask;
mod bequest;
pub(crate) mod chained;
mod contact;
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
mod rest;
mod rows;
pub(crate) mod silence;
mod slab;
pub(crate) mod state;
mod tell;
mod watch;
mod work;
