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
//! that half of the multiprocessor is not free any more. If early batches may be resident, a stream has *two* batches at a
//! time: the one that waits, and the next one behind it.
//!
//! # Several processes
//!
//! If kernels of n processes run at the same time, each process may take the nth part of the halves, but its blocks
//! may stand on all multiprocessors. So they are counted as they stand there. Then all processes together leave as many
//! halves as each of them was promised, and blocks that need at most a half find room: for each half that is counted
//! for their kernel, there is one. A block that needs more than a half is not safe. The halves that are left may be of
//! different multiprocessors, and other processes do not count that. So [`share`](crate::share) refuses such kernels.
//!
//! # Shared memory
//!
//! Some devices divide a memory into a cache and [shared memory](SharedMemory), and keep the division as long as a
//! block stands on the multiprocessor. So a block of such a kernel may come to a multiprocessor with little shared
//! memory, and keep blocks of batches out of it for ever: on an H200, a kernel of 132 blocks that need none kept out
//! all of another stream's. Two things are done. A multiprocessor to which a waiting block comes first has as much of
//! it as there can be. And blocks of these kernels ask for so much themselves that whatever size they come to, a block
//! of a batch fits beside them ([`shared`]).

use crate::driver::SharedMemory;
use crate::last::Early;

/// The shared memory that blocks of kernels that own halves leave, in bytes. No block of a batch takes more.
pub(crate) const BESIDE: usize = 14 << 10;

/// The unit in which shared memory is given to blocks, in bytes.
const UNIT: usize = 128;

/// The shared memory to launch a kernel with that owns halves, so that its blocks leave [`BESIDE`] bytes of whatever
/// size they come to. A block of the kernel takes `own` bytes, and the user asks for some more.
pub(crate) fn shared(own: usize, asked: usize, memory: &SharedMemory) -> usize {
    let Some(most) = memory.sizes.last() else {
        return asked;
    };
    let taken = own + memory.reserved;
    // With the first number of blocks that is more than this, nothing is promised any more (`Shape::half`).
    let few = |block: usize| most / block / 2;
    let leaves = |block: &usize| {
        memory.sizes.iter().all(|size| {
            let here = few(*block).min(size / block);
            here == 0 || size - here * block >= BESIDE
        })
    };
    // A block of more than half of the most leaves nothing, so there is an end.
    let blocks = ((taken + asked).next_multiple_of(UNIT)..).step_by(UNIT);
    blocks
        .into_iter()
        .find(leaves)
        .map_or(asked, |block| block - taken)
}

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
    /// On how many multiprocessors their blocks may stand: more, if other processes have a part.
    places: usize,
    /// How many batches of a stream may be resident at a time.
    batches: usize,
    all: Vec<Owner>,
}

impl Shape {
    /// How many of the blocks half a multiprocessor has room for.
    pub(crate) fn half(self) -> usize {
        self.each / 2
    }

    /// How many halves of multiprocessors the blocks take at most, if they may stand on so many.
    fn halves(self, places: usize) -> usize {
        let first = self.blocks.min(places);
        match self.half() {
            0 => 2 * first,
            half => first + (self.blocks - first) / half,
        }
    }
}

impl Owner {
    /// How many halves it takes at most, if so many of its batches may be resident.
    fn halves(&self, batches: usize, places: usize) -> usize {
        let shapes = self.shapes.iter().map(|shape| shape.halves(places));
        shapes.fold(batches * self.quota, usize::max)
    }

    /// How many blocks of this shape find no room because of this stream, at most.
    fn keeps_out(&self, batches: usize, shape: Shape) -> usize {
        let batches = batches * self.quota * (shape.each - shape.half());
        let kernels = self.shapes.iter();
        let kernels = kernels.map(|own| own.blocks.saturating_mul(shape.each.div_ceil(own.each)));
        kernels.fold(batches, usize::max)
    }
}

