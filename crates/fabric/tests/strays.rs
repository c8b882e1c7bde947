//! Events that should not come, and descriptions that no peer should send, do no harm.

mod rig;

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use rig::wrapped::{Hooks, Outcome, Wrapped};
use rig::{Rig, SENT, SIGNAL, until};
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fabric::wire::{Event, Wire as _};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::wire::{Faults, MemoryWire, Net};
use tidegate_hal::batch::QUANTUM;
use tidegate_hal::nic::{Direction, Key, Nic as _};

#[path = "../../../tests/common/skip.rs"]
mod skip;

/// Events that every endpoint hears in addition to the real ones.
#[derive(Default)]
struct Noise {
    events: Mutex<Vec<Event>>,
    /// How often such events were heard: at the first endpoint, and at all others.
    heard: [AtomicUsize; 2],
}

struct Noisy {
    noise: Arc<Noise>,
    /// Whether this is an endpoint other than the first.
    is_twin: bool,
}

// SAFETY: every operation is one of the wire below.
unsafe impl Hooks for Noisy {
    type Wire = MemoryWire;

    fn poll(&mut self, wire: &mut MemoryWire, events: &mut Vec<Event>) -> Outcome<()> {
        let noise = self.noise.events.lock().unwrap();
        events.extend(noise.iter().cloned());
        wire.poll(events)?;
        events.extend(noise.iter().cloned());
        if !noise.is_empty() {
            self.noise.heard[usize::from(self.is_twin)].fetch_add(1, Ordering::SeqCst);
        }
        Ok(())
    }

    fn twin(&self) -> Option<Self> {
        let noise = self.noise.clone();
        Some(Noisy {
            noise,
            is_twin: true,
        })
    }
}

/// The bytes of the rig's memory, and the elements of a put that goes by all rails.
const SIZE: usize = 1 << 20;
const LONG: usize = 20_000;

/// An endpoint that hears noise. If `rails` is more than one, it has so many rails and ears.
fn noisy(rails: usize) -> (Rig, Arc<Noise>) {
    noisy_on(&Net::new(1, Faults::default()), rails)
}

fn noisy_on(net: &Net, rails: usize) -> (Rig, Arc<Noise>) {
    let noise = Arc::<Noise>::default();
    let hooks = Noisy {
        noise: noise.clone(),
        is_twin: false,
    };
    let wire = net.wire(0);
    let options = Options::default().rails(rails);
    let rig = Rig::sized(Wrapped { hooks, wire }, options, (false, rails > 1), SIZE);
    (rig, noise)
}

/// Whether a notice names no memory of the rig. The rig has registered a bell and its words, and has ended a second
/// registration of the words. No other number is known.
fn is_stray(bits: u64) -> bool {
    let (bell, word) = (bits >> 43 & 15, bits >> 19 & 0xff_ffff);
    bell != 0 || word != 1
}

/// Any event, except for the end of an operation that is under way: only this end can report that.
fn event() -> impl Strategy<Value = Event> {
    let small = (any::<u64>(), 0..3u64, 0..3u64).prop_map(|(bits, bell, word)| {
        let kept = bits & !((1 << 47) - (1 << 19));
        kept | bell << 43 | word << 19
    });
    let bits = prop_oneof![any::<u64>(), small].prop_filter("it is a word", |bits| is_stray(*bits));
    prop_oneof![
        4 => bits.prop_map(Event::Notice),
        1 => (1000..u64::MAX).prop_map(Event::Done),
        1 => (1000..u64::MAX).prop_map(|cookie| Event::Failed(cookie, "never begun".into())),
        1 => Just(Event::Moved),
        1 => Just(Event::Written),
        1 => any::<usize>().prop_map(|context| Event::Broken(context, "never begun".into())),
    ]
}

/// Checks that puts arrive despite these events.
fn puts_come(rig: &Rig, noise: &Noise, rails: usize, events: Vec<Event>) {
    *noise.events.lock().unwrap() = events;
    rig.arm(&[rig.put(1)], 3).unwrap();
    for firing in 1..=3 {
        rig.write(0, firing);
        rig.ring();
        assert_eq!(rig.wait(SENT, firing), firing * QUANTUM);
        assert_eq!(rig.wait(SIGNAL, firing), firing * QUANTUM);
    }
    for heard in &noise.heard[..rails.min(2)] {
        until("nothing is heard", || heard.load(Ordering::SeqCst) > 1);
    }
    noise.events.lock().unwrap().clear();
    assert!(!rig.has_failed.load(Ordering::SeqCst));
}

