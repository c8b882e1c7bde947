//! Tells the program about events, by messages or by calls of its code. Neither may disturb tidegate's threads.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs code of the program, such as a listener to events (`tracing`) or a waker, and catches its panic. The code may
/// panic, for instance when nobody reads what it prints. But this thread has more to do, for which others wait. So
/// tidegate's own threads, and code that holds their locks, call foreign code only through this.
pub fn tell(event: impl FnOnce()) {
    let told = catch_unwind(AssertUnwindSafe(event));
    // The payload may panic again when it is dropped: so leak it.
    told.unwrap_or_else(std::mem::forget);
}

/// Tells the user something: `say!(text, screen)`. The text goes to the screen, unless the program has a subscriber of
/// `tracing` that takes this very event. (Many programs have one whose filter drops it: without settings, `EnvFilter`
/// passes errors only.) Without this, a hang could leave nothing on the screen.
///
/// A macro, so that the event has the caller's module as its target.
#[macro_export]
macro_rules! say {
    ($text:expr, $screen:expr) => {{
        use std::io::Write as _;
        let (text, mut taken) = (&$text, false);
        // Both use one place in the source, so that they have the same level and target.
        $crate::tell(|| {
            tracing::warn!("{text}");
            taken = tracing::event_enabled!(tracing::Level::WARN);
        });
        if !taken {
            // The whole line is one write, so ranks that share a screen do not cut each other's lines. If not even this
            // can be written, nobody reads it. That is no reason to panic, as `eprintln!` would.
            let line = format!("tidegate: {text}\n");
            let _ = $screen.write_all(line.as_bytes());
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
