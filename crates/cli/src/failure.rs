//! The failure that ends a job, and the lines that report it.
//!
//! # Model
//!
//! The launcher sees which rank is the first to *end* with an error. Another rank may have been the first to *fail*:
//! see [`causes`](super::causes). So the report waits a moment for the end of that one, and names it. It also names
//! ranks that may be the reason although they have not failed: those that had ended without an error, and those that
//! are stopped.

use super::causes::Firsts;
use super::rank::{Rank, stopped_now};
use std::time::{Duration, Instant};
use tidegate_boot::starter::in_words;

/// How long the launcher waits for the end of a rank that has failed, before it reports a failure that followed from
/// that. This delays only the report.
const FOR_THE_FIRST: Duration = Duration::from_millis(500);

/// The failure that ends the job.
pub(super) struct Failure {
    /// The rank that was the first to end with an error.
    ended_first: usize,
    /// The ranks that had ended without an error before.
    before: Vec<usize>,
    /// Whether the others have a limited time since then.
    others_end: bool,
    /// How long the others may take.
    grace: Duration,
    /// Until when the failure need not be reported, as long as the rank that was the first to fail has not ended.
    unsaid_until: Option<Instant>,
    /// The rank whose status was reported.
    said: Option<usize>,
}

impl Failure {
    /// `rank` is the first that has ended with an error. `others_end` says that this ends the others, after `grace`.
    pub(super) fn new(rank: usize, ranks: &[Rank], others_end: bool, grace: Duration) -> Self {
        let all = ranks.iter().enumerate();
        let before = all.filter_map(|(rank, own)| own.has_succeeded().then_some(rank));
        Failure {
            ended_first: rank,
            before: before.collect(),
            others_end,
            grace,
            // It is reported before the others get a signal.
            unsaid_until: Some(Instant::now() + FOR_THE_FIRST.min(grace)),
            said: None,
        }
    }

    /// When it is to be reported at the latest; `None` if it has been.
    pub(super) fn unsaid_until(&self) -> Option<Instant> {
        self.unsaid_until
    }

    /// The rank that was the first to fail.
    pub(super) fn first(&self, ranks: &[Rank]) -> usize {
        first_to_fail(self.ended_first, ranks, &mut Firsts::default())
    }

    /// The report, once: when the rank that was the first to fail has ended, or takes long. `is_limited` says that the
    /// others have a limited time.
    pub(super) fn say(&mut self, ranks: &[Rank], is_limited: bool) -> Option<String> {
        let until = self.unsaid_until?;
        let first = self.first(ranks);
        let (said, because) = match ranks[first].ended {
            Some(_) => (first, String::new()),
            None if Instant::now() < until => return None,
            None => {
                let because = format!(", because of rank {first}, which has not ended yet");
                (self.ended_first, because)
            }
        };
        let (status, _) = ranks[said].ended.expect("it has ended");
        // The rank that this one names may have ended without an error, but too early.
        let mut before = self.before.clone();
        let named = ranks[said].because_of;
        before.extend(named.filter(|of| ranks[*of].has_succeeded()));
        before.sort_unstable();
        before.dedup();
        let mut before = by_then(&before);
        // A stopped rank may be the reason.
        for (rank, stopped) in stopped_now(ranks) {
            if let Some(stopped) = stopped {
                before += &format!("; {} is {stopped}", stopped.who(rank));
            }
        }
        let is_running = ranks.iter().any(|rank| rank.ended.is_none());
        let grace = if !self.others_end || !is_running {
            String::new()
        } else if is_limited {
            format!("; the others get {:.1?} to end by themselves", self.grace)
        } else {
            "; the others may take for ever".to_owned()
        };
        (self.unsaid_until, self.said) = (None, Some(said));
        Some(format!(
            "rank {said} failed ({status}){because}{before}{grace}"
        ))
    }

    /// After the last rank has ended: which ranks failed because of the first that did, if any.
    pub(super) fn what_followed(&self, ranks: &[Rank]) -> Option<String> {
        let first = self.first(ranks);
        let mut known = Firsts::default();
        let followed = |rank: &usize| {
            let has_failed = *rank != first && !ranks[*rank].has_succeeded();
            has_failed && first_to_fail(*rank, ranks, &mut known) == first
        };
        let followed: Vec<_> = (0..ranks.len()).filter(followed).collect();
        if followed.is_empty() {
            return None;
        }
        let followed = in_words(&followed);
        Some(match ranks[first].ended {
            Some((status, _)) if self.said != Some(first) => {
                format!("rank {first} failed ({status}); {followed} ended because of it")
            }
            _ => format!("{followed} ended because of it"),
        })
    }
}

/// The rank that was the first to fail, if `rank` has failed. A rank that has ended without an error has not failed.
/// One that has not ended may have.
fn first_to_fail(rank: usize, ranks: &[Rank], known: &mut Firsts) -> usize {
    known.of(rank, |rank| {
        let of = ranks[rank].because_of;
        of.filter(|of| !ranks[*of].has_succeeded())
    })
}

/// The text about the ranks that had ended without an error when the first rank failed. They may have caused the
/// failure: by returning too early, or by `process::exit(0)`, which drops no world.
fn by_then(ended: &[usize]) -> String {
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
    use super::super::rank::RankPlacement;
    use super::*;
    use std::os::unix::process::ExitStatusExt;
    use std::process::ExitStatus;

    /// A rank with this exit code, if it has ended, that has told because of which rank it fails.
    fn rank(code: Option<i32>, because_of: Option<usize>) -> Rank {
        Rank {
            pid: 1,
            process: RankPlacement::There(0),
            ended: code.map(|code| (ExitStatus::from_raw(code << 8), Duration::ZERO)),
            captured: [Vec::new(), Vec::new()],
            because_of,
        }
    }

    #[test]
    fn the_report_waits_for_the_rank_that_was_the_first() {
        let mut ranks = [
            rank(Some(0), None),
            rank(Some(3), Some(2)),
            rank(None, None),
        ];
        let mut failure = Failure::new(1, &ranks, true, Duration::from_secs(60));
        assert_eq!(failure.say(&ranks, true), None);
        ranks[2] = rank(Some(7), None);
        let line = failure.say(&ranks, true).unwrap();
        assert!(
            line.starts_with("rank 2 failed (exit status: 7); by then rank 0 had ended ("),
            "{line}"
        );
        assert_eq!(
            (failure.say(&ranks, true), failure.unsaid_until()),
            (None, None)
        );
        let followed = failure.what_followed(&ranks);
        assert_eq!(followed.as_deref(), Some("rank 1 ended because of it"));
    }

    #[test]
    fn a_rank_that_takes_long_to_end_is_named_as_the_cause() {
        let mut ranks = [rank(Some(3), Some(1)), rank(None, None)];
        let mut failure = Failure::new(0, &ranks, true, Duration::ZERO);
        let line = failure.say(&ranks, true).unwrap();
        let because = "rank 0 failed (exit status: 3), because of rank 1, which has not ended yet";
        let others = "; the others get 0.0ns to end by themselves";
        assert_eq!(line, format!("{because}{others}"));
        ranks[1] = rank(Some(9), None);
        let followed = failure.what_followed(&ranks).unwrap();
        assert_eq!(
            followed,
            "rank 1 failed (exit status: 9); rank 0 ended because of it"
        );
    }

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
