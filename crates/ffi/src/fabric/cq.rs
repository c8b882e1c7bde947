//! Completion queues.

use std::ffi::{CStr, c_char};
use std::mem::{align_of, offset_of, size_of};
use std::ptr::{null, null_mut};
use std::sync::Arc;
use std::time::Duration;

use super::counter::{WaitObject, milliseconds};
use super::domain::Domain;
use super::error::{FabricError, Result, errno_name};
use super::object::{Owned, operation, required};
use super::sys::{self, Zeroed};

/// An operation that is complete (`struct fi_cq_data_entry`).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Completion {
    /// The operation's context. For operations of peers it can be anything.
    pub context: usize,
    /// The kind of operation, and whether it carried data.
    pub flags: u64,
    /// How many bytes have arrived.
    pub len: usize,
    /// Their address, for some receives.
    pub buffer: usize,
    /// The data that a write or message carried.
    pub data: u64,
}

const _: () = {
    assert!(size_of::<Completion>() == size_of::<sys::fi_cq_data_entry>());
    assert!(align_of::<Completion>() == align_of::<sys::fi_cq_data_entry>());
    assert!(offset_of!(Completion, data) == offset_of!(sys::fi_cq_data_entry, data));
    assert!(offset_of!(Completion, buffer) == offset_of!(sys::fi_cq_data_entry, buf));
};

impl Completion {
    /// The data that a peer's write or message carried to this end. (Some providers also set the flag for it in the
    /// completion of this end's write. That does not count.)
    pub fn remote_data(&self) -> Option<u64> {
        let came = self.flags & (sys::FI_REMOTE_WRITE | sys::FI_RECV) != 0;
        (came && self.flags & sys::FI_REMOTE_CQ_DATA != 0).then_some(self.data)
    }
}

/// An operation that failed (`struct fi_cq_err_entry`).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the operation with context {context:#x} failed: {name} ({code}), the provider says {prov_errno}: {text}"
)]
pub struct CompletionError {
    /// The operation's context.
    pub context: usize,
    /// The kind of operation.
    pub flags: u64,
    /// The error, positive (`FI_E…`).
    pub code: i32,
    /// The code's name.
    pub name: &'static str,
    /// The provider's own code.
    pub prov_errno: i32,
    /// The provider's text for that code.
    pub text: String,
}

