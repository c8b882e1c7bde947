//! Which elements of a region or slot a put, get or accumulate touches.

use std::sync::Arc;

use tidegate_hal::batch::Shape;
use tidegate_hal::device::Device;
use tidegate_hal::memory::{Block as _, Sharing};

use crate::error::{Error, Result};
use crate::world::World;

/// A choice of elements, in order: a nest of strides, or a list of indices. Checked once, when it is made; immutable;
/// cheap to clone.
///
/// With a layout on its source a put gathers while it sends, with one on its destination it scatters: a face of an array needs
/// no packing by hand.
pub struct Layout<D: Device> {
    inner: Arc<Inner<D>>,
}

struct Inner<D: Device> {
    /// The element that offset 0 of the shape stands for.
    first: usize,
    shape: Shape,
    count: usize,
    /// One more than the highest element that is touched.
    extent: usize,
    /// Whether no element occurs twice.
    distinct: bool,
    /// The pieces of a list of indices: runs of neighbouring elements, in its order. A nest of strides finds its own again.
    listed: Vec<(usize, usize)>,
    /// The index table, and the device in whose memory it is.
    table: Option<(D::Block, D)>,
}

impl<D: Device> Clone for Layout<D> {
    fn clone(&self) -> Self {
        Layout {
            inner: self.inner.clone(),
        }
    }
}

/// The most pieces of a layout with strides: where several operations of an epoch go to one target, the pieces of all are
/// listed for the check of overlaps, 24 bytes each.
const MAX_PIECES: usize = 1 << 26;

impl<D: Device> Layout<D> {
    /// Elements `first + i0*stride0 + i1*stride1 + …` for `ik` in `0..countk`, `i0` fastest; `loops` are `(count, stride)`,
    /// at most [`Shape::MAX_DIMS`].
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for no or too many loops, a count of 0, elements that are negative or too far, or more than
    /// 2^26 pieces (elements that do not lie one behind the other): an epoch that is seen for the first time goes through
    /// them one by one.
    pub fn strided(first: usize, loops: &[(u32, i32)]) -> Result<Self> {
        let invalid =
            |what: &str| Error::Invalid(format!("strided layout {first} {loops:?}: {what}"));
        if loops.is_empty() || loops.len() > Shape::MAX_DIMS {
            return Err(invalid("it has no loop, or too many"));
        }
        let (mut low, mut high, mut count) = (first as i128, first as i128, 1usize);
        for &(times, stride) in loops {
            if times == 0 {
                return Err(invalid("a loop has no turns"));
            }
            let reach = i128::from(times - 1) * i128::from(stride);
            (low, high) = (low + reach.min(0), high + reach.max(0));
            count = count
                .checked_mul(times as usize)
                .ok_or_else(|| invalid("too many elements"))?;
        }
        // Elements are counted in `isize` bytes further down, and in `u32` in tables.
        if low < 0 || high >= i128::from(u32::MAX) || count > u32::MAX as usize {
            return Err(invalid("it reaches beyond what can be addressed"));
        }
        let (row, _) = rows(loops);
        if count / row > MAX_PIECES {
            return Err(invalid("it has more than 2^26 pieces"));
        }
        let mut dims = [(1, 0); Shape::MAX_DIMS];
        dims[..loops.len()].copy_from_slice(loops);
        let elements = Turns::new(first, loops);
        let shape = Shape::Strided {
            dims,
            rank: loops.len() as u32,
        };
        Ok(Self::new(
            first,
            shape,
            count,
            high as usize + 1,
            elements.map(|element| (element, element + 1)),
            Vec::new(),
            None,
        ))
    }

