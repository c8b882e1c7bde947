use super::*;
use crate::faces::params::Variant;
use crate::faces::timeline::Lane;
use crate::faces::timeline::Span;
use crate::results::Row;
use crate::results::Setting;
use serde_json::json;
use std::path::PathBuf;

fn row(
    step: &str,
    who: &str,
    variant: &str,
    us: f64,
    change: impl FnOnce(&mut Setting),
) -> serde_json::Value {
    let row = Row {
        who: who.into(),
        ..crate::results::tests::row(variant, 8, us, |s| {
            (s.elements, s.points) = ("15x14x13".into(), 12);
            change(s);
        })
    };
    let mut value = serde_json::to_value(row).unwrap();
    value["step"] = step.into();
    value
}

/// A small sample of what the script leaves.
fn sample() -> serde_json::Value {
    let exchange =
        |ranks: usize| move |s: &mut Setting| (s.ranks, s.benchmark) = (ranks, "exchange".into());
    let mut rows = Vec::new();
    for (ranks, us) in [(2, 4.0), (4, 5.0), (8, 6.75)] {
        let share = |s: &mut Setting| s.ranks = ranks;
        rows.extend([
            row("exchange", "tidegate", "st", us + 0.5, exchange(ranks)),
            row("exchange", "tidegate", "st-graph", us, exchange(ranks)),
            row("share", "tidegate", "st", us * 2.0, share),
            row("share", "tidegate", "rma", us * 4.0, share),
        ]);
    }
    for (who, variant, us) in [
        (
            "nccl",
            "device, own words, 16 blocks of 512, graph of 20",
            5.95,
        ),
        ("nccl", "device, own words, 8 blocks of 512", 7.25),
        ("mpi", "isend <staged>", 264.0),
    ] {
        rows.push(row("peers-exchange", who, variant, us, exchange(8)));
    }
    rows.push(row("compute", "tidegate", "st", 41.0, |s| s.compute = true));
    // Another size, which is in no picture.
    let large = |s: &mut Setting| s.elements = "95x94x93".into();
    rows.push(row("large", "tidegate", "st", 5555.0, large));
    let sized = |benchmark: &'static str, messages: usize, bytes: u64| {
        move |s: &mut Setting| {
            (s.benchmark, s.elements) = (benchmark.into(), "-".into());
            (s.messages, s.bytes) = (messages, bytes);
            s.ranks = if benchmark == "pair" { 2 } else { s.ranks };
        }
    };
    for (messages, us) in [(1, 3.5), (7, 3.75), (26, 8.25)] {
        let ring = sized("exchange", messages, 8192 * messages as u64);
        rows.push(row("neighbours", "tidegate", "st-graph", us, ring));
    }
    for (name, bytes, us) in [("8 B", 8, 3.5), ("256 MiB", 1 << 28, 750.0)] {
        for (how, more) in [("ping-graph", 0.0), ("ping", 1.0)] {
            let (name, pair) = (format!("{how} {name}"), sized("pair", 1, bytes));
            rows.push(row("pair", "tidegate", &name, us + more, pair));
        }
    }
    let (stores, floor) = ("stores of 16 bytes, 64 blocks", sized("floor", 1, 4096));
    rows.push(row("peers-pair", "floor", stores, 3.0, floor));
    let mut failed = row("share", "nvshmem", "a broken way", 1.0, |_| ());
    failed["failed"] = true.into();
    rows.push(failed);
    let mut spans = Vec::new();
    for (variant, long) in [(Variant::St, 1.0), (Variant::Rma, 3.0)] {
        let all = [
            (Lane::Host, "wait", 0.0, 40.0),
            (Lane::Stream, "pack", 5.0, 9.0),
            (Lane::Stream, "exchange", 9.0, 18.0),
            (Lane::Compute, "compute", 6.0, 30.0),
        ];
        spans.extend(all.map(|(lane, what, begin, end)| Span {
            rank: 0,
            variant,
            share: 0,
            lane,
            what: what.into(),
            begin_us: begin * long,
            end_us: end * long,
            within_us: None,
        }));
    }
    json!({
        "machine": "Some GPU & more",
        "gpus": 8,
        "driver": "580.1",
        "date": "2026-11-21",
        "steps": [{"name": "exchange", "status": "ok"}],
        "rows": rows,
        "timelines": [{"gpus": 8, "spans": spans}],
    })
}

fn results(value: serde_json::Value) -> Results {
    serde_json::from_value(value).unwrap()
}

