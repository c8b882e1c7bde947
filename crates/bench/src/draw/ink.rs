//! The colours of charts.
//!
//! A chart is drawn in *codes*, colours that stand for what they mean, and gets real ones when it is finished: those of
//! a page, which has two schemes ([`Ink::resolve`]), or those of a picture on white that stands alone ([`Ink::plain`]).

use plotters::style::RGBColor;

/// How many colours there are for series.
pub(crate) const SERIES: usize = 6;

/// What a colour means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ink {
    /// The colour of text and axes.
    Text,
    /// The colour of text that matters less.
    Faint,
    /// The colour of grid lines.
    Grid,
    /// The colour of marks on top of bars.
    Mark,
    /// The colour of what is better than the baseline.
    Good,
    /// The colour of what is worse than the baseline, or has failed.
    Bad,
    /// The colour of the background.
    Paper,
    /// The colour of the series with this number, which is less than [`SERIES`].
    Series(usize),
}

impl Ink {
    /// Names of the style sheet, and colours on white.
    pub(crate) const NAMED: [(Ink, &'static str, &'static str); 7] = [
        (Ink::Text, "text", "#1d2329"),
        (Ink::Faint, "faint", "#5b6670"),
        (Ink::Grid, "grid", "#dfe3e6"),
        (Ink::Mark, "mark", "#10151a"),
        (Ink::Good, "good", "#1b7f4b"),
        (Ink::Bad, "bad", "#c0362c"),
        (Ink::Paper, "paper", "#ffffff"),
    ];

    const ON_WHITE: [&'static str; SERIES] = [
        "#2f6fb3", "#17928f", "#d08a1d", "#8a5aa8", "#5d8a2b", "#b3527b",
    ];

    /// The number that stands for this colour until the chart is finished.
    pub(crate) fn code(self) -> RGBColor {
        let k = match self {
            Ink::Series(k) => 0x40 + (k % SERIES) as u8,
            named => Ink::NAMED
                .iter()
                .position(|(ink, ..)| *ink == named)
                .unwrap_or(0) as u8,
        };
        RGBColor(0x01, 0xfe, k)
    }

    /// Puts the page's colours in the place of all [codes](Ink::code).
    pub(crate) fn resolve(svg: &str) -> String {
        Ink::replace(svg, |name, _| format!("var(--{name})"))
    }

    /// Puts the colours of a picture on white in their place.
    pub(crate) fn plain(svg: &str) -> String {
        Ink::replace(svg, |_, colour| colour.to_owned())
    }

    fn replace(svg: &str, with: impl Fn(&str, &str) -> String) -> String {
        let named = Ink::NAMED.map(|(ink, name, colour)| (ink, name.to_owned(), colour));
        let series = (0..SERIES).map(|k| (Ink::Series(k), format!("s{k}"), Ink::ON_WHITE[k]));
        let all = named.into_iter().chain(series);
        all.fold(svg.to_owned(), |svg, (ink, name, colour)| {
            let RGBColor(r, g, b) = ink.code();
            svg.replace(
                &format!("\"#{r:02X}{g:02X}{b:02X}\""),
                &format!("\"{}\"", with(&name, colour)),
            )
        })
    }
}
