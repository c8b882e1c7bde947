//! A panic that unwinds past several streams ends their waits, even if one of them waits for another. And it ends the
//! rank, even if a clone of its world still exists.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, mpsc};
use std::time::Duration;

use tidegate::error::StreamError;
use tidegate::host::prelude::*;

fn halves<'s>(s: &Stream<'s>, peer: usize) -> Result<(Inbox<'s, u64>, Outbox<'s, u64>)> {
    let mut window = SlotWindow::new("w").buffers(Buffers::Single);
    window.slot_from(peer, 0, 1);
    window.slot_to(peer, 0);
    window.open(s)
}

#[test]
fn a_stream_that_waits_for_another_is_not_waited_for_in_vain() {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        World::local(2, |world| -> Result<()> {
            let rank = world.rank();
            stream!(let a = world.stream()?);
            stream!(let b = world.stream()?);
            let (inbox, outbox) = halves(&a, 1 - rank)?;
            if rank == 0 {
                // Rank 1 completes only after this rank has, which never happens.
                let inbox = inbox.post(&a)?.wait(&a)?;
                let mut inbox = a.hand_off(inbox, &b)?;
                std::thread::sleep(Duration::from_millis(50));
                if outbox.slots().len() == 1 {
                    panic!("on purpose");
                }
                inbox.read(&b)?;
            } else {
                let mut inbox = inbox.post(&a)?.wait(&a)?;
                let refused = inbox.read(&a);
                assert!(refused.is_err(), "the other rank has panicked");
                return Ok(());
            }
            Ok(())
        })
    }));
    assert!(ended.is_err(), "the panic of a rank is passed on");
}

/// The error of a rank that waits for a rank which does this, before its post or after it.
fn told_of(ends: impl for<'s> Fn(Inbox<'s, u64>, Outbox<'s, u64>, &Stream<'s>) + Sync) -> String {
    let told = Mutex::new(None);
    let _ended = catch_unwind(AssertUnwindSafe(|| {
        World::local(2, |world| -> Result<()> {
            stream!(let s = world.stream()?);
            let (inbox, outbox) = halves(&s, 1 - world.rank())?;
            if world.rank() == 1 {
                ends(inbox, outbox, &s);
                return Ok(());
            }
            // The other's end may be known by now, and then the post is refused.
            let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
            let read = waited.and_then(|mut inbox| inbox.read(&s).map(drop));
            *told.lock().unwrap() = read.err().map(|error| error.to_string());
            Ok(())
        })
    }));
    let told = told.into_inner().unwrap();
    told.expect("nobody completes")
}

#[test]
fn a_panic_that_drops_a_token_is_named_with_it() {
    let told = told_of(|inbox, _outbox, s| {
        let _exposed = inbox.post(s).unwrap();
        panic!("on purpose");
    });
    let cause = "a thread of rank 1 panicked, and so dropped an `Exposed` before its wait";
    assert!(told.contains(cause), "{told}");
    let told = told_of(|_inbox, outbox, _s| {
        let _epoch = outbox.start();
        panic!("on purpose");
    });
    let cause = "a thread of rank 1 panicked, and so dropped an `Access` before its complete";
    assert!(told.contains(cause), "{told}");
    let told = told_of(|inbox, _outbox, s| drop(inbox.post(s)));
    assert!(
        told.contains("rank 1 dropped an `Exposed` before its wait"),
        "{told}"
    );
}

#[test]
fn a_wait_that_a_panic_has_ended_says_so() {
    let (until, over) = mpsc::channel::<()>();
    let (until, over) = (Mutex::new(Some(until)), Mutex::new(over));
    World::local(2, |world| {
        stream!(let waits = world.stream().unwrap());
        let (inbox, _outbox) = halves(&waits, 1 - world.rank()).unwrap();
        if world.rank() == 1 {
            // It completes nothing, and stays until the other rank is through.
            assert!(over.lock().unwrap().recv().is_err());
        } else {
            let _until = until.lock().unwrap().take();
            let _inbox = inbox.post(&waits).unwrap().wait(&waits).unwrap();
            let panicked = catch_unwind(AssertUnwindSafe(|| {
                stream!(let unwound = world.stream().unwrap());
                unwound.synchronize().unwrap();
                panic!("on purpose");
            }));
            assert!(panicked.is_err());
            let ended = waits.synchronize().unwrap_err();
            let Error::Stream(StreamError::Unwound { stream, past, .. }) = &ended else {
                panic!("{ended}");
            };
            assert_eq!((&**stream, &**past), ("waits", "unwound"));
        }
    });
}

/// An error of the program without a text.
#[derive(Debug)]
struct Silent {
    panics: bool,
}

