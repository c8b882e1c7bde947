//! The seat of each rank of this machine: its place, device, address and processors.

use super::bind::{Bind, Binding, Masks, plan};
use super::error::LaunchError;
use super::job::Job;
use super::meeting::MeetingPoint;
use super::nodes::RankPlace;
use std::ffi::OsString;
use std::net::IpAddr;
use std::path::Path;
use tidegate_boot::starter::DEVICE;

/// The place, device, address and processors of one rank.
pub(super) struct RankSeat {
    pub(super) rank: usize,
    pub(super) place: RankPlace,
    /// The name of its node. `None`: the rank finds out itself.
    pub(super) node_name: Option<String>,
    /// The device that it takes. `None`: by its place on its node.
    pub(super) device: Option<usize>,
    /// The address that NICs use. `None`: they choose.
    pub(super) address: Option<IpAddr>,
    /// How many ranks this machine has.
    pub(super) ranks_here: usize,
    pub(super) binding: Option<Binding>,
}

/// The seats of a job whose ranks are all on this machine.
pub(super) fn seats(job: &Job, meeting: &MeetingPoint) -> Vec<RankSeat> {
    let seat = |rank: usize| {
        let all_on_one = RankPlace {
            node: 0,
            local: rank,
            of: job.ranks,
        };
        let place = job.nodes.as_ref().and_then(|nodes| nodes.place(rank));
        let place = place.unwrap_or(all_on_one);
        let is_several = job.nodes.is_some() || job.bed.is_some();
        RankSeat {
            rank,
            place,
            node_name: is_several.then(|| format!("node{}", place.node)),
            // All nodes are this machine, and share its devices.
            device: job.nodes.is_some().then_some(rank),
            address: match &job.bed {
                Some(bed) => Some(IpAddr::V4(bed.address(place.node))),
                None => meeting.host.parse().ok(),
            },
            ranks_here: job.ranks,
            binding: None,
        }
    };
    (0..job.ranks).map(seat).collect()
}

/// Gives each rank of this machine its processors, if the job binds them, and checks that the kernel agrees. Returns a
/// line for each rank, for the user.
pub(super) fn bind(job: &Job, seats: &mut [RankSeat]) -> Result<Vec<String>, LaunchError> {
    if job.bind == Bind::None {
        return Ok(Vec::new());
    }
    let numbers: Vec<usize> = seats.iter().map(|seat| device_number(job, seat)).collect();
    let first = seats.first().map_or(0, |seat| seat.rank);
    let visible = variable(job, first, "CUDA_VISIBLE_DEVICES");
    let visible = visible.map(|value| value.to_string_lossy().into_owned());
    let bindings = plan(job.bind, Path::new("/"), &numbers, visible.as_deref())?;
    for binding in &bindings {
        Masks::of(binding).attempt(binding)?;
    }
    let mut lines = Vec::new();
    for (seat, binding) in seats.iter_mut().zip(bindings) {
        lines.push(format!("rank {}: {binding}", seat.rank));
        seat.binding = Some(binding);
    }
    Ok(lines)
}

/// The number of the device that a rank takes, by the rule of `World::init`.
fn device_number(job: &Job, seat: &RankSeat) -> usize {
    let said = said(job, seat.rank, DEVICE).and_then(|value| value.to_str()?.trim().parse().ok());
    let inherited = || std::env::var(DEVICE).ok()?.trim().parse().ok();
    said.or(seat.device)
        .or_else(inherited)
        .unwrap_or(seat.place.local)
}

/// The value of a variable in a rank.
fn variable(job: &Job, rank: usize, name: &str) -> Option<OsString> {
    said(job, rank, name).or_else(|| std::env::var_os(name))
}

/// The value of a variable, if the job sets it.
fn said(job: &Job, rank: usize, name: &str) -> Option<OsString> {
    let own = job
        .rank_envs
        .iter()
        .rev()
        .find(|(of, own, _)| *of == rank && own == name);
    let all = || job.envs.iter().rev().find(|(own, _)| own == name);
    let own = own.map(|(_, _, value)| value.clone());
    own.or_else(|| Some(all()?.1.clone()))
}
