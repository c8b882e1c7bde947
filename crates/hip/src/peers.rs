//! Memory for peers.
//!
//! # Model
//!
//! Words in this memory are added to by other GPUs, so it must not be cached: system-wide atomics on other memory reach
//! only the own GPU. There are two kinds of it:
//!
//! - *Whole memory*, where the runtime has virtual-memory allocations that are not cached (from ROCm 7.1 on). Peers get
//!   a descriptor of the memory itself. A peer's mapping keeps it alive, as on CUDA.
//! - *Named memory* otherwise, from `hipExtMallocWithFlags`: not cached, or at least fine-grained, with a warning. The
//!   name keeps nothing alive. Peers get a record in this process's life file, and hold a lock on it while they have
//!   the memory mapped (`life.rs`).
//!
//! `hipFree`, `hipIpcCloseMemHandle` and unmapping may wait until the device has nothing to do, which behind a wait for
//! a peer can take for ever. So memory that is given up is only noted. The calls are made when no stream has work
//! ([`give_up`](tidegate_gpu::driver::Driver::give_up)). Memory that a peer still has mapped stays noted.
//!
//! Ranks that are threads of one process share one mapping, since the runtime does not open a name in the process that
//! made it.
//!
//! # Poison
//!
//! A copy may be a kernel here. So the byte that ends a wait is stored by the host, where it reaches the GPU's memory
//! (a "large BAR"), and is flushed by the register that the runtime gives for that. Elsewhere it is copied on a stream
//! with a hardware queue of its own, and the share of blocks that may wait leaves room for a copy's kernel.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU8, Ordering, fence};
use std::sync::{Mutex, Once, OnceLock};

use tidegate_ffi::hip::sys;
use tidegate_gpu::driver::{
    Doing as _, Driver as _, ErrorKind, PeerMemory, Result, Stream, no_atomics, told, whole_units,
};
use tidegate_hal::device::DeviceError;
use tidegate_hal::{lock, tell};

use crate::driver::{HipDriver, at, made};
use crate::life::{Exports, Held, Imports, Record, is_life_file};

/// All memory for peers of this process.
static MEMORY: Mutex<Option<Memory>> = Mutex::new(None);

/// Runs with the table of memory for peers.
fn with<T>(run: impl FnOnce(&mut Memory) -> T) -> T {
    run(lock(&MEMORY).get_or_insert_default())
}

#[derive(Default)]
struct Memory {
    last: u64,
    pieces: HashMap<u64, Piece>,
    /// Pieces that nobody in this process uses any more.
    left: Vec<Piece>,
}

/// A piece of memory, of this process or of a peer.
struct Piece {
    /// The GPU that it is mapped for.
    device: i32,
    base: u64,
    size: usize,
    kind: Kind,
}

enum Kind {
    /// Memory of this process with a name, and the offset of its record. `users` have it mapped.
    Named { record: u64, users: usize },
    /// A peer's memory that was opened at this address.
    Opened { at: u64, held: Held },
    /// Whole memory, with the address of its handle.
    Whole { handle: usize },
}

impl Memory {
    fn add(&mut self, piece: Piece) -> PeerMemory {
        self.last += 1;
        let (base, size, memory) = (piece.base, piece.size, self.last);
        self.pieces.insert(memory, piece);
        PeerMemory { base, size, memory }
    }

    fn piece(&mut self, memory: &PeerMemory) -> &mut Piece {
        let piece = self.pieces.get_mut(&memory.memory);
        piece.expect("memory that was not given up is in the table")
    }
}

/// The life file of this process.
fn exports() -> Result<&'static Exports, DeviceError> {
    static EXPORTS: OnceLock<std::io::Result<Exports>> = OnceLock::new();
    let exports = EXPORTS.get_or_init(Exports::new).as_ref();
    exports.map_err(file_error)
}

/// The peers whose memory this process has mapped.
fn imports() -> &'static Imports {
    static IMPORTS: OnceLock<Imports> = OnceLock::new();
    IMPORTS.get_or_init(Imports::default)
}

fn file_error(error: impl ToString) -> DeviceError {
    DeviceError::System {
        what: "sharing memory with peers",
        detail: error.to_string(),
    }
}

