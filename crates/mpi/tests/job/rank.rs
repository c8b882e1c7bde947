//! One rank of a job.

use std::net::TcpListener;
use std::process::ExitCode;
use std::sync::Arc;

use mpi::environment::Universe;
use mpi::topology::{Communicator, SimpleCommunicator};
use mpi::traits::*;
use tidegate::{Host, World};
use tidegate_boot::{Config, TcpControl};
use tidegate_hal::control::Control;
use tidegate_mpi::windows::{Form, Options, join};

use crate::cases;

/// Where the driver says the secret of the job.
pub(crate) const SECRET: &str = "TIDEGATE_TEST_SECRET";

pub(crate) fn secret() -> String {
    let mut bytes = [0u8; 16];
    getrandom::fill(&mut bytes).expect("there is randomness");
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// MPI, and worlds over it.
pub(crate) struct Job {
    pub(crate) comm: SimpleCommunicator,
    pub(crate) universe: Option<Universe>,
}

impl Job {
    /// The control plane among the ranks of the communicator.
    pub(crate) fn control(&self) -> Arc<dyn Control> {
        let (rank, size) = (self.comm.rank() as usize, self.comm.size() as usize);
        if size == 1 {
            return Arc::new(TcpControl::solo());
        }
        let listener = (rank == 0).then(|| TcpListener::bind("127.0.0.1:0").unwrap());
        let mut port = listener
            .as_ref()
            .map_or(0, |listener| listener.local_addr().unwrap().port());
        self.comm.process_at_rank(0).broadcast_into(&mut port);
        let secret = std::env::var(SECRET).unwrap().into_bytes();
        let mut config = Config::new(rank, size, format!("127.0.0.1:{port}"), secret);
        config.listener = listener;
        Arc::new(TcpControl::join(config).unwrap())
    }

    /// A world whose ranks reach each other by windows of MPI.
    pub(crate) fn world(&self, form: Form) -> World<Host> {
        let options = Options::new().form(form);
        let (control, device) = join(&self.comm, self.control(), &options).unwrap();
        // SAFETY: the control plane carries what it is given.
        unsafe { World::from_control(control, device) }.unwrap()
    }
}

impl Job {
    /// A program, with each form of signals.
    pub(crate) fn in_both_forms(&self, program: fn(World<Host>)) {
        for form in cases::FORMS {
            program(self.world(form));
        }
    }

    /// Ends MPI, with whatever uses it still there.
    pub(crate) fn end(&mut self) {
        // The duplicate is freed by nobody: it goes with MPI.
        std::mem::forget(std::mem::replace(
            &mut self.comm,
            SimpleCommunicator::self_comm(),
        ));
        self.universe = None;
    }

    /// Says to the driver that something has come to pass.
    pub(crate) fn say(&self, what: &str) {
        println!("{SAID} {what}");
    }
}

/// Before what ranks say to the driver.
pub(crate) const SAID: &str = "rank says:";

pub(crate) fn run(name: &str) -> ExitCode {
    let case = cases::ALL
        .iter()
        .find(|case| case.name == name)
        .expect("the driver knows the cases");
    let level = match name {
        "threads" => mpi::Threading::Serialized,
        _ => mpi::Threading::Multiple,
    };
    let (universe, _) = mpi::initialize_with_threading(level).unwrap();
    let comm = universe.world().duplicate();
    let mut job = Job {
        universe: Some(universe),
        comm,
    };
    (case.run)(&mut job);
    ExitCode::SUCCESS
}
