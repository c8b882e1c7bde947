//! The blocks of a kernel that complete their target together, as `kernels/tidegate_put.cuh` has them do.
//!
//! Each block puts, and then counts itself. The last one completes the target. The kernel may break its contract: more
//! blocks come than it said.

use std::cell::Cell;
use std::sync::Arc;

use loom::sync::atomic::AtomicU64;
use loom::sync::atomic::Ordering::{AcqRel, Relaxed};
use tidegate_hal::batch::{Awaited, Check, POISON, QUANTUM, Step, Tag, Wait};
use tidegate_words::{Bell, Grant};

use super::rig::{Edge, Finding, Stream, add, add_value, at, caught, check, spawn};

/// The blocks of an epoch's kernel.
#[derive(Clone, Copy, Debug)]
struct Grid {
    /// How many put.
    put: usize,
    /// How many come.
    come: usize,
    /// How many the kernel says.
    said: u64,
}

const TWO: Grid = Grid {
    put: 2,
    come: 2,
    said: 2,
};

/// What is broken.
#[derive(Clone, Copy, Debug, Default)]
struct Flaws {
    /// The count of the blocks has no order.
    relaxed: bool,
    /// A block looks whether the target is complete, and then completes it by a store.
    in_two_steps: bool,
    /// The batch behind the kernel does not look for blocks that were left over.
    unchecked: bool,
}

/// What kernels of all blocks share, besides the words.
struct Table {
    grant: Grant,
    arrived: AtomicU64,
    /// Whether a block has found the target complete.
    fault: AtomicU64,
}

impl Table {
    fn new() -> Self {
        Table {
            grant: Grant::new(),
            arrived: AtomicU64::new(0),
            fault: AtomicU64::new(0),
        }
    }

    /// A block has put. If it is the last, it completes the target.
    fn come(&self, said: u64, edge: &Edge, bell: &Bell, flaws: Flaws) {
        let order = if flaws.relaxed { Relaxed } else { AcqRel };
        // The count begins again at 0, as that of `atomicInc` does.
        let wraps = |old| Some(if old + 1 >= said { 0 } else { old + 1 });
        let old = self.arrived.fetch_update(order, Relaxed, wraps);
        if said > 1 && old != Ok(said - 1) {
            return;
        }
        let completed = if flaws.in_two_steps {
            self.complete_in_two_steps(edge, bell)
        } else {
            self.grant.complete(&edge.done.word, bell)
        };
        if !completed {
            self.fault.store(1, Relaxed);
        }
    }

    fn complete_in_two_steps(&self, edge: &Edge, bell: &Bell) -> bool {
        let given = self.grant.given.load();
        if given & POISON != 0 || given / QUANTUM % 2 == 0 {
            return false;
        }
        self.grant.given.advance(given + QUANTUM);
        edge.done.word.add(QUANTUM);
        bell.ring();
        true
    }
}

fn tag() -> Tag {
    Tag {
        window: None,
        peer: 1,
        awaited: Awaited::Kernel,
    }
}

/// The batch behind the kernel.
fn complete(
    table: &Table,
    numbers: &[Cell<u64>; 2],
    edge: &Edge,
    own: &Bell,
    bell: &Bell,
    flaws: Flaws,
) -> Vec<Step> {
    let none = |count: &Cell<u64>| {
        Step::Check(Check {
            count: at(count),
            most: 0,
            tag: tag(),
        })
    };
    // Checks read plain memory, but loom's atomics are none.
    numbers[0].set(table.fault.load(Relaxed));
    numbers[1].set(table.arrived.load(Relaxed));
    let mut steps = vec![
        none(&numbers[0]),
        Step::Wait(Wait {
            word: at(&table.grant.check),
            operand: at(&table.grant.passed),
            quantum: QUANTUM,
            tag: tag(),
            landed: None,
            ring: None,
        }),
    ];
    if !flaws.unchecked {
        steps.push(none(&numbers[1]));
    }
    steps.push(add_value(&table.grant.given, 0, own));
    steps.push(add_value(&edge.done.word, 0, bell));
    steps
}

