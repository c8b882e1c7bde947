//! How the clocks of the hosts of a job relate.
//!
//! # Model
//!
//! All ranks of a host read one clock. The clocks of two hosts are compared by *bounds*: an event on one host came before
//! an event on the other, so the clock of the second is at most so much behind. There are two sources. When the ranks
//! joined, they exchanged messages in rounds, and each rank's time before a round is earlier than each rank's time after
//! it. Later, a wait ends after the signal that it was for.
//!
//! Clocks drift. So the trace is cut into pieces of about a second, each with bounds of its own. A bound also holds in
//! the pieces around it, loosened by the most that clocks drift ([`DRIFT`]).
//!
//! In each piece, the bounds between all hosts are combined by shortest paths. The offset of a host is the middle of what
//! its bounds allow, which fulfils all of them.

use super::check::LATEST;
use super::rank::Time;

/// The length of a piece.
const PIECE: Time = 1_000_000_000;
/// The most pieces. A long trace has longer ones.
const MOST: Time = 1000;
/// How much a clock may gain or lose against another, in parts of a million: the kernel corrects a clock by at most 500.
const DRIFT: Time = 1000;
/// No bound. Sums of two do not overflow.
const NONE: Time = Time::MAX / 4;

/// No time of the first host's clock is farther from 0, so that differences of times do not overflow.
const FAR: Time = 2 * LATEST as Time;

/// The event at `before`, by the clock of one host, came before the event at `after`, by that of another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Order {
    pub(super) before: (usize, Time),
    pub(super) after: (usize, Time),
}

/// What is to be added to the times of each host.
pub(super) struct Clocks {
    begun: Time,
    piece: Time,
    /// By piece and host.
    offsets: Vec<Vec<Time>>,
    /// How far a time may be off between two hosts: the greatest of all pieces.
    pub(super) error: Time,
    /// By how much bounds contradict each other, if they do.
    pub(super) contradiction: Option<Time>,
    /// How many hosts cannot be compared with the first.
    pub(super) unknown: usize,
}

impl Clocks {
    /// The clocks of hosts. `spans` has the first and the last time of each host, by its own clock. `orders` bounds the
    /// clocks.
    pub(super) fn new(spans: &[(Time, Time)], orders: &[Order]) -> Self {
        let hosts = spans.len();
        // Pieces are counted from the start of each host, so that hosts which count from different starts have the same
        // number of pieces.
        let long = spans.iter().map(|(begun, ended)| ended - begun).max();
        let long = long.unwrap_or(0).max(1);
        let piece = PIECE.max(long / MOST);
        let pieces = (long / piece + 1) as usize;
        let mut clocks = Clocks {
            begun: spans.first().map_or(0, |(begun, _)| *begun),
            piece,
            offsets: vec![vec![0; hosts]; pieces],
            error: 0,
            contradiction: None,
            unknown: 0,
        };
        if hosts < 2 {
            return clocks;
        }
        // `most[i * hosts + j]`: the offset of j is at most that much more than the offset of i.
        let mut most = vec![vec![NONE; hosts * hosts]; pieces];
        for Order { before, after } in orders {
            let at = (after.1 - spans[after.0].0) / piece;
            let at = at.clamp(0, pieces as Time - 1) as usize;
            let bound = &mut most[at][after.0 * hosts + before.0];
            *bound = (*bound).min(after.1 - before.1);
        }
        let loosened = |bound: Time| match bound {
            NONE => NONE,
            bound => bound + piece / 1_000_000 * DRIFT,
        };
        let mut carry = |from: usize, to: usize| {
            let bounds = most[from].clone();
            for (bound, other) in most[to].iter_mut().zip(bounds) {
                *bound = (*bound).min(loosened(other));
            }
        };
        (1..pieces).for_each(|at| carry(at - 1, at));
        (1..pieces).rev().for_each(|at| carry(at, at - 1));
        for (at, most) in most.iter_mut().enumerate() {
            let direct = most.clone();
            close(most, hosts);
            if (0..hosts).any(|host| most[host * hosts + host] < 0) {
                let gap = contradiction(&direct, hosts);
                clocks.contradiction = clocks.contradiction.max(Some(gap));
                // Sums of bounds that contradict each other mean nothing.
                *most = direct;
            }
            clocks.unknown = (1..hosts)
                .filter(|host| most[*host].max(most[host * hosts]) == NONE)
                .count();
            for host in 0..hosts {
                // Offsets are about those of host 0: no more than `up`, no less than `-down`.
                let (up, down) = (most[host], most[host * hosts]);
                let (offset, error) = match (up == NONE, down == NONE) {
                    (false, false) => (up.saturating_sub(down) / 2, up.saturating_add(down) / 2),
                    (false, true) => (up, 0),
                    (true, false) => (down.saturating_neg(), 0),
                    // Nothing is known, so both begin at once.
                    (true, true) => (spans[0].0 - spans[host].0, 0),
                };
                clocks.offsets[at][host] = if host == 0 {
                    0
                } else {
                    offset.clamp(-FAR, FAR)
                };
                clocks.error = clocks.error.max(error);
            }
        }
        clocks
    }

