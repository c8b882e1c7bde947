//! A CUDA driver without a GPU, for tests.
//!
//! # Model
//!
//! It is a library with the driver's name (`libcuda.so.1`). A program that finds it in the driver's place uses it
//! without a difference. So programs for GPUs run without a GPU, also as several processes:
//!
//! - *Memory* of a device is memory of the host, at the same address for both. Memory that processes share is a memory
//!   file, and its handle is the file's descriptor.
//! - Enqueued *work* ([`work`]) follows other work: earlier work of its stream, the work that an event stands for, and
//!   the nodes that its node of a recording follows. Nothing else orders it, so two streams run at the same time.
//! - The *queue* of a stream has 1,024 places. A call that finds none blocks, as with a real driver.
//! - One thread, the *device* ([`device`]), carries out the work. All grids that may run take turns, a step of each at
//!   a time. So a grid that waits for a peer, or for another stream, does not block others.
//! - *Kernels* are the functions of the project's own sources, compiled by the host's compiler (`machine/`). PTX is
//!   read only for the names and parameters of its functions; its code is not carried out.
//! - From compute capability 9.0 on, a kernel may be launched early, here as well.
//!
//! # What it does not show
//!
//! Which context is current where a call does not need one, and to which a stream or a function belongs (all devices are
//! one); modes of captures; that peers must be allowed to reach memory. Time; that all blocks find room (here they always do); hardware queues, and the driver's calls that block behind a
//! wait; the orders of memory that a processor gives unasked for. What PTX does with them is shown elsewhere.
//!
//! # Failure
//!
//! It reports errors as the driver does, by a code. After a kernel has failed, every call returns the same code. Uses
//! that the driver leaves undefined, such as freeing memory in use, end the process. `TIDEGATE_FAKE_CUDA`
//! ([`settings`]) sets how many devices there are, and which call is refused.

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
