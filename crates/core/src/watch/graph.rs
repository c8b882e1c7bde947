//! The wait-for graph in words.
//!
//! # Model
//!
//! Ranks are its nodes. A stream that waits for a peer is an edge, and so is a program in a collective call, to each rank
//! that has not come to it: [`Answer::come`] tells. A cycle is claimed where one is seen, and that there is none only if
//! every rank has answered, and it is known for whom it waits.
//!
//! A rank's streams and its program are one node here. So a cycle through a collective call is a deadlock only if the program
//! does not come to that call as long as its streams wait, which is said.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::error::listed;
use crate::message::{Answer, At, Inside};
use crate::window::myself::Side;

/// Who waits for whom, by what all have answered.
#[derive(Default)]
struct Graph {
    edges: BTreeMap<usize, BTreeSet<usize>>,
    /// Those of them that stand for collective calls.
    collective: BTreeSet<(usize, usize)>,
    /// Ranks of which it is not known for whom they wait, and why.
    unknown: Vec<(usize, &'static str)>,
}

/// What each rank waits for, and what follows from that.
pub(super) fn describe(size: usize, answers: &BTreeMap<usize, Answer>) -> String {
    let mut text = String::from(
        "some waits have lasted longer than the deadline; what each rank waits for:\n",
    );
    let mut graph = Graph::default();
    for rank in 0..size {
        let Some(answer) = answers.get(&rank) else {
            graph.unknown.push((rank, "did not answer"));
            line(&mut text, rank, "did not answer");
            continue;
        };
        let dropped = dropped(rank, answers);
        let idle = answer.waits.is_empty() && answer.inside.is_none();
        match (idle && answer.busy.is_empty(), dropped) {
            (true, None) => line(&mut text, rank, NOTHING),
            (true, Some(what)) => line(&mut text, rank, &format!("nothing, and {what}")),
            (false, None) => {}
            (false, Some(what)) => line(&mut text, rank, &what),
        }
        for wait in &answer.waits {
            let peer = wait.peer as usize;
            graph.edges.entry(rank).or_default().insert(peer);
            let waits = format!(
                "rank {peer}, {} (window `{}`, epoch {}, stream `{}`, for {} ms)",
                wait.awaited, wait.window, wait.epoch, wait.stream, wait.millis
            );
            line(&mut text, rank, &waits);
        }
        for (stream, at) in &answer.busy {
            line(&mut text, rank, &at_work(stream, *at, answer));
        }
        if let Some(inside) = &answer.inside {
            let waits = graph.enter(rank, inside, answers);
            line(&mut text, rank, &waits);
        }
    }
    graph.conclude(&mut text);
    text.trim_end().to_owned()
}

/// What is said of a rank whose streams and program wait for nobody. It may hold up others by being late.
const NOTHING: &str = "nothing: its streams are through with all that its program has enqueued";

/// What is said of a stream that others may wait for, though it waits for no peer.
fn at_work(stream: &str, at: At, answer: &Answer) -> String {
    let behind = "what is enqueued behind that has not been done";
    match at {
        At::Kernel => format!("no rank, but its stream `{stream}` runs a kernel: {behind}"),
        // What that other stream is at has a line of its own; where it has none, it has just come to its end.
        At::Stream => {
            let others = answer.waits.iter().map(|wait| &wait.stream);
            let others = others.chain(answer.busy.iter().map(|(other, _)| other));
            let others: BTreeSet<_> = others.filter(|other| *other != stream).collect();
            let others: Vec<_> = others.iter().map(|other| format!("`{other}`")).collect();
            let which = match others.len() {
                0 => String::new(),
                _ => format!(" ({})", others.join(" or ")),
            };
            format!(
                "no rank, but its stream `{stream}` waits for another of its streams{which}: {behind}"
            )
        }
        At::Something => format!(
            "no rank, but its stream `{stream}` may be at work (it runs a kernel, moves data, or waits for another of its \
             streams; its device was not asked)"
        ),
    }
}

fn line(text: &mut String, rank: usize, what: &str) {
    writeln!(text, "  rank {rank}: {what}").expect("writing to a string succeeds");
}

/// Of the halves that a rank has dropped, the first that others wait for. What it has enqueued before comes still.
fn dropped(rank: usize, answers: &BTreeMap<usize, Answer>) -> Option<String> {
    let waits = answers.values().flat_map(|answer| &answer.waits);
    let mut for_it = waits.filter(|wait| wait.peer as usize == rank);
    let has = |number, side| answers[&rank].dropped.contains(&(number, side));
    let wait = for_it.find(|wait| wait.side.is_some_and(|side| has(wait.number, side)))?;
    let half = wait.side.map_or("-", Side::name);
    Some(format!(
        "it has dropped its {half} of window `{}`",
        wait.window
    ))
}

impl Graph {
    /// Notes that the program of a rank is in a collective call; says for whom it waits there.
    fn enter(&mut self, rank: usize, inside: &Inside, answers: &BTreeMap<usize, Answer>) -> String {
        let Inside { what, millis, .. } = inside;
        if !inside.waits {
            self.unknown.push((rank, "is at work in a collective call"));
            return format!("its own part of {what} (for {millis} ms)");
        }
        let come = answers[&rank].come;
        let lacking = answers.iter().filter(|(_, other)| other.come < come);
        let lacking: Vec<_> = lacking.map(|(other, _)| *other).collect();
        if lacking.is_empty() {
            // It is over soon, or somebody who has not answered lacks.
            self.unknown.push((
                rank,
                "is in a collective call to which all who answered have come",
            ));
            return format!("{what}, to which all who answered have come (for {millis} ms)");
        }
        self.edges.entry(rank).or_default().extend(&lacking);
        let edges = lacking.iter().map(|other| (rank, *other));
        self.collective.extend(edges);
        format!("{}, to come to {what} (for {millis} ms)", listed(&lacking))
    }

