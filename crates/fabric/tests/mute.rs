//! Epochs between nodes on a device whose streams turn no engine and ring no bell, as those of GPUs. A thread must look
//! at every doorbell that is rung, whatever the engine is doing.

#[path = "../../core/src/nic/tests/hosted.rs"]
mod hosted;
mod rig;
#[path = "rig/watched.rs"]
mod watched;

use std::sync::OnceLock;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hosted::By;
use tidegate_core::window::{SlotWindow, exchange};
use tidegate_core::{Region, Result, Route, World, WorldOptions, stream};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::wire::{Faults, Net};
use tidegate_host::HostStream;

type Mute = By<HostStream, true>;

const RANKS: usize = 2;
const EPOCHS: u64 = 20;
/// Less than the sleep of a listener that nobody wakes.
const LONG: Duration = Duration::from_secs(300);

/// Rank `r` sends `1000 r + epoch` each time when its listener has gone to sleep. Returns the numbers that came.
fn epochs(world: &World<Mute>, seen: &watched::Seen) -> Result<Vec<u64>> {
    stream!(let s = world.stream()?);
    let (rank, peer) = (world.rank() as u64, 1 - world.rank());
    let mut window = SlotWindow::new("mute").fail_after(LONG);
    let from = window.slot_from(peer, 0, 1);
    let to = window.slot_to(peer, 0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    let mut came = Vec::new();
    for epoch in 0..EPOCHS {
        let src = Region::from_slice(world, &[1000 * rank + epoch])?.on(&s)?;
        seen.await_sleep();
        let mut access = outbox.start();
        access.put(&src, to)?;
        (inbox, outbox) = exchange(&s, inbox, access)?;
        came.push(inbox.read(&s)?.slot(from)[0]);
    }
    Ok(came)
}

/// After a put its signal is in doubt, and listeners sleep until the next tick. Here there are no ticks, and a listener
/// that is not woken sleeps longer than any wait may last.
#[test]
fn each_doorbell_is_looked_at() {
    let net = Net::new(RANKS, Faults::default());
    let seen = [const { OnceLock::new() }; RANKS];
    let options = |rank: usize| {
        let (wire, watcher) = watched::watch(net.wire(rank));
        watcher.sleeps_on.store(true, Ordering::SeqCst);
        assert!(seen[rank].set(watcher).is_ok());
        let nic = Fabric::over(wire, Options::default());
        WorldOptions::new().nic(nic).route(Route::Nic)
    };
    let all = World::local_with(RANKS, options, |world: World<Mute>| {
        epochs(&world, seen[world.rank()].get().expect("it has a wire"))
    });
    for (rank, came) in all.into_iter().enumerate() {
        let peer = 1 - rank as u64;
        let expected: Vec<_> = (0..EPOCHS).map(|epoch| 1000 * peer + epoch).collect();
        assert_eq!(came.expect("no wait is in vain"), expected);
    }
}