    /// The elements with these indices.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] for an empty list, [`Error::Device`] if there is no memory for the table.
    pub fn indexed(world: &World<D>, indices: &[u32]) -> Result<Self> {
        let Some(highest) = indices.iter().max() else {
            return Err(Error::Invalid(
                "an indexed layout has at least one index".into(),
            ));
        };
        let table = world
            .device()
            .alloc(size_of_val(indices), Sharing::Private)?;
        let bytes: Vec<u8> = indices
            .iter()
            .flat_map(|index| index.to_ne_bytes())
            .collect();
        // SAFETY: the block has just been allocated with this size.
        unsafe { world.device().write(table.base(), &bytes) }?;
        let shape = Shape::Indexed {
            table: table.base(),
        };
        let elements = indices.iter().map(|index| *index as usize);
        let elements = elements.map(|element| (element, element + 1));
        let listed = Joined::of(elements.clone()).collect();
        Ok(Self::new(
            0,
            shape,
            indices.len(),
            *highest as usize + 1,
            elements,
            listed,
            Some((table, world.device().clone())),
        ))
    }

    fn new(
        first: usize,
        shape: Shape,
        count: usize,
        extent: usize,
        elements: impl Iterator<Item = (usize, usize)>,
        listed: Vec<(usize, usize)>,
        table: Option<(D::Block, D)>,
    ) -> Self {
        let mut seen = vec![0u64; extent.div_ceil(64)];
        let mut distinct = true;
        for (element, _) in elements {
            let (word, bit) = (element / 64, 1 << (element % 64));
            distinct &= seen[word] & bit == 0;
            seen[word] |= bit;
        }
        Layout {
            inner: Arc::new(Inner {
                first,
                shape,
                count,
                extent,
                distinct,
                listed,
                table,
            }),
        }
    }

    /// How many elements it chooses.
    pub fn count(&self) -> usize {
        self.inner.count
    }

    /// One more than the highest element: a region must have at least so many.
    pub fn extent(&self) -> usize {
        self.inner.extent
    }

    /// Whether no element occurs twice, as a destination requires.
    pub fn is_distinct(&self) -> bool {
        self.inner.distinct
    }

    /// The runs of neighbouring elements, in order: of what is regular they are counted out, and lie nowhere.
    pub(crate) fn runs(&self) -> impl Iterator<Item = (usize, usize)> + '_ {
        let Inner {
            first,
            shape,
            listed,
            ..
        } = &*self.inner;
        let strided = match shape {
            Shape::Strided { dims, rank } => {
                let loops = &dims[..*rank as usize];
                let (row, outer) = rows(loops);
                let rows = Turns::new(*first, outer);
                Some(Joined::of(rows.map(move |start| (start, start + row))))
            }
            _ => None,
        };
        strided.into_iter().flatten().chain(listed.iter().copied())
    }

    /// The shape, and how many elements further on its base lies.
    pub(crate) fn shape(&self) -> (usize, Shape) {
        (self.inner.first, self.inner.shape)
    }

    /// Whether streams of a device can follow it.
    pub(crate) fn fits(&self, device: &D) -> bool {
        let table = self.inner.table.as_ref();
        table.is_none_or(|(_, other)| other.same(device))
    }

    pub(crate) fn same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }

    pub(crate) fn keep(&self) -> Arc<dyn std::any::Any + Send + Sync> {
        crate::capture::keep(&self.inner)
    }
}

/// Runs of elements of which each that goes on where the one before ends is one with that.
struct Joined<I: Iterator>(std::iter::Peekable<I>);

impl<I: Iterator<Item = (usize, usize)>> Joined<I> {
    fn of(runs: I) -> Self {
        Joined(runs.peekable())
    }
}

impl<I: Iterator<Item = (usize, usize)>> Iterator for Joined<I> {
    type Item = (usize, usize);

    fn next(&mut self) -> Option<(usize, usize)> {
        let (first, mut end) = self.0.next()?;
        while let Some((_, further)) = self.0.next_if(|(next, _)| *next == end) {
            end = further;
        }
        Some((first, end))
    }
}

/// The turns of a nest of loops, the first fastest: elements, none of which is negative.
struct Turns<'a> {
    loops: &'a [(u32, i32)],
    at: [u32; Shape::MAX_DIMS],
    next: Option<i64>,
}

impl<'a> Turns<'a> {
    fn new(first: usize, loops: &'a [(u32, i32)]) -> Self {
        Turns {
            loops,
            at: [0; Shape::MAX_DIMS],
            next: Some(first as i64),
        }
    }
}

