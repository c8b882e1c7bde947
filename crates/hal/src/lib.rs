//! What a device, a stream and a control plane must do for tidegate.

pub mod control;
