//! All collectives of threads, against oracles, with random lengths, choices and delays.

mod counted;
mod nodes;

use std::time::Duration;

use tidegate_hal::batch::Op;
use tidegate_host::Host;
use tidegate_loopback::{Loopback, Options};

use super::*;
use crate::error::{EpochError, Error, Result, WindowError};
use crate::random::Rng;
use crate::{On, Region, Route, Stream, Team, World, WorldOptions, stream};

type OnStream<'s, T> = Region<T, On<'s, Host>>;
type S<'s> = Stream<'s, Host>;

/// What a rank has at a place of its vector. Sums of these depend on their order.
fn datum(rank: usize, at: usize, seed: u64) -> f64 {
    let bits = crate::random::mix(seed ^ (rank as u64) << 32 ^ at as u64);
    (bits >> 11) as f64 * 1e-9 - 4e6
}

/// Elements of the vector of a rank.
fn data(rank: usize, range: std::ops::Range<usize>, seed: u64) -> Vec<f64> {
    range.map(|at| datum(rank, at, seed)).collect()
}

/// The sum of an element over some ranks, in their order.
fn sum(ranks: std::ops::Range<usize>, at: usize, seed: u64) -> f64 {
    let first = datum(ranks.start, at, seed);
    (ranks.start + 1..ranks.end).fold(first, |all, rank| all + datum(rank, at, seed))
}

fn bits(values: &[f64]) -> Vec<u64> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The lengths and choices of a round, which are the same on all ranks.
struct Plan {
    ranks: usize,
    rank: usize,
    root: usize,
    len: usize,
    counts: Vec<usize>,
    choice: Choice,
    seed: u64,
}

