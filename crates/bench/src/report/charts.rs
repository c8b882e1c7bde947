//! The three charts of the page, a band for each variant.

use crate::results::{Row, baseline};
use crate::svg::{Axis, Ink, Side, Svg, cut, short};

const WIDTH: i32 = 840;
/// The names of variants are left of this; those of others' rows are longer.
const LEFT: (i32, i32) = (136, 410);
/// The characters of a name that fit there.
const NAME: usize = 58;
/// The numbers behind the bars are right of this.
const RIGHT: i32 = WIDTH - 110;
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

/// The colour of a row: a variant's own, or that of its library.
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

/// Time per share: a bar to the slowest rank, marks at the fastest and the average. `None` without any time.
pub(super) fn times(rows: &[Row]) -> Option<String> {
    let end = rows.iter().filter_map(|r| r.us_max).reduce(f64::max)?;
    let unit = "microseconds per share";
    (end > 0.0).then(|| {
        chart(rows, BAND, (0.0, end), unit, |svg, axis, k, y| {
            let (row, start) = (&rows[k], axis.places.0);
            let Some(max) = row.us_max else {
                return failed(svg, y, start + 8);
            };
            let to = axis.at(max);
            svg.bar(start, to, y, Ink::Series(colour(rows, k)));
            for (value, reach) in [(row.us_min, 5), (row.us_avg, 9)] {
                if let Some(x) = value.map(|value| axis.at(value)) {
                    svg.line((x, y - reach), (x, y + reach), Ink::Mark);
                }
            }
            match row.failed {
                true => failed(svg, y, to + 8),
                false => number(svg, y, to + 8, &format!("{} us", short(max))),
            }
        })
    })
}

/// How many times as long `rma` takes as each row, as a bar from 1. `None` without `rma`.
pub(super) fn ratios(rows: &[Row]) -> Option<String> {
    let base = baseline(rows).filter(|b| b.ratio_to(b).is_some())?;
    let ratios: Vec<Option<f64>> = rows.iter().map(|r| base.ratio_to(r)).collect();
    let end = ratios.iter().flatten().copied().fold(1.0, f64::max) * 1.05;
    let unit = "rma's time divided by the variant's";
    Some(chart(rows, BAND, (0.0, end), unit, |svg, axis, k, y| {
        let one = axis.at(1.0);
        svg.line((one, y - BAND / 2), (one, y + BAND / 2), Ink::Text);
        let Some(ratio) = ratios[k] else {
            return failed(svg, y, one + 8);
        };
        let to = axis.at(ratio);
        let ink = if ratio >= 1.0 { Ink::Good } else { Ink::Bad };
        svg.bar(to.min(one), to.max(one), y, ink);
        number(svg, y, to.max(one) + 8, &format!("{ratio:.2}"));
    }))
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
    let values = ((low - room).max(0.0), high + room);
    let most = rows.iter().map(|r| r.us_by_rank.len()).max()?;
    let band = (most as i32 * 6 + 14).clamp(BAND, 130);
    let unit = "microseconds per share, each rank's median";
    Some(chart(rows, band, values, unit, |svg, axis, k, y| {
        let times = &rows[k].us_by_rank;
        for (rank, time) in times.iter().enumerate() {
            let Some(time) = *time else { continue };
            let below = (rank as f64 + 0.5) / times.len() as f64 - 0.5;
            let below = (below * f64::from(band - 12)).round() as i32;
            svg.dot((axis.at(time), y + below), Ink::Series(k), true);
        }
        if times.iter().all(Option::is_none) {
            failed(svg, y, axis.places.0 + 8);
        }
    }))
}

/// Draws the axis, and a band with its name for each row; `draw` fills the band around the middle that it is given.
fn chart(
    rows: &[Row],
    band: i32,
    values: (f64, f64),
    unit: &str,
    draw: impl Fn(&mut Svg, &Axis, usize, i32),
) -> String {
    let axis = Axis::linear(values, unit, (left(rows), RIGHT));
    let mut svg = Svg::of_page(WIDTH, TOP + band * rows.len() as i32 + AXIS);
    let name = |row: &Row| (cut(&row.name(), NAME), Ink::Text);
    let names: Vec<_> = rows.iter().map(name).collect();
    svg.bands((&axis, TOP, band), &names, |svg, k, y| {
        draw(svg, &axis, k, y)
    });
    svg.finish()
}

fn number(svg: &mut Svg, y: i32, x: i32, text: &str) {
    svg.label(text, (x, y), 13, Ink::Text, Side::Left);
}

fn failed(svg: &mut Svg, y: i32, x: i32) {
    svg.label("FAILED", (x, y), 13, Ink::Bad, Side::Left);
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
        assert!(ratios(&rows).unwrap().contains(">1.53<"));
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
