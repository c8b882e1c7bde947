//! All collectives that move data, against an oracle: a case of each, called in any order, eager or replayed.

use half::{bf16, f16};
use num_complex::Complex;

use super::datum::Datum;
use super::*;

/// What a rank has at a place of its vector. Sums of these depend on their order.
fn datum<T: Datum>(rank: usize, at: usize, seed: u64) -> T {
    let bits = crate::random::mix(seed ^ (rank as u64) << 32 ^ at as u64);
    T::of((bits >> 11) as f64 * 1e-9 - 4e6)
}

/// Elements of the vector of a rank.
fn data<T: Datum>(rank: usize, range: std::ops::Range<usize>, seed: u64) -> Vec<T> {
    range.map(|at| datum(rank, at, seed)).collect()
}

/// The sum of an element over some ranks, in their order.
fn sum<T: Datum>(ranks: std::ops::Range<usize>, at: usize, seed: u64) -> T {
    let first = datum::<T>(ranks.start, at, seed);
    (ranks.start + 1..ranks.end).fold(first, |all, rank| all.plus(datum(rank, at, seed)))
}

fn bits<T: Datum>(values: &[T]) -> Vec<u64> {
    values.iter().flat_map(|value| value.bits()).collect()
}

/// What all places of the outputs have at first.
fn unset<T: Datum>() -> T {
    T::of(-1.0)
}

/// The lengths and choices of a round, which are the same on all ranks.
pub(super) struct Plan {
    ranks: usize,
    rank: usize,
    root: usize,
    len: usize,
    counts: Vec<usize>,
    choice: Choice,
    seed: u64,
}

impl Plan {
    pub(super) fn new(team: &Team<Host>, random: &mut Rng) -> Self {
        let ranks = team.size();
        // The longest are read from the memory of other ranks.
        let is_long = random.once_in(8);
        let most = if is_long {
            12_000
        } else {
            random.of(&[3, 50, 700])
        };
        let pieces = if is_long {
            [68 << 10, 80 << 10, 1 << 20]
        } else {
            [64, 1024, 1 << 20]
        };
        Plan {
            ranks,
            rank: team.rank(),
            root: random.below(ranks),
            len: random.below(most),
            counts: (0..ranks).map(|_| random.below(most)).collect(),
            choice: Choice {
                short: random.of(&[0, 256, 1 << 20]),
                at_once: random.once_in(2),
                pair: random.of(&[0, 256, 1 << 20]),
                piece: random.of(&pieces),
                few: random.of(&[1, 3, 32]),
                scan: random.of(&[1, 3, 32]),
                along: random.of(&[0, 256, 1 << 20]),
                by_node: !random.once_in(4),
            },
            seed: random.next(),
        }
    }

    fn all(&self) -> usize {
        self.counts.iter().sum()
    }

    fn before(&self, rank: usize) -> usize {
        self.counts[..rank].iter().sum()
    }

    /// The blocks of all ranks.
    fn gathered<T: Datum>(&self) -> Vec<T> {
        let block = |rank| data(rank, 0..self.counts[rank], self.seed);
        (0..self.ranks).flat_map(block).collect()
    }

    fn equal<T: Datum>(&self) -> Vec<T> {
        let block = |rank| data(rank, 0..self.len, self.seed);
        (0..self.ranks).flat_map(block).collect()
    }

    fn sums<T: Datum>(&self, ranks: std::ops::Range<usize>) -> Vec<T> {
        let one = |at| sum(ranks.clone(), at, self.seed);
        (0..self.len).map(one).collect()
    }
}

/// All collectives that move data, with their buffers. A step carries each of them out once.
pub(super) struct All<'s, T: Datum> {
    plan: Plan,
    broadcast: Broadcast<'s, T, Host>,
    all_gather: AllGather<'s, T, Host>,
    all_gather_counts: AllGather<'s, T, Host>,
    gather: Gather<'s, T, Host>,
    scatter: Scatter<'s, T, Host>,
    all_to_all: AllToAll<'s, T, Host>,
    all_to_all_counts: AllToAll<'s, T, Host>,
    reduce: Reduce<'s, T, Host>,
    all_reduce: AllReduce<'s, T, Host>,
    reduce_scatter: ReduceScatter<'s, T, Host>,
    scan: Scan<'s, T, Host>,
    exclusive: Scan<'s, T, Host>,
    /// Chooses the order of the calls: the same on all ranks.
    orders: Rng,
    /// Says when this rank is late.
    delays: Rng,
}

