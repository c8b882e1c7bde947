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
//! - A peer that comes too late gets an error. The owner clears the record under the lock before it frees the memory,
//!   and a peer reads the record under its lock. A place that is used again has another generation, which the offset of
//!   the descriptor also says.
//! - If the *owner* ends, its peers still have the memory mapped. The documents promise nothing then. (The kernel's
//!   driver counts the mappings of a buffer, and frees it after the last.) All windows are revoked by then.
//!
//! A child that a peer forks has that peer's descriptions, too. So while such a child lives, the owner keeps the
//! memory.
//!
//! # Failure
//!
//! [`Imports::hold`] says why there is no memory: the owner has freed it, or `/proc` is not there.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::{Arc, Mutex};

use rustix::fs::{MemfdFlags, SeekFrom};
use tidegate_ffi::lock::{Hold, lock};

/// The bytes of a record.
const BYTES: usize = 128;
/// What a life file begins with, in place of a first record.
const HEAD: &[u8; 16] = b"tidegate, HIP 1\0";
/// Below this bit of a descriptor's offset is the record's place in the file, above it the generation.
const PLACES: u32 = 32;

/// What a peer must know of the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    /// The name of the memory.
    pub(crate) handle: [u8; 64],
    /// The UUID of its device.
    pub(crate) device: [u8; 16],
    /// How far behind the beginning of the named memory it begins.
    pub(crate) offset: u64,
    /// Its size.
    pub(crate) size: u64,
}

impl Record {
    fn to_bytes(self, generation: u64) -> [u8; BYTES] {
        let mut bytes = [0; BYTES];
        bytes[..64].copy_from_slice(&self.handle);
        bytes[64..80].copy_from_slice(&self.device);
        for (at, number) in [(80, self.offset), (88, self.size), (96, generation)] {
            bytes[at..at + 8].copy_from_slice(&number.to_ne_bytes());
        }
        bytes
    }

    /// The record and its generation.
    fn of_bytes(bytes: &[u8; BYTES]) -> (Self, u64) {
        let number = |at: usize| u64::from_ne_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
        let record = Record {
            handle: bytes[..64].try_into().expect("64 bytes"),
            device: bytes[64..80].try_into().expect("16 bytes"),
            offset: number(80),
            size: number(88),
        };
        (record, number(96))
    }
}

/// A place in the file, and the generation of the record there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Slot {
    place: u32,
    generation: u32,
}

impl Slot {
    fn bytes(self) -> Range<u64> {
        let first = u64::from(self.place) * BYTES as u64;
        first..first + BYTES as u64
    }

    /// The offset of a descriptor that means this record.
    fn offset(self) -> u64 {
        u64::from(self.generation) << PLACES | u64::from(self.place)
    }

    fn of_offset(offset: u64) -> Self {
        Slot {
            place: offset as u32,
            generation: (offset >> PLACES) as u32,
        }
    }
}

/// Whether a descriptor is of a life file: memory itself is also handed over by a descriptor.
pub(crate) fn is_life_file(fd: impl AsFd) -> bool {
    let mut head = [0; HEAD.len()];
    rustix::io::pread(fd, &mut head, 0).is_ok_and(|read| read == head.len()) && head == *HEAD
}

/// What tells a file from all others of the machine.
type Identity = (u64, u64);

fn identity(file: &File) -> io::Result<Identity> {
    let data = file.metadata()?;
    Ok((data.dev(), data.ino()))
}

/// Opens a file again: a new open description.
fn reopen(file: &impl AsFd) -> io::Result<File> {
    let path = format!("/proc/self/fd/{}", file.as_fd().as_raw_fd());
    File::options().read(true).write(true).open(path)
}

/// The records of this process.
pub(crate) struct Exports {
    file: File,
    identity: Identity,
    slots: Mutex<Slots>,
}

struct Slots {
    /// How many places there are. The first is the head's.
    places: u32,
    /// Places that are free, with the generations that they had last.
    free: Vec<Slot>,
}

impl Exports {
    pub(crate) fn new() -> io::Result<Self> {
        let file = rustix::fs::memfd_create("tidegate-hip", MemfdFlags::CLOEXEC)?;
        let file = File::from(file);
        file.write_all_at(HEAD, 0)?;
        Ok(Exports {
            identity: identity(&file)?,
            file,
            slots: Mutex::new(Slots {
                places: 1,
                free: Vec::new(),
            }),
        })
    }

