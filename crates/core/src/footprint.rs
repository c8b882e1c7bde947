//! Footprints: the elements of a target's memory that an origin may access. Ranks exchange them for ranges and layouts.
//!
//! # Model
//!
//! A [`Footprint`] is a set, without an order. It is sent in the form that the program declared: a range, a nest of
//! loops, or, for a table of indices, its runs. All ranks check that the footprints in a target's memory are disjoint
//! ([`find_overlap`]):
//!
//! 1. Footprints whose extents do not overlap are disjoint. That is enough for plain ranges, and for several arrays in
//!    one memory.
//! 2. The strides of the others often divide each other, like those of one array. Then each footprint is a *box* of
//!    that array: a range of indices in each dimension. Indices count from the beginning of the memory; if that would
//!    cut a box in two, they count from a place where no box is cut. Boxes overlap if their ranges overlap in all
//!    dimensions. Only pairs that overlap in the dimension with the fewest overlaps are compared.
//! 3. Otherwise the runs of all footprints are merged in ascending order. Runs are not stored: each is computed when
//!    its turn comes. So memory is bounded by the number of footprints, but time is not.
//!
//! # Failure
//!
//! A footprint from a peer may be invalid. [`Footprint::extent`] is then `None`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::error::{Result, push};
use crate::ground::visited;

/// A set of elements, listed in ascending order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Footprint {
    /// A run of elements, as the program declared it. It may be invalid, with an end before its start.
    Range(Range<usize>),
    /// A nest of loops from `first` on: counts and strides, the first loop fastest. Each stride is longer than the
    /// reach of all loops before it.
    Nest {
        first: usize,
        loops: Vec<(usize, usize)>,
    },
    /// Runs: for each, the gap behind the end of the run before it (for the first, behind element 0), and its length.
    Runs(Vec<(usize, usize)>),
}

/// Elements that two footprints have in common.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Overlap {
    /// The numbers of the footprints, in ascending order.
    pub(crate) of: [usize; 2],
    /// Some of the common elements.
    pub(crate) at: Range<usize>,
}

impl Footprint {
    /// How many runs a footprint may have that is not a nest. Each takes a few bytes of a message to all ranks.
    pub(crate) const MOST_RUNS: usize = 1 << 16;

    /// The footprint of a nest of loops from `first` on. [It is known](crate::layout) that no element occurs twice,
    /// since each loop is wider than the loops with shorter strides. No loop has only one round.
    pub(crate) fn of_nest(mut first: usize, loops: impl Iterator<Item = (usize, isize)>) -> Self {
        let upwards = |(times, stride): (usize, isize)| {
            if stride < 0 {
                first -= (times - 1) * stride.unsigned_abs();
            }
            (times, stride.unsigned_abs())
        };
        let mut loops: Vec<_> = loops.map(upwards).collect();
        loops.sort_unstable_by_key(|(_, stride)| *stride);
        loops.dedup_by(|(times, stride), (inner, step)| {
            let goes_on = *inner * *step == *stride;
            if goes_on {
                *inner *= *times;
            }
            goes_on
        });
        match loops[..] {
            [] => Footprint::Range(first..first + 1),
            [(times, 1)] => Footprint::Range(first..first + times),
            _ => Footprint::Nest { first, loops },
        }
    }

    /// The footprint of these runs, in any order. None of them is empty, and no two overlap.
    pub(crate) fn of_runs(mut runs: Vec<(usize, usize)>) -> Self {
        runs.sort_unstable();
        runs.dedup_by(|next, before| {
            let beside = next.0 == before.1;
            if beside {
                before.1 = next.1;
            }
            beside
        });
        if let [(first, end)] = runs[..] {
            return Footprint::Range(first..end);
        }
        let mut until = 0;
        for (first, end) in &mut runs {
            (*first, *end, until) = (*first - until, *end - *first, *end);
        }
        Footprint::Runs(runs)
    }

    /// How many runs are sent with it.
    pub(crate) fn listed(&self) -> usize {
        match self {
            Footprint::Runs(runs) => runs.len(),
            _ => 0,
        }
    }

    /// How many elements it has, if it is valid.
    pub(crate) fn count(&self) -> usize {
        match self {
            Footprint::Range(range) => range.len(),
            Footprint::Nest { loops, .. } => {
                let times = loops.iter().map(|(times, _)| *times);
                times.fold(1, usize::saturating_mul)
            }
            Footprint::Runs(runs) => {
                (runs.iter()).fold(0, |sum, (_, len)| sum.saturating_add(*len))
            }
        }
    }

