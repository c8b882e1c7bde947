//! Charts as SVG: colours, axes, bars, lines and text. Everything is placed by hand, in pixels.
//!
//! A picture is for a [page](Svg::of_page), whose style sheet names the colours for light and dark screens, or stands
//! [alone](Svg::alone) on white.

use std::fmt::Write as _;

/// How many colours there are for series.
pub(crate) const SERIES: usize = 6;

/// The meaning of a colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// Text and axes.
    Text,
    /// Text that matters less.
    Faint,
    /// Grid lines.
    Grid,
    /// Marks on top of bars.
    Mark,
    /// Better than the baseline.
    Good,
    /// Worse than the baseline, or failed.
    Bad,
    /// The background.
    Paper,
    /// The series with this number; from [`SERIES`] on the colours repeat.
    Series(usize),
}

impl Ink {
    /// The name in the style sheet, and the colour on white.
    pub(crate) fn named(self) -> (String, &'static str) {
        const ON_WHITE: [&str; SERIES] = [
            "#2f6fb3", "#17928f", "#d08a1d", "#8a5aa8", "#5d8a2b", "#b3527b",
        ];
        let (name, colour) = match self {
            Ink::Text => ("text", "#1d2329"),
            Ink::Faint => ("faint", "#5b6670"),
            Ink::Grid => ("grid", "#dfe3e6"),
            Ink::Mark => ("mark", "#10151a"),
            Ink::Good => ("good", "#1b7f4b"),
            Ink::Bad => ("bad", "#c0362c"),
            Ink::Paper => ("paper", "#ffffff"),
            Ink::Series(k) => return (format!("s{}", k % SERIES), ON_WHITE[k % SERIES]),
        };
        (name.to_owned(), colour)
    }
}

/// Which end of a text stands at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Left,
    Middle,
    Right,
}

type At = (i32, i32);

/// A picture that is being drawn.
pub(crate) struct Svg {
    text: String,
    alone: bool,
}

impl Svg {
    /// A picture for a page, whose colours are those of the page.
    pub(crate) fn of_page(width: i32, height: i32) -> Svg {
        let mut text = String::new();
        _ = writeln!(
            text,
            r#"<svg viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" font-family="sans-serif">"#
        );
        Svg { text, alone: false }
    }

