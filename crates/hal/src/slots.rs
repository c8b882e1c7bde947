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
//! nothing.) If the wire never ends it because its peer is gone, the engine gives its queue up. So the reserved slot
//! always comes back, and every ring is answered in the end, in order of arrival. A budget of 1 suffices for every job,
//! because no program holds a slot while it waits for another that needs one.
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

/// The slots of one endpoint, and which queues hold or need them.
#[derive(Debug)]
pub struct TriggerSlots {
    state: Mutex<State>,
    /// Whether a program that had been rung for has got a slot. The thread that turns the engine sets and takes it, at
    /// every turn, and so without the lock. It is only a hint: that thread then reads the changes under the lock. The
    /// swap acquires what the store releases, so that the thread does not read too early.
    again: AtomicBool,
    /// Signalled when so few programs are armed that a waiting thread goes on.
    back: Condvar,
}

/// A queue's number among those that share the slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member(usize);

#[derive(Debug)]
struct State {
    /// The slots of the NIC, and how many ranks share them.
    whole: usize,
    ranks: usize,
    budget: usize,
    /// Slots that no program holds.
    free: usize,
    /// How many slots are reserved for programs that have been rung for.
    kept: usize,
    /// Programs that are armed and not through, with and without a slot. It is the sum over all queues, each of which
    /// may have `usize::MAX`.
    armed: u128,
    members: Vec<Option<Share>>,
    /// Queues with programs that have no slot, in the order of their turns. Each queue is here once.
    line: VecDeque<usize>,
    /// Queues whose next program has been rung for, and has no slot.
    rung: VecDeque<usize>,
    /// How many threads wait until fewer programs are armed, and the greatest number for which one of them goes on. So
    /// no thread is woken for every slot.
    waiting: usize,
    wake: usize,
}

/// The programs of one queue.
#[derive(Debug, Default)]
struct Share {
    /// How many of its first programs have a slot.
    held: usize,
    /// How many programs after these have none.
    without: usize,
    in_line: bool,
    rung: bool,
    /// How many programs were ever armed, and how many of these are through.
    armed: u64,
    through: u64,
}

impl TriggerSlots {
    /// Makes an endpoint's `budget` slots.
    ///
    /// # Panics
    ///
    /// If the budget is 0: nothing could ever be fired.
    pub fn new(budget: usize) -> Self {
        TriggerSlots::keeping(budget, 1)
    }

    /// Like [`TriggerSlots::new`], with `kept` slots reserved for programs that have been rung for. It must be at least 1.
    /// Tests use 0 to show what the reserved slot is for: jobs hang without it.
    #[doc(hidden)]
    pub fn keeping(budget: usize, kept: usize) -> Self {
        assert_ne!(budget, 0, "an endpoint has at least one trigger slot");
        TriggerSlots {
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
        // The data is whole even after a panic: every panic here comes before the first assignment.
        lock(&self.state)
    }

    /// Gives this endpoint its share of a NIC that `ranks` ranks of its node use: at least 1 slot. To be called before
    /// anything is armed.
    ///
    /// # Panics
    ///
    /// If something is armed.
    pub fn divide(&self, ranks: usize) {
        let mut state = self.lock();
        assert_eq!(state.armed, 0, "the NIC is divided when the ranks meet");
        state.ranks = ranks.max(1);
        state.share_out();
    }

    /// Sets the number of slots of the whole NIC, of which this endpoint has its share. Measurements use it. If
    /// something is armed, it changes nothing and returns `false`.
    ///
    /// # Panics
    ///
    /// If the number is 0.
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

    /// How many slots this endpoint has.
    pub fn budget(&self) -> usize {
        self.lock().budget
    }

    /// Adds a queue.
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

    /// Removes a queue. Its slots come back, and a later queue may get its number.
    pub fn leave(&self, member: Member) {
        self.give_up(member);
        self.lock().members[member.0] = None;
    }

    /// Arms more programs of a queue. They get slots as far as some are free; the others stand in line.
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

    /// Whether the next program of a queue, which has been rung for, has a slot or gets one now. Otherwise it gets one
    /// when its turn comes: see [`TriggerSlots::take_again`].
    ///
    /// To be called only while no program of this queue is being fired.
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
            // If a slot is free, this queue was the first in line. The caller learns here that it got the slot, so the
            // hint is not needed.
            state.deal();
        }
        state.share(member.0).held > 0
    }

    /// Notes that the program being fired is through. Its slot comes back.
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

    /// Gives up all programs of a queue. Their slots come back.
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

    /// Deals out the slots that have come back, and tells those that wait.
    fn came_back(&self, mut state: MutexGuard<'_, State>) {
        if state.deal() {
            self.again.store(true, Ordering::Release);
        }
        if state.waiting > 0 && state.armed() <= state.wake {
            self.back.notify_all();
        }
    }

    /// Whether a program that had been rung for has got a slot since the last call. If so, the engine must look at the
    /// queues again.
    pub fn take_again(&self) -> bool {
        self.again.load(Ordering::Relaxed) && self.again.swap(false, Ordering::Acquire)
    }

    /// How many of a queue's first programs have a slot. An engine may hand these to its NIC.
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

    /// Waits until at most `most` programs are armed, but no longer than `limit`. Returns how many are.
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
    /// At most `usize::MAX`.
    fn armed(&self) -> usize {
        usize::try_from(self.armed).unwrap_or(usize::MAX)
    }

    /// Computes the budget anew; to be called only while no slot is held.
    fn share_out(&mut self) {
        self.budget = (self.whole / self.ranks).max(1);
        self.free = self.budget;
    }

    fn share(&mut self, member: usize) -> &mut Share {
        self.members[member].as_mut().expect("it has not left")
    }

    /// Deals out the free slots. First come programs that have been rung for, because these bring their slots back;
    /// returns whether there were any. Then comes the line, except for the reserved slots.
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
