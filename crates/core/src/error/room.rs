//! Lists for which a shortage of memory is an error.

use tidegate_hal::device::DeviceError;

use super::{Error, Result};

/// An empty list with room for `len` elements, which are all that will be added. A program or another rank chooses how
/// many they are, so a shortage of memory must be an error, and must not end the process.
pub(crate) fn reserved<T>(len: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    match list.try_reserve_exact(len) {
        Ok(()) => Ok(list),
        Err(_) => Err(no_memory::<T>(len)),
    }
}

/// Adds to a list whose final length is not known.
pub(crate) fn push<T>(list: &mut Vec<T>, entry: T) -> Result<()> {
    if list.try_reserve(1).is_err() {
        return Err(no_memory::<T>(list.len() + 1));
    }
    list.push(entry);
    Ok(())
}

/// The error if a list of `len` elements has no room.
#[cold]
pub(crate) fn no_memory<T>(len: usize) -> Error {
    let detail = format!("a list of {len} entries of {} bytes", size_of::<T>());
    Error::Device(DeviceError::Exhausted {
        what: "memory",
        detail,
    })
}
