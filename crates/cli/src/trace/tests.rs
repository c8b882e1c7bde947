//! The model of a trace, on events that were made up.

use serde_json::{Value, json};
use tidegate_core::observe::{Declared, Event};

use super::job::Job;
use super::late;
use super::rank::{Rank, Time, Work};
use super::tables::Tables;
use super::view::View;
use super::{chrome, summary};

#[path = "tests/broken.rs"]
mod broken;
#[path = "tests/format.rs"]
mod format;

/// Milliseconds.
const MS: u64 = 1_000_000;

fn window() -> Value {
    json!({"team": 0, "sequence": 0})
}

/// A rank that exchanges with others through a window with one buffer.
struct Made {
    events: Vec<Event>,
    ahead: u64,
}

impl Made {
    fn new(rank: u32, ranks: u32, host: &str, rounds: &[(u64, u64)], at: u64) -> Self {
        let mut made = Made {
            events: Vec::new(),
            // The clock of the host shows that much more.
            ahead: at,
        };
        let process = 100 + rank;
        made.event(json!({"Joined": {
            "rank": rank, "ranks": ranks, "node": 0, "host": host, "process": process, "device": "host", "at": at,
            "rounds": rounds,
        }}));
        made.event(json!({"Opened": {
            "window": window(), "what": "window", "name": "halo", "exposed": 0, "at": at,
        }}));
        made.event(json!({"Made": {"stream": 0, "name": "s", "stamped": true, "at": at}}));
        made
    }

    fn event(&mut self, event: Value) {
        self.events.push(serde_json::from_value(event).unwrap());
    }

    /// Declares a batch of one lane with one leg: what it waits for and what it tells, each with a peer.
    fn declare(
        &mut self,
        batch: u64,
        call: &str,
        awaits: Option<(u32, &str)>,
        tells: Option<(u32, &str)>,
    ) {
        let tag = |(peer, operation): (u32, &str)| json!({"window": window(), "peer": peer, "operation": operation});
        let tells: Vec<_> = tells.map(tag).into_iter().collect();
        let bytes = if call == "Complete" { 64 } else { 0 };
        self.event(json!({"Declared": {
            "batch": batch, "call": call, "site": format!("{call}.rs:1"),
            "parts": [{"lane": 0, "leg": 0, "awaits": awaits.map(tag), "bytes": bytes, "tells": tells}],
        }}));
    }

    /// The program enqueues a batch.
    fn enqueue(&mut self, batch: u64, at: u64) {
        let at = at + self.ahead;
        self.event(json!({"Enqueued": {"stream": 0, "batch": batch, "at": at, "lost": 0}}));
    }

    /// A leg that began, went on, and ended.
    fn leg(&mut self, batch: u64, epoch: u64, times: [u64; 3]) {
        let [begun, satisfied, ended] = times.map(|time| time + self.ahead);
        self.event(json!({"Leg": {"stream": 0, "leg": {
            "batch": batch, "lane": 0, "leg": 0, "epoch": epoch,
            "begun": begun, "satisfied": satisfied, "moved": ended, "ended": ended,
        }}}));
    }

    fn kernel(&mut self, called: u64, begun: u64, ended: u64, lost: u64) {
        let [called, begun, ended] = [called, begun, ended].map(|time| time + self.ahead);
        self.event(json!({"Launched": {
            "stream": 0, "kernel": "solver::step", "site": "solver.rs:7", "at": called, "lost": 0,
        }}));
        self.event(json!({"Ran": {
            "stream": 0, "kernel": "solver::step", "begun": begun, "ended": ended, "lost": lost,
        }}));
    }

    fn leave(&mut self, at: u64) {
        let at = at + self.ahead;
        self.event(json!({"Left": {"at": at}}));
    }
}

fn job(made: &[Made]) -> Job {
    Job::new(made.iter().map(|made| Rank::new(&made.events)).collect())
}

