//! The report on a job: where its ranks are, and how they reach each other. Equal lines are one.

use super::table;
use super::told::{Told, Way};
use crate::bind::NumberSet;
use std::collections::BTreeMap;
use std::io;

/// Some ranks, as the others see them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Peers {
    Themselves,
    EachOther,
    TheirNode,
    OtherNodes,
    These(NumberSet),
}

impl Peers {
    /// Their name for `count` ranks.
    fn of(&self, count: usize) -> String {
        let name = match (self, count) {
            (Peers::Themselves, 1) => "itself",
            (Peers::Themselves, _) => "themselves",
            (Peers::EachOther, _) => "all others",
            (Peers::TheirNode, 1) => "its node",
            (Peers::TheirNode, _) => "their node",
            (Peers::OtherNodes, _) => "other nodes",
            (Peers::These(ranks), _) => return named(ranks),
        };
        name.to_owned()
    }
}

fn named(ranks: &NumberSet) -> String {
    let word = if ranks.iter().count() == 1 {
        "rank"
    } else {
        "ranks"
    };
    format!("{word} {ranks}")
}

/// Some ranks of a job of `size`.
fn some(ranks: &[usize], size: usize) -> String {
    if ranks.len() == size && size > 1 {
        return "all ranks".to_owned();
    }
    named(&ranks.iter().copied().collect())
}

/// Writes the report. `nodes` has the node of each rank.
pub(super) fn write(told: &[Told], nodes: &[usize], out: &mut Vec<u8>) -> io::Result<()> {
    use io::Write as _;
    let size = told.len();
    let of = |count: usize, what: &str| match count {
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    };
    let all_nodes: NumberSet = nodes.iter().copied().collect();
    let hosts: std::collections::BTreeSet<_> = told.iter().map(|each| &each.place.host).collect();
    writeln!(
        out,
        "\nA job of {} on {}, {}:",
        of(size, "rank"),
        of(all_nodes.iter().count(), "node"),
        of(hosts.len(), "host"),
    )?;
    for line in differences(told) {
        writeln!(out, "  {line}")?;
    }
    table::write(&places(told, nodes), "  ", out)?;
    writeln!(out, "\nHow they reach each other:")?;
    table::write(&routes(told, nodes), "  ", out)?;
    let mut nics: BTreeMap<_, Vec<usize>> = BTreeMap::new();
    for (rank, each) in told.iter().enumerate() {
        if let Some(nic) = &each.nic {
            nics.entry(nic).or_default().push(rank);
        }
    }
    for (nic, ranks) in nics {
        let (ranks, slots) = (some(&ranks, size), nic.slots);
        writeln!(
            out,
            "  (NIC of {ranks}: {}; {slots} trigger slots each)",
            nic.why
        )?;
    }
    Ok(())
}

/// One row for each rank, or for several ranks that differ in nothing.
fn places(told: &[Told], nodes: &[usize]) -> Vec<[String; 6]> {
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for rank in 0..told.len() {
        let is_same =
            |other: usize| nodes[other] == nodes[rank] && told[other].place == told[rank].place;
        // The ranks of a node mostly follow each other, so the last groups are looked at first.
        match groups.iter_mut().rev().find(|(first, _)| is_same(*first)) {
            Some((_, ranks)) => ranks.push(rank),
            None => groups.push((rank, vec![rank])),
        }
    }
    let heads = [
        "ranks",
        "node",
        "host",
        "device",
        "processors",
        "memory nodes",
    ];
    let mut rows = vec![heads.map(str::to_owned)];
    rows.extend(groups.into_iter().map(|(first, ranks)| {
        let place = &told[first].place;
        [
            ranks.into_iter().collect::<NumberSet>().to_string(),
            nodes[first].to_string(),
            place.host.clone(),
            place.device.clone(),
            place.processors.clone(),
            place.memory.clone(),
        ]
    }));
    rows
}

/// The settings that should be the same on all ranks, and are not.
pub(crate) fn differences(told: &[Told]) -> Vec<String> {
    let names = told
        .iter()
        .flat_map(|each| each.settings.iter().map(|(name, _)| name));
    let names: std::collections::BTreeSet<_> = names.collect();
    let line = |name: &String| {
        let mut values: BTreeMap<Option<&str>, Vec<usize>> = BTreeMap::new();
        for (rank, each) in told.iter().enumerate() {
            let value = each.settings.iter().find(|(own, _)| own == name);
            let value = value.map(|(_, value)| value.as_str());
            values.entry(value).or_default().push(rank);
        }
        let say = |(value, ranks): (&Option<&str>, &Vec<usize>)| {
            let ranks = some(ranks, told.len());
            value.map_or(format!("not set on {ranks}"), |value| {
                format!("{value} on {ranks}")
            })
        };
        let several = values.len() > 1;
        let all: Vec<_> = values.iter().map(say).collect();
        several.then(|| format!("{name} must be the same on all ranks: {}", all.join(", ")))
    };
    names.into_iter().filter_map(line).collect()
}

