//! Staged puts, cut so that the NIC sends one stage while the stream fills the next.
//!
//! # Model
//!
//! The puts of an epoch to one target are a sequence of [`StagePart`]s, in *stages* of about one chunk each. The stream
//! copies the pieces of a stage to staged memory, rings for that part of the program, and goes on with the next stage.
//! From then on the NIC may send the stage. The batch (`plan.rs`) and the program (`programs.rs`) are made from the
//! same stages.
//!
//! A put is cut only where each piece is a put again. If the source is a run or an index table, and the slot is filled
//! in order, that is anywhere. If the source is a nest of loops, it is between rounds of one of them. A put that is
//! scattered into its slot stays whole. The pieces are as even as that allows, so that no small one remains at the end.
//!
//! Each piece of a counted put is a counted put with the same count. It copies that many of its own elements if it has
//! them, so the pieces together copy at least the counted elements.
//!
//! # Failure
//!
//! None: a put that is short or cannot be cut is one stage.

use tidegate_hal::batch::{Move, Shape};
use tidegate_hal::device::Device;

use super::cuts::side;
use super::note::{Note, What};
use crate::nic::Chunks;

/// The approximate limit for the number of stages. Larger data gets larger chunks.
const MOST: usize = 256;

/// Cuts are made only at multiples of this many elements, where pieces have more. It is a multiple of what a device
/// moves at a time, so aligned data stays aligned.
const TOGETHER: usize = 16;

/// Elements of a put that go together.
pub(super) struct StagePart<'a, D: Device> {
    pub(super) note: &'a Note<D>,
    /// The first element, counted in the source of the put.
    pub(super) first: usize,
    pub(super) count: usize,
}

impl<D: Device> StagePart<'_, D> {
    /// The number of the edge that they go to.
    pub(super) fn edge(&self) -> usize {
        self.note.edge as usize
    }

    /// The elements of the edge that they fill, in runs.
    pub(super) fn extents(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let whole = self.count == self.note.count;
        let some = self.note.first + self.first;
        // A put that was cut fills its slot in order.
        let part = (!whole).then_some((some, some + self.count));
        let runs = whole.then(|| self.note.extents());
        part.into_iter().chain(runs.into_iter().flatten())
    }
}

/// The puts to a target, in stages. If they are not cut, that is one stage.
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
            // Nearly a chunk is enough, because the last piece of a put is a little shorter.
            if filled >= chunk - chunk / 8 {
                stages.push(std::mem::take(&mut stage));
                filled = 0;
            }
        }
    }
    match stages.last_mut() {
        // This rest is not worth an operation of its own.
        Some(last) if stage.is_empty() || filled < chunk / 2 => last.append(&mut stage),
        _ => stages.push(stage),
    }
    stages
}

/// Where a put is cut: into pieces of `piece` elements, and also at each multiple of `run`.
struct Cut {
    piece: usize,
    run: usize,
}

impl Cut {
    /// Cuts a put into pieces of at least `least` elements. It stays whole if there would not be two.
    fn of<D: Device>(note: &Note<D>, least: usize) -> Self {
        let nowhere = Cut {
            piece: note.count,
            run: note.count,
        };
        // Rows are counted from the beginning of the put.
        let rows = matches!(note.what, What::PutRows { .. });
        if note.count / 2 < least || note.remote_layout.is_some() || rows {
            return nowhere;
        }
        let along = |inner: usize, turns: usize| {
            // The pieces are as even as loops and alignment allow.
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
        // Finds the first loop that is longer than a piece. `inner` is the number of elements in one of its rounds.
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

    /// The number of elements of the piece that begins with `first`.
    fn next(&self, first: usize) -> usize {
        let into = first % self.run;
        self.piece.min(self.run - into)
    }
}

/// The move of one piece, from the move of the whole put.
pub(super) fn cut<D: Device>(whole: Move, piece: &StagePart<'_, D>) -> Move {
    let (first, count) = (piece.first, piece.count);
    if count == piece.note.count {
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
