//! The figures of all pairs of ranks, and which pairs are slower than others.

use super::finding::Slow;
use std::collections::BTreeMap;

/// Two ranks: the lower and the higher one, or the one that puts and the other.
pub(super) type Pair = (usize, usize);

/// A way from one rank to another, with microseconds and GB/s.
pub(super) type Way = (Pair, f64, f64);

/// The figures of two ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Figure {
    /// Microseconds, one way, of a put of 8 bytes and its signal.
    pub(super) latency: f64,
    /// GB/s of large puts: from the lower rank to the higher one, and back.
    pub(super) bandwidth: [f64; 2],
}

/// The figures that there are, by the lower rank and the higher one.
#[derive(Clone, Debug, Default)]
pub(super) struct Figures {
    pub(super) size: usize,
    /// How many pairs there are that have a route.
    pub(super) expected: usize,
    pairs: BTreeMap<Pair, Figure>,
}

impl Figures {
    pub(super) fn new(size: usize, expected: usize) -> Self {
        Self {
            size,
            expected,
            pairs: BTreeMap::new(),
        }
    }

    /// Notes the figures of a pair. Of several measurements, the best counts: others were disturbed.
    pub(super) fn note(&mut self, pair: Pair, figure: Figure) {
        let best = self.pairs.entry(pair).or_insert(figure);
        best.latency = best.latency.min(figure.latency);
        for (best, new) in best.bandwidth.iter_mut().zip(figure.bandwidth) {
            *best = best.max(new);
        }
    }

    pub(super) fn measured(&self) -> usize {
        self.pairs.len()
    }

    /// Microseconds and GB/s from one rank to another.
    pub(super) fn between(&self, from: usize, to: usize) -> Option<(f64, f64)> {
        let figure = self.pairs.get(&(from.min(to), from.max(to)))?;
        Some((figure.latency, figure.bandwidth[usize::from(from > to)]))
    }

    /// All ways from one rank to another that were measured, with microseconds and GB/s.
    pub(super) fn ways(&self) -> impl Iterator<Item = Way> {
        self.pairs.iter().flat_map(|(&(low, high), figure)| {
            let [there, back] = figure.bandwidth;
            let way = |from, to, bandwidth| ((from, to), figure.latency, bandwidth);
            [way(low, high, there), way(high, low, back)]
        })
    }

    /// For each route: its ways.
    pub(super) fn by_route(
        &self,
        route: impl Fn(usize, usize) -> String,
    ) -> BTreeMap<String, Vec<Way>> {
        let mut routes: BTreeMap<String, Vec<_>> = BTreeMap::new();
        for way in self.ways() {
            let (from, to) = way.0;
            routes.entry(route(from, to)).or_default().push(way);
        }
        routes
    }

    /// The ways that are clearly slower than the median of their route.
    pub(super) fn slow(&self, route: impl Fn(usize, usize) -> String) -> Vec<(Pair, String, Slow)> {
        let mut slow = Vec::new();
        for (route, ways) in self.by_route(route) {
            if ways.len() < FEWEST {
                continue;
            }
            let [_, latency, _] = spread(ways.iter().map(|way| way.1));
            let [_, bandwidth, _] = spread(ways.iter().map(|way| way.2));
            for &((from, to), us, gbs) in &ways {
                if gbs < bandwidth / TWICE {
                    slow.push(((from, to), route.clone(), Slow::Bandwidth(gbs, bandwidth)));
                } else if us > latency * THRICE && from < to {
                    // The latency of both ways is one figure.
                    slow.push(((from, to), route.clone(), Slow::Latency(us, latency)));
                }
            }
        }
        slow
    }
}

/// Of fewer ways, none is slower than the others.
const FEWEST: usize = 8;
/// The share of the median that makes a bandwidth clearly lower.
const TWICE: f64 = 2.0;
/// The same of latencies, which vary more.
const THRICE: f64 = 3.0;

/// Microseconds for people.
pub(super) fn us(us: f64) -> String {
    let digits = usize::from(us < 100.0);
    format!("{us:.digits$}")
}

/// GB/s for people.
pub(super) fn gbs(gbs: f64) -> String {
    let digits = if gbs < 0.1 { 4 } else { 2 };
    format!("{gbs:.digits$}")
}

/// The least, the middle and the greatest of some values.
pub(super) fn spread(values: impl Iterator<Item = f64>) -> [f64; 3] {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    match values[..] {
        [] => [f64::NAN; 3],
        [least, ..] => [least, values[values.len() / 2], values[values.len() - 1]],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figure(latency: f64, there: f64, back: f64) -> Figure {
        let bandwidth = [there, back];
        Figure { latency, bandwidth }
    }

    /// Four ranks of which each pair is as fast as the others.
    fn even() -> Figures {
        let mut figures = Figures::new(4, 6);
        for high in 1..4 {
            for low in 0..high {
                figures.note((low, high), figure(2.0, 10.0, 10.0));
            }
        }
        figures
    }

    fn by_nic(_: usize, _: usize) -> String {
        "NIC".to_owned()
    }

    #[test]
    fn the_best_measurement_of_a_pair_counts() {
        let mut figures = Figures::new(2, 1);
        figures.note((0, 1), figure(2.0, 1.0, 5.0));
        figures.note((0, 1), figure(3.0, 2.0, 4.0));
        assert_eq!(figures.between(0, 1), Some((2.0, 2.0)));
        assert_eq!(figures.between(1, 0), Some((2.0, 5.0)));
        assert_eq!(figures.between(0, 0), None);
    }

    #[test]
    fn a_pair_that_is_clearly_slower_is_found_by_its_direction() {
        assert_eq!(even().slow(by_nic), []);
        let mut figures = Figures::new(4, 6);
        for (pair, old) in &even().pairs {
            let new = match pair {
                (1, 3) => figure(2.0, 10.0, 4.0),
                (0, 2) => figure(7.0, 10.0, 10.0),
                _ => *old,
            };
            figures.note(*pair, new);
        }
        let route = "NIC".to_owned();
        assert_eq!(
            figures.slow(by_nic),
            [
                ((0, 2), route.clone(), Slow::Latency(7.0, 2.0)),
                ((3, 1), route, Slow::Bandwidth(4.0, 10.0)),
            ]
        );
    }

    #[test]
    fn routes_are_compared_with_themselves() {
        let mut figures = even();
        // Node 0 has ranks 0 and 1: they alone have the fast route, of which there are too few to compare.
        figures.note((0, 1), figure(0.1, 100.0, 100.0));
        let route = |from: usize, to: usize| match from / 2 == to / 2 {
            true => "mapped".to_owned(),
            false => by_nic(from, to),
        };
        assert_eq!(figures.slow(route), []);
        assert_eq!(figures.by_route(route)["mapped"].len(), 4);
    }

    #[test]
    fn figures_have_as_many_digits_as_they_need() {
        assert_eq!([0.24, 99.9, 250.4].map(us), ["0.2", "99.9", "250"]);
        assert_eq!([0.00213, 0.5, 25.0].map(gbs), ["0.0021", "0.50", "25.00"]);
    }

    #[test]
    fn a_spread_has_the_middle() {
        assert_eq!(spread([3.0, 1.0, 2.0].into_iter()), [1.0, 2.0, 3.0]);
    }
}
