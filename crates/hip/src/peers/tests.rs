//! Memory for peers over a runtime without a GPU (`runtime.c`), which the C compiler makes.

use std::collections::HashMap;
use std::ffi::CString;
use std::process::Command;
use std::sync::MutexGuard;

use libloading::Library;
use tidegate_ffi::hip;

use super::*;
use crate::skipped;

/// The runtime, for one test at a time: its counters, and the table of memory, are of the process.
struct Runtime {
    library: Library,
    hip: &'static hip::Driver,
    _one: MutexGuard<'static, ()>,
}

impl Runtime {
    /// `None` if there is no C compiler.
    fn new(test: &str) -> Option<Self> {
        static ONE: Mutex<()> = Mutex::new(());
        static MADE: OnceLock<Option<(String, hip::Driver)>> = OnceLock::new();
        let one = lock(&ONE);
        let made = MADE.get_or_init(|| {
            let source = concat!(env!("CARGO_MANIFEST_DIR"), "/src/peers/runtime.c");
            let folder = std::env::temp_dir();
            let path = folder.join(format!("tidegate-hip-runtime-{}.so", std::process::id()));
            let path = path.to_str().expect("the folder's name is text").to_owned();
            let cc = Command::new("cc")
                .args([
                    "-shared",
                    "-fPIC",
                    "-w",
                    "-D_GNU_SOURCE",
                    "-o",
                    &path,
                    source,
                ])
                .status();
            if !cc.is_ok_and(|status| status.success()) {
                return None;
            }
            // SAFETY: the library has no initialisers, and its functions have HIP's types.
            let hip = unsafe { hip::Driver::load_from(&[&path], 0) };
            Some((path, hip.expect("it was just made")))
        });
        let Some((path, hip)) = made else {
            skipped::skipped(test, "there is no C compiler (`cc`)");
            return None;
        };
        // SAFETY: it is loaded already.
        let library = unsafe { Library::new(path) }.expect("it is loaded");
        let _ = std::fs::remove_file(path);
        let runtime = Runtime {
            library,
            hip,
            _one: one,
        };
        for name in [
            "frees",
            "closes",
            "unmaps",
            "copies",
            "peers",
            "refuses_uncached",
        ] {
            runtime.set(name, 0);
        }
        runtime.set("atomics", 1);
        with(|memory| *memory = Memory::default());
        Some(runtime)
    }

    fn number(&self, name: &str) -> *mut c_int {
        let name = CString::new(format!("tidegate_{name}")).unwrap();
        // SAFETY: the library's variables are of this type.
        unsafe {
            *self
                .library
                .get::<*mut c_int>(name.as_bytes_with_nul())
                .unwrap()
        }
    }

    fn get(&self, name: &str) -> c_int {
        // SAFETY: one test at a time uses the runtime, in one thread.
        unsafe { *self.number(name) }
    }

    fn set(&self, name: &str, value: c_int) {
        // SAFETY: as above.
        unsafe { *self.number(name) = value };
    }

    fn device(&self, ordinal: i32) -> HipDriver {
        HipDriver {
            hip: self.hip,
            ordinal,
            devices: vec![[1; 16], [2; 16]],
            pool: 0,
            mask: vec![u32::MAX],
            architecture: "gfx942".into(),
            whole: false,
            large_bar: true,
            flush: self.number("flush").expose_provenance(),
            parameters: Mutex::new(HashMap::new()),
        }
    }
}

#[test]
fn memory_is_freed_when_nobody_uses_it_and_nothing_waits() {
    let Some(runtime) = Runtime::new("memory_is_freed_when_nobody_uses_it_and_nothing_waits")
    else {
        return;
    };
    let [first, second] = [0, 1].map(|ordinal| runtime.device(ordinal));
    let memory = first.alloc_shared(1000).unwrap();
    assert_eq!(runtime.get("flags"), sys::hipDeviceMallocUncached as c_int);
    // SAFETY: the memory is given up once by each that has it, below.
    unsafe {
        let handle = first.export_shared(&memory).unwrap();
        // Ranks that are threads map the same address.
        let joined = second.map_shared(&handle, 1000).unwrap();
        assert_eq!(joined.base, memory.base);
        assert_eq!(
            runtime.get("peers"),
            1,
            "access to another GPU is made possible"
        );
        first.leave_shared(memory);
        assert!(!first.has_shared_left() && !second.has_shared_left());
        second.leave_shared(joined);
    }
    assert!(first.has_shared_left() && !second.has_shared_left());
    assert_eq!(runtime.get("frees"), 0, "something may wait");
    second.give_shared_up();
    assert_eq!(runtime.get("frees"), 0);
    first.give_shared_up();
    assert!(!first.has_shared_left());
    assert_eq!(runtime.get("frees"), 1);
}

#[test]
fn memory_that_a_peer_has_mapped_is_kept() {
    let Some(runtime) = Runtime::new("memory_that_a_peer_has_mapped_is_kept") else {
        return;
    };
    let device = runtime.device(1);
    let memory = device.alloc_shared(1000).unwrap();
    // SAFETY: the memory is not given up yet.
    let [one, late] = [0, 1].map(|_| unsafe { device.export_shared(&memory) }.unwrap());
    let (held, record) = Imports::default().hold(&one).unwrap().unwrap();
    assert_eq!(
        (record.device, record.offset, record.size),
        ([2; 16], 256, 1000)
    );
    // SAFETY: the memory is given up once.
    unsafe { device.leave_shared(memory) };
    for _ in 0..2 {
        device.give_shared_up();
        assert!(device.has_shared_left());
        assert_eq!(runtime.get("frees"), 0);
    }
    drop(held);
    device.give_shared_up();
    assert_eq!(runtime.get("frees"), 1);
    let gone = device.map_shared(&late, 1000).unwrap_err();
    assert!(matches!(gone, DeviceError::BadHandle(_)), "{gone}");
}

