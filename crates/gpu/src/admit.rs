//! Admitting streams and couriers to a GPU, and giving them their quotas ([`crate::share`] has the rules).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_hal::device::DeviceError;
use tidegate_hal::lock;

use crate::gpu::Gpu;
use crate::owners::Shape;
use crate::share::{Admitable, Users, Waits, has_queue, terms};

impl Gpu {
    /// Admits a stream, if there is a hardware queue for it. Two queues are for the device's own streams.
    pub(crate) fn admit(&self, stream: &Arc<impl Admitable + 'static>) -> Result<(), DeviceError> {
        let mut admitted = lock(&self.admitted);
        admitted.streams.retain(|stream| stream.strong_count() > 0);
        let streams = admitted.streams.len() + admitted.couriers;
        if !has_queue(streams, self.limits.queues) {
            return Err(DeviceError::Exhausted {
                what: "hardware queues of the device",
                detail: format!(
                    "{streams} streams are open (couriers of large puts included) and two are the device's own; {}",
                    self.limits.queue_advice
                ),
            });
        }
        let stream: Arc<dyn Admitable> = stream.clone();
        admitted.streams.push(Arc::downgrade(&stream));
        Ok(())
    }

    /// Admits a courier, if there is a hardware queue for it. Couriers get at most a quarter of the queues.
    pub(crate) fn admit_courier(&self) -> bool {
        let mut admitted = lock(&self.admitted);
        admitted.streams.retain(|stream| stream.strong_count() > 0);
        let (queues, streams) = (self.limits.queues, admitted.streams.len());
        let room = has_queue(streams + admitted.couriers, queues) && admitted.couriers < queues / 4;
        admitted.couriers += usize::from(room);
        room
    }

    /// A courier is gone.
    pub(crate) fn dismiss_courier(&self) {
        lock(&self.admitted).couriers -= 1;
    }

    /// Notes that `couriers` couriers will wait for ever, of which `noted` were noted before.
    pub(crate) fn leave_waiting(&self, couriers: usize, noted: usize) {
        let mut admitted = lock(&self.admitted);
        admitted.waiting_for_ever = admitted.waiting_for_ever + couriers - noted;
    }

    /// The users, as long as no other process is known.
    pub(crate) fn alone(&self) -> Users {
        Users {
            others: 0,
            own: self.limits.multiprocessors,
            launches: self.limits.launches,
            sharing: self.limits.sharing,
            least: 0,
        }
    }

    /// Notes that `others` other processes of the job use the GPU. `least` is the smallest portion of any process, or 0
    /// if one uses the GPU in turn.
    pub(crate) fn shared_with(&self, others: usize, least: usize) {
        let users = Users {
            others,
            least,
            ..self.alone()
        };
        let terms = terms(self.gates, users, self.limits.word_operations);
        if others > 0 {
            tidegate_hal::tell(|| {
                tracing::info!(
                    others,
                    sharing = ?self.limits.sharing,
                    waits = ?terms.waits,
                    blocks = terms.blocks,
                    "other processes use the GPU"
                );
            });
            self.set_waits(terms.waits, "other processes of the job use the GPU");
        }
        let mut admitted = lock(&self.admitted);
        if admitted.renew(terms, others) {
            // Streams with quotas look at this number, and so do recordings.
            self.dealing.store(admitted.dealing, Ordering::Release);
        }
    }

    /// From now on waits have gates, if they should and the device can.
    pub(crate) fn set_waits(&self, waits: Waits, why: &str) {
        match waits {
            Waits::Spin => {}
            Waits::Gated => self.gated.store(true, Ordering::Release),
            Waits::Crawl => {
                let error = DeviceError::Unsupported {
                    device: self.limits.vendor,
                    what: format!(
                        "operations of streams on 64-bit words, on {}",
                        self.limits.name
                    ),
                };
                tidegate_hal::tell(
                    || tracing::warn!(%error, why, "waits take the time slices of other processes"),
                );
            }
        }
    }

    /// Whether waits have gates.
    pub(crate) fn gated(&self) -> bool {
        self.gated.load(Ordering::Acquire)
    }

    /// Notes that ranks are threads of this process, and share the device.
    pub(crate) fn crowd(&self) {
        lock(&self.admitted).crowded = true;
    }

    /// Notes how many streams will wait. The largest number counts.
    pub(crate) fn expect_waiting(&self, streams: usize) {
        let mut admitted = lock(&self.admitted);
        admitted.said = admitted.said.max(Some(streams));
    }

    /// Exchanges the quota that a stream has for a new one. Returns it with the number of the dealing.
    pub(crate) fn grant(
        &self,
        held: (usize, usize),
        stream: usize,
    ) -> Result<(usize, usize), DeviceError> {
        let mut admitted = lock(&self.admitted);
        admitted.take_back(held);
        let expected = admitted.expected();
        let quota = admitted.deal(expected, stream)?;
        Ok((quota, admitted.dealing))
    }

    /// The quota that a stream without one would get now.
    pub(crate) fn would_grant(&self) -> usize {
        let admitted = lock(&self.admitted);
        admitted.quota(admitted.expected())
    }

    /// Gives a stream room for a kernel that waits.
    pub(crate) fn own(&self, stream: usize, shape: Shape, quota: usize) -> Result<(), DeviceError> {
        lock(&self.admitted).own(stream, shape, quota)
    }

    /// Whether kernels may wait here: not where processes use the GPU in turn.
    pub(crate) fn lets_kernels_wait(&self) -> bool {
        !self.gated() && lock(&self.admitted).owners.multiprocessors > 0
    }

    /// A stream is gone.
    pub(crate) fn disown(&self, stream: usize) {
        lock(&self.admitted).owners.remove(stream);
    }

    /// Takes back what was granted.
    pub(crate) fn give_back(&self, held: (usize, usize)) {
        lock(&self.admitted).take_back(held);
    }
}
