//! Signals as messages, and the receive that is always posted: testing it is what turns MPI.
//!
//! A message is the round of the block that the word is in, where in it the word is, what to add, and what the message
//! is for; and before the word is added to, small data that was put before goes along: for each piece the round of its
//! block, where in it, how many bytes, and these.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};

use mpi::ffi;
use tidegate_hal::batch::Scalar;
use tidegate_hal::far::BusError;

use super::call::{check, scalar};
use crate::calls::call;

/// The words in front.
pub(super) const HEAD: usize = 4;
/// Words of the longest message.
pub(super) const LONGEST: usize = 1024;

/// What goes before the data of a piece: round, place, bytes.
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
    /// MPI reads it while the request is under way.
    message: Vec<u64>,
    rank: usize,
}

/// What is under way.
pub(super) struct Messages {
    comm: ffi::MPI_Comm,
    /// Where the next one comes to. MPI writes there while `request` is under way.
    inbound: *mut [u64; LONGEST],
    request: ffi::MPI_Request,
    outbound: Vec<Outbound>,
    /// Buffers to be used again.
    spent: Vec<Vec<u64>>,
}

impl Messages {
    /// # Safety
    ///
    /// The communicator is alive until [`Messages::close`], and this library's alone.
    pub(super) unsafe fn open(comm: ffi::MPI_Comm) -> Result<Self, BusError> {
        let mut messages = Messages {
            comm,
            inbound: Box::into_raw(Box::new([0; LONGEST])),
            // SAFETY: a constant of the binding's.
            request: unsafe { ffi::RSMPI_REQUEST_NULL },
            outbound: Vec::new(),
            spent: Vec::new(),
        };
        messages.post()?;
        Ok(messages)
    }

    /// Is ready for the next one. Call it when the one before has been taken care of: whoever hears that a message has
    /// been matched counts on all before it.
    pub(super) fn post(&mut self) -> Result<(), BusError> {
        // SAFETY: the place is this struct's, and is read only when the request is over; the communicator is alive (`open`).
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

    /// Whether one has come; then it is to be [read](Messages::inbound), and [`Messages::post`] is to follow.
    #[inline]
    pub(super) fn received(&mut self) -> Result<bool, BusError> {
        if !self.outbound.is_empty() {
            self.sent()?;
        }
        // There is none asked for, if that has failed; MPI says of nothing that it is over.
        // SAFETY: a constant of the binding's.
        if self.request == unsafe { ffi::RSMPI_REQUEST_NULL } {
            return Ok(false);
        }
        done(&mut self.request)
    }

    /// The message that has come.
    ///
    /// # Safety
    ///
    /// [`Messages::received`] said so, [`Messages::post`] has not been called since, and is not while the result lives.
    pub(super) unsafe fn inbound<'a>(&self) -> &'a [u64; LONGEST] {
        // SAFETY: the request is over, so MPI is through with the place, which lives as long as this process.
        unsafe { &*self.inbound }
    }

    /// An empty buffer for a message.
    pub(super) fn buffer(&mut self) -> Vec<u64> {
        let mut buffer = self.spent.pop().unwrap_or_default();
        buffer.clear();
        buffer
    }

    /// Sends one, and does not wait.
    pub(super) fn send(&mut self, rank: usize, message: Vec<u64>) -> Result<(), BusError> {
        self.start(rank, message, ffi::MPI_Isend)
    }

    /// As [`Messages::send`]; it is under way until the receiver has taken care of all before it.
    pub(super) fn send_last(&mut self, rank: usize, message: Vec<u64>) -> Result<(), BusError> {
        self.start(rank, message, ffi::MPI_Issend)
    }

    /// Whether all that was sent to others than these is on its way.
    pub(super) fn all_sent_but(&mut self, ranks: &BTreeSet<usize>) -> Result<bool, BusError> {
        self.sent()?;
        let mut left = self.outbound.iter();
        Ok(left.all(|out| ranks.contains(&out.rank)))
    }

    fn start(&mut self, rank: usize, message: Vec<u64>, how: Start) -> Result<(), BusError> {
        // SAFETY: a constant of the binding's.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: the buffer stays where it is until the request is over (`Outbound`, or it is over here); the
        // communicator is alive (`open`).
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

    /// Takes the receive back. Messages on their way are left to MPI, with their buffers.
    pub(super) fn close(&mut self) -> Result<(), BusError> {
        self.outbound.drain(..).for_each(std::mem::forget);
        // SAFETY: a constant of the binding's. (There is none asked for, if that has failed.)
        if self.request == unsafe { ffi::RSMPI_REQUEST_NULL } {
            return Ok(());
        }
        // SAFETY: the request is this struct's; once it is over, nobody writes to the place.
        unsafe {
            call!(MPI_Cancel(&raw mut self.request))?;
            let ignore = ffi::RSMPI_STATUS_IGNORE;
            call!(MPI_Wait(&raw mut self.request, ignore))
        }
    }
}

fn done(request: &mut ffi::MPI_Request) -> Result<bool, BusError> {
    let mut flag: c_int = 0;
    // SAFETY: the request is one that was started, and not freed since.
    unsafe { call!(MPI_Test(request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE)) }?;
    Ok(flag != 0)
}
