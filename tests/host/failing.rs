//! Failures over real wires end in a typed error, in time, and affect nothing else.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::host::prelude::*;
use tidegate::{Route, WorldOptions};
use tidegate_fabric::wire::libfabric::{Choice, FabricWire, OpenError};
use tidegate_fabric::{Fabric, Options};

use crate::common::held::Held;
use crate::common::skip::{provided, providers, tcp};
use crate::wrapped::{Hooks, Wrapped};

/// The length of windows whose keys are wrong.
const SPOILT: usize = 10_007;

/// libfabric, with wrong information from its peers.
struct Misled {
    /// Whether keys of memory for windows of `SPOILT` elements are wrong.
    keys: bool,
    /// A wrong address of the last rank.
    address: Option<Held>,
}

// SAFETY: all operations are the wire's. The peer or the system refuses a wrong key or address.
unsafe impl Hooks for Misled {
    type Wire = FabricWire;

    fn connect(&self, addresses: &mut [Vec<u8>]) {
        if let Some(nobody) = &self.address {
            // The name is a length and a `sockaddr_in`, with the port behind two bytes of family.
            let port = nobody.port.to_be_bytes();
            let last = addresses.last_mut().unwrap();
            assert_eq!(last[0], 16, "a sockaddr_in");
            last[3..5].copy_from_slice(&port);
        }
    }

    fn import(&self, key: &mut [u8], bytes: usize) {
        if self.keys && bytes > SPOILT * 8 {
            // Its last byte belongs to the key.
            *key.last_mut().unwrap() ^= 0x55;
        }
    }
}

/// Two ranks over a provider. Rank 0 gets wrong information.
fn ranks<T: Send>(
    provider: &str,
    (keys, address): (bool, bool),
    options: &Options,
    rank: impl Fn(World) -> T + Sync,
) -> Vec<T> {
    let choice = Choice::at("127.0.0.1").provider(provider);
    let nic = |rank| {
        let hooks = Misled {
            keys: keys && rank == 0,
            address: (address && rank == 0).then(Held::new),
        };
        let wire = FabricWire::open(&choice).unwrap();
        WorldOptions::new()
            .nic(Fabric::over(Wrapped { hooks, wire }, options.clone()))
            .route(Route::Nic)
    };
    World::local_with(2, nic, rank)
}

/// Exchanges of `len` elements. Every look at received data is counted.
fn exchanges(
    world: &World,
    name: &str,
    len: usize,
    epochs: u64,
    limit: Option<Duration>,
    looks: &'static AtomicU64,
) -> Result<()> {
    let peer = 1 - world.rank();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u64>::new(name).buffers(Buffers::Double);
    if let Some(limit) = limit {
        window = window.fail_after(limit);
    }
    window.slot_from(peer, 0, len);
    let to = window.slot_to(peer, 0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    let src = Region::<u64, _>::zeroed(world, len)?.on(&s)?;
    for _ in 0..epochs {
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
        s.launch(
            |_: Slots<'_, u64>| {
                looks.fetch_add(1, Ordering::Relaxed);
            },
            inbox.view(),
        )?;
    }
    s.synchronize()?;
    drop((inbox, outbox));
    Ok(())
}

fn is_expected(error: &Error) -> bool {
    matches!(
        error,
        Error::Wait(_) | Error::Revoked { .. } | Error::Nic(_)
    )
}

