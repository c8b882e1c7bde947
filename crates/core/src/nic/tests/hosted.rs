//! Devices that are the host, but for their streams, which store to no registers.

use std::marker::PhantomData;

use tidegate_hal::batch::{Op as Reduction, Scalar};
use tidegate_hal::control::Handle;
use tidegate_hal::device::{self, ClosureDevice, Device, DeviceError, HostAccess, StreamConfig};
use tidegate_hal::memory::{Ptr, Sharing};
use tidegate_host::{Host, HostBlock, HostStream};

/// A stream that is made of one of the host's.
pub(super) trait Over: device::Stream {
    fn over(stream: HostStream) -> Self;

    /// That one.
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

/// A host with such streams.
pub(super) struct By<S>(Host, PhantomData<fn() -> S>);

impl<S> By<S> {
    fn the_host(host: Host) -> Self {
        By(host, PhantomData)
    }
}

impl<S> Clone for By<S> {
    fn clone(&self) -> Self {
        By::the_host(self.0.clone())
    }
}

// SAFETY: all is done by the host; its streams keep what streams must by their own promise.
unsafe impl<S: Over> Device for By<S> {
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
        self.0.helps()
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

    unsafe fn stream(&self, config: StreamConfig) -> Result<S, DeviceError> {
        // SAFETY: the caller's promise, here and below.
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

// SAFETY: the host's memory is of this process.
unsafe impl<S: Over> HostAccess for By<S> {}

// SAFETY: kernels are the host's.
unsafe impl<S: Over> ClosureDevice for By<S> {
    unsafe fn launch<K>(stream: &S, kernel: K) -> Result<(), DeviceError>
    where
        K: Fn() + Send + 'static,
    {
        // SAFETY: the caller's promise.
        unsafe { <Host as ClosureDevice>::launch(stream.host(), kernel) }
    }
}
