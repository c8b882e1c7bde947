//! Misuses that a capture and its replays refuse.

use std::panic::{AssertUnwindSafe, catch_unwind};

use tidegate::Rejected;
use tidegate::error::{CaptureError, RegionError};
use tidegate::host::prelude::*;

use super::{Either, complete, error_of, window};

/// If it were replayed, a post that the types do not show would leave an inbox that kernels can view while it is
/// exposed.
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

/// If a recording of a whole epoch were replayed with an exposed inbox, it would expose it twice.
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

/// If a recording that waits for one group were replayed with an exposure to another, it would not wait for that one.
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

/// Two streams that are not captured together do not wait for each other.
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

/// Waiting, memory and collectives are not possible in a recording.
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

/// Everything that the step began is undone, and the stream can be used again.
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

/// A recording holds addresses. If the things with which it was made are gone, it cannot be replayed.
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
    // The region may go to the host and come back, since it is the same memory.
    let region = region.into_host(&s)?.on(&s)?;
    let region = graph.replay(&s, region, 3)?;
    // A part of it is not what was recorded, and neither is the whole after it was put together again.
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
    // Nor is another region, possibly at the same address.
    let other = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let other = graph
        .try_replay(&s, other, 1)
        .expect_err("it is not what was recorded")
        .value;
    assert_eq!(other.into_host(&s)?[..], [1.0; 4]);
    Ok(())
}

/// Things that cannot be recorded are given back unchanged.
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
    // A failed step has used the region.
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

/// A rejection becomes a boxed error with `?`, although it holds a value that does not outlive the function.
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

/// Buffers that are swapped, or dropped in the step.
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