/// One row for all pairs of ranks that have the same way for the same reason.
fn routes(told: &[Told], nodes: &[usize]) -> Vec<[String; 3]> {
    let size = told.len();
    let expanded = |each: &Told| -> Vec<Way> {
        let runs = each.ways.iter();
        runs.flat_map(|(way, count)| std::iter::repeat_n(*way, *count))
            .collect()
    };
    let ways: Vec<Vec<Way>> = told.iter().map(expanded).collect();
    // With pinned memory in between, both ranks take the NIC if one of them asks for it.
    let way = |rank: usize, peer: usize| match ways[rank][peer] {
        Way::Mapped if told[rank].staged && ways[peer][rank] == Way::Asked => Way::AskedByPeer,
        way => way,
    };
    let mut of_node: BTreeMap<usize, usize> = BTreeMap::new();
    for node in nodes {
        *of_node.entry(*node).or_default() += 1;
    }
    let mut groups: BTreeMap<(Peers, String), Vec<usize>> = BTreeMap::new();
    for rank in 0..size {
        let mut peers: BTreeMap<Way, Vec<usize>> = BTreeMap::new();
        for peer in (0..size).filter(|peer| *peer != rank) {
            peers.entry(way(rank, peer)).or_default().push(peer);
        }
        let mut add = |peers, way| {
            let text = text(way, &told[rank]);
            groups.entry((peers, text)).or_default().push(rank);
        };
        for (way, peers) in peers {
            let near = peers
                .iter()
                .filter(|peer| nodes[**peer] == nodes[rank])
                .count();
            let on_node = of_node[&nodes[rank]];
            let who = match (near, peers.len() - near) {
                (near, far) if near + far == size - 1 => Peers::EachOther,
                (near, 0) if near == on_node - 1 => Peers::TheirNode,
                (0, far) if far == size - on_node => Peers::OtherNodes,
                _ => Peers::These(peers.iter().copied().collect()),
            };
            add(who, way);
        }
        add(Peers::Themselves, ways[rank][rank]);
    }
    let row = |((peers, text), ranks): ((Peers, String), Vec<usize>)| {
        let text = match peers {
            Peers::Themselves if text.starts_with(MAPPED) => "their own memory".to_owned(),
            _ => text,
        };
        [
            some(&ranks, size),
            format!("to {}:", peers.of(ranks.len())),
            text,
        ]
    };
    groups.into_iter().map(row).collect()
}

/// The beginning of the text for mapped memory.
const MAPPED: &str = "mapped memory";

/// The way and its reason, in words.
fn text(way: Way, told: &Told) -> String {
    let nic = told.nic.as_ref().map_or("none", |nic| &nic.name);
    let route = &told.route;
    let nic = |why: String| format!("NIC ({nic}), because {why}");
    match way {
        Way::Mapped => format!("{MAPPED}, because they are on one node"),
        Way::OtherNode => nic("they are on different nodes".to_owned()),
        Way::Asked => nic(format!("TIDEGATE_ROUTE={route} asks for it")),
        Way::AskedByPeer => nic("TIDEGATE_ROUTE there asks for it".to_owned()),
        Way::Unmappable => {
            nic("the device cannot map their memory, although they are on one node".to_owned())
        }
        Way::Refused => {
            format!("none: they are on different nodes, and TIDEGATE_ROUTE={route} allows no NIC")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::told::{NicTold, Place, runs};
    use super::*;

    /// A job of nodes with `each` ranks.
    fn job(count: usize, each: usize) -> (Vec<Told>, Vec<usize>) {
        let size = count * each;
        let nodes: Vec<usize> = (0..size).map(|rank| rank / each).collect();
        let told = |rank: usize| {
            let way = |peer: usize| match nodes[peer] == nodes[rank] {
                true => Way::Mapped,
                false => Way::OtherNode,
            };
            Told {
                place: Place {
                    host: format!("host{}", nodes[rank]),
                    device: "host streams".into(),
                    processors: "0-7".into(),
                    memory: "0".into(),
                },
                ways: runs((0..size).map(way)),
                staged: true,
                route: "auto".into(),
                nic: Some(NicTold {
                    name: "tcp, software engine".into(),
                    why: "chosen".into(),
                    slots: 64,
                }),
                settings: Vec::new(),
            }
        };
        ((0..size).map(told).collect(), nodes)
    }

    fn report(told: &[Told], nodes: &[usize]) -> String {
        let mut out = Vec::new();
        write(told, nodes, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_thousand_ranks_take_a_line_for_each_node() {
        let (told, nodes) = job(125, 8);
        let report = report(&told, &nodes);
        assert_eq!(
            report.lines().count(),
            1 + 1 + 1 + 125 + 2 + 3 + 1,
            "{report}"
        );
        for line in [
            "  all ranks  to their node:   mapped memory, because they are on one node",
            "  all ranks  to other nodes:  NIC (tcp, software engine), because they are on different nodes",
            "  992-999  124   host124  host streams  0-7         0",
        ] {
            assert!(report.lines().any(|each| each == line), "{report}");
        }
    }

    #[test]
    fn what_differs_is_told_of_each() {
        let (mut told, nodes) = job(1, 4);
        told[1].ways = runs([Way::Asked, Way::Mapped, Way::Mapped, Way::Mapped]);
        told[1].route = "nic:0".into();
        told[3].settings = vec![("TIDEGATE_RAILS".into(), "2".into())];
        let report = report(&told, &nodes);
        let words = report.split_whitespace().collect::<Vec<_>>().join(" ");
        for line in [
            "TIDEGATE_RAILS must be the same on all ranks: not set on ranks 0-2, 2 on rank 3",
            "rank 1 to rank 0: NIC (tcp, software engine), because TIDEGATE_ROUTE=nic:0 asks for it",
            "rank 0 to rank 1: NIC (tcp, software engine), because TIDEGATE_ROUTE there asks for it",
            "ranks 0-1 to ranks 2-3: mapped memory, because they are on one node",
            "ranks 2-3 to all others: mapped memory, because they are on one node",
        ] {
            assert!(words.contains(line), "{line}\n{report}");
        }
    }
}
