//! How long threads sleep on a wire.

use std::time::Duration;

/// How long a thread sleeps at most while something is under way, at first: not every provider says by its
/// descriptor that it wants to go on.
pub(super) const ACTIVE: Duration = Duration::from_millis(1);
/// And while nothing is under way.
pub(super) const IDLE: Duration = Duration::from_secs(1);
/// How long at least and at most, where nothing on the wire ends the sleep; between, a sixteenth of the time since
/// something happened.
pub(super) const DEAF: (Duration, Duration) =
    (Duration::from_micros(200), Duration::from_millis(4));
/// Between looks when the wire is broken.
pub(super) const BROKEN: Duration = Duration::from_millis(10);

/// How long to sleep on a wire, where nothing is under way and nothing has come for so long.
pub(super) fn idle(hears: bool, since: Duration) -> Duration {
    if hears {
        IDLE
    } else {
        (since / 16).clamp(DEAF.0, DEAF.1)
    }
}

/// And where something is under way: not every provider says by its descriptor that it wants to go on. A sixteenth of the
/// time since something happened: what is never heard of again keeps nobody awake.
pub(super) fn awaits(hears: bool, since: Duration) -> Duration {
    if hears {
        (since / 16).clamp(ACTIVE, IDLE)
    } else {
        idle(hears, since)
    }
}