/// The buffers: what each collective reads, and what it writes.
pub(super) struct Buffers<'s, T> {
    read: Vec<OnStream<'s, T>>,
    written: Vec<OnStream<'s, T>>,
}

/// How many elements a rank sends to another, if each pair has a number of its own.
fn pair(from: usize, to: usize, plan: &Plan) -> usize {
    (plan.counts[from] + 3 * to) % plan.len.max(40)
}

impl<'s, T: Datum> All<'s, T> {
    pub(super) fn open(team: &Team<Host>, s: &S<'s>, plan: Plan, delays: Rng) -> Result<Self> {
        let Plan {
            root,
            len,
            choice,
            ranks,
            rank,
            ..
        } = plan;
        let to: Vec<_> = (0..ranks).map(|it| pair(rank, it, &plan)).collect();
        let from: Vec<_> = (0..ranks).map(|it| pair(it, rank, &plan)).collect();
        Ok(All {
            broadcast: Broadcast::open_with(&team.on(s), "broadcast", root, len, choice)?,
            all_gather: AllGather::open_with(&team.on(s), "all-gather", len, choice)?,
            all_gather_counts: AllGather::open_counts(&team.on(s), "all-gather-v", &plan.counts)?,
            gather: Gather::open_counts(&team.on(s), "gather", root, &plan.counts)?,
            scatter: Scatter::open_counts(&team.on(s), "scatter", root, &plan.counts)?,
            all_to_all: AllToAll::open_with(&team.on(s), "all-to-all", len, choice)?,
            all_to_all_counts: AllToAll::open_counts(&team.on(s), "all-to-all-v", &to, &from)?,
            reduce: Reduce::open_with(&team.on(s), "reduce", root, len, Op::Sum, choice)?,
            all_reduce: AllReduce::open_with(&team.on(s), "all-reduce", len, Op::Sum, choice)?,
            reduce_scatter: ReduceScatter::open_with(
                &team.on(s),
                "reduce-scatter",
                len,
                Op::Sum,
                choice,
            )?,
            scan: Scan::open_with(&team.on(s), "scan", len, Op::Sum, choice)?,
            exclusive: Scan::open_exclusive_with(&team.on(s), "exclusive", len, Op::Sum, choice)?,
            orders: Rng::new(plan.seed),
            delays,
            plan,
        })
    }

    /// What each collective reads, in the order of the fields.
    fn inputs(&self) -> Vec<Vec<T>> {
        let Plan {
            ranks,
            rank,
            len,
            seed,
            ..
        } = self.plan;
        let own = |count| data(rank, 0..count, seed);
        let moved: usize = (0..ranks).map(|to| pair(rank, to, &self.plan)).sum();
        let mine = self.plan.counts[rank];
        let lengths = [
            len,
            len,
            mine,
            mine,
            self.plan.all(),
            ranks * len,
            moved,
            len,
            len,
            ranks * len,
            len,
            len,
        ];
        lengths.map(own).into()
    }

    /// What each collective writes.
    fn expected(&self) -> Vec<Vec<T>> {
        let plan = &self.plan;
        let Plan {
            ranks,
            rank,
            root,
            len,
            seed,
            ..
        } = *plan;
        let is_root = rank == root;
        let block = |from: usize| data(from, rank * len..(rank + 1) * len, seed);
        let moved = |from: usize| {
            let first: usize = (0..rank).map(|to| pair(from, to, plan)).sum();
            data(from, first..first + pair(from, rank, plan), seed)
        };
        let part = |at| sum(0..ranks, rank * len + at, seed);
        vec![
            data(root, 0..len, seed),
            plan.equal(),
            plan.gathered(),
            if is_root { plan.gathered() } else { Vec::new() },
            data(root, plan.before(rank)..plan.before(rank + 1), seed),
            (0..ranks).flat_map(block).collect(),
            (0..ranks).flat_map(moved).collect(),
            if is_root {
                plan.sums(0..ranks)
            } else {
                data(rank, 0..len, seed)
            },
            plan.sums(0..ranks),
            (0..len).map(part).collect(),
            plan.sums(0..rank + 1),
            if rank == 0 {
                vec![unset(); len]
            } else {
                plan.sums(0..rank)
            },
        ]
    }

