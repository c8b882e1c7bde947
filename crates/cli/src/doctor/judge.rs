//! From facts and figures to findings.

use super::facts::{Call, Here, Joined};
use super::figures::{Figures, Pair};
use super::finding::{Finding, Who, queues_for};
use crate::bind::NumberSet;
use crate::info::{SharedGpu, Told, Way, report::differences};
use std::collections::BTreeMap;

/// A clock that is further off than this, in nanoseconds, is wrong.
const CLOCK: u64 = 10_000_000;
/// Enough locked memory if a NIC locks some: small windows fit.
const LOCKED_BY_NIC: u64 = 1 << 30;
/// Less locked memory than this is worth a note, even if nothing locks any.
const LOCKED: u64 = 1 << 20;
/// The least limit of descriptors that lets a program have files of its own, too.
const DESCRIPTORS: u64 = 256;
/// The most descriptors that a rank has for each neighbour on its node while a window is opened: one of its memory, and
/// one of a connection.
const OPENING: u64 = 2;
/// Fewer hardware queues than this are too few for a program with a few streams.
const QUEUES: usize = 8;
/// Providers that lock the memory that their NICs access.
const LOCKING: &[&str] = &["verbs", "efa", "cxi", "psm", "opx", "ucx", "mlx", "usnic"];

/// Ranks with the same property, by that property.
fn alike<K: Ord>(nodes: &[usize], of: impl Fn(usize) -> Option<K>) -> Vec<(Who, K)> {
    let mut groups: BTreeMap<K, Vec<(usize, usize)>> = BTreeMap::new();
    for (rank, node) in nodes.iter().enumerate() {
        if let Some(key) = of(rank) {
            groups.entry(key).or_default().push((rank, *node));
        }
    }
    let groups = groups.into_iter();
    groups
        .map(|(key, ranks)| (Who::these(ranks), key))
        .collect()
}

/// What the ranks know before they have devices. `nodes` has the node of each.
pub(super) fn before(here: &[Here], hosts: &[String], nodes: &[usize]) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut complaints: BTreeMap<&String, Vec<(usize, usize)>> = BTreeMap::new();
    for (rank, each) in here.iter().enumerate() {
        for what in &each.complaints {
            complaints
                .entry(what)
                .or_default()
                .push((rank, nodes[rank]));
        }
    }
    found.extend(
        complaints
            .into_iter()
            .map(|(what, ranks)| Finding::Variable {
                who: Who::these(ranks),
                what: what.clone(),
            }),
    );
    let foreign = |rank: usize| Some((here[rank].address.clone()?, here[rank].foreign.clone()?));
    found.extend(
        alike(nodes, foreign)
            .into_iter()
            .map(|(who, (value, reason))| Finding::ForeignAddress { who, value, reason }),
    );
    let few = |rank: usize| {
        let (limit, most) = here[rank].descriptors;
        let near = nodes.iter().filter(|node| **node == nodes[rank]).count() as u64;
        let needed = here[rank].used + OPENING * (near + 2);
        let needed = needed.next_power_of_two().max(DESCRIPTORS);
        Some((limit.filter(|limit| *limit < needed)?, most, needed))
    };
    let used = |who: &Who| who.ranks.iter().map(|rank| here[rank].used).max();
    found.extend(
        alike(nodes, few)
            .into_iter()
            .map(|(who, (limit, most, needed))| Finding::Descriptors {
                used: used(&who).unwrap_or(0),
                who,
                limit,
                most,
                needed,
            }),
    );
    let bound = |rank: usize| {
        let processor = here[rank].processors.parse::<usize>().ok()?;
        Some((hosts[rank].clone(), processor))
    };
    let bound = alike(nodes, bound).into_iter();
    found.extend(
        bound
            .filter(|(who, _)| who.ranks.iter().count() > 1)
            .map(|(who, (_, processor))| Finding::OneProcessor { who, processor }),
    );
    found
}

