//! Files that no rank has written.

use std::path::PathBuf;

use proptest::prelude::*;
use serde_json::{Value, json};
use tidegate_core::observe::Event;

use super::{Job, Rank, Tables, View, chrome, summary};
use crate::trace::{check, page};

/// Mostly a number that fits to others, seldom one that fits to nothing.
fn any_u64() -> impl Strategy<Value = u64> {
    prop_oneof![
        30 => 0..4u64,
        30 => 0..5_000_000u64,
        1 => Just(check::LATEST - 1),
        1 => any::<u64>(),
        1 => Just(u64::MAX),
    ]
}

/// A time, most of them possible.
fn any_time() -> impl Strategy<Value = u64> {
    prop_oneof![
        100 => 0..5_000_000u64,
        10 => 0..check::LATEST,
        1 => any_u64(),
    ]
}

fn any_u32() -> impl Strategy<Value = u32> {
    prop_oneof![
        1000 => 0..3u32,
        1 => Just(65_535u32),
        1 => any::<u32>(),
        1 => Just(u32::MAX),
    ]
}

fn any_tag() -> impl Strategy<Value = Value> {
    let operation = prop::sample::select(vec!["Post", "Complete", "Arrive", "Read", "Pull"]);
    let window = prop::option::of((0..2u32).prop_map(|team| json!({"team": team, "sequence": 0})));
    (window, any_u32(), operation).prop_map(
        |(window, peer, operation)| json!({"window": window, "peer": peer, "operation": operation}),
    )
}

fn any_part() -> impl Strategy<Value = Value> {
    let tells = prop::collection::vec(any_tag(), 0..3);
    (any_u32(), 0..2u32, prop::option::of(any_tag()), any_u64(), tells).prop_map(
        |(lane, leg, awaits, bytes, tells)| {
            json!({"lane": lane, "leg": leg, "awaits": awaits, "bytes": bytes, "tells": tells})
        },
    )
}

fn any_step() -> impl Strategy<Value = Value> {
    prop_oneof![
        (0..4u64).prop_map(|batch| json!({"Batch": batch})),
        Just(json!({"Kernel": "k"})),
        (0..2u64).prop_map(|number| json!({"Signal": number})),
        (0..2u64).prop_map(|number| json!({"Await": number})),
    ]
}

fn any_joined() -> impl Strategy<Value = Event> {
    let rounds = prop::collection::vec((any_time(), any_time()), 0..3);
    let ranks = prop_oneof![20 => Just(3u32), 1 => any_u32()];
    let device = prop::sample::select(vec!["host", "cuda"]);
    (any_u32(), ranks, 0..3u32, device, any_time(), rounds).prop_map(
        |(rank, ranks, host, device, at, rounds)| {
            event(json!({"Joined": {
                "rank": rank, "ranks": ranks, "node": host, "host": format!("host {host}"), "process": 1,
                "device": device, "at": at, "rounds": rounds,
            }}))
        },
    )
}

fn event(value: Value) -> Event {
    serde_json::from_value(value).unwrap()
}

