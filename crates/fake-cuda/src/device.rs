//! The device: the thread that carries work out.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Duration, Instant};

use crate::machine::{Grid, LETS, MOVED, Machine, OVER};
use crate::memory;
use crate::settings::Settings;
use crate::state::{CHANGED, DONE, State, state};
use crate::work::{Number, What, Word};

/// How often it looks again at once when nothing goes on, before it sleeps a little between two looks.
const LOOKS: u32 = 1000;

/// The length of these sleeps.
const NAP: Duration = Duration::from_micros(10);

/// Starts it.
pub(crate) fn start() {
    let thread = std::thread::Builder::new().name("fake GPU".into());
    let started = thread.spawn(run);
    started.expect("the device's thread starts");
}

struct Running {
    number: Number,
    grid: Grid,
    lets: bool,
}

/// The operations on words of a stream that are not done.
struct Waiting {
    number: Number,
    words: std::sync::Arc<[Word]>,
    at: usize,
}

fn run() {
    // Else a nap is of as many microseconds more.
    // SAFETY: the call takes numbers.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_usize) };
    let (mut grids, mut waiting): (Vec<Running>, Vec<Waiting>) = Default::default();
    let mut since = Instant::now();
    let mut idle = 0;
    loop {
        let begun = {
            let mut state = state();
            while !state.works.has_ready() && grids.is_empty() && waiting.is_empty() {
                state = state.wait(&CHANGED);
            }
            state.works.begin()
        };
        let mut over = Vec::new();
        let mut moved = !begun.is_empty();
        for (number, what) in begun {
            match what {
                What::Grid(launch) => match Machine::get().ok().and_then(|m| m.begin(&launch)) {
                    Some(grid) => grids.push(Running {
                        number,
                        grid,
                        lets: false,
                    }),
                    None => lose(&mut state(), "a grid cannot be begun"),
                },
                What::Words(words) => waiting.push(Waiting {
                    number,
                    words,
                    at: 0,
                }),
                What::Stamp(event) => {
                    if let Some(event) = state().events.get_mut(&event) {
                        event.time = Some(Instant::now());
                    }
                    over.push(number);
                }
                what => {
                    // SAFETY: whoever enqueued it promises for what it touches.
                    unsafe { at_once(what) };
                    over.push(number);
                }
            }
        }
        waiting.retain_mut(|words| {
            // SAFETY: as above.
            let (went_on, done) = unsafe { words.go_on() };
            moved |= went_on;
            if done {
                over.push(words.number);
            }
            !done
        });
        let mut lets = Vec::new();
        if let (Ok(machine), false) = (Machine::get(), grids.is_empty()) {
            let next: Vec<_> = {
                let state = state();
                let next = |running: &Running| state.works.is_next(running.number);
                grids.iter().map(next).collect()
            };
            let mut index = 0;
            for next in next {
                let running = &mut grids[index];
                // SAFETY: as above.
                let flags = unsafe { machine.step(&running.grid, next) };
                moved |= flags & (MOVED | OVER) != 0;
                if flags & LETS != 0 && !std::mem::replace(&mut running.lets, true) {
                    lets.push(running.number);
                    moved = true;
                }
                if flags & OVER != 0 {
                    let running = grids.remove(index);
                    machine.end(running.grid);
                    if !next && !state().works.is_next(running.number) {
                        lose(
                            &mut state(),
                            "a grid that was launched early is over before what it follows: it has not waited",
                        );
                    }
                    over.push(running.number);
                } else {
                    index += 1;
                }
            }
            if let Some(error) = machine.error() {
                lose(&mut state(), &error);
            }
        }
        if state().lost {
            // The memory that it touches may be freed soon.
            waiting.clear();
            for running in grids.drain(..) {
                if let Ok(machine) = Machine::get() {
                    machine.end(running.grid);
                }
            }
        }
        if !(over.is_empty() && lets.is_empty()) {
            let mut state = state();
            lets.into_iter().for_each(|number| state.works.lets(number));
            over.into_iter().for_each(|number| state.works.end(number));
            DONE.notify_all();
        }
        idle = if moved { 0 } else { idle + 1 };
        if moved {
            since = Instant::now();
        } else if let Some(stuck) = Settings::get().stuck
            && since.elapsed() > Duration::from_secs(stuck)
        {
            since = Instant::now();
            eprintln!("fake GPU: nothing goes on:\n{}", state().works.describe());
        }
        match idle {
            0 => {}
            1..LOOKS => std::thread::yield_now(),
            _ => std::thread::sleep(NAP),
        }
    }
}

