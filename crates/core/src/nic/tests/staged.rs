//! Staged puts: the source is free at once, but a staging buffer only when the NIC has sent it.

use tidegate_hal::batch::QUANTUM;

use super::*;
use crate::window::{Buffers, exchange};

/// Two ranks. Rank 0's NIC is behind `gate`, and all data that goes through NICs is staged.
fn staged<R: Send>(gate: &Gate, program: impl Fn(World<Host>) -> R + Sync) -> Vec<R> {
    let nic = |rank| match rank {
        0 => WorldOptions::new()
            .nic(Loopback::new(Options::default().gate(gate)))
            .route(Route::Nic)
            .staged(),
        _ => WorldOptions::new().nic(Loopback::default()).staged(),
    };
    World::local_with(2, nic, program)
}

/// Rank 0 puts its source three times while the gate is closed, and overwrites it after each put. Returns how many of
/// these were passed while the gate was closed (`expected` ones are awaited), and what rank 1 got.
fn three_puts(buffers: Buffers, expected: usize) -> (Vec<bool>, Vec<u64>) {
    let (gate, flags) = (Gate::closed(), [const { AtomicBool::new(false) }; 3]);
    let flags = Arc::new(flags);
    let results = staged(&gate, |world| {
        crate::stream!(let s = world.stream().unwrap());
        if world.rank() == 0 {
            let mut window = SlotWindow::<u64>::new("w").buffers(buffers);
            window.slot_to(1, 0);
            let (_inbox, mut outbox) = window.open(&s).unwrap();
            let mut src = ones(&s);
            for turn in 0..3u64 {
                outbox = put(&s, &src, outbox);
                let flags = flags.clone();
                let next = move |src: &mut [u64]| {
                    src.fill(turn + 2);
                    flags[turn as usize].store(true, Ordering::SeqCst);
                };
                s.launch(next, &mut src).unwrap();
            }
            gate.wait_held();
            // On a busy machine this takes time. Then the test looks whether one more is passed.
            let since = std::time::Instant::now();
            while !flags[expected - 1].load(Ordering::SeqCst) && since.elapsed() < LONG {
                std::thread::sleep(WHILE / 20);
            }
            std::thread::sleep(WHILE);
            let early = flags.iter().map(|flag| flag.load(Ordering::SeqCst));
            let early: Vec<_> = early.collect();
            gate.open();
            s.synchronize().unwrap();
            (early, Vec::new())
        } else {
            let mut window = SlotWindow::<u64>::new("w").buffers(buffers);
            let from = window.slot_from(0, 0, LEN);
            let (mut inbox, _outbox) = window.open(&s).unwrap();
            let mut came = Vec::new();
            for _ in 0..3 {
                inbox = inbox.expose(&s).unwrap();
                came.push(inbox.read(&s).unwrap().slot(from)[LEN - 1]);
            }
            (Vec::new(), came)
        }
    });
    let (early, came) = (results[0].0.clone(), results[1].1.clone());
    (early, came)
}

#[test]
fn a_source_is_free_when_the_stream_has_passed() {
    // There is one buffer, and one exposure.
    let (early, came) = three_puts(Buffers::Single, 1);
    assert_eq!(
        (&early[..], &came[..]),
        (&[true, false, false][..], &[1, 2, 3][..])
    );
}

#[test]
fn a_buffer_is_waited_for() {
    // Rank 1 waits for the first put before it posts for the third. So if nothing else delays the third put, the
    // exposure does.
    let (early, came) = three_puts(Buffers::Double, 2);
    assert_eq!(
        (&early[..], &came[..]),
        (&[true, true, false][..], &[1, 2, 3][..])
    );
}

/// Two epochs that only the wait for a buffer keeps apart. Both exposures have come, because the target posts without
/// looking.
#[test]
#[cfg_attr(
    miri,
    ignore = "an exposure that nobody gave is a race, and is meant to be one"
)]
fn it_is_the_wait_for_the_buffer_that_does_it() {
    let once = |ignore: bool| {
        let gate = Gate::closed();
        let results = staged(&gate, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let mut window = SlotWindow::<u64>::new("w").buffers(Buffers::Single);
            if world.rank() == 0 {
                let attached = world.nic().unwrap();
                attached.ignore_tickets.store(ignore, Ordering::Relaxed);
                window.slot_to(1, 0);
                let (_inbox, mut outbox) = window.open(&s).unwrap();
                let mut src = ones(&s);
                outbox = put(&s, &src, outbox);
                s.launch(|src: &mut [u64]| src.fill(2), &mut src).unwrap();
                gate.wait_held();
                // This acts as if the target had posted again. It may do that when the data has come, before the NIC
                // here has heard of it.
                let word = outbox.exposed_word(0);
                // SAFETY: the word lives as long as the outbox, and is only accessed atomically.
                unsafe { &*word.0.cast::<tidegate_words::Word>() }.add(QUANTUM);
                let passed = Flag::default();
                outbox = put(&s, &src, outbox);
                let flag = passed.clone();
                s.launch(move |_: &[u64]| flag.set(), &src).unwrap();
                let early = passed.comes(ignore);
                gate.open();
                s.synchronize().unwrap();
                drop(outbox);
                (early, 0)
            } else {
                let from = window.slot_from(0, 0, LEN);
                let (inbox, _outbox) = window.open(&s).unwrap();
                let mut inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
                let came = inbox.read(&s).unwrap().slot(from)[0];
                (false, came)
            }
        });
        (results[0].0, results[1].1)
    };
    // At the target the second put, for which it has not posted, may overtake the first one's data. In staged memory it
    // may not.
    assert!(!once(false).0);
    let (early, came) = once(true);
    assert!(early && came == 2, "{early}, {came}");
}

