//! Memory: of pools, pinned, and files of memory that are mapped.
//!
//! Every piece has pages of its own, so that a use after it is freed is found out at once.

use std::collections::{BTreeMap, HashMap};
use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::codes;

const PAGE: usize = 4096;

/// A mapping has this many bytes, or a multiple.
pub(crate) const GRANULARITY: usize = 2 << 20;

/// The name of a memory file begins with this, and ends with the number of its device.
const NAME: &str = "fake-gpu-";

/// The owner of the memory at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Host,
    /// The program, whose memory the device uses, too.
    Registered,
    /// The device with this number.
    Device(i32),
}

#[derive(Default)]
struct Memory {
    /// All pieces by their addresses: the number of bytes, and the owner.
    pieces: BTreeMap<usize, (usize, Kind)>,
    /// Reserved ranges of addresses: the lengths, by their beginnings.
    reserved: BTreeMap<usize, usize>,
    /// Files of memory, by their handles.
    files: HashMap<u64, (OwnedFd, i32)>,
    last: u64,
}

static MEMORY: Mutex<Option<Memory>> = Mutex::new(None);

fn with<T>(use_it: impl FnOnce(&mut Memory) -> T) -> T {
    let mut memory: MutexGuard<'_, _> = MEMORY.lock().unwrap_or_else(PoisonError::into_inner);
    use_it(memory.get_or_insert_with(Memory::default))
}

/// The owner of the memory at this address.
pub(crate) fn find(at: usize) -> Option<Kind> {
    with(|memory| {
        let (start, (bytes, kind)) = memory.pieces.range(..=at).next_back()?;
        (at - start < *bytes).then_some(*kind)
    })
}

fn map(bytes: usize, protection: i32) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: new pages, wherever the system has room.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    (at != libc::MAP_FAILED).then(|| at.expose_provenance())
}

fn unmap(at: usize, bytes: usize) {
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: pages of a piece, or addresses, that are given up.
    unsafe { libc::munmap(at, bytes) };
}

/// Allocates bytes, with arbitrary contents.
pub(crate) fn alloc(bytes: usize, kind: Kind) -> Result<usize, i32> {
    if bytes == 0 {
        return Err(codes::INVALID_VALUE);
    }
    let pages = bytes
        .checked_next_multiple_of(PAGE)
        .ok_or(codes::OUT_OF_MEMORY)?;
    let at = map(pages, libc::PROT_READ | libc::PROT_WRITE).ok_or(codes::OUT_OF_MEMORY)?;
    // SAFETY: the pages are new. (Of large pieces the first ones tell.)
    unsafe {
        std::ptr::with_exposed_provenance_mut::<u8>(at).write_bytes(0xa5, pages.min(1 << 20))
    };
    with(|memory| memory.pieces.insert(at, (pages, kind)));
    Ok(at)
}

/// Whether there is a piece of this kind that begins there.
pub(crate) fn is_piece(at: usize, is: impl Fn(Kind) -> bool) -> bool {
    with(|memory| memory.pieces.get(&at).is_some_and(|(_, kind)| is(*kind)))
}

/// Frees a piece from [`alloc`].
pub(crate) fn free(at: usize) {
    if let Some((bytes, _)) = with(|memory| memory.pieces.remove(&at)) {
        unmap(at, bytes);
    }
}

/// Memory of the host that the device uses, too.
pub(crate) fn register(at: usize, bytes: usize) -> Result<(), i32> {
    match find(at) {
        Some(_) => Err(712), // already registered
        None => {
            with(|memory| memory.pieces.insert(at, (bytes, Kind::Registered)));
            Ok(())
        }
    }
}

pub(crate) fn unregister(at: usize) -> Result<(), i32> {
    if !is_piece(at, |kind| kind == Kind::Registered) {
        return Err(713);
    }
    let removed = with(|memory| memory.pieces.remove(&at));
    removed.map(|_| ()).ok_or(713) // not registered
}

/// A file of memory.
pub(crate) fn create(bytes: usize, device: i32) -> Result<u64, i32> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(codes::INVALID_VALUE);
    }
    let name = CString::new(format!("{NAME}{device}")).expect("it has no zero byte");
    // SAFETY: a name that lives; the file is new.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(codes::OUT_OF_MEMORY);
    }
    // SAFETY: it was just opened, and is nobody else's.
    let file = unsafe { OwnedFd::from_raw_fd(fd) };
    let length = libc::off_t::try_from(bytes).map_err(|_| codes::OUT_OF_MEMORY)?;
    // SAFETY: the descriptor is open.
    if unsafe { libc::ftruncate(file.as_raw_fd(), length) } != 0 {
        return Err(codes::OUT_OF_MEMORY);
    }
    Ok(keep(file, device))
}

fn keep(file: OwnedFd, device: i32) -> u64 {
    with(|memory| {
        memory.last += 1;
        memory.files.insert(memory.last, (file, device));
        memory.last
    })
}

pub(crate) fn release(handle: u64) -> Result<(), i32> {
    let removed = with(|memory| memory.files.remove(&handle));
    removed.map(|_| ()).ok_or(codes::INVALID_VALUE)
}

