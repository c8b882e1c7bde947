//! Errors of the runtime.

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

    /// The call was not made, since this process was forked from the one that loaded the library.
    pub fn is_forked(&self) -> bool {
        self.code == Self::FORKED
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

    /// `hipErrorInvalidValue`.
    pub fn is_invalid_value(&self) -> bool {
        self.is(sys::hipErrorInvalidValue)
    }

    /// `hipErrorOutOfMemory`: of the device, of the host, or of addresses.
    pub fn is_out_of_memory(&self) -> bool {
        self.is(sys::hipErrorOutOfMemory)
    }

    /// `hipErrorHostMemoryAlreadyRegistered`.
    pub fn is_already_registered(&self) -> bool {
        self.is(sys::hipErrorHostMemoryAlreadyRegistered)
    }

    /// `hipErrorPeerAccessAlreadyEnabled`.
    pub fn is_already_enabled(&self) -> bool {
        self.is(sys::hipErrorPeerAccessAlreadyEnabled)
    }

    /// The runtime or the device cannot do this: `hipErrorNotSupported`, or a function that the library does not have.
    pub fn is_not_supported(&self) -> bool {
        self.is(sys::hipErrorNotSupported) || self.is_missing()
    }

    /// The call is not possible in a capture, or spoils it: `hipErrorStreamCapture…`, `hipErrorCapturedEvent`.
    pub fn is_capture_error(&self) -> bool {
        let range = sys::hipErrorStreamCaptureUnsupported..=sys::hipErrorStreamCaptureWrongThread;
        u32::try_from(self.code).is_ok_and(|code| range.contains(&code))
    }

    /// The device's work was torn down, and the process can do nothing more with the device.
    pub fn is_context_lost(&self) -> bool {
        [
            sys::hipErrorECCNotCorrectable,
            sys::hipErrorIllegalAddress,
            sys::hipErrorLaunchTimeOut,
            sys::hipErrorContextIsDestroyed,
            sys::hipErrorAssert,
            sys::hipErrorLaunchFailure,
        ]
        .iter()
        .any(|code| self.is(*code))
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
    fn predicates_know_their_codes() {
        assert!(with(1).is_invalid_value() && !with(2).is_invalid_value());
        assert!(with(2).is_out_of_memory() && with(801).is_not_supported());
        assert!(with(712).is_already_registered() && with(704).is_already_enabled());
        for capture in 900..=908 {
            assert!(with(capture).is_capture_error());
        }
        assert!(!with(909).is_capture_error() && !with(899).is_capture_error());
        for lost in [214, 700, 702, 709, 710, 719] {
            assert!(with(lost).is_context_lost());
        }
        assert!(!with(701).is_context_lost() && !with(999).is_context_lost());
        assert!(with(100).is_no_device() && !with(101).is_no_device());
        let init = HipError {
            call: "hipInit",
            ..with(101)
        };
        assert!(init.is_no_device());
        let none: [fn(&HipError) -> bool; 3] = [
            HipError::is_missing,
            HipError::is_forked,
            HipError::is_capture_error,
        ];
        assert!(none.iter().all(|is| !is(&with(0)) && !is(&with(999))));
    }

    #[test]
    fn an_error_says_what_was_called_and_what_came_back() {
        assert_eq!(with(2).to_string(), "hipX: N (2): t");
        let missing = HipError::missing("hipY", "libamdhip64.so.6", 60_142_134);
        assert!(missing.is_missing() && missing.is_not_supported());
        assert_eq!(
            missing.to_string(),
            "hipY: missing function: libamdhip64.so.6 (HIP 6.1) does not have it"
        );
        let forked = HipError::forked("hipZ");
        assert!(forked.is_forked() && forked.to_string().starts_with("hipZ: forked: "));
    }
}
