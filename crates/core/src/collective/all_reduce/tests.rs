//! All-reduces of threads, against a model that goes through the ranks in order.

mod refused;

use crate::error::{EpochError, WindowError};
use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use tidegate_host::Host;
use tidegate_loopback::{Loopback, Options};

use crate::bytes::bytes_of;
use crate::element::Arithmetic;
use crate::random::Rng;
use crate::window::{Op, SlotWindow};
use crate::*;

type OnHost1<T> = Region<T, OnHost<Host>>;
type Reduce<'s, T> = AllReduce<'s, T, Host>;

const SIZES: [usize; 5] = [1, 2, 3, 5, 8];
const OPS: [Op; 4] = [Op::Sum, Op::Prod, Op::Min, Op::Max];

/// A number in the model.
trait Model: Arithmetic + Debug {
    fn of(random: u64) -> Self;
    fn apply(self, op: Op, with: Self) -> Self;
    /// The bits that are compared with the model.
    fn bits(self) -> u64;
}

macro_rules! integers {
    ($($ty:ty)*) => {$(
        impl Model for $ty {
            fn of(random: u64) -> Self {
                random as $ty
            }
            fn apply(self, op: Op, with: Self) -> Self {
                match op {
                    Op::Sum => self.wrapping_add(with),
                    Op::Prod => self.wrapping_mul(with),
                    Op::Min => if self < with { self } else { with },
                    Op::Max => if self > with { self } else { with },
                    Op::BitAnd => self & with,
                    Op::BitOr => self | with,
                    Op::BitXor => self ^ with,
                    Op::Replace => with,
                    Op::Keep => self,
                }
            }
            fn bits(self) -> u64 {
                self as u64
            }
        }
    )*};
}
integers!(i8 i16 i32 i64 u8 u16 u32 u64);

macro_rules! floats {
    ($($ty:ty, $shift:literal;)*) => {$(
        impl Model for $ty {
            /// A value of any size; sometimes it is a NaN, infinite, or a zero.
            fn of(random: u64) -> Self {
                match random % 23 {
                    0 => <$ty>::NAN,
                    1 => <$ty>::INFINITY,
                    2 => -<$ty>::INFINITY,
                    3 => 0.0,
                    4 => -0.0,
                    // Sums of these depend on their order.
                    5..15 => (random >> 8) as $ty * 1e-12 - 4e4,
                    _ => <$ty>::from_bits((random >> $shift) as _),
                }
            }
            fn apply(self, op: Op, with: Self) -> Self {
                match op {
                    Op::Sum => self + with,
                    Op::Prod => self * with,
                    Op::Min if with.is_nan() || self < with => self,
                    Op::Max if with.is_nan() || self > with => self,
                    _ => with,
                }
            }
            fn bits(self) -> u64 {
                match () {
                    // Which NaN it is depends on the processor.
                    () if self.is_nan() => u64::MAX,
                    () => self.to_bits().into(),
                }
            }
        }
    )*};
}
floats! { f32, 32; f64, 0; }

macro_rules! halves {
    ($($ty:ty)*) => {$(
        impl Model for $ty {
            /// A value of any size, every NaN and infinity among them. Sums of many depend on their order.
            fn of(random: u64) -> Self {
                match random % 3 {
                    0 => <$ty>::from_bits((random >> 32) as u16),
                    _ => <$ty>::from_f64((random >> 40) as f64 * 1e-5 - 80.0),
                }
            }
            fn apply(self, op: Op, with: Self) -> Self {
                match op {
                    Op::Sum => <$ty>::from_f32(self.to_f32() + with.to_f32()),
                    Op::Prod => <$ty>::from_f32(self.to_f32() * with.to_f32()),
                    Op::Min if with.is_nan() || self < with => self,
                    Op::Max if with.is_nan() || self > with => self,
                    _ => with,
                }
            }
            fn bits(self) -> u64 {
                match () {
                    () if self.is_nan() => u64::MAX,
                    () => self.to_bits().into(),
                }
            }
        }
    )*};
}
halves! { half::f16 half::bf16 }

