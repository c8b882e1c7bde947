//! Batches of one stream, where a batch may begin before the one in front is over.

use std::ops::Range;

use tidegate_hal::batch::{Action, Batch, Move, Op, QUANTUM, Scalar, Shape, Side, Step};
use tidegate_hal::memory::Ptr;

use super::launched::{Home, Launched};
use super::machine::{Do, Event, Machine};
use super::memory::{Arena, change, value};
use super::steps::{add, linear, wait};
use crate::lower::random::Rng;

/// A move of words: a copy, or a sum.
fn moved(src: Ptr, dst: Ptr, count: usize, sum: bool, rng: &mut Rng) -> Step {
    let action = if sum {
        Action::Accumulate {
            op: Op::Sum,
            scalar: Scalar::U64,
            atomic: true,
        }
    } else {
        Action::Copy
    };
    // Backwards, with lists. (All elements are equal, so it does not matter where each goes.)
    let backwards = !sum && count > 1 && rng.once_in(3);
    let scatters = backwards && rng.once_in(2);
    let side = |base: Ptr, backwards: bool| {
        if !backwards {
            return linear(base);
        }
        let mut dims = [(1, 0); Shape::MAX_DIMS];
        dims[0] = (count as u32, -1);
        Side {
            shape: Shape::Strided { dims, rank: 1 },
            ..linear(base.byte_add(8 * (count - 1)))
        }
    };
    Step::Move(Move {
        action,
        size: 8,
        count,
        src: side(src, backwards),
        dst: side(dst, scatters),
        parity: Ptr::NULL,
        // The result of an earlier batch is there when the move begins.
        early: rng.once_in(2),
        landing: None,
        buffers: 2,
    })
}

/// A number is increased each time, moved through a row of buffers, and summed at the end. Each batch must see exactly
/// the data that the batch in front has written. In every batch some lanes wait for words that the test sets. Each
/// launch must find the operand as the launch before left it.
pub(super) fn check(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    const TIMES: u64 = 6;
    let (mut early, mut late) = (0, 0);
    for seed in seeds {
        let rng = &mut Rng::new(seed ^ 0x0dde);
        let mut arena = Arena::new(2 << 20, rng);
        let bell = arena.word(0);
        let count = match rng.below(3) {
            0 => rng.within(1..=8),
            _ => rng.within(1..=machine.sizes.threads * 6),
        };
        let mut buffer = |with| {
            let at = Ptr(arena.take(8 * count, 0, true));
            for index in 0..count {
                change(at.byte_add(8 * index), |_| with);
            }
            at
        };
        let (ones, sums) = (buffer(1), buffer(0));
        let row: Vec<_> = (0..rng.within(1..=4)).map(|_| buffer(0)).collect();
        let mut stages = vec![(ones, row[0], true)];
        stages.extend(row.windows(2).map(|pair| (pair[0], pair[1], false)));
        stages.push((row[row.len() - 1], sums, true));
        let mut waits = Vec::new();
        let mut posts = Vec::new();
        let home = Home::new();
        let mut launches = Vec::new();
        for (src, dst, sum) in stages {
            // Parts of the buffer, with a lane each.
            let mut lanes = Vec::new();
            // A lane that says that the batch in front is over.
            if rng.once_in(2) {
                let word = arena.word(0);
                posts.push((word, src, launches.is_empty()));
                lanes.push(vec![add(word, bell)]);
            }
            let mut first = 0;
            while first < count {
                let part = rng.within(1..=count - first);
                let mut lane = Vec::new();
                if rng.once_in(2) {
                    let words = (arena.word(0), arena.word(0));
                    waits.push((words, launches.len() as u64));
                    lane.push(wait(words.0, words.1, QUANTUM, 4));
                }
                // Sometimes there are more moves than a team keeps at hand.
                let pieces = if rng.once_in(3) {
                    rng.within(2..=40)
                } else {
                    1
                };
                for at in (0..part).step_by(part.div_ceil(pieces)) {
                    let piece = part.div_ceil(pieces).min(part - at);
                    let place = 8 * (first + at);
                    let (src, dst) = (src.byte_add(place), dst.byte_add(place));
                    lane.push(moved(src, dst, piece, sum, rng));
                }
                lane.push(add(arena.word(0), bell));
                lanes.push(lane);
                first += part;
            }
            // SAFETY: everything lies in the arena, which outlives the runs, and each move of a batch writes elements
            // of its own.
            let batch = unsafe { Batch::new(lanes, Vec::new()) };
            let (sizes, next) = (machine.sizes, !rng.once_in(4));
            early += u64::from(next);
            let launched = Launched::new(&batch, 40, sizes, next, &home, [0; 2]);
            launches.push(launched.map_err(|error| error.to_string())?);
        }
        // The words of each launch come at random times, so some of them take long.
        let delay = rng.of(&[200, 200, 20_000]);
        let words = (0..launches.len()).flat_map(|at| [Do::Delay(delay), Do::Call(at as u64)]);
        let streams = [
            (launches.iter().map(Do::Launch).collect(), TIMES),
            (words.collect(), TIMES),
        ];
        let mut ahead = None;
        machine.run(seed, &streams, &[], &mut |event| match event {
            Event::Called { value: at, .. } => {
                for ((word, _), _) in waits.iter().filter(|(_, launch)| *launch == at) {
                    change(*word, |value| value + QUANTUM);
                }
            }
            Event::Added(at) => {
                let post = posts.iter().find(|(word, ..)| word.0.addr() as u64 == at);
                let Some((word, src, false)) = post else {
                    return;
                };
                let time = value(*word) / QUANTUM;
                let is = |index: usize| value(src.byte_add(8 * index)) == time;
                if !(0..count).all(is) {
                    ahead = ahead.or(Some(time));
                }
            }
        })?;
        if let Some(time) = ahead {
            return Err(format!("seed {seed}: post {time} is ahead of its data"));
        }
        if home.failed() {
            return Err(format!("seed {seed}: the stream has failed"));
        }
        let passes = TIMES * launches.iter().map(Launched::passes).sum::<u64>();
        if machine.passes() != passes {
            return Err(format!(
                "seed {seed}: of {passes} blocks {} have let the next launch come behind their waits",
                machine.passes()
            ));
        }
        late += passes;
        for ((_, operand), _) in &waits {
            if value(*operand) != TIMES * QUANTUM {
                return Err(format!("seed {seed}: an operand is {:#x}", value(*operand)));
            }
        }
        let expected = TIMES * (TIMES + 1) / 2;
        for index in 0..count {
            let found = value(sums.byte_add(8 * index));
            if found != expected {
                return Err(format!("seed {seed}: {index} is {found}, not {expected}"));
            }
        }
    }
    if early == 0 || late == 0 {
        return Err("no launch lets the next come".into());
    }
    Ok(())
}

