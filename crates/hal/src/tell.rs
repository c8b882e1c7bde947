//! Events for whoever listens.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tells listeners to events (`tracing`), or runs other code of the program's (a waker). It may panic, for instance where
/// nobody reads what is printed, but this thread has more to do, for which others wait. So threads of tidegate's own, and
/// code that holds their locks, say nothing without this.
pub fn tell(event: impl FnOnce()) {
    let told = catch_unwind(AssertUnwindSafe(event));
    // A payload of the program's may panic when it is dropped.
    told.unwrap_or_else(std::mem::forget);
}

#[cfg(test)]
mod tests {
    use super::tell;

    #[test]
    fn a_panic_goes_no_further() {
        let mut said = false;
        tell(|| {
            said = true;
            panic!("nobody listens");
        });
        assert!(said);
    }
}