fn any_event() -> impl Strategy<Value = Event> {
    let calls = prop::sample::select(vec!["Post", "Complete", "Wait", "Exchange", "Barrier"]);
    let times = (any_time(), any_time(), any_time(), any_time());
    prop_oneof![
        1 => any_joined(),
        1 => (0..2u32, any_u64(), any_time()).prop_map(|(team, exposed, at)| event(json!({"Opened": {
            "window": {"team": team, "sequence": 0}, "what": "window", "name": "w", "exposed": exposed, "at": at,
        }}))),
        8 => (0..4u64, calls, prop::collection::vec(any_part(), 0..4)).prop_map(|(batch, call, parts)| {
            event(json!({"Declared": {"batch": batch, "call": call, "site": "s", "parts": parts}}))
        }),
        8 => (any_u32(), 0..4u64, any_time(), any_time()).prop_map(|(stream, batch, at, lost)| {
            event(json!({"Enqueued": {"stream": stream, "batch": batch, "at": at, "lost": lost}}))
        }),
        4 => (any_u32(), any_time(), any_time()).prop_map(|(stream, at, lost)| event(json!({"Launched": {
            "stream": stream, "kernel": "k", "site": "s", "at": at, "lost": lost,
        }}))),
        2 => (any_u32(), any_time(), any_time(), any_time()).prop_map(|(stream, begun, at, lost)| {
            let site = "s";
            event(json!({"Synchronized": {"stream": stream, "site": site, "begun": begun, "at": at, "lost": lost}}))
        }),
        2 => (any_u32(), any_u32(), any_time()).prop_map(|(from, to, at)| {
            event(json!({"HandedOff": {"from": from, "to": to, "at": at}}))
        }),
        2 => (0..2u64, prop::collection::vec((any_u32(), any_step()), 0..4)).prop_map(|(recording, steps)| {
            event(json!({"Recorded": {"recording": recording, "steps": steps, "at": 0}}))
        }),
        2 => (0..2u64, any_u64(), any_time(), any_time()).prop_map(|(recording, times, at, lost)| {
            let site = "s";
            event(json!({"Replayed": {"recording": recording, "times": times, "site": site, "at": at, "lost": lost}}))
        }),
        20 => (any_u32(), 0..4u64, any_u32(), 0..2u32, any_u64(), times).prop_map(
            |(stream, batch, lane, leg, epoch, (begun, satisfied, moved, ended))| event(json!({"Leg": {
                "stream": stream, "leg": {
                    "batch": batch, "lane": lane, "leg": leg, "epoch": epoch,
                    "begun": begun, "satisfied": satisfied, "moved": moved, "ended": ended,
                },
            }}))
        ),
        6 => (any_u32(), any_time(), any_time(), any_time()).prop_map(|(stream, begun, ended, lost)| {
            event(json!({"Ran": {"stream": stream, "kernel": "k", "begun": begun, "ended": ended, "lost": lost}}))
        }),
        1 => (any_u32(), any_u64()).prop_map(|(stream, stamps)| {
            event(json!({"Dropped": {"stream": stream, "stamps": stamps}}))
        }),
        1 => (any_u32(), any_time()).prop_map(|(stream, error)| {
            event(json!({"Clock": {"stream": stream, "error": error}}))
        }),
        1 => (any_u32(), any_time()).prop_map(|(stream, at)| {
            event(json!({"Failed": {"stream": stream, "why": "w", "at": at}}))
        }),
        1 => (any_u32(), any_time()).prop_map(|(rank, at)| {
            event(json!({"Gone": {"rank": rank, "why": "w", "at": at}}))
        }),
        1 => any_time().prop_map(|at| event(json!({"Left": {"at": at}}))),
    ]
}

fn any_file() -> impl Strategy<Value = Vec<Event>> {
    (any_joined(), prop::collection::vec(any_event(), 0..40)).prop_map(|(joined, mut events)| {
        events.insert(0, joined);
        events
    })
}

/// Shows all events of some files that `tidegate trace` does not refuse.
fn shown(files: Vec<Vec<Event>>) {
    let possible = |event: &Event| check::flaw(std::slice::from_ref(event)).is_none();
    let files = files.into_iter().map(|mut file| {
        file.retain(possible);
        file
    });
    let ranks: Vec<_> = files.map(|file| Rank::new(&file)).collect();
    let job = Job::new(ranks);
    let (tables, view) = (Tables::of(&job), View::of(&job));
    let mut out = Vec::new();
    summary::write(&job, &tables, &mut out).unwrap();
    page::write(&job, &tables, &view, &mut out).unwrap();
    chrome::write(&view, &summary::head(&job, &tables), &mut out).unwrap();
}

proptest! {
    #[test]
    fn no_file_makes_it_panic(files in prop::collection::vec(any_file(), 1..4)) {
        shown(files);
    }
}