    /// The range from its first element to its last. `None` if the footprint is invalid, or reaches beyond the largest
    /// memory.
    pub(crate) fn extent(&self) -> Option<Range<usize>> {
        let extent = match self {
            Footprint::Range(range) => (range.start <= range.end).then(|| range.clone())?,
            Footprint::Nest { first, loops } => {
                let (mut last, mut width) = (*first, 0usize);
                for &(times, stride) in loops {
                    if times < 2 || stride <= width {
                        return None;
                    }
                    let reach = (times - 1).checked_mul(stride)?;
                    (last, width) = (last.checked_add(reach)?, width.checked_add(reach)?);
                }
                *first..last.checked_add(1)?
            }
            Footprint::Runs(runs) => {
                let (mut first, mut end) = (None, 0usize);
                for &(gap, len) in runs {
                    // Only the first run may begin without a gap.
                    if len == 0 || (gap == 0 && first.is_some()) {
                        return None;
                    }
                    let start = end.checked_add(gap)?;
                    first.get_or_insert(start);
                    end = start.checked_add(len)?;
                }
                first.unwrap_or(0)..end
            }
        };
        (extent.end <= isize::MAX as usize).then_some(extent)
    }

    /// Its runs, in ascending order, if it has an extent. The runs of a nest are its rows.
    fn runs(&self) -> Runs<'_> {
        match self {
            Footprint::Range(range) => Runs::One(range.clone()),
            Footprint::Nest { first, loops } => {
                let (row, outer) = match loops[..] {
                    [(times, 1), ref outer @ ..] => (times, outer),
                    ref outer => (1, outer),
                };
                Runs::Nest {
                    next: Some(*first),
                    row,
                    outer,
                    at: vec![0; outer.len()],
                }
            }
            Footprint::Runs(runs) => Runs::Listed { end: 0, left: runs },
        }
    }
}

/// The runs of a footprint.
#[derive(Debug)]
enum Runs<'a> {
    One(Range<usize>),
    Nest {
        next: Option<usize>,
        row: usize,
        outer: &'a [(usize, usize)],
        at: Vec<usize>,
    },
    Listed {
        end: usize,
        left: &'a [(usize, usize)],
    },
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        visited();
        match self {
            Runs::One(range) => {
                let run = std::mem::replace(range, 0..0);
                (!run.is_empty()).then_some(run)
            }
            Runs::Nest {
                next,
                row,
                outer,
                at,
            } => {
                let first = next.take()?;
                let mut then = first;
                for (at, &(times, stride)) in at.iter_mut().zip(*outer) {
                    *at += 1;
                    if *at < times {
                        *next = Some(then + stride);
                        break;
                    }
                    then -= (times - 1) * stride;
                    *at = 0;
                }
                Some(first..first + *row)
            }
            Runs::Listed { end, left } => {
                let (&(gap, len), rest) = left.split_first()?;
                let first = *end + gap;
                (*end, *left) = (first + len, rest);
                Some(first..*end)
            }
        }
    }
}

/// The runs of several footprints, sorted by their first element, each with the number of its footprint.
struct Merged<'a> {
    each: Vec<Runs<'a>>,
    /// For each footprint that has a next run: its beginning, its end, and the footprint's number.
    heads: BinaryHeap<Reverse<(usize, usize, usize)>>,
}

impl<'a> Merged<'a> {
    fn new(all: impl Iterator<Item = &'a Footprint>) -> Self {
        let mut merged = Merged {
            each: all.map(Footprint::runs).collect(),
            heads: BinaryHeap::new(),
        };
        for number in 0..merged.each.len() {
            let head = merged.head(number);
            merged.heads.extend(head);
        }
        merged
    }

    fn head(&mut self, number: usize) -> Option<Reverse<(usize, usize, usize)>> {
        let run = self.each[number].next()?;
        Some(Reverse((run.start, run.end, number)))
    }
}

