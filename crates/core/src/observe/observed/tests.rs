//! Observers that disturb, clocks that drift, and what a rank tells before it leaves.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::AtomicU64;

use tidegate_host::Host;

use super::*;
use crate::window::SlotWindow;
use crate::*;

/// Keeps all events.
#[derive(Default)]
struct Kept(Mutex<Vec<Event>>);

impl Observer for Kept {
    fn event(&self, event: &Event) {
        lock(&self.0).push(event.clone());
    }
}

/// A clock whose error becomes larger and larger.
#[derive(Default)]
struct Drifting(AtomicU64);

impl Stamps for Drifting {
    fn take(&self, _: &mut dyn FnMut(Stamp)) -> u64 {
        0
    }

    fn clock_error(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

#[test]
fn the_error_of_a_clock_is_told_when_it_has_changed_much() {
    let (kept, clock) = (Arc::<Kept>::default(), Arc::<Drifting>::default());
    let observed = Observed::new(vec![kept.clone()]).unwrap();
    let mut seen = Seen {
        number: 0,
        stamps: Some(clock.clone()),
        dropped: 0,
        error: 0,
        names: HashMap::new(),
        fault: Box::new(|| Some(None)),
        told: Arc::default(),
    };
    let mut last = 0;
    let mut told = |error| {
        clock.0.store(error, Ordering::Relaxed);
        seen.take(&observed);
        let new = std::mem::take(&mut *lock(&kept.0));
        for event in &new {
            let Event::Clock { error, .. } = event else {
                panic!("{event:?}")
            };
            last = *error;
        }
        assert!(error <= last && last / 5 * 2 <= error, "{error}: {last}");
        new.len()
    };
    assert_eq!(told(0), 0, "the host's own clock");
    assert_eq!(told(u64::MAX), 1);
    assert_eq!((1000..10_000).map(&mut told).sum::<usize>(), 11);
    // The clocks are compared again.
    assert_eq!((told(1000), told(1001)), (1, 0));
    observed.end();
}

/// Drops a world when it is called after the program has ended, and then says so.
#[derive(Default)]
struct Holder(Mutex<Option<(World<Host>, Sender<()>)>>);

impl Observer for Holder {
    fn event(&self, _: &Event) {}

    fn flush(&self) {
        let held = lock(&self.0).take();
        if let Some((world, dropped)) = held {
            drop(world);
            dropped.send(()).unwrap();
        }
    }
}

#[test]
fn an_observer_may_drop_the_last_world() {
    let holder = Arc::<Holder>::default();
    let (dropped, is_dropped) = channel();
    let dropped = Mutex::new(Some(dropped));
    let options = |rank| match rank {
        0 => WorldOptions::new().observer(holder.clone()),
        _ => WorldOptions::new(),
    };
    World::<Host>::local_with(2, options, |world| {
        if world.rank() == 0 {
            *lock(&holder.0) = Some((world, lock(&dropped).take().unwrap()));
        } else {
            let gathered = world.all_gather("rank 0 leaves", Vec::new());
            assert!(gathered.is_err(), "{gathered:?}");
        }
    });
    // If the drop panics, so does this: the sender is gone.
    is_dropped.recv().unwrap();
}

/// An end of waits is under way when the rank leaves.
#[test]
fn a_rank_does_not_leave_before_the_news_are_told() {
    let kept = Arc::<Kept>::default();
    let observed = Observed::new(vec![kept.clone()]).unwrap();
    std::thread::scope(|scope| {
        let news = observed.news();
        scope.spawn(|| observed.end());
        // Without the lock, the rank would have left by now.
        std::thread::sleep(Duration::from_millis(50));
        let (rank, why, at) = (1, String::new(), 0);
        observed.tell(&Event::Gone { rank, why, at });
        drop(news);
    });
    let events = lock(&kept.0);
    assert!(
        matches!(events[..], [Event::Gone { .. }, Event::Left { .. }]),
        "{events:?}"
    );
}

/// A wait ends because another rank has panicked, and the rank leaves at once.
#[test]
fn a_rank_tells_why_it_leaves_before_it_does() {
    for _ in 0..20 {
        let kept = Arc::<Kept>::default();
        let options = |rank| match rank {
            0 => WorldOptions::new().observer(kept.clone()),
            _ => WorldOptions::new(),
        };
        let ended = catch_unwind(AssertUnwindSafe(|| {
            World::<Host>::local_with(2, options, |world| {
                crate::stream!(let s = world.stream().unwrap());
                let other = 1 - world.rank();
                let mut window = SlotWindow::<u64>::new("w");
                window.slot_from(other, 0, 1);
                window.slot_to(other, 0);
                let (inbox, _outbox) = window.open(&s).unwrap();
                if world.rank() == 1 {
                    resume_unwind(Box::new("a test"));
                }
                let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
                assert!(waited.map(drop).and_then(|()| s.synchronize()).is_err());
            })
        }));
        assert!(ended.is_err());
        let events = lock(&kept.0);
        let why: Vec<_> = events
            .iter()
            .filter_map(|event| match event {
                Event::Gone { rank: 1, why, .. } | Event::Revoked { why, .. } => Some(why),
                _ => None,
            })
            .collect();
        assert!(
            matches!(why[..], [gone, revoked] if gone == revoked),
            "{events:?}"
        );
        assert!(matches!(events.last(), Some(Event::Left { .. })));
    }
}
