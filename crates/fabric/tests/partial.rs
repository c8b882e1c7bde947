//! Long writes over `tcp;ofi_rxm`, which crashes if a connection ends in the middle of a write with a notice. So there,
//! the notice of a long write follows its data.

#[path = "../../../tests/common/skip.rs"]
mod skip;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tidegate_fabric::wire::libfabric::{Choice, FabricWire, Remote};
use tidegate_fabric::wire::{Event, Op, Posted, Wire as _};
use tidegate_hal::nic::Keep;

const PROVIDER: &str = "tcp;ofi_rxm";
const LONG: Duration = Duration::from_secs(60);
/// The cookie of the writes, and their notice.
const COOKIE: u64 = 5;
const NOTICE: u64 = 77;

/// Two endpoints that are connected.
struct Two {
    here: FabricWire,
    there: FabricWire,
    /// What is written.
    from: Vec<u8>,
    /// The memory there.
    memory: Arc<[AtomicU8]>,
    remote: Remote,
    registered: Option<Keep>,
}

impl Two {
    fn new(test: &str, bytes: usize) -> Option<Self> {
        if !skip::provided(test, PROVIDER) {
            return None;
        }
        let choice = Choice::at("127.0.0.1").provider(PROVIDER);
        let mut here = FabricWire::open(&choice).unwrap();
        let mut there = FabricWire::open(&choice).unwrap();
        let memory: Arc<[AtomicU8]> = (0..bytes).map(|_| AtomicU8::new(0)).collect();
        let base = memory.as_ptr().cast_mut().cast();
        // SAFETY: the registration keeps the memory, which is accessed atomically here.
        let registered = unsafe { there.register(base, bytes, Arc::new(memory.clone())) };
        let (key, registered) = registered.unwrap();
        here.connect(&[here.address(), there.address()]).unwrap();
        there.connect(&[here.address(), there.address()]).unwrap();
        let remote = here.import(1, &key, bytes).unwrap();
        let mut two = Two {
            here,
            there,
            from: vec![9; bytes],
            memory,
            remote,
            registered: Some(registered),
        };
        // The first operation makes the connection.
        two.notify();
        let came = two.until(true, true, |events| events.len() == 2);
        assert!(came.contains(&Event::Done(COOKIE)) && came.contains(&Event::Notice(1)));
        Some(two)
    }

    fn notify(&mut self) {
        let begun = Instant::now();
        // SAFETY: a notice names no memory of this end.
        while unsafe { self.here.post(1, Op::Notify(1), COOKIE) }.unwrap() == Posted::Full {
            assert!(begun.elapsed() < LONG, "nothing is taken");
            self.here.poll(&mut Vec::new()).unwrap();
            self.there.poll(&mut Vec::new()).unwrap();
        }
    }

    /// Writes so many bytes with a notice.
    fn writes(&mut self, bytes: usize) {
        assert!(bytes <= self.from.len());
        let op = Op::Write {
            from: self.from.as_ptr(),
            bytes,
            to: &self.remote,
            offset: 0,
            notice: Some(NOTICE),
        };
        // SAFETY: `from` is not changed, and lives as long as the endpoint.
        let posted = unsafe { self.here.post(1, op, COOKIE) };
        assert_eq!(posted.unwrap(), Posted::Taken);
    }

    /// Polls the ends until it is so.
    fn until(&mut self, here: bool, there: bool, is_so: impl Fn(&[Event]) -> bool) -> Vec<Event> {
        let (mut events, begun) = (Vec::new(), Instant::now());
        while !is_so(&events) {
            assert!(begun.elapsed() < LONG, "{events:?}");
            if here {
                self.here.poll(&mut events).unwrap();
            }
            if there {
                self.there.poll(&mut events).unwrap();
            }
        }
        events
    }

    /// What else comes, within many polls of the ends.
    fn more(&mut self, here: bool, there: bool) -> Vec<Event> {
        let mut events = Vec::new();
        for _ in 0..10_000 {
            if here {
                self.here.poll(&mut events).unwrap();
            }
            if there {
                self.there.poll(&mut events).unwrap();
            }
        }
        events
    }

    fn arrived(memory: &[AtomicU8], at: usize) -> bool {
        memory[at].load(Ordering::Acquire) == 9
    }
}

#[test]
fn the_notice_of_a_long_write_follows_its_data() {
    let test = "the_notice_of_a_long_write_follows_its_data";
    let Some(mut two) = Two::new(test, 64 << 10) else {
        return;
    };
    let (memory, bytes) = (two.memory.clone(), two.from.len());
    two.writes(bytes);
    let mut came = two.until(false, true, |_| Two::arrived(&memory, bytes - 1));
    // The notice would come now, if it had gone with the data.
    came.extend(two.more(false, true));
    assert_eq!(came, []);
    // The origin hears that the data is delivered, and nothing is over by that. Then the notice is sent.
    let came = two.until(true, true, |events| events.len() == 2);
    assert!(came.contains(&Event::Done(COOKIE)) && came.contains(&Event::Notice(NOTICE)));
    assert_eq!(two.more(true, true), [], "each comes once");
}

#[test]
fn the_notice_of_a_short_write_goes_along() {
    let test = "the_notice_of_a_short_write_goes_along";
    let Some(mut two) = Two::new(test, 8 << 10) else {
        return;
    };
    let memory = two.memory.clone();
    two.writes(8 << 10);
    let came = two.until(false, true, |events| !events.is_empty());
    assert_eq!(came, [Event::Notice(NOTICE)]);
    assert!(Two::arrived(&memory, (8 << 10) - 1));
    let came = two.until(true, true, |events| !events.is_empty());
    assert_eq!(came, [Event::Done(COOKIE)]);
    assert_eq!(two.more(true, true), []);
}

#[test]
fn a_long_write_that_the_target_refuses_fails_once_and_brings_no_notice() {
    let test = "a_long_write_that_the_target_refuses_fails_once_and_brings_no_notice";
    let Some(mut two) = Two::new(test, 64 << 10) else {
        return;
    };
    drop(two.registered.take());
    two.writes(64 << 10);
    let came = two.until(true, true, |events| !events.is_empty());
    assert!(matches!(came[..], [Event::Failed(COOKIE, _)]), "{came:?}");
    assert_eq!(two.more(true, true), []);
    assert!(!Two::arrived(&two.memory, 0));
}

/// The crash would end this process.
#[test]
fn an_endpoint_is_closed_in_the_middle_of_a_long_write() {
    let test = "an_endpoint_is_closed_in_the_middle_of_a_long_write";
    for ends_by_origin in [false, true] {
        let Some(mut two) = Two::new(test, 16 << 20) else {
            return;
        };
        let (memory, bytes) = (two.memory.clone(), two.from.len());
        two.writes(bytes);
        // The origin does not go on by itself, so no more comes than the sockets hold.
        let came = two.until(false, true, |_| Two::arrived(&memory, 0));
        assert_eq!(came, []);
        assert!(!Two::arrived(&memory, bytes - 1), "it came whole");
        let Two {
            here, mut there, ..
        } = two;
        if ends_by_origin {
            drop(here);
            let mut events = Vec::new();
            for _ in 0..10_000 {
                there.poll(&mut events).unwrap();
            }
            assert_eq!(events, []);
        } else {
            drop(there);
            drop(here);
        }
    }
}
