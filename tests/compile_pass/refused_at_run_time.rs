//! Attacks that types cannot refuse, and that are refused at run time.

use std::mem::forget;
use std::panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook};
use std::sync::{Arc, Mutex};
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate::error::{Error, CaptureError, EpochError, RegionError};
use tidegate::host::prelude::*;
use tidegate::Rejected;

/// An inbox in one of its two states.
#[derive(Carry)]
struct Either<'s> {
    inbox: Option<Inbox<'s, f64>>,
    exposed: Option<Exposed<'s, f64>>,
}

impl<'s> Either<'s> {
    fn closed(inbox: Inbox<'s, f64>) -> Self {
        Either {
            inbox: Some(inbox),
            exposed: None,
        }
    }

    fn open(exposed: Exposed<'s, f64>) -> Self {
        Either {
            inbox: None,
            exposed: Some(exposed),
        }
    }
}

fn window<'s>(s: &Stream<'s>) -> Result<(Inbox<'s, f64>, Outbox<'s, f64>)> {
    named("w", s)
}

fn named<'s>(name: &str, s: &Stream<'s>) -> Result<(Inbox<'s, f64>, Outbox<'s, f64>)> {
    let mut window = SlotWindow::new(name).buffers(Buffers::Single);
    window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    window.open(s)
}

/// The one slot of such a window.
fn slot(outbox: &Outbox<'_, f64>) -> Out<f64> {
    outbox.slots().next().expect("there is one")
}

fn complete<'s>(s: &Stream<'s>, outbox: Outbox<'s, f64>) -> Result<Outbox<'s, f64>> {
    outbox.start().complete(s)
}

fn error_of<T>(result: Result<T>) -> Error {
    result.err().expect("it is refused")
}

/// Replayed, a post that the types do not show would leave an inbox that kernels can view while it is exposed.
#[test]
fn a_step_that_leaves_its_inbox_posted() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, _outbox) = window(&s)?;
    let refused = s.capture(Either::closed(inbox), |s, lent| {
        let inbox = lent.inbox.expect("it was lent");
        Ok(Either::open(inbox.post(s)?))
    });
    assert!(matches!(error_of(refused), Error::Capture(CaptureError::NotReplayable { .. })));
    Ok(())
}

/// A recording of a whole epoch, replayed with an inbox that is exposed already, would expose it twice.
#[test]
fn a_recording_for_an_inbox_replayed_with_an_exposure() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, outbox) = window(&s)?;
    let (graph, (inbox, outbox)) = s.capture((inbox, outbox), |s, (inbox, outbox)| {
        let exposed = inbox.post(s)?;
        let outbox = complete(s, outbox)?;
        Ok((exposed.wait(s)?, outbox))
    })?;
    let exposed = inbox.post(&s)?;
    let Err(Rejected { error, value }) = graph.try_replay(&s, (exposed, outbox), 1) else {
        panic!("it was replayed");
    };
    assert!(matches!(error, Error::Capture(CaptureError::OtherGraph { .. })), "{error}");
    let (exposed, outbox) = value;
    let outbox = complete(&s, outbox)?;
    let inbox = exposed.wait(&s)?;
    graph.replay(&s, (inbox, outbox), 3)?;
    s.synchronize()
}

/// A recording that waits for one group, replayed with an exposure to another one, would not wait for that one.
#[test]
fn a_recording_for_one_group_replayed_with_another() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, outbox) = window(&s)?;
    let (myself, nobody) = (Group::new([0]), Group::new([]));
    let exposed = inbox.post_to(&s, &nobody)?;
    let (graph, exposed) = s.capture(exposed, |s, exposed| {
        exposed.wait(s)?.post_to(s, &nobody)
    })?;
    let exposed = graph.replay(&s, exposed, 3)?;
    let exposed = exposed.wait(&s)?.post_to(&s, &myself)?;
    let Err(Rejected { error, value }) = graph.try_replay(&s, exposed, 1) else {
        panic!("it was replayed");
    };
    assert!(matches!(error, Error::Capture(CaptureError::OtherGraph { .. })), "{error}");
    complete(&s, outbox)?;
    value.wait(&s)?;
    s.synchronize()
}

/// On its one stream a rank's own complete could only come behind the wait for it.
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

