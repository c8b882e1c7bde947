//! The result as a page: one HTML file with its charts inside, and nothing loaded from elsewhere.
//!
//! # Model
//!
//! [`page`] makes the text of the file from [`Row`]s and [`About`]; [`write()`] puts it into a
//! folder. The charts are SVG drawn by `plotters`; their colours are the page's, so that it can be
//! read on a light and on a dark screen.
//!
//! # Failures
//!
//! Drawing fails only when the page cannot be written; the error names the file. A failed row is
//! shown as such, first of all.

mod about;
mod charts;
mod style;

pub use about::About;

use crate::draw::{SERIES, short};
use crate::results::comparison::{rival, shown};
use crate::results::{Row, baseline};
use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

/// The name of the file that [`write()`] makes.
pub const FILE_NAME: &str = "faces.html";

/// Writes the page into a folder, which is made if it is missing; returns the path of the page.
///
/// # Errors
///
/// When the folder or the file cannot be written; the message names it.
pub fn write(dir: &Path, rows: &[Row], about: &About) -> io::Result<PathBuf> {
    let path = dir.join(FILE_NAME);
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&path, page(rows, about)))
        .map_err(|e| io::Error::new(e.kind(), format!("cannot write {}: {e}", path.display())))?;
    Ok(path)
}

/// The page as text. Of other libraries' launch shapes, it has the best.
pub fn page(rows: &[Row], about: &About) -> String {
    let alone = rows.iter().all(Row::is_ours);
    let chosen: Vec<Row>;
    let rows = match alone {
        true => rows,
        false => {
            chosen = shown(rows).into_iter().cloned().collect();
            &chosen
        }
    };
    // What launches and bytes cost is no time of a share.
    let shares: Vec<Row> = rows
        .iter()
        .filter(|row| row.setting.benchmark != "floor")
        .cloned()
        .collect();
    let ours: Vec<Row> = rows.iter().filter(|row| row.is_ours()).cloned().collect();
    let mut html = String::with_capacity(32 << 10);
    let title = match ours.first().or(rows.first()) {
        Some(row) => format!("Faces on {} ranks", row.setting.ranks),
        None => "Faces".to_owned(),
    };
    _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n\
         <main>\n<header>\n<h1>{title}</h1>\n{}</header>\n",
        style::CSS,
        headline(rows),
    );
    html.push_str(&setting(rows));
    html.push_str(&table(rows));
    section(
        &mut html,
        "Time per share",
        "Bars end at the slowest rank, the number to compare. The marks inside are the fastest rank and the average.",
        charts::times(&shares),
    );
    section(
        &mut html,
        "Compared with rma",
        "The slowest rank's time as a multiple of that of rma. Left of the line is faster.",
        charts::ratios(&ours),
    );
    section(
        &mut html,
        "Spread over the ranks",
        "One dot a rank, rank 0 at the top of each band. The axis does not begin at zero.",
        charts::spread(&ours),
    );
    html.push_str("<section>\n<h2>How this was run</h2>\n<dl>\n");
    for (what, value) in about.entries() {
        _ = writeln!(html, "<dt>{what}</dt><dd>{}</dd>", escape(value));
    }
    html.push_str("</dl>\n<pre>");
    html.push_str(&escape(&about.command));
    html.push_str("</pre>\n</section>\n</main>\n</body>\n</html>\n");
    html
}

/// What a reader wants to know first: whether it is right, and what is fastest.
fn headline(rows: &[Row]) -> String {
    let mut html = String::new();
    let failed: Vec<&Row> = rows.iter().filter(|r| r.failed).collect();
    if rows.is_empty() {
        html.push_str("<p class=\"bad\">Nothing was run.</p>\n");
    } else if failed.is_empty() {
        let errors = rows.iter().map(|r| r.max_error).fold(0.0, f64::max);
        _ = writeln!(
            html,
            "<p class=\"good\">Every rank of every variant was verified (largest relative error {errors:.1e}).</p>"
        );
    } else {
        _ = writeln!(
            html,
            "<p class=\"bad\">{} of {} variants FAILED.</p>\n<ul>",
            failed.len(),
            rows.len()
        );
        for row in failed {
            let reason = row.failure.as_deref().unwrap_or("for an unknown reason");
            _ = writeln!(
                html,
                "<li><b>{}</b>: {}</li>",
                escape(&row.name()),
                escape(reason)
            );
        }
        html.push_str("</ul>\n");
    }
    let best = baseline(rows).and_then(|base| {
        let ours = rows.iter().filter(|row| row.is_ours());
        let ratios = ours.filter_map(|r| Some((r, r.ratio_to(base)?)));
        ratios.min_by(|a, b| a.1.total_cmp(&b.1))
    });
    if let Some((row, ratio)) = best.filter(|(_, ratio)| *ratio < 1.0) {
        _ = writeln!(
            html,
            "<p><b>{}</b> is the fastest: {} us per share, {ratio:.2} times what <b>rma</b> takes.</p>",
            escape(&row.variant),
            short(row.us_max.unwrap_or(f64::NAN)),
        );
    }
    html
}

/// What all rows have in common.
fn setting(rows: &[Row]) -> String {
    let Some(first) = rows.iter().find(|row| row.is_ours()).or(rows.first()) else {
        return String::new();
    };
    let s = &first.setting;
    let [nk, nj, ni] = s.counts;
    let facts = [
        ("device", s.device.clone()),
        ("transport", s.transport.clone()),
        ("rank grid", s.grid.clone()),
        ("elements a rank", s.elements.clone()),
        ("points a side", s.points.to_string()),
        ("counts", format!("{nk} builds, {nj} runs, {ni} shares")),
        (
            "compute beside",
            if s.compute { "yes" } else { "no" }.into(),
        ),
        ("initial values", s.init.clone()),
        (
            "messages",
            format!("{} a share, {} bytes", s.messages, s.bytes),
        ),
        ("buffers of a slot", s.buffers.clone()),
        ("rounds", first.rounds.to_string()),
    ];
    let mut html = String::from("<ul class=\"facts\">\n");
    for (name, value) in facts {
        _ = writeln!(html, "<li><span>{name}</span> {}</li>", escape(&value));
    }
    html.push_str("</ul>\n");
    html
}

