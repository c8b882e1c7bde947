//! The text of the wait-for graph.
//!
//! # Model
//!
//! The nodes are ranks. A stream that waits for a peer is an edge. A program in a collective call is an edge to each
//! rank that has not come to that call, which [`Answer::come`] tells. A rank that has ended waits for nobody. The
//! report claims a cycle if it sees one. It says that there is no cycle only if every rank has answered, and if it is
//! known which ranks each one waits for. Then the ranks that others wait for, and that wait for no other, are late, and
//! the last line names them.
//!
//! The streams and the program of a rank are one node. So a cycle through a collective call is a deadlock only if the
//! program does not come to that call while its streams wait. The report says so.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use tidegate_hal::ids::WindowId;

use super::text::{self, Sentence, TEXT, Text, merged};
use crate::error::Cause;
use crate::ground::shortened;
use crate::half_kind::HalfKind;
use crate::message::{Answer, At, Enqueued, Inside, Waiting};
use crate::replays;
use tidegate_boot::starter::in_words;

/// The most bytes of a report.
pub(super) const MOST: usize = text::LINES + text::CYCLES + text::REST;
/// How many streams are named if any of them may be meant.
const NAMED: usize = 8;
/// How many bytes of the reason are quoted if a rank is lost.
const ENDED: usize = 200;
/// How many ranks of a cycle are named.
const RANKS: usize = 32;
/// How many cycles are named.
const CYCLES: usize = 64;

/// The waits between ranks, from all answers.
#[derive(Default)]
struct WaitGraph {
    edges: BTreeMap<usize, BTreeSet<usize>>,
    /// The edges that stand for collective calls.
    collective: BTreeSet<(usize, usize)>,
    /// Ranks whose programs wait for streams of their own, and meanwhile enqueue nothing that others wait for.
    held: BTreeSet<usize>,
    /// The ranks among these whose program has waited for at least the deadline, and whose stream runs a kernel.
    held_by_work: BTreeSet<usize>,
    /// Ranks whose waits are not all known, and why.
    unknown: BTreeMap<usize, &'static str>,
    /// Ranks that wait for no other, and what each one does.
    idle: BTreeMap<usize, String>,
}

/// What each rank waits for, or how it has ended, and what follows from that, in at most [`MOST`] bytes. A call that
/// has lasted `deadline` counts as one that may not end.
pub(super) fn describe(
    size: usize,
    answers: &BTreeMap<usize, Answer>,
    gone: &BTreeMap<usize, Cause>,
    deadline: Duration,
) -> String {
    let mut text = Text::new(
        "some waits have lasted longer than the deadline; what each rank waits for:",
        size,
    );
    let mut graph = WaitGraph::default();
    let mut sentences: Vec<(usize, Vec<Sentence>)> = Vec::new();
    for rank in 0..size {
        if let Some(cause) = gone.get(&rank) {
            let how = match cause {
                Cause::PeerLost { reason, .. } => format!("is lost ({})", shortened(reason, ENDED)),
                _ => "has left the job".to_owned(),
            };
            sentences.push((rank, vec![how.into()]));
            continue;
        }
        let Some(answer) = answers.get(&rank) else {
            graph.is_unknown(rank, "did not answer");
            sentences.push((rank, vec![String::from("did not answer").into()]));
            continue;
        };
        let inside = answer.inside.iter();
        let inside = inside.map(|inside| graph.enter(rank, inside, answers));
        let inside = inside.collect();
        graph.note(rank, answer, deadline);
        let lines: Vec<_> = lines(rank, inside, answer, answers).collect();
        graph.note_idle(rank, &lines);
        sentences.push((rank, lines));
    }
    for (rank, lines) in merged(sentences) {
        text.say(rank, lines);
    }
    let mut text = text.end();
    let runs = answers
        .iter()
        .map(|(rank, answer)| (*rank, &answer.replays));
    if let Some(differ) = replays::differ(runs) {
        writeln!(text, "  {differ}").expect(TEXT);
    }
    graph.conclude(&mut text);
    text.truncate(text.trim_end().len());
    text
}

