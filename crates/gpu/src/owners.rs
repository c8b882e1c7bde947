//! Kernels that own halves of windows, in the ledger of [`share`](crate::share): which of them may wait at the same time.
//!
//! # Model
//!
//! Such a kernel waits with all of its blocks, so all of them must be resident, beside everything else that waits. A
//! stream has batches or such a kernel at a time, never both. Nobody says on which multiprocessors blocks are placed. So
//! two things must hold wherever they stand:
//!
//! - Each block of a batch finds *half a multiprocessor*, and so does one block of a user's kernel, which a peer may wait
//!   for, or of the driver's own, which clears memory.
//! - All blocks of each kernel find room beside the batches and kernels of the other streams.
//!
//! Of a multiprocessor's two halves, one block of a kernel takes the first. The second goes when so many blocks stand there
//! that half of the multiprocessor is not free any more.

/// The blocks of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) blocks: usize,
    /// How many of them a multiprocessor has room for: at least 1.
    pub(crate) each: usize,
}

/// A stream with such kernels.
#[derive(Clone, Debug)]
struct Owner {
    stream: usize,
    /// The blocks of its batches.
    quota: usize,
    shapes: Vec<Shape>,
}

/// The kernels of all streams.
#[derive(Clone, Debug)]
pub(crate) struct Owners {
    /// How many multiprocessors there are for them and for the batches.
    pub(crate) multiprocessors: usize,
    all: Vec<Owner>,
}

impl Shape {
    /// How many of the blocks half a multiprocessor has room for.
    fn half(self) -> usize {
        self.each / 2
    }

    /// How many halves of multiprocessors the blocks take at most.
    fn halves(self, multiprocessors: usize) -> usize {
        let first = self.blocks.min(multiprocessors);
        match self.half() {
            0 => 2 * first,
            half => first + (self.blocks - first) / half,
        }
    }
}

impl Owner {
    fn halves(&self, multiprocessors: usize) -> usize {
        let shapes = self
            .shapes
            .iter()
            .map(|shape| shape.halves(multiprocessors));
        shapes.fold(self.quota, usize::max)
    }

    /// How many blocks of this shape find no room because of this stream, at most.
    fn keeps_out(&self, shape: Shape) -> usize {
        let batches = self.quota * (shape.each - shape.half());
        let kernels = self.shapes.iter();
        let kernels = kernels.map(|own| own.blocks.saturating_mul(shape.each.div_ceil(own.each)));
        kernels.fold(batches, usize::max)
    }
}

