//! The three charts. Bars lie on their side, so that names can be read, and everything is placed by
//! hand: an axis below, a band for each variant.

use super::style::Ink;
use crate::results::{Row, baseline};
use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const WIDTH: i32 = 840;
/// The names of variants are left of this.
const LEFT: i32 = 118;
/// The numbers behind the bars need this much.
const RIGHT: i32 = 96;
const TOP: i32 = 8;
const BAND: i32 = 38;
/// The axis with its numbers and its unit.
const AXIS: i32 = 44;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A number with three or four digits that matter.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Time per share: a bar to the slowest rank, marks at the fastest and the average. `None` without
/// any time.
pub(super) fn times(rows: &[Row]) -> Option<String> {
    let end = rows
        .iter()
        .filter_map(|r| r.us_max)
        .reduce(f64::max)
        .filter(|m| *m > 0.0)?;
    let axis = Axis::new(0.0, end, "microseconds per share");
    chart(rows, BAND, &axis, |area, k, row, y| {
        let (Some(min), Some(avg), Some(max)) = (row.us_min, row.us_avg, row.us_max) else {
            return failed(area, y, LEFT + 8);
        };
        let to = axis.at(max);
        bar(area, LEFT, to, y, Ink::Series(k))?;
        for (value, reach) in [(min, 5), (avg, 9)] {
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
    let axis = Axis::new(0.0, end * 1.05, "multiple of rma's time");
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
            failed(area, y, LEFT + 8)
        } else {
            Ok(())
        }
    })
}

/// A linear axis from the left to the right of the bands.
struct Axis {
    from: f64,
    to: f64,
    step: f64,
    unit: &'static str,
}

impl Axis {
    /// `from < to`.
    fn new(from: f64, to: f64, unit: &'static str) -> Axis {
        // About six ticks, at multiples of 1, 2 or 5 times a power of ten.
        let raw = (to - from) / 6.0;
        let power = 10f64.powf(raw.log10().floor());
        let step = [1.0, 2.0, 5.0, 10.0]
            .map(|f| f * power)
            .into_iter()
            .find(|s| *s >= raw)
            .unwrap_or(raw);
        Axis {
            from,
            to,
            step,
            unit,
        }
    }

    fn at(&self, value: f64) -> i32 {
        let share = (value - self.from) / (self.to - self.from);
        LEFT + (share * f64::from(WIDTH - LEFT - RIGHT)).round() as i32
    }

    /// A tick's number, with as many decimals as the step between ticks has.
    fn label(&self, tick: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        format!("{tick:.decimals$}")
    }

    fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        let first = (self.from / self.step).ceil() as i64;
        (first..)
            .map(|k| k as f64 * self.step)
            .take_while(|t| *t <= self.to * (1.0 + 1e-9))
    }
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
        for tick in axis.ticks() {
            let x = axis.at(tick);
            line(&area, (x, TOP), (x, bottom), Ink::Grid)?;
            text(
                &area,
                &axis.label(tick),
                (x, bottom + 12),
                14,
                Ink::Faint,
                HPos::Center,
            )?;
        }
        text(
            &area,
            axis.unit,
            ((LEFT + WIDTH - RIGHT) / 2, bottom + 32),
            14,
            Ink::Faint,
            HPos::Center,
        )?;
        for (k, row) in rows.iter().enumerate() {
            let y = TOP + band * k as i32 + band / 2;
            text(
                &area,
                &row.variant,
                (LEFT - 12, y),
                17,
                Ink::Text,
                HPos::Right,
            )?;
            draw(&area, k, row, y)?;
        }
        area.present()
    })();
    // Into a string nothing fails; and a page without a chart is better than none.
    drawn.ok()?;
    Some(Ink::resolve(svg.trim()))
}

fn bar(area: &Area<'_>, from: i32, to: i32, y: i32, ink: Ink) -> Drawn {
    area.draw(&Rectangle::new(
        [(from, y - 11), (to, y + 11)],
        ink.code().filled(),
    ))
}

fn line(area: &Area<'_>, from: (i32, i32), to: (i32, i32), ink: Ink) -> Drawn {
    area.draw(&PathElement::new([from, to], ink.code()))
}

fn failed(area: &Area<'_>, y: i32, x: i32) -> Drawn {
    text(area, "FAILED", (x, y), 16, Ink::Bad, HPos::Left)
}

fn text(area: &Area<'_>, what: &str, at: (i32, i32), size: i32, ink: Ink, side: HPos) -> Drawn {
    let style = ("sans-serif", size)
        .into_font()
        .color(&ink.code())
        .pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(what.to_owned(), at, style))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::tests::rows;

    #[test]
    fn ticks_are_round() {
        let ticks = |from, to| Axis::new(from, to, "").ticks().collect::<Vec<_>>();
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(51.0, 56.0), [51.0, 52.0, 53.0, 54.0, 55.0, 56.0]);
        assert!((2..9).contains(&ticks(0.0, 3.7e-5).len()));
    }

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
}
