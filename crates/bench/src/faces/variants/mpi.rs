//! Over an MPI: the baselines.
//!
//! Messages go by the calls of an MPI, made by the calling thread, the one that has initialised it. Kernels run on a
//! stream, as in the host-synchronised variants of this library (the synchronisation proves that the messages are
//! packed and that the last unpack is over); or *direct*: the calling thread does them as well, as programs do that
//! know no streams.
//!
//! Kernels and MPI use the memory of `packed` and `received` by turns: a share synchronises with the stream in between.

use super::block::{self, Block, Inside};
use super::kit::{Kit, lost, synchronize, urgent};
use super::setup::{Goal, SetupOn};
use crate::faces::device::{FacesDevice, Shape};
use crate::faces::kernels::{self, Points, SlotsBy, Values};
use crate::faces::layout::{Direction, Geometry};
use crate::faces::schedule::Exchange;
use crate::mpi::calls::{Comm, Group, How, Window, wait_all};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use tidegate_core::{Cells, CellsMut, Error, Result, Stream, World, stream};
use tidegate_host::Host;
use tidegate_mpi::mpi::ffi::MPI_Request;

/// Which calls of MPI carry the messages.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Messages {
    /// One-sided calls: MPI_Win_post, start, put, complete and wait.
    Rma,
    /// Two-sided calls: MPI_Irecv, MPI_Isend and MPI_Waitall.
    P2p,
}

/// Where the kernels run.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kernels {
    OnStream,
    Direct,
}

/// One rank's messages: where they are, and how they are sent.
struct Wire {
    neighbours: Vec<(Direction, usize)>,
    geometry: Geometry,
    packed: Vec<f64>,
    received: Received,
    requests: Vec<MPI_Request>,
    // The window is dropped before the group and the communicator that it was made with.
    group: Group,
    comm: Rc<Comm>,
}

enum Received {
    Window(Window),
    Memory(Vec<f64>),
}

/// The messages' memory, for kernels.
#[derive(Clone, Copy)]
struct Memory {
    packed: *mut f64,
    received: *const f64,
    len: usize,
}

// SAFETY: each use of the pointers has an argument of its own.
unsafe impl Send for Memory {}

impl Wire {
    /// Makes the arguments of the calls; all ranks of the communicator call it.
    fn new(comm: &Rc<Comm>, geometry: &Geometry, messages: Messages) -> Wire {
        let neighbours: Vec<_> = geometry.neighbours().collect();
        let ranks: Vec<_> = neighbours.iter().map(|(_, rank)| *rank).collect();
        let len = geometry.packed_len();
        Wire {
            group: Group::of(comm, &ranks),
            received: match messages {
                Messages::Rma => Received::Window(Window::new(
                    comm,
                    len * size_of::<f64>(),
                    How::chosen().window,
                )),
                Messages::P2p => Received::Memory(vec![0.0; len]),
            },
            packed: vec![0.0; len],
            requests: Vec::with_capacity(2 * neighbours.len()),
            geometry: geometry.clone(),
            neighbours,
            comm: comm.clone(),
        }
    }

    fn memory(&mut self) -> Memory {
        Memory {
            packed: self.packed.as_mut_ptr(),
            received: match &mut self.received {
                Received::Window(window) => window.memory().0.cast_const().cast(),
                Received::Memory(memory) => memory.as_ptr(),
            },
            len: self.packed.len(),
        }
    }

    /// Sends and receives all messages; does something else between beginning and waiting. No kernel uses the memory meanwhile.
    fn exchange(&mut self, meanwhile: impl FnOnce()) {
        let packed = self.packed.as_ptr();
        let slots = self.neighbours.iter().map(|(direction, rank)| {
            let (from, to) = (*direction, direction.opposite());
            (
                *rank,
                from,
                self.geometry.slot(from),
                self.geometry.slot(to),
            )
        });
        match &mut self.received {
            Received::Window(window) => {
                window.post(&self.group);
                window.start(&self.group);
                for (rank, _, from, to) in slots {
                    // SAFETY: the slot is within the packed messages, which nothing writes before `complete`.
                    unsafe {
                        let source = packed.add(from.start).cast();
                        let bytes = from.len() * size_of::<f64>();
                        window.put(source, bytes, rank, to.start * size_of::<f64>());
                    }
                }
                meanwhile();
                window.complete();
                window.wait(How::chosen().polls);
            }
            Received::Memory(received) => {
                let received = received.as_mut_ptr();
                for (rank, direction, own, _) in slots.clone() {
                    // The tag is the direction in which the sender sees the receiver.
                    let tag = direction.opposite().index();
                    // SAFETY: slots are within the memory and do not overlap; nothing reads them before `wait_all`.
                    let request = unsafe {
                        let to = received.add(own.start);
                        self.comm.receive(to, own.len(), rank, tag)
                    };
                    self.requests.push(request);
                }
                for (rank, direction, own, _) in slots {
                    // SAFETY: as above; nothing writes the packed messages before `wait_all`.
                    let request = unsafe {
                        let from = packed.add(own.start);
                        self.comm.send(from, own.len(), rank, direction.index())
                    };
                    self.requests.push(request);
                }
                meanwhile();
                wait_all(&mut self.requests, How::chosen().polls);
            }
        }
    }
}

