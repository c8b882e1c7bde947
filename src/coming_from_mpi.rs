//! For readers who know MPI's one-sided calls: the counterpart of each call, what the compiler now catches, and what
//! remains your promise.
//!
//! # Model
//!
//! The epochs are MPI's epochs of general active-target synchronisation: `MPI_Win_post`, `start`, `complete`, `wait`. Two
//! things differ.
//!
//! **A call enqueues; it does not wait.** The call takes a stream, which does the work in its turn: after the kernels
//! that were enqueued before, and before those that are enqueued later. The host waits once, when it needs a result.
//!
//! **A window has two halves, and each half is a token.** A rank exposes its memory by an [`Inbox`](crate::host::Inbox), and
//! reaches other ranks by an [`Outbox`](crate::host::Outbox). A call that opens an epoch takes the token and returns another
//! token, which has only the methods that are allowed *in* the epoch:
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
//! | `MPI_Dims_create`, `MPI_Cart_create`, `MPI_Cart_coords`, `MPI_Cart_shift` | [`Cartesian`](crate::Cartesian) | plain arithmetic: it is not collective, and does not renumber ranks. [`World::ring`](crate::host::World::ring) is the periodic grid of one dimension |
//! | `MPI_Alloc_mem`, a buffer | [`Region`](crate::host::Region) | it belongs to the host, to one stream, or to an open epoch, and its type says which |
//! | `MPI_Win_allocate`, `MPI_Win_create` | [`SlotWindow`](crate::SlotWindow), [`RangeWindow`](crate::RangeWindow), [`AtomicWindow`](crate::AtomicWindow), then `open(&stream)` | declares who may write what; all ranks check that their declarations fit together |
//! | `MPI_Win_free` | drop both halves | not collective; the memory is freed when the stream has done its work with it |
//! | `MPI_Win_post(group)` | [`inbox.post(&s)`](crate::window::Inbox::post), [`post_to(&s, &group)`](crate::window::Inbox::post_to) | `post` names all declared origins |
//! | `MPI_Win_start(group)` | [`outbox.start()`](crate::window::Outbox::start), [`start_with(&group)`](crate::window::Outbox::start_with) | never waits |
//! | `MPI_Put(origin, …, target_rank, target_disp, …)` | [`epoch.put(&src, to_left)`](crate::window::Access::put) | the target is the handle that the declaration of a slot or range returned: no address, no datatype. A shorter source fills the beginning of the slot. The source is a region, never the memory of a window: `examples/heat3d.rs` keeps its arrays in regions, and its ghosts in the window |
//! | memory that stays as the last epoch left it | [`.buffers(Buffers::Single)`](crate::window::Window::buffers) | by default a slot has two buffers, used in turn. A slot you skip keeps the data from *two* epochs ago, so put in every epoch |
//! | `MPI_Put` with derived datatypes | `epoch.put(src.with(&layout)?, to_left.with(&layout))`, [`Layout`](crate::host::Layout) | |
//! | `MPI_Type_create_subarray` (`MPI_ORDER_C`), as a target's datatype | [`Layout::subarray`](crate::host::Layout), [`window.layout_to(rank, &layout)`](crate::window::Window::layout_to) | you declare it before the window is opened, and all ranks check that no two origins write the same element. Kernels may use elements that nobody has declared while the memory is exposed: [`exposed.rest()`](crate::window::Exposed::rest) |
//! | `MPI_Get` | [`epoch.get(&mut dst, range)`](crate::window::Access::get), by range | the program cannot read `dst` before the epoch is complete |
//! | `MPI_Accumulate` | [`epoch.accumulate(&src, …, Op::Sum)`](crate::window::Access::accumulate) | by range: one origin for each element; atomic window: any number of origins, in an unspecified order (a sum of floats may differ in its last bits between targets). Neither works over libfabric, to ranks of other nodes |
//! | `MPI_Fetch_and_op`, `MPI_Get_accumulate`, `MPI_Compare_and_swap` | [`fetch_and_op`](crate::window::Access::fetch_and_op), [`compare_and_swap`](crate::window::Access::compare_and_swap), atomic window | not over libfabric, to ranks of other nodes |
//! | `MPI_Win_complete` | [`epoch.complete(&s)`](crate::window::Access::complete) | checks all puts together, then enqueues. The source may be written by what is enqueued next |
//! | `MPI_Win_wait` | [`exposed.wait(&s)`](crate::window::Exposed::wait) | the *stream* waits |
//! | `MPI_Win_test` | [`exposed.test(&s)`](crate::window::Exposed::test) | returns the inbox if all origins have completed, otherwise the exposure |
//! | post, wait in a row | [`inbox.expose(&s)`](crate::window::Inbox::expose), [`expose_to(&s, &group)`](crate::window::Inbox::expose_to) | one work item |
//! | post, start, puts, complete, wait in a row | [`exchange(&s, inbox, epoch)`](crate::exchange) | one work item; the fastest form |
//! | `MPI_Win_fence` | a group of all neighbours, `exchange` | a fence would synchronise ranks that exchange nothing |
//! | `MPI_Win_lock`, `MPI_Win_flush` | none | there are no passive-target epochs |
//! | `MPI_Barrier` | [`Barrier`](crate::host::Barrier) | enqueued too |
//! | `MPI_Allreduce`, `MPI_Allreduce_init` | [`AllReduce`](crate::host::AllReduce): `energy.sum(&s, &mut x)?` | enqueued too, in place, for short vectors. It sums in the order of the ranks, so the result has the same bits on all ranks, as MPI requires, and in every run, as MPI recommends |
//! | `MPI_Reduce` | [`AllReduce`](crate::host::AllReduce), and only the root reads the result. Or a window in which only the root has slots, one from each rank, and a kernel on the root that reads them | there is no call for it. An all-reduce replaces the vector on all ranks; to keep it, reduce a copy. With a window, the other ranks do not wait for the root |
//! | `MPI_Allreduce` with an operation of the program's (`MPI_Op_create`), `MPI_MINLOC`, `MPI_MAXLOC`, on structs | a window with a slot for each rank, [`exchange`](crate::window::exchange), and a kernel that reads the slots in the order of the ranks | [`Op`](crate::window::Op) has sum, product, minimum, maximum, and the bitwise ones of integers, on the numbers of [`Arithmetic`](crate::Arithmetic). For logical operations use the bitwise ones on 0 and 1. Ranks that apply the same function in the same order get the same result |
//! | `MPI_Reduce_scatter`, `MPI_Scan`, `MPI_Exscan`, `MPI_Allreduce` of long vectors or of some of the ranks | none | a vector has at most 1 MiB, and all ranks of the job take part. On a GPU, you can enqueue NCCL's calls: [`foreign`](crate::kernel::foreign) |
//! | `MPI_Bcast` of few bytes, from rank 0 | `all_reduce.reduce(&s, &mut x, Op::Keep)` | enqueued too |
//! | a persistent request | [`Stream::capture`](crate::host::Stream), [`Graph::replay`](crate::host::Graph) | a whole step, kernels and epochs |
//! | `MPI_Isend`, `MPI_Irecv`, `MPI_Waitall` | a slot for each message, `exchange` | no tags, no matching: a slot is a receive that was posted in advance |
//! | `MPI_Probe`, `MPI_Get_count` | a header in each message: [`varying_messages`](crate::varying_messages) | nothing tells the receiver how much came, or whether anything came. A kernel can decide how much is sent, except over a NIC: [`put_counted`](crate::window::Access::put_counted) |
//! | `MPI_ERRORS_RETURN` | [`Result`](crate::Result) | every call returns one; calls whose names begin with `try_` also return their token when they fail |
//! | `MPI_ERR_PROC_FAILED` (ULFM) | [`Error::Wait`](crate::Error), [`Error::Revoked`](crate::Error) | a wait for a dead rank ends with an error that names the rank. There is no `MPIX_Comm_shrink`: after a rank is lost, all windows of the job are revoked, and no new one can be opened. End the job, and start a new one |
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
//! // This rank's slots, and handles of the neighbours' slots. If left and right are the same rank, the key says which slot
//! // is which.
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
//! let out = out.into_host(&s)?; // the only call that waits
//! assert_eq!(out[0], world.rank() as f64 + 100.0);
//! # Ok(())
//! # }
//! ```
//!
//! # What the compiler catches
//!
//! In MPI each of these mistakes compiles. The program is *erroneous*, but may work for a while.
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
//! Putting without `start`, or completing an epoch that was not started:
//!
//! ```compile_fail,E0599
//! # use tidegate::host::prelude::*;
//! # fn step<'s>(s: &Stream<'s>, mut outbox: Outbox<'s, f64>, to_left: Out<f64>, src: &Region<f64, On<'s>>) -> Result<()> {
//! outbox.put(src, to_left)?; // error: an outbox has no `put`; its epoch has
//! # Ok(())
//! # }
//! ```
//!
//! Reading a stream's region on the host (with a GPU-aware MPI: forgetting to synchronise):
//!
//! ```compile_fail,E0608
//! # use tidegate::host::prelude::*;
//! # fn step<'s>(s: &Stream<'s>, src: Region<f64, On<'s>>) {
//! println!("{}", src[0]); // error: only a region that is with the host can be indexed
//! # }
//! ```
//!
//! The folder `tests/compile_fail` has many more, each with the compiler's message.
//!
//! # What is checked when it runs
//!
//! - `open` checks that the declarations of all ranks fit together. If they do not, all ranks get the same error.
//! - `put` and `complete` check bounds, lengths and handles, and that the operations of one epoch do not overlap, before
//!   anything is enqueued.
//! - A wait that lasts long is reported, with a graph of who waits for whom. A wait for a dead rank ends with an error.
//! - Dropping a token in the middle of its epoch revokes the window on all ranks, so that nobody waits for it.
//!
//! # What remains your promise
//!
//! - **Both sides take part.** No type on this rank can say that another rank posts as often as this one starts. If it does
//!   not, this rank's wait is reported after 30 s, and [`fail_after`](crate::window::Window::fail_after) can end it.
//! - **Post before you complete**, when ranks exchange data. If all ranks complete first, each may wait for the others' posts.
//! - **Collective calls come in the same order on all ranks**: joining worlds, opening windows, barriers and all-reduces, and
//!   dropping worlds if several are alive at once.
//! - **Kernels on GPUs**: you promise what a function of a module accesses when you bind it (`kernel!`). Nothing checks it.
//! - **Memory that MPI uses, too**: if a region is also the buffer of an MPI call, MPI's unsafe calls are your responsibility.
//!
//! # In an MPI job
//!
//! With the feature `mpi` (it needs an `mpicc`, and libclang), the ranks of a communicator become the ranks of a world, by
//! the prelude's trait `FromMpi`. The ranks use MPI to meet, and for nothing after that: you may free the communicator and
//! finalise MPI. (`tidegate::mpi::windows::world` makes another kind of world, over windows of MPI, for machines that have
//! nothing else between the ranks.) `examples/ring_mpi.rs` is a whole program:
//!
//! ```text
//! let universe = mpi::initialize().expect("MPI was not initialised before");
//! let world: World = World::from_mpi(&universe.world())?;
//! ```
