//! The blocks of a grid that own a half together, as `kernels/tidegate_own.cuh` has them do: each adds its own part
//! of the quantum to the peer's word, behind its own fence, and looks at the words by itself.
//!
//! A block adds only when all blocks have counted the waits before. A block that has heard of a failure neither adds nor
//! counts.
//!
//! Rank 0 owns an outbox, and rank 1 the inbox to which it puts. With the other halves, too, the checker takes a minute.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use loom::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};
use loom::sync::atomic::{AtomicU64, fence};
use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_words::{Bell, Patience};

use super::rig::{Datum, Finding, caught, check, spawn};

/// Elements of a slot.
const LEN: usize = 2;

/// A word, and what the checker knows of it: how many blocks have added their part of each epoch.
struct Word {
    word: AtomicU64,
    added: [AtomicUsize; 2],
}

impl Word {
    fn new(value: u64) -> Self {
        Word {
            word: AtomicU64::new(value),
            added: Default::default(),
        }
    }
}

struct Rank {
    bell: Bell,
    /// What this rank waits for: posts, or completes.
    word: Word,
    /// The waits that are behind the blocks of this rank, all together.
    waited: AtomicU64,
    /// Whether the stream has failed.
    stop: AtomicU64,
    slot: Vec<Datum>,
}

/// What is broken.
#[derive(Clone, Copy, PartialEq)]
enum Flaw {
    /// A block adds without a look at the count of the waits.
    Ungated,
    /// No fence lies in front of a part.
    Unfenced,
    /// Each block adds the whole quantum.
    Whole,
    /// A look at a word does not acquire.
    Blind,
    /// A block that has not added counts its waits.
    FailedCounts,
    /// A block that has failed adds.
    FailedAdds,
}

#[derive(Clone, Copy)]
struct Plan {
    buffers: usize,
    blocks: [usize; 2],
    epochs: u64,
    /// The last block of rank 0 fails when it completes its first epoch.
    fails: bool,
    flaw: Option<Flaw>,
}

struct World {
    ranks: [Rank; 2],
    plan: Plan,
}

#[derive(Clone, Copy)]
struct Block {
    rank: usize,
    index: usize,
    blocks: usize,
    /// It has heard of a failure.
    failed: bool,
    /// The waits that are behind it.
    waits: u64,
}

impl Block {
    fn part(self, world: &World) -> u64 {
        let each = QUANTUM / self.blocks as u64;
        match self.index {
            _ if world.plan.flaw == Some(Flaw::Whole) => QUANTUM,
            0 => QUANTUM - each * (self.blocks as u64 - 1),
            _ => each,
        }
    }

    /// A post of the inbox, or a complete of the outbox.
    fn tell(&mut self, world: &World, n: u64) {
        let (own, peer) = (&world.ranks[self.rank], &world.ranks[1 - self.rank]);
        let flaw = world.plan.flaw;
        let stopped = world.plan.fails && own.stop.load(Relaxed) != 0;
        // A block alone does not count.
        let until = match self.blocks {
            1 => 0,
            blocks => self.waits * blocks as u64,
        };
        let waited = own.waited.load(Relaxed);
        if flaw != Some(Flaw::Unfenced) {
            fence(AcqRel);
        }
        let mut adds = !stopped && !self.failed;
        if adds && waited < until && flaw != Some(Flaw::Ungated) {
            adds = own.wait(&own.waited, until, Acquire);
        }
        if !adds {
            self.failed = true;
            if flaw != Some(Flaw::FailedAdds) {
                return;
            }
        }
        peer.word.added[n as usize].fetch_add(1, Relaxed);
        peer.word.word.fetch_add(self.part(world), Relaxed);
        peer.bell.ring();
    }

    fn await_peer(&mut self, world: &World, until: u64) {
        let own = &world.ranks[self.rank];
        let order = match world.plan.flaw {
            Some(Flaw::Blind) => Relaxed,
            _ => Acquire,
        };
        let came = own.wait(&own.word.word, until, order);
        if !came {
            self.failed = true;
        }
        if self.blocks > 1 && (!self.failed || world.plan.flaw == Some(Flaw::FailedCounts)) {
            own.waited.fetch_add(1, AcqRel);
            own.bell.ring();
        }
        self.waits += 1;
    }