/// A team looks at its stream's state once, however many waits it has. It looks only if a word has not come.
pub(super) fn check_looks(machine: &mut Machine, seeds: Range<u64>) -> Result<(), String> {
    for seed in seeds {
        let rng = &mut Rng::new(seed);
        let mut arena = Arena::new(1 << 20, rng);
        let bell = arena.word(0);
        let mut lanes = Vec::new();
        for _ in 0..rng.within(1..=8) {
            let mut lane = Vec::new();
            for _ in 0..rng.below(4) {
                lane.push(wait(arena.word(QUANTUM), arena.word(0), QUANTUM, 4));
                if rng.once_in(2) {
                    let count = rng.within(1..=machine.sizes.threads * 4);
                    let mut side = || Ptr(arena.take(8 * count, 0, true));
                    let (src, dst) = (side(), side());
                    lane.push(moved(src, dst, count, false, rng));
                }
            }
            // Some lanes only wait.
            if lane.is_empty() || !rng.once_in(3) {
                lane.push(add(arena.word(0), bell));
            }
            lanes.push(lane);
        }
        // SAFETY: as above.
        let batch = unsafe { Batch::new(lanes, Vec::new()) };
        let home = Home::new();
        let launched = Launched::new(&batch, 40, machine.sizes, true, &home, [0; 2]);
        let launched = launched.map_err(|error| error.to_string())?;
        machine.run(seed, &[(vec![Do::Launch(&launched)], 1)], &[], &mut |_| {})?;
        let (looks, teams) = (machine.looks(), launched.all_teams());
        if looks != teams {
            return Err(format!(
                "seed {seed}: {teams} teams have looked {looks} times"
            ));
        }
    }
    Ok(())
}
