//! All-reduces that are refused, and what happens to an all-reduce when a rank ends.

use super::*;

#[test]
fn ranks_that_disagree_all_get_an_error() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let last = world.rank() == 2;
        let refused = |opened: Result<()>, said: [&str; 2]| {
            let error = opened.unwrap_err();
            assert!(
                matches!(error, Error::Open(WindowError::Disagreement { .. })),
                "{error}"
            );
            let text = error.to_string();
            assert!(said.iter().all(|part| text.contains(part)), "{text}");
        };
        let one = |name: &str, len| AllReduce::<f64, Host>::open(&s, name, len, Op::Sum).map(drop);
        // Rank 1 asks for fewer elements, and then for more. Neither is accepted.
        for (mine, theirs) in [(1, 4), (4, 1)] {
            let said = ["an all-reduce of 4 elements", "an all-reduce of 1 element"];
            refused(one("energy", if last { theirs } else { mine }), said);
        }
        refused(
            one(if last { "energy" } else { "norm" }, 1),
            ["energy", "norm"],
        );
        let opened = match last {
            true => AllReduce::<f32, Host>::open(&s, "energy", 1, Op::Sum).map(drop),
            false => one("energy", 1),
        };
        refused(opened, ["f32", "f64"]);
        let by = |op| AllReduce::<f64, Host>::open(&s, "energy", 2, op).map(drop);
        let said = [
            "an all-reduce of 2 elements by `Op::Min`",
            "an all-reduce of 2 elements by `Op::Max`",
        ];
        refused(by(if last { Op::Max } else { Op::Min }), said);
        // A window with the same name and shape is not an all-reduce.
        let opened = match last {
            true => {
                let mut window = SlotWindow::<f64>::new("energy");
                for rank in 0..3 {
                    window.slot_from(rank, 0, 1);
                    window.slot_to(rank, 0);
                }
                window.open(&s).map(drop)
            }
            false => one("energy", 1),
        };
        refused(opened, ["an all-reduce of 1 element", "a window"]);
        // Only one all-reduce at a time can have a name.
        let held = open::<f64>(&s, 1, Op::Sum);
        let error = one("energy", 1).unwrap_err();
        assert!(
            matches!(error, Error::Open(WindowError::NameTaken { .. })),
            "{error}"
        );
        drop(held);
        one("energy", 1).unwrap();
    });
}

#[test]
fn operations_that_the_elements_do_not_have_are_refused() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let error = AllReduce::<f32, Host>::open(&s, "energy", 2, Op::BitOr).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Open(WindowError::NotForFloats { op: Op::BitOr, .. })
            ),
            "{error}"
        );
        assert!(error.to_string().contains("`energy`"), "{error}");
        // If only one rank asks for it, all ranks hear of that.
        let op = if world.rank() == 1 {
            Op::BitOr
        } else {
            Op::Sum
        };
        let error = AllReduce::<f32, Host>::open(&s, "energy", 2, op).unwrap_err();
        assert!(error.to_string().contains("BitOr"), "{error}");
        drop(open::<f32>(&s, 2, Op::Sum));
    });
}

#[test]
fn vectors_of_too_many_pieces_are_refused() {
    World::<Host>::local(1, |world| {
        stream!(let s = world.stream().unwrap());
        for len in [(1 << 31) + 1, usize::MAX] {
            let opened = AllReduce::<f64, Host>::open(&s, "energy", len, Op::Sum);
            let error = opened.err().unwrap();
            let is_named = error.to_string().contains("collective `energy`: ");
            let is_typed = matches!(error, Error::Open(WindowError::TooLong { .. }));
            assert!(is_typed && is_named, "{error}");
        }
    });
}