#[test]
fn every_chart_is_drawn_and_says_what_it_shows() {
    let (charts, missing) = draw(&results(sample()));
    assert_eq!(missing, []);
    let expected = [
        (
            "exchange.svg",
            "tidegate st|6.75|nccl: device, own words|5.95|7.25|mpi: isend &lt;staged&gt;|264.0|bar cut",
        ),
        ("share.svg", "tidegate rma|13.5|27.0"),
        ("share-compute.svg", "compute kernel|41.0"),
        (
            "growth-exchange.svg",
            "tidegate st, graph|nccl, best form|GPUs",
        ),
        ("growth-share.svg", "tidegate rma|microseconds"),
        ("neighbours.svg", "8 KiB|26|neighbours"),
        (
            "pair-latency.svg",
            "256 MiB|tidegate ping, graph|stores of 16 bytes",
        ),
        ("pair-bandwidth.svg", "GB/s|tidegate ping"),
        (
            "timeline.svg",
            "st: 40.0 us|rma: 120.0 us|2nd stream|exchange",
        ),
    ];
    assert_eq!(charts.len(), expected.len());
    for (chart, (name, labels)) in charts.iter().zip(expected) {
        assert_eq!(chart.name, name);
        assert!(chart.svg.ends_with("</svg>"), "{name}: {}", chart.svg);
        let place = "Some GPU &amp; more|580.1|2026-11-21";
        for label in labels.split('|').chain(place.split('|')) {
            assert!(chart.svg.contains(label), "{name} does not say {label}");
        }
        // It stands on white.
        assert!(
            chart.svg.contains("#ffffff") && !chart.svg.contains("#01FE"),
            "{name}"
        );
    }
    // In the run with the others ours took longer: that row is shown.
    let mut value = sample();
    let mut together = value["rows"][1].clone();
    assert_eq!(together["variant"], "st-graph");
    for (name, with) in [
        ("ranks", json!(8)),
        ("us_max", json!(7.77)),
        ("step", json!("peers-exchange")),
    ] {
        together[name] = with;
    }
    value["rows"].as_array_mut().unwrap().push(together);
    let (again, _) = draw(&results(value));
    assert!(again[0].svg.contains("7.77") && !again[0].svg.contains("6.75"));
    let all: String = charts.into_iter().map(|chart| chart.svg).collect();
    assert!(!all.contains("a broken way") && !all.contains("5555"));
}

#[test]
fn what_is_missing_is_said() {
    let mut value = sample();
    let rows = value["rows"].as_array_mut().unwrap();
    rows.retain(|row| row["benchmark"] == "faces" && row["compute"] == false);
    value.as_object_mut().unwrap().remove("timelines");
    let (charts, missing) = draw(&results(value.clone()));
    let names: Vec<_> = charts.iter().map(|chart| chart.name).collect();
    assert_eq!(names, ["share.svg", "growth-share.svg"]);
    assert_eq!(missing.len(), 7);
    assert_eq!(
        missing[0].to_string(),
        "exchange.svg is not drawn: it needs rows of the exchange alone: the steps exchange-N or peers-exchange"
    );
    value["rows"] = json!([]);
    let (charts, missing) = draw(&results(value));
    assert_eq!((charts.len(), missing.len()), (0, 9));
}

#[test]
fn odd_rows_are_no_panic() {
    let mut value = sample();
    for row in value["rows"].as_array_mut().unwrap() {
        row["us_max"] = json!(0.0);
    }
    for span in value["timelines"][0]["spans"].as_array_mut().unwrap() {
        (span["begin_us"], span["end_us"]) = (json!(1.0), json!(1.0));
    }
    let (charts, _) = draw(&results(value.clone()));
    assert!(charts.iter().all(|chart| !chart.svg.contains("NaN")));
    for row in value["rows"].as_array_mut().unwrap() {
        row["us_max"] = serde_json::Value::Null;
    }
    assert!(draw(&results(value)).0.is_empty());
}

#[test]
fn runs_are_joined_and_files_written() {
    let dir = tempfile::tempdir().unwrap();
    let folder = |name: &str, value: &serde_json::Value| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join(RESULTS), value.to_string()).unwrap();
        path
    };
    let (mut ours, mut peers) = (sample(), sample());
    let is_ours = |row: &serde_json::Value| row["who"] == "tidegate";
    ours["rows"].as_array_mut().unwrap().retain(is_ours);
    peers["rows"]
        .as_array_mut()
        .unwrap()
        .retain(|row| !is_ours(row));
    (peers["gpus"], peers["date"]) = (json!(4), json!("2026-11-22"));
    let from = [folder("peers", &peers), folder("ours", &ours)];
    let to = dir.path().join("charts");
    let (written, missing) = run(&from, &to).unwrap();
    assert_eq!((written.len(), missing.len()), (9, 0));
    let svg = std::fs::read_to_string(to.join("exchange.svg")).unwrap();
    for label in [
        "tidegate st",
        "nccl: device",
        "8 x Some GPU",
        "2026-11-21, 2026-11-22",
    ] {
        assert!(svg.contains(label), "{label}");
    }

    let error = |from: &[PathBuf]| run(from, &to).unwrap_err().to_string();
    assert!(error(&[dir.path().join("none")]).contains("cannot read"));
    assert!(
        error(&[folder("other", &json!({"gpus": 1}))]).contains("does not hold what it should")
    );
    assert!(error(&[]).contains("no folder"));
    std::fs::write(dir.path().join("file"), "").unwrap();
    assert!(
        run(&from, &dir.path().join("file"))
            .unwrap_err()
            .to_string()
            .contains("cannot write")
    );
}

#[test]
fn large_jobs_are_drawn_from_two_on() {
    let job = |ranks| Growth {
        ranks,
        join: ranks as f64,
        window: 0.5,
    };
    assert!(large_jobs(&[job(8)], "here").is_none());
    let svg = large_jobs(&[job(8), job(1024)], "here").unwrap();
    for label in [">8<", ">1024<", "joins", "opens", "here"] {
        assert!(svg.contains(label), "{label}: {svg}");
    }
}
