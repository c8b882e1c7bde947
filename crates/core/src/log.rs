//! `TIDEGATE_LOG`: tidegate's own events on standard error, where the program has no subscriber of `tracing`.
//!
//! # Model
//!
//! A rank that joins a job sets a subscriber for the whole process, if the variable is set and the program has set none.
//! Each event is one line, and is written by one call, so lines of different ranks do not mix. With `off`, the
//! subscriber takes what would go to the screen without one, and writes nothing.

use std::fmt::{self, Write as _};
use std::io::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use tidegate_hal::variables::LOG;
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use crate::error::{Result, SettingError};
use crate::ground::variable;

/// When the process joined its first job.
static BEGUN: OnceLock<Instant> = OnceLock::new();
/// The rank of this process in its latest job.
static RANK: AtomicUsize = AtomicUsize::new(NONE);
/// No rank is known yet.
const NONE: usize = usize::MAX;

/// Does what the variable says. Later calls have no effect.
pub(crate) fn start() -> Result<()> {
    if let Some(log) = variable(LOG.name).map(|text| Log::parse(&text)) {
        BEGUN.get_or_init(Instant::now);
        // If the program has a subscriber, that one gets the events.
        let _ = tracing::subscriber::set_global_default(log?);
    }
    Ok(())
}

/// Lines begin with this rank from now on.
pub(crate) fn rank(rank: usize) {
    RANK.store(rank, Ordering::Relaxed);
}

/// Writes events of tidegate up to a level, or takes them and writes none.
#[derive(Debug, PartialEq)]
struct Log {
    most: LevelFilter,
    writes: bool,
}

impl Log {
    fn parse(text: &str) -> Result<Self> {
        let (most, writes) = match text.trim() {
            "off" => (LevelFilter::WARN, false),
            "warn" => (LevelFilter::WARN, true),
            "info" => (LevelFilter::INFO, true),
            "debug" => (LevelFilter::DEBUG, true),
            _ => {
                return Err(SettingError::Log {
                    variable: LOG.name,
                    text: text.to_owned(),
                }
                .into());
            }
        };
        Ok(Log { most, writes })
    }
}

impl Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let is_ours = metadata.target().starts_with("tidegate");
        metadata.is_event() && is_ours && *metadata.level() <= self.most
    }

    fn max_level_hint(&self) -> Option<LevelFilter> {
        Some(self.most)
    }

    fn event(&self, event: &Event<'_>) {
        if !self.writes {
            return;
        }
        let begun = BEGUN
            .get()
            .map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        let rank = Some(RANK.load(Ordering::Relaxed)).filter(|rank| *rank != NONE);
        // If not even this can be written, nobody reads it.
        let _ = std::io::stderr().write_all(line(event, rank, begun).as_bytes());
    }

    // Spans are not taken: see `enabled`.
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

/// An event as a line.
fn line(event: &Event<'_>, rank: Option<usize>, seconds: f64) -> String {
    let mut words = Words::default();
    event.record(&mut words);
    let who = rank.map_or(String::new(), |rank| format!("rank {rank}, "));
    let kind = match *event.metadata().level() {
        Level::ERROR => "error: ",
        Level::WARN => "warning: ",
        _ => "",
    };
    let Words { message, fields } = words;
    let fields = match fields.is_empty() {
        true => fields,
        false => format!(" ({fields})"),
    };
    format!("tidegate: {who}{seconds:.3} s: {kind}{message}{fields}\n")
}

/// The message of an event, and its other fields.
#[derive(Default)]
struct Words {
    message: String,
    fields: String,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Writing to a `String` does not fail.
        let _ = match field.name() {
            "message" => write!(self.message, "{value:?}"),
            name if self.fields.is_empty() => write!(self.fields, "{name}: {value:?}"),
            name => write!(self.fields, ", {name}: {value:?}"),
        };
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};

    /// Keeps the lines of events.
    struct Kept(Log, Arc<Mutex<Vec<String>>>);

    impl Subscriber for Kept {
        fn enabled(&self, metadata: &Metadata<'_>) -> bool {
            self.0.enabled(metadata)
        }

        fn event(&self, event: &Event<'_>) {
            self.1.lock().unwrap().push(line(event, Some(3), 0.2141));
        }

        fn new_span(&self, attributes: &Attributes<'_>) -> Id {
            self.0.new_span(attributes)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn events_are_lines() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let kept = Kept(Log::parse("info").unwrap(), lines.clone());
        tracing::subscriber::with_default(kept, || {
            tracing::info!(window = %"halo", bytes = 64, why = "asked", "open");
            tracing::warn!("late");
            tracing::debug!("too much");
            tracing::error!(target: "other", "not ours");
        });
        let lines = lines.lock().unwrap();
        assert_eq!(
            *lines,
            [
                "tidegate: rank 3, 0.214 s: open (window: halo, bytes: 64, why: asked)\n",
                "tidegate: rank 3, 0.214 s: warning: late\n",
            ]
        );
    }

    #[test]
    fn levels_are_the_words_of_the_list() {
        let tidegate_hal::variables::Form::Words(words) = LOG.form else {
            panic!("{:?}", LOG.form)
        };
        assert!(words.iter().all(|word| Log::parse(word).is_ok()));
        let error = Log::parse("loud").unwrap_err().to_string();
        assert_eq!(
            error,
            "`loud` is no level of messages: set TIDEGATE_LOG to off, warn, info or debug"
        );
    }
}
