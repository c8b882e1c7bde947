//! What a device and its streams must do.
//!
//! # Model
//!
//! A [`Device`] allocates [`Block`]s and makes [`Stream`]s. A stream executes what is submitted to it, in order. A
//! submission does not wait for earlier work. A full queue refuses it ([`DeviceError::QueueFull`]). If a driver's queue
//! blocks the caller instead, the stream records that the call is in progress ([`Calls`]).
//!
//! # Failure
//!
//! A wait that fails and a kernel that panics are [`Fault`]s. A stream keeps its first fault and never recovers. From
//! then on it skips everything but ordering (events, reclamation), and its adds become poisonings, as [`crate::batch`]
//! explains. Every later [`Stream::synchronize`] reports the fault.
//!
//! # Contract
//!
//! Devices have no policy, and nothing is validated twice: the caller promises what the `unsafe` methods list.

mod calls;
mod helper;
mod issues;
mod name;
mod parameters;
mod reclaim;

use std::any::Any;
use std::sync::Arc;

use crate::batch::{Batch, Op, Scalar};
use crate::code::Code;
use crate::control::Handle;
pub use crate::error::{DeviceError, DriverError, ErrorKind};
use crate::memory::{Allocation, Block, Ptr, Sharing};
use crate::nic::Register;
use crate::site::CallSite;
use crate::stamps::Stamps;

pub use calls::{Awaits, Call, Calls};
pub use helper::Helper;
pub use issues::{Issues, Stopped};
pub use name::StreamName;
pub use parameters::{Grid, Parameters, Reports};
pub use reclaim::{Blocked, Fault, Reclaim, Stand, Work};

/// How important a stream's work is, compared with that of other streams of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// The same as that of most streams.
    #[default]
    Normal,
    /// Its work goes first when the device chooses between pieces of work that are ready. (GPUs choose between blocks
    /// that are to begin; they interrupt none.) Use it for messages that a long kernel of another stream should not
    /// hold up.
    High,
}

/// The properties of a new stream.
#[derive(Clone)]
pub struct StreamConfig {
    /// A name for threads, errors and timelines.
    pub name: StreamName,
    /// The bell that peers ring for words that this stream may wait on.
    pub bell: Ptr,
    /// Keeps the bell alive.
    pub keep: Arc<dyn Any + Send + Sync>,
    /// Whether the stream executes work on the submitting thread, at once (host only). Then a submission that waits
    /// blocks its caller: this is host-synchronised communication, without another thread. The work itself must not
    /// submit to its stream, or wait for it ([`DeviceError::Inside`]).
    pub inline: bool,
    /// How many ranks share this node's processors, as far as is known. It decides how long a wait may spin.
    pub ranks_on_node: usize,
    /// How important its work is. Devices that do not choose between streams ignore it.
    pub priority: Priority,
    /// The work that the stream's thread can do for the NIC, if the device's streams are threads: see
    /// [`Device::helps`].
    pub helper: Option<Arc<dyn Helper>>,
    /// Whether the stream stamps what it does ([`Stream::stamps`]).
    pub stamped: bool,
}