fn bad(error: impl ToString) -> DeviceError {
    DeviceError::BadHandle(error.to_string())
}

fn is_enough(size: usize, bytes: usize) -> Result<(), DeviceError> {
    if size < bytes {
        return Err(bad(format!("the memory has {size} bytes, not {bytes}")));
    }
    Ok(())
}

/// A handle of whole memory.
fn whole(handle: usize) -> sys::hipMemGenericAllocationHandle_t {
    std::ptr::with_exposed_provenance_mut(handle)
}

impl HipDriver {
    fn location(&self) -> sys::hipMemLocation {
        sys::hipMemLocation {
            type_: sys::hipMemLocationTypeDevice,
            id: self.ordinal,
        }
    }

    /// What the runtime knows of an address.
    pub(crate) fn attribute(&self, address: u64, attribute: u32) -> Option<u32> {
        let mut value = [0u64; 4];
        let into = value.as_mut_ptr().cast();
        // SAFETY: the call does not use the address. What it writes fits: the longest attribute has 16 bytes.
        let asked = unsafe { self.hip.pointer_get_attribute(into, attribute, at(address)) };
        asked.ok().map(|()| value[0] as u32)
    }

    /// How whole memory is allocated, and the unit of its size.
    pub(crate) fn uncached(&self) -> Result<(sys::hipMemAllocationProp, usize)> {
        let prop = sys::hipMemAllocationProp {
            type_: sys::hipMemAllocationTypeUncached,
            requestedHandleTypes: sys::hipMemHandleTypePosixFileDescriptor,
            location: self.location(),
            win32HandleMetaData: null_mut(),
            allocFlags: sys::hipMemAllocationFlags {
                compressionType: 0,
                gpuDirectRDMACapable: 0,
                usage: 0,
            },
        };
        let mut unit = 0;
        let option = sys::hipMemAllocationGranularityRecommended;
        // SAFETY: the structure is complete and lives; one size is written, to one that lives.
        told(unsafe {
            self.hip
                .mem_get_allocation_granularity(&mut unit, &prop, option)
        })?;
        Ok((prop, unit.max(1)))
    }

    /// Allocates whole memory without an address.
    pub(crate) fn create(
        &self,
        size: usize,
        prop: &sys::hipMemAllocationProp,
    ) -> Result<sys::hipMemGenericAllocationHandle_t> {
        // SAFETY: the structure is complete and lives; one handle is written, to one that lives.
        made(|handle| unsafe { self.hip.mem_create(handle, size, prop, 0) })
    }

    pub(crate) fn alloc_shared(&self, bytes: usize) -> Result<PeerMemory, DeviceError> {
        let what = "allocating memory for peers";
        if self.whole {
            let (prop, unit) = self.uncached().doing(what)?;
            let size = whole_units(bytes, unit)?;
            let handle = self.create(size, &prop).doing(what)?;
            return self.map_whole(handle, size);
        }
        // SAFETY: one address is written, to one that lives.
        let alloc =
            |flags| made(|base| unsafe { self.hip.ext_malloc_with_flags(base, bytes, flags) });
        let base = match alloc(sys::hipDeviceMallocUncached) {
            Err(error) if matches!(error.kind, ErrorKind::Invalid | ErrorKind::Unsupported) => {
                static SAID: Once = Once::new();
                SAID.call_once(|| {
                    tell(|| tracing::warn!(%error, "memory for peers is fine-grained: the runtime has none that is not cached"));
                });
                alloc(sys::hipDeviceMallocFinegrained)
            }
            base => base,
        };
        let base = base.doing(what)?;
        let record = self.name(base, bytes).inspect_err(|_| {
            // SAFETY: it was just allocated, and nobody else has it.
            let _ = unsafe { self.hip.free(base) };
        })?;
        let kind = Kind::Named { record, users: 1 };
        Ok(self.add(base.expose_provenance() as u64, bytes, kind))
    }

    fn add(&self, base: u64, size: usize, kind: Kind) -> PeerMemory {
        with(|memory| memory.add(self.piece(base, size, kind)))
    }

    fn piece(&self, base: u64, size: usize, kind: Kind) -> Piece {
        let device = self.ordinal;
        Piece {
            device,
            base,
            size,
            kind,
        }
    }

