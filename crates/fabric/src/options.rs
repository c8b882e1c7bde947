//! Options of an endpoint.

use std::time::Duration;

use tidegate_hal::variables;

use crate::base::{MOST_RAILS, RANKS_ON_NODE};
use crate::wire::libfabric::OpenError;

/// The options of a [`Fabric`](crate::Fabric).
///
/// # Examples
///
/// ```
/// # mod tidegate { pub use tidegate_fabric as fabric; }
/// use std::time::Duration;
/// use tidegate::fabric::Options;
///
/// let options = Options::default().budget(1024).silence(Duration::from_secs(30));
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    pub(crate) budget: usize,
    pub(crate) silence: Duration,
    rails: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            budget: 4096,
            silence: Duration::from_secs(10),
            rails: None,
        }
    }
}

impl Options {
    /// Sets the number of trigger slots of this node's NIC (4096 by default). The ranks of the node divide them, and
    /// each has at least 1. In the software engine, a program takes one.
    ///
    /// # Panics
    ///
    /// If the number is 0, because nothing could ever be fired.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::Options;
    ///
    /// let options = Options::default().budget(512); // of the NIC, for all ranks of the node
    /// ```
    #[must_use]
    pub fn budget(mut self, slots: usize) -> Self {
        assert_ne!(slots, 0, "a NIC has at least one trigger slot");
        self.budget = slots;
        self
    }

    /// Sets how long the wire may be silent (10 s by default). [`Duration::MAX`] is no limit. Time in which this
    /// process is stopped does not count. The limit applies to each of these:
    ///
    /// - A rank that leaves stops waiting for its last messages when nothing at all has happened on the wire for so
    ///   long.
    /// - An operation that the wire does not accept towards a peer for so long has failed. So has a program that has
    ///   been rung for, and finds no free trigger of the NIC for so long.
    /// - A signal is lost if it has not arrived for so long since that was first noticed.
    /// - If a peer does not answer for twice as long, nothing reaches its NIC. Then this endpoint can no longer be
    ///   used, and the windows that need it are revoked.
    ///
    /// A slow network is not mistaken for one that is cut. Long transfers are cut into operations of at most 4 MiB. The
    /// end of one may take a second more for each 100 kB that it has, and for each 10 MB in progress towards different
    /// peers. A transfer that hardware fires has a second more for each megabyte.
    ///
    /// The limit should be no shorter than the time after which the control plane gives up a silent rank. A rank that a
    /// debugger has stopped is silent on both. See [`silence_from_env`](Self::silence_from_env).
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use std::time::Duration;
    /// use tidegate::fabric::Options;
    ///
    /// let options = Options::default().silence(Duration::MAX); // a debugger may stop a rank for as long as it likes
    /// ```
    #[must_use]
    pub fn silence(mut self, limit: Duration) -> Self {
        self.silence = limit;
        self
    }

    /// Sets the number of rails, 1 to [`MOST_RAILS`](Self::MOST_RAILS). A rail is an endpoint with a thread that sends
    /// and one that receives. If a rank's streams are no threads (GPUs), its long writes go by all rails.
    ///
    /// The default is 1, except for `tcp` and `tcp;ofi_rxm`, over which one thread copies 7 to 9 GB/s. For those,
    /// [`rails_for`](Self::rails_for) chooses by the processors that this process may use, divided among the ranks of
    /// the machine. Peers may have another number; the smaller one counts. If the wire's hardware fires by itself,
    /// there is one endpoint.
    ///
    /// # Panics
    ///
    /// If the number is 0, or greater than that.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::Options;
    ///
    /// let options = Options::default().rails(Options::MOST_RAILS);
    /// ```
    #[must_use]
    pub fn rails(mut self, rails: usize) -> Self {
        assert!((1..=Self::MOST_RAILS).contains(&rails), "1 to 4 rails");
        self.rails = Some(rails);
        self
    }

    /// The most rails.
    pub const MOST_RAILS: usize = MOST_RAILS;

    /// The variable that names a number of rails, for [`rails_from_env`](Self::rails_from_env).
    pub const RAILS: &'static str = variables::RAILS.name;

    /// Takes the number of rails from `TIDEGATE_RAILS`. Without that variable, nothing changes.
    ///
    /// # Errors
    ///
    /// [`OpenError::BadVariable`].
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::Options;
    ///
    /// let options = Options::default().rails(2).rails_from_env()?; // 2, where TIDEGATE_RAILS is not set
    /// # Ok::<(), tidegate::fabric::wire::libfabric::OpenError>(())
    /// ```
    pub fn rails_from_env(self) -> Result<Self, OpenError> {
        self.rails_from(std::env::var(Self::RAILS).ok())
    }

