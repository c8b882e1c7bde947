//! A wire that passes everything on to another, except for the calls that a test changes.

use std::sync::Arc;
use std::time::Duration;

use tidegate_fabric::wire::chain::Chain;
use tidegate_fabric::wire::{Event, Limits, Op, Posted, Sleeper, Wire};
use tidegate_hal::nic::{Keep, NicError};

pub(crate) type Outcome<T> = Result<T, NicError>;

/// Memory of a peer, for a wire with these hooks. It is shared, because hooks may delay a post.
pub(crate) type Far<H> = Arc<<<H as Hooks>::Wire as Wire>::Remote>;

/// The calls of a wire that a test may change. Each call here passes on to the wire unless the test replaces it.
///
/// # Safety
///
/// The hooks must keep to the contract of [`Wire`]. They touch only the memory that operations name, and only between
/// the post and its event. After they were dropped, they touch no memory.
pub(crate) unsafe trait Hooks: Sized + Send + 'static {
    /// The wire below.
    type Wire: Wire;

    /// The limits, instead of the wire's own.
    fn limits(&self, limits: Limits) -> Limits {
        limits
    }

    /// May change the addresses before the wire gets them.
    fn connect(&self, _addresses: &mut [Vec<u8>]) {}

    /// May change a key before the wire gets it.
    fn import(&self, _key: &mut [u8], _bytes: usize) {}

    /// # Safety
    ///
    /// As for [`Wire::post`].
    unsafe fn post(
        &mut self,
        wire: &mut Self::Wire,
        peer: usize,
        op: Op<'_, Far<Self>>,
        cookie: u64,
    ) -> Outcome<Posted> {
        // SAFETY: the caller's promise.
        unsafe { wire.post(peer, op.handed_on(|remote| &**remote), cookie) }
    }

    fn poll(&mut self, wire: &mut Self::Wire, events: &mut Vec<Event>) -> Outcome<()> {
        wire.poll(events)
    }

    /// Passes memory on that the wire must keep. May keep it for longer.
    fn keep(&mut self, wire: &mut Self::Wire, what: Keep) {
        wire.keep(what);
    }

    /// Whether the hooks hold nothing back. The wire is asked, too.
    fn may_sleep(&self) -> bool {
        true
    }

    /// The hooks of another endpoint. With `None` there is only one endpoint, even if the wire could have more.
    fn twin(&self) -> Option<Self> {
        None
    }

    /// A chain that fires towards a peer instead of the engine. It is not the wire's chain, which would bypass
    /// [`post`](Self::post).
    fn chain(&mut self, _peer: usize) -> Option<Box<dyn Chain<Far<Self>>>> {
        None
    }

    /// The sleeper of the engine's thread, instead of the wire's own.
    fn sleeper(&self, sleeper: Box<dyn Sleeper>) -> Box<dyn Sleeper> {
        sleeper
    }
}

/// A wire with hooks.
pub(crate) struct Wrapped<H: Hooks> {
    /// Dropped before the wire: until then, the hooks may do what an open wire does.
    pub(crate) hooks: H,
    pub(crate) wire: H::Wire,
}

// SAFETY: every call goes to the wire unchanged, or to the hooks, which promise to keep the contract.
unsafe impl<H: Hooks> Wire for Wrapped<H> {
    type Remote = Far<H>;

    fn name(&self) -> &'static str {
        self.wire.name()
    }

    fn limits(&self) -> Limits {
        self.hooks.limits(self.wire.limits())
    }

    fn address(&self) -> Vec<u8> {
        self.wire.address()
    }

    fn connect(&mut self, addresses: &[Vec<u8>]) -> Outcome<()> {
        let mut addresses = addresses.to_vec();
        self.hooks.connect(&mut addresses);
        self.wire.connect(&addresses)
    }

    fn set_silence(&mut self, limit: Duration) {
        self.wire.set_silence(limit);
    }

    unsafe fn register(&mut self, base: *mut u8, n: usize, keep: Keep) -> Outcome<(Vec<u8>, Keep)> {
        // SAFETY: the caller's promise.
        unsafe { self.wire.register(base, n, keep) }
    }

    fn import(&mut self, peer: usize, key: &[u8], bytes: usize) -> Outcome<Self::Remote> {
        let mut key = key.to_vec();
        self.hooks.import(&mut key, bytes);
        self.wire.import(peer, &key, bytes).map(Arc::new)
    }

    unsafe fn post(&mut self, peer: usize, op: Op<'_, Far<H>>, cookie: u64) -> Outcome<Posted> {
        // SAFETY: the caller's promise.
        unsafe { self.hooks.post(&mut self.wire, peer, op, cookie) }
    }

    fn poll(&mut self, events: &mut Vec<Event>) -> Outcome<()> {
        self.hooks.poll(&mut self.wire, events)
    }

    fn keep(&mut self, what: Keep) {
        self.hooks.keep(&mut self.wire, what);
    }

    fn may_sleep(&mut self) -> bool {
        self.hooks.may_sleep() && self.wire.may_sleep()
    }

    fn twin(&self) -> Outcome<Option<Self>> {
        let Some(hooks) = self.hooks.twin() else {
            return Ok(None);
        };
        let wire = self.wire.twin()?;
        Ok(wire.map(|wire| Wrapped { hooks, wire }))
    }

    fn chain(&mut self, peer: usize, _budget: usize) -> Outcome<Option<Box<dyn Chain<Far<H>>>>> {
        Ok(self.hooks.chain(peer))
    }

    fn copies(&self) -> bool {
        self.wire.copies()
    }

    fn sleeper(&self) -> Box<dyn Sleeper> {
        self.hooks.sleeper(self.wire.sleeper())
    }
}