/// Rank 0 has a long kernel, then puts to rank 1, which then puts to rank 2, which waits for that. `long` is the length
/// of the kernel, of which the rank has lost `lost`.
fn chain(long: u64, lost: u64) -> Vec<Made> {
    let mut ranks: Vec<_> = (0..3)
        .map(|rank| Made::new(rank, 3, "one", &[], 0))
        .collect();
    for rank in 0..3u32 {
        let made = &mut ranks[rank as usize];
        made.declare(1, "Post", None, Some((rank.wrapping_sub(1), "Post")));
        made.declare(
            2,
            "Complete",
            Some((rank + 1, "Post")),
            Some((rank + 1, "Complete")),
        );
        made.declare(3, "Wait", Some((rank.wrapping_sub(1), "Complete")), None);
    }
    for (epoch, start) in [(0, MS), (1, 1000 * MS)] {
        let late = if epoch == 1 { long } else { MS / 10 };
        for rank in &mut ranks[1..3] {
            rank.enqueue(1, start);
            rank.leg(1, 0, [start, start, start + 10]);
        }
        // Each has a short kernel first.
        for (rank, long) in [(0, late), (1, MS / 10), (2, MS / 10)] {
            let lost = if rank == 0 && epoch == 1 { lost } else { 0 };
            ranks[rank].kernel(start + 20, start + 20, start + 20 + long, lost);
        }
        let put = start + 20 + late;
        ranks[0].enqueue(2, start + 20);
        ranks[0].leg(2, epoch, [put, put, put + 1000]);
        ranks[1].enqueue(3, start + 20);
        ranks[1].leg(3, epoch, [start + 20 + MS / 10, put + 1500, put + 1500]);
        ranks[1].enqueue(2, start + 20);
        ranks[1].leg(2, epoch, [put + 1500, put + 1500, put + 2500]);
        ranks[2].enqueue(3, start + 20);
        ranks[2].leg(3, epoch, [start + 20 + MS / 10, put + 3000, put + 3000]);
    }
    ranks.iter_mut().for_each(|rank| rank.leave(2000 * MS));
    ranks
}

#[test]
fn the_root_of_a_chain_is_late_and_not_who_passes_it_on() {
    let job = job(&chain(20 * MS, 0));
    let signals = job.legs().filter(|(_, _, leg)| leg.signal.is_some());
    assert_eq!(signals.count(), 8, "two completes and two waits, twice");
    let cause = late::late(&job, &late::causes(&job)).unwrap();
    assert_eq!(job.number(cause.step.rank), 0);
    assert_eq!(cause.waits, 2);
    // Rank 1 and rank 2 had a kernel of 0.1 ms meanwhile.
    assert_eq!(cause.longest, 20 * MS as Time - MS as Time / 10);
    let tables = Tables::of(&job);
    let line = summary::late(&job, &tables);
    assert!(
        line.starts_with("Late: rank 0. Others waited 19.9 ms for it"),
        "{line}"
    );
    assert!(line.contains("its kernel step ran (solver.rs:7)"), "{line}");
}

/// Kernels fill the epochs of rank 0. The first is completed by a kernel, of which no stamp tells; the second by a
/// call.
#[test]
fn a_complete_has_the_epoch_that_was_opened() {
    let mut ranks: Vec<_> = (0..2)
        .map(|rank| Made::new(rank, 2, "one", &[], 0))
        .collect();
    ranks[0].declare(2, "Open", Some((1, "Post")), None);
    ranks[0].declare(3, "Complete", None, Some((1, "Complete")));
    ranks[1].declare(1, "Post", None, Some((0, "Post")));
    ranks[1].declare(4, "Wait", Some((0, "Complete")), None);
    for (epoch, start) in [(0, MS), (1, 10 * MS)] {
        ranks[1].enqueue(1, start);
        ranks[1].leg(1, 0, [start, start, start + 10]);
        ranks[0].enqueue(2, start);
        ranks[0].leg(2, epoch, [start, start + 20, start + 20]);
        if epoch == 1 {
            ranks[0].enqueue(3, start + 30);
            ranks[0].leg(3, 0, [start + 30, start + 30, start + 40]);
        }
        ranks[1].enqueue(4, start + 10);
        ranks[1].leg(4, epoch, [start + 10, start + 50, start + 50]);
    }
    ranks.iter_mut().for_each(|rank| rank.leave(20 * MS));
    let job = job(&ranks);
    let waits = job.legs().filter(|(_, batch, _)| batch.batch == 4);
    let signals: Vec<_> = waits.map(|(_, _, leg)| leg.signal).collect();
    assert_eq!(signals.len(), 2);
    assert_eq!(signals[0], None, "no stamp tells of it");
    let complete = signals[1].expect("the call has completed it");
    let of = |(at, batch, _): (_, &Declared, _)| (at == complete).then_some(batch.batch);
    assert_eq!(job.legs().find_map(of), Some(3));
}