impl std::fmt::Display for Silent {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        assert!(!self.panics, "on purpose");
        Err(std::fmt::Error)
    }
}

impl std::error::Error for Silent {}

/// The error of a rank that waits for a rank whose captured step ends like this, and which goes on.
fn told_of_a_step(ends: impl Fn() -> Error + Sync) -> String {
    let told = Mutex::new(None);
    World::local(2, |world| -> Result<()> {
        stream!(let s = world.stream()?);
        let (inbox, outbox) = halves(&s, 1 - world.rank())?;
        if world.rank() == 1 {
            let capture = || s.capture((inbox, outbox), |_, _| Err(ends())).map(drop);
            let captured = catch_unwind(AssertUnwindSafe(capture));
            assert!(!matches!(captured, Ok(Ok(()))));
            return s.synchronize();
        }
        let waited = inbox.post(&s).and_then(|exposed| exposed.wait(&s));
        let read = waited.and_then(|mut inbox| inbox.read(&s).map(drop));
        *told.lock().unwrap() = read.err().map(|error| error.to_string());
        Ok(())
    })
    .into_iter()
    .for_each(Result::unwrap);
    let told = told.into_inner().unwrap();
    told.expect("nobody completes")
}

#[test]
fn a_step_that_panics_or_cannot_say_why_it_fails_is_waited_for_by_nobody() {
    let told = told_of_a_step(|| panic!("on purpose"));
    let cause = "a thread of rank 1 panicked, and so dropped something that was lent to a capture";
    assert!(told.contains(cause), "{told}");
    for panics in [false, true] {
        let told = told_of_a_step(|| Error::other(Silent { panics }));
        let cause = "its part of an epoch: an error that cannot be displayed";
        assert!(told.contains(cause), "{told}");
    }
}

#[test]
fn a_test_for_a_peer_that_has_left_comes_to_an_end() {
    let results = World::local(2, |world| -> Result<()> {
        stream!(let s = world.stream()?);
        let (inbox, _outbox) = halves(&s, 1 - world.rank())?;
        if world.rank() == 1 {
            return Ok(());
        }
        let mut exposed = inbox.post(&s)?;
        loop {
            match exposed.test(&s)? {
                tidegate::window::Tested::Done(_) => break s.synchronize(),
                tidegate::window::Tested::Pending(again) => exposed = again,
            }
            std::thread::yield_now();
        }
    });
    let error = results[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("rank 1 has left the job"), "{error}");
    assert!(results[1].is_ok());
}

/// How a rank's waits for the other end: for an epoch, and in an exchange.
fn ends(world: &World, begun: impl FnOnce()) -> [String; 2] {
    stream!(let s = world.stream().unwrap());
    let (inbox, _outbox) = halves(&s, 1 - world.rank()).unwrap();
    // This is refused if the other's end is known.
    let exposed = inbox.post(&s);
    begun();
    let waited = exposed.and_then(|exposed| exposed.wait(&s));
    let waited = waited.and_then(|_inbox| s.synchronize()).unwrap_err();
    let gathered = world.all_gather("all", Vec::new()).unwrap_err();
    [waited.to_string(), gathered.to_string()]
}

/// Rank 0 panics after `keep`. Rank 1, which waits for it, is told, and the job ends.
fn a_panic_after(keep: impl Fn(World) + Send + Sync + 'static) {
    let (said, hear) = mpsc::channel();
    // This is in a thread, so that a job that never ends is an error.
    std::thread::spawn(move || {
        let heard = Mutex::new(Vec::new());
        let job = AssertUnwindSafe(|| {
            World::local(2, |world| {
                if world.rank() == 0 {
                    keep(world);
                    panic!("on purpose");
                }
                heard.lock().unwrap().extend(ends(&world, || ()));
            })
        });
        let panicked = catch_unwind(job).is_err();
        said.send((panicked, heard.into_inner().unwrap()))
    });
    let (panicked, heard) = hear.recv_timeout(LONG).expect("the job comes to an end");
    assert!(panicked, "the panic of a rank is passed on");
    assert_eq!(heard.len(), 2, "both waits have ended");
    for error in heard {
        assert!(error.contains("panicked"), "{error}");
    }
}

const LONG: Duration = Duration::from_secs(600);

#[test]
fn a_rank_that_panics_is_dead_though_its_world_is_kept() {
    static KEPT: Mutex<Vec<World>> = Mutex::new(Vec::new());
    let open = |world: &World| {
        stream!(let s = world.stream().unwrap());
        drop(halves(&s, 1).unwrap());
    };
    a_panic_after(move |world| {
        open(&world);
        KEPT.lock().unwrap().push(world);
    });
    a_panic_after(move |world| {
        open(&world);
        std::mem::forget(world);
    });
}

