//! The GPU's clock, which stamps are read from, and how it stands to the host's.
//!
//! # Model
//!
//! A small kernel (`tidegate_clock` in `kernels/stamped.cu`) answers questions with the time. Question and answer go
//! through pinned memory. Both clocks *met* in the middle of the question's round trip, give or take half of it and a
//! tick of the timer. Of some questions, the one with the shortest trip counts.
//!
//! The clocks run at different speeds. Two meetings that are far apart tell the difference. Before the second, and for
//! changes of it, the difference is assumed to be at most [`DRIFT`].
//!
//! # Failure
//!
//! If the kernel finds no room in time, there is no meeting. If there has never been one, times are the GPU's own, and
//! the error says that nothing is known. If the host stops asking, the kernel ends by itself after two seconds.

use std::ffi::c_void;
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_hal::lock;
use tidegate_hal::stamps::now;

use crate::driver::{self, Driver, Function, Launch, Stream};

/// How much faster than the other one of the clocks may run: 300 parts in a million each way, which is what PCI Express
/// allows the clocks of a machine.
const DRIFT: f64 = 300e-6;
/// How much the speed may change after it was measured: the oscillators become warmer, and the host's clock is adjusted.
const WANDER: f64 = 20e-6;
/// Meetings that are so many nanoseconds apart tell the speed.
const APART: u64 = 100_000_000;
/// How many questions are asked at a time.
const QUESTIONS: u64 = 16;
/// For so many nanoseconds the host waits for all answers, the first time and later.
pub(crate) const PATIENCE: u64 = 1_000_000_000;
pub(crate) const LATER: u64 = 10_000_000;
/// For so many nanoseconds it looks for an answer again and again. A GPU answers sooner, if it has room.
const SPINS: u64 = 50_000;
/// A time that is read on a GPU may be so many nanoseconds old, since the timer goes on by ticks.
const TICK: u64 = 1000;
/// So many nanoseconds after the clocks were compared, they are compared again when there is an opportunity.
const OLD: u64 = 1_000_000_000;

/// What host and kernel say to each other. It mirrors `Clock` in `kernels/stamped.cu`.
#[repr(C)]
pub(crate) struct Words {
    asked: AtomicU64,
    unused: [u64; 7],
    time: AtomicU64,
    answered: AtomicU64,
}

const _: () = assert!(size_of::<Words>() == 80);

/// A moment at which both clocks are known.
#[derive(Clone, Copy, Debug)]
struct Meeting {
    gpu: u64,
    host: u64,
    /// How far `host` may be off.
    error: u64,
}

/// All that is known.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    first: Option<Meeting>,
    last: Option<Meeting>,
    /// How much faster the host's clock runs, if it was measured, and how far that may be off.
    speed: Option<(f64, f64)>,
}

impl Known {
    fn meet(&mut self, meeting: Meeting) {
        // A question may have taken longer than what is known has become worse.
        if self.error_at(meeting.host) < meeting.error {
            return;
        }
        let first = *self.first.get_or_insert(meeting);
        self.last = Some(meeting);
        let between = meeting.gpu.saturating_sub(first.gpu);
        if between >= APART {
            let gained = (meeting.host - first.host) as f64 - between as f64;
            let error = (first.error + meeting.error) as f64;
            self.speed = Some((gained / between as f64, error / between as f64 + WANDER));
        }
    }

    /// The host's time at a time of the GPU.
    fn host(&self, gpu: u64) -> u64 {
        let Some(last) = self.last else { return gpu };
        let since = gpu.wrapping_sub(last.gpu) as i64;
        let gained = self.speed.map_or(0.0, |(speed, _)| speed * since as f64);
        last.host.wrapping_add_signed(since + gained as i64)
    }

    /// How far the host's time may be off at this time of the host.
    fn error_at(&self, host: u64) -> u64 {
        let Some(last) = self.last else {
            return u64::MAX;
        };
        let drift = self.speed.map_or(DRIFT, |(_, error)| error.min(DRIFT));
        last.error + (host.abs_diff(last.host) as f64 * drift).ceil() as u64
    }
}

/// The clock of a GPU.
pub(crate) struct Clock {
    function: Function,
    words: NonNull<Words>,
    /// The number of the last question.
    asked: Mutex<u64>,
    known: Mutex<Known>,
    /// When the clocks were last compared, whatever came of it.
    tried: AtomicU64,
}

// SAFETY: the pointer is to pinned memory that is never freed; its words are atomic.
unsafe impl Send for Clock {}
// SAFETY: as above.
unsafe impl Sync for Clock {}

impl Clock {
    /// The kernel's function, and `words` in pinned memory, which are zero and used by nobody else.
    pub(crate) fn new(function: Function, words: NonNull<Words>) -> Self {
        Clock {
            function,
            words,
            asked: Mutex::new(0),
            known: Mutex::default(),
            tried: AtomicU64::new(0),
        }
    }

