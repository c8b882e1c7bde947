//! Teams over windows of MPI: they make collective calls, and open nothing.

use tidegate::error::TeamError;
use tidegate::host::prelude::*;

/// What teams open is refused on all of their ranks, and nothing is lost: their calls go on, and so does the world.
pub(crate) fn refused(world: World) {
    let (me, size) = (world.rank(), world.size());
    stream!(let s = world.stream().unwrap());
    let mut x = Region::from_slice(&world, &[me as u64])
        .unwrap()
        .on(&s)
        .unwrap();
    let part = world.split("parity", me % 2, size - me).unwrap().unwrap();
    let all: Vec<_> = (0..size).rev().collect();
    let turned = world.team("turned", &all).unwrap();
    for team in [part, turned] {
        let is_refused = |error: Error| {
            let named = matches!(&error, Error::Team(TeamError::Transport { team: name }) if **name == *team.name());
            assert!(named, "{error}");
        };
        let (left, right) = team.ring();
        let mut window = SlotWindow::<u64>::new("halo");
        window.slot_from(left, 0, 1);
        window.slot_to(right, 0);
        is_refused(window.open(&team.on(&s)).map(drop).unwrap_err());
        let atomic = AtomicWindow::<u64>::new("atomic", 1);
        is_refused(atomic.open(&team.on(&s)).map(drop).unwrap_err());
        is_refused(
            Barrier::open(&team.on(&s), "barrier")
                .map(drop)
                .unwrap_err(),
        );
        let sum = AllReduce::<u64>::open(&team.on(&s), "sum", 1, Op::Sum);
        is_refused(sum.map(drop).unwrap_err());
        is_refused(AllReduce::once(&team.on(&s), &mut x, Op::Sum).unwrap_err());
        let ranks = team.all_gather("ranks", vec![me as u8]).unwrap();
        let expected = team.ranks().into_iter().map(|rank| vec![rank as u8]);
        assert!(ranks.into_iter().eq(expected));
    }
    let mut sum = AllReduce::open(&world.everyone().on(&s), "sum", 1, Op::Sum).unwrap();
    sum.enqueue(&s, &mut x).unwrap();
    let expected = (size * (size - 1) / 2) as u64;
    assert_eq!(x.into_host(&s).unwrap()[..], [expected]);
}
