//! What can be wrong, and the words for it.

use crate::bind::NumberSet;
use crate::info::table::bytes;
use std::fmt;
use tidegate_hal::variables::{ADDRESS, CUDA_DEVICE_MAX_CONNECTIONS, RENDEZVOUS_TIMEOUT, ROUTE};

/// Some ranks, and their nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Who {
    pub(super) nodes: NumberSet,
    pub(super) ranks: NumberSet,
}

impl Who {
    pub(super) fn one(rank: usize, node: usize) -> Self {
        Self::these([(rank, node)])
    }

    /// Ranks with their nodes.
    pub(super) fn these(all: impl IntoIterator<Item = (usize, usize)>) -> Self {
        let all: Vec<_> = all.into_iter().collect();
        Self {
            nodes: all.iter().map(|(_, node)| *node).collect(),
            ranks: all.iter().map(|(rank, _)| *rank).collect(),
        }
    }

    fn count(&self) -> usize {
        self.ranks.iter().count()
    }

    fn has(&self) -> &'static str {
        if self.count() == 1 { "has" } else { "have" }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.nodes.iter().count() == 1 {
            ""
        } else {
            "s"
        };
        write!(f, "{} on node{s} {}", ranks(&self.ranks), self.nodes)
    }
}

/// A figure of a pair.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Slow {
    /// Microseconds of a short put, and the median.
    Latency(f64, f64),
    /// GB/s of large puts, and the median.
    Bandwidth(f64, f64),
}

/// Something that is wrong, or worth a note.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Finding {
    /// A variable is misspelt, or its value cannot be read.
    Variable { who: Who, what: String },
    /// Ranks have different values of a variable.
    Differs { what: String },
    /// There may be too little locked memory. `by` is the provider that locks memory, if there is one.
    LockedMemory {
        who: Who,
        limit: u64,
        by: Option<String>,
    },
    /// There are too few descriptors.
    Descriptors {
        who: Who,
        limit: u64,
        most: Option<u64>,
        used: u64,
        needed: u64,
    },
    /// An address does not belong to the rank's host.
    ForeignAddress {
        who: Who,
        value: String,
        reason: String,
    },
    /// A rank of another node does not reach a rank at its address.
    Unreached {
        from: Who,
        to: Who,
        address: String,
        is_set: bool,
        reason: String,
    },
    /// Several ranks may use the same processor only.
    OneProcessor { who: Who, processor: usize },
    /// The clock of a node is wrong, by nanoseconds against node 0.
    Clock { who: Who, ahead: i64, error: u64 },
    /// A rank cannot map the memory of another one on its node.
    NoPeerAccess { who: Who, peers: NumberSet },
    /// A rank does not reach others at all.
    NoRoute { who: Who, peers: NumberSet },
    /// Several ranks use one GPU in turn.
    NoMps { who: Who, gpu: usize },
    /// A process has too few hardware queues.
    FewQueues {
        who: Who,
        queues: usize,
        right: usize,
    },
    /// A pair is slower than others with the same route.
    SlowPair {
        from: Who,
        to: Who,
        route: String,
        slow: Slow,
    },
    /// The ranks do not meet.
    NotMet { who: Who, error: String },
    /// The ranks have met, but make no world, or the measurement fails.
    Failed { doing: &'static str, error: String },
    /// A step takes too long.
    Stuck {
        who: Who,
        doing: &'static str,
        seconds: u64,
    },
}

/// What to do about nodes or pairs that are slower than others.
const SLOW: &str = "look for another program on these processors or this link (`top`, `nvidia-smi`), a link that has come \
                    up slower than it can (`ethtool`, `nvidia-smi topo -m`), and ranks on the wrong socket: \
                    `tidegate run --bind device`";

impl Finding {
    /// Whether nothing is wrong with the job as it is.
    pub(super) fn is_note(&self) -> bool {
        matches!(self, Finding::LockedMemory { by: None, .. })
    }

