//! Numbers that are too great end a stream.

use std::ops::Range;

use tidegate_hal::batch::{Action, Add, Awaited, Batch, Check, Move, POISON, QUANTUM, Step, Tag};
use tidegate_hal::memory::Ptr;

use super::super::FAULT_COUNT;
use super::launched::{Home, Launched};
use super::machine::{Do, Event, Machine};
use super::memory::{Arena, change, value};
use super::steps::{WINDOW, add, linear, wait};
use crate::lower::random::Rng;

fn tag(peer: usize) -> Tag {
    Tag {
        window: WINDOW,
        peer: peer as u32,
        awaited: Awaited::Completion,
    }
}

/// A lane with checks in front of a move and an add. Or the lane of a target that a kernel has completed.
struct Lane {
    by_kernel: bool,
    /// A word that the lane waits for, and that comes later.
    late: Option<Ptr>,
    steps: Vec<Step>,
    /// The first number that does not pass.
    wrong: Option<u64>,
    src: Ptr,
    dst: Ptr,
    words: usize,
    out: Ptr,
}

impl Lane {
    /// Its adds add nothing. As a rule the word that it waits for has come, but not always.
    fn by_kernel(number: usize, arena: &mut Arena, bell: Ptr, rng: &mut Rng) -> Self {
        let counts = [0; 2].map(|_| {
            if rng.once_in(6) {
                rng.of(&[1, 1 << 40])
            } else {
                0
            }
        });
        let check = |count| {
            Step::Check(Check {
                count,
                most: 0,
                tag: tag(number),
            })
        };
        let nothing = |out| {
            let Step::Add(add) = add(out, bell) else {
                unreachable!()
            };
            Step::Add(Add { value: 0, ..add })
        };
        let places = counts.map(|count| arena.word(count));
        let is_late = rng.once_in(4);
        let word = arena.word(if is_late { 0 } else { QUANTUM });
        let (operand, out) = (arena.word(0), arena.word(0));
        let mut steps = vec![
            check(places[0]),
            wait(word, operand, QUANTUM, 9),
            check(places[1]),
        ];
        steps.extend([arena.word(0), out].map(nothing));
        Lane {
            by_kernel: true,
            late: is_late.then_some(word),
            steps,
            wrong: counts.into_iter().find(|count| *count != 0),
            src: operand,
            dst: out,
            words: 0,
            out,
        }
    }

    fn new(number: usize, arena: &mut Arena, bell: Ptr, rng: &mut Rng) -> Self {
        if rng.once_in(3) {
            return Lane::by_kernel(number, arena, bell, rng);
        }
        let mut steps = Vec::new();
        if rng.once_in(2) {
            let (word, operand) = (arena.word(QUANTUM), arena.word(0));
            steps.push(wait(word, operand, QUANTUM, 9));
        }
        let mut wrong = None;
        for _ in 0..rng.within(1..=3) {
            let most = rng.of(&[0, 1, 77, u64::MAX - 1]);
            let passes = !rng.once_in(4);
            let count = match passes {
                true => rng.of(&[0, most / 2, most]),
                false => rng.of(&[most + 1, u64::MAX]),
            };
            wrong = wrong.or((!passes).then_some(count));
            let (count, tag) = (arena.word(count), tag(number));
            steps.push(Step::Check(Check { count, most, tag }));
        }
        // A warp, or several blocks.
        let words = rng.of(&[1, 40, 3000]);
        let [src, dst] = [false, true].map(|writable| Ptr(arena.take(8 * words, 0, writable)));
        steps.push(Step::Move(Move {
            action: Action::Copy,
            size: 8,
            count: words,
            src: linear(src),
            dst: linear(dst),
            parity: Ptr::NULL,
            early: true,
            landing: None,
            buffers: 2,
        }));
        let out = arena.word(0);
        steps.push(add(out, bell));
        Lane {
            by_kernel: false,
            late: None,
            steps,
            wrong,
            src,
            dst,
            words,
            out,
        }
    }

    fn words(&self, of: Ptr) -> Vec<u64> {
        let each = (0..self.words).map(|index| value(of.byte_add(8 * index)));
        each.collect()
    }
}

pub(super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let rng = &mut Rng::new(seed);
        let mut arena = Arena::new(1 << 18, rng);
        let bell = arena.word(0);
        let lanes: Vec<_> = (0..rng.within(1..=3))
            .map(|number| Lane::new(number, &mut arena, bell, rng))
            .collect();
        let later = arena.word(0);
        let home = Home::new();
        let launched = |steps: Vec<Vec<Step>>| {
            // SAFETY: words and sides lie in the arena, which outlives the run.
            let batch = unsafe { Batch::new(steps, Vec::new()) };
            let made = Launched::new(&batch, 16, machine.sizes, true, &home, [0; 2]);
            made.expect("there are blocks enough")
        };
        let before: Vec<_> = lanes.iter().map(|lane| lane.words(lane.dst)).collect();
        let first = launched(lanes.iter().map(|lane| lane.steps.clone()).collect());
        let second = launched(vec![vec![add(later, bell)]]);
        let all = vec![Do::Launch(&first), Do::Launch(&second)];
        let comes = vec![Do::Delay(rng.of(&[1, 100, 3000])), Do::Call(0)];
        machine.run(seed, &[(all, 1), (comes, 1)], &[], &mut |event| {
            if let Event::Called { .. } = event {
                for word in lanes.iter().filter_map(|lane| lane.late) {
                    change(word, |value| value + QUANTUM);
                }
            }
        })?;
        let fails = lanes.iter().any(|lane| lane.wrong.is_some());
        let said = |what: &str| Err(format!("seed {seed}: {what}"));
        if home.failed() != fails || value(later) != if fails { POISON } else { QUANTUM } {
            return said("the stream has not failed, or should not have");
        }
        if fails {
            let fault = home.fault()?;
            let lane = &lanes[fault.tag.peer as usize];
            let is = fault.kind == FAULT_COUNT && fault.tag == tag(fault.tag.peer as usize).into();
            if !is || lane.wrong != Some(fault.epoch) {
                return said(&format!("{fault:?}"));
            }
        }
        for (lane, before) in lanes.iter().zip(before) {
            let (out, now) = (value(lane.out), lane.words(lane.dst));
            let right = match lane.wrong {
                Some(_) => out == POISON && now == before,
                None if lane.by_kernel && out == 0 => value(lane.src) == QUANTUM,
                None if out == QUANTUM => now == lane.words(lane.src),
                // Another lane has ended the stream. Of several blocks, some may have been earlier.
                None => fails && out & POISON != 0,
            };
            if !right {
                return said(&format!("the add became {out:#x}, {:?}", lane.wrong));
            }
        }
    }
    Ok(())
}
