//! Lists whose shortage of memory is an error.

use tidegate_hal::device::DeviceError;

use super::{Error, Result};

/// An empty list with room for so many elements, of which no more are to be added: where a program or another rank chooses
/// how many they are, a shortage of memory is an error, and not the end of the process.
pub(crate) fn reserved<T>(len: usize) -> Result<Vec<T>> {
    let mut list = Vec::new();
    match list.try_reserve_exact(len) {
        Ok(()) => Ok(list),
        Err(_) => Err(no_memory::<T>(len)),
    }
}

/// Adds to a list of which nobody knows how long it will be.
pub(crate) fn push<T>(list: &mut Vec<T>, entry: T) -> Result<()> {
    if list.try_reserve(1).is_err() {
        return Err(no_memory::<T>(list.len() + 1));
    }
    list.push(entry);
    Ok(())
}

/// What is said where a list of so many elements has no room.
#[cold]
pub(crate) fn no_memory<T>(len: usize) -> Error {
    let detail = format!("a list of {len} entries of {} bytes", size_of::<T>());
    Error::Device(DeviceError::Exhausted {
        what: "memory",
        detail,
    })
}
