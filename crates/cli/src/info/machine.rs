//! What this machine has: processors, GPUs and their drivers, providers of the network, limits.

use super::{limits, table};
use crate::bind::Topology;
use std::io;
use std::path::Path;
use tidegate_core::error::DeviceError;
use tidegate_fabric::wire::libfabric::{self, Choice, FabricWire};

/// The name of this host.
pub(crate) fn host() -> String {
    let system = rustix::system::uname();
    system.nodename().to_string_lossy().into_owned()
}

/// The processors and the memory nodes that this thread may use.
pub(crate) fn place() -> (String, String) {
    match Topology::read(Path::new("/")) {
        Ok(topology) => (topology.allowed().to_string(), topology.memory.to_string()),
        Err(error) => (error.to_string(), String::new()),
    }
}

/// Tells of this machine.
pub(super) fn tell(out: &mut Vec<u8>) -> io::Result<()> {
    use io::Write as _;
    let system = rustix::system::uname();
    writeln!(
        out,
        "tidegate {} on {}: Linux {}, {}",
        env!("CARGO_PKG_VERSION"),
        host(),
        system.release().to_string_lossy(),
        system.machine().to_string_lossy(),
    )?;
    let (processors, memory) = place();
    let mut rows = vec![[
        "processors".to_owned(),
        format!("{processors}; memory nodes {memory}"),
    ]];
    rows.extend(
        nvidia()
            .into_iter()
            .map(|text| ["NVIDIA GPUs".to_owned(), text]),
    );
    rows.extend(amd().into_iter().map(|text| ["AMD GPUs".to_owned(), text]));
    rows.extend(
        network()
            .into_iter()
            .map(|text| ["network".to_owned(), text]),
    );
    rows.push(["limits".to_owned(), limits::words()]);
    // A name stands at its first line only.
    for at in (1..rows.len()).rev() {
        if rows[at][0] == rows[at - 1][0] {
            rows[at][0].clear();
        }
    }
    table::write(&rows, "  ", out)
}

/// Why there is nothing, on one line.
fn none(error: impl std::fmt::Display) -> Vec<String> {
    vec![format!("none: {error}").replace('\n', "; ")]
}

fn nvidia() -> Vec<String> {
    let here = match tidegate_cuda::here() {
        Ok(here) => here,
        Err(DeviceError::Missing { detail, .. }) => return none(detail),
        Err(error) => return none(error),
    };
    let (major, minor) = here.version;
    let mut lines = vec![format!(
        "{}, by {}, which has CUDA {major}.{minor}",
        here.gpus.len(),
        here.library
    )];
    let mut first = 0;
    // Equal neighbours are one line.
    for equal in here.gpus.chunk_by(|a, b| a == b) {
        let (last, gpu) = (first + equal.len() - 1, &equal[0]);
        let numbers = match equal.len() {
            1 => format!("GPU {first}"),
            _ => format!("GPUs {first} to {last}"),
        };
        let (major, minor) = gpu.capability;
        let mps = if gpu.mps { ", MPS" } else { "" };
        let use_it = if major < 8 {
            ", which cannot be used: 8.0 is needed"
        } else {
            ""
        };
        lines.push(format!(
            "{numbers}: {}, {} multiprocessors{mps}, compute capability {major}.{minor}{use_it}",
            gpu.name, gpu.multiprocessors
        ));
        first = last + 1;
    }
    lines
}

#[cfg(feature = "hip")]
fn amd() -> Vec<String> {
    match tidegate_hip::Hip::count() {
        Ok(count) => vec![count.to_string()],
        Err(DeviceError::Missing { detail, .. }) => none(detail),
        Err(error) => none(error),
    }
}

#[cfg(not(feature = "hip"))]
fn amd() -> Vec<String> {
    vec!["not looked for: this program was built without the feature `hip`".to_owned()]
}

fn network() -> Vec<String> {
    let here = match libfabric::here() {
        Ok(here) => here,
        Err(error) => return none(error),
    };
    let (major, minor) = here.version;
    let providers = here.providers.join(", ");
    let mut lines = vec![format!("libfabric {major}.{minor}, with {providers}")];
    let choice = Choice::from_env();
    lines.push(match choice.and_then(|choice| FabricWire::open(&choice)) {
        Ok(wire) => format!("between nodes a job takes {}", engine(&wire)),
        Err(error) => format!("between nodes a job finds none: {error}"),
    });
    lines
}

/// The provider and the engine, in words.
pub(super) fn engine(wire: &FabricWire) -> String {
    match wire.triggered() {
        None => format!("{}, software engine", wire.provider()),
        Some(_) => format!("{}, triggered engine", wire.provider()),
    }
}
