//! The scene of the tests of lost tokens: two ranks, one of which loses something, while the other goes on without
//! knowing.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use tidegate_core::error::{Cause, WaitFailed};
use tidegate_core::stream;
use tidegate_core::window::{self, ByRange, Out, RangeWindow};
use tidegate_core::{Error, On, OnHost, Region, Result, Stream};
use tidegate_host::Host;

pub(crate) type World = tidegate_core::World<Host>;
pub(crate) type Queue<'s> = Stream<'s, Host>;
pub(crate) type Memory<'s> = Region<u64, On<'s, Host>>;
pub(crate) type HostMemory = Region<u64, OnHost<Host>>;
pub(crate) type Inbox<'s> = window::Inbox<'s, u64, Host, ByRange>;
pub(crate) type Outbox<'s> = window::Outbox<'s, u64, Host, ByRange>;

/// The number of elements of all regions and windows here: enough for ranges, but few enough for Miri.
pub(crate) const LEN: usize = 8;

/// How long waits last that nothing else ends. The work that is enqueued by then needs milliseconds, or some tenths of
/// a second under Miri.
pub(crate) const LIMIT: Duration = Duration::from_millis(if cfg!(miri) { 1500 } else { 400 });

/// The limit for waits that all end by themselves: longer than any machine stands still.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// How a token is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    Forgotten,
    Dropped,
}

impl How {
    pub(crate) fn lose<T>(self, token: T) {
        match self {
            How::Forgotten => std::mem::forget(token),
            How::Dropped => drop(token),
        }
    }
}

/// Holds up streams of any rank until it is opened, so that the work behind it is pending when a token is lost.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<AtomicBool>);

impl Gate {
    pub(crate) fn open(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Enqueues a kernel that runs until the gate is open.
    pub(crate) fn hold_up(&self, s: &Queue<'_>) -> Result<()> {
        let gate = self.0.clone();
        let mut valve = Region::<u8, _>::zeroed(s.world(), 1)?.on(s)?;
        let wait = move |_: &mut [u8]| {
            while !gate.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        };
        s.launch(wait, &mut valve)
    }
}

/// A region on the stream whose elements are `value`.
pub(crate) fn filled<'s>(s: &Queue<'s>, value: u64) -> Result<Memory<'s>> {
    Region::from_slice(s.world(), &[value; LEN])?.on(s)
}

/// Writes a whole region, so that it races with anything that frees or reads it.
pub(crate) fn scribble(memory: &mut [u64]) {
    memory.iter_mut().for_each(|x| *x = x.wrapping_add(1));
}

/// The window of all scenes. Each of two ranks puts into the first half of the other's memory, and gets from the second
/// half.
pub(crate) fn open<'s>(s: &Queue<'s>) -> Result<(Inbox<'s>, Outbox<'s>)> {
    let mut window = RangeWindow::new("scene", LEN).fail_after(LIMIT);
    window.range_to(1 - s.world().rank(), 0..LEN);
    window.open(s)
}

/// The range of such a window.
pub(crate) fn first(outbox: &Outbox<'_>) -> Out<u64> {
    outbox.slots().next().expect("there is one")
}

/// Enqueues an access epoch that puts and gets.
pub(crate) fn access<'s>(
    s: &Queue<'s>,
    outbox: Outbox<'s>,
    src: &Memory<'s>,
    dst: &mut Memory<'s>,
) -> Result<Outbox<'s>> {
    let half = LEN / 2;
    let to = first(&outbox);
    let mut epoch = outbox.start();
    epoch.put(src.slice(0..half)?, to)?;
    epoch.get(dst.slice_mut(0..half)?, to.at(half))?;
    epoch.complete(s)
}

/// The rank that goes on: it has endless epochs. The first is enqueued before the other rank loses its token, and
/// executed after that.
fn go_on(world: &World, lost: &Gate) -> Result<()> {
    stream!(let s = world.stream()?);
    let (mut inbox, mut outbox) = open(&s)?;
    let (src, mut dst) = (filled(&s, 7)?, filled(&s, 0)?);
    lost.hold_up(&s)?;
    let result = (|| {
        loop {
            let exposed = inbox.post(&s)?;
            outbox = access(&s, outbox, &src, &mut dst)?;
            inbox = exposed.wait(&s)?;
            s.synchronize()?;
        }
    })();
    // The window's revocation may come first, but the stream's error explains more.
    s.synchronize().and(result)
}