fn values<T: Model>(rank: usize, len: usize, op: Op) -> Vec<T> {
    let mut random = Rng::new(rank as u64 * 1000 + len as u64 + op as u64 * 77);
    (0..len).map(|_| T::of(random.next())).collect()
}

/// The results of ranks with these vectors.
fn model<T: Model>(vectors: &[Vec<T>], op: Op) -> Vec<T> {
    let mut all = vectors[0].clone();
    for vector in &vectors[1..] {
        let each = all.iter_mut().zip(vector);
        each.for_each(|(all, one)| *all = all.apply(op, *one));
    }
    all
}

fn bits<T: Model>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.bits()).collect()
}

/// A name that no other all-reduce of the job has.
fn open<'s, T: Arithmetic>(s: &Stream<'s, Host>, len: usize, op: Op) -> Reduce<'s, T> {
    AllReduce::open(s, "energy", len, op).unwrap()
}

fn all_of<T: Model>(ops: &[Op]) {
    for size in SIZES {
        for len in [1, 7, 100] {
            let results = World::<Host>::local(size, |world| {
                let mut results = Vec::new();
                stream!(let s = world.stream().unwrap());
                for op in ops {
                    let mut reduce = open::<T>(&s, len, *op);
                    let x = values::<T>(world.rank(), len, *op);
                    let mut x = OnHost1::from_slice(&world, &x).unwrap().on(&s).unwrap();
                    reduce.enqueue(&s, &mut x).unwrap();
                    results.push(x.into_host(&s).unwrap().to_vec());
                }
                results
            });
            for (index, op) in ops.iter().enumerate() {
                let vectors: Vec<_> = (0..size).map(|rank| values::<T>(rank, len, *op)).collect();
                let expected = model(&vectors, *op);
                for (rank, result) in results.iter().enumerate() {
                    let of = format!("{} ranks, rank {rank}, {len}, {op:?}", size);
                    assert_eq!(bits(&result[index]), bits(&expected), "{of}");
                    assert_eq!(
                        bytes_of(&result[index]),
                        bytes_of(&results[0][index]),
                        "{of}"
                    );
                    // The result is one rank's value, whatever zeros and NaNs there are.
                    if !matches!(op, Op::Sum | Op::Prod) {
                        assert_eq!(bytes_of(&result[index]), bytes_of(&expected), "{of}");
                    }
                }
            }
        }
    }
}

#[test]
fn integers_of_all_types_are_those_of_the_model() {
    all_of::<i8>(&Op::ALL);
    all_of::<i16>(&Op::ALL);
    all_of::<i32>(&Op::ALL);
    all_of::<i64>(&Op::ALL);
    all_of::<u8>(&Op::ALL);
    all_of::<u16>(&Op::ALL);
    all_of::<u32>(&Op::ALL);
    all_of::<u64>(&Op::ALL);
}

#[test]
fn floats_are_those_of_the_model_to_the_bit() {
    all_of::<f32>(&OPS);
    all_of::<f64>(&OPS);
}

#[test]
fn halves_are_those_of_the_model_to_the_bit() {
    all_of::<half::f16>(&OPS);
    all_of::<half::bf16>(&OPS);
}

#[test]
fn of_zeros_the_last_one_counts_and_of_nans_the_first() {
    let nan = |rank: usize| f64::from_bits(f64::NAN.to_bits() + 1 + rank as u64);
    let results = World::<Host>::local(4, |world| {
        stream!(let s = world.stream().unwrap());
        let mut reduce = open::<f64>(&s, 18, Op::Min);
        let rank = world.rank();
        let zero = if rank % 2 == 0 { 0.0 } else { -0.0 };
        let x = [[zero; 9], [nan(rank); 9]].concat();
        let mut x = OnHost1::from_slice(&world, &x).unwrap().on(&s).unwrap();
        reduce.enqueue(&s, &mut x).unwrap();
        bits(bytes_of(&x.into_host(&s).unwrap()))
    });
    let expected = [[-0.0; 9], [nan(0); 9]].concat();
    for result in results {
        assert_eq!(result, bits(bytes_of(&expected)));
    }
}

