//! Too few trigger slots: what each policy does, and that nothing hangs.

use super::*;
use crate::error::Cause;
use crate::window::{exchange, try_exchange};
use tidegate_hal::nic::NicError;

/// Longer than anything here lasts.
const SOON: Duration = Duration::from_secs(20);

/// Rank 0 puts twice, with one slot and a closed gate. `second` gets the result of the second put, and may open the
/// gate, which is opened when it returns.
fn two_puts(throttle: Throttle, second: impl Fn(&World<Host>, &Gate, Result<()>) + Sync) {
    let gate = Gate::closed();
    gated(2, &gate, Options::default().budget(2), |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w").throttle(throttle);
        if world.rank() == 1 {
            window.slot_from(0, 0, LEN);
            let (inbox, _outbox) = window.open(&s).unwrap();
            let inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
            let _inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
            return s.synchronize().unwrap();
        }
        // Two ranks on one node share two slots.
        assert_eq!(world.nic_slots(), Some((1, 1)));
        window.slot_to(1, 0);
        let (_inbox, outbox) = window.open(&s).unwrap();
        let src = ones(&s);
        let outbox = put(&s, &src, outbox);
        assert_eq!(world.nic_slots(), Some((1, 0)));
        let to = first(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&src, to).unwrap();
        let (result, open) = match epoch.try_complete(&s) {
            Ok(outbox) => (Ok(()), Err(outbox)),
            Err(refused) => (Err(refused.error), Ok(refused.value)),
        };
        second(&world, &gate, result);
        gate.open();
        // A refused epoch is unchanged.
        let outbox = open.map_or_else(|outbox| outbox, |epoch| epoch.complete(&s).unwrap());
        s.synchronize().unwrap();
        drop(outbox);
    });
}

#[test]
fn an_application_without_room_is_told_and_loses_nothing() {
    two_puts(Throttle::Application, |world, gate, result| {
        let Err(Error::Nic(NicError::NoRoom {
            needed: 1,
            room: 0,
            budget: 1,
        })) = result
        else {
            panic!("{result:?}");
        };
        assert!(!world.nic_room(1, Duration::from_millis(1)));
        gate.open();
        assert!(world.nic_room(1, SOON));
        assert!(world.nic_room(100, SOON), "there are no more than all");
    });
}

#[test]
fn an_exchange_without_room_has_armed_nothing() {
    let gate = Gate::closed();
    gated(1, &gate, Options::default().budget(3), |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w").throttle(Throttle::Application);
        window.slot_from(0, 0, LEN);
        window.slot_to(0, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let (inbox, outbox) = exchange(&s, inbox, outbox.start()).unwrap();
        // There is room for the post, but not for the complete as well.
        let refused = try_exchange(&s, inbox, outbox.start()).err().unwrap();
        assert!(
            matches!(
                refused.error,
                Error::Nic(NicError::NoRoom {
                    needed: 2,
                    room: 1,
                    budget: 3
                })
            ),
            "{}",
            refused.error
        );
        assert_eq!(world.nic_slots(), Some((3, 1)));
        gate.open();
        assert!(world.nic_room(2, SOON));
        let (inbox, epoch) = refused.value;
        drop(exchange(&s, inbox, epoch).unwrap());
        s.synchronize().unwrap();
    });
}

#[test]
fn adaptive_epochs_stand_in_line() {
    // The gate is still closed, so the host has not waited.
    two_puts(Throttle::Adaptive, |_, _, result| result.unwrap());
}

#[test]
fn static_epochs_wait_for_those_before_them_as_long_as_these_go_on() {
    let begun = Instant::now();
    two_puts(Throttle::Static, |_, _, result| {
        // The gate stays closed for longer than the wait lasts.
        result.unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(20));
    });
    if cfg!(miri) {
        // An interpreted host is slower than the NIC.
        return;
    }
    // Each firing takes 1 ms, so one ends every millisecond. An epoch begins with room for it, or behind a NIC that
    // stood still on a busy machine.
    let waits = |epoch: &&(Duration, bool)| epoch.1 || epoch.0 >= Duration::from_millis(20);
    let epochs = epochs_with_oneself(Throttle::Static, &Gate::opened());
    let waited = epochs.iter().filter(waits).count();
    assert!(waited > EPOCHS / 2, "{epochs:?}");
    // The other policies do not wait for a NIC that does nothing at all.
    let epochs = epochs_with_oneself(Throttle::Adaptive, &Gate::closed());
    let waited = epochs.iter().filter(waits).count();
    assert!(waited < EPOCHS / 2, "{epochs:?}");
}

const EPOCHS: usize = 20;

/// Epochs of a rank with itself, by a NIC with three slots behind a gate that is opened when all epochs are enqueued.
/// For each: how long the call took, and whether there was room after it. There is room if the epochs before are
/// complete.
fn epochs_with_oneself(throttle: Throttle, gate: &Gate) -> Vec<(Duration, bool)> {
    let options = Options::default().delay(Duration::from_millis(1)).budget(3);
    let mut ranks = gated(1, gate, options, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w").throttle(throttle);
        window.slot_from(0, 0, LEN);
        window.slot_to(0, 0);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let src = ones(&s);
        let mut epochs = Vec::new();
        for _ in 0..EPOCHS {
            let to = first(&outbox);
            let mut epoch = outbox.start();
            epoch.put(&src, to).unwrap();
            let begun = Instant::now();
            (inbox, outbox) = exchange(&s, inbox, epoch).unwrap();
            // It has armed two of three.
            epochs.push((begun.elapsed(), world.nic_slots().unwrap().1 >= 1));
        }
        gate.open();
        s.synchronize().unwrap();
        drop((inbox, outbox));
        epochs
    });
    ranks.remove(0)
}

