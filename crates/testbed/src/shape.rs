//! The delays and losses of a wire.
//!
//! # Model
//!
//! A shape applies on the way from the switch to a node, so once to each packet. The packet may be lost. If not, it
//! waits until those before it are through at the given rate, and then for the delay.
//!
//! # Failure
//!
//! A text that cannot be read is refused, with an example of one that can.

use std::time::Duration;

/// How many packets can wait for one node. With the default of `netem`, 1000, packets would be lost if the delay is
/// long and the rate high.
pub(crate) const QUEUE: usize = 10_000;

/// What a wire does to what it carries; by default nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shape {
    /// How long a packet takes, one way.
    pub delay: Duration,
    /// The share of packets that are lost, from 0 to 1.
    pub loss: f64,
    /// How many bits a second reach one node; `None` for no limit.
    pub rate: Option<u64>,
}

impl Shape {
    /// Whether it changes nothing.
    pub fn is_plain(&self) -> bool {
        *self == Self::default()
    }

    /// How long a packet occupies the wire.
    pub(crate) fn occupies(&self, bytes: usize) -> Duration {
        let bits = 8 * bytes as u64;
        self.rate.map_or(Duration::ZERO, |rate| {
            Duration::from_nanos(
                (u128::from(bits) * 1_000_000_000 / u128::from(rate.max(1))) as u64,
            )
        })
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut parts = Vec::new();
        if self.delay > Duration::ZERO {
            parts.push(format!("delay {:?}", self.delay));
        }
        if self.loss > 0.0 {
            parts.push(format!("loss {}%", 100.0 * self.loss));
        }
        if let Some(rate) = self.rate {
            parts.push(format!("rate {} Mbit/s", rate as f64 / 1e6));
        }
        match parts.is_empty() {
            true => f.write_str("neither delay nor loss"),
            false => f.write_str(&parts.join(", ")),
        }
    }
}

/// A number and its unit.
fn scaled(text: &str, units: &[(&str, f64)]) -> Option<f64> {
    let text = text.trim();
    let digits = text.find(|c: char| c.is_ascii_alphabetic() || c == '%')?;
    let (number, unit) = text.split_at(digits);
    let number: f64 = number.trim().parse().ok()?;
    let (_, scale) = units.iter().find(|(name, _)| *name == unit)?;
    let value = number * scale;
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Reads a time, such as `1ms`, `50us` or `0.5s`.
///
/// # Errors
///
/// A message with an example, if the text is something else.
pub fn parse_delay(text: &str) -> Result<Duration, String> {
    scaled(text, &[("us", 1e-6), ("ms", 1e-3), ("s", 1.0)])
        .filter(|seconds| *seconds <= 3600.0)
        .map(Duration::from_secs_f64)
        .ok_or_else(|| format!("{text:?} is no time such as 1ms, 50us or 2s"))
}

/// Reads a percentage, such as `1%`, as a part of one.
///
/// # Errors
///
/// A message with an example, if the text is something else.
pub fn parse_loss(text: &str) -> Result<f64, String> {
    scaled(text, &[("%", 0.01)])
        .filter(|loss| *loss <= 1.0)
        .ok_or_else(|| format!("{text:?} is no part such as 1% or 0.1%"))
}

/// Reads a rate, such as `1gbit`, `100mbit` or `64kbit`, as bits a second.
///
/// # Errors
///
/// A message with an example, if the text is something else.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    scaled(
        text,
        &[("bit", 1.0), ("kbit", 1e3), ("mbit", 1e6), ("gbit", 1e9)],
    )
    .filter(|rate| (1e3..=1e12).contains(rate))
    .map(|rate| rate as u64)
    .ok_or_else(|| format!("{text:?} is no rate such as 1gbit or 100mbit"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_or_refused() {
        assert_eq!(parse_delay("1ms"), Ok(Duration::from_millis(1)));
        assert_eq!(parse_delay("0.5s"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_delay("50us"), Ok(Duration::from_micros(50)));
        assert_eq!(parse_loss("1%"), Ok(0.01));
        assert_eq!(parse_rate("1gbit"), Ok(1_000_000_000));
        for text in ["", "1", "ms", "-1ms", "1h", "1ms2", "infs", "nanms"] {
            assert!(parse_delay(text).is_err(), "{text}");
        }
        for text in ["1", "101%", "-1%", "%"] {
            assert!(parse_loss(text).is_err(), "{text}");
        }
        for text in ["0gbit", "1", "1 parsec", "9999gbit"] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_packet_occupies_the_wire() {
        let mut shape = Shape::default();
        assert_eq!(shape.occupies(1500), Duration::ZERO);
        shape.rate = Some(1_000_000);
        assert_eq!(shape.occupies(1250), Duration::from_millis(10));
    }
}
