//! Namespaces: how they are made, held, and entered.
//!
//! # Model
//!
//! A [`Space`] is a network namespace that a descriptor holds, and the user namespace that owns it if this process has
//! no privileges of its own. A process with several threads cannot enter a user namespace. A child between fork and
//! exec has one thread, and can. So such a child does everything that happens in a namespace ([`Entry`]).
//!
//! # Failure
//!
//! A step that fails ends the child before it executes its program; `spawn` returns the error.

use crate::tap;
use rustix::fs::{Mode, OFlags};
use rustix::thread::{
    CapabilitySet, LinkNameSpaceType, UnshareFlags, capabilities,
    configure_capability_in_ambient_set, move_into_link_name_space, set_capabilities,
    unshare_unsafe,
};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::sync::Arc;

/// The user namespace that the nodes' namespaces belong to.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    /// This process's, which has the privileges.
    Ours,
    /// One that was made for them.
    User(Arc<OwnedFd>),
}

/// A network namespace.
#[derive(Clone, Debug)]
pub(crate) struct Space {
    pub(crate) owner: Owner,
    pub(crate) net: Arc<OwnedFd>,
}

/// Whether this process may make network namespaces by itself.
pub(crate) fn is_privileged() -> bool {
    let needed = CapabilitySet::SYS_ADMIN | CapabilitySet::NET_ADMIN;
    capabilities(None).is_ok_and(|sets| sets.effective.contains(needed))
}

/// A step of a child before it executes its program.
pub(crate) enum Entry {
    /// Makes a user namespace in which user and group keep their numbers. The lines are those of the maps.
    MakeUser { uid: String, gid: String },
    /// Makes a network namespace, and perhaps a TAP device in it, which is sent through the socket.
    MakeNet {
        owner: Owner,
        tap: Option<(&'static str, UnixStream)>,
    },
    /// Enters a namespace to set something up.
    SetUp(Space),
    /// Enters a namespace for good.
    Enter(Space),
}

impl Entry {
    pub(crate) fn make_user() -> Self {
        // Lines of "number inside, number outside, how many".
        let uid = rustix::process::geteuid().as_raw();
        let gid = rustix::process::getegid().as_raw();
        Self::MakeUser {
            uid: format!("{uid} {uid} 1"),
            gid: format!("{gid} {gid} 1"),
        }
    }

    /// Makes the children of `command` begin with this step.
    pub(crate) fn precede(self, command: &mut Command) {
        // SAFETY: between fork and exec the closure makes system calls only: `run` and what it calls neither allocate
        // nor lock (paths are C strings, texts were made before, rustix makes the calls without libc, and an
        // `io::Error` of a raw error number owns no memory). Its descriptors are owned by the closure, so open.
        unsafe {
            command.pre_exec(move || self.run());
        }
    }

    fn run(&self) -> io::Result<()> {
        match self {
            Self::MakeUser { uid, gid } => {
                unshare(UnshareFlags::NEWUSER)?;
                // Without privileges, a process may map a group only after it has given up the right to drop groups.
                write(c"/proc/self/setgroups", b"deny")?;
                write(c"/proc/self/uid_map", uid.as_bytes())?;
                write(c"/proc/self/gid_map", gid.as_bytes())?;
            }
            Self::MakeNet { owner, tap } => {
                join_user(owner)?;
                unshare(UnshareFlags::NEWNET)?;
                if let Some((name, socket)) = tap {
                    tap::pass(socket.as_fd(), &tap::open(name.as_bytes())?)?;
                }
                keep_privilege(owner)?;
            }
            Self::SetUp(space) => {
                space.join()?;
                keep_privilege(&space.owner)?;
            }
            Self::Enter(space) => space.join()?,
        }
        Ok(())
    }
}

impl Space {
    fn join(&self) -> io::Result<()> {
        join_user(&self.owner)?;
        move_into_link_name_space(self.net.as_fd(), Some(LinkNameSpaceType::Network))?;
        Ok(())
    }
}

fn join_user(owner: &Owner) -> io::Result<()> {
    if let Owner::User(user) = owner {
        move_into_link_name_space(user.as_fd(), Some(LinkNameSpaceType::User))?;
    }
    Ok(())
}

fn unshare(flags: UnshareFlags) -> io::Result<()> {
    // SAFETY: the table of descriptors is not unshared, and there is no other thread in a child between fork and exec.
    unsafe { unshare_unsafe(flags) }?;
    Ok(())
}

/// Allows the next executed program to set up networks. In a user namespace, this process has all privileges, but loses
/// them with exec unless the user is root there. *Ambient* privileges stay.
fn keep_privilege(owner: &Owner) -> io::Result<()> {
    if let Owner::User(_) = owner {
        let mut sets = capabilities(None)?;
        sets.inheritable |= CapabilitySet::NET_ADMIN;
        set_capabilities(None, sets)?;
        configure_capability_in_ambient_set(CapabilitySet::NET_ADMIN, true)?;
    }
    Ok(())
}

fn write(path: &std::ffi::CStr, bytes: &[u8]) -> io::Result<()> {
    let file = rustix::fs::open(path, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
    rustix::io::write(&file, bytes)?;
    Ok(())
}