    /// Names memory that was just allocated. Returns the offset of its record.
    fn name(&self, base: *mut c_void, size: usize) -> Result<u64, DeviceError> {
        let what = "naming memory for peers";
        let mut name = sys::hipIpcMemHandle_st { reserved: [0; 64] };
        // SAFETY: the memory is live; one structure is written, to one that lives.
        unsafe { self.hip.ipc_get_mem_handle(&mut name, base) }.doing(what)?;
        let (mut first, mut all) = (null_mut(), 0);
        // SAFETY: the call does not use the address; two values are written, to two that live.
        let call = unsafe { self.hip.mem_get_address_range(&mut first, &mut all, base) };
        call.doing(what)?;
        let record = Record {
            handle: name.reserved.map(|byte| byte as u8),
            device: self.devices[self.ordinal as usize],
            // A name is opened at the beginning of the allocation, of which the memory may be a part.
            offset: (base.addr() - first.addr()) as u64,
            size: size as u64,
        };
        exports()?.write(record).map_err(file_error)
    }

    /// Maps whole memory, and takes its handle over.
    fn map_whole(
        &self,
        handle: sys::hipMemGenericAllocationHandle_t,
        size: usize,
    ) -> Result<PeerMemory, DeviceError> {
        let what = "mapping memory";
        // SAFETY: the handle is not used any more.
        let release = || drop(unsafe { self.hip.mem_release(handle) });
        // SAFETY: the call takes addresses that nobody uses; one address is written, to one that lives.
        let base =
            made(|base| unsafe { self.hip.mem_address_reserve(base, size, 0, null_mut(), 0) });
        let base = base.doing(what).inspect_err(|_| release())?;
        // SAFETY: the range was just reserved, and is as large as the mapping.
        if let Err(error) = unsafe { self.hip.mem_map(base, size, 0, handle, 0) } {
            release();
            // SAFETY: nothing is mapped there.
            let _ = unsafe { self.hip.mem_address_free(base, size) };
            return Err(bad(error));
        }
        let access = sys::hipMemAccessDesc {
            location: self.location(),
            flags: sys::hipMemAccessFlagsProtReadWrite,
        };
        let handle = handle.expose_provenance();
        let piece = self.piece(
            base.expose_provenance() as u64,
            size,
            Kind::Whole { handle },
        );
        // SAFETY: the range is mapped; the structure lives.
        let set = unsafe { self.hip.mem_set_access(base, size, &access, 1) };
        with(|memory| match set.doing(what) {
            Ok(()) => Ok(memory.add(piece)),
            Err(error) => {
                memory.left.push(piece);
                Err(error)
            }
        })
    }

    /// # Safety
    ///
    /// The memory is not given up yet.
    pub(crate) unsafe fn export_shared(&self, memory: &PeerMemory) -> Result<OwnedFd, DeviceError> {
        let found = with(|table| match table.piece(memory).kind {
            Kind::Whole { handle } => Err(handle),
            Kind::Named { record, .. } => Ok(record),
            Kind::Opened { .. } => unreachable!("a peer's memory is not exported"),
        });
        let handle = match found {
            Ok(record) => return exports()?.handle(record).map_err(file_error),
            Err(handle) => whole(handle),
        };
        let mut fd: c_int = -1;
        let kind = sys::hipMemHandleTypePosixFileDescriptor;
        let into = (&raw mut fd).cast::<c_void>();
        // SAFETY: the caller promises for the memory. For this kind one int is written, to one that lives.
        let call = unsafe {
            self.hip
                .mem_export_to_shareable_handle(into, handle, kind, 0)
        };
        call.doing("exporting memory")?;
        if fd < 0 {
            return Err(file_error(format!("the runtime gave the descriptor {fd}")));
        }
        // SAFETY: the runtime has opened the descriptor for the caller, and nobody else has it.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    pub(crate) fn map_shared(&self, fd: &OwnedFd, bytes: usize) -> Result<PeerMemory, DeviceError> {
        if !is_life_file(fd) {
            return self.import_whole(fd, bytes);
        }
        match exports()?.own(fd).map_err(file_error)? {
            Some(record) => self.join(record, bytes),
            None => self.open(fd, bytes),
        }
    }

