//! Meeting without a store, if ranks can pass text to each other by other means.
//!
//! # Model
//!
//! Rank 0 [listens](Invitation::offer), and gives a [line](Invitation::line) of text to the others, for example by a
//! broadcast of MPI. Each of them makes its [`Config`] from the line, and joins. The line contains a secret, so only
//! ranks of the job may get it.
//!
//! # Failure
//!
//! An invalid line is refused. A rank that cannot reach any of the addresses gets an error: before it tries, if that
//! can be known, or else from [`TcpControl::join`](crate::TcpControl::join).

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::meeting::{self, Met};
use super::record::{self, Record};
use crate::config::Config;
use crate::error::BootError;
use crate::variables::{own_address, text};

/// How the other ranks reach rank 0, and the secret by which they prove that they may.
#[derive(Clone, Debug)]
pub struct Invitation {
    record: Record,
    /// Of rank 0 itself: where it listens.
    listens: Option<std::net::SocketAddr>,
}

impl Invitation {
    /// Listens for the other ranks, with a new secret. `near` says that all of them share one [loopback
    /// interface](Self::loopback), and then this listens there. Otherwise it listens at all addresses of the host.
    /// `TIDEGATE_ADDRESS` takes precedence over both.
    ///
    /// # Errors
    ///
    /// [`BootError::BadVariable`], [`BootError::Io`].
    pub fn offer(near: bool) -> Result<(Self, TcpListener), BootError> {
        let (socket, record) = meeting::offer(near)?;
        let at = socket.local_addr();
        let at = at.map_err(|error| BootError::io("asking where this rank listens", error))?;
        let listens = Some(at);
        Ok((Self { record, listens }, socket))
    }

    /// A text of 64 digits that is equal for processes that share a loopback interface: those of one kernel and one
    /// network namespace.
    ///
    /// # Errors
    ///
    /// [`BootError::Io`].
    pub fn loopback() -> Result<String, BootError> {
        record::loopback_id()
            .map_err(|error| BootError::io("asking for the name of this host", error))
    }

    /// The line for the other ranks. It is ASCII, and contains the secret of the job.
    pub fn line(&self) -> String {
        self.record.line()
    }

    /// Reads the line.
    ///
    /// # Errors
    ///
    /// [`BootError::Aborted`] if the line is invalid.
    pub fn parse(line: &str) -> Result<Self, BootError> {
        let record = Record::parse(line).map_err(BootError::Aborted)?;
        let listens = None;
        Ok(Self { record, listens })
    }

    /// The configuration with which this rank joins, under the limits in the environment. Rank 0 must still add its
    /// socket.
    ///
    /// # Errors
    ///
    /// [`BootError::BadVariable`]; [`BootError::Unreachable`] if rank 0 gave only its loopback address and this is
    /// another host; [`BootError::Io`].
    pub fn config(&self, rank: usize, size: usize) -> Result<Config, BootError> {
        let addresses = match self.listens {
            Some(at) => vec![at],
            None => meeting::ways(&self.record, Instant::now())?,
        };
        let secret = self.record.secret.clone();
        let mut config = Met::new(rank, size, secret, addresses).config();
        config.read_settings(&|name| text(&std::env::var_os, name))?;
        Ok(config)
    }

    /// How long ranks wait for each other, by the environment. This reads every variable that [`config`](Self::config)
    /// and [`offer`](Self::offer) will read. So a rank can report a bad variable before others depend on it.
    ///
    /// # Errors
    ///
    /// [`BootError::BadVariable`].
    pub fn patience() -> Result<Duration, BootError> {
        let mut config = Config::new(0, 1, "", "");
        config.read_settings(&|name| text(&std::env::var_os, name))?;
        own_address()?;
        Ok(config.timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_leads_to_the_socket() {
        for near in [true, false] {
            let (offered, socket) = Invitation::offer(near).unwrap();
            let port = socket.local_addr().unwrap().port();
            assert!(!format!("{offered:?}").contains(&offered.record.secret));
            let line = offered.line();
            let told = Invitation::parse(&line).unwrap();
            let (zero, one) = (offered.config(0, 2).unwrap(), told.config(1, 2).unwrap());
            assert_eq!(zero.secret, one.secret);
            // A rank on the same host tries the loopback address first.
            assert_eq!(one.address, format!("127.0.0.1:{port}"));
            std::net::TcpStream::connect(&one.address).unwrap();
        }
    }

    #[test]
    fn an_invalid_line_is_refused() {
        for line in ["", "tidegate1", "tidegate1,,", "tidegate9,0,0,127.0.0.1:1"] {
            assert!(matches!(
                Invitation::parse(line),
                Err(BootError::Aborted(_))
            ));
        }
    }
}
