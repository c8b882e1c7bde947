//! The owner's side of a door.

use super::{
    Arrived, LONGEST, ToGuest, ToHost, YOUNG, address, check_hello, decoded, hear, say, socket,
    would_block,
};
use crate::handshake::PATIENCE;
use crate::mail::ALL_ROUNDS;
use crate::ready::Crowd;
use crate::secret::Key;
use crate::wire::DoorName;
use rustix::io::Errno;
use rustix::net::{SocketFlags, acceptfrom_with, bind, listen, sockopt};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};
use tidegate_hal::limits::no_descriptors;
use tidegate_hal::tell;

/// How many guests there may be at a time, with strangers that have not been recognised.
pub(super) const ROOM: usize = 64;
/// How many may wait until they are let in, if the kernel allows as many.
const MOST_WAITING: i32 = 4096;

/// A connection of another process.
#[derive(Debug)]
struct Guest {
    /// Guests are numbered in the order in which they come.
    number: usize,
    fd: OwnedFd,
    since: Instant,
    /// Its rank, once it has proved itself.
    rank: Option<usize>,
    /// Whether it was asked to leave.
    leaves: bool,
}

#[derive(Debug)]
pub(crate) struct Door {
    listener: OwnedFd,
    name: DoorName,
    key: Key,
    me: usize,
    /// In ascending order of their numbers.
    guests: Vec<Guest>,
    next: usize,
    /// The connections of the guests, by their numbers.
    crowd: Crowd,
    /// Gives its place to a guest if this process may open no more descriptors.
    reserve: Option<OwnedFd>,
    /// Accepting failed. It is tried again at this time.
    accept_after: Option<Instant>,
}

impl Door {
    pub(crate) fn open(key: Key, name: DoorName, me: usize) -> io::Result<Self> {
        let listener = socket()?;
        bind(&listener, &address(&name)?)?;
        listen(&listener, MOST_WAITING)?;
        Ok(Self {
            reserve: Some(rustix::io::fcntl_dupfd_cloexec(&listener, 0)?),
            listener,
            name,
            key,
            me,
            guests: Vec::new(),
            next: 0,
            crowd: Crowd::new()?,
            accept_after: None,
        })
    }

    /// Until when no guest can be accepted: all places are taken, or accepting failed. If no time helps, the end of a
    /// guest does.
    fn is_crowded(&self, now: Instant) -> bool {
        let failed = self.accept_after.is_some_and(|after| now < after);
        failed || (self.guests.len() >= ROOM && self.silent(now).is_none())
    }

    /// The place of a guest that has to make room: it has said nothing, and had time to.
    fn silent(&self, now: Instant) -> Option<usize> {
        let is_late = |guest: &Guest| guest.rank.is_none() && now >= guest.since + YOUNG;
        self.guests.iter().position(is_late)
    }

    /// What to wait for: new guests (`false`), if there is room, and what guests say (`true`).
    pub(crate) fn interest<'a>(&'a self, now: Instant, mut add: impl FnMut(bool, BorrowedFd<'a>)) {
        if !self.is_crowded(now) {
            add(false, self.listener.as_fd());
        }
        if !self.guests.is_empty() {
            add(true, self.crowd.as_fd());
        }
    }

    /// When [`Door::tick`] has to be called, or whether there is room has to be asked again.
    pub(crate) fn next_tick(&self) -> Option<Instant> {
        let unproved = |guest: &&Guest| guest.rank.is_none();
        let oldest = self.guests.iter().find(unproved).map(|guest| guest.since);
        let room = oldest.filter(|_| self.guests.len() >= ROOM);
        let room = room.map(|since| since + YOUNG);
        let next = [room, self.accept_after].into_iter().flatten();
        let next = next.filter(|at| *at > Instant::now());
        next.chain(oldest.map(|since| since + PATIENCE)).min()
    }

    /// Sends away the guests that have taken too long to prove themselves.
    pub(crate) fn tick(&mut self, now: Instant) {
        let is_late = |guest: &Guest| guest.rank.is_none() && now >= guest.since + PATIENCE;
        while let Some(place) = self.guests.iter().position(is_late) {
            self.take(place);
        }
    }

    fn take(&mut self, place: usize) -> Guest {
        let guest = self.guests.remove(place);
        self.crowd.remove(&guest.fd);
        guest
    }

