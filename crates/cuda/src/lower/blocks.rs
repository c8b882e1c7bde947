//! Who has blocks: how those of a stream's quota are shared by the lanes of a batch.
//!
//! # Model
//!
//! A lane that moves much has one or more, as many as it has threads' work for; if that is more than there are, each has
//! one, and what is left goes by size. Lanes for warps stand together in the blocks that are left for them. Landings come
//! last: what has no block for its landing goes another way, or takes longer.
//!
//! # Failure
//!
//! A batch with more lanes than the quota can hold at a time is refused.

use tidegate_hal::device::DeviceError;

use super::{
    LANE_COUNTED, LANE_LISTED, LANE_REDUCES, LANE_STEPS, Lane, MOST_BLOCKS, Sizes, reductions, rows,
};

/// The most blocks of one lane that rings, whose copies go to memory of the host: so many fill the bus. (One that rings
/// in parts has one, so that each part says what has been copied. For linear copies that is faster than the wires that were
/// seen; what is gathered by shapes would gain from two.)
const MOST_TO_HOST: u64 = 2;

impl Sizes {
    /// The blocks that carry out `lanes` by warps, of a quota: as many as are of use, up to a quarter of the quota, but
    /// no fewer than needed.
    pub(super) fn small_blocks(&self, lanes: usize, quota: u64) -> u64 {
        let least = lanes.div_ceil(self.warps) as u64;
        let most = lanes.div_ceil(self.spread) as u64;
        most.min(quota / 4).max(least)
    }
}

impl Lane {
    /// Whether its bytes land, and are more than a warp moves at a time.
    pub(super) fn lands_on_a_block(&self, sizes: Sizes) -> bool {
        let warp = 8 * sizes.threads / sizes.warps;
        self.landing.is_some_and(|lands| lands.count > warp as u64)
    }
}

/// Gives the lanes that move much their blocks.
pub(super) fn share_out(lanes: &mut [Lane], quota: u64, sizes: Sizes) -> Result<(), DeviceError> {
    // Units, as a thread has one. Of listed ones, which may be small, it has as many bytes as of others: it has several on
    // their way at a time, and blocks that wait keep half a multiprocessor each from whatever else is running. And from how
    // many on a warp is not enough.
    let size = |lane: &Lane| match lane.short.kind {
        _ if lane.landing.is_some() => (1, lane.lands_on_a_block(sizes)),
        kind if kind & LANE_LISTED != 0 => (
            (lane.short.count << lane.short.unit).div_ceil(16),
            lane.short.count > sizes.small_listed,
        ),
        kind if kind & (LANE_STEPS | LANE_REDUCES | LANE_COUNTED) == 0 => {
            let units = lane.short.count + u64::from(lane.short.tail != 0);
            (units, units > sizes.small)
        }
        // Of a reduction, a thread has one element.
        _ => (
            lane.units - (reductions::WORTH - 1) * lane.reduced,
            lane.units > sizes.small || lane.copies >= rows::ROW,
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
    // What lands has blocks if they are few, or taken from nobody and not too many: with half of them for it, eight ranks on
    // two GPUs took a third longer for their faces.
    let lands = |lane: &usize| lanes[*lane].landing.is_some();
    let landings = large.iter().filter(|lane| lands(lane)).count() as u64;
    let fits = warps(large.len()) + total(&large) <= quota;
    if 8 * landings > quota && !(fits && 3 * landings <= quota) {
        large.retain(|lane| !lands(lane));
    }
    // If there is not a block for each, the lesser ones are left to warps.
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
            // Each has one; what is left goes by size. Rounded down, so that the sum fits.
            let spare = rest - large.len() as u64;
            1 + (wanted - 1) * spare / (total - large.len() as u64).max(1)
        };
    }
    Ok(())
}