impl Memory {
    /// The pack kernel.
    ///
    /// # Safety
    ///
    /// The memory is there, and no message is under way.
    unsafe fn pack<V: Values + ?Sized>(self, shape: &Shape, u: &V) {
        // SAFETY: so many values are there, and nothing else uses them, by the caller's promise.
        let packed = unsafe { std::slice::from_raw_parts_mut(self.packed, self.len) };
        kernels::pack(&shape.geometry, u, packed);
    }

    /// The unpack kernel.
    ///
    /// # Safety
    ///
    /// As above.
    unsafe fn unpack<P: Points + ?Sized>(self, shape: &Shape, u: &mut P) {
        // SAFETY: as above.
        let received = unsafe { std::slice::from_raw_parts(self.received, self.len) };
        let slots = SlotsBy(|d: Direction| &received[shape.geometry.slot(d)]);
        shape.unpack_from(slots, u);
    }
}

/// Measures on one rank; collective.
pub(super) fn run<D: FacesDevice>(
    kit: &Kit<'_, D>,
    messages: Messages,
    kernels: Kernels,
    goal: Goal<'_>,
) -> Result<()> {
    let setup = kit.setup;
    let refuse = |why: &str| Error::other(format!("the variants over MPI {why}"));
    let world = (setup.world as &dyn Any).downcast_ref::<World<Host>>();
    let world = world.ok_or_else(|| refuse("are for memory of the host"))?;
    let comm =
        Comm::world().ok_or_else(|| refuse("are for processes that have initialised MPI"))?;
    if (comm.rank, comm.size) != (world.rank(), world.size()) {
        return Err(refuse("are for the world of MPI_COMM_WORLD"));
    }
    let comm = Rc::new(comm);
    let setup = SetupOn {
        world,
        params: setup.params,
        verifier: setup.verifier,
        throttle: setup.throttle,
        omit: setup.omit,
    };
    let shape = Shape::new(kit.geometry.clone(), setup.params.init, setup.omit);
    let shape = Arc::new(shape);
    // SAFETY: the kit makes all that they are enqueued with of the same geometry.
    let on_host = unsafe { Host::kernels(world, shape.clone()) }?;
    let kit = Kit::new(&setup, &on_host, None)?;
    if kernels == Kernels::Direct {
        let mut direct = Direct {
            kit: &kit,
            shape,
            u: Vec::new(),
            wire: None,
            messages,
            comm,
        };
        return kit.measured(&mut direct, goal);
    }
    stream!(let s = urgent(world)?);
    if !setup.params.compute {
        let mut on_stream = OnStream::new(&kit, shape, (&s, None), messages, comm);
        return kit.measured(&mut on_stream, goal);
    }
    stream!(let side = world.named_stream("compute")?);
    let mut on_stream = OnStream::new(&kit, shape, (&s, Some(&side)), messages, comm);
    kit.measured(&mut on_stream, goal)
}

/// Kernels on a stream.
struct OnStream<'a, 's, 't> {
    kit: &'a Kit<'a, Host>,
    shape: Arc<Shape>,
    stream: &'a Stream<'s, Host>,
    side: Option<&'a Stream<'t, Host>>,
    lent: Option<(Block<'s, Host>, Inside<'t, Host>)>,
    wire: Option<Wire>,
    messages: Messages,
    comm: Rc<Comm>,
}

impl Drop for OnStream<'_, '_, '_> {
    fn drop(&mut self) {
        // Kernels that are enqueued use the wire's memory.
        _ = self.stream.synchronize();
    }
}

impl<'a, 's, 't> OnStream<'a, 's, 't> {
    /// With a second stream, if compute is on.
    fn new(
        kit: &'a Kit<'a, Host>,
        shape: Arc<Shape>,
        (stream, side): (&'a Stream<'s, Host>, Option<&'a Stream<'t, Host>>),
        messages: Messages,
        comm: Rc<Comm>,
    ) -> Self {
        OnStream {
            kit,
            shape,
            stream,
            side,
            lent: None,
            wire: None,
            messages,
            comm,
        }
    }
}

