//! What a rank has replayed of the recordings that all ranks have proved.
//!
//! # Model
//!
//! A proof of [`Graph::verify`](crate::Graph::verify) assumes that all ranks replay the same recordings, in the same
//! order, equally often. Each rank notes its *runs*: a recording, and how many times it was replayed until another one
//! came. It keeps the last runs, and a hash of those before. If a wait is reported as long, the reporter compares the
//! runs of all ranks, and names the first difference.
//!
//! Recordings that share no stream may come in any order. So runs are kept for each *chain*: the streams that proved
//! recordings have joined. Its name is the number of the first recording. If two ranks have proved different recordings
//! on a chain, it tells nothing.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};

use serde::{Deserialize, Serialize};
use tidegate_hal::site::CallSite;

use crate::ground::ending;

/// How many runs of a chain are kept.
const KEPT: usize = 16;
/// How many chains are kept: those that were used last.
const CHAINS: usize = 64;
/// How many chains a message has.
const TOLD: usize = 4;
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
    /// The chains, the last used one at the end.
    chains: Vec<Chain>,
}

/// The runs of streams that proved recordings have joined.
#[derive(Default)]
struct Chain {
    streams: Vec<usize>,
    /// The number of the recording that made it.
    name: u64,
    /// A hash of the recordings that were proved on it.
    proofs: u64,
    kept: VecDeque<(Proved, u64)>,
    /// How many runs there were before those that are kept, and their hash.
    first: u64,
    before: u64,
}

/// The runs of a rank, in a message.
pub(crate) type Runs = Vec<ChainRuns>;

/// The runs of a chain, in a message.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ChainRuns {
    name: u64,
    proofs: u64,
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
    /// The number for a recording of these streams that all ranks have just proved.
    pub(crate) fn proved(&mut self, streams: &[usize], site: CallSite) -> Proved {
        self.proved += 1;
        let number = self.proved;
        let is_of = |chain: &Chain| chain.streams.iter().any(|it| streams.contains(it));
        let chains = std::mem::take(&mut self.chains).into_iter();
        let (mut met, others): (Vec<_>, Vec<_>) = chains.partition(is_of);
        self.chains = others;
        let mut chain = match met.len() {
            1 => met.remove(0),
            _ => Chain {
                name: number,
                streams: met.into_iter().flat_map(|chain| chain.streams).collect(),
                ..Chain::default()
            },
        };
        chain.streams.extend(streams);
        chain.streams.sort_unstable();
        chain.streams.dedup();
        chain.proofs = fold(chain.proofs, number, 1);
        if self.chains.len() == CHAINS {
            self.chains.remove(0);
        }
        self.chains.push(chain);
        Proved { number, site }
    }

    /// Notes replays of a recording of this stream (and maybe of another).
    pub(crate) fn note(&mut self, recording: Proved, stream: usize, times: u64) {
        let is_of = |chain: &Chain| chain.streams.contains(&stream);
        let Some(at) = self.chains.iter().rposition(is_of) else {
            return;
        };
        self.chains[at..].rotate_left(1);
        if let Some(chain) = self.chains.last_mut().filter(|_| times > 0) {
            chain.note(recording, times);
        }
    }

    /// The runs, for the other ranks.
    pub(crate) fn runs(&self) -> Runs {
        let last = self.chains.iter().rev().take(TOLD);
        last.map(Chain::runs).collect()
    }
}

impl Chain {
    fn note(&mut self, recording: Proved, times: u64) {
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

    fn runs(&self) -> ChainRuns {
        let run = |(recording, times): &(Proved, u64)| Run {
            number: recording.number,
            times: *times,
            site: ending(&recording.site.to_string(), PLACE),
        };
        ChainRuns {
            name: self.name,
            proofs: self.proofs,
            first: self.first,
            before: self.before,
            runs: self.kept.iter().map(run).collect(),
        }
    }
}

impl ChainRuns {
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
fn difference(one: &ChainRuns, two: &ChainRuns) -> Option<String> {
    let (first, end) = (one.first.max(two.first), one.end().min(two.end()));
    if first <= end && one.hash(first) != two.hash(first) {
        return Some("long ago".to_owned());
    }
    let at = (first..end).find(|at| {
        let (Some(a), Some(b)) = (one.run(*at), two.run(*at)) else {
            return false;
        };
        // A run that is a rank's last one may go on.
        let less = |a: &Run, b: &Run, of: &ChainRuns| a.times < b.times && of.end() > at + 1;
        a.number != b.number || less(a, b, one) || less(b, a, two)
    })?;
    let run = |of: &ChainRuns| {
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
pub(crate) fn differ<'a>(all: impl Iterator<Item = (usize, &'a Runs)>) -> Option<String> {
    let mut chains: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (rank, runs) in all {
        for chain in runs {
            let of = chains.entry((chain.name, chain.proofs)).or_default();
            of.push((rank, chain));
        }
    }
    chains.values().find_map(|all| differ_in_chain(all))
}

/// If any two ranks differ, the rank that has come farthest differs from one of them.
fn differ_in_chain(all: &[(usize, &ChainRuns)]) -> Option<String> {
    let last = |runs: &ChainRuns| runs.runs.last().map_or(0, |run| run.times);
    let farthest = *all
        .iter()
        .max_by_key(|(_, runs)| (runs.end(), last(runs)))?;
    let differs = |(_, runs): &&(usize, &ChainRuns)| difference(farthest.1, runs).is_some();
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

    /// The stream of all recordings but the last.
    const STREAM: usize = 7;
    /// A recording of another stream.
    const ALONE: u64 = 100;

    /// The runs of a rank that proves many recordings, and replays these.
    fn runs(all: &[(u64, u64)]) -> Runs {
        let mut replays = Replays::default();
        let of = |number: u64| if number == ALONE { STREAM + 1 } else { STREAM };
        for number in 1..=100 {
            replays.proved(&[of(number)], Location::caller());
        }
        for (number, times) in all {
            let recording = Proved {
                number: *number,
                site: Location::caller(),
            };
            replays.note(recording, of(*number), *times);
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
    fn recordings_that_share_no_stream_come_in_any_order() {
        assert_eq!(differs(&[(1, 3), (ALONE, 2)], &[(ALONE, 2), (1, 3)]), None);
        let text = differs(&[(1, 3), (ALONE, 2)], &[(ALONE, 2), (2, 3)]).unwrap();
        assert!(text.contains("number 1, "), "{text}");
    }

    #[test]
    fn a_recording_of_two_streams_joins_them() {
        let of = |order: [usize; 2], join: bool| {
            let mut replays = Replays::default();
            let site = Location::caller();
            let all = [5, 6].map(|stream| (replays.proved(&[stream], site), stream));
            if join {
                replays.proved(&[5, 6], site);
            }
            for at in order {
                replays.note(all[at].0, all[at].1, 1);
            }
            replays.runs()
        };
        for join in [false, true] {
            let (one, two) = (of([0, 1], join), of([1, 0], join));
            assert_eq!(differ([(0, &one), (1, &two)].into_iter()).is_some(), join);
        }
        // Ranks that have proved different recordings cannot be compared.
        let (one, two) = (of([0, 1], true), of([1, 0], false));
        assert_eq!(differ([(0, &one), (1, &two)].into_iter()), None);
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
