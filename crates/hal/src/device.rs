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
mod parameters;

use std::any::Any;
use std::sync::Arc;
use std::task::Waker;

use crate::batch::{Batch, Op, Scalar, Tag};
use crate::control::Handle;
pub use crate::error::DeviceError;
use crate::memory::{Allocation, Block, Ptr, Sharing};
use crate::nic::Register;
use crate::site::CallSite;

pub use calls::{Awaits, Call, Calls};
pub use helper::Helper;
pub use parameters::{Grid, Parameters};

/// Why a stream stopped doing work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A wait ended without its count.
    Wait {
        /// What was waited for.
        tag: Tag,
        /// The number of the epoch (from 0) whose count was not reached.
        epoch: u64,
        /// Where the wait was enqueued, if the device knows.
        site: Option<CallSite>,
    },
    /// What carries messages to peers has failed, or what was submitted could be submitted in part only, so that not all
    /// of it rings; the text says how.
    Transport(String),
    /// A kernel panicked; the text is its message.
    Kernel(String),
    /// The stream was dropped while its thread was unwinding, or told to stop.
    Aborted,
}

/// What a stream's work is worth against that of other streams of the device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Priority {
    /// As that of any stream.
    #[default]
    Normal,
    /// Goes first, where the device chooses between work that is ready (GPUs do, between blocks that are to begin;
    /// nothing is interrupted). For messages that a long kernel of another stream should not hold up.
    High,
}

/// How a new stream is to be.
#[derive(Clone)]
pub struct StreamConfig {
    /// A name for threads, logs and timelines.
    pub name: String,
    /// The bell that is rung for words that this stream may wait on.
    pub bell: Ptr,
    /// Keeps the bell alive.
    pub keep: Arc<dyn Any + Send + Sync>,
    /// Whether the stream executes on the thread that submits, at once (host only). Then a submission that
    /// waits blocks its caller: this is host-synchronised communication, without a thread between. What the work itself
    /// submits to its stream, or waits for there, is refused ([`DeviceError::Inside`]).
    pub inline: bool,
    /// How many ranks share this node's processors, as far as is known: decides how long a wait may spin.
    pub ranks_on_node: usize,
    /// A device that does not choose ignores it.
    pub priority: Priority,
    /// What the stream's thread can do for the NIC, where the device's streams are threads: see [`Device::helps`].
    pub helper: Option<Arc<dyn Helper>>,
}

/// A wait in which a stream is at the moment, for the wait-for graph.
#[derive(Clone, Debug)]
pub struct Blocked {
    /// What the current batch still waits for, each with the number of its epoch.
    pub on: Vec<(Tag, u64)>,
    /// Whether the batch may wait for more than that: a device may not be able to say all of it at a time.
    pub more: bool,
    /// Where the batch was enqueued, if the device knows: it may be one that was submitted from several places.
    pub site: Option<CallSite>,
    /// For how long.
    pub since: std::time::Instant,
}

/// What a stream is at that has not passed all that was submitted to it, for the wait-for graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// A kernel of the user's runs. Its name, if the device knows it.
    Kernel(Option<&'static str>),
    /// It waits for another stream of this process.
    Stream,
    /// The device cannot tell: a kernel runs, or something is moved, or it waits for another stream of this process; or
    /// it is through, and nobody has looked since.
    Something,
}

/// Where a stream is, by one look at it, for the wait-for graph.
#[derive(Clone, Debug)]
pub enum Stand {
    /// It has passed all that had been submitted.
    Through,
    /// It waits for peers.
    Waits(Blocked),
    /// It waits for no peer, and has not passed all that had been submitted, as far as is known.
    Works(Work),
}

/// The part of a stream that outlives its owner: knows how far it came, and frees what it has passed.
pub trait Reclaim: Send + Sync + 'static {
    /// Drops `garbage` once everything submitted so far has been passed (perhaps at once).
    fn retire(&self, garbage: Box<dyn Any + Send>);

    /// The first fault, if there is one. Cheap: no more than a load while there is none.
    fn fault(&self) -> Option<Fault>;

    /// Fails the wait in which the stream is, and all later ones.
    fn abort(&self);

    /// What the stream is waiting for, if it has been waiting for more than an instant.
    fn blocked(&self) -> Option<Blocked>;

    /// As [`Reclaim::blocked`], without a copy: for who looks often.
    fn look_at_blocked(&self, look: &mut dyn FnMut(&Blocked)) {
        if let Some(blocked) = self.blocked() {
            look(&blocked);
        }
    }

    /// Where the stream is. One answer, since the stream goes on meanwhile: one that was first asked whether it is
    /// [blocked](Reclaim::blocked), and then whether it is at work, could deny both, and have gone from work to a wait
    /// in between. Asked by threads that must not be held up: it waits for nobody.
    fn stand(&self) -> Stand;

    /// The calls on the stream that are under way. Those of [`Stream`] that may block say so.
    fn calls(&self) -> &Calls;

    /// A number that changes when the stream goes on, as far as that is known without asking the device. As for
    /// [`Reclaim::stand`], it waits for nobody.
    fn progress(&self) -> u64;

    /// The number of work items passed so far.
    fn passed(&self) -> u64;

    /// A future asks for a wake-up when `passed() >= mark`; returns whether that is so already. If the future asks again,
    /// its new waker replaces the one before. `future` is a number that no other future of the process has.
    fn wake_at(&self, mark: u64, future: u64, waker: &Waker) -> bool;

    /// The future needs no wake-up any more: its waker is dropped.
    fn forget_waker(&self, future: u64);
}

