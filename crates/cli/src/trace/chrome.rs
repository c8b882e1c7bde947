//! The file for ui.perfetto.dev: a JSON object of Google's [Trace Event Format], which chrome://tracing reads, too.
//!
//! A rank is a process, a row of the [`View`] is a thread, and an arrow is a flow from one slice to another.
//!
//! [Trace Event Format]: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU

use std::io::{self, Write};

use super::json::{Micros, Quoted};
use super::summary;
use super::view::{Kind, View};

/// Writes the file. `lines` describe the trace.
pub(super) fn write(view: &View, lines: &[String], out: &mut impl Write) -> io::Result<()> {
    let about = Quoted(&lines.join("\n")).to_string();
    writeln!(
        out,
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"tidegate\":\"{}\",\"summary\":{about}}},\"traceEvents\":[",
        env!("CARGO_PKG_VERSION")
    )?;
    // Readers take 0 for the system, and threads of two processes with one number for one thread.
    let process = |rank: u32| rank + 1;
    let thread = |row: usize| row + 1;
    let mut last = None;
    for (row, of) in view.rows.iter().enumerate() {
        let (pid, tid) = (process(of.rank), thread(row));
        let mut named = |what: &str, args: String| {
            writeln!(
                out,
                "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{pid},\"tid\":{tid},\"args\":{{{args}}}}},"
            )
        };
        if last.replace(of.rank) != Some(of.rank) {
            named("process_name", format!("\"name\":\"rank {}\"", of.rank))?;
            named("process_sort_index", format!("\"sort_index\":{}", of.rank))?;
        }
        named("thread_name", format!("\"name\":{}", Quoted(&of.name)))?;
        named("thread_sort_index", format!("\"sort_index\":{row}"))?;
    }
    for (row, of) in view.rows.iter().enumerate() {
        let (pid, tid) = (process(of.rank), thread(row));
        for slice in &of.slices {
            let (name, begun) = (Quoted(&slice.name), Micros(slice.begun));
            let category = slice.kind.name().replace(',', "");
            let mut args = format!("\"site\":{}", Quoted(&slice.site));
            if let Some(epoch) = slice.epoch {
                args += &format!(",\"epoch\":{epoch}");
            }
            if slice.bytes > 0 {
                args += &format!(",\"bytes\":{}", slice.bytes);
            }
            let length = match (slice.kind, slice.ended - slice.begun) {
                (Kind::Call, 0) => "\"ph\":\"i\",\"s\":\"t\"".to_owned(),
                (_, length) => format!("\"ph\":\"X\",\"dur\":{}", Micros(length)),
            };
            writeln!(
                out,
                "{{{length},\"name\":{name},\"cat\":\"{category}\",\"ts\":{begun},\"pid\":{pid},\"tid\":{tid},\"args\":{{{args}}}}},"
            )?;
        }
    }
    for (id, arrow) in view.arrows.iter().enumerate() {
        let name = arrow.name();
        for (phase, (row, at)) in [("\"s\"", arrow.from), ("\"f\",\"bp\":\"e\"", arrow.to)] {
            let (pid, tid, at) = (process(view.rows[row].rank), thread(row), Micros(at));
            writeln!(
                out,
                "{{\"ph\":{phase},\"name\":\"{name}\",\"cat\":\"signal\",\"id\":{id},\"ts\":{at},\"pid\":{pid},\"tid\":{tid}}},"
            )?;
        }
    }
    // The last event, so that each of the others has a comma behind it.
    let begun = summary::counted(view.rows.len(), "row");
    writeln!(
        out,
        "{{\"ph\":\"M\",\"name\":\"process_labels\",\"pid\":1,\"tid\":1,\"args\":{{\"labels\":\"{begun}\"}}}}\n]}}"
    )
}
