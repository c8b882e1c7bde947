//! Which call of a stream the program is in.
//!
//! # Model
//!
//! A call that may block its caller is noted here while it lasts. That costs the calling thread two stores. A watching
//! thread looks now and then ([`Calls::look`]), and remembers when it first saw the call. So no call has to read the
//! clock. A call counts as begun anew whenever the stream has made progress, because a stream that works needs no
//! report.
//!
//! The stream's owner makes all calls but [`Call::Release`], which any thread makes when it drops a region. The two
//! have separate places. If several threads release something at the same time, one of them is seen.
//!
//! # Failure
//!
//! In a forked child no thread watches, and a lock may belong to a thread that does not exist there. So a child notes
//! nothing.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Instant;

use crate::lock;
use crate::process::Process;
use crate::site::{CallSite, LastSite};

/// A call on a stream that may block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Call {
    /// It enqueues a kernel.
    Launch = 1,
    /// It enqueues a batch: part of an epoch.
    Batch,
    /// It enqueues a recording.
    Replay,
    /// It orders two streams.
    HandOff,
    /// It frees memory that the stream may use.
    Release,
    /// It waits for all that was enqueued.
    Synchronize,
    /// It waits, so that the host may have a region.
    IntoHost,
    /// It waits, so that the host may have a copy of a region.
    ToVec,
    /// It waits, so that the host may read an inbox.
    Read,
    /// It waits, so that the host may write the memory of an inbox.
    HostMut,
    /// It drops the stream.
    Drop,
    /// A future waits for all that was enqueued.
    Synchronized,
}

impl Call {
    const ALL: [Call; 12] = [
        Call::Launch,
        Call::Batch,
        Call::Replay,
        Call::HandOff,
        Call::Release,
        Call::Synchronize,
        Call::IntoHost,
        Call::ToVec,
        Call::Read,
        Call::HostMut,
        Call::Drop,
        Call::Synchronized,
    ];

    fn of(number: u64) -> Option<Self> {
        Self::ALL.into_iter().find(|call| *call as u64 == number)
    }

    /// The name of the call in reports: "it is in …".
    pub fn name(self) -> &'static str {
        match self {
            Call::Launch => "`launch`",
            Call::Batch => "a call that enqueues part of an epoch",
            Call::Replay => "`replay`",
            Call::HandOff => "`hand_off`",
            Call::Release => "the drop of a region or a window",
            Call::Synchronize => "`synchronize`",
            Call::IntoHost => "`into_host`",
            Call::ToVec => "`to_vec`",
            Call::Read => "`read`",
            Call::HostMut => "`host_mut`",
            Call::Drop => "the drop of the stream",
            Call::Synchronized => "`synchronized`",
        }
    }
}

/// The calls on a stream that are under way.
#[derive(Debug)]
pub struct Calls {
    /// The owner's call, and that of threads that release something. The lowest byte is the [`Call`] that blocks a
    /// thread, or 0 if there is none. The other bytes count the calls so far.
    at: [AtomicU64; 2],
    /// Where the program makes the owner's calls.
    site: LastSite,
    process: Process,
    looked: Mutex<Looked>,
}

impl Default for Calls {
    fn default() -> Self {
        Calls {
            at: Default::default(),
            site: LastSite::default(),
            process: Process::this(),
            looked: Mutex::default(),
        }
    }
}

#[derive(Debug, Default)]
/// What earlier looks have seen.
struct Looked {
    /// For both places of [`Calls::at`]: the value at the last look, and since when it has been seen.
    at: [(u64, Option<Instant>); 2],
    /// The stream's progress at the last look.
    progress: u64,
    /// Futures that wait.
    futures: Vec<Future>,
    last: u64,
}

#[derive(Debug)]
struct Future {
    number: u64,
    call: Call,
    since: Instant,
    site: CallSite,
}

const CALL: u64 = 0xff;

impl Calls {
    /// Notes where the owner is about to make a call that may block it. ([`Call::Drop`] has no place.)
    #[inline]
    pub fn called_at(&self, site: CallSite) {
        self.site.note(site);
    }

    /// Does something that may block the caller. Within another call, only the outer call is noted.
    #[inline]
    pub fn during<R>(&self, call: Call, does: impl FnOnce() -> R) -> R {
        let place = &self.at[usize::from(call == Call::Release)];
        let at = place.load(Ordering::Relaxed);
        if at & CALL != 0 {
            return does();
        }
        place.store(at + call as u64, Ordering::Relaxed);
        let _ends = Ends(place, at + CALL + 1);
        does()
    }

    /// Notes that a future which was made at `site` waits, until the returned value is dropped.
    #[must_use]
    pub fn awaits(&self, call: Call, site: CallSite) -> Awaits<'_> {
        if !self.process.is_this() {
            return Awaits(self, 0);
        }
        let mut looked = self.looked();
        looked.last += 1;
        let number = looked.last;
        looked.futures.push(Future {
            number,
            call,
            since: Instant::now(),
            site,
        });
        Awaits(self, number)
    }

    /// The call that is in progress: which call, since when it has been seen, and where it was made, if that is known.
    /// Of two calls, it is the one that was seen first. `progress` is a number that changes when the stream makes
    /// progress.
    pub fn look(&self, progress: u64) -> Option<(Call, Instant, Option<CallSite>)> {
        let mut looked = self.looked();
        let now = Instant::now();
        let goes_on = std::mem::replace(&mut looked.progress, progress) != progress;
        if goes_on {
            looked.futures.iter_mut().for_each(|each| each.since = now);
        }
        let places = self.at.iter().zip(&mut looked.at);
        let calls = places.filter_map(|(at, (found, since))| {
            let at = at.load(Ordering::Relaxed);
            let is_new = std::mem::replace(found, at) != at;
            if goes_on || is_new {
                *since = None;
            }
            let call = Call::of(at & CALL)?;
            let is_owners = !matches!(call, Call::Release | Call::Drop);
            let site = self.site.get().filter(|_| is_owners);
            Some((call, *since.get_or_insert(now), site))
        });
        // This goes through both places, because each must note what it has seen. If both calls were seen at the same
        // time, the owner's counts, because the owner may be releasing something itself.
        let call = calls.min_by_key(|(_, since, _)| *since);
        let future = looked.futures.first();
        call.or(future.map(|future| (future.call, future.since, Some(future.site))))
    }

    fn looked(&self) -> MutexGuard<'_, Looked> {
        lock(&self.looked)
    }
}