/// A kind of device.
///
/// # Safety
///
/// Implementations must execute batches as [`crate::batch`] describes, keep the order of each stream, and provide
/// memory as [`Block`] promises. Values that a wait of a stream has acquired are visible to all later work of the
/// stream.
pub unsafe trait Device: Clone + Send + Sync + 'static {
    /// The memory that the device allocates or maps.
    type Block: Block;
    /// The streams of the device.
    type Stream: Stream;
    /// The name by which users choose it (`host`, `cuda`).
    const NAME: &'static str;
    /// The most bytes of a vector that two ranks send whole in a collective, where chunks of it would take more rounds.
    const SHORT: usize = 64 << 10;
    /// Whether a stream sends to several ranks at the same time.
    const AT_ONCE: bool = false;
    /// The most bytes of a vector that both of two ranks reduce as a whole, where each could reduce a half.
    const PAIR: usize = 64 << 10;
    /// The most ranks of which each sends a short vector of a scan to all higher ranks. From rank to rank there are
    /// fewer messages, but each waits for the one before it. That is faster where one thread sends a rank's messages
    /// one after the other.
    const SCAN: usize = 2;
    /// The most bytes of a message of a collective, where longer data goes in pieces: long enough that the work of a
    /// stream for a message does not count, and short enough that data stays in caches until it is read.
    const PIECE: usize = 256 << 10;

    /// Opens the device that a rank uses by default. `local_rank` is its number among the ranks of its node, or what
    /// `TIDEGATE_DEVICE` says. Ranks take the machine's devices in turn.
    ///
    /// # Errors
    ///
    /// If there is no such device.
    fn open(local_rank: usize) -> Result<Self, DeviceError>;

    /// Opens the device for a rank that is a thread of a process with several ranks.
    ///
    /// # Errors
    ///
    /// If there is no such device.
    fn open_local(rank: usize) -> Result<Self, DeviceError>;

    /// Whether streams of the two devices may use each other's memory, and wait for each other's events.
    fn same(&self, other: &Self) -> bool;

    /// The device in a few words, for people.
    fn describe(&self) -> String {
        format!("the device `{}`", Self::NAME)
    }

    /// A name of the hardware behind the device that no other hardware has, for ranks to compare. Empty if it makes no
    /// difference which other processes use the hardware.
    fn hardware(&self) -> Vec<u8> {
        Vec::new()
    }

    /// How much of the hardware this process may use while other processes use it, too, for ranks to compare. The unit
    /// is the device's own (a GPU's multiprocessors). 0 if processes take turns.
    fn portion(&self) -> usize {
        0
    }

    /// Says, when the ranks have met, how many *other* processes of the job use the same hardware, and the least
    /// [`Device::portion`] of all these processes and this one. Called once for each world; processes of an earlier
    /// world may still be there.
    fn shared_with(&self, processes: usize, portion: usize) {
        let _ = (processes, portion);
    }

    /// Whether the bells of all ranks of a node may lie in one block, which one rank allocates and all map. Then a rank
    /// maps one block in place of one for each rank. If not, each rank allocates its own bell.
    fn shares_bells(&self) -> bool {
        false
    }

    /// Says, before streams are made, how many of them will wait for peers at a time. A device that divides something
    /// among waiting streams divides it by this number. If several worlds call it, the greatest number counts.
    fn expect_waiting(&self, streams: usize) {
        let _ = streams;
    }

    /// Whether streams call the [`Helper`] that they are given, when batches have rung and while streams wait. Then no
    /// thread needs to sleep on the doorbells' bell.
    fn helps(&self) -> bool {
        false
    }

    /// Whether NICs cannot access memory of the device. What they read and write is then in memory of the host
    /// ([`Sharing::Nics`]), which streams fill and drain. Also, nobody rings the doorbells' bell then: an agent must
    /// poll the doorbells.
    fn staged(&self) -> bool {
        false
    }

    /// Maps a register of a NIC so that streams can store to it, by [`Store`](crate::batch::Step::Store) steps. Returns
    /// the same register at the address that streams use. The mapping lasts as long as the returned value is held. The
    /// caller holds it until all streams have passed their stores to the register. Several registers may lie in one
    /// page.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if the device's streams cannot store to registers, or not to this kind; others if
    /// the system refuses. Then streams only add to the doorbell, and the engine must look at it.
    ///
    /// # Safety
    ///
    /// As long as [`Register::keep`] is held, the register is mapped at its address. The device may store to the pages
    /// that contain it, but only where they have registers.
    unsafe fn map_register(&self, register: &Register) -> Result<Register, DeviceError> {
        let _ = register;
        Err(DeviceError::Unsupported {
            device: Self::NAME,
            what: "stores to registers of other devices".into(),
        })
    }

    /// The greatest size, in bytes, of a slot that gets a [landing](crate::batch::Landing) for streams of this device
    /// to look at. 0 if they do not look at landings. Asked when the ranks have met.
    fn land_up_to(&self) -> usize {
        0
    }

    /// The same for a collective each of whose calls is one [short reduction](crate::batch#short-reductions) on this
    /// rank, or the puts for those of others. At least [`Device::land_up_to`].
    fn reduce_up_to(&self) -> usize {
        self.land_up_to()
    }

    /// Whether kernels can access memory at this address by themselves. An address of a [bus](crate::far) stands for
    /// memory that only batches reach.
    fn reaches(&self, memory: Ptr) -> bool {
        let _ = memory;
        true
    }

    /// Whether streams of this device carry out [rings](crate::batch::Ring).
    fn rings(&self) -> bool {
        false
    }

    /// Whether all ranks of the job must allocate memory for peers together, so that some of them cannot do it alone.
    fn allocates_together(&self) -> bool {
        false
    }

    /// Why the device cannot make an operation on elements of peers' memory, or `None` if it can. The operation is a
    /// reduction, or a compare-and-swap if `reduction` is `None`. The answer is the same on all ranks. Cheap.
    fn refuses(&self, reduction: Option<Op>, scalar: Scalar) -> Option<String> {
        let _ = (reduction, scalar);
        None
    }

    /// Allocates zeroed memory; `bytes` is not 0.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Exhausted`].
    fn alloc(&self, bytes: usize, sharing: Sharing) -> Result<Self::Block, DeviceError>;

    /// Makes a block of memory that the process already has, without a copy. Only this process reaches it. Its length
    /// is that of the memory's [bytes in use](Allocation::bytes).
    ///
    /// # Errors
    ///
    /// The memory, if the device's streams cannot use it. By default, they cannot.
    fn adopt(&self, memory: Allocation) -> Result<Self::Block, Allocation> {
        Err(memory)
    }

    /// Returns the memory of a block, which the device would [adopt](Device::adopt) again.
    ///
    /// # Errors
    ///
    /// The block, if it is not memory of the process's allocator, or if it is shared.
    fn into_allocation(block: Self::Block) -> Result<Allocation, Self::Block> {
        Err(block)
    }

    /// Maps a peer's block of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadHandle`] if the handle is of another kind, or the block is smaller.
    fn map(&self, handle: Handle, bytes: usize) -> Result<Self::Block, DeviceError>;

    /// Makes a stream.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Exhausted`], [`DeviceError::Unsupported`].
    ///
    /// # Safety
    ///
    /// `config.bell` points to a live bell of this device for as long as `config.keep` lives.
    unsafe fn stream(&self, config: StreamConfig) -> Result<Self::Stream, DeviceError>;

    /// Sets [`crate::batch::POISON`] in a word and rings the bell, from the host, at once, even while streams wait on
    /// the word.
    ///
    /// # Safety
    ///
    /// Both point to live memory of this device, as in a batch.
    unsafe fn poison(&self, word: Ptr, bell: Ptr);

    /// Reads a word with acquire order, from the host.
    ///
    /// # Safety
    ///
    /// `word` points to a live word of this device.
    unsafe fn peek(&self, word: Ptr) -> u64;

    /// Sets a word before anything else uses it.
    ///
    /// # Safety
    ///
    /// `word` points to a live word that nothing accesses concurrently.
    unsafe fn init_word(&self, word: Ptr, value: u64);

    /// Copies from device memory to the host.
    ///
    /// # Errors
    ///
    /// [`DeviceError::System`] if the device cannot be read any more; [`DeviceError::Forked`]. The contents of `dst`
    /// are then unspecified.
    ///
    /// # Safety
    ///
    /// `src .. src + dst.len()` is live and initialised, and nothing writes it concurrently.
    unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies from the host to device memory.
    ///
    /// # Errors
    ///
    /// Those of [`Device::read`]. The contents of the device memory are then unspecified.
    ///
    /// # Safety
    ///
    /// `dst .. dst + src.len()` is live, and nothing accesses it concurrently.
    unsafe fn write(&self, dst: Ptr, src: &[u8]) -> Result<(), DeviceError>;
}

