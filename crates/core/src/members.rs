//! Which ranks open a thing, and on which stream.

use tidegate_hal::device::Device;

use crate::stream::Stream;
use crate::world::Team;

/// The ranks that open a window, a barrier or a collective together, and the stream of this rank to which it then
/// belongs.
///
/// | argument | the ranks that must make the call |
/// |---|---|
/// | `&s` | all ranks of the job |
/// | `&team.on(&s)` | the ranks of the team, and no others |
///
/// # Examples
///
/// ```
/// use tidegate::Members;
/// use tidegate::host::{Host, prelude::*};
///
/// /// The sum over these ranks.
/// fn total<'s>(on: &impl Members<'s, Host>, x: &mut Region<f64, On<'s>>) -> Result<()> {
///     AllReduce::once(on, x, Op::Sum)
/// }
///
/// # tidegate::doc::ranks(4, |world| {
/// stream!(let s = world.stream()?);
/// let row = world.split("rows", world.rank() / 2, world.rank())?.unwrap();
/// let mut x = Region::from_slice(&world, &[1.0])?.on(&s)?;
/// total(&row.on(&s), &mut x)?;
/// total(&s, &mut x)?;
/// assert_eq!(x.into_host(&s)?[0], 8.0);
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which ranks open this, and on which stream",
    label = "neither a stream nor a team on a stream",
    note = "give `&s` for all ranks of the job, or `&team.on(&s)` for the ranks of a team",
    note = "`s` is a stream with a brand: `stream!(let s = world.stream()?);`"
)]
pub trait Members<'s, D: Device>: sealed::Sealed {
    #[doc(hidden)]
    fn stream(&self) -> &Stream<'s, D>;
    #[doc(hidden)]
    fn team(&self) -> Team<D>;
}

/// A team, with this rank's stream for all that the team opens: see [`Team::on`].
pub struct TeamOn<'a, 's, D: Device> {
    team: &'a Team<D>,
    stream: &'a Stream<'s, D>,
}

impl<D: Device> Team<D> {
    /// This team, for calls that open something: `window.open(&team.on(&s))`.
    ///
    /// # Examples
    ///
    /// ```
    /// # use tidegate::host::prelude::*;
    /// # tidegate::doc::ranks(4, |world| {
    /// # stream!(let s = world.stream()?);
    /// let row = world.split("rows", world.rank() / 2, world.rank())?.unwrap();
    /// let row = row.on(&s);
    /// let mut barrier = Barrier::open(&row, "step")?;
    /// let mut sum = AllReduce::<f64>::open(&row, "sum", 1, Op::Sum)?;
    /// barrier.enqueue(&s)?;
    /// # Ok(()) });
    /// ```
    pub fn on<'a, 's>(&'a self, stream: &'a Stream<'s, D>) -> TeamOn<'a, 's, D> {
        TeamOn { team: self, stream }
    }
}

mod sealed {
    pub trait Sealed {}
}

impl<D: Device> sealed::Sealed for Stream<'_, D> {}
impl<'s, D: Device> Members<'s, D> for Stream<'s, D> {
    fn stream(&self) -> &Stream<'s, D> {
        self
    }
    fn team(&self) -> Team<D> {
        self.world().everyone()
    }
}

impl<D: Device> sealed::Sealed for TeamOn<'_, '_, D> {}
impl<'s, D: Device> Members<'s, D> for TeamOn<'_, 's, D> {
    fn stream(&self) -> &Stream<'s, D> {
        self.stream
    }
    fn team(&self) -> Team<D> {
        self.team.clone()
    }
}

// A function may have a reference already, and write `&s` where `s` would do.
impl<M: sealed::Sealed + ?Sized> sealed::Sealed for &M {}
impl<'s, D: Device, M: Members<'s, D> + ?Sized> Members<'s, D> for &M {
    fn stream(&self) -> &Stream<'s, D> {
        (**self).stream()
    }
    fn team(&self) -> Team<D> {
        (**self).team()
    }
}

impl<D: Device> std::fmt::Debug for TeamOn<'_, '_, D> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TeamOn")
            .field("team", &self.team.name())
            .field("stream", &self.stream.name())
            .finish()
    }
}
