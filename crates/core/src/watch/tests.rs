//! Which rank asks for a report, and what the report says about ranks in collective calls.

use std::sync::Barrier;
use std::sync::atomic::AtomicUsize;

use tidegate_host::Host;

use super::*;
use crate::window::{Buffers, BySlot, Inbox, Outbox, SlotWindow};
use crate::{Stream, World};

/// Waits until all ranks have seen such a report.
pub(super) fn wait_for_report(world: &World<Host>, is_it: impl Fn(&str) -> bool) -> String {
    let start = Instant::now();
    loop {
        match world.last_report() {
            Some(report) if is_it(&report) => return report,
            other => assert!(
                start.elapsed() < Duration::from_secs(300),
                "no such report, but {other:?}"
            ),
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

type Halves<'s> = (Inbox<'s, u8, Host, BySlot>, Outbox<'s, u8, Host, BySlot>);

/// A window with one slot in each direction between two ranks.
fn open<'s>(s: &Stream<'s, Host>, name: &str) -> Result<Halves<'s>> {
    let other = 1 - s.world().rank();
    let mut window = SlotWindow::new(name).buffers(Buffers::Single);
    window.slot_from(other, 0, 8);
    window.slot_to(other, 0);
    window.open(s)
}

/// Rank 0 waits for rank 1's complete. Rank 1 is in an all-gather, which rank 0 comes to only behind that wait.
#[test]
fn a_cycle_through_a_collective_call_is_reported() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let (inbox, outbox) = open(&s, "w").unwrap();
        world.report_waits_after(Duration::from_millis(300));
        let exposed = inbox.post(&s).unwrap();
        if world.rank() == 0 {
            let inbox = exposed.wait(&s).unwrap();
            let report = wait_for_report(&world, |report| report.contains("  cycle: rank"));
            for part in [
                "rank 0: rank 1, its complete (window `w`, number 0, epoch 0, stream `s`, enqueued at ",
                "rank 1: rank 0, to come to all-gather `results` (for ",
                "cycle: rank 0 -> rank 1 -> rank 0",
            ] {
                assert!(report.contains(part), "{report}");
            }
            assert!(!report.contains("no cycle"), "{report}");
            // The program goes on beside its stream.
            world.all_gather("results", Vec::new()).unwrap();
            let _outbox = outbox.start().complete(&s).unwrap();
            s.synchronize().unwrap();
            drop(inbox);
        } else {
            world.all_gather("results", Vec::new()).unwrap();
            let _outbox = outbox.start().complete(&s).unwrap();
            let _inbox = exposed.wait(&s).unwrap();
            s.synchronize().unwrap();
        }
    });
}

type Call = fn(&World<Host>);

/// No stream waits for anything; only a program waits.
#[test]
fn a_rank_that_does_not_come_to_a_collective_call_is_reported() {
    let calls: [(&str, Call); 3] = [
        ("opening window `w`", |world| {
            crate::stream!(let s = world.stream().unwrap());
            let _halves = open(&s, "w").unwrap();
        }),
        ("opening barrier `b`", |world| {
            crate::stream!(let s = world.stream().unwrap());
            crate::Barrier::open(&s, "b").unwrap();
        }),
        ("all-gather `results`", |world| {
            world.all_gather("results", Vec::new()).unwrap();
        }),
    ];
    for (what, call) in calls {
        for late in [0, 1] {
            World::<Host>::local(2, |world| {
                world.report_waits_after(Duration::from_millis(200));
                if world.rank() == late {
                    let lacks = format!("rank {}: rank {late}, to come to {what} (for ", 1 - late);
                    let late = format!("rank {late}: nothing");
                    wait_for_report(&world, |report| {
                        let says = |text: &str| report.contains(text);
                        says(&lacks) && says(&late) && says("no cycle: ")
                    });
                }
                call(&world);
            });
        }
    }
}

/// A kernel that ends when it is told to.
fn busy(over: &Arc<AtomicBool>) -> impl Fn(&mut [u8]) + Clone + Send + 'static {
    let over = over.clone();
    move |_: &mut [u8]| {
        // If the test fails, nothing else ends the kernel.
        let begun = Instant::now();
        while !over.load(Ordering::Acquire) && begun.elapsed() < Duration::from_secs(25) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(value) => break value,
            std::task::Poll::Pending => std::thread::park(),
        }
    }
}