#[test]
fn a_rank_that_panics_is_dead_though_a_thread_waits_by_its_world() {
    let (said, hear) = mpsc::channel();
    a_panic_after(move |world| {
        let said = said.clone();
        let (begun, waits) = mpsc::channel();
        std::thread::spawn(move || said.send(ends(&world, || begun.send(()).unwrap())));
        waits.recv().unwrap();
    });
    for error in hear.recv_timeout(LONG).expect("its waits end, too") {
        assert!(error.contains("panicked"), "{error}");
    }
}

/// Works when it is dropped.
struct Last<F: FnMut()>(F);

impl<F: FnMut()> Drop for Last<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// What rank 1 reads of rank 0, which calls `cleanup` from a destructor while its thread unwinds. Rank 0's stream is
/// inline, so the same thread would execute its kernels. Rank 1 completes nothing, or even leaves the job.
fn told_by_a_destructor(
    leaves: bool,
    cleanup: impl for<'s> Fn(Inbox<'s, u64>, Outbox<'s, u64>, Out<u64>, &Stream<'s>) -> Result<()>
    + Sync,
) -> Result<Vec<u64>> {
    let results = World::local(2, |world| {
        stream!(let s = world.inline_stream()?);
        let peer = 1 - world.rank();
        let mut window = SlotWindow::new("w");
        let (from, to) = (window.slot_from(peer, 0, 1), window.slot_to(peer, 0));
        let (inbox, outbox) = window.open(&s)?;
        if world.rank() == 1 {
            drop(outbox);
            if leaves {
                return Ok(Vec::new());
            }
            let exposed = inbox.post(&s)?;
            return Ok(exposed.wait(&s)?.read(&s)?.slot(from).to_vec());
        }
        let (mut halves, mut ended) = (Some((inbox, outbox)), None);
        let panics = AssertUnwindSafe(|| {
            let _last = Last(|| {
                let (inbox, outbox) = halves.take().expect("it is dropped once");
                ended = Some(cleanup(inbox, outbox, to, &s));
            });
            panic!("on purpose");
        });
        catch_unwind(panics).unwrap_err();
        ended.expect("the destructor ran").map(|()| Vec::new())
    });
    let [zero, one] = results.try_into().expect("two ranks");
    zero.and(one)
}

#[test]
fn a_kernel_that_a_destructor_launches_completes_its_target() {
    let read = told_by_a_destructor(false, |_inbox, outbox, to, s| {
        let opened = outbox.open(s)?;
        let puts = move |mut out: LastSlots<'_, u64>| out.put_one(to, 0, 7);
        s.launch(puts, opened.last(1)?)?;
        let _outbox = opened.complete(s)?;
        s.synchronize()
    });
    assert_eq!(read.unwrap(), [7]);
}

#[test]
fn a_kernel_that_a_destructor_launches_and_that_panics_completes_nothing() {
    let panics = |to: Out<u64>| assert_eq!(to.index(), 1, "the kernel panics before it puts");
    let expect = |said: &str, read: Result<Vec<u64>>| {
        let error = read.unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    let panicked = "the kernel panics before it puts";
    expect(
        panicked,
        told_by_a_destructor(false, |_inbox, outbox, to, s| {
            let opened = outbox.open(s)?;
            let puts = move |mut out: LastSlots<'_, u64>| {
                panics(to);
                out.put_one(to, 0, 7);
            };
            s.launch(puts, opened.last(1)?)?;
            let _ended = opened.complete(s).and_then(|_outbox| s.synchronize());
            Ok(())
        }),
    );
    expect(
        panicked,
        told_by_a_destructor(false, |_inbox, outbox, to, s| {
            let opened = outbox.open(s)?;
            let puts = move |mut out: AllSlots<'_, u64>| {
                panics(to);
                out.put_one(to, 0, 7);
            };
            s.launch(puts, opened.last_of_all()?)?;
            let _ended = opened.complete(s).and_then(|_outbox| s.synchronize());
            Ok(())
        }),
    );
    // A guard of the kernel waits while the kernel unwinds, and the wait fails. A second panic would end the process.
    expect(
        "rank 1 has left",
        told_by_a_destructor(true, |mut inbox, mut outbox, to, s| {
            let puts = move |inbox: KernelInbox<'_, u64>, _outbox: KernelOutbox<'_, u64>| {
                let mut exposed = Some(inbox.post());
                let _last = Last(|| _ = exposed.take().map(KernelExposed::wait));
                panics(to);
            };
            s.launch(puts, (inbox.lend(), outbox.lend()))?;
            s.synchronize()
        }),
    );
}