impl Iterator for Turns<'_> {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let now = self.next?;
        let mut then = now;
        self.next = None;
        for (at, &(count, stride)) in self.at.iter_mut().zip(self.loops) {
            *at += 1;
            then += i64::from(stride);
            if *at < count {
                self.next = Some(then);
                break;
            }
            *at = 0;
            then -= i64::from(count) * i64::from(stride);
        }
        Some(now as usize)
    }
}

impl<D: Device> std::fmt::Debug for Layout<D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Layout")
            .field("count", &self.count())
            .field("extent", &self.extent())
            .finish_non_exhaustive()
    }
}

/// How many elements lie side by side in a nest of loops, and the loops over these: those of one turn go nowhere.
fn rows(loops: &[(u32, i32)]) -> (usize, &[(u32, i32)]) {
    let some = loops.iter().position(|(times, _)| *times != 1);
    match &loops[some.unwrap_or(loops.len())..] {
        [(times, 1), outer @ ..] => (*times as usize, outer),
        outer => (1, outer),
    }
}

#[cfg(test)]
mod tests {
    use super::Layout;
    use crate::World;
    use crate::error::Error;
    use tidegate_host::Host;

    #[test]
    fn layouts_of_very_many_pieces_are_refused() {
        for loops in [&[(1 << 31, 2)][..], &[(1 << 13, 2), (1 << 14, 1 << 15)]] {
            let refused = Layout::<Host>::strided(0, loops).unwrap_err();
            assert!(matches!(refused, Error::Invalid(_)), "{refused}");
            assert!(refused.to_string().contains("pieces"), "{refused}");
        }
        // A row is one piece, however long, and behind loops that go nowhere, too.
        let row = Layout::<Host>::strided(0, &[(1, 7), ((1 << 26) + 1, 1)]).unwrap();
        assert_eq!(row.runs().collect::<Vec<_>>(), [(0, (1 << 26) + 1)]);
        let one = Layout::<Host>::strided(3, &[(1, 7), (1, 9)]).unwrap();
        assert_eq!(one.runs().collect::<Vec<_>>(), [(3, 4)]);
        let rows = Layout::<Host>::strided(5, &[(1 << 20, 1), (3, 1 << 21)]).unwrap();
        assert_eq!((rows.count(), rows.runs().count()), (3 << 20, 3));
    }

    #[test]
    fn runs_are_those_of_the_elements() {
        let nests: [&[(u32, i32)]; 8] = [
            &[(7, 1)],
            &[(1, 1), (3, 4)],
            &[(4, 1), (3, 4)],
            &[(4, 1), (3, 5), (2, 20)],
            &[(2, 1), (2, 3), (2, 6)],
            &[(5, 2), (2, 1)],
            &[(3, -2), (2, 7)],
            &[(3, 1), (3, -3)],
        ];
        for loops in nests {
            let layout = Layout::<Host>::strided(10, loops).unwrap();
            // Element by element, as the words of `strided` say it.
            let mut elements = vec![10i64];
            for &(times, stride) in loops.iter().rev() {
                let turns = |base: i64| {
                    (0..i64::from(times)).map(move |turn| base + turn * i64::from(stride))
                };
                elements = elements.into_iter().flat_map(turns).collect();
            }
            let mut runs: Vec<(usize, usize)> = Vec::new();
            for element in elements.into_iter().map(|element| element as usize) {
                match runs.last_mut() {
                    Some((_, end)) if *end == element => *end += 1,
                    _ => runs.push((element, element + 1)),
                }
            }
            assert_eq!(layout.runs().collect::<Vec<_>>(), runs, "{loops:?}");
        }
    }

    #[test]
    fn what_is_regular_takes_no_memory_for_its_pieces() {
        let layout = Layout::<Host>::strided(1, &[(3, 1), (1 << 16, 5)]).unwrap();
        assert_eq!(
            (layout.inner.listed.capacity(), layout.runs().count()),
            (0, 1 << 16)
        );
        World::<Host>::local(1, |world| {
            let listed = Layout::indexed(&world, &[3, 4, 9, 2]).unwrap();
            assert_eq!(listed.runs().collect::<Vec<_>>(), [(3, 5), (9, 10), (2, 3)]);
        });
    }
}
