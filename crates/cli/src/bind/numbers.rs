//! Sets of numbers as the kernel writes them: `0-3,8`.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of processors, or of memory nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct NumberSet(BTreeSet<usize>);

impl NumberSet {
    pub(super) fn contains(&self, number: usize) -> bool {
        self.0.contains(&number)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = usize> {
        self.0.iter().copied()
    }

    /// The numbers that are in both sets.
    pub(super) fn and(&self, other: &Self) -> Self {
        self.iter().filter(|each| other.contains(*each)).collect()
    }
}

impl FromIterator<usize> for NumberSet {
    fn from_iter<I: IntoIterator<Item = usize>>(numbers: I) -> Self {
        Self(numbers.into_iter().collect())
    }
}

/// The largest accepted number. The kernel counts to 8192.
const LARGEST: usize = 1 << 20;

impl FromStr for NumberSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| match text.trim().parse::<usize>() {
            Ok(number) if number <= LARGEST => Ok(number),
            _ => Err(format!(
                "{text:?} is no number of a processor or a memory node"
            )),
        };
        let mut numbers = BTreeSet::new();
        for range in text.trim().split(',').filter(|range| !range.is_empty()) {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            numbers.extend(number(first)?..=number(last)?);
        }
        Ok(Self(numbers))
    }
}

impl fmt::Display for NumberSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            if last == first {
                write!(f, "{comma}{first}")?
            } else {
                write!(f, "{comma}{first}-{last}")?
            }
            comma = ",";
        }
        match comma {
            "" => f.write_str("none"),
            _ => Ok(()),
        }
    }
}