/// No peer writes to the endpoint of a rail. Notices there do not count as the end of a write that the rail has sent.
#[test]
fn strays_at_a_rail_end_no_write() {
    let net = Net::new(1, Faults::default());
    let (rig, noise) = noisy_on(&net, 3);
    let stray = vec![Event::Notice(0), Event::Done(7000), Event::Written];
    puts_come(&rig, &noise, 3, stray);
    // The rails still count right: each takes its stripe of a long write.
    let before = net.taken(0);
    let mut long = rig.transfer(&rig.memory, Direction::Put, LONG);
    long.count = LONG;
    rig.arm(&[rig.program(vec![long])], 1).unwrap();
    rig.ring();
    assert_eq!(rig.wait(SENT, 4), 4 * QUANTUM);
    let taken = net.taken(0).into_iter().zip(before);
    assert_eq!(taken.filter(|(now, before)| now > before).count(), 3);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..Default::default() })]

    #[test]
    fn strays_do_no_harm(events in prop::collection::vec(event(), 1..20), rails in 1..4usize) {
        let (rig, noise) = noisy(rails);
        puts_come(&rig, &noise, rails, events);
    }
}

/// A description that a peer might send: anything, or a true one that was changed.
fn said(truth: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let changed = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let changed = (changed, any::<prop::sample::Index>(), 0..3u8);
    let changed = changed.prop_map(move |(changes, cut, how)| {
        let mut said = truth.clone();
        for (at, byte) in changes {
            let at = at.index(said.len());
            said[at] = byte;
        }
        if how == 0 {
            said.truncate(cut.index(said.len()));
        }
        said
    });
    prop_oneof![prop::collection::vec(any::<u8>(), 0..100), changed]
}

/// Feeds descriptions that a peer might send to a reader.
fn read(truth: Vec<u8>, read: impl Fn(Vec<u8>)) {
    let config = ProptestConfig {
        failure_persistence: None,
        ..ProptestConfig::with_cases(256)
    };
    let mut runner = proptest::test_runner::TestRunner::new(config);
    let read = |said| {
        read(said);
        Ok(())
    };
    runner.run(&said(truth), read).unwrap();
}

/// A key or an address is refused or taken, and nothing else happens.
#[test]
fn keys_and_addresses_of_a_peer_are_read_with_care() {
    let (rig, _) = noisy(2);
    let key = |bytes| Key {
        bytes,
        handle: None,
    };
    read(rig.register().key.bytes, |said| {
        let _ = rig.nic.import(0, key(said), 8192);
    });
    read(rig.nic.address(), |said| {
        let mut wire = Net::new(1, Faults::default()).wire(0);
        let _ = wire.connect(std::slice::from_ref(&said));
        let _ = wire.import(0, &said, 8192);
        let nic = Fabric::over(wire, Options::default());
        let _ = nic.import(0, key(said), 8192);
    });
}

/// The same holds for the keys and addresses of libfabric. A key may not reach beyond the address space.
#[test]
fn keys_and_addresses_of_libfabric_are_read_with_care() {
    let test = "keys_and_addresses_of_libfabric_are_read_with_care";
    for provider in skip::providers() {
        if !skip::provided(test, provider) {
            continue;
        }
        let choice = Choice::at("127.0.0.1").provider(provider);
        let mut here = FabricWire::open(&choice).unwrap();
        let mut there = FabricWire::open(&choice).unwrap();
        let memory: Arc<[u8]> = vec![0; 64].into();
        let base = memory.as_ptr().cast_mut();
        // SAFETY: the memory is kept, and nothing writes to it.
        let registered = unsafe { there.register(base, 64, Arc::new(memory.clone())) };
        let (key, _guard) = registered.unwrap();
        let address = there.address();
        let here = RefCell::new(&mut here);
        read(address.clone(), |said| {
            let _ = here.borrow_mut().connect(&[said]);
        });
        here.borrow_mut().connect(&[address]).unwrap();
        read(key.clone(), |said| {
            let _ = here.borrow_mut().import(0, &said, 64);
        });
        // The base comes first in the key, as a number of at most 10 bytes. This one is the end of the address space.
        let mut last = vec![0xff; 9];
        last.push(1);
        let first = key.iter().position(|byte| byte & 0x80 == 0).unwrap() + 1;
        last.extend_from_slice(&key[first..]);
        assert!(
            here.borrow_mut().import(0, &last, 64).is_err(),
            "{provider}"
        );
    }
}