struct Ends<'a>(&'a AtomicU64, u64);

impl Drop for Ends<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::Relaxed);
    }
}

/// A future that waits: see [`Calls::awaits`].
#[derive(Debug)]
pub struct Awaits<'a>(&'a Calls, u64);

impl Drop for Awaits<'_> {
    fn drop(&mut self) {
        if self.0.process.is_this() {
            self.0.looked().futures.retain(|each| each.number != self.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, Location, catch_unwind};
    use std::sync::Barrier;

    use super::*;

    fn call(calls: &Calls) -> Option<Call> {
        calls.look(0).map(|(call, ..)| call)
    }

    #[test]
    fn the_outermost_call_counts_until_it_is_over() {
        let calls = Calls::default();
        for each in Call::ALL {
            assert_eq!(call(&calls), None);
            if each == Call::Release {
                calls.during(each, || assert_eq!(call(&calls), Some(each)));
                continue;
            }
            calls.during(each, || {
                calls.during(Call::Batch, || assert_eq!(call(&calls), Some(each)));
                assert_eq!(call(&calls), Some(each));
            });
        }
        let panics = AssertUnwindSafe(|| calls.during(Call::Launch, || panic!("on purpose")));
        assert!(catch_unwind(panics).is_err());
        assert_eq!(call(&calls), None);
    }

    #[test]
    fn a_call_is_known_by_its_place_in_the_program() {
        let calls = Calls::default();
        let site = |calls: &Calls| calls.look(0).and_then(|(_, _, site)| site);
        let (here, there) = (Location::caller(), Location::caller());
        calls.called_at(here);
        calls.during(Call::Launch, || assert_eq!(site(&calls), Some(here)));
        // Calls without a place must not get the place of the last call.
        for each in [Call::Drop, Call::Release] {
            calls.during(each, || assert_eq!(site(&calls), None));
        }
        let _future = calls.awaits(Call::Synchronized, there);
        assert_eq!(site(&calls), Some(there));
    }

    #[test]
    fn time_counts_from_when_the_stream_went_on() {
        let calls = Calls::default();
        let since = |progress| calls.look(progress).map(|(_, since, _)| since);
        let first = calls.during(Call::Launch, || {
            let first = since(7);
            assert_eq!(since(7), first);
            assert!(since(8) > first);
            since(8)
        });
        // A second call of the same kind counts from its own beginning.
        calls.during(Call::Launch, || assert!(since(8) > first));
    }

    #[test]
    fn futures_wait_beside_calls() {
        let calls = Calls::default();
        let one = calls.awaits(Call::Synchronized, Location::caller());
        let first = calls.look(0);
        let two = calls.awaits(Call::Synchronized, Location::caller());
        calls.during(Call::Launch, || {
            assert_eq!(call(&calls), Some(Call::Launch));
        });
        assert_eq!(calls.look(0), first);
        assert!(calls.look(1).map(|(_, since, _)| since) > first.map(|(_, since, _)| since));
        drop(one);
        assert_eq!(call(&calls), Some(Call::Synchronized));
        drop(two);
        assert_eq!(call(&calls), None);
    }

    #[test]
    fn a_release_is_seen_that_begins_while_the_owner_is_in_a_call() {
        let calls = Calls::default();
        let (begun, ends) = (Barrier::new(2), Barrier::new(2));
        std::thread::scope(|scope| {
            calls.during(Call::Launch, || {
                scope.spawn(|| {
                    calls.during(Call::Release, || {
                        begun.wait();
                        ends.wait();
                    });
                });
                begun.wait();
            });
            // The call that lasts longer is reported, however many short calls come meanwhile.
            let mut seen = vec![calls.look(0)];
            for _ in 0..3 {
                calls.during(Call::Batch, || seen.push(calls.look(0)));
            }
            ends.wait();
            let first = seen[0].map(|(call, ..)| call);
            assert_eq!(first, Some(Call::Release));
            assert!(seen.iter().all(|each| *each == seen[0]), "{seen:?}");
        });
        assert_eq!(call(&calls), None);
    }

    #[cfg(not(miri))]
    #[test]
    fn a_child_drops_a_future_though_a_lock_is_held() {
        let calls = Calls::default();
        let future = calls.awaits(Call::Synchronized, Location::caller());
        let held = calls.looked();
        // SAFETY: the child drops a value and makes two system calls.
        match unsafe { libc::fork() } {
            0 => {
                // SAFETY: the alarm ends a child that hangs.
                unsafe { libc::alarm(60) };
                drop(future);
                drop(calls.awaits(Call::Synchronized, Location::caller()));
                // SAFETY: it ends this process.
                unsafe { libc::_exit(0) }
            }
            child => {
                let mut status = -1;
                // SAFETY: the status is written to a live integer.
                assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
                assert_eq!(status, 0);
            }
        }
        drop(held);
        assert_eq!(call(&calls), Some(Call::Synchronized));
        drop(future);
        assert_eq!(call(&calls), None);
    }
}
