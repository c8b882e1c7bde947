//! NVTX: the program's side of the protocol of version 3.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{LazyLock, Mutex, OnceLock, PoisonError};

use libloading::os::unix;
use tidegate_hal::variables::NVTX_INJECTION;

use super::missing::{Missing, function};
use crate::open;

/// A profiler that was initialised.
#[derive(Debug)]
pub(super) struct Nvtx {
    pub(super) library: String,
    /// The domain of tidegate's ranges, as the profiler calls it. It is nothing but passed back.
    domain: AtomicPtr<c_void>,
}

/// A place for one function of the profiler; null if it has none.
type Slot = AtomicPtr<c_void>;

/// The slots of a module, as the protocol wants them: an array of pointers to slots, of which the first is null, with
/// a null behind.
struct Table {
    slots: Vec<Slot>,
    pointers: Vec<*const Slot>,
}

// SAFETY: the pointers are those of the table's own slots, which are atomic.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

impl Table {
    fn new(functions: usize) -> Self {
        let slots: Vec<_> = (0..functions).map(|_| Slot::default()).collect();
        let each = slots.iter().map(ptr::from_ref);
        let null = || std::iter::once(ptr::null());
        let pointers = null().chain(each).chain(null()).collect();
        Table { slots, pointers }
    }

    /// The function with a number of the protocol, from 1.
    fn get(&self, number: usize) -> Option<ptr::NonNull<c_void>> {
        ptr::NonNull::new(self.slots[number - 1].load(Ordering::Acquire))
    }
}

/// The modules 1 to 6 of the protocol, with the number of functions of each. Tidegate calls those of the fifth only. But
/// profilers may expect that a program has all.
static TABLES: LazyLock<[Table; 6]> = LazyLock::new(|| [15, 8, 14, 6, 15, 6].map(Table::new));

/// The module whose functions have a domain, and the numbers of those functions.
const CORE2: usize = 5;
const DOMAIN_RANGE_PUSH: usize = 4;
const DOMAIN_RANGE_POP: usize = 5;
const DOMAIN_CREATE: usize = 12;

fn core2() -> &'static Table {
    &TABLES[CORE2 - 1]
}

/// What the profiler gets as table 1.
#[repr(C)]
struct Callbacks {
    size: usize,
    module: extern "C" fn(c_int, *mut *const *const Slot, *mut c_uint) -> c_int,
}

/// What the profiler gets as table 3.
#[repr(C)]
struct Version {
    size: usize,
    version: u32,
    reserved: u32,
    set: extern "C" fn(u32),
}

static CALLBACKS: Callbacks = Callbacks {
    size: size_of::<Callbacks>(),
    module,
};

static VERSION: Version = Version {
    size: size_of::<Version>(),
    version: NVTX_VERSION as u32,
    reserved: 0,
    set: ignore,
};

const NVTX_VERSION: u16 = 3;

extern "C" fn ignore(_: u32) {}

extern "C" fn tables(id: u32) -> *const c_void {
    match id {
        1 => ptr::from_ref(&CALLBACKS).cast(),
        3 => ptr::from_ref(&VERSION).cast(),
        _ => ptr::null(),
    }
}

/// Returns the table of a module.
extern "C" fn module(module: c_int, table: *mut *const *const Slot, size: *mut c_uint) -> c_int {
    let found = usize::try_from(module)
        .ok()
        .and_then(|number| number.checked_sub(1));
    let Some(found) = found.and_then(|index| TABLES.get(index)) else {
        return 0;
    };
    if !table.is_null() {
        // SAFETY: the protocol gives a place for the pointer, or null.
        unsafe { *table = found.pointers.as_ptr() };
    }
    if !size.is_null() {
        // SAFETY: as above. The null at the end does not count.
        unsafe { *size = found.pointers.len() as c_uint - 1 };
    }
    1
}

/// `nvtxEventAttributes_t`.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    category: u32,
    color_type: i32,
    color: u32,
    payload_type: i32,
    reserved: i32,
    payload: u64,
    message_type: i32,
    message: *const c_char,
}

/// The message is text that ends with a zero byte.
const ASCII: i32 = 1;

