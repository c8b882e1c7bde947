//! Kernels that own halves of windows, in processes one of which is killed.

use std::time::Duration;

use tidegate::host::prelude::*;

use crate::jobs::SOON;
use crate::processes::{self, LONG, error, lines, longest_survival, set_flag};

/// How many epochs both kernels make before one of the processes is killed.
const EPOCHS: u64 = 1000;

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| {
        let (victim, inline) = match role {
            "victim 0" => (0, false),
            "victim 1" => (1, false),
            "victim 0, inline" => (0, true),
            "victim 1, inline" => (1, true),
            other => panic!("there is no role {other}"),
        };
        owns(&world, victim, inline)
    });
}

/// A kernel that makes epochs as long as its peer does. The victim's stops in the middle of an epoch.
fn owns(world: &World, victim: usize, inline: bool) -> Result<()> {
    stream!(let s = if inline { world.inline_stream()? } else { world.stream()? });
    let (me, other) = (world.rank(), 1 - world.rank());
    let mut window = SlotWindow::<u64>::new("lent");
    let (from, to) = (window.slot_from(other, 0, 1), window.slot_to(other, 0));
    let (mut inbox, mut outbox) = window.open(&s)?;
    let kernel = move |mut inbox: KernelInbox<'_, u64>, mut outbox: KernelOutbox<'_, u64>| {
        for epoch in 0.. {
            let exposed = inbox.post();
            let mut access = outbox.start();
            access.put_one(to, 0, epoch);
            if epoch == EPOCHS {
                set_flag(&format!("ready-{me}"));
                if me == victim {
                    std::thread::sleep(LONG);
                }
            }
            outbox = access.complete();
            inbox = exposed.wait();
            assert_eq!(inbox.read()[from], [epoch]);
        }
    };
    s.launch(kernel, (inbox.lend(), outbox.lend()))?;
    s.synchronize()
}

#[test]
fn a_kernel_that_waits_ends_when_the_process_of_its_peer_is_killed() {
    for victim in [0, 1] {
        for inline in ["", ", inline"] {
            let role = format!("victim {victim}{inline}");
            let job = processes::start("lent::a_rank", &role, 2);
            job.wait_ready();
            // The other kernel waits for the victim's complete by then.
            std::thread::sleep(Duration::from_millis(50));
            job.kill(victim);
            let outcome = job.finish();
            let survivor = &outcome.ranks[1 - victim];
            let (told, kind) = (error(survivor), lines(survivor, "kind: ").next());
            assert_eq!(kind, Some("wait"), "{told}");
            let parts = [
                "window `lent`".to_owned(),
                format!(", epoch {EPOCHS}, enqueued at tests/jobs/lent.rs"),
                format!("wait for rank {victim} (its complete) failed: rank {victim} is lost ("),
            ];
            for part in parts {
                assert!(told.contains(&part), "{told}");
            }
            let took = longest_survival(&outcome, victim);
            println!("{role}: the error came {took:?} later");
            assert!(took < SOON, "{took:?}");
        }
    }
}
