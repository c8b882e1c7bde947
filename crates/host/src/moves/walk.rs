//! Shapes that have no loops in common, such as tables of indices. They are walked run by run.

use tidegate_hal::batch::Shape;

/// Walks through the elements of a side, by runs of neighbours.
struct Walk<'a> {
    shape: &'a Shape,
    left: usize,
    /// The turn of each loop of a strided shape.
    at: [u32; Shape::MAX_DIMS],
    /// Index of the next element of a linear or indexed shape.
    next: usize,
    /// Offset of the next element of a strided shape.
    offset: isize,
}

impl<'a> Walk<'a> {
    fn new(shape: &'a Shape, count: usize) -> Self {
        Walk {
            shape,
            left: count,
            at: [0; Shape::MAX_DIMS],
            next: 0,
            offset: 0,
        }
    }

    /// The offset of the next element, and the length of the contiguous run that begins with it; 0 at the end.
    ///
    /// # Safety
    ///
    /// An index table is live for all elements.
    unsafe fn run(&self) -> (isize, usize) {
        match *self.shape {
            Shape::Linear => (self.next as isize, self.left),
            Shape::Strided { dims, .. } => {
                let (count, stride) = dims[0];
                let more = if stride == 1 {
                    (count - self.at[0]) as usize
                } else {
                    1
                };
                (self.offset, more.min(self.left))
            }
            Shape::Indexed { table } => {
                if self.left == 0 {
                    return (0, 0);
                }
                // SAFETY: the caller promises `count` entries, and `left` of them remain from `next` on.
                (
                    unsafe { table.0.cast::<u32>().add(self.next).read() } as isize,
                    1,
                )
            }
        }
    }

    /// Goes on by `count` elements, at most the length that [`Walk::run`] returned.
    fn advance(&mut self, count: usize) {
        self.left -= count;
        match *self.shape {
            Shape::Linear | Shape::Indexed { .. } => self.next += count,
            Shape::Strided { dims, rank } => {
                self.at[0] += count as u32;
                self.offset += count as isize * dims[0].1 as isize;
                for loop_ in 0..rank as usize {
                    let (count, stride) = dims[loop_];
                    if self.at[loop_] < count {
                        break;
                    }
                    self.at[loop_] = 0;
                    self.offset -= count as isize * stride as isize;
                    if let Some((_, stride)) = dims[..rank as usize].get(loop_ + 1) {
                        self.at[loop_ + 1] += 1;
                        self.offset += *stride as isize;
                    }
                }
            }
        }
    }
}

/// Calls `each` for every stretch that is contiguous on both sides of a copy of `count` elements, in order. It gets the
/// offset of the stretch on both sides (in elements from the base), and its length.
///
/// # Safety
///
/// Index tables are live for all elements.
pub(super) unsafe fn for_each_stretch(
    from: &Shape,
    to: &Shape,
    count: usize,
    mut each: impl FnMut(isize, isize, usize),
) {
    let (mut from, mut to) = (Walk::new(from, count), Walk::new(to, count));
    while from.left > 0 {
        // SAFETY: the caller's promise.
        let ((a, n), (b, m)) = unsafe { (from.run(), to.run()) };
        let run = n.min(m);
        each(a, b, run);
        from.advance(run);
        to.advance(run);
    }
}
