//! The ring of `examples/ring.rs`, a little smaller, as a role for ranks that are processes.
#![allow(dead_code, reason = "each test program uses a part")]

use tidegate::host::prelude::*;

#[derive(Carry)]
pub(crate) struct Ring<'s> {
    src: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    to: [Out<u64>; 2],
}

const LEN: usize = 100;

/// Opens the ring's window; ranks begin with all zeros.
pub(crate) fn open<'s>(s: &Stream<'s>) -> Result<Ring<'s>> {
    let world = s.world();
    let (left, right) = world.ring();
    let mut window = SlotWindow::new("ring");
    window.slot_from(right, 0, LEN);
    window.slot_from(left, 1, LEN);
    let to = [window.slot_to(left, 0), window.slot_to(right, 1)];
    let (inbox, outbox) = window.open(s)?;
    let src = Region::zeroed(world, LEN)?.on(s)?;
    Ok(Ring {
        src,
        inbox,
        outbox,
        to,
    })
}

fn increment(src: &mut [u64]) {
    src.iter_mut().for_each(|x| *x += 1);
}

fn compare(inbox: Slots<'_, u64>, src: &[u64]) {
    for slot in inbox.iter() {
        assert_eq!(slot, src, "all ranks count alike");
    }
}

/// One step, which is only enqueued.
pub(crate) fn step<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let exposed = r.inbox.post(s)?;
    s.launch(increment, &mut r.src)?;
    let mut epoch = r.outbox.start();
    for to in r.to {
        epoch.put(&r.src, to)?;
    }
    let outbox = epoch.complete(s)?;
    let inbox = exposed.wait(s)?;
    s.launch(compare, (inbox.view(), &r.src))?;
    Ok(Ring { inbox, outbox, ..r })
}

/// `steps` steps, after which the host checks their sum.
pub(crate) fn steps<'s>(s: &Stream<'s>, mut ring: Ring<'s>, steps: u64) -> Result<()> {
    for _ in 0..steps {
        ring = step(s, ring)?;
    }
    let src = ring.src.into_host(s)?;
    assert!(src.iter().all(|x| *x == steps));
    Ok(())
}

/// Steps without end. Returns the error that ends them. It is the stream's if it has one, since that names the wait;
/// the window's revocation may have come first.
pub(crate) fn forever<'s>(s: &Stream<'s>, mut ring: Ring<'s>) -> tidegate::Error {
    let revoked = loop {
        match step(s, ring) {
            Ok(back) => ring = back,
            Err(error) => break error,
        }
    };
    s.synchronize().err().unwrap_or(revoked)
}
