//! Collectives of GPUs: short ones, whose data lands with tags, and long ones in chunks and pieces.

use crate::vendor::prelude::*;
use tidegate::Choice;

use super::common::ranks;

const RANKS: usize = 3;

fn datum(rank: usize, at: usize) -> f64 {
    ((rank * 7919 + at * 104_729 + 17) % 10_007) as f64 * 0.1
}

fn data(rank: usize, range: std::ops::Range<usize>) -> Vec<f64> {
    range.map(|at| datum(rank, at)).collect()
}

/// The sum over some ranks, in their order.
fn sum(last: usize, at: usize) -> f64 {
    (1..=last).fold(datum(0, at), |all, rank| all + datum(rank, at))
}

fn on<'s>(s: &Stream<'s>, values: &[f64]) -> Region<f64, On<'s>> {
    Region::from_slice(s.world(), values)
        .unwrap()
        .on(s)
        .unwrap()
}

fn check<'s>(s: &Stream<'s>, x: &Region<f64, On<'s>>, expected: Vec<f64>, what: &str) {
    assert!(x.to_vec(s).unwrap() == expected, "{what}");
}

/// What is captured: two collectives and their buffers.
type Lent<'s> = (
    AllReduce<'s, f64>,
    AllGather<'s, f64>,
    Region<f64, On<'s>>,
    Region<f64, On<'s>>,
);

fn step<'s>(s: &Stream<'s>, lent: Lent<'s>) -> tidegate::Result<Lent<'s>> {
    let (mut greatest, mut all, mut x, mut y) = lent;
    greatest.enqueue(s, &mut x)?;
    all.enqueue(s, &x, &mut y)?;
    Ok((greatest, all, x, y))
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn collectives_are_those_of_the_host() {
    // Here each rank of a scan sends to all higher ranks; `pieces` go from rank to rank.
    let short = Choice {
        scan: RANKS,
        ..Choice::default()
    };
    let pieces = Choice {
        short: 0,
        piece: 4 << 10,
        ..Choice::default()
    };
    for (len, choice) in [(3, short), (3, pieces), (3000, pieces)] {
        ranks(RANKS, |world, _| {
            let (rank, all) = (world.rank(), 0..RANKS);
            stream!(let mut s = world.stream().unwrap());
            let gathered: Vec<_> = all.clone().flat_map(|it| data(it, 0..len)).collect();
            let sums: Vec<_> = (0..len).map(|at| sum(RANKS - 1, at)).collect();
            let (mine, wide) = (data(rank, 0..len), data(rank, 0..RANKS * len));
            let (x, w) = (on(&s, &mine), on(&s, &wide));
            let (mut y, mut z) = (on(&s, &vec![0.0; RANKS * len]), on(&s, &vec![0.0; len]));

            let mut news = Broadcast::open_with(&s, "broadcast", 1, len, choice).unwrap();
            let mut gather = AllGather::open_with(&s, "all-gather", len, choice).unwrap();
            let mut blocks = AllToAll::open_with(&s, "all-to-all", len, choice).unwrap();
            let mut total = AllReduce::open_with(&s, "all-reduce", len, Op::Sum, choice).unwrap();
            let mut parts =
                ReduceScatter::open_with(&s, "reduce-scatter", len, Op::Sum, choice).unwrap();
            let mut scan = Scan::open_with(&s, "scan", len, Op::Sum, choice).unwrap();
            // Twice, so that both buffers are read.
            for _ in 0..2 {
                let mut n = on(&s, &mine);
                news.enqueue(&s, &mut n).unwrap();
                check(&s, &n, data(1, 0..len), "broadcast");
                gather.enqueue(&s, &x, &mut y).unwrap();
                check(&s, &y, gathered.clone(), "all-gather");
                blocks.enqueue(&s, &w, &mut y).unwrap();
                let block = |it| data(it, rank * len..(rank + 1) * len);
                check(&s, &y, all.clone().flat_map(block).collect(), "all-to-all");
                total.enqueue_into(&s, &x, &mut z).unwrap();
                check(&s, &z, sums.clone(), "all-reduce");
                parts.enqueue(&s, &w, &mut z).unwrap();
                let part = |at| sum(RANKS - 1, rank * len + at);
                check(&s, &z, (0..len).map(part).collect(), "reduce-scatter");
                scan.enqueue_into(&s, &x, &mut z).unwrap();
                let upto = (0..len).map(|at| sum(rank, at)).collect();
                check(&s, &z, upto, "scan");
            }
            let greatest = AllReduce::open_with(&s, "greatest", len, Op::Max, choice).unwrap();
            let lent = (greatest, gather, x, y);
            let (graph, lent) = s.capture(lent, step).unwrap();
            let lent = step(&s, graph.replay(&s, lent, 3).unwrap()).unwrap();
            let most = |at| all.clone().map(|it| datum(it, at)).fold(0.0, f64::max);
            let most: Vec<_> = (0..len).map(most).collect();
            check(&s, &lent.3, most.repeat(RANKS), "replayed");
        });
    }
}

/// A wait copies landed bytes to places of whole words alone. The last block lands, and goes to an odd place.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn blocks_that_land_come_to_odd_places() {
    let counts = [4, 1, 8];
    ranks(RANKS, |world, _| {
        stream!(let s = world.stream().unwrap());
        let mut all = AllGather::open_counts(&s, "all", &counts).unwrap();
        for epoch in 0..3u8 {
            let block = |rank: usize| vec![10 * epoch + rank as u8; counts[rank]];
            let x = Region::from_slice(&world, &block(world.rank())).unwrap();
            let (x, y) = (x.on(&s).unwrap(), Region::from_slice(&world, &[99; 13]));
            let mut y = y.unwrap().on(&s).unwrap();
            all.enqueue(&s, &x, &mut y).unwrap();
            assert_eq!(y.to_vec(&s).unwrap(), [0, 1, 2].map(block).concat());
        }
    });
}

