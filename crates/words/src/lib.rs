//! The word protocol: how streams of different ranks wait for each other through shared memory.
//!
//! # Model
//!
//! A [`Word`] is a 64-bit counter that many add to and one waits on. Whoever waits may sleep on a [`Bell`]; whoever
//! adds rings it. An [`Engine`] runs the lanes of a batch against words, and moves data in between.
//!
//! The same code runs on memory shared between processes, under Miri, and (with `--cfg loom`) under a
//! model checker: only the atomics and the sleeping differ, in [`sync`]. What is checked, and within which bounds, stands at the
//! head of `tests/loom.rs`.
//!
//! # Memory order
//!
//! 1. Moves of a lane come before its add in program order; the add is a *release*.
//! 2. The wait loads the word with *acquire*; moves and kernels after it see what came before the add.
//! 3. Adds to one word by one peer form a release sequence of read-modify-writes, so a wait that sees a later
//!    count has also acquired every earlier one.
//! 4. The ring follows the add, with a sequentially consistent fence between add and look at the sleepers' flag;
//!    the sleeper sets the flag, fences, and looks at the word again: one of the two sees the other.
//!
//! # Failure
//!
//! [`POISON`](tidegate_hal::batch::POISON) in a word ends a wait whose count has not come. A process that dies between
//! taking the sleepers' flag and waking them would leave them asleep: whoever notices the death poisons the words and
//! calls [`Bell::wake_all`], which does not look at the flag. Nobody notices that a process is stopped there: so a sleep on
//! a bell that other processes ring ends by itself, after 1 s at most.

pub mod ahead;
mod bell;
mod engine;
pub mod sync;
mod word;

pub use bell::{Bell, Patience};
pub use engine::{Blocked, Engine, Halt, Mover, Poll, run};
pub use word::{State, Word};