impl Owners {
    /// For a process that has so many multiprocessors to itself.
    pub(crate) fn new(multiprocessors: usize, early: Early) -> Self {
        Owners {
            multiprocessors,
            places: multiprocessors,
            // A batch that begins early when nothing in front of it waits any more keeps nobody out for long.
            batches: if early == Early::Resident { 2 } else { 1 },
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
        let others = self.batches * granted.saturating_sub(quotas);
        let each = self.all.iter();
        let halves = each.map(|owner| owner.halves(self.batches, self.places));
        let halves = halves.fold(others + 1, usize::saturating_add);
        let has_room = |owner: &Owner, shape: Shape| {
            let beside = self.all.iter().filter(|other| other.stream != owner.stream);
            let kept_out = beside.map(|other| other.keeps_out(self.batches, shape));
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

    #[test]
    fn a_batch_fits_beside_a_kernel_on_whatever_size_of_shared_memory() {
        let all = [8, 16, 32, 64, 100, 132, 164, 196, 228].map(|size| size << 10);
        for sizes in [&all[..], &all[..7], &all[..5], &[32 << 10, 64 << 10]] {
            let memory = SharedMemory {
                sizes: sizes.to_vec(),
                reserved: 1024,
            };
            let most = sizes[sizes.len() - 1];
            for asked in (0..most - 2048).step_by(300) {
                let got = shared(8, asked, &memory);
                assert!(got >= asked);
                let block = (got + 8 + 1024).next_multiple_of(128);
                let each = most / block;
                assert!(each > 0, "{asked}");
                let half = Shape { blocks: 1, each }.half();
                for size in sizes {
                    for here in (1..=half).take_while(|here| here * block <= *size) {
                        assert!(
                            size - here * block >= BESIDE,
                            "{asked} {got} {here} on {size}"
                        );
                    }
                }
            }
        }
        // Where the shared memory has one size, nothing is added.
        assert_eq!(shared(8, 300, &SharedMemory::default()), 300);
    }

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

    /// Whether a kernel of one more stream fits.
    fn fits(owners: &Owners, blocks: usize, each: usize, quota: usize, granted: usize) -> bool {
        let mut owners = owners.clone();
        owners.add(7, Shape { blocks, each }, quota);
        owners.fit(granted)
    }

    #[test]
    fn a_kernel_leaves_room_wherever_its_blocks_stand() {
        let mut owners = Owners::new(132, Early::Launch);
        // Alone, it leaves half a multiprocessor.
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

    #[test]
    fn a_stream_has_two_batches_where_early_ones_are_resident() {
        let mut owners = Owners::new(132, Early::Resident);
        // A kernel alone comes behind the batches of its stream, so they take nothing from it.
        assert!(fits(&owners, 131, 1, 49, 49) && !fits(&owners, 132, 1, 49, 49));
        assert!(fits(&owners, 263, 2, 99, 99) && !fits(&owners, 264, 2, 99, 99));
        // The other stream has two batches, which take 98 halves.
        assert!(fits(&owners, 165, 2, 49, 98) && !fits(&owners, 166, 2, 49, 98));
        assert!(fits(&owners, 199, 4, 49, 98) && !fits(&owners, 200, 4, 49, 98));
        assert!(fits(&owners, 34, 1, 49, 98) && !fits(&owners, 35, 1, 49, 98));
        // So do the batches of a stream whose kernel is smaller.
        let small = |blocks| Shape { blocks, each: 1 };
        owners.add(3, small(34), 49);
        assert!(fits(&owners, 34, 1, 49, 98) && !fits(&owners, 35, 1, 49, 98));
        // A larger kernel counts in their place.
        owners.remove(3);
        owners.add(3, small(60), 24);
        assert!(fits(&owners, 71, 1, 24, 48) && !fits(&owners, 72, 1, 24, 48));
    }

    /// Two processes, each with half of the multiprocessors. The blocks of both may stand on all of them.
    #[test]
    fn blocks_are_counted_on_the_multiprocessors_of_all_processes() {
        let mut owners = Owners::new(132, Early::Resident);
        owners.multiprocessors = 66;
        for each in [2, 3, 4, 16] {
            // Each takes a half, and one half is left.
            assert!(fits(&owners, 131, each, 24, 24), "{each}");
            assert!(!fits(&owners, 132, each, 24, 24), "{each}");
            // Another stream has two batches of 24 blocks.
            assert!(fits(&owners, 83, each, 24, 48), "{each}");
            assert!(!fits(&owners, 84, each, 24, 48), "{each}");
        }
        // Two such kernels of two processes find room beside each other, and leave two halves.
        for [one, other] in [[2, 4], [3, 3], [16, 2]] {
            let taken = [one, other].map(|each| Shape { blocks: 131, each }.halves(132));
            assert_eq!(taken.iter().sum::<usize>(), 2 * 132 - 2);
        }
    }
}
