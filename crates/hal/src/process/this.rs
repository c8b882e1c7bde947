//! Processes, and the mappings that their children do not get.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, Once};

use rustix::io::Errno;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous};

use crate::error::DeviceError;
use crate::limits::refused;
use crate::lock;
use crate::memory::Ptr;

use super::Forked;

/// How many forks led to this process. It changes only in a child, before the child's one thread returns from `fork`:
/// so relaxed accesses suffice.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// The process that made a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Process(u32);

impl Process {
    /// The calling process.
    pub fn this() -> Self {
        static LISTENING: Once = Once::new();
        LISTENING.call_once(listen);
        Process(FORKS.load(Ordering::Relaxed))
    }

    /// Whether it is the calling process, and not one that the calling process was forked from. Costs one load.
    #[inline]
    pub fn is_this(self) -> bool {
        FORKS.load(Ordering::Relaxed) == self.0
    }

    /// Fails if the calling process is a child of that one.
    ///
    /// # Errors
    ///
    /// [`Forked`].
    #[inline]
    pub fn check(self) -> Result<(), Forked> {
        if self.is_this() { Ok(()) } else { Err(Forked) }
    }
}

/// Asks the C library to be told of forks.
fn listen() {
    if cfg!(miri) {
        // Miri knows neither the function nor `fork`.
        return;
    }
    // SAFETY: the three functions take no arguments and stay loaded. In the child they do only what is allowed there:
    // they change memory of this library, and call `mmap`.
    let code = unsafe { libc::pthread_atfork(Some(before), Some(in_parent), Some(in_child)) };
    assert_eq!(
        code, 0,
        "the C library has no memory to note that it is to tell of forks"
    );
}

/// The lengths of the mappings that children do not get, by their first addresses.
static MAPPINGS: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

fn mappings() -> MutexGuard<'static, BTreeMap<usize, usize>> {
    lock(&MAPPINGS)
}

thread_local! {
    /// Held while this thread forks, so that the child does not find the list in the middle of another thread's change.
    static HELD: Cell<Option<MutexGuard<'static, BTreeMap<usize, usize>>>> = const { Cell::new(None) };
}

extern "C" fn before() {
    // When the thread is ending, its thread-local storage may be gone. Then the child does without the pages.
    let _ = HELD.try_with(|held| held.set(Some(mappings())));
}

extern "C" fn in_parent() {
    let _ = HELD.try_with(Cell::take);
}

extern "C" fn in_child() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    let Ok(Some(mappings)) = HELD.try_with(Cell::take) else {
        return;
    };
    // The child must not allocate memory in a hole, because there may be references to what was there.
    for (base, bytes) in mappings.iter() {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        let base = std::ptr::with_exposed_provenance_mut(*base);
        // SAFETY: nothing is replaced: where something is mapped, the call fails.
        match unsafe { mmap_anonymous(base, *bytes, ProtFlags::empty(), flags) } {
            // The child has inherited a mapping at this address, for instance one that a driver arranged. So there is
            // no hole.
            Ok(_) | Err(Errno::EXIST) => {}
            // The parent had these addresses and as many mappings, and the pages take no memory. So the child is within
            // the limits that its parent was within. But by now the limits may be lower, or the kernel may be out of
            // memory. A child with a hole is not sound, so it ends.
            Err(_) => std::process::abort(),
        }
    }
}

/// A mapping that children do not get. In its place they have pages that nobody can read or write.
///
/// Dropping `M` unmaps it. In a child it is not dropped, and the pages stay for good.
#[derive(Debug)]
pub struct Unforked<M> {
    base: usize,
    process: Process,
    map: ManuallyDrop<M>,
}

impl<M> Unforked<M> {
    /// Keeps the pages `base..base + bytes` from children.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Exhausted`], [`DeviceError::System`]. Then `map` has been dropped.
    ///
    /// # Safety
    ///
    /// `base..base + bytes` is a mapping, or whole pages of one, and stays until `map` is dropped.
    pub unsafe fn new(map: M, base: Ptr, bytes: usize) -> Result<Self, DeviceError> {
        let process = Process::this();
        // SAFETY: the caller's promise; this process goes on as before.
        unsafe { madvise(base.0.cast(), bytes, Advice::LinuxDontFork) }.map_err(|error| {
            let doing = "keeping shared memory from children (MADV_DONTFORK)";
            refused(doing, bytes, error)
        })?;
        let base = base.0.expose_provenance();
        mappings().insert(base, bytes);
        Ok(Unforked {
            base,
            process,
            map: ManuallyDrop::new(map),
        })
    }

    /// The value that unmaps it.
    #[inline]
    pub fn get(&self) -> &M {
        &self.map
    }
}

impl<M> Drop for Unforked<M> {
    fn drop(&mut self) {
        if self.process.is_this() {
            // Forget the mapping before it is unmapped: after that, another thread may map something at the same
            // address.
            mappings().remove(&self.base);
            // SAFETY: this is its only drop.
            unsafe { ManuallyDrop::drop(&mut self.map) };
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::ptr::null_mut;

    use rustix::mm::munmap;

    use super::*;

    /// A page that checks, when it is dropped, that it is no longer in the list.
    struct Page(*mut u8);

    impl Drop for Page {
        fn drop(&mut self) {
            let known = mappings().contains_key(&self.0.addr());
            // SAFETY: the page was mapped by the test, and is not used any more.
            unsafe { munmap(self.0.cast(), 4096) }.unwrap();
            assert!(!known, "another thread may have mapped there by now");
        }
    }

    #[test]
    fn a_mapping_is_forgotten_before_it_is_unmapped() {
        // SAFETY: the kernel chooses the address.
        let page = unsafe {
            mmap_anonymous(null_mut(), 4096, ProtFlags::READ, MapFlags::PRIVATE).unwrap()
        };
        let base = Ptr(page.cast());
        // SAFETY: `Page` unmaps it.
        let unforked = unsafe { Unforked::new(Page(base.0), base, 4096) }.unwrap();
        assert!(mappings().contains_key(&base.0.addr()));
        drop(unforked);
        assert!(!mappings().contains_key(&base.0.addr()));
    }
}