/// A replay of one recording would wait for a replay of the other.
#[test]
fn a_region_handed_over_between_two_captures() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    stream!(let t = world.stream()?);
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let y = Region::from_slice(&world, &[1.0; 4])?.on(&t)?;
    let mut inner = None;
    let outer = s.capture(x, |s, x| {
        let mut x = Some(x);
        inner = Some(t.capture(
            y,
            |t, y| match s.try_hand_off(x.take().expect("it is there"), t) {
                Ok(_) => Ok(y),
                Err(Rejected { error, value }) => {
                    x = Some(value);
                    Err(error)
                }
            },
        ));
        Ok(x.take().expect("it came back"))
    });
    let inner = inner.expect("it was tried");
    assert!(matches!(error_of(inner), Error::Capture(CaptureError::Inside { .. })));
    outer?;
    Ok(())
}

/// Each of two streams that are not captured together goes on without the other.
#[test]
fn a_region_handed_over_into_and_out_of_a_capture() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    stream!(let t = world.stream()?);
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let y = Region::from_slice(&world, &[1.0; 4])?.on(&t)?;
    let (_graph, _x) = s.capture(x, |s, x| {
        let Err(Rejected { error, value: x }) = s.try_hand_off(x, &t) else {
            panic!("it was handed out");
        };
        assert!(matches!(error, Error::Capture(CaptureError::Inside { .. })), "{error}");
        let Err(Rejected { error, .. }) = t.try_hand_off(y, s) else {
            panic!("it was handed in");
        };
        assert!(matches!(error, Error::Capture(CaptureError::Inside { .. })), "{error}");
        Ok(x)
    })?;
    Ok(())
}

/// A window's words ring the bell of one rank; a stream of another one would not hear it.
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

/// Waiting, memory and collectives have no place in a recording.
#[test]
fn synchronisation_inside_a_capture() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, outbox) = window(&s)?;
    let region = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let lent = (inbox, outbox, region);
    let (_graph, _lent) = s.capture(lent, |s, (mut inbox, outbox, region)| {
        assert!(matches!(s.synchronize(), Err(Error::Capture(CaptureError::Inside { .. }))));
        assert!(matches!(inbox.read(s), Err(Error::Capture(CaptureError::Inside { .. }))));
        assert!(matches!(window(s), Err(Error::Capture(CaptureError::Inside { .. }))));
        let more = Region::from_slice(s.world(), &[1.0; 4])?;
        assert!(matches!(more.on(s), Err(Error::Capture(CaptureError::Inside { .. }))));
        let exposed = match inbox.post(s)?.try_test(s) {
            Err(Rejected {
                error: Error::Capture(CaptureError::Inside { .. }),
                value,
            }) => value,
            _ => panic!("it was tested"),
        };
        let outbox = complete(s, outbox)?;
        let inbox = exposed.wait(s)?;
        let Err(Rejected { error, value }) = region.try_into_host(s) else {
            panic!("it went to the host");
        };
        assert!(matches!(error, Error::Capture(CaptureError::Inside { .. })), "{error}");
        Ok((inbox, outbox, value))
    })?;
    Ok(())
}

/// What the step began is undone, and the stream can be used again.
#[test]
fn a_panic_inside_a_capture() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let region = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let attempt = catch_unwind(AssertUnwindSafe(|| {
        let step = s.capture(region, |s, mut region| {
            s.launch(|x: &mut [f64]| x.fill(f64::NAN), &mut region)?;
            if !region.is_empty() {
                panic!("inside the capture");
            }
            Ok(region)
        });
        step.is_ok()
    }));
    assert!(attempt.is_err());
    let mut other = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    s.launch(|x: &mut [f64]| x.fill(2.0), &mut other)?;
    assert_eq!(other.into_host(&s)?[..], [2.0; 4]);
    Ok(())
}

