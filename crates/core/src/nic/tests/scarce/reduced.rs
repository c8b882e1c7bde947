//! All-reduces on a device that refuses the first batch of a call, or a later one.

use super::*;

type Reduce<'s> = AllReduce<'s, u64, Strapped>;

/// Ranks that reach each other in memory, and ranks whose NICs read the vectors directly.
fn both_ways(program: impl Fn(World<Strapped>, bool) + Sync) {
    for by_nic in [false, true] {
        let options = |_| match by_nic {
            true => WorldOptions::new()
                .nic(Loopback::default())
                .route(Route::Nic),
            false => WorldOptions::new(),
        };
        World::local_with(3, options, |world| program(world, by_nic));
    }
}

/// The limit is there only so that a failing test does not hang.
fn open<'s>(s: &Stream<'s, Strapped>) -> Reduce<'s> {
    let reduce = AllReduce::open(s, "energy", LEN, Op::Sum).unwrap();
    reduce.fail_after(Duration::from_secs(30))
}

#[test]
fn what_is_refused_in_advance_can_be_enqueued_again() {
    both_ways(|world, _| {
        crate::stream!(let s = world.stream().unwrap());
        let (mut reduce, mut x) = (open(&s), fill(&s, 1));
        // The device refuses when it is asked for the last batch, before any has been submitted.
        for lacking in [Lack::Room, Lack::Nothing, Lack::RoomToAccumulate] {
            if lacking != Lack::Nothing && world.rank() == 1 {
                s.raw().lacks.set(lacking);
                let error = reduce.enqueue(&s, &mut x).unwrap_err();
                let exhausted = matches!(error, Error::Device(DeviceError::Exhausted { .. }));
                assert!(exhausted, "{error}");
                s.raw().lacks.set(Lack::Nothing);
            }
            reduce.enqueue(&s, &mut x).unwrap();
        }
        assert_eq!(*x.into_host(&s).unwrap(), [27; LEN]);
    });
}

/// With NICs, a call has a third batch, between the two.
#[test]
fn a_wait_for_reads_of_the_vector_that_is_refused_is_refused_in_advance() {
    both_ways(|world, by_nic| {
        crate::stream!(let s = world.stream().unwrap());
        let (mut reduce, mut x) = (open(&s), fill(&s, 1));
        // This is tried at first, and again after a call has succeeded.
        for _ in 0..2 {
            s.raw().lacks.set(Lack::RoomToWait);
            if by_nic && world.rank() == 1 {
                let error = reduce.enqueue(&s, &mut x).unwrap_err();
                let exhausted = matches!(error, Error::Device(DeviceError::Exhausted { .. }));
                assert!(exhausted, "{error}");
            }
            s.raw().lacks.set(Lack::Nothing);
            reduce.enqueue(&s, &mut x).unwrap();
        }
        assert_eq!(*x.into_host(&s).unwrap(), [9; LEN]);
    });
}

/// The cause in the error that this leads to.
fn is_of_rank_1(error: &Error) -> bool {
    let cause = match error {
        Error::Revoked { window, cause } if &*window.name == "energy" => cause,
        Error::Wait(failed)
            if failed
                .window
                .as_ref()
                .is_some_and(|window| &*window.name == "energy") =>
        {
            &failed.cause
        }
        _ => return false,
    };
    matches!(cause, Cause::NotEnqueued { rank: 1, reason } if reason.contains("it is broken"))
}

/// By then the others count on this rank's part. They hear that there will be no next call.
#[test]
fn a_device_that_refuses_a_later_batch_revokes_the_all_reduce() {
    // The batches: the exchange, with NICs the wait for their reads of the vector, and the moves.
    for (batch, only_by_nic) in [(2, false), (3, true)] {
        let told = [const { AtomicU64::new(0) }; 2];
        let all_have_ended = std::sync::Barrier::new(3);
        both_ways(|world, by_nic| {
            if only_by_nic && !by_nic {
                return;
            }
            crate::stream!(let s = world.stream().unwrap());
            let (mut reduce, mut x) = (open(&s), fill(&s, 1));
            reduce.enqueue(&s, &mut x).unwrap();
            s.synchronize().unwrap();
            // A rank may end its part of the first call while the others still wait for each other. The revocation of
            // the second call would end those waits, too.
            all_have_ended.wait();
            let told = &told[usize::from(by_nic)];
            let begun = Instant::now();
            if world.rank() != 1 {
                let error = loop {
                    match reduce.enqueue(&s, &mut x).and_then(|()| s.synchronize()) {
                        Ok(()) => assert!(begun.elapsed() < LONG, "nobody says so"),
                        Err(error) => break error,
                    }
                };
                assert!(is_of_rank_1(&error), "{error}");
                told.fetch_add(1, Ordering::SeqCst);
                return;
            }
            s.raw().lacks.set(Lack::Later(batch));
            let error = reduce.enqueue(&s, &mut x).unwrap_err();
            let broken = matches!(error, Error::Device(DeviceError::System { .. }));
            assert!(broken, "{error}");
            assert_eq!(s.raw().lacks.get(), Lack::Later(1), "it was another batch");
            s.raw().lacks.set(Lack::Nothing);
            let again = reduce.enqueue(&s, &mut x).unwrap_err();
            assert!(is_of_rank_1(&again), "{again}");
            // The vector is not reduced. Whether the epoch ended before it was revoked depends on the time.
            match x.into_host(&s) {
                Ok(x) => assert_eq!(*x, [3; LEN]),
                Err(error) => assert!(is_of_rank_1(&error), "{error}"),
            }
            while told.load(Ordering::SeqCst) != 2 {
                assert!(begun.elapsed() < LONG, "the others wait");
                std::thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

#[test]
fn a_stream_with_few_lanes_takes_more_stages() {
    both_ways(|world, _| {
        crate::stream!(let s = world.stream().unwrap());
        // One peer takes three lanes, and a copy beside them one. So there is one stage for both peers, or for each
        // one.
        for lanes in [7, 6, 4] {
            s.raw().lacks.set(Lack::Lanes(lanes));
            let (mut reduce, mut x) = (open(&s), fill(&s, 1));
            reduce.enqueue(&s, &mut x).unwrap();
            assert_eq!(*x.into_host(&s).unwrap(), [3; LEN]);
            s.raw().lacks.set(Lack::Nothing);
        }
    });
}
