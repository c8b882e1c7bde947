//! What the endpoint writes to the log, and how much.
//!
//! There is one test only. The subscriber is the one of the process, and it must be there before any thread logs: a place
//! in the code that another thread reaches first may count as "nobody listens" from then on.

#[path = "rig/parting.rs"]
mod parting;
mod rig;

use std::fmt::Debug;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use parting::{LONG, Wish, between, busy, odd, settle, until};
use rig::{Rig, SENT};
use tidegate_fabric::wire::Wire as _;
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fake::{Card, Config};
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::Direction;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

/// The errors so far.
static ERRORS: Mutex<Vec<String>> = Mutex::new(Vec::new());
/// The number of warnings so far.
static WARNINGS: AtomicUsize = AtomicUsize::new(0);

/// Keeps errors, and counts warnings.
struct Log;

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, _field: &Field, value: &dyn Debug) {
        self.0 += &format!("{value:?} ");
    }
}

impl Subscriber for Log {
    fn enabled(&self, of: &Metadata<'_>) -> bool {
        *of.level() <= Level::WARN
    }

    fn event(&self, event: &Event<'_>) {
        if *event.metadata().level() == Level::WARN {
            WARNINGS.fetch_add(1, Ordering::SeqCst);
            return;
        }
        let mut text = Text(String::new());
        event.record(&mut text);
        let mut errors = ERRORS.lock().unwrap_or_else(PoisonError::into_inner);
        errors.push(text.0);
    }

    fn new_span(&self, _span: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _span: &Id, _values: &Record<'_>) {}
    fn record_follows_from(&self, _span: &Id, _follows: &Id) {}
    fn enter(&self, _span: &Id) {}
    fn exit(&self, _span: &Id) {}
}

/// Ends an endpoint, and returns the errors since the last call.
fn errors(rig: Rig) -> Vec<String> {
    assert!(rig.nic.quiesce(LONG));
    drop(rig);
    std::mem::take(&mut ERRORS.lock().unwrap())
}

#[test]
fn the_log_has_what_matters() {
    tracing::subscriber::set_global_default(Log).unwrap();
    a_departure_in_good_order_is_no_error();
    failures_that_belong_to_no_operation_fill_no_log();
}

fn a_departure_in_good_order_is_no_error() {
    let nothing: Vec<String> = Vec::new();
    // An operation fails.
    let (rig, wish) = busy(Direction::Put);
    between(&rig, 0, || wish.fails());
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!(errors(rig), nothing);
    // A post is refused.
    let (rig, wish) = odd(&[]);
    rig.arm(&[rig.put(1)], 1).unwrap();
    between(&rig, 0, || is_refused(&rig, &wish));
    assert_eq!(rig.wait(SENT, 1), QUANTUM);
    assert_eq!(errors(rig), nothing);
    // An armed program fails in the hardware before it is rung for, and no ring comes.
    let (mut rig, wish) = odd(&[0]);
    rig.arm(&[rig.put(1)], 1).unwrap();
    between(&rig, 0, || {
        wish.stuck[0].store(true, Ordering::SeqCst);
        until("nothing fails", || {
            wish.seen_stuck[0].load(Ordering::SeqCst) > 0
        });
        rig.poison();
        assert_eq!(rig.wait(SENT, 1), POISON);
    });
    rig.queue = None;
    assert_eq!(errors(rig), nothing);
    // Towards a peer that stays, the failure is logged.
    let (rig, wish) = odd(&[]);
    rig.arm(&[rig.put(1)], 1).unwrap();
    is_refused(&rig, &wish);
    assert_eq!(rig.wait(SENT, 1), POISON);
    assert_eq!(errors(rig).len(), 1);
    // A get that waits for data of the peer fails, and that is logged, too.
    let (rig, wish) = busy(Direction::Get);
    between(&rig, 0, || {
        wish.fails();
        assert_ne!(rig.wait(SENT, 1) & POISON, 0);
    });
    assert_eq!(errors(rig).len(), 1);
    // So it is if a get is posted when it is known that the peer has left, by the engine or by hardware.
    for chains in [&[][..], &[0]] {
        let (rig, _) = odd(chains);
        let get = rig.transfer(&rig.memory, Direction::Get, 1);
        rig.arm(&[rig.program(vec![get])], 2).unwrap();
        rig.leaves(0);
        rig.ring();
        assert_eq!(rig.wait(SENT, 1), POISON);
        let errors = errors(rig);
        assert!(
            matches!(&errors[..], [one] if one.contains("rank 0")),
            "{errors:?}"
        );
    }
}

/// A provider may report failures of what peers have begun. However many there are, they do not fill the log.
fn failures_that_belong_to_no_operation_fill_no_log() {
    let card = Card::new(Config::default());
    let choice = Choice::at(card.name());
    let mut wire = FabricWire::open_by(&tidegate_fake::library(), &choice).unwrap();
    let warnings = || WARNINGS.swap(0, Ordering::SeqCst);
    warnings();
    card.strays(1000);
    let mut events = Vec::new();
    for _ in 0..1000 {
        wire.poll(&mut events).unwrap();
    }
    assert!(events.is_empty(), "{events:?}");
    assert_eq!(warnings(), 1);
    drop(wire);
    assert_eq!(warnings(), 1, "the total");
}

/// Makes the wire refuse the next put, and rings for it.
fn is_refused(rig: &Rig, wish: &Wish) {
    wish.refuse.store(true, Ordering::SeqCst);
    rig.ring();
    until("nothing is refused", || {
        wish.refused.load(Ordering::SeqCst) == 1
    });
    settle(rig);
}