    pub(super) fn buffers(&self, s: &S<'s>) -> Result<Buffers<'s, T>> {
        let on = |values: Vec<T>| Region::from_vec(s.world(), values)?.on(s);
        let lengths = self
            .expected()
            .into_iter()
            .map(|values| vec![unset(); values.len()]);
        Ok(Buffers {
            read: self.inputs().into_iter().map(on).collect::<Result<_>>()?,
            written: lengths.map(on).collect::<Result<_>>()?,
        })
    }

    /// Calls each collective, in an order that is the same on all ranks. Before some calls, this rank's stream is late.
    pub(super) fn step(
        &mut self,
        s: &S<'s>,
        buffers: &mut Buffers<'s, T>,
        in_place: bool,
    ) -> Result<()> {
        for y in &mut buffers.written {
            s.launch(|y: &mut [T]| y.fill(unset()), y)?;
        }
        let mut order: Vec<_> = (0..buffers.written.len()).collect();
        self.orders.shuffle(&mut order);
        for number in order {
            let (x, y) = (&buffers.read[number], &mut buffers.written[number]);
            if self.delays.once_in(4) {
                let pause = Duration::from_micros(self.delays.next() % 100);
                s.launch(move |_: &mut [T]| std::thread::sleep(pause), &mut *y)?;
            }
            self.call(number, s, (x, y), in_place)?;
        }
        Ok(())
    }

    /// Calls one of them, by the number of its field.
    fn call(
        &mut self,
        number: usize,
        s: &S<'s>,
        (x, y): (&OnStream<'s, T>, &mut OnStream<'s, T>),
        in_place: bool,
    ) -> Result<()> {
        let (rank, len) = (self.plan.rank, self.plan.len);
        let fill = |y: &mut OnStream<'s, T>, at: usize| {
            s.launch(
                move |x: &[T], y: &mut [T]| y[at..at + x.len()].copy_from_slice(x),
                (x, y),
            )
        };
        // These have one buffer, or are asked for it.
        match number {
            0 | 7 => fill(y, 0)?,
            1 if in_place => fill(y, rank * len)?,
            8 | 10 if in_place => fill(y, 0)?,
            11 if in_place && rank != 0 => fill(y, 0)?,
            _ => {}
        }
        match number {
            0 => self.broadcast.enqueue(s, y),
            1 if in_place => self.all_gather.enqueue_in_place(s, y),
            1 => self.all_gather.enqueue(s, x, y),
            2 => self.all_gather_counts.enqueue(s, x, y),
            3 => self.gather.enqueue(s, x, y),
            4 => self.scatter.enqueue(s, x, y),
            5 => self.all_to_all.enqueue(s, x, y),
            6 => self.all_to_all_counts.enqueue(s, x, y),
            7 => self.reduce.enqueue(s, y),
            8 if in_place => self.all_reduce.enqueue(s, y),
            8 => self.all_reduce.enqueue_into(s, x, y),
            9 => self.reduce_scatter.enqueue(s, x, y),
            10 if in_place => self.scan.enqueue(s, y),
            10 => self.scan.enqueue_into(s, x, y),
            11 if in_place && rank != 0 => self.exclusive.enqueue(s, y),
            11 => self.exclusive.enqueue_into(s, x, y),
            other => unreachable!("there is no collective {other}"),
        }
    }

