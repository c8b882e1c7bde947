//! The ring: eager, replayed and fused steps, all checked.

use tidegate::host::prelude::*;

#[derive(Carry)]
struct Ring<'s> {
    src: Region<u64, On<'s>>,
    seen: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    from: [In<u64>; 2],
    to: [Out<u64>; 2],
}

fn fill(src: &mut [u64]) {
    src.iter_mut().for_each(|x| *x += 1);
}

fn gather(inbox: Slots<'_, u64>, right: In<u64>, left: In<u64>, seen: &mut [u64]) {
    let (from_right, from_left) = (inbox.slot(right), inbox.slot(left));
    assert!(
        from_right.iter().all(|x| *x == from_right[0])
            && from_left.iter().all(|x| *x == from_left[0])
    );
    seen[0] = seen[0].wrapping_mul(31).wrapping_add(from_right[0]);
    seen[1] = seen[1].wrapping_mul(31).wrapping_add(from_left[0]);
}

fn step<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    let exposed = r.inbox.post(s)?;
    s.launch(fill, &mut r.src)?;
    let mut epoch = r.outbox.start();
    let [left, right] = epoch.take(r.to)?;
    epoch.put(&r.src, left)?;
    epoch.put(&r.src, right)?;
    let outbox = epoch.complete(s)?;
    let inbox = exposed.wait(s)?;
    let [right, left] = r.from;
    s.launch(gather, (inbox.view(), right, left, &mut r.seen))?;
    Ok(Ring { inbox, outbox, ..r })
}

fn fused<'s>(s: &Stream<'s>, mut r: Ring<'s>) -> Result<Ring<'s>> {
    s.launch(fill, &mut r.src)?;
    let mut epoch = r.outbox.start();
    let [left, right] = epoch.take(r.to)?;
    epoch.put(&r.src, left)?;
    epoch.put(&r.src, right)?;
    let (inbox, outbox) = exchange(s, r.inbox, epoch)?;
    let [right, left] = r.from;
    s.launch(gather, (inbox.view(), right, left, &mut r.seen))?;
    Ok(Ring { inbox, outbox, ..r })
}

/// Runs the ring on a world, with `rounds` of steps.
pub(crate) fn run(world: World, buffers: tidegate::Buffers, rounds: u64) -> Result<()> {
    const LEN: usize = 33;
    let (left, right) = world.ring();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("ring").buffers(buffers);
    let from = [
        window.slot_from(right, 0, LEN),
        window.slot_from(left, 1, LEN),
    ];
    let to = [window.slot_to(left, 0), window.slot_to(right, 1)];
    let (inbox, outbox) = window.open(&s)?;
    let start = world.rank() as u64 * 1000;
    let src = Region::from_slice(&world, &[start; LEN])?.on(&s)?;
    let seen = Region::zeroed(&world, 2)?.on(&s)?;
    let mut ring = Ring {
        src,
        seen,
        inbox,
        outbox,
        from,
        to,
    };
    let mut steps = 0;
    let (graph, back) = s.capture(ring, step)?;
    ring = back;
    for round in 0..rounds {
        ring = graph.replay(&s, ring, (round % 4) as usize)?;
        ring = step(&s, ring)?;
        ring = fused(&s, ring)?;
        steps += round % 4 + 2;
    }
    let seen = ring.seen.into_host(&s)?;
    let expected = |peer: usize| {
        (1..=steps).fold(0u64, |hash, step| {
            hash.wrapping_mul(31)
                .wrapping_add(peer as u64 * 1000 + step)
        })
    };
    assert_eq!(&seen[..], [expected(right), expected(left)]);
    Ok(())
}
