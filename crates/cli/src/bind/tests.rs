//! Tests with made-up machines.

use super::error::BindError;
use super::numbers::NumberSet;
use super::plan::{Bind, plan};
use std::path::Path;
use tempfile::TempDir;

/// A folder that looks like the root of a machine.
struct MadeUp(TempDir);

impl MadeUp {
    /// A machine with these processors, and with those processors and that memory that this process may use.
    fn new(online: &str, allowed: &str, memory: &str) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        let status =
            format!("Name:\tx\nCpus_allowed_list:\t{allowed}\nMems_allowed_list:\t{memory}\n");
        machine.file("proc/thread-self/status", &status);
        machine.file("sys/devices/system/cpu/online", online);
        machine
    }

    fn root(&self) -> &Path {
        self.0.path()
    }

    fn file(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, format!("{text}\n")).unwrap();
    }

    fn nodes(self, nodes: &[(usize, &str)], has_memory: &str) -> Self {
        for (node, processors) in nodes {
            self.file(
                &format!("sys/devices/system/node/node{node}/cpulist"),
                processors,
            );
        }
        self.file("sys/devices/system/node/has_memory", has_memory);
        self
    }

    /// The processors of each processor's core.
    fn cores(self, siblings: &[&str]) -> Self {
        for core in siblings {
            for number in core.parse::<NumberSet>().unwrap().iter() {
                let file =
                    format!("sys/devices/system/cpu/cpu{number}/topology/thread_siblings_list");
                self.file(&file, core);
            }
        }
        self
    }

    fn pci(&self, address: &str, local: &str, node: &str) {
        let folder = format!("sys/bus/pci/devices/{address}");
        self.file(&format!("{folder}/local_cpulist"), local);
        self.file(&format!("{folder}/numa_node"), node);
    }

    /// Adds a GPU that the driver knows.
    fn gpu(self, address: &str, uuid: &str, local: &str, node: &str) -> Self {
        let information = format!("Model: \t\t X\nGPU UUID: \t {uuid}");
        self.file(
            &format!("proc/driver/nvidia/gpus/{address}/information"),
            &information,
        );
        self.pci(address, local, node);
        self
    }

    fn nic(self, name: &str, local: &str, node: &str) -> Self {
        let folder = format!("sys/class/infiniband/{name}/device");
        self.file(&format!("{folder}/local_cpulist"), local);
        self.file(&format!("{folder}/numa_node"), node);
        self
    }

    /// The bindings of `ranks` ranks, as text. Each takes the device of its own number.
    fn bound(&self, bind: Bind, ranks: usize) -> Vec<String> {
        self.bound_as(bind, &(0..ranks).collect::<Vec<_>>(), None)
    }

    fn bound_as(&self, bind: Bind, numbers: &[usize], visible: Option<&str>) -> Vec<String> {
        let bindings = plan(bind, self.root(), numbers, visible).unwrap();
        bindings.iter().map(ToString::to_string).collect()
    }

    fn error(&self, bind: Bind, ranks: usize) -> BindError {
        plan(bind, self.root(), &(0..ranks).collect::<Vec<_>>(), None).unwrap_err()
    }
}

/// Two sockets of eight cores with two threads each, and four GPUs on each; a core's threads are numbered far apart.
fn two_sockets(allowed: &str) -> MadeUp {
    let siblings: Vec<_> = (0..16)
        .map(|core| format!("{core},{}", core + 16))
        .collect();
    let siblings: Vec<_> = siblings.iter().map(String::as_str).collect();
    let mut machine = MadeUp::new("0-31", allowed, "0-1")
        .nodes(&[(0, "0-7,16-23"), (1, "8-15,24-31")], "0-1")
        .cores(&siblings);
    for gpu in 0..8 {
        let node = gpu / 4;
        let local = ["0-7,16-23", "8-15,24-31"][node];
        let (address, uuid) = (format!("0000:{gpu}1:00.0"), format!("GPU-{gpu}abc"));
        machine = machine.gpu(&address, &uuid, local, &node.to_string());
    }
    machine
}

#[test]
fn numbers_are_read_and_said_as_the_kernel_writes_them() {
    for text in ["0", "0-3", "0-3,8", "1,3,5-6", "none"] {
        let read = if text == "none" { "\n" } else { text };
        assert_eq!(read.parse::<NumberSet>().unwrap().to_string(), text);
    }
    for bad in ["x", "1-x", "-1", "99999999999"] {
        assert!(bad.parse::<NumberSet>().is_err(), "{bad}");
    }
}

