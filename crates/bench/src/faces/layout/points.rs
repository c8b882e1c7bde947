//! The points of a small surface one by one, for the kernel that sums them.
//!
//! # Model
//!
//! A [`Patch`] is a nest of loops: short, however many points it has, but the way into the nest, and
//! from loop to loop, takes as long as dozens of points. A small surface has dozens of patches with a few
//! points each. There a [`PointList`] says of every point where its copies are, and all points that have
//! them in the same places (the block, and the messages of the same neighbours) are one list, whatever
//! patches they are of: a handful of lists with one neighbour, 52 with 26. Gather-scatter libraries of spectral-element codes do the
//! same.
//!
//! Points of which all copies lie side by side four times in a row are listed once for four.
//!
//! # Failures
//!
//! None.

use super::Direction;
use super::patches::{Group, Patch};
use crate::faces::params::Size;
use std::collections::BTreeMap;

/// So many points side by side are one entry.
pub(crate) const WIDE: usize = 4;

/// Points whose copies are in the same places.
#[derive(Debug, Clone)]
pub(crate) struct PointList {
    /// How many, as a patch says it.
    pub(crate) copies: u8,
    /// Which of them neighbours have sent, as a patch says it.
    pub(crate) remote: u8,
    /// Which neighbours, as a patch says it.
    pub(crate) from: [u8; 8],
    /// `copies` indices an entry, of the first of [`WIDE`] points.
    wide: Vec<u32>,
    /// `copies` indices a point.
    single: Vec<u32>,
}

/// Surfaces with no face of more points than this are listed: 40 KB at most.
const SMALL: usize = 768;

impl PointList {
    /// The lists of a small surface, which these are the patches of.
    pub(crate) fn of_small(size: Size, surface: &[Group]) -> Option<Vec<PointList>> {
        let largest = Direction::all().map(|d| d.message_len(size)).max()?;
        (largest <= SMALL).then(|| PointList::all_of(surface))
    }

    /// All points of these patches, in lists that begin with points that no neighbour has sent.
    fn all_of(groups: &[Group]) -> Vec<PointList> {
        let mut sorts: BTreeMap<_, Vec<[u32; 8]>> = BTreeMap::new();
        for patch in groups.iter().flat_map(|group| &group.patches) {
            let sort = (patch.remote, patch.copies, patch.from);
            sorts.entry(sort).or_default().extend(patch.points());
        }
        let list = |((remote, copies, from), mut points): (_, Vec<_>)| {
            points.sort_unstable();
            let (wide, single) = split(&points, usize::from(copies));
            PointList {
                copies,
                remote,
                from,
                wide,
                single,
            }
        };
        sorts.into_iter().map(list).collect()
    }

    /// Where the copies of [`WIDE`] points in a row begin.
    #[inline(always)]
    pub(crate) fn wide<const N: usize>(&self) -> impl Iterator<Item = [usize; N]> + '_ {
        entries(&self.wide)
    }

    /// Where the copies of each of the other points are.
    #[inline(always)]
    pub(crate) fn single<const N: usize>(&self) -> impl Iterator<Item = [usize; N]> + '_ {
        entries(&self.single)
    }

    /// Where the copies of each point are.
    pub(crate) fn points<const N: usize>(&self) -> impl Iterator<Item = [usize; N]> + '_ {
        let of_row = |at: [usize; N]| (0..WIDE).map(move |k| at.map(|at| at + k));
        self.wide().flat_map(of_row).chain(self.single())
    }
}

/// The indices of the first of [`WIDE`] points in a row, and of the others.
fn split(mut points: &[[u32; 8]], copies: usize) -> (Vec<u32>, Vec<u32>) {
    let (mut wide, mut single) = (Vec::new(), Vec::new());
    while let Some((first, others)) = points.split_first() {
        let in_a_row = |(k, point): (usize, &[u32; 8])| {
            (0..copies).all(|copy| point[copy] == first[copy] + k as u32 + 1)
        };
        let (list, took) = match others.get(..WIDE - 1) {
            Some(next) if next.iter().enumerate().all(in_a_row) => (&mut wide, WIDE),
            _ => (&mut single, 1),
        };
        list.extend(&first[..copies]);
        points = &points[took..];
    }
    (wide, single)
}

/// Indices, by the `N`.
#[inline(always)]
fn entries<const N: usize>(list: &[u32]) -> impl Iterator<Item = [usize; N]> + '_ {
    list.as_chunks().0.iter().map(|at| at.map(|at| at as usize))
}

impl Patch {
    /// Where the copies of each point are; zeros beyond [`Patch::copies`].
    fn points(&self) -> impl Iterator<Item = [u32; 8]> + '_ {
        let loops = [self.rows[1], self.rows[0]].into_iter();
        let loops: Vec<_> = loops.chain(self.loops.iter().rev().copied()).collect();
        let count: u32 = loops.iter().map(|by| by.count).product();
        (0..count).map(move |mut number| {
            let mut at = self.start;
            for by in loops.iter().rev() {
                let step = number % by.count;
                number /= by.count;
                for (copy, at) in at.iter_mut().enumerate().take(self.copies.into()) {
                    *at += step * by.stride[Patch::source(copy, self.remote.into())];
                }
            }
            at
        })
    }
}
