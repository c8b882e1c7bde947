//! The kernels as closures.

use super::{All, FacesDevice, FacesKernels, Halves, Inbox, Message, Part, Shape, Values, Which};
use crate::faces::kernels::{self, Points, initial_value};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tidegate_core::window::{AllSlots, KernelInbox, KernelOutbox, Slots};
use tidegate_core::{Cells, CellsMut, Result, Stream, World};
use tidegate_host::Host;

impl kernels::Values for Cells<'_, f64> {
    #[inline(always)]
    fn get(&self, index: usize) -> f64 {
        Cells::get(self, index)
    }
}

impl kernels::Values for CellsMut<'_, f64> {
    #[inline(always)]
    fn get(&self, index: usize) -> f64 {
        CellsMut::get(self, index)
    }
}

impl Points for CellsMut<'_, f64> {
    #[inline(always)]
    fn set(&mut self, index: usize, value: f64) {
        CellsMut::set(self, index, value);
    }
}

impl FacesDevice for Host {
    type Kernels = HostKernels;

    const INLINE_MESSAGES: bool = true;

    type Moment = Arc<Mutex<Option<Instant>>>;

    fn moment<'s>(stream: &Stream<'s, Self>, at: &Values<'s, Self>) -> Result<Self::Moment> {
        let moment = Self::Moment::default();
        let note = moment.clone();
        stream.launch(move |_: &[f64]| now(&note), at)?;
        Ok(moment)
    }

    fn moment_at_part<'s>(stream: &Stream<'s, Self>, at: &Part<'s, Self>) -> Result<Self::Moment> {
        let moment = Self::Moment::default();
        let note = moment.clone();
        stream.launch(move |_: Cells<'_, f64>| now(&note), at)?;
        Ok(moment)
    }

    fn us_between(from: &Self::Moment, to: &Self::Moment) -> Result<Option<f64>> {
        let time = |moment: &Self::Moment| *moment.lock().unwrap_or_else(PoisonError::into_inner);
        let (Some(from), Some(to)) = (time(from), time(to)) else {
            return Ok(None);
        };
        Ok(Some(match to.checked_duration_since(from) {
            Some(later) => later.as_secs_f64() * 1e6,
            None => (from - to).as_secs_f64() * -1e6,
        }))
    }

    unsafe fn kernels(_: &World<Self>, shape: Arc<Shape>) -> Result<HostKernels> {
        Ok(HostKernels(shape))
    }
}

fn now(moment: &Mutex<Option<Instant>>) {
    *moment.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
}

/// Puts all messages, and completes the neighbours.
fn send(messages: &[Message], packed: &[f64], mut out: AllSlots<'_, f64>) {
    for (to, range) in messages {
        out.put(*to, 0, &packed[range.clone()]);
    }
    out.complete();
}

/// Exchanges all messages, in the kernel that owns the halves.
fn exchange<'i, 'o>(
    messages: &[Message],
    packed: &[f64],
    inbox: KernelInbox<'i, f64>,
    outbox: KernelOutbox<'o, f64>,
) -> (KernelInbox<'i, f64>, KernelOutbox<'o, f64>) {
    let exposed = inbox.post();
    let mut epoch = outbox.start();
    for (to, range) in messages {
        epoch.put(*to, 0, &packed[range.clone()]);
    }
    let outbox = epoch.complete();
    (exposed.wait(), outbox)
}

/// Closures, each of which shares the shape.
pub struct HostKernels(Arc<Shape>);