    /// The host's time at a time of the GPU.
    pub(crate) fn host(&self, gpu: u64) -> u64 {
        lock(&self.known).host(gpu)
    }

    /// How far a time may be off now.
    pub(crate) fn error(&self) -> u64 {
        lock(&self.known).error_at(now())
    }

    /// Whether the clocks were compared long ago. A try that brought nothing counts, too: the GPU may have had no room, and
    /// the next call of the program must not wait for it again.
    pub(crate) fn is_old(&self) -> bool {
        now().saturating_sub(self.tried.load(Ordering::Relaxed)) > OLD
    }

    /// Compares the clocks. Waits at most so many nanoseconds for all answers. The kernel may come later, and then ends at
    /// once.
    ///
    /// # Safety
    ///
    /// The stream is live, and nothing on it waits. The function is the kernel's, and the words are pinned memory of the
    /// GPU.
    pub(crate) unsafe fn ask(
        &self,
        driver: &'static dyn Driver,
        stream: Stream,
        patience: u64,
    ) -> driver::Result<()> {
        let mut asked = lock(&self.asked);
        let until = now() + patience;
        self.tried.store(now(), Ordering::Relaxed);
        let (mut first, mut last) = (*asked + 1, *asked + QUESTIONS);
        let questions = first..=last;
        // The number behind the last ends a kernel that has found no room meanwhile.
        *asked = last + 1;
        let mut words = self.words.as_ptr().addr() as u64;
        let mut arguments = [&mut words, &mut first, &mut last];
        let mut arguments = arguments
            .each_mut()
            .map(|argument| std::ptr::from_mut(*argument).cast::<c_void>());
        let one = Launch {
            blocks: [1, 1, 1],
            threads: [1, 1, 1],
            shared: 0,
            early: false,
            together: false,
        };
        // SAFETY: the kernel takes these three numbers; the caller promises for the rest.
        unsafe { driver.launch(self.function, &one, stream, &mut arguments) }?;
        let best = questions
            .map_while(|question| self.question(question, until))
            .min_by_key(|meeting| meeting.error);
        self.words().asked.store(*asked, Ordering::Release);
        if let Some(best) = best {
            lock(&self.known).meet(best);
        }
        Ok(())
    }

    /// Asks a question, and waits for its answer `until` that time.
    fn question(&self, number: u64, until: u64) -> Option<Meeting> {
        let words = self.words();
        let before = now();
        words.asked.store(number, Ordering::Release);
        while words.answered.load(Ordering::Acquire) != number {
            let now = now();
            if now > until {
                return None;
            }
            if now - before > SPINS {
                std::thread::yield_now();
            }
        }
        let trip = now() - before;
        Some(Meeting {
            gpu: words.time.load(Ordering::Relaxed),
            host: before + trip / 2,
            error: trip.div_ceil(2) + TICK,
        })
    }

    fn words(&self) -> &Words {
        // SAFETY: the memory is never freed, and `new` was promised that it holds words.
        unsafe { self.words.as_ref() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn meeting(gpu: u64, host: u64, error: u64) -> Meeting {
        Meeting { gpu, host, error }
    }

    #[test]
    fn without_a_meeting_nothing_is_known() {
        let known = Known::default();
        assert_eq!((known.host(7), known.error_at(7)), (7, u64::MAX));
    }

    #[test]
    fn one_meeting_gives_the_distance_and_its_error_grows() {
        let mut known = Known::default();
        known.meet(meeting(1000, 50_000, 20));
        assert_eq!((known.host(1000), known.host(900)), (50_000, 49_900));
        assert_eq!(known.error_at(50_000), 20);
        assert_eq!(known.error_at(50_000 + SECOND), 20 + 300_000);
    }

    #[test]
    fn two_meetings_give_the_speed() {
        let mut known = Known::default();
        known.meet(meeting(0, 5000, 100));
        // The host's clock runs 100 parts in a million faster.
        known.meet(meeting(SECOND, 5000 + SECOND + 100_000, 100));
        assert_eq!(known.host(2 * SECOND), 5000 + 2 * SECOND + 200_000);
        assert_eq!(known.host(SECOND / 2), 5000 + SECOND / 2 + 50_000);
        // 200 ns in a second, and what the speed may change.
        let after = 5000 + 2 * SECOND + 100_000;
        assert!((100 + 20_200..100 + 20_210).contains(&known.error_at(after)));
    }

    #[test]
    fn a_slow_answer_does_not_replace_a_better_one() {
        let mut known = Known::default();
        known.meet(meeting(0, 1000, 10));
        known.meet(meeting(1000, 9000, 5000));
        assert_eq!((known.host(0), known.error_at(1000)), (1000, 10));
        // After a while it is better than what is known.
        known.meet(meeting(SECOND, SECOND + 1500, 5000));
        assert_eq!(known.host(SECOND), SECOND + 1500);
    }
}
