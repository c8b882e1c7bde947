//! Lanes whose few bytes land with tags beside them.

use super::*;

/// A warp carries out a landing with at most 8 bytes for each of its threads; a block carries out a larger one. A put
/// without a block uses a fence, but the wait still looks for its landing.
#[test]
fn bytes_that_land_have_one_team() {
    let landing = tidegate_hal::batch::Landing {
        base: ptr(0x40_0000),
        flip: 0,
    };
    let lanes = |doubles: usize| {
        let mut copy = copy(doubles);
        copy.landing = Some(landing);
        let mut waits = waiting(0x4000);
        waits.landed = Some(tidegate_hal::batch::Landed {
            from: landing,
            slot: ptr(0x30_0000),
            flip: 0,
            bytes: 8 * doubles,
        });
        vec![
            vec![wait(0x2000), Step::Move(copy), add(0x3000)],
            vec![Step::Wait(waits)],
        ]
    };
    let kinds = |program: &Program| -> Vec<(u8, u16)> {
        let records = program.records().into_iter().zip(0..);
        let lane = |(record, index): (Record, usize)| {
            let at = index * program.stride + size_of::<Record>();
            (0..usize::from(record.lanes)).map(move |lane| {
                let at = at + lane * size_of::<ShortLane>();
                (record.team, read::<ShortLane>(&program.bytes[at..]).kind)
            })
        };
        records.flat_map(lane).collect()
    };
    let (puts, waits) = (
        LANE_WAITS | LANE_COPIES | LANE_ADDS,
        LANE_WAITS | LANE_LANDS,
    );
    let of = |doubles, quota| kinds(&program(lanes(doubles), quota).unwrap());
    let both = |team| vec![(team, puts | LANE_LANDS), (team, waits)];
    assert_eq!(of(32, 16), both(TEAM_WARPS));
    assert_eq!(of(33, 16), both(TEAM_BLOCKS));
    assert_eq!(of(512, 16), both(TEAM_BLOCKS));
    let warps = [(TEAM_WARPS, puts), (TEAM_WARPS, waits)];
    assert_eq!(of(33, 1), warps);
    // A landing takes no block from lanes that have too few.
    let long = [
        lanes(33),
        vec![vec![wait(0x5000), put(10_000), add(0x6000)]],
    ]
    .concat();
    let beside = |quota| kinds(&program(long.clone(), quota).unwrap());
    let blocks = |number| vec![(TEAM_BLOCKS, puts); number];
    assert_eq!(beside(11), [&warps[..], &blocks(9)].concat());
    assert_eq!(beside(12), [both(TEAM_BLOCKS), blocks(10)].concat());
    // A few landings come before a very long lane; many never get more than a third.
    let long = [
        lanes(33),
        vec![vec![wait(0x5000), put(1 << 20), add(0x6000)]],
    ]
    .concat();
    let beside = |quota| kinds(&program(long.clone(), quota).unwrap());
    assert_eq!(beside(15)[..2], warps);
    assert_eq!(beside(16), [both(TEAM_BLOCKS), blocks(14)].concat());
    let many: Vec<_> = (0..4).flat_map(|_| lanes(33)).collect();
    let many = |quota| teams(&program(many.clone(), quota).unwrap());
    assert_eq!((many(24), many(23)), ([0, 8], [5, 0]));
}

/// The thread that finds landed bytes copies them. So behind such a wait a lane can only have a copy of the whole slot.
#[test]
fn landed_bytes_are_copied_as_they_are_found() {
    let landed = tidegate_hal::batch::Landed {
        from: tidegate_hal::batch::Landing {
            base: ptr(0x40_0000),
            flip: 64,
        },
        slot: ptr(0x30_0000),
        flip: 128,
        bytes: 24,
    };
    let lane = |change: fn(&mut Move)| {
        let (mut waits, mut copy) = (waiting(0x4000), copy(3));
        waits.landed = Some(landed);
        (copy.src.base, copy.src.flip) = (landed.slot, landed.flip);
        (copy.parity, copy.early) = (waits.operand, false);
        change(&mut copy);
        vec![Step::Wait(waits), Step::Move(copy)]
    };
    let to = |lane: Vec<Step>| {
        let lowered = program(vec![lane], 8)?;
        let short = first(&lowered);
        assert_eq!(short.kind, LANE_WAITS | LANE_LANDS);
        Ok::<_, DeviceError>(short.out)
    };
    let place = lane(|copy| copy.dst.base = ptr(0x7004));
    assert_eq!(to(place).unwrap(), 0x7004);
    assert_eq!(to(lane(|_| {})[..1].to_vec()).unwrap(), 0);
    for refused in [
        lane(|copy| copy.dst.base = ptr(0x7002)),
        lane(|copy| copy.dst.flip = 128),
        lane(|copy| copy.src.base = ptr(0x30_0008)),
        lane(|copy| copy.src.flip = 64),
        lane(|copy| copy.count = 2),
        lane(|copy| copy.parity = ptr(0x9000)),
        [lane(|_| {}), vec![add(0x3000)]].concat(),
        [lane(|_| {}), lane(|_| {})[1..].to_vec()].concat(),
    ] {
        assert!(matches!(to(refused), Err(DeviceError::Unsupported { .. })));
    }
}
