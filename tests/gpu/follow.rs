//! A failure is passed on to every stream that follows: over several hand-offs, before a replay, and if more streams
//! are followed than a batch looks at. Otherwise a stream would send the memory of a failed stream, with a signal that
//! says that the data is good.

use std::time::Duration;

use super::common::{I, Kernels, O, R, S, W, ranks};
use crate::vendor::prelude::*;

const LEN: usize = 4;

fn region<'s>(world: &W, s: &S<'s>) -> R<'s, u64> {
    let region = Region::<u64, _>::zeroed(world, LEN).unwrap();
    region.on(s).unwrap()
}

fn touch<'s>(s: &S<'s>, k: &Kernels, x: &mut R<'s, u64>) {
    s.launch(k.count.threads(LEN, 32), (x, 1u64)).unwrap();
}

fn window<'s>(s: &S<'s>, name: &str, limit: Option<Duration>) -> (I<'s, u64>, O<'s, u64>) {
    let other = 1 - s.world().rank();
    let mut window = SlotWindow::<u64>::new(name);
    window.slot_from(other, 0, LEN);
    window.slot_to(other, 0);
    let window = match limit {
        Some(limit) => window.fail_after(limit),
        None => window,
    };
    window.open(s).unwrap()
}

/// A region of a stream that fails after a while, because it waits for an epoch that nobody completes.
fn of_a_failure<'s>(s: &S<'s>, k: &Kernels) -> (R<'s, u64>, I<'s, u64>, O<'s, u64>) {
    let (inbox, outbox) = window(s, "bad", Some(Duration::from_millis(400)));
    let mut x = region(s.world(), s);
    let inbox = inbox.post(s).unwrap().wait(s).unwrap();
    touch(s, k, &mut x);
    (x, inbox, outbox)
}

/// The one outbound slot of a window.
fn way(outbox: &O<'_, u64>) -> Out<u64> {
    outbox.slots().next().expect("there is one")
}

/// Asserts that the sending stream has failed because of the window `bad`, and that the wait of `hears` for its data
/// ends with an error.
fn both_fail(sends: &S<'_>, hears: &S<'_>) {
    let error = sends.synchronize().unwrap_err();
    let by_the_first = matches!(&error, Error::Wait(failed) if failed.window.as_ref().is_some_and(|window| &*window.name == "bad"));
    assert!(by_the_first, "{error}");
    hears.synchronize().unwrap_err();
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn over_a_stream_that_submits_no_batch() {
    ranks(2, |world, k| {
        stream!(let a = world.named_stream("a").unwrap());
        stream!(let b = world.named_stream("b").unwrap());
        stream!(let c = world.named_stream("c").unwrap());
        stream!(let hears = world.named_stream("hears").unwrap());
        let (inbox, outbox) = window(&c, "good", None);
        let inbox = c.hand_off(inbox, &hears).unwrap();
        let exposed = inbox.post(&hears).unwrap();
        let _inbox = exposed.wait(&hears).unwrap();
        let (x, _in, _out) = of_a_failure(&a, &k);
        let mut x = a.hand_off(x, &b).unwrap();
        touch(&b, &k, &mut x);
        let x = b.hand_off(x, &c).unwrap();
        let to = way(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&x, to).unwrap();
        let _outbox = epoch.complete(&c).unwrap();
        both_fail(&c, &hears);
        assert!(x.into_host(&c).is_err());
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn before_a_replay() {
    ranks(2, |world, k| {
        stream!(let a = world.named_stream("a").unwrap());
        stream!(let mut t = world.named_stream("t").unwrap());
        stream!(let hears = world.named_stream("hears").unwrap());
        let (inbox, outbox) = window(&t, "good", None);
        let mut inbox = t.hand_off(inbox, &hears).unwrap();
        let x = region(&world, &t);
        let (graph, lent) = t
            .capture((outbox, x), |s, (outbox, x)| {
                let to = way(&outbox);
                let mut epoch = outbox.start();
                epoch.put(&x, to)?;
                let outbox = epoch.complete(s)?;
                Ok((outbox, x))
            })
            .unwrap();
        for _ in 0..3 {
            inbox = inbox.post(&hears).unwrap().wait(&hears).unwrap();
        }
        let (y, _in, _out) = of_a_failure(&a, &k);
        let _y = a.hand_off(y, &t).unwrap();
        let _lent = graph.replay(&t, lent, 3).unwrap();
        both_fail(&t, &hears);
        drop(inbox);
    });
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn where_it_is_the_third_that_fails() {
    ranks(2, |world, k| {
        stream!(let good = world.named_stream("good").unwrap());
        stream!(let well = world.named_stream("well").unwrap());
        stream!(let bad = world.named_stream("bad").unwrap());
        stream!(let t = world.named_stream("t").unwrap());
        stream!(let hears = world.named_stream("hears").unwrap());
        let (inbox, outbox) = window(&t, "good", None);
        let inbox = t.hand_off(inbox, &hears).unwrap();
        let exposed = inbox.post(&hears).unwrap();
        let _inbox = exposed.wait(&hears).unwrap();
        let (z, _in, _out) = of_a_failure(&bad, &k);
        let (mut x, mut y) = (region(&world, &good), region(&world, &well));
        touch(&good, &k, &mut x);
        touch(&well, &k, &mut y);
        let x = good.hand_off(x, &t).unwrap();
        let y = well.hand_off(y, &t).unwrap();
        let z = bad.hand_off(z, &t).unwrap();
        let to = way(&outbox);
        let mut epoch = outbox.start();
        epoch.put(&z, to).unwrap();
        let _outbox = epoch.complete(&t).unwrap();
        both_fail(&t, &hears);
        drop((x, y));
    });
}