#[test]
fn nothing_is_asked_of_a_machine_that_binds_nothing() {
    assert_eq!(
        plan(Bind::None, Path::new("/nowhere"), &[0, 1], None).unwrap(),
        []
    );
}

#[test]
fn cores_are_shared_out_whole() {
    let machine = two_sockets("0-31");
    let shares = machine.bound(Bind::Core, 4);
    assert_eq!(
        shares,
        ["0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"]
            .map(|own| format!("processors {own}"))
    );
    // There are more ranks than cores, so each has a hardware thread.
    let shares = machine.bound(Bind::Core, 32);
    assert_eq!(
        shares[..3],
        ["processors 0", "processors 16", "processors 1"]
    );
    // Every processor is used.
    let all: usize = plan(Bind::Core, machine.root(), &[0; 3], None)
        .unwrap()
        .iter()
        .map(|binding| binding.processors.iter().count())
        .sum();
    assert_eq!(all, 32);
}

#[test]
fn only_what_the_launcher_may_use_is_shared_out() {
    // This process may use two processors of the first socket, and four of the second.
    let machine = two_sockets("6-11");
    assert_eq!(
        machine.bound(Bind::Core, 3),
        ["processors 6-7", "processors 8-9", "processors 10-11"]
    );
    assert_eq!(
        machine.bound(Bind::Numa, 3),
        [
            "processors 6-7, memory node 0",
            "processors 8-11, memory node 1",
            "processors 8-11, memory node 1"
        ]
    );
    let error = machine.error(Bind::Core, 7);
    assert!(
        matches!(error, BindError::TooFew { ranks: 7, .. }),
        "{error}"
    );
    assert!(error.to_string().ends_with("processors 6-11"), "{error}");
}

#[test]
fn numbers_may_have_holes() {
    let machine = MadeUp::new("0-1,4-5,100", "0-127", "0,7")
        .nodes(&[(0, "0-1"), (7, "4-5,100"), (9, "")], "0,7,9");
    assert_eq!(
        machine.bound(Bind::Core, 2),
        ["processors 0-1", "processors 4-5,100"]
    );
    assert_eq!(
        machine.bound(Bind::Numa, 2),
        [
            "processors 0-1, memory node 0",
            "processors 4-5,100, memory node 7"
        ]
    );
}

#[test]
fn a_rank_may_have_several_memory_nodes_and_prefers_one() {
    let nodes = [(0, "0-1"), (1, "2-3"), (2, "4-5"), (3, "6-7")];
    let machine = MadeUp::new("0-7", "0-7", "0-3").nodes(&nodes, "0-3");
    assert_eq!(
        machine.bound(Bind::Numa, 2),
        [
            "processors 0-3, memory node 0",
            "processors 4-7, memory node 2"
        ]
    );
    let eight = machine.bound(Bind::Numa, 8);
    assert_eq!(
        eight[6..],
        ["processors 6-7, memory node 3"; 2].map(str::to_owned)
    );
    // More ranks than processors share them.
    assert_eq!(
        machine.bound(Bind::Numa, 16)[15],
        "processors 6-7, memory node 3"
    );
}

#[test]
fn memory_that_may_not_be_used_is_not_preferred() {
    let machine = MadeUp::new("0-3", "0-3", "0").nodes(&[(0, "0-1"), (1, "2-3")], "0-1");
    assert_eq!(
        machine.bound(Bind::Numa, 2),
        [
            "processors 0-1, memory node 0",
            "processors 2-3 (node 1 has no memory for this process)"
        ]
    );
}

#[test]
fn a_machine_of_one_node_says_so() {
    let note = "processors 0-3, memory node 0 (the machine has one memory node)";
    let machine = MadeUp::new("0-3", "0-3", "0").nodes(&[(0, "0-3")], "0");
    assert_eq!(machine.bound(Bind::Numa, 2), [note, note]);
    // The kernel knows no memory nodes.
    let machine = MadeUp::new("0-3", "0-3", "0");
    let note = "processors 0-3 (the machine has one memory node)";
    assert_eq!(machine.bound(Bind::Numa, 1), [note]);
}

