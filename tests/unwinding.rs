//! A panic that unwinds past several streams ends their waits, also where one of them waits for another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use tidegate::Buffers;
use tidegate::prelude::*;

fn halves<'s>(s: &Stream<'s>, peer: usize) -> Result<(Inbox<'s, u64>, Outbox<'s, u64>)> {
    let window = Window::by_slot("w").buffers(Buffers::Single);
    window.slot_from(peer, 0, 1).slot_to(peer, 0).open(s)
}

#[test]
fn a_stream_that_waits_for_another_is_not_waited_for_in_vain() {
    let ended = catch_unwind(AssertUnwindSafe(|| {
        World::local(2, |world| -> Result<()> {
            let rank = world.rank();
            stream!(let a = world.stream()?);
            stream!(let b = world.stream()?);
            let (inbox, outbox) = halves(&a, 1 - rank)?;
            if rank == 0 {
                // Rank 1 completes only after this rank has, which it never will.
                let inbox = inbox.post(&a)?.wait(&a)?;
                let mut inbox = a.hand_off(inbox, &b)?;
                std::thread::sleep(Duration::from_millis(50));
                if outbox.slots() == 1 {
                    panic!("on purpose");
                }
                inbox.read(&b)?;
            } else {
                let mut inbox = inbox.post(&a)?.wait(&a)?;
                let refused = inbox.read(&a);
                assert!(refused.is_err(), "the other rank has panicked");
                return Ok(());
            }
            Ok(())
        })
    }));
    assert!(ended.is_err(), "the panic of a rank is passed on");
}

#[test]
fn a_test_for_a_peer_that_has_left_comes_to_an_end() {
    let results = World::local(2, |world| -> Result<()> {
        stream!(let s = world.stream()?);
        let (inbox, _outbox) = halves(&s, 1 - world.rank())?;
        if world.rank() == 1 {
            return Ok(());
        }
        let mut exposed = inbox.post(&s)?;
        loop {
            match exposed.test(&s)? {
                tidegate::window::Tested::Done(_) => break s.synchronize(),
                tidegate::window::Tested::Pending(again) => exposed = again,
            }
            std::thread::yield_now();
        }
    });
    let error = results[0].as_ref().unwrap_err().to_string();
    assert!(error.contains("rank 1 has left the job"), "{error}");
    assert!(results[1].is_ok());
}
