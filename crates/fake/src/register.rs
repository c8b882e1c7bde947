//! The pages that streams store to. Either they fault, and each store counts, or they are plain memory.

use crate::plain::Plain;

/// The pages of a counter.
pub(crate) enum Register {
    #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
    Faulting(crate::strike::Register),
    Plain(Plain),
}

impl Register {
    /// Makes pages, if that is possible here.
    pub(crate) fn new(plain: bool) -> Option<Self> {
        if plain {
            return Some(Register::Plain(Plain::new()));
        }
        #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
        return crate::strike::Register::new().map(Register::Faulting);
        #[cfg(not(all(target_arch = "x86_64", target_os = "linux")))]
        None
    }

    /// Their address and length.
    pub(crate) fn pages(&self) -> (usize, usize) {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Register::Faulting(register) => {
                (register.page() as usize, crate::strike::Register::BYTES)
            }
            Register::Plain(plain) => (plain.page().expose_provenance(), Plain::BYTES),
        }
    }

    /// The sum of the stores since the last call.
    pub(crate) fn take(&self) -> u64 {
        match self {
            #[cfg(all(target_arch = "x86_64", target_os = "linux"))]
            Register::Faulting(register) => register.take(),
            Register::Plain(plain) => plain.take(),
        }
    }
}
