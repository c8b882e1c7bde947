//! A rank does not wait for ever, whatever its job does.

use super::finding::{Finding, Who};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// How long a step may take. The measurement has a limit of its own, which is shorter.
const LONG: Duration = Duration::from_secs(30);

/// The step that this rank is in, and since when.
static STEP: Mutex<Option<(&str, Instant)>> = Mutex::new(None);

/// The rank begins a step.
pub(super) fn begin(doing: &'static str) {
    set(Some((doing, Instant::now())));
}

/// The rank waits for nobody any more.
pub(super) fn end() {
    set(None);
}

fn set(step: Option<(&'static str, Instant)>) {
    *STEP.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = step;
}

/// From now on, a step that takes too long ends the process, after `report` has got the finding.
pub(super) fn watch(who: Who, report: impl Fn(Finding) + Send + 'static) -> std::io::Result<()> {
    let look = move || {
        loop {
            std::thread::sleep(Duration::from_millis(500));
            let step = *STEP.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            if let Some((doing, since)) = step
                && since.elapsed() > LONG
            {
                report(Finding::Stuck {
                    who: who.clone(),
                    doing,
                    seconds: LONG.as_secs(),
                });
                std::process::exit(1);
            }
        }
    };
    let thread = std::thread::Builder::new().name("doctor-patience".into());
    thread.spawn(look).map(drop)
}
