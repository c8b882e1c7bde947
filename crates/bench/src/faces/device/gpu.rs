//! The kernels as functions of `kernels/faces.cu`.

use crate::device::gpu::Gpu;

use super::geometry::{FacesGeometry, FacesGrids, SHARE_TILES, TILE};
use super::{All, FacesDevice, FacesKernels, Halves, Inbox, Message, Part, Shape, Values, Which};
use std::sync::Arc;
use tidegate_core::kernel::{Foreign, Function, Launch, Module, Plain, foreign};
use tidegate_core::window::{AllSlots, KernelInbox, KernelOutbox, Slots};
use tidegate_core::{Cells, CellsMut, Error, Result, Stream, World, kernel};
use tidegate_gpu::TimedEvent;
use tidegate_hal::device::{Device, DeviceError, Grid, Parameters};

kernel! {
    /// Initial values of the whole block.
    ///
    /// # Safety
    ///
    /// The module is that of `kernels/faces.cu`. As for all below: given a geometry of [`FacesGeometry::new`], its
    /// kernels touch nothing of a block, a buffer or a slot that is as long as the geometry says but the points that
    /// `faces.cuh` lists, do nothing where a length is too small, and end.
    unsafe fn bind_init = "faces_init"(g: Plain<FacesGeometry>, u: &mut [f64]);
    /// # Safety
    ///
    /// As [`bind_init`]; touches the points of the part that `mode` names.
    unsafe fn bind_init_part = "faces_init_part"(g: Plain<FacesGeometry>, mode: u32, u: CellsMut<f64>);
    /// # Safety
    ///
    /// As [`bind_init`]; touches the points of the part that `mode` names.
    unsafe fn bind_copy_part = "faces_copy_part"(g: Plain<FacesGeometry>, mode: u32, u: Cells<f64>, block: &mut [f64]);
    /// # Safety
    ///
    /// As [`bind_init`].
    unsafe fn bind_pack = "faces_pack"(g: Plain<FacesGeometry>, u: &[f64], out: &mut [f64]);
    /// # Safety
    ///
    /// As [`bind_init`]; reads the surface alone.
    unsafe fn bind_pack_part = "faces_pack"(g: Plain<FacesGeometry>, surface: Cells<f64>, out: &mut [f64]);
    /// # Safety
    ///
    /// As [`bind_init`]; there are as many outbound slots as neighbours, in the order of directions. The kernel keeps the
    /// contract of `kernels/tidegate.cuh`.
    unsafe fn bind_send = "faces_send"(g: Plain<FacesGeometry>, u: &[f64], out: AllSlots<f64>);
    /// # Safety
    ///
    /// As [`bind_send`]; reads the surface alone.
    unsafe fn bind_send_part = "faces_send"(g: Plain<FacesGeometry>, surface: Cells<f64>, out: AllSlots<f64>);
    /// # Safety
    ///
    /// As [`bind_init`]; there are as many slots as neighbours, in the order of directions.
    unsafe fn bind_unpack = "faces_unpack"(g: Plain<FacesGeometry>, slots: Slots<f64>, u: &mut [f64]);
    /// # Safety
    ///
    /// As [`bind_unpack`]; touches the surface alone.
    unsafe fn bind_unpack_part = "faces_unpack"(g: Plain<FacesGeometry>, slots: Slots<f64>, surface: CellsMut<f64>);
    /// # Safety
    ///
    /// As [`bind_send`], and there are as many inbound slots. The kernel keeps the contract of kernels that own halves.
    unsafe fn bind_shares = "faces_shares"(g: Plain<FacesGeometry>, u: &mut [f64], inbox: KernelInbox<f64>, outbox: KernelOutbox<f64>, count: u64);
    /// # Safety
    ///
    /// As [`bind_shares`]; touches the surface alone.
    unsafe fn bind_shares_part = "faces_shares"(g: Plain<FacesGeometry>, surface: CellsMut<f64>, inbox: KernelInbox<f64>, outbox: KernelOutbox<f64>, count: u64);
    /// # Safety
    ///
    /// As [`bind_init`]; touches the interior alone.
    unsafe fn bind_compute = "faces_compute"(g: Plain<FacesGeometry>, interior: CellsMut<f64>);
}

type G = Plain<FacesGeometry>;
type Read = &'static [f64];
type Write = &'static mut [f64];
type ReadPart = Cells<'static, f64>;
type WritePart = CellsMut<'static, f64>;
type Received = Slots<'static, f64>;
type Outbound = AllSlots<'static, f64>;
type OwnedIn = KernelInbox<'static, f64>;
type OwnedOut = KernelOutbox<'static, f64>;

