//! Atomic operations on remote memory.

use std::ffi::c_void;

use super::domain::Domain;
use super::endpoint::{Desc, Endpoint, Post, Remote};
use super::error::{FabricError, Result};
use super::flags::OpFlags;
use super::object::required;
use super::sys::{self, Zeroed};

/// A type that atomic operations work on.
///
/// # Safety
///
/// `DATATYPE` is the library's name for this very type.
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// The library's name (`enum fi_datatype`).
    const DATATYPE: u32;
}

macro_rules! element {
    ($($type:ty = $name:ident;)*) => {$(
        // SAFETY: the header says so.
        unsafe impl Element for $type {
            const DATATYPE: u32 = sys::$name;
        }
    )*};
}

element! {
    i8 = FI_INT8;
    u8 = FI_UINT8;
    i16 = FI_INT16;
    u16 = FI_UINT16;
    i32 = FI_INT32;
    u32 = FI_UINT32;
    i64 = FI_INT64;
    u64 = FI_UINT64;
    f32 = FI_FLOAT;
    f64 = FI_DOUBLE;
}

/// What is done to the remote element (`enum fi_op`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct AtomicOp(pub u32);

impl AtomicOp {
    /// The smaller of the two.
    pub const MIN: Self = AtomicOp(sys::FI_MIN);
    /// The larger of the two.
    pub const MAX: Self = AtomicOp(sys::FI_MAX);
    /// The sum.
    pub const SUM: Self = AtomicOp(sys::FI_SUM);
    /// The product.
    pub const PROD: Self = AtomicOp(sys::FI_PROD);
    /// The bits of either.
    pub const BOR: Self = AtomicOp(sys::FI_BOR);
    /// The bits of both.
    pub const BAND: Self = AtomicOp(sys::FI_BAND);
    /// The bits of one of them.
    pub const BXOR: Self = AtomicOp(sys::FI_BXOR);
    /// Only to be fetched: the element as it is.
    pub const READ: Self = AtomicOp(sys::FI_ATOMIC_READ);
    /// The operand.
    pub const WRITE: Self = AtomicOp(sys::FI_ATOMIC_WRITE);
}

/// Elements of this end.
#[derive(Debug)]
pub struct Elements<T> {
    /// The first.
    pub address: *mut T,
    /// Their registration.
    pub desc: Desc,
}

impl<T> Clone for Elements<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Elements<T> {}

impl Domain {
    /// How many elements an atomic operation can take at a time (`fi_query_atomic`); `None` where the provider cannot
    /// do it at all. `fetch` is for operations that return the value from before.
    ///
    /// # Errors
    ///
    /// Whatever else the provider says.
    pub fn query_atomic<T: Element>(&self, op: AtomicOp, fetch: bool) -> Result<Option<usize>> {
        const CALL: &str = "fi_query_atomic";
        // SAFETY: the table lives as long as the domain.
        let query = unsafe { required!(self.ops(), fi_ops_domain, query_atomic, CALL) }?;
        let mut attr = sys::fi_atomic_attr::zeroed();
        let flags = if fetch { sys::FI_FETCH_ATOMIC } else { 0 };
        // SAFETY: the domain is alive, and one structure is written, to one that lives.
        let answer = unsafe { query(self.as_raw(), T::DATATYPE, op.0, &mut attr, flags) };
        if matches!(-answer, sys::FI_EOPNOTSUPP | sys::FI_EINVAL) {
            return Ok(None);
        }
        self.library().check(CALL, answer.into())?;
        Ok((attr.count > 0).then_some(attr.count))
    }
}

impl Endpoint {
    /// How many elements an atomic operation of this endpoint can take (`fi_atomicvalid`); `None` where it cannot do it at all.
    ///
    /// # Errors
    ///
    /// Whatever else the provider says.
    pub fn atomic_valid<T: Element>(&self, op: AtomicOp) -> Result<Option<usize>> {
        const CALL: &str = "fi_atomicvalid";
        // SAFETY: the table lives as long as the endpoint.
        let valid = unsafe { required!(self.atomics(), fi_ops_atomic, writevalid, CALL) }?;
        let mut count = 0;
        // SAFETY: the endpoint is alive, and one number is written, to one that lives.
        let answer = unsafe { valid(self.as_raw(), T::DATATYPE, op.0, &mut count) };
        self.valid(CALL, answer, count)
    }

    /// Likewise, for one that returns the value from before (`fi_fetch_atomicvalid`).
    ///
    /// # Errors
    ///
    /// Whatever else the provider says.
    pub fn fetch_atomic_valid<T: Element>(&self, op: AtomicOp) -> Result<Option<usize>> {
        const CALL: &str = "fi_fetch_atomicvalid";
        // SAFETY: the table lives as long as the endpoint.
        let valid = unsafe { required!(self.atomics(), fi_ops_atomic, readwritevalid, CALL) }?;
        let mut count = 0;
        // SAFETY: the endpoint is alive, and one number is written, to one that lives.
        let answer = unsafe { valid(self.as_raw(), T::DATATYPE, op.0, &mut count) };
        self.valid(CALL, answer, count)
    }

    fn valid(&self, call: &'static str, answer: i32, count: usize) -> Result<Option<usize>> {
        match -answer {
            0 => Ok((count > 0).then_some(count)),
            sys::FI_EOPNOTSUPP | sys::FI_EINVAL | sys::FI_ENOSYS => Ok(None),
            _ => Err(self.domain().library().error(call, answer.into())),
        }
    }

