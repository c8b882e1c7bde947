//! The events of a rank that has joined: what it is, and how it reaches the others.

use std::fmt::Write as _;

use tidegate_hal::device::Device;
use tidegate_hal::tell;

use super::inner::World;
use crate::nic::Route;

/// Tells a subscriber of `tracing` what this rank is, and how it reaches the others.
pub(super) fn tell_joined<D: Device>(world: &World<D>) {
    tell(|| {
        // The loops over all ranks are for those who listen.
        if !tracing::event_enabled!(tracing::Level::INFO) {
            return;
        }
        let (rank, size) = (world.rank(), world.size());
        let node = |rank: usize| world.inner.control.node(rank);
        let mine = node(rank);
        let device = world.device().describe();
        tracing::info!("joined: rank {rank} of {size}, on node {mine}, with {device}");
        let way = |peer: usize| {
            let near = node(peer) == mine;
            let asks = match &world.inner.route {
                Route::Nic => true,
                Route::NicTo(ranks) => ranks.contains(&peer),
                Route::Auto | Route::Mapped => false,
            };
            match (world.by_nic(peer, world.bell(peer).is_some()), near) {
                (false, true) => "mapped memory, on the same node",
                (false, false) => "none, since the route allows no NIC to another node",
                (true, _) if asks => "NIC, because the route asks for it",
                (true, false) => "NIC, to another node",
                (true, true) => "NIC, because the device cannot map this memory of the same node",
            }
        };
        let mut ways: Vec<(&str, Vec<usize>)> = Vec::new();
        for peer in (0..size).filter(|peer| *peer != rank) {
            let way = way(peer);
            match ways.iter_mut().find(|(known, _)| *known == way) {
                Some((_, peers)) => peers.push(peer),
                None => ways.push((way, vec![peer])),
            }
        }
        for (way, peers) in ways {
            let s = if peers.len() == 1 { "" } else { "s" };
            tracing::info!("route to rank{s} {}: {way}", in_short(&peers));
        }
    });
}

/// Ascending numbers, with runs in short: `0-3, 5`.
fn in_short(numbers: &[usize]) -> String {
    let mut text = String::new();
    for run in numbers.chunk_by(|a, b| a + 1 == *b) {
        let comma = if text.is_empty() { "" } else { ", " };
        // Writing to a `String` does not fail.
        let _ = match run {
            [one] => write!(text, "{comma}{one}"),
            [first, .., last] => write!(text, "{comma}{first}-{last}"),
            [] => unreachable!("runs are not empty"),
        };
    }
    text
}

#[cfg(test)]
mod tests {
    use super::in_short;

    #[test]
    fn runs_are_in_short() {
        assert_eq!(in_short(&[0, 1, 2, 5, 7, 8]), "0-2, 5, 7-8");
        assert_eq!(in_short(&[4]), "4");
    }
}