/// Functions, bound once, and their parameters.
pub struct GpuKernels<D: Gpu> {
    geometry: FacesGeometry,
    grids: FacesGrids,
    init: Function<D, (G, Write)>,
    init_part: Function<D, (G, u32, WritePart)>,
    copy_part: Function<D, (G, u32, ReadPart, Write)>,
    pack: Function<D, (G, Read, Write)>,
    pack_part: Function<D, (G, ReadPart, Write)>,
    send: Function<D, (G, Read, Outbound)>,
    send_part: Function<D, (G, ReadPart, Outbound)>,
    unpack: Function<D, (G, Received, Write)>,
    unpack_part: Function<D, (G, Received, WritePart)>,
    shares: Function<D, (G, Write, OwnedIn, OwnedOut, u64)>,
    shares_part: Function<D, (G, WritePart, OwnedIn, OwnedOut, u64)>,
    compute: Function<D, (G, WritePart)>,
}

impl<D: Gpu> FacesDevice for D {
    type Kernels = GpuKernels<D>;

    /// A submission to an inline stream is waited for each time, which a share needs twice only.
    const INLINE_MESSAGES: bool = false;

    type Moment = Arc<TimedEvent>;

    fn moment<'s>(stream: &Stream<'s, Self>, at: &Values<'s, Self>) -> Result<Self::Moment> {
        event::<D>(|kernel| stream.launch(kernel, (at,)))
    }

    fn moment_at_part<'s>(stream: &Stream<'s, Self>, at: &Part<'s, Self>) -> Result<Self::Moment> {
        event::<D>(|kernel| stream.launch(kernel, (at,)))
    }

    fn us_between(from: &Self::Moment, to: &Self::Moment) -> Result<Option<f64>> {
        Ok(to.us_since(from)?)
    }

    unsafe fn kernels(world: &World<Self>, shape: Arc<Shape>) -> Result<GpuKernels<D>> {
        if shape.omit.is_some() {
            let what = "only kernels on the host can leave a direction out";
            return Err(Error::other(what));
        }
        let geometry = FacesGeometry::new(&shape.geometry, shape.init).map_err(Error::other)?;
        let early = world.device().begins_early();
        let module = Module::load(world, tidegate_kernels::FACES)?;
        // SAFETY: the module is that of `kernels/faces.cu`, and the geometry of `FacesGeometry::new`, of the shape for
        // which the caller promises that blocks, parts, buffers and slots are as long as it says. `mode` below says
        // which part it is. Where kernels begin early, the code is that for 9.0, and all wait by themselves
        // (`tests/early_kernels.rs`).
        let kernels = unsafe {
            GpuKernels {
                geometry,
                grids: geometry.grids(world.device().multiprocessors()),
                init: begin(bind_init(&module)?, early),
                init_part: begin(bind_init_part(&module)?, early),
                copy_part: begin(bind_copy_part(&module)?, early),
                pack: begin(bind_pack(&module)?, early),
                pack_part: begin(bind_pack_part(&module)?, early),
                send: begin(bind_send(&module)?, early),
                send_part: begin(bind_send_part(&module)?, early),
                unpack: begin(bind_unpack(&module)?, early),
                unpack_part: begin(bind_unpack_part(&module)?, early),
                // No kernel that owns halves begins early.
                shares: bind_shares(&module)?,
                shares_part: bind_shares_part(&module)?,
                compute: begin(bind_compute(&module)?, early),
            }
        };
        Ok(kernels)
    }
}

/// Enqueues an event; for `tidegate_core` this is a kernel of another library.
type Enqueue<'a, D> = Foreign<
    Box<
        dyn FnOnce(&<D as Device>::Stream, &Parameters) -> std::result::Result<(), DeviceError>
            + 'a,
    >,
>;

/// An event that has a time, on the stream that `launch` launches on.
fn event<D: Gpu>(launch: impl FnOnce(Enqueue<'_, D>) -> Result<()>) -> Result<Arc<TimedEvent>> {
    let mut event = None;
    let enqueue = |stream: &D::Stream, _: &Parameters| {
        event = Some(D::timed_event(stream)?);
        Ok(())
    };
    // SAFETY: it enqueues an event, on the stream that it is given, and accesses no memory; stream and recording hold
    // the event. It does not use its launch parameters.
    launch(unsafe { foreign(Box::new(enqueue)) })?;
    event.ok_or_else(|| Error::other("the event was not enqueued"))
}

/// # Safety
///
/// If it is to begin `early`, it waits by itself.
unsafe fn begin<D: Gpu, S>(function: Function<D, S>, early: bool) -> Function<D, S> {
    if early {
        // SAFETY: the caller's promise.
        unsafe { function.waits_itself() }
    } else {
        function
    }
}

impl<D: Gpu> GpuKernels<D> {
    fn geometry(&self) -> G {
        Plain(self.geometry)
    }
}

/// The kernel that makes all shares, over so many blocks.
fn of_shares<D: Gpu, S>(function: &Function<D, S>, blocks: u32) -> Launch<'_, D, S> {
    function.over(Grid {
        blocks: [blocks, 1, 1],
        threads: [TILE * SHARE_TILES, 1, 1],
        shared: 0,
    })
}

