//! The whole program, started as a user starts it: ranks are processes, and peers are shell scripts.
//!
//! This test is the program too: with arguments it does what `faces` does, and so do the ranks that it starts.

#[path = "common/script.rs"]
mod script;

use std::path::Path;
use std::process::{Command, ExitCode, Output};
use tidegate_bench::faces::params::Variant;
use tidegate_bench::faces::timeline::Span;
use tidegate_bench::results::{Row, exit_code};

const SMALL: &str = "--grid 2x1x1 --size 2x2x2x3 --counts 1,1,20 --rounds 2 --no-bind";

fn main() -> ExitCode {
    let ours = |arg: String| arg.starts_with("--grid") || arg.starts_with("--pair");
    if std::env::args().nth(1).is_some_and(ours) {
        return tidegate_bench::program::main();
    }
    ours_alone();
    ours_and_others();
    a_peer_that_fails_fails_the_run();
    a_peer_that_is_nowhere_ends_it_before_it_begins();
    a_timeline();
    ExitCode::SUCCESS
}

fn faces(dir: &Path, line: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(line.split_whitespace())
        .args(["--json", "rows.json", "--report", "page"])
        .current_dir(dir)
        .output()
        .unwrap()
}

fn rows(dir: &Path) -> Vec<Row> {
    serde_json::from_str(&std::fs::read_to_string(dir.join("rows.json")).unwrap()).unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A peer that prints one row, and ends with `code`.
fn peer(dir: &Path, name: &str, mode: &str, code: i32) {
    let at = dir.join("peers");
    std::fs::create_dir_all(&at).unwrap();
    let row = format!(
        r#"{{"peer":"{name}","row":"its way","mode":"{mode}","ranks":2,"us":0.5,"min":0.4,"max":0.6,"verified":true,"enqueue_us":0.1,"cpu_us":0.2,"launches":null,"note":""}}"#
    );
    script::program(&at.join(name), &format!("echo '{row}'\nexit {code}"));
}

fn ours_alone() {
    let dir = tempfile::tempdir().unwrap();
    let output = faces(dir.path(), SMALL);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let page = dir.path().canonicalize().unwrap().join("page/faces.html");
    let report = format!("report: {}\n", page.display());
    assert!(said.contains("vs rma") && said.contains(&report), "{said}");
    let rows = rows(dir.path());
    let names: Vec<_> = rows.iter().map(|row| &*row.variant).collect();
    assert_eq!(names, ["st", "st-graph", "rma", "p2p"]);
    for row in rows {
        assert!(row.cpu_us.is_some() && row.launches.is_some() && row.enqueue_us.is_some());
        assert!(row.us_least <= row.us_max && row.us_max <= row.us_most);
    }
}

fn ours_and_others() {
    let dir = tempfile::tempdir().unwrap();
    peer(dir.path(), "hostrma", "exchange", 0);
    let line = format!("{SMALL} --exchange --peers hostrma --peers-at peers");
    let output = faces(dir.path(), &line);
    let said = text(&output.stdout);
    assert!(output.status.success(), "{said}{}", text(&output.stderr));
    let rows = rows(dir.path());
    let who: Vec<_> = rows.iter().map(|row| &*row.who).collect();
    assert_eq!(who, ["tidegate", "tidegate", "hostrma"]);
    assert!(
        said.contains("/ ours") && said.contains("its way"),
        "{said}"
    );
    let page = std::fs::read_to_string(dir.path().join("page/faces.html")).unwrap();
    assert!(page.contains("hostrma: its way"));
}

fn a_peer_that_fails_fails_the_run() {
    let dir = tempfile::tempdir().unwrap();
    peer(dir.path(), "hostrma", "share", 3);
    let output = faces(
        dir.path(),
        &format!("{SMALL} --peers hostrma --peers-at peers"),
    );
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let rows = rows(dir.path());
    // The rows that it had measured by then are kept.
    assert_eq!(
        (rows.len(), exit_code(&rows[..5]), exit_code(&rows)),
        (6, 0, 1)
    );
    assert!(text(&output.stdout).contains("exit code 3"));
}

fn a_peer_that_is_nowhere_ends_it_before_it_begins() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("file"), "").unwrap();
    // Neither programs nor a place to build them in.
    let output = faces(
        dir.path(),
        &format!("{SMALL} --peers floor --peers-at file/peers"),
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("file/peers"),
        "{}",
        text(&output.stderr)
    );
    assert!(!dir.path().join("rows.json").exists());
}

fn a_timeline() {
    let dir = tempfile::tempdir().unwrap();
    let line = "--grid 2x1x1 --size 2x2x2x3 --compute --variants st,rma --timeline t.json";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(line.split_whitespace())
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(text(&output.stdout), "timeline: t.json\n");
    let spans = std::fs::read_to_string(dir.path().join("t.json")).unwrap();
    let spans: Vec<Span> = serde_json::from_str(&spans).unwrap();
    for (rank, variant) in [(0, Variant::St), (1, Variant::Rma)] {
        let mine = |span: &&Span| span.rank == rank && span.variant == variant;
        assert!(spans.iter().filter(mine).count() > 10);
    }
}
