//! The text of a report. It is as long as a message may be, and counts what does not fit.

use std::fmt::Write as _;

/// The most bytes about the ranks.
pub(super) const LINES: usize = 256 << 10;
/// The most bytes about the cycles.
pub(super) const CYCLES: usize = 64 << 10;
/// The bytes that are always available, for the first line and for the counts of what does not fit.
pub(super) const REST: usize = 1 << 10;
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
    pub(super) what: String,
    /// How many things it covers.
    pub(super) of: u64,
}

impl From<String> for Sentence {
    fn from(what: String) -> Self {
        Sentence { what, of: 1 }
    }
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

    /// Adds the sentences about the next rank, in their order, as far as its share of the room allows.
    pub(super) fn say(&mut self, rank: usize, lines: impl IntoIterator<Item = Sentence>) {
        // The room that a rank does not need is shared by those behind it.
        let share = self.room / self.ranks.max(1);
        self.ranks = self.ranks.saturating_sub(1);
        let begin = self.said.len();
        let mut left_out = 0;
        let mut lines = lines.into_iter().peekable();
        while let Some(line) = lines.next() {
            let end = self.said.len();
            writeln!(self.said, "  rank {rank}: {}", line.what).expect(TEXT);
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
            text.say(
                rank,
                (0..lines).map(|line| format!("{line} {}", "x".repeat(bytes)).into()),
            );
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
        (0..99).for_each(|rank| uneven.say(rank, [String::from("nothing").into()]));
        uneven.say(99, (0..200).map(|_| "x".repeat(1000).into()));
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
