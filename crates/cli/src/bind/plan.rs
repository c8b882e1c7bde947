//! The part of the machine that each rank gets.

use super::devices::devices;
use super::error::BindError;
use super::numbers::NumberSet;
use super::topology::{Processor, Topology};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

/// The part of a machine that ranks are bound to.
///
/// # Examples
///
/// ```
/// use tidegate_cli::{Bind, Job};
///
/// let job = Job::new("./solver", 8).bind(Bind::Numa);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
pub enum Bind {
    /// Nothing: the system moves ranks as it likes
    #[default]
    None,
    /// An equal share of the processors that the launcher may use
    Core,
    /// The memory nodes of that share, whose memory the rank prefers
    Numa,
    /// The processors and the memory near the rank's GPU, or near the NIC if there is no GPU
    Device,
}

/// The processors and the memory of one rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Binding {
    pub(crate) processors: NumberSet,
    /// The node whose memory it prefers.
    pub(crate) memory: Option<usize>,
    note: Option<String>,
    /// How many ranks of this machine use any of these processors.
    pub(crate) sharing: usize,
}

impl fmt::Display for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "processors {}", self.processors)?;
        if let Some(node) = self.memory {
            write!(f, ", memory node {node}")?;
        }
        match &self.note {
            Some(note) => write!(f, " ({note})"),
            None => Ok(()),
        }
    }
}

/// The binding of each rank of this machine; none for [`Bind::None`]. `numbers` is the number of each rank's device,
/// `visible` the value of `CUDA_VISIBLE_DEVICES`.
pub(crate) fn plan(
    bind: Bind,
    root: &Path,
    numbers: &[usize],
    visible: Option<&str>,
) -> Result<Vec<Binding>, BindError> {
    if bind == Bind::None {
        return Ok(Vec::new());
    }
    let topology = Topology::read(root)?;
    let ranks = numbers.len();
    let mut bindings = match bind {
        Bind::None => Vec::new(),
        Bind::Core => {
            let shares = shares(&topology.processors, ranks).ok_or_else(|| BindError::TooFew {
                ranks,
                allowed: topology.allowed(),
            })?;
            shares.into_iter().map(|own| bound(&own)).collect()
        }
        Bind::Numa => numa(&topology, ranks),
        Bind::Device => near_devices(&topology, root, numbers, visible)?,
    };
    let all: Vec<NumberSet> = bindings
        .iter()
        .map(|each| each.processors.clone())
        .collect();
    for binding in &mut bindings {
        let shares = |other: &&NumberSet| !other.and(&binding.processors).is_empty();
        binding.sharing = all.iter().filter(shares).count();
    }
    Ok(bindings)
}

fn bound(own: &[Processor]) -> Binding {
    Binding {
        processors: own.iter().map(|each| each.number).collect(),
        memory: None,
        note: None,
        sharing: 1,
    }
}

/// Equal shares of neighbouring processors: of whole cores, if there are enough. `None`: there are more ranks than
/// processors.
fn shares(processors: &[Processor], ranks: usize) -> Option<Vec<Vec<Processor>>> {
    let same_core = |a: &Processor, b: &Processor| a.core == b.core;
    let cores: Vec<&[Processor]> = processors.chunk_by(same_core).collect();
    let pieces = if cores.len() >= ranks {
        cores
    } else {
        processors.chunks(1).collect()
    };
    let share = |rank: usize| {
        let at = |rank: usize| rank * pieces.len() / ranks;
        pieces[at(rank)..at(rank + 1)].concat()
    };
    (pieces.len() >= ranks).then(|| (0..ranks).map(share).collect())
}

/// Each rank gets the nodes of which its share has more than half of the processors, or the node with most of its
/// share.
fn numa(topology: &Topology, ranks: usize) -> Vec<Binding> {
    let processors = &topology.processors;
    let mut whole: BTreeMap<usize, Vec<Processor>> = BTreeMap::new();
    for each in processors {
        whole.entry(each.node).or_default().push(*each);
    }
    let rank = |rank: usize| {
        let from = rank * processors.len() / ranks;
        let to = ((rank + 1) * processors.len() / ranks).max(from + 1);
        let mut counts: BTreeMap<usize, usize> = BTreeMap::new();
        for each in &processors[from..to] {
            *counts.entry(each.node).or_default() += 1;
        }
        // If several have equally many, the first.
        let most = counts.iter().rev().max_by_key(|(_, count)| **count);
        let most = most.map_or(0, |(node, _)| *node);
        let is_own = |node: &usize| *node == most || 2 * counts[node] > whole[node].len();
        let own: Vec<_> = counts.keys().filter(|node| is_own(node)).collect();
        let own: Vec<Processor> = own
            .into_iter()
            .flat_map(|node| whole[node].clone())
            .collect();
        let only = (topology.nodes == 1).then(|| "the machine has one memory node".to_owned());
        prefer(topology, Some(most), bound(&own), only)
    };
    (0..ranks).map(rank).collect()
}

/// Adds the memory of a node, if this process may use it.
fn prefer(
    topology: &Topology,
    node: Option<usize>,
    binding: Binding,
    note: Option<String>,
) -> Binding {
    let usable = node.filter(|node| topology.memory.contains(*node));
    let refused = match (node, usable) {
        (Some(node), None) if topology.nodes > 1 => {
            Some(format!("node {node} has no memory for this process"))
        }
        _ => None,
    };
    let notes: Vec<_> = [note, refused].into_iter().flatten().collect();
    Binding {
        memory: usable,
        note: (!notes.is_empty()).then(|| notes.join("; ")),
        ..binding
    }
}

/// Ranks whose devices are near the same processors divide these equally, if there are enough.
fn near_devices(
    topology: &Topology,
    root: &Path,
    numbers: &[usize],
    visible: Option<&str>,
) -> Result<Vec<Binding>, BindError> {
    let devices = devices(root, visible)?;
    let mut groups: BTreeMap<NumberSet, Vec<usize>> = BTreeMap::new();
    let device_of = |rank: usize| &devices[numbers[rank] % devices.len()];
    for rank in 0..numbers.len() {
        let device = device_of(rank);
        let allowed = topology.allowed();
        let near = match (&device.processors, device.node) {
            (Some(near), _) => near.clone(),
            (None, Some(node)) => {
                let near = topology.processors.iter().filter(|each| each.node == node);
                near.map(|each| each.number).collect()
            }
            // The machine does not tell, so all processors count as near.
            (None, None) => allowed.clone(),
        };
        let own = near.and(&allowed);
        if own.is_empty() {
            let device = device.name.clone();
            return Err(BindError::NotAllowed {
                device,
                near,
                allowed,
            });
        }
        groups.entry(own).or_default().push(rank);
    }
    let mut bindings = BTreeMap::new();
    for (own, ranks) in groups {
        let own: Vec<Processor> = topology
            .processors
            .iter()
            .filter(|each| own.contains(each.number))
            .copied()
            .collect();
        let shares = shares(&own, ranks.len()).unwrap_or_else(|| vec![own; ranks.len()]);
        for (rank, share) in ranks.into_iter().zip(shares) {
            let device = device_of(rank);
            let nodes: BTreeSet<usize> = share.iter().map(|each| each.node).collect();
            let node = device
                .node
                .or(nodes.first().copied().filter(|_| nodes.len() == 1));
            let near = Some(format!("near {}", device.name));
            bindings.insert(rank, prefer(topology, node, bound(&share), near));
        }
    }
    Ok(bindings.into_values().collect())
}
