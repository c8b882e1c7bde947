//! Staged puts, cut so that the NIC can send what there is while the stream fills the rest.
//!
//! # Model
//!
//! What an epoch puts to one target is a row of [`StagePart`]s of its puts, in *stages* of about a chunk each. The stream
//! copies the pieces of a stage to staged memory, and rings for a part; then those of the next. The NIC may send a stage
//! from its part on. Both sides of this, the batch (`plan.rs`) and the program (`programs.rs`), are made of the same
//! stages.
//!
//! A put is cut where each piece is a put again: into slots in a row anywhere, if what is sent lies in a row or in a
//! table; where it is a nest of loops, at turns of one of them. One that is scattered into its slot stays whole. Pieces
//! of a put are as even as that, so that no small one is left at the end.
//!
//! Of a put whose elements are counted each piece is one as well, with the same count: it copies as many of its own elements,
//! and so at least those that were counted.
//!
//! # Failure
//!
//! None: what is short, or cannot be cut, is one stage.

use tidegate_hal::batch::{Move, Shape};
use tidegate_hal::device::Device;

use super::cuts::side;
use super::note::Note;
use crate::nic::Chunks;

/// How many stages there are at most, more or less: beyond that, chunks are larger.
const MOST: usize = 256;

/// So many neighbours are not parted, where pieces have more: together they are a multiple of what a device moves at a
/// time, so that what is aligned stays so.
const TOGETHER: usize = 16;

/// Elements of a put that go together.
pub(super) struct StagePart<'a, D: Device> {
    pub(super) note: &'a Note<D>,
    /// The first, of those that the put sends.
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<D: Device> StagePart<'_, D> {
    /// The number of the edge that it goes to.
    pub(super) fn edge(&self) -> usize {
        self.note.edge as usize
    }

    /// The elements of the edge that it touches, in runs.
    pub(super) fn extents(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let whole = self.count == self.note.count;
        let some = self.note.first + self.first;
        // What is not whole goes into its slot in a row.
        let part = (!whole).then_some((some, some + self.count));
        let runs = whole.then(|| self.note.extents());
        part.into_iter().chain(runs.into_iter().flatten())
    }
}

/// The puts to a target, in stages: one, if they are not cut.
pub(super) fn stages<'a, D: Device>(
    notes: &[&'a Note<D>],
    size: usize,
    chunks: Chunks,
) -> Vec<Vec<StagePart<'a, D>>> {
    let to_target = || notes.iter().copied();
    let bytes = to_target().map(|note| note.count * size).sum::<usize>();
    if bytes == 0 || bytes < chunks.from {
        let whole = |note: &'a Note<D>| StagePart {
            note,
            first: 0,
            count: note.count,
        };
        return vec![to_target().map(whole).collect()];
    }
    let chunk = chunks.bytes.max(bytes.div_ceil(MOST));
    let (mut stages, mut stage, mut filled) = (Vec::new(), Vec::new(), 0);
    for note in to_target() {
        let cut = Cut::of(note, chunk.div_ceil(size));
        let mut first = 0;
        while first < note.count {
            let count = cut.next(first);
            stage.push(StagePart { note, first, count });
            first += count;
            filled += count * size;
            // Nearly: the last piece of a put is a little shorter.
            if filled >= chunk - chunk / 8 {
                stages.push(std::mem::take(&mut stage));
                filled = 0;
            }
        }
    }
    match stages.last_mut() {
        // Not worth an operation of its own.
        Some(last) if stage.is_empty() || filled < chunk / 2 => last.append(&mut stage),
        _ => stages.push(stage),
    }
    stages
}

/// Where a put is cut: into pieces of `piece` elements, and where a run of `run` ends.
struct Cut {
    piece: usize,
    run: usize,
}

impl Cut {
    /// `least` elements of a put or more in a piece; nowhere, if these are not two.
    fn of<D: Device>(note: &Note<D>, least: usize) -> Self {
        let nowhere = Cut {
            piece: note.count,
            run: note.count,
        };
        if note.count / 2 < least || note.remote_layout.is_some() {
            return nowhere;
        }
        let along = |inner: usize, turns: usize| {
            // Evenly, as far as loops and neighbours let it.
            let pieces = (turns * inner / least).clamp(1, turns);
            let each = turns.div_ceil(pieces);
            let each = match inner {
                1 if each > TOGETHER => each.next_multiple_of(TOGETHER),
                _ => each,
            };
            Cut {
                piece: inner * each,
                run: inner * turns,
            }
        };
        let layout = note.local_layout.as_ref().map(|layout| layout.shape().1);
        let Some(Shape::Strided { dims, rank }) = layout else {
            return along(1, note.count);
        };
        // The first loop that is longer than a piece, with what one turn of it is.
        let mut inner = 1;
        for (turns, _) in &dims[..rank as usize] {
            let turns = *turns as usize;
            if inner * turns > least {
                return along(inner, turns);
            }
            inner *= turns;
        }
        nowhere
    }

    /// How many elements the piece has that begins with `first`.
    fn next(&self, first: usize) -> usize {
        let into = first % self.run;
        self.piece.min(self.run - into)
    }
}

/// Of a put as a stream does it, what is one of its pieces.
pub(super) fn cut<D: Device>(whole: Move, piece: &StagePart<'_, D>) -> Move {
    let (first, count) = (piece.first, piece.count);
    if count == whole.count {
        return whole;
    }
    Move {
        count,
        src: side(whole.src, whole.size, first, count),
        dst: side(whole.dst, whole.size, first, count),
        ..whole
    }
}

#[cfg(test)]
mod tests;