impl Plan {
    fn new(team: &Team<Host>, random: &mut Rng) -> Self {
        let ranks = team.size();
        let most = random.of(&[3, 50, 700]);
        Plan {
            ranks,
            rank: team.rank(),
            root: random.below(ranks),
            len: random.below(most),
            counts: (0..ranks).map(|_| random.below(most)).collect(),
            choice: Choice {
                short: random.of(&[0, 256, 1 << 20]),
                pair: random.of(&[0, 256, 1 << 20]),
                piece: random.of(&[64, 1024, 1 << 20]),
                few: random.of(&[1, 3, 32]),
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
    fn gathered(&self) -> Vec<f64> {
        let block = |rank| data(rank, 0..self.counts[rank], self.seed);
        (0..self.ranks).flat_map(block).collect()
    }

    fn equal(&self) -> Vec<f64> {
        let block = |rank| data(rank, 0..self.len, self.seed);
        (0..self.ranks).flat_map(block).collect()
    }

    fn sums(&self, ranks: std::ops::Range<usize>) -> Vec<f64> {
        let one = |at| sum(ranks.clone(), at, self.seed);
        (0..self.len).map(one).collect()
    }
}

/// All collectives that move data, with their buffers. A step carries each of them out once.
struct All<'s> {
    plan: Plan,
    broadcast: Broadcast<'s, f64, Host>,
    all_gather: AllGather<'s, f64, Host>,
    all_gather_counts: AllGather<'s, f64, Host>,
    gather: Gather<'s, f64, Host>,
    scatter: Scatter<'s, f64, Host>,
    all_to_all: AllToAll<'s, f64, Host>,
    all_to_all_counts: AllToAll<'s, f64, Host>,
    reduce: Reduce<'s, f64, Host>,
    all_reduce: AllReduce<'s, f64, Host>,
    reduce_scatter: ReduceScatter<'s, f64, Host>,
    scan: Scan<'s, f64, Host>,
    exclusive: Scan<'s, f64, Host>,
    /// Chooses the order of the calls: the same on all ranks.
    orders: Rng,
    /// Says when this rank is late.
    delays: Rng,
}

/// The buffers: what each collective reads, and what it writes.
struct Buffers<'s> {
    read: Vec<OnStream<'s, f64>>,
    written: Vec<OnStream<'s, f64>>,
}

/// How many elements a rank sends to another, if each pair has a number of its own.
fn pair(from: usize, to: usize, plan: &Plan) -> usize {
    (plan.counts[from] + 3 * to) % 40
}

impl<'s> All<'s> {
    fn open(team: &Team<Host>, s: &S<'s>, plan: Plan, delays: Rng) -> Result<Self> {
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
            broadcast: Broadcast::open_in_with(team, s, "broadcast", root, len, choice)?,
            all_gather: AllGather::open_in_with(team, s, "all-gather", len, choice)?,
            all_gather_counts: AllGather::open_counts_in(team, s, "all-gather-v", &plan.counts)?,
            gather: Gather::open_counts_in(team, s, "gather", root, &plan.counts)?,
            scatter: Scatter::open_counts_in(team, s, "scatter", root, &plan.counts)?,
            all_to_all: AllToAll::open_in_with(team, s, "all-to-all", len, choice)?,
            all_to_all_counts: AllToAll::open_counts_in(team, s, "all-to-all-v", &to, &from)?,
            reduce: Reduce::open_in_with(team, s, "reduce", root, len, choice)?,
            all_reduce: AllReduce::open_in_with(team, s, "all-reduce", len, choice)?,
            reduce_scatter: ReduceScatter::open_in_with(team, s, "reduce-scatter", len, choice)?,
            scan: Scan::open_in_with(team, s, "scan", len, choice)?,
            exclusive: Scan::open_exclusive_in(team, s, "exclusive", len, choice)?,
            orders: Rng::new(plan.seed),
            delays,
            plan,
        })
    }

    /// What each collective reads, in the order of the fields.
    fn inputs(&self) -> Vec<Vec<f64>> {
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
    fn expected(&self) -> Vec<Vec<f64>> {
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
                vec![-1.0; len]
            } else {
                plan.sums(0..rank)
            },
        ]
    }

    fn buffers(&self, s: &S<'s>) -> Result<Buffers<'s>> {
        let on = |values: Vec<f64>| Region::from_vec(s.world(), values)?.on(s);
        let lengths = self
            .expected()
            .into_iter()
            .map(|values| vec![-1.0; values.len()]);
        Ok(Buffers {
            read: self.inputs().into_iter().map(on).collect::<Result<_>>()?,
            written: lengths.map(on).collect::<Result<_>>()?,
        })
    }

    /// Calls each collective, in an order that is the same on all ranks. Before some calls, this rank's stream is late.
    fn step(&mut self, s: &S<'s>, buffers: &mut Buffers<'s>, in_place: bool) -> Result<()> {
        for y in &mut buffers.written {
            s.launch(|y: &mut [f64]| y.fill(-1.0), y)?;
        }
        let mut order: Vec<_> = (0..buffers.written.len()).collect();
        self.orders.shuffle(&mut order);
        for number in order {
            let (x, y) = (&buffers.read[number], &mut buffers.written[number]);
            if self.delays.once_in(4) {
                let pause = Duration::from_micros(self.delays.next() % 100);
                s.launch(move |_: &mut [f64]| std::thread::sleep(pause), &mut *y)?;
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
        (x, y): (&OnStream<'s, f64>, &mut OnStream<'s, f64>),
        in_place: bool,
    ) -> Result<()> {
        let (rank, len) = (self.plan.rank, self.plan.len);
        let fill = |y: &mut OnStream<'s, f64>, at: usize| {
            s.launch(
                move |x: &[f64], y: &mut [f64]| y[at..at + x.len()].copy_from_slice(x),
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
            7 => self.reduce.sum(s, y),
            8 if in_place => self.all_reduce.sum(s, y),
            8 => self.all_reduce.reduce_into(s, x, y, Op::Sum),
            9 => self.reduce_scatter.sum(s, x, y),
            10 if in_place => self.scan.sum(s, y),
            10 => self.scan.reduce_into(s, x, y, Op::Sum),
            11 if in_place && rank != 0 => self.exclusive.sum(s, y),
            11 => self.exclusive.reduce_into(s, x, y, Op::Sum),
            other => unreachable!("there is no collective {other}"),
        }
    }

    fn check(&self, s: &S<'s>, buffers: &Buffers<'s>, of: &str) -> Result<()> {
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
unsafe impl<'s> crate::Carry<'s, Host> for All<'s> {
    type At<'t> = All<'t>;
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
unsafe impl<'s> crate::Carry<'s, Host> for Buffers<'s> {
    type At<'t> = Buffers<'t>;
    fn visit(&mut self, visitor: &mut crate::carry::Visitor<'_, Host>) {
        self.read.visit(visitor);
        self.written.visit(visitor);
    }
}

/// When a rank is late, in a run.
fn delays(world: &World<Host>, run: u64) -> Rng {
    Rng::new(crate::random::mix(run << 16 ^ world.rank() as u64))
}

/// Eager calls, captured calls, and both mixed, for some random shapes.
fn rounds(world: &World<Host>, rounds: usize, seed: u64) -> Result<()> {
    rounds_in(&world.everyone(), rounds, seed)
}

fn rounds_in(team: &Team<Host>, rounds: usize, seed: u64) -> Result<()> {
    let world = team.world();
    let mut random = Rng::new(seed);
    for round in 0..rounds as u64 {
        stream!(let mut s = world.stream()?);
        let plan = Plan::new(team, &mut random);
        let mut all = All::open(team, &s, plan, delays(world, round))?;
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
        graph.verify_in(team, &s)?.proof().unwrap();
        for times in [1, 3] {
            lent = graph.replay(&s, lent, times)?;
            lent.0.check(&s, &lent.1, "replayed")?;
            lent.0.step(&s, &mut lent.1, false)?;
            lent.0.check(&s, &lent.1, "eager again")?;
        }
    }
    Ok(())
}

#[test]
fn all_of_them_are_those_of_the_oracle_eager_and_replayed() {
    for size in [1, 2, 3, 5, 8] {
        for result in World::<Host>::local(size, |world| rounds(&world, 24 / size, 7)) {
            result.unwrap();
        }
    }
}

/// Random teams, which overlap with those of the round before, and all of which work at a time.
#[test]
fn teams_have_all_of_them_too() {
    for (size, seed) in [(2, 1), (5, 2), (7, 3)] {
        let results = World::<Host>::local(size, |world| -> Result<()> {
            let mut random = Rng::new(seed);
            for round in 0..4 {
                let colors = 1 + random.below(3);
                let choices = (0..size).map(|_| (random.below(colors + 1), random.below(size)));
                let choices: Vec<_> = choices.collect();
                let (color, key) = choices[world.rank()];
                let color = (color < colors).then_some(color);
                let Some(team) = world.split("some", color, key)? else {
                    assert_eq!(color, None);
                    continue;
                };
                let alike = (0..size).filter(|rank| Some(choices[*rank].0) == color);
                let mut expected: Vec<_> = alike.collect();
                expected.sort_by_key(|rank| choices[*rank].1);
                assert_eq!(team.ranks(), expected);
                let seed = round << 8 | choices[expected[0]].0 as u64;
                rounds_in(&team, 2, seed)?;
                // A team of the team, in another order.
                let parity = team.split("parity", team.rank() % 2, team.size() - team.rank())?;
                rounds_in(&parity.unwrap(), 1, seed)?;
            }
            Ok(())
        });
        results.into_iter().collect::<Result<()>>().unwrap();
    }
}

/// The same sums in every run, to the bit, although other ranks are late each time.
#[test]
fn a_hundred_runs_have_the_same_bits() {
    World::<Host>::local(4, |world| {
        for run in 0..100 {
            stream!(let s = world.stream().unwrap());
            let team = world.everyone();
            let plan = Plan::new(&team, &mut Rng::new(run % 4));
            let mut all = All::open(&team, &s, plan, delays(&world, run)).unwrap();
            let mut buffers = all.buffers(&s).unwrap();
            for in_place in [false, true] {
                all.step(&s, &mut buffers, in_place).unwrap();
                all.check(&s, &buffers, "late").unwrap();
            }
        }
    });
}

#[test]
fn over_nics_too() {
    let late = Options::default().delay(Duration::from_micros(50));
    for (size, staged) in [(2, false), (3, true), (4, false)] {
        for (route, options) in [
            (Route::Nic, Options::default()),
            (Route::NicTo([0].into()), Options::default().budget(1)),
            (Route::Nic, late.clone()),
        ] {
            let nic = |_| {
                let options = WorldOptions::new()
                    .nic(Loopback::new(options.clone()))
                    .route(route.clone());
                if staged { options.staged() } else { options }
            };
            for result in World::<Host>::local_with(size, nic, |world| rounds(&world, 3, 11)) {
                result.unwrap();
            }
        }
    }
}

#[test]
fn elements_of_several_numbers_are_reduced_one_by_one() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let rank = world.rank() as i32;
        let mut all = AllReduce::open(&s, "all", 100).unwrap();
        let x = [[[rank, 2], [3, -rank]]; 100];
        let mut x = Region::from_slice(&world, &x).unwrap().on(&s).unwrap();
        all.sum(&s, &mut x).unwrap();
        all.max(&s, &mut x).unwrap();
        assert_eq!(x.into_host(&s).unwrap()[..], [[[3, 6], [9, -3]]; 100]);
    });
}