/// A device whose memory the host may access in place once its streams have passed.
///
/// # Safety
///
/// Every [`Block`] of the device is ordinary memory of this process.
pub unsafe trait HostAccess: Device {}

/// A device whose kernels are closures of this process.
///
/// # Safety
///
/// As for [`Stream`]; the closure is called on one thread at a time.
#[diagnostic::on_unimplemented(
    message = "kernels of `{Self}` are functions of loaded code, not closures",
    note = "declare the function with `kernel!`, bind it once, and launch it over a grid: `stream.launch(f.threads(n, 256), (&mut x,))`"
)]
pub unsafe trait ClosureDevice: HostAccess {
    /// Submits a kernel. Reports name it after the type `N`. It runs once for each replay if the stream is captured,
    /// and never if the stream has failed. It gets the stream, to [issue](Issues::issue) batches by itself.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`].
    ///
    /// # Safety
    ///
    /// The memory that the closure accesses is live until the stream has passed the kernel. All other accesses to that
    /// memory are ordered with the kernel's, by stream order or by the words that the stream waits for.
    unsafe fn launch<N, K>(stream: &Self::Stream, kernel: K) -> Result<(), DeviceError>
    where
        N: 'static,
        K: Fn(&dyn Issues) + Send + 'static;
}

/// A device whose kernels are functions of modules: code for the device, loaded at run time.
///
/// # Safety
///
/// As for [`Stream`]; a function is called with the parameters that it was launched with.
pub unsafe trait LaunchDevice: Device {
    /// Loaded code.
    type Module: Send + Sync + 'static;
    /// A function of it; keeps the module loaded.
    type Function: Send + Sync + 'static;

