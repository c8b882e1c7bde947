//! Passes the output of one rank on, in whole lines.

use super::job::Output;
use super::printer::{Printer, StdStream};
use super::rank_pipe::RankPipe;

/// A longer line is passed on in pieces.
const MAX_LINE: usize = 1 << 20;

/// One stream of one rank.
#[derive(Debug)]
pub(crate) struct RankStream {
    rank: usize,
    stream: StdStream,
    /// The reading end. `None`: the rank is on another host, and its output comes by messages.
    pub(crate) pipe: Option<RankPipe>,
    /// The label in front of each line. `None`: the output is kept instead.
    label: Option<Vec<u8>>,
    /// The line that has begun, or the whole output.
    pub(crate) pending: Vec<u8>,
}

impl RankStream {
    /// `pipe` is `None` for a rank of another host.
    pub(crate) fn new(
        pipe: Option<RankPipe>,
        stream: StdStream,
        rank: usize,
        output: Output,
    ) -> Self {
        Self {
            rank,
            stream,
            pipe,
            label: match output {
                Output::Labelled => Some(format!("[{rank}] ").into_bytes()),
                // Ranks of other hosts cannot write to the launcher's streams themselves.
                Output::Plain | Output::Inherited => Some(Vec::new()),
                Output::Captured | Output::Discarded => None,
            },
            pending: Vec::new(),
        }
    }

    pub(crate) fn rank(&self) -> usize {
        self.rank
    }

    pub(crate) fn stream(&self) -> StdStream {
        self.stream
    }

    /// Whether to read more. It is false while the printer has no room.
    pub(crate) fn has_room(&self, printer: Option<&Printer>) -> bool {
        match printer {
            Some(printer) if self.label.is_some() => printer.has_room(self.stream),
            _ => true,
        }
    }

    /// From now on, reads only what is in the pipe already. Returns false if that is nothing.
    pub(crate) fn take_last(&mut self) -> bool {
        // The host itself reports the end.
        self.pipe.as_mut().is_none_or(|pipe| pipe.take_last() > 0)
    }

    /// Whether one rank may take more than one piece of the room.
    fn has_much_room(&self, printer: Option<&Printer>) -> bool {
        match printer {
            Some(printer) if self.label.is_some() => printer.has_much_room(self.stream),
            _ => true,
        }
    }

    /// Reads what has come, as far as there is room. Returns false at the end of the stream.
    pub(crate) fn read(&mut self, printer: Option<&Printer>) -> bool {
        // A bounded number of reads, so that other ranks get their turn, and find room.
        for turn in 0..16 {
            if !self.has_room(printer) || turn > 0 && !self.has_much_room(printer) {
                return true;
            }
            let Some(pipe) = &mut self.pipe else {
                return true;
            };
            match pipe.read(usize::MAX) {
                None => return false,
                Some(bytes) if bytes.is_empty() => return true,
                Some(bytes) => self.feed(&bytes, printer),
            }
        }
        true
    }

    /// Takes output of the rank.
    pub(crate) fn feed(&mut self, bytes: &[u8], printer: Option<&Printer>) {
        self.pending.extend_from_slice(bytes);
        self.pass_on(printer, false);
    }

    /// Passes the rest on, as a line.
    pub(crate) fn finish(&mut self, printer: Option<&Printer>) {
        self.pass_on(printer, true);
    }

    fn pass_on(&mut self, printer: Option<&Printer>, all: bool) {
        let (Some(label), Some(printer)) = (&self.label, printer) else {
            return;
        };
        let whole = match self.pending.iter().rposition(|byte| *byte == b'\n') {
            _ if all || self.pending.len() >= MAX_LINE => self.pending.len(),
            Some(newline) => newline + 1,
            None => return,
        };
        let mut text = Vec::with_capacity(whole + 64);
        for line in self.pending[..whole].split_inclusive(|byte| *byte == b'\n') {
            text.extend_from_slice(label);
            text.extend_from_slice(line);
            if !line.ends_with(b"\n") {
                text.push(b'\n');
            }
        }
        self.pending.drain(..whole);
        // Whole lines at a time, so that lines of different ranks do not mix.
        if !text.is_empty() {
            printer.push(self.stream, text);
        }
    }
}