#[test]
fn ranks_are_near_their_gpus() {
    let machine = two_sockets("0-31");
    let near = |cores: &str, node, gpu| {
        format!("processors {cores}, memory node {node} (near 0000:{gpu}1:00.0)")
    };
    let all = machine.bound(Bind::Device, 8);
    assert_eq!(all[3], near("6-7,22-23", 0, 3));
    assert_eq!(all[4], near("8-9,24-25", 1, 4));
    // GPUs in another order, and GPUs that several ranks take.
    assert_eq!(
        machine.bound_as(Bind::Device, &[7, 0, 8], None),
        [
            near("8-15,24-31", 1, 7),
            near("0-3,16-19", 0, 0),
            near("4-7,20-23", 0, 0)
        ]
    );
    // If there are more ranks than processors near the GPU, all ranks use all of these.
    let few = two_sockets("0,8-15");
    assert_eq!(
        few.bound(Bind::Device, 2),
        [near("0", 0, 0), near("0", 0, 1)]
    );
    let sharing = |ranks| plan(Bind::Device, few.root(), &vec![0; ranks], None).unwrap()[0].sharing;
    assert_eq!((sharing(1), sharing(3)), (1, 3));
}

#[test]
fn gpus_are_those_that_a_program_sees() {
    let machine = two_sockets("0-31");
    let first = |visible| {
        machine
            .bound_as(Bind::Device, &[0], Some(visible))
            .remove(0)
    };
    assert!(first("5,0").ends_with("(near 0000:51:00.0)"));
    assert!(first("GPU-6").ends_with("(near 0000:61:00.0)"));
    // The list ends at the first entry that names no GPU.
    assert!(first("7,99,0").ends_with("(near 0000:71:00.0)"));
    for bad in ["", "99", "MIG-1", "GPU-x", "-1"] {
        let error = plan(Bind::Device, machine.root(), &[0], Some(bad)).unwrap_err();
        assert!(matches!(error, BindError::Visible { .. }), "{bad}: {error}");
    }
}

#[test]
fn gpus_are_found_without_their_driver() {
    let machine = MadeUp::new("0-3", "0-3", "0-1").nodes(&[(0, "0-1"), (1, "2-3")], "0-1");
    for (address, class, vendor, local) in [
        ("0000:01:00.0", "0x030200", "0x10de", "2-3"),
        ("0000:02:00.0", "0x030000", "0x10de", "0-1"),
        ("0000:03:00.0", "0x020000", "0x15b3", "0-1"),
        ("0000:00:00.0", "0x030000", "0x1a03", "0-1"),
    ] {
        machine.pci(address, local, "-1");
        machine.file(&format!("sys/bus/pci/devices/{address}/class"), class);
        machine.file(&format!("sys/bus/pci/devices/{address}/vendor"), vendor);
    }
    assert_eq!(
        machine.bound(Bind::Device, 3),
        [
            "processors 2, memory node 1 (near 0000:01:00.0)",
            "processors 0-1, memory node 0 (near 0000:02:00.0)",
            "processors 3, memory node 1 (near 0000:01:00.0)"
        ]
    );
}

#[test]
fn without_gpus_ranks_are_near_the_nic() {
    let machine = MadeUp::new("0-3", "0-3", "0-1")
        .nodes(&[(0, "0-1"), (1, "2-3")], "0-1")
        .nic("mlx5_0", "2-3", "1");
    assert_eq!(
        machine.bound(Bind::Device, 2),
        [
            "processors 2, memory node 1 (near mlx5_0)",
            "processors 3, memory node 1 (near mlx5_0)"
        ]
    );
}

#[test]
fn impossible_bindings_are_errors() {
    let machine = MadeUp::new("0-3", "0-3", "0");
    assert!(matches!(
        machine.error(Bind::Device, 1),
        BindError::NoDevice
    ));
    let machine = two_sockets("8-9");
    let error = machine.error(Bind::Device, 1);
    assert!(matches!(error, BindError::NotAllowed { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("near 0000:01:00.0 are 0-7,16-23"), "{text}");
    let error = plan(Bind::Core, Path::new("/nowhere"), &[0], None).unwrap_err();
    assert!(matches!(error, BindError::Unread { .. }), "{error}");
    let machine = MadeUp::new("0-3", "8", "0");
    assert!(matches!(
        machine.error(Bind::Core, 1),
        BindError::Unread { .. }
    ));
}