    /// What is wrong, in one line.
    pub(super) fn what(&self) -> String {
        let text = match self {
            Finding::Variable { who, what } => format!("{who}: {what}"),
            Finding::Differs { what } => what.clone(),
            Finding::LockedMemory { who, limit, by } => {
                let limit = bytes(*limit);
                match by {
                    Some(by) => format!(
                        "{who} may lock {limit} of memory, and the provider {by} locks all memory that a NIC accesses"
                    ),
                    None => format!(
                        "{who} may lock {limit} of memory; this job locks none, but a NIC with hardware (verbs, efa) would"
                    ),
                }
            }
            Finding::Descriptors {
                who,
                limit,
                used,
                needed,
                ..
            } => format!(
                "{who} may have {limit} descriptors: {used} are in use before the job begins, and opening windows needs {needed}"
            ),
            Finding::ForeignAddress { who, value, reason } => {
                format!(
                    "{who}: {}={value} is no address of their host: {reason}",
                    ADDRESS.name
                )
            }
            Finding::Unreached {
                from,
                to,
                address,
                is_set,
                reason,
            } => {
                let source = match is_set {
                    true => format!("{}={address}", ADDRESS.name),
                    false => format!("{address}, since {} is not set there", ADDRESS.name),
                };
                format!("{from} does not reach {to} at {source}: {reason}")
            }
            Finding::OneProcessor { who, processor } => {
                format!("{who} share processor {processor}, and may use no other")
            }
            Finding::Clock { who, ahead, error } => {
                let (ahead, error) = (*ahead as f64 / 1e6, *error as f64 / 1e6);
                let side = if ahead < 0.0 { "behind" } else { "ahead of" };
                format!(
                    "the clock of {who} is {:.1} ms {side} that of rank 0 (within {error:.1} ms)",
                    ahead.abs()
                )
            }
            Finding::NoPeerAccess { who, peers } => format!(
                "{who} cannot map the memory of {}, although on the same node",
                ranks(peers)
            ),
            Finding::NoRoute { who, peers } => format!(
                "{who} {} no route to {}: another node, and {} allows no NIC",
                who.has(),
                ranks(peers),
                ROUTE.name
            ),
            Finding::NoMps { who, gpu } => {
                format!("{who} share GPU {gpu} without MPS, so their kernels run in turn")
            }
            Finding::FewQueues { who, queues, .. } => {
                let streams = queues.saturating_sub(2);
                let s = if streams == 1 { "" } else { "s" };
                format!(
                    "{who} {} {queues} hardware queues of the GPU: room for {streams} stream{s}",
                    who.has()
                )
            }
            Finding::SlowPair {
                from,
                to,
                route,
                slow,
            } => {
                let (value, median) = match slow {
                    Slow::Latency(us, median) => (
                        format!("takes {us:.1} us for 8 bytes"),
                        format!("{median:.1} us"),
                    ),
                    Slow::Bandwidth(gbs, median) => {
                        (format!("has {gbs:.2} GB/s"), format!("{median:.2} GB/s"))
                    }
                };
                format!("the way from {from} to {to} {value}; the median by {route} is {median}")
            }
            Finding::NotMet { who, error } => format!("{who} does not join the job: {error}"),
            Finding::Failed { doing, error } => format!("{doing} fails: {error}"),
            Finding::Stuck {
                who,
                doing,
                seconds,
            } => format!("{who} gives up after {seconds} s of {doing}"),
        };
        one_line(&text)
    }

