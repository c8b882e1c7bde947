//! What a report says about a stream that makes progress while it is checked.

use std::any::Any;
use std::panic::Location;
use std::sync::atomic::AtomicUsize;
use std::task::Waker;

use tidegate_hal::batch::{Awaited, Tag};
use tidegate_hal::device::{Blocked, Calls, Fault};
use tidegate_hal::ids::TeamId;

use super::*;

/// A stream that runs a kernel, and then waits for rank 0. At the second look it has come to the wait.
#[derive(Default)]
struct GoesOn {
    looks: AtomicUsize,
    calls: Calls,
}

impl GoesOn {
    fn is_at_its_wait(&self) -> bool {
        self.looks.fetch_add(1, Ordering::Relaxed) > 0
    }

    fn wait() -> Blocked {
        let tag = Tag {
            window: Some(WindowId::first(TeamId::WORLD)),
            peer: 0,
            awaited: Awaited::Completion,
        };
        Blocked {
            on: vec![(tag, 7)],
            more: false,
            site: None,
            since: Instant::now(),
        }
    }
}

impl Reclaim for GoesOn {
    fn retire(&self, _: Box<dyn Any + Send>) {}

    fn fault(&self) -> Option<Fault> {
        None
    }

    fn abort(&self) {}

    fn blocked(&self) -> Option<Blocked> {
        self.is_at_its_wait().then(GoesOn::wait)
    }

    fn stand(&self) -> Stand {
        self.blocked()
            .map_or(Stand::Works(Work::Kernel(None)), Stand::Waits)
    }

    fn calls(&self) -> &Calls {
        &self.calls
    }

    fn progress(&self) -> u64 {
        0
    }

    fn passed(&self) -> u64 {
        0
    }

    fn wake_at(&self, _: u64, _: u64, _: &Waker) -> bool {
        false
    }

    fn forget_waker(&self, _: u64) {}
}

#[test]
fn a_stream_that_goes_on_meanwhile_is_not_said_to_be_through() {
    let streams = [("main".to_owned(), Arc::new(GoesOn::default()))];
    let say = || {
        let answer = look_at(&streams, |id| format!("the first, {id}"), |_| None);
        graph::describe(2, &BTreeMap::from([(1, answer)]), &BTreeMap::new(), TICK)
    };
    for expected in [
        "rank 1: no rank, but its stream `main` runs a kernel: ",
        "rank 1: rank 0, its complete (window `the first, number 0`, number 0, epoch 7, stream `main`, for ",
    ] {
        let text = say();
        assert!(text.contains(expected), "{text}");
        assert!(!text.contains("nothing"), "{text}");
    }
}

/// The device does not know where the wait was enqueued, but the window knows the program's calls.
#[test]
fn a_wait_in_one_of_several_places_is_said_to_be_in_the_last() {
    let site = Location::caller();
    for (several, how) in [(false, "enqueued"), (true, "last enqueued")] {
        let stream = Arc::new(GoesOn::default());
        assert!(!stream.is_at_its_wait());
        let streams = [("main".to_owned(), stream)];
        let last = |tag: Tag| (tag == GoesOn::wait().on[0].0).then_some((site, several));
        let answer = look_at(&streams, |_| "w".to_owned(), last);
        let text = graph::describe(2, &BTreeMap::from([(1, answer)]), &BTreeMap::new(), TICK);
        let expected = format!("stream `main`, {how} at {site}, for ");
        assert!(text.contains(&expected), "{text}");
    }
}