    /// Accepts the waiting connections of processes of this user, as far as there is room.
    pub(crate) fn admit(&mut self, now: Instant) {
        self.accept_after = self.accept_after.filter(|after| now < *after);
        while !self.is_crowded(now) {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let fd = match acceptfrom_with(&self.listener, flags) {
                Ok((fd, _)) => fd,
                Err(Errno::INTR | Errno::CONNABORTED) => continue,
                Err(error) if would_block(error) => return,
                Err(Errno::MFILE | Errno::NFILE) if self.reserve.is_some() => {
                    // The kernel says this even if nobody waits.
                    self.reserve = None;
                    let guest = acceptfrom_with(&self.listener, flags);
                    let came = guest.is_ok();
                    if let Ok((fd, _)) = guest {
                        let _ = say(&fd, &ToGuest::NoRoom(no_descriptors()), &[]);
                    }
                    self.reserve = rustix::io::fcntl_dupfd_cloexec(&self.listener, 0).ok();
                    if came {
                        continue;
                    }
                    return;
                }
                Err(error) => {
                    tell(
                        || tracing::warn!(%error, "cannot accept a connection of this node for a moment"),
                    );
                    self.accept_after = Some(now + Duration::from_millis(200));
                    return;
                }
            };
            let me = rustix::process::geteuid();
            match sockopt::socket_peercred(&fd) {
                Ok(peer) if peer.uid == me => {}
                Ok(peer) => {
                    tell(
                        || tracing::warn!(user = peer.uid.as_raw(), pid = ?peer.pid, "refused a connection of another user"),
                    );
                    continue;
                }
                Err(error) => {
                    tell(|| tracing::warn!(%error, "refused a connection of an unknown user"));
                    continue;
                }
            }
            if let (true, Some(place)) = (self.guests.len() >= ROOM, self.silent(now)) {
                self.take(place);
                tell(|| {
                    tracing::warn!(
                        "sent a silent connection of this node away to make room for others"
                    )
                });
            }
            let number = self.next;
            self.next += 1;
            if let Err(error) = self.crowd.add(&fd, number) {
                tell(|| tracing::warn!(%error, "cannot watch a connection of this node"));
                continue;
            }
            self.guests.push(Guest {
                number,
                fd,
                // This is not `now`, which may be before the guest came.
                since: Instant::now(),
                rank: None,
                leaves: false,
            });
            self.ask_for_room();
        }
    }

    /// Asks the oldest guest to leave, if there will be no room for the next one.
    fn ask_for_room(&mut self) {
        let staying = self.guests.iter().filter(|guest| !guest.leaves).count();
        let oldest = |guest: &&mut Guest| guest.rank.is_some() && !guest.leaves;
        if staying >= ROOM
            && let Some(guest) = self.guests.iter_mut().find(oldest)
        {
            // If this cannot be sent, the guest has ended, and that is found by reading.
            let _ = say(&guest.fd, &ToGuest::Leave, &[]);
            guest.leaves = true;
        }
    }

    /// Hears all guests that have said something.
    pub(crate) fn hear(&mut self, arrived: &mut Vec<Arrived>) {
        for number in self.crowd.readable() {
            self.hear_guest(number, arrived);
        }
    }

    /// Takes all parcels that `rank`, which is gone, has sent, and closes its connections.
    pub(crate) fn see_off(&mut self, rank: usize, arrived: &mut Vec<Arrived>) {
        let of_rank = |guest: &&Guest| guest.rank == Some(rank);
        let numbers: Vec<_> = self
            .guests
            .iter()
            .filter(of_rank)
            .map(|g| g.number)
            .collect();
        for number in numbers {
            self.hear_guest(number, arrived);
            if let Some(place) = self.place(number) {
                self.take(place);
            }
        }
    }

    fn place(&self, number: usize) -> Option<usize> {
        self.guests
            .binary_search_by_key(&number, |guest| guest.number)
            .ok()
    }

    fn hear_guest(&mut self, number: usize, arrived: &mut Vec<Arrived>) {
        while let Some(place) = self.place(number) {
            let guest = &mut self.guests[place];
            let (bytes, fds) = match hear(&guest.fd) {
                Ok(None) => return,
                Ok(Some(heard)) => heard,
                Err(error) => {
                    let rank = guest.rank;
                    if rank.is_none() {
                        tell(|| tracing::warn!("a connection on this node ended without a proof"));
                    } else {
                        tell(|| tracing::debug!(rank, %error, "a connection on this node ended"));
                    }
                    self.take(place);
                    self.ask_for_room();
                    return;
                }
            };
            let Some(rank) = guest.rank else {
                let proved = check_hello(&self.key, &self.name, &bytes);
                if let Some((rank, tag)) = proved.filter(|(rank, _)| *rank != self.me)
                    && say(&guest.fd, &ToGuest::Welcome(tag), &[]).is_ok()
                {
                    guest.rank = Some(rank);
                    self.ask_for_room();
                    continue;
                }
                self.take(place);
                tell(|| {
                    tracing::warn!(
                        "refused a connection on this node: it does not belong to the job"
                    )
                });
                return;
            };
            match decoded(&bytes).filter(|_| bytes.len() <= LONGEST) {
                Some(ToHost::Parcel { round, count }) => {
                    let got = fds.len();
                    let fds = if got == usize::from(count) {
                        Ok(fds)
                    } else {
                        Err(format!("{got} of {count} arrived: {}", no_descriptors()))
                    };
                    arrived.push(Arrived {
                        from: rank,
                        round,
                        fds,
                    });
                }
                _ => {
                    tell(|| tracing::warn!(rank, "a garbled parcel"));
                    self.take(place);
                    // This rank must not wait for what comes after it.
                    arrived.push(Arrived {
                        from: rank,
                        round: ALL_ROUNDS,
                        fds: Err(format!("the connection to rank {rank} of this node broke")),
                    });
                    return;
                }
            }
        }
    }

    #[cfg(test)]
    pub(super) fn guests(&self) -> Vec<Option<usize>> {
        self.guests.iter().map(|guest| guest.rank).collect()
    }

    #[cfg(test)]
    pub(super) fn rest_until(&mut self, at: Instant) {
        self.accept_after = Some(at);
    }

    #[cfg(test)]
    pub(super) fn send_all_away(&mut self) {
        while !self.guests.is_empty() {
            self.take(0);
        }
    }
}
