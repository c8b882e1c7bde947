//! The options of the command line for a test bed.

use super::nodes::Nodes;
use super::say::say;
use clap::{Args, ValueEnum};
use std::time::{Duration, Instant};
use tidegate_testbed::{Bed, BedError, Shape, WireChoice, parse_delay, parse_loss, parse_rate};

/// Nodes that are network namespaces.
#[derive(Debug, Default, Args, Clone)]
pub struct BedArgs {
    /// Give each node a network namespace of its own
    #[arg(long, requires = "nodes")]
    pub netns: bool,

    /// Delay of packets between nodes, one way: `1ms`
    #[arg(long, value_name = "TIME", requires = "netns", value_parser = parse_delay)]
    pub delay: Option<Duration>,

    /// Share of the packets between nodes that is lost: `1%`
    #[arg(long, value_name = "PART", requires = "netns", value_parser = parse_loss)]
    pub loss: Option<f64>,

    /// Rate at which each node receives: `1gbit`
    #[arg(long, value_name = "RATE", requires = "netns", value_parser = parse_rate)]
    pub rate: Option<u64>,

    /// Seed of the losses: with the same traffic, the same packets are lost (uses the relay)
    #[arg(long, value_name = "NUMBER", requires = "netns")]
    pub seed: Option<u64>,

    /// What carries the packets between nodes
    #[arg(long, value_name = "WIRE", requires = "netns", default_value = "auto")]
    pub wire: WireArg,

    /// Cut the link of a node this long after the start, and perhaps mend it: `1@2s`, `1@2s..5s`; may be repeated
    #[arg(long = "cut", value_name = "NODE@TIME", requires = "netns")]
    pub cuts: Vec<Cut>,
}

/// What carries the packets between nodes.
///
/// # Examples
///
/// ```
/// use clap::ValueEnum;
/// use tidegate_cli::WireArg;
///
/// assert_eq!(WireArg::from_str("relay", false), Ok(WireArg::Relay));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum WireArg {
    /// The kernel, if it can do what the other options ask for; otherwise the relay
    #[default]
    Auto,
    /// The kernel (a bridge, and netem); fails if it cannot
    Kernel,
    /// A thread of the launcher
    Relay,
}

/// When a link is cut.
///
/// # Examples
///
/// ```
/// use tidegate_cli::Cut;
///
/// let cut: Cut = "1@2s..5s".parse().unwrap(); // node 1 is cut off after 2 s, for 3 s
/// assert!("1@5s..2s".parse::<Cut>().is_err());
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cut {
    node: usize,
    from: Duration,
    until: Option<Duration>,
}

impl std::str::FromStr for Cut {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is nothing like 1@2s or 1@2s..5s");
        let (node, times) = text.split_once('@').ok_or_else(wrong)?;
        let node = node.parse().map_err(|_| wrong())?;
        let (from, until) = match times.split_once("..") {
            Some((from, until)) => (from, Some(parse_delay(until)?)),
            None => (times, None),
        };
        let from = parse_delay(from)?;
        match until {
            Some(until) if until <= from => Err(wrong()),
            until => Ok(Self { node, from, until }),
        }
    }
}

impl BedArgs {
    /// The bed that the options ask for, if any.
    ///
    /// # Errors
    ///
    /// The errors of [`Builder::build`](tidegate_testbed::Builder::build), and an error if a node whose link is to be
    /// cut does not exist.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::{BedArgs, Nodes};
    ///
    /// // Without `--netns` there is no bed.
    /// assert!(BedArgs::default().bed(&Nodes::split(2, 1)).unwrap().is_none());
    /// ```
    pub fn bed(&self, nodes: &Nodes) -> Result<Option<Bed>, BedError> {
        if !self.netns {
            return Ok(None);
        }
        if let Some(cut) = self.cuts.iter().find(|cut| cut.node >= nodes.count()) {
            let what = format!("there is no node {} whose link could be cut", cut.node);
            return Err(BedError::Invalid(what));
        }
        let mut builder = Bed::builder(nodes.count())
            .shape(Shape {
                delay: self.delay.unwrap_or_default(),
                loss: self.loss.unwrap_or_default(),
                rate: self.rate,
            })
            .wire(match self.wire {
                WireArg::Auto => WireChoice::Auto,
                WireArg::Kernel => WireChoice::Kernel,
                WireArg::Relay => WireChoice::Relay,
            });
        if let Some(seed) = self.seed {
            builder = builder.seed(seed);
        }
        builder.build().map(Some)
    }

    /// The shape of the wire as options of a command line, with a space before each word. It is empty for a plain wire.
    pub fn shape_text(&self) -> String {
        let mut words = String::new();
        if let Some(delay) = self.delay {
            words += &format!(" --delay {delay:?}");
        }
        if let Some(loss) = self.loss {
            words += &format!(" --loss {}%", loss * 100.0);
        }
        if let Some(rate) = self.rate {
            words += &format!(" --rate {rate}bit");
        }
        words
    }

    /// Cuts and mends links at their times, on a thread that ends with the process.
    pub(super) fn cut_in_time(&self, bed: &Bed, explain: bool) {
        let started = Instant::now();
        let mut steps = Vec::new();
        for Cut { node, from, until } in self.cuts.iter().cloned() {
            steps.push((from, node, false));
            steps.extend(until.map(|until| (until, node, true)));
        }
        steps.sort_unstable();
        let bed = bed.clone();
        std::thread::spawn(move || {
            for (after, node, up) in steps {
                std::thread::sleep(after.saturating_sub(started.elapsed()));
                let (done, what) = if up {
                    (bed.mend(node), "mended")
                } else {
                    (bed.cut(node), "cut")
                };
                match done {
                    Ok(()) if !explain => {}
                    Ok(()) => say(format_args!("the link of node {node} is {what}")),
                    Err(error) => say(format_args!("the link of node {node}: {error}")),
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cuts_are_read_or_refused() {
        let cut = |from, until: Option<u64>| Cut {
            node: 1,
            from: Duration::from_secs(from),
            until: until.map(Duration::from_secs),
        };
        assert_eq!("1@2s".parse(), Ok(cut(2, None)));
        assert_eq!("1@2s..5s".parse(), Ok(cut(2, Some(5))));
        for text in [
            "", "1", "1@", "@2s", "1@5s..2s", "1@2", "x@2s", "1@2s..", "-1@2s",
        ] {
            assert!(text.parse::<Cut>().is_err(), "{text}");
        }
    }
}
