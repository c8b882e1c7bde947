//! Epochs of all disciplines, all operations, all shapes, checked.

use tidegate::CellsMut;
use tidegate::host::prelude::*;

/// Puts, gets and accumulates to ranges, with all shapes of memory on both sides.
pub(crate) fn ranges(world: World) {
    const LEN: usize = 6000;
    let (rank, size) = (world.rank(), world.size());
    let to = (rank + 1) % size;
    stream!(let s = world.stream().unwrap());
    let mut window = RangeWindow::<u32>::new("ranges", LEN);
    let range = window.range_to(to, 0..LEN);
    let (mut inbox, mut outbox) = window.open(&s).unwrap();
    let strided = Layout::strided(3, &[(10, 7), (20, 100)]).unwrap();
    let rows = Layout::strided(0, &[(500, 1), (3, 1000)]).unwrap();
    let mixed: Vec<u32> = (0..97).map(|index| (index * 61) % 97 * 11).collect();
    let indexed = Layout::indexed(&world, &mixed).unwrap();
    let layouts = [&strided, &rows, &indexed];
    let source: Vec<u32> = (0..LEN as u32).map(|x| x * 3 + 7 * rank as u32).collect();
    let src = Region::from_slice(&world, &source).unwrap().on(&s).unwrap();
    let elements = |layout: usize| -> Vec<usize> {
        match layout {
            0 => (0..20)
                .flat_map(|b| (0..10).map(move |a| 3 + 7 * a + 100 * b))
                .collect(),
            1 => (0..3)
                .flat_map(|b| (0..500).map(move |a| a + 1000 * b))
                .collect(),
            _ => mixed.iter().map(|x| *x as usize).collect(),
        }
    };
    let from = (rank + size - 1) % size;
    let theirs = |x: usize| x as u32 * 3 + 7 * from as u32;
    for (number, layout) in layouts.into_iter().enumerate() {
        let count = layout.count();
        let part = Layout::strided(0, &[(count as u32, 1)]).unwrap();
        // No choice of elements, at the source, at the target, on both sides.
        for sides in 0..4 {
            inbox.host_mut(&s).unwrap().fill(5);
            let mut back = Region::<u32, _>::zeroed(&world, LEN)
                .unwrap()
                .on(&s)
                .unwrap();
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            match sides {
                0 => epoch.put(&src, range).unwrap(),
                1 => epoch.put(src.with(layout).unwrap(), range.at(17)).unwrap(),
                2 => {
                    epoch
                        .put(src.with(&part).unwrap(), range.with(layout))
                        .unwrap();
                    outbox = epoch.complete(&s).unwrap();
                    inbox = exposed.wait(&s).unwrap();
                    let memory = inbox.host_mut(&s).unwrap();
                    for (index, at) in elements(number).into_iter().enumerate() {
                        assert_eq!(memory[at], theirs(index), "layout {number}");
                    }
                    continue;
                }
                _ => epoch
                    .put(src.with(layout).unwrap(), range.with(layout))
                    .unwrap(),
            }
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            let chosen = elements(number);
            let mut must = vec![5; LEN];
            match sides {
                0 => (0..LEN).for_each(|at| must[at] = theirs(at)),
                1 => (0..count).for_each(|at| must[17 + at] = theirs(chosen[at])),
                _ => chosen.iter().for_each(|at| must[*at] = theirs(*at)),
            }
            assert!(
                inbox.host_mut(&s).unwrap() == &must[..],
                "{number}, {sides}"
            );
            // A get brings the data back, and then an accumulate adds to it.
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            epoch
                .get(back.with_mut(layout).unwrap(), range.with(layout))
                .unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            let back = back.into_host(&s).unwrap();
            // This rank sees its target's elements, and all ranks put the same pattern with their rank.
            let mine = |x: usize| x as u32 * 3 + 7 * rank as u32;
            let mut there = vec![5; LEN];
            match sides {
                0 => (0..LEN).for_each(|at| there[at] = mine(at)),
                1 => (0..count).for_each(|at| there[17 + at] = mine(chosen[at])),
                _ => chosen.iter().for_each(|at| there[*at] = mine(*at)),
            }
            for at in &chosen {
                assert_eq!(
                    back[*at], there[*at],
                    "get: {number}, {sides}, element {at}"
                );
            }
            let exposed = inbox.post(&s).unwrap();
            let mut epoch = outbox.start();
            epoch
                .accumulate(src.with(layout).unwrap(), range.with(layout), Op::Sum)
                .unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
            chosen.iter().for_each(|at| must[*at] += theirs(*at));
            assert!(
                inbox.host_mut(&s).unwrap() == &must[..],
                "sum: {number}, {sides}"
            );
        }
    }
    // Counted copies: none of the elements, some, and all.
    let mut count = Region::zeroed(&world, 1).unwrap();
    for some in [0, 1, 777, LEN, LEN + 9] {
        count.write(0, &[some as u64]).unwrap();
        inbox.host_mut(&s).unwrap().fill(5);
        let counted = count.on(&s).unwrap();
        let exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.put_counted(&src, &counted, range).unwrap();
        outbox = epoch.complete(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        for (at, found) in inbox.host_mut(&s).unwrap().iter().enumerate() {
            let must = if at < some { theirs(at) } else { 5 };
            assert_eq!(*found, must, "{some} are counted, element {at}");
        }
        count = counted.into_host(&s).unwrap();
    }
}

/// A column of planes of each rank's memory belongs to an origin, which puts to all or some of it, gets it, and adds to
/// it. The rest belongs to the rank itself, even while its memory is exposed.
pub(crate) fn layouts(world: World) {
    let (rank, size) = (world.rank(), world.size());
    let dims = [4, size + 1, 5];
    let column = |origin: usize| Layout::subarray(&dims, &[0..4, origin..origin + 1, 1..4]);
    let elements = |origin: usize| -> Vec<usize> {
        let rows = (0..4).map(|x| (x * (size + 1) + origin) * 5);
        rows.flat_map(|row| row + 1..row + 4).collect()
    };
    stream!(let s = world.stream().unwrap());
    let mut window = RangeWindow::<u32>::new("layouts", 4 * (size + 1) * 5);
    let mine = column(rank).unwrap();
    let ways: Vec<_> = (0..size)
        .map(|target| window.layout_to(target, &mine))
        .collect();
    let (mut inbox, mut outbox) = window.open(&s).unwrap();
    inbox.host_mut(&s).unwrap().fill(5);
    let values: Vec<u32> = (0..12).map(|k| 100 * (rank as u32 + 1) + k).collect();
    let src = Region::from_slice(&world, &values).unwrap().on(&s).unwrap();

    let mut exposed = inbox.post(&s).unwrap();
    let mut epoch = outbox.start();
    for (target, to) in ways.iter().enumerate() {
        match target % 2 {
            0 => epoch.put(&src, *to).unwrap(),
            _ => {
                epoch.put(src.slice(0..4).unwrap(), *to).unwrap();
                epoch.put(src.slice(4..12).unwrap(), to.at(4)).unwrap();
            }
        }
    }
    outbox = epoch.complete(&s).unwrap();
    let own = |mut rest: CellsMut<'_, u32>| {
        for range in rest.ranges() {
            rest.slice_mut(range.clone()).fill(6);
        }
    };
    s.launch(own, exposed.rest_mut().unwrap()).unwrap();
    inbox = exposed.wait(&s).unwrap();
    let mut must = vec![6; inbox.host_mut(&s).unwrap().len()];
    for origin in 0..size {
        for (k, element) in elements(origin).into_iter().enumerate() {
            must[element] = 100 * (origin as u32 + 1) + k as u32;
        }
    }
    assert_eq!(*inbox.host_mut(&s).unwrap(), must);

    let zeroed = || Region::<u32, _>::zeroed(&world, 7).unwrap();
    let mut got: Vec<_> = (0..size).map(|_| zeroed().on(&s).unwrap()).collect();
    let exposed = inbox.post(&s).unwrap();
    let mut epoch = outbox.start();
    for (got, from) in got.iter_mut().zip(&ways) {
        epoch.get(got, from.at(4)).unwrap();
    }
    outbox = epoch.complete(&s).unwrap();
    inbox = exposed.wait(&s).unwrap();
    for got in got {
        assert_eq!(got.into_host(&s).unwrap()[..], values[4..11]);
    }
    let exposed = inbox.post(&s).unwrap();
    let mut epoch = outbox.start();
    for to in ways {
        let some = src.slice(3..10).unwrap();
        epoch.accumulate(some, to.at(3), Op::Sum).unwrap();
    }
    let _outbox = epoch.complete(&s).unwrap();
    let mut inbox = exposed.wait(&s).unwrap();
    for origin in 0..size {
        elements(origin)[3..10].iter().for_each(|at| must[*at] *= 2);
    }
    assert_eq!(*inbox.host_mut(&s).unwrap(), must);
}

