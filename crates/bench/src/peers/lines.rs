//! The programs' output: a JSON object a line, one for each row.

use super::calls::{Call, mode};
use super::peer::Peer;
use super::process::Ended;
use crate::cli::FacesArgs;
use crate::results::{Row, Setting};
use serde::Deserialize;

/// A row as a program prints it, without the fields that are not needed here.
#[derive(Debug, Deserialize)]
struct PrintedRow {
    row: String,
    mode: String,
    ranks: usize,
    us: Option<f64>,
    min: Option<f64>,
    max: Option<f64>,
    verified: bool,
    enqueue_us: Option<f64>,
    cpu_us: Option<f64>,
    launches: Option<f64>,
    #[serde(default)]
    note: String,
    bytes: Option<f64>,
}

/// The rows of a program that has ended; at least one.
pub(super) fn rows(call: &Call, args: &FacesArgs, ours: &Setting, ended: &Ended) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut left_out = 0;
    for line in ended.out.lines().filter(|line| line.starts_with('{')) {
        let row = match serde_json::from_str::<PrintedRow>(line) {
            Ok(line) => row(call, args, ours, line),
            Err(error) => failed(
                call,
                args,
                ours,
                format!("a line was not understood: {error}"),
            ),
        };
        // Sizes that were not asked for.
        let asked = args.bytes.filter(|_| args.pair);
        if asked.is_some_and(|bytes| !row.failed && row.setting.bytes != bytes as u64) {
            left_out += 1;
            continue;
        }
        rows.push(row);
    }
    if !ended.well {
        let words = match ended.last_words.as_str() {
            "" => String::new(),
            words => format!(": {words}"),
        };
        rows.push(failed(call, args, ours, format!("{}{words}", ended.how)));
    } else if rows.is_empty() {
        let why = match left_out {
            0 => "it ended well, and measured nothing".to_owned(),
            _ => "it does not measure messages of this size".to_owned(),
        };
        rows.push(failed(call, args, ours, why));
    }
    rows
}

/// The setting of a peer's rows: ours, changed where a peer differs.
fn setting(call: &Call, args: &FacesArgs, ours: &Setting) -> Setting {
    let mut setting = Setting {
        transport: call.peer.name().to_owned(),
        init: "-".into(),
        buffers: "-".into(),
        ..ours.clone()
    };
    match call.peer {
        Peer::Floor => {
            let nothing = || "-".to_owned();
            setting.benchmark = "floor".into();
            (setting.ranks, setting.messages, setting.bytes) = (2, 0, 0);
            (setting.grid, setting.elements, setting.points) = ("2x1x1".into(), nothing(), 0);
            (setting.counts, setting.compute) = ([0; 3], false);
        }
        _ if mode(args) == "pair" => setting.bytes = 0,
        _ => {}
    }
    setting
}

fn row(call: &Call, args: &FacesArgs, ours: &Setting, line: PrintedRow) -> Row {
    let mut setting = setting(call, args, ours);
    if let Some(bytes) = line.bytes {
        setting.bytes = bytes as u64;
    }
    let mode = match call.peer {
        Peer::Floor => "floor",
        _ => mode(args),
    };
    let why = if line.mode != mode {
        Some(format!("it did `{}`, not `{mode}`", line.mode))
    } else if line.ranks != setting.ranks {
        let (ran, asked) = (line.ranks, setting.ranks);
        Some(format!("it ran on {ran} ranks, not {asked}"))
    } else if !line.verified {
        Some(match line.note.as_str() {
            "" => "the data is wrong".to_owned(),
            note => note.to_owned(),
        })
    } else if line.us.is_none() {
        Some("it has no time".to_owned())
    } else {
        None
    };
    Row {
        us_max: line.us,
        us_least: line.min,
        us_most: line.max,
        enqueue_us: line.enqueue_us,
        cpu_us: line.cpu_us,
        launches: line.launches,
        verified: if line.verified { setting.ranks } else { 0 },
        note: Some(line.note).filter(|note| !note.is_empty()),
        ..bare(call, line.row, setting, why)
    }
}

/// The row of a call that came to nothing.
pub(super) fn failed(call: &Call, args: &FacesArgs, ours: &Setting, why: String) -> Row {
    let name = format!("({})", call.label);
    bare(call, name, setting(call, args, ours), Some(why))
}

fn bare(call: &Call, name: String, setting: Setting, failure: Option<String>) -> Row {
    Row {
        who: call.peer.name().to_owned(),
        us_by_rank: Vec::new(),
        verified: 0,
        failed: failure.is_some(),
        failure,
        ..Row::new(name, setting, &[])
    }
}