    /// A picture on white, with its title, and the place and date below that.
    pub(crate) fn alone(width: i32, height: i32, title: &str, place: &str) -> Svg {
        let mut svg = Svg::of_page(width, height);
        let size = format!(r#"<svg width="{width}" height="{height}" "#);
        svg.text = svg.text.replacen("<svg ", &size, 1);
        svg.alone = true;
        svg.rect((0, 0), (width, height), Ink::Paper);
        svg.label(title, (16, 20), 15, Ink::Text, Side::Left);
        svg.label(place, (16, 42), 11, Ink::Faint, Side::Left);
        svg
    }

    /// The text of the file.
    pub(crate) fn finish(mut self) -> String {
        self.text += "</svg>";
        self.text
    }

    fn colour(&self, ink: Ink) -> String {
        let (name, colour) = ink.named();
        match self.alone {
            true => colour.to_owned(),
            false => format!("var(--{name})"),
        }
    }

    pub(crate) fn rect(&mut self, (left, top): At, (right, bottom): At, ink: Ink) {
        self.shade((left, top), (right, bottom), ink, 1.0, false);
    }

    /// A rectangle that is more or less transparent, with an edge or without.
    pub(crate) fn shade(&mut self, from: At, to: At, ink: Ink, opacity: f64, edge: bool) {
        let (width, height) = (to.0 - from.0, to.1 - from.1);
        let colour = self.colour(ink);
        let stroke = if edge { &*colour } else { "none" };
        _ = writeln!(
            self.text,
            r#"<rect x="{}" y="{}" width="{width}" height="{height}" fill="{colour}" fill-opacity="{opacity}" stroke="{stroke}"/>"#,
            from.0, from.1
        );
    }

    /// A bar on its side, around `y`.
    pub(crate) fn bar(&mut self, from: i32, to: i32, y: i32, ink: Ink) {
        self.rect((from, y - 11), (to, y + 11), ink);
    }

    pub(crate) fn line(&mut self, from: At, to: At, ink: Ink) {
        self.path(&[from, to], ink, 1);
    }

    pub(crate) fn path(&mut self, places: &[At], ink: Ink, width: i32) {
        let places: Vec<_> = places.iter().map(|(x, y)| format!("{x},{y}")).collect();
        let (places, colour) = (places.join(" "), self.colour(ink));
        _ = writeln!(
            self.text,
            r#"<polyline points="{places}" fill="none" stroke="{colour}" stroke-width="{width}"/>"#
        );
    }

    /// A dot, filled or hollow.
    pub(crate) fn dot(&mut self, (x, y): At, ink: Ink, filled: bool) {
        let colour = self.colour(ink);
        let fill = self.colour(if filled { ink } else { Ink::Paper });
        _ = writeln!(
            self.text,
            r#"<circle cx="{x}" cy="{y}" r="4" fill="{fill}" stroke="{colour}" stroke-width="{}"/>"#,
            if filled { 0 } else { 2 }
        );
    }

    /// A text; `y` is its middle.
    pub(crate) fn label(&mut self, what: &str, (x, y): At, size: i32, ink: Ink, side: Side) {
        let (what, colour) = (escape(what), self.colour(ink));
        let anchor = match side {
            Side::Left => "start",
            Side::Middle => "middle",
            Side::Right => "end",
        };
        _ = writeln!(
            self.text,
            r#"<text x="{x}" y="{y}" dy="0.35em" text-anchor="{anchor}" font-size="{size}" fill="{colour}">{what}</text>"#
        );
    }

    /// Draws a bar chart's frame: the axis below, and a band of `band` pixels with its name for each row; `draw` fills
    /// the band around the middle that it is given.
    pub(crate) fn bands(
        &mut self,
        (axis, top, band): (&Axis, i32, i32),
        names: &[(String, Ink)],
        mut draw: impl FnMut(&mut Svg, usize, i32),
    ) {
        axis.draw(self, top, top + band * names.len() as i32);
        for (k, (name, ink)) in names.iter().enumerate() {
            let y = top + band * k as i32 + band / 2;
            self.label(name, (axis.places.0 - 10, y), 12, *ink, Side::Right);
            draw(self, k, y);
        }
    }
}

/// A text with its special characters escaped, for SVG and HTML.
pub(crate) fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// A number with three or four digits that matter.
pub(crate) fn short(value: f64) -> String {
    match value.abs() {
        v if v >= 1000.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// A name of at most so many characters; if it is longer, its middle is left out.
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

/// How a value becomes a place.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Scale {
    /// Places are proportional to values.
    Linear,
    /// Equal ratios of values are equal distances.
    Log,
}

/// An axis from one value to another, between two places.
pub(crate) struct Axis<'a> {
    pub(crate) scale: Scale,
    pub(crate) values: (f64, f64),
    pub(crate) places: (i32, i32),
    /// The unit of its numbers.
    pub(crate) unit: &'a str,
}

impl Axis<'_> {
    /// A linear axis.
    pub(crate) fn linear(values: (f64, f64), unit: &str, places: (i32, i32)) -> Axis<'_> {
        Axis {
            scale: Scale::Linear,
            values,
            places,
            unit,
        }
    }

    pub(crate) fn at(&self, value: f64) -> i32 {
        let (from, to) = self.values;
        let share = match self.scale {
            Scale::Linear => (value - from) / (to - from),
            Scale::Log => (value / from).ln() / (to / from).ln(),
        };
        let (first, last) = self.places;
        first + (share * f64::from(last - first)).round() as i32
    }

    /// About six ticks at multiples of 1, 2 or 5 times a power of ten; on a logarithmic axis powers of ten, and with few
    /// of them also 2 and 5 times those.
    pub(crate) fn ticks(&self) -> Vec<(f64, String)> {
        let (from, to) = self.values;
        if self.scale == Scale::Log {
            let steps = if to / from < 100.0 { 0..3 } else { 0..1 };
            let first = from.log10().floor() as i32;
            let all = (first..).flat_map(|k| {
                steps
                    .clone()
                    .map(move |s| [1.0, 2.0, 5.0][s] * 10f64.powi(k))
            });
            let all = all
                .take_while(|v| *v <= to * 1.001)
                .filter(|v| *v >= from * 0.999);
            return all.map(|v| (v, v.to_string())).collect();
        }
        let raw = (to - from) / 6.0;
        let power = 10f64.powf(raw.log10().floor());
        let steps = [1.0, 2.0, 5.0, 10.0].map(|f| f * power);
        let step = steps.into_iter().find(|s| *s >= raw).unwrap_or(raw);
        // As many decimals as the step has.
        let decimals = (-step.log10().floor()).clamp(0.0, 9.0) as usize;
        let first = (from / step).ceil() as i64;
        let all = (first..).map(|k| k as f64 * step);
        all.take_while(|v| *v <= to * (1.0 + 1e-9))
            .map(|v| (v, format!("{v:.decimals$}")))
            .collect()
    }

    /// Draws it below `bottom`, with grid lines from `top`; 44 pixels high.
    pub(crate) fn draw(&self, svg: &mut Svg, top: i32, bottom: i32) {
        self.draw_at(svg, &self.ticks(), top, bottom);
    }

    /// As [`Axis::draw`], with other ticks.
    pub(crate) fn draw_at(&self, svg: &mut Svg, ticks: &[(f64, String)], top: i32, bottom: i32) {
        for (tick, label) in ticks {
            let x = self.at(*tick);
            svg.line((x, top), (x, bottom), Ink::Grid);
            svg.label(label, (x, bottom + 12), 11, Ink::Faint, Side::Middle);
        }
        let at = ((self.places.0 + self.places.1) / 2, bottom + 32);
        svg.label(self.unit, at, 11, Ink::Faint, Side::Middle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ticks(scale: Scale, values: (f64, f64)) -> Vec<f64> {
        let axis = Axis {
            scale,
            values,
            places: (0, 100),
            unit: "",
        };
        axis.ticks().into_iter().map(|(tick, _)| tick).collect()
    }

    #[test]
    fn ticks_are_round() {
        let linear = |from, to| ticks(Scale::Linear, (from, to));
        assert_eq!(linear(0.0, 100.0), [0.0, 20.0, 40.0, 60.0, 80.0, 100.0]);
        assert_eq!(linear(51.0, 56.0), [51.0, 52.0, 53.0, 54.0, 55.0, 56.0]);
        assert!((2..9).contains(&linear(0.0, 3.7e-5).len()));
        let log = |from, to| ticks(Scale::Log, (from, to));
        assert_eq!(log(3.0, 500.0), [10.0, 100.0]);
        assert_eq!(log(18.0, 900.0), [20.0, 50.0, 100.0, 200.0, 500.0]);
    }

    #[test]
    fn values_have_their_places() {
        let of = |scale, values| Axis {
            scale,
            values,
            places: (0, 100),
            unit: "",
        };
        assert_eq!(of(Scale::Log, (1.0, 10_000.0)).at(100.0), 50);
        assert_eq!(of(Scale::Linear, (0.0, 10.0)).at(5.0), 50);
    }

    /// Each element is a line that is whole, and texts are escaped.
    #[test]
    fn pictures_are_well_formed() {
        let mut svg = Svg::alone(100, 50, "a <title> & \"more\"", "here");
        svg.shade((1, 2), (3, 4), Ink::Series(7), 0.5, true);
        svg.path(&[(1, 2), (3, 4)], Ink::Bad, 2);
        svg.dot((5, 6), Ink::Good, false);
        let svg = svg.finish();
        assert!(svg.contains(">a &lt;title&gt; &amp; &quot;more&quot;</text>"));
        let lines: Vec<&str> = svg.lines().collect();
        for line in &lines[1..lines.len() - 1] {
            assert!(line.ends_with("/>") || line.ends_with("</text>"), "{line}");
            assert!(line.matches('"').count() % 2 == 0, "{line}");
        }
    }

    #[test]
    fn long_names_keep_their_ends() {
        assert_eq!(cut("short", 9), "short");
        assert_eq!(cut("0123456789", 9), "01234\u{2026}789");
    }
}
