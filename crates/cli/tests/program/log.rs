//! `TIDEGATE_LOG`, in ranks whose program has no subscriber of `tracing`.

use std::process::Output;

use crate::waits::without_waits;

/// A ring of two ranks, with variables.
fn ring(variables: &[&str]) -> Output {
    let mut command = super::launcher();
    command.args([
        "run",
        "-n",
        "2",
        "--no-label",
        "-e",
        "TIDEGATE_TEST_ROLE=ring",
    ]);
    for variable in variables {
        command.args(["-e", variable]);
    }
    command
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "launcher::a_rank", "--nocapture", "--quiet"])
        .output()
        .unwrap()
}

/// What two ranks say, if they succeed, except for waits.
fn said(variables: &[&str]) -> String {
    let output = ring(variables);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    without_waits(str::from_utf8(&output.stderr).unwrap())
}

/// The texts of a rank's lines, without their times.
fn of_rank(said: &str, rank: usize) -> Vec<&str> {
    let begin = format!("tidegate: rank {rank}, ");
    let text = |line| {
        let (time, text) = str::strip_prefix(line, &begin)?.split_once(" s: ")?;
        time.parse::<f64>().ok().map(|_| text)
    };
    said.lines().filter_map(text).collect()
}

#[test]
fn each_rank_tells_of_its_routes_windows_and_recordings() {
    let said = said(&["TIDEGATE_LOG=info"]);
    for rank in 0..2 {
        let texts = of_rank(&said, rank);
        let joined = format!("joined: rank {rank} of 2, on node 0, with host streams");
        let other = 1 - rank;
        let route = format!("route to rank {other}: mapped memory, on the same node");
        for begin in [
            &joined,
            &route,
            "a window is open (window: ring, ",
            "a step was recorded (",
        ] {
            let found = texts.iter().filter(|text| text.starts_with(begin)).count();
            assert_eq!(found, 1, "{begin}: {said}");
        }
    }
    let lines = of_rank(&said, 0).len() + of_rank(&said, 1).len();
    assert_eq!(
        lines,
        said.lines().count(),
        "each line begins alike: {said}"
    );
}

#[test]
fn a_level_shows_no_more_than_it_says() {
    let misspelt = "TIDEGATE_RUOTE=nic";
    let words = "TIDEGATE_RUOTE is set, and nothing reads it";
    // Without the variable, what needs no subscriber goes to the screen as it is.
    let plain = said(&[misspelt]);
    assert!(plain.starts_with(&format!("tidegate: {words}")), "{plain}");
    assert_eq!(plain.lines().count(), 1, "{plain}");
    let warned = said(&[misspelt, "TIDEGATE_LOG=warn"]);
    assert_eq!(warned.lines().count(), 1, "{warned}");
    let warning = format!("warning: {words}");
    assert!(of_rank(&warned, 0)[0].starts_with(&warning), "{warned}");
    assert_eq!(said(&[misspelt, "TIDEGATE_LOG=off"]), "");
}

#[test]
fn another_level_is_an_error_that_names_the_levels() {
    let output = ring(&["TIDEGATE_LOG=loud"]);
    assert_ne!(output.status.code(), Some(0));
    let told = [output.stdout, output.stderr].concat();
    let told = String::from_utf8_lossy(&told);
    assert!(
        told.contains("TIDEGATE_LOG") && told.contains("loud"),
        "{told}"
    );
}
