//! The limits of a process, as far as they matter for a job.

use super::table::bytes;
use rustix::process::{Resource, getrlimit};

/// The limits in words, with the commands that change them.
pub(super) fn words() -> String {
    let of = |resource, word: fn(u64) -> String| {
        let limit = getrlimit(resource);
        let say = |limit: Option<u64>| limit.map_or_else(|| "unlimited".to_owned(), word);
        match (limit.current, limit.maximum) {
            (now, most) if now == most => say(now),
            (now, most) => format!("{} of {}", say(now), say(most)),
        }
    };
    format!(
        "{} of locked memory (ulimit -l), {} descriptors (-n), {} processes (-u)",
        of(Resource::Memlock, bytes),
        of(Resource::Nofile, |number| number.to_string()),
        of(Resource::Nproc, |number| number.to_string()),
    )
}
