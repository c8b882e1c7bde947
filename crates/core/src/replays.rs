//! What a rank has replayed of the recordings that all ranks have proved.
//!
//! # Model
//!
//! A proof of [`Graph::verify`](crate::Graph::verify) assumes that all ranks replay the same recordings, in the same
//! order, equally often. Each rank notes its *runs*: a recording, and how many times it was replayed until another one
//! came. It keeps the last runs, and a hash of those before. If a wait is reported as long, the reporter compares the
//! runs of all ranks, and names the first difference.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};
use tidegate_hal::site::CallSite;

use crate::ground::ending;

/// How many runs are kept.
const KEPT: usize = 16;
/// The most bytes of a place.
const PLACE: usize = 120;

/// A recording that all ranks have proved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Proved {
    /// Its number, the same on all ranks.
    pub(crate) number: u64,
    /// The call that proved it.
    pub(crate) site: CallSite,
}

/// The runs of this rank.
#[derive(Default)]
pub(crate) struct Replays {
    proved: u64,
    kept: VecDeque<(Proved, u64)>,
    /// How many runs there were before those that are kept, and their hash.
    first: u64,
    before: u64,
}

/// The runs of a rank, in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Runs {
    first: u64,
    before: u64,
    runs: Vec<Run>,
}

/// A recording, how many times it was replayed, and the call that proved it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Run {
    number: u64,
    times: u64,
    site: String,
}

fn fold(before: u64, number: u64, times: u64) -> u64 {
    let mut hasher = DefaultHasher::new();
    (before, number, times).hash(&mut hasher);
    hasher.finish()
}

impl Replays {
    /// The number for a recording that all ranks have just proved.
    pub(crate) fn proved(&mut self, site: CallSite) -> Proved {
        self.proved += 1;
        Proved {
            number: self.proved,
            site,
        }
    }

    /// Notes replays of a recording.
    pub(crate) fn note(&mut self, recording: Proved, times: u64) {
        if times == 0 {
            return;
        }
        match self.kept.back_mut() {
            Some((last, sum)) if last.number == recording.number => *sum += times,
            _ => {
                if self.kept.len() == KEPT
                    && let Some((oldest, times)) = self.kept.pop_front()
                {
                    self.before = fold(self.before, oldest.number, times);
                    self.first += 1;
                }
                self.kept.push_back((recording, times));
            }
        }
    }

    /// The runs, for the other ranks.
    pub(crate) fn runs(&self) -> Runs {
        let run = |(recording, times): &(Proved, u64)| Run {
            number: recording.number,
            times: *times,
            site: ending(&recording.site.to_string(), PLACE),
        };
        Runs {
            first: self.first,
            before: self.before,
            runs: self.kept.iter().map(run).collect(),
        }
    }
}

impl Runs {
    fn end(&self) -> u64 {
        self.first + self.runs.len() as u64
    }

    fn run(&self, at: u64) -> Option<&Run> {
        self.runs
            .get(usize::try_from(at.checked_sub(self.first)?).ok()?)
    }

    /// The hash of the runs before this one, which is not before the first that was kept.
    fn hash(&self, at: u64) -> u64 {
        let before = (self.first..at).filter_map(|at| self.run(at));
        before.fold(self.before, |hash, run| fold(hash, run.number, run.times))
    }
}

/// How a difference between two ranks begins.
fn difference(one: &Runs, two: &Runs) -> Option<String> {
    let (first, end) = (one.first.max(two.first), one.end().min(two.end()));
    if first <= end && one.hash(first) != two.hash(first) {
        return Some("long ago".to_owned());
    }
    let at = (first..end).find(|at| {
        let (Some(a), Some(b)) = (one.run(*at), two.run(*at)) else {
            return false;
        };
        // A run that is a rank's last one may go on.
        let less = |a: &Run, b: &Run, of: &Runs| a.times < b.times && of.end() > at + 1;
        a.number != b.number || less(a, b, one) || less(b, a, two)
    })?;
    let run = |of: &Runs| {
        let Run {
            number,
            times,
            site,
        } = of.run(at)?;
        Some(format!("{times} times number {number}, proved at {site}"))
    };
    Some(format!("{}, against {}", run(one)?, run(two)?))
}

