//! The future that waits for a stream.

use std::pin::Pin;
use std::task::{Context, Poll};

use tidegate_hal::device::{Awaits, Call, Reclaim};
use tidegate_hal::site::CallSite;

use crate::ground::fresh_id;

/// Becomes ready when a stream has passed a mark.
pub(super) struct Passed<'a, R: Reclaim> {
    reclaim: &'a R,
    mark: u64,
    /// The number of this future, which is used once.
    number: u64,
    /// The place where the program made the future.
    site: CallSite,
    /// Whether the stream may hold a waker of the future.
    asked: bool,
    /// Set when the future first has to wait.
    awaits: Option<Awaits<'a>>,
}

impl<'a, R: Reclaim> Passed<'a, R> {
    pub(super) fn new(reclaim: &'a R, mark: u64, site: CallSite) -> Self {
        Passed {
            reclaim,
            mark,
            number: fresh_id(),
            site,
            asked: false,
            awaits: None,
        }
    }
}

impl<R: Reclaim> Future for Passed<'_, R> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let reclaim = self.reclaim;
        self.asked = true;
        if reclaim.wake_at(self.mark, self.number, context.waker()) {
            return Poll::Ready(());
        }
        let site = self.site;
        self.awaits
            .get_or_insert_with(|| reclaim.calls().awaits(Call::Synchronized, site));
        Poll::Pending
    }
}

impl<R: Reclaim> Drop for Passed<'_, R> {
    fn drop(&mut self) {
        if self.asked {
            self.reclaim.forget_waker(self.number);
        }
    }
}
