//! The page: one HTML file with the timeline, and nothing loaded from elsewhere.
//!
//! The rows of the [`View`] become lists of numbers in a script, which `page.js` draws. A page has at most [`MOST`]
//! slices. It shows a part of a longer trace, and says which.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::io::{self, Write};

use super::job::Job;
use super::json::Quoted;
use super::rank::{Time, total};
use super::summary::{self, counted, share, time};
use super::tables::Tables;
use super::view::{Kind, View};

/// The most slices of a page: about 5 MB.
const MOST: usize = 60_000;

/// Writes the page. `middle` is the time that is shown in any case.
pub(super) fn write(
    job: &Job,
    tables: &Tables,
    view: &View,
    out: &mut impl Write,
) -> io::Result<()> {
    let late = tables.late.as_ref().or(tables.causes.first());
    let middle = late.map_or(job.ended / 2, |cause| cause.step.begun);
    let (from, to) = shown(view, job.ended, middle);
    let mut note = String::new();
    if (from, to) != (0, job.ended) {
        note = format!(
            "The trace is long. This page shows {} to {} of {}; the file for ui.perfetto.dev has all.",
            time(from),
            time(to),
            time(job.ended)
        );
    }
    write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Trace of {}</title>\n<style>\n{}</style>\n</head>\n<body>\n<main>\n",
        counted(job.size, "rank"),
        include_str!("page.css")
    )?;
    writeln!(out, "<h1>Trace of {}</h1>", counted(job.size, "rank"))?;
    for line in summary::head(job, tables) {
        writeln!(out, "<p>{}</p>", escape(&line))?;
    }
    let class = if tables.late.is_some() { "bad" } else { "good" };
    let late = escape(&summary::late(job, tables));
    writeln!(out, "<p class=\"{class}\">{late}</p>")?;
    writeln!(
        out,
        "<section id=\"timeline\"><div class=\"bar\"><div class=\"keys\">{}</div>\
         <span class=\"how\">scroll to zoom, drag to move, click a slice for its arrows, \
         <button id=\"all\">all of the time</button> <button id=\"lanes\">lanes</button></span></div>\n<p class=\"note\">{}</p>\n\
         <canvas id=\"canvas\"></canvas><div id=\"tip\" hidden></div></section>",
        keys(),
        escape(&note)
    )?;
    self::tables(job, tables, out)?;
    write!(out, "</main>\n<script>\nconst trace = ")?;
    data(view, (from, to), out)?;
    write!(
        out,
        ";\n{}</script>\n</body>\n</html>\n",
        include_str!("page.js")
    )
}

fn keys() -> String {
    let key = |kind: &Kind| {
        let name = kind.name();
        format!(
            "<i style=\"background: var(--k{})\"></i>{name}",
            *kind as usize
        )
    };
    Kind::ALL.iter().map(key).collect::<Vec<_>>().join(" ")
}

/// The part of a trace that is shown: around `middle`, with no more than [`MOST`] slices.
fn shown(view: &View, ended: Time, middle: Time) -> (Time, Time) {
    let (mut from, mut to) = (0, ended);
    loop {
        let inside = view.rows.iter().map(|row| {
            let inside = row.slices.iter();
            inside
                .filter(|slice| slice.ended >= from && slice.begun <= to)
                .count()
        });
        if inside.sum::<usize>() <= MOST || to - from < 1000 {
            return (from, to);
        }
        let half = (to - from) / 4;
        (from, to) = ((middle - half).max(0), (middle + half).min(ended));
    }
}

