//! The children of tests that need processes: this program starts itself again for each role.

use tidegate::cuda::gpu::SHARE;

use super::rules::{self, ROLE};
use super::{early, mps, registers};
use crate::gpu::common::ranks;

/// The children's program. It does nothing in a normal test run.
#[test]
#[ignore = "is started by the tests of rules"]
fn a_rank() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    match &*role {
        "load raw" | "use raw" | "free raw" | "load" | "use" | "free" => {
            ranks(1, |world, k| rules::behind_a_wait(&world, &k, &role));
        }
        "register" | "unregister raw" => {
            ranks(1, |world, _| {
                registers::behind_a_wait(&world, role != "register")
            });
        }
        "queues" => rules::queues(false),
        "queues, and a lie" => rules::queues(true),
        "fill" => {
            ranks(1, |world, _| {
                rules::spin(&world, 2 * world.device().multiprocessors())
            });
        }
        "share" => {
            let share = |all: usize| all * SHARE.0 / SHARE.1;
            ranks(1, |world, _| {
                rules::spin(&world, share(world.device().multiprocessors()))
            });
        }
        "quota" => {
            ranks(1, |world, _| rules::quota(&world));
        }
        "to and fro" => rules::to_and_fro(),
        "all wait" => mps::all_wait(),
        "early" | "early, by words" | "early, and a lie" => {
            let len = if role == "early, by words" { 1024 } else { 8 };
            let lie = role == "early, and a lie";
            ranks(1, |world, k| early::behind_a_wait(&world, &k, len, lie));
        }
        "not exposed" => {
            ranks(2, |world, k| rules::not_exposed(&world, &k));
        }
        _ => panic!("no such role: {role}"),
    }
}
