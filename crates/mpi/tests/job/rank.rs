//! One rank of a job.

use std::net::TcpListener;
use std::sync::Arc;

use mpi::environment::Universe;
use mpi::topology::{Communicator, SimpleCommunicator};
use mpi::traits::*;
use tidegate::host::World;
use tidegate_boot::starter::{hex, random};
use tidegate_boot::{Config, TcpControl};
use tidegate_hal::control::Control;
use tidegate_mpi::windows::{Form, Options, join};

/// The variable with the secret of the job, set by the driver.
pub(crate) const SECRET: &str = "TIDEGATE_TEST_SECRET";

/// The variable that is set if ranks are on several hosts.
pub(crate) const HOSTS: &str = "TIDEGATE_TEST_HOSTS";

pub(crate) fn secret() -> String {
    hex(&random::<16>().expect("there is randomness"))
}

/// How ranks reach each other.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Mode {
    /// By shared memory.
    Near,
    /// By calls of MPI.
    Apart(Form),
    /// In pairs by shared memory, and otherwise by calls of MPI.
    Nodes(Form),
}

/// All modes, with both forms of signals, whichever is faster here.
pub(crate) const MODES: [Mode; 5] = [
    Mode::Near,
    Mode::Apart(Form::Words),
    Mode::Apart(Form::Messages),
    Mode::Nodes(Form::Words),
    Mode::Nodes(Form::Messages),
];

/// With one or two ranks, no two are on different nodes.
const SMALL: [Mode; 3] = [
    Mode::Near,
    Mode::Apart(Form::Words),
    Mode::Apart(Form::Messages),
];
/// In larger jobs, MPIs that spin while they wait take long.
const LARGE: [Mode; 3] = [
    Mode::Near,
    Mode::Nodes(Form::Words),
    Mode::Nodes(Form::Messages),
];

/// MPI, and worlds over it.
pub(crate) struct Job {
    pub(crate) comm: SimpleCommunicator,
    pub(crate) universe: Option<Universe>,
}

impl Job {
    /// The control plane of the communicator's ranks. With `nodes`, they are on nodes of two ranks each.
    pub(crate) fn control(&self, nodes: bool) -> Arc<dyn Control> {
        if !nodes {
            return Arc::new(tidegate_mpi::world::control(&self.comm).unwrap());
        }
        let (rank, size) = (self.comm.rank() as usize, self.comm.size() as usize);
        let listener = (rank == 0).then(|| TcpListener::bind("127.0.0.1:0").unwrap());
        let mut port = listener
            .as_ref()
            .map_or(0, |listener| listener.local_addr().unwrap().port());
        self.comm.process_at_rank(0).broadcast_into(&mut port);
        let secret = std::env::var(SECRET).unwrap().into_bytes();
        let mut config = Config::new(rank, size, format!("127.0.0.1:{port}"), secret);
        config.listener = listener;
        config.node = Some(format!("node {}", rank / 2));
        Arc::new(TcpControl::join(config).unwrap())
    }

    /// A world whose ranks reach each other by windows of MPI.
    pub(crate) fn world(&self, mode: Mode) -> World {
        let (options, nodes) = match mode {
            Mode::Near => (Options::new(), false),
            Mode::Apart(form) => (Options::new().not_shared().form(form), false),
            Mode::Nodes(form) => (Options::new().form(form), true),
        };
        let (control, device) = join(&self.comm, self.control(nodes), &options).unwrap();
        // SAFETY: the control plane carries what it is given.
        unsafe { World::from_control(control, device) }.unwrap()
    }
}

impl Job {
    /// Whether MPI can compare and swap. Open MPI 4 crashes in it if ranks of one node do not share windows.
    pub(crate) fn swaps(&self, mode: Mode) -> bool {
        let version = mpi::environment::library_version().unwrap();
        matches!(mode, Mode::Near) || self.comm.size() == 1 || !version.contains("Open MPI v4.")
    }

    /// Runs a program in each mode.
    pub(crate) fn in_all_modes(&self, program: fn(World)) {
        for mode in self.modes() {
            program(self.world(*mode));
        }
    }

    /// The modes that make a difference.
    pub(crate) fn modes(&self) -> &'static [Mode] {
        if self.comm.size() > 2 { &LARGE } else { &SMALL }
    }

    /// Ends MPI, while worlds may still use it.
    pub(crate) fn end(&mut self) {
        // The duplicate is not freed; it ends with MPI.
        std::mem::forget(std::mem::replace(
            &mut self.comm,
            SimpleCommunicator::self_comm(),
        ));
        self.universe = None;
    }

    /// Tells the driver that something has happened.
    pub(crate) fn say(&self, what: &str) {
        println!("{SAID} {what}");
    }
}

/// The beginning of the ranks' messages to the driver.
pub(crate) const SAID: &str = "rank says:";
