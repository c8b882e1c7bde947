//! The trigger slots of an endpoint: how engines keep the promises of [`crate::nic`] on throttling.
//!
//! # Model
//!
//! An endpoint has a *budget* of slots, which all of its queues share. A program occupies a slot from when the NIC
//! knows of it until it is through. A program that is armed while no slot is free stands *in line*, in host memory, and
//! gets a slot when one comes back. Within a queue, slots go to programs in order. Between queues, they go by turns,
//! one at a time, so that no queue starves.
//!
//! **The last slot is reserved** for programs that have been rung for. A program that has not been rung for may have to
//! wait for peers, and they for others, without bound. A program that has been rung for waits only for the wire. (If
//! only a part of its ring has come, it also waits for the other parts. But between the parts its stream waits for
//! nothing.) So the reserved slot always comes back, and every ring is answered in the end, in order of arrival. A
//! budget of 1 suffices for every job, because no program holds a slot while it waits for another that needs one.
//!
//! A program takes one slot. The engine decides what that means: an entry in its table, or a chain of deferred
//! operations of a hardware NIC. An engine that needs several triggers for a program divides its triggers by the most
//! that one program needs.
//!
//! # Failure
//!
//! This module has no failures of its own. A queue that gives up or is dropped returns all its slots.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::lock;

/// The slots of one endpoint, and who holds or wants them.
#[derive(Debug)]
pub struct Slots {
    state: Mutex<State>,
    /// A program that had been rung for has got a slot. Set and taken by who turns the engine; not under the lock,
    /// since it is asked at every turn. It is only a hint to look: what has changed is read under the lock, by the thread that
    /// takes the hint. The swap acquires what the store releases, so that the look is not made too early.
    again: AtomicBool,
    /// Signalled when few enough programs are armed for somebody who waits for that.
    back: Condvar,
}

/// A queue's number among those that share the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member(usize);

#[derive(Debug)]
struct State {
    /// What the NIC has, and how many ranks share that.
    whole: usize,
    ranks: usize,
    budget: usize,
    /// Slots that nobody holds.
    free: usize,
    /// How many of them are for programs that have been rung for.
    kept: usize,
    /// Programs that are armed and not through, with and without a slot: the sum of all shares, each of which may be as
    /// many as it can count.
    armed: u128,
    members: Vec<Option<Share>>,
    /// Queues with programs that have no slot, by turns; each once.
    line: VecDeque<usize>,
    /// Queues whose next program has been rung for, and has no slot.
    rung: VecDeque<usize>,
    /// How many threads wait until fewer are armed, and how few one of them wants: nobody is woken for every slot.
    waiting: usize,
    wake: usize,
}

/// What one queue has.
#[derive(Debug, Default)]
struct Share {
    /// Slots, of its first programs.
    held: usize,
    /// Programs behind these, without one.
    without: usize,
    in_line: bool,
    rung: bool,
    /// Programs that were armed, ever; and those that are through.
    armed: u64,
    through: u64,
}

impl Slots {
    /// So many slots.
    ///
    /// # Panics
    ///
    /// If there are none: nothing could ever be fired.
    pub fn new(budget: usize) -> Self {
        Slots::keeping(budget, 1)
    }

