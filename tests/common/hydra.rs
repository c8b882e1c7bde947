//! A workaround for MPICH's launcher: on a loaded machine it sometimes dies of SIGPIPE, even with `/bin/true`.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// How many times a job is run at most.
pub(crate) const TIMES: usize = 3;

/// Whether a launcher has died in this way, so that its job must be run again.
pub(crate) fn died_of_sigpipe(status: ExitStatus) -> bool {
    let died = status.signal() == Some(rustix::process::Signal::PIPE.as_raw());
    if died {
        println!("the launcher itself died of SIGPIPE");
    }
    died
}
