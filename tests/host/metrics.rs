//! Counters: they have the format of Prometheus, and count what the program does.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate::WorldOptions;
use tidegate::host::prelude::*;
use tidegate::observe::{Counters, Event, Observer, TeamId, WindowId};

use crate::common::exposition::{Samples, read};

/// The value of the one sample with this name, and with these labels among others.
fn value(samples: &Samples, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
    let has = |all: &BTreeMap<String, String>| {
        let mut labels = labels.iter();
        labels.all(|(name, value)| all.get(*name).is_some_and(|here| here == value))
    };
    let mut found = samples
        .iter()
        .filter(|((metric, all), _)| metric == name && has(all));
    let (_, value) = found.next()?;
    assert!(
        found.next().is_none(),
        "there are several of {name}{labels:?}"
    );
    Some(*value)
}

/// A name with all that the format escapes.
const NAME: &str = "a \"halo\" \\ of\ntwo";

/// An eager step, and seven replays of one.
fn ring(world: &World) -> Result<()> {
    let (left, right) = world.ring();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u64>::new(NAME);
    window.slot_from(left, 0, 8);
    let to = window.slot_to(right, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::from_slice(world, &[1; 8])?.on(&s)?;
    let exposed = inbox.post(&s)?;
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    let outbox = epoch.complete(&s)?;
    let lent = (exposed.wait(&s)?, outbox, src);
    let (graph, lent) = s.capture(lent, |s, (inbox, outbox, mut src)| {
        s.launch(|src: &mut [u64]| src[0] += 1, &mut src)?;
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        let (inbox, outbox) = tidegate::exchange(s, inbox, epoch)?;
        Ok((inbox, outbox, src))
    })?;
    let lent = graph.replay(&s, lent, 7)?;
    s.synchronize()?;
    drop(lent);
    Ok(())
}

#[test]
fn counters_count_and_files_are_whole() {
    let folder = tempfile::tempdir().unwrap();
    let counters = || Arc::new(Counters::written_to(folder.path()).unwrap());
    let counters: Vec<_> = (0..3).map(|_| counters()).collect();
    let options = |rank: usize| WorldOptions::new().observer(counters[rank].clone());
    World::local_with(3, options, |world| ring(&world).unwrap());
    for (rank, counters) in counters.iter().enumerate() {
        let file = folder.path().join(format!("tidegate-rank-{rank}.prom"));
        let text = std::fs::read_to_string(file).unwrap();
        assert_eq!(text, counters.render());
        let samples = read(&text);
        let rank_text = rank.to_string();
        assert!(
            samples
                .keys()
                .all(|(_, labels)| labels["rank"] == rank_text)
        );
        let (left, right) = ((rank + 2) % 3, (rank + 1) % 3);
        let (left, right) = (left.to_string(), right.to_string());
        let (to, from) = (("peer", &*right), ("peer", &*left));
        let window = ("window", NAME);
        let is = |name: &str, labels: &[(&str, &str)], expected: f64| {
            let value = value(&samples, &format!("tidegate_{name}"), labels);
            assert_eq!(value, Some(expected), "{name} {labels:?}\n{text}");
        };
        is("rank_info", &[("ranks", "3"), ("node", "0")], 1.0);
        is("running", &[], 0.0);
        is("epochs_total", &[window, to, ("side", "origin")], 8.0);
        is("epochs_total", &[window, from, ("side", "target")], 8.0);
        is("moved_bytes_total", &[window, to], 8.0 * 64.0);
        is("moved_bytes_total", &[window, from], 0.0);
        is("waits_total", &[window, to, ("for", "post")], 8.0);
        is("waits_total", &[window, from, ("for", "complete")], 8.0);
        is("kernels_total", &[], 7.0);
        is("replays_total", &[], 7.0);
        for none in ["dropped_stamps", "failures", "revocations"] {
            is(&format!("{none}_total"), &[], 0.0);
        }
        let spent = value(
            &samples,
            "tidegate_wait_seconds_total",
            &[from, ("for", "complete")],
        );
        assert!(spent.unwrap() >= 0.0);
    }
    let files = std::fs::read_dir(folder.path()).unwrap();
    assert_eq!(files.count(), 3, "nothing else is left there");
}

#[test]
fn failures_are_counted_once() {
    let counters = Arc::new(Counters::new());
    let options = |_| WorldOptions::new().observer(counters.clone());
    World::local_with(1, options, |world| {
        stream!(let s = world.stream().unwrap());
        let x = Region::from_slice(&world, &[1.0]).unwrap().on(&s).unwrap();
        s.launch(|_: &[f64]| panic!("on purpose"), &x).unwrap();
        s.synchronize().unwrap_err();
    });
    let samples = read(&counters.render());
    assert_eq!(value(&samples, "tidegate_failures_total", &[]), Some(1.0));
    // A window is revoked by each rank that hears of it, and counts once.
    let window = WindowId::first(TeamId::WORLD);
    for _ in 0..2 {
        let (why, at) = (String::new(), 0);
        counters.event(&Event::Revoked { window, why, at });
    }
    let samples = read(&counters.render());
    assert_eq!(
        value(&samples, "tidegate_revocations_total", &[]),
        Some(1.0)
    );
}

/// A program that opens window after window, each with another name, does not make the text longer and longer.
#[test]
fn the_number_of_lines_has_a_limit() {
    let counters = Arc::new(Counters::new());
    let options = |_| WorldOptions::new().observer(counters.clone());
    World::local_with(1, options, |world| {
        stream!(let s = world.stream().unwrap());
        for number in 0..1100 {
            let mut window = SlotWindow::<u64>::new(&format!("number {number}"));
            window.slot_from(0, 0, 1);
            let to = window.slot_to(0, 0);
            let (inbox, outbox) = window.open(&s).unwrap();
            let src = Region::from_slice(&world, &[1]).unwrap().on(&s).unwrap();
            let mut epoch = outbox.start();
            epoch.put(&src, to).unwrap();
            drop(tidegate::exchange(&s, inbox, epoch).unwrap());
            s.synchronize().unwrap();
        }
    });
    let samples = read(&counters.render());
    let of_windows = samples
        .iter()
        .filter(|((name, _), _)| name == "tidegate_moved_bytes_total");
    assert_eq!(of_windows.count(), 1001);
    let others = value(
        &samples,
        "tidegate_moved_bytes_total",
        &[("window", "(others)")],
    );
    assert_eq!(others, Some(100.0 * 8.0));
}