impl Iterator for Merged<'_> {
    type Item = (Range<usize>, usize);

    fn next(&mut self) -> Option<(Range<usize>, usize)> {
        let Reverse((first, end, number)) = *self.heads.peek()?;
        match self.head(number) {
            // The new run takes the place of the old one. That is one walk through the heap instead of two.
            Some(next) => *self.heads.peek_mut()? = next,
            None => _ = self.heads.pop(),
        }
        Some((first..end, number))
    }
}

/// Two footprints that have elements in common, if there are any. All footprints must have an extent. All ranks get the
/// same answer.
pub(crate) fn find_overlap(all: &[&Footprint]) -> Option<Overlap> {
    let extent = |number: usize| all[number].extent().unwrap_or(0..0);
    let mut order: Vec<_> = (0..all.len()).filter(|n| !extent(*n).is_empty()).collect();
    order.sort_by_key(|number| (extent(*number).start, extent(*number).end));
    let mut rest = &order[..];
    while let Some(&first) = rest.first() {
        let mut until = extent(first).end;
        let mut many = 1;
        while let Some(&next) = rest.get(many)
            && extent(next).start < until
        {
            until = until.max(extent(next).end);
            many += 1;
        }
        let (these, further) = rest.split_at(many);
        if many > 1
            && let Some(overlap) = overlap_of(all, these)
        {
            return Some(overlap);
        }
        rest = further;
    }
    None
}

/// The same, for some of the footprints.
fn overlap_of(all: &[&Footprint], these: &[usize]) -> Option<Overlap> {
    let runs = |these: &[usize]| {
        let mut before: Option<(Range<usize>, usize)> = None;
        for (run, number) in Merged::new(these.iter().map(|number| all[*number])) {
            if let Some((other, earlier)) = &before
                && run.start < other.end
            {
                let (a, b) = (these[*earlier], these[number]);
                return Some(Overlap {
                    of: [a.min(b), a.max(b)],
                    at: run.start..run.end.min(other.end),
                });
            }
            before = Some((run, number));
        }
        None
    };
    match boxes(all, these) {
        // The runs of the two boxes tell which elements they have in common.
        Some(boxes) => pair(&boxes).and_then(|[a, b]| runs(&[these[a.min(b)], these[a.max(b)]])),
        None => runs(these),
    }
}

/// The footprints as boxes of one array, if they can be that.
fn boxes(all: &[&Footprint], these: &[usize]) -> Option<Vec<Vec<Range<usize>>>> {
    let mut strides = vec![1];
    for number in these {
        if let Footprint::Nest { loops, .. } = all[*number] {
            strides.extend(loops.iter().map(|(_, stride)| *stride));
            // Most footprints have strides that others have, too.
            if strides.len() > 64 {
                strides.sort_unstable();
                strides.dedup();
                // More different strides cannot divide each other.
                if strides.len() > 64 {
                    return None;
                }
            }
        }
    }
    strides.sort_unstable();
    strides.dedup();
    if !strides.windows(2).all(|pair| pair[1] % pair[0] == 0) {
        return None;
    }
    // Most arrays begin at the beginning of the memory, or whole strides behind it.
    let begins = fold(all, these, &strides, |_, _, _| Some(0));
    begins.or_else(|| fold(all, these, &strides, seam))
}

