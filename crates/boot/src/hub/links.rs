//! The connections of the ranks: what is sent, what is read, and in which turns.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;

use super::{Hub, HubPhase, HubToken};
use crate::config::unheard;
use crate::link::{Body, Link};
use crate::wire::Message;

/// How many bytes of letters wait for the next message to their receiver.
const MOST_LETTERS: usize = 4 << 10;

impl Hub {
    pub(super) fn send(&mut self, to: usize, message: &Message) {
        self.send_body(to, &Body::of(message), message);
    }

    pub(super) fn send_body(&mut self, to: usize, body: &Body, message: &Message) {
        self.queue(to, body, message, false);
    }

    /// Sends a letter, which the receiver needs only when the next message comes. It goes with that one, so that the
    /// receiver wakes once for both.
    pub(super) fn send_letter(&mut self, to: usize, letter: &Message) {
        self.queue(to, &Body::of(letter), letter, true);
    }

    fn queue(&mut self, to: usize, body: &Body, message: &Message, may_wait: bool) {
        if to == 0 {
            self.own.push_back(message.clone());
        } else if let Some(Some(link)) = self.links.get_mut(to) {
            self.load.0 += 1;
            self.load.1 += body.len();
            let pushed = link.push(body);
            let may_wait = may_wait && link.waiting() < MOST_LETTERS;
            if !may_wait && !std::mem::replace(&mut link.is_listed, true) {
                self.unsent.push(to);
            }
            if let Err(error) = pushed {
                self.broken(to, error.to_string());
            }
        }
    }

    /// Begins to use the connection of a rank.
    pub(super) fn link(&mut self, rank: usize, link: Link<TcpStream>) -> rustix::io::Result<()> {
        self.crowd.add(link.stream(), rank)?;
        self.links[rank] = Some(link);
        Ok(())
    }

    /// Takes the connection of a rank, which will be closed.
    pub(super) fn unlink(&mut self, rank: usize) -> Option<Link<TcpStream>> {
        let link = self.links[rank].take();
        if let Some(link) = &link {
            self.crowd.remove(link.stream());
        }
        link
    }

    /// The tokens of ranks of which something can be read.
    pub(crate) fn readable(&self) -> impl Iterator<Item = HubToken> {
        self.crowd.readable().into_iter().map(HubToken::Rank)
    }

    pub(super) fn put_off(&mut self, rank: usize) {
        if !std::mem::replace(&mut self.is_in_backlog[rank], true) {
            self.backlog.push_back(rank);
        }
    }

    /// Notes that a connection is broken. The messages that came before still count.
    pub(super) fn broken(&mut self, rank: usize, reason: String) {
        if let Some(link) = &mut self.links[rank] {
            if link.end().is_none() {
                let _ = link.fill();
            }
            link.break_off(reason);
            self.put_off(rank);
        }
    }

    pub(crate) fn interest<'a>(&'a self, mut add: impl FnMut(HubToken, BorrowedFd<'a>, PollFlags)) {
        let now = Instant::now();
        if self.crowded_until(now).is_none() && self.accept_after.is_none_or(|after| now >= after) {
            add(HubToken::Listener, self.listener.as_fd(), PollFlags::IN);
        }
        for (index, caller) in self.callers.iter().enumerate() {
            add(
                HubToken::Caller(index),
                caller.stream().as_fd(),
                PollFlags::IN,
            );
        }
        add(HubToken::Ranks, self.crowd.as_fd(), PollFlags::IN);
        for rank in &self.unsent {
            if let Some(link) = self.links[*rank].as_ref().filter(|link| link.wants_write()) {
                add(HubToken::Rank(*rank), link.stream().as_fd(), PollFlags::OUT);
            }
        }
    }

    /// One of the sockets can be read. Callers must be handled from the last to the first.
    pub(crate) fn ready(&mut self, token: HubToken, now: Instant) {
        match token {
            HubToken::Listener => self.accept(now),
            HubToken::Caller(index) => self.hear_caller(index),
            HubToken::Rank(rank) => self.hear_rank(rank),
            HubToken::Ranks => {}
        }
    }

    pub(super) fn hear_rank(&mut self, rank: usize) {
        let Some(link) = &mut self.links[rank] else {
            return;
        };
        // What has come of a rank in the backlog is handled first.
        if self.is_in_backlog[rank] {
            return;
        }
        if link.end().is_none()
            && let Err(error) = link.fill()
        {
            link.break_off(error.to_string());
        }
        self.heed(rank);
    }

    /// Handles the messages of a rank, as far as the turn allows, and then its end.
    pub(super) fn heed(&mut self, rank: usize) {
        loop {
            if self.is_loaded() {
                return self.put_off(rank);
            }
            let Some(link) = &mut self.links[rank] else {
                return;
            };
            match link.next() {
                Ok(Some(message)) => self.receive(rank, message),
                Ok(None) => break,
                Err(error) => return self.lose(rank, &error.to_string()),
            }
        }
        let end = self.links[rank].as_ref().and_then(Link::end);
        if let Some(reason) = end.map(str::to_owned) {
            self.ended(rank, &reason);
        }
    }

    /// Continues with the first rank of the backlog.
    pub(crate) fn go_on(&mut self) {
        if let Some(rank) = self.backlog.pop_front() {
            self.is_in_backlog[rank] = false;
            self.heed(rank);
        }
    }

    pub(super) fn ended(&mut self, rank: usize, reason: &str) {
        // Until a rank has sent `Join`, no other rank relies on it, and it may try again.
        if self.phase == HubPhase::Gathering && self.joined[rank].is_none() {
            self.unlink(rank);
        } else {
            self.lose(rank, reason);
        }
    }

    /// Sends what can be sent, and closes connections that are not needed any more. A new turn begins.
    pub(crate) fn flush(&mut self) {
        self.tell_departed();
        #[cfg(test)]
        self.flushed.push(self.load);
        self.load = (0, 0);
        for rank in std::mem::take(&mut self.unsent) {
            let Some(link) = &mut self.links[rank] else {
                continue;
            };
            link.is_listed = false;
            if let Err(error) = link.flush() {
                self.broken(rank, error.to_string());
            } else if link.wants_write() {
                link.is_listed = true;
                self.unsent.push(rank);
            } else if self.gone[rank] {
                self.unlink(rank);
            }
        }
    }

    /// Sends a heartbeat to all ranks.
    pub(crate) fn beat(&mut self) {
        let body = Body::of(&Message::Beat);
        for rank in 1..self.size {
            if !self.gone[rank] {
                self.send_body(rank, &body, &Message::Beat);
            }
        }
    }

    /// Gives up ranks that were silent for `limit` intervals. It is called once every interval, after everything that
    /// had arrived was read. Ranks may have sent something while this rank could not run, so their sockets are read
    /// once more first.
    pub(crate) fn look(&mut self, interval: Duration, limit: u32) {
        for rank in 1..self.size {
            let Some(link) = &mut self.links[rank] else {
                continue;
            };
            link.quiet = if std::mem::take(&mut link.heard) {
                0
            } else {
                link.quiet + 1
            };
            if link.quiet < limit {
                continue;
            }
            let silence = interval.saturating_mul(link.quiet);
            self.hear_rank(rank);
            if let Some(link) = &self.links[rank]
                && !link.heard
            {
                self.ended(rank, &unheard(silence));
            }
        }
    }
}
