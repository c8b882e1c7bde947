//! How a rank reaches rank 0, and the rank under which it hangs in the tree.
//!
//! # Model
//!
//! A rank that joins connects to rank 0 and proves itself repeatedly, until the time for the rendezvous is over. An
//! attempt can fail because rank 0 does not listen yet, or because one of several addresses is another program's. Rank 0
//! may also be in the job before, for which there is no limit.
//!
//! Rank 0 then says which rank is the parent. If that is rank 0 itself, the connection stays. Otherwise the rank connects
//! to its parent, and tells rank 0. If the parent cannot be reached, rank 0 is the parent.
//!
//! A rank that has lost its parent does the same again, in a thread beside the service.
//!
//! # Failure
//!
//! [`BootError::Refused`] if rank 0 itself refuses, [`BootError::Unreachable`] if the time is over.

use crate::config::Config;
use crate::error::BootError;
use crate::handshake::{self, Attempt, Claims, PATIENCE, Purpose, Session};
use crate::hop::Hop;
use crate::link::{Body, Link};
use crate::process::SAID_AFTER;
use crate::ready::timeout_until;
use crate::secret::Key;
use rustix::event::{PollFd, PollFlags, poll};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};
use tidegate_hal::{say, tell};

/// The longest pause between two attempts.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
/// How long each of several addresses may take in the first attempt. Each later attempt gives it as much time more.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
/// How often a rank tries to reach the parent that it was given.
const ATTEMPTS: u32 = 3;
/// How long it takes at most to connect to a parent. The parent's kernel answers even if the rank is busy, unless a
/// firewall lets nothing through.
const CONNECTS: Duration = Duration::from_secs(2);

/// How a rank reaches others.
#[derive(Clone, Debug)]
pub(crate) struct Reach {
    /// `host:port` of rank 0, in the order in which they are tried.
    addresses: Vec<String>,
    key: Key,
    claims: Claims,
}

/// A parent, and the connection to it.
pub(crate) struct Parent {
    pub(crate) rank: u32,
    pub(crate) link: Link<TcpStream>,
}

impl Reach {
    pub(crate) fn new(config: &Config, key: &Key) -> Self {
        let addresses = std::iter::once(&config.address).chain(&config.also);
        Self {
            addresses: addresses.cloned().collect(),
            key: key.clone(),
            claims: Claims {
                size: config.size as u32,
                rank: config.rank as u32,
                generation: config.generation,
                host: 0,
                purpose: Purpose::Join,
            },
        }
    }