/// Notes that a kernel has failed. Nothing goes on any more, and every call returns the error.
fn lose(state: &mut State, why: &str) {
    eprintln!("fake GPU: {why}");
    state.lost = true;
    state.works.clear();
    DONE.notify_all();
}

/// # Safety
///
/// The memory that it touches is there, and nothing else uses it meanwhile.
unsafe fn at_once(what: What) {
    match what {
        What::Copy(to, from, bytes) => {
            let (to, from) = (
                std::ptr::with_exposed_provenance_mut::<u8>(to),
                std::ptr::with_exposed_provenance::<u8>(from),
            );
            // SAFETY: the caller's promise. (Both may be the same memory.)
            unsafe { std::ptr::copy(from, to, bytes) };
        }
        What::Write(to, bytes) => {
            let to = std::ptr::with_exposed_provenance_mut::<u8>(to);
            // SAFETY: the caller's promise.
            unsafe { to.copy_from_nonoverlapping(bytes.as_ptr(), bytes.len()) };
        }
        What::Fill(at, value, width, count) => {
            let value = value.to_ne_bytes();
            for index in 0..count * width {
                let to = std::ptr::with_exposed_provenance_mut::<u8>(at + index);
                // SAFETY: the caller's promise.
                unsafe { to.write(value[index % width]) };
            }
        }
        // SAFETY: whoever gave the function promises for the call.
        What::Call(function, data) => unsafe { function(data) },
        What::Free(at) => memory::free(at),
        What::Nothing => {}
        What::Grid(_) | What::Words(_) | What::Stamp(_) => {
            unreachable!("they are not done at once")
        }
    }
    fence(Ordering::SeqCst);
}

impl Waiting {
    /// Goes on with the operations. Returns whether one was done, and whether all are.
    ///
    /// # Safety
    ///
    /// The words are there.
    unsafe fn go_on(&mut self) -> (bool, bool) {
        let begun = self.at;
        while let Some(word) = self.words.get(self.at) {
            // SAFETY: the caller's promise.
            if !unsafe { operate(word) } {
                break;
            }
            self.at += 1;
        }
        (self.at > begun, self.at == self.words.len())
    }
}

/// Whether an operation is done.
///
/// # Safety
///
/// The word is there, and aligned.
unsafe fn operate(word: &Word) -> bool {
    // SAFETY: the caller's promise.
    let narrow = |at| unsafe { AtomicU32::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
    // SAFETY: as above.
    let long = |at| unsafe { AtomicU64::from_ptr(std::ptr::with_exposed_provenance_mut(at)) };
    match *word {
        Word::Write { at, value, wide } => {
            match wide {
                true => long(at).store(value, Ordering::SeqCst),
                false => narrow(at).store(value as u32, Ordering::SeqCst),
            }
            true
        }
        Word::Wait {
            at,
            value,
            wide,
            how,
        } => {
            let found = match wide {
                true => long(at).load(Ordering::SeqCst),
                false => u64::from(narrow(at).load(Ordering::SeqCst)),
            };
            let narrow = !wide;
            match how & 3 {
                0 if narrow => (found as u32).wrapping_sub(value as u32) as i32 >= 0,
                0 => found.wrapping_sub(value) as i64 >= 0,
                1 => found == value,
                2 => found & value != 0,
                _ if narrow => (found | value) as u32 != u32::MAX,
                _ => (found | value) != u64::MAX,
            }
        }
    }
}
