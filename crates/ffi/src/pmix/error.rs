//! Errors of PMIx.

use super::sys;

/// The result of a call to PMIx.
pub type Result<T, E = PmixError> = std::result::Result<T, E>;

/// PMIx refused a call.
///
/// The code stays a number: libraries newer than this crate return codes that it does not know.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with {code} ({text})")]
pub struct PmixError {
    /// The function that was called.
    pub call: &'static str,
    /// The status; or one of [`UNEXPECTED`](Self::UNEXPECTED) and [`REFUSED`](Self::REFUSED), which no library returns.
    pub code: i32,
    /// The library's description, or this crate's.
    pub text: String,
}

impl PmixError {
    /// The [`code`](Self::code) of a call that succeeded with an answer that makes no sense.
    pub const UNEXPECTED: i32 = i32::MIN;
    /// The [`code`](Self::code) of a request that this crate refused before it called the library.
    pub const REFUSED: i32 = i32::MIN + 1;

    #[cold]
    pub(super) fn unexpected(call: &'static str, text: impl Into<String>) -> Self {
        Self {
            call,
            code: Self::UNEXPECTED,
            text: text.into(),
        }
    }

    #[cold]
    pub(super) fn refused(call: &'static str, text: impl Into<String>) -> Self {
        Self {
            call,
            code: Self::REFUSED,
            text: text.into(),
        }
    }

    /// The time that the server was given has passed.
    pub fn is_timeout(&self) -> bool {
        self.code == sys::PMIX_ERR_TIMEOUT
    }

    /// Not all processes of the job took part: one of them has closed its connection to the server.
    pub fn is_partial(&self) -> bool {
        self.code == sys::PMIX_ERR_PARTIAL_SUCCESS
    }
}
