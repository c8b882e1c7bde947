//! PMIx: the store of Open MPI's `mpirun`, of PRRTE, and of `srun --mpi=pmix`.
//!
//! # Model
//!
//! The protocol is private to the library, so the library is used: `libpmix.so.2`, which is loaded at run time
//! ([`tidegate_ffi::pmix`]). The fence gives all values to all ranks.
//!
//! # Failure
//!
//! If the library is missing or is not PMIx, the error is [`BootError::NoStore`]. The library's calls block, and the
//! server may ignore the limits that it is given. So another thread makes the calls, and this one waits no longer than
//! the deadline. A thread that is given up leaves the store if its call ever returns.

use super::environment::Started;
use super::meeting::{self, Found};
use super::store::{Store, StoreError};
use crate::config::Config;
use crate::error::BootError;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tidegate_ffi::pmix::{Client, Library, PmixError};

/// The server's own limit is shorter by this. If the server keeps to it, its error says more.
const MARGIN: Duration = Duration::from_secs(1);
/// The pause before the next fence, if some ranks have missed one.
const AGAIN: Duration = Duration::from_millis(10);
/// No record is longer than this.
const ROOM: usize = 64 << 10;

/// Connects to the server, and meets the others there.
pub(crate) fn found(
    started: &Started,
    settings: &Config,
    began: Instant,
) -> Result<Found, BootError> {
    let library = Library::load().map_err(|error| BootError::NoStore {
        launcher: started.by,
        reason: error.to_string(),
    })?;
    let deadline = began + settings.timeout;
    let doing = "waiting for its PMIx server";
    let own = started.clone();
    bounded(deadline + MARGIN, move || {
        meet(&library, own, began, deadline)
    })
    .map_err(|error| error.of(started.by, doing, began))?
}

fn meet(
    library: &Library,
    mut started: Started,
    began: Instant,
    deadline: Instant,
) -> Result<Found, BootError> {
    let store = (|| {
        let client = library.init()?;
        let size = client.job_size()? as usize;
        if started.local.is_none() {
            // Not every server tells this. Then the ranks are not known to be on one host.
            started.local = client.local_size().ok().map(|local| local as usize);
        }
        Ok(Pmix {
            place: (client.rank() as usize, size),
            client: Some(client),
            deadline,
        })
    })();
    let greeting = |error: PmixError| {
        StoreError::from(error).of(started.by, "greeting its PMIx server", began)
    };
    meeting::hold(Box::new(store.map_err(greeting)?), &started, began)
}

/// The result of `work`, if it returns in time.
fn bounded<T: Send + 'static>(
    deadline: Instant,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, StoreError> {
    let (sender, receiver) = channel();
    std::thread::Builder::new()
        .name("tidegate-pmix".into())
        .spawn(move || sender.send(work()).is_ok())?;
    let left = deadline.saturating_duration_since(Instant::now());
    receiver.recv_timeout(left).map_err(|_| StoreError::Silent)
}

impl From<PmixError> for StoreError {
    fn from(error: PmixError) -> Self {
        if error.is_timeout() {
            Self::Silent
        } else {
            Self::Refused(error.to_string())
        }
    }
}

#[derive(Debug)]
struct Pmix {
    place: (usize, usize),
    /// `None`: the store has been left.
    client: Option<Client>,
    deadline: Instant,
}

impl Pmix {
    fn client(&self) -> Result<&Client, StoreError> {
        let left = || StoreError::Garbled("it has been left".into());
        self.client.as_ref().ok_or_else(left)
    }

    /// The seconds until the deadline. It is never 0, which would mean no limit.
    fn limit(&self) -> u32 {
        let left = self.deadline.saturating_duration_since(Instant::now());
        left.as_secs().clamp(1, i32::MAX as u64) as u32
    }
}

impl Store for Pmix {
    fn place(&self) -> (usize, usize) {
        self.place
    }

    fn room(&self) -> usize {
        ROOM
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), StoreError> {
        Ok(self.client()?.put(key, value)?)
    }

    fn fence(&mut self) -> Result<(), StoreError> {
        let client = self.client()?;
        client.commit()?;
        while let Err(error) = client.fence(self.limit()) {
            if !error.is_partial() || Instant::now() >= self.deadline {
                return Err(error.into());
            }
            // If a process closes a connection, the server counts it as gone. In some other rank, MPI may just have
            // closed its own connection. That rank enters the next fence by another one, so this rank must enter it,
            // too.
            std::thread::sleep(AGAIN);
        }
        Ok(())
    }

    fn get(&mut self, key: &str) -> Result<String, StoreError> {
        Ok(self.client()?.get(0, key, self.limit())?)
    }

    fn leave(&mut self, deadline: Instant) -> Result<(), StoreError> {
        let Some(client) = self.client.take() else {
            return Ok(());
        };
        Ok(bounded(deadline, move || client.finalize())??)
    }

    fn is_mpis_too(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_that_takes_too_long_is_given_up() {
        let soon = Instant::now() + Duration::from_millis(50);
        // The work ends after it has been given up, or long after that.
        let (ends, end) = channel::<()>();
        let slow = move || end.recv_timeout(Duration::from_secs(60)).is_ok();
        assert!(matches!(bounded(soon, slow), Err(StoreError::Silent)));
        drop(ends);
        let later = Instant::now() + Duration::from_secs(60);
        assert_eq!(bounded(later, || 7).unwrap(), 7);
        // A thread that ends without an answer has none.
        let nothing: Result<(), _> = bounded(later, || std::panic::resume_unwind(Box::new(())));
        assert!(nothing.is_err());
    }
}