/// The sentences about a rank. Those of which there is only one come first, so that they are not cut off.
fn lines(
    rank: usize,
    inside: Vec<Sentence>,
    answer: &Answer,
    answers: &BTreeMap<usize, Answer>,
) -> impl Iterator<Item = Sentence> {
    let idle = answer.waits.is_empty()
        && answer.busy.is_empty()
        && answer.calls.is_empty()
        && inside.is_empty();
    let dropped = match (idle && !answer.unsaid, dropped(rank, answers)) {
        // Such a program has usually dropped all halves that it had, so that is not worth saying.
        (true, _) if answer.returned => Some(RETURNED.to_owned()),
        (true, None) => Some(NOTHING.to_owned()),
        (true, Some(what)) => Some(format!("{NOTHING_AND}{what}")),
        (false, what) => what,
    };
    let unsaid = answer.unsaid.then(|| UNSAID.to_owned());
    let calls = answer.calls.iter().map(|call| {
        let site = call.site.iter().map(|site| format!(" at {site}"));
        let site: String = site.collect();
        let what = format!("{OWN}`{}`, in {}{site} (", call.stream, call.call);
        lasting(what, call.millis)
    });
    let [dropped, unsaid] = [dropped, unsaid].map(|said| said.map(Sentence::from));
    let first = dropped.into_iter().chain(inside).chain(unsaid);
    let first = first.chain(calls);
    let waits = answer.waits.iter().map(|wait| {
        let what = format!(
            "rank {}, {} ({}, epoch {}, stream `{}`{}, ",
            wait.peer,
            wait.awaited,
            window(&wait.window, wait.id),
            wait.epoch,
            wait.stream,
            enqueued(wait.enqueued.as_ref()),
        );
        lasting(what, wait.millis)
    });
    let more = |of: u64, what| {
        let what = format!("and {of} more {what}");
        let millis = None;
        (of > 0).then_some(Sentence { what, millis, of })
    };
    let more_waits = more(answer.more_waits, "waits, none of them longer");
    let others = streams(answer);
    let busy = answer.busy.iter();
    let busy = busy.map(move |(stream, at)| at_work(stream, at, &others, answer));
    let more_busy = more(
        answer.more_busy,
        "streams that wait for no rank, and may be at work",
    );
    let more_calls = more(
        answer.more_calls,
        "calls on its own streams, none of them longer",
    );
    let busy = busy.map(Sentence::from);
    first
        .chain(more_calls)
        .chain(waits)
        .chain(more_waits)
        .chain(busy)
        .chain(more_busy)
}

/// A sentence about something that has lasted for some time.
fn lasting(what: String, millis: u64) -> Sentence {
    let millis = Some(millis);
    Sentence {
        what,
        millis,
        of: 1,
    }
}

/// Where a wait was enqueued, to follow the other facts about it.
fn enqueued(enqueued: Option<&Enqueued>) -> String {
    match enqueued {
        None => String::new(),
        Some(Enqueued::At(place)) => format!(", enqueued at {place}"),
        Some(Enqueued::LastAt(place)) => format!(", last enqueued at {place}"),
    }
}

/// A window by name and id.
fn window(name: &str, id: Option<WindowId>) -> String {
    id.map_or_else(
        || "no window".to_owned(),
        |id| format!("window `{name}`, {id}"),
    )
}

/// The sentence for a rank whose streams and program wait for nobody. Such a rank may hold up others by being late.
const NOTHING: &str = "nothing: its streams have done all that its program has enqueued";

/// The sentence for such a rank whose program has returned.
const RETURNED: &str = "nothing: its program has returned, but a clone of its world still exists";

/// The beginning of the sentence for such a rank that has dropped something.
const NOTHING_AND: &str = "nothing, and ";

/// The beginning of the sentence for a stream that waits for no other rank, but may have work.
const NO_RANK: &str = "no rank, but ";

/// The beginning of the sentence for a program that waits for a stream of its own rank.
const OWN: &str = "its own stream ";

/// The sentence for a rank whose devices cannot report all of its waits.
const UNSAID: &str = "perhaps more than this report says: a stream may wait for more than its device can report at a time";

/// The streams of a rank that have work left, as far as the rank has told.
fn streams(answer: &Answer) -> BTreeSet<&str> {
    let waiting = answer.waits.iter().map(|wait| &*wait.stream);
    let busy = answer.busy.iter().map(|(stream, _)| &**stream);
    waiting.chain(busy).collect()
}

/// The sentence for a stream that waits for no peer, but that others may wait for.
fn at_work(stream: &str, at: &At, streams: &BTreeSet<&str>, answer: &Answer) -> String {
    let behind = "the work behind it is not done yet";
    match at {
        At::Kernel(None) => format!("{NO_RANK}its stream `{stream}` runs a kernel: {behind}"),
        At::Kernel(Some(kernel)) => {
            format!("{NO_RANK}its stream `{stream}` runs the kernel `{kernel}`: {behind}")
        }
        // What that other stream does is in a line of its own. If it has none, it has just finished.
        At::Stream => {
            let others = streams.iter().filter(|other| **other != stream);
            let mut named: Vec<_> = others
                .clone()
                .take(NAMED)
                .map(|other| format!("`{other}`"))
                .collect();
            let left_out = answer.more_waits > 0 || answer.more_busy > 0;
            if left_out || others.clone().nth(NAMED).is_some() {
                named.push("another one".to_owned());
            }
            let which = match named.len() {
                0 => String::new(),
                _ => format!(" ({})", named.join(" or ")),
            };
            format!(
                "{NO_RANK}its stream `{stream}` waits for another of its streams{which}: {behind}"
            )
        }
        At::Something => format!(
            "{NO_RANK}its stream `{stream}` may be at work (it runs a kernel, moves data, or waits for another of its \
             streams; its device was not asked)"
        ),
    }
}

