use super::*;
use crate::results::Row;
use crate::results::files::{self, FileError};
use crate::results::tests::row;
use crate::transport::ThrottleOf;
use std::path::Path;

fn shares(st: f64, separate: f64, rma: f64) -> Vec<Row> {
    [("st", st), ("st-separate", separate), ("rma", rma)]
        .map(|(variant, us)| row(variant, 2, us, |_| ()))
        .into()
}

/// A folder as the script leaves it.
struct Left {
    dir: tempfile::TempDir,
    steps: String,
}

impl Left {
    fn new() -> Left {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("steps")).unwrap();
        let steps = String::new();
        Left { dir, steps }
    }

    fn step(mut self, nodes: &str, what: &str, pass: u32, status: &str, rows: &[Row]) -> Left {
        let name = format!("{nodes}-{what}-{pass}");
        let provider = "tcp;ofi_rxm";
        self.steps +=
            &format!("{name}\t{nodes}\t{provider}\t{what}\t{status}\t2\t{pass}\tfaces --x\n");
        if !rows.is_empty() {
            let path = self.dir.path().join(format!("steps/{name}.json"));
            files::write_rows(&path, rows).unwrap();
        }
        self
    }

    fn read(&self) -> Result<Measured, FileError> {
        std::fs::write(self.dir.path().join("steps.tsv"), &self.steps).unwrap();
        let about = [("processor", "A & B"), ("date", "2026-11-21")];
        let about = about.map(|(name, value)| (name.to_owned(), value.to_owned()));
        Measured::read(self.dir.path(), about.into())
    }
}

/// Three passes over two numbers of nodes, a delayed cell, and the throttling table.
fn sample() -> Left {
    let mut left = Left::new();
    // The machine was busy in the second pass, for all alike.
    for (pass, times) in [(1, 1.0), (2, 5.0), (3, 1.5)] {
        let of = |us: f64| shares(us * times, us * times * 1.25, us * times * 1.5);
        let slots = [(16, 10.0), (64, 5.0)]
            .into_iter()
            .flat_map(|(budget, us)| {
                ThrottleOf::ALL.map(|throttle| {
                    let factor = match throttle {
                        ThrottleOf::Application => 1.5,
                        ThrottleOf::Static => 1.25,
                        ThrottleOf::Adaptive => 1.0,
                    };
                    row("st", 2, us * times * factor, |setting| {
                        (setting.budget, setting.throttle) =
                            (Some(budget), Some(throttle.name().into()));
                    })
                })
            });
        left = left
            .step("2x1", "delay 1ms", pass, "ok", &of(2000.0))
            .step("2x1", "share", pass, "ok", &of(40.0))
            .step("4x1", "share", pass, "ok", &of(100.0))
            .step("4x2", "share", pass, "ok", &of(500.0))
            .step("2x4", "throttling", pass, "ok", &slots.collect::<Vec<_>>());
    }
    left
}

#[test]
fn times_are_medians_of_passes_and_ratios_of_jobs() {
    let measured = sample().read().unwrap();
    let cells = measured.cells();
    let names: Vec<_> = cells
        .iter()
        .map(|cell| (cell.nodes(), cell.what()))
        .collect();
    let expected = [
        ("2x1", "share"),
        ("4x1", "share"),
        ("4x2", "share"),
        ("2x4", "throttling"),
    ];
    assert_eq!(names[..4], expected);
    assert_eq!(names[4], ("2x1", "delay 1ms"));
    assert_eq!(cells[0].us("st"), Some(60.0));
    assert_eq!(cells[0].ratio("rma", "st"), Some(1.5));
    assert_eq!(cells[0].ratio("st-separate", "st"), Some(1.25));
    assert_eq!(
        (cells[0].us("p2p"), cells[0].ratio("p2p", "st")),
        (None, None)
    );
    assert!(
        cells
            .iter()
            .all(|cell| cell.verified() && cell.passes() == 3)
    );
    assert_eq!(measured.problems(), Vec::<String>::new());
    let table = measured.table();
    let line = table
        .lines()
        .find(|line| line.starts_with("| 2x1 ") && line.contains("share"));
    let line: Vec<_> = line.unwrap().split('|').map(str::trim).collect();
    let expected = "2x1 tcp;ofi_rxm share 3 60.0 - 75.0 90.0 - 1.50 - - - 1.25 yes";
    assert_eq!(line[1..16].join(" "), expected);
    // The throttling table, of medians.
    let slots = table.lines().find(|line| line.starts_with("st "));
    let slots: Vec<_> = slots.unwrap().split_whitespace().collect();
    let expected = ["st", "16", "22.5", "18.8", "15.0", "1.25", "1.50"];
    assert_eq!(slots, expected);
    assert!(
        !table.contains("FAILED") && !table.contains("NOT"),
        "{table}"
    );
}

