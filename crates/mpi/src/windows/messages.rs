//! Signals as messages, and the receive that is always posted. Testing it is what drives MPI.
//!
//! A message has the round of the word's block, the word's offset in it, the value to add, and the kind of the message.
//! Small data that was put before may follow, and is copied before the word is added to. Each piece has the round of
//! its block, the offset, the number of bytes, and the bytes.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};

use mpi::ffi;
use tidegate_hal::batch::Scalar;
use tidegate_hal::far::BusError;

use super::call::{check, scalar};
use crate::calls::call;

/// The words of a message's header.
pub(super) const HEAD: usize = 4;
/// Words of the longest message.
pub(super) const LONGEST: usize = 1024;

/// The words before the data of a piece: round, offset, bytes.
pub(super) const PIECE_HEAD: usize = 3;

const TAG: c_int = 7;

/// `MPI_Isend`, or `MPI_Issend`.
type Start = unsafe extern "C" fn(
    *const c_void,
    c_int,
    ffi::MPI_Datatype,
    c_int,
    c_int,
    ffi::MPI_Comm,
    *mut ffi::MPI_Request,
) -> c_int;

struct Outbound {
    request: ffi::MPI_Request,
    /// MPI reads it until the request is over.
    message: Vec<u64>,
    rank: usize,
}

/// The messages that are being sent and received.
pub(super) struct Messages {
    comm: ffi::MPI_Comm,
    /// The buffer of the next message. MPI writes to it until `request` is over.
    inbound: *mut [u64; LONGEST],
    request: ffi::MPI_Request,
    outbound: Vec<Outbound>,
    /// Buffers that can be used again.
    spent: Vec<Vec<u64>>,
}

impl Messages {
    /// # Safety
    ///
    /// The communicator is live until [`Messages::close`], and only this library uses it.
    pub(super) unsafe fn open(comm: ffi::MPI_Comm) -> Result<Self, BusError> {
        let mut messages = Messages {
            comm,
            inbound: Box::into_raw(Box::new([0; LONGEST])),
            // SAFETY: a constant of the binding.
            request: unsafe { ffi::RSMPI_REQUEST_NULL },
            outbound: Vec::new(),
            spent: Vec::new(),
        };
        messages.post()?;
        Ok(messages)
    }

    /// Posts the next receive. Call it after the message before has been handled: a sender that learns that a message
    /// has been matched relies on all messages before it.
    pub(super) fn post(&mut self) -> Result<(), BusError> {
        // SAFETY: this struct owns the buffer, and reads it only after the request is over; the communicator is live
        // (`open`).
        unsafe {
            call!(MPI_Irecv(
                self.inbound.cast(),
                LONGEST as c_int,
                scalar(Scalar::U64),
                ffi::RSMPI_ANY_SOURCE,
                TAG,
                self.comm,
                &raw mut self.request,
            ))
        }
    }

    /// Whether a message has come. Then [read](Messages::inbound) it, and call [`Messages::post`].
    #[inline]
    pub(super) fn received(&mut self) -> Result<bool, BusError> {
        if !self.outbound.is_empty() {
            self.sent()?;
        }
        // If posting has failed there is no receive. MPI does not report a null request as unfinished.
        // SAFETY: a constant of the binding.
        if self.request == unsafe { ffi::RSMPI_REQUEST_NULL } {
            return Ok(false);
        }
        done(&mut self.request)
    }

    /// The message that has come.
    ///
    /// # Safety
    ///
    /// [`Messages::received`] returned true, and [`Messages::post`] is not called after that while the result lives.
    pub(super) unsafe fn inbound<'a>(&self) -> &'a [u64; LONGEST] {
        // SAFETY: the request is over, so MPI does not use the buffer, which lives as long as this process.
        unsafe { &*self.inbound }
    }

    /// An empty buffer for a message.
    pub(super) fn buffer(&mut self) -> Vec<u64> {
        let mut buffer = self.spent.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Sends a message, and does not wait.
    pub(super) fn send(&mut self, rank: usize, message: Vec<u64>) -> Result<(), BusError> {
        self.start(rank, message, ffi::MPI_Isend)
    }

    /// Like [`Messages::send`], but the request lasts until the receiver has handled all messages before it.
    pub(super) fn send_last(&mut self, rank: usize, message: Vec<u64>) -> Result<(), BusError> {
        self.start(rank, message, ffi::MPI_Issend)
    }

    /// Whether all messages to ranks other than these have been sent.
    pub(super) fn all_sent_but(&mut self, ranks: &BTreeSet<usize>) -> Result<bool, BusError> {
        self.sent()?;
        let mut left = self.outbound.iter();
        Ok(left.all(|out| ranks.contains(&out.rank)))
    }

    fn start(&mut self, rank: usize, message: Vec<u64>, how: Start) -> Result<(), BusError> {
        // SAFETY: a constant of the binding.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: the buffer stays at its address until the request is over (in `Outbound`, or it is over here); the
        // communicator is live (`open`).
        let code = unsafe {
            how(
                message.as_ptr().cast(),
                message.len() as c_int,
                scalar(Scalar::U64),
                rank as c_int,
                TAG,
                self.comm,
                &raw mut request,
            )
        };
        let over = check("MPI_Isend", code).and_then(|()| done(&mut request));
        match over {
            Ok(true) => self.spent.push(message),
            Ok(false) => self.outbound.push(Outbound {
                request,
                message,
                rank,
            }),
            Err(error) => {
                // MPI may still read it.
                std::mem::forget(message);
                return Err(error);
            }
        }
        Ok(())
    }

    #[cold]
    fn sent(&mut self) -> Result<(), BusError> {
        let mut index = 0;
        while let Some(out) = self.outbound.get_mut(index) {
            if done(&mut out.request)? {
                let out = self.outbound.swap_remove(index);
                self.spent.push(out.message);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Cancels the receive. Messages that are being sent are left to MPI, with their buffers.
    pub(super) fn close(&mut self) -> Result<(), BusError> {
        self.outbound.drain(..).for_each(std::mem::forget);
        // SAFETY: a constant of the binding. (If posting has failed there is no receive.)
        if self.request == unsafe { ffi::RSMPI_REQUEST_NULL } {
            return Ok(());
        }
        // SAFETY: the request is this struct's. After it is over, MPI does not write to the buffer.
        unsafe {
            call!(MPI_Cancel(&raw mut self.request))?;
            let ignore = ffi::RSMPI_STATUS_IGNORE;
            call!(MPI_Wait(&raw mut self.request, ignore))
        }
    }
}

fn done(request: &mut ffi::MPI_Request) -> Result<bool, BusError> {
    let mut flag: c_int = 0;
    // SAFETY: the request was started, and has not been freed since.
    unsafe { call!(MPI_Test(request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE)) }?;
    Ok(flag != 0)
}