    pub(super) fn check(&self, s: &S<'s>, buffers: &Buffers<'s, T>, of: &str) -> Result<()> {
        let Plan {
            ranks,
            rank,
            len,
            choice,
            ..
        } = self.plan;
        let expected = self.expected();
        for (number, (y, expected)) in buffers.written.iter().zip(expected).enumerate() {
            let got = bits(&y.to_vec(s)?);
            let of = format!("{of} {number}: rank {rank} of {ranks}, {len}, {choice:?}");
            assert_eq!(got, bits(&expected), "{of}");
        }
        for (x, expected) in buffers.read.iter().zip(self.inputs()) {
            assert_eq!(bits(&x.to_vec(s)?), bits(&expected), "an input was changed");
        }
        Ok(())
    }
}

// SAFETY: all leaves are visited; they alone mention the brand.
unsafe impl<'s, T: Datum> crate::Carry<'s, Host> for All<'s, T> {
    type At<'t> = All<'t, T>;
    fn visit(&mut self, visitor: &mut crate::carry::Visitor<'_, Host>) {
        self.broadcast.visit(visitor);
        self.all_gather.visit(visitor);
        self.all_gather_counts.visit(visitor);
        self.gather.visit(visitor);
        self.scatter.visit(visitor);
        self.all_to_all.visit(visitor);
        self.all_to_all_counts.visit(visitor);
        self.reduce.visit(visitor);
        self.all_reduce.visit(visitor);
        self.reduce_scatter.visit(visitor);
        self.scan.visit(visitor);
        self.exclusive.visit(visitor);
    }
}

// SAFETY: as above.
unsafe impl<'s, T: Datum> crate::Carry<'s, Host> for Buffers<'s, T> {
    type At<'t> = Buffers<'t, T>;
    fn visit(&mut self, visitor: &mut crate::carry::Visitor<'_, Host>) {
        self.read.visit(visitor);
        self.written.visit(visitor);
    }
}

/// When a rank is late, in a run.
pub(super) fn delays(world: &World<Host>, run: u64) -> Rng {
    Rng::new(crate::random::mix(run << 16 ^ world.rank() as u64))
}

/// Eager calls, captured calls, and both mixed, for some random shapes.
pub(super) fn rounds(world: &World<Host>, rounds: usize, seed: u64) -> Result<()> {
    rounds_in(&world.everyone(), rounds, seed)
}

/// Each round has elements of another kind.
pub(super) fn rounds_in(team: &Team<Host>, rounds: usize, seed: u64) -> Result<()> {
    let mut random = Rng::new(seed);
    (0..rounds as u64).try_for_each(|round| match random.below(KINDS) {
        0 => one::<f64>(team, round, &mut random),
        1 => one::<f16>(team, round, &mut random),
        2 => one::<bf16>(team, round, &mut random),
        3 => one::<Complex<f64>>(team, round, &mut random),
        4 => one::<Complex<bf16>>(team, round, &mut random),
        5 => one::<[f32; 3]>(team, round, &mut random),
        _ => one::<[Complex<f16>; 2]>(team, round, &mut random),
    })
}

const KINDS: usize = 7;

fn one<T: Datum>(team: &Team<Host>, round: u64, random: &mut Rng) -> Result<()> {
    let world = team.world();
    stream!(let mut s = world.stream()?);
    let plan = Plan::new(team, random);
    let mut all = All::<T>::open(team, &s, plan, delays(world, round))?;
    let mut buffers = all.buffers(&s)?;
    for in_place in [false, true, false] {
        all.step(&s, &mut buffers, in_place)?;
        all.check(&s, &buffers, "eager")?;
    }
    let (graph, mut lent) = s.capture((all, buffers), |s, (mut all, mut buffers)| {
        all.step(s, &mut buffers, false)?;
        all.step(s, &mut buffers, true)?;
        Ok((all, buffers))
    })?;
    graph.verify(&team.on(&s))?.proof().unwrap();
    for times in [1, 3] {
        lent = graph.replay(&s, lent, times)?;
        lent.0.check(&s, &lent.1, "replayed")?;
        lent.0.step(&s, &mut lent.1, false)?;
        lent.0.check(&s, &lent.1, "eager again")?;
    }
    Ok(())
}
