//! Where the ranks of a job meet: chosen before the first one starts.

use super::error::LaunchError;
use super::job::Job;
use crate::loopback::loopback;
use std::net::{SocketAddr, TcpListener};

/// Where the ranks meet.
pub(super) struct MeetingPoint {
    pub(super) at: SocketAddr,
    /// What rank 0 inherits. On a bed there is nobody who could take the port before rank 0 does, and a socket of this
    /// process would be none of the node.
    pub(super) listener: Option<TcpListener>,
}

impl MeetingPoint {
    pub(super) fn choose(job: &Job) -> Result<Self, LaunchError> {
        if let Some(bed) = &job.bed {
            let at = SocketAddr::from((bed.address(0), bed.port()));
            return Ok(Self { at, listener: None });
        }
        let failed = |error| LaunchError::io("taking a port on the loopback address", error);
        let listener = TcpListener::bind((loopback(), 0)).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        let listener = Some(listener);
        Ok(Self { at, listener })
    }
}