/// Slots, from all to all, in groups of eager and fused epochs, with large and small data, on an inline stream and on
/// one with a thread.
pub(crate) fn slots(world: World) {
    let (rank, size) = (world.rank(), world.size());
    stream!(let a = world.inline_stream().unwrap());
    stream!(let b = world.stream().unwrap());
    exchange_all(&world, &a, rank, size, 3);
    exchange_all(&world, &b, rank, size, 40_000);
}

fn exchange_all<'s>(world: &World, s: &Stream<'s>, rank: usize, size: usize, len: usize) {
    let others = || (0..size).filter(move |other| *other != rank);
    let mut window = SlotWindow::new("all").buffers(Buffers::Double);
    for other in others() {
        window.slot_from(other, 0, len);
        window.slot_to(other, 0);
    }
    let (mut inbox, mut outbox) = window.open(s).unwrap();
    let mut src = Region::from_slice(world, &vec![rank as u64; len])
        .unwrap()
        .on(s)
        .unwrap();
    let mut wrong = Region::<u64, _>::zeroed(world, 1).unwrap().on(s).unwrap();
    for round in 0..20u64 {
        s.launch(
            |src: &mut [u64]| src.iter_mut().for_each(|x| *x += 100),
            &mut src,
        )
        .unwrap();
        let slots = outbox.slots();
        let mut epoch = outbox.start();
        for slot in slots {
            epoch.put(&src, slot).unwrap();
        }
        if round % 2 == 0 {
            (inbox, outbox) = exchange(s, inbox, epoch).unwrap();
        } else {
            // The post comes first, since an inline stream waits at once.
            let exposed = inbox.post(s).unwrap();
            outbox = epoch.complete(s).unwrap();
            inbox = exposed.wait(s).unwrap();
        }
        let check = move |slots: Slots<'_, u64>, wrong: &mut [u64]| {
            for (slot, other) in slots.iter().zip((0..size).filter(|other| *other != rank)) {
                let must = other as u64 + 100 * (round + 1);
                wrong[0] += slot.iter().filter(|x| **x != must).count() as u64;
            }
        };
        s.launch(check, (inbox.view(), &mut wrong)).unwrap();
    }
    assert_eq!(wrong.into_host(s).unwrap()[0], 0);
}

