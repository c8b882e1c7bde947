//! A rank as the launcher sees it, on this machine or another.

use super::child::RankChild;
use super::stopped::Stopped;
use std::process::ExitStatus;
use std::time::Duration;

/// A rank of the job.
pub(super) struct Rank {
    pub(super) pid: u32,
    pub(super) process: RankPlacement,
    pub(super) ended: Option<(ExitStatus, Duration)>,
    pub(super) captured: [Vec<u8>; 2],
    /// When it has ended: because of which rank a call of it failed, as far as it has told.
    pub(super) because_of: Option<usize>,
}

impl Rank {
    /// Whether it has ended, and without an error.
    pub(super) fn has_succeeded(&self) -> bool {
        self.ended.is_some_and(|(status, _)| status.success())
    }

    /// Its process, if it is on this machine.
    pub(super) fn child(&self) -> Option<&RankChild> {
        match &self.process {
            RankPlacement::Here(child) => Some(child),
            RankPlacement::There(_) => None,
        }
    }
}

/// The place of a rank.
pub(super) enum RankPlacement {
    /// On this machine.
    Here(RankChild),
    /// On one of the hosts.
    There(usize),
}

/// The running ranks of this machine, each with its stopped process, if any.
pub(super) fn stopped_now(ranks: &[Rank]) -> impl Iterator<Item = (usize, Option<Stopped>)> {
    ranks.iter().enumerate().filter_map(|(rank, own)| {
        let child = own.child().filter(|child| child.pidfd().is_some())?;
        Some((rank, child.look()))
    })
}
