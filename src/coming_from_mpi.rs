//! For those who know MPI's one-sided calls: each beside what it is here, what the compiler now catches, and what
//! remains your promise.
//!
//! # Model
//!
//! The epochs are MPI's active-target epochs, in general active-target synchronisation: `MPI_Win_post`, `start`,
//! `complete`, `wait`. Two things differ.
//!
//! **A call enqueues; it does not wait.** Every call takes a stream, and is done when the stream comes to it: after the
//! kernels that were enqueued before, and before those that come later. The host waits once, when it wants to see a
//! result.
//!
//! **A window is two halves, and a half is a token.** What a rank exposes is an [`Inbox`](crate::host::Inbox), what it
//! reaches others by is an [`Outbox`](crate::host::Outbox). A call that opens an epoch takes the token, and gives another
//! one, which has the calls that are allowed *in* the epoch and no others:
//!
//! ```text
//! Inbox  --post-->  Exposed  --wait-->      Inbox       (MPI_Win_post … MPI_Win_wait)
//! Outbox --start->  Access   --complete-->  Outbox      (MPI_Win_start … MPI_Win_complete)
//! ```
//!
//! # Side by side
//!
//! | MPI | here | what is different |
//! |---|---|---|
//! | `MPI_Init`, `MPI_Comm_rank`, `size` | [`World::init`](crate::Init::init), [`rank`](crate::host::World::rank), [`size`](crate::host::World::size) | no MPI is needed; inside an MPI job, with the feature `mpi`, `World::from_mpi(&communicator)` |
//! | `MPI_Dims_create`, `MPI_Cart_create`, `MPI_Cart_coords`, `MPI_Cart_shift` | [`Cartesian`](crate::Cartesian) | arithmetic: not collective, and no rank gets another number. [`World::ring`](crate::host::World::ring) is the periodic one of one dimension |
//! | `MPI_Alloc_mem`, a buffer | [`Region`](crate::host::Region) | it belongs to the host, to one stream, or to an open epoch, and its type says which |
//! | `MPI_Win_allocate`, `MPI_Win_create` | [`SlotWindow`](crate::SlotWindow), [`RangeWindow`](crate::RangeWindow), [`AtomicWindow`](crate::AtomicWindow), then `open(&stream)` | says beforehand who may write what; all ranks check that their declarations fit together |
//! | `MPI_Win_free` | drop both halves | not collective; memory stays until the stream is past it |
//! | `MPI_Win_post(group)` | [`inbox.post(&s)`](crate::window::Inbox::post), [`post_to(&s, &group)`](crate::window::Inbox::post_to) | the group is all declared origins, unless said otherwise |
//! | `MPI_Win_start(group)` | [`outbox.start()`](crate::window::Outbox::start), [`start_with(&group)`](crate::window::Outbox::start_with) | never waits |
//! | `MPI_Put(origin, …, target_rank, target_disp, …)` | [`epoch.put(&src, to_left)`](crate::window::Access::put) | the target is the handle of a slot or a range, which its declaration returned: no address, no datatype; a shorter source fills the beginning of the slot. The source is a region, never the memory of a window: `examples/heat3d.rs` has its arrays in regions, and in the window the ghosts |
//! | memory that stays as the last epoch left it | [`.buffers(Buffers::Single)`](crate::window::Window::buffers) | what an epoch does not put is what the one *before last* left: put in every epoch. (Slots have two buffers at first, used by turns) |
//! | `MPI_Put` with derived datatypes | `epoch.put(src.with(&layout)?, to_left.with(&layout))`, [`Layout`](crate::host::Layout) | |
//! | `MPI_Type_create_subarray` (`MPI_ORDER_C`), as a target's datatype | [`Layout::subarray`](crate::host::Layout), [`window.layout_to(rank, &layout)`](crate::window::Window::layout_to) | is declared when the window is made, and all ranks check that no two origins write an element; what none has declared is lent to kernels while the memory is exposed: [`exposed.rest()`](crate::window::Exposed::rest) |
//! | `MPI_Get` | [`epoch.get(&mut dst, range)`](crate::window::Access::get), by range | `dst` cannot be looked at before the epoch is complete |
//! | `MPI_Accumulate` | [`epoch.accumulate(&src, …, Op::Sum)`](crate::window::Access::accumulate) | by range: one origin; atomic window: any number of origins, in an order that is not specified (a sum of floats may differ in its last bits between targets); neither over libfabric, to ranks of other nodes |
//! | `MPI_Fetch_and_op`, `MPI_Get_accumulate`, `MPI_Compare_and_swap` | [`fetch_and_op`](crate::window::Access::fetch_and_op), [`compare_and_swap`](crate::window::Access::compare_and_swap), atomic window | not over libfabric, to ranks of other nodes |
//! | `MPI_Win_complete` | [`epoch.complete(&s)`](crate::window::Access::complete) | checks all puts together, then enqueues. The source may be written by what is enqueued next |
//! | `MPI_Win_wait` | [`exposed.wait(&s)`](crate::window::Exposed::wait) | the *stream* waits |
//! | `MPI_Win_test` | [`exposed.test(&s)`](crate::window::Exposed::test) | gives the inbox, or the exposure back |
//! | post, wait in a row | [`inbox.expose(&s)`](crate::window::Inbox::expose), [`expose_to(&s, &group)`](crate::window::Inbox::expose_to) | one work item |
//! | post, start, puts, complete, wait in a row | [`exchange(&s, inbox, epoch)`](crate::exchange) | one work item; the fastest form |
//! | `MPI_Win_fence` | a group of all neighbours, `exchange` | a fence would synchronise ranks that exchange nothing |
//! | `MPI_Win_lock`, `MPI_Win_flush` | none | passive-target epochs are not served |
//! | `MPI_Barrier` | [`Barrier`](crate::host::Barrier) | enqueued too |
//! | `MPI_Allreduce`, `MPI_Allreduce_init` | [`AllReduce`](crate::host::AllReduce): `energy.sum(&s, &mut x)?` | enqueued too, in place, for short vectors; summed in the order of the ranks, so the result is the same to the bit on all ranks, as MPI requires, and in every run, which it recommends |
//! | `MPI_Reduce` | [`AllReduce`](crate::host::AllReduce), of which only the root looks at the result; or a window in which the root alone has slots, one from each rank, and a kernel of the root's that goes through them | none of its own. An all-reduce is in place on all ranks: who is to keep its vector reduces a copy. With a window the others do not wait for the root |
//! | `MPI_Allreduce` with an operation of the program's (`MPI_Op_create`), `MPI_MINLOC`, `MPI_MAXLOC`, on structs | a window with a slot for each rank, [`exchange`](crate::window::exchange), and a kernel that goes through the slots in the order of the ranks | [`Op`](crate::window::Op) has sum, product, minimum, maximum, and the bitwise ones of integers, on the numbers of [`Arithmetic`](crate::Arithmetic). Logical ones are bitwise ones of 0 and 1. All ranks that apply one function in one order have the same result |
//! | `MPI_Reduce_scatter`, `MPI_Scan`, `MPI_Exscan`, `MPI_Allreduce` of long vectors or of some of the ranks | none | a vector has 1 MiB at most, and all ranks of the job take part; on a GPU NCCL's streams can stand beside: [`foreign`](crate::kernel::foreign) |
//! | `MPI_Bcast` of few bytes, from rank 0 | `all_reduce.reduce(&s, &mut x, Op::Keep)` | enqueued too |
//! | a persistent request | [`Stream::capture`](crate::host::Stream), [`Graph::replay`](crate::host::Graph) | a whole step, kernels and epochs |
//! | `MPI_Isend`, `MPI_Irecv`, `MPI_Waitall` | a slot for each message, `exchange` | no tags, no matching: a slot is a receive that was posted in advance |
//! | `MPI_Probe`, `MPI_Get_count` | a header in each message: [`varying_messages`](crate::varying_messages) | nothing says how much has come, or whether anything has. How much is sent a kernel may say, but where a NIC carries it: [`put_counted`](crate::window::Access::put_counted) |
//! | `MPI_ERRORS_RETURN` | [`Result`](crate::Result) | always; the calls whose names begin with `try_` give their tokens back with the error |
//! | `MPI_ERR_PROC_FAILED` (ULFM) | [`Error::Wait`](crate::Error), [`Error::Revoked`](crate::Error) | every wait ends if the one it waits for is dead, and names it. There is no `MPIX_Comm_shrink`: after a loss all windows of the job are revoked, and none can be opened; end, and start anew |
//!
//! # The same exchange
//!
//! ```text
//! MPI_Win_allocate(2 * N * sizeof(double), sizeof(double), info, comm, &in, &win);
//! for (int step = 0; step < 100; step++) {
//!     kernel(out);                                 /* on a GPU: launch, then synchronise */
//!     MPI_Win_post(neighbours, 0, win);
//!     MPI_Win_start(neighbours, 0, win);
//!     MPI_Put(out, N, MPI_DOUBLE, left,  0, N, MPI_DOUBLE, win);
//!     MPI_Put(out, N, MPI_DOUBLE, right, N, N, MPI_DOUBLE, win);
//!     MPI_Win_complete(win);
//!     MPI_Win_wait(win);
//!     other_kernel(in, out);
//! }
//! ```
//!
//! ```
//! use tidegate::host::prelude::*;
//!
//! # fn main() -> Result<()> {
//! const N: usize = 64;
//! let world: World = World::init()?; // in an MPI job: World::from_mpi(&communicator)?
//! let (left, right) = world.ring();
//! stream!(let s = world.stream()?);
//!
//! // The slots that others put into, and the ways to theirs. If left and right are the same rank, the key says which
//! // slot is which.
//! let mut window = SlotWindow::<f64>::new("halo");
//! let (from_right, from_left) = (window.slot_from(right, 0, N), window.slot_from(left, 1, N));
//! let (to_left, to_right) = (window.slot_to(left, 0), window.slot_to(right, 1));
//! let (mut inbox, mut outbox) = window.open(&s)?;
//! let mut out = Region::from_slice(&world, &[world.rank() as f64; N])?.on(&s)?;
//!
//! for _ in 0..100 {
//!     s.launch(|out: &mut [f64]| out[0] += 1.0, &mut out)?;
//!     let exposed = inbox.post(&s)?;
//!     let mut epoch = outbox.start();
//!     epoch.put(&out, to_left)?;
//!     epoch.put(&out, to_right)?;
//!     outbox = epoch.complete(&s)?;
//!     inbox = exposed.wait(&s)?;
//!     let sum = move |came: Slots<'_, f64>, out: &mut [f64]| out[1] = came.slot(from_left)[0] + came.slot(from_right)[0];
//!     s.launch(sum, (inbox.view(), &mut out))?;
//! }
//! let out = out.into_host(&s)?; // the only place where the host waits
//! assert_eq!(out[0], world.rank() as f64 + 100.0);
//! # Ok(())
//! # }
//! ```
//!
//! # What the compiler catches
//!
//! In MPI each of these compiles, is *erroneous*, and goes well for a while.
//!
//! Writing a source before the epoch is complete:
//!
//! ```compile_fail,E0502
//! # use tidegate::host::prelude::*;
//! # fn step<'s>(s: &Stream<'s>, outbox: Outbox<'s, f64>, to_left: Out<f64>, mut src: Region<f64, On<'s>>) -> Result<()> {
//! let mut epoch = outbox.start();
//! epoch.put(&src, to_left)?;
//! s.launch(|src: &mut [f64]| src.fill(0.0), &mut src)?; // error: `src` is borrowed by the epoch
//! epoch.complete(s)?;
//! # Ok(())
//! # }
//! ```
//!
//! Looking at a window while it is exposed, or waiting twice (the token has moved):
//!
//! ```compile_fail,E0382
//! # use tidegate::host::prelude::*;
//! # fn step<'s>(s: &Stream<'s>, mut inbox: Inbox<'s, f64>, from_left: In<f64>) -> Result<()> {
//! let exposed = inbox.post(s)?;
//! println!("{}", inbox.read(s)?.slot(from_left)[0]); // error: `inbox` was moved by the post
//! exposed.wait(s)?;
//! # Ok(())
//! # }
//! ```
//!
//! Putting without having started, or completing what was not:
//!
//! ```compile_fail,E0599
//! # use tidegate::host::prelude::*;
//! # fn step<'s>(s: &Stream<'s>, mut outbox: Outbox<'s, f64>, to_left: Out<f64>, src: &Region<f64, On<'s>>) -> Result<()> {
//! outbox.put(src, to_left)?; // error: an outbox has no `put`; its epoch has
//! # Ok(())
//! # }
//! ```
//!
//! Reading on the host what is still a stream's (in a GPU-aware MPI: forgetting to synchronise):
//!
//! ```compile_fail,E0608
//! # use tidegate::host::prelude::*;
//! # fn step<'s>(s: &Stream<'s>, src: Region<f64, On<'s>>) {
//! println!("{}", src[0]); // error: only a region that is with the host can be indexed
//! # }
//! ```
//!
//! The folder `tests/compile_fail` has all of them, each with the compiler's message.
//!
//! # What is checked when it runs
//!
//! - that declarations of all ranks fit together: at creation, and all ranks get the same error;
//! - bounds, counts, slots, overlaps of operations of one epoch: by `put` and `complete`, before anything is enqueued;
//! - that what is waited for can come: a wait that lasts is reported, with a graph of who waits for whom; a wait for a
//!   rank that is dead ends with an error;
//! - a token that is dropped half-done revokes its window on all ranks, so that nobody waits for it.
//!
//! # What remains your promise
//!
//! - **That both sides take part.** No type on this rank says that another posts as often as this one starts. It is
//!   found at run time, as a wait that is reported after 30 s, and that [`fail_after`](crate::window::Window::fail_after) can end.
//! - **To post before completing**, where ranks exchange: if all complete first, each may wait for the others' posts.
//! - **Collective calls in the same order**: making and opening of worlds, windows, barriers and all-reduces, and the end of worlds
//!   that are alive at once.
//! - **Kernels on GPUs**: what a function of a module accesses is said once, where it is bound (`kernel!`), and is not checked.
//! - **Memory that MPI has, too.** What is a region here and a buffer of an MPI call there is in two hands; MPI's are unsafe.
//!
//! # In an MPI job
//!
//! With the feature `mpi` (it takes an MPI's `mpicc`, and libclang), ranks of a communicator are the ranks of a world:
//! the trait `FromMpi` of the prelude. MPI is used to meet, and for nothing after that: the communicator may be freed,
//! MPI finalised, and no call of such a world ever is a call of MPI. (A world over windows of MPI is another thing:
//! `tidegate::mpi::windows::world`, for machines that have nothing else between the ranks.) `examples/ring_mpi.rs` is a
//! whole program:
//!
//! ```text
//! let universe = mpi::initialize().expect("MPI was not initialised before");
//! let world: World = World::from_mpi(&universe.world())?;
//! ```
//!
//! # Failure
//!
//! This module has nothing that could fail: it is a text.