/// A kind of device.
///
/// # Safety
///
/// Implementations must execute batches as [`crate::batch`] describes, keep the order of each stream, and provide
/// memory as [`Block`] promises. Values that a stream's wait has acquired are visible to all later work of it.
pub unsafe trait Device: Clone + Send + Sync + 'static {
    /// The memory that it allocates, or maps.
    type Block: Block;
    /// The streams that it makes.
    type Stream: Stream;
    /// The name by which users choose it (`host`, `cuda`).
    const NAME: &'static str;

    /// Opens the device that a rank uses by default; `local_rank` is its number among the ranks of the machine: they
    /// take its devices by turns.
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

    /// Whether streams of the two may work with each other's memory, and wait for each other's events.
    fn same(&self, other: &Self) -> bool;

    /// What tells the hardware behind the device from all other, for ranks to compare. Empty where it makes no
    /// difference who else uses it.
    fn hardware(&self) -> Vec<u8> {
        Vec::new()
    }

    /// How much of the hardware this process may use while other processes use it, too, for ranks to compare, in a
    /// unit of the device's own (a GPU's multiprocessors); 0 where processes take turns.
    fn portion(&self) -> usize {
        0
    }

    /// Hears, when the ranks have met, how many *other* processes of the job use the same hardware, and the least
    /// [`Device::portion`] of all of them and this one. Once for each world: those of an earlier one may be there still.
    fn shared_with(&self, processes: usize, portion: usize) {
        let _ = (processes, portion);
    }

    /// Hears, before streams are made, how many of them will wait for peers at a time: a device that has to share out room
    /// for those deals by this number. Several worlds may say it; the most counts.
    fn expect_waiting(&self, streams: usize) {
        let _ = streams;
    }

    /// Whether streams call the [`Helper`] that they are given: when batches have rung, and while they wait. Then
    /// nobody needs to sleep on the doorbells' bell.
    fn helps(&self) -> bool {
        false
    }

    /// Whether NICs cannot work with memory of the device. What they read and write then lies in memory of the host
    /// ([`Sharing::Nics`]), which streams fill and drain; and nobody rings the doorbells' bell: an agent must poll
    /// them.
    fn staged(&self) -> bool {
        false
    }

    /// Makes a register of a NIC one that streams can store to, by [`Store`](crate::batch::Step::Store) steps: the same
    /// register, at the address at which they find it. It is kept as long as somebody holds what is returned, and that
    /// is held until all streams have passed what stores there. Several registers may lie in one page.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if the device's streams store to no registers, or not to one of this kind; others if
    /// the system refuses. Then streams add to the doorbell and do no more, and somebody looks at that.
    ///
    /// # Safety
    ///
    /// As long as it is kept, the register is mapped at its address, in pages that the device may store to at the place
    /// of a register and nowhere else.
    unsafe fn map_register(&self, register: &Register) -> Result<Register, DeviceError> {
        let _ = register;
        Err(DeviceError::Unsupported {
            device: Self::NAME,
            what: "stores to registers of other devices".into(),
        })
    }

    /// Of up to how many bytes a slot is to have a [landing](crate::batch::Landing), where streams of this device then
    /// look. 0 where they do not. Asked when the ranks have met.
    fn land_up_to(&self) -> usize {
        0
    }

    /// Why an operation on elements of peers' memory cannot be had, if it cannot: a reduction, or a compare-and-swap
    /// (`None`). The same on all ranks. Cheap.
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

    /// Makes a block of memory that the process has, without a copy; only this process reaches it. It is as long as the
    /// memory's [bytes of use](Allocation::bytes).
    ///
    /// # Errors
    ///
    /// The memory comes back if it is none that the device's streams work with. That is always so unless the device says
    /// otherwise.
    fn adopt(&self, memory: Allocation) -> Result<Self::Block, Allocation> {
        Err(memory)
    }

    /// The memory that a block was [adopted](Device::adopt) from.
    ///
    /// # Errors
    ///
    /// The block comes back if it was not, or if it is shared.
    fn into_allocation(block: Self::Block) -> Result<Allocation, Self::Block> {
        Err(block)
    }

    /// Maps a peer's block of `bytes` bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceError::BadHandle`] if it is of another kind or smaller.
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

    /// Sets [`crate::batch::POISON`] in a word and rings the bell, from the host, at once, even while
    /// streams wait on it.
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

    /// Sets a word before anybody else uses it.
    ///
    /// # Safety
    ///
    /// `word` points to a live word that nothing accesses concurrently.
    unsafe fn init_word(&self, word: Ptr, value: u64);

    /// Copies from device memory to the host.
    ///
    /// # Errors
    ///
    /// [`DeviceError::System`] if the device cannot be read any more; [`DeviceError::Forked`]. What is in `dst` is not
    /// specified then.
    ///
    /// # Safety
    ///
    /// `src .. src + dst.len()` is live and initialised, and nothing writes it concurrently.
    unsafe fn read(&self, src: Ptr, dst: &mut [u8]) -> Result<(), DeviceError>;

    /// Copies from the host to device memory.
    ///
    /// # Errors
    ///
    /// As [`Device::read`]; what is in device memory is not specified then.
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
/// As [`Stream`]; the closure is called on one thread at a time.
#[diagnostic::on_unimplemented(
    message = "kernels of `{Self}` are functions of loaded code, not closures",
    note = "declare the function with `kernel!`, bind it once, and launch it over a grid: `stream.launch(f.threads(n, 256), (&mut x,))`"
)]
pub unsafe trait ClosureDevice: HostAccess {
    /// Submits a kernel. Reports name it after the type `N`. It may run many times if the stream is captured, never if the
    /// stream has failed.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`].
    ///
    /// # Safety
    ///
    /// What the closure accesses is live until the stream has passed it, and is accessed by nothing that stream order
    /// (or the words waited for) does not order with it.
    unsafe fn launch<N, K>(stream: &Self::Stream, kernel: K) -> Result<(), DeviceError>
    where
        N: 'static,
        K: Fn() + Send + 'static;
}

