//! The work that windows with very many slots take.

use tidegate_hal::control::ControlError;
use tidegate_host::Host;
use tidegate_loopback::Loopback;

use super::super::{SlotWindow, exchange};
use crate::error::{Error, WindowError};
use crate::ground::VISITS;
use crate::{Region, Route, World, WorldOptions};

/// The order in which both ends declare slots.
#[derive(Clone, Copy, Debug)]
enum Order {
    Ascending,
    /// By numbers that are not neighbours, so that the lists are sorted.
    Mixed,
}

/// How often one of two ranks looks at a slot, a route or an operation. It opens a window with so many slots in each
/// direction, and puts to all of them in its first epoch.
fn visits(slots: u64, order: Order, options: impl Fn(usize) -> WorldOptions + Sync) -> usize {
    let key = |index: u64| match order {
        Order::Ascending => index,
        Order::Mixed => index.wrapping_mul(0x9e37_79b9_7f4a_7c15),
    };
    let ranks = World::<Host>::local_with(2, options, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let peer = 1 - world.rank();
        let mut window = SlotWindow::<u32>::new("many");
        let mut to = Vec::new();
        for index in 0..slots {
            window.slot_from(peer, key(index), 2);
            to.push(window.slot_to(peer, key(index)));
        }
        VISITS.set(0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let values: Vec<_> = (0..2 * slots as u32).collect();
        let values = Region::from_slice(&world, &values).unwrap().on(&s).unwrap();
        let mut epoch = outbox.start();
        for (index, to) in to.into_iter().enumerate() {
            let both = values.slice(2 * index..2 * index + 2).unwrap();
            epoch.put(both, to).unwrap();
        }
        let (mut inbox, _outbox) = exchange(&s, inbox, epoch).unwrap();
        let visits = VISITS.get();
        let came = inbox.read(&s).unwrap();
        for (index, slot) in came.iter().enumerate() {
            assert_eq!(slot, [2 * index as u32, 2 * index as u32 + 1]);
        }
        visits
    });
    *ranks.iter().max().expect("there are two")
}

/// What two ranks have to know of each other goes in one letter. If that is too long, both hear of it.
#[test]
fn a_letter_that_is_too_long_leaves_nobody_waiting() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let (rank, mut window) = (world.rank(), SlotWindow::<u8>::new("many"));
        for key in 0..160_000 {
            match rank {
                0 => drop(window.slot_to(1, key)),
                _ => drop(window.slot_from(0, key, 1)),
            }
        }
        let error = window.open(&s).unwrap_err();
        match (rank, &error) {
            (0, Error::Control(ControlError::TooLarge { label, .. })) => {
                assert!(label.contains("rank 1"), "{error}");
            }
            (_, Error::Open(WindowError::Disagreement { .. })) => {
                assert!(error.to_string().contains("rank 1 has to know"), "{error}");
            }
            _ => panic!("{error}"),
        }
        // Nothing is left of it.
        let mut window = SlotWindow::<u8>::new("many");
        match rank {
            0 => drop(window.slot_to(1, 0)),
            _ => drop(window.slot_from(0, 0, 1)),
        }
        let _halves = window.open(&s).unwrap();
    });
}

/// With 16 times as many slots it takes 16 times as many looks, times a logarithm. The square would be 256 times as
/// many.
#[test]
fn a_window_takes_no_more_than_in_proportion_to_its_slots() {
    let by_nic = |_: usize| {
        WorldOptions::new()
            .nic(Loopback::default())
            .route(Route::Nic)
    };
    for order in [Order::Ascending, Order::Mixed] {
        for route in ["mapped", "by NIC", "staged"] {
            let options = |rank| match route {
                "mapped" => WorldOptions::new(),
                "by NIC" => by_nic(rank),
                _ => by_nic(rank).staged(),
            };
            let (few, many) = (visits(100, order, options), visits(1600, order, options));
            assert!(few >= 4 * 100, "{few} looks, {route}, {order:?}");
            assert!(
                many < few * 16 * 3,
                "{few} and {many} looks, {route}, {order:?}"
            );
        }
    }
}
