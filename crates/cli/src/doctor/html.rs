//! The report as one page that needs no other file.

use super::figures::{Figures, gbs, spread, us};
use super::report::Report;
use std::fmt::Write as _;

/// The most ranks of which each pair has a cell.
const MOST: usize = 128;

const STYLE: &str = "
:root { color-scheme: light dark; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 75em; padding: 0 1em; }
h1 { font-size: 1.3em; } h2 { font-size: 1.1em; margin-top: 2em; }
li { margin-bottom: .6em; } .do { opacity: .8; } .note { opacity: .7; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px; }
th, td { padding: 2px 8px; text-align: right; } th { font-weight: 600; }
td.cell { color: #111; } td.name { text-align: left; }
";

/// The page.
pub(super) fn page(report: &Report) -> String {
    let mut body = format!(
        "<h1>{}</h1>\n<p>{}</p>\n",
        escaped(&report.head()),
        escaped(&report.verdict())
    );
    if !report.findings.is_empty() {
        body += "<ul>\n";
        for finding in report.ordered() {
            let (class, kind) = match finding.is_note() {
                true => (" class=note", "note: "),
                false => ("", ""),
            };
            let (what, advice) = (escaped(&finding.what()), escaped(&finding.advice()));
            // Writing to a `String` does not fail.
            let _ = writeln!(
                body,
                "<li{class}>{kind}{what}<br><span class=do>do: {advice}</span></li>"
            );
        }
        body += "</ul>\n";
    }
    if let Some(figures) = report
        .figures
        .as_ref()
        .filter(|figures| figures.measured() > 0)
    {
        body += &routes(report);
        if figures.size <= MOST {
            body += &matrix(
                figures,
                "One way, a put of 8 bytes and its signal, in us",
                us,
                |figure| figure.0,
                true,
            );
            body += &matrix(
                figures,
                "Puts of 1 MiB, in GB/s",
                gbs,
                |figure| figure.1,
                false,
            );
        }
    }
    for remark in report.remarks() {
        let _ = writeln!(body, "<p>{}</p>", escaped(&remark));
    }
    format!(
        "<!doctype html>\n<html lang=en>\n<meta charset=utf-8>\n\
         <meta name=viewport content=\"width=device-width\">\n<title>tidegate doctor</title>\n\
         <style>{STYLE}</style>\n<body>\n{body}</body>\n</html>\n"
    )
}

/// A row for each route.
fn routes(report: &Report) -> String {
    let mut text = String::from(
        "<h2>By route</h2>\n<div class=wide><table>\n<tr><th>route<th>ways<th>us: least<th>median<th>most\
         <th>GB/s: least<th>median<th>most</tr>\n",
    );
    for (route, ways) in report.by_route() {
        let times = spread(ways.iter().map(|way| way.1)).map(|time| format!("<td>{}", us(time)));
        let rates = spread(ways.iter().map(|way| way.2)).map(|rate| format!("<td>{}", gbs(rate)));
        let (route, count) = (escaped(&route), ways.len());
        let _ = writeln!(
            text,
            "<tr><td class=name>{route}<td>{count}{}{}</tr>",
            times.concat(),
            rates.concat()
        );
    }
    text + "</table></div>\n"
}

/// A table with a cell for each pair. The worse a figure is among all, the redder is its cell.
fn matrix(
    figures: &Figures,
    head: &str,
    words: fn(f64) -> String,
    value: impl Fn((f64, f64)) -> f64,
    less_is_better: bool,
) -> String {
    let all = figures.ways().map(|(_, time, rate)| value((time, rate)));
    let [least, _, most] = spread(all);
    let colour = |value: f64| {
        // By ratios: pairs differ by orders of magnitude.
        let place = if most > least {
            (value / least).ln() / (most / least).ln()
        } else {
            0.0
        };
        let badness = if less_is_better || most <= least {
            place
        } else {
            1.0 - place
        };
        // From green, over yellow, to red.
        format!("hsl({:.0} 70% 75%)", 130.0 * (1.0 - badness))
    };
    let mut text = format!("<h2>{head}</h2>\n<div class=wide><table>\n<tr><th>from \\ to");
    for to in 0..figures.size {
        let _ = write!(text, "<th>{to}");
    }
    text += "</tr>\n";
    for from in 0..figures.size {
        let _ = write!(text, "<tr><th>{from}");
        for to in 0..figures.size {
            let _ = match figures.between(from, to).map(&value) {
                Some(value) => write!(
                    text,
                    "<td class=cell title=\"{from} to {to}\" style=\"background:{}\">{}",
                    colour(value),
                    words(value)
                ),
                None => write!(text, "<td>{}", if from == to { "-" } else { "." }),
            };
        }
        text += "</tr>\n";
    }
    text + "</table></div>\n"
}

/// A text that means the same in HTML.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::figures::Figure;
    use super::super::finding::{Finding, Who};
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_page_has_all_findings_and_pairs_and_needs_nothing_else() {
        let mut figures = Figures::new(2, 1);
        let bandwidth = [10.0, 5.0];
        figures.note(
            (0, 1),
            Figure {
                latency: 1.5,
                bandwidth,
            },
        );
        let finding = Finding::Variable {
            who: Who::one(0, 0),
            what: "<b> & \"c\"".into(),
        };
        let report = Report {
            findings: vec![finding],
            nodes: vec![0, 0],
            figures: Some(Arc::new(figures)),
            ..Report::default()
        };
        let page = page(&report);
        assert!(
            page.contains("rank 0 on node 0: &lt;b&gt; &amp; \"c\""),
            "{page}"
        );
        for cell in [
            "title=\"0 to 1\" style=\"background:hsl(130 70% 75%)\">10.00",
            "title=\"1 to 0\" style=\"background:hsl(0 70% 75%)\">5.00",
            "title=\"1 to 0\" style=\"background:hsl(130 70% 75%)\">1.5",
        ] {
            assert!(page.contains(cell), "{cell}: {page}");
        }
        for other in ["http", "src=", "href=", "@import"] {
            assert!(!page.contains(other), "{other}: {page}");
        }
    }
}