    fn conclude(&self, text: &mut String) {
        let cycles = cycles(&self.edges);
        if let (true, Some((rank, why))) = (cycles.is_empty(), self.unknown.first()) {
            let more = match self.unknown.len() - 1 {
                0 => String::new(),
                more => format!(", and of {more} more it is not known either for whom they wait"),
            };
            let text = write!(
                text,
                "  no cycle is seen, but there may be one: rank {rank} {why}{more}"
            );
            text.expect("writing to a string succeeds");
        } else if cycles.is_empty() {
            text.push_str("  no cycle: somebody is late, or never posts, completes or comes");
        }
        for cycle in cycles {
            let path: Vec<_> = cycle.iter().chain(cycle.first()).collect();
            let named: Vec<_> = path.iter().map(|rank| format!("rank {rank}")).collect();
            let of_calls = |pair: &[&usize]| self.collective.contains(&(*pair[0], *pair[1]));
            let unless = match path.windows(2).any(of_calls) {
                true => {
                    " (unless who is to come to the collective call does so before its streams are through)"
                }
                false => "",
            };
            writeln!(text, "  cycle: {}{unless}", named.join(" -> "))
                .expect("writing to a string succeeds");
        }
    }
}

/// For each set of ranks that wait for each other, one shortest cycle through its lowest rank.
fn cycles(edges: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for &start in edges.keys() {
        if found.iter().any(|cycle| cycle.contains(&start)) {
            continue;
        }
        // Breadth first from `start`, until an edge leads back to it.
        let mut from: BTreeMap<usize, usize> = BTreeMap::new();
        let mut queue = std::collections::VecDeque::from([start]);
        'search: while let Some(rank) = queue.pop_front() {
            for &next in edges.get(&rank).into_iter().flatten() {
                if next == start {
                    let mut cycle = vec![rank];
                    while let Some(&before) = from.get(cycle.last().expect("it is not empty")) {
                        cycle.push(before);
                    }
                    cycle.reverse();
                    found.push(cycle);
                    break 'search;
                }
                if next != start && !from.contains_key(&next) {
                    from.insert(next, rank);
                    queue.push_back(next);
                }
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Waiting;

    fn waits_for(peer: u32) -> Answer {
        let wait = Waiting {
            stream: "s".into(),
            window: "halo".into(),
            epoch: 7,
            peer,
            number: 5,
            side: Some(Side::Inbox),
            awaited: "its post".into(),
            millis: 31_000,
        };
        Answer {
            waits: vec![wait],
            ..Answer::default()
        }
    }

    /// A rank whose program is in its `come`th exchange, or about to.
    fn in_a_call(come: u64, waits: bool) -> Answer {
        let inside = Inside {
            what: "gather `results`".into(),
            millis: 31_000,
            waits,
        };
        Answer {
            come,
            inside: Some(inside),
            ..Answer::default()
        }
    }

    fn graph(edges: &[(usize, usize)]) -> BTreeMap<usize, BTreeSet<usize>> {
        let mut graph: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
        for (from, to) in edges {
            graph.entry(*from).or_default().insert(*to);
        }
        graph
    }

    #[test]
    fn a_ring_is_one_cycle_and_a_chain_is_none() {
        assert_eq!(cycles(&graph(&[(0, 1), (1, 2), (2, 0)])), [vec![0, 1, 2]]);
        assert_eq!(cycles(&graph(&[(0, 1), (1, 2)])), Vec::<Vec<usize>>::new());
        assert_eq!(
            cycles(&graph(&[(0, 1), (1, 2), (2, 1), (3, 3)])),
            [vec![1, 2], vec![3]]
        );
    }

    #[test]
    fn the_report_names_windows_and_cycles() {
        let answers =
            BTreeMap::from([(0, waits_for(1)), (1, waits_for(0)), (2, Answer::default())]);
        let text = describe(4, &answers);
        assert!(
            text.contains(
                "rank 0: rank 1, its post (window `halo`, epoch 7, stream `s`, for 31000 ms)"
            ),
            "{text}"
        );
        assert!(
            text.ends_with("cycle: rank 0 -> rank 1 -> rank 0"),
            "{text}"
        );
        assert!(text.contains("rank 3: did not answer"), "{text}");
    }

    #[test]
    fn a_collective_call_waits_for_all_who_have_not_come() {
        let answers = BTreeMap::from([
            (
                0,
                Answer {
                    come: 4,
                    ..waits_for(2)
                },
            ),
            (
                1,
                Answer {
                    come: 4,
                    ..Answer::default()
                },
            ),
            (2, in_a_call(5, true)),
        ]);
        let text = describe(3, &answers);
        assert!(
            text.contains("rank 2: ranks 0, 1, to come to gather `results` (for 31000 ms)"),
            "{text}"
        );
        assert!(
            text.contains("cycle: rank 0 -> rank 2 -> rank 0 (unless "),
            "{text}"
        );
        // Who waits for nobody is late.
        let late = BTreeMap::from([(0, Answer::default()), (1, in_a_call(1, true))]);
        let text = describe(2, &late);
        assert!(
            text.contains("rank 1: rank 0, to come to gather") && text.contains("no cycle: "),
            "{text}"
        );
    }

    #[test]
    fn who_has_dropped_what_others_wait_for_is_named() {
        let report = |dropped: &[(u32, Side)]| {
            let dropped = dropped.to_vec();
            let late = Answer {
                dropped,
                ..Answer::default()
            };
            describe(2, &BTreeMap::from([(0, waits_for(1)), (1, late)]))
        };
        let text = report(&[(4, Side::Inbox), (5, Side::Inbox)]);
        let dropped = "rank 1: nothing, and it has dropped its inbox of window `halo`";
        assert!(text.contains(dropped), "{text}");
        let text = report(&[(4, Side::Inbox), (5, Side::Outbox)]);
        assert!(text.contains(&format!("rank 1: {NOTHING}\n")), "{text}");
    }

    #[test]
    fn streams_that_are_at_work_are_named() {
        let busy = [("a", At::Kernel), ("b", At::Stream), ("c", At::Something)];
        let busy = busy.map(|(name, at)| (name.to_owned(), at)).to_vec();
        let late = Answer {
            busy,
            ..Answer::default()
        };
        let text = describe(2, &BTreeMap::from([(0, waits_for(1)), (1, late)]));
        for part in [
            "rank 1: no rank, but its stream `a` runs a kernel: ",
            "rank 1: no rank, but its stream `b` waits for another of its streams (`a` or `c`): ",
            "rank 1: no rank, but its stream `c` may be at work (it runs a kernel, ",
            "no cycle: ",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains("nothing"), "{text}");
    }

    #[test]
    fn what_is_not_known_is_not_denied() {
        let known = |answers: &[Answer], size| {
            let answers = answers.iter().cloned().enumerate().collect();
            let text = describe(size, &answers);
            assert_eq!(
                text.contains("there may be one"),
                !text.contains("no cycle: "),
                "{text}"
            );
            text.contains("no cycle: ")
        };
        let nothing = Answer::default();
        assert!(known(&[waits_for(1), nothing.clone()], 2));
        assert!(!known(&[waits_for(1)], 2), "rank 1 has not answered");
        assert!(!known(&[waits_for(1), in_a_call(0, false)], 2));
        let both = [in_a_call(1, true), in_a_call(1, true)];
        assert!(!known(&both, 2), "all have come, and it is not over");
    }
}
