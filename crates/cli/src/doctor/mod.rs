//! `tidegate doctor`: what is wrong with a job, what to do about it, and how fast each pair of ranks is.
//!
//! # Model
//!
//! The launcher starts a job whose ranks are this program (`--job-only`). A rank looks at its own limits, variables and
//! processors first ([`facts`]), and tells the others through the control plane, which needs neither a device nor a NIC.
//! Then ranks of different nodes call each other at the addresses that their NICs will use ([`reach`]). So a wrong
//! address is found before a NIC waits for it, and the same calls compare the clocks. Only then the ranks make a
//! world, which opens devices and NICs, and measure each pair ([`pairs`]), in rounds in which each rank has one partner.
//!
//! All ranks have the facts and the figures of all. Rank 0 judges them ([`judge`]), and writes the report. A finding
//! ([`finding`]) has its two lines in one place.
//!
//! # Failure
//!
//! Each step has an end. Calls and the rendezvous have limits, and a thread ends a rank that takes too long, with what is
//! known by then ([`patience`]). If the ranks do not meet, or cannot make a world, the findings up to there are told,
//! and the error is one of them.

mod args;
mod facts;
mod figures;
mod finding;
mod html;
mod judge;
mod pairs;
mod patience;
mod rank;
mod reach;
mod report;

pub(super) use args::DoctorArgs;
