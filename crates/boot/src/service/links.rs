//! The connections of a rank in the tree: to its parent, to its children, and to ranks that call.

use super::{Above, Service, Token};
use crate::branch::downs;
use crate::config::unheard;
use crate::handshake::{Answer, Proved, Purpose, Refusal};
use crate::hop::{Down, Hop, Passed};
use crate::link::{Body, Link};
use crate::reach::Parent;
use rustix::event::PollFlags;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::mpsc::{self, TryRecvError};
use std::time::Instant;
use tidegate_hal::tell;

impl Service {
    /// How many bytes may wait for a child.
    fn out_limit(&self) -> usize {
        (2 * self.shared.size + 64) << 20
    }

    /// Moves what goes up to the parent or to the hub, and what the hub says to the branch.
    pub(super) fn pass_up(&mut self, now: Instant) {
        let ups = self.branch.take_up(now);
        match &mut self.above {
            Above::Hub(hub) => {
                for up in ups {
                    hub.hear(up, now);
                }
                hub.all_heard(self.branch.all_heard());
                let items = hub.take_down(now);
                if !items.is_empty() {
                    let upto = hub.last();
                    self.branch.hear_down(Down { upto, items });
                }
                self.answer();
            }
            Above::Parent { link, .. } => {
                for up in ups {
                    if let Err(error) = link.push(&Body::of(&Hop::Up(up))) {
                        link.break_off(error.to_string());
                    }
                }
            }
            Above::Searched(_) | Above::Nothing => {}
        }
    }

    /// Sends the hub's answers to ranks without a parent.
    fn answer(&mut self) {
        let Above::Hub(hub) = &mut self.above else {
            return;
        };
        for (rank, hop) in std::mem::take(&mut hub.answers) {
            // A rank may have called again.
            let guests = self.guests.iter_mut().rev();
            let mut guests = guests.filter(|(guest, _)| *guest == rank);
            if let Some((_, link)) = guests.next() {
                let sent = link.push(&Body::of(&hop)).and_then(|()| link.flush());
                if let Err(error) = sent {
                    link.break_off(error.to_string());
                }
            }
        }
    }

    pub(super) fn send_down(&mut self, child: u32, hop: &Hop) {
        if let Some(link) = self.children.get_mut(&child)
            && let Err(error) = link.push(&Body::of(hop))
        {
            link.break_off(error.to_string());
        }
    }

    /// Gives the kernel what is queued.
    pub(super) fn flush(&mut self) {
        // Children usually get the same, which is encoded once.
        let mut last: Option<(Vec<Arc<Passed>>, u64, Vec<Body>)> = None;
        let now = Instant::now();
        let mut ended = Vec::new();
        for (child, link) in &mut self.children {
            if self.branch.wants_down(*child) {
                let (again, items, upto) = self.branch.take_down(*child);
                let is_same = last.as_ref().is_some_and(|(of, to, _)| {
                    let pairs = of.iter().zip(&items);
                    let mut pairs = pairs.map(|(one, other)| Arc::ptr_eq(one, other));
                    *to == upto && of.len() == items.len() && pairs.all(|is| is)
                });
                if !is_same {
                    let hops = downs(items.clone(), upto);
                    last = Some((items, upto, hops.iter().map(Body::of).collect()));
                }
                let bodies = last.iter().flat_map(|(_, _, bodies)| bodies);
                let first = again.then(|| Body::of(&Hop::Again));
                for body in first.iter().chain(bodies) {
                    if let Err(error) = link.push(body) {
                        link.break_off(error.to_string());
                    }
                }
            }
            if link.wants_write()
                && let Err(error) = link.flush()
            {
                // Its earlier messages count.
                let _ = link.fill();
                link.break_off(error.to_string());
            }
            if link.end().is_some() {
                ended.push(*child);
            }
        }
        for child in ended {
            self.heed_child(child, now);
        }
        if let Above::Parent { link, .. } = &mut self.above
            && link.wants_write()
            && let Err(error) = link.flush()
        {
            // Its earlier messages count; the end is found behind them.
            self.hear_parent();
            self.parent_lost(&error.to_string());
        }
    }

