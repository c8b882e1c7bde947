//! What charts are drawn with: colours, a linear axis, bars, lines and text, all placed by hand on an SVG of `plotters`.

mod ink;

pub(crate) use ink::{Ink, SERIES};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

pub(crate) type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub(crate) type Drawn = Result<(), DrawingAreaErrorKind<std::io::Error>>;

/// A number with three or four digits that matter.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A name of at most so many characters; what is too much is left out in the middle.
pub(crate) fn cut(name: &str, most: usize) -> String {
    let count = name.chars().count();
    if count <= most {
        return name.to_owned();
    }
    let (front, back) = (most - 1 - most / 3, most / 3);
    let start: String = name.chars().take(front).collect();
    let end: String = name.chars().skip(count - back).collect();
    format!("{start}\u{2026}{end}")
}

/// A linear axis between two places.
pub(crate) struct Axis {
    from: f64,
    to: f64,
    step: f64,
    places: (i32, i32),
    /// What its numbers count.
    pub(crate) unit: &'static str,
}

impl Axis {
    /// `from < to`, at the places `places.0 < places.1`.
    pub(crate) fn new(from: f64, to: f64, unit: &'static str, places: (i32, i32)) -> Axis {
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
            places,
            unit,
        }
    }

    pub(crate) fn at(&self, value: f64) -> i32 {
        let share = (value - self.from) / (self.to - self.from);
        let (left, right) = self.places;
        left + (share * f64::from(right - left)).round() as i32
    }

    /// A tick's number, with as many decimals as the step between ticks has.
    pub(crate) fn label(&self, tick: f64) -> String {
        let decimals = (-self.step.log10().floor()).clamp(0.0, 9.0) as usize;
        format!("{tick:.decimals$}")
    }

    pub(crate) fn ticks(&self) -> impl Iterator<Item = f64> + '_ {
        let first = (self.from / self.step).ceil() as i64;
        (first..)
            .map(|k| k as f64 * self.step)
            .take_while(|t| *t <= self.to * (1.0 + 1e-9))
    }

    /// Draws it below `bottom`, with grid lines from `top`; 44 pixels high.
    pub(crate) fn draw(&self, area: &Area<'_>, top: i32, bottom: i32) -> Drawn {
        for tick in self.ticks() {
            let x = self.at(tick);
            line(area, (x, top), (x, bottom), Ink::Grid)?;
            let label = self.label(tick);
            text(area, &label, (x, bottom + 12), 14, Ink::Faint, HPos::Center)?;
        }
        let middle = (self.places.0 + self.places.1) / 2;
        let at = (middle, bottom + 32);
        text(area, self.unit, at, 14, Ink::Faint, HPos::Center)
    }
}

/// A picture on white, which stands alone. `None` if it cannot be drawn; into a string nothing fails.
pub(crate) fn finish(
    (width, height): (i32, i32),
    draw: impl FnOnce(&Area<'_>) -> Drawn,
) -> Option<String> {
    let mut svg = String::new();
    let drawn = (|| -> Drawn {
        let size = (width.unsigned_abs(), height.unsigned_abs());
        let area = SVGBackend::with_string(&mut svg, size).into_drawing_area();
        area.fill(&Ink::Paper.code())?;
        draw(&area)?;
        area.present()
    })();
    drawn.ok()?;
    Some(Ink::plain(&svg))
}

/// A bar on its side, around `y`.
pub(crate) fn bar(area: &Area<'_>, from: i32, to: i32, y: i32, ink: Ink) -> Drawn {
    area.draw(&Rectangle::new(
        [(from, y - 11), (to, y + 11)],
        ink.code().filled(),
    ))
}

pub(crate) fn line(area: &Area<'_>, from: (i32, i32), to: (i32, i32), ink: Ink) -> Drawn {
    area.draw(&PathElement::new([from, to], ink.code()))
}

pub(crate) fn text(
    area: &Area<'_>,
    what: &str,
    at: (i32, i32),
    size: i32,
    ink: Ink,
    side: HPos,
) -> Drawn {
    let style = ("sans-serif", size)
        .into_font()
        .color(&ink.code())
        .pos(Pos::new(side, VPos::Center));
    area.draw(&Text::new(what.to_owned(), at, style))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round() {
        let ticks = |from, to| {
            let axis = Axis::new(from, to, "", (0, 100));
            axis.ticks().collect::<Vec<_>>()
        };
        assert_eq!(ticks(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(ticks(51.0, 56.0), [51.0, 52.0, 53.0, 54.0, 55.0, 56.0]);
        assert!((2..9).contains(&ticks(0.0, 3.7e-5).len()));
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(cut("short", 9), "short");
        assert_eq!(cut("0123456789", 9), "01234\u{2026}789");
    }
}