    /// Loads the form of the code that suits the device.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if no form does. [`DeviceError::Code`] if the form's bytes are no code, or not code
    /// for the device. [`DeviceError::Busy`] while a stream of the device may be waiting, because loading can block
    /// behind it.
    fn load(&self, code: &Code<'_>) -> Result<Arc<Self::Module>, DeviceError>;

    /// Finds a function that takes parameters of these sizes, in bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Code`] if no function has the name, or if it is known to take other parameters.
    fn function(
        module: &Arc<Self::Module>,
        name: &str,
        sizes: &[usize],
    ) -> Result<Self::Function, DeviceError>;

    /// Lets a function begin while the kernel before it on the stream still runs, if the device can. By default nothing
    /// changes.
    ///
    /// # Safety
    ///
    /// Each thread of the function itself waits for the end of all earlier work of the stream, before it accesses
    /// memory and before it ends.
    unsafe fn begin_early(function: Self::Function) -> Self::Function {
        function
    }

    /// Submits a kernel. On a stream that has failed, the kernel may or may not run. If it `waits` for peers by itself,
    /// all of its blocks run at the same time, and leave room for everything that may wait on the device.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`]; [`DeviceError::Code`] for a grid that the device or the function does not take. For a
    /// kernel that waits, [`DeviceError::Exhausted`] if there is no room for its blocks, and
    /// [`DeviceError::Unsupported`] if kernels of this device cannot wait.
    ///
    /// # Safety
    ///
    /// The parameters are those of the function. The memory that the function accesses, with them and in this grid, is
    /// live until the stream has passed the kernel. All other accesses to that memory are ordered with the kernel's, by
    /// stream order or by the words that the stream waits for.
    unsafe fn launch(
        stream: &Self::Stream,
        function: &Self::Function,
        grid: Grid,
        waits: bool,
        parameters: &Parameters,
    ) -> Result<(), DeviceError>;
}

/// A queue of work that is executed in order. One thread at a time owns it. Dropping it executes the remaining work,
/// unless the thread is unwinding: then waits are aborted.
///
/// # Safety
///
/// See [`Device`].
pub unsafe trait Stream: Send + 'static {
    /// The part that outlives the stream.
    type Reclaim: Reclaim;
    /// A recording.
    type Graph: Send + Sync + 'static;
    /// A point in the order of a stream that another stream can wait for.
    type Event: Send + Sync + 'static;

    /// The part that outlives the stream.
    fn reclaim(&self) -> &Arc<Self::Reclaim>;

    /// The most lanes that a batch for this stream may have, as far as is known now; it refuses batches with more.
    /// Callers ask it when they know how many lanes there will be, before there are any.
    fn most_lanes(&self) -> usize {
        usize::MAX
    }

    /// How many blocks the widest batch has had that was submitted to this stream or recorded by it; 0 if batches have
    /// none, as on the host.
    fn widest(&self) -> usize {
        0
    }

    /// Where kernels see that the stream has failed, and where those that wait by themselves say so. It stands for the
    /// failures of all streams that this one follows, too.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`].
    fn reports(&self) -> Result<Reports, DeviceError> {
        Ok(Reports::NONE)
    }

    /// Prepares a batch that the device could refuse. It finds room for the batch as the last of `items` items, and
    /// takes the stream's part of what streams share. It submits nothing. While the stream is captured, nothing is
    /// queued, so no room is needed.
    ///
    /// A caller needs this if it must first do something that cannot be undone: arm a NIC, or submit another batch that
    /// peers act upon. The batch is then submitted next, or behind others that need no preparation. The device refuses
    /// it only if the device can no longer be used, or if others have taken some of what streams share.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::submit`]. The stream is unchanged.
    fn prepare(&self, batch: &Arc<Batch>, items: usize) -> Result<(), DeviceError>;

