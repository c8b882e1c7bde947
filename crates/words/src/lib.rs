//! The word protocol: how streams of different ranks wait for each other through shared memory.
//!
//! # Model
//!
//! A [`Word`] is a 64-bit counter that many ranks add to and one waits for. The waiting thread may sleep on a [`Bell`],
//! and a rank that adds rings the bell. An [`Engine`] runs the lanes of a batch against words, and moves data in
//! between.
//!
//! The same code runs on memory that processes share, under Miri, and, with `--cfg loom`, under a model checker. Only
//! the atomics and the sleeping differ: see [`sync`]. The head of `tests/loom.rs` says what the models check, and
//! within which bounds.
//!
//! # Memory order
//!
//! 1. The moves of a lane come before its add in program order, and the add is a *release*.
//! 2. The wait loads the word with *acquire*. So later moves and kernels see what came before the add.
//! 3. The adds of one peer to one word form a release sequence of read-modify-writes. So a wait that sees a later count
//!    has also acquired every earlier one.
//! 4. The ring follows the add, perhaps after more adds, with a sequentially consistent fence between the add and the
//!    look at the sleepers' flag. The sleeper sets the flag, fences, and looks at the word again. So one of the two sees
//!    the other. A thread that has rings left to make does not wait for anything before it has made them.
//! 5. The flag of a ring of buffers has one writer, which stores it with release. The word beside it is only poisoned.
//!
//! # Failure
//!
//! [`POISON`](tidegate_hal::batch::POISON) in a word ends a wait whose count has not come. A process may die after it
//! has taken the sleepers' flag, and before it wakes them. So a rank that notices a death poisons the words, and calls
//! [`Bell::wake_all`], which does not look at the flag. Nobody notices a process that is merely stopped at that place.
//! So a sleep on a bell that other processes ring ends by itself after at most 1 s.

pub mod ahead;
mod bell;
mod engine;
mod grant;
pub mod sync;
mod word;

pub use bell::{Bell, Patience};
pub use engine::{Added, Blocked, Engine, Halt, Mover, Poll, epoch_of, run};
pub use grant::{Grant, Granted};
pub use word::{State, Word};