/// A descriptor of the file for another process.
pub(crate) fn export(handle: u64) -> Result<RawFd, i32> {
    with(|memory| {
        let (file, _) = memory.files.get(&handle).ok_or(codes::INVALID_VALUE)?;
        duplicate(file.as_raw_fd())
    })
}

fn duplicate(fd: RawFd) -> Result<RawFd, i32> {
    // SAFETY: the call takes any number.
    match unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, 3) } {
        ..0 => Err(codes::INVALID_VALUE),
        fd => Ok(fd),
    }
}

/// Imports the file of another process by this descriptor.
pub(crate) fn import(fd: RawFd) -> Result<u64, i32> {
    let path =
        std::fs::read_link(format!("/proc/self/fd/{fd}")).map_err(|_| codes::INVALID_VALUE)?;
    let path = path.to_string_lossy().into_owned();
    let device = path.split_once(NAME).and_then(|(_, rest)| {
        let number = rest.split(|c: char| !c.is_ascii_digit()).next()?;
        number.parse().ok()
    });
    let device = device.ok_or(codes::INVALID_VALUE)?;
    let fd = duplicate(fd)?;
    // SAFETY: it was just opened, and is nobody else's.
    Ok(keep(unsafe { OwnedFd::from_raw_fd(fd) }, device))
}

/// Reserves addresses for a mapping.
pub(crate) fn reserve(bytes: usize) -> Result<usize, i32> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(codes::INVALID_VALUE);
    }
    let at = map(bytes, libc::PROT_NONE).ok_or(codes::OUT_OF_MEMORY)?;
    with(|memory| memory.reserved.insert(at, bytes));
    Ok(at)
}

pub(crate) fn free_addresses(at: usize, bytes: usize) -> Result<(), i32> {
    with(|memory| {
        let mapped = memory.pieces.range(at..at.saturating_add(bytes)).next();
        if mapped.is_some() || memory.reserved.get(&at) != Some(&bytes) {
            return Err(codes::INVALID_VALUE);
        }
        memory.reserved.remove(&at);
        unmap(at, bytes);
        Ok(())
    })
}

/// Maps a file, without access yet.
pub(crate) fn map_file(at: usize, bytes: usize, handle: u64) -> Result<(), i32> {
    with(|memory| {
        let (file, device) = memory.files.get(&handle).ok_or(codes::INVALID_VALUE)?;
        let mut status = std::mem::MaybeUninit::<libc::stat>::zeroed();
        // SAFETY: the descriptor is open, and one structure is written, to one that lives.
        let known = unsafe { libc::fstat(file.as_raw_fd(), status.as_mut_ptr()) } == 0;
        // SAFETY: it was written; besides, zeros are a value of it.
        let size = unsafe { status.assume_init() }.st_size;
        if !known || usize::try_from(size).is_ok_and(|size| size < bytes) {
            return Err(codes::INVALID_VALUE);
        }
        let reserved = memory.reserved.range(..=at).next_back();
        let within = |(start, room): (&usize, &usize)| at - start + bytes <= *room;
        let mapped = memory.pieces.range(at..at.saturating_add(bytes)).next();
        if !reserved.is_some_and(within) || mapped.is_some() {
            return Err(codes::INVALID_VALUE);
        }
        let to = std::ptr::with_exposed_provenance_mut(at);
        let flags = libc::MAP_SHARED | libc::MAP_FIXED;
        // SAFETY: the addresses are reserved, and nothing is mapped there.
        let mapped = unsafe { libc::mmap(to, bytes, libc::PROT_NONE, flags, file.as_raw_fd(), 0) };
        if mapped == libc::MAP_FAILED {
            return Err(codes::OUT_OF_MEMORY);
        }
        memory.pieces.insert(at, (bytes, Kind::Device(*device)));
        Ok(())
    })
}

pub(crate) fn unmap_file(at: usize, bytes: usize) -> Result<(), i32> {
    with(|memory| match memory.pieces.get(&at) {
        Some((mapped, Kind::Device(_))) if *mapped == bytes => {
            memory.pieces.remove(&at);
            Ok(())
        }
        _ => Err(codes::INVALID_VALUE),
    })?;
    let to = std::ptr::with_exposed_provenance_mut(at);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED | libc::MAP_NORESERVE;
    // SAFETY: the pages are given up; their addresses stay reserved.
    unsafe { libc::mmap(to, bytes, libc::PROT_NONE, flags, -1, 0) };
    Ok(())
}

/// Lets mapped memory be accessed.
pub(crate) fn allow(at: usize, bytes: usize, write: bool) -> Result<(), i32> {
    let (whole, _) = with(|memory| memory.pieces.get(&at).copied()).ok_or(codes::INVALID_VALUE)?;
    if bytes > whole {
        return Err(codes::INVALID_VALUE);
    }
    let protection = if write { libc::PROT_WRITE } else { 0 } | libc::PROT_READ;
    let at = std::ptr::with_exposed_provenance_mut(at);
    // SAFETY: pages of a mapping.
    match unsafe { libc::mprotect(at, bytes, protection) } {
        0 => Ok(()),
        _ => Err(codes::INVALID_VALUE),
    }
}