/// A put that the target refuses never signals. Its peer takes no data for good, and gets the error. Another window of
/// both ranks goes on.
#[test]
fn a_wrong_key() {
    for provider in providers() {
        if !provided("a_wrong_key", provider) {
            return;
        }
        static LOOKS: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];
        static OTHERS: AtomicU64 = AtomicU64::new(0);
        const WELL: u8 = 0;
        const AGAIN: u8 = 1;
        const LATE: u8 = 2;
        static WORST: AtomicU8 = AtomicU8::new(WELL);
        let both = Barrier::new(2);
        let before = LOOKS[1].load(Ordering::Relaxed);
        ranks(provider, (true, false), &Options::default(), |world| {
            let looks = &LOOKS[world.rank()];
            // There is no limit. The refusal has broken the connection, over which the news of the failure goes when it
            // is made again.
            let error = exchanges(&world, "spoilt", SPOILT, 3, None, looks).unwrap_err();
            assert!(is_expected(&error), "{provider}: {error}");
            // Until the queues of the wrong window are over, operations on its words are refused, too, and break the
            // connection with all operations on it. As a rule this ends within about a second.
            let end = Instant::now() + Duration::from_secs(30);
            for number in 0.. {
                let result = exchanges(&world, &format!("sound {number}"), 9, 50, None, &OTHERS);
                let state = match &result {
                    Ok(()) => WELL,
                    Err(_) if Instant::now() < end => AGAIN,
                    Err(_) => LATE,
                };
                // Both ranks go on alike.
                WORST.fetch_max(state, Ordering::SeqCst);
                both.wait();
                let worst = WORST.load(Ordering::SeqCst);
                both.wait();
                WORST.store(WELL, Ordering::SeqCst);
                both.wait();
                if worst == WELL {
                    break;
                }
                let (rank, is_known) =
                    (world.rank(), result.as_ref().err().is_none_or(is_expected));
                assert!(
                    worst != LATE && is_known,
                    "{provider}, rank {rank}: {result:?}"
                );
            }
        });
        assert_eq!(LOOKS[1].load(Ordering::Relaxed), before, "{provider}");
    }
}

/// Nobody listens at the peer's supposed address.
#[test]
fn a_wrong_address() {
    for provider in providers() {
        if !provided("a_wrong_address", provider) {
            return;
        }
        static LOOKS: AtomicU64 = AtomicU64::new(0);
        let before = LOOKS.load(Ordering::Relaxed);
        let options = Options::default().silence(Duration::from_secs(2));
        ranks(provider, (false, true), &options, |world| {
            // There is no limit. A rank that cannot tell its peer about a failure stops using the NIC, and so does the
            // peer.
            let limit = None;
            // Rank 1 receives nothing; its own puts may arrive.
            let looks = if world.rank() == 1 { &LOOKS } else { &IGNORED };
            let error = exchanges(&world, "lost", 9, 3, limit, looks).unwrap_err();
            assert!(is_expected(&error), "{provider}: {error}");
        });
        assert_eq!(LOOKS.load(Ordering::Relaxed), before, "{provider}");
    }
}

static IGNORED: AtomicU64 = AtomicU64::new(0);

/// A provider that does not exist, and one on top of another that does not exist.
#[test]
fn a_provider_that_will_not_do() {
    if !provided("a_provider_that_will_not_do", tcp()) {
        return;
    }
    for name in ["no such provider", "no;ofi_rxm"] {
        let error = FabricWire::open(&Choice::at("127.0.0.1").provider(name)).err();
        let error = error.expect("there is none");
        assert!(
            matches!(&error, OpenError::UnknownProvider { provider, .. } if provider == name),
            "{name}: {error}"
        );
        let text = error.to_string();
        let listed = text.split_once("there are: ").expect("one is there").1;
        assert!(listed.split(", ").any(|each| each == tcp()), "{text}");
    }
}

/// With one trigger slot nothing is blocked, eager or recorded.
#[test]
fn a_budget_that_is_too_small() {
    if !provided("a_budget_that_is_too_small", tcp()) {
        return;
    }
    static LOOKS: AtomicU64 = AtomicU64::new(0);
    let options = Options::default().budget(1);
    ranks(tcp(), (false, false), &options, |world| {
        exchanges(&world, "one by one", 9, 100, None, &LOOKS).unwrap();
        let peer = 1 - world.rank();
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("two");
        window.slot_from(peer, 0, 1);
        let to = window.slot_to(peer, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let src = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        let lent = (src, inbox, outbox);
        let (twice, lent) = s
            .capture(lent, |s, (src, mut inbox, mut outbox)| {
                for _ in 0..2 {
                    let mut epoch = outbox.start();
                    epoch.put(&src, to)?;
                    (inbox, outbox) = exchange(s, inbox, epoch)?;
                }
                Ok((src, inbox, outbox))
            })
            .unwrap();
        drop(twice.replay(&s, lent, 20).unwrap());
        s.synchronize().unwrap();
    });
    assert_eq!(LOOKS.load(Ordering::Relaxed), 200);
}