    /// A time of a host, by the clock of the first host.
    pub(super) fn common(&self, host: usize, time: Time) -> Time {
        let first = self.offsets[0][host];
        let last = self.offsets.len() - 1;
        // Between the middles of two pieces the offset goes over from one to the other.
        let since = time + first - self.begun - self.piece / 2;
        let at = since.div_euclid(self.piece);
        let place = |at: Time| self.offsets[at.clamp(0, last as Time) as usize][host];
        let (from, to) = (place(at), place(at + 1));
        let part = since.rem_euclid(self.piece) as f64 / self.piece as f64;
        let common = time + from + ((to - from) as f64 * part) as Time;
        // Bounds that contradict each other may give any offset.
        common.clamp(-FAR, FAR)
    }
}

/// By how much the bounds of two hosts contradict each other. With more hosts in a circle, 0 may be the answer.
fn contradiction(most: &[Time], hosts: usize) -> Time {
    let pairs = (0..hosts).flat_map(|one| (0..one).map(move |other| (one, other)));
    let gaps = pairs.map(|(one, other)| {
        let round = most[one * hosts + other].saturating_add(most[other * hosts + one]);
        round.saturating_neg()
    });
    gaps.max().unwrap_or(0).max(0)
}

/// Combines bounds: the way over a third host may be tighter.
fn close(most: &mut [Time], hosts: usize) {
    for host in 0..hosts {
        let own = &mut most[host * hosts + host];
        *own = (*own).min(0);
    }
    for over in 0..hosts {
        for from in 0..hosts {
            let first = most[from * hosts + over];
            if first == NONE {
                continue;
            }
            for to in 0..hosts {
                let second = most[over * hosts + to];
                if second != NONE {
                    let bound = &mut most[from * hosts + to];
                    *bound = (*bound).min(first.saturating_add(second));
                }
            }
        }
    }
}

