//! Events for the program: messages, and calls of its own code, that must not disturb tidegate's threads.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Tells listeners to events (`tracing`), or runs other code of the program's (a waker). It may panic, for instance where
/// nobody reads what is printed, but this thread has more to do, for which others wait. So threads of tidegate's own, and
/// code that holds their locks, say nothing without this.
pub fn tell(event: impl FnOnce()) {
    let told = catch_unwind(AssertUnwindSafe(event));
    // A payload of the program's may panic when it is dropped.
    told.unwrap_or_else(std::mem::forget);
}

/// Says something that the user is to see: `say!(text, screen)`. It goes to the screen unless the program has a subscriber of
/// `tracing` that takes this very event. (Many have one whose filter drops it: `EnvFilter` lets errors through and nothing
/// else, if it is told nothing.) A hang with nothing on the screen is what users of other libraries lose days to.
///
/// A macro, so that the event has the caller's module as its target.
#[macro_export]
macro_rules! say {
    ($text:expr, $screen:expr) => {{
        use std::io::Write as _;
        let (text, mut taken) = (&$text, false);
        // Of one place, so that the two are of one level and target.
        $crate::tell(|| {
            tracing::warn!("{text}");
            taken = tracing::event_enabled!(tracing::Level::WARN);
        });
        if !taken {
            // Where not even this can be written, there is nobody to tell: no reason to panic, as `eprintln!` does.
            let _ = writeln!($screen, "tidegate: {text}");
        }
    }};
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
