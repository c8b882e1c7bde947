//! The configuration of this process, from its environment or from the launcher that started it.

use crate::config::Config;
use crate::ends::Ends;
use crate::error::BootError;
use crate::inherit::take_listener;
use crate::launchers;

impl Config {
    /// The configuration that the environment gives. `None`: the environment describes no job, so this process is a job
    /// of its own.
    ///
    /// A process may join this job, leave it, and join again, as often as all other ranks do.
    ///
    /// If another launcher started this rank, this asks the launcher's store, and so waits for the other ranks within
    /// the time limit. The answer is kept, so later calls in this process return the same address and secret.
    ///
    /// # Errors
    ///
    /// [`BootError::MissingVariable`], [`BootError::BadVariable`] and [`BootError::NoSecret`] name the variable.
    /// [`BootError::NoStore`], [`BootError::Store`] and [`BootError::StoreSilent`] are errors of a launcher's store.
    pub fn from_env() -> Result<Option<Self>, BootError> {
        let config = match Self::from_lookup(std::env::var_os)? {
            Some(mut config) => {
                if config.rank == 0 && config.size > 1 {
                    config.listener = take_listener()?;
                }
                config.ends = Ends::inherited()?;
                Some(config)
            }
            None => launchers::config(std::env::var_os)?,
        };
        Ok(config.map(|config| Self {
            from_environment: true,
            ..config
        }))
    }
}