/// What a counted all-to-all is captured with.
type Rows<'s> = (
    CountedAllToAll<'s, [f32; 3]>,
    Region<[f32; 3], On<'s>>,
    Region<u64, On<'s>>,
    Region<[f32; 3], On<'s>>,
    Region<u64, On<'s>>,
);

fn send<'s>(s: &Stream<'s>, rows: Rows<'s>) -> tidegate::Result<Rows<'s>> {
    let (mut it, x, counts, mut y, mut received) = rows;
    it.enqueue(s, &x, &counts, &mut y, &mut received)?;
    Ok((it, x, counts, y, received))
}

/// Short blocks, and long ones, which several multiprocessors move. The numbers of rows lie on the GPU.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn rows_are_counted_by_the_gpu() {
    for (most, width) in [(3, 1), (5, 7), (700, 33)] {
        ranks(RANKS, |world, _| {
            let rank = world.rank();
            stream!(let mut s = world.stream().unwrap());
            let block = most * width;
            let element = |rank: usize, at: usize| [rank as f32, at as f32, 0.5];
            let count = |from: usize, to: usize| (from * 5 + to * 3 + most - 1) % (most + 1);
            let x: Vec<_> = (0..RANKS * block).map(|at| element(rank, at)).collect();
            let counts: Vec<_> = (0..RANKS).map(|to| count(rank, to) as u64).collect();
            let nothing = [[-1.0; 3]].repeat(RANKS * block);
            let region = |of: &[[f32; 3]]| {
                let region = Region::from_slice(&world, of).unwrap();
                region.on(&s).unwrap()
            };
            let mut rows = (
                CountedAllToAll::open(&s, "rows", most, width).unwrap(),
                region(&x),
                Region::from_slice(&world, &counts).unwrap().on(&s).unwrap(),
                region(&nothing),
                Region::zeroed(&world, RANKS).unwrap().on(&s).unwrap(),
            );
            let expected: Vec<_> = (0..RANKS)
                .flat_map(|from| {
                    (0..block).map(move |at| match at < width * count(from, rank) {
                        true => element(from, rank * block + at),
                        false => [-1.0; 3],
                    })
                })
                .collect();
            let came: Vec<_> = (0..RANKS).map(|from| count(from, rank) as u64).collect();
            let check = |s: &Stream<'_>, y: Vec<[f32; 3]>, received: Vec<u64>, what: &str| {
                assert_eq!(received, came, "{what} on {}", s.name());
                assert!(y == expected, "{what}");
            };
            // Both buffers are read.
            for _ in 0..3 {
                rows = send(&s, rows).unwrap();
                check(
                    &s,
                    rows.3.to_vec(&s).unwrap(),
                    rows.4.to_vec(&s).unwrap(),
                    "eager",
                );
            }
            let (graph, rows) = s.capture(rows, send).unwrap();
            let rows = send(&s, graph.replay(&s, rows, 3).unwrap()).unwrap();
            check(
                &s,
                rows.3.to_vec(&s).unwrap(),
                rows.4.to_vec(&s).unwrap(),
                "replayed",
            );
        });
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn too_many_rows_fail_the_stream() {
    use tidegate::error::StreamError;
    ranks(2, |world, _| {
        let rank = world.rank();
        stream!(let s = world.stream().unwrap());
        let counts = if rank == 1 { [1u64 << 40, 3] } else { [0, 1] };
        let counts = Region::from_slice(&world, &counts).unwrap().on(&s).unwrap();
        let x = Region::<u32, _>::zeroed(&world, 6).unwrap().on(&s).unwrap();
        let mut y = Region::zeroed(&world, 6).unwrap().on(&s).unwrap();
        let mut received = Region::zeroed(&world, 2).unwrap().on(&s).unwrap();
        let mut it = CountedAllToAll::open(&s, "rows", 3, 1).unwrap();
        let called = it.enqueue(&s, &x, &counts, &mut y, &mut received);
        let error = called.and_then(|()| s.synchronize()).unwrap_err();
        match error {
            Error::Stream(StreamError::CountTooGreat {
                target: 0, count, ..
            }) => {
                assert_eq!((rank, count), (1, 1 << 40));
            }
            Error::Wait(_) | Error::Revoked { .. } if rank == 0 => {
                assert!(error.to_string().contains("1099511627776"), "{error}");
            }
            error => panic!("rank {rank}: {error}"),
        }
    });
}

