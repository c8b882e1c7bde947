//! Ranks over a net that changes the order of everything, and may lose it.

use std::sync::Arc;
use std::time::Duration;

use tidegate_boot::LocalControl;
use tidegate_core::error::Cause;
use tidegate_core::{Error, Result, Route, World, WorldOptions};
use tidegate_fabric::{Fabric, Options};
use tidegate_fake::wire::{Faults, Net};
use tidegate_hal::control::Control as _;
use tidegate_host::Host;

pub(crate) const LONG: Duration = Duration::from_secs(100);

/// A net that changes the order of everything.
pub(crate) fn wild(seed: u64) -> Faults {
    Faults {
        seed,
        full: 300,
        delay: 20,
        ..Faults::default()
    }
}

/// A wild net that also loses messages (with even seeds), or whose operations fail.
pub(crate) fn lossy(seed: u64) -> Faults {
    let some = |is_so: bool| if is_so { 60 } else { 0 };
    Faults {
        lose: some(seed.is_multiple_of(2)),
        fail: some(!seed.is_multiple_of(2)),
        ..wild(seed)
    }
}

/// All ranks reach each other by the NIC.
pub(crate) fn by_nic(net: &Net, options: &Options) -> impl Fn(usize) -> WorldOptions + Sync {
    move |rank| {
        WorldOptions::new()
            .nic(Fabric::over(net.wire(rank), options.clone()))
            .route(Route::Nic)
    }
}

/// Runs a program on three ranks, in which rank 2 dies. Checks that it ends on the others, with an error that names rank
/// 2. The seed is for messages.
pub(crate) fn rank_2_dies(
    seed: u64,
    options: impl Fn(usize) -> WorldOptions,
    program: impl Fn(&LocalControl, &World<Host>) -> Result<()> + Sync,
) {
    let program = &program;
    let ended = std::thread::scope(|scope| {
        let ranks = tidegate_boot::local(3).into_iter().map(|control| {
            let options = options(control.rank());
            scope.spawn(move || {
                let plane = Arc::new(control);
                let device = Host::for_threads();
                // SAFETY: it is a control plane of this crate.
                let world = unsafe { World::from_control_with(plane.clone(), device, options) };
                program(&plane, &world?)
            })
        });
        let ranks: Vec<_> = ranks.collect();
        let ended = ranks.into_iter().map(|rank| rank.join().unwrap());
        ended.collect::<Vec<_>>()
    });
    for (rank, ended) in ended.into_iter().enumerate().take(2) {
        let cause = match ended {
            Err(Error::Wait(why)) => why.cause,
            Err(Error::Revoked { cause, .. }) => cause,
            other => panic!("seed {seed}, rank {rank}: {other:?}"),
        };
        let lost = matches!(cause, Cause::PeerLost { rank: 2, .. });
        assert!(lost, "seed {seed}, rank {rank}: {cause:?}");
    }
}