#[test]
fn numbers_that_no_rank_has_are_refused() {
    let joined = |rank: u32, ranks: u32, at: u64| {
        json!({"Joined": {
            "rank": rank, "ranks": ranks, "node": 0, "host": "h", "process": 1, "device": "host", "at": at,
            "rounds": [],
        }})
    };
    let part = json!({"lane": 1 << 20, "leg": 0, "awaits": null, "bytes": 0, "tells": []});
    let flaws = [
        joined(0, u32::MAX, 0),
        joined(3, 3, 0),
        joined(0, 3, 1 << 60),
        json!({"Dropped": {"stream": u32::MAX, "stamps": 0}}),
        json!({"Dropped": {"stream": 65_536, "stamps": 0}}),
        json!({"Declared": {"batch": 0, "call": "Post", "site": "s", "parts": [part]}}),
    ];
    for flaw in flaws {
        let events = [event(joined(0, 3, 0)), event(flaw)];
        assert_eq!(
            check::flaw(&events).map(|(at, _)| at),
            Some(1),
            "{events:?}"
        );
    }
}

/// A GPU's stamps count from any time if its clock was never compared with the host's. A program may make many streams.
#[test]
fn files_of_odd_ranks_are_shown() {
    let leg = json!({"Leg": {"stream": 0, "leg": {
        "batch": 0, "lane": 0, "leg": 0, "epoch": 0,
        "begun": 1_764_000_000_000_000_000u64, "satisfied": u64::MAX, "moved": 0, "ended": 0,
    }}});
    let clock = json!({"Clock": {"stream": 0, "error": u64::MAX}});
    let mut events = vec![event(clock), event(leg)];
    assert_eq!(check::flaw(&events), None);
    let rank = Rank::new(&events);
    assert_eq!(rank.streams[0].dropped, 1);
    shown(vec![events.clone()]);
    events.resize_with(65_537, || {
        event(json!({"Dropped": {"stream": 0, "stamps": 0}}))
    });
    events.push(event(json!({"Dropped": {"stream": 65_536, "stamps": 0}})));
    assert_eq!(check::flaw(&events), None);
}

/// As many stamps as a number can say may be dropped, and a recording be replayed as often.
#[test]
fn replays_that_no_stream_has_done_are_not_expanded() {
    let events = [
        json!({"Dropped": {"stream": 0, "stamps": u64::MAX}}),
        json!({"Dropped": {"stream": 1, "stamps": u64::MAX}}),
        json!({"Recorded": {"recording": 0, "steps": [], "at": 0}}),
        json!({"Recorded": {"recording": 1, "steps": [[0, {"Kernel": "k"}]], "at": 0}}),
        json!({"Replayed": {"recording": 0, "times": u64::MAX, "site": "s", "at": 0, "lost": 0}}),
        json!({"Replayed": {"recording": 1, "times": u64::MAX, "site": "s", "at": 0, "lost": 0}}),
    ];
    shown(vec![events.map(event).to_vec()]);
}

#[test]
fn a_broken_file_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = tidegate_core::observe::Recorder::new(folder.path()).unwrap();
    let joined = json!({"Joined": {
        "rank": 0, "ranks": 1, "node": 0, "host": "h", "process": 1, "device": "host", "at": 0, "rounds": [],
    }});
    let dropped = json!({"Dropped": {"stream": u32::MAX, "stamps": 0}});
    for value in [joined, dropped] {
        tidegate_core::observe::Observer::event(&recorder, &event(value));
    }
    drop(recorder);
    let error = crate::trace::folder::read(folder.path())
        .err()
        .unwrap()
        .to_string();
    let path: PathBuf = folder.path().join("rank-0.tidegate");
    let path = path.display();
    assert_eq!(
        error,
        format!("{path}: event 1 is none that a rank can have written: there is no such stream")
    );
}