    /// Closes the connections to children that the hub has given up, after telling them.
    pub(super) fn see_off_those_given_up(&mut self) {
        for (child, reason) in std::mem::take(&mut self.branch.given_up) {
            self.send_waiting(child);
            self.end_child(child, &reason, Instant::now());
        }
    }

    /// Sends a child what waits for it. After this, it hears no more.
    pub(super) fn send_waiting(&mut self, child: u32) {
        let (_, items, upto) = self.branch.take_down(child);
        for hop in downs(items, upto) {
            self.send_down(child, &hop);
        }
    }

    /// Ends the connection to a child. If it can still read, it learns that it was given up.
    fn end_child(&mut self, child: u32, reason: &str, now: Instant) {
        if let Some(mut link) = self.children.remove(&child) {
            let given_up = Hop::GivenUp {
                reason: reason.to_owned(),
            };
            if link.end().is_none() {
                let _ = link.push(&Body::of(&given_up)).and_then(|()| link.flush());
            }
        }
        self.branch.lose_child(child, reason, now);
        self.see_off();
    }

    fn hear_child(&mut self, child: u32, now: Instant) {
        if let Some(link) = self.children.get_mut(&child)
            && link.end().is_none()
            && let Err(error) = link.fill()
        {
            link.break_off(error.to_string());
        }
        self.heed_child(child, now);
    }

    /// Handles what a child has sent, and then its end.
    fn heed_child(&mut self, child: u32, now: Instant) {
        while let Some(link) = self.children.get_mut(&child) {
            let wrong = match link.next() {
                Ok(Some(Hop::Up(up))) => {
                    let heard = self.branch.hear_up(child, up, now);
                    heard.err().map(|odd| odd.to_string())
                }
                Ok(Some(_)) => Some("it sent a message that is not allowed at this point".into()),
                Err(error) => Some(error.to_string()),
                Ok(None) => match link.end().map(str::to_owned) {
                    None => return,
                    end => end,
                },
            };
            if let Some(reason) = wrong {
                return self.end_child(child, &reason, now);
            }
        }
    }

    pub(super) fn hear_parent(&mut self) {
        let Above::Parent { link, looked, .. } = &mut self.above else {
            return;
        };
        let now = Instant::now();
        *looked = now;
        link.heard = false;
        let end = link.fill().err();
        if link.heard {
            link.quiet = 0;
        }
        while let Above::Parent { link, .. } = &mut self.above {
            match link.next() {
                Ok(Some(Hop::Down(down))) => self.branch.hear_down(down),
                Ok(Some(Hop::Again)) => self.branch.again(now),
                Ok(Some(Hop::Beat { upto })) => self.branch.hear_beat(upto),
                Ok(Some(Hop::Cut { reason })) => {
                    self.deliver_own();
                    self.rank_0_lost(&reason);
                }
                Ok(Some(Hop::GivenUp { reason })) => {
                    self.deliver_own();
                    if self.bye.is_none() {
                        self.given_up(&reason);
                    }
                }
                Ok(Some(_)) => self.parent_lost("it sent a message that only ranks send"),
                Ok(None) => break,
                Err(error) => self.parent_lost(&error.to_string()),
            }
        }
        if let Some(error) = end {
            self.parent_lost(&error.to_string());
        }
    }

    /// Handles messages that have come before the end of the connection.
    fn deliver_own(&mut self) {
        while let Some(message) = self.branch.own.pop_front() {
            self.deliver(message);
        }
    }

    /// Notes that the connection to the parent has ended, and begins to look for another one.
    pub(super) fn parent_lost(&mut self, reason: &str) {
        let Above::Parent { rank, .. } = &self.above else {
            return;
        };
        let rank = *rank;
        self.deliver_own();
        if !matches!(self.above, Above::Parent { .. }) {
            return;
        }
        if rank == 0 {
            return self.rank_0_lost(reason);
        }
        self.branch.lose_parent();
        if self.bye.is_some() {
            // Those below it look for other parents themselves.
            return self.step_aside();
        }
        tell(|| tracing::debug!(rank, reason, "the parent in the tree has ended"));
        let (found, search) = mpsc::channel();
        let (reach, shared) = (self.reach.clone(), Arc::clone(&self.shared));
        let (attach, silence) = (self.branch.attachment(), self.silence);
        let spawned = std::thread::Builder::new()
            .name("tidegate-search".into())
            .spawn(move || {
                let _ = found.send(reach.another_parent(&attach, silence));
                shared.wake();
            });
        self.above = Above::Searched(search);
        if let Err(error) = spawned {
            self.rank_0_lost(&format!("no thread to find another way to it: {error}"));
        }
    }