/// Epochs of one origin, each with a grid, and one target. The target's wait must end well in the first `well` epochs.
fn epochs(grids: &'static [Grid], well: usize, flaws: Flaws) -> impl Fn() + Send + Sync + 'static {
    move || {
        let bells = Arc::new([Bell::new(), Bell::new()]);
        let edge = Arc::new(Edge::with(0, 1, 1, 2, 0));
        let origin = {
            let (edge, bells) = (edge.clone(), bells.clone());
            spawn(None, move || {
                let table = Arc::new(Table::new());
                let numbers = [Cell::new(0), Cell::new(0)];
                let mut stream = Stream::new(&bells[0]);
                for (epoch, grid) in (0..).zip(grids) {
                    let given = add(&table.grant.given, Some(&bells[0]));
                    let _ = stream.run([vec![edge.await_exposure(), given]]);
                    let failed = stream.has_failed();
                    let block = {
                        let (table, edge, bells) = (table.clone(), edge.clone(), bells.clone());
                        move |index: usize| {
                            if failed {
                                return;
                            }
                            if index < grid.put {
                                edge.store_one(epoch, index);
                            }
                            if index < grid.come {
                                table.come(grid.said, &edge, &bells[1], flaws);
                            }
                        }
                    };
                    let other = {
                        let block = block.clone();
                        spawn(None, move || block(1))
                    };
                    block(0);
                    other.join().expect("a block ends");
                    // (A third block would be one thread more than the checker can take.)
                    block(2);
                    let (own, bell) = (&bells[0], &bells[1]);
                    let _ = stream.run([complete(&table, &numbers, &edge, own, bell, flaws)]);
                }
            })
        };
        let mut stream = Stream::new(&bells[1]);
        for epoch in 0..grids.len() {
            stream.go([edge.post(&bells[0])]);
            let ended = stream.run([edge.wait()]);
            assert_eq!(ended.is_ok(), epoch < well, "a wait for too few blocks");
            if ended.is_err() {
                break;
            }
            edge.verify(epoch as u64);
        }
        origin.join().expect("the origin ends");
    }
}

#[test]
fn the_last_block_completes_the_target() {
    check(2, epochs(&[TWO], 1, Flaws::default()));
    check(1, epochs(&[TWO, TWO], 2, Flaws::default()));
}

#[test]
fn mutants_of_blocks_that_complete() {
    let relaxed = true;
    let flaws = Flaws {
        relaxed,
        ..Flaws::default()
    };
    caught(Finding::Race, epochs(&[TWO], 1, flaws));
}

/// Three blocks come, for two. The stream fails, so the next kernel does not begin to count where they have ended.
const SURPLUS: [Grid; 2] = [Grid { come: 3, ..TWO }, TWO];

#[test]
fn blocks_that_are_left_over_are_found() {
    check(1, epochs(&SURPLUS, 1, Flaws::default()));
    let unchecked = true;
    let flaws = Flaws {
        unchecked,
        ..Flaws::default()
    };
    let says = Finding::Says("a wait for too few blocks");
    caught(says, epochs(&SURPLUS, 1, flaws));
}

/// Two blocks come at the same time, and each takes itself for the last.
fn both(in_two_steps: bool) -> impl Fn() + Send + Sync + 'static {
    let flaws = Flaws {
        in_two_steps,
        ..Flaws::default()
    };
    move || {
        let bells = Arc::new([Bell::new(), Bell::new()]);
        let edge = Arc::new(Edge::with(0, 1, 1, 2, 1));
        let table = Arc::new(Table::new());
        let mut stream = Stream::new(&bells[0]);
        stream.go([vec![
            edge.await_exposure(),
            add(&table.grant.given, Some(&bells[0])),
        ]]);
        let other = {
            let (table, edge, bells) = (table.clone(), edge.clone(), bells.clone());
            spawn(None, move || table.come(1, &edge, &bells[1], flaws))
        };
        table.come(1, &edge, &bells[1], flaws);
        other.join().expect("the block ends");
        assert_eq!(edge.done.word.load(), QUANTUM, "two quanta");
        assert_eq!(table.fault.load(Relaxed), 1, "the second block is found");
        let numbers = [Cell::new(0), Cell::new(0)];
        let steps = complete(&table, &numbers, &edge, &bells[0], &bells[1], flaws);
        assert!(stream.run([steps]).is_err());
    }
}

#[test]
fn of_two_blocks_one_completes_the_target() {
    check(None, both(false));
    caught(Finding::Says("two quanta"), both(true));
}
