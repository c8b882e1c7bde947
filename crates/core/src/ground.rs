//! Small things that the whole crate uses, and that use nothing of the crate.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_hal::device::{Device, Stream};

pub(crate) use tidegate_hal::lock;

/// The part of a device's streams that outlives them.
pub(crate) type ReclaimOf<D> = <<D as Device>::Stream as Stream>::Reclaim;

/// The value of an environment variable, if it is set. Invalid UTF-8 is replaced by marks: the parser then refuses the
/// value, and does not take the variable for one that is not set.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|text| text.to_string_lossy().into_owned())
}

/// A number that is used only once in this process.
pub(crate) fn fresh_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// Keeps `value` alive for as long as a batch holds the result.
pub(crate) fn keep<T: Send + Sync + 'static>(value: &Arc<T>) -> Arc<dyn Any + Send + Sync> {
    value.clone()
}

/// The most bytes of a text in a message of the control plane. A panic's message may be much longer.
pub(crate) const MOST_TEXT: usize = 4096;

/// The beginning of a text, at most `most` bytes.
pub(crate) fn shortened(text: &str, most: usize) -> String {
    let end = (0..=most.min(text.len()))
        .rev()
        .find(|end| text.is_char_boundary(*end));
    let (kept, left) = text.split_at(end.unwrap_or(0));
    let more = if left.is_empty() { "" } else { " …" };
    format!("{kept}{more}")
}

/// The end of a text, at most `most` bytes.
pub(crate) fn ending(text: &str, most: usize) -> String {
    let first = text.len().saturating_sub(most);
    let begin = (first..=text.len()).find(|begin| text.is_char_boundary(*begin));
    let (left, kept) = text.split_at(begin.unwrap_or(text.len()));
    let more = if left.is_empty() { "" } else { "… " };
    format!("{more}{kept}")
}

#[cfg(test)]
std::thread_local! {
    /// How often this thread has looked at a slot, a route to one, an operation of an epoch, or a piece of a layout.
    pub(crate) static VISITS: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

/// Counts such a look. Tests use it to limit the work for large numbers of them.
#[inline(always)]
pub(crate) fn visited() {
    #[cfg(test)]
    VISITS.set(VISITS.get() + 1);
}
