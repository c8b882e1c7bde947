//! The three charts. Bars lie on their side, so that names can be read, and everything is placed by
//! hand: an axis below, a band for each variant.

use crate::draw::{Area, Axis, Drawn, Ink, bar, cut, line, short, text};
use crate::results::{Row, baseline};
use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

const WIDTH: i32 = 840;
/// The names of variants are left of this; those of others' rows are longer.
const LEFT: (i32, i32) = (118, 410);
/// The characters of a name that fit there.
const NAME: usize = 58;
/// The numbers behind the bars need this much.
const RIGHT: i32 = 96;
const TOP: i32 = 8;
const BAND: i32 = 38;
/// The axis with its numbers and its unit.
const AXIS: i32 = 44;

/// Where the bars begin.
fn left(rows: &[Row]) -> i32 {
    match rows.iter().all(Row::is_ours) {
        true => LEFT.0,
        false => LEFT.1,
    }
}

fn places(rows: &[Row]) -> (i32, i32) {
    (left(rows), WIDTH - RIGHT)
}

/// The colour of a row: a variant's own, or that of whose it is.
pub(super) fn colour(rows: &[Row], k: usize) -> usize {
    if rows.iter().all(Row::is_ours) {
        return k;
    }
    let mut whose: Vec<&str> = Vec::new();
    for row in rows {
        if !row.is_ours() && !whose.contains(&&*row.who) {
            whose.push(&row.who);
        }
    }
    let place = whose.iter().position(|who| *who == rows[k].who);
    place.map_or(0, |place| place + 1)
}

/// Time per share: a bar to the slowest rank, marks at the fastest and the average. `None` without
/// any time.
pub(super) fn times(rows: &[Row]) -> Option<String> {
    let end = rows
        .iter()
        .filter_map(|r| r.us_max)
        .reduce(f64::max)
        .filter(|m| *m > 0.0)?;
    let axis = Axis::new(0.0, end, "microseconds per share", places(rows));
    chart(rows, BAND, &axis, |area, k, row, y| {
        let Some(max) = row.us_max else {
            return failed(area, y, left(rows) + 8);
        };
        let to = axis.at(max);
        bar(area, left(rows), to, y, Ink::Series(colour(rows, k)))?;
        let inside = [(row.us_min, 5), (row.us_avg, 9)];
        for (value, reach) in inside.iter().filter_map(|(v, r)| Some(((*v)?, *r))) {
            let x = axis.at(value);
            line(area, (x, y - reach), (x, y + reach), Ink::Mark)?;
        }
        if row.failed {
            return failed(area, y, to + 8);
        }
        text(
            area,
            &format!("{} us", short(max)),
            (to + 8, y),
            16,
            Ink::Text,
            HPos::Left,
        )
    })
}

/// Each row's ratio to `rma`, as a bar from 1. `None` without a baseline to compare with.
pub(super) fn ratios(rows: &[Row]) -> Option<String> {
    let base = baseline(rows).filter(|b| b.ratio_to(b).is_some())?;
    let ratios: Vec<Option<f64>> = rows.iter().map(|r| r.ratio_to(base)).collect();
    let end = ratios.iter().flatten().copied().fold(1.0, f64::max);
    let axis = Axis::new(0.0, end * 1.05, "multiple of rma's time", places(rows));
    let one = axis.at(1.0);
    chart(rows, BAND, &axis, |area, k, _, y| {
        line(area, (one, y - BAND / 2), (one, y + BAND / 2), Ink::Text)?;
        let Some(ratio) = ratios[k] else {
            return failed(area, y, one + 8);
        };
        let to = axis.at(ratio);
        let ink = if ratio <= 1.0 { Ink::Good } else { Ink::Bad };
        bar(area, to.min(one), to.max(one), y, ink)?;
        let label = match ((ratio - 1.0) * 100.0).round() {
            0.0 => format!("{ratio:.2}"),
            p => format!("{ratio:.2}  ({p:+.0}%)"),
        };
        text(
            area,
            &label,
            (to.max(one) + 8, y),
            16,
            Ink::Text,
            HPos::Left,
        )
    })
}

