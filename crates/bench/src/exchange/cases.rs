//! Which cases the command line asks for.

use super::case::{Case, Order};
use super::pattern::Pattern;
use crate::cli::FacesArgs;
use crate::faces::layout::Geometry;
use crate::faces::params::{Counts, Variant};
use crate::results::Setting;
use std::error::Error;

/// Messages of a pair, if none are asked for: 8 B to 256 MiB.
const SIZES: [usize; 10] = [
    8,
    64,
    512,
    4096,
    32_768,
    262_144,
    2_097_152,
    16_777_216,
    134_217_728,
    268_435_456,
];

/// How much a run of a pair moves, about.
const BUDGET: usize = 1 << 30;

/// The exchange alone, of Faces or of a ring: eagerly, and recorded.
///
/// # Errors
///
/// A pattern or a geometry that cannot be; variants that have no kernels to leave out.
pub fn exchanges(args: &FacesArgs, rank: usize, device: &str) -> Result<Vec<Case>, Box<dyn Error>> {
    let ranks = args.ranks();
    let pattern_of = |rank: usize| -> Result<Pattern, Box<dyn Error>> {
        Ok(match args.neighbours {
            Some(count) => Pattern::ring(ranks, rank, count, args.bytes.unwrap_or(8))?,
            None => Pattern::faces(&Geometry::new(args.grid, args.size, rank)?),
        })
    };
    // The same on every rank: a rank in the middle has most neighbours.
    let middle = args.grid.rank(args.grid.0.map(|side| (side - 1) / 2));
    let most = pattern_of(middle)?;
    let pattern = pattern_of(rank)?;
    let counts = counts(args);
    let variants = [(Variant::St, 0), (Variant::StGraph, args.unroll)];
    let asked = variants.iter().filter(|(v, _)| args.variants.contains(v));
    let cases: Vec<_> = asked
        .map(|(variant, recorded)| {
            let counts = multiple(counts, *recorded);
            Case {
                name: variant.name().to_owned(),
                pattern: pattern.clone(),
                order: Order::Together,
                recorded: *recorded,
                buffers: args.buffers.into(),
                counts,
                setting: setting(args, device, "exchange", counts, &most),
                counted: None,
                spoil: false,
            }
        })
        .collect();
    if cases.is_empty() {
        return Err("--exchange measures st and st-graph alone".into());
    }
    Ok(cases)
}

/// The counts of the exchange alone.
pub(crate) fn counts(args: &FacesArgs) -> Counts {
    args.counts.unwrap_or(Counts {
        nk: 3,
        nj: 4,
        ni: 1000,
    })
}

/// Two ranks: a message that goes to and fro, and messages that cross; of one size or of many; eagerly, and
/// recorded.
///
/// # Errors
///
/// A size that is not one of words.
pub fn pairs(args: &FacesArgs, rank: usize, device: &str) -> Result<Vec<Case>, Box<dyn Error>> {
    let sizes = args.bytes.map_or(SIZES.to_vec(), |bytes| vec![bytes]);
    let mut cases = Vec::new();
    for bytes in sizes {
        let pattern = Pattern::ring(2, rank, args.puts, bytes)?;
        let counts = args.counts.unwrap_or(Counts {
            nk: 1,
            nj: 2,
            ni: (BUDGET / bytes / args.puts).clamp(20, 1000) as u64,
        });
        for (what, order) in [("ping", Order::Turns), ("both", Order::Together)] {
            for (how, recorded) in [("", 0), ("-graph", args.unroll)] {
                let counts = multiple(counts, recorded);
                cases.push(Case {
                    name: format!("{what}{how} {}", of_room(args.counted, bytes)),
                    pattern: pattern.clone(),
                    order,
                    recorded,
                    buffers: args.buffers.into(),
                    counts,
                    setting: setting(args, device, "pair", counts, &pattern),
                    counted: args.counted.map(|bytes| bytes / 8),
                    spoil: false,
                });
            }
        }
    }
    Ok(cases)
}

/// The size of messages; if they are counted, with the size of their room.
fn of_room(counted: Option<usize>, bytes: usize) -> String {
    let room = size_text(bytes);
    counted.map_or_else(
        || room.clone(),
        |counted| format!("{} of {room}", size_text(counted)),
    )
}

/// Counts whose runs are whole graphs.
fn multiple(counts: Counts, recorded: u64) -> Counts {
    Counts {
        ni: counts.ni.next_multiple_of(recorded.max(1)),
        ..counts
    }
}

fn setting(
    args: &FacesArgs,
    device: &str,
    benchmark: &str,
    counts: Counts,
    pattern: &Pattern,
) -> Setting {
    let ranks = args.ranks();
    let blocks = benchmark == "exchange" && args.neighbours.is_none();
    Setting {
        device: device.to_owned(),
        transport: "mapped".into(),
        ranks,
        grid: match benchmark {
            "pair" => "2x1x1".to_owned(),
            _ => args.grid.to_string(),
        },
        elements: match blocks {
            true => args.size.elements_text(),
            false => "-".to_owned(),
        },
        points: if blocks { args.size.n } else { 0 },
        counts: [counts.nk, counts.nj, counts.ni],
        compute: false,
        init: "words".into(),
        benchmark: benchmark.to_owned(),
        buffers: args.buffers.to_string(),
        messages: pattern.outbound.len(),
        bytes: pattern.sent_bytes(),
        budget: None,
        throttle: None,
    }
}

/// `8 B`, `4 KiB`, `1.5 KiB`, `256 MiB`.
fn size_text(bytes: usize) -> String {
    let (unit, name) = match bytes {
        0..1024 => (1, "B"),
        1024..1_048_576 => (1024, "KiB"),
        _ => (1_048_576, "MiB"),
    };
    format!("{} {name}", bytes as f64 / unit as f64)
}
