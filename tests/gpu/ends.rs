//! Epochs at the end of their counters, eager and replayed.

use super::common::ranks;
use crate::vendor::prelude::*;
use tidegate::error::EpochError;

/// The most epochs of a window.
const MOST: u64 = (1 << 36) - (1 << 20);

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn the_last_epochs_are_carried_out_and_no_other() {
    ranks(2, |world, _| {
        let (rank, other) = (world.rank() as u64, 1 - world.rank());
        stream!(let s = world.stream().unwrap());
        let on = |value: u64| {
            Region::from_slice(&world, &[value; 64])
                .unwrap()
                .on(&s)
                .unwrap()
        };
        let mut window = SlotWindow::<u64>::new("last").after_epochs(MOST - 8);
        window.slot_from(other, 0, 64);
        let to = window.slot_to(other, 0);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        for number in 0..4 {
            let src = on(10 * number + rank);
            let mut epoch = outbox.start();
            epoch.put(&src, to).unwrap();
            (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
        }
        let (graph, lent) = s
            .capture((inbox, outbox, on(70 + rank)), |s, (inbox, outbox, src)| {
                let mut epoch = outbox.start();
                epoch.put(&src, to)?;
                let (inbox, outbox) = exchange(s, inbox, epoch)?;
                Ok((inbox, outbox, src))
            })
            .unwrap();
        let refused = graph.try_replay(&s, lent, 5).expect_err("four are left");
        assert!(
            matches!(refused.error, Error::Epoch(EpochError::LastEpoch { .. })),
            "{}",
            refused.error
        );
        let lent = graph.replay(&s, refused.value, 4).unwrap();
        let error = graph.replay(&s, lent, 1).expect_err("none is left");
        assert!(
            matches!(error, Error::Epoch(EpochError::LastEpoch { .. })),
            "{error}"
        );
        let _: &Stream<'_> = &s;
        s.synchronize().unwrap();
    });
}