/// The first half that a rank has dropped and that others wait for. What the rank enqueued before still comes.
fn dropped(rank: usize, answers: &BTreeMap<usize, Answer>) -> Option<String> {
    let waits = answers.values().flat_map(|answer| &answer.waits);
    let mut for_it = waits.filter(|wait| wait.peer as usize == rank);
    let has = |half| answers[&rank].dropped.contains(&half);
    let half = |wait: &Waiting| Some((wait.id?, wait.half?));
    let wait = for_it.find(|wait| half(wait).is_some_and(has))?;
    let half = wait.half.map_or("-", HalfKind::name);
    Some(format!(
        "it has dropped its {half} of {}",
        window(&wait.window, wait.id)
    ))
}

impl WaitGraph {
    /// Notes that the waits of a rank are not all known.
    fn is_unknown(&mut self, rank: usize, why: &'static str) {
        self.unknown.entry(rank).or_insert(why);
    }

    /// Notes which ranks the streams of a rank wait for.
    fn note(&mut self, rank: usize, answer: &Answer, deadline: Duration) {
        let peers = answer.waits.iter().map(|wait| wait.peer as usize);
        let mut peers = peers.peekable();
        if peers.peek().is_some() {
            self.edges.entry(rank).or_default().extend(peers);
        }
        if !answer.calls.is_empty() {
            self.held.insert(rank);
        }
        // A stream that waits for another one, or of which nothing is known, need not be the reason.
        let runs = |stream: &String| {
            let mut busy = answer.busy.iter();
            busy.any(|(busy, at)| busy == stream && matches!(at, At::Kernel(_)))
        };
        let mut long = answer.calls.iter();
        if long.any(|call| u128::from(call.millis) >= deadline.as_millis() && runs(&call.stream)) {
            self.held_by_work.insert(rank);
        }
        if answer.more_waits > 0 {
            self.is_unknown(rank, "has more waits than its answer had room for");
        }
        if answer.unsaid {
            self.is_unknown(
                rank,
                "may wait for more than its device can report at a time",
            );
        }
    }

    /// Notes that the program of a rank is in a collective call. Returns the text about the ranks that it waits for
    /// there.
    fn enter(
        &mut self,
        rank: usize,
        inside: &Inside,
        answers: &BTreeMap<usize, Answer>,
    ) -> Sentence {
        let (what, millis) = (&inside.what, inside.millis);
        if !inside.waits {
            self.is_unknown(rank, "is at work in a collective call");
            return lasting(format!("its own part of {what} ("), millis);
        }
        let come = |answer: &Answer| {
            let mut come = answer.come.iter();
            let come = come.find(|(gathering, _)| *gathering == inside.gathering);
            come.map_or(0, |(_, come)| *come)
        };
        let mine = come(&answers[&rank]);
        let comes = |other: &usize| match &inside.members {
            None => true,
            Some(members) => members.binary_search(other).is_ok(),
        };
        let lacking = answers.iter();
        let lacking = lacking.filter(|(other, answer)| comes(other) && come(answer) < mine);
        let lacking: Vec<_> = lacking.map(|(other, _)| *other).collect();
        if lacking.is_empty() {
            // The call ends soon, or a rank that has not answered is missing.
            let why = "is in a collective call to which all ranks that answered have come";
            self.is_unknown(rank, why);
            let what = format!("{what}, to which all ranks that answered have come (");
            return lasting(what, millis);
        }
        self.edges.entry(rank).or_default().extend(&lacking);
        let edges = lacking.iter().map(|other| (rank, *other));
        self.collective.extend(edges);
        let what = format!("{}, to come to {what} (", in_words(&lacking));
        lasting(what, millis)
    }

    /// Notes a rank that waits for no other, with what it does, which its first sentence says.
    fn note_idle(&mut self, rank: usize, lines: &[Sentence]) {
        if self.edges.contains_key(&rank) || self.unknown.contains_key(&rank) {
            return;
        }
        let Some(said) = lines.first().map(Sentence::whole) else {
            return;
        };
        let begins = ["nothing: ", NOTHING_AND, NO_RANK];
        let does = match begins.iter().find_map(|begin| said.strip_prefix(begin)) {
            Some(does) => does.to_owned(),
            None if said.starts_with(OWN) => format!("it waits for {said}"),
            None => said,
        };
        self.idle.insert(rank, does);
    }

