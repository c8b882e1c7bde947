//! Waits for several tickets: a repeated wait is the same batch, for which the device already has its resources.

use super::*;

const RANKS: usize = 3;

/// A window in which each rank puts to the others.
fn all_to_all<'s>(s: &Stream<'s, Strapped>, name: &str) -> Halves<'s> {
    let others = (0..RANKS).filter(|rank| *rank != s.world().rank());
    let mut window = SlotWindow::<u64>::new(name);
    for other in others {
        window.slot_from(other, 0, LEN);
        window.slot_to(other, 0);
    }
    window.open(s).unwrap()
}

/// In each of so many windows, a region is put to two peers, and is then written, again and again.
fn put_and_write(windows: usize) {
    const ROUNDS: usize = 5;
    let nic = |_| {
        WorldOptions::new()
            .nic(Loopback::default())
            .route(Route::Nic)
    };
    World::local_with(RANKS, nic, |world: World<Strapped>| {
        crate::stream!(let s = world.stream().unwrap());
        let mut all: Vec<_> = (0..windows)
            .map(|number| Some(all_to_all(&s, &number.to_string())))
            .collect();
        let mut x = fill(&s, 1);
        let mut round = || {
            for halves in &mut all {
                let (inbox, outbox) = halves.take().unwrap();
                let slots = outbox.slots();
                let mut epoch = outbox.start();
                for slot in slots {
                    epoch.put(&x, slot).unwrap();
                }
                *halves = Some(exchange(&s, inbox, epoch).unwrap());
            }
            let next = |x: &mut [u64]| x.iter_mut().for_each(|each| *each += 1);
            s.launch(next, &mut x).unwrap();
        };
        round();
        let asked = s.raw().asked.get();
        *s.raw().noted.borrow_mut() = Some(Vec::new());
        (0..ROUNDS).for_each(|_| round());
        let noted = s.raw().noted.take().unwrap();
        // There is an exchange for each window, and one wait for its reads.
        assert_eq!(noted.len(), ROUNDS * windows * 2);
        let different: std::collections::BTreeSet<_> = noted.iter().map(Arc::as_ptr).collect();
        assert_eq!(different.len(), windows * 2, "batches were made anew");
        // The device is asked twice about an exchange, since the NIC is armed in between.
        assert_eq!(s.raw().asked.get() - asked, ROUNDS * windows * 3);
        let waits = noted.iter().filter(|batch| only_waits(batch));
        assert!(
            waits
                .clone()
                .all(|batch| batch.lanes().len() == RANKS - 1 && batch.is_helped())
        );
        assert_eq!(waits.count(), ROUNDS * windows);
        assert_eq!(*x.into_host(&s).unwrap(), [2 + ROUNDS as u64; LEN]);
    });
}

#[test]
fn one_wait_for_several_tickets_is_made_once() {
    put_and_write(1);
}

#[test]
fn so_is_one_of_each_window() {
    put_and_write(2);
}
