//! Losing halves that a kernel owns, and the tokens that it has.

use tidegate_core::stream;
use tidegate_core::window::{KernelInbox, KernelOutbox, SlotWindow};

use crate::scene::{How, LEN, LIMIT, filled, noticed, ranks, scribble};

/// A kernel owns both halves. Rank 0 loses all that it has before the kernels run. With `open`, its last kernel loses
/// tokens in the middle of their epochs.
#[test]
fn halves_that_a_kernel_owns() {
    for (how, open) in [How::Forgotten, How::Dropped]
        .map(|how| [(how, false), (how, true)])
        .as_flattened()
    {
        let (how, open) = (*how, *open);
        let results = ranks(2, |world, gate| {
            let other = 1 - world.rank();
            stream!(let s = world.stream()?);
            let mut window = SlotWindow::<u64>::new("lent").fail_after(LIMIT);
            let from = window.slot_from(other, 0, LEN);
            let to = window.slot_to(other, 0);
            let (mut inbox, mut outbox) = window.open(&s)?;
            let mut x = filled(&s, 0)?;
            let kernel =
                move |x: &mut [u64], inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
                    let exposed = inbox.post();
                    let mut epoch = outbox.start();
                    epoch.put(to, 0, x);
                    how.lose(epoch.complete());
                    let inbox = exposed.wait();
                    assert_eq!(inbox.read().slot(from), x);
                    scribble(x);
                    how.lose(inbox);
                };
            s.launch(kernel, (&mut x, inbox.lend(), outbox.lend()))?;
            if world.rank() == 1 {
                loop {
                    s.launch(kernel, (&mut x, inbox.lend(), outbox.lend()))?;
                    s.synchronize()?;
                }
            }
            gate.hold_up(&s)?;
            how.lose((inbox.lend(), outbox.lend()));
            s.launch(kernel, (&mut x, inbox.lend(), outbox.lend()))?;
            let (graph, mut lent) =
                s.capture((x, inbox, outbox), |s, (mut x, mut inbox, mut outbox)| {
                    s.launch(kernel, (&mut x, inbox.lend(), outbox.lend()))?;
                    Ok((x, inbox, outbox))
                })?;
            lent = graph.replay(&s, lent, 3)?;
            how.lose(graph);
            let (x, mut inbox, mut outbox) = lent;
            how.lose(x);
            if open {
                let lose = move |inbox: KernelInbox<'_, u64>, outbox: KernelOutbox<'_, u64>| {
                    how.lose(inbox.post());
                    how.lose(outbox.start());
                };
                s.launch(lose, (inbox.lend(), outbox.lend()))?;
            }
            how.lose((inbox, outbox));
            gate.open();
            assert_eq!(s.synchronize().is_err(), open);
            Ok(())
        });
        let said = noticed(results);
        let expected = match open {
            true => &[
                "it ended while an inbox that it owned was exposed",
                "it ended in the middle of an epoch",
            ][..],
            false => &["limit", "rank 0 has left"],
        };
        assert!(expected.iter().any(|part| said.contains(part)), "{said}");
    }
}
