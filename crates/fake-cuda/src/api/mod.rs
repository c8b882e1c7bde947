//! The driver's functions.
//!
//! Handles are taken and given as numbers, which C cannot tell from pointers; enumerations as the integers that they
//! are, whatever the caller has put there. There is what `tidegate-ffi` calls, and what `cudarc` does for a program
//! that has streams, memory and kernels of that; what the first knows and nobody calls refuses.

mod device;
mod graph;
mod memory;
mod module;
mod stream;
mod unsupported;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use crate::codes;
use crate::settings::Settings;
use crate::state::state;

thread_local! {
    /// The calling thread's context: that of which device, counted from 1.
    static CONTEXT: Cell<usize> = const { Cell::new(0) };
}

/// What every call does first: whether it is refused.
fn enter(name: &'static str) -> Result<(), i32> {
    let refusals = &Settings::get().refusals;
    if let Some((call, code)) = refusals.get(name) {
        static CALLS: Mutex<Option<HashMap<&str, u64>>> = Mutex::new(None);
        let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        let count = calls.get_or_insert_default().entry(name).or_default();
        *count += 1;
        if count == call {
            return Err(*code);
        }
    }
    match state().lost {
        true => Err(codes::LAUNCH_FAILED),
        false => Ok(()),
    }
}

/// The device whose context the calling thread has.
fn current() -> Result<i32, i32> {
    match CONTEXT.get() {
        0 => Err(codes::INVALID_CONTEXT),
        context => Ok(context as i32 - 1),
    }
}

/// Writes what a call gives.
///
/// # Safety
///
/// `to` is null, or may be written.
unsafe fn give<T>(to: *mut T, value: T) -> Result<(), i32> {
    if to.is_null() {
        return Err(codes::INVALID_VALUE);
    }
    // SAFETY: the caller's promise.
    unsafe { to.write(value) };
    Ok(())
}

/// Functions of the driver. Each body gives what the call returns; its pointers are what the driver's documentation
/// says, as whoever calls it has promised.
macro_rules! api {
    ($($(#[$meta:meta])* fn $name:ident($($arg:ident: $type:ty),* $(,)?) $body:block)*) => {$(
        $(#[$meta])*
        #[unsafe(no_mangle)]
        #[allow(non_snake_case, clippy::too_many_arguments, reason = "it is the driver's")]
        unsafe extern "C" fn $name($($arg: $type),*) -> i32 {
            let done = $crate::api::enter(stringify!($name)).and_then(|()| {
                #[allow(clippy::redundant_closure_call, reason = "the body may return early")]
                (|| -> Result<(), i32> { $body })()
            });
            done.err().unwrap_or($crate::codes::SUCCESS)
        }
    )*};
}
use api;