/// The first difference between what ranks have replayed, for people.
///
/// If any two ranks differ, the rank that has come farthest differs from one of them.
pub(crate) fn differ<'a>(all: impl Iterator<Item = (usize, &'a Runs)>) -> Option<String> {
    let all: Vec<_> = all.collect();
    let last = |runs: &Runs| runs.runs.last().map_or(0, |run| run.times);
    let farthest = *all
        .iter()
        .max_by_key(|(_, runs)| (runs.end(), last(runs)))?;
    let differs = |(_, runs): &&(usize, &Runs)| difference(farthest.1, runs).is_some();
    let mut pair = [farthest, *all.iter().find(differs)?];
    pair.sort_by_key(|(rank, _)| *rank);
    let [(one, first), (two, second)] = pair;
    let how = difference(first, second)?;
    Some(format!(
        "ranks {one} and {two} have not replayed the same recordings: {how}"
    ))
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;

    /// The runs of a rank that replays these recordings.
    fn runs(all: &[(u64, u64)]) -> Runs {
        let mut replays = Replays::default();
        for (number, times) in all {
            let recording = Proved {
                number: *number,
                site: Location::caller(),
            };
            replays.note(recording, *times);
        }
        replays.runs()
    }

    fn differs(one: &[(u64, u64)], two: &[(u64, u64)]) -> Option<String> {
        let (one, two) = (runs(one), runs(two));
        let found = differ([(3, &one), (5, &two)].into_iter());
        let turned = differ([(5, &two), (3, &one)].into_iter());
        assert_eq!(found.is_some(), turned.is_some());
        found
    }

    #[test]
    fn a_rank_may_be_behind_but_not_elsewhere() {
        // One of them is only behind.
        assert_eq!(differs(&[(1, 3)], &[]), None);
        assert_eq!(differs(&[(1, 3)], &[(1, 2), (1, 4)]), None);
        assert_eq!(differs(&[(1, 3), (2, 1)], &[(1, 3)]), None);
        assert_eq!(differs(&[(1, 3), (2, 1)], &[(1, 2)]), None);
        let text = differs(&[(1, 3), (2, 1)], &[(1, 2), (2, 1)]).unwrap();
        assert!(
            text.starts_with("ranks 3 and 5 ") && text.contains(": 3 times number 1, "),
            "{text}"
        );
        assert!(differs(&[(1, 3), (2, 1)], &[(1, 4)]).is_some());
        assert!(differs(&[(1, 1), (2, 1)], &[(2, 1)]).is_some());
        // Replaying something no times is nothing.
        assert_eq!(differs(&[(1, 3), (2, 0), (1, 2)], &[(1, 5)]), None);
        assert_eq!(differs(&[(2, 0), (1, 5)], &[(1, 5)]), None);
    }

    #[test]
    fn two_ranks_differ_though_the_first_has_only_begun() {
        let [behind, one, two] = [&[][..], &[(1, 1), (2, 1)], &[(1, 2)]].map(runs);
        let all = [(0, &behind), (1, &one), (2, &two)];
        let text = differ(all.into_iter()).unwrap();
        assert!(text.starts_with("ranks 1 and 2 "), "{text}");
    }

    #[test]
    fn a_difference_is_found_long_after_it_began() {
        let many = |first: u64| {
            let later = (2..100).map(|number| (number, 1));
            [(first, 1)].into_iter().chain(later).collect::<Vec<_>>()
        };
        assert_eq!(differs(&many(1), &many(1)), None);
        assert_eq!(differs(&many(1), &many(1)[..90]), None);
        let text = differs(&many(1), &many(7)).unwrap();
        assert!(text.ends_with(": long ago"), "{text}");
        // Nothing that is kept is common to both.
        assert_eq!(differs(&many(1), &many(7)[..3]), None);
    }
}