impl<'s, 't> OnStream<'_, 's, 't> {
    fn share(
        &mut self,
        (mut block, mut inside): (Block<'s, Host>, Inside<'t, Host>),
    ) -> Result<(Block<'s, Host>, Inside<'t, Host>)> {
        let (kit, s) = (self.kit, self.stream);
        let wire = self.wire.as_mut().ok_or_else(lost)?;
        let memory = wire.memory();
        block::compute(kit, self.side, &mut inside)?;
        kit.launched(1);
        let shape = self.shape.clone();
        // Messages are under way only in the middle, after the stream was synchronised; and the wire lives until it is
        // synchronised again. So no message is under way while a kernel runs, and the memory outlives the kernels.
        match &block {
            (Some(u), _) => {
                // SAFETY: no message is under way, and the memory outlives the kernel, as the comment above says.
                let kernel = move |u: &[f64]| unsafe { memory.pack(&shape, u) };
                s.launch(kernel, u)?;
            }
            (None, Some(surface)) => {
                // SAFETY: no message is under way, and the memory outlives the kernel, as the comment above says.
                let kernel = move |u: Cells<'_, f64>| unsafe { memory.pack(&shape, &u) };
                s.launch(kernel, surface)?;
            }
            (None, None) => unreachable!("a block has a surface"),
        }
        s.synchronize()?;
        wire.exchange(|| ());
        kit.launched(1);
        let shape = self.shape.clone();
        match &mut block {
            (Some(u), _) => {
                // SAFETY: no message is under way, and the memory outlives the kernel, as the comment above says.
                let kernel = move |u: &mut [f64]| unsafe { memory.unpack(&shape, u) };
                s.launch(kernel, u)?;
            }
            (None, Some(surface)) => {
                // SAFETY: no message is under way, and the memory outlives the kernel, as the comment above says.
                let kernel = move |mut u: CellsMut<'_, f64>| unsafe {
                    memory.unpack(&shape, &mut u);
                };
                s.launch(kernel, surface)?;
            }
            (None, None) => unreachable!("a block has a surface"),
        }
        Ok((block, inside))
    }
}

impl Exchange for OnStream<'_, '_, '_> {
    type Error = Error;

    fn build(&mut self) -> Result<()> {
        self.stream.synchronize()?;
        (self.lent, self.wire) = (None, None);
        self.lent = Some(block::new(self.kit, self.stream, self.side)?);
        self.wire = Some(Wire::new(&self.comm, self.kit.geometry, self.messages));
        Ok(())
    }

    fn initialise(&mut self) -> Result<()> {
        let lent = self.lent.as_mut().ok_or_else(lost)?;
        let both = (&mut lent.0, &mut lent.1);
        block::initialise(self.kit, self.stream, self.side, both)?;
        synchronize(self.stream, self.side)
    }

    fn shares(&mut self, count: u64) -> Result<()> {
        let mut lent = self.lent.take().ok_or_else(lost)?;
        for _ in 0..count {
            lent = self.share(lent)?;
        }
        self.lent = Some(lent);
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        synchronize(self.stream, self.side)
    }

    fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<()> {
        let lent = self.lent.take().ok_or_else(lost)?;
        self.lent = Some(block::inspect(
            self.kit,
            self.stream,
            self.side,
            lent,
            check,
        )?);
        Ok(())
    }
}

/// All by the calling thread.
struct Direct<'a> {
    kit: &'a Kit<'a, Host>,
    shape: Arc<Shape>,
    u: Vec<f64>,
    wire: Option<Wire>,
    messages: Messages,
    comm: Rc<Comm>,
}

impl Exchange for Direct<'_> {
    type Error = Error;

    fn build(&mut self) -> Result<()> {
        self.wire = None;
        self.u = vec![0.0; self.kit.geometry.len()];
        self.wire = Some(Wire::new(&self.comm, self.kit.geometry, self.messages));
        Ok(())
    }

    fn initialise(&mut self) -> Result<()> {
        kernels::init(&self.shape.geometry, self.shape.init, &mut self.u[..]);
        self.comm.barrier();
        Ok(())
    }

    fn shares(&mut self, count: u64) -> Result<()> {
        let wire = self.wire.as_mut().ok_or_else(lost)?;
        let memory = wire.memory();
        let (shape, compute) = (&*self.shape, self.kit.setup.params.compute);
        for _ in 0..count {
            let u = &mut self.u[..];
            // SAFETY: the wire is there, and messages are under way only in `exchange`.
            unsafe { memory.pack(shape, u) };
            wire.exchange(|| {
                if compute {
                    kernels::compute(&shape.geometry, u);
                }
            });
            // SAFETY: as above.
            unsafe { memory.unpack(shape, u) };
        }
        self.kit.launched(count * if compute { 3 } else { 2 });
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        Ok(())
    }

    fn inspect(&mut self, check: &mut dyn FnMut(&[f64])) -> Result<()> {
        check(&self.u);
        Ok(())
    }
}
