//! Jobs of several hosts, which are network namespaces, under MPICH's launcher. The test starts the launcher's daemons
//! there itself, as the launcher allows. MPI reaches the other hosts by TCP.

use std::process::{Child, Command, Stdio};

use tidegate_testbed::Bed;

/// Namespaces of one machine can share memory, and UCX would use it.
const WIRE: &str = "tcp,self";
/// UCX looks for devices in `/sys`, which must show those of its namespace.
const SEES_ITS_DEVICES: &str = "mount -t sysfs sysfs /sys && exec \"$0\" \"$@\"";

/// Hosts, and how many ranks each has.
pub(crate) struct Hosts {
    bed: Bed,
    each: usize,
    daemons: Vec<Child>,
}

impl Hosts {
    /// Hosts on which no job has run yet. `None`, with a message, if namespaces cannot be made.
    pub(crate) fn new(nodes: usize, each: usize) -> Option<Self> {
        Some(Hosts {
            bed: Bed::builder(nodes).build_or_skip("jobs of several hosts")?,
            each,
            daemons: Vec::new(),
        })
    }

    pub(crate) fn ranks(&self) -> usize {
        self.bed.nodes() * self.each
    }

    /// Tells the launcher where the ranks run. The launcher itself runs on the first host.
    pub(crate) fn place(&self, mpirun: &mut Command) {
        let host = |node| format!("node{node}:{}", self.each);
        let hosts: Vec<_> = (0..self.bed.nodes()).map(host).collect();
        mpirun.args(["-launcher", "manual", "-hosts", &hosts.join(",")]);
        mpirun.args(["-localhost", &self.bed.address(0).to_string()]);
        mpirun.env("UCX_TLS", WIRE);
        self.bed.enter(0, mpirun);
    }

    /// Starts the daemons, after the launcher has printed their commands.
    pub(crate) fn attend(&mut self, said: &str) {
        if !self.daemons.is_empty() || !said.contains("HYDRA_LAUNCH_END") {
            return;
        }
        let lines = said
            .lines()
            .filter_map(|line| line.strip_prefix("HYDRA_LAUNCH: "));
        for (node, line) in lines.enumerate() {
            let mut daemon = Command::new("unshare");
            daemon.args(["--mount", "sh", "-c", SEES_ITS_DEVICES]);
            daemon.args(line.split_whitespace()).env("UCX_TLS", WIRE);
            daemon.stdin(Stdio::null()).stdout(Stdio::null());
            self.bed.enter(node, &mut daemon);
            self.daemons
                .push(daemon.spawn().expect("the daemon starts"));
        }
        assert_eq!(self.daemons.len(), self.bed.nodes(), "{said}");
    }
}

impl Hosts {
    /// Ends the daemons, since each launcher needs its own.
    pub(crate) fn clear(&mut self) {
        for mut daemon in self.daemons.drain(..) {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.clear();
    }
}