/// What a rank does with the sum before the next one. It depends on every bit.
fn next(rank: usize, x: f64) -> f64 {
    let (a, b) = (1.0 + rank as f64 * 0.37, 0.1 / (rank as f64 + 3.0));
    (x * a).rem_euclid(1.7) + b
}

const LEN: usize = 5;

/// All vectors after so many steps, and a hash of all vectors before.
fn steps_of_model(size: usize, steps: usize) -> (Vec<f64>, u64) {
    let mut xs: Vec<Vec<f64>> = (0..size).map(first).collect();
    let mut hash = 0;
    for _ in 0..steps {
        for (rank, x) in xs.iter_mut().enumerate() {
            x.iter_mut().for_each(|x| *x = next(rank, *x));
        }
        let sum = model(&xs, Op::Sum);
        hash = hashed(hash, &sum);
        xs.fill(sum);
    }
    (xs[0].clone(), hash)
}

fn first(rank: usize) -> Vec<f64> {
    (0..LEN).map(|i| (rank * LEN + i) as f64 * 0.3).collect()
}

fn hashed(hash: u64, x: &[f64]) -> u64 {
    let one = |hash: u64, x: &f64| (hash ^ x.to_bits()).wrapping_mul(0x100_0000_01b3);
    x.iter().fold(hash, one)
}

type Lent<'s> = (
    Reduce<'s, f64>,
    Region<f64, On<'s, Host>>,
    Region<u64, On<'s, Host>>,
);

fn step<'s>(s: &Stream<'s, Host>, rank: usize, lent: Lent<'s>) -> Result<Lent<'s>> {
    let (mut reduce, mut x, mut hash) = lent;
    s.launch(
        move |x: &mut [f64]| x.iter_mut().for_each(|x| *x = next(rank, *x)),
        &mut x,
    )?;
    reduce.enqueue(s, &mut x)?;
    s.launch(
        |x: &[f64], hash: &mut [u64]| hash[0] = hashed(hash[0], x),
        (&x, &mut hash),
    )?;
    Ok((reduce, x, hash))
}

/// Eager steps between replays of one step and of two; 1000 steps in all.
fn mixed(world: &World<Host>, s: &mut Stream<'_, Host>) -> Result<()> {
    let (rank, size) = (world.rank(), world.size());
    let x = Region::from_slice(world, &first(rank))?.on(s)?;
    let hash = Region::zeroed(world, 1)?.on(s)?;
    let lent = (AllReduce::open(s, "energy", LEN, Op::Sum)?, x, hash);
    let (one, lent) = s.capture(lent, |s, lent| step(s, rank, lent))?;
    let (two, mut lent) = s.capture(lent, |s, lent| step(s, rank, step(s, rank, lent)?))?;
    let (mut done, mut random) = (0, Rng::new(5));
    while done < 1000 {
        let times = (random.next() % 7).min(1000 - done);
        match random.next() % 3 {
            0 => {
                for _ in 0..times {
                    lent = step(s, rank, lent)?;
                }
                done += times;
            }
            1 => {
                lent = one.replay(s, lent, times as usize)?;
                done += times;
            }
            _ => {
                lent = two.replay(s, lent, (times / 2) as usize)?;
                done += times / 2 * 2;
            }
        }
    }
    let (_reduce, x, hash) = lent;
    let (x, hash) = (x.into_host(s)?, hash.into_host(s)?);
    let expected = steps_of_model(size, 1000);
    assert_eq!(
        (bits(&x), hash[0]),
        (bits(&expected.0), expected.1),
        "rank {rank} of {size}"
    );
    Ok(())
}

#[test]
fn eager_and_replayed_steps_are_those_of_the_model() {
    for size in SIZES {
        for result in World::<Host>::local(size, |world| {
            stream!(let mut s = world.stream().unwrap());
            mixed(&world, &mut s)
        }) {
            result.unwrap();
        }
    }
}

