//! Misuses that windows and their slots refuse.

use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Mutex};

use tidegate::Rejected;
use tidegate::error::{EpochError, RegionError};
use tidegate::host::prelude::*;

use super::{complete, named, slot, window};

/// On its one stream, a rank's own complete could only come behind the wait for it.
#[test]
fn waiting_for_oneself() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, outbox) = window(&s)?;
    let Err(Rejected { error, value }) = inbox.try_expose(&s) else {
        panic!("it was exposed");
    };
    assert!(matches!(error, Error::Epoch(EpochError::SelfDeadlock { .. })), "{error}");
    let Err(Rejected { error, value }) = value.post(&s)?.try_wait(&s) else {
        panic!("it was waited for");
    };
    assert!(matches!(error, Error::Epoch(EpochError::SelfDeadlock { .. })), "{error}");
    complete(&s, outbox)?;
    value.wait(&s)?;
    s.synchronize()
}

/// A window's words ring the bell of one rank, and a stream of another rank would not notice.
#[test]
fn an_inbox_handed_over_to_another_world() -> Result<()> {
    let (one, two): (World, World) = (World::init()?, World::init()?);
    stream!(let s = one.stream()?);
    stream!(let t = two.stream()?);
    let (inbox, _outbox) = window(&s)?;
    let Err(Rejected { error, .. }) = s.try_hand_off(inbox, &t) else {
        panic!("it was handed over");
    };
    assert!(matches!(error, Error::Region(RegionError::OtherWorld)), "{error}");
    Ok(())
}

/// `main` prints an error's words, and so does `unwrap` for a rejection.
#[test]
fn an_error_is_printed_in_words() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, outbox) = window(&s)?;
    let src = Region::from_slice(&world, &[1.0; 9])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let (to, id) = (slot(&outbox), outbox.id());
    let mut epoch = outbox.start();
    let error = epoch.put(&src, to).expect_err("it is too long");
    let Error::Epoch(EpochError::OutOfBounds { slot: long, .. }) = &error else {
        panic!("{error}");
    };
    let declared = long.declared;
    let words = format!(
        "window `w` ({id}): elements 0..9 do not fit in the slot of rank 0 with key 0 (declared at {declared}), which has 4 elements"
    );
    assert_eq!(error.to_string(), words);
    assert_eq!(format!("{error:?}"), words);
    assert_eq!(format!("{:?}", Rejected { error, value: () }), words);
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}

/// The panic names the existing slots and the wrong handle, and the caller's place: here.
#[test]
fn an_inbound_slot_of_another_window() -> Result<()> {
    let world: World = World::init()?;
    stream!(let mut s = world.stream()?);
    let (mut inbox, _outbox) = window(&s)?;
    let (other, _other_outbox) = named("other", &s)?;
    let foreign = other.slots().next().expect("there is one");
    let slots = inbox.read(&s)?;
    let (said, before) = (Arc::new(Mutex::new(String::new())), take_hook());
    let heard = said.clone();
    // The hook stays; tests that panic meanwhile are reported as before.
    set_hook(Box::new(move |info| match info.payload().downcast_ref() {
        Some::<&String>(text) if text.starts_with("the handle of inbound slot") => {
            let file = info.location().map_or("nowhere", |place| place.file());
            *heard.lock().unwrap() = format!("{text}, in {file}");
        }
        _ => before(info),
    }));
    catch_unwind(AssertUnwindSafe(|| slots.slot(foreign)[0])).expect_err("there is one");
    let text = "the handle of inbound slot 0 belongs to another window: this one has 1 inbound slot";
    // The lock is not held during the comparison, or the hook would wait for itself.
    let said = said.lock().unwrap().clone();
    assert_eq!(said, format!("{text}, in {}", file!()));
    // `mut` is accepted above, and there is something to change.
    s.capture((), |_, ()| Ok(()))?;
    Ok(())
}