    fn import_whole(&self, fd: &OwnedFd, bytes: usize) -> Result<PeerMemory, DeviceError> {
        let (_, unit) = self.uncached().doing("mapping a peer's memory")?;
        let kind = sys::hipMemHandleTypePosixFileDescriptor;
        // The runtime takes the descriptor in place of the address.
        let number = std::ptr::without_provenance_mut(fd.as_fd().as_raw_fd() as usize);
        // SAFETY: the descriptor is open; one handle is written, to one that lives.
        let call = |handle| unsafe {
            self.hip
                .mem_import_from_shareable_handle(handle, number, kind)
        };
        let handle = made(call).map_err(bad)?;
        let memory = self.map_whole(handle, bytes.next_multiple_of(unit))?;
        let owner = self.attribute(memory.base, sys::HIP_POINTER_ATTRIBUTE_DEVICE_ORDINAL);
        let checked = self.check_atomics(owner.map(|owner| owner as i32));
        checked.inspect_err(|_| {
            // SAFETY: it was just mapped, and nobody else has it.
            unsafe { self.leave_shared(memory) };
        })?;
        Ok(memory)
    }

    /// Maps memory of this process.
    fn join(&self, wanted: u64, bytes: usize) -> Result<PeerMemory, DeviceError> {
        let joined = with(|memory| {
            memory
                .pieces
                .iter_mut()
                .find_map(|(id, piece)| match &mut piece.kind {
                    Kind::Named { record, users } if *record == wanted => {
                        *users += 1;
                        let (base, size, memory) = (piece.base, piece.size, *id);
                        Some((piece.device, PeerMemory { base, size, memory }))
                    }
                    _ => None,
                })
        });
        let (device, memory) = joined.ok_or_else(|| bad("this process has freed the memory"))?;
        let enable = || {
            is_enough(memory.size, bytes)?;
            self.check_atomics(Some(device))?;
            if device == self.ordinal {
                return Ok(());
            }
            // SAFETY: the call takes numbers, and checks them.
            match unsafe { self.hip.device_enable_peer_access(device, 0) } {
                Err(error) if !error.is_already_enabled() => {
                    told(Err(error)).doing("mapping the memory of another GPU")
                }
                _ => Ok(()),
            }
        };
        // SAFETY: it was just joined, and nobody else has it by this.
        enable().inspect_err(|_| unsafe { self.leave_shared(memory) })?;
        Ok(memory)
    }

    /// Maps memory of another process by its name.
    fn open(&self, fd: &OwnedFd, bytes: usize) -> Result<PeerMemory, DeviceError> {
        let held = imports()
            .hold(fd)
            .map_err(|error| bad(format!("a peer's life file: {error}")))?;
        let (held, record) = held.ok_or_else(|| bad("the peer has freed the memory"))?;
        is_enough(record.size as usize, bytes)?;
        let owner = self.devices.iter().position(|uuid| *uuid == record.device);
        self.check_atomics(owner.map(|owner| owner as i32))?;
        let name = sys::hipIpcMemHandle_st {
            reserved: record.handle.map(|byte| byte as _),
        };
        let flags = sys::hipIpcMemLazyEnablePeerAccess;
        // SAFETY: the peer keeps the memory while this process holds its record; one address is written, to one that
        // lives.
        let opened = made(|base| unsafe { self.hip.ipc_open_mem_handle(base, name, flags) });
        let opened = opened.map_err(bad)?.expose_provenance() as u64;
        let kind = Kind::Opened { at: opened, held };
        Ok(self.add(opened + record.offset, record.size as usize, kind))
    }

    /// Checks that this GPU can add to words in memory of another one. If the other is not known here, or the runtime
    /// does not tell, atomics are taken to work.
    fn check_atomics(&self, owner: Option<i32>) -> Result<(), DeviceError> {
        let Some(owner) = owner.filter(|owner| *owner != self.ordinal) else {
            return Ok(());
        };
        let (mut can, native) = (1, sys::hipDevP2PAttrNativeAtomicSupported);
        // SAFETY: one int is written, to one that lives; the call checks the numbers.
        let asked = unsafe {
            self.hip
                .device_get_p2p_attribute(&mut can, native, self.ordinal, owner)
        };
        if asked.is_ok() && can == 0 {
            return Err(no_atomics("hip", self.ordinal, owner));
        }
        Ok(())
    }

