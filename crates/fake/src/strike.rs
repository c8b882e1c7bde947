//! Registers: pages where each store counts.
//!
//! # Model
//!
//! Hardware sees every store, even two of the same value in a row; memory does not. So a page is not accessible. A
//! store faults. The handler opens the page, lets the processor execute this one instruction (by the trap flag), then
//! takes the value out and closes the page again. Only one thread at a time stores to a page, as streams do.
//!
//! # Failure
//!
//! Faults elsewhere go to the earlier handler. This works on x86-64 Linux only; other systems have no registers.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

const PAGE: usize = 4096;
const MOST: usize = 4096;
/// The trap flag.
const STEP: i64 = 0x100;

static PAGES: [AtomicUsize; MOST] = [const { AtomicUsize::new(0) }; MOST];
static COUNTS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

thread_local! {
    /// The number, plus 1, of the page that this thread stores to.
    static STEPPING: Cell<usize> = const { Cell::new(0) };
}

static mut BEFORE: MaybeUninit<libc::sigaction> = MaybeUninit::uninit();

/// A page of registers.
pub(crate) struct Register {
    number: usize,
    page: *mut c_void,
}

// SAFETY: the page is only named, never accessed, by this value; its count is atomic.
unsafe impl Send for Register {}

impl Register {
    pub(crate) const BYTES: usize = PAGE;

    /// Makes a page; `None` if there are no more.
    pub(crate) fn new() -> Option<Self> {
        static HANDLERS: Once = Once::new();
        HANDLERS.call_once(install);
        // SAFETY: a new mapping, of nobody else's addresses.
        let page = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            libc::mmap(null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0)
        };
        if page == libc::MAP_FAILED {
            return None;
        }
        for (number, place) in PAGES.iter().enumerate() {
            let free = place.compare_exchange(0, page as usize, Ordering::SeqCst, Ordering::SeqCst);
            if free.is_ok() {
                COUNTS[number].store(0, Ordering::SeqCst);
                return Some(Register { number, page });
            }
        }
        // SAFETY: it was mapped above, and given to nobody.
        unsafe { libc::munmap(page, PAGE) };
        None
    }

    pub(crate) fn page(&self) -> *mut c_void {
        self.page
    }

    /// The sum of the stores since the last call.
    pub(crate) fn take(&self) -> u64 {
        COUNTS[self.number].swap(0, Ordering::SeqCst)
    }
}

impl Drop for Register {
    fn drop(&mut self) {
        PAGES[self.number].store(0, Ordering::SeqCst);
        // SAFETY: it is this value's; a later store there is a fault, as it would be of hardware that is gone.
        unsafe { libc::munmap(self.page, PAGE) };
    }
}

fn install() {
    // SAFETY: both handlers call only what signal handlers may (mprotect is a system call), and access atomics, a
    // thread's own cell without a destructor, and the saved action, which is written before they can run.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = trapped as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        libc::sigaction(libc::SIGTRAP, &action, null_mut());
        action.sa_sigaction = faulted as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &action, (&raw mut BEFORE).cast());
    }
}

/// # Safety
///
/// `context` is a signal's.
unsafe fn step(context: *mut c_void, on: bool) {
    // SAFETY: the caller's promise.
    let registers = unsafe { &mut (*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs };
    let flags = &mut registers[libc::REG_EFL as usize];
    *flags = if on { *flags | STEP } else { *flags & !STEP };
}

unsafe extern "C" fn faulted(_: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a fault's information.
    let at = unsafe { (*info).si_addr() } as usize;
    let page = at & !(PAGE - 1);
    let number = PAGES
        .iter()
        .position(|place| page != 0 && place.load(Ordering::SeqCst) == page);
    match number {
        Some(number) => {
            STEPPING.set(number + 1);
            // SAFETY: the page is one of ours, and the context is this signal's.
            unsafe {
                libc::mprotect(
                    page as *mut c_void,
                    PAGE,
                    libc::PROT_READ | libc::PROT_WRITE,
                );
                step(context, true);
            }
        }
        // SAFETY: the action was saved before this handler could run; the instruction faults again, and finds that one.
        None => unsafe {
            libc::sigaction(libc::SIGSEGV, (&raw const BEFORE).cast(), null_mut());
        },
    }
}

unsafe extern "C" fn trapped(_: c_int, _: *mut libc::siginfo_t, context: *mut c_void) {
    let number = STEPPING.replace(0);
    if number == 0 {
        return;
    }
    let page = PAGES[number - 1].load(Ordering::SeqCst) as *mut c_void;
    // SAFETY: the page is open since the fault, and this thread alone stores there; the context is this signal's.
    unsafe {
        let value = page.cast::<u64>().read_volatile();
        page.cast::<u64>().write_volatile(0);
        libc::mprotect(page, PAGE, libc::PROT_NONE);
        COUNTS[number - 1].fetch_add(value, Ordering::SeqCst);
        step(context, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_store_counts() {
        let registers: Vec<_> = (0..3).map(|_| Register::new().unwrap()).collect();
        std::thread::scope(|scope| {
            for register in &registers {
                let place = register.page() as usize;
                scope.spawn(move || {
                    for _ in 0..500 {
                        // SAFETY: the page is the test's, and this thread alone stores there.
                        unsafe { (place as *mut u64).write_volatile(1) };
                    }
                });
            }
        });
        assert_eq!(registers.iter().map(Register::take).sum::<u64>(), 1500);
        assert_eq!(registers[0].take(), 0);
    }
}
