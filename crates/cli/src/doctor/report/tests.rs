use super::super::facts::Joined;
use super::super::figures::Figure;
use super::super::finding::Who;
use super::super::judge::tests::joined;
use super::*;

/// Nodes of eight ranks, of which the last rank is slow.
fn report(size: usize) -> Report {
    let nodes: Vec<usize> = (0..size).map(|rank| rank / 8).collect();
    let all: Vec<Joined> = joined(&nodes);
    let mut figures = Figures::new(size, size * (size - 1) / 2);
    for high in 1..size {
        for low in 0..high {
            let near = nodes[low] == nodes[high];
            let [latency, speed] = if near { [0.5, 20.0] } else { [3.0, 12.0] };
            let latency = if high == size - 1 {
                2.0 * latency
            } else {
                latency
            };
            let bandwidth = [speed, if high == size - 1 { speed / 3.0 } else { speed }];
            figures.note((low, high), Figure { latency, bandwidth });
        }
    }
    Report {
        devices: vec!["host streams".into(); size],
        hosts: vec!["host".into(); size],
        routes: Some(Arc::new(Routes::of(&all))),
        figures: Some(Arc::new(figures)),
        nodes,
        ..Report::default()
    }
}

fn text(report: &Report) -> String {
    let mut out = Vec::new();
    report.write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn few_ranks_have_a_cell_for_each_pair() {
    let expected = "\
tidegate doctor: 3 ranks on 1 node, 1 host, host streams

Nothing is wrong.

One way, a put of 8 bytes and its signal, in us:
  from\\to     0     1     2
        0     -   0.5   1.0
        1   0.5     -   1.0
        2   1.0   1.0     -

Puts of 1 MiB, in GB/s:
  from\\to      0      1      2
        0      -  20.00  20.00
        1  20.00      -  20.00
        2   6.67   6.67      -
";
    assert_eq!(text(&report(3)), expected);
}

#[test]
fn many_ranks_have_a_line_for_each_route_and_the_worst_pairs() {
    let text = text(&report(64));
    assert!(text.lines().count() < 20, "{text}");
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    for line in [
        "mapped memory 448 0.5 0.5 1.0 6.67 20.00 20.00",
        "NIC (tcp, software engine) 3584 3.0 3.0 6.0 4.00 12.00 12.00",
        "The slowest by mapped memory: 56 - 63: 1.0 us",
        "63 to 56: 6.67 GB/s",
    ] {
        assert!(words.contains(line), "{line}: {text}");
    }
}

#[test]
fn notes_come_last_and_fail_nothing() {
    let who = Who::one(0, 0);
    let note = Finding::LockedMemory {
        who: who.clone(),
        limit: 1,
        by: None,
    };
    let mut report = Report {
        findings: vec![note],
        nodes: vec![0],
        ..Report::default()
    };
    assert!(!report.has_failed());
    assert!(
        text(&report).contains("Nothing is wrong.\n  - note: rank 0 on node 0 may lock 1 bytes")
    );
    let error = "no".to_owned();
    report.findings.push(Finding::NotMet { who, error });
    assert!(report.has_failed());
    let text = text(&report);
    let at = |part: &str| text.find(part).unwrap_or_else(|| panic!("{text}"));
    assert!(at("1 thing is wrong") < at("does not join") && at("does not join") < at("note: "));
}