#[test]
fn over_a_nic_too() {
    let late = Options::default().delay(Duration::from_micros(50));
    for (size, staged) in [(1, false), (2, false), (3, true), (3, false)] {
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
            for result in World::<Host>::local_with(size, nic, |world| {
                stream!(let mut s = world.stream().unwrap());
                mixed(&world, &mut s)
            }) {
                result.unwrap();
            }
        }
    }
}

#[test]
fn many_vectors_and_reductions_take_turns() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let region = |value| {
            OnHost1::from_slice(&world, &[value])
                .unwrap()
                .on(&s)
                .unwrap()
        };
        let mut xs: Vec<_> = (0..11).map(|i| region(i + world.rank() as u64)).collect();
        let mut expected: Vec<_> = (0..11).map(|i| [i, i + 1, i + 2]).collect();
        for op in OPS {
            let mut reduce = open::<u64>(&s, 1, op);
            for x in &mut xs {
                reduce.enqueue(&s, x).unwrap();
            }
            for x in &mut expected {
                *x = [x[1..].iter().fold(x[0], |all, one| all.apply(op, *one)); 3];
            }
        }
        for (x, expected) in xs.into_iter().zip(expected) {
            assert_eq!(x.into_host(&s).unwrap()[0], expected[0]);
        }
    });
}

#[test]
fn on_a_stream_that_it_is_handed_to() {
    World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        stream!(let t = world.stream().unwrap());
        let x = OnHost1::from_slice(&world, &[1u64])
            .unwrap()
            .on(&s)
            .unwrap();
        let (mut reduce, mut x) = (open::<u64>(&s, 1, Op::Sum), x);
        reduce.enqueue(&s, &mut x).unwrap();
        let (mut reduce, mut x) = s.hand_off((reduce, x), &t).unwrap();
        reduce.enqueue(&t, &mut x).unwrap();
        assert_eq!(x.into_host(&t).unwrap()[0], 9);
    });
}

#[test]
fn dropped_while_it_is_in_the_queue() {
    static GO: [AtomicBool; 3] = [const { AtomicBool::new(false) }; 3];
    let results = World::<Host>::local(3, |world| {
        stream!(let s = world.stream().unwrap());
        let mut reduce = open::<u64>(&s, 3, Op::Sum);
        let x = OnHost1::from_slice(&world, &[world.rank() as u64; 3]).unwrap();
        let mut x = x.on(&s).unwrap();
        let go = &GO[world.rank()];
        let hold = move |_: &mut [u64]| {
            while !go.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
        };
        s.launch(hold, &mut x).unwrap();
        for _ in 0..3 {
            reduce.enqueue(&s, &mut x).unwrap();
        }
        drop(reduce);
        go.store(true, Ordering::Release);
        x.into_host(&s).unwrap()[2]
    });
    assert_eq!(results, [27, 27, 27]);
}

#[test]
fn what_is_refused_leaves_it_as_it_was() {
    World::<Host>::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        let mut reduce = open::<f32>(&s, 2, Op::Sum);
        let region = |len| OnHost1::<f32>::zeroed(&world, len).unwrap().on(&s).unwrap();
        let (mut short, mut long, mut x) = (region(1), region(3), region(2));
        for (wrong, len) in [(&mut short, 1), (&mut long, 3)] {
            let error = reduce.enqueue(&s, wrong).unwrap_err();
            assert!(
                matches!(error, Error::Epoch(EpochError::CountMismatch { src, dst: 2, .. }) if src == len)
            );
            let named = format!(
                "window `{}` ({}): {len} elements",
                reduce.name(),
                reduce.id()
            );
            assert!(error.to_string().starts_with(&named), "{error}");
        }
        s.launch(|x: &mut [f32]| x.fill(0.5), &mut x).unwrap();
        reduce.enqueue(&s, &mut x).unwrap();
        assert_eq!(x.into_host(&s).unwrap()[..], [1.0, 1.0]);
        assert_eq!((reduce.name(), reduce.elements()), ("energy", 2));
    });
}
