//! The program `tidegate`, with ranks that are this program again, or shells.

#![forbid(unsafe_code)]

mod launcher;
mod ssh;
mod sshd;

#[path = "../../../../tests/processes/mod.rs"]
mod processes;
#[path = "../../../../tests/common/ring.rs"]
mod ring;
#[path = "../../../../tests/common/skip.rs"]
mod skip;
