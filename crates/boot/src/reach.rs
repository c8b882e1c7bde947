//! How a rank reaches the hub.
//!
//! # Model
//!
//! It connects and proves itself repeatedly, until the time for the rendezvous is over. An attempt can fail because
//! rank 0 does not listen yet, or because one of several addresses is another program's. Rank 0 may also be in the job
//! before, for which there is no limit.
//!
//! # Failure
//!
//! [`BootError::Refused`] if rank 0 itself refuses, [`BootError::Unreachable`] if the time is over.

use crate::config::Config;
use crate::error::BootError;
use crate::handshake::{self, Attempt, Claims, PATIENCE};
use crate::process::SAID_AFTER;
use crate::secret::Key;
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tidegate_hal::{say, tell};

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long each of several addresses may take in the first attempt. Each later attempt gives it as much time more.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);

/// Connects to the hub and proves itself, repeatedly until the time is over.
pub(crate) fn reach_hub(
    config: &Config,
    key: &Key,
    started: &mut Instant,
) -> Result<(TcpStream, handshake::Session), BootError> {
    let mut pause = Duration::from_millis(5);
    let mut attempts = 0;
    let mut warned = String::new();
    let (began, mut early) = (*started, false);
    loop {
        attempts += 1;
        let left = config.timeout.saturating_sub(started.elapsed());
        // At first, an address that leads nowhere must not keep this rank from the others for long.
        let patience = if config.also.is_empty() {
            PATIENCE
        } else {
            PATIENCE.min(FIRST_PATIENCE * attempts)
        };
        let last = match attempt(config, key, left.clamp(Duration::from_millis(50), patience)) {
            Ok(reached) => return Ok(reached),
            Err(Attempt::Final(reason)) => return Err(BootError::Refused(reason)),
            Err(Attempt::Later) => {
                // The ranks of the job before may take as long as they need. The time limit for this job begins after
                // that.
                *started = Instant::now();
                if !early && began.elapsed() >= SAID_AFTER {
                    early = true;
                    let text = format!(
                        "rank {} wants to begin its next job, and waits for ranks that are still in the one before",
                        config.rank
                    );
                    say!(text, std::io::stderr());
                }
                std::thread::sleep(pause);
                pause = longer(pause);
                continue;
            }
            Err(Attempt::Again(reason)) => reason,
        };
        // Normally nothing listens yet. Any other reason is worth a warning before the end.
        if last != warned && !last.contains("refused (os") {
            tell(|| tracing::warn!(address = config.address, reason = last, "cannot join yet"));
            warned.clone_from(&last);
        }
        let waited = started.elapsed();
        if waited + pause >= config.timeout {
            let all = std::iter::once(&config.address).chain(&config.also);
            let all: Vec<_> = all.map(String::as_str).collect();
            return Err(BootError::Unreachable {
                address: all.join(", "),
                waited,
                attempts,
                last,
            });
        }
        std::thread::sleep(pause);
        pause = longer(pause);
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(LONGEST_PAUSE)
}

fn attempt(
    config: &Config,
    key: &Key,
    limit: Duration,
) -> Result<(TcpStream, handshake::Session), Attempt> {
    let mut last = Attempt::Again("the name has no address".into());
    let mut addresses = Vec::new();
    let all = std::iter::once(&config.address).chain(&config.also);
    for name in all {
        match name.to_socket_addrs() {
            Ok(found) => addresses.extend(found),
            Err(error) => last = error.into(),
        }
    }
    for address in addresses {
        let tried = (|| {
            let stream = TcpStream::connect_timeout(&address, limit)?;
            stream.set_nodelay(true)?;
            stream.set_read_timeout(Some(limit))?;
            stream.set_write_timeout(Some(limit))?;
            let claims = Claims {
                size: config.size as u32,
                rank: config.rank as u32,
                generation: config.generation,
            };
            let session = handshake::call(&stream, key, claims)?;
            stream.set_nonblocking(true)?;
            Ok((stream, session))
        })();
        match tried {
            Err(error @ (Attempt::Final(_) | Attempt::Later)) => return Err(error),
            Err(error) => last = error,
            Ok(reached) => return Ok(reached),
        }
    }
    Err(last)
}
