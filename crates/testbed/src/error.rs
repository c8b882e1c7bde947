//! Errors of beds.

use std::io;

/// Why a bed could not be made, or could not do what was requested.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BedError {
    /// This process may not make namespaces.
    #[error(
        "cannot make {what}: {source}; nodes need either the privileges of root (CAP_SYS_ADMIN and CAP_NET_ADMIN), or user namespaces: \
         see the sysctls user.max_user_namespaces, kernel.unprivileged_userns_clone and \
         kernel.apparmor_restrict_unprivileged_userns, and what the container allows"
    )]
    NotAllowed {
        /// What should have been made.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A program is missing.
    #[error("`{program}` is needed to set up networks: install the package iproute2")]
    NoProgram {
        /// The name of the program.
        program: &'static str,
    },
    /// A program failed.
    #[error("`{program}` said: {said}")]
    Refused {
        /// The name of the program.
        program: &'static str,
        /// Its message.
        said: String,
    },
    /// No wire can do what is requested.
    #[error("no wire between the nodes: {why}")]
    NoWire {
        /// What each wire lacks.
        why: String,
    },
    /// The request makes no sense.
    #[error("{0}")]
    Invalid(String),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: &'static str,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl BedError {
    pub(crate) fn io(what: &'static str, source: impl Into<io::Error>) -> Self {
        let source = source.into();
        Self::Io { what, source }
    }

    /// Whether the machine lacks something that a bed needs. Then a test may be skipped.
    pub fn is_missing(&self) -> bool {
        matches!(
            self,
            Self::NotAllowed { .. } | Self::NoProgram { .. } | Self::NoWire { .. }
        )
    }
}
