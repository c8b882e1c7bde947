//! The address at which the ranks of a job meet. It is chosen before the first rank starts.

use super::error::LaunchError;
use super::job::Job;
use std::net::TcpListener;
use tidegate_boot::starter::loopback;

/// The address at which the ranks meet.
pub(super) struct MeetingPoint {
    pub(super) host: String,
    pub(super) port: u16,
    /// The socket that rank 0 inherits. There is none on a bed: no other process could take the port before rank 0, and
    /// a socket of this process would not belong to the node.
    pub(super) listener: Option<TcpListener>,
}

impl MeetingPoint {
    pub(super) fn choose(job: &Job) -> Result<Self, LaunchError> {
        if let Some(bed) = &job.bed {
            return Ok(Self {
                host: bed.address(0).to_string(),
                port: bed.port(),
                listener: None,
            });
        }
        let failed = |error| LaunchError::io("taking a port on the loopback address", error);
        let listener = TcpListener::bind((loopback(), 0)).map_err(failed)?;
        let at = listener.local_addr().map_err(failed)?;
        Ok(Self {
            host: at.ip().to_string(),
            port: at.port(),
            listener: Some(listener),
        })
    }
}
