//! A batch with more lanes than a block has waves. Its lanes are dealt to blocks by the width of the device's waves,
//! and the kernel takes its width from its code: if they differ, some lanes are never carried out.

use std::time::Duration;

use super::common::ranks_with;
use crate::vendor::prelude::*;

/// An exchange has three lanes for each of the others: more than 16, which is how many waves of 32 threads a block has.
const RANKS: usize = 7;

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn blocks_carry_out_a_lane_with_each_wave() {
    // With so many streams each has few blocks, so a block gets several lanes.
    let options = |_| WorldOptions::new().waiting_streams(16);
    ranks_with(RANKS, options, |world, k| {
        let rank = world.rank();
        let others = || (0..RANKS).filter(|other| *other != rank);
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("all").fail_after(Duration::from_secs(60));
        let from: Vec<_> = others()
            .map(|other| window.slot_from(other, 0, 1))
            .collect();
        let to: Vec<_> = others().map(|other| window.slot_to(other, 0)).collect();
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let mut came = Region::<u64, _>::zeroed(&world, 1).unwrap();
        for round in 0..4 {
            let src: Vec<u64> = others().map(|other| value(rank, other, round)).collect();
            let src = Region::from_slice(&world, &src).unwrap().on(&s).unwrap();
            let mut epoch = outbox.start();
            for (at, to) in to.iter().enumerate() {
                let one = src.slice(at..at + 1).unwrap();
                epoch.put(one, *to).unwrap();
            }
            // As one batch, and as three.
            if round % 2 == 0 {
                (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
            } else {
                let exposed = inbox.post(&s).unwrap();
                outbox = epoch.complete(&s).unwrap();
                inbox = exposed.wait(&s).unwrap();
            }
            for (other, from) in others().zip(&from) {
                let mut there = came.on(&s).unwrap();
                let slot = u64::from(from.index());
                s.launch(k.copy_slot.threads(1, 32), (inbox.view(), slot, &mut there))
                    .unwrap();
                came = there.into_host(&s).unwrap();
                let mut found = [0];
                came.read(0, &mut found).unwrap();
                assert_eq!(found, [value(other, rank, round)], "{other} to {rank}");
            }
        }
    });
}

/// The number that a rank sends to another.
fn value(from: usize, to: usize, round: u64) -> u64 {
    (from * RANKS + to) as u64 * 10 + round
}