/// A peer's record of so many bytes of memory on the second GPU.
fn peer(at: *mut u8, size: u64) -> (Exports, u64, OwnedFd) {
    let exports = Exports::new().unwrap();
    let mut handle = [7; 64];
    handle[..8].copy_from_slice(&at.expose_provenance().to_ne_bytes());
    let (device, offset) = ([2; 16], 256);
    let record = Record {
        handle,
        device,
        offset,
        size,
    };
    let slot = exports.write(record).unwrap();
    let fd = exports.handle(slot).unwrap();
    (exports, slot, fd)
}

#[test]
fn a_peers_memory_is_held_from_before_it_is_opened_until_it_is_closed() {
    let Some(runtime) =
        Runtime::new("a_peers_memory_is_held_from_before_it_is_opened_until_it_is_closed")
    else {
        return;
    };
    let mut memory = vec![0u8; 4096];
    let (exports, slot, fd) = peer(memory.as_mut_ptr(), 1000);
    let again = fd.try_clone().unwrap();
    let device = runtime.device(0);
    let short = device.map_shared(&again, 1001).unwrap_err();
    assert!(
        short
            .to_string()
            .contains("the memory has 1000 bytes, not 1001"),
        "{short}"
    );
    runtime.set("atomics", 0);
    let error = device.map_shared(&again, 1000).unwrap_err();
    assert!(
        error.to_string().contains("GPU 0 to words of GPU 1"),
        "{error}"
    );
    runtime.set("atomics", 1);
    let mapped = device.map_shared(&fd, 1000).unwrap();
    assert_eq!(mapped.base, memory.as_ptr().addr() as u64 + 256);
    assert!(!exports.revoke(slot).unwrap());
    // SAFETY: the memory is given up once.
    unsafe { device.leave_shared(mapped) };
    assert!(!exports.revoke(slot).unwrap(), "it is still open");
    device.give_shared_up();
    assert_eq!(runtime.get("closes"), 1);
    assert!(exports.revoke(slot).unwrap());
}

#[test]
fn whole_memory_is_handed_over_by_its_own_descriptor() {
    let Some(runtime) = Runtime::new("whole_memory_is_handed_over_by_its_own_descriptor") else {
        return;
    };
    let mut device = runtime.device(1);
    device.whole = true;
    let memory = device.alloc_shared(1000).unwrap();
    assert_eq!(memory.size, 65536);
    // SAFETY: the memory is not given up yet.
    let handle = unsafe { device.export_shared(&memory) }.unwrap();
    let mapped = device.map_shared(&handle, 1000).unwrap();
    assert_eq!(mapped.size, 65536);
    assert_ne!(mapped.base, memory.base);
    // SAFETY: each is given up once.
    unsafe {
        device.leave_shared(memory);
        device.leave_shared(mapped);
    }
    device.give_shared_up();
    assert_eq!((runtime.get("unmaps"), runtime.get("frees")), (2, 0));
}

#[test]
fn memory_is_fine_grained_if_it_cannot_be_uncached() {
    let Some(runtime) = Runtime::new("memory_is_fine_grained_if_it_cannot_be_uncached") else {
        return;
    };
    runtime.set("refuses_uncached", 1);
    let device = runtime.device(0);
    let memory = device.alloc_shared(64).unwrap();
    assert_eq!(
        runtime.get("flags"),
        sys::hipDeviceMallocFinegrained as c_int
    );
    // SAFETY: the memory is given up once.
    unsafe { device.leave_shared(memory) };
    device.give_shared_up();
    assert_eq!(runtime.get("frees"), 1);
}

#[test]
fn poison_is_stored_by_the_host_where_it_can() {
    let Some(runtime) = Runtime::new("poison_is_stored_by_the_host_where_it_can") else {
        return;
    };
    let mut device = runtime.device(0);
    let memory = device.alloc_shared(64).unwrap();
    let byte = |index: u64| {
        let address = std::ptr::with_exposed_provenance::<u8>((memory.base + index) as usize);
        // SAFETY: the memory has 64 bytes, and nobody writes it now.
        unsafe { address.read() }
    };
    let alarm = Stream(null_mut());
    // SAFETY: the target is in the memory, which is not given up yet.
    unsafe { device.poke_byte(memory.base + 7, &0x40, alarm) }.unwrap();
    assert_eq!((byte(6), byte(7), byte(8)), (0, 0x40, 0));
    assert_eq!((runtime.get("flush"), runtime.get("copies")), (1, 0));
    // Elsewhere it is a copy.
    device.large_bar = false;
    // SAFETY: as above.
    unsafe { device.poke_byte(memory.base + 9, &3, alarm) }.unwrap();
    let mut other = 0u8;
    device.large_bar = true;
    let to = (&raw mut other).expose_provenance() as u64;
    // SAFETY: the target lives.
    unsafe { device.poke_byte(to, &5, alarm) }.unwrap();
    // SAFETY: as above; it was written through another pointer.
    let other = unsafe { (&raw const other).read_volatile() };
    assert_eq!((byte(9), other), (3, 5));
    assert_eq!(runtime.get("copies"), 2);
    // SAFETY: the memory is given up once.
    unsafe { device.leave_shared(memory) };
}
