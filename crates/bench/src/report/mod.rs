//! The result as a page: one HTML file with its charts inside, and nothing loaded from elsewhere.
//!
//! # Model
//!
//! [`page`] makes the text of the file from [`Row`]s and [`About`]; [`write()`] puts it into a folder. The page first says
//! whether all is right and which variant is fastest, then shows the table, the meaning of its words, and the charts. Below
//! these it says what is timed, and how to compare with the paper. The colours of the charts are the page's, for light and
//! dark screens.
//!
//! # Failures
//!
//! Only writing can fail; the error names the file. A failed row is shown first of all.

mod about;
mod charts;
mod style;

pub use about::About;

use crate::results::comparison::{self, shown};
use crate::results::files::{self, FileError};
use crate::results::meaning::{self, Meaning, counted};
use crate::results::{Row, baseline, table};
use crate::svg::{SERIES, escape, short};
use crate::table::Table;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// The name of the file that [`write()`] makes.
pub const FILE_NAME: &str = "faces.html";

/// Writes the page into a folder, which is made if it is missing; returns the path of the page.
///
/// # Errors
///
/// [`FileError::Io`].
pub fn write(dir: &Path, rows: &[Row], about: &About) -> Result<PathBuf, FileError> {
    let path = dir.join(FILE_NAME);
    files::write(&path, &page(rows, about))?;
    Ok(path)
}

/// The page as text. Of other libraries' launch shapes, it has the best.
pub fn page(rows: &[Row], about: &About) -> String {
    let alone = rows.iter().all(Row::is_ours);
    let table = match alone {
        true => table::cells(rows),
        false => comparison::cells(rows, &shown(rows)),
    };
    let chosen: Vec<Row>;
    let rows = match alone {
        true => rows,
        false => {
            chosen = shown(rows).into_iter().cloned().collect();
            &chosen
        }
    };
    let only = |keep: fn(&Row) -> bool| -> Vec<Row> {
        let kept = rows.iter().filter(|row| keep(row));
        kept.cloned().collect()
    };
    // The floor rows are the cost of launches and bytes, and no shares.
    let shares = only(|row| row.setting.benchmark != "floor");
    let ours = only(Row::is_ours);
    let first = ours.first().or(rows.first());
    let title = match first {
        Some(row) if row.setting.benchmark == "exchange" => {
            format!(
                "Exchange of messages on {}",
                counted(row.setting.ranks, "rank")
            )
        }
        Some(row) => format!("Faces on {}", counted(row.setting.ranks, "rank")),
        None => "Faces".to_owned(),
    };
    let mut html = String::with_capacity(32 << 10);
    _ = write!(
        html,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{}</style>\n</head>\n<body>\n\
         <main>\n<header>\n<h1>{title}</h1>\n{}</header>\n",
        style::CSS,
        headline(rows),
    );
    html += &first.map_or(String::new(), setting);
    let class = if alone { "ours" } else { "others" };
    _ = writeln!(html, "<div class=\"{class}\">");
    html += &table.html(|k| {
        let series = charts::colour(rows, k) % SERIES;
        format!("<i style=\"background:var(--s{series})\"></i>")
    });
    html += "</div>\n";
    if let Some(first) = first {
        section(&mut html, "The words of the table", &words(rows, first));
    }
    for (title, caption, svg) in [
        (
            "Time per share",
            "A bar ends at the slowest rank, the number to compare. The marks in it are the fastest rank and the average.",
            charts::times(&shares),
        ),
        (
            "Compared with rma",
            "rma's time divided by the variant's, each of its slowest rank. Right of the line is faster than rma.",
            charts::ratios(&ours),
        ),
        (
            "Spread over the ranks",
            "One dot for each rank, rank 0 at the top of each band. The axis does not begin at zero.",
            charts::spread(&ours),
        ),
    ] {
        if let Some(svg) = svg {
            let labelled = format!("<svg role=\"img\" aria-label=\"{title}\" ");
            let svg = svg.replacen("<svg ", &labelled, 1);
            section(&mut html, title, &format!("<p>{caption}</p>\n{svg}\n"));
        }
    }
    if let Some(first) = first {
        section(&mut html, "What was timed", &timed(rows, first, about));
        if first.setting.benchmark == "faces" {
            section(&mut html, "Compare with the paper", &paper(&ours));
        }
    }
    let about_it = (about.entries().into_iter())
        .map(|(what, value)| (what.to_owned(), value.to_owned()))
        .collect::<Vec<_>>();
    let command = escape(&about.command);
    let run = format!("{}<pre>{command}</pre>\n", list(&about_it));
    section(&mut html, "How this was run", &run);
    html + "</main>\n</body>\n</html>\n"
}

/// The verdict of the verification, and the fastest variant.
fn headline(rows: &[Row]) -> String {
    let mut html = String::new();
    let failed: Vec<&Row> = rows.iter().filter(|r| r.failed).collect();
    if rows.is_empty() {
        html += "<p class=\"bad\">Nothing was run.</p>\n";
    } else if failed.is_empty() {
        let errors = match rows.iter().map(|r| r.max_error).fold(0.0, f64::max) {
            0.0 => "no difference".to_owned(),
            most => format!("largest relative error {most:.1e}"),
        };
        _ = writeln!(
            html,
            "<p class=\"good\">Every rank of every variant was verified ({errors}).</p>"
        );
    } else {
        let (some, all) = (failed.len(), counted(rows.len(), "variant"));
        _ = writeln!(html, "<p class=\"bad\">{some} of {all} FAILED.</p>\n<ul>");
        for row in failed {
            let reason = row.failure.as_deref().unwrap_or("for an unknown reason");
            let (name, reason) = (escape(&row.name()), escape(reason));
            _ = writeln!(html, "<li><b>{name}</b>: {reason}</li>");
        }
        html += "</ul>\n";
    }
    let best = baseline(rows).and_then(|base| {
        let ours = rows.iter().filter(|row| row.is_ours());
        let ratios = ours.filter_map(|r| Some((r, base.ratio_to(r)?)));
        ratios.max_by(|a, b| a.1.total_cmp(&b.1))
    });
    if let Some((row, ratio)) = best.filter(|(_, ratio)| *ratio > 1.0) {
        _ = writeln!(
            html,
            "<p><b>{}</b> is the fastest: {} us per share. <b>rma</b> takes {ratio:.2} times as long.</p>",
            escape(&row.variant),
            short(row.us_max.unwrap_or(f64::NAN)),
        );
    }
    if let Some(note) = meaning::few(rows) {
        _ = writeln!(html, "<p class=\"bad\">{note}</p>");
    }
    html
}