/// A device whose kernels are functions of modules: code for the device, loaded at run time.
///
/// # Safety
///
/// As [`Stream`]; a function is called with the parameters that it was launched with.
pub unsafe trait LaunchDevice: Device {
    /// Loaded code.
    type Module: Send + Sync + 'static;
    /// A function of it; keeps the module loaded.
    type Function: Send + Sync + 'static;

    /// Loads code, in a form that the device takes (PTX, a cubin, a fatbin).
    ///
    /// # Errors
    ///
    /// [`DeviceError::Code`] if the bytes are no code, or the device does not take it; [`DeviceError::Busy`] while a stream of the device may be
    /// waiting: loading can block behind it.
    fn load(&self, code: &[u8]) -> Result<Arc<Self::Module>, DeviceError>;

    /// Finds a function that takes parameters of these sizes, in bytes.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Code`] if there is none of the name, or if it is known to take others.
    fn function(
        module: &Arc<Self::Module>,
        name: &str,
        sizes: &[usize],
    ) -> Result<Self::Function, DeviceError>;

    /// Lets a function begin while the kernel that stands before it on a stream is at work, where the device can. By
    /// default nothing changes.
    ///
    /// # Safety
    ///
    /// Each thread of the function waits by itself for the end of what stands before it, before it accesses memory, and
    /// before it ends.
    unsafe fn begin_early(function: Self::Function) -> Self::Function {
        function
    }

    /// Submits a kernel. On a stream that has failed it may run or not.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`]; [`DeviceError::Code`] for a grid that the device or the function does not take.
    ///
    /// # Safety
    ///
    /// The parameters are those of the function. What the function accesses, with them and in this grid, is live until
    /// the stream has passed it, and is accessed by nothing that stream order (or the words waited for) does not order
    /// with it.
    unsafe fn launch(
        stream: &Self::Stream,
        function: &Self::Function,
        grid: Grid,
        parameters: &Parameters,
    ) -> Result<(), DeviceError>;
}

