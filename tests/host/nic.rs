//! The ring over a NIC, with ranks as threads and as processes.

use std::time::Duration;

use tidegate::host::prelude::*;
use tidegate::{Route, WorldOptions};
use tidegate_loopback::{Loopback, Options};

use crate::common::{ring, signals};

const BUFFERS: [Buffers; 2] = [Buffers::Single, Buffers::Double];

fn run(n: usize, rounds: u64, options: &Options, route: impl Fn(usize) -> Route + Sync) {
    for (buffers, staged) in BUFFERS
        .into_iter()
        .flat_map(|each| [(each, false), (each, true)])
    {
        let nic = |rank| {
            let world = WorldOptions::new()
                .nic(Loopback::new(options.clone()))
                .route(route(rank));
            if staged { world.staged() } else { world }
        };
        for result in World::local_with(n, nic, |world| ring::run(world, buffers, rounds)) {
            result.unwrap();
        }
    }
}

#[test]
fn all_by_the_nic() {
    for n in [1, 2, 3, 8] {
        run(n, 20, &Options::default(), |_| Route::Nic);
    }
}

#[test]
fn some_mapped_and_some_by_the_nic() {
    let options = Options::default();
    for n in [2, 3, 8] {
        // One epoch serves both kinds; and one neighbour may map the other while the other does not.
        run(n, 20, &options, |rank| {
            Route::NicTo([(rank + 1) % n].into())
        });
        run(n, 20, &options, |rank| {
            [Route::Nic, Route::Mapped][rank % 2].clone()
        });
    }
    run(2, 20, &options, |_| Route::Auto);
}

#[test]
fn signals_without_data_and_barriers() {
    for n in [1, 2, 3, 5] {
        for staged in [false, true] {
            // By the NIC, mapped, and mixed: rank 0 is far from all others, as if on a node of its own.
            for far in ["none", "rank 0", "all"] {
                let nic = |rank| {
                    let to: &[usize] = match far {
                        "none" => &[],
                        "rank 0" if rank != 0 => &[0],
                        _ => &[0, 1, 2, 3, 4],
                    };
                    let world = WorldOptions::new()
                        .nic(Loopback::default())
                        .route(Route::NicTo(
                            to.iter().copied().filter(|to| *to < n).collect(),
                        ));
                    if staged { world.staged() } else { world }
                };
                for result in World::local_with(n, nic, |world: World| signals::run(&world)) {
                    result.unwrap();
                }
            }
        }
    }
}

#[test]
fn sources_are_read_late() {
    let options = Options::default().delay(Duration::from_micros(300));
    run(3, 10, &options, |_| Route::Nic);
}

#[test]
fn with_a_budget_of_one() {
    for n in [1, 3] {
        run(n, 10, &Options::default().budget(1), |_| Route::Nic);
    }
    run(2, 10, &Options::default().budget(5), |_| Route::Nic);
}

/// This is not a test, but the program of the next test's ranks.
#[test]
fn role_of_a_rank() {
    if std::env::var_os("TEST_NIC_RANK").is_none() {
        return;
    }
    for buffers in BUFFERS {
        let options = WorldOptions::new().nic(Loopback::default());
        ring::run(World::init_with(options).unwrap(), buffers, 10).unwrap();
        if std::env::var_os("RANK").is_some() {
            // A job is joined once.
            break;
        }
    }
}

#[test]
fn processes_with_the_nic_forced() {
    for (n, route) in [(1, "nic"), (2, "nic"), (3, "nic:0,1"), (4, "nic")] {
        let job = tidegate_cli::Job::new(std::env::current_exe().unwrap(), n)
            .arg("--exact")
            .arg("nic::role_of_a_rank")
            .arg("--nocapture")
            .env("TEST_NIC_RANK", "1")
            .env(Route::VARIABLE, route)
            .output(tidegate_cli::Output::Captured);
        let outcome = job.run().unwrap();
        let said: Vec<_> = outcome
            .ranks
            .iter()
            .map(|end| String::from_utf8_lossy(&end.stdout).into_owned())
            .collect();
        assert!(outcome.success(), "{n} ranks, {route}: {said:#?}");
    }
}

#[test]
fn a_route_needs_its_nic() {
    let options = |_| WorldOptions::new().route(Route::Nic);
    for error in World::local_with(1, options, |world| {
        ring::run(world, Buffers::Single, 1)
            .unwrap_err()
            .to_string()
    }) {
        assert!(
            error.contains("rank 0 must be reached by a NIC, but this rank has none"),
            "{error}"
        );
    }
}