#[test]
fn time_that_a_rank_could_not_run_makes_it_not_late() {
    let job = job(&chain(20 * MS, 19 * MS));
    assert!(late::late(&job, &late::causes(&job)).is_none());
    // Neither does a short kernel.
    let job = self::job(&chain(MS / 2, 0));
    assert!(late::late(&job, &late::causes(&job)).is_none());
}

/// By the clock of its GPU, the put began a millisecond before the program asked for it.
#[test]
fn a_late_program_is_found_though_clocks_are_off() {
    let mut ranks = [0, 1].map(|rank| Made::new(rank, 2, "one", &[], 0));
    ranks[0].declare(1, "Complete", None, Some((1, "Complete")));
    ranks[1].declare(2, "Wait", Some((0, "Complete")), None);
    for (epoch, start, late) in [(0, MS, 0), (1, 1000 * MS, 10 * MS)] {
        let put = start + late;
        ranks[0].enqueue(1, put);
        let begun = if late > 0 { put - MS } else { put };
        ranks[0].leg(1, epoch, [begun, begun, begun + 1000]);
        ranks[1].enqueue(2, start);
        ranks[1].leg(2, epoch, [start, begun + 2000, begun + 2000]);
    }
    ranks.iter_mut().for_each(|rank| rank.leave(2000 * MS));
    let job = job(&ranks);
    let cause = late::late(&job, &late::causes(&job)).unwrap();
    assert_eq!(job.number(cause.step.rank), 0);
    assert_eq!(cause.longest, 9 * MS as Time);
}

#[test]
fn the_critical_path_covers_the_whole_run() {
    let job = job(&chain(20 * MS, 0));
    let tables = Tables::of(&job);
    let sum: Time = tables.path.iter().map(|part| part.time).sum();
    let end = job.items().map(|(_, item)| item.ended).max().unwrap();
    assert_eq!(sum, end);
    let kernel = tables
        .path
        .iter()
        .find(|part| part.what == "kernel step")
        .unwrap();
    assert_eq!(kernel.of_rank.keys().collect::<Vec<_>>(), [&0]);
    assert_eq!(kernel.time, (20 * MS + MS / 10) as Time);
    assert_eq!(tables.bytes[&(0, 1)], 128);
}

/// Ranks on two hosts, whose clocks are 5 s apart, exchange in both directions.
#[test]
fn clocks_of_two_hosts_are_brought_together() {
    let shift = 5_000 * MS;
    let mut one = Made::new(0, 2, "one", &[(10, 2 * MS)], 0);
    let mut two = Made::new(1, 2, "two", &[(shift, shift + MS)], shift);
    for (made, peer) in [(&mut one, 1), (&mut two, 0)] {
        made.declare(1, "Post", None, Some((peer, "Post")));
        made.declare(
            2,
            "Complete",
            Some((peer, "Post")),
            Some((peer, "Complete")),
        );
        made.declare(3, "Wait", Some((peer, "Complete")), None);
    }
    for epoch in 0..5 {
        let start = (10 + epoch) * MS;
        for made in [&mut one, &mut two] {
            made.leg(1, 0, [start, start, start + 1000]);
            // A signal takes 50 us.
            made.leg(2, epoch, [start + 1000, start + 51_000, start + 52_000]);
            made.leg(3, epoch, [start + 52_000, start + 102_000, start + 102_000]);
        }
    }
    one.leave(20 * MS);
    two.leave(20 * MS);
    let job = job(&[one, two]);
    assert_eq!(job.contradiction, None);
    let error = job.clock_error.unwrap();
    assert!(error <= 50_000, "{error}");
    let first = |rank: usize| job.ranks[rank].streams[0].items[0].begun;
    assert!(
        (first(0) - first(1)).abs() <= error,
        "{} {}",
        first(0),
        first(1)
    );
    for (_, _, leg) in job.legs() {
        if let Some(signal) = leg.signal {
            assert!(job.leg(signal).1.moved <= leg.satisfied);
        }
    }
}