    fn rails_from(self, said: Option<String>) -> Result<Self, OpenError> {
        let Some(value) = said.filter(|value| !value.is_empty()) else {
            return Ok(self);
        };
        match value.parse() {
            Ok(rails) if (1..=Self::MOST_RAILS).contains(&rails) => Ok(self.rails(rails)),
            _ => Err(OpenError::BadVariable {
                variable: Self::RAILS,
                value,
                reason: "it must be a number from 1 to 4",
            }),
        }
    }

    /// The variable with the time that the control plane waits, in milliseconds.
    const SILENCE: &'static str = variables::SILENCE_MS.name;

    /// Makes the silence at least as long as the control plane's, from `TIDEGATE_SILENCE_MS`. (The control plane
    /// refuses a value that is no number.)
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::Options;
    ///
    /// let options = Options::default().silence_from_env(); // 10 s at least
    /// ```
    pub fn silence_from_env(self) -> Self {
        self.silence_from(std::env::var(Self::SILENCE).ok())
    }

    fn silence_from(self, said: Option<String>) -> Self {
        let limit = said.and_then(|said| said.trim().parse().ok());
        let limit = limit.map_or(self.silence, Duration::from_millis);
        let most = self.silence.max(limit);
        self.silence(most)
    }

    /// How many rails a rank of this process has. For `copies`, see [`Wire::copies`](crate::wire::Wire::copies).
    pub(crate) fn rails_here(&self, copies: bool) -> usize {
        let said = |name: &str| std::env::var(name).ok();
        match self.rails {
            Some(rails) => rails,
            None if copies => Self::rails_for(processors(said)),
            None => 1,
        }
    }

    /// How many rails are worth their threads, if a rank has `processors` processors: two from 8 on, three from 16,
    /// four from 32. Each rail has two threads, which do not pause while much is sent. So they take at most half of the
    /// processors.
    ///
    /// # Examples
    ///
    /// ```
    /// # mod tidegate { pub use tidegate_fabric as fabric; }
    /// use tidegate::fabric::Options;
    ///
    /// assert_eq!([4, 8, 16, 64].map(Options::rails_for), [1, 2, 3, 4]);
    /// ```
    pub fn rails_for(processors: usize) -> usize {
        match processors {
            0..8 => 1,
            8..16 => 2,
            16..32 => 3,
            _ => Self::MOST_RAILS,
        }
    }
}

/// How many processors each rank has, if all share evenly what this process may use. (Slurm gives each rank processors
/// of its own.)
fn processors(said: impl Fn(&str) -> Option<String>) -> usize {
    // This library's launcher knows whether it has bound the ranks.
    let mut names = [variables::RANKS_HERE.name]
        .into_iter()
        .chain(RANKS_ON_NODE);
    let ranks = names.find_map(|name| said(name)?.parse().ok());
    let ranks: usize = ranks.unwrap_or(1);
    std::thread::available_parallelism().map_or(1, usize::from) / ranks.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nic_waits_as_long_as_the_control_plane() {
        let from = |said: Option<&str>| Options::default().silence_from(said.map(Into::into));
        assert_eq!(from(None).silence, Duration::from_secs(10));
        assert_eq!(from(Some("1000")).silence, Duration::from_secs(10));
        assert_eq!(from(Some("3600000")).silence, Duration::from_secs(3600));
        assert_eq!(from(Some("long")).silence, Duration::from_secs(10));
    }

    #[test]
    fn rails_are_what_the_variable_says() {
        let from = |said: &str| Options::default().rails(3).rails_from(Some(said.into()));
        assert_eq!(from("").unwrap().rails, Some(3));
        assert_eq!(from("2").unwrap().rails, Some(2));
        for bad in ["0", "5", "two", "-1"] {
            let error = from(bad).unwrap_err().to_string();
            assert!(error.contains("TIDEGATE_RAILS"), "{error}");
        }
        assert_eq!(Options::default().rails_from(None).unwrap().rails, None);
    }

    #[test]
    fn rails_leave_half_of_the_processors() {
        for processors in 0..100 {
            let rails = Options::rails_for(processors);
            assert!((1..=Options::MOST_RAILS).contains(&rails));
            assert!(rails == 1 || 4 * rails <= processors);
        }
        let all = processors(|_| None);
        let shared = |name, ranks: &str| processors(|asked| (asked == name).then(|| ranks.into()));
        for name in [variables::RANKS_HERE.name]
            .into_iter()
            .chain(RANKS_ON_NODE)
        {
            assert_eq!(shared(name, "2"), all / 2, "{name}");
        }
        assert_eq!(
            (
                shared("LOCAL_WORLD_SIZE", "many"),
                shared("LOCAL_WORLD_SIZE", "0")
            ),
            (all, all)
        );
    }
}
