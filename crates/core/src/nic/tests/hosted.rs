//! Devices that are the host, except for their streams, which store to no registers.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use tidegate_hal::batch::{Op as Reduction, Scalar};
use tidegate_hal::control::Handle;
use tidegate_hal::device::{
    self, ClosureDevice, Device, DeviceError, HostAccess, Issues, StreamConfig,
};
use tidegate_hal::memory::{Ptr, Sharing};
use tidegate_host::{Host, HostBlock, HostStream};
use tidegate_words::Bell;

/// A stream that wraps one of the host's.
pub(super) trait Over: device::Stream {
    fn over(stream: HostStream) -> Self;

    /// The host's stream.
    fn host(&self) -> &HostStream;
}

impl Over for HostStream {
    fn over(stream: HostStream) -> Self {
        stream
    }

    fn host(&self) -> &HostStream {
        self
    }
}

/// A host device with such streams. With `MUTE`, NICs treat them like a GPU's streams, which drive no engine and ring
/// no bell.
pub(super) struct By<S, const MUTE: bool = false>(Host, PhantomData<fn() -> S>);

impl<S, const MUTE: bool> By<S, MUTE> {
    fn the_host(host: Host) -> Self {
        By(host, PhantomData)
    }
}

impl<S, const MUTE: bool> Clone for By<S, MUTE> {
    fn clone(&self) -> Self {
        By::the_host(self.0.clone())
    }
}

/// Wakes a stream again and again. NICs of a mute device ring another bell than the one that the stream sleeps on,
/// because GPUs do not sleep.
fn rouse(config: &StreamConfig) {
    let (weak, bell) = (
        Arc::downgrade(&config.keep),
        config.bell.0.expose_provenance(),
    );
    std::thread::spawn(move || {
        while let Some(keep) = weak.upgrade() {
            // SAFETY: `keep` keeps the bell alive, as the maker of the configuration promises. The bell is only
            // accessed atomically.
            let bell: &Bell = unsafe { &*std::ptr::with_exposed_provenance(bell) };
            bell.wake_all();
            drop(keep);
            std::thread::sleep(Duration::from_micros(100));
        }
    });
}

// SAFETY: the host does everything. Its streams keep what streams must keep, as they promise.
unsafe impl<S: Over, const MUTE: bool> Device for By<S, MUTE> {
    type Block = HostBlock;
    type Stream = S;
    const NAME: &'static str = "by the host";

    fn open(local_rank: usize) -> Result<Self, DeviceError> {
        Host::open(local_rank).map(By::the_host)
    }

    fn open_local(rank: usize) -> Result<Self, DeviceError> {
        Host::open_local(rank).map(By::the_host)
    }

    fn same(&self, other: &Self) -> bool {
        self.0.same(&other.0)
    }

    fn helps(&self) -> bool {
        !MUTE && self.0.helps()
    }

    fn staged(&self) -> bool {
        MUTE || self.0.staged()
    }

    fn refuses(&self, reduction: Option<Reduction>, scalar: Scalar) -> Option<String> {
        self.0.refuses(reduction, scalar)
    }

    fn alloc(&self, bytes: usize, sharing: Sharing) -> Result<HostBlock, DeviceError> {
        self.0.alloc(bytes, sharing)
    }

    fn map(&self, handle: Handle, bytes: usize) -> Result<HostBlock, DeviceError> {
        self.0.map(handle, bytes)
    }

    unsafe fn stream(&self, mut config: StreamConfig) -> Result<S, DeviceError> {
        if MUTE {
            config.helper = None;
            rouse(&config);
        }
        // SAFETY: the caller promises the same, here and below.
        unsafe { self.0.stream(config) }.map(S::over)
    }

    unsafe fn poison(&self, word: Ptr, bell: Ptr) {
        // SAFETY: as above.
        unsafe { self.0.poison(word, bell) }
    }

    unsafe fn peek(&self, word: Ptr) -> u64 {
        // SAFETY: as above.
        unsafe { self.0.peek(word) }
    }

    unsafe fn init_word(&self, word: Ptr, value: u64) {
        // SAFETY: as above.
        unsafe { self.0.init_word(word, value) }
    }

    unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { self.0.read(src, dst) }
    }

    unsafe fn write(&self, dst: Ptr, src: &[u8]) -> Result<(), DeviceError> {
        // SAFETY: as above.
        unsafe { self.0.write(dst, src) }
    }
}

// SAFETY: the host's memory belongs to this process.
unsafe impl<S: Over, const MUTE: bool> HostAccess for By<S, MUTE> {}

// SAFETY: the kernels are the host's.
unsafe impl<S: Over, const MUTE: bool> ClosureDevice for By<S, MUTE> {
    unsafe fn launch<N, K>(stream: &S, kernel: K) -> Result<(), DeviceError>
    where
        N: 'static,
        K: Fn(&dyn Issues) + Send + 'static,
    {
        // SAFETY: the caller promises the same.
        unsafe { <Host as ClosureDevice>::launch::<N, K>(stream.host(), kernel) }
    }
}