/// A counter, a sum of floats and a lock, which all ranks use at once, including the owner.
pub(crate) fn atomics(world: World, swaps: bool) {
    let (rank, size) = (world.rank(), world.size());
    const ROUNDS: u64 = 25;
    stream!(let s = world.stream().unwrap());
    let mut integers = AtomicWindow::<i64>::new("integers", 100);
    let mut floats = AtomicWindow::<f64>::new("floats", 10);
    let targets: Vec<_> = (0..size)
        .map(|rank| (integers.target(rank), floats.target(rank)))
        .collect();
    let first = targets[0].0;
    let (mut inbox, mut outbox) = integers.open(&s).unwrap();
    let (mut sums, mut adds) = floats.open(&s).unwrap();
    let region = |values: &[i64]| Region::from_slice(&world, values).unwrap().on(&s).unwrap();
    let (ones, many) = (region(&[1; 1]), region(&[2; 50]));
    let half = Region::from_slice(&world, &[0.5f64; 10])
        .unwrap()
        .on(&s)
        .unwrap();
    let mut tickets = Vec::new();
    let mut won = 0;
    for round in 0..ROUNDS as i64 {
        let (mut before, mut whole, mut was) = (region(&[0]), region(&[0; 100]), region(&[9]));
        let (compare, desired) = (region(&[round]), region(&[round + 1]));
        let exposed = inbox.post(&s).unwrap();
        let other = sums.post(&s).unwrap();
        let mut epoch = outbox.start();
        // A ticket of rank 0, a swap there, and 50 elements of every rank.
        epoch
            .fetch_and_op(&ones, &mut before, first.at(7), Op::Sum)
            .unwrap();
        if swaps {
            epoch
                .compare_and_swap(&compare, &desired, &mut was, first.at(8))
                .unwrap();
        }
        for (target, _) in &targets {
            epoch.accumulate(&many, target.at(20), Op::Sum).unwrap();
        }
        epoch.get(&mut whole, first).unwrap();
        outbox = epoch.complete(&s).unwrap();
        let mut epoch = adds.start();
        for (_, target) in &targets {
            epoch.accumulate(&half, *target, Op::Sum).unwrap();
        }
        adds = epoch.complete(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        sums = other.wait(&s).unwrap();
        tickets.push(before.into_host(&s).unwrap()[0]);
        let found = was.into_host(&s).unwrap()[0];
        won += i64::from(swaps && found == round);
        let ticket = whole.into_host(&s).unwrap()[7];
        assert!(ticket > *tickets.last().unwrap());
        // All ranks finish this round before the next value of the lock is used.
        world.all_gather("round", Vec::new()).unwrap();
    }
    let mine = inbox.host_mut(&s).unwrap();
    assert!(
        mine[20..70]
            .iter()
            .all(|x| *x == 2 * (ROUNDS as i64) * size as i64),
        "{mine:?}"
    );
    assert!(mine[70..].iter().all(|x| *x == 0));
    let floats = sums.host_mut(&s).unwrap();
    assert_eq!(floats, [0.5 * (ROUNDS as f64) * size as f64; 10]);
    // Every ticket was given once, and every lock was taken once.
    let bytes = tickets.iter().chain([&won]).flat_map(|x| x.to_ne_bytes());
    let all = world.all_gather("tickets", bytes.collect()).unwrap();
    let number = |bytes: &[u8]| i64::from_ne_bytes(bytes.try_into().unwrap());
    let (mut given, mut taken) = (Vec::new(), 0);
    for each in all {
        let (of_rank, won) = each.split_at(each.len() - 8);
        given.extend(of_rank.chunks(8).map(number));
        taken += number(won);
    }
    given.sort_unstable();
    let must: Vec<_> = (0..(ROUNDS * size as u64) as i64).collect();
    let swapped = if swaps { ROUNDS as i64 } else { 0 };
    assert_eq!((given, taken), (must, swapped));
    assert!(rank != 0 || mine_is(&mut inbox, &s, 8) == swapped);
}

fn mine_is<'s>(inbox: &mut Inbox<'s, i64, tidegate::Atomic>, s: &Stream<'s>, at: usize) -> i64 {
    inbox.host_mut(s).unwrap()[at]
}

