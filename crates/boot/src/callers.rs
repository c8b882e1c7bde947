//! Callers of a rank, until they have proved that they are ranks of the job.
//!
//! Callers that do not prove it are logged and refused. There are at most [`MAX_CALLERS`] at a time, and fewer if this
//! process may have few descriptors.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::process::{Resource, getrlimit};
use tidegate_hal::limits::WithLimit;
use tidegate_hal::tell;

use crate::handshake::{Answer, Caller, PATIENCE, Proved, Refusal};
use crate::secret::Key;

/// How many callers may be unproved at a time.
pub(crate) const MAX_CALLERS: usize = 64;
/// How many callers may wait until they are accepted, if the kernel allows as many.
const MOST_WAITING: i32 = 4096;
/// A younger caller is not refused to make room, since it may be a slow rank.
const YOUNG: Duration = Duration::from_millis(500);

/// How many connections of one kind this process may have: `most`, or fewer if it may have few descriptors.
pub(crate) fn room_for(most: usize) -> usize {
    let descriptors = getrlimit(Resource::Nofile).current;
    let part = descriptors.map_or(u64::MAX, |descriptors| descriptors / 4);
    most.min(usize::try_from(part).unwrap_or(usize::MAX)).max(1)
}

/// The socket at which a rank listens, and those who call there.
pub(crate) struct Callers {
    listener: TcpListener,
    key: Key,
    me: usize,
    size: usize,
    /// The number of this job, among the jobs for which the environment was used one after the other.
    generation: u64,
    list: Vec<Caller>,
    /// How many callers there may be at a time.
    room: usize,
    /// Accepting failed (because of too many open files, for example). It is tried again at this time.
    accept_after: Option<Instant>,
    /// The last error of accepting, if it failed.
    pub(crate) not_accepted: Option<std::io::Error>,
}

impl Callers {
    pub(crate) fn new(
        listener: TcpListener,
        key: Key,
        me: usize,
        size: usize,
        generation: u64,
    ) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        // All ranks may call at once. A kernel that has no room for a caller lets it wait for a second or longer.
        rustix::net::listen(&listener, MOST_WAITING)?;
        Ok(Self {
            listener,
            key,
            me,
            size,
            generation,
            list: Vec::new(),
            room: room_for(MAX_CALLERS),
            accept_after: None,
            not_accepted: None,
        })
    }

    /// Lets callers in, as far as there is room.
    pub(crate) fn accept(&mut self, now: Instant) {
        (self.accept_after, self.not_accepted) = (None, None);
        while self.crowded_until(now).is_none() {
            match self.listener.accept() {
                Ok((stream, from)) => match Caller::greet(stream, from, now) {
                    Ok(caller) => {
                        if self.list.len() >= self.room {
                            // The oldest caller has had enough time; a rank of the job needs milliseconds.
                            let oldest = self.list.remove(0);
                            tell(
                                || tracing::warn!(from = %oldest.from, "sent a caller away to make room for others"),
                            );
                        }
                        self.list.push(caller);
                    }
                    Err(reason) => tell(|| tracing::warn!(%from, %reason, "refused a caller")),
                },
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error)
                    if matches!(
                        error.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(error) => {
                    tell(
                        || tracing::warn!(error = %WithLimit(&error), "cannot accept callers for a moment"),
                    );
                    self.accept_after = Some(now + Duration::from_millis(200));
                    self.not_accepted = Some(error);
                    return;
                }
            }
        }
    }

    /// Reads from a caller. Returns it if it has proved itself.
    pub(crate) fn hear(&mut self, index: usize) -> Option<Proved> {
        let caller = self.list.get_mut(index)?;
        let from = caller.from;
        let refusal = match caller.advance() {
            Ok(false) => return None,
            Ok(true) => match self.list.remove(index).check(&self.key, self.size) {
                Ok(proved) => {
                    let rank = proved.session.rank;
                    if let Some(answer) = proved.other_generation(self.generation) {
                        tell(
                            || tracing::debug!(%from, rank, ?answer, "a rank of another generation"),
                        );
                        proved.refuse(answer);
                        return None;
                    }
                    if proved.host == self.me && rank < self.size && rank != self.me {
                        return Some(proved);
                    }
                    proved.refuse(Answer::Taken);
                    Refusal::Taken(rank)
                }
                Err(refusal) => refusal,
            },
            Err(refusal) => {
                self.list.remove(index);
                refusal
            }
        };
        tell(|| tracing::warn!(%from, reason = %refusal, "refused a caller"));
        None
    }

    /// Until when no caller can be accepted, because there is no room, and none that may be sent away.
    fn crowded_until(&self, now: Instant) -> Option<Instant> {
        let oldest = self.list.iter().map(|c| c.since).min();
        let until = oldest.filter(|_| self.list.len() >= self.room)? + YOUNG;
        (now < until).then_some(until)
    }

    /// What to wait for: new callers (`None`), if there is room, and what each of the others says.
    pub(crate) fn interest<'a>(&'a self, mut add: impl FnMut(Option<usize>, BorrowedFd<'a>)) {
        let now = Instant::now();
        if self.crowded_until(now).is_none() && self.accept_after.is_none_or(|after| now >= after) {
            add(None, self.listener.as_fd());
        }
        for (index, caller) in self.list.iter().enumerate() {
            add(Some(index), caller.stream().as_fd());
        }
    }

    /// Refuses slow callers.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.list.retain(|caller| {
            let patient = now < caller.since + PATIENCE;
            if !patient {
                tell(|| tracing::warn!(from = %caller.from, "refused a caller: it took too long to prove itself"));
            }
            patient
        });
    }

    /// When [`Callers::tick`] has to be called, or whether there is room has to be asked again.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let oldest = self.list.iter().map(|c| c.since).min();
        let crowded = self.crowded_until(Instant::now());
        let callers = crowded.or(oldest.map(|since| since + PATIENCE));
        let accept = self.accept_after.filter(|after| *after > Instant::now());
        callers.into_iter().chain(accept).min()
    }
}

#[cfg(test)]
mod tests;