    fn epoch(&mut self, world: &World, n: u64) {
        let (own, peer) = (&world.ranks[self.rank], &world.ranks[1 - self.rank]);
        let theirs = world.plan.blocks[1 - self.rank];
        let buffers = world.plan.buffers;
        let buffer = n as usize % buffers * LEN;
        if self.rank == 1 {
            self.tell(world, n);
            self.await_peer(world, (n + 1) * QUANTUM);
            if !self.failed {
                let added = own.word.added[n as usize].load(Relaxed);
                assert_eq!(added, theirs, "blocks have completed epoch {n}");
                for i in 0..LEN {
                    let came = own.slot[buffer + i].read();
                    assert_eq!(came, value(n, i), "the data of epoch {n}");
                }
            }
            return;
        }
        self.await_peer(world, (n + 1) * QUANTUM);
        if world.plan.fails && self.index + 1 == self.blocks && n == 0 {
            own.fail();
            self.failed = true;
        }
        if !self.failed {
            if let Some(posted) = (n + 1).checked_sub(buffers as u64) {
                let added = own.word.added[posted as usize].load(Relaxed);
                assert_eq!(added, theirs, "blocks have posted epoch {posted}");
            }
            for i in (self.index..LEN).step_by(self.blocks) {
                peer.slot[buffer + i].write(value(n, i));
            }
        }
        self.tell(world, n);
    }
}

impl Rank {
    fn fail(&self) {
        self.stop.store(1, Relaxed);
        self.bell.ring();
    }

    /// Whether the word came so far before the stream failed.
    fn wait(&self, word: &AtomicU64, until: u64, order: loom::sync::atomic::Ordering) -> bool {
        let ready = || {
            let value = word.load(order);
            if value & !POISON >= until {
                return Some(true);
            }
            if value & POISON != 0 {
                self.fail();
                return Some(false);
            }
            (self.stop.load(Relaxed) != 0).then_some(false)
        };
        self.bell.wait(Patience::NONE, ready, || {})
    }
}

fn value(epoch: u64, index: usize) -> u64 {
    10 * (epoch + 1) + index as u64
}

fn exchange(plan: Plan) -> impl Fn() + Send + Sync + 'static {
    move || {
        let rank = |begins| Rank {
            bell: Bell::new(),
            word: Word::new(begins),
            waited: AtomicU64::new(0),
            stop: AtomicU64::new(0),
            slot: (0..plan.buffers * LEN).map(|_| Datum::new()).collect(),
        };
        // As in `Window::open`: a second buffer is exposed at first.
        let ranks = [rank((plan.buffers as u64 - 1) * QUANTUM), rank(0)];
        let world = Arc::new(World { ranks, plan });
        let run = move |rank: usize, index: usize, world: &World| {
            let mut block = Block {
                rank,
                index,
                blocks: plan.blocks[rank],
                failed: false,
                waits: 0,
            };
            (0..plan.epochs).for_each(|n| block.epoch(world, n));
        };
        let start = |rank, index| {
            let world = world.clone();
            spawn(None, move || run(rank, index, &world))
        };
        let others: Vec<_> = (0..plan.blocks[1]).map(|index| start(1, index)).collect();
        let own: Vec<_> = (1..plan.blocks[0]).map(|index| start(0, index)).collect();
        run(0, 0, &world);
        for block in own {
            block.join().expect("a block ends");
        }
        if plan.fails {
            // The item behind the kernel poisons the words of the peer.
            let peer = &world.ranks[1];
            peer.word.word.fetch_or(POISON, AcqRel);
            peer.bell.ring();
        }
        for block in others {
            block.join().expect("a block ends");
        }
    }
}

const PLAN: Plan = Plan {
    buffers: 1,
    blocks: [2, 1],
    epochs: 2,
    fails: false,
    flaw: None,
};
const TWO_BUFFERS: Plan = Plan { buffers: 2, ..PLAN };

fn mutant(plan: Plan, flaw: Flaw) -> impl Fn() + Send + Sync + 'static {
    let flaw = Some(flaw);
    exchange(Plan { flaw, ..plan })
}

