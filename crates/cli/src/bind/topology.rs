//! The processors that this process may use, and the memory nodes to which they belong.

use super::error::BindError;
use super::numbers::NumberSet;
use std::collections::BTreeMap;
use std::path::Path;

/// A processor that this process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Processor {
    pub(super) node: usize,
    package: usize,
    /// The lowest processor of its core.
    pub(super) core: usize,
    pub(super) number: usize,
}

/// The part of the machine that this process may use.
#[derive(Debug)]
pub(crate) struct Topology {
    /// In the order of memory nodes, packages and cores, so that neighbours share as much as possible.
    pub(super) processors: Vec<Processor>,
    /// How many memory nodes the machine has.
    pub(super) nodes: usize,
    /// The nodes that have memory, and whose memory this process may use.
    pub(crate) memory: NumberSet,
}

impl Topology {
    pub(crate) fn read(root: &Path) -> Result<Self, BindError> {
        // The status of this thread, which may be bound in another way than the first one.
        let status_path = root.join("proc/thread-self/status");
        let status = std::fs::read_to_string(&status_path).map_err(|error| BindError::Unread {
            path: status_path.clone(),
            reason: error.to_string(),
        })?;
        let line = |name: &str| {
            let found = status.lines().find_map(|line| line.strip_prefix(name));
            found.and_then(|list| list.trim().parse::<NumberSet>().ok())
        };
        let allowed = line("Cpus_allowed_list:").ok_or_else(|| BindError::Unread {
            path: status_path.clone(),
            reason: "it has no Cpus_allowed_list".to_owned(),
        })?;
        let system = root.join("sys/devices/system");
        // The list may contain processors that the machine does not have, or that are off.
        let allowed = match list(&system.join("cpu/online")) {
            Some(online) => allowed.and(&online),
            None => allowed,
        };
        let nodes = nodes(&system.join("node"));
        let node_of = |number| {
            let found = nodes
                .iter()
                .find(|(_, processors)| processors.contains(number));
            found.map_or(0, |(node, _)| *node)
        };
        let mut processors: Vec<_> = allowed
            .iter()
            .map(|number| {
                let folder = system.join(format!("cpu/cpu{number}/topology"));
                let package = std::fs::read_to_string(folder.join("physical_package_id"));
                let siblings = list(&folder.join("thread_siblings_list"));
                Processor {
                    node: node_of(number),
                    // If the machine does not tell, it counts as one package.
                    package: package
                        .ok()
                        .and_then(|text| text.trim().parse().ok())
                        .unwrap_or(0),
                    core: siblings.and_then(|all| all.iter().next()).unwrap_or(number),
                    number,
                }
            })
            .collect();
        if processors.is_empty() {
            return Err(BindError::Unread {
                path: status_path,
                reason: "it allows no processor that is there".to_owned(),
            });
        }
        processors.sort_unstable();
        let allowed_memory = line("Mems_allowed_list:");
        let memory = match (list(&system.join("node/has_memory")), allowed_memory) {
            (Some(present), Some(allowed)) => present.and(&allowed),
            (Some(present), None) => present,
            // If the kernel knows no memory nodes, a rank can prefer none.
            (None, _) => NumberSet::default(),
        };
        Ok(Self {
            processors,
            nodes: nodes.len().max(1),
            memory,
        })
    }

    /// The processors that this process may use.
    pub(crate) fn allowed(&self) -> NumberSet {
        self.processors.iter().map(|each| each.number).collect()
    }
}

/// A file with a list of numbers. `None`: it does not exist, or is empty.
pub(super) fn list(path: &Path) -> Option<NumberSet> {
    std::fs::read_to_string(path).ok()?.parse().ok()
}

/// The memory nodes, and the processors of each. A kernel that knows none has no such folder.
fn nodes(folder: &Path) -> BTreeMap<usize, NumberSet> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| {
            let name = entry.file_name();
            let node = name.to_str()?.strip_prefix("node")?.parse().ok()?;
            Some((node, list(&entry.path().join("cpulist"))?))
        })
        .collect()
}