    /// Connects to rank 0 and proves itself, repeatedly until the time is over.
    pub(crate) fn rank_0(
        &self,
        timeout: Duration,
        started: &mut Instant,
    ) -> Result<Link<TcpStream>, BootError> {
        let mut pause = Duration::from_millis(5);
        let mut attempts = 0;
        let mut warned = String::new();
        let (began, mut early) = (*started, false);
        loop {
            attempts += 1;
            let left = timeout.saturating_sub(started.elapsed());
            // At first, an address that leads nowhere must not keep this rank from the others for long.
            let patience = if self.addresses.len() == 1 {
                PATIENCE
            } else {
                PATIENCE.min(FIRST_PATIENCE * attempts)
            };
            let limit = left.clamp(Duration::from_millis(50), patience);
            let last = match self.attempt(self.claims, limit) {
                Ok(reached) => return Ok(reached),
                Err(Attempt::Final(reason)) => return Err(BootError::Refused(reason)),
                Err(Attempt::Later) => {
                    // The ranks of the job before may take as long as they need. The time limit for this job begins
                    // after that.
                    *started = Instant::now();
                    if !early && began.elapsed() >= SAID_AFTER {
                        early = true;
                        let text = format!(
                            "rank {} wants to begin its next job, and waits for ranks that are still in the one before",
                            self.claims.rank
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
            if last != warned && !is_refused(&last) {
                let address = &self.addresses[0];
                tell(|| tracing::warn!(address, reason = last, "cannot join yet"));
                warned.clone_from(&last);
            }
            let waited = started.elapsed();
            if waited + pause >= timeout {
                return Err(BootError::Unreachable {
                    address: self.addresses.join(", "),
                    waited,
                    attempts,
                    last,
                });
            }
            std::thread::sleep(pause);
            pause = longer(pause);
        }
    }

    /// Finds the parent of a rank. `link` is its connection to rank 0, `first` is what it says there, and `attach` is what
    /// it says to its parent.
    pub(crate) fn parent(
        &self,
        mut link: Link<TcpStream>,
        first: &Hop,
        attach: &Hop,
        timeout: Duration,
    ) -> Result<Parent, String> {
        let until = Instant::now().checked_add(timeout);
        say_to(&mut link, first)?;
        loop {
            let (rank, address) = match hear(&mut link, until)? {
                Hop::Place { parent, address } => (parent, address),
                Hop::Abort { reason } | Hop::GivenUp { reason } => return Err(reason),
                _ => return Err("rank 0 said something else than the place of this rank".into()),
            };
            let Some(address) = address.filter(|_| rank != 0) else {
                say_to(&mut link, attach)?;
                return Ok(Parent { rank, link });
            };
            match self.visit(rank, address) {
                Ok(mut parent) => {
                    // From now on the parent notices if this rank ends.
                    say_to(&mut parent, attach)?;
                    // If this fails, rank 0 finds the end of the connection.
                    let _ = say_to(&mut link, &Hop::Placed);
                    return Ok(Parent { rank, link: parent });
                }
                Err(error) => {
                    tell(
                        || tracing::warn!(rank, %address, %error, "cannot reach the parent in the tree"),
                    );
                    say_to(&mut link, &Hop::Unreached)?;
                }
            }
        }
    }

    /// Finds another parent, since the old one has ended.
    pub(crate) fn another_parent(&self, attach: &Hop, timeout: Duration) -> Result<Parent, String> {
        let claims = Claims {
            purpose: Purpose::Resume,
            ..self.claims
        };
        let began = Instant::now();
        let link = loop {
            let left = timeout.saturating_sub(began.elapsed());
            match self.attempt(claims, left.clamp(Duration::from_millis(50), PATIENCE)) {
                Ok(link) => break link,
                // Rank 0 listens as long as it is there.
                Err(Attempt::Again(reason))
                    if !is_refused(&reason) && began.elapsed() < timeout =>
                {
                    std::thread::sleep(FIRST_PATIENCE / 10);
                }
                Err(reason) => return Err(reason.to_string()),
            }
        };
        // Rank 0 may need the same time until it knows that the old parent is gone.
        self.parent(link, &Hop::Resume, attach, timeout.saturating_mul(2))
    }

    /// Connects to a parent, in a few attempts.
    fn visit(&self, rank: u32, address: SocketAddr) -> Result<Link<TcpStream>, Attempt> {
        let claims = Claims {
            host: rank,
            purpose: Purpose::Attach,
            ..self.claims
        };
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.meet(address, claims, [CONNECTS, PATIENCE]) {
                Err(Attempt::Again(reason)) if attempts < ATTEMPTS && !is_unreachable(&reason) => {}
                met => return met,
            }
        }
    }

    fn attempt(&self, claims: Claims, limit: Duration) -> Result<Link<TcpStream>, Attempt> {
        let mut last = Attempt::Again("the name has no address".into());
        let mut addresses = Vec::new();
        for name in &self.addresses {
            match name.to_socket_addrs() {
                Ok(found) => addresses.extend(found),
                Err(error) => last = error.into(),
            }
        }
        for address in addresses {
            match self.meet(address, claims, [limit; 2]) {
                Err(error @ (Attempt::Final(_) | Attempt::Later)) => return Err(error),
                Err(error) => last = error,
                Ok(reached) => return Ok(reached),
            }
        }
        Err(last)
    }

    fn meet(
        &self,
        address: SocketAddr,
        claims: Claims,
        [connects, answers]: [Duration; 2],
    ) -> Result<Link<TcpStream>, Attempt> {
        let stream = TcpStream::connect_timeout(&address, connects)
            .map_err(|error| Attempt::Again(error.to_string()))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(answers))?;
        stream.set_write_timeout(Some(answers))?;
        let Session {
            to_hub, to_rank, ..
        } = handshake::call(&stream, &self.key, claims)?;
        stream.set_nonblocking(true)?;
        Ok(Link::new(stream, to_hub, to_rank, usize::MAX))
    }
}

fn longer(pause: Duration) -> Duration {
    (pause * 3 / 2).min(LONGEST_PAUSE)
}

/// Whether another attempt at this address would fail, too.
fn is_unreachable(reason: &str) -> bool {
    is_refused(reason) || reason.contains("timed out") || reason.contains("unreachable")
}

fn is_refused(reason: &str) -> bool {
    reason.contains("refused (os")
}

/// Sends a hop that is so short that the kernel takes it at once.
fn say_to(link: &mut Link<TcpStream>, hop: &Hop) -> Result<(), String> {
    let sent = link.push(&Body::of(hop)).and_then(|()| link.flush());
    sent.map_err(|error| error.to_string())
}

/// Waits for the next hop.
fn hear(link: &mut Link<TcpStream>, until: Option<Instant>) -> Result<Hop, String> {
    loop {
        let end = link.fill();
        if let Some(hop) = link.next().map_err(|error| error.to_string())? {
            return Ok(hop);
        }
        end.map_err(|error| error.to_string())?;
        if until.is_some_and(|until| Instant::now() >= until) {
            return Err("rank 0 did not answer in time".into());
        }
        let mut fds = [PollFd::new(link.stream(), PollFlags::IN)];
        let timeout = until.map(timeout_until);
        // An error is found by reading.
        let _ = poll(&mut fds, timeout.as_ref());
    }
}
