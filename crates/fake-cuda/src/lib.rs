//! A CUDA driver without a GPU, for tests.
//!
//! # Model
//!
//! It is a library under the driver's name (`libcuda.so.1`): a program that finds it where it looks for the driver uses
//! it, and knows nothing of it. So all of a program for GPUs runs where there is none, as several processes too:
//!
//! - *Memory* of a device is memory of the host, at one address for both; what is shared between processes is a file of
//!   memory, and its handle the file's descriptor.
//! - *Work* that is enqueued ([`work`]) follows other work: what stands before it on its stream, what an event stands
//!   for, what its node of a recording follows. Nothing else orders it, so two streams run at the same time.
//! - The *queue* of a stream has 1,024 places, and a call that finds none blocks, as with a real driver.
//! - One thread, the *device* ([`device`]), carries it out: all grids that may run run by turns, a step of each at a
//!   time, so that a grid which waits for a peer, or for another stream, keeps nobody from going on.
//! - *Kernels* are the functions of the project's own sources, made by the host's compiler (`machine/`). PTX is read for
//!   which functions it has, and what they take; what it says is not carried out.
//! - From compute capability 9.0 on a kernel may be launched early: so it is here.
//!
//! # What it does not show
//!
//! Which context is current where a call does not need one, and to which a stream or a function belongs (all devices are
//! one); modes of captures; that peers must be allowed to reach memory. Time; that all blocks find room (here they always do); hardware queues, and the driver's calls that block behind a
//! wait; the orders of memory that a processor gives unasked for. What PTX does with them is shown elsewhere.
//!
//! # Failure
//!
//! As the driver: by a code, and after a kernel has gone wrong by the same code for ever. What the driver leaves
//! undefined (memory that is freed while it is in use) is not forgiven: it ends the process. `TIDEGATE_FAKE_CUDA`
//! ([`settings`]) says how many devices there are, and which call is to be refused.

mod api;
mod args;
mod capture;
mod capturing;
mod codes;
mod device;
mod graph;
mod handle;
mod machine;
mod memory;
mod plan;
mod ptx;
mod settings;
mod state;
mod submit;
mod work;
