//! Settings from the environment.
//!
//! `TIDEGATE_FAKE_CUDA` is a list of `name=value`, separated by commas:
//!
//! | name | value |
//! |---|---|
//! | `devices` | how many there are: 8 |
//! | `capability` | of the devices, as `90` for 9.0: 90 |
//! | `multiprocessors` | of a device: 132 |
//! | `wave` | threads of a warp, `32` or `64`: 32 |
//! | `mps` | `1`: kernels of several processes run at the same time on a device |
//! | `idle` | `1`: grids that are enqueued are never carried out, to see what enqueueing alone takes |
//! | `stuck` | after so many seconds in which nothing has gone on, what there is to do is said: never |
//! | a function's name | `N` or `N:CODE`: its Nth call of the process (from 1 on) is refused, with the code (2, out of memory, if none is given) |
//!
//! (A function that is never called refuses nothing.)
//!
//! A value that cannot be read ends the process, because a test would otherwise test something else.

use std::collections::HashMap;
use std::sync::OnceLock;

use crate::codes;

/// The variable.
pub(crate) const VARIABLE: &str = "TIDEGATE_FAKE_CUDA";

#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) devices: i32,
    pub(crate) capability: i32,
    pub(crate) multiprocessors: i32,
    pub(crate) wave: i32,
    pub(crate) mps: i32,
    pub(crate) idle: bool,
    pub(crate) stuck: Option<u64>,
    /// For each function: which of its calls is refused, and how.
    pub(crate) refusals: HashMap<String, (u64, i32)>,
}

impl Settings {
    fn parse(text: &str) -> Option<Self> {
        let mut settings = Settings {
            devices: 8,
            capability: 90,
            multiprocessors: 132,
            wave: 32,
            mps: 0,
            idle: false,
            stuck: None,
            refusals: HashMap::new(),
        };
        for entry in text.split(',').filter(|entry| !entry.is_empty()) {
            let (name, value) = entry.split_once('=')?;
            match name {
                "devices" => settings.devices = value.parse().ok()?,
                "capability" => settings.capability = value.parse().ok()?,
                "multiprocessors" => settings.multiprocessors = value.parse().ok()?,
                "wave" => {
                    settings.wave = value.parse().ok().filter(|wave| [32, 64].contains(wave))?
                }
                "mps" => settings.mps = value.parse().ok()?,
                "idle" => settings.idle = value == "1",
                "stuck" => settings.stuck = Some(value.parse().ok()?),
                _ if name.starts_with("cu") => {
                    let (call, code) = match value.split_once(':') {
                        Some((call, code)) => (call, code.parse().ok()?),
                        None => (value, codes::OUT_OF_MEMORY),
                    };
                    let refusal = (call.parse().ok()?, code);
                    settings.refusals.insert(name.to_owned(), refusal);
                }
                _ => return None,
            }
        }
        Some(settings)
    }

    /// The settings of this process.
    pub(crate) fn get() -> &'static Self {
        static SETTINGS: OnceLock<Settings> = OnceLock::new();
        SETTINGS.get_or_init(|| {
            let text = std::env::var(VARIABLE).unwrap_or_default();
            Settings::parse(&text).unwrap_or_else(|| {
                eprintln!("{VARIABLE}: cannot read `{text}`");
                std::process::abort()
            })
        })
    }
}
