//! A method for each function of the table.

use std::ffi::{c_char, c_int, c_uchar, c_uint, c_ulonglong, c_void};

use super::error::{HipError, Result};
use super::load::Driver;
use super::sys::*;
use crate::hip_functions;

macro_rules! methods {
    (
        texts { $($texts:tt)* }
        $($group:ident { $($name:ident = $symbol:ident($($arg:ident: $type:ty),*);)* })*
    ) => {
        $(methods!(each $($name = $symbol($($arg: $type),*);)*);)*
    };
    (each $($name:ident = $symbol:ident($($arg:ident: $type:ty),*);)*) => {
        #[allow(clippy::too_many_arguments, reason = "the functions have as many")]
        impl Driver {
            $(
                #[doc = concat!("Calls `", stringify!($symbol), "`.")]
                ///
                /// # Safety
                ///
                #[doc = concat!("As AMD documents for `", stringify!($symbol), "`: handles are live, and not used again if")]
                /// the call destroys them. Pointers are valid for what the call reads and writes. Memory that work uses
                /// lives until the work is over, and nothing else accesses it meanwhile.
                pub unsafe fn $name(&self, $($arg: $type),*) -> Result<()> {
                    let call = stringify!($symbol);
                    self.here(call)?;
                    let Some(function) = self.table.$name else {
                        return Err(HipError::missing(call, self.library(), self.version()));
                    };
                    // SAFETY: the caller's promise.
                    self.check(call, unsafe { function($($arg),*) })
                }
            )*
        }
    };
}

hip_functions!(methods);
