//! Descriptions and objects, and the requests that they refuse.

use std::ffi::c_void;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_ffi::fabric::*;

use crate::support::{End, LONG, Pair, hints, info, library, tcp, words};

#[test]
fn a_description_says_what_it_can() {
    let Some(library) = library("descriptions") else {
        return;
    };
    assert!(library.version() >= (1, 17));
    assert!(library.name().contains("libfabric"));
    let info = info(&library, &hints("sockets", Caps::RMA | Caps::ATOMIC)).expect("a provider");
    assert_eq!(info.provider(), "sockets");
    assert!(info.caps().contains(Caps::RMA | Caps::ATOMIC), "{info:?}");
    assert_eq!(info.data_progress(), Progress::Auto);
    assert_eq!(info.address_format(), AddressFormat::SOCKADDR_IN);
    assert!(info.inject_size() >= 8 && info.max_msg_size() >= 1 << 20);
    assert!(info.tx_order().contains(Order::WAW));
    assert_eq!((info.cq_data_size(), info.key_size()), (8, 8));
    assert_eq!(info.mode(), Mode::NONE);
    assert!(!info.fabric().is_empty() && !info.domain().is_empty());
    assert_eq!(format!("{:?}", info.clone()), format!("{info:?}"));
}

#[test]
fn a_query_that_nothing_fits_is_no_data() {
    let Some(library) = library("no such provider") else {
        return;
    };
    let error = library
        .query(&Hints::new().provider("no-such-provider"), Location::ANY)
        .expect_err("nobody");
    assert!(error.is_no_data(), "{error}");
    assert_eq!((error.call, error.name), ("fi_getinfo", "FI_ENODATA"));
    assert!(!error.text.is_empty());
    let error = library.query(&Hints::new().provider("a\0b"), Location::ANY);
    assert!(error.expect_err("a NUL").is_refused());
}

#[test]
fn bad_addresses_are_refused_one_by_one() {
    let Some(library) = library("bad addresses") else {
        return;
    };
    let pair = Pair::open(&library, &hints("sockets", Caps::RMA), 8).expect("two ends");
    let good = pair.b.name.clone();
    let (short, mut strange) = (good[..7].to_vec(), good.clone());
    strange[0] = 99;
    let error = pair
        .a
        .vector
        .insert(&[good, short, strange, Vec::new()])
        .expect_err("three of them");
    assert!(error.peers[0].is_some(), "{error:?}");
    assert_eq!(error.peers[1..], [None, None, None]);
    let indices: Vec<_> = error.bad.iter().map(|bad| bad.index).collect();
    assert_eq!(indices, [1, 2, 3]);
    assert!(error.to_string().contains("3 of 4"), "{error}");
}

#[test]
fn a_counter_counts_what_it_is_told() {
    let Some(library) = library("counters") else {
        return;
    };
    let info = info(&library, &hints("sockets", Caps::RMA)).expect("a provider");
    let domain = Domain::open(&Fabric::open(&info).expect("fabric"), &info).expect("domain");
    let counter = Counter::open(&domain, WaitObject::UNSPEC).expect("a counter");
    assert_eq!((counter.read(), counter.read_err()), (0, 0));
    counter.add(5).expect("added");
    counter.add(0).expect("added");
    assert_eq!(counter.read(), 5);
    counter.set(1).expect("set");
    assert_eq!(counter.read(), 1);
}

#[test]
fn an_empty_queue_gives_nothing_and_a_wait_ends() {
    let Some(library) = library("empty queues") else {
        return;
    };
    let info = info(&library, &hints("sockets", Caps::RMA)).expect("a provider");
    let domain = Domain::open(&Fabric::open(&info).expect("fabric"), &info).expect("domain");
    let queue = CompletionQueue::open(&domain, 16, WaitObject::UNSPEC).expect("a queue");
    let mut room = [Completion::default(); 4];
    assert_eq!(queue.read(&mut room), Ok(0));
    assert_eq!(queue.read(&mut []), Ok(0));
    let start = Instant::now();
    assert_eq!(queue.wait(&mut room, Duration::from_millis(30)), Ok(0));
    assert!(start.elapsed() >= Duration::from_millis(25));
    assert_eq!(queue.read_error(), Ok(None));
}

#[test]
fn an_endpoint_takes_only_objects_of_its_domain() {
    let Some(library) = library("strangers") else {
        return;
    };
    let info = info(&library, &hints("sockets", Caps::RMA)).expect("a provider");
    let fabric = Fabric::open(&info).expect("fabric");
    let mine = Domain::open(&fabric, &info).expect("domain");
    let other = Domain::open(&fabric, &info).expect("domain");
    let counter = Counter::open(&other, WaitObject::NONE).expect("a counter");
    let builder = EndpointBuilder::new(&mine).expect("an endpoint");
    let error = builder.counter(&counter, Counted::WRITE);
    assert!(error.expect_err("a stranger").is_refused());
    let mut word = Box::new(0u64);
    let options = RegisterOptions {
        access: Access::REMOTE_WRITE,
        counter: Some(&counter),
        ..Default::default()
    };
    // SAFETY: the registration is refused, so nothing else accesses the word.
    let error = unsafe {
        let address = (&raw mut *word).cast::<c_void>();
        MemoryRegion::register(&mine, address, 8, &options, Arc::new(()))
    };
    assert!(error.expect_err("a stranger").is_refused());
}

#[test]
fn memory_is_kept_until_its_registration_is_closed() {
    let Some(library) = library("kept memory") else {
        return;
    };
    for provider in ["sockets", tcp()] {
        let info = info(&library, &hints(provider, Caps::RMA)).expect("a provider");
        let words = words(4);
        let end = End::open(&info, Arc::clone(&words)).expect("an end");
        let virtual_addresses = info.mr_mode().contains(MrMode::VIRT_ADDR);
        let base = end.region.remote_base();
        assert_eq!(base == words.as_ptr() as u64, virtual_addresses, "{base}");
        assert!(Arc::strong_count(&words) >= 3);
        let exported = end.region.export().expect("a key");
        let imported = end.domain.import(&exported).expect("the key");
        assert_eq!(Some(imported.key()), end.region.key());
        assert_eq!(imported.base(), base);
        let short = RegionKey {
            base,
            key: vec![1, 2],
        };
        let refused = end.domain.import(&short).expect_err("too short");
        assert!(refused.is_refused());
        drop((imported, end));
        assert_eq!(Arc::strong_count(&words), 1, "{provider}");
    }
    assert_eq!(leaked_objects(), 0);
}

#[test]
fn a_queue_can_be_read_by_several_threads() {
    let Some(library) = library("threads") else {
        return;
    };
    let pair = Pair::open(&library, &hints("sockets", Caps::RMA), 8).expect("two ends");
    const EACH: u64 = 200;
    std::thread::scope(|scope| {
        for writer in 0..2u64 {
            let (endpoint, word) = (&pair.a.endpoint, pair.word(writer as usize));
            scope.spawn(move || {
                for value in 1..=EACH {
                    let start = Instant::now();
                    while !endpoint
                        .inject_write_data(&value.to_ne_bytes(), 0, word)
                        .expect("posted")
                        .is_taken()
                    {
                        assert!(start.elapsed() < LONG);
                        std::thread::yield_now();
                    }
                }
            });
        }
        pair.until("both", || pair.b.load(0) == EACH && pair.b.load(1) == EACH);
    });
    pair.until("all counted", || pair.a.written.read() == 2 * EACH);
}