/// A recording holds addresses. Whoever has lost what it was made with cannot replay it.
#[test]
fn replaying_what_is_no_longer_there() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let region = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let (graph, region) = s.capture(region, |s, region| {
        let mut region = region;
        s.launch(
            |x: &mut [f64]| x.iter_mut().for_each(|x| *x *= 2.0),
            &mut region,
        )?;
        Ok(region)
    })?;
    // It may go to the host and come back: it is the same memory.
    let region = region.into_host(&s)?.on(&s)?;
    let region = graph.replay(&s, region, 3)?;
    // A part of it, or the whole put together again, is not what was recorded.
    let (low, high) = region.split_at(2)?;
    let low = graph
        .try_replay(&s, low, 1)
        .expect_err("it is not what was recorded")
        .value;
    let region = low.join(high)?;
    let region = graph
        .try_replay(&s, region, 1)
        .expect_err("it is not what was recorded")
        .value;
    assert_eq!(region.into_host(&s)?[..], [8.0; 4]);
    // Another one, perhaps at the same address, is not either.
    let other = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let other = graph
        .try_replay(&s, other, 1)
        .expect_err("it is not what was recorded")
        .value;
    assert_eq!(other.into_host(&s)?[..], [1.0; 4]);
    Ok(())
}

/// What cannot be recorded is given back: nothing has been done with it.
#[test]
fn a_recording_that_cannot_begin() -> Result<()> {
    let worlds: [World; 2] = [World::init()?, World::init()?];
    stream!(let s = worlds[0].stream()?);
    stream!(let t = worlds[1].stream()?);
    let here = Region::from_slice(&worlds[0], &[1.0; 4])?.on(&s)?;
    let there = Region::from_slice(&worlds[1], &[2.0; 4])?.on(&t)?;
    let refused = s.try_capture_with(&mut t, (here, there), |_, _, lent| Ok(lent));
    let Rejected { error, value } = refused.expect_err("of two worlds");
    assert!(matches!(error, Error::Region(RegionError::OtherWorld)));
    let (here, there) = value.expect("no step has had it");
    assert_eq!(here.into_host(&s)?[..], [1.0; 4]);
    assert_eq!(there.into_host(&t)?[..], [2.0; 4]);
    // A step that fails has had it.
    let region = Region::from_slice(&worlds[0], &[1.0; 4])?.on(&s)?;
    let refused = s.try_capture(region, |s, region| {
        s.synchronize()?;
        Ok(region)
    });
    let Rejected { error, value } = refused.expect_err("it cannot wait here");
    assert!(matches!(error, Error::Capture(CaptureError::Inside { .. })), "{error}");
    assert!(value.is_none());
    Ok(())
}

/// What is rejected becomes a boxed error with `?`, although it holds what lives no longer than the function.
#[test]
fn a_function_that_boxes_its_errors() {
    fn step() -> std::result::Result<(), Box<dyn std::error::Error>> {
        let world: World = World::init()?;
        stream!(let s = world.stream()?);
        let region = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
        let other = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
        let (graph, _region) = s.capture(region, |_, region| Ok(region))?;
        let _ = graph.replay(&s, other, 1)?;
        Ok(())
    }
    let error = step().expect_err("it is not what was recorded");
    let error = error.downcast::<Error>().expect("as it was");
    assert!(matches!(*error, Error::Capture(CaptureError::OtherGraph { .. })));
}

/// Swapped buffers, or one dropped on the way.
#[test]
fn a_step_that_ends_with_something_else() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let region = || Region::from_slice(&world, &[1.0; 4]);
    let lent = (region()?.on(&s)?, region()?.on(&s)?);
    let swapped = s.capture(lent, |_, (a, b)| Ok((b, a)));
    let error = error_of(swapped);
    assert!(matches!(error, Error::Capture(CaptureError::NotReplayable { .. })));
    assert!(error.to_string().contains("capture two steps"), "{error}");
    let lent = vec![region()?.on(&s)?, region()?.on(&s)?];
    let dropped = s.capture(lent, |s, mut lent| {
        let mut last = lent.pop().expect("there are two");
        s.launch(|x: &mut [f64]| x.fill(1.0), &mut last)?;
        Ok(lent)
    });
    assert!(matches!(error_of(dropped), Error::Capture(CaptureError::NotReplayable { .. })));
    Ok(())
}

/// What `main` prints of an error, and `unwrap` of what was refused, are its words.
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
    let words = format!("window `w` ({id}): elements 0..9 do not fit in outbound slot 0 (declared by rank 0) of 4 elements");
    assert_eq!(error.to_string(), words);
    assert_eq!(format!("{error:?}"), words);
    assert_eq!(format!("{:?}", Rejected { error, value: () }), words);
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    Ok(())
}

