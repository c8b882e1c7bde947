//! Signals as small messages, and the receive that is always posted: testing it is what turns MPI.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_void};

use mpi::ffi;
use tidegate_hal::far::BusError;

use super::call::{check, scalar};
use tidegate_hal::batch::Scalar;

/// A signal: the round of the block that the word is in, where in it, what to add, whether to poison.
pub(super) type Signal = [u64; 4];

const TAG: c_int = 7;
const WORDS: c_int = 4;

/// `MPI_Isend`, or `MPI_Issend`.
type Send = unsafe extern "C" fn(
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
    place: *mut Signal,
    rank: usize,
}

/// What is under way.
pub(super) struct Messages {
    comm: ffi::MPI_Comm,
    /// Where the next one comes to. MPI writes there while `request` is under way.
    inbound: *mut Signal,
    request: ffi::MPI_Request,
    /// Those that have not been sent yet, with what they read. Boxes of spent ones are kept.
    outbound: Vec<Outbound>,
    spent: Vec<*mut Signal>,
}

impl Messages {
    /// # Safety
    ///
    /// The communicator is alive until [`Messages::close`], and this library's alone.
    pub(super) unsafe fn open(comm: ffi::MPI_Comm) -> Result<Self, BusError> {
        let mut messages = Messages {
            comm,
            inbound: Box::into_raw(Box::default()),
            // SAFETY: a constant of the binding's.
            request: unsafe { ffi::RSMPI_REQUEST_NULL },
            outbound: Vec::new(),
            spent: Vec::new(),
        };
        messages.post()?;
        Ok(messages)
    }

    /// Is ready for the next one. Call it when the one before has been taken care of: whoever hears that a message has been matched counts on all before it.
    pub(super) fn post(&mut self) -> Result<(), BusError> {
        // SAFETY: the place is this struct's, and is read only when the request is over; the communicator is alive (`open`).
        let code = unsafe {
            ffi::MPI_Irecv(
                self.inbound.cast(),
                WORDS,
                scalar(Scalar::U64),
                ffi::RSMPI_ANY_SOURCE,
                TAG,
                self.comm,
                &raw mut self.request,
            )
        };
        check("MPI_Irecv", code)
    }

    /// What has come, if anything has. Then [`Messages::post`] is to follow.
    #[inline]
    pub(super) fn receive(&mut self) -> Result<Option<Signal>, BusError> {
        if !self.outbound.is_empty() {
            self.sent()?;
        }
        if !done(&mut self.request)? {
            return Ok(None);
        }
        // SAFETY: the request is over, so MPI has written the message and is through with the place.
        Ok(Some(unsafe { self.inbound.read() }))
    }

    /// Sends one, and does not wait.
    pub(super) fn send(&mut self, rank: usize, signal: Signal) -> Result<(), BusError> {
        self.start(rank, signal, ffi::MPI_Isend)
    }

    /// As [`Messages::send`]; it is under way until the receiver has taken care of all before it.
    pub(super) fn send_last(&mut self, rank: usize, signal: Signal) -> Result<(), BusError> {
        self.start(rank, signal, ffi::MPI_Issend)
    }

    /// Whether all that was sent to others than these is on its way.
    pub(super) fn all_sent_but(&mut self, ranks: &BTreeSet<usize>) -> Result<bool, BusError> {
        self.sent()?;
        let mut left = self.outbound.iter();
        Ok(left.all(|out| ranks.contains(&out.rank)))
    }

    fn start(&mut self, rank: usize, signal: Signal, how: Send) -> Result<(), BusError> {
        let place = self
            .spent
            .pop()
            .unwrap_or_else(|| Box::into_raw(Box::default()));
        // SAFETY: a place that is spent, or new: nobody else has it.
        unsafe { place.write(signal) };
        // SAFETY: a constant of the binding's.
        let mut request = unsafe { ffi::RSMPI_REQUEST_NULL };
        // SAFETY: the place stays until the request is over; the communicator is alive (`open`).
        let code = unsafe {
            how(
                place.cast(),
                WORDS,
                scalar(Scalar::U64),
                rank as c_int,
                TAG,
                self.comm,
                &raw mut request,
            )
        };
        check("MPI_Isend", code)?;
        if done(&mut request)? {
            self.spent.push(place);
        } else {
            self.outbound.push(Outbound {
                request,
                place,
                rank,
            });
        }
        Ok(())
    }

    #[cold]
    fn sent(&mut self) -> Result<(), BusError> {
        let mut index = 0;
        while let Some(out) = self.outbound.get_mut(index) {
            if done(&mut out.request)? {
                self.spent.push(out.place);
                self.outbound.swap_remove(index);
            } else {
                index += 1;
            }
        }
        Ok(())
    }

    /// Takes the receive back. Messages on their way are left to MPI, with their places.
    pub(super) fn close(&mut self) -> Result<(), BusError> {
        // SAFETY: the request is this struct's; once it is over, nobody writes to the place.
        unsafe {
            check("MPI_Cancel", ffi::MPI_Cancel(&raw mut self.request))?;
            let ignore = ffi::RSMPI_STATUS_IGNORE;
            check("MPI_Wait", ffi::MPI_Wait(&raw mut self.request, ignore))
        }
    }
}

fn done(request: &mut ffi::MPI_Request) -> Result<bool, BusError> {
    let mut flag: c_int = 0;
    // SAFETY: the request is one that was started, and not freed since.
    let code = unsafe { ffi::MPI_Test(request, &raw mut flag, ffi::RSMPI_STATUS_IGNORE) };
    check("MPI_Test", code)?;
    Ok(flag != 0)
}