/// A function over so many blocks.
fn over<D: Gpu, S>(function: &Function<D, S>, blocks: u32) -> Launch<'_, D, S> {
    function.over(Grid {
        blocks: [blocks, 1, 1],
        threads: [TILE, 1, 1],
        shared: 0,
    })
}

/// The number that the device code has for a part: `FACES_SURFACE` or `FACES_INTERIOR`.
fn mode(which: Which) -> u32 {
    match which {
        Which::Surface => 0,
        Which::Interior => 1,
    }
}

impl<D: Gpu> FacesKernels<D> for GpuKernels<D> {
    fn initialise<'s>(&self, stream: &Stream<'s, D>, u: &mut Values<'s, D>) -> Result<()> {
        stream.launch(over(&self.init, self.grids.init), (self.geometry(), u))
    }

    fn initialise_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        which: Which,
        u: &mut Part<'s, D>,
    ) -> Result<()> {
        let kernel = over(&self.init_part, self.grids.init);
        stream.launch(kernel, (self.geometry(), mode(which), u))
    }

    fn copy_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        which: Which,
        u: &Part<'s, D>,
        block: &mut Values<'s, D>,
    ) -> Result<()> {
        let kernel = over(&self.copy_part, self.grids.init);
        stream.launch(kernel, (self.geometry(), mode(which), u, block))
    }

    fn pack<'s>(
        &self,
        stream: &Stream<'s, D>,
        u: &Values<'s, D>,
        out: &mut Values<'s, D>,
    ) -> Result<()> {
        stream.launch(over(&self.pack, self.grids.pack), (self.geometry(), u, out))
    }

    fn pack_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        surface: &Part<'s, D>,
        out: &mut Values<'s, D>,
    ) -> Result<()> {
        let kernel = over(&self.pack_part, self.grids.pack);
        stream.launch(kernel, (self.geometry(), surface, out))
    }

    fn send<'s>(
        &self,
        stream: &Stream<'s, D>,
        u: &Values<'s, D>,
        _: (&mut Values<'s, D>, &[Message]),
        out: All<'_, 's, D>,
    ) -> Result<()> {
        let kernel = over(&self.send, self.grids.pack);
        stream.launch(kernel, (self.geometry(), u, out))
    }

    fn send_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        surface: &Part<'s, D>,
        _: (&mut Values<'s, D>, &[Message]),
        out: All<'_, 's, D>,
    ) -> Result<()> {
        let kernel = over(&self.send_part, self.grids.pack);
        stream.launch(kernel, (self.geometry(), surface, out))
    }

    fn unpack<'s>(
        &self,
        stream: &Stream<'s, D>,
        received: &Inbox<'s, D>,
        u: &mut Values<'s, D>,
    ) -> Result<()> {
        let kernel = over(&self.unpack, self.grids.unpack);
        stream.launch(kernel, (self.geometry(), received.view(), u))
    }

    fn unpack_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        received: &Inbox<'s, D>,
        surface: &mut Part<'s, D>,
    ) -> Result<()> {
        let kernel = over(&self.unpack_part, self.grids.unpack);
        stream.launch(kernel, (self.geometry(), received.view(), surface))
    }

    fn shares<'s>(
        &self,
        stream: &Stream<'s, D>,
        u: &mut Values<'s, D>,
        _: (&mut Values<'s, D>, &[Message]),
        (inbox, outbox): Halves<'_, 's, D>,
        count: u64,
    ) -> Result<()> {
        let kernel = of_shares(&self.shares, self.grids.shares);
        stream.launch(kernel, (self.geometry(), u, inbox, outbox, count))
    }

    fn shares_part<'s>(
        &self,
        stream: &Stream<'s, D>,
        surface: &mut Part<'s, D>,
        _: (&mut Values<'s, D>, &[Message]),
        (inbox, outbox): Halves<'_, 's, D>,
        count: u64,
    ) -> Result<()> {
        let kernel = of_shares(&self.shares_part, self.grids.shares);
        stream.launch(kernel, (self.geometry(), surface, inbox, outbox, count))
    }

    fn compute<'s>(&self, stream: &Stream<'s, D>, interior: &mut Part<'s, D>) -> Result<()> {
        let kernel = over(&self.compute, self.grids.compute);
        stream.launch(kernel, (self.geometry(), interior))
    }
}