/// Why nothing could be read from a queue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CqError {
    /// The next entry in the queue is a failed operation. Later entries can be read now.
    #[error(transparent)]
    Completion(#[from] CompletionError),
    /// The queue cannot be read.
    #[error(transparent)]
    Queue(#[from] FabricError),
}

/// A queue of operations that are complete (`fi_cq(3)`).
pub struct CompletionQueue {
    raw: Owned<sys::fid_cq>,
    domain: Arc<Domain>,
}

impl CompletionQueue {
    /// Makes an empty queue (`fi_cq_open`), with room for `size` entries, or for the provider's default (0).
    ///
    /// # Errors
    ///
    /// The errors of the provider.
    pub fn open(
        domain: &Arc<Domain>,
        size: usize,
        wait: WaitObject,
    ) -> Result<Arc<CompletionQueue>> {
        const CALL: &str = "fi_cq_open";
        // SAFETY: the table lives as long as the domain.
        let open = unsafe { required!(domain.ops(), fi_ops_domain, cq_open, CALL) }?;
        let mut attr = sys::fi_cq_attr::zeroed();
        attr.size = size;
        attr.format = sys::FI_CQ_FORMAT_DATA;
        attr.wait_obj = wait.0;
        let mut raw = null_mut();
        // SAFETY: the domain is alive, and so are the attributes; one pointer is written into a live variable.
        let answer = unsafe { open(domain.as_raw(), &mut attr, &mut raw, null_mut()) };
        domain.library().check(CALL, answer.into())?;
        // SAFETY: the library made it for this caller.
        let raw = unsafe { Owned::new(domain.library(), CALL, raw) }?;
        Ok(Arc::new(CompletionQueue {
            raw,
            domain: Arc::clone(domain),
        }))
    }

    pub(crate) fn object(&self) -> &Owned<sys::fid_cq> {
        &self.raw
    }

    fn ops(&self) -> *const sys::fi_ops_cq {
        // SAFETY: the object lives as long as this value.
        unsafe { (*self.raw.as_ptr()).ops }
    }

    /// The domain.
    pub fn domain(&self) -> &Arc<Domain> {
        &self.domain
    }

    /// Takes entries from the queue, as many as `into` has room for, and returns how many (`fi_cq_read`). With manual
    /// progress, this makes some, even without room.
    ///
    /// # Errors
    ///
    /// [`CqError::Completion`] if the next entry is a failed operation. The entry is taken.
    pub fn read(&self, into: &mut [Completion]) -> Result<usize, CqError> {
        const CALL: &str = "fi_cq_read";
        // SAFETY: the table lives as long as the queue.
        let read = unsafe { required!(self.ops(), fi_ops_cq, read, CALL) }?;
        // SAFETY: the queue is alive; it writes entries of the format that it was opened with, to as many that live.
        let answer = unsafe { read(self.raw.as_ptr(), into.as_mut_ptr().cast(), into.len()) };
        self.taken(CALL, answer as i64)
    }

    /// Like [`read`](Self::read), but waits for an entry, no longer than `limit` (`fi_cq_sread`). Returns 0 if none
    /// came.
    ///
    /// # Errors
    ///
    /// Those of [`read`](Self::read), and an error if the queue cannot be waited for.
    pub fn wait(&self, into: &mut [Completion], limit: Duration) -> Result<usize, CqError> {
        const CALL: &str = "fi_cq_sread";
        // SAFETY: the table lives as long as the queue.
        let read = unsafe { required!(self.ops(), fi_ops_cq, sread, CALL) }?;
        // SAFETY: as for `read`; there is no condition.
        let answer = unsafe {
            read(
                self.raw.as_ptr(),
                into.as_mut_ptr().cast(),
                into.len(),
                null(),
                milliseconds(limit),
            )
        };
        self.taken(CALL, answer as i64)
    }

    /// Ends the [`wait`](Self::wait) of another thread (`fi_cq_signal`).
    ///
    /// # Errors
    ///
    /// An error if the queue cannot be waited for.
    pub fn signal(&self) -> Result<()> {
        const CALL: &str = "fi_cq_signal";
        // SAFETY: the table lives as long as the queue.
        let signal = unsafe { required!(self.ops(), fi_ops_cq, signal, CALL) }?;
        // SAFETY: the queue is alive.
        let answer = unsafe { signal(self.raw.as_ptr()) };
        self.domain.library().check(CALL, answer.into())
    }

    fn taken(&self, call: &'static str, answer: i64) -> Result<usize, CqError> {
        if let Ok(taken) = usize::try_from(answer) {
            return Ok(taken);
        }
        if answer == -i64::from(sys::FI_EAVAIL) {
            return match self.read_error()? {
                Some(error) => Err(error.into()),
                // Another thread has taken the entry.
                None => Ok(0),
            };
        }
        let nothing = [
            sys::FI_EAGAIN,
            sys::FI_ETIMEDOUT,
            sys::FI_EINTR,
            sys::FI_ECANCELED,
        ];
        if nothing.iter().any(|code| answer == -i64::from(*code)) {
            return Ok(0);
        }
        Err(self.domain.library().error(call, answer).into())
    }

    /// Takes the entry of a failed operation (`fi_cq_readerr`), if that comes next.
    ///
    /// # Errors
    ///
    /// An error if the queue cannot be read.
    pub fn read_error(&self) -> Result<Option<CompletionError>> {
        const CALL: &str = "fi_cq_readerr";
        // SAFETY: the table lives as long as the queue.
        let read = unsafe { required!(self.ops(), fi_ops_cq, readerr, CALL) }?;
        // There is no room for the provider's own data: `err_data_size` is 0.
        let mut error = sys::cq_err_entry::zeroed();
        // SAFETY: the queue is alive; one entry is written into a live variable, with room for what newer libraries
        // add.
        let answer = unsafe { read(self.raw.as_ptr(), &mut error.entry, 0) };
        match answer as i64 {
            1 => {
                let entry = &error.entry;
                Ok(Some(CompletionError {
                    context: entry.op_context as usize,
                    flags: entry.flags,
                    code: entry.err,
                    name: errno_name(entry.err),
                    prov_errno: entry.prov_errno,
                    text: self.describe(entry),
                }))
            }
            0 => Ok(None),
            answer if answer == -i64::from(sys::FI_EAGAIN) => Ok(None),
            answer => Err(self.domain.library().error(CALL, answer)),
        }
    }

    /// The provider's text (`fi_cq_strerror`), or else the library's.
    fn describe(&self, entry: &sys::fi_cq_err_entry) -> String {
        // SAFETY: the table lives as long as the queue.
        if let Some(strerror) = unsafe { operation!(self.ops(), fi_ops_cq, strerror) } {
            let mut buffer = [0 as c_char; 256];
            // SAFETY: the queue is alive; no data of the provider's was asked for, so none is passed on; the buffer has
            // room for so many bytes.
            let text = unsafe {
                strerror(
                    self.raw.as_ptr(),
                    entry.prov_errno,
                    null(),
                    buffer.as_mut_ptr(),
                    buffer.len() - 1,
                )
            };
            if !text.is_null() {
                // SAFETY: it is the buffer, whose last byte stays 0, or a string of the provider's that ends with a
                // NUL.
                let text = unsafe { CStr::from_ptr(text) }.to_string_lossy();
                if !text.is_empty() {
                    return text.into_owned();
                }
            }
        }
        self.domain.library().describe(entry.err)
    }
}

impl std::fmt::Debug for CompletionQueue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "CompletionQueue({:p})", self.raw.as_ptr())
    }
}
