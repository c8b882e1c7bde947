//! All-reduces, round after round: eager ones, between replays of recordings of one round and of several.
//!
//! # Model
//!
//! Before each round each rank changes all elements in a way of its own. So its input follows from the result of the
//! round before, element by element, and no two rounds are equal. A rank that takes the data of an earlier round (from
//! the buffer or landing of the same parity: two rounds before) has another result, then and ever after. So it is
//! enough to compare all elements with the model from time to time, and at the end. Comparing after each round would
//! wait for the round.
//!
//! Recordings have 1, 2 and 3 rounds, and are replayed 0 to 5 times, so their rounds begin with either parity. Two
//! all-reduces take turns, within a recording, too, so that one gets ahead of the other.

use tidegate::Arithmetic;
use tidegate::generic::{AllReduce, On, Region, Stream, World};
use tidegate::host::prelude::*;

use super::bag::Elem;
use super::device::Bench;
use super::value::{changed, mix};

/// Lengths. They fill a landing with one number of 8 bytes; with as many as a warp handles at a time, and with more;
/// and with as many as a block does. Then one without a landing, and one that takes many blocks.
pub(crate) const LENS: [usize; 6] = [1, 32, 33, 512, 513, 20_000];

/// The turns of a job. Each has a few rounds.
const TURNS: u64 = 60;
/// After this many turns, the host looks, and has waited for everything.
const LOOKS: u64 = 13;

/// A job.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) ranks: usize,
    pub(crate) len: usize,
    pub(crate) op: Op,
    /// Whether two all-reduces take turns.
    pub(crate) two: bool,
}

type Lent<'s, T, D> = (
    AllReduce<'s, T, D>,
    AllReduce<'s, T, D>,
    Region<T, On<'s, D>>,
);

/// A rank's change before a round.
fn salt(rank: usize) -> u64 {
    mix(rank as u64, 77)
}

impl Rounds {
    fn first<T: Elem>(self) -> Vec<T> {
        let one = |index| T::of(changed(T::TY, 5, index, 3));
        (0..self.len).map(one).collect()
    }

    /// The result of one more round, on all ranks.
    fn model<T: Elem>(self, x: &mut [T]) {
        for (index, x) in x.iter_mut().enumerate() {
            let of = |rank| changed(T::TY, x.bits(), index, salt(rank));
            let all = (1..self.ranks).fold(of(0), |all, rank| T::TY.apply(self.op, all, of(rank)));
            *x = T::of(all);
        }
    }

    /// Enqueues `count` rounds.
    fn enqueue<'s, T: Elem + Arithmetic, D: Bench>(
        self,
        kernels: &D::Kernels,
        s: &Stream<'s, D>,
        count: usize,
        lent: Lent<'s, T, D>,
    ) -> Result<Lent<'s, T, D>> {
        let (mut one, mut other, mut x) = lent;
        for round in 0..count {
            D::change(kernels, s, &mut x, salt(s.world().rank()))?;
            match self.two && round % 2 == 1 {
                true => other.enqueue(s, &mut x)?,
                false => one.enqueue(s, &mut x)?,
            }
        }
        Ok((one, other, x))
    }

    /// The program of a rank.
    fn rank<T: Elem + Arithmetic, D: Bench>(self, world: &World<D>) -> Result<()> {
        let kernels = &D::kernels(world)?;
        let (len, rank) = (self.len, world.rank());
        stream!(let mut s = world.stream()?);
        let mut expected = self.first::<T>();
        let x = Region::from_slice(world, &expected)?.on(&s)?;
        let [one, other] = ["one", "other"].map(|name| AllReduce::open(&s, name, len, self.op));
        let mut lent: Lent<'_, T, D> = (one?, other?, x);
        let mut graphs = Vec::new();
        for count in 1..=3 {
            let recorded = s.capture(lent, |s, lent| {
                self.enqueue::<T, D>(kernels, s, count, lent)
            });
            let (graph, back) = recorded?;
            graphs.push(graph);
            lent = back;
        }
        let mut rounds = 0;
        for turn in 0..TURNS {
            let random = mix(turn, 4);
            let (which, times) = (random % 4, (random >> 8) % 6);
            let each = which.max(1);
            lent = match which {
                0 => self.enqueue(kernels, &s, times as usize, lent)?,
                which => graphs[which as usize - 1].replay(&s, lent, times as usize)?,
            };
            rounds += each * times;
            (0..each * times).for_each(|_| self.model(&mut expected));
            if turn % LOOKS == LOOKS - 1 || turn == TURNS - 1 {
                let (one, other, x) = lent;
                let mut x = x.into_host(&s)?;
                D::region(&mut x, |x| {
                    let wrong = x.iter().zip(&expected);
                    let wrong = wrong.filter(|(a, b)| a.bits() != b.bits()).count();
                    assert_eq!(wrong, 0, "rank {rank} after {rounds} rounds of {self:?}");
                })?;
                lent = (one, other, x.on(&s)?);
            }
        }
        s.synchronize()
    }

    /// Runs the job.
    ///
    /// # Panics
    ///
    /// If a rank's result is not the model's.
    pub(crate) fn check<T: Elem + Arithmetic, D: Bench>(self) {
        let results = World::<D>::local(self.ranks, |world| self.rank::<T, D>(&world));
        for (rank, result) in results.into_iter().enumerate() {
            result.unwrap_or_else(|error| panic!("rank {rank} of {self:?}: {error}"));
        }
    }
}