/// No other rank waits for this one: its program waits for its own stream, whose kernel does not end.
#[test]
fn a_call_that_waits_for_a_kernel_without_end_is_reported() {
    let calls = [
        "`synchronize`",
        "`into_host`",
        "`read`",
        "`synchronized`",
        "the drop of the stream",
        "`launch`",
    ];
    for call in calls {
        World::<Host>::local(1, |world| {
            world.report_waits_after(Duration::from_millis(300));
            let over = Arc::new(AtomicBool::new(false));
            let (end, looks) = (over.clone(), world.clone());
            let seen = std::thread::spawn(move || {
                let place = match call {
                    "the drop of the stream" => "(for ".to_owned(),
                    _ => format!("at {}:", file!()),
                };
                let line = format!("rank 0: its own stream `a`, in {call} {place}");
                let report = wait_for_report(&looks, |report| report.contains(&line));
                end.store(true, Ordering::Release);
                report
            });
            {
                let options = crate::StreamOptions::new().name("a");
                let options = match call {
                    "`launch`" => options.inline(),
                    _ => options,
                };
                crate::stream!(let s = world.stream_with(options).unwrap());
                let mut window = SlotWindow::<u8>::new("w");
                window.slot_from(0, 0, 8);
                window.slot_to(0, 0);
                let (mut inbox, _outbox) = window.open(&s).unwrap();
                let region = crate::Region::<u8, _>::zeroed(&world, 1).unwrap();
                let mut region = region.on(&s).unwrap();
                s.launch(busy(&over), &mut region).unwrap();
                match call {
                    "`synchronize`" => s.synchronize().unwrap(),
                    "`into_host`" => drop(region.into_host(&s).unwrap()),
                    "`read`" => drop(inbox.read(&s).unwrap()),
                    "`synchronized`" => block_on(s.synchronized()).unwrap(),
                    _ => {}
                }
            }
            let report = seen.join().unwrap();
            for part in [
                "rank 0: no rank, but its stream `a` runs the kernel `tidegate_core::watch::tests::busy::{{closure}}`: ",
                "no cycle: a kernel that may not end, on a stream that the program waits for, holds up rank 0",
            ] {
                assert!(report.contains(part), "{call}: {report}");
            }
        });
    }
}

/// Rank 0 waits for a complete of rank 1. The stream of rank 1 has a kernel in front of that complete, and another
/// stream waits behind it.
#[test]
fn a_rank_whose_stream_runs_a_kernel_is_reported() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.named_stream("main").unwrap());
        crate::stream!(let side = world.named_stream("side").unwrap());
        let (inbox, outbox) = open(&s, "w").unwrap();
        world.report_waits_after(Duration::from_millis(200));
        let exposed = inbox.post(&s).unwrap();
        let mut region = crate::Region::<u8, _>::zeroed(&world, 1)
            .unwrap()
            .on(&s)
            .unwrap();
        let over = Arc::new(AtomicBool::new(false));
        if world.rank() == 1 {
            s.launch(busy(&over), &mut region).unwrap();
        }
        let region = s.hand_off(region, &side).unwrap();
        let _outbox = outbox.start().complete(&s).unwrap();
        let _inbox = exposed.wait(&s).unwrap();
        let parts = [
            "rank 0: rank 1, its complete (window `w`, number 0, ",
            "rank 1: no rank, but its stream `main` runs the kernel `tidegate_core::watch::tests::",
            "rank 1: no rank, but its stream `side` waits for another of its streams (`main`): ",
            "no cycle: ",
        ];
        // A first report may come before all of this is enqueued.
        let says_all = |report: &str| parts.iter().all(|part| report.contains(part));
        wait_for_report(&world, says_all);
        over.store(true, Ordering::Release);
        s.synchronize().unwrap();
        side.synchronize().unwrap();
        drop(region);
    });
}

/// A statement such as `epoch.complete(&s)?;` drops the outbox that it returns.
#[test]
fn a_rank_that_has_dropped_a_half_is_reported() {
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let (inbox, outbox) = open(&s, "w").unwrap();
        world.report_waits_after(Duration::from_millis(200));
        let exposed = inbox.post(&s).unwrap();
        drop(outbox.start().complete(&s).unwrap());
        let inbox = exposed.wait(&s).unwrap();
        s.synchronize().unwrap();
        let waits = (world.rank() == 0).then(|| inbox.post(&s).unwrap().wait(&s).unwrap());
        let dropped = "rank 1: nothing, and it has dropped its outbox of window `w`, number 0";
        wait_for_report(&world, |report| report.contains(dropped));
        world.all_gather("seen", Vec::new()).unwrap();
        drop(waits);
    });
}

/// The rank is in the job for as long as a clone of its world exists, so others may wait for it.
#[test]
fn a_rank_whose_program_has_returned_is_reported() {
    let clone = Mutex::new(None);
    World::<Host>::local(2, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let (inbox, _outbox) = open(&s, "w").unwrap();
        if world.rank() == 1 {
            *lock(&clone) = Some(world.clone());
            return;
        }
        world.report_waits_after(Duration::from_millis(200));
        let _inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
        let returned = "rank 1: nothing: its program has returned, but a clone of its world";
        wait_for_report(&world, |report| report.contains(returned));
        drop(lock(&clone).take());
        let error = s.synchronize().unwrap_err().to_string();
        assert!(error.contains("rank 1 has left the job"), "{error}");
    });
}