    /// Writes a record.
    pub(crate) fn write(&self, record: Record) -> io::Result<Slot> {
        let slot = {
            let mut slots = tidegate_hal::lock(&self.slots);
            let place = slots.places;
            let last = slots.free.pop().unwrap_or(Slot {
                place,
                generation: 0,
            });
            slots.places += u32::from(last.place == place);
            // An offset has a sign, and 0 is a record that was cleared.
            let generation = (last.generation + 1) & (u32::MAX >> 1);
            Slot {
                generation: generation.max(1),
                ..last
            }
        };
        let bytes = record.to_bytes(slot.generation.into());
        self.file.write_all_at(&bytes, slot.bytes().start)?;
        Ok(slot)
    }

    /// A descriptor by which peers find a record.
    pub(crate) fn handle(&self, slot: Slot) -> io::Result<OwnedFd> {
        let file = reopen(&self.file)?;
        rustix::fs::seek(&file, SeekFrom::Start(slot.offset()))?;
        Ok(file.into())
    }

    /// Clears a record, if no peer holds it. From then on no peer can.
    pub(crate) fn revoke(&self, slot: Slot) -> io::Result<bool> {
        let file = self.file.as_fd();
        if !lock(file, slot.bytes(), Hold::Alone)? {
            return Ok(false);
        }
        let cleared = self.file.write_all_at(&[0; BYTES], slot.bytes().start);
        lock(file, slot.bytes(), Hold::Nothing)?;
        cleared?;
        tidegate_hal::lock(&self.slots).free.push(slot);
        Ok(true)
    }

    /// The record that a descriptor means, if it is one of this process.
    pub(crate) fn own(&self, fd: impl AsFd) -> io::Result<Option<Slot>> {
        let file = File::from(fd.as_fd().try_clone_to_owned()?);
        let offset = rustix::fs::seek(&file, SeekFrom::Current(0))?;
        Ok((identity(&file)? == self.identity).then(|| Slot::of_offset(offset)))
    }
}

/// The records of other processes that this process holds.
#[derive(Default)]
pub(crate) struct Imports(Mutex<HashMap<Identity, Arc<Peer>>>);

/// A peer's life file.
struct Peer {
    file: File,
    /// How often each place is held.
    held: Mutex<HashMap<u32, usize>>,
}

/// A record of a peer that this process holds.
pub(crate) struct Held {
    peer: Arc<Peer>,
    slot: Slot,
}

impl Imports {
    /// Holds a record until the result is dropped.
    ///
    /// # Errors
    ///
    /// A description of why there is no memory.
    pub(crate) fn hold(&self, fd: impl AsFd) -> Result<(Held, Record), String> {
        let no = |error: io::Error| format!("a peer's life file: {error}");
        let file = File::from(fd.as_fd().try_clone_to_owned().map_err(no)?);
        let offset =
            rustix::fs::seek(&file, SeekFrom::Current(0)).map_err(|error| no(error.into()))?;
        let slot = Slot::of_offset(offset);
        let peer = {
            let mut peers = tidegate_hal::lock(&self.0);
            // Nobody else holds the file of a peer whose memory is not mapped any more.
            peers.retain(|_, peer| Arc::strong_count(peer) > 1);
            let identity = identity(&file).map_err(no)?;
            match peers.get(&identity) {
                Some(peer) => peer.clone(),
                None => {
                    let file = reopen(&file).map_err(no)?;
                    let held = Mutex::default();
                    let peer = Arc::new(Peer { file, held });
                    peers.insert(identity, peer.clone());
                    peer
                }
            }
        };
        let gone = || "the peer has freed the memory".to_owned();
        {
            let mut held = tidegate_hal::lock(&peer.held);
            let count = held.entry(slot.place).or_default();
            if *count == 0 && !lock(peer.file.as_fd(), slot.bytes(), Hold::Shared).map_err(no)? {
                held.remove(&slot.place);
                return Err(gone());
            }
            *count += 1;
        }
        let held = Held { peer, slot };
        let mut bytes = [0; BYTES];
        let read = held.peer.file.read_exact_at(&mut bytes, slot.bytes().start);
        read.map_err(no)?;
        let (record, generation) = Record::of_bytes(&bytes);
        if generation != u64::from(slot.generation) {
            return Err(gone());
        }
        Ok((held, record))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut held = tidegate_hal::lock(&self.peer.held);
        let Some(count) = held.get_mut(&self.slot.place) else {
            return;
        };
        *count -= 1;
        if *count == 0 {
            held.remove(&self.slot.place);
            // If the system refuses, the owner keeps the memory until this process ends.
            let _ = lock(self.peer.file.as_fd(), self.slot.bytes(), Hold::Nothing);
        }
    }
}

#[cfg(test)]
mod tests;