#[cfg(feature = "complex")]
#[test]
fn complex_numbers_are_added_and_nothing_else() {
    use num_complex::Complex;
    World::<Host>::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        let mut all = AllReduce::open(&s, "all", 3).unwrap();
        let x = [Complex::new(world.rank() as f32, 0.5); 3];
        let mut x = Region::from_slice(&world, &x).unwrap().on(&s).unwrap();
        let error = all.prod(&s, &mut x).unwrap_err();
        let typed = matches!(
            error,
            Error::Epoch(EpochError::OnlySums { op: Op::Prod, .. })
        );
        assert!(typed, "{error}");
        all.sum(&s, &mut x).unwrap();
        assert_eq!(x.into_host(&s).unwrap()[..], [Complex::new(1.0, 1.0); 3]);
    });
}

#[test]
fn once_leaves_nothing_behind() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        for round in 0..20 {
            let x = [world.rank() as u64 + round; 4];
            let mut x = Region::from_slice(&world, &x).unwrap().on(&s).unwrap();
            let mut y = Region::zeroed(&world, 12).unwrap().on(&s).unwrap();
            AllGather::once(&s, &x, &mut y).unwrap();
            AllReduce::once(&s, &mut x, Op::Sum).unwrap();
            Broadcast::once(&s, 2, &mut y).unwrap();
            assert_eq!(x.into_host(&s).unwrap()[3], 3 + 3 * round);
            assert_eq!(y.into_host(&s).unwrap()[11], 2 + round);
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_and_changes_nothing() {
    World::<Host>::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        let mut all = AllGather::<u8, Host>::open(&s, "all", 2).unwrap();
        let region = |len| {
            Region::<u8, _>::zeroed(&world, len)
                .unwrap()
                .on(&s)
                .unwrap()
        };
        let (right, wrong) = (region(2), region(3));
        for (x, len) in [(&right, 3), (&wrong, 4)] {
            let error = all.enqueue(&s, x, &mut region(len)).unwrap_err();
            let typed = matches!(error, Error::Epoch(EpochError::CountMismatch { .. }));
            assert!(typed, "{error}");
        }
        all.enqueue(&s, &right, &mut region(4)).unwrap();
        s.synchronize().unwrap();
        let opened = Broadcast::<u8, Host>::open(&s, "news", 2, 1);
        let error = opened.err().unwrap();
        assert!(
            matches!(error, Error::NoSuchRank { rank: 2, size: 2 }),
            "{error}"
        );
        let opened = AllGather::<u8, Host>::open_counts(&s, "all-v", &[1]);
        let error = opened.err().unwrap();
        let counted = WindowError::Counts {
            name: "all-v".into(),
            counts: 1,
            ranks: 2,
        };
        assert_eq!(error.to_string(), counted.to_string());
    });
}