/// The rows and arrows as JSON.
fn data(view: &View, (from, to): (Time, Time), out: &mut impl Write) -> io::Result<()> {
    let mut texts: Vec<&str> = Vec::new();
    let mut known: HashMap<&str, usize> = HashMap::new();
    let mut text = |each| {
        *known.entry(each).or_insert_with(|| {
            texts.push(each);
            texts.len() - 1
        })
    };
    writeln!(out, "{{from: {from}, to: {to}, rows: [")?;
    for row in &view.rows {
        let name = Quoted(&row.name);
        write!(
            out,
            "{{rank: {}, main: {}, name: {name}, slices: [",
            row.rank, row.main
        )?;
        let inside = row.slices.iter();
        for slice in inside.filter(|slice| slice.ended >= from && slice.begun <= to) {
            // Kind, begin, length, name, site, epoch, bytes.
            let (name, site) = (text(&slice.name), text(&slice.site));
            let epoch = slice.epoch.map_or(-1, |epoch| epoch as i64);
            write!(
                out,
                "{},{},{},{name},{site},{epoch},{},",
                slice.kind as usize,
                slice.begun,
                slice.ended - slice.begun,
                slice.bytes
            )?;
        }
        writeln!(out, "]}},")?;
    }
    write!(out, "], arrows: [")?;
    let inside = |at: Time| from <= at && at <= to;
    for arrow in &view.arrows {
        if inside(arrow.from.1) && inside(arrow.to.1) {
            let ((from, sent), (to, seen)) = (arrow.from, arrow.to);
            write!(out, "{from},{sent},{to},{seen},")?;
        }
    }
    write!(out, "], texts: [")?;
    for each in texts {
        write!(out, "{},", Quoted(each))?;
    }
    let kinds = Kind::ALL.map(|kind| Quoted(kind.name()).to_string());
    write!(out, "], kinds: [{}]}}", kinds.join(","))
}

/// The tables of the summary.
fn tables(job: &Job, tables: &Tables, out: &mut impl Write) -> io::Result<()> {
    let rows = tables.waits.iter().take(40).map(|waits| {
        let rank = &job.ranks[waits.rank];
        [
            rank.joined.rank.to_string(),
            waits.peer.to_string(),
            time(waits.time),
            share(waits.time, rank.ended() - rank.begun),
            waits.count.to_string(),
            waits.place.clone(),
            waits.site.clone(),
        ]
    });
    let heads = [
        "rank",
        "waited for",
        "time",
        "of its time",
        "waits",
        "mostly for",
        "line",
    ];
    table(out, "Who waited for whom", heads, rows)?;
    let length = total(tables.path.iter().map(|part| part.time));
    let rows = tables.path.iter().take(40).map(|part| {
        [
            share(part.time, length),
            time(part.time),
            part.what.clone(),
            summary::places(part),
        ]
    });
    let heads = ["share", "time", "what", "where"];
    table(out, "Critical path", heads, rows)?;
    let mut pairs: Vec<_> = tables.bytes.iter().collect();
    pairs.sort_by_key(|(pair, sum)| (std::cmp::Reverse(**sum), **pair));
    let rows = pairs.iter().take(40).map(|((from, to), sum)| {
        [
            from.to_string(),
            to.to_string(),
            crate::info::table::bytes(**sum),
        ]
    });
    table(out, "Bytes by pair", ["from", "to", "bytes"], rows)?;
    let rows = summary::rest(job, tables);
    table(out, "The rest", ["what", "figure"], rows.into_iter())
}

fn table<const N: usize>(
    out: &mut impl Write,
    title: &str,
    heads: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> io::Result<()> {
    let mut text = String::new();
    for head in heads {
        _ = write!(text, "<th>{}</th>", escape(head));
    }
    writeln!(
        out,
        "<section><h2>{}</h2><div class=\"wide\"><table><tr>{text}</tr>",
        escape(title)
    )?;
    for row in rows {
        let cells = row.iter().map(|cell| format!("<td>{}</td>", escape(cell)));
        writeln!(out, "<tr>{}</tr>", cells.collect::<String>())?;
    }
    writeln!(out, "</table></div></section>")
}

/// Text for a page.
fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;").replace('<', "&lt;");
    text.replace('>', "&gt;").replace('"', "&quot;")
}
