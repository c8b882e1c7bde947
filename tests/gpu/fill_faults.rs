//! Kernels that break their contract, and streams that have failed (`kernels/tidegate.cuh`).

use super::common::{R, S, ranks};
use super::fill::{Puts, came, load, open};
use crate::vendor::prelude::*;
use tidegate::error::{Cause, KernelError, PutFault, StreamError};
use tidegate::kernel::Module;

tidegate::kernel! {
    /// Kernels that are compiled with the checks of `tidegate.cuh`. Each may break its contract.
    ///
    /// # Safety
    ///
    /// The module is `checked.cu`.
    unsafe struct Checked {
        fn put_checked = "put_checked"(out: OutSlots<u64>, to: Out<u64>, x: &[u64], how: u32);
        fn last_checked = "last_checked"(out: LastSlots<u64>, to: Out<u64>, x: &[u64], how: u32);
    }
}

/// What rank 0 does wrong, in an epoch of two ranks. Returns the errors of both.
fn wrong(
    program: impl for<'s> Fn(
        &S<'s>,
        (&Puts<Gpu>, &Checked<Gpu>),
        Outbox<'s, u64>,
        [Out<u64>; 2],
        &R<'s, u64>,
    ) -> Result<()>
    + Sync,
) -> [Result<()>; 2] {
    let results = ranks(2, |world, _| -> Result<()> {
        let module = Module::load(&world, tidegate_kernels::CHECKED).unwrap();
        // SAFETY: the module is `checked.cu`. What its kernels do wrong is found before it does harm.
        let checked = unsafe { Checked::bind(&module) }.unwrap();
        let (puts, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("wrong");
        window.slot_from(1 - rank, 0, 37);
        // The second slot is of rank 0 itself.
        let mut to = [window.slot_to(1 - rank, 0); 2];
        if rank == 0 {
            window.slot_from(0, 1, 37);
            to[1] = window.slot_to(0, 1);
        }
        let (inbox, outbox) = window.open(&s).unwrap();
        let x = Region::from_slice(&world, &[7; 37])
            .unwrap()
            .on(&s)
            .unwrap();
        let exposed = inbox.post(&s).unwrap();
        if rank == 0 {
            world.all_gather("enqueued", Vec::new()).unwrap();
            return program(&s, (&puts, &checked), outbox, to, &x);
        }
        // If rank 0 failed before, these calls would be refused.
        let _outbox = outbox.start().complete(&s).unwrap();
        let _inbox = exposed.wait(&s).unwrap();
        world.all_gather("enqueued", Vec::new()).unwrap();
        s.synchronize()
    });
    results.try_into().expect("there are two ranks")
}

/// Completes the epoch, and returns the stream's error.
fn end<'s>(s: &S<'s>, opened: Opened<'s, u64>) -> Result<()> {
    let _outbox = opened.complete(s)?;
    s.synchronize()
}

/// The fault that the first error names. The second one is of a rank that waited, and names the first one's stream.
fn fault(results: [Result<()>; 2]) -> PutFault {
    let [mine, others] = results.map(|result| result.expect_err("the kernel was wrong"));
    let Error::Wait(failed) = &others else {
        panic!("{others}");
    };
    assert!(
        matches!(&failed.cause, Cause::StreamFailed { rank: 0, .. }),
        "{others}"
    );
    assert!(
        others.to_string().contains("a kernel broke its contract: "),
        "{others}"
    );
    let Error::Stream(StreamError::KernelFault { rank: 0, fault, .. }) = mine else {
        panic!("{mine}");
    };
    *fault
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_kernel_that_exceeds_its_slot_fails_by_name() {
    let errors = wrong(|s, (puts, _), outbox, to, x| {
        let mut opened = outbox.open(s)?;
        let kernel = puts.put_by_team.threads(64, 64);
        s.launch(kernel, (opened.slots(), to[0], x, 1u64, 2u32))?;
        end(s, opened)
    });
    assert_eq!(fault(errors), PutFault::Beyond { slot: 0, end: 38 });
    // In a kernel that completes its target, too. The target is not complete then.
    let errors = wrong(|s, (puts, _), outbox, to, _| {
        let opened = outbox.open(s)?;
        let long = Region::from_slice(s.world(), &[1; 40])?.on(s)?;
        s.launch(
            puts.put_last.threads(64, 64),
            (opened.last(1)?, to[0], &long),
        )?;
        end(s, opened)
    });
    assert_eq!(fault(errors), PutFault::Beyond { slot: 0, end: 40 });
}

/// A handle that did not come from the host.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_slot_that_does_not_exist_is_named() {
    // The record has room for 20 bits of the number.
    for (number, slot) in [(2u64, 2), (1 << 20, (1 << 20) - 1)] {
        let errors = wrong(|s, (puts, _), outbox, _, _| {
            let mut opened = outbox.open(s)?;
            let kernel = puts.put_to_number.threads(32, 32);
            s.launch(kernel, (opened.slots(), number))?;
            end(s, opened)
        });
        assert_eq!(fault(errors), PutFault::NoSlot { slot });
    }
}