/// A queue of work that is executed in order. Owned by one thread at a time; dropping it executes what is
/// left (unless the thread is unwinding: then waits are aborted).
///
/// # Safety
///
/// See [`Device`].
pub unsafe trait Stream: Send + 'static {
    /// The part that outlives it.
    type Reclaim: Reclaim;
    /// A recording.
    type Graph: Send + Sync + 'static;
    /// A point in the order of a stream that another stream can wait for.
    type Event: Send + Sync + 'static;

    /// Its outliving part.
    fn reclaim(&self) -> &Arc<Self::Reclaim>;

    /// The most lanes that a batch for this stream may have, as far as is known now: with more it is refused. For who
    /// knows how many there will be, and would hear of it before there are any.
    fn most_lanes(&self) -> usize {
        usize::MAX
    }

    /// Makes everything ready for a batch that the device could refuse: room for it as the last of so many `items`, and
    /// the stream's part of what streams share. It submits nothing. While the stream is captured nothing is queued, so no
    /// room is asked for.
    ///
    /// A caller needs this if it must do something first that cannot be undone: arm a NIC, or submit another batch that
    /// peers act upon. If the batch is submitted next, or behind others that need not have been prepared, the device
    /// refuses it only if it is of no more use, or if others have changed meanwhile what there is.
    ///
    /// # Errors
    ///
    /// Those that [`Stream::submit`] would have; the stream is as it was.
    fn prepare(&self, batch: &Arc<Batch>, items: usize) -> Result<(), DeviceError>;

    /// Submits a batch for a call of the program that was made at `site`.
    ///
    /// # Errors
    ///
    /// If the device refuses; nothing has been submitted then. A fault is not an error here: it is
    /// reported by [`Stream::fault`] and [`Stream::synchronize`]. If the device refuses a part behind another, the batch
    /// counts as submitted, and the stream has failed by [`Fault::Transport`].
    ///
    /// # Safety
    ///
    /// The batch's own promises ([`Batch::new`]) hold until the stream has passed it.
    unsafe fn submit(&self, batch: &Arc<Batch>, site: CallSite) -> Result<(), DeviceError>;

    /// Marks this point, for [`Reclaim::passed`].
    fn mark(&self) -> u64;

    /// The fault by which this stream has failed, or is to fail since one that it has waited for has
    /// ([`Stream::wait_event`]), as far as is known.
    fn fault(&self) -> Option<Fault> {
        self.reclaim().fault()
    }

    /// The streams that it has waited for and whose failure is to be its own, where the device has not looked at them yet:
    /// for futures, which outlive the call and cannot hold the stream itself.
    fn followed(&self) -> Vec<Arc<Self::Reclaim>> {
        Vec::new()
    }

    /// Blocks until everything submitted has been passed.
    ///
    /// # Errors
    ///
    /// The [fault](Stream::fault), if there is one; [`DeviceError::Capturing`]; [`DeviceError::Inside`].
    fn synchronize(&self) -> Result<Result<(), Fault>, DeviceError>;

    /// Records an event here.
    ///
    /// # Errors
    ///
    /// If the device refuses.
    fn record(&self) -> Result<Self::Event, DeviceError>;

    /// Makes later work wait for an event (of any stream of the device, this one included). If the recording
    /// stream has failed by then, this one fails too, and so does a stream that waits for this one, whatever has been
    /// submitted in between. The ordering itself holds even on a failed stream.
    ///
    /// # Errors
    ///
    /// If the device refuses.
    fn wait_event(&self, event: &Self::Event) -> Result<(), DeviceError>;

    /// Begins to record instead of executing. `others` are recorded with it: work submitted to them meanwhile
    /// belongs to the recording too.
    ///
    /// # Errors
    ///
    /// If one of them is being captured already.
    fn begin_capture(&self, others: &[&Self]) -> Result<(), DeviceError>;

    /// Ends the recording.
    ///
    /// # Errors
    ///
    /// If the stream is not being captured.
    fn end_capture(&self, others: &[&Self]) -> Result<Self::Graph, DeviceError>;

    /// Whether the stream is being captured.
    fn capturing(&self) -> bool;

    /// Notes that something was enqueued by other means than these (a library's own launch on the stream beneath):
    /// marks count it from now on.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`].
    fn enqueued(&self) -> Result<(), DeviceError>;

    /// As [`Stream::prepare`], for a recording.
    ///
    /// # Errors
    ///
    /// Those that [`Stream::replay`] would have; the streams are as they were.
    fn prepare_replay(&self, others: &[&Self], graph: &Arc<Self::Graph>)
    -> Result<(), DeviceError>;

    /// Submits a recording, `times` times. What was recorded on a stream comes after what that stream was given before
    /// (the time before, too), and before what it is given later. Streams are ordered among each other by events that
    /// were recorded; a device may add to that: that no stream goes on before all are through.
    ///
    /// # Errors
    ///
    /// As [`Stream::submit`].
    ///
    /// # Safety
    ///
    /// As for each thing recorded, for each time. `others` are those of the capture, in the same order.
    unsafe fn replay(
        &self,
        others: &[&Self],
        graph: &Arc<Self::Graph>,
        times: u64,
    ) -> Result<(), DeviceError>;
}
