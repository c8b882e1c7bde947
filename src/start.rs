//! Joining a job, and opening a NIC if the job needs one.

use tidegate_core::{Result, World, WorldOptions};
use tidegate_hal::device::Device;
use tidegate_hal::nic::NicError;

/// Adds `World::init()`, by which a rank joins its job. The preludes contain this trait.
///
/// It is a trait because the crate that defines [`World`](crate::generic::World) does not depend on libfabric.
///
/// # Examples
///
/// ```
/// use tidegate::host::prelude::*;
///
/// # fn main() -> Result<()> {
/// let world = World::init()?; // the prelude has the trait
/// # assert_eq!(world.size(), 1);
/// # Ok(()) }
/// ```
pub trait Init: Sized {
    /// Joins the job that the environment describes (`RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`, as `tidegate run` sets
    /// them), or the job of the `mpirun` or `srun` that started this process. If there is none of these, the process is a job
    /// of one rank.
    ///
    /// If the ranks are on several nodes, it opens a NIC by libfabric, as the environment says
    /// (`tidegate::fabric::Fabric::from_env`). That takes the feature `fabric`, which is a default.
    ///
    /// # Errors
    ///
    /// - [`Error::Join`](crate::Error::Join) if the job cannot be joined.
    /// - [`Error::Device`](crate::Error::Device) if there is no device.
    /// - [`Error::Setting`](crate::Error::Setting) if a variable of the environment cannot be parsed, or names a folder
    ///   that cannot be made.
    /// - [`Error::Control`](crate::Error::Control) if a rank ends meanwhile.
    /// - [`Error::Meet`](crate::Error::Meet) if the ranks do not fit together. One case of that, on all ranks, is
    ///   [`MeetError::NoNic`](crate::error::MeetError::NoNic): a rank has no libfabric or no provider, or was built
    ///   without the feature `fabric`.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    ///
    /// # fn main() -> Result<()> {
    /// let world: World = World::init()?;
    /// println!("rank {} of {}", world.rank(), world.size());
    /// # Ok(())
    /// # }
    /// ```
    fn init() -> Result<Self> {
        Self::init_with(WorldOptions::new())
    }

    /// As [`init`](Self::init), with options. A NIC in the options, or a function that opens one, replaces libfabric's.
    ///
    /// # Errors
    ///
    /// As [`init`](Self::init).
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate::host::prelude::*;
    /// use tidegate::{Route, WorldOptions};
    ///
    /// # fn main() -> Result<()> {
    /// // A window that needs a rank of another node is refused.
    /// let world: World = World::init_with(WorldOptions::new().route(Route::Mapped))?;
    /// # Ok(())
    /// # }
    /// ```
    fn init_with(options: WorldOptions) -> Result<Self>;
}

/// Opens libfabric if the job needs it.
#[cfg(feature = "fabric")]
fn with_nic(options: WorldOptions) -> WorldOptions {
    use tidegate_fabric::{Fabric, Options};
    options.nic_when_needed(|| {
        Fabric::from_env(Options::default()).map_err(|error| opening(error.to_string()))
    })
}

/// Says why there is no NIC if the job needs one.
#[cfg(not(feature = "fabric"))]
fn with_nic(options: WorldOptions) -> WorldOptions {
    options
        .no_nic(|| opening("the program was built without the feature `fabric` of tidegate".into()))
}

fn opening(detail: String) -> NicError {
    let what = "opening libfabric";
    NicError::System { what, detail }
}

impl<D: Device> Init for World<D> {
    fn init_with(options: WorldOptions) -> Result<Self> {
        Self::join(with_nic(options))
    }
}

#[cfg(all(test, not(feature = "fabric")))]
mod tests {
    use super::*;
    use crate::Route;
    use crate::error::{Error, MeetError};

    #[test]
    fn without_the_feature_a_rank_that_needs_a_nic_says_so() {
        let options = WorldOptions::new().route(Route::Nic);
        let joined = World::<tidegate_host::Host>::init_with(options);
        match joined.map(drop) {
            Err(Error::Meet(MeetError::NoNic { rank: 0, reason })) => {
                assert!(
                    reason.contains("built without the feature `fabric`"),
                    "{reason}"
                );
            }
            other => panic!("{other:?}"),
        }
    }
}
