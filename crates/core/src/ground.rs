//! Small things on which everything else rests. They need nothing of this crate.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_hal::device::{Device, Stream};

/// The outliving part of a device's streams.
pub(crate) type ReclaimOf<D> = <<D as Device>::Stream as Stream>::Reclaim;

/// Locks a mutex. A thread that panicked with it held has left nothing half-done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a variable of the environment says, if it is set. What is no text has marks in the place of what cannot be read: so
/// it is refused by whoever reads it, and not taken for a variable that is not set.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

/// A number that is not used twice in this process.
pub(crate) fn fresh_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Keeps something alive in a batch.
pub(crate) fn keep<T: Send + Sync + 'static>(value: &Arc<T>) -> Arc<dyn Any + Send + Sync> {
    value.clone()
}

/// How many bytes of a text go into a message of the control plane: a panic may say very much.
pub(crate) const MOST_TEXT: usize = 4096;

/// The beginning of a text, `most` bytes or less.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    let (kept, left) = text.split_at(end.unwrap_or(0));
    let more = if left.is_empty() { "" } else { " …" };
    format!("{kept}{more}")
}

/// The end of a text, `most` bytes or less.
pub(crate) fn ending(text: &str, most: usize) -> String {
    let first = text.len().saturating_sub(most);
    let begin = (first..=text.len()).find(|begin| text.is_char_boundary(*begin));
    let (left, kept) = text.split_at(begin.unwrap_or(text.len()));
    let more = if left.is_empty() { "" } else { "… " };
    format!("{more}{kept}")
}

#[cfg(test)]
std::thread_local! {
    /// How often this thread has looked at a slot, a way to one, an operation of an epoch, or a piece of a layout.
    pub(crate) static VISITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts a look at a slot, a way, an operation, or a piece of a layout, for tests of what many of them take.
#[inline(always)]
pub(crate) fn visited() {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
}