/// Puts that lie side by side go as one transfer. Layouts, groups and parts arrive where they belong.
#[test]
fn staged_puts_of_any_shape_arrive() {
    let came = staged(&Gate::opened(), |world| {
        crate::stream!(let s = world.stream().unwrap());
        let other = 1 - world.rank();
        let mut window = SlotWindow::<u64>::new("w");
        let from_0 = window.slot_from(other, 0, LEN);
        let from_1 = window.slot_from(other, 1, LEN);
        window.slot_to(other, 0);
        let to_1 = window.slot_to(other, 1);
        let (mut inbox, mut outbox) = window.open(&s).unwrap();
        let counted: Vec<_> = (0..LEN as u64).collect();
        let src = Region::from_slice(&world, &counted).unwrap();
        let src = src.on(&s).unwrap();
        let every_second = Layout::<Host>::strided(0, &[(8, 2)]).unwrap();
        let picked = [9, 4, 0, 15].map(|index| index as u32);
        let picked = Layout::indexed(&world, &picked).unwrap();
        let mut seen = Vec::new();
        for _ in 0..3 {
            let exposed = inbox.post(&s).unwrap();
            let to = first(&outbox);
            let mut epoch = outbox.start();
            // Three puts lie side by side, in no particular order.
            epoch.put(src.slice(4..9).unwrap(), to.at(4)).unwrap();
            epoch.put(src.slice(0..4).unwrap(), to).unwrap();
            epoch.put(src.slice(9..16).unwrap(), to.at(9)).unwrap();
            let strided = src.slice(0..8).unwrap();
            epoch.put(strided, to_1.with(&every_second)).unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            let few = src.slice(12..16).unwrap();
            epoch.put(few, to_1.with(&picked)).unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            let slots = inbox.read(&s).unwrap();
            seen.push((slots.slot(from_0).to_vec(), slots.slot(from_1).to_vec()));
        }
        seen
    });
    for rank in came {
        for (turn, (_, second)) in rank.iter().enumerate() {
            // The buffers are used in turn; this one belongs to the indexed puts.
            let picked = [9, 4, 0, 15].map(|at: usize| second[at]);
            assert_eq!(picked, [12, 13, 14, 15], "turn {turn}");
        }
    }
}

/// Three ranks put to ranges of each other, near (0 and 1) and far. The ranges are put in part, and their owner changes
/// them between the epochs. `times` epochs are enqueued one by one, or as replays of a recorded one.
fn by_range(recorded: bool) -> Vec<Vec<u64>> {
    const EACH: usize = 5;
    const TIMES: usize = 3;
    let nic = |rank: usize| {
        let far: &[usize] = [&[2][..], &[2], &[0, 1]][rank];
        WorldOptions::new()
            .nic(Loopback::default())
            .route(Route::NicTo(far.into()))
            .staged()
    };
    World::local_with(3, nic, |world: World<Host>| {
        crate::stream!(let mut s = world.stream().unwrap());
        let me = world.rank();
        let mut window = RangeWindow::<u64>::new("w", 4 * EACH);
        let to: Vec<_> = (0..3)
            .map(|rank| window.range_to(rank, me * EACH..(me + 1) * EACH))
            .collect();
        // An empty range is a signal without data.
        window.range_to((me + 1) % 3, 0..0);
        let (mut inbox, outbox) = window.open(&s).unwrap();
        let here = inbox.host_mut(&s).unwrap();
        here.iter_mut().zip(0..).for_each(|(x, at)| *x = 1000 + at);
        let src = Region::from_slice(&world, &[me as u64 + 1; 2]).unwrap();
        let lent = (inbox, outbox, src.on(&s).unwrap());
        fn step<'s>(
            s: &Stream<'s, Host>,
            to: &[Out<u64>],
            (mut inbox, outbox, mut src): Lent<'s>,
        ) -> Result<Lent<'s>> {
            s.launch(|x: &mut [u64]| x[0] += 10, inbox.memory_mut())?;
            let mut epoch = outbox.start();
            for to in to {
                epoch.put(&src, to.at(1))?;
                epoch.put(src.slice(0..1)?, to.at(4))?;
            }
            let (mut inbox, outbox) = exchange(s, inbox, epoch)?;
            // What was not put is as the owner has left it, and the owner may change what was put.
            s.launch(|x: &mut [u64]| x[5] += 1, inbox.memory_mut())?;
            s.launch(
                |x: &mut [u64]| x.iter_mut().for_each(|x| *x += 100),
                &mut src,
            )?;
            Ok((inbox, outbox, src))
        }
        let mut lent = lent;
        if recorded {
            let (graph, all) = s.capture(lent, |s, lent| step(s, &to, lent)).unwrap();
            lent = graph.replay(&s, all, TIMES).unwrap();
        } else {
            for _ in 0..TIMES {
                lent = step(&s, &to, lent).unwrap();
            }
        }
        lent.0.host_mut(&s).unwrap().to_vec()
    })
}

