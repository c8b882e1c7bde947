//! The configuration of this process: what its environment says, or the launcher that has started it.

use crate::config::Config;
use crate::error::BootError;
use crate::inherit::take_listener;
use crate::launchers;

impl Config {
    /// What the environment says; `None` if it says nothing of a job: then this process is a job of its own.
    ///
    /// A process may join this job, leave it, and join again, as often as all other ranks do.
    ///
    /// For a rank that somebody else's launcher has started, this asks the launcher's store, and so waits for the other
    /// ranks, and the time counts. The answer is kept: another call in this process gives the same address and secret
    /// again.
    ///
    /// # Errors
    ///
    /// [`BootError::MissingVariable`], [`BootError::BadVariable`] and [`BootError::NoSecret`] name the variable.
    /// [`BootError::NoStore`], [`BootError::Store`] and [`BootError::StoreSilent`] are of launchers' stores.
    pub fn from_env() -> Result<Option<Self>, BootError> {
        let config = match Self::from_lookup(std::env::var_os)? {
            Some(mut config) => {
                if config.rank == 0 && config.size > 1 {
                    config.listener = take_listener()?;
                }
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
