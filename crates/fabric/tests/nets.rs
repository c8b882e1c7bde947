//! Nets in memory that are mixed up: each rank has made one of its own, or several jobs use one. No job gets the data
//! of another, and a set-up that cannot work is refused.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use tidegate_core::window::{SlotWindow, exchange};
use tidegate_core::{Region, Result, Route, World, WorldOptions, stream};
use tidegate_fabric::wire::{Event, Op, Posted, Wire};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_hal::nic::NicError;
use tidegate_host::Host;

const LONG: Duration = Duration::from_secs(600);

fn net(ranks: usize) -> Net {
    Net::new(ranks, Faults::default())
}

/// The events that have come to a wire.
fn came(wire: &mut MemoryWire) -> Vec<Event> {
    let mut events = Vec::new();
    wire.poll(&mut events).unwrap();
    events
}

/// Two ranks exchange numbers that contain `job` and the epoch. Returns how many came wrong on each rank.
fn job(net: impl Fn() -> Net + Sync, job: u64, epochs: u64) -> Vec<Result<u64>> {
    let options = |rank: usize| {
        let nic = Fabric::over(net().wire(rank), Options::default());
        WorldOptions::new().nic(nic).route(Route::Nic)
    };
    World::<Host>::local_with(2, options, |world| {
        stream!(let s = world.stream()?);
        let peer = 1 - world.rank();
        let mut window = SlotWindow::<u64>::new("w").fail_after(LONG);
        let from = window.slot_from(peer, 0, 8);
        let to = window.slot_to(peer, 0);
        let (mut inbox, mut outbox) = window.open(&s)?;
        let mut wrong = 0;
        for epoch in 0..epochs {
            let value = 1000 * job + epoch;
            let src = Region::from_slice(&world, &[value; 8])?.on(&s)?;
            let mut access = outbox.start();
            access.put(&src, to)?;
            (inbox, outbox) = exchange(&s, inbox, access)?;
            wrong += u64::from(*inbox.read(&s)?.slot(from) != [value; 8]);
        }
        Ok(wrong)
    })
}

fn assert_right(outcome: Vec<Result<u64>>) {
    for wrong in outcome {
        assert_eq!(wrong.unwrap(), 0);
    }
}

#[test]
fn one_net_is_for_any_number_of_jobs_at_a_time() {
    let net = net(2);
    thread::scope(|scope| {
        let net = &net;
        let run = |number| scope.spawn(move || job(|| net.clone(), number, 200));
        let jobs = [1, 2, 3].map(run);
        jobs.into_iter()
            .for_each(|job| assert_right(job.join().unwrap()));
    });
}

#[test]
fn one_net_is_for_one_job_after_the_other() {
    let net = net(2);
    for number in 0..3 {
        assert_right(job(|| net.clone(), number, 5));
    }
    // A thread of the last job may be about to end.
    let begun = Instant::now();
    while net.registered() > 0 {
        assert!(begun.elapsed() < LONG, "{} are left", net.registered());
        thread::yield_now();
    }
}

#[test]
#[should_panic(expected = "the ranks of a job share one")]
fn a_net_for_each_rank_is_refused_when_they_meet() {
    drop(job(|| net(2), 1, 1));
}

#[test]
fn addresses_and_keys_of_another_net_are_refused() {
    let (mut here, mut there) = (net(1).wire(0), net(1).wire(0));
    let mut word = 0u64;
    let base = (&raw mut word).cast();
    // SAFETY: nothing is posted.
    let (key, _registered) = unsafe { there.register(base, 8, Arc::new(())) }.unwrap();
    let address = there.address();
    for bad in [&address[..], &address[1..], &address[..16], &[0; 24]] {
        let refused = here.connect(&[bad.to_vec()]);
        assert!(matches!(refused, Err(NicError::BadKey(_))), "{bad:?}");
    }
    let refused = here.import(0, &key, 8).map(drop);
    assert!(matches!(refused, Err(NicError::BadKey(_))));
    there.connect(&[address, Vec::new()]).unwrap();
    there.import(0, &key, 8).unwrap();
}

/// Each endpoint of a rank gets what was sent to its own address, whichever polls first. Calls of the net that name a
/// rank concern its last endpoint.
#[test]
fn endpoints_of_one_rank_are_apart() {
    let net = net(2);
    let [mut first, mut second] = [net.wire(0), net.wire(0)];
    let mut sender = net.wire(1);
    sender.connect(&[first.address(), Vec::new()]).unwrap();
    // SAFETY: no memory is named.
    let posted = unsafe { sender.post(0, Op::Notify(7), 1) };
    assert!(matches!(posted, Ok(Posted::Taken)));
    came(&mut sender);
    assert_eq!(came(&mut second), []);
    assert_eq!(came(&mut first), [Event::Notice(7)]);
    assert_eq!(net.taken(1), [1]);
    net.break_wire(0);
    assert!(second.poll(&mut Vec::new()).is_err());
    assert_eq!(came(&mut first), []);
    let _third = net.wire(1);
    assert_eq!(net.taken(1), [0]);
    // A twin belongs to the endpoint that it was opened from.
    let _twin = sender.twin().unwrap();
    assert_eq!(net.taken(1), [0]);
}
