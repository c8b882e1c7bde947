//! The types of a vendor's crate over those of this crate.
//!
//! A vendor has types of its own for devices, streams and memory, so that a program cannot give one vendor's memory to
//! the other's device. [`vendor!`](crate::vendor!) declares them. Everything else (graphs, events, loaded code) is reached
//! only through those types, and is the same for all vendors.

/// Declares a vendor's device, memory and streams over [`GpuDevice`](crate::GpuDevice), [`GpuBlock`](crate::GpuBlock) and
/// [`GpuStream`](crate::GpuStream), and implements the traits of the hal for them. The vendor brings the documentation: an
/// example names its types.
///
/// The fields are private to the crate that invokes the macro.
#[macro_export]
macro_rules! vendor {
    (
        $vendor:expr, $name:literal;
        $(#[$device_doc:meta])* device $Device:ident { $(#[$count_doc:meta])* count; }
        $(#[$block_doc:meta])* block $Block:ident;
        $(#[$stream_doc:meta])* stream $Stream:ident { $(#[$timed_doc:meta])* timed_event; }
    ) => {
        $(#[$device_doc])*
        #[derive(Clone)]
        pub struct $Device(pub(crate) $crate::GpuDevice);

        impl ::std::fmt::Debug for $Device {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.debug_struct(stringify!($Device))
                    .field("name", &self.0.limits().name)
                    .field("ordinal", &self.0.limits().ordinal)
                    .finish_non_exhaustive()
            }
        }

        impl $Device {
            $(#[$count_doc])*
            pub fn count() -> ::std::result::Result<usize, $crate::__private::hal::device::DeviceError> {
                ($vendor.count)()
            }

            /// The GPU's name, as its driver gives it.
            pub fn name(&self) -> &str {
                &self.0.limits().name
            }

            /// The GPU's number among the devices that the process may see.
            pub fn ordinal(&self) -> usize {
                self.0.limits().ordinal
            }

            /// The GPU's UUID. It is the same in every process, whatever number a process gives the GPU. If the GPU has
            /// none, these bytes say where it is on its machine.
            pub fn uuid(&self) -> [u8; 16] {
                self.0.limits().uuid
            }

            /// How many multiprocessors this process may use: all of the GPU's, unless the driver limits the process to
            /// a portion.
            pub fn multiprocessors(&self) -> usize {
                self.0.limits().multiprocessors
            }
        }

        $(#[$block_doc])*
        pub struct $Block(pub(crate) $crate::GpuBlock);

        $(#[$stream_doc])*
        #[repr(transparent)]
        pub struct $Stream(pub(crate) $crate::GpuStream);

        const _: () = {
            use ::std::sync::Arc;

            use $crate::__private::hal::batch::Batch;
            use $crate::__private::hal::code::Code;
            use $crate::__private::hal::control::Handle;
            use $crate::__private::hal::device::{
                Device, DeviceError, Fault, Grid, LaunchDevice, Parameters, Reports, Stream, StreamConfig,
            };
            use $crate::__private::hal::memory::{Block, Ptr, Sharing};
            use $crate::__private::hal::nic::Register;
            use $crate::__private::hal::site::CallSite;
            use $crate::__private::hal::stamps::Stamps;
            use $crate::{GpuDevice, GpuEvent, GpuFunction, GpuGraph, GpuModule, GpuStream, StreamState};

            impl $Stream {
                $(#[$timed_doc])*
                pub fn timed_event(&self) -> Result<Arc<$crate::TimedEvent>, DeviceError> {
                    self.0.timed_event()
                }

                fn plain<'a>(streams: &'a [&'a Self]) -> &'a [&'a GpuStream] {
                    // SAFETY: a `$Stream` is a `GpuStream` and nothing else (`repr(transparent)`), so references to both
                    // have one form.
                    unsafe { &*(::std::ptr::from_ref(streams) as *const [&'a GpuStream]) }
                }
            }

            // SAFETY: all methods are those of `GpuBlock`, which is a block.
            unsafe impl Block for $Block {
                fn base(&self) -> Ptr {
                    self.0.base()
                }

                fn bytes(&self) -> usize {
                    self.0.bytes()
                }

                fn share(&self) -> Result<Handle, DeviceError> {
                    self.0.share()
                }
            }

            // SAFETY: all methods are those of `GpuDevice`, whose batch kernel executes batches.
            unsafe impl Device for $Device {
                type Block = $Block;
                type Stream = $Stream;
                const NAME: &'static str = $name;
                const SHORT: usize = 512 << 10;
                const AT_ONCE: bool = true;
                const PAIR: usize = usize::MAX;
                const SCAN: usize = 32;
                const PIECE: usize = 16 << 20;

                fn open(local_rank: usize) -> Result<Self, DeviceError> {
                    GpuDevice::open($vendor, local_rank).map($Device)
                }

                fn open_local(rank: usize) -> Result<Self, DeviceError> {
                    GpuDevice::open_local($vendor, rank).map($Device)
                }

                fn same(&self, other: &Self) -> bool {
                    self.0.same(&other.0)
                }

                fn describe(&self) -> String {
                    format!("GPU {}, {}", self.ordinal(), self.name())
                }

                fn hardware(&self) -> Vec<u8> {
                    self.0.hardware()
                }

                fn portion(&self) -> usize {
                    self.0.portion()
                }

                fn shared_with(&self, processes: usize, portion: usize) {
                    self.0.shared_with(processes, portion)
                }

                fn expect_waiting(&self, streams: usize) {
                    self.0.expect_waiting(streams)
                }

                fn staged(&self) -> bool {
                    true
                }

                fn land_up_to(&self) -> usize {
                    self.0.land_up_to()
                }

                fn reduce_up_to(&self) -> usize {
                    self.0.reduce_up_to()
                }

                unsafe fn map_register(&self, register: &Register) -> Result<Register, DeviceError> {
                    // SAFETY: the caller's promise.
                    unsafe { self.0.map_register(register) }
                }

                fn alloc(&self, bytes: usize, sharing: Sharing) -> Result<$Block, DeviceError> {
                    self.0.alloc(bytes, sharing).map($Block)
                }

                fn map(&self, handle: Handle, bytes: usize) -> Result<$Block, DeviceError> {
                    self.0.map(handle, bytes).map($Block)
                }

                unsafe fn stream(&self, config: StreamConfig) -> Result<$Stream, DeviceError> {
                    // SAFETY: the caller's promise.
                    unsafe { self.0.stream(config) }.map($Stream)
                }

                unsafe fn poison(&self, word: Ptr, bell: Ptr) {
                    // SAFETY: the caller's promise.
                    unsafe { self.0.poison(word, bell) }
                }

                unsafe fn peek(&self, word: Ptr) -> u64 {
                    // SAFETY: the caller's promise.
                    unsafe { self.0.peek(word) }
                }

                unsafe fn init_word(&self, word: Ptr, value: u64) {
                    // SAFETY: the caller's promise.
                    unsafe { self.0.init_word(word, value) }
                }

                unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<(), DeviceError> {
                    // SAFETY: the caller's promise.
                    unsafe { self.0.read(src, dst) }
                }

                unsafe fn write(&self, dst: Ptr, src: &[u8]) -> Result<(), DeviceError> {
                    // SAFETY: the caller's promise.
                    unsafe { self.0.write(dst, src) }
                }
            }

            // SAFETY: a launch is in stream order, with the parameters that it is given.
            unsafe impl LaunchDevice for $Device {
                type Module = GpuModule;
                type Function = GpuFunction;

                fn load(&self, code: &Code<'_>) -> Result<Arc<GpuModule>, DeviceError> {
                    self.0.load(code)
                }

                fn function(
                    module: &Arc<GpuModule>,
                    name: &str,
                    sizes: &[usize],
                ) -> Result<GpuFunction, DeviceError> {
                    module.function(name, sizes)
                }

                unsafe fn begin_early(function: GpuFunction) -> GpuFunction {
                    function.early()
                }

                unsafe fn launch(
                    stream: &$Stream,
                    function: &GpuFunction,
                    grid: Grid,
                    waits: bool,
                    parameters: &Parameters,
                ) -> Result<(), DeviceError> {
                    // SAFETY: the caller's promise.
                    unsafe { function.launch(&stream.0, grid, waits, parameters) }
                }
            }

            // SAFETY: all methods are those of `GpuStream`, which is a stream.
            unsafe impl Stream for $Stream {
                type Reclaim = StreamState;
                type Graph = GpuGraph;
                type Event = GpuEvent;

                fn reclaim(&self) -> &Arc<StreamState> {
                    self.0.reclaim()
                }

                fn most_lanes(&self) -> usize {
                    self.0.most_lanes()
                }

                fn widest(&self) -> usize {
                    self.0.widest()
                }

                fn reports(&self) -> Result<Reports, DeviceError> {
                    self.0.reports()
                }

                fn prepare(&self, batch: &Arc<Batch>, items: usize) -> Result<(), DeviceError> {
                    self.0.prepare(batch, items)
                }

                unsafe fn submit(&self, batch: &Arc<Batch>, site: CallSite) -> Result<(), DeviceError> {
                    // SAFETY: the caller's promise.
                    unsafe { self.0.submit(batch, site) }
                }

                fn stamps(&self) -> Option<Arc<dyn Stamps>> {
                    self.0.stamps()
                }

                fn mark(&self) -> u64 {
                    self.0.mark()
                }

                fn fault(&self) -> Option<Fault> {
                    self.0.fault()
                }

                fn followed(&self) -> Vec<Arc<StreamState>> {
                    self.0.followed()
                }

                fn synchronize(&self) -> Result<Result<(), Fault>, DeviceError> {
                    self.0.synchronize()
                }

                fn record(&self) -> Result<GpuEvent, DeviceError> {
                    self.0.record()
                }

                fn wait_event(&self, event: &GpuEvent) -> Result<(), DeviceError> {
                    self.0.wait_event(event)
                }

                fn begin_capture(&self, others: &[&Self]) -> Result<(), DeviceError> {
                    self.0.begin_capture(Self::plain(others))
                }

                fn end_capture(&self, others: &[&Self]) -> Result<GpuGraph, DeviceError> {
                    self.0.end_capture(Self::plain(others))
                }

                fn capturing(&self) -> bool {
                    self.0.capturing()
                }

                fn enqueued(&self) -> Result<(), DeviceError> {
                    self.0.enqueued()
                }

                fn prepare_replay(
                    &self,
                    others: &[&Self],
                    graph: &Arc<GpuGraph>,
                ) -> Result<(), DeviceError> {
                    self.0.prepare_replay(Self::plain(others), graph)
                }

                unsafe fn replay(
                    &self,
                    others: &[&Self],
                    graph: &Arc<GpuGraph>,
                    times: u64,
                ) -> Result<(), DeviceError> {
                    // SAFETY: the caller's promise.
                    unsafe { self.0.replay(Self::plain(others), graph, times) }
                }
            }
        };
    };
}

/// Declares how a vendor's types take over streams and memory of other libraries. The vendor brings the documentation,
/// and the type of its library's streams.
#[macro_export]
macro_rules! interop {
    (
        $Device:ident;
        $Stream:ident($Raw:ty) { $(#[$adopt_stream_doc:meta])* adopt; $(#[$raw_doc:meta])* as_raw; }
        $Block:ident { $(#[$adopt_doc:meta])* adopt; $(#[$into_adopted_doc:meta])* into_adopted; }
    ) => {
        const _: () = {
            use ::std::any::Any;

            use $crate::__private::hal::device::{DeviceError, StreamConfig};
            use $crate::{GpuBlock, GpuStream, Keep, driver};

            impl $Stream {
                $(#[$adopt_stream_doc])*
                pub unsafe fn adopt(
                    device: &$Device,
                    raw: $Raw,
                    keep: Keep,
                    config: StreamConfig,
                ) -> Result<Self, DeviceError> {
                    let raw = driver::Stream(raw.cast());
                    // SAFETY: the caller's promise.
                    unsafe { GpuStream::adopt(&device.0, raw, keep, config) }.map($Stream)
                }

                $(#[$raw_doc])*
                pub fn as_raw(&self) -> $Raw {
                    self.0.as_raw().0.cast()
                }
            }

            impl $Block {
                $(#[$adopt_doc])*
                pub unsafe fn adopt(
                    device: &$Device,
                    address: u64,
                    bytes: usize,
                    owner: Box<dyn Any + Send + Sync>,
                ) -> Self {
                    // SAFETY: the caller's promise.
                    $Block(unsafe { GpuBlock::adopt(&device.0, address, bytes, owner) })
                }

                $(#[$into_adopted_doc])*
                pub fn into_adopted(self) -> Result<Box<dyn Any + Send + Sync>, Self> {
                    self.0.into_adopted().map_err($Block)
                }
            }
        };
    };
}
