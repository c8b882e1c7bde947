//! The elements of a layout in their order, as ranks tell each other.

use serde::{Deserialize, Serialize};
use tidegate_hal::batch::Shape;
use tidegate_hal::device::Device;

use super::Layout;
use crate::error::Result;
use crate::world::World;

/// The elements of a layout, in its order. (A footprint is only the set.)
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Order {
    Nest {
        first: usize,
        loops: Vec<(u32, i32)>,
    },
    /// The first element and the end of each run.
    Runs(Vec<(usize, usize)>),
}

impl Order {
    /// How many runs are sent with it.
    pub(crate) fn listed(&self) -> usize {
        match self {
            Order::Nest { .. } => 0,
            Order::Runs(runs) => runs.len(),
        }
    }
}

impl<D: Device> Layout<D> {
    /// The order of the elements. `None` if it is ascending, without gaps.
    pub(crate) fn order(&self) -> Option<Order> {
        match self.shape() {
            (_, Shape::Linear) => None,
            (first, Shape::Strided { dims, rank }) => {
                let loops = dims[..rank as usize].to_vec();
                Some(Order::Nest { first, loops })
            }
            (_, Shape::Indexed { .. }) => Some(Order::Runs(self.runs().collect())),
        }
    }

    /// The layout of elements in this order, which may come from a peer.
    ///
    /// # Errors
    ///
    /// Those of [`Layout::strided`] and [`Layout::indexed`].
    pub(crate) fn of_order(world: &World<D>, order: &Order) -> Result<Self> {
        match order {
            Order::Nest { first, loops } => Self::strided(*first, loops),
            Order::Runs(runs) => {
                let elements = runs.iter().flat_map(|&(first, end)| first..end);
                // An index of more than 32 bits is none of the footprint that it is compared with.
                let indices = elements.map(|element| u32::try_from(element).unwrap_or(u32::MAX));
                Self::indexed(world, &indices.collect::<Vec<_>>())
            }
        }
    }
}