/// What `TIDEGATE_CHECKS` finds. A right kernel passes.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_kernel_with_checks_finds_what_breaks_its_contract() {
    let put = |how: u32| {
        wrong(move |s, (_, checked), outbox, to, x| {
            let mut opened = outbox.open(s)?;
            // A warp and a half, or not even a wave of 64 threads.
            let kernel = checked.put_checked.threads(48, 48);
            s.launch(kernel, (opened.slots(), to[0], x, how))?;
            end(s, opened)
        })
    };
    let last = |how: u32| {
        wrong(move |s, (_, checked), outbox, to, x| {
            let opened = outbox.open(s)?;
            let kernel = checked.last_checked.threads(64, 32);
            s.launch(kernel, (opened.last(1)?, to[0], x, how))?;
            end(s, opened)
        })
    };
    for results in [put(0), last(0)] {
        results.into_iter().for_each(|result| result.unwrap());
    }
    assert_eq!(fault(put(1)), PutFault::NotTogether { slot: 0 });
    assert_eq!(fault(put(2)), PutFault::Unaligned { slot: 0 });
    assert_eq!(fault(put(3)), PutFault::NotTogether { slot: 0 });
    // The target may have gone on before.
    for (how, expected) in [
        (1, PutFault::Completed { slot: 0 }),
        (2, PutFault::CompletedTwice),
    ] {
        let [mine, _] = last(how);
        let Err(Error::Stream(StreamError::KernelFault { fault, .. })) = mine else {
            panic!("{mine:?}");
        };
        assert_eq!(*fault, expected);
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_put_to_a_target_that_is_complete_fails_by_name() {
    let results = ranks(2, |world, k| -> Result<()> {
        let (puts, rank) = (load(&world), world.rank());
        stream!(let s = world.stream()?);
        let (inbox, outbox, to) = open(&s, SlotWindow::new("behind"), 1 - rank, 8)?;
        let x = Region::from_slice(&world, &[rank as u64 + 1; 8])?.on(&s)?;
        let exposed = inbox.post(&s)?;
        let mut opened = outbox.open(&s)?;
        s.launch(
            puts.put_last.threads(64, 32),
            (opened.last(1 - rank)?, to, &x),
        )?;
        if rank == 0 {
            // Behind the fault, calls of the peer would be refused. Its epoch has ended without `complete` here.
            world.all_gather("the peer has its data", Vec::new())?;
            let over = Region::from_slice(&world, &[9; 8])?.on(&s)?;
            let kernel = puts.put_by_team.threads(32, 32);
            s.launch(kernel, (opened.slots(), to, &over, 0u64, 2u32))?;
        }
        let _outbox = opened.complete(&s)?;
        let inbox = exposed.wait(&s)?;
        let came = came(&s, &k, &inbox, 8)?;
        assert_eq!(came, [2 - rank as u64; 8]);
        if rank == 1 {
            world.all_gather("the peer has its data", Vec::new())?;
        }
        s.synchronize()
    });
    let [first, second] = &results[..] else {
        unreachable!()
    };
    let Err(Error::Stream(StreamError::KernelFault { fault, .. })) = first else {
        panic!("{first:?}");
    };
    assert_eq!(**fault, PutFault::Completed { slot: 0 });
    assert!(second.is_ok(), "{second:?}");
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn slots_of_other_targets_and_windows_are_refused() {
    let errors = wrong(|s, (puts, _), outbox, to, x| {
        let opened = outbox.open(s)?;
        s.launch(puts.put_last.threads(64, 64), (opened.last(1)?, to[1], x))?;
        end(s, opened)
    });
    assert_eq!(fault(errors), PutFault::OtherTarget { slot: 1 });
    ranks(1, |world, _| {
        let puts = load(&world);
        stream!(let s = world.stream().unwrap());
        let (inbox, outbox, _) = open(&s, SlotWindow::<u64>::new("one"), 0, 8).unwrap();
        let (_in, _out, foreign) = open(&s, SlotWindow::new("other"), 0, 8).unwrap();
        let x = Region::from_slice(&world, &[7; 8]).unwrap().on(&s).unwrap();
        let _exposed = inbox.post(&s).unwrap();
        let mut opened = outbox.open(&s).unwrap();
        let kernel = puts.put_by_team.threads(32, 32);
        let error = s
            .launch(kernel, (opened.slots(), foreign, &x, 0u64, 2u32))
            .unwrap_err();
        let Error::Kernel(KernelError::ForeignSlot { slot: 0 }) = error else {
            panic!("{error}");
        };
        let _outbox = opened.complete(&s).unwrap();
    });
}

/// A kernel completes in fewer blocks than it says, and in more.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_kernel_completes_its_target_exactly_once() {
    let never = |blocks: u32, said: u32| {
        wrong(move |s, (puts, _), outbox, _, _| {
            let opened = outbox.open(s)?;
            let kernel = puts.complete_by.threads(4 * 32, 32);
            s.launch(kernel, (opened.last(1)?, blocks, said))?;
            end(s, opened)
        })
    };
    for blocks in [0, 2] {
        for result in never(blocks, 3) {
            let error = result.expect_err("it is not complete");
            let Error::Wait(failed) = &error else {
                panic!("{error}");
            };
            assert_eq!(failed.cause, Cause::NotCompleted { rank: 0, target: 1 });
        }
    }
    for (blocks, said) in [(4, 2), (3, 2), (4, 1), (4, 3)] {
        let [mine, others] = never(blocks, said);
        // The target may have gone on before. Otherwise it hears why not.
        match others {
            Ok(()) => {}
            Err(Error::Wait(failed)) => {
                let cause = failed.cause;
                assert!(
                    matches!(cause, Cause::StreamFailed { rank: 0, .. }),
                    "{cause:?}"
                );
            }
            Err(error) => panic!("{error}"),
        }
        let Err(Error::Stream(StreamError::KernelFault { fault, .. })) = mine else {
            panic!("{mine:?}");
        };
        assert_eq!(*fault, PutFault::CompletedTwice, "{blocks} of {said}");
    }
}

fn fill<'s>(
    s: &S<'s>,
    puts: &Puts<Gpu>,
    opened: &mut Opened<'s, u64>,
    to: Out<u64>,
    x: &R<'s, u64>,
    team: u32,
) {
    let kernel = puts.put_by_team.threads(512, 128);
    s.launch(kernel, (opened.slots(), to, x, 0u64, team))
        .unwrap();
}

