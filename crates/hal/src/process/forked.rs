//! The error of a forked child. It has a module of its own because the errors of devices and of the control plane
//! contain it.

/// The call is not possible, because this process was made by `fork` after the value was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "this process was made by `fork` from the one that joined the job: streams, windows and the control plane stay with \
     that one, and here they can only be dropped (to start another program, use `std::process::Command`)"
)]
pub struct Forked;