/// Slots of one epoch in another, or taken twice.
#[test]
fn slots_of_another_epoch() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, outbox) = window(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let (to, id) = (slot(&outbox), outbox.id());
    let mut epoch = outbox.start();
    let twice = epoch.take([to, to]).expect_err("it is one slot");
    let said = twice.to_string();
    let begin = format!("window `w` ({id}): the slot of rank 0 with key 0 (declared at ");
    assert!(said.starts_with(&begin) && said.ends_with(") is taken twice in one epoch"), "{said}");
    // That took nothing.
    let [kept] = epoch.take([to])?;
    assert!(matches!(epoch.take([to]), Err(Error::Epoch(EpochError::SlotTaken { .. }))));
    let outbox = epoch.complete(&s)?;
    let exposed = exposed.wait(&s)?.post(&s)?;
    let mut epoch = outbox.start();
    let expired = epoch.put(&src, kept);
    assert!(matches!(expired, Err(Error::Epoch(EpochError::SlotExpired { .. }))));
    let [again] = epoch.take([to])?;
    epoch.put(src.slice(0..2)?, again.at(1))?;
    // A taken handle has no more rights than a plain one.
    epoch.put(src.slice(2..3)?, to)?;
    epoch.put(&src, to)?;
    let Err(Rejected { error, .. }) = epoch.try_complete(&s) else {
        panic!("it was completed");
    };
    assert!(matches!(error, Error::Epoch(EpochError::Overlap { .. })), "{error}");
    drop(exposed);
    Ok(())
}

/// A slot with two puts, the second to elements of the first; and a slot in two parts, which is allowed.
#[test]
fn one_slot_twice() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w").buffers(Buffers::Single);
    window.slot_from(0, 0, 3);
    window.slot_from(0, 1, 4);
    window.slot_to(0, 0);
    let (to, line) = (window.slot_to(0, 1), line!());
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let mut epoch = outbox.start();
    epoch.put(src.slice(0..2)?, to)?;
    epoch.put(src.slice(0..2)?, to.at(2))?;
    let (inbox, outbox) = exchange(&s, inbox, epoch)?;
    let id = outbox.id();
    let mut epoch = outbox.start();
    epoch.put(src.slice(0..3)?, to)?;
    epoch.put(src.slice(0..2)?, to.at(2))?;
    let error = exchange(&s, inbox, epoch).expect_err("two puts touch element 2");
    let said = error.to_string();
    let begin = format!("window `w` ({id}): the slot of rank 0 with key 1 (declared at {}:{line}:", file!());
    let end = ") is used twice in one epoch: two operations touch its elements 2..3";
    assert!(said.starts_with(&begin) && said.ends_with(end), "{said}");
    Ok(())
}

/// A handle of another window, even with the same name, elements and slots.
#[test]
fn outbound_slots_of_another_window() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, outbox) = named("earlier", &s)?;
    let earlier = slot(&outbox);
    drop((inbox, outbox));
    let (inbox, outbox) = named("earlier", &s)?;
    let own = slot(&outbox);
    assert_ne!(earlier, own);
    let src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let id = outbox.id();
    let mut epoch = outbox.start();
    let error = epoch.put(&src, earlier).expect_err("it is another window's");
    let words = format!(
        "window `earlier` ({id}): the handle of outbound slot 0 belongs to another window: \
         use a handle that this window's declaration returned on this rank"
    );
    assert_eq!(error.to_string(), words);
    assert!(matches!(epoch.put(&src, earlier.at(1)), Err(Error::Epoch(EpochError::ForeignSlot { slot: 0, .. }))));
    assert!(matches!(epoch.take([own, earlier]), Err(Error::Epoch(EpochError::ForeignSlot { .. }))));
    // Neither changed anything.
    let [once] = epoch.take([own])?;
    epoch.put(&src, once)?;
    let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
    let from = inbox.slots().next().expect("there is one");
    assert_eq!(inbox.read(&s)?[from], [1.0; 4]);
    Ok(())
}

/// Atomic operations find comparands and results by their first element.
#[test]
fn results_of_atomic_operations_with_a_layout() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = AtomicWindow::<u64>::new("w", 4);
    let at = window.target(0);
    let (inbox, outbox) = window.open(&s)?;
    let numbers = Region::from_slice(&world, &[0, 1, 2, 3])?.on(&s)?;
    let mut old = Region::from_slice(&world, &[9; 4])?.on(&s)?;
    let mut seen = Region::from_slice(&world, &[9; 4])?.on(&s)?;
    let mut was = Region::from_slice(&world, &[9; 4])?.on(&s)?;
    let apart = Layout::strided(0, &[(2, 2)])?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    let refusals = [
        epoch.fetch_and_op(numbers.slice(0..2)?, old.with_mut(&apart)?, at.at(2), Op::Sum),
        epoch.get(seen.with_mut(&apart)?, at.at(2)),
        epoch.compare_and_swap(numbers.with(&apart)?, &numbers, &mut was, at.at(2)),
    ];
    for refused in refusals {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Epoch(EpochError::NotSideBySide { .. })), "{error}");
        let text = error.to_string();
        assert!(text.starts_with("window `") && text.contains("side by side"), "{error}");
    }
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}