/// What calls between nodes have shown.
pub(super) fn of_calls(calls: &[Call], here: &[Here], nodes: &[usize]) -> Vec<Finding> {
    let mut found = Vec::new();
    let one = |rank: usize| Who::one(rank, nodes[rank]);
    for call in calls {
        let to = one(call.to);
        match &call.answer {
            Err(reason) => found.push(Finding::Unreached {
                from: one(call.from),
                to,
                address: here[call.to].ip().to_string(),
                is_set: here[call.to].address.is_some(),
                reason: reason.clone(),
            }),
            Ok(clock) if call.from == 0 => {
                let ahead = clock.ahead.unsigned_abs();
                if ahead > CLOCK.max(2 * clock.error) {
                    let (ahead, error) = (clock.ahead, clock.error);
                    found.push(Finding::Clock {
                        who: to,
                        ahead,
                        error,
                    });
                }
            }
            Ok(_) => {}
        }
    }
    found
}

/// The limit of locked memory matters if a NIC locks memory. `joined` is `None` if the ranks have made no world.
pub(super) fn of_locked(here: &[Here], joined: Option<&[Joined]>, nodes: &[usize]) -> Vec<Finding> {
    let limited = |rank: usize| {
        let nic = joined.and_then(|joined| joined[rank].told.nic.as_ref());
        let by = nic.map(|nic| nic.name.split(',').next().unwrap_or_default().to_owned());
        let by = by.filter(|name| LOCKING.iter().any(|part| name.contains(part)));
        let enough = if by.is_some() { LOCKED_BY_NIC } else { LOCKED };
        Some((here[rank].locked.filter(|limit| *limit < enough)?, by))
    };
    alike(nodes, limited)
        .into_iter()
        .map(|(who, (limit, by))| Finding::LockedMemory { who, limit, by })
        .collect()
}

/// What the ranks know when they have devices and routes.
pub(super) fn after(joined: &[Joined], routes: &Routes, nodes: &[usize]) -> Vec<Finding> {
    let told: Vec<Told> = joined.iter().map(|each| each.told.clone()).collect();
    let differs = differences(&told).into_iter();
    let mut found: Vec<_> = differs.map(|what| Finding::Differs { what }).collect();
    let gpus = alike(nodes, |rank| Some(joined[rank].gpu.as_ref()?.uuid));
    for (who, _) in gpus {
        let all = who
            .ranks
            .iter()
            .filter_map(|rank| Some((rank, joined[rank].gpu.as_ref()?)));
        let all: Vec<_> = all.collect();
        let processes = all.len();
        let in_turn = processes > 1 && all.iter().any(|(_, gpu)| !gpu.mps);
        let right = if in_turn { 32 } else { queues_for(processes) };
        let mut few: BTreeMap<usize, Vec<(usize, usize)>> = BTreeMap::new();
        for (rank, gpu) in &all {
            if gpu.queues < right.min(QUEUES) {
                few.entry(gpu.queues)
                    .or_default()
                    .push((*rank, nodes[*rank]));
            }
        }
        if in_turn {
            let gpu = all[0].1.number;
            found.push(Finding::NoMps { who, gpu });
        }
        found.extend(few.into_iter().map(|(queues, ranks)| Finding::FewQueues {
            who: Who::these(ranks),
            queues,
            right,
        }));
    }
    let peers = |rank: usize, way: Way| {
        let peers =
            (0..nodes.len()).filter(|peer| *peer != rank && routes.ways[rank][*peer] == way);
        Some(peers.collect::<NumberSet>()).filter(|peers| peers.iter().next().is_some())
    };
    let unmappable = alike(nodes, |rank| peers(rank, Way::Unmappable)).into_iter();
    found.extend(unmappable.map(|(who, peers)| Finding::NoPeerAccess { who, peers }));
    let refused = alike(nodes, |rank| peers(rank, Way::Refused)).into_iter();
    found.extend(refused.map(|(who, peers)| Finding::NoRoute { who, peers }));
    merged(found)
}

/// The same advice for ranks of several GPUs is one finding.
fn merged(found: Vec<Finding>) -> Vec<Finding> {
    let mut merged: Vec<Finding> = Vec::new();
    for each in found {
        if let Finding::FewQueues { who, queues, right } = &each {
            let same = merged.iter_mut().find_map(|known| match known {
                Finding::FewQueues {
                    who,
                    queues: known,
                    right: wanted,
                } if known == queues && wanted == right => Some(who),
                _ => None,
            });
            if let Some(known) = same {
                known.ranks = known.ranks.iter().chain(who.ranks.iter()).collect();
                known.nodes = known.nodes.iter().chain(who.nodes.iter()).collect();
                continue;
            }
        }
        merged.push(each);
    }
    merged
}

