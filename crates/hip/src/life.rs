//! Who keeps a peer's memory alive: a file in memory, and locks on its ranges.
//!
//! # Model
//!
//! A name of memory for other processes (`hipIpcGetMemHandle`) keeps nothing alive. If the owner frees the memory while
//! a peer has it mapped, anything may happen. So the owner asks first.
//!
//! A process has one *life file*, a memfd. Each piece of memory that it exports has a *record* there, at an offset of
//! its own. A peer gets a descriptor whose file offset says which record is meant ([`Exports::handle`]). It opens the
//! file again, and so has an open description of its own, on which it takes a shared lock on the record for as long as
//! it has the memory mapped ([`Imports::hold`]). The owner frees the memory when it can take the lock alone
//! ([`Exports::revoke`]); until then it keeps the memory, and tries again later.
//!
//! - If a peer ends, in whatever way, the kernel ends its locks. It has taken the peer's queues off the device by then:
//!   it ends the process's address space before it closes files.
//! - A process has one descriptor for each peer whose memory it maps, however many windows they share.
//! - A peer that comes too late finds no record. The owner clears it under the lock before it frees the memory, and a
//!   peer reads it under its lock. No offset is used twice. A record has pages of its own, which are given back when it
//!   is cleared.
//! - If the *owner* ends, its peers still have the memory mapped. The documents promise nothing then. (The kernel's
//!   driver counts the mappings of a buffer, and frees it after the last.) All windows are revoked by then.
//!
//! A child that a peer forks has that peer's descriptions, too. So while such a child lives, the owner keeps the
//! memory.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustix::fs::{FallocateFlags, MemfdFlags, SeekFrom};
use tidegate_ffi::lock::{Hold, lock};

/// What a life file begins with, in place of a first record.
const HEAD: &[u8; 16] = b"tidegate, HIP 1\0";
/// How far records are apart: no machine has larger pages.
const APART: u64 = 1 << 16;
/// The bytes of a record.
const BYTES: usize = 96;

/// What a peer must know of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The name of the memory.
    pub(crate) handle: [u8; 64],
    /// What tells its device from all others.
    pub(crate) device: [u8; 16],
    /// How far behind the beginning of the named memory it begins.
    pub(crate) offset: u64,
    /// Its size, which is not 0.
    pub(crate) size: u64,
}

impl Record {
    fn to_bytes(self) -> Vec<u8> {
        let numbers = [self.offset, self.size].map(u64::to_ne_bytes);
        [&self.handle[..], &self.device, numbers.as_flattened()].concat()
    }

    /// The record, unless it was cleared.
    fn of_bytes(bytes: &[u8; BYTES]) -> Option<Self> {
        let (handle, rest) = bytes.split_first_chunk()?;
        let (device, rest) = rest.split_first_chunk()?;
        let (offset, size) = rest.split_first_chunk()?;
        let record = Record {
            handle: *handle,
            device: *device,
            offset: u64::from_ne_bytes(*offset),
            size: u64::from_ne_bytes(size.try_into().ok()?),
        };
        (record.size > 0).then_some(record)
    }
}

/// The bytes of the file that belong to the record at an offset.
fn range(at: u64) -> Range<u64> {
    at..at + APART
}

/// Whether a descriptor is of a life file: memory itself is also handed over by a descriptor.
pub(crate) fn is_life_file(fd: impl AsFd) -> bool {
    let mut head = [0; HEAD.len()];
    rustix::io::pread(fd, &mut head, 0).is_ok_and(|read| read == head.len()) && head == *HEAD
}

/// What tells a file from all others of the machine.
type Identity = (u64, u64);

/// The file of a descriptor, and the offset of the record that it means.
fn meaning(fd: impl AsFd) -> io::Result<(Identity, u64)> {
    let data = rustix::fs::fstat(&fd)?;
    Ok(((data.st_dev, data.st_ino), rustix::fs::tell(fd)?))
}

/// Opens a file again: a new open description.
fn reopen(file: impl AsFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    File::options().read(true).write(true).open(path)
}