    /// Submits a batch. The program's call, for which it is submitted, was made at `site`.
    ///
    /// # Errors
    ///
    /// If the device refuses. Then nothing has been submitted. If the device accepts a part and refuses a later one,
    /// the batch counts as submitted, and the stream has failed with [`Fault::Transport`]. A fault is not an error
    /// here: [`Stream::fault`] and [`Stream::synchronize`] report it.
    ///
    /// # Safety
    ///
    /// The promises of [`Batch::new`] hold until the stream has passed the batch.
    unsafe fn submit(&self, batch: &Arc<Batch>, site: CallSite) -> Result<(), DeviceError>;

    /// The stamps of a stream that was made to be [stamped](StreamConfig::stamped). `None` for others, and if the
    /// device cannot stamp.
    fn stamps(&self) -> Option<Arc<dyn Stamps>> {
        None
    }

    /// The number of work items submitted so far, to compare with [`Reclaim::passed`].
    fn mark(&self) -> u64;

    /// The fault with which this stream has failed, as far as is known. It also fails with the fault of a stream that
    /// it has waited for ([`Stream::wait_event`]).
    fn fault(&self) -> Option<Fault> {
        self.reclaim().fault()
    }

    /// The streams that this one has waited for, and at whose faults the device has not looked yet. Futures need them,
    /// because a future outlives the call and cannot hold the stream itself.
    fn followed(&self) -> Vec<Arc<Self::Reclaim>> {
        Vec::new()
    }

    /// Blocks until the stream has passed all of its work.
    ///
    /// # Errors
    ///
    /// The [fault](Stream::fault), if there is one; [`DeviceError::Capturing`]; [`DeviceError::Inside`];
    /// [`DeviceError::Forked`]; [`DeviceError::System`] if the driver refuses.
    fn synchronize(&self) -> Result<Result<(), Fault>, DeviceError>;

    /// Records an event at this point of the stream.
    ///
    /// # Errors
    ///
    /// If the device refuses.
    fn record(&self) -> Result<Self::Event, DeviceError>;

    /// Makes later work wait for an event of any stream of the device, this one included. If the recording stream has
    /// failed by then, this stream fails, too. So does every stream that waits for this one, whatever was submitted in
    /// between. The order is kept even on a failed stream.
    ///
    /// # Errors
    ///
    /// If the device refuses.
    fn wait_event(&self, event: &Self::Event) -> Result<(), DeviceError>;

    /// Begins to record work instead of executing it. `others` are recorded with this stream: work that is submitted to
    /// them meanwhile belongs to the recording, too.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Capturing`] if one of them is being captured already, or if the device cannot record them
    /// together.
    fn begin_capture(&self, others: &[&Self]) -> Result<(), DeviceError>;

    /// Ends the recording. No stream is captured afterwards, whatever this returns.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Capturing`] if nothing is being captured; others if the device cannot make the recording.
    fn end_capture(&self, others: &[&Self]) -> Result<Self::Graph, DeviceError>;

    /// Whether the stream is being captured.
    fn capturing(&self) -> bool;

    /// Notes that something was enqueued by other means than these methods, such as a library's own launch on the
    /// underlying stream. Marks count it from now on.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`].
    fn enqueued(&self) -> Result<(), DeviceError>;

    /// Like [`Stream::prepare`], for a recording.
    ///
    /// # Errors
    ///
    /// Those of [`Stream::replay`]. The streams are unchanged.
    fn prepare_replay(&self, others: &[&Self], graph: &Arc<Self::Graph>)
    -> Result<(), DeviceError>;

    /// Submits a recording, `times` times. On each stream, its part of the recording comes after all earlier work (the
    /// previous repetition, too), and before all later work. The recorded events order the streams among each other. A
    /// device may order more, and let no stream go on before all are through.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`].
    ///
    /// # Safety
    ///
    /// The promises of everything recorded hold, each time. `others` are those of the capture, in the same order.
    unsafe fn replay(
        &self,
        others: &[&Self],
        graph: &Arc<Self::Graph>,
        times: u64,
    ) -> Result<(), DeviceError>;
}