    /// As [`Slots::new`], of which `kept` are kept for what has been rung for. It must be 1 or more: 0 is the mutant by
    /// which tests show what it is for, and hangs jobs.
    #[doc(hidden)]
    pub fn keeping(budget: usize, kept: usize) -> Self {
        assert_ne!(budget, 0, "an endpoint has at least one trigger slot");
        Slots {
            state: Mutex::new(State {
                whole: budget,
                ranks: 1,
                budget,
                free: budget,
                kept,
                armed: 0,
                members: Vec::new(),
                line: VecDeque::new(),
                rung: VecDeque::new(),
                waiting: 0,
                wake: 0,
            }),
            again: AtomicBool::new(false),
            back: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic here comes before anything is assigned, or not at all.
        lock(&self.state)
    }

    /// Leaves this endpoint its share of a NIC that `ranks` of its node use; at least 1. Before anything is armed.
    ///
    /// # Panics
    ///
    /// If something is.
    pub fn divide(&self, ranks: usize) {
        let mut state = self.lock();
        assert_eq!(state.armed, 0, "the NIC is divided when the ranks meet");
        state.ranks = ranks.max(1);
        state.share_out();
    }

    /// Another number for the whole NIC, of which this endpoint has its share: for measurements. `false`, and nothing
    /// has changed, while something is armed.
    ///
    /// # Panics
    ///
    /// If it is 0.
    pub fn resize(&self, whole: usize) -> bool {
        assert_ne!(whole, 0, "a NIC has at least one trigger slot");
        let mut state = self.lock();
        if state.armed > 0 {
            return false;
        }
        state.whole = whole;
        state.share_out();
        true
    }

    /// How many there are.
    pub fn budget(&self) -> usize {
        self.lock().budget
    }

    /// A queue begins to share them.
    pub fn join(&self) -> Member {
        let mut state = self.lock();
        let share = Some(Share::default());
        match state.members.iter().position(Option::is_none) {
            Some(vacant) => {
                state.members[vacant] = share;
                Member(vacant)
            }
            None => {
                state.members.push(share);
                Member(state.members.len() - 1)
            }
        }
    }

    /// A queue has come to its end: what it has goes back, and its number to the next.
    pub fn leave(&self, member: Member) {
        self.give_up(member);
        self.lock().members[member.0] = None;
    }

    /// So many more programs of a queue are armed: with slots as far as there are any, else in line.
    pub fn arm(&self, member: Member, programs: usize) {
        let mut state = self.lock();
        let share = state.share(member.0);
        share.armed = share.armed.saturating_add(programs as u64);
        let more = programs.min(usize::MAX - share.without);
        share.without += more;
        if share.without > 0 && !std::mem::replace(&mut share.in_line, true) {
            state.line.push_back(member.0);
        }
        state.armed += more as u128;
        state.deal();
    }

    /// Whether the next program of a queue, which has been rung for, has a slot, or gets one now. If not, it gets one
    /// when its turn comes: see [`Slots::take_again`].
    ///
    /// Only while none of this queue is being fired.
    pub fn fire(&self, member: Member) -> bool {
        let mut state = self.lock();
        let share = state.share(member.0);
        if share.held > 0 {
            return true;
        }
        if share.without == 0 {
            return false;
        }
        if !std::mem::replace(&mut share.rung, true) {
            state.rung.push_back(member.0);
            // If a slot is free, nobody was before it in this line; the caller knows that it got one.
            state.deal();
        }
        state.share(member.0).held > 0
    }

    /// The program of a queue that was being fired is through: its slot comes back.
    pub fn through(&self, member: Member) {
        let mut state = self.lock();
        let share = state.share(member.0);
        debug_assert!(share.held > 0, "what is fired has a slot");
        share.held -= 1;
        share.through += 1;
        state.free += 1;
        state.armed -= 1;
        self.came_back(state);
    }

    /// None of a queue's programs will be fired any more.
    pub fn give_up(&self, member: Member) {
        let mut state = self.lock();
        let share = state.share(member.0);
        let (held, without) = (share.held, share.without);
        (share.held, share.without) = (0, 0);
        (share.in_line, share.rung) = (false, false);
        share.through = share.armed;
        state.free += held;
        state.armed -= held as u128 + without as u128;
        state.line.retain(|each| *each != member.0);
        state.rung.retain(|each| *each != member.0);
        self.came_back(state);
    }

    /// Deals what has come back, and says so.
    fn came_back(&self, mut state: MutexGuard<'_, State>) {
        if state.deal() {
            self.again.store(true, Ordering::Release);
        }
        if state.waiting > 0 && state.armed() <= state.wake {
            self.back.notify_all();
        }
    }

    /// Whether a program that had been rung for has got a slot since the last call: its queue must be looked at again.
    pub fn take_again(&self) -> bool {
        self.again.load(Ordering::Relaxed) && self.again.swap(false, Ordering::Acquire)
    }

    /// How many of a queue's programs have a slot, its first ones: for engines that hand them to a NIC then.
    pub fn held(&self, member: Member) -> usize {
        self.lock().share(member.0).held
    }

    /// How many programs of a queue were armed so far, and how many of these are through.
    pub fn counts(&self, member: Member) -> (u64, u64) {
        let mut state = self.lock();
        let share = state.share(member.0);
        (share.armed, share.through)
    }

    /// How many programs are armed and not through, with and without a slot.
    pub fn armed(&self) -> usize {
        self.lock().armed()
    }

    /// Waits until no more programs are armed than `most`, but no longer than `limit`; returns how many are.
    pub fn wait(&self, most: usize, limit: Duration) -> usize {
        let mut state = self.lock();
        if state.armed() > most {
            state.waiting += 1;
            state.wake = state.wake.max(most);
            let more = |state: &mut State| state.armed() > most;
            let woken = self.back.wait_timeout_while(state, limit, more);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
            state.waiting -= 1;
            if state.waiting == 0 {
                state.wake = 0;
            }
        }
        state.armed()
    }
}

impl State {
    /// No more than can be said.
    fn armed(&self) -> usize {
        usize::try_from(self.armed).unwrap_or(usize::MAX)
    }

    /// While none is held.
    fn share_out(&mut self) {
        self.budget = (self.whole / self.ranks).max(1);
        self.free = self.budget;
    }

    fn share(&mut self, member: usize) -> &mut Share {
        self.members[member].as_mut().expect("it has not left")
    }

    /// Gives away what may be given: first to those that have been rung for, since these bring it back (returns whether
    /// there were any); then to the line, but for what is kept.
    fn deal(&mut self) -> bool {
        let mut again = false;
        while self.free > 0
            && let Some(member) = self.rung.pop_front()
        {
            let share = self.share(member);
            share.rung = false;
            debug_assert!(share.held == 0 && share.without > 0, "it had none");
            share.held += 1;
            share.without -= 1;
            self.free -= 1;
            again = true;
        }
        while self.free > self.kept
            && let Some(member) = self.line.pop_front()
        {
            let (alone, most) = (self.line.is_empty(), self.free - self.kept);
            let share = self.share(member);
            let given = share.without.min(if alone { most } else { 1 });
            share.held += given;
            share.without -= given;
            share.in_line = share.without > 0;
            let in_line = share.in_line;
            self.free -= given;
            if in_line {
                self.line.push_back(member);
            }
        }
        again
    }
}