/// The orders of the rounds: each rank's time before a round is earlier than each rank's time after it.
pub(super) fn of_rounds(rounds: &[(usize, &[(u64, u64)])]) -> Vec<Order> {
    let most = rounds.iter().map(|(_, rounds)| rounds.len()).max();
    let mut orders = Vec::new();
    for round in 0..most.unwrap_or(0) {
        let of = |(host, rounds): &(usize, &[(u64, u64)])| Some((*host, *rounds.get(round)?));
        // Of each host, the last time before and the first time after are the tightest.
        let mut hosts: Vec<(usize, (u64, u64))> = Vec::new();
        for (host, (before, after)) in rounds.iter().filter_map(of) {
            match hosts.iter_mut().find(|(other, _)| *other == host) {
                Some((_, tightest)) => {
                    *tightest = (tightest.0.max(before), tightest.1.min(after));
                }
                None => hosts.push((host, (before, after))),
            }
        }
        for (one, (before, _)) in &hosts {
            for (other, (_, after)) in &hosts {
                orders.push(Order {
                    before: (*one, *before as Time),
                    after: (*other, *after as Time),
                });
            }
        }
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Time = 1_000_000_000;

    /// A signal of a host to another at a true time, which takes 100 us. The clock of host 1 shows `skew` of the time.
    fn signal(from: usize, to: usize, at: Time, skew: impl Fn(Time) -> Time) -> Order {
        let shown = |host: usize, at: Time| (host, if host == 1 { skew(at) } else { at });
        Order {
            before: shown(from, at),
            after: shown(to, at + 100_000),
        }
    }

    #[test]
    fn an_offset_lies_within_its_error() {
        let skew = |at| at + 7 * SECOND;
        let orders = [signal(0, 1, 10, skew), signal(1, 0, 500, skew)];
        let spans = [(0, SECOND / 2), (skew(0), skew(SECOND / 2))];
        let clocks = Clocks::new(&spans, &orders);
        assert_eq!(clocks.contradiction, None);
        assert_eq!(clocks.error, 100_000);
        for at in [0, SECOND / 4, SECOND / 2] {
            assert!((clocks.common(1, skew(at)) - at).abs() <= clocks.error);
        }
        assert_eq!(clocks.common(0, 5), 5);
    }

    #[test]
    fn a_clock_that_drifts_is_followed() {
        // It gains 200 us a second.
        let skew = |at: Time| at + at / 5000 - 3 * SECOND;
        let length = 20 * SECOND;
        let orders: Vec<_> = (0..2000)
            .map(|at| {
                let (from, to) = if at % 2 == 0 { (0, 1) } else { (1, 0) };
                signal(from, to, at * SECOND / 100, skew)
            })
            .collect();
        let clocks = Clocks::new(&[(0, length), (skew(0), skew(length))], &orders);
        assert_eq!(clocks.contradiction, None);
        for at in (0..200).map(|at| at * SECOND / 10) {
            let error = (clocks.common(1, skew(at)) - at).abs();
            assert!(error <= 300_000, "{error} at {at}");
        }
    }

    #[test]
    fn a_third_host_connects_two() {
        let order = |before, after| Order { before, after };
        // Hosts 0 and 1, and hosts 1 and 2, exchange signals in no time. Clock 1 is 10 ahead, and clock 2 is 30 ahead.
        let orders = [
            order((0, 100), (1, 110)),
            order((1, 110), (0, 100)),
            order((1, 210), (2, 230)),
            order((2, 230), (1, 210)),
        ];
        let clocks = Clocks::new(&[(0, 300), (10, 310), (30, 330)], &orders);
        assert_eq!((clocks.error, clocks.unknown), (0, 0));
        assert_eq!(clocks.common(2, 230), 200);
    }

    #[test]
    fn what_cannot_be_is_said() {
        let orders = [
            Order {
                before: (0, 100),
                after: (1, 100),
            },
            Order {
                before: (1, 150),
                after: (0, 100),
            },
        ];
        let clocks = Clocks::new(&[(0, 300), (0, 300)], &orders);
        assert_eq!(clocks.contradiction, Some(50));
        let alone = Clocks::new(&[(0, 300), (50, 300)], &[]);
        assert_eq!((alone.unknown, alone.common(1, 50)), (1, 0));
    }

    #[test]
    fn rounds_give_the_tightest_bounds() {
        let one: &[(u64, u64)] = &[(0, 100), (200, 230)];
        let orders = of_rounds(&[(0, one), (1, &[(1010, 1090), (1205, 1225)])]);
        let clocks = Clocks::new(&[(0, 300), (1000, 1300)], &orders);
        assert_eq!(clocks.contradiction, None);
        // The second round: from 1205 - 230 to 1225 - 200.
        assert_eq!(clocks.error, 25);
        assert_eq!(clocks.common(1, 1000), 0);
    }
}