/// The records of this process.
pub(crate) struct Exports {
    file: File,
    /// The offset of the next record.
    next: AtomicU64,
}

impl Exports {
    pub(crate) fn new() -> io::Result<Self> {
        let file = File::from(rustix::fs::memfd_create(
            "tidegate-hip",
            MemfdFlags::CLOEXEC,
        )?);
        file.write_all_at(HEAD, 0)?;
        let next = APART.into();
        Ok(Exports { file, next })
    }

    /// Writes a record, and returns its offset.
    pub(crate) fn write(&self, record: Record) -> io::Result<u64> {
        let at = self.next.fetch_add(APART, Ordering::Relaxed);
        self.file.write_all_at(&record.to_bytes(), at)?;
        Ok(at)
    }

    /// A descriptor by which peers find a record.
    pub(crate) fn handle(&self, at: u64) -> io::Result<OwnedFd> {
        let file = reopen(&self.file)?;
        rustix::fs::seek(&file, SeekFrom::Start(at))?;
        Ok(file.into())
    }

    /// Clears a record, if no peer holds it. From then on no peer can.
    pub(crate) fn revoke(&self, at: u64) -> io::Result<bool> {
        let file = self.file.as_fd();
        if !lock(file, range(at), Hold::Alone)? {
            return Ok(false);
        }
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let cleared = rustix::fs::fallocate(file, how, at, APART);
        lock(file, range(at), Hold::Nothing)?;
        cleared?;
        Ok(true)
    }

    /// The record that a descriptor means, if it is one of this process.
    pub(crate) fn own(&self, fd: impl AsFd) -> io::Result<Option<u64>> {
        let ((own, _), (of, at)) = (meaning(&self.file)?, meaning(fd)?);
        Ok((of == own).then_some(at))
    }
}

/// The records of other processes that this process holds.
#[derive(Default)]
pub(crate) struct Imports(Mutex<HashMap<Identity, Arc<Peer>>>);

/// A peer's life file.
struct Peer {
    file: File,
    /// How often the record at each offset is held.
    held: Mutex<HashMap<u64, usize>>,
}

/// A record of a peer that this process holds.
pub(crate) struct Held {
    peer: Arc<Peer>,
    at: u64,
}

impl Imports {
    /// Holds a record until the result is dropped; `None` if the peer has freed the memory.
    ///
    /// # Errors
    ///
    /// If the descriptor is of another file, or `/proc` is not there.
    pub(crate) fn hold(&self, fd: impl AsFd) -> io::Result<Option<(Held, Record)>> {
        let (identity, at) = meaning(&fd)?;
        let peer = {
            let mut peers = tidegate_hal::lock(&self.0);
            // Nobody else holds the file of a peer whose memory is not mapped any more.
            peers.retain(|_, peer| Arc::strong_count(peer) > 1);
            match peers.entry(identity) {
                Entry::Occupied(known) => known.get().clone(),
                Entry::Vacant(new) => {
                    let (file, held) = (reopen(fd)?, Mutex::default());
                    new.insert(Arc::new(Peer { file, held })).clone()
                }
            }
        };
        {
            let mut held = tidegate_hal::lock(&peer.held);
            let count = held.entry(at).or_default();
            if *count == 0 && !lock(peer.file.as_fd(), range(at), Hold::Shared)? {
                return Ok(None);
            }
            *count += 1;
        }
        let held = Held { peer, at };
        let mut bytes = [0; BYTES];
        held.peer.file.read_exact_at(&mut bytes, at)?;
        Ok(Record::of_bytes(&bytes).map(|record| (held, record)))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = tidegate_hal::lock(&self.peer.held);
        let Some(count) = held.get_mut(&self.at) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            held.remove(&self.at);
            // If the system refuses, the owner keeps the memory until this process ends.
            let _ = lock(self.peer.file.as_fd(), range(self.at), Hold::Nothing);
        }
    }
}

#[cfg(test)]
mod tests;