/// The target never posts for the second epoch, since the window is revoked. Its memory stays as it was, although the
/// kernels run.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn kernels_behind_a_failed_open_change_no_byte() {
    ranks(2, |world, k| {
        let (puts, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let window = SlotWindow::new("never").buffers(Buffers::Single);
        let (mut inbox, outbox, to) = open(&s, window, 1 - rank, 1000).unwrap();
        let [x, again] = [7, 9].map(|value| {
            let x = Region::from_slice(&world, &[value; 1000]).unwrap();
            x.on(&s).unwrap()
        });
        let exposed = inbox.post(&s).unwrap();
        let mut opened = outbox.open(&s).unwrap();
        fill(&s, &puts, &mut opened, to, &x, 3);
        let outbox = opened.complete(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        s.synchronize().unwrap();
        if rank == 0 {
            let mut opened = outbox.open(&s).unwrap();
            (0..4).for_each(|team| fill(&s, &puts, &mut opened, to, &again, team));
            let last = opened.last(1).unwrap();
            s.launch(puts.put_last.threads(64, 32), (last, to, &again))
                .unwrap();
            // Behind the revocation, this call would be refused.
            let _outbox = opened.complete(&s).unwrap();
            world.all_gather("enqueued", Vec::new()).unwrap();
            let error = s.synchronize().unwrap_err();
            let Error::Wait(failed) = &error else {
                panic!("{error}");
            };
            assert!(
                matches!(failed.cause, Cause::Dropped { rank: 1, .. }),
                "{error}"
            );
            world.all_gather("over", Vec::new()).unwrap();
        } else {
            world.all_gather("enqueued", Vec::new()).unwrap();
            drop(outbox.start());
            world.all_gather("over", Vec::new()).unwrap();
            assert_eq!(came(&s, &k, &inbox, 1000).unwrap(), [7; 1000]);
        }
    });
}

/// The stream fails between `open` and the kernel. What the kernel has computed may be wrong, so its target must not take
/// it for complete.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_kernel_behind_a_failure_completes_no_target() {
    ranks(2, |world, _| {
        let (puts, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let (inbox, outbox, to) = open(&s, SlotWindow::new("data"), 1 - rank, 100).unwrap();
        let other = SlotWindow::<u64>::new("other");
        let (other_in, other_out, _) = open(&s, other, 1 - rank, 1).unwrap();
        let x = Region::from_slice(&world, &[7; 100])
            .unwrap()
            .on(&s)
            .unwrap();
        let exposed = inbox.post(&s).unwrap();
        if rank == 0 {
            let opened = outbox.open(&s).unwrap();
            let _other = other_in.post(&s).unwrap().wait(&s).unwrap();
            let last = opened.last(1).unwrap();
            s.launch(puts.put_last.threads(64, 32), (last, to, &x))
                .unwrap();
            let _outbox = opened.complete(&s).unwrap();
            world.all_gather("enqueued", Vec::new()).unwrap();
            assert!(s.synchronize().is_err());
        } else {
            world.all_gather("enqueued", Vec::new()).unwrap();
            // Behind the failure, this call would be refused.
            let _inbox = exposed.wait(&s).unwrap();
            drop(other_out.start());
            let error = s.synchronize().unwrap_err();
            assert!(matches!(error, Error::Wait(_)), "{error}");
        }
    });
}

/// One target of an `open` never posts. The other one has posted, so the kernel may store to it, but does not complete it.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_target_is_not_complete_if_another_one_has_failed() {
    ranks(3, |world, k| {
        let (puts, rank) = (load(&world), world.rank());
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("two").buffers(Buffers::Single);
        let mut to = Vec::new();
        if rank == 0 {
            to.extend([1, 2].map(|target| window.slot_to(target, 0)));
        } else {
            window.slot_from(0, 0, 100);
        }
        let (inbox, outbox) = window.open(&s).unwrap();
        let [mut x, again] = [7, 9].map(|value| {
            let x = Region::from_slice(&world, &[value; 100]).unwrap();
            x.on(&s).unwrap()
        });
        match rank {
            0 => {
                let opened = outbox.open(&s).unwrap();
                let last = opened.last(1).unwrap();
                s.launch(puts.put_last.threads(64, 32), (last, to[0], &again))
                    .unwrap();
                let _outbox = opened.complete(&s).unwrap();
                world.all_gather("enqueued", Vec::new()).unwrap();
                assert!(s.synchronize().is_err());
            }
            1 => {
                let exposed = inbox.post(&s).unwrap();
                // If the kernel completed this rank, it would do so meanwhile.
                s.launch(k.busy.threads(1, 32), (&mut x, 200_000_000u64))
                    .unwrap();
                let _inbox = exposed.wait(&s).unwrap();
                world.all_gather("enqueued", Vec::new()).unwrap();
                let error = s.synchronize().unwrap_err();
                assert!(matches!(error, Error::Wait(_)), "{error}");
            }
            _ => {
                world.all_gather("enqueued", Vec::new()).unwrap();
                // Its origin waits for the post.
                drop(inbox);
            }
        }
    });
}