impl FacesKernels<Host> for HostKernels {
    fn initialise<'s>(&self, stream: &Stream<'s, Host>, u: &mut Values<'s, Host>) -> Result<()> {
        let shape = self.0.clone();
        stream.launch(
            move |u: &mut [f64]| kernels::init(&shape.geometry, shape.init, u),
            u,
        )
    }

    fn initialise_part<'s>(
        &self,
        stream: &Stream<'s, Host>,
        _: Which,
        u: &mut Part<'s, Host>,
    ) -> Result<()> {
        let (shape, set) = (self.0.clone(), u.set().clone());
        let kernel = move |mut u: CellsMut<'_, f64>| {
            let offset = kernels::element_offset(&shape.geometry, shape.init);
            for index in set.ranges().iter().cloned().flatten() {
                let (i, j) = shape.geometry.coordinates(index);
                let j = [0, 1, 2].map(|d| j[d] + offset[d]);
                u.set(index, initial_value(i, j));
            }
        };
        stream.launch(kernel, u)
    }

    fn copy_part<'s>(
        &self,
        stream: &Stream<'s, Host>,
        _: Which,
        u: &Part<'s, Host>,
        block: &mut Values<'s, Host>,
    ) -> Result<()> {
        let set = u.set().clone();
        let kernel = move |u: Cells<'_, f64>, block: &mut [f64]| {
            for index in set.ranges().iter().cloned().flatten() {
                block[index] = u.get(index);
            }
        };
        stream.launch(kernel, (u, block))
    }

    fn pack<'s>(
        &self,
        stream: &Stream<'s, Host>,
        u: &Values<'s, Host>,
        out: &mut Values<'s, Host>,
    ) -> Result<()> {
        let shape = self.0.clone();
        let kernel = move |u: &[f64], out: &mut [f64]| kernels::pack(&shape.geometry, u, out);
        stream.launch(kernel, (u, out))
    }

    fn pack_part<'s>(
        &self,
        stream: &Stream<'s, Host>,
        surface: &Part<'s, Host>,
        out: &mut Values<'s, Host>,
    ) -> Result<()> {
        let shape = self.0.clone();
        let kernel =
            move |u: Cells<'_, f64>, out: &mut [f64]| kernels::pack(&shape.geometry, &u, out);
        stream.launch(kernel, (surface, out))
    }

    fn send<'s>(
        &self,
        stream: &Stream<'s, Host>,
        u: &Values<'s, Host>,
        (packed, messages): (&mut Values<'s, Host>, &[Message]),
        out: All<'_, 's, Host>,
    ) -> Result<()> {
        let (shape, messages) = (self.0.clone(), messages.to_vec());
        let kernel = move |u: &[f64], packed: &mut [f64], out: AllSlots<'_, f64>| {
            kernels::pack(&shape.geometry, u, packed);
            send(&messages, packed, out);
        };
        stream.launch(kernel, (u, packed, out))
    }

    fn send_part<'s>(
        &self,
        stream: &Stream<'s, Host>,
        surface: &Part<'s, Host>,
        (packed, messages): (&mut Values<'s, Host>, &[Message]),
        out: All<'_, 's, Host>,
    ) -> Result<()> {
        let (shape, messages) = (self.0.clone(), messages.to_vec());
        let kernel = move |u: Cells<'_, f64>, packed: &mut [f64], out: AllSlots<'_, f64>| {
            kernels::pack(&shape.geometry, &u, packed);
            send(&messages, packed, out);
        };
        stream.launch(kernel, (surface, packed, out))
    }

    fn unpack<'s>(
        &self,
        stream: &Stream<'s, Host>,
        received: &Inbox<'s, Host>,
        u: &mut Values<'s, Host>,
    ) -> Result<()> {
        let shape = self.0.clone();
        let kernel = move |received: Slots<'_, f64>, u: &mut [f64]| shape.unpack(received, u);
        stream.launch(kernel, (received.view(), u))
    }

    fn unpack_part<'s>(
        &self,
        stream: &Stream<'s, Host>,
        received: &Inbox<'s, Host>,
        surface: &mut Part<'s, Host>,
    ) -> Result<()> {
        let shape = self.0.clone();
        let kernel = move |received: Slots<'_, f64>, mut u: CellsMut<'_, f64>| {
            shape.unpack(received, &mut u);
        };
        stream.launch(kernel, (received.view(), surface))
    }

    fn shares<'s>(
        &self,
        stream: &Stream<'s, Host>,
        u: &mut Values<'s, Host>,
        (packed, messages): (&mut Values<'s, Host>, &[Message]),
        (inbox, outbox): Halves<'_, 's, Host>,
        count: u64,
    ) -> Result<()> {
        let (shape, messages) = (self.0.clone(), messages.to_vec());
        let kernel = move |u: &mut [f64],
                           packed: &mut [f64],
                           mut inbox: KernelInbox<'_, f64>,
                           mut outbox: KernelOutbox<'_, f64>| {
            for _ in 0..count {
                kernels::pack(&shape.geometry, u, packed);
                (inbox, outbox) = exchange(&messages, packed, inbox, outbox);
                shape.unpack(inbox.read(), u);
            }
        };
        stream.launch(kernel, (u, packed, inbox, outbox))
    }

    fn shares_part<'s>(
        &self,
        stream: &Stream<'s, Host>,
        surface: &mut Part<'s, Host>,
        (packed, messages): (&mut Values<'s, Host>, &[Message]),
        (inbox, outbox): Halves<'_, 's, Host>,
        count: u64,
    ) -> Result<()> {
        let (shape, messages) = (self.0.clone(), messages.to_vec());
        let kernel = move |mut u: CellsMut<'_, f64>,
                           packed: &mut [f64],
                           mut inbox: KernelInbox<'_, f64>,
                           mut outbox: KernelOutbox<'_, f64>| {
            for _ in 0..count {
                kernels::pack(&shape.geometry, &u, packed);
                (inbox, outbox) = exchange(&messages, packed, inbox, outbox);
                shape.unpack(inbox.read(), &mut u);
            }
        };
        stream.launch(kernel, (surface, packed, inbox, outbox))
    }

    fn compute<'s>(&self, stream: &Stream<'s, Host>, interior: &mut Part<'s, Host>) -> Result<()> {
        let shape = self.0.clone();
        let kernel = move |mut u: CellsMut<'_, f64>| kernels::compute(&shape.geometry, &mut u);
        stream.launch(kernel, interior)
    }
}