#[test]
fn a_wait_for_slots_ends_with_the_patience_of_the_window() {
    let gate = Gate::closed();
    gated(2, &gate, Options::default().budget(1), |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w")
            .throttle(Throttle::Static)
            .fail_after(Duration::from_millis(10));
        if world.rank() == 1 {
            window.slot_from(0, 0, LEN);
            let _halves = window.open(&s).unwrap();
            // Rank 1 stays until rank 0 has seen its error.
            world.all_gather("seen", Vec::new()).unwrap();
            return;
        }
        let to = window.slot_to(1, 0);
        let (_inbox, outbox) = window.open(&s).unwrap();
        let src = ones(&s);
        let mut epoch = put(&s, &src, outbox).start();
        epoch.put(&src, to).unwrap();
        let error = epoch.complete(&s).err().unwrap();
        assert!(
            matches!(
                error,
                Error::Revoked {
                    cause: Cause::Limit { rank: 0, .. },
                    ..
                }
            ),
            "{error}"
        );
        world.all_gather("seen", Vec::new()).unwrap();
        gate.open();
    });
}

/// Each rank has two streams, each with a window of its own. Rank 0 completes towards rank 1 in the first window, and
/// then posts in the second; rank 1 does it the other way round. So each rank's complete waits for a post that the
/// other makes when its own complete is armed.
fn crossed(options: &Options, limit: Duration) -> Vec<Result<()>> {
    let begun = [Flag::default(), Flag::default()];
    World::local_with(
        2,
        |_| {
            WorldOptions::new()
                .nic(Loopback::new(options.clone()))
                .route(Route::Nic)
        },
        |world: World<Host>| {
            let (rank, peer) = (world.rank(), 1 - world.rank());
            crate::stream!(let s = world.stream().unwrap());
            crate::stream!(let t = world.stream().unwrap());
            let window = |name| {
                let window = SlotWindow::<u64>::new(name).fail_after(limit);
                let mut window = window.buffers(crate::window::Buffers::Single);
                window.slot_from(peer, 0, LEN);
                window.slot_to(peer, 0);
                window
            };
            let (inbox_a, outbox_a) = window("a").open(&s).unwrap();
            let (inbox_b, outbox_b) = window("b").open(&t).unwrap();
            let enqueue = || -> Result<()> {
                let (src_a, src_b) = (ones(&s), ones(&t));
                if rank == 0 {
                    let to = first(&outbox_a);
                    let mut epoch = outbox_a.start();
                    epoch.put(&src_a, to)?;
                    let outbox_a = epoch.complete(&s)?;
                    begun[rank].set();
                    while !begun[peer].is_set() {
                        std::thread::yield_now();
                    }
                    let exposed = inbox_b.post(&t)?;
                    s.synchronize()?;
                    drop((exposed.wait(&t)?, outbox_a));
                    t.synchronize()?;
                    drop((inbox_a, outbox_b));
                } else {
                    let to = first(&outbox_b);
                    let mut epoch = outbox_b.start();
                    epoch.put(&src_b, to)?;
                    let outbox_b = epoch.complete(&t)?;
                    begun[rank].set();
                    while !begun[peer].is_set() {
                        std::thread::yield_now();
                    }
                    let exposed = inbox_a.post(&s)?;
                    t.synchronize()?;
                    drop((exposed.wait(&s)?, outbox_b));
                    s.synchronize()?;
                    drop((inbox_b, outbox_a));
                }
                Ok(())
            };
            enqueue()
        },
    )
}

#[test]
fn two_streams_do_not_hold_what_each_needs_of_the_other() {
    for result in crossed(&Options::default().budget(1), SOON) {
        result.unwrap();
    }
    // The test must detect the mutant that keeps no slot for programs that have been rung for.
    let mutant = crossed(
        &Options::default().budget(1).greedy(),
        Duration::from_millis(300),
    );
    assert!(mutant.iter().all(Result::is_err), "{mutant:?}");
}

/// Replays of a step with more rings than there are slots.
#[test]
fn recordings_need_no_room() {
    // An interpreter is slow.
    let (budgets, turns): (&[usize], &[usize]) = match cfg!(miri) {
        true => (&[1, 3], &[1, 4]),
        false => (&[1, 2, 3, 5, 8], &[1, 4, 30]),
    };
    for throttle in [Throttle::Application, Throttle::Static, Throttle::Adaptive] {
        for &budget in budgets {
            gated(
                1,
                &Gate::opened(),
                Options::default().budget(budget),
                |world| {
                    crate::stream!(let s = world.stream().unwrap());
                    let mut window = SlotWindow::<u64>::new("w").throttle(throttle);
                    window.slot_from(0, 0, LEN);
                    window.slot_to(0, 0);
                    let lent = window.open(&s).unwrap();
                    let (graph, mut lent) = s
                        .capture(lent, |s, (inbox, outbox)| {
                            let (mut inbox, mut outbox) = (inbox, outbox);
                            for _ in 0..2 {
                                let exposed = inbox.post(s)?;
                                outbox = outbox.start().complete(s)?;
                                inbox = exposed.wait(s)?;
                            }
                            Ok((inbox, outbox))
                        })
                        .unwrap();
                    for &times in turns {
                        if throttle == Throttle::Application {
                            s.synchronize().unwrap();
                            assert!(world.nic_room(4 * times, SOON));
                        }
                        lent = graph.replay(&s, lent, times).unwrap();
                    }
                    s.synchronize().unwrap();
                    assert!(world.nic_room(usize::MAX, SOON));
                    drop(lent);
                },
            );
        }
    }
}
