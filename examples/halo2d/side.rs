//! A side of the block, in the form that the kernels of `jacobi_gpu` and `jacobi_persistent_gpu` read.

use tidegate::Element;

use crate::block::Block;

/// The first of the outermost unknowns, the first ghost beyond them, the number of each, and the distance from each to
/// the next.
#[derive(Clone, Copy, Element)]
#[repr(C)]
pub(crate) struct Side {
    edge: u64,
    ghosts: u64,
    count: u64,
    stride: u64,
}

impl Side {
    /// The sides of a block with a neighbour, in the order of their slots.
    pub(crate) fn all(block: &Block) -> Vec<Side> {
        let side = |side: &crate::block::Side| Side {
            edge: side.edge as u64,
            ghosts: side.ghosts as u64,
            count: side.count as u64,
            stride: side.stride as u64,
        };
        block.sides.iter().map(side).collect()
    }
}
