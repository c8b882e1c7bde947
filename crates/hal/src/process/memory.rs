//! Reading another process's memory.
//!
//! # Model
//!
//! Two processes of one user can often read each other's memory by a call of the system, which copies once. Whether that
//! is allowed depends on the machine, on containers and on the user. So a process tells others a number and where it lies
//! ([`Readable`]). A process that wants to read another one's memory tries once to read that number.
//!
//! Each later read reads the number again, in the same call of the system. If the process has ended meanwhile, and another
//! one has its id, the number is not there.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// A process whose memory others may be able to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Readable {
    process: u32,
    /// Where the number lies in the process.
    at: u64,
    number: u64,
}

impl Readable {
    /// This process.
    pub fn here() -> Self {
        static NUMBER: OnceLock<u64> = OnceLock::new();
        // Each hasher has random keys of its own, of the system's.
        let number = NUMBER.get_or_init(|| RandomState::new().build_hasher().finish());
        Readable {
            process: std::process::id(),
            at: std::ptr::from_ref(number).expose_provenance() as u64,
            number: *number,
        }
    }

    /// Whether this process can read the other one's memory. It tries.
    pub fn can_be_read(self) -> bool {
        // Miri has no such call.
        // SAFETY: nothing is written.
        !cfg!(miri) && unsafe { self.read(0, std::ptr::null_mut(), 0) }
    }

    /// Copies `bytes` bytes, from an address of the process to memory of this one. Returns whether all of them were
    /// there, and the process was the one that is meant.
    ///
    /// The other process may write the bytes meanwhile; then the copy has any values.
    ///
    /// # Safety
    ///
    /// So many bytes at `to` may be written, and nobody else accesses them.
    pub unsafe fn read(self, from: u64, to: *mut u8, bytes: usize) -> bool {
        let mut number = 0_u64;
        let local = [
            (std::ptr::from_mut(&mut number).cast(), size_of::<u64>()),
            (to.cast(), bytes),
        ];
        let remote = [(self.at, size_of::<u64>()), (from, bytes)];
        let local = local.map(|(iov_base, iov_len)| libc::iovec { iov_base, iov_len });
        // These are addresses of the other process, which nothing uses as pointers here.
        let remote = remote.map(|(at, iov_len)| libc::iovec {
            iov_base: std::ptr::without_provenance_mut(at as usize),
            iov_len,
        });
        let Ok(process) = i32::try_from(self.process) else {
            return false;
        };
        // SAFETY: the system checks the other process's addresses. The number is this function's, and the caller promises
        // the rest of the memory here.
        let read =
            unsafe { libc::process_vm_readv(process, local.as_ptr(), 2, remote.as_ptr(), 2, 0) };
        usize::try_from(read) == Ok(size_of::<u64>() + bytes) && number == self.number
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn a_process_reads_itself_and_no_other_in_its_place() {
        let (here, from) = (Readable::here(), [1_u8, 2, 3]);
        let mut to = [0; 3];
        let at = from.as_ptr().expose_provenance() as u64;
        // SAFETY: the array has three bytes.
        assert!(here.can_be_read() && unsafe { here.read(at, to.as_mut_ptr(), 3) });
        assert_eq!(to, from);
        let other = Readable {
            number: here.number ^ 1,
            ..here
        };
        // SAFETY: as above.
        assert!(!other.can_be_read() && !unsafe { other.read(at, to.as_mut_ptr(), 3) });
    }

    #[test]
    fn what_is_not_there_is_not_read() {
        let mut to = [0_u8; 3];
        let here = Readable::here();
        // SAFETY: the array has three bytes.
        assert!(!unsafe { here.read(8, to.as_mut_ptr(), 3) });
        let gone = Readable {
            process: u32::MAX,
            ..here
        };
        assert!(!gone.can_be_read());
    }
}