#[test]
fn ranks_that_disagree_are_told() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let last = world.rank() == 2;
        let roots = Broadcast::<f64, Host>::open(&s, "x", usize::from(last), 4).map(drop);
        let kinds = match last {
            true => AllGather::<f64, Host>::open(&s, "x", 4).map(drop),
            false => AllReduce::<f64, Host>::open(&s, "x", 4).map(drop),
        };
        let to = [usize::from(last); 3];
        let blocks = AllToAll::<f64, Host>::open_counts(&s, "x", &to, &[0; 3]).map(drop);
        let counts = AllGather::<f64, Host>::open_counts(&s, "x", &[1, 2, 3 + to[0]]).map(drop);
        // A rank disagrees with itself, and two ranks about a block that is longer than a piece.
        let rank = world.rank();
        let only = |len: usize, of: [usize; 2]| {
            let mut lengths = [0; 3];
            lengths[of[1]] = if rank == of[0] { len } else { 0 };
            lengths
        };
        let all_to_all = |to: &[usize], from: &[usize]| {
            AllToAll::<f64, Host>::open_counts(&s, "x", to, from).map(drop)
        };
        let oneself = all_to_all(&only(4096, [1, 1]), &only(1, [1, 1]));
        let piece = Choice::default().piece(3, 8);
        let pieces = all_to_all(&only(piece + 2, [0, 1]), &only(piece + 3, [1, 0]));
        all_to_all(&only(piece + 3, [0, 1]), &only(piece + 3, [1, 0])).unwrap();
        for opened in [roots, kinds, blocks, counts, oneself, pieces] {
            let error = opened.unwrap_err();
            let typed = matches!(error, Error::Open(WindowError::Disagreement { .. }));
            assert!(typed, "{error}");
        }
    });
}

