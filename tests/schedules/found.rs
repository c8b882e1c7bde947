//! Errors that the schedules have found, each as small as possible.

use tidegate::error::CaptureError;
use tidegate::generic::{PairGraph, Region};
use tidegate::host::prelude::*;

fn add(region: &mut [u64]) {
    region[0] += 1;
}

/// On the first stream, on the second, and back.
fn there_and_back<'s, 't>(
    one: &mut Stream<'s>,
    two: &mut Stream<'t>,
    region: Region<u64, On<'s>>,
) -> Result<(PairGraph<'s, 't, tidegate::host::Host>, Region<u64, On<'s>>)> {
    let (graph, (region, ())) = one.capture_with(two, (region, ()), |s, t, (region, ())| {
        let mut region = s.hand_off(region, t)?;
        t.launch(add, &mut region)?;
        let mut region = t.hand_off(region, s)?;
        s.launch(add, &mut region)?;
        Ok((region, ()))
    })?;
    Ok((graph, region))
}

/// Replaying blocked: the inline stream did its part before the other stream was told about the replay.
#[test]
fn an_inline_stream_is_the_second_of_a_recording() {
    World::local(1, |world: World| {
        for inline_first in [false, true] {
            let stream = |inline| match inline {
                true => world.inline_stream(),
                false => world.stream(),
            };
            stream!(let s = stream(inline_first).unwrap());
            stream!(let t = stream(!inline_first).unwrap());
            let region = Region::zeroed(&world, 1).unwrap().on(&s).unwrap();
            let (graph, region) = there_and_back(&mut s, &mut t, region).unwrap();
            let region = graph.replay(&s, &t, (region, ()), 3).unwrap().0;
            assert_eq!(region.into_host(&s).unwrap()[..], [6]);
        }
    });
}

/// Neither can begin before the other is done. This must be refused, since it would block.
#[test]
fn two_inline_streams_are_not_recorded_together() {
    World::local(1, |world: World| {
        stream!(let s = world.inline_stream().unwrap());
        stream!(let t = world.inline_stream().unwrap());
        let region = Region::zeroed(&world, 1).unwrap().on(&s).unwrap();
        let refused = there_and_back(&mut s, &mut t, region).err();
        assert!(
            matches!(refused, Some(Error::Capture(CaptureError::Inside { .. }))),
            "{refused:?}"
        );
    });
}

/// This was refused as a deadlock: the inbox had gone to another stream, on which it would be posted later.
#[test]
fn an_inbox_that_was_handed_over_is_posted_there_after_the_complete() {
    World::local(1, |world: World| {
        stream!(let s = world.stream().unwrap());
        stream!(let t = world.stream().unwrap());
        let mut window = SlotWindow::new("self").buffers(Buffers::Single);
        let from = window.slot_from(0, 0, 1);
        let to = window.slot_to(0, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let src = Region::from_slice(&world, &[7u64]).unwrap().on(&s).unwrap();
        let inbox = s.hand_off(inbox, &t).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&src, to).unwrap();
        let _ = epoch.complete(&s).unwrap();
        let mut inbox = inbox.post(&t).unwrap().wait(&t).unwrap();
        assert_eq!(inbox.read(&t).unwrap().slot(from), [7]);
    });
}

/// This was refused as an overlap: an empty range was taken to be in the middle of another one.
#[test]
fn no_elements_overlap_with_none() {
    World::local(1, |world: World| {
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::new("self");
        let from = window.slot_from(0, 0, 4);
        let to = window.slot_to(0, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let src = Region::from_slice(&world, &[7u64; 4]).unwrap();
        let src = src.on(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&src, to).unwrap();
        epoch.put(src.slice(2..2).unwrap(), to.at(2)).unwrap();
        let (mut inbox, _outbox) = exchange(&s, inbox, epoch).unwrap();
        assert_eq!(inbox.read(&s).unwrap().slot(from), [7; 4]);
    });
}