#[test]
fn dropped_stamps_do_not_shift_epochs() {
    let mut ranks = chain(20 * MS, 0);
    // Rank 1 has dropped its first post and wait, and a kernel.
    let dropped = |event: &Event| match event {
        Event::Leg { leg, .. } => leg.begun < 900 * MS && leg.batch != 2,
        Event::Ran { begun, .. } => *begun < 900 * MS,
        _ => false,
    };
    ranks[1].events.retain(|event| !dropped(event));
    ranks[1].event(json!({"Dropped": {"stream": 0, "stamps": 3}}));
    let job = job(&ranks);
    for (at, batch, leg) in job.legs().filter(|(_, _, leg)| leg.epoch == 1) {
        let part = Rank::part(batch, leg);
        let signal = leg
            .signal
            .unwrap_or_else(|| panic!("{part:?} on rank {}", at.rank));
        assert!(job.leg(signal).1.ended > 900 * MS as Time);
    }
    let item = &job.ranks[1].streams[0].items;
    let last = item.iter().find(|item| item.work.is_kernel()).unwrap();
    assert!(last.called.unwrap() > 0 && last.begun > 900 * MS as Time);
    let tables = Tables::of(&job);
    assert!(summary::dropped(&job).starts_with("3, on 1 rank"));
    assert_eq!(tables.late.map(|cause| cause.step.rank), Some(0));
}

#[test]
fn a_file_that_ends_early_is_shown_as_far_as_it_goes() {
    for keep in 1..30 {
        let mut ranks = chain(20 * MS, 0);
        ranks[1].events.truncate(keep);
        ranks.remove(2);
        let job = job(&ranks);
        let tables = Tables::of(&job);
        let mut text = Vec::new();
        summary::write(&job, &tables, &mut text).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("There are no files of rank 2"), "{text}");
        if keep < 20 {
            assert!(text.contains("The files of rank 1 end early."), "{text}");
        }
    }
}

/// Kernels of GPUs have no stamps. They ran between the batches around them.
#[test]
fn kernels_without_stamps_are_inferred() {
    let mut ranks = chain(20 * MS, 0);
    for made in &mut ranks {
        made.events
            .retain(|event| !matches!(event, Event::Ran { .. }));
        if let Event::Joined(joined) = &mut made.events[0] {
            joined.device = "cuda".to_owned();
        }
    }
    let job = job(&ranks);
    let kernels: Vec<_> = job
        .items()
        .filter(|(_, item)| item.work.is_kernel())
        .collect();
    assert_eq!(kernels.len(), 6);
    assert!(
        kernels
            .iter()
            .all(|(_, item)| matches!(item.work, Work::Inferred(_)))
    );
    let cause = late::late(&job, &late::causes(&job)).unwrap();
    assert_eq!(job.number(cause.step.rank), 0);
    let line = summary::late(&job, &Tables::of(&job));
    assert!(line.contains("step ran (solver.rs:7), at most"), "{line}");
}

#[test]
fn a_recording_is_expanded() {
    let mut made = Made::new(0, 1, "one", &[], 0);
    made.declare(2, "Complete", Some((0, "Post")), Some((0, "Complete")));
    let steps = json!([[0, {"Kernel": "solver::step"}], [0, {"Batch": 2}]]);
    made.event(json!({"Recorded": {"recording": 5, "steps": steps, "at": 1}}));
    made.event(json!({"Replayed": {
        "recording": 5, "times": 3, "site": "main.rs:9", "at": 50, "lost": 0,
    }}));
    for epoch in 0..3 {
        let at = 100 + epoch * 100;
        made.event(json!({"Ran": {
            "stream": 0, "kernel": "solver::step", "begun": at, "ended": at + 10, "lost": 0,
        }}));
        made.leg(2, epoch, [at + 10, at + 20, at + 30]);
    }
    let job = job(&[made]);
    let items = &job.ranks[0].streams[0].items;
    assert_eq!(items.len(), 6);
    assert!(
        items
            .iter()
            .all(|item| &*item.site == "main.rs:9" && item.called.is_some())
    );
}

#[test]
fn the_file_for_perfetto_keeps_to_the_format() {
    let job = job(&chain(20 * MS, 0));
    let mut text = Vec::new();
    let lines = ["a \"line\"".to_owned()];
    chrome::write(&View::of(&job), &lines, &mut text).unwrap();
    assert_eq!(format::check(std::str::from_utf8(&text).unwrap()), 8);
}
