//! A rank as the launcher sees it, on this machine or another, and the words for its end.

use super::child::RankChild;
use std::process::ExitStatus;
use std::time::Duration;
use tidegate_boot::starter::in_words;

/// A rank of the job.
pub(super) struct Rank {
    pub(super) pid: u32,
    pub(super) process: RankPlacement,
    pub(super) ended: Option<(ExitStatus, Duration)>,
    pub(super) captured: [Vec<u8>; 2],
    /// When it has ended: because of which rank a call of it failed, as far as it has told.
    pub(super) because_of: Option<usize>,
}

impl Rank {
    /// Whether it has ended, and without an error.
    pub(super) fn has_succeeded(&self) -> bool {
        self.ended.is_some_and(|(status, _)| status.success())
    }

    /// Its process, if it is on this machine.
    pub(super) fn child(&self) -> Option<&RankChild> {
        match &self.process {
            RankPlacement::Here(child) => Some(child),
            RankPlacement::There(_) => None,
        }
    }
}

/// The place of a rank.
pub(super) enum RankPlacement {
    /// On this machine.
    Here(RankChild),
    /// On one of the hosts.
    There(usize),
}

/// The text about the ranks that had ended without an error when the first rank failed. They may have caused the
/// failure: by returning too early, or by `process::exit(0)`, which drops no world.
pub(super) fn by_then(ended: &[usize]) -> String {
    let them = match ended.len() {
        0 => return String::new(),
        1 => "it",
        _ => "one of them",
    };
    let ranks = in_words(ended);
    format!("; by then {ranks} had ended (exit status: 0; too early, if others waited for {them})")
}

#[cfg(test)]
mod tests {
    use super::by_then;

    #[test]
    fn ranks_that_had_ended_are_named_in_words() {
        assert_eq!(by_then(&[]), "");
        let one = by_then(&[2]);
        assert!(
            one.starts_with("; by then rank 2 had ended (") && one.ends_with("waited for it)"),
            "{one}"
        );
        let some = by_then(&[0, 2, 3, 9]);
        assert!(
            some.starts_with("; by then ranks 0, 2, 3, 9 had ended ("),
            "{some}"
        );
        assert!(some.ends_with("waited for one of them)"), "{some}");
    }
}
