//! Pictures of shares between nodes.

use super::lines::{Lines, Plot, Scale, plot};
use crate::draw::{Axis, Ink, bar, finish, line, short, text};
use crate::nodes::{Cell, plain, split};
use plotters::style::text_anchor::HPos;

/// What the growth is drawn of.
const VARIANTS: [&str; 3] = ["st", "rma", "p2p"];

const WIDTH: i32 = 900;
const LEFT: i32 = 220;
const RIGHT: i32 = 200;
const TOP: i32 = 66;
const BAND: i32 = 34;

/// Shares by the number of nodes, with the provider that comes first; a line for each variant and number of ranks a
/// node. Nothing, if there are not two numbers of nodes.
pub(crate) fn growth(cells: &[Cell<'_>], place: &str) -> Option<String> {
    let mut series = Lines::default();
    let provider = cells.iter().find(|cell| plain(cell))?.provider();
    for cell in cells
        .iter()
        .filter(|cell| plain(cell) && cell.provider() == provider)
    {
        let (count, each) = split(cell.nodes())?;
        let ranks = if each == 1 { "rank" } else { "ranks" };
        for variant in VARIANTS {
            let name = format!("{variant}, {each} {ranks} a node");
            series.add(name, f64::from(count), cell.us(variant));
        }
    }
    let ticks = series.positions();
    if ticks.len() < 2 {
        return None;
    }
    plot(&Plot {
        title: "A share by the number of nodes, all on the processors of one machine",
        place: format!("{provider}; {place}"),
        x: ("nodes", Scale::Log),
        y: ("microseconds, slowest rank", Scale::Log),
        ticks: ticks.into_iter().map(|x| (x, x.to_string())).collect(),
        series: series.0.into_iter().map(Lines::sorted).collect(),
    })
}

/// What merged batches take of the time of separate ones, a bar a cell. Nothing, if there are none of both.
pub(crate) fn merged(cells: &[Cell<'_>], place: &str) -> Option<String> {
    let bars = cells.iter().filter_map(|cell| {
        let ratio = cell.ratio("st-separate", "st")?;
        let times = (cell.us("st")?, cell.us("st-separate")?);
        let name = format!("{}, {}, {}", cell.nodes(), cell.provider(), cell.what());
        Some((name, 100.0 / ratio, times))
    });
    let bars: Vec<_> = bars.collect();
    let most = bars.iter().map(|bar| bar.1).reduce(f64::max)?.max(100.0);
    let unit = "per cent of the time with separate batches";
    let axis = Axis::new(0.0, most * 1.02, unit, (LEFT, WIDTH - RIGHT));
    let bottom = TOP + BAND * bars.len() as i32;
    finish((WIDTH, bottom + 44), |area| {
        let title =
            "st: a share with one batch for all messages, against one for each step and message";
        text(area, title, (16, 20), 18, Ink::Text, HPos::Left)?;
        text(area, place, (16, 42), 14, Ink::Faint, HPos::Left)?;
        axis.draw(area, TOP, bottom)?;
        for (k, (name, share, (merged, separate))) in bars.iter().enumerate() {
            let y = TOP + BAND * k as i32 + BAND / 2;
            text(area, name, (LEFT - 10, y), 13, Ink::Text, HPos::Right)?;
            bar(area, LEFT, axis.at(*share), y, Ink::Series(0))?;
            let label = format!("{} of {} us", short(*merged), short(*separate));
            let at = (WIDTH - RIGHT + 10, y);
            text(area, &label, at, 13, Ink::Text, HPos::Left)?;
        }
        let whole = axis.at(100.0);
        line(area, (whole, TOP), (whole, bottom), Ink::Text)
    })
}
