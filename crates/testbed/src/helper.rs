//! The programs of iproute2, run inside namespaces.
//!
//! # Model
//!
//! A [`Helper`] is an `ip` or `tc` that reads commands from a pipe. It is in its namespace, and so holds it, from its
//! start until the pipe is closed. Meanwhile the kernel names its namespaces under `/proc`.
//!
//! # Failure
//!
//! It stops at the first command that fails; its output is the error. The error for a missing program names its
//! package.

use crate::error::BedError;
use crate::space::{Entry, Owner, Space};
use std::fs::File;
use std::io::{ErrorKind, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

/// The folders of root's programs, which are not on every user's path.
const MORE_PATH: &str = "/usr/sbin:/sbin:/usr/local/sbin";

pub(crate) struct Helper {
    program: &'static str,
    child: Child,
}

impl Helper {
    fn start(program: &'static str, entry: Entry, what: &'static str) -> Result<Self, BedError> {
        let mut command = Command::new(program);
        let path = match std::env::var("PATH") {
            Ok(path) if !path.is_empty() => format!("{path}:{MORE_PATH}"),
            // An empty entry of a path would be the current directory.
            _ => MORE_PATH.to_owned(),
        };
        command
            .args(["-batch", "-"])
            .env("PATH", path)
            .env("LC_ALL", "C")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        entry.precede(&mut command);
        let child = command.spawn().map_err(|source| match source.kind() {
            ErrorKind::NotFound => BedError::NoProgram { program },
            _ if is_shortage(&source) => BedError::io("starting a program of iproute2", source),
            _ => BedError::NotAllowed { what, source },
        })?;
        Ok(Self { program, child })
    }

    /// Its process number, by which other commands name its network namespace.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    fn namespace(&self, kind: &'static str) -> Result<OwnedFd, BedError> {
        let path = format!("/proc/{}/ns/{kind}", self.pid());
        let file = File::open(path).map_err(|e| BedError::io("holding a namespace", e))?;
        Ok(file.into())
    }

    /// Sends it its commands, and waits for its end.
    pub(crate) fn run(mut self, commands: &[String]) -> Result<(), BedError> {
        let (program, text) = (self.program, commands.join("\n") + "\n");
        let failed = |error| BedError::io("running a program of iproute2", error);
        // If it has already ended, its output says why.
        if let Some(mut stdin) = self.child.stdin.take()
            && let Err(error) = stdin.write_all(text.as_bytes())
            && error.kind() != ErrorKind::BrokenPipe
        {
            return Err(failed(error));
        }
        let mut said = Vec::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            std::io::Read::read_to_end(&mut stderr, &mut said).map_err(failed)?;
        }
        if self.child.wait().map_err(failed)?.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&said);
        // "Command failed -:3" is the number of the line.
        let line = said
            .rsplit(':')
            .next()
            .and_then(|number| commands.get(number.trim().parse::<usize>().ok()?.checked_sub(1)?));
        let first = said.lines().next().unwrap_or("nothing");
        let said = match line {
            Some(line) => format!("{first} (`{program} {line}`)"),
            None => first.to_owned(),
        };
        Err(BedError::Refused { program, said })
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // If it was not run, the end of its pipe ends it. (If it was, nothing is left.)
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// Whether some resource has run out, so that a later try may succeed.
fn is_shortage(error: &std::io::Error) -> bool {
    use rustix::io::Errno;
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::AGAIN | Errno::NOMEM)
    )
}

/// Makes the user namespace to which the others will belong.
pub(crate) fn make_user() -> Result<Owner, BedError> {
    let helper = Helper::start("ip", Entry::make_user(), "a user namespace")?;
    let user = helper.namespace("user")?;
    Ok(Owner::User(Arc::new(user)))
}

/// Makes a network namespace, with the helper in it.
pub(crate) fn make_net(owner: &Owner) -> Result<(Space, Helper), BedError> {
    let entry = Entry::MakeNet {
        owner: owner.clone(),
        tap: None,
    };
    let helper = Helper::start("ip", entry, "a network namespace")?;
    let space = Space {
        owner: owner.clone(),
        net: Arc::new(helper.namespace("net")?),
    };
    Ok((space, helper))
}

/// Makes a network namespace with a TAP device in it.
pub(crate) fn make_net_with_tap(
    owner: &Owner,
    name: &'static str,
) -> Result<(Space, Helper, OwnedFd), BedError> {
    let failed = |error| BedError::io("passing a TAP device on", error);
    let (ours, theirs) = UnixStream::pair().map_err(failed)?;
    let entry = Entry::MakeNet {
        owner: owner.clone(),
        tap: Some((name, theirs)),
    };
    let what = "a network namespace with a TAP device (/dev/net/tun)";
    let helper = Helper::start("ip", entry, what)?;
    let space = Space {
        owner: owner.clone(),
        net: Arc::new(helper.namespace("net")?),
    };
    let tap = crate::tap::take(ours.as_fd()).map_err(failed)?;
    Ok((space, helper, tap))
}

/// Runs commands in a namespace.
pub(crate) fn set_up(
    program: &'static str,
    space: &Space,
    commands: &[String],
) -> Result<(), BedError> {
    let entry = Entry::SetUp(space.clone());
    Helper::start(program, entry, "a process in a namespace")?.run(commands)
}