impl Owners {
    pub(crate) fn new(multiprocessors: usize) -> Self {
        Owners {
            multiprocessors,
            all: Vec::new(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Notes a kernel of a stream, and the blocks of its batches.
    pub(crate) fn add(&mut self, stream: usize, shape: Shape, quota: usize) {
        match self.all.iter_mut().find(|owner| owner.stream == stream) {
            Some(owner) => {
                owner.quota = quota;
                if !owner.shapes.contains(&shape) {
                    owner.shapes.push(shape);
                }
            }
            None => self.all.push(Owner {
                stream,
                quota,
                shapes: vec![shape],
            }),
        }
    }

    /// Notes the blocks of a stream's batches, if it has kernels.
    pub(crate) fn set_quota(&mut self, stream: usize, quota: usize) {
        let owner = self.all.iter_mut().find(|owner| owner.stream == stream);
        owner.into_iter().for_each(|owner| owner.quota = quota);
    }

    /// The stream is gone.
    pub(crate) fn remove(&mut self, stream: usize) {
        self.all.retain(|owner| owner.stream != stream);
    }

    /// Forgets all kernels.
    pub(crate) fn clear(&mut self) {
        self.all.clear();
    }

    /// Whether everything fits if all batches together have so many blocks.
    pub(crate) fn fit(&self, granted: usize) -> bool {
        let quotas: usize = self.all.iter().map(|owner| owner.quota).sum();
        // Of streams without such kernels.
        let others = granted.saturating_sub(quotas);
        let halves = self
            .all
            .iter()
            .map(|owner| owner.halves(self.multiprocessors));
        let halves = halves.fold(others + 1, usize::saturating_add);
        let has_room = |owner: &Owner, shape: Shape| {
            let beside = self.all.iter().filter(|other| other.stream != owner.stream);
            let kept_out = beside.map(|other| other.keeps_out(shape));
            let batches = others * (shape.each - shape.half());
            let all = kept_out.fold(shape.blocks.saturating_add(batches), usize::saturating_add);
            all <= self.multiprocessors * shape.each
        };
        let mut kernels = self
            .all
            .iter()
            .flat_map(|owner| owner.shapes.iter().map(move |shape| (owner, *shape)));
        halves <= 2 * self.multiprocessors && kernels.all(|(owner, shape)| has_room(owner, shape))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a block of half a multiprocessor finds a place, wherever the blocks of one kernel stand: those that go on
    /// with the fewest halves, found by trying each number of blocks on each multiprocessor.
    fn fewest_halves(multiprocessors: usize, shape: Shape) -> usize {
        // fewest[b]: with b blocks placed.
        let mut fewest = vec![None; shape.blocks + 1];
        fewest[0] = Some(0);
        for _ in 0..multiprocessors {
            let mut next = vec![None; shape.blocks + 1];
            for (placed, halves) in fewest.iter().enumerate() {
                let Some(halves) = halves else { continue };
                for here in 0..=shape.each.min(shape.blocks - placed) {
                    let left = match here {
                        0 => 2,
                        _ if here <= shape.half() => 1,
                        _ => 0,
                    };
                    let all: &mut Option<usize> = &mut next[placed + here];
                    *all = Some(all.map_or(halves + left, |all| all.min(halves + left)));
                }
            }
            fewest = next;
        }
        fewest[shape.blocks].expect("the kernel fits")
    }

    #[test]
    fn halves_are_counted_wherever_blocks_stand() {
        for multiprocessors in 1..6 {
            for each in 1..9 {
                for blocks in 1..=multiprocessors * each {
                    let shape = Shape { blocks, each };
                    let left = fewest_halves(multiprocessors, shape);
                    let taken = shape.halves(multiprocessors).min(2 * multiprocessors);
                    assert_eq!(
                        left,
                        2 * multiprocessors - taken,
                        "{shape:?} on {multiprocessors}"
                    );
                }
            }
        }
    }

    #[test]
    fn a_kernel_leaves_room_wherever_its_blocks_stand() {
        let mut owners = Owners::new(132);
        // Alone, it leaves half a multiprocessor.
        let fits = |owners: &Owners, blocks, each, quota, granted| {
            let mut owners = owners.clone();
            owners.add(7, Shape { blocks, each }, quota);
            owners.fit(granted)
        };
        assert!(fits(&owners, 131, 1, 49, 49) && !fits(&owners, 132, 1, 49, 49));
        assert!(fits(&owners, 263, 2, 49, 49) && !fits(&owners, 264, 2, 49, 49));
        // Blocks of a quarter that stand apart from each other leave a half on few multiprocessors only.
        assert!(fits(&owners, 297, 4, 49, 98) && !fits(&owners, 298, 4, 49, 98));
        // Blocks of batches that stand apart keep large blocks out.
        assert!(fits(&owners, 83, 1, 49, 98) && !fits(&owners, 84, 1, 49, 98));
        // Two kernels.
        owners.add(
            3,
            Shape {
                blocks: 60,
                each: 1,
            },
            49,
        );
        assert!(fits(&owners, 71, 1, 49, 98) && !fits(&owners, 72, 1, 49, 98));
        owners.remove(3);
        assert!(owners.is_empty() && fits(&owners, 131, 1, 0, 0));
    }
}