/// Each problem alone makes the run fail.
#[test]
fn whatever_is_wrong_is_a_problem() {
    let fine = shares(1.0, 2.0, 3.0);
    let problem = |left: Left| {
        let measured = left.read().unwrap();
        let problems = measured.problems();
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(measured.table().contains(&problems[0]));
        problems[0].clone()
    };
    assert_eq!(problem(Left::new()), "nothing was run");
    let left = || Left::new().step("2x1", "share", 1, "ok", &fine);
    assert_eq!(
        problem(left().step("4x1", "share", 1, "not run", &[])),
        "NOT RUN: 4x1-share-1"
    );
    assert!(problem(left().step("2x1", "share", 2, "ok", &[])).contains("left no rows"));
    let ended = left().step("2x1", "share", 2, "FAILED (no end after 9 s)", &[]);
    // The rows of another pass do not hide it.
    assert!(ended.read().unwrap().table().contains("| NO "));
    assert!(problem(ended).starts_with("FAILED (no end after 9 s): 2x1-share-2: faces"));

    let mut wrong = fine.clone();
    (wrong[1].failed, wrong[1].failure) = (true, Some("rank 1: wrong".into()));
    let wrong = left().step("2x1", "share", 2, "ok", &wrong);
    let measured = wrong.read().unwrap();
    let cell = &measured.cells()[0];
    assert!(!cell.verified() && measured.table().contains("| NO "));
    // Of a variant that was wrong once there is no time; its ratio is that of the jobs in which it was right.
    assert_eq!((cell.us("st-separate"), cell.us("st")), (None, Some(1.0)));
    assert_eq!(
        problem(wrong),
        "NOT VERIFIED: 2x1-share-2: st-separate: rank 1: wrong"
    );
    let mut fewer = fine.clone();
    fewer[0].verified = 1;
    assert!(problem(left().step("2x1", "share", 2, "ok", &fewer)).contains("NOT VERIFIED"));
}

#[test]
fn pictures_and_json_have_what_was_measured() {
    let left = sample();
    let measured = left.read().unwrap();
    let to = left.dir.path().join("charts");
    let written = measured.write(left.dir.path(), &to).unwrap();
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    let expected = [
        (
            "nodes-growth.svg",
            "st, 1 rank a node|rma, 2 ranks a node|tcp;ofi_rxm|A &amp; B",
        ),
        (
            "nodes-merged.svg",
            "4x2, tcp;ofi_rxm, share|1.25: 75.0 to 60.0 us|delay 1ms|A &amp; B",
        ),
        ("nodes-throttling.svg", "adaptive|static|64"),
    ];
    assert_eq!(written.len(), 4);
    for ((name, labels), path) in expected.into_iter().zip(&written[1..]) {
        assert_eq!(path, &to.join(name));
        let svg = read(path);
        for label in labels.split('|') {
            assert!(svg.contains(label), "{name} does not say {label}: {svg}");
        }
    }
    let json: serde_json::Value = serde_json::from_str(&read(&written[0])).unwrap();
    assert_eq!(json["about"]["date"], "2026-11-21");
    assert_eq!(json["cells"][0]["us"][0], serde_json::json!(["st", 60.0]));
    assert_eq!(json["cells"][0]["verified"], true);
    assert_eq!(json["steps"].as_array().unwrap().len(), 15);
    assert_eq!(json["steps"][1]["rows"][0]["us_max"], 40.0);
    assert_eq!(json["throttling"].as_array().unwrap().len(), 6);
    // With one number of nodes there is no growth, and without a separate row no comparison.
    let one = Left::new().step("2x1", "share", 1, "ok", &shares(1.0, 2.0, 3.0)[..1]);
    assert_eq!(one.read().unwrap().charts(), []);
}

#[test]
fn what_cannot_be_read_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let error = |result: Result<Measured, FileError>| result.unwrap_err().to_string();
    let none = error(Measured::read(dir.path(), Vec::new()));
    assert!(
        none.contains("cannot read") && none.contains("steps.tsv"),
        "{none}"
    );
    let mut left = Left::new().step("2x1", "share", 1, "ok", &shares(1.0, 2.0, 3.0));
    left.steps += "only a word\n";
    assert!(error(left.read()).ends_with("line 2 is no step"));
    let left = Left::new().step("2x1", "share", 1, "ok", &shares(1.0, 2.0, 3.0));
    std::fs::write(left.dir.path().join("steps/2x1-share-1.json"), "{").unwrap();
    assert!(error(left.read()).contains("2x1-share-1.json does not hold"));
}