/// The boxes, if each dimension begins at the place that `seam` returns.
fn fold(
    all: &[&Footprint],
    these: &[usize],
    strides: &[usize],
    seam: impl Fn(&[Unfolded<'_>], usize, usize) -> Option<usize>,
) -> Option<Vec<Vec<Range<usize>>>> {
    let mut boxes = Vec::with_capacity(these.len());
    for number in these {
        visited();
        boxes.push(Unfolded::of(all[*number])?);
    }
    for (k, stride) in strides.iter().enumerate() {
        let size = strides.get(k + 1).map(|next| next / stride);
        let at = match size {
            Some(size) => seam(&boxes, *stride, size)?,
            None => 0,
        };
        for each in &mut boxes {
            each.fold(*stride, size, at)?;
        }
    }
    Some(boxes.into_iter().map(|each| each.sides).collect())
}

/// A footprint that is being turned into a box, from the fastest dimension on.
struct Unfolded<'a> {
    sides: Vec<Range<usize>>,
    /// Where it begins, counted in the stride of the next dimension.
    at: usize,
    /// How many rounds a loop makes that has filled the dimensions so far.
    times: usize,
    loops: &'a [(usize, usize)],
}

impl<'a> Unfolded<'a> {
    fn of(footprint: &'a Footprint) -> Option<Self> {
        let (at, times, loops): (_, _, &[_]) = match footprint {
            Footprint::Range(range) => (range.start, range.len(), &[]),
            Footprint::Nest { first, loops } => (*first, 1, loops),
            Footprint::Runs(_) => return None,
        };
        Some(Unfolded {
            sides: Vec::new(),
            at,
            times,
            loops,
        })
    }

    /// Its length in the next dimension, which has this stride.
    fn along(&self, stride: usize) -> Option<usize> {
        match self.loops.first() {
            Some((times, of)) if *of == stride => (self.times == 1).then_some(*times),
            _ => Some(self.times),
        }
    }

    /// Adds the next dimension, which has this stride and size, and begins at `seam`.
    fn fold(&mut self, stride: usize, size: Option<usize>, seam: usize) -> Option<()> {
        let times = self.along(stride)?;
        if self.loops.first().is_some_and(|(_, of)| *of == stride) {
            self.loops = &self.loops[1..];
        }
        let Some(size) = size else {
            self.sides.push(self.at..self.at + times);
            return Some(());
        };
        // Where a dimension begins at 0, so does the next one.
        let from_seam = self.at + (size - seam) % size;
        let first = from_seam % size;
        (self.at, self.times) = (from_seam / size, 1);
        if times <= size - first {
            self.sides.push(first..first + times);
        } else if first == 0 && times.is_multiple_of(size) {
            self.sides.push(0..size);
            self.times = times / size;
        } else {
            return None;
        }
        Some(())
    }
}

/// A place where a dimension of this stride and size can begin, so that no footprint crosses it. If there is one, a
/// footprint begins there. (If there are several, another one might be better for the next dimension. Then the runs
/// have to be compared.)
fn seam(boxes: &[Unfolded<'_>], stride: usize, size: usize) -> Option<usize> {
    let mut arcs = Vec::with_capacity(boxes.len());
    for each in boxes {
        visited();
        let first = each.at % size;
        arcs.push((first, first + each.along(stride)?.min(size)));
    }
    arcs.sort_unstable();
    let around = |(_, end): &(usize, usize)| end.saturating_sub(size);
    let mut until = arcs.iter().map(around).max()?;
    for (first, end) in arcs {
        if until <= first {
            return Some(first);
        }
        until = until.max(end);
    }
    None
}

/// The numbers of two boxes that overlap, if there are any.
fn pair(boxes: &[Vec<Range<usize>>]) -> Option<[usize; 2]> {
    let along = |k: usize| {
        let mut order: Vec<_> = (0..boxes.len()).collect();
        order.sort_by_key(|number| boxes[*number][k].start);
        order
    };
    // How many pairs overlap in a dimension: for each box, those that begin before its end, minus those before the box
    // itself.
    let meeting = |k: usize| {
        let order = along(k);
        let mut pairs = 0;
        for (place, number) in order.iter().enumerate() {
            visited();
            let end = boxes[*number][k].end;
            let begun = order.partition_point(|other| boxes[*other][k].start < end);
            pairs += begun - place - 1;
        }
        pairs
    };
    let k = (0..boxes[0].len()).min_by_key(|k| meeting(*k))?;
    // The boxes that have not ended where the next one begins.
    let mut open: Vec<usize> = Vec::new();
    for number in along(k) {
        let this = &boxes[number];
        open.retain(|other| boxes[*other][k].end > this[k].start);
        for other in &open {
            visited();
            let mut sides = boxes[*other].iter().zip(this);
            if sides.all(|(a, b)| a.start < b.end && b.start < a.end) {
                return Some([*other, number]);
            }
        }
        open.push(number);
    }
    None
}

/// The elements of `0..len` that are in no footprint, in ascending order. All footprints lie within, and are disjoint.
///
/// # Errors
///
/// The same as [`push`].
pub(crate) fn complement<'a>(
    all: impl Iterator<Item = &'a Footprint>,
    len: usize,
) -> Result<Vec<Range<usize>>> {
    let (mut rest, mut until) = (Vec::new(), 0);
    for (run, _) in Merged::new(all) {
        if run.start > until {
            push(&mut rest, until..run.start)?;
        }
        until = run.end;
    }
    if until < len {
        push(&mut rest, until..len)?;
    }
    Ok(rest)
}

#[cfg(test)]
mod tests;