/// It names what there is, and what was asked for, and is said to be where that was: here.
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
    // Stays: tests that panic meanwhile are heard of as before.
    set_hook(Box::new(move |info| match info.payload().downcast_ref() {
        Some::<&String>(text) if text.starts_with("the handle of inbound slot") => {
            let file = info.location().map_or("nowhere", |place| place.file());
            *heard.lock().unwrap() = format!("{text}, in {file}");
        }
        _ => before(info),
    }));
    catch_unwind(AssertUnwindSafe(|| slots.slot(foreign)[0])).expect_err("there is one");
    let text = "the handle of inbound slot 0 belongs to another window: this one has 1 inbound slot";
    // Not locked while it is compared: the hook would wait for itself.
    let said = said.lock().unwrap().clone();
    assert_eq!(said, format!("{text}, in {}", file!()));
    // `mut` is accepted above, and there is something to be mutated.
    s.capture((), |_, ()| Ok(()))?;
    Ok(())
}

/// Leaks, in every state of every token; the runtime keeps what the queue needs.
#[test]
fn forgetting() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    for state in 0..5 {
        // What is forgotten keeps its name.
        let (inbox, outbox) = named(&format!("w{state}"), &s)?;
        let mut src = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
        s.launch(|x: &mut [f64]| x.fill(2.0), &mut src)?;
        let exposed = inbox.post(&s)?;
        if state == 0 {
            forget((exposed, outbox, src));
            continue;
        }
        let to = slot(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        if state == 1 {
            forget(epoch);
            forget((exposed, src));
            continue;
        }
        let outbox = epoch.complete(&s)?;
        if state == 2 {
            forget(outbox);
            drop((exposed, src));
            continue;
        }
        let inbox = exposed.wait(&s)?;
        s.launch(
            |slots: Slots<'_, f64>| slots.iter().for_each(|slot| assert_eq!(slot, [2.0; 4])),
            inbox.view(),
        )?;
        if state == 3 {
            forget(inbox);
        } else {
            drop((inbox, outbox, src));
        }
    }
    s.synchronize()
}

/// Memory is freed when the stream has passed, whatever was dropped before.
#[test]
fn dropping_while_kernels_run() -> Result<()> {
    let world: World = World::init()?;
    let total = Arc::new(AtomicU64::new(0));
    {
        stream!(let s = world.stream()?);
        for _ in 0..100 {
            let mut region = Region::<u64>::zeroed(&world, 10_000)?.on(&s)?;
            s.launch(|x: &mut [u64]| x.fill(3), &mut region)?;
            let total = total.clone();
            let sum = move |x: &[u64]| {
                total.fetch_add(x.iter().sum(), Ordering::Relaxed);
            };
            s.launch(sum, &region)?;
        }
    }
    assert_eq!(total.load(Ordering::Relaxed), 100 * 30_000);
    Ok(())
}

/// Nothing to address, and no null slices.
#[test]
fn regions_of_no_elements() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut empty = Region::<f64>::zeroed(&world, 0)?;
    empty.write(0, &[])?;
    empty.read(0, &mut [])?;
    assert!(empty.write(0, &[1.0]).is_err() && empty.write(usize::MAX, &[1.0]).is_err());
    assert!(empty.is_empty() && empty[..].is_empty());
    empty.fill(1.0);
    let mut empty = empty.on(&s)?;
    s.launch(|x: &mut [f64]| assert!(x.is_empty()), &mut empty)?;
    let whole = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let (whole, mut end) = whole.split_at(4)?;
    s.launch(|x: &mut [f64]| assert!(x.is_empty()), &mut end)?;
    let (inbox, outbox) = window(&s)?;
    let exposed = inbox.post(&s)?;
    let to = slot(&outbox);
    let mut epoch = outbox.start();
    epoch.put(&empty, to)?;
    epoch.put(&end, to.at(4))?;
    epoch.put(whole.slice(0..4)?, to)?;
    assert!(epoch.put(&end, to.at(5)).is_err());
    assert!(epoch.put(&whole, to.at(usize::MAX)).is_err());
    assert!(whole.slice(3..5).is_err() && whole.slice(usize::MAX..usize::MAX).is_err());
    epoch.complete(&s)?;
    exposed.wait(&s)?;
    s.synchronize()
}