fn table(rows: &[Row]) -> String {
    let mut html = String::from(
        "<div class=\"wide\"><table>\n<thead><tr><th>variant</th><th>avg us</th><th>min us</th><th>max us</th>\
         <th>enqueue us</th><th>cpu us</th><th>launches</th><th>x rma</th><th>verified ranks</th></tr></thead>\n<tbody>\n",
    );
    let base = baseline(rows);
    let alone = rows.iter().all(Row::is_ours);
    if !alone {
        html = html.replace("x rma", "x ours");
    }
    let number = |v: Option<f64>| v.map_or("-".to_owned(), short);
    for (k, row) in rows.iter().enumerate() {
        let base = if alone { base } else { rival(rows, row) };
        let ratio = base
            .and_then(|b| row.ratio_to(b))
            .map_or("-".to_owned(), |r| format!("{r:.2}"));
        _ = writeln!(
            html,
            "<tr{}><td><i style=\"background:var(--s{})\"></i>{}</td><td>{}</td><td>{}</td><td><b>{}</b></td>\
             <td>{}</td><td>{}</td><td>{}</td><td>{ratio}</td><td>{}/{}{}</td></tr>",
            if row.failed { " class=\"failed\"" } else { "" },
            charts::colour(rows, k) % SERIES,
            escape(&row.name()),
            number(row.us_avg),
            number(row.us_min),
            number(row.us_max),
            number(row.enqueue_us),
            number(row.cpu_us),
            number(row.launches),
            row.verified,
            row.setting.ranks,
            if row.failed { " FAILED" } else { "" },
        );
    }
    html.push_str("</tbody>\n</table></div>\n");
    html
}

/// A chart with its heading, unless there is nothing to show.
fn section(html: &mut String, title: &str, caption: &str, svg: Option<String>) {
    if let Some(svg) = svg {
        let svg = svg.replacen(
            "<svg ",
            &format!("<svg role=\"img\" aria-label=\"{title}\" "),
            1,
        );
        _ = write!(
            html,
            "<section>\n<h2>{title}</h2>\n<p>{caption}</p>\n{svg}\n</section>\n"
        );
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::RankSample;
    use crate::results::tests::{rows, setting};

    fn about() -> About {
        About {
            command: "faces --json <x> & \"y\"".into(),
            ..About::detect("")
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
            "0.65 times",
        ] {
            assert!(html.contains(name), "{name}");
        }
        // The name space of SVG is not fetched.
        assert!(
            !html
                .replace("http://www.w3.org/2000/svg", "")
                .contains("http")
        );
        assert!(!html.contains("src=") && !html.contains("@import") && !html.contains("url("));
        // All colours are the page's.
        let charts = html
            .split("<svg ")
            .skip(1)
            .map(|part| part.split("</svg>").next().unwrap());
        assert!(
            charts.into_iter().all(|svg| !svg.contains("\"#")),
            "a colour of its own"
        );
    }

    #[test]
    fn failures_come_first() {
        let mut rows = rows();
        rows[1] = Row::new(
            "st-graph",
            setting(4),
            &[vec![RankSample::failed(0, "1 < 2")]],
        );
        let html = page(&rows, &about());
        let failed = html.find("1 of 4 variants FAILED").unwrap();
        assert!(failed < html.find("<table>").unwrap());
        assert!(html.contains("rank 0: 1 &lt; 2") && !html.contains("Every rank"));
    }

    #[test]
    fn odd_rows_are_drawn() {
        assert!(page(&[], &about()).contains("Nothing was run"));
        // A single rank, no baseline; no times at all; the baseline failed.
        let alone = RankSample {
            us_per_share: Some(1e6),
            ..RankSample::new(0)
        };
        assert!(
            page(
                &[Row::new("st", setting(1), &[vec![alone.clone()]])],
                &about()
            )
            .contains("<svg ")
        );
        let none = Row::new("rma", setting(1), &[]);
        assert!(page(std::slice::from_ref(&none), &about()).contains("1 of 1 variants FAILED"));
        let html = page(
            &[none, Row::new("st", setting(1), &[vec![alone]])],
            &about(),
        );
        assert_eq!(
            html.matches("<svg ").count(),
            2,
            "no ratios without a baseline"
        );
        let zero = RankSample {
            us_per_share: Some(0.0),
            ..RankSample::new(0)
        };
        page(&[Row::new("rma", setting(1), &[vec![zero]])], &about());
    }

    #[test]
    fn is_written_into_a_new_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = write(&dir.path().join("a/b"), &rows(), &about()).unwrap();
        assert!(
            std::fs::read_to_string(&path)
                .unwrap()
                .ends_with("</html>\n")
        );
        if let Some(keep) = std::env::var_os("TIDEGATE_KEEP_REPORT") {
            let mut rows = rows();
            rows[3].failed = true;
            rows[3].failure = Some("rank 2: wrong".into());
            rows.push(Row::new("st strided", setting(4), &[]));
            write(Path::new(&keep), &rows, &about()).unwrap();
        }
        std::fs::write(dir.path().join("file"), "").unwrap();
        assert!(
            write(&dir.path().join("file"), &rows(), &about())
                .unwrap_err()
                .to_string()
                .contains("faces.html")
        );
    }
}