#[test]
fn of_a_rank_that_is_lost_all_others_hear() {
    let lost = std::panic::catch_unwind(|| {
        World::<Host>::local(3, |world| {
            stream!(let s = world.stream().unwrap());
            let mut reduce = open::<f64>(&s, 1, Op::Sum);
            let mut x = OnHost1::<f64>::zeroed(&world, 1).unwrap().on(&s).unwrap();
            for _ in 0..5 {
                reduce.enqueue(&s, &mut x).unwrap();
            }
            s.synchronize().unwrap();
            if world.rank() == 1 {
                panic!("on purpose");
            }
            // Whether this call is refused, or its wait fails later, depends on the time.
            let error = match reduce.enqueue(&s, &mut x) {
                Ok(()) => s.synchronize().unwrap_err(),
                Err(error) => error,
            };
            let is_typed = match &error {
                Error::Wait(failed) => failed
                    .window
                    .as_ref()
                    .is_some_and(|window| &*window.name == "energy"),
                Error::Revoked { window, .. } => &*window.name == "energy",
                _ => false,
            };
            assert!(is_typed, "{error}");
            // Some time later it must be refused.
            let begun = Instant::now();
            while reduce.enqueue(&s, &mut x).is_ok() {
                assert!(
                    begun.elapsed() < Duration::from_secs(60),
                    "it is not refused"
                );
                std::thread::sleep(Duration::from_millis(1));
            }
        })
    });
    let panic = lost.expect_err("rank 1 panics");
    assert_eq!(panic.downcast_ref::<&str>(), Some(&"on purpose"));
}

#[test]
fn of_a_rank_that_leaves_all_others_hear() {
    let results = World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let mut reduce = open::<f64>(&s, 1, Op::Sum);
        let mut x = OnHost1::<f64>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        let rounds = if world.rank() == 1 { 2 } else { 3 };
        let mut enqueued = || (0..rounds).try_for_each(|_| reduce.enqueue(&s, &mut x));
        enqueued().and_then(|()| s.synchronize())
    });
    assert!(results[1].is_ok());
    for rank in [0, 2] {
        let text = results[rank].as_ref().unwrap_err().to_string();
        assert!(
            text.contains("window `energy` (number 0), epoch 2"),
            "{text}"
        );
    }
}

#[test]
fn who_is_refused_on_one_rank_is_heard_of_by_the_others() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        // These are too many pieces with one type, and half as many with the other.
        let len = 1 << 18;
        let choice = Choice {
            piece: 16,
            ..Choice::default()
        };
        if world.rank() == 1 {
            let error = AllReduce::<f64, Host>::open_with(&s, "energy", len, Op::Sum, choice)
                .err()
                .unwrap();
            assert!(
                matches!(error, Error::Open(WindowError::TooLong { .. })),
                "{error}"
            );
        } else {
            let error = AllReduce::<f32, Host>::open_with(&s, "energy", len, Op::Sum, choice)
                .err()
                .unwrap();
            assert!(
                matches!(error, Error::Open(WindowError::Disagreement { .. })),
                "{error}"
            );
            let differ = "ranks 0 and 1 disagree about the element type";
            assert!(error.to_string().contains(differ), "{error}");
        }
        let reduce = AllReduce::<f32, Host>::open(&s, "energy", 1, Op::Sum).unwrap();
        assert_eq!(reduce.elements(), 1);
    });
}

#[test]
fn a_limit_ends_calls_in_different_orders() {
    World::<Host>::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        let limit = Duration::from_millis(300);
        let [mut a, mut b] = ["a", "b"]
            .map(|name| AllReduce::<f64, Host>::open(&s, name, 1, Op::Sum).unwrap())
            .map(|reduce| reduce.fail_after(limit));
        let mut x = Region::from_slice(&world, &[1.0]).unwrap().on(&s).unwrap();
        let (first, second) = match world.rank() {
            0 => (&mut a, &mut b),
            _ => (&mut b, &mut a),
        };
        first.enqueue(&s, &mut x).unwrap();
        // The other one may be revoked by now.
        let _ = second.enqueue(&s, &mut x);
        let error = s.synchronize().unwrap_err();
        assert!(matches!(error, Error::Wait(_)), "{error}");
    });
}
