//! How the blocks of a stream's quota are divided among the lanes of a batch.
//!
//! # Model
//!
//! A lane that moves or folds much gets as many blocks as its units keep busy. If there are too few blocks, each such
//! lane gets one, and the remaining blocks are divided by size. Small lanes get a warp each, and share the blocks that
//! are reserved for warps. Landings come last: if there is no block for a landing, the put goes another way, or takes
//! longer.
//!
//! # Failure
//!
//! A batch with more lanes than the quota can hold at a time is refused.

use tidegate_hal::device::DeviceError;

use super::lane::{Lane, Sizes};
use super::{
    LANE_CHECKS, LANE_COUNTED, LANE_LISTED, LANE_REDUCES, LANE_STEPS, MOST_BLOCKS, reductions, rows,
};

/// The most blocks of a lane that rings, whose copies go to memory of the host: two blocks fill the bus. (A lane that
/// rings in parts has one block, because each part reports what has been copied. For linear copies one block is faster
/// than the wires that were measured; copies that are gathered by shapes would gain from two.)
const MOST_TO_HOST: u64 = 2;

impl Sizes {
    /// How many blocks of a quota carry out `lanes` lanes with warps: as many as are of use, up to a quarter of the
    /// quota, but enough for all lanes.
    pub(super) fn small_blocks(&self, lanes: usize, quota: u64) -> u64 {
        let least = lanes.div_ceil(self.warps) as u64;
        let most = lanes.div_ceil(self.spread) as u64;
        most.min(quota / 4).max(least)
    }
}

impl Lane {
    /// Whether the lane's bytes land, and are more than a warp moves at a time.
    pub(super) fn lands_on_a_block(&self, sizes: Sizes) -> bool {
        let warp = 8 * sizes.threads / sizes.warps;
        self.landing.is_some_and(|lands| lands.count > warp as u64)
    }
}

/// Gives blocks to the lanes that move much.
pub(super) fn share_out(lanes: &mut [Lane], quota: u64, sizes: Sizes) -> Result<(), DeviceError> {
    let small = |lane: &Lane| match lane.reductions {
        0 => sizes.small,
        _ => sizes.small.min(reductions::SMALL),
    };
    // The size of a lane, and whether a warp is too small for it. The size is counted in units, of which a thread has
    // one. Listed units may be small, so there they are counted by bytes: a thread has several of them on their way at
    // a time, and each waiting block takes half a multiprocessor from everything else that runs.
    let size = |lane: &Lane| match lane.short.kind {
        // Each thread has pairs of eight bytes. A warp would take longer, since its threads also wait for all ranks.
        _ if lane.folds() => (lane.short.count.div_ceil(8), true),
        _ if lane.landing.is_some() => (1, lane.lands_on_a_block(sizes)),
        kind if kind & LANE_LISTED != 0 => (
            (lane.short.count << lane.short.unit).div_ceil(16),
            lane.short.count > sizes.small_listed,
        ),
        kind if kind & (LANE_STEPS | LANE_CHECKS | LANE_REDUCES | LANE_COUNTED) == 0 => {
            let units = lane.short.count + u64::from(lane.short.tail != 0);
            (units, units > sizes.small)
        }
        _ => (
            lane.units,
            lane.units > small(lane) || lane.copies >= rows::ROW,
        ),
    };
    let amount = |lane: &Lane| size(lane).0;
    let is_large = |lane: &Lane| size(lane).1;
    let mut large: Vec<usize> = (0..lanes.len())
        .filter(|lane| is_large(&lanes[*lane]))
        .collect();
    large.sort_unstable_by_key(|lane| std::cmp::Reverse(amount(&lanes[*lane])));
    let wanted = |lane: &Lane| {
        let most = match lane {
            lane if lane.folds() => MOST_BLOCKS,
            Lane { whole: true, .. }
            | Lane {
                landing: Some(_), ..
            } => 1,
            Lane { rings: true, .. } => MOST_TO_HOST,
            _ => MOST_BLOCKS,
        };
        amount(lane).div_ceil(sizes.threads as u64).clamp(1, most)
    };
    let total = |large: &[usize]| large.iter().map(|lane| wanted(&lanes[*lane])).sum::<u64>();
    let all = lanes.len();
    let warps = |large: usize| sizes.small_blocks(all - large, quota);
    // Landings get blocks if they are few, or if they take no block from another lane and are not too many. When half
    // of the blocks were for landings, eight ranks on two GPUs took a third longer for their faces.
    let lands = |lane: &usize| lanes[*lane].landing.is_some() && !lanes[*lane].folds();
    let landings = large.iter().filter(|lane| lands(lane)).count() as u64;
    let fits = warps(large.len()) + total(&large) <= quota;
    if 8 * landings > quota && !(fits && 3 * landings <= quota) {
        large.retain(|lane| !lands(lane));
    }
    // If there is not a block for each lane, the smaller lanes are left to warps.
    while !large.is_empty() && warps(large.len()) + large.len() as u64 > quota {
        large.pop();
    }
    let rest = quota
        .checked_sub(warps(large.len()))
        .ok_or_else(|| DeviceError::Exhausted {
            what: "blocks that may wait on the device",
            detail: format!(
                "a batch of {} lanes needs more than the {quota} of its stream",
                lanes.len()
            ),
        })?;
    let total = total(&large);
    for lane in &large {
        let wanted = wanted(&lanes[*lane]);
        lanes[*lane].blocks = if total <= rest {
            wanted
        } else {
            // Each lane has one block, and the remaining blocks are divided by size. This rounds down, so that the sum
            // fits.
            let spare = rest - large.len() as u64;
            1 + (wanted - 1) * spare / (total - large.len() as u64).max(1)
        };
    }
    Ok(())
}
