//! GPUs and NICs, and the processors and memory near each.

use super::error::BindError;
use super::numbers::NumberSet;
use super::topology::list;
use std::path::Path;

/// A device, with the processors and the memory near it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NearDevice {
    /// Its address on the bus, or its name.
    pub(super) name: String,
    /// `None`: the machine does not tell.
    pub(super) processors: Option<NumberSet>,
    pub(super) node: Option<usize>,
}

impl NearDevice {
    fn read(name: String, folder: &Path) -> Self {
        let node = std::fs::read_to_string(folder.join("numa_node"));
        Self {
            name,
            processors: list(&folder.join("local_cpulist")).filter(|list| !list.is_empty()),
            // It is -1 if the firmware does not tell.
            node: node.ok().and_then(|text| text.trim().parse().ok()),
        }
    }
}

/// The devices that ranks take in turn: the GPUs that a program sees, or the NICs if the machine has no GPU.
pub(super) fn devices(root: &Path, visible: Option<&str>) -> Result<Vec<NearDevice>, BindError> {
    let bus = root.join("sys/bus/pci/devices");
    let gpus = gpus(root, &bus);
    if !gpus.is_empty() {
        let seen = match visible {
            Some(visible) => self::visible(root, &gpus, visible)?,
            None => gpus,
        };
        let device = |name: String| NearDevice::read(name.clone(), &bus.join(&name));
        return Ok(seen.into_iter().map(device).collect());
    }
    let class = root.join("sys/class/infiniband");
    let nic = |name: String| NearDevice::read(name.clone(), &class.join(&name).join("device"));
    match names(&class) {
        names if names.is_empty() => Err(BindError::NoDevice),
        names => Ok(names.into_iter().map(nic).collect()),
    }
}

/// The names in a folder, sorted; none if the folder does not exist.
fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<_> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

/// The folder in which the driver describes each GPU by its address.
const DRIVER: &str = "proc/driver/nvidia/gpus";

/// The addresses of NVIDIA's GPUs, in the order of the bus.
fn gpus(root: &Path, bus: &Path) -> Vec<String> {
    let known = names(&root.join(DRIVER));
    if !known.is_empty() {
        return known;
    }
    let is_gpu = |name: &String| {
        let read = |file| std::fs::read_to_string(bus.join(name).join(file)).unwrap_or_default();
        // 3D controllers, and VGA controllers.
        let class = read("class");
        read("vendor").trim() == "0x10de"
            && ["0x0302", "0x0300"]
                .iter()
                .any(|gpu| class.starts_with(gpu))
    };
    names(bus).into_iter().filter(is_gpu).collect()
}

/// The GPUs that a program sees, in its order, by the rules of CUDA: the list ends at the first entry that names no
/// GPU.
fn visible(root: &Path, gpus: &[String], value: &str) -> Result<Vec<String>, BindError> {
    let error = |reason: String| BindError::Visible {
        value: value.to_owned(),
        reason,
    };
    let mut seen = Vec::new();
    for word in value.split(',').map(str::trim) {
        let found = if let Ok(number) = word.parse::<usize>() {
            gpus.get(number)
        } else if word.starts_with("GPU-") {
            gpus.iter()
                .find(|gpu| uuid(root, gpu).is_some_and(|uuid| uuid.starts_with(word)))
        } else if word.starts_with("MIG-") {
            return Err(error("it names a part of a GPU".to_owned()));
        } else {
            None
        };
        match found {
            Some(gpu) => seen.push(gpu.clone()),
            None => break,
        }
    }
    if seen.is_empty() {
        Err(error(format!("it names none of the {} GPUs", gpus.len())))
    } else {
        Ok(seen)
    }
}

fn uuid(root: &Path, gpu: &str) -> Option<String> {
    let text = std::fs::read_to_string(root.join(DRIVER).join(gpu).join("information")).ok()?;
    let found = text.lines().find_map(|line| line.strip_prefix("GPU UUID:"));
    found.map(|uuid| uuid.trim().to_owned())
}
