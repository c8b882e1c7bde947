//! Recordings: what is launched for how many replays, and when a graph is destroyed.

use std::panic::Location;
use std::sync::Arc;

use tidegate_gpu::driver::ErrorKind;
use tidegate_gpu::{GpuGraph, GpuStream};
use tidegate_hal::device::{DeviceError, Fault, Stream as _};

use super::driver::Did;
use super::{Bench, of};

/// A recording of as many batches.
fn recorded(bench: &Bench, stream: &GpuStream, batches: usize) -> Arc<GpuGraph> {
    stream.begin_capture(&[]).unwrap();
    for _ in 0..batches {
        // SAFETY: nothing is carried out.
        unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    }
    Arc::new(stream.end_capture(&[]).unwrap())
}

/// Replays, and returns the kernels of each launch.
fn replayed(bench: &Bench, stream: &GpuStream, graph: &Arc<GpuGraph>, times: u64) -> Vec<usize> {
    bench.null.did();
    // SAFETY: nothing is carried out.
    unsafe { stream.replay(&[], graph, times) }.unwrap();
    let launched = bench.null.did().into_iter().map(|did| match did {
        Did::Replay(on, kernels) if on == of(stream) => kernels,
        other => panic!("{other:?}"),
    });
    launched.collect()
}

#[test]
fn a_recording_launches_nothing_until_it_is_replayed() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.null.did();
    let graph = recorded(&bench, &stream, 3);
    assert_eq!(bench.null.did(), []);
    assert_eq!(replayed(&bench, &stream, &graph, 0), [0; 0]);
    assert_eq!(replayed(&bench, &stream, &graph, 1), [3]);
}

#[test]
fn many_replays_are_launched_in_rows() {
    let bench = Bench::new();
    let stream = bench.stream();
    let graph = recorded(&bench, &stream, 3);
    assert_eq!(replayed(&bench, &stream, &graph, 7), [3; 7]);
    let expected = [[3 * 64].as_slice(), &[3 * 8; 4], &[3; 4]].concat();
    assert_eq!(replayed(&bench, &stream, &graph, 100), expected);
    // The rows exist now.
    assert_eq!(replayed(&bench, &stream, &graph, 72), [3 * 64, 3 * 8]);
}

#[test]
fn children_do_where_the_driver_makes_other_edges() {
    let bench = Bench::new();
    let stream = bench.stream();
    let graph = recorded(&bench, &stream, 2);
    bench.null.make_other_edges();
    assert_eq!(replayed(&bench, &stream, &graph, 8), [2 * 8]);
}

#[test]
fn a_replay_that_is_taken_in_part_breaks_the_stream_off() {
    let bench = Bench::new();
    let stream = bench.stream();
    let graph = recorded(&bench, &stream, 1);
    // The first launch is refused: nothing has happened.
    bench.null.refuse("graph_launch", 0, ErrorKind::Other);
    // SAFETY: nothing is carried out.
    assert!(unsafe { stream.replay(&[], &graph, 3) }.is_err());
    assert_eq!(stream.fault(), None);
    // The second is refused, after the first was taken.
    bench.null.refuse("graph_launch", 1, ErrorKind::Other);
    // SAFETY: as above.
    unsafe { stream.replay(&[], &graph, 3) }.unwrap();
    let fault = stream.fault();
    assert!(
        matches!(&fault, Some(Fault::Transport(why) | Fault::Kernel(why)) if why.contains("in part only")),
        "{fault:?}"
    );
}

#[test]
fn a_broken_capture_leaves_the_stream_as_it_was() {
    let bench = Bench::new();
    let stream = bench.stream();
    bench.null.refuse("capture_begin", 0, ErrorKind::Other);
    assert!(stream.begin_capture(&[]).is_err() && !stream.capturing());
    stream.begin_capture(&[]).unwrap();
    assert!(matches!(
        stream.begin_capture(&[]),
        Err(DeviceError::Capturing(_))
    ));
    assert!(matches!(
        stream.synchronize(),
        Err(DeviceError::Capturing(_))
    ));
    bench.null.refuse("capture_end", 0, ErrorKind::Capture);
    assert!(matches!(
        stream.end_capture(&[]),
        Err(DeviceError::Capturing(_))
    ));
    assert!(!stream.capturing());
    bench.null.did();
    // SAFETY: nothing is carried out.
    unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    assert_eq!(bench.null.did(), [Did::Launch(of(&stream), true)]);
}

#[test]
fn two_streams_are_recorded_and_replayed_together() {
    let bench = Bench::new();
    let (first, second) = (bench.stream(), bench.stream());
    first.begin_capture(&[&second]).unwrap();
    assert!(first.capturing() && second.capturing());
    for stream in [&first, &second] {
        // SAFETY: nothing is carried out.
        unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
    }
    let graph = Arc::new(first.end_capture(&[&second]).unwrap());
    assert!(!first.capturing() && !second.capturing());
    bench.null.did();
    // SAFETY: as above.
    unsafe { first.replay(&[&second], &graph, 1) }.unwrap();
    assert_eq!(bench.null.did(), [Did::Replay(of(&first), 2)]);
}

#[test]
fn a_graph_is_destroyed_when_no_stream_has_work() {
    let bench = Bench::new();
    let (stream, other) = (bench.stream(), bench.stream());
    let graph = recorded(&bench, &stream, 5);
    bench.null.hold(other.as_raw());
    // SAFETY: nothing is carried out.
    unsafe { other.submit(&bench.batch(1), Location::caller()) }.unwrap();
    replayed(&bench, &stream, &graph, 1);
    stream.synchronize().unwrap().unwrap();
    drop(graph);
    drop(stream);
    assert!(!bench.null.did().contains(&Did::Destroyed(5)));
    bench.null.release(other.as_raw());
    drop(other);
    assert!(bench.null.did().contains(&Did::Destroyed(5)));
}

#[test]
fn a_recording_that_is_refused_leaves_no_graph() {
    let bench = Bench::new();
    let stream = bench.stream();
    let before = bench.null.graphs();
    for call in ["graph_node_count", "graph_instantiate"] {
        stream.begin_capture(&[]).unwrap();
        // SAFETY: nothing is carried out.
        unsafe { stream.submit(&bench.batch(1), Location::caller()) }.unwrap();
        bench.null.refuse(call, 0, ErrorKind::Other);
        assert!(stream.end_capture(&[]).is_err(), "{call}");
        assert_eq!(bench.null.graphs(), before, "{call}");
    }
}
