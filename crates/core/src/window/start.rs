//! Opening an access epoch.

use tidegate_hal::device::Device;

use super::access::Access;
use super::outbox::Outbox;
use super::{Discipline, Group};
use crate::carry::given_up;
use crate::element::Element;
#[cfg(doc)]
use crate::error::{Cause, Error};
use crate::error::{Rejected, Result};

impl<'s, T: Element, K: Discipline, D: Device> Outbox<'s, T, D, K> {
    /// Opens an epoch for all targets (MPI: `MPI_Win_start`). Nothing is enqueued before [`Access::complete`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let mut epoch = outbox.start();
    /// epoch.put(&src, to)?; // noted
    /// let (_inbox, outbox) = exchange(s, inbox, epoch)?; // enqueued
    /// # Ok(()) });
    /// ```
    pub fn start<'b>(mut self) -> Access<'s, 'b, T, D, K> {
        self.held.groups.choose_all();
        self.held.begin();
        Access::new(self.held.take())
    }

    /// Like [`Outbox::start`], for some of the targets. Each of them must post to this rank.
    ///
    /// # Errors
    ///
    /// [`EpochError::NotInGroup`](crate::error::EpochError::NotInGroup) if a member of the group is not a target, and
    /// [`Error::NoSuchRank`] if the team that opened the window does not have that rank. The outbox is then lost, and
    /// the window is revoked on all ranks ([`Cause::NotEnqueued`]).
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let peer = Group::new([1 - s.world().rank()]);
    /// let mut epoch = outbox.start_to(&peer)?;
    /// epoch.put(&src, to)?;
    /// # let exposed = inbox.post_to(s, &peer)?;
    /// let _outbox = epoch.complete(s)?;
    /// # let _inbox = exposed.wait(s)?;
    /// # Ok(()) });
    /// ```
    pub fn start_to<'b>(self, group: &Group) -> Result<Access<'s, 'b, T, D, K>> {
        self.try_start_to(group).map_err(given_up)
    }

    /// Like [`Outbox::start_to`], but has no effect if it fails, and returns the outbox.
    ///
    /// # Errors
    ///
    /// The same as [`Outbox::start_to`].
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::slots(|s, (inbox, outbox), (from, to), mut src| {
    /// let refused = outbox.try_start_to(&Group::new([9])).unwrap_err(); // rank 9 is no target
    /// let epoch = refused.value.start();
    /// # let _halves = exchange(s, inbox, epoch)?;
    /// # Ok(()) });
    /// ```
    pub fn try_start_to<'b>(
        mut self,
        group: &Group,
    ) -> Result<Access<'s, 'b, T, D, K>, Rejected<Self>> {
        let body = &mut *self.held;
        let chosen = body
            .groups
            .choose(group, &body.half, "a target", |_| Ok(()));
        if let Err(error) = chosen {
            return Err(Rejected::new(error, self));
        }
        body.begin();
        Ok(Access::new(self.held.take()))
    }
}