/// How the rank that goes on learns of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Learns {
    /// At once, by name, because an open epoch was dropped. (By the limit, if it was forgotten.)
    AtOnce,
    /// At once, even if the token was forgotten, because a call that had the token failed.
    Anyway,
    /// By the limit, or when the other rank has left, because no epoch was open.
    Late,
}

/// Rank 0 plays `lose`, which loses a token in one way and then in the other, and opens the gate. Rank 1 goes on. The
/// scene checks that rank 1 gets a typed error that gives the reason.
pub(crate) fn scene<F>(learns: Learns, lose: F)
where
    F: for<'s> Fn(How, &mut Queue<'s>, Inbox<'s>, Outbox<'s>, &Gate) -> Result<()> + Sync,
{
    for how in [How::Forgotten, How::Dropped] {
        let gate = Gate::default();
        let mut results = World::local(2, |world| {
            if world.rank() == 1 {
                return go_on(&world, &gate);
            }
            stream!(let s = world.stream()?);
            let (inbox, outbox) = open(&s)?;
            gate.hold_up(&s)?;
            let result = lose(how, &mut s, inbox, outbox, &gate);
            gate.open();
            result
        });
        let error = results.pop().expect("two ranks").expect_err("it goes on");
        results.pop().expect("two ranks").expect("the loss itself");
        let cause = match &error {
            Error::Revoked { cause, .. } => cause,
            Error::Wait(wait) => {
                let WaitFailed { window, rank, .. } = &**wait;
                let window = window.as_ref().map(|window| &*window.name);
                assert_eq!((window, *rank), (Some("scene"), 0));
                &wait.cause
            }
            other => panic!("{other}"),
        };
        match (learns, how, cause) {
            (Learns::AtOnce | Learns::Anyway, How::Dropped, Cause::Dropped { rank: 0, .. })
            | (Learns::Anyway, How::Forgotten, Cause::NotEnqueued { rank: 0, .. })
            | (Learns::AtOnce, How::Forgotten, Cause::Limit { .. })
            | (Learns::Late, _, Cause::Limit { .. } | Cause::PeerLeft { rank: 0 }) => {}
            _ => panic!("{learns:?}, {how:?}: {error}"),
        }
    }
}

/// Runs `lose` on so many ranks that have a gate in common.
pub(crate) fn ranks(
    count: usize,
    lose: impl Fn(World, &Gate) -> Result<()> + Sync,
) -> Vec<Result<()>> {
    let gate = Gate::default();
    World::local(count, |world| lose(world, &gate))
}

/// Runs `lose` on so many ranks, in both ways. No rank learns of the loss.
pub(crate) fn unnoticed(count: usize, lose: impl Fn(How, World, &Gate) -> Result<()> + Sync) {
    for how in [How::Forgotten, How::Dropped] {
        let results = ranks(count, |world, gate| lose(how, world, gate));
        results.into_iter().collect::<Result<Vec<_>>>().unwrap();
    }
}

/// The error by which rank 1 learns of the loss. Rank 0 has none.
pub(crate) fn noticed(results: Vec<Result<()>>) -> String {
    let [loss, error] = results.try_into().expect("two ranks");
    loss.expect("the loss itself");
    error.expect_err("it goes on").to_string()
}

/// Runs `lose` on one rank, in both ways.
pub(crate) fn alone(lose: impl Fn(How, &World, &Gate) -> Result<()> + Sync) {
    for how in [How::Forgotten, How::Dropped] {
        let gate = Gate::default();
        World::local(1, |world| {
            let result = lose(how, &world, &gate);
            gate.open();
            result
        })
        .pop()
        .expect("one rank")
        .expect("the loss itself");
    }
}

/// A waker that counts how often it is woken.
#[derive(Default)]
pub(crate) struct Alarm(pub(crate) AtomicUsize);

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Polls a future once, which must not be enough, and loses it.
pub(crate) fn poll_once_and_lose(how: How, future: impl Future, alarm: &Arc<Alarm>) {
    let waker = Waker::from(alarm.clone());
    let mut context = Context::from_waker(&waker);
    match how {
        How::Dropped => {
            let mut future = pin!(future);
            assert!(future.as_mut().poll(&mut context).is_pending());
        }
        How::Forgotten => {
            let mut future = Box::pin(future);
            assert!(future.as_mut().poll(&mut context).is_pending());
            std::mem::forget(future);
        }
    }
}