/// Rank 1 ends when it has enqueued its part of some calls. The others wait for it, and all of them are told.
#[test]
fn of_a_rank_that_leaves_in_the_middle_all_others_hear() {
    leave_in_the_middle(&[0; 4], |_| WorldOptions::new());
}

fn leave_in_the_middle(nodes: &[usize], options: impl Fn(usize) -> WorldOptions + Sync) {
    let all_know = std::sync::Barrier::new(nodes.len() - 1);
    let results = World::<Host>::local_on(nodes, options, |world| {
        stream!(let s = world.stream().unwrap());
        let choice = Choice {
            short: 0,
            pair: 0,
            piece: 64,
            ..Choice::default()
        };
        let len = 400;
        let mut all = AllReduce::<f64, Host>::open_with(&s, "all", len, choice).unwrap();
        let mut chain = Scan::<f64, Host>::open_with(&s, "chain", len, choice).unwrap();
        let mut news = Broadcast::<f64, Host>::open_with(&s, "news", 2, len, choice).unwrap();
        let mut x = Region::from_slice(&world, &vec![1.0; len])
            .unwrap()
            .on(&s)
            .unwrap();
        all.sum(&s, &mut x).unwrap();
        news.enqueue(&s, &mut x).unwrap();
        s.synchronize().unwrap();
        if world.rank() == 1 {
            return Ok(());
        }
        // A call may be refused, if the others have said by then that they wait in vain.
        let called = all.sum(&s, &mut x).and_then(|()| chain.sum(&s, &mut x));
        let called = called.and_then(|()| news.enqueue(&s, &mut x));
        let result = called.and_then(|()| s.synchronize());
        // The others wait for ranks that have failed, and not for ranks that have left for that reason.
        all_know.wait();
        result
    });
    for (rank, result) in results.into_iter().enumerate() {
        match rank {
            1 => assert!(result.is_ok()),
            _ => {
                let error = result.unwrap_err();
                let typed = matches!(error, Error::Wait(_) | Error::Revoked { .. });
                assert!(typed, "{error}");
                // Between nodes, a rank may wait for one that has waited for rank 1, or whose NIC has given up waiting.
                let told = error.to_string();
                let indirect = ["has failed", "has given up"]
                    .iter()
                    .any(|end| told.contains(end));
                let indirect = nodes[3] != 0 && indirect;
                assert!(told.contains("rank 1") || indirect, "{error}");
            }
        }
    }
}
