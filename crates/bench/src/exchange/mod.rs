//! The exchange alone: no kernels between the epochs, and any messages.
//!
//! # Model
//!
//! A [`Pattern`] has the messages that each rank sends in one *epoch*, and their targets. A [`Case`] is a pattern and how it
//! is enqueued. [`run`] measures cases.
//!
//! Each word that is sent depends on the sender, the message, its place in the message, and the run. So the check finds
//! messages that arrive elsewhere or torn. Epochs before the clock send other words, so the check also finds epochs that
//! bring nothing. Every run is verified, also the first one, which is not counted: all slots are copied to the host and
//! compared word by word, as the last epoch has left them.
//!
//! All epochs of a run send the same words, so this check does not find a message that comes an epoch late. The tests of
//! schedules find that, and so does Faces, whose values grow. In turns, the second rank's first timed answer is to the last
//! message before the clock, so the first rank gets at least one message with the right words.
//!
//! | [`Order`] | an epoch |
//! |---|---|
//! | [`Together`](Order::Together) | every rank posts, puts, completes and waits, in one batch |
//! | [`Turns`](Order::Turns) | two ranks; the second one sends once the first one's message has arrived, and the first one waits for that: an epoch is a round trip, of two messages one after the other. Each of the second one's batches answers the message that its previous batch waited for, and exposes for the next |
//!
//! ```text
//! for k in 0..nk {
//!     build windows and buffers; record                          (not timed)
//!     for j in 0..=nj {
//!         fill the sources anew; do some epochs with other words, so that ranks begin together; synchronise
//!         start the clock; enqueue ni epochs; synchronise; stop the clock      (the run j = 0 is not counted)
//!         verify the slots after the last epoch
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