/// The setting that all rows share.
fn setting(row: &Row) -> String {
    let s = &row.setting;
    let [nk, nj, ni] = s.counts;
    let facts = [
        ("device", s.device.clone()),
        ("transport", s.transport.clone()),
        ("ranks", format!("{}, grid {}", s.ranks, s.grid)),
        ("elements a rank", s.elements.clone()),
        ("points a side", s.points.to_string()),
        (
            "counts",
            format!(
                "{}, {}, {}",
                counted(nk as usize, "build"),
                counted(nj as usize, "run"),
                counted(ni as usize, "share")
            ),
        ),
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
        ("rounds", row.rounds.to_string()),
    ];
    let mut html = String::from("<ul class=\"facts\">\n");
    for (name, value) in facts {
        _ = writeln!(html, "<li><span>{name}</span> {}</li>", escape(&value));
    }
    html + "</ul>\n"
}

/// A share, the variants and the columns, explained.
fn words(rows: &[Row], first: &Row) -> String {
    let share = meaning::share(&first.setting.benchmark).to_owned();
    let mut list_of = vec![("a share".to_owned(), share)];
    list_of.extend(meaning::variants(rows));
    list_of.extend(meaning::columns(rows, &meaning::rounds(rows)));
    list(&list_of)
}

/// The clock and the processors, explained.
fn timed(rows: &[Row], first: &Row, about: &About) -> String {
    let s = &first.setting;
    let [nk, nj, ni] = s.counts;
    let times = if nk == 1 {
        "once".to_owned()
    } else {
        format!("{nk} times")
    };
    let timed = format!(
        "windows and buffers are built {times}, and that is not timed. After each build come {} runs; the first is not \
         counted. In a run every rank sets the initial values, synchronises, starts its clock, does {}, \
         synchronises, and stops its clock. No barrier stands between shares. A rank's time is divided by \
         {nk} x {nj} x {ni}. All variants take turns in each of {}",
        nj + 1,
        counted(ni as usize, "share"),
        meaning::rounds(rows),
    );
    let mut list_of = vec![
        ("the clock".to_owned(), timed),
        ("the ranks".to_owned(), about.placement.clone()),
    ];
    let more = |processors| meaning::scheduling(s.ranks, processors);
    if let Some(note) = about.processors.and_then(more) {
        list_of.push(("scheduling".to_owned(), note));
    }
    list(&list_of)
}

/// The paper's ratios beside these.
fn paper(rows: &[Row]) -> String {
    let ratio = |theirs: &str| {
        let find = |name: &str| rows.iter().find(|row| row.variant == name);
        let ratio = find(theirs).and_then(|row| row.ratio_to(find("st")?));
        ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}"))
    };
    let mut table = Table::new(["", "active RMA / st", "point to point / st"], &[0]);
    for row in [
        [
            "the paper, one node".to_owned(),
            "1.36".into(),
            "1.61".into(),
        ],
        [
            "the paper, eight nodes".to_owned(),
            "1.23".into(),
            "0.89".into(),
        ],
        ["here: rma, p2p".to_owned(), ratio("rma"), ratio("p2p")],
        [
            "here: mpi-rma, mpi-p2p".to_owned(),
            ratio("mpi-rma"),
            ratio("mpi-p2p"),
        ],
    ] {
        if row[1] != "-" || row[2] != "-" {
            table.row(row);
        }
    }
    let text = "<p class=\"note\">Faces is the benchmark of <a href=\"https://arxiv.org/abs/2306.15773\">arXiv 2306.15773</a>. \
         A ratio is the host-synchronised time divided by that of <b>st</b>: above 1, stream-triggering is faster.</p>\n";
    let how = "<p class=\"note\">The paper ran on GPUs, over a Slingshot network between nodes, against an MPI. To come near: \
         <code>--size small</code> or <code>--size large</code> are its sizes; <code>--device cuda</code> or <code>hip</code> runs on GPUs; \
         <code>--nodes 2x4</code> makes nodes; and with the feature <code>mpi</code> the variants <code>mpi-rma</code> and \
         <code>mpi-p2p</code> make an MPI's own calls, where <code>rma</code> and <code>p2p</code> use tidegate's. Compare \
         ratios, not times.</p>\n";
    format!("{text}{}{how}", table.html(|_| String::new()))
}

/// Words and their explanations.
fn list(all: &[Meaning]) -> String {
    let one = |(word, meaning): &Meaning| {
        format!("<dt>{}</dt><dd>{}</dd>\n", escape(word), escape(meaning))
    };
    format!("<dl>\n{}</dl>\n", all.iter().map(one).collect::<String>())
}

fn section(html: &mut String, title: &str, content: &str) {
    _ = write!(html, "<section>\n<h2>{title}</h2>\n{content}</section>\n");
}

#[cfg(test)]
mod tests;
