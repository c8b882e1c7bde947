//! Meeting without a store, where ranks can say things to each other by other means.
//!
//! # Model
//!
//! Rank 0 [listens](Invitation::offer), and says a [line](Invitation::line) to the others, as a broadcast of MPI for
//! example. Each makes its [`Config`] of that, and joins. The line holds a secret: it is for the ranks of the job
//! alone.
//!
//! # Failure
//!
//! A line that is none is refused. Whoever cannot get to any of the addresses in it hears so before it tries, where
//! that can be known, and else from [`TcpControl::join`](crate::TcpControl::join).

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::meeting::{self, Met};
use super::record::{self, Record};
use crate::config::Config;
use crate::error::BootError;
use crate::variables::{own_address, text};

/// How the other ranks get to rank 0, and what proves that they may.
#[derive(Clone, Debug)]
pub struct Invitation {
    record: Record,
    /// Of rank 0 itself.
    listens: Option<std::net::SocketAddr>,
}

impl Invitation {
    /// Listens for the other ranks, with a new secret. `near`: the [loopback interface](Self::loopback) of all of them
    /// is one. `TIDEGATE_ADDRESS` goes before that; otherwise this is all addresses of the host.
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

    /// Equal for processes that share a loopback interface: of one kernel, and one network namespace. Of 64 digits.
    ///
    /// # Errors
    ///
    /// [`BootError::Io`].
    pub fn loopback() -> Result<String, BootError> {
        record::loopback_id()
            .map_err(|error| BootError::io("asking for the name of this host", error))
    }

    /// What is said to the others: ASCII, and no secret to them.
    pub fn line(&self) -> String {
        self.record.line()
    }

    /// What was said.
    ///
    /// # Errors
    ///
    /// [`BootError::Aborted`].
    pub fn parse(line: &str) -> Result<Self, BootError> {
        let record = Record::parse(line).map_err(BootError::Aborted)?;
        let listens = None;
        Ok(Self { record, listens })
    }

    /// What this rank joins with, under the limits that the environment sets. Rank 0 still has to give the socket.
    ///
    /// # Errors
    ///
    /// [`BootError::BadVariable`]; [`BootError::Unreachable`], for another host than that of rank 0, if that said
    /// nothing but its loopback address; [`BootError::Io`].
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

    /// How long ranks wait for each other to meet, by the environment. All that [`config`](Self::config) and
    /// [`offer`](Self::offer) will read there is read, so that a rank can say that it cannot, before others depend on it.
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
    fn what_is_said_leads_to_the_socket() {
        for near in [true, false] {
            let (offered, socket) = Invitation::offer(near).unwrap();
            let port = socket.local_addr().unwrap().port();
            assert!(!format!("{offered:?}").contains(&offered.record.secret));
            let line = offered.line();
            let told = Invitation::parse(&line).unwrap();
            let (zero, one) = (offered.config(0, 2).unwrap(), told.config(1, 2).unwrap());
            assert_eq!(zero.secret, one.secret);
            // Who is near tries the loopback address first.
            assert_eq!(one.address, format!("127.0.0.1:{port}"));
            std::net::TcpStream::connect(&one.address).unwrap();
        }
    }

    #[test]
    fn what_is_no_line_is_refused() {
        for line in ["", "tidegate1", "tidegate1,,", "tidegate9,0,0,127.0.0.1:1"] {
            assert!(matches!(
                Invitation::parse(line),
                Err(BootError::Aborted(_))
            ));
        }
    }
}
