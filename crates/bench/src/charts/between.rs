//! Pictures of shares between nodes.

use super::lines::{Lines, Plot};
use crate::nodes::{Cell, plain, split};
use crate::svg::{Axis, Ink, Scale, Side, Svg, short};

/// The variants of the growth chart.
const VARIANTS: [&str; 3] = ["st", "rma", "p2p"];

const WIDTH: i32 = 900;
const LEFT: i32 = 220;
const RIGHT: i32 = WIDTH - 200;
const TOP: i32 = 66;
const BAND: i32 = 34;

/// Shares by the number of nodes, with the provider that comes first; a line for each variant and number of ranks a
/// node. `None` if there are not two numbers of nodes.
pub(crate) fn growth(cells: &[Cell<'_>], place: &str) -> Option<String> {
    let mut series = Lines::default();
    let provider = cells.iter().find(|cell| plain(cell))?.provider();
    let same = |cell: &&Cell<'_>| plain(cell) && cell.provider() == provider;
    for cell in cells.iter().filter(same) {
        let (count, each) = split(cell.nodes())?;
        let ranks = if each == 1 { "rank" } else { "ranks" };
        for variant in VARIANTS {
            let name = format!("{variant}, {each} {ranks} a node");
            series.add(name, f64::from(count), cell.us(variant));
        }
    }
    series.plot(&Plot {
        title: "A share by the number of nodes, all on the processors of one machine",
        place: format!("{provider}; {place}"),
        x: ("nodes", Scale::Log),
        y: ("microseconds, slowest rank", Scale::Log),
        ticks: None,
    })
}

/// How much longer separate batches take than merged ones, a bar a cell. `None` if no cell has both.
pub(crate) fn merged(cells: &[Cell<'_>], place: &str) -> Option<String> {
    let bars = cells.iter().filter_map(|cell| {
        let ratio = cell.ratio("st-separate", "st")?;
        let times = (cell.us("st-separate")?, cell.us("st")?);
        let name = format!("{}, {}, {}", cell.nodes(), cell.provider(), cell.what());
        Some((name, ratio, times))
    });
    let bars: Vec<_> = bars.collect();
    let most = bars.iter().map(|bar| bar.1).reduce(f64::max)?.max(1.0);
    let unit = "st-separate / st";
    let axis = Axis::linear((0.0, most * 1.02), unit, (LEFT, RIGHT));
    let bottom = TOP + BAND * bars.len() as i32;
    let title = "A share with a batch for each step and message, against one for all messages";
    let mut svg = Svg::alone(WIDTH, bottom + 44, title, place);
    let names: Vec<_> = bars.iter().map(|bar| (bar.0.clone(), Ink::Text)).collect();
    svg.bands((&axis, TOP, BAND), &names, |svg, k, y| {
        let (_, ratio, (separate, merged)) = &bars[k];
        svg.bar(LEFT, axis.at(*ratio), y, Ink::Series(0));
        let label = format!("{ratio:.2}: {} to {} us", short(*separate), short(*merged));
        svg.label(&label, (RIGHT + 10, y), 11, Ink::Text, Side::Left);
    });
    svg.line((axis.at(1.0), TOP), (axis.at(1.0), bottom), Ink::Text);
    Some(svg.finish())
}
