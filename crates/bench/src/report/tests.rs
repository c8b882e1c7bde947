use super::*;
use crate::results::RankSample;
use crate::results::tests::{row, rows, setting};

fn about() -> About {
    About {
        processors: Some(2),
        ..About::detect("faces --json <x> & \"y\"", "a process each")
    }
}

#[test]
fn is_whole_and_self_contained() {
    let html = page(&rows(), &about());
    assert_eq!(html.matches("<svg ").count(), 3);
    assert_eq!(html.matches("</svg>").count(), 3);
    for name in [
        "st-graph",
        "Time per share",
        "Every rank",
        "&lt;x&gt; &amp; &quot;y&quot;",
        "takes 1.53 times as long",
    ] {
        assert!(html.contains(name), "{name}");
    }
    // Neither the name space of SVG nor the link to the paper is fetched.
    let fetched = html
        .replace("http://www.w3.org/2000/svg", "")
        .replace("href=\"https://arxiv.org/", "");
    assert!(!fetched.contains("http"));
    assert!(!html.contains("src=") && !html.contains("@import") && !html.contains("url("));
    // All colours are the page's.
    let charts = html.split("<svg ").skip(1);
    let mut charts = charts.map(|part| part.split("</svg>").next().unwrap());
    assert!(
        charts.all(|svg| !svg.contains("\"#")),
        "a colour of its own"
    );
}

/// Every variant, every column, the clock, the ranks, the version and the paper are explained.
#[test]
fn explains_itself() {
    let html = page(&rows(), &about());
    for variant in ["st", "st-graph", "rma", "p2p"] {
        let term = format!("<dt>{variant}</dt><dd>");
        assert!(html.contains(&term), "{term}");
    }
    for word in [
        "<dt>a share</dt>",
        "<dt>avg, min, max us</dt>",
        "<dt>vs rma</dt>",
        "<dt>enqueue</dt>",
        "<dt>the clock</dt>",
        "not timed",
        "<dt>the ranks</dt><dd>a process each",
        "4 ranks on 2 processors",
        "above 1",
        "arXiv 2306.15773",
        "<td>1.61</td>",
        "<dt>version</dt><dd>tidegate ",
        ", commit ",
    ] {
        assert!(html.contains(word), "{word}");
    }
    // The words come before the charts.
    let place = |text: &str| html.find(text).expect(text);
    assert!(
        place("<dt>a share</dt>") < place("<svg ") && place("<svg ") < place("<dt>the clock</dt>")
    );
    assert!(!html.contains("no measurement"));
    // rma and p2p to st: 84 and 100 us to 64.
    assert!(html.contains("here: rma, p2p</td><td>1.31</td><td>1.56</td>"));
    assert!(!html.contains("here: mpi-rma"));
    let enough = About {
        processors: Some(4),
        ..about()
    };
    assert!(!page(&rows(), &enough).contains("<dt>scheduling</dt>"));
}

/// A page of a run that was made to be short says so, and counts one thing as one.
#[test]
fn a_short_run_is_no_measurement() {
    let mut rows = rows();
    for row in &mut rows {
        row.rounds = 1;
        row.setting.counts = [1, 1, 1];
    }
    let html = page(&rows, &about());
    let note = html.find("1 round cannot show").unwrap();
    assert!(note < html.find("<table>").unwrap());
    for text in [
        "1 build, 1 run, 1 share",
        "does 1 share,",
        "in each of 1 round<",
    ] {
        assert!(html.contains(text), "{text}");
    }
}

#[test]
fn failures_come_first() {
    let mut rows = rows();
    let failed = vec![RankSample::failed(0, "1 < 2")];
    rows[1] = Row::new("st-graph", setting(4), &[failed]);
    let html = page(&rows, &about());
    let failed = html.find("1 of 4 variants FAILED").unwrap();
    assert!(failed < html.find("<table>").unwrap());
    assert!(html.contains("rank 0: 1 &lt; 2") && !html.contains("Every rank"));
}

#[test]
fn odd_rows_are_drawn() {
    assert!(page(&[], &about()).contains("Nothing was run"));
    // A single rank, no baseline; no times at all; the baseline failed.
    let alone = row("st", 1, 1e6, |_| ());
    assert!(page(std::slice::from_ref(&alone), &about()).contains("<svg "));
    let none = Row::new("rma", setting(1), &[]);
    assert!(page(std::slice::from_ref(&none), &about()).contains("1 of 1 variant FAILED"));
    let html = page(&[none, alone], &about());
    assert_eq!(
        html.matches("<svg ").count(),
        2,
        "no ratios without a baseline"
    );
    page(&[row("rma", 1, 0.0, |_| ())], &about());
}

#[test]
fn is_written_into_a_new_folder() {
    let dir = tempfile::tempdir().unwrap();
    let path = write(&dir.path().join("a/b"), &rows(), &about()).unwrap();
    let html = std::fs::read_to_string(&path).unwrap();
    assert!(html.ends_with("</html>\n"));
    if let Some(keep) = std::env::var_os("TIDEGATE_KEEP_REPORT") {
        let mut rows = rows();
        (rows[3].failed, rows[3].failure) = (true, Some("rank 2: wrong".into()));
        rows.push(Row::new("st strided", setting(4), &[]));
        write(Path::new(&keep), &rows, &about()).unwrap();
    }
    std::fs::write(dir.path().join("file"), "").unwrap();
    let error = write(&dir.path().join("file"), &rows(), &about()).unwrap_err();
    assert!(error.to_string().contains("faces.html"));
}