/// A dot for each rank's time. `None` without any time.
pub(super) fn spread(rows: &[Row]) -> Option<String> {
    let all = || {
        rows.iter()
            .flat_map(|r| r.us_by_rank.iter().flatten().copied())
    };
    let (low, high) = (all().reduce(f64::min)?, all().reduce(f64::max)?);
    if high <= 0.0 {
        return None;
    }
    let room = ((high - low) * 0.06).max(high * 0.01);
    let axis = Axis::new(
        (low - room).max(0.0),
        high + room,
        "microseconds per share, each rank's median",
        places(rows),
    );
    let most = rows.iter().map(|r| r.us_by_rank.len()).max()?;
    let band = (most as i32 * 6 + 14).clamp(BAND, 130);
    chart(rows, band, &axis, |area, k, row, y| {
        let ranks = row.us_by_rank.len() as f64;
        for (rank, time) in row.us_by_rank.iter().enumerate() {
            let Some(time) = *time else { continue };
            let below = (rank as f64 + 0.5) / ranks - 0.5;
            let centre = (
                axis.at(time),
                y + (below * f64::from(band - 12)).round() as i32,
            );
            area.draw(&Circle::new(centre, 4, Ink::Series(k).code().filled()))?;
        }
        if row.us_by_rank.iter().all(Option::is_none) {
            failed(area, y, left(rows) + 8)
        } else {
            Ok(())
        }
    })
}

/// Draws the axis, and a band with its name for each row; `draw` fills the band around the middle
/// that it is given.
fn chart(
    rows: &[Row],
    band: i32,
    axis: &Axis,
    draw: impl Fn(&Area<'_>, usize, &Row, i32) -> Drawn,
) -> Option<String> {
    let bottom = TOP + band * rows.len() as i32;
    let mut svg = String::new();
    let drawn = (|| -> Drawn {
        let area = SVGBackend::with_string(&mut svg, (WIDTH as u32, (bottom + AXIS) as u32))
            .into_drawing_area();
        axis.draw(&area, TOP, bottom)?;
        for (k, row) in rows.iter().enumerate() {
            let y = TOP + band * k as i32 + band / 2;
            let size = if left(rows) == LEFT.0 { 17 } else { 13 };
            let (name, at) = (cut(&row.name(), NAME), (left(rows) - 12, y));
            text(&area, &name, at, size, Ink::Text, HPos::Right)?;
            draw(&area, k, row, y)?;
        }
        area.present()
    })();
    // Into a string nothing fails; and a page without a chart is better than none.
    drawn.ok()?;
    Some(Ink::resolve(svg.trim()))
}

fn failed(area: &Area<'_>, y: i32, x: i32) -> Drawn {
    text(area, "FAILED", (x, y), 16, Ink::Bad, HPos::Left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::rows;

    #[test]
    fn charts_hold_what_they_should() {
        let rows = rows();
        let svg = times(&rows).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>"));
        assert!(svg.contains("55.0 us") && svg.contains("var(--s3)"));
        assert!(ratios(&rows).unwrap().contains("0.65  (-35%)"));
        assert!(ratios(&rows[..2]).is_none());
        assert_eq!(spread(&rows).unwrap().matches("<circle").count(), 16);
        assert!(times(&[]).is_none() && spread(&[]).is_none());
    }

    #[test]
    fn others_have_their_names_and_one_colour_each() {
        let mut rows = rows();
        (rows[1].who, rows[2].who, rows[3].who) = ("nccl".into(), "mpi".into(), "nccl".into());
        (rows[3].us_min, rows[3].us_avg) = (None, None);
        let colours: Vec<_> = (0..4).map(|k| colour(&rows, k)).collect();
        assert_eq!(colours, [0, 1, 2, 1]);
        let svg = times(&rows).unwrap();
        assert!(svg.contains("nccl: p2p") && svg.contains("100.0 us"));
    }
}
