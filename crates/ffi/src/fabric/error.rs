//! Errors of libfabric.

use std::ffi::CStr;

use super::load::Library;
use super::sys;

/// The result of a call to libfabric.
pub type Result<T, E = FabricError> = std::result::Result<T, E>;

/// libfabric refused a call.
///
/// The code stays a number: libraries newer than this crate return codes that it does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FabricError {
    /// The function of the API that was called, by the name in its manual.
    pub call: &'static str,
    /// The error as a positive number (`FI_E…`); or [`MISSING`](Self::MISSING), [`UNEXPECTED`](Self::UNEXPECTED) or
    /// [`REFUSED`](Self::REFUSED), which no library returns.
    pub code: i32,
    /// The code's name, or "unknown code".
    pub name: &'static str,
    /// The library's description, or this crate's.
    pub text: String,
}

impl FabricError {
    /// The [`code`](Self::code) of a call to an operation that the provider's table does not have.
    pub const MISSING: i32 = -1;
    /// The [`code`](Self::code) of a call that succeeded with an answer that makes no sense.
    pub const UNEXPECTED: i32 = -2;
    /// The [`code`](Self::code) of a request that this crate refused before it called the library.
    pub const REFUSED: i32 = -3;

    #[cold]
    pub(crate) fn missing(call: &'static str) -> Self {
        FabricError {
            call,
            code: Self::MISSING,
            name: "missing operation",
            text: "the provider's table does not have it".to_owned(),
        }
    }

    #[cold]
    pub(crate) fn unexpected(call: &'static str, text: impl Into<String>) -> Self {
        FabricError {
            call,
            code: Self::UNEXPECTED,
            name: "unexpected answer",
            text: text.into(),
        }
    }

    #[cold]
    pub(crate) fn refused(call: &'static str, text: impl Into<String>) -> Self {
        FabricError {
            call,
            code: Self::REFUSED,
            name: "refused",
            text: text.into(),
        }
    }

    /// The provider cannot do this: `FI_ENOSYS`, `FI_EOPNOTSUPP`, or an operation that its table lacks.
    pub fn is_not_supported(&self) -> bool {
        matches!(
            self.code,
            Self::MISSING | sys::FI_ENOSYS | sys::FI_EOPNOTSUPP
        )
    }

    /// The provider's table does not have the operation.
    pub fn is_missing(&self) -> bool {
        self.code == Self::MISSING
    }

    /// This crate refused the request before it called the library, because it cannot be right.
    pub fn is_refused(&self) -> bool {
        self.code == Self::REFUSED
    }

    /// `FI_ENODATA`: nothing fits the request.
    pub fn is_no_data(&self) -> bool {
        self.code == sys::FI_ENODATA
    }

    /// `FI_EBUSY`: something still uses the object.
    pub fn is_busy(&self) -> bool {
        self.code == sys::FI_EBUSY
    }

    /// `FI_EAGAIN`. Methods that post, read or wait return it as an answer, not as this error.
    pub fn is_again(&self) -> bool {
        self.code == sys::FI_EAGAIN
    }

    /// A resource ran out: `FI_ENOMEM`, `FI_ENOSPC`, `FI_EMFILE`, `FI_ENOBUFS`.
    pub fn is_exhausted(&self) -> bool {
        matches!(
            self.code,
            sys::FI_ENOMEM | sys::FI_ENOSPC | sys::FI_EMFILE | sys::FI_ENOBUFS
        )
    }
}

impl std::fmt::Display for FabricError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.call, self.name)?;
        if self.code > 0 {
            write!(f, " ({})", self.code)?;
        }
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for FabricError {}

/// The name of a (positive) code, as in `fi_errno.h`.
pub fn errno_name(code: i32) -> &'static str {
    sys::ERRNO_NAMES
        .iter()
        .find(|(known, _)| *known == code)
        .map_or("unknown code", |(_, name)| name)
}

impl Library {
    /// The library's words for a (positive) code (`fi_strerror`).
    pub fn describe(&self, code: i32) -> String {
        // SAFETY: the function takes any number.
        let text = unsafe { (self.functions().strerror)(code) };
        if text.is_null() {
            return String::new();
        }
        // SAFETY: it returns a string that ends with a NUL, and that lives at least until this thread calls it again.
        unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned()
    }

    /// The error that a negative answer of `call` stands for.
    #[cold]
    pub(crate) fn error(&self, call: &'static str, answer: i64) -> FabricError {
        let Ok(code) = i32::try_from(answer.unsigned_abs()) else {
            return FabricError::unexpected(call, format!("the answer {answer}"));
        };
        FabricError {
            call,
            code,
            name: errno_name(code),
            text: self.describe(code),
        }
    }

    /// The answer of a call as a result. Only 0 is success. Some providers answer with a positive number, whether they
    /// mean an error or nothing.
    pub(crate) fn check(&self, call: &'static str, answer: i64) -> Result<()> {
        if answer == 0 {
            return Ok(());
        }
        Err(self.error(call, answer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_have_the_names_of_the_header() {
        assert_eq!(errno_name(sys::FI_EAGAIN), "FI_EAGAIN");
        assert_eq!(errno_name(259), "FI_EAVAIL");
        assert_eq!(errno_name(12_345), "unknown code");
        let mut codes: Vec<_> = sys::ERRNO_NAMES.iter().map(|(code, _)| code).collect();
        codes.sort();
        codes.dedup();
        assert_eq!(codes.len(), sys::ERRNO_NAMES.len());
    }

    #[test]
    fn an_error_says_what_was_called_and_what_came_back() {
        let error = FabricError {
            call: "fi_domain",
            code: 16,
            name: "FI_EBUSY",
            text: "busy".to_owned(),
        };
        assert_eq!(error.to_string(), "fi_domain: FI_EBUSY (16): busy");
        let missing = FabricError::missing("fi_atomic");
        assert!(missing.is_missing() && missing.is_not_supported());
        assert_eq!(
            missing.to_string(),
            "fi_atomic: missing operation: the provider's table does not have it"
        );
        assert!(FabricError::refused("x", "y").is_refused());
    }
}
