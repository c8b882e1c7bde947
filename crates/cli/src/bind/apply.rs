//! Binding the calling thread, also between fork and exec.

use super::error::BindError;
use super::plan::Binding;
use std::io;

/// A binding in the form that the kernel takes. It is made before the fork, since the child must not allocate.
#[derive(Clone, Debug)]
pub(crate) struct Masks {
    processors: Vec<libc::c_ulong>,
    memory: Option<Vec<libc::c_ulong>>,
}

const BITS: usize = libc::c_ulong::BITS as usize;

fn mask(numbers: impl Iterator<Item = usize>) -> Vec<libc::c_ulong> {
    let mut mask = Vec::new();
    for number in numbers {
        let word = number / BITS;
        if mask.len() <= word {
            mask.resize(word + 1, 0);
        }
        mask[word] |= 1 << (number % BITS);
    }
    mask
}

impl Masks {
    pub(crate) fn of(binding: &Binding) -> Self {
        Self {
            processors: mask(binding.processors.iter()),
            memory: binding.memory.map(|node| mask(std::iter::once(node))),
        }
    }

    /// Binds the calling thread, and so the threads and programs that it starts. It only makes system calls, so it may
    /// be called between fork and exec.
    pub(crate) fn apply(&self) -> io::Result<()> {
        self.bind_processors()?;
        self.prefer_memory()
    }

    fn bind_processors(&self) -> io::Result<()> {
        let bytes = std::mem::size_of_val(&*self.processors);
        // SAFETY: the kernel reads `bytes` bytes of the mask, which `self` holds. This is the plain system call, which
        // takes no lock and allocates nothing.
        let done = unsafe {
            libc::syscall(
                libc::SYS_sched_setaffinity,
                0,
                bytes,
                self.processors.as_ptr(),
            )
        };
        match done {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    fn prefer_memory(&self) -> io::Result<()> {
        let Some(memory) = &self.memory else {
            return Ok(());
        };
        // The kernel uses one bit less than this number.
        let bits = memory.len() * BITS + 1;
        // SAFETY: the kernel reads the words of the mask, which `self` holds: it rounds `bits - 1` up to whole words.
        // As above, this is a plain system call.
        let done = unsafe {
            libc::syscall(
                libc::SYS_set_mempolicy,
                libc::MPOL_PREFERRED,
                memory.as_ptr(),
                bits,
            )
        };
        match done {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Checks that the kernel would bind a thread in this way.
    pub(crate) fn attempt(&self, binding: &Binding) -> Result<(), BindError> {
        let refused = |what: String| move |source| BindError::Refused { what, source };
        let thread = std::thread::Builder::new().spawn({
            let (masks, processors) = (self.clone(), binding.processors.clone());
            let memory = binding.memory.unwrap_or_default();
            move || {
                let processors = format!("to bind a thread to processors {processors}");
                masks.bind_processors().map_err(refused(processors))?;
                let memory = format!("to let a thread prefer the memory of node {memory}");
                masks.prefer_memory().map_err(refused(memory))
            }
        });
        let thread = thread.map_err(refused("a thread to try it on".to_owned()))?;
        match thread.join() {
            Ok(tried) => tried,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }
}