/// No rank passes a barrier before all have come: each adds to a shared counter in front of it.
pub(crate) fn barrier(world: World) {
    let size = world.size() as i64;
    stream!(let s = world.stream().unwrap());
    let mut window = AtomicWindow::<i64>::new("marks", 1);
    let target = window.target(0);
    let (mut inbox, mut outbox) = window.open(&s).unwrap();
    let mut barrier = Barrier::open(&s, "barrier").unwrap();
    let region = |value| {
        Region::from_slice(&world, &[value])
            .unwrap()
            .on(&s)
            .unwrap()
    };
    let one = region(1);
    for round in 1..=20 {
        let mut seen = region(0);
        let exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.accumulate(&one, target, Op::Sum).unwrap();
        outbox = epoch.complete(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        barrier.enqueue(&s).unwrap();
        let exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.get(&mut seen, target).unwrap();
        outbox = epoch.complete(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        barrier.enqueue(&s).unwrap();
        assert_eq!(seen.into_host(&s).unwrap()[0], round * size);
    }
}

/// Windows that are opened and dropped use the same memory again, and larger ones find memory.
pub(crate) fn memory(world: World) {
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    stream!(let s = world.stream().unwrap());
    // Without reuse, 400 windows of 100 KB would need 40 MB.
    for round in 0..400u64 {
        let len = if round % 100 == 99 { 400_000 } else { 12_500 };
        let mut window = SlotWindow::<u64>::new("again");
        let from = window.slot_from(left, 0, len);
        let to = window.slot_to(right, 0);
        let (mut inbox, outbox) = window.open(&s).unwrap();
        assert!(inbox.read(&s).unwrap().slot(from).iter().all(|x| *x == 0));
        let src = Region::from_slice(&world, &vec![round + 1; len])
            .unwrap()
            .on(&s)
            .unwrap();
        let mut epoch = outbox.start();
        epoch.put(&src, to).unwrap();
        let (mut inbox, _outbox) = exchange(&s, inbox, epoch).unwrap();
        let seen = inbox.read(&s).unwrap();
        assert!(seen.slot(from).iter().all(|x| *x == round + 1));
    }
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .unwrap();
    let kb: u64 = peak.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(kb < 200_000, "{peak}");
}

/// A rank that only tests whether an epoch is over learns it, and the operands stay correct.
pub(crate) fn polled(world: World) {
    use tidegate::window::Tested;
    stream!(let s = world.stream().unwrap());
    let (rank, size) = (world.rank(), world.size());
    let (to, from) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut window = SlotWindow::<u64>::new("polled");
    let came_from = window.slot_from(from, 0, 10);
    let way = window.slot_to(to, 0);
    let (mut inbox, mut outbox) = window.open(&s).unwrap();
    for round in 0..5u64 {
        let src = Region::from_slice(&world, &[round + 1; 10]).unwrap();
        let src = src.on(&s).unwrap();
        let mut exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&src, way).unwrap();
        outbox = epoch.complete(&s).unwrap();
        let began = std::time::Instant::now();
        inbox = loop {
            match exposed.test(&s).unwrap() {
                Tested::Done(inbox) => break inbox,
                Tested::Pending(back) => exposed = back,
            }
            assert!(began.elapsed().as_secs() < 300, "round {round} is not over");
            std::thread::yield_now();
        };
        assert_eq!(inbox.read(&s).unwrap().slot(came_from), [round + 1; 10]);
    }
}