    /// Takes the result of the search for another parent.
    fn take_found(&mut self, now: Instant) {
        let Above::Searched(search) = &self.above else {
            return;
        };
        match search.try_recv() {
            Ok(Ok(Parent { rank, link })) => {
                let (link, looked) = (Box::new(link), now);
                self.above = Above::Parent { rank, link, looked };
                self.branch.find_parent(now);
            }
            Ok(Err(reason)) => self.rank_0_lost(&format!("there is no way to it: {reason}")),
            Err(TryRecvError::Disconnected) => {
                self.rank_0_lost("the search for a way to it failed")
            }
            Err(TryRecvError::Empty) => {}
        }
    }

    /// A caller has proved itself.
    fn admit(&mut self, proved: Proved) {
        let rank = proved.session.rank;
        let is_free = match (proved.purpose, &self.above) {
            // A rank may try again until it has joined.
            (Purpose::Join, Above::Hub(hub)) => hub.may_join(rank),
            (Purpose::Resume, Above::Hub(hub)) => hub.may_resume(rank),
            (Purpose::Attach, Above::Nothing) => false,
            (Purpose::Attach, _) => !self.children.contains_key(&(rank as u32)),
            _ => false,
        };
        let from = proved.from;
        let refusal = if is_free {
            match proved.accept() {
                Ok((stream, session)) => {
                    let link = Link::new(stream, session.to_rank, session.to_hub, self.out_limit());
                    return self.guests.push((rank as u32, link));
                }
                Err(refusal) => refusal,
            }
        } else {
            proved.refuse(Answer::Taken);
            Refusal::Taken(rank)
        };
        tell(|| tracing::warn!(%from, reason = %refusal, "refused a caller"));
    }

    /// Hears a guest, which becomes a child, or asks the hub for a place.
    fn hear_guest(&mut self, index: usize, now: Instant) {
        let Some((rank, link)) = self.guests.get_mut(index) else {
            return;
        };
        let rank = *rank;
        let end = link.fill().err().map(|error| error.to_string());
        loop {
            let Some((_, link)) = self.guests.get_mut(index) else {
                return;
            };
            let address: Option<SocketAddr> = link.stream().peer_addr().ok();
            match (link.next(), &mut self.above) {
                (Ok(Some(Hop::Attach { heard, all_heard })), _) => {
                    let (_, link) = self.guests.remove(index);
                    return self.adopt(rank, link, [heard, all_heard], now);
                }
                (Ok(Some(Hop::Join { node, port })), Above::Hub(hub)) => {
                    let address = address.filter(|_| port > 0);
                    let address = address.map(|address| SocketAddr::new(address.ip(), port));
                    hub.join(rank, node, address);
                }
                (Ok(Some(Hop::Resume)), Above::Hub(hub)) => hub.resume(rank, now),
                (Ok(Some(Hop::Unreached)), Above::Hub(hub)) => hub.unreached(rank),
                (Ok(Some(Hop::Placed)), Above::Hub(_)) => {
                    self.guests.remove(index);
                    return;
                }
                (Ok(None), _) => break,
                (Ok(Some(_)), _) => return self.guest_ended(index, "it sent what no rank sends"),
                (Err(error), _) => return self.guest_ended(index, &error.to_string()),
            }
            self.answer();
        }
        if let Some(reason) = end {
            self.guest_ended(index, &reason);
        }
    }

    fn guest_ended(&mut self, index: usize, reason: &str) {
        let (rank, _) = self.guests.remove(index);
        if let Above::Hub(hub) = &mut self.above {
            hub.caller_ended(rank, reason);
        }
    }