    /// What to do about it, in one line.
    pub(super) fn advice(&self) -> String {
        match self {
            Finding::Variable { .. } => {
                "correct it, or unset it: `tidegate info --all` lists all names and defaults".into()
            }
            Finding::Differs { .. } => {
                "set it for all ranks: `tidegate run -e NAME=VALUE`, `mpirun -x NAME=VALUE`".into()
            }
            Finding::LockedMemory { by, .. } => {
                let when = match by {
                    Some(_) => "",
                    None => "before a job takes such a NIC: ",
                };
                format!(
                    "{when}`ulimit -l unlimited` in the shell that starts the job; if that is refused, `* - memlock \
                     unlimited` in /etc/security/limits.conf, or `LimitMEMLOCK=infinity` for a daemon"
                )
            }
            Finding::Descriptors { most, needed, .. } => {
                let command = format!("`ulimit -n {needed}` in the shell that starts the job");
                match most {
                    Some(most) if most < needed => format!(
                        "{command}; the hard limit is {most}, so first `* - nofile {needed}` in \
                         /etc/security/limits.conf, or `LimitNOFILE={needed}` for a daemon"
                    ),
                    _ => command,
                }
            }
            Finding::ForeignAddress { .. } => format!(
                "unset {0}, or set it on each host to an address of that host: `ip -brief address` lists them",
                ADDRESS.name
            ),
            Finding::Unreached { .. } => format!(
                "set {} on each host to the address of a network that joins the hosts (`ip -brief address`), and let \
                 its firewall pass all ports between them",
                ADDRESS.name
            ),
            Finding::OneProcessor { who, .. } => format!(
                "`tidegate run --bind core` gives each rank its own; the launcher itself may be bound (`taskset -p $$`), \
                 or allowed too little: {} processors are needed",
                who.count()
            ),
            Finding::Clock { .. } => {
                "`chronyc makestep`, or `timedatectl set-ntp true`: messages do not depend on clocks, but logs and \
                 traces of the nodes do"
                    .into()
            }
            Finding::NoPeerAccess { .. } => {
                "`nvidia-smi topo -m` shows how GPUs are connected; containers need all GPUs of the job visible to \
                 each rank. TIDEGATE_ROUTE=nic takes the NIC instead"
                    .into()
            }
            Finding::NoRoute { .. } => format!("unset {}, or set it to auto", ROUTE.name),
            Finding::NoMps { who, .. } => format!(
                "`nvidia-cuda-mps-control -d` on the node before the job, and {}={}; or {} GPUs, one for each rank",
                CUDA_DEVICE_MAX_CONNECTIONS.name,
                queues_for(who.count()),
                who.count()
            ),
            Finding::FewQueues { right, .. } => format!(
                "{}={right} for all ranks: `tidegate run -e {0}={right}`, `mpirun -x {0}={right}`",
                CUDA_DEVICE_MAX_CONNECTIONS.name
            ),
            Finding::SlowPair { .. } => SLOW.into(),
            Finding::NotMet { .. } => format!(
                "check that all ranks were started, and that the other hosts reach rank 0 ({}); they wait {} seconds",
                ADDRESS.name, RENDEZVOUS_TIMEOUT.name
            ),
            Finding::Failed { .. } => {
                "another finding may be the cause; `docs/troubleshooting.md` explains each error".into()
            }
            Finding::Stuck { .. } => {
                "TIDEGATE_LOG=debug shows how far the ranks come; a firewall, or a process that is stopped, does this"
                    .into()
            }
        }
    }
}

/// How many hardware queues each of `processes` should have on one GPU under MPS: they share about 100.
pub(super) fn queues_for(processes: usize) -> usize {
    (96 / processes.max(1)).clamp(2, 32)
}

fn ranks(set: &NumberSet) -> String {
    let s = if set.iter().count() == 1 { "" } else { "s" };
    format!("rank{s} {set}")
}

fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join("; ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(ranks: &[usize], node: usize) -> Who {
        Who::these(ranks.iter().map(|rank| (*rank, node)))
    }

    /// One of each kind, with what its lines must contain.
    fn all() -> Vec<(Finding, &'static str, &'static str)> {
        let (one, two) = (Who::one(3, 1), who(&[0, 1], 0));
        let error = || "a\n  b".to_owned();
        vec![
            (
                Finding::Variable {
                    who: two.clone(),
                    what: "TIDEGATE_RAILS=9: no".into(),
                },
                "ranks 0-1 on node 0: TIDEGATE_RAILS=9: no",
                "tidegate info --all",
            ),
            (
                Finding::Differs {
                    what: "X differs".into(),
                },
                "X differs",
                "-e NAME=VALUE",
            ),
            (
                Finding::LockedMemory {
                    who: two.clone(),
                    limit: 65536,
                    by: None,
                },
                "may lock 64 KiB of memory; this job locks none",
                "before a job takes such a NIC: `ulimit -l unlimited`",
            ),
            (
                Finding::LockedMemory {
                    who: two.clone(),
                    limit: 65536,
                    by: Some("verbs".into()),
                },
                "64 KiB of memory, and the provider verbs locks",
                "`ulimit -l unlimited`",
            ),
            (
                Finding::Descriptors {
                    who: one.clone(),
                    limit: 64,
                    most: Some(64),
                    used: 9,
                    needed: 256,
                },
                "rank 3 on node 1 may have 64 descriptors: 9 are in use",
                "`ulimit -n 256` in the shell that starts the job; the hard limit is 64, so first `* - nofile 256`",
            ),
            (
                Finding::ForeignAddress {
                    who: one.clone(),
                    value: "192.0.2.1".into(),
                    reason: "no".into(),
                },
                "TIDEGATE_ADDRESS=192.0.2.1 is no address of their host: no",
                "unset TIDEGATE_ADDRESS, or set it",
            ),
            (
                Finding::Unreached {
                    from: one.clone(),
                    to: Who::one(0, 0),
                    address: "127.0.0.1".into(),
                    is_set: false,
                    reason: "refused".into(),
                },
                "rank 3 on node 1 does not reach rank 0 on node 0 at 127.0.0.1, since TIDEGATE_ADDRESS is not set",
                "set TIDEGATE_ADDRESS on each host",
            ),
            (
                Finding::OneProcessor {
                    who: two.clone(),
                    processor: 5,
                },
                "ranks 0-1 on node 0 share processor 5, and may use no other",
                "`tidegate run --bind core`",
            ),
            (
                Finding::Clock {
                    who: one.clone(),
                    ahead: -2_500_000_000,
                    error: 40_000,
                },
                "is 2500.0 ms behind that of rank 0 (within 0.0 ms)",
                "chronyc makestep",
            ),
            (
                Finding::NoPeerAccess {
                    who: one.clone(),
                    peers: [4, 5].into_iter().collect(),
                },
                "cannot map the memory of ranks 4-5",
                "nvidia-smi topo -m",
            ),
            (
                Finding::NoRoute {
                    who: one.clone(),
                    peers: [4].into_iter().collect(),
                },
                "has no route to rank 4: another node, and TIDEGATE_ROUTE allows no NIC",
                "unset TIDEGATE_ROUTE",
            ),
            (
                Finding::NoMps {
                    who: two.clone(),
                    gpu: 2,
                },
                "ranks 0-1 on node 0 share GPU 2 without MPS",
                "`nvidia-cuda-mps-control -d` on the node before the job, and CUDA_DEVICE_MAX_CONNECTIONS=32",
            ),
            (
                Finding::FewQueues {
                    who: one.clone(),
                    queues: 3,
                    right: 32,
                },
                "has 3 hardware queues of the GPU: room for 1 stream",
                "CUDA_DEVICE_MAX_CONNECTIONS=32 for all ranks",
            ),
            (
                Finding::SlowPair {
                    from: one.clone(),
                    to: Who::one(0, 0),
                    route: "NIC".into(),
                    slow: Slow::Bandwidth(1.0, 9.5),
                },
                "from rank 3 on node 1 to rank 0 on node 0 has 1.00 GB/s; the median by NIC is 9.50 GB/s",
                "ethtool",
            ),
            (
                Finding::NotMet {
                    who: one.clone(),
                    error: error(),
                },
                "rank 3 on node 1 does not join the job: a; b",
                "TIDEGATE_ADDRESS",
            ),
            (
                Finding::Failed {
                    doing: "measuring",
                    error: error(),
                },
                "measuring fails: a; b",
                "docs/troubleshooting.md",
            ),
            (
                Finding::Stuck {
                    who: one,
                    doing: "measuring",
                    seconds: 30,
                },
                "gives up after 30 s of measuring",
                "TIDEGATE_LOG=debug",
            ),
        ]
    }

    #[test]
    fn each_has_a_line_of_what_is_wrong_and_a_line_of_what_to_do() {
        for (finding, what, advice) in all() {
            assert!(finding.what().contains(what), "{}", finding.what());
            assert!(finding.advice().contains(advice), "{}", finding.advice());
            for line in [finding.what(), finding.advice()] {
                assert!(!line.contains('\n') && !line.contains("  "), "{line}");
            }
        }
    }

    #[test]
    fn only_what_harms_nothing_now_is_a_note() {
        let notes = all().into_iter().filter(|(finding, ..)| finding.is_note());
        let notes: Vec<_> = notes.map(|(finding, ..)| finding).collect();
        assert!(matches!(
            notes[..],
            [Finding::LockedMemory { by: None, .. }]
        ));
    }

    #[test]
    fn processes_share_the_connections_of_mps() {
        assert_eq!([1, 4, 8, 200].map(queues_for), [32, 24, 12, 2]);
    }
}
