//! The text of a report. It is as long as a message may be, and counts what does not fit.

use std::collections::HashMap;
use std::fmt::Write as _;

use tidegate_boot::starter::in_words;

/// The most bytes about the ranks.
pub(super) const LINES: usize = 256 << 10;
/// The most bytes about the cycles.
pub(super) const CYCLES: usize = 64 << 10;
/// The bytes that are always available, for the first line and for the counts of what does not fit.
pub(super) const REST: usize = 2 << 10;
/// The most bytes of the note that some sentences about a rank do not fit.
const LEFT_OUT: usize = 100;

/// A text under construction, with sentences about ranks.
pub(super) struct Text {
    said: String,
    /// How many bytes are left for the ranks to come.
    room: usize,
    /// How many ranks are still to come.
    ranks: usize,
    /// How many ranks have no room at all.
    left_out: usize,
}

/// A sentence about a rank.
pub(super) struct Sentence {
    /// Without the time, if it ends with one.
    pub(super) what: String,
    /// How long that has lasted.
    pub(super) millis: Option<u64>,
    /// How many things it covers.
    pub(super) of: u64,
}

impl From<String> for Sentence {
    fn from(what: String) -> Self {
        let millis = None;
        Sentence {
            what,
            millis,
            of: 1,
        }
    }
}

impl Sentence {
    /// The whole sentence.
    pub(super) fn whole(&self) -> String {
        let time = self.millis.map(|millis| (millis, millis));
        format!("{}{}", self.what, lasting(time))
    }
}

/// The end of a sentence that says for how long something has lasted, in milliseconds.
fn lasting(time: Option<(u64, u64)>) -> String {
    match time {
        None => String::new(),
        Some((least, most)) if least == most => format!("for {most} ms)"),
        Some((least, most)) => format!("for {least} to {most} ms)"),
    }
}

/// A sentence about one rank or several.
pub(super) struct Line {
    ranks: Vec<usize>,
    what: String,
    /// The shortest and the longest time.
    time: Option<(u64, u64)>,
    of: u64,
}

impl Line {
    fn new(rank: usize, sentence: Sentence) -> Self {
        Line {
            ranks: vec![rank],
            what: sentence.what,
            time: sentence.millis.map(|millis| (millis, millis)),
            of: sentence.of,
        }
    }

    fn add(&mut self, rank: usize, sentence: &Sentence) {
        if self.ranks.last() != Some(&rank) {
            self.ranks.push(rank);
        }
        let both = self.time.zip(sentence.millis);
        self.time = both.map(|((least, most), millis)| (least.min(millis), most.max(millis)));
    }

    fn whole(&self) -> String {
        let each = if self.ranks.len() > 1 { ", each" } else { "" };
        let (ranks, what) = (in_words(&self.ranks), &self.what);
        format!("  {ranks}{each}: {what}{}\n", lasting(self.time))
    }
}

/// Merges sentences that differ only in their times. Each is said at its first rank.
pub(super) fn merged(sentences: Vec<(usize, Vec<Sentence>)>) -> Vec<(usize, Vec<Line>)> {
    let mut places: HashMap<String, (usize, usize)> = HashMap::new();
    let mut all: Vec<(usize, Vec<Line>)> = Vec::new();
    for (rank, sentences) in sentences {
        all.push((rank, Vec::new()));
        for sentence in sentences {
            let place = (all.len() - 1, all[all.len() - 1].1.len());
            match places.get(&sentence.what) {
                Some((of, line)) => all[*of].1[*line].add(rank, &sentence),
                None => {
                    places.insert(sentence.what.clone(), place);
                    all[place.0].1.push(Line::new(rank, sentence));
                }
            }
        }
    }
    all
}

impl Text {
    /// Begins with a line. Sentences about `ranks` ranks will follow.
    pub(super) fn new(first: &str, ranks: usize) -> Self {
        Text {
            said: format!("{first}\n"),
            room: LINES,
            ranks,
            left_out: 0,
        }
    }