    fn adopt(
        &mut self,
        rank: u32,
        link: Link<TcpStream>,
        [heard, all_heard]: [u64; 2],
        now: Instant,
    ) {
        match self.branch.attach(rank, heard, all_heard, now) {
            Ok(()) => {
                self.children.insert(rank, link);
                // It may have said more already.
                self.heed_child(rank, now);
            }
            Err(odd) => {
                if let Above::Hub(hub) = &mut self.above {
                    hub.caller_ended(rank, &odd.to_string());
                }
            }
        }
    }

    pub(super) fn interest<'a>(&'a self, mut add: impl FnMut(Token, BorrowedFd<'a>, PollFlags)) {
        add(Token::Wake, self.shared.wake.as_fd(), PollFlags::IN);
        if let Some(callers) = &self.callers
            && self.guests.len() < self.most_guests
        {
            callers.interest(|index, fd| add(Token::Callers(index), fd, PollFlags::IN));
        }
        let wanted = |link: &Link<TcpStream>| match link.wants_write() {
            true => PollFlags::IN | PollFlags::OUT,
            false => PollFlags::IN,
        };
        for (index, (_, link)) in self.guests.iter().enumerate() {
            add(Token::Guest(index), link.stream().as_fd(), wanted(link));
        }
        for (child, link) in &self.children {
            add(Token::Child(*child), link.stream().as_fd(), wanted(link));
        }
        if let Above::Parent { link, .. } = &self.above {
            add(Token::Parent, link.stream().as_fd(), wanted(link));
        }
        self.node
            .interest(|token, fd, flags| add(Token::Node(token), fd, flags));
    }

    pub(super) fn handle(&mut self, token: Token, flags: PollFlags, now: Instant) {
        // An error or a hang-up is found by reading. Data that can be written is written before the next sleep.
        let read =
            flags.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL);
        match token {
            Token::Wake => {
                let _ = rustix::io::read(&self.shared.wake, &mut [0u8; 8]);
                self.take_found(now);
            }
            Token::Callers(None) if read => {
                if let Some(callers) = &mut self.callers {
                    callers.accept(now);
                }
            }
            Token::Callers(Some(index)) if read => {
                let proved = self
                    .callers
                    .as_mut()
                    .and_then(|callers| callers.hear(index));
                if let Some(proved) = proved {
                    self.admit(proved);
                }
            }
            Token::Guest(index) if read => self.hear_guest(index, now),
            Token::Guest(index) => {
                if let Some((_, link)) = self.guests.get_mut(index) {
                    let _ = link.flush();
                }
            }
            Token::Child(child) if read => self.hear_child(child, now),
            Token::Parent if read => self.hear_parent(),
            Token::Node(token) if read => self.node.ready(token, now),
            _ => {}
        }
    }

    /// Sends a heartbeat to all children.
    pub(super) fn beat(&mut self) {
        let children: Vec<_> = self.branch.children().collect();
        for child in children {
            // What is queued in the branch goes after the heartbeat, which promises nothing then.
            let upto = match self.branch.wants_down(child) {
                true => 0,
                false => self.branch.upto(child),
            };
            self.send_down(child, &Hop::Beat { upto });
        }
    }

    /// Gives up children that were silent for `limit` intervals. It is called once every interval, after everything that
    /// had arrived was read. They may have sent something while this rank could not run, so their sockets are read once
    /// more first.
    pub(super) fn look(&mut self, limit: u32, now: Instant) {
        let children: Vec<_> = self.children.keys().copied().collect();
        for child in children {
            let Some(link) = self.children.get_mut(&child) else {
                continue;
            };
            link.quiet = match std::mem::take(&mut link.heard) {
                true => 0,
                false => link.quiet + 1,
            };
            if link.quiet < limit {
                continue;
            }
            let silence = self.heartbeat.saturating_mul(link.quiet);
            self.hear_child(child, now);
            if let Some(link) = self.children.get(&child)
                && !link.heard
            {
                self.end_child(child, &unheard(silence), now);
            }
        }
    }
}