#[test]
fn ranks_that_ask_for_one_report_get_one() {
    let watch = Watch::default();
    let mut zero = lock(&watch.state);
    assert!(zero.is_due(), "nothing was reported before");
    // Rank 1 requests a report. Rank 2, which does not know of that, requests one while the round is running, and one
    // after it.
    assert_eq!(zero.begin(0, 0, Answer::default()), Some(1));
    assert_eq!(zero.begin(0, 0, Answer::default()), None);
    zero.round = None;
    assert_eq!(zero.begin(0, 0, Answer::default()), None);
    assert!(!zero.is_due(), "rank 0's own waits are in the report, too");
    // A deadline later the wait still lasts, and the rank that requests a report has been asked before.
    zero.deadline = Duration::ZERO;
    assert!(zero.is_due());
    assert_eq!(zero.begin(1, 0, Answer::default()), Some(2));
}

#[test]
fn the_next_reporter_makes_the_report_that_the_last_one_owed() {
    let watch = Watch::default();
    lock(&watch.state).promise();
    assert!(!lock(&watch.state).is_due());
    watch.reporter_gone();
    assert!(lock(&watch.state).is_due(), "nobody else will report it");
    // A report that has arrived is not made twice.
    lock(&watch.state).is_asked(1);
    lock(&watch.state).heard("a report".into());
    watch.reporter_gone();
    assert!(!lock(&watch.state).is_due());
}

/// Ranks 2 and 3 both complete before they post. Ranks 0 and 1 have left.
#[test]
fn the_lowest_rank_that_remains_reports() {
    let parts = [
        "ranks 0, 1, each: has left the job\n",
        "rank 2: rank 3, its post (window `w`, number 0, ",
        "cycle: rank 2 -> rank 3 -> rank 2",
    ];
    let (said, both) = (AtomicUsize::new(0), Barrier::new(2));
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        World::<Host>::local(4, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let rank = world.rank();
            let mut window = SlotWindow::<u8>::new("w").buffers(Buffers::Single);
            if let Some(other) = [3, 2].get(rank.wrapping_sub(2)) {
                window.slot_from(*other, 0, 8);
                window.slot_to(*other, 0);
            }
            let (inbox, outbox) = window.open(&s).unwrap();
            if rank < 2 {
                return;
            }
            world.report_waits_after(Duration::from_millis(200));
            let outbox = outbox.start().complete(&s).unwrap();
            // A first report may come before the other rank waits, too.
            let says_all = |report: &str| parts.iter().all(|part| report.contains(part));
            wait_for_report(&world, says_all);
            said.fetch_add(1, Ordering::Relaxed);
            // The rank that goes first would change what the other one sees, so they wait for each other.
            both.wait();
            // Nothing else ends these waits.
            drop((inbox, outbox));
            std::panic::resume_unwind(Box::new("the end of the test"));
        });
    }));
    assert!(ran.is_err());
    assert_eq!(said.into_inner(), 2);
}

#[test]
fn who_was_asked_does_not_ask() {
    let watch = Watch::default();
    let mut state = lock(&watch.state);
    state.is_asked(1);
    assert!(!state.is_due());
    assert_eq!(state.rounds, 1);
}

/// Keeps what each write brings.
#[derive(Default)]
struct Screen(Vec<String>);

impl std::io::Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.push(String::from_utf8(bytes.to_vec()).unwrap());
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// What a report prints for a program whose subscriber has this filter, write by write.
fn on_the_screen(filter: &str) -> Vec<String> {
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::new(filter))
        .with_writer(std::io::sink)
        .finish();
    let mut screen = Screen::default();
    tracing::subscriber::with_default(subscriber, || say!("rank 0: rank 1", screen));
    screen.0
}

/// A program that has a subscriber, but no filter for this library, would otherwise hang in silence.
#[test]
fn a_report_that_the_subscriber_drops_is_on_the_screen() {
    for drops in ["", "mine=info", "tidegate=error", "off"] {
        let screen = on_the_screen(drops);
        assert_eq!(screen, ["tidegate: rank 0: rank 1\n"], "{drops:?}");
    }
    for takes in ["warn", "tidegate=warn", "error,tidegate_core=info"] {
        assert!(on_the_screen(takes).is_empty(), "{takes:?}");
    }
    let mut screen = Screen::default();
    say!("rank 0: rank 1", screen); // no subscriber at all
    assert!(!screen.0.is_empty());
}