    /// Adds the lines of the next rank, in their order, as far as its share of the room allows.
    pub(super) fn say(&mut self, rank: usize, lines: impl IntoIterator<Item = Line>) {
        // The room that a rank does not need is shared by those behind it.
        let share = self.room / self.ranks.max(1);
        self.ranks = self.ranks.saturating_sub(1);
        let begin = self.said.len();
        let mut left_out = 0;
        let mut lines = lines.into_iter().peekable();
        while let Some(line) = lines.next() {
            let end = self.said.len();
            self.said.push_str(&line.whole());
            let spare = if lines.peek().is_some() { LEFT_OUT } else { 0 };
            if self.said.len() - begin + spare > share {
                self.said.truncate(end);
                left_out = line.of + lines.map(|line| line.of).sum::<u64>();
                break;
            }
        }
        if left_out > 0 && self.said.len() == begin {
            self.left_out += 1;
        } else if left_out > 0 {
            writeln!(
                self.said,
                "  rank {rank}: and {left_out} more, for which this report has no room"
            )
            .expect(TEXT);
        }
        self.room = self.room.saturating_sub(self.said.len() - begin);
    }

    /// Ends the part about the ranks. The caller adds what follows, and limits its length.
    pub(super) fn end(mut self) -> String {
        if self.left_out > 0 {
            let left_out = self.left_out;
            writeln!(
                self.said,
                "  {left_out} more ranks, for which this report has no room"
            )
            .expect(TEXT);
        }
        self.said
    }
}

pub(super) const TEXT: &str = "writing to a string succeeds";

#[cfg(test)]
mod tests {
    use super::*;

    fn text(ranks: usize, lines: usize, bytes: usize) -> String {
        let mut text = Text::new("first", ranks);
        for rank in 0..ranks {
            let lines = (0..lines).map(|line| format!("{line} {}", "x".repeat(bytes)).into());
            text.say(rank, lines.map(|line| Line::new(rank, line)));
        }
        let text = text.end();
        assert!(text.len() <= LINES + REST, "{}", text.len());
        text
    }

    #[test]
    fn a_short_text_says_everything() {
        let text = text(3, 4, 10);
        assert_eq!(text.lines().count(), 1 + 3 * 4);
        assert!(!text.contains("more"), "{text}");
    }

    #[test]
    fn sentences_that_differ_in_their_times_are_one_line() {
        let sentence = |what: &str, millis| Sentence {
            millis,
            ..what.to_owned().into()
        };
        let of = |rank| {
            let own = format!("rank {rank} alone");
            let waits = [7, 5].map(|more| sentence("waits (", Some(10 * rank as u64 + more)));
            let waits = waits.into_iter().chain([sentence(&own, None)]);
            (rank, waits.collect())
        };
        let mut text = Text::new("first", 4);
        for (rank, lines) in merged([0, 1, 2, 4].map(of).into()) {
            text.say(rank, lines);
        }
        let text = text.end();
        let lines: Vec<_> = text.lines().skip(1).collect();
        let all = "  ranks 0-2, 4, each: waits (for 5 to 47 ms)";
        assert_eq!(lines[..2], [all, "  rank 0: rank 0 alone"]);
        assert_eq!(lines[2..].len(), 3, "{text}");
    }

    #[test]
    fn each_rank_has_its_share_and_what_is_left_out_is_counted() {
        let long = text(4, 1000, 1000);
        for rank in 0..4 {
            let of_it = format!("  rank {rank}: ");
            let lines: Vec<_> = long
                .lines()
                .filter_map(|line| line.strip_prefix(&of_it))
                .collect();
            let (last, said) = lines.split_last().unwrap();
            assert!(said.len() > 50, "{}", said.len());
            assert!(said[0].starts_with("0 ") && said[1].starts_with("1 "));
            let more = format!("and {} more, ", 1000 - said.len());
            assert!(last.starts_with(&more), "{last}");
        }
        // The last rank gets the room that the first ones do not need.
        let mut uneven = Text::new("first", 100);
        let line = |rank, text: &str| Line::new(rank, text.to_owned().into());
        (0..99).for_each(|rank| uneven.say(rank, [line(rank, "nothing")]));
        uneven.say(99, (0..200).map(|_| line(99, &"x".repeat(1000))));
        assert!(!uneven.end().contains("more"));
        let many = text(100_000, 2, 100);
        let last = many.lines().last().unwrap();
        let said: std::collections::BTreeSet<_> = many
            .lines()
            .skip(1)
            .map(|line| line.split(':').next())
            .collect();
        let left_out = 100_000 - (said.len() - 1);
        assert!(
            last.contains(&format!("  {left_out} more ranks, ")),
            "{last}"
        );
    }
}