/// Sizes that overflow, in the product or in the sum.
#[test]
fn sizes_that_cannot_be() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    for len in [
        usize::MAX,
        usize::MAX / 8,
        isize::MAX as usize / 8 + 1,
        1 << 60,
    ] {
        assert!(Region::<f64>::zeroed(&world, len).is_err());
        let mut window = SlotWindow::<f64>::new("w");
        window.slot_from(0, 0, len);
        window.slot_to(0, 0);
        assert!(window.open(&s).is_err());
        assert!(RangeWindow::<f64>::new("w", len).open(&s).is_err());
    }
    assert!(Layout::strided(usize::MAX, &[(2, 1)]).is_err());
    assert!(Layout::strided(0, &[(u32::MAX, i32::MAX)]).is_err());
    assert!(Layout::strided(0, &[(2, -1)]).is_err());
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
    let words = format!("window `w` ({id}): outbound slot 0, to rank 0, is taken twice in one epoch");
    assert_eq!(twice.to_string(), words);
    // Nothing was taken by that.
    let [kept] = epoch.take([to])?;
    assert!(matches!(epoch.take([to]), Err(Error::Epoch(EpochError::SlotTaken { rank: 0, slot: 0, .. }))));
    let outbox = epoch.complete(&s)?;
    let exposed = exposed.wait(&s)?.post(&s)?;
    let mut epoch = outbox.start();
    let expired = epoch.put(&src, kept);
    assert!(matches!(expired, Err(Error::Epoch(EpochError::SlotExpired { rank: 0, slot: 0, .. }))));
    let [again] = epoch.take([to])?;
    epoch.put(src.slice(0..2)?, again.at(1))?;
    // What was taken has no more rights than the handle.
    epoch.put(src.slice(2..3)?, to)?;
    epoch.put(&src, to)?;
    let Err(Rejected { error, .. }) = epoch.try_complete(&s) else {
        panic!("it was completed");
    };
    assert!(matches!(error, Error::Epoch(EpochError::Overlap { rank: 0, slot: 0, .. })), "{error}");
    drop(exposed);
    Ok(())
}

/// A slot that is put to twice, the second time where something is already; and in two parts, which may be.
#[test]
fn one_slot_twice() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<f64>::new("w").buffers(Buffers::Single);
    window.slot_from(0, 0, 3);
    window.slot_from(0, 1, 4);
    let [_, to] = [0, 1].map(|key| window.slot_to(0, key));
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
    let words = format!(
        "window `w` ({id}): outbound slot 1, to rank 0, is used twice in one epoch: two operations touch its elements 2..3"
    );
    assert_eq!(error.to_string(), words);
    Ok(())
}

/// A handle of another window, be it of the same name, elements and slots.
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
    // Neither has changed anything.
    let [once] = epoch.take([own])?;
    epoch.put(&src, once)?;
    let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
    let from = inbox.slots().next().expect("there is one");
    assert_eq!(inbox.read(&s)?[from], [1.0; 4]);
    Ok(())
}

/// The types that may go to another thread, and those that may be shared.
#[test]
fn what_may_cross_threads() {
    fn send<T: Send>() {}
    fn sync<T: Sync>() {}
    send::<Stream<'_>>();
    send::<Region<f64>>();
    sync::<Region<f64>>();
    send::<Region<f64, On<'_>>>();
    sync::<Region<f64, On<'_>>>();
    send::<Inbox<'_, f64>>();
    send::<Exposed<'_, f64>>();
    send::<Outbox<'_, f64>>();
    send::<Access<'_, '_, f64>>();
    send::<Graph<'_>>();
    sync::<Graph<'_>>();
    send::<Layout>();
    sync::<Layout>();
    send::<World>();
    sync::<World>();
}

/// A region whose stream is owned by another thread can be dropped here.
#[test]
fn a_region_dropped_by_another_thread() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    std::thread::scope(|scope| {
        let (sender, receiver) = std::sync::mpsc::channel();
        scope.spawn(move || receiver.into_iter().for_each(drop));
        for _ in 0..1000 {
            let mut region = Region::<u64>::zeroed(&world, 1000)?.on(&s)?;
            s.launch(|x: &mut [u64]| x.fill(3), &mut region)?;
            sender.send(region).expect("the other thread listens");
        }
        s.synchronize()
    })
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
