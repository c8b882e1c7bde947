//! Deaths, departures, failures, and full queues.

use super::*;
use crate::error::{Awaited, Cause, WaitFailed};
use crate::window::Buffers;

#[test]
fn a_death_ends_the_wait_for_a_ticket() {
    let gate = Gate::closed();
    let mut controls = tidegate_boot::local(2).into_iter().map(Arc::new);
    let (zero, one) = (controls.next().unwrap(), controls.next().unwrap());
    let nic = || WorldOptions::new().nic(Loopback::new(Options::default().gate(&gate)));
    std::thread::scope(|scope| {
        let dies = scope.spawn(|| {
            // SAFETY: this control plane carries what it is given.
            let world =
                unsafe { World::from_control_with(one.clone(), Host::for_threads(), nic()) };
            let world = world.unwrap();
            crate::stream!(let s = world.stream().unwrap());
            let mut window = SlotWindow::<u64>::new("w");
            window.slot_from(0, 0, LEN);
            let _halves = window.open(&s).unwrap();
            gate.wait_held();
            one.kill();
        });
        let world =
            // SAFETY: as above.
            unsafe { World::from_control_with(zero, Host::for_threads(), nic().route(Route::Nic)) }
                .unwrap();
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w");
        window.slot_to(1, 0);
        let (_inbox, outbox) = window.open(&s).unwrap();
        let mut src = ones(&s);
        let _outbox = put(&s, &src, outbox);
        let flag = Flag::default();
        s.launch(overwrite(&flag), &mut src).unwrap();
        let error = src.into_host(&s).err().unwrap();
        let Error::Wait(failed) = &error else {
            panic!("{error}")
        };
        let WaitFailed {
            window,
            epoch,
            site: _,
            waiting,
            rank,
            awaited,
            cause,
        } = &**failed;
        assert_eq!(
            (*epoch, *waiting, *rank, *awaited),
            (0, 0, 1, Awaited::Ticket)
        );
        assert_eq!(&*window.as_ref().unwrap().name, "w");
        assert!(matches!(cause, Cause::PeerLost { rank: 1, .. }), "{cause}");
        assert!(!flag.is_set());
        dies.join().unwrap();
        gate.open();
    });
}

#[test]
fn a_departure_in_good_order_does_not() {
    let gate = Gate::closed();
    two(&gate, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w");
        if world.rank() == 1 {
            window.slot_from(0, 0, LEN);
            drop(window.open(&s).unwrap());
            return;
        }
        window.slot_to(1, 0);
        let (_inbox, outbox) = window.open(&s).unwrap();
        let mut src = ones(&s);
        let _outbox = put(&s, &src, outbox);
        // The rank has left when the gate opens, or shortly after.
        std::thread::sleep(WHILE);
        s.launch(overwrite(&Flag::default()), &mut src).unwrap();
        gate.open();
        assert_eq!(src.into_host(&s).unwrap()[..], [2; LEN]);
    });
}

#[test]
fn a_kernel_that_panics_is_heard_of_behind_the_nic() {
    let errors = two(&Gate::opened(), |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("w").buffers(Buffers::Single);
        if world.rank() == 0 {
            window.slot_to(1, 0);
            let (_inbox, outbox) = window.open(&s).unwrap();
            let mut src = ones(&s);
            s.launch(|_: &mut [u64]| panic!("on purpose"), &mut src)
                .unwrap();
            let to = first(&outbox);
            let mut epoch = outbox.start();
            epoch.put(&src, to).unwrap();
            // The call is refused, or enqueued behind the failure. In either case rank 1 is told.
            let completed = epoch.complete(&s);
            let error = s.synchronize().unwrap_err();
            drop(completed);
            error.to_string()
        } else {
            window.slot_from(0, 0, LEN);
            let (inbox, _outbox) = window.open(&s).unwrap();
            let exposed = inbox.post(&s).unwrap();
            let inbox = exposed.wait(&s);
            let error = s.synchronize().unwrap_err();
            drop(inbox);
            error.to_string()
        }
    });
    assert!(errors[0].contains("on purpose"), "{}", errors[0]);
    assert!(
        errors[1].contains("wait for rank 0 (its complete) failed"),
        "{}",
        errors[1]
    );
}