impl Nvtx {
    pub(super) fn get() -> Result<&'static Self, Missing> {
        static ONE: OnceLock<Nvtx> = OnceLock::new();
        static FIRST: Mutex<()> = Mutex::new(());
        let _first = FIRST.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(one) = ONE.get() {
            return Ok(one);
        }
        let nvtx = Self::load()?;
        Ok(ONE.get_or_init(|| nvtx))
    }

    fn load() -> Result<Self, Missing> {
        let path = std::env::var_os(NVTX_INJECTION.name).filter(|path| !path.is_empty());
        let path = path.ok_or(Missing::NoProfiler {
            variable: NVTX_INJECTION.name,
        })?;
        let flags = unix::RTLD_NOW | unix::RTLD_LOCAL;
        // SAFETY: whoever set the variable vouches for the library, as with each program that has NVTX.
        let opened = unsafe { open::first(&[path], flags) };
        let (library, shown) = opened.map_err(|tried| Missing::NoLibrary {
            what: "NVTX",
            tried,
        })?;
        type Initialize = unsafe extern "C" fn(extern "C" fn(u32) -> *const c_void) -> c_int;
        // SAFETY: the protocol gives the function this type.
        let initialize =
            unsafe { function::<Initialize>(&library, "InitializeInjectionNvtx2", &shown) }?;
        // The profiler may have begun threads, also if it refuses.
        std::mem::forget(library);
        // SAFETY: `tables` returns the tables of the protocol, which live as long as the process. `get` lets one thread
        // come here at a time, and none after the profiler has accepted.
        if unsafe { initialize(tables) } == 0 {
            return Err(Missing::Refused { library: shown });
        }
        let create = core2().get(DOMAIN_CREATE);
        let domain = create.map_or(ptr::null_mut(), |create| {
            type Create = unsafe extern "C" fn(*const c_char) -> *mut c_void;
            // SAFETY: the profiler has put a function of this type there.
            let create: Create = unsafe { std::mem::transmute(create.as_ptr()) };
            // SAFETY: the text ends with a zero byte.
            unsafe { create(c"tidegate".as_ptr()) }
        });
        Ok(Nvtx {
            library: shown,
            domain: AtomicPtr::new(domain),
        })
    }

    pub(super) fn push(&self, text: &CStr) {
        type Push = unsafe extern "C" fn(*mut c_void, *const Attributes) -> c_int;
        let Some(push) = core2().get(DOMAIN_RANGE_PUSH) else {
            return;
        };
        let attributes = Attributes {
            version: NVTX_VERSION,
            size: size_of::<Attributes>() as u16,
            category: 0,
            color_type: 0,
            color: 0,
            payload_type: 0,
            reserved: 0,
            payload: 0,
            message_type: ASCII,
            message: text.as_ptr(),
        };
        // SAFETY: the profiler has put a function of this type there.
        let push: Push = unsafe { std::mem::transmute(push.as_ptr()) };
        // SAFETY: the domain is the profiler's own. It copies the message before it returns.
        unsafe { push(self.domain.load(Ordering::Relaxed), &attributes) };
    }

    pub(super) fn pop(&self) {
        type Pop = unsafe extern "C" fn(*mut c_void) -> c_int;
        let Some(pop) = core2().get(DOMAIN_RANGE_POP) else {
            return;
        };
        // SAFETY: the profiler has put a function of this type there.
        let pop: Pop = unsafe { std::mem::transmute(pop.as_ptr()) };
        // SAFETY: the domain is the profiler's own.
        unsafe { pop(self.domain.load(Ordering::Relaxed)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_those_of_the_headers() {
        assert_eq!(size_of::<Attributes>(), 48);
        assert_eq!(std::mem::offset_of!(Attributes, message_type), 32);
        assert_eq!(std::mem::offset_of!(Attributes, message), 40);
        assert_eq!(size_of::<Version>(), 24);
        assert_eq!(size_of::<Callbacks>(), 16);
    }

    #[test]
    fn modules_that_there_are_not_have_no_table() {
        let (mut table, mut size) = (ptr::null(), 0);
        for (number, functions) in [(1, 16), (2, 9), (3, 15), (4, 7), (5, 16), (6, 7)] {
            assert_eq!(module(number, &mut table, &mut size), 1);
            assert_eq!(size, functions);
        }
        for number in [-1, 0, 7] {
            assert_eq!(module(number, &mut table, &mut size), 0);
        }
        assert!(tables(2).is_null() && !tables(1).is_null());
    }
}
