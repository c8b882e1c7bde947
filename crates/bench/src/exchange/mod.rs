//! The exchange alone: no kernels between the epochs, and whatever messages are asked for.
//!
//! # Model
//!
//! A [`Pattern`] says what each rank sends to whom in one *epoch*; a [`Case`] is a pattern with how it is
//! enqueued; [`run`] measures cases. What is sent are words that depend on the sender, the message, the
//! place in it, and the run: so what arrives elsewhere or torn is seen, and epochs that bring nothing are, too, since
//! those before the clock bring other words. Every run is verified, the first one (which is not counted) too: all slots
//! are copied to the host and compared word by word, as the last epoch has left them. (Within a run all epochs bring the
//! same: what comes an epoch late is for the tests of schedules, and for Faces, whose values grow. In turns, what the
//! second rank answers first within the time is the last message from before it: so there the first rank has one message
//! of the right words at least.)
//!
//! | [`Order`] | an epoch |
//! |---|---|
//! | [`Together`](Order::Together) | every rank posts, puts, completes and waits, in one batch |
//! | [`Turns`](Order::Turns) | two ranks; the second one sends when it has got what the first one sent, and the first one waits for that: an epoch is a round trip, of two messages one after the other. Each of the second one's batches answers what the one before it has waited for, and exposes for the next |
//!
//! ```text
//! for k in 0..nk {
//!     build windows and buffers; record                          (not timed)
//!     for j in 0..=nj {
//!         fill the sources anew; some epochs with other words, so that ranks begin together; synchronise
//!         start the clock; enqueue ni epochs; synchronise; stop the clock      (the run j = 0 is not counted)
//!         verify what the last epoch brought
//!     }
//! }
//! ```
//!
//! # Failures
//!
//! As those of Faces: a mismatch or an error makes the row a failed one, and the exit code 1.

mod case;
mod cases;
mod engine;
mod pattern;
mod run;
#[cfg(test)]
mod tests;

pub use case::{Case, Order};
pub(crate) use cases::counts;
pub use cases::{exchanges, pairs};
pub use pattern::{Message, Pattern, PatternError};
pub use run::run;
