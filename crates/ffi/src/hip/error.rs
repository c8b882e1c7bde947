//! Errors of the runtime.

use tidegate_hal::device::{DriverError, ErrorKind};

use super::sys;

/// The result of a call of the runtime.
pub type Result<T, E = HipError> = std::result::Result<T, E>;

/// A version as people write it.
pub fn version_text(version: i32) -> String {
    format!("{}.{}", version / 10_000_000, version / 100_000 % 100)
}

/// The runtime refused a call, or reports in it an error that happened earlier on the device.
///
/// The code stays a number: newer runtimes return codes that this crate does not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HipError {
    /// The function that was called.
    pub call: &'static str,
    /// The `hipError_t`; or [`HipError::MISSING`] or [`HipError::FORKED`], which no runtime returns.
    pub code: i32,
    /// The code's name (`hipError…`).
    pub name: String,
    /// The runtime's description. It can be empty.
    pub text: String,
}

impl HipError {
    /// The [`code`](Self::code) of a call of a function that the loaded library does not have.
    pub const MISSING: i32 = -1;
    /// The [`code`](Self::code) of a call that was not made, since this process was forked from the one that loaded the
    /// library.
    pub const FORKED: i32 = -2;

    #[cold]
    pub(crate) fn missing(call: &'static str, library: &str, version: i32) -> Self {
        HipError {
            call,
            code: Self::MISSING,
            name: "missing function".to_owned(),
            text: format!("{library} (HIP {}) does not have it", version_text(version)),
        }
    }

    #[cold]
    pub(crate) fn forked(call: &'static str) -> Self {
        HipError {
            call,
            code: Self::FORKED,
            name: "forked".to_owned(),
            text: tidegate_hal::process::Forked.to_string(),
        }
    }

    fn is(&self, code: sys::hipError_t) -> bool {
        self.code == code as i32
    }

    /// The loaded library does not have the function.
    pub fn is_missing(&self) -> bool {
        self.code == Self::MISSING
    }

    /// There is no AMD GPU that the process may use. HIP 5 says it by `hipErrorInvalidDevice`, if `hipInit` returns
    /// that.
    pub fn is_no_device(&self) -> bool {
        self.is(sys::hipErrorNoDevice)
            || self.call == "hipInit" && self.is(sys::hipErrorInvalidDevice)
    }

    /// `hipErrorPeerAccessAlreadyEnabled`.
    pub fn is_already_enabled(&self) -> bool {
        self.is(sys::hipErrorPeerAccessAlreadyEnabled)
    }

    /// What to decide by. A function that the library does not have is unsupported.
    pub fn kind(&self) -> ErrorKind {
        let Ok(code) = u32::try_from(self.code) else {
            return match self.code {
                Self::FORKED => ErrorKind::Forked,
                _ => ErrorKind::Unsupported,
            };
        };
        match code {
            sys::hipErrorInvalidValue => ErrorKind::Invalid,
            sys::hipErrorOutOfMemory => ErrorKind::OutOfMemory,
            sys::hipErrorHostMemoryAlreadyRegistered => ErrorKind::AlreadyRegistered,
            sys::hipErrorNotSupported => ErrorKind::Unsupported,
            sys::hipErrorECCNotCorrectable
            | sys::hipErrorIllegalAddress
            | sys::hipErrorLaunchTimeOut
            | sys::hipErrorContextIsDestroyed
            | sys::hipErrorAssert
            | sys::hipErrorLaunchFailure => ErrorKind::ContextLost,
            sys::hipErrorStreamCaptureUnsupported..=sys::hipErrorStreamCaptureWrongThread => {
                ErrorKind::Capture
            }
            _ => ErrorKind::Other,
        }
    }
}

impl From<HipError> for DriverError {
    #[cold]
    fn from(error: HipError) -> Self {
        DriverError {
            device: "hip",
            kind: error.kind(),
            text: error.to_string(),
        }
    }
}

impl std::fmt::Display for HipError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.call, self.name)?;
        // The crate's own codes tell a reader nothing.
        if self.code > 0 {
            write!(f, " ({})", self.code)?;
        }
        if !self.text.is_empty() {
            write!(f, ": {}", self.text)?;
        }
        Ok(())
    }
}

impl std::error::Error for HipError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(code: u32) -> HipError {
        HipError {
            call: "hipX",
            code: code as i32,
            name: "N".into(),
            text: "t".into(),
        }
    }

    #[test]
    fn kinds_and_predicates_know_their_codes() {
        for (code, kind) in [
            (0, ErrorKind::Other),
            (1, ErrorKind::Invalid),
            (2, ErrorKind::OutOfMemory),
            (701, ErrorKind::Other),
            (712, ErrorKind::AlreadyRegistered),
            (801, ErrorKind::Unsupported),
            (899, ErrorKind::Other),
            (909, ErrorKind::Other),
            (999, ErrorKind::Other),
        ] {
            assert_eq!(with(code).kind(), kind, "{code}");
        }
        for capture in 900..=908 {
            assert_eq!(with(capture).kind(), ErrorKind::Capture, "{capture}");
        }
        for lost in [214, 700, 702, 709, 710, 719] {
            assert_eq!(with(lost).kind(), ErrorKind::ContextLost, "{lost}");
        }
        assert!(with(704).is_already_enabled() && !with(705).is_already_enabled());
        assert!(with(100).is_no_device() && !with(101).is_no_device());
        let init = HipError {
            call: "hipInit",
            ..with(101)
        };
        assert!(init.is_no_device() && !init.is_missing());
    }

    #[test]
    fn an_error_says_what_was_called_and_what_came_back() {
        assert_eq!(with(2).to_string(), "hipX: N (2): t");
        let missing = HipError::missing("hipY", "libamdhip64.so.6", 60_142_134);
        assert!(missing.is_missing());
        assert_eq!(missing.kind(), ErrorKind::Unsupported);
        assert_eq!(
            missing.to_string(),
            "hipY: missing function: libamdhip64.so.6 (HIP 6.1) does not have it"
        );
        let forked = HipError::forked("hipZ");
        assert_eq!(forked.kind(), ErrorKind::Forked);
        assert!(forked.to_string().starts_with("hipZ: forked: "));
    }
}