/// All jobs, with this many ranks: numbers of all widths, integers and floats.
pub(crate) fn check<D: Bench>(ranks: usize) {
    for len in LENS {
        let job = |op, two| Rounds {
            ranks,
            len,
            op,
            two,
        };
        job(Op::Sum, false).check::<u64, D>();
        job(Op::Sum, true).check::<f64, D>();
        job(Op::BitXor, true).check::<u64, D>();
        job(Op::Prod, false).check::<i32, D>();
        job(Op::Sum, true).check::<u32, D>();
    }
}

/// A round on a stream, the next on another to which everything is handed over, and one on the first again. All of it
/// is recorded, and replayed between eager rounds.
pub(crate) fn check_handed_over<D: Bench>(ranks: usize) {
    for len in LENS {
        let (op, two) = (Op::Sum, true);
        let job = Rounds {
            ranks,
            len,
            op,
            two,
        };
        for result in World::<D>::local(ranks, |world| job.handed_over::<u64, D>(&world)) {
            result.unwrap();
        }
    }
}

impl Rounds {
    fn handed_over<T: Elem + Arithmetic, D: Bench>(self, world: &World<D>) -> Result<()> {
        let kernels = &D::kernels(world)?;
        stream!(let mut s = world.stream()?);
        stream!(let mut t = world.stream()?);
        let mut expected = self.first::<T>();
        let x = Region::from_slice(world, &expected)?.on(&s)?;
        let [one, other] =
            ["one", "other"].map(|name| AllReduce::open(&s, name, self.len, self.op));
        let lent: Lent<'_, T, D> = (one?, other?, x);
        let (graph, (mut lent, ())) = s.capture_with(&mut t, (lent, ()), |s, t, (lent, ())| {
            let lent = self.enqueue::<T, D>(kernels, s, 1, lent)?;
            let lent = s.hand_off(lent, t)?;
            let lent = self.enqueue::<T, D>(kernels, t, 2, lent)?;
            let lent = t.hand_off(lent, s)?;
            Ok((self.enqueue::<T, D>(kernels, s, 2, lent)?, ()))
        })?;
        let mut rounds = 0;
        for turn in 0..9 {
            let (times, eager) = (turn % 4, turn % 3);
            (lent, ()) = graph.replay(&s, &t, (lent, ()), times as usize)?;
            lent = self.enqueue(kernels, &s, eager as usize, lent)?;
            rounds += 5 * times + eager;
        }
        (0..rounds).for_each(|_| self.model(&mut expected));
        let mut x = lent.2.into_host(&s)?;
        D::region(&mut x, |x| {
            assert!(
                x.iter().zip(&expected).all(|(a, b)| a.bits() == b.bits()),
                "rank {} after {rounds} rounds of {self:?}",
                world.rank()
            );
        })
    }
}
