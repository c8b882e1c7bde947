//! What tests do about the launcher of MPICH: it now and then dies of SIGPIPE on a loaded machine, also with
//! `/bin/true`.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How often a job is run at most.
pub(crate) const TIMES: usize = 3;

/// Whether a launcher has died so: then its job is to be run again.
pub(crate) fn died_of_sigpipe(status: ExitStatus) -> bool {
    let died = status.signal() == Some(rustix::process::Signal::PIPE.as_raw());
    if died {
        println!("the launcher itself died of SIGPIPE");
    }
    died
}
