//! The state of a stream in its work, as reports show it.

use std::panic::Location;
use std::sync::Arc;

use tidegate_hal::batch::{Awaited, Tag};
use tidegate_hal::device::{Priority, Reclaim as _, Stand, StreamConfig, Work};
use tidegate_hal::memory::Ptr;
use tidegate_words::Bell;
use tidegate_words::sync::Ordering;

use crate::reclaim::{AtWork, Named, StreamState};

/// A stream with work; the test is its executor.
fn stream() -> StreamState {
    let bell = Arc::new(Bell::new());
    let shared = StreamState::new(StreamConfig {
        name: "stream".into(),
        bell: Ptr(Arc::as_ptr(&bell).cast_mut().cast()),
        keep: bell,
        inline: false,
        ranks_on_node: 1,
        priority: Priority::Normal,
        helper: None,
        stamped: false,
    });
    shared.submitted.store(1, Ordering::Release);
    shared
}

fn wait() -> (Tag, u64) {
    let tag = Tag {
        window: None,
        peer: 1,
        awaited: Awaited::Completion,
    };
    (tag, 3)
}

/// The time begins anew when no wait of before is left. (A chain of waits that overlap counts as one.)
#[test]
fn a_stream_is_blocked_since_its_waits_began() {
    let shared = stream();
    let (one, other) = (wait(), (wait().0, 4));
    let since = |on: &[(Tag, u64)]| {
        shared.set_blocked(on.iter().copied(), Location::caller());
        let Stand::Waits(blocked) = shared.stand() else {
            panic!("it waits");
        };
        assert_eq!(blocked.on, on);
        blocked.since
    };
    let first = since(&[one]);
    assert_eq!(since(&[one, other]), first);
    assert_eq!(since(&[other]), first);
    // The lane goes on to its next wait.
    assert!(since(&[one]) > first);
}

#[test]
fn a_stream_says_what_it_is_at() {
    let shared = stream();
    let at = |shared: &StreamState| match shared.stand() {
        Stand::Works(work) => work,
        other => panic!("{other:?}"),
    };
    assert_eq!(at(&shared), Work::Something);
    let mut steps = vec![shared.progress()];
    static NAME: Named = Named(|| "relax");
    shared.begins_kernel(&NAME);
    assert_eq!(at(&shared), Work::Kernel(Some("relax")));
    steps.push(shared.progress());
    // The kernel has made an epoch by itself.
    shared.begins(AtWork::Kernel);
    assert_eq!(at(&shared), Work::Kernel(Some("relax")));
    steps.push(shared.progress());
    shared.ends();
    assert_eq!(at(&shared), Work::Something);
    shared.at(AtWork::Stream, || {
        assert_eq!(at(&shared), Work::Stream);
        steps.push(shared.progress());
    });
    shared.goes_on();
    steps.push(shared.progress());
    shared.set_blocked([wait()].into_iter(), Location::caller());
    assert!(matches!(shared.stand(), Stand::Waits(blocked) if blocked.on == [wait()]));
    shared.set_running();
    assert_eq!(at(&shared), Work::Something);
    shared.pass(1);
    steps.push(shared.progress());
    assert!(steps.is_sorted_by(|one, next| one < next), "{steps:?}");
    assert!(matches!(shared.stand(), Stand::Through));
}