type Lent<'s> = (
    Inbox<'s, u64, Host, ByRange>,
    Outbox<'s, u64, Host, ByRange>,
    On1<'s>,
);

#[test]
fn ranges_of_far_origins_are_copied_there_and_back() {
    let mut expected: Vec<u64> = (1000..1020).collect();
    for origin in 0..3 {
        let (first, last) = (5 * origin, origin as u64 + 1 + 200);
        expected[first + 1] = last;
        expected[first + 2] = last;
        expected[first + 4] = last;
    }
    expected[0] += 30;
    expected[5] += 3;
    for recorded in [false, true] {
        assert_eq!(by_range(recorded), vec![expected.clone(); 3], "{recorded}");
    }
}

/// Rank 0 gets and accumulates while the gate is closed. Returns how many times the source of an accumulate, and the
/// result of a get, were passed meanwhile, and what it has got; from rank 1, what its memory has become.
fn get_and_accumulate() -> Vec<(Vec<bool>, Vec<u64>)> {
    let gate = Gate::closed();
    let flags = Arc::new([const { AtomicBool::new(false) }; 2]);
    staged(&gate, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = RangeWindow::<u64>::new("w", 4);
        if world.rank() == 1 {
            let (mut inbox, _outbox) = window.open(&s).unwrap();
            for _ in 0..2 {
                s.launch(|x: &mut [u64]| x[0] += 5, inbox.memory_mut())
                    .unwrap();
                inbox = inbox.expose(&s).unwrap();
            }
            return (Vec::new(), inbox.host_mut(&s).unwrap().to_vec());
        }
        let (got, added) = (window.range_to(1, 0..1), window.range_to(1, 1..4));
        let (_inbox, outbox) = window.open(&s).unwrap();
        let numbers = Region::from_slice(&world, &[1u64, 2, 3]).unwrap();
        let mut numbers = numbers.on(&s).unwrap();
        let mut result = Region::<u64, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
        let passed = |at: usize| {
            let flags = flags.clone();
            move |x: &mut [u64]| {
                x.iter_mut().for_each(|x| *x *= 10);
                flags[at].store(true, Ordering::SeqCst);
            }
        };
        // Elements may be updated twice in an epoch.
        let mut epoch = outbox.start();
        epoch.accumulate(&numbers, added, Op::Sum).unwrap();
        epoch
            .accumulate(numbers.slice(1..3).unwrap(), added, Op::Sum)
            .unwrap();
        let outbox = epoch.complete(&s).unwrap();
        s.launch(passed(0), &mut numbers).unwrap();
        let mut epoch = outbox.start();
        epoch.get(&mut result, got).unwrap();
        epoch.accumulate(&numbers, added, Op::Sum).unwrap();
        let _outbox = epoch.complete(&s).unwrap();
        s.launch(passed(1), &mut result).unwrap();
        gate.wait_held();
        let since = Instant::now();
        while !flags[0].load(Ordering::SeqCst) && since.elapsed() < LONG {
            std::thread::sleep(WHILE / 20);
        }
        std::thread::sleep(WHILE);
        let early = flags.iter().map(|flag| flag.load(Ordering::SeqCst));
        let early = early.collect();
        gate.open();
        (early, result.into_host(&s).unwrap().to_vec())
    })
}

#[test]
fn operands_are_free_at_once_and_results_come_when_the_nic_has_them() {
    let results = get_and_accumulate();
    assert_eq!(results[0], (vec![true, false], vec![100]));
    assert_eq!(results[1].1, [10, 1 + 2 + 10, 2 + 3 + 20, 3 + 30]);
}

/// What staged memory cannot do is refused, on all ranks alike.
#[test]
fn staged_atomics_are_refused_by_all() {
    let gate = Gate::opened();
    let refused = staged(&gate, |world| {
        crate::stream!(let s = world.stream().unwrap());
        let mut window = AtomicWindow::<u64>::new("w", 8);
        window.target(1 - world.rank());
        window.open(&s).map(drop).unwrap_err().to_string()
    });
    for refused in refused {
        assert!(refused.contains("atomic windows cannot use"), "{refused}");
    }
}