/// What a step of a team has: a window with a source, and a sum with its two buffers.
type InTeam<'s> = (
    Inbox<'s, u64>,
    Outbox<'s, u64>,
    AllReduce<'s, f64>,
    Region<u64, On<'s>>,
    Region<f64, On<'s>>,
    Region<f64, On<'s>>,
);

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn teams_have_windows_and_collectives_of_their_own() {
    ranks(RANKS, |world, k| {
        // Ranks 2 and 0 are a team in this order, rank 1 is one alone.
        let team = world.split("parity", world.rank() % 2, RANKS - world.rank());
        let team = team.unwrap().unwrap();
        stream!(let mut s = world.stream().unwrap());
        let (left, right) = team.ring();
        let mut window = SlotWindow::new("ring");
        window.slot_from(left, 0, 2);
        let to = window.slot_to(right, 0);
        let (inbox, outbox) = window.open(&team.on(&s)).unwrap();
        let sums = AllReduce::open(&team.on(&s), "sum", 2, Op::Sum).unwrap();
        let (x, y) = (on(&s, &data(world.rank(), 0..2)), on(&s, &[0.0; 2]));
        let numbers = |rank: usize| [rank as u64; 2];
        let src = Region::from_slice(&world, &numbers(world.rank())).unwrap();
        let src = src.on(&s).unwrap();
        let (graph, lent) = s
            .capture((inbox, outbox, sums, src, x, y), |s, lent| {
                team_step(s, lent, to)
            })
            .unwrap();
        graph.verify(&team.on(&s)).unwrap().proof().unwrap();
        let lent = graph.replay(&s, lent, 3).unwrap();
        let (inbox, _outbox, _sums, _src, _x, y) = team_step(&s, lent, to).unwrap();
        let mut seen = Region::zeroed(&world, 2).unwrap().on(&s).unwrap();
        s.launch(k.copy_slot.threads(2, 32), (inbox.view(), 0u64, &mut seen))
            .unwrap();
        let left = team.world_rank(left).unwrap();
        assert_eq!(seen.to_vec(&s).unwrap(), numbers(left));
        let of = |rank: usize| data(team.world_rank(rank).unwrap(), 0..2);
        let sum = |at: usize| (1..team.size()).fold(of(0)[at], |all, rank| all + of(rank)[at]);
        check(&s, &y, vec![sum(0), sum(1)], "a team's sum");
    });
}

fn team_step<'s>(
    s: &Stream<'s>,
    (inbox, outbox, mut sums, src, x, mut y): InTeam<'s>,
    to: Out<u64>,
) -> tidegate::Result<InTeam<'s>> {
    let mut epoch = outbox.start();
    epoch.put(&src, to)?;
    let (inbox, outbox) = exchange(s, inbox, epoch)?;
    sums.enqueue_into(s, &x, &mut y)?;
    Ok((inbox, outbox, sums, src, x, y))
}
