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
    /// The status; or [`UNEXPECTED`](Self::UNEXPECTED) or [`REFUSED`](Self::REFUSED), which no library returns.
    pub code: i32,
    /// The library's description, or this crate's.
    pub text: String,
}

impl PmixError {
    /// The [`code`](Self::code) of a call that succeeded, but whose answer cannot be.
    pub const UNEXPECTED: i32 = i32::MIN;
    /// The [`code`](Self::code) of what this crate refused before any call.
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

    /// The server's limit ran out.
    pub fn is_timeout(&self) -> bool {
        self.code == sys::PMIX_ERR_TIMEOUT
    }

    /// Not all processes of the job took part: one has closed its connection to the server meanwhile.
    pub fn is_partial(&self) -> bool {
        self.code == sys::PMIX_ERR_PARTIAL_SUCCESS
    }
}