/// The routes of all pairs.
pub(super) struct Routes {
    ways: Vec<Vec<Way>>,
    /// The NIC of each rank.
    nics: Vec<Option<String>>,
    gpus: Vec<Option<[u8; 16]>>,
    /// The ranks whose host has fewer processors than ranks, by host.
    pub(super) crowded: BTreeMap<String, NumberSet>,
    /// For each rank, whether its kernels and those of another rank run in turn.
    in_turn: Vec<bool>,
}

impl Routes {
    pub(super) fn of(joined: &[Joined]) -> Self {
        let expanded = |each: &Joined| {
            let runs = each.told.ways.iter();
            runs.flat_map(|(way, count)| std::iter::repeat_n(*way, *count))
                .collect()
        };
        let mut hosts: BTreeMap<&String, (Vec<usize>, Vec<usize>)> = BTreeMap::new();
        for (rank, each) in joined.iter().enumerate() {
            let (ranks, processors) = hosts.entry(&each.told.place.host).or_default();
            ranks.push(rank);
            if let Ok(own) = each.told.place.processors.parse::<NumberSet>() {
                processors.extend(own.iter());
            }
        }
        let crowded = hosts.into_iter().filter_map(|(host, (ranks, processors))| {
            let processors: NumberSet = processors.into_iter().collect();
            let is_crowded = ranks.len() > processors.iter().count();
            is_crowded.then(|| (host.clone(), ranks.into_iter().collect()))
        });
        Self {
            ways: joined.iter().map(expanded).collect(),
            nics: joined
                .iter()
                .map(|each| Some(each.told.nic.as_ref()?.name.clone()))
                .collect(),
            gpus: joined
                .iter()
                .map(|each| Some(each.gpu.as_ref()?.uuid))
                .collect(),
            crowded: crowded.collect(),
            in_turn: joined
                .iter()
                .map(|each| {
                    let same = |gpu: &&SharedGpu| {
                        each.gpu.as_ref().is_some_and(|own| own.uuid == gpu.uuid)
                    };
                    let sharing = joined.iter().filter_map(|other| other.gpu.as_ref());
                    let sharing: Vec<_> = sharing.filter(same).collect();
                    sharing.len() > 1 && sharing.iter().any(|gpu| !gpu.mps)
                })
                .collect(),
        }
    }

    /// How a rank reaches another, in words, if it does.
    pub(super) fn name(&self, from: usize, to: usize) -> Option<String> {
        match self.ways[from][to] {
            Way::Mapped if self.gpus[from].is_some() && self.gpus[from] == self.gpus[to] => {
                Some("mapped memory of one GPU".to_owned())
            }
            Way::Mapped => Some("mapped memory".to_owned()),
            Way::Refused => None,
            _ => Some(format!("NIC ({})", self.nics[from].as_ref()?)),
        }
    }

    /// Whether both ranks reach each other.
    pub(super) fn joins(&self, a: usize, b: usize) -> bool {
        self.name(a, b).is_some() && self.name(b, a).is_some()
    }

    /// The ways that are slower than others with their route. The figures of ranks that share processors or a GPU in turn
    /// say nothing of their ways.
    pub(super) fn slow(&self, figures: &Figures, nodes: &[usize]) -> Vec<(Pair, Finding)> {
        let is_crowded = |rank: usize| {
            let mut crowded = self.crowded.values();
            self.in_turn[rank] || crowded.any(|ranks| ranks.iter().any(|each| each == rank))
        };
        let route = |from, to| self.name(from, to).unwrap_or_default();
        let one = |rank: usize| Who::one(rank, nodes[rank]);
        let slow = figures.slow(route).into_iter();
        slow.filter(|((from, to), ..)| !is_crowded(*from) && !is_crowded(*to))
            .map(|((from, to), route, slow)| {
                let finding = Finding::SlowPair {
                    from: one(from),
                    to: one(to),
                    route,
                    slow,
                };
                ((from.min(to), from.max(to)), finding)
            })
            .collect()
    }
}

#[cfg(test)]
pub(super) mod tests;