    /// Notes that nobody on this GPU uses the memory any more.
    ///
    /// # Safety
    ///
    /// The memory is not given up yet, and nothing on this GPU uses it any more.
    pub(crate) unsafe fn leave_shared(&self, memory: PeerMemory) {
        with(|table| match &mut table.piece(&memory).kind {
            Kind::Named { users, .. } if *users > 1 => *users -= 1,
            _ => table.left.extend(table.pieces.remove(&memory.memory)),
        });
    }

    pub(crate) fn has_shared_left(&self) -> bool {
        with(|memory| memory.left.iter().any(|piece| piece.device == self.ordinal))
    }

    /// Gives up what was noted for this GPU, on which no stream has work.
    pub(crate) fn give_shared_up(&self) {
        let own = |piece: &mut Piece| piece.device == self.ordinal;
        let pieces: Vec<_> = with(|memory| memory.left.extract_if(.., own).collect());
        for piece in pieces {
            let (base, size) = (at(piece.base), piece.size);
            match piece.kind {
                Kind::Named { record, .. } => {
                    let revoke = |exports: &Exports| exports.revoke(record).map_err(file_error);
                    match exports().and_then(revoke) {
                        // SAFETY: nobody in this process uses the memory (`leave_shared`), and no peer can.
                        Ok(true) => drop(unsafe { self.hip.free(base) }),
                        // A peer has it mapped.
                        Ok(false) => with(|memory| memory.left.push(piece)),
                        Err(error) => {
                            tell(|| tracing::warn!(%error, "memory for peers is not freed"))
                        }
                    }
                }
                Kind::Opened { at: opened, held } => {
                    // SAFETY: it was opened at this address, and nobody in this process uses it.
                    if unsafe { self.hip.ipc_close_mem_handle(at(opened)) }.is_err() {
                        // It may still be mapped, so the peer must keep it.
                        std::mem::forget(held);
                    }
                }
                Kind::Whole { handle } => {
                    // SAFETY: it was mapped by `map_whole`, and nobody in this process uses it. If a call fails, the
                    // memory leaks.
                    let _ = unsafe { self.hip.mem_unmap(base, size) };
                    // SAFETY: nothing is mapped there now.
                    let _ = unsafe { self.hip.mem_address_free(base, size) };
                    // SAFETY: the handle is this memory's.
                    let _ = unsafe { self.hip.mem_release(whole(handle)) };
                }
            }
        }
    }

    /// # Safety
    ///
    /// As for [`poke`](tidegate_gpu::driver::Driver::poke).
    pub(crate) unsafe fn poke_byte(&self, to: u64, from: *const u8, alarm: Stream) -> Result<()> {
        let is_in = |piece: &Piece| {
            let is_own = piece.device == self.ordinal && matches!(piece.kind, Kind::Named { .. });
            is_own && (piece.base..piece.base + piece.size as u64).contains(&to)
        };
        if self.large_bar && with(|memory| memory.pieces.values().any(is_in)) {
            // SAFETY: the caller promises a live byte that is accessed atomically. The host reaches it at this address:
            // it is memory of this GPU that is not cached, and the GPU has a large BAR.
            let byte = unsafe { &*at(to).cast::<AtomicU8>() };
            // SAFETY: the caller's promise.
            byte.store(unsafe { from.read() }, Ordering::Release);
            // The processor may combine stores to a device.
            fence(Ordering::SeqCst);
            if self.flush != 0 {
                let register = std::ptr::with_exposed_provenance_mut::<u32>(self.flush);
                // SAFETY: the runtime has mapped the register, for good. Writing 1 flushes, and reading waits for that.
                unsafe {
                    register.write_volatile(1);
                    register.read_volatile();
                }
            }
            return Ok(());
        }
        // SAFETY: the caller's promise.
        unsafe { self.copy_in(to, from, 1, alarm) }?;
        // SAFETY: as above.
        unsafe { self.stream_synchronize(alarm) }
    }
}

#[cfg(test)]
mod tests;