    /// Some providers find out at the *target* that they cannot do an operation, and end the target's process there.
    pub(crate) fn can<T: Element>(
        &self,
        call: &'static str,
        op: AtomicOp,
        fetch: bool,
        count: usize,
    ) -> Result<()> {
        let most = if fetch {
            self.fetch_atomic_valid::<T>(op)?
        } else {
            self.atomic_valid::<T>(op)?
        };
        let text = match most {
            Some(most) if count <= most => return Ok(()),
            Some(most) => format!("{count} elements, where {most} are possible"),
            None => format!("the operation {} on {}", op.0, std::any::type_name::<T>()),
        };
        let code = match most {
            Some(_) => sys::FI_EMSGSIZE,
            None => sys::FI_EOPNOTSUPP,
        };
        Err(FabricError {
            call,
            code,
            name: super::error::errno_name(code),
            text,
        })
    }

    /// Does something to remote elements, with operands that can be used again when this returns (`fi_inject_atomic`).
    ///
    /// # Errors
    ///
    /// [`is_not_supported`](FabricError::is_not_supported) where the provider cannot do it,
    /// [`is_too_long`](FabricError::is_too_long) beyond [`inject_size`](Self::inject_size), or for more than the
    /// provider takes at a time.
    pub fn inject_atomic<T: Element>(
        &self,
        operands: &[T],
        op: AtomicOp,
        to: Remote,
    ) -> Result<Post> {
        const CALL: &str = "fi_inject_atomic";
        let peer = self.number(CALL, to.peer)?;
        self.can_inject(CALL, size_of_val(operands))?;
        self.can::<T>(CALL, op, false, operands.len())?;
        // SAFETY: the table lives as long as the endpoint.
        let inject = unsafe { required!(self.atomics(), fi_ops_atomic, inject, CALL) }?;
        // SAFETY: the endpoint is alive; the operands are read before the call returns. What happens at the other end,
        // its owner agreed to.
        let answer = unsafe {
            inject(
                self.as_raw(),
                operands.as_ptr().cast(),
                operands.len(),
                peer,
                to.address,
                to.key,
                T::DATATYPE,
                op.0,
            )
        };
        self.posted(CALL, answer)
    }

    /// Does something to `count` remote elements (`fi_atomicmsg`).
    ///
    /// # Errors
    ///
    /// As for [`inject_atomic`](Self::inject_atomic), but for the size.
    ///
    /// # Safety
    ///
    /// As for [`write`](Self::write), for `count` elements at `operands`.
    pub unsafe fn atomic<T: Element>(
        &self,
        operands: Elements<T>,
        count: usize,
        op: AtomicOp,
        to: Remote,
        flags: OpFlags,
        context: usize,
    ) -> Result<Post> {
        const CALL: &str = "fi_atomicmsg";
        let peer = self.number(CALL, to.peer)?;
        self.can::<T>(CALL, op, false, count)?;
        // SAFETY: the table lives as long as the endpoint.
        let post = unsafe { required!(self.atomics(), fi_ops_atomic, writemsg, CALL) }?;
        let local = sys::fi_ioc {
            addr: operands.address.cast(),
            count,
        };
        let mut desc = operands.desc.0;
        let remote = sys::fi_rma_ioc {
            addr: to.address,
            count,
            key: to.key,
        };
        let mut message = sys::fi_msg_atomic::zeroed();
        message.msg_iov = &local;
        message.desc = &mut desc;
        message.iov_count = 1;
        message.addr = peer;
        message.rma_iov = &remote;
        message.rma_iov_count = 1;
        message.datatype = T::DATATYPE;
        message.op = op.0;
        message.context = context as *mut c_void;
        // SAFETY: the endpoint is alive; the message and its lists live until the call is over, and are copied; the
        // caller vouches for the operands and the context.
        let answer = unsafe { post(self.as_raw(), &message, flags.0) };
        self.posted(CALL, answer)
    }

    /// Does something to `count` remote elements, and gets their values from before (`fi_fetch_atomic`).
    ///
    /// # Errors
    ///
    /// As for [`atomic`](Self::atomic).
    ///
    /// # Safety
    ///
    /// As for [`atomic`](Self::atomic); and `results` is writable for `count` elements, and nobody else touches them.
    pub unsafe fn fetch_atomic<T: Element>(
        &self,
        operands: Elements<T>,
        results: Elements<T>,
        count: usize,
        op: AtomicOp,
        to: Remote,
        context: usize,
    ) -> Result<Post> {
        const CALL: &str = "fi_fetch_atomic";
        let peer = self.number(CALL, to.peer)?;
        self.can::<T>(CALL, op, true, count)?;
        // SAFETY: the table lives as long as the endpoint.
        let post = unsafe { required!(self.atomics(), fi_ops_atomic, readwrite, CALL) }?;
        // SAFETY: the endpoint is alive; the caller vouches for the operands, the results and the context.
        let answer = unsafe {
            post(
                self.as_raw(),
                operands.address.cast(),
                count,
                operands.desc.0,
                results.address.cast(),
                results.desc.0,
                peer,
                to.address,
                to.key,
                T::DATATYPE,
                op.0,
                context as *mut c_void,
            )
        };
        self.posted(CALL, answer)
    }
}