#[test]
fn blocks_exchange_over_one_buffer() {
    // (The other way round, it takes four times as long.)
    let blocks = [1, 2];
    check(1, exchange(Plan { blocks, ..PLAN }));
}

#[test]
fn blocks_exchange_over_two_buffers() {
    check(1, exchange(TWO_BUFFERS));
    let blocks = [1, 2];
    check(
        1,
        exchange(Plan {
            blocks,
            ..TWO_BUFFERS
        }),
    );
}

/// A block adds its parts of two epochs before another has added that of the first.
#[test]
fn parts_of_two_epochs_make_a_quantum() {
    let says = Finding::Says("blocks have completed epoch 0");
    caught(says, mutant(TWO_BUFFERS, Flaw::Ungated));
}

#[test]
fn mutants_of_blocks_that_add_parts() {
    caught(Finding::Data, mutant(PLAN, Flaw::Unfenced));
    caught(Finding::Says("blocks have"), mutant(PLAN, Flaw::Whole));
    caught(Finding::Data, mutant(PLAN, Flaw::Blind));
}

const FAILS: Plan = Plan {
    fails: true,
    ..TWO_BUFFERS
};

#[test]
fn no_epoch_is_complete_to_which_a_block_did_not_add() {
    check(1, exchange(FAILS));
}

#[test]
fn mutants_of_blocks_that_fail() {
    let says = Finding::Says("blocks have completed epoch 0");
    caught(says, mutant(FAILS, Flaw::FailedCounts));
    caught(Finding::Data, mutant(FAILS, Flaw::FailedAdds));
}

/// What is broken in a team that waits for itself.
#[derive(Clone, Copy, PartialEq)]
enum TeamFlaw {
    /// A block counts itself in front of the data that it publishes.
    CountsFirst,
    /// A block does not wait until all have counted themselves.
    Hasty,
}

/// Blocks that count themselves at each post and complete, all in one count. They wait behind the complete, and behind
/// the post only if `both`.
fn team(blocks: usize, both: bool, flaw: Option<TeamFlaw>) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bell = Arc::new(Bell::new());
        let arrived = Arc::new(AtomicU64::new(0));
        let data: Arc<Vec<_>> = Arc::new((0..2 * blocks).map(|_| Datum::new()).collect());
        let run = {
            let (bell, arrived, data) = (bell.clone(), arrived.clone(), data.clone());
            move |index: usize| {
                let arrive = || {
                    arrived.fetch_add(1, AcqRel);
                    bell.ring();
                };
                let mut waits = 0;
                for n in 1..=4 {
                    let awaits = both || n % 2 == 0;
                    // What a block wrote is read until the next wait is over, so it writes to two buffers in turn.
                    let buffer = waits % 2 * blocks;
                    if flaw == Some(TeamFlaw::CountsFirst) {
                        arrive();
                    }
                    if awaits {
                        data[buffer + index].write(n);
                    }
                    if flaw != Some(TeamFlaw::CountsFirst) {
                        arrive();
                    }
                    if !awaits {
                        continue;
                    }
                    if flaw != Some(TeamFlaw::Hasty) {
                        let ready = || (arrived.load(Acquire) >= n * blocks as u64).then_some(());
                        bell.wait(Patience::NONE, ready, || {});
                    }
                    for other in 0..blocks {
                        assert_eq!(data[buffer + other].read(), n, "the data of epoch {n}");
                    }
                    waits += 1;
                }
            }
        };
        let others: Vec<_> = (1..blocks)
            .map(|index| {
                let run = run.clone();
                spawn(None, move || run(index))
            })
            .collect();
        run(0);
        for other in others {
            other.join().expect("a block ends");
        }
    }
}

#[test]
fn one_count_is_enough_for_a_team() {
    check(2, team(2, true, None));
    check(2, team(2, false, None));
}

#[test]
fn mutants_of_a_team_that_waits_for_itself() {
    caught(Finding::Data, team(2, true, Some(TeamFlaw::CountsFirst)));
    caught(Finding::Data, team(2, true, Some(TeamFlaw::Hasty)));
}