    /// The ranks that wait for this one.
    fn waiting_for(&self, rank: usize) -> Vec<usize> {
        let edges = self.edges.iter();
        let waiting = edges.filter(|(_, peers)| peers.contains(&rank));
        waiting.map(|(rank, _)| *rank).collect()
    }

    fn conclude(&self, text: &mut String) {
        let cycles = cycles(&self.edges);
        let needed: BTreeSet<_> = self.edges.values().flatten().collect();
        let is_needed = |rank: &usize| needed.contains(rank);
        // The most useful one is a rank that others wait for.
        let mut unknown = self.unknown.iter();
        let unknown = unknown
            .clone()
            .find(|(rank, _)| is_needed(rank))
            .or(unknown.next());
        let late: Vec<_> = self.idle.keys().copied().filter(is_needed).collect();
        if let (true, Some((rank, why))) = (cycles.is_empty(), unknown) {
            let more = match self.unknown.len() - 1 {
                0 => String::new(),
                more => format!(", and there are {more} more ranks whose waits are not all known"),
            };
            let wait = match self.waiting_for(*rank).as_slice() {
                [] => String::new(),
                waiting => format!(" ({} for it)", wait(waiting)),
            };
            write!(
                text,
                "  no cycle is seen, but there may be one: rank {rank} {why}{wait}{more}"
            )
            .expect(TEXT);
        } else if cycles.is_empty() && !self.held_by_work.is_empty() {
            let held: Vec<_> = self.held_by_work.iter().copied().collect();
            let held = in_words(&held);
            write!(
                text,
                "  no cycle: a kernel that may not end, on a stream that the program waits for, holds up {held}"
            )
            .expect(TEXT);
        } else if let (true, [rank]) = (cycles.is_empty(), &late[..]) {
            let (does, wait) = (&self.idle[rank], wait(&self.waiting_for(*rank)));
            write!(
                text,
                "  no cycle: rank {rank} is late, or never posts, completes or makes its call: {does} ({wait} for it)"
            )
            .expect(TEXT);
        } else if cycles.is_empty() && !late.is_empty() {
            let late = in_words(&late);
            write!(
                text,
                "  no cycle: {late} are late, or never post, complete or make their calls"
            )
            .expect(TEXT);
        } else if cycles.is_empty() {
            text.push_str(
                "  no cycle: a rank is late, or never posts, completes or makes its call",
            );
        }
        for cycle in cycles.iter().take(CYCLES) {
            let path: Vec<_> = cycle.iter().chain(cycle.first()).collect();
            let of_calls = |pair: &[&usize]| self.collective.contains(&(*pair[0], *pair[1]));
            let unless = if path.windows(2).any(of_calls) {
                " (unless the program that is missing in the collective call makes it while its streams still wait)"
            } else {
                ""
            };
            let held = cycle.iter().copied();
            let held: Vec<_> = held.filter(|rank| self.held.contains(rank)).collect();
            let held = match held.len() {
                0 => String::new(),
                _ => format!(
                    " (the program waits for a stream of its own on {})",
                    in_words(&held)
                ),
            };
            writeln!(text, "  cycle: {}{unless}{held}", named(cycle)).expect(TEXT);
        }
        if cycles.len() > CYCLES {
            let more = cycles.len() - CYCLES;
            writeln!(text, "  and {more} more cycles").expect(TEXT);
        }
    }
}

/// `rank 3 waits`, or `ranks 3, 5 wait`.
fn wait(ranks: &[usize]) -> String {
    let s = if ranks.len() == 1 { "s" } else { "" };
    format!("{} wait{s}", in_words(ranks))
}

/// The ranks of a cycle, ending with its first rank again. In a long cycle the ranks in the middle are only counted.
fn named(cycle: &[usize]) -> String {
    let rank = |rank: &usize| format!("rank {rank}");
    let mut path: Vec<_> = cycle.iter().take(RANKS).map(rank).collect();
    match cycle.get(RANKS..) {
        None | Some([]) => {}
        Some([last]) => path.push(rank(last)),
        Some([between @ .., last]) => {
            path.push(format!("({} more)", between.len()));
            path.push(rank(last));
        }
    }
    path.extend(cycle.first().map(rank));
    path.join(" -> ")
}

/// For each set of ranks that wait for each other, a shortest cycle through its lowest rank.
fn cycles(edges: &BTreeMap<usize, BTreeSet<usize>>) -> Vec<Vec<usize>> {
    let mut found: Vec<Vec<usize>> = Vec::new();
    for &start in edges.keys() {
        if found.iter().any(|cycle| cycle.contains(&start)) {
            continue;
        }
        // A breadth-first search from `start`, until an edge leads back to it.
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
mod tests;
