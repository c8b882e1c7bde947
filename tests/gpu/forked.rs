//! Children of a process that uses a GPU. They cannot use the driver, so they do not call it, and the parent goes on.

use crate::vendor::prelude::*;
use fork::Fork;
use tidegate::kernel::Module;

use super::common::ranks;
use crate::common::child::ended;

#[track_caller]
fn is_forked<T>(result: Result<T, impl Into<Error>>) {
    match result.map_err(Into::into) {
        Err(Error::Forked(_)) => {}
        Err(other) => panic!("another error: {other}"),
        Ok(_) => panic!("the child was served"),
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_child_does_not_call_the_driver() {
    ranks(1, |world, k| {
        stream!(let mut s = world.named_stream("s").unwrap());
        stream!(let t = world.named_stream("t").unwrap());
        let mut window = SlotWindow::<u64>::new("w");
        window.slot_from(0, 0, 4);
        let to = window.slot_to(0, 0);
        let (inbox, mut outbox) = window.open(&s).unwrap();
        let mut barrier = Barrier::open(&s, "b").unwrap();
        let mut x = Region::from_slice(&world, &[1u64; 4])
            .unwrap()
            .on(&s)
            .unwrap();
        let handed = Region::<u64, _>::zeroed(&world, 4).unwrap().on(&s).unwrap();
        let (graph, lent) = s
            .capture(x, |s, mut x| {
                s.launch(k.tick.threads(1, 1), (&mut x,))?;
                Ok(x)
            })
            .unwrap();
        x = lent;
        // The stream is at work.
        let mut lasts = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        s.launch(k.busy.threads(1, 1), (&mut lasts, 50_000_000u64))
            .unwrap();
        match fork::fork().unwrap() {
            Fork::Child => {
                is_forked(s.synchronize());
                is_forked(s.launch(k.tick.threads(1, 1), (&mut x,)));
                is_forked(barrier.enqueue(&s));
                is_forked(graph.replay(&s, x, 1));
                is_forked(lasts.into_host(&s));
                is_forked(s.hand_off(handed, &t));
                is_forked(inbox.post(&s));
                is_forked(outbox.start().complete(&s));
                is_forked(world.stream());
                is_forked(world.all_gather("x", Vec::new()));
                is_forked(Region::<u64, _>::zeroed(&world, 4));
                is_forked(Module::load(&world, tidegate_kernels::SAMPLES));
                drop((graph, barrier, k));
                drop((s, t, world));
                std::process::exit(0)
            }
            Fork::Parent(child) => assert_eq!(ended(child).exit_status(), Some(0)),
        }
        x = graph.replay(&s, x, 2).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&x, to).unwrap();
        outbox = epoch.complete(&s).unwrap();
        let exposed = inbox.post(&s).unwrap();
        let inbox = exposed.wait(&s).unwrap();
        barrier.enqueue(&s).unwrap();
        let mut came = [0; 4];
        x.into_host(&s).unwrap().read(0, &mut came).unwrap();
        assert_eq!(came, [3, 1, 1, 1]);
        drop((inbox, outbox, handed, lasts));
    });
}
