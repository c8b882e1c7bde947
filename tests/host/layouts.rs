//! Boxes of others' memory, in place. They are compared with the same elements that go by slots and are scattered by
//! hand; over mapped memory, over NICs, and in recordings. Meanwhile elements that nobody declared are computed.

use std::ops::Range;

use tidegate::error::{EpochError, WindowError};
use tidegate::host::prelude::*;
use tidegate::{Cells, CellsMut, Route, WorldOptions};
use tidegate_fabric::Fabric;
use tidegate_fake::wire::{Faults, Net};
use tidegate_loopback::Loopback;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % bound
    }
}

/// How an origin names its elements.
#[derive(Clone, Copy, Debug)]
enum As {
    Box,
    /// By a table of the same elements, in the opposite order.
    Table,
}

/// The elements of a target that an origin declares.
#[derive(Clone, Debug)]
struct Face {
    origin: usize,
    target: usize,
    ranges: Vec<Range<usize>>,
    how: As,
    /// Where the puts are split in two, if this is neither end.
    split: usize,
    /// Whether the source is strided as well. It is only if the puts are not split.
    strided: bool,
}

/// What all ranks know: each has an array of these dimensions.
#[derive(Clone, Debug)]
struct Case {
    ranks: usize,
    dims: Vec<usize>,
    faces: Vec<Face>,
}

impl Case {
    fn len(&self) -> usize {
        self.dims.iter().product()
    }

    /// The elements of a box in order, by the definition.
    fn elements(&self, ranges: &[Range<usize>]) -> Vec<usize> {
        let each = self.dims.iter().zip(ranges);
        each.fold(vec![0], |at, (dim, range)| {
            let index = |at: usize| range.clone().map(move |index| at * dim + index);
            at.into_iter().flat_map(index).collect()
        })
    }

    /// The elements of a face, in its origin's order.
    fn of_face(&self, face: &Face) -> Vec<usize> {
        let mut elements = self.elements(&face.ranges);
        if matches!(face.how, As::Table) {
            elements.reverse();
        }
        elements
    }

    fn random(random: &mut Random) -> Self {
        let ranks = 1 + random.below(4);
        let dims: Vec<_> = (0..1 + random.below(4))
            .map(|_| 1 + random.below(5))
            .collect();
        let mut case = Case {
            ranks,
            dims,
            faces: Vec::new(),
        };
        for target in 0..ranks {
            let mut taken = vec![false; case.len()];
            for _ in 0..8 {
                let range = |dim: &usize| {
                    let first = random.below(*dim);
                    first..first + 1 + random.below(*dim - first)
                };
                let ranges: Vec<_> = case.dims.iter().map(range).collect();
                let elements = case.elements(&ranges);
                if elements.iter().any(|element| taken[*element]) {
                    continue;
                }
                elements.iter().for_each(|element| taken[*element] = true);
                let split = match random.below(2) {
                    0 => 0,
                    _ => random.below(elements.len()),
                };
                case.faces.push(Face {
                    origin: random.below(ranks),
                    target,
                    ranges,
                    how: [As::Box, As::Box, As::Table][random.below(3)],
                    split,
                    strided: random.below(2) == 0,
                });
            }
        }
        case
    }
}

/// The value that a face sends in a round.
fn value(face: usize, k: usize, round: usize) -> u64 {
    (1 + round as u64) << 40 | (face as u64) << 20 | k as u64
}

fn at_first(rank: usize, element: usize) -> u64 {
    (7 + rank as u64) << 50 | element as u64
}

/// A kernel's change to an element to which nobody puts.
fn touched(value: u64) -> u64 {
    value.wrapping_mul(3) + 1
}

/// The memory after `rounds` rounds, in which the elements go by slots.
fn by_slots(world: &World, case: &Case, rounds: usize) -> Result<Vec<u64>> {
    let rank = world.rank();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u64>::new("by slots");
    let (mut came, mut ways) = (Vec::new(), Vec::new());
    for (number, face) in case.faces.iter().enumerate() {
        let elements = case.of_face(face);
        if face.target == rank {
            let slot = window.slot_from(face.origin, number as u64, elements.len());
            came.push((slot, elements.clone()));
        }
        if face.origin == rank {
            ways.push((
                number,
                elements.len(),
                window.slot_to(face.target, number as u64),
            ));
        }
    }
    let (mut inbox, mut outbox) = window.open(&s)?;
    let mut memory: Vec<_> = (0..case.len()).map(|e| at_first(rank, e)).collect();
    for round in 0..rounds {
        let mut sources = Vec::new();
        for (number, len, _) in &ways {
            let packed: Vec<_> = (0..*len).map(|k| value(*number, k, round)).collect();
            sources.push(Region::from_slice(world, &packed)?.on(&s)?);
        }
        let mut epoch = outbox.start();
        for (source, (.., slot)) in sources.iter().zip(&ways) {
            epoch.put(source, *slot)?;
        }
        (inbox, outbox) = exchange(&s, inbox, epoch)?;
        let slots = inbox.read(&s)?;
        let mut put = vec![false; memory.len()];
        for (slot, elements) in &came {
            for (element, value) in elements.iter().zip(slots.slot(*slot)) {
                (memory[*element], put[*element]) = (*value, true);
            }
        }
        let rest = memory.iter_mut().zip(put).filter(|(_, put)| !put);
        rest.for_each(|(value, _)| *value = touched(*value));
    }
    Ok(memory)
}

/// The same, in place. With `sums`, an epoch of accumulates comes last.
fn in_place(world: &World, case: &Case, rounds: usize, sums: bool) -> Result<Vec<u64>> {
    let rank = world.rank();
    stream!(let s = world.stream()?);
    let mut window = RangeWindow::<u64>::new("in place", case.len());
    let mut ways = Vec::new();
    for (number, face) in case.faces.iter().enumerate() {
        if face.origin != rank {
            continue;
        }
        let elements = case.of_face(face);
        let layout = match face.how {
            As::Box => Layout::subarray(&case.dims, &face.ranges)?,
            As::Table => {
                let table: Vec<_> = elements.iter().map(|element| *element as u32).collect();
                Layout::indexed(world, &table)?
            }
        };
        assert_eq!(layout.count(), elements.len());
        let to = window.layout_to(face.target, &layout);
        // Every other element of the source.
        let every_other = Layout::strided(1, &[(elements.len() as u32, 2)])?;
        ways.push((number, face, elements.len(), to, every_other));
    }
    let (mut inbox, mut outbox) = window.open(&s)?;
    for (element, value) in inbox.host_mut(&s)?.iter_mut().enumerate() {
        *value = at_first(rank, element);
    }
    let put_to = |face: &Face, elements: &[bool]| -> bool {
        face.target == rank && elements.iter().any(|put| *put)
    };
    for round in 0..rounds {
        let mut sources = Vec::new();
        for (number, face, len, ..) in &ways {
            let mut packed: Vec<_> = (0..*len).map(|k| value(*number, k, round)).collect();
            if face.strided && face.split == 0 {
                packed = packed.iter().flat_map(|value| [0, *value]).collect();
            }
            sources.push(Region::from_slice(world, &packed)?.on(&s)?);
        }
        let mut exposed = inbox.post(&s)?;
        let mut epoch = outbox.start();
        for (source, (_, face, len, to, every_other)) in sources.iter().zip(&ways) {
            match face.split {
                0 if face.strided => epoch.put(source.with(every_other)?, *to)?,
                0 => epoch.put(source, *to)?,
                at => {
                    epoch.put(source.slice(at..*len)?, to.at(at))?;
                    epoch.put(source.slice(0..at)?, *to)?;
                }
            }
        }
        outbox = epoch.complete(&s)?;
        let rest = exposed.rest_mut()?;
        let holds = |element| rest.set().contains(element);
        let declared: Vec<_> = (0..case.len()).map(|element| !holds(element)).collect();
        let mut expected = vec![false; case.len()];
        let here = case.faces.iter().filter(|face| put_to(face, &[true]));
        here.flat_map(|face| case.of_face(face))
            .for_each(|element| expected[element] = true);
        assert_eq!(declared, expected, "{case:?}");
        let touch = |mut rest: CellsMut<'_, u64>| {
            for range in rest.ranges() {
                // In one way or the other.
                match range.len() % 2 {
                    0 => rest
                        .slice_mut(range.clone())
                        .iter_mut()
                        .for_each(|value| *value = touched(*value)),
                    _ => range
                        .clone()
                        .for_each(|at| rest.set(at, touched(rest.get(at)))),
                }
            }
        };
        s.launch(touch, rest)?;
        let look = |rest: Cells<'_, u64>| {
            let each = rest.ranges().iter();
            each.for_each(|range| assert_eq!(rest.slice(range.clone()).len(), range.len()));
        };
        s.launch(look, exposed.rest()?)?;
        inbox = exposed.wait(&s)?;
    }
    let memory = inbox.host_mut(&s)?.to_vec();

    // Gets return the data in the same order, and sums go to the same elements as puts.
    let mut got = Vec::new();
    for (_, _, len, ..) in &ways {
        got.push(Region::<u64, _>::zeroed(world, *len)?.on(&s)?);
    }
    let mut epoch = outbox.start();
    for (got, (_, face, len, to, _)) in got.iter_mut().zip(&ways) {
        match face.split {
            0 => epoch.get(got, *to)?,
            at => epoch.get(got.slice_mut(at..*len)?, to.at(at))?,
        }
    }
    (inbox, outbox) = exchange(&s, inbox, epoch)?;
    let ones = Region::from_slice(world, &vec![1u64; case.len()])?.on(&s)?;
    let mut epoch = outbox.start();
    for (_, face, len, to, _) in ways.iter().filter(|_| sums) {
        epoch.accumulate(ones.slice(face.split..*len)?, to.at(face.split), Op::Sum)?;
    }
    let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
    for (got, (number, face, len, ..)) in got.into_iter().zip(&ways) {
        let expected: Vec<_> = (face.split..*len)
            .map(|k| value(*number, k, rounds - 1))
            .collect();
        assert_eq!(got.into_host(&s)?[face.split..], expected, "{face:?}");
    }
    let mut summed = memory.clone();
    let faces = case.faces.iter().filter(|_| sums);
    for face in faces.filter(|face| face.target == rank) {
        let elements = case.of_face(face);
        elements[face.split..].iter().for_each(|e| summed[*e] += 1);
    }
    assert_eq!(*inbox.host_mut(&s)?, summed, "{case:?}");
    Ok(memory)
}

fn agree(case: &Case, sums: bool, options: impl Fn(usize) -> WorldOptions + Sync) {
    let both = |world: World| -> Result<()> {
        let slots = by_slots(&world, case, 3)?;
        let place = in_place(&world, case, 3, sums)?;
        assert_eq!(place, slots, "rank {} of {case:?}", world.rank());
        Ok(())
    };
    let results = World::local_with(case.ranks, options, both);
    let errors: Vec<_> = results.into_iter().filter_map(Result::err).collect();
    assert!(errors.is_empty(), "{errors:?} of {case:?}");
}

#[test]
fn boxes_in_place_are_what_slots_bring() {
    let mut random = Random(0xb0c5);
    let mut faces = 0;
    for _ in 0..300 {
        let case = Case::random(&mut random);
        faces += case.faces.len();
        agree(&case, true, |_| WorldOptions::new());
    }
    assert!(faces > 1000, "{faces}");
}

#[test]
fn boxes_in_place_by_nics() {
    let mut random = Random(0x71c);
    for _ in 0..40 {
        let case = Case::random(&mut random);
        agree(&case, true, |_| {
            WorldOptions::new()
                .nic(Loopback::default())
                .route(Route::Nic)
        });
        let net = Net::new(case.ranks, Faults::default());
        let by_net = |rank: usize| {
            let nic = Fabric::over(net.wire(rank), tidegate_fabric::Options::default());
            WorldOptions::new().nic(nic).route(Route::Nic)
        };
        agree(&case, true, by_net);
        // As between GPUs: NICs access copies of the elements. Some ranks are near.
        let net = Net::new(case.ranks, Faults::default());
        let options = tidegate_fabric::Options::default();
        agree(&case, true, |rank| {
            let far: Vec<_> = (0..case.ranks)
                .filter(|other| (rank + other) % 2 == 1)
                .collect();
            let nic = Fabric::over(net.wire(rank), options.clone());
            WorldOptions::new()
                .nic(nic)
                .route(Route::NicTo(far.into()))
                .staged()
        });
    }
}

/// Two origins write interleaved elements of one array. All ranks refuse a window in which one declares the whole.
#[test]
fn interleaved_columns_are_disjoint_and_overlaps_are_named() {
    let open = |world: &World, columns: [Range<usize>; 2]| {
        stream!(let s = world.stream()?);
        let mut window = RangeWindow::<u64>::new("columns", 8);
        let mine = columns[world.rank()].clone();
        let column = Layout::subarray(&[4, 2], &[0..4, mine])?;
        let to = [0, 1].map(|target| window.layout_to(target, &column));
        let (inbox, outbox) = window.open(&s)?;
        let src = Region::from_slice(world, &[world.rank() as u64 + 1; 4])?.on(&s)?;
        let mut epoch = outbox.start();
        to.into_iter().try_for_each(|to| epoch.put(&src, to))?;
        let (mut inbox, _outbox) = exchange(&s, inbox, epoch)?;
        Ok(inbox.host_mut(&s)?.to_vec())
    };
    for result in World::local(2, |world: World| -> Result<_> {
        open(&world, [0..1, 1..2])
    }) {
        assert_eq!(result.unwrap(), [1, 2, 1, 2, 1, 2, 1, 2]);
    }
    for result in World::local(2, |world: World| -> Result<_> {
        open(&world, [0..1, 0..2])
    }) {
        let error = result.unwrap_err();
        assert!(
            matches!(error, Error::Open(WindowError::Disagreement { .. })),
            "{error}"
        );
        let says =
            "of rank 0's memory, a layout of rank 0 and 0..8 of rank 1 overlap in elements 0..1";
        assert!(error.to_string().contains(says), "{error}");
    }
}

/// All ranks refuse an impossible declaration when the window is opened. Operations that do not fit a layout are
/// refused when they are noted.
#[test]
fn what_does_not_fit_is_refused() {
    let outcomes = World::local(2, |world: World| -> Result<()> {
        stream!(let s = world.stream()?);
        let alone = world.rank() == 1;
        let twice = Layout::strided(0, &[(4, 1), (2, 2)])?;
        let far = Layout::subarray(&[4, 4], &[0..4, 1..2])?;
        let many: Vec<u32> = (0..(1 << 16) + 1).map(|k| 2 * k).collect();
        let many = Layout::indexed(&world, &many)?;
        for (layout, says, len) in [
            (&twice, "an element occurs twice", 16),
            (
                &far,
                "a layout of elements 1..14 of rank 0, which has 13 elements",
                13,
            ),
            (
                &many,
                "window `refused`: the declared layouts have 65537 runs",
                1 << 18,
            ),
        ] {
            let mut window = RangeWindow::<u64>::new("refused", len);
            if alone {
                window.layout_to(0, layout);
            }
            let error = window.open(&s).expect_err("it is refused");
            assert!(error.to_string().contains(says), "{error}");
        }
        // An empty layout is declared like an empty range.
        let mut window = RangeWindow::<u64>::new("fits", 16);
        let peer = 1 - world.rank();
        let none = Layout::subarray(&[4, 4], &[0..4, 2..2])?;
        let none = window.layout_to(peer, &none);
        let column = window.layout_to(peer, &far);
        let (inbox, outbox) = window.open(&s)?;
        let src = Region::from_slice(&world, &[5u64; 8])?.on(&s)?;
        let count = Region::from_slice(&world, &[2u64])?.on(&s)?;
        let pair = Layout::strided(0, &[(2, 2)])?;
        let mut epoch = outbox.start();
        for error in [
            epoch.put(&src, column).unwrap_err(),
            epoch.put(src.slice(0..2)?, column.at(3)).unwrap_err(),
            epoch.put(src.slice(0..0)?, column.at(5)).unwrap_err(),
            epoch.put(src.slice(0..1)?, none).unwrap_err(),
        ] {
            assert!(
                matches!(error, Error::Epoch(EpochError::OutOfBounds { .. })),
                "{error}"
            );
        }
        let error = epoch.put(src.with(&pair)?, column).unwrap_err();
        assert!(
            matches!(
                error,
                Error::Epoch(EpochError::CountMismatch { src: 2, dst: 4, .. })
            ),
            "{error}"
        );
        let error = epoch.put(src.slice(0..2)?, column.with(&pair)).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("cannot choose elements by another layout"),
            "{error}"
        );
        let error = epoch
            .put_counted(src.slice(0..4)?, &count, column)
            .unwrap_err();
        assert!(error.to_string().contains("counted"), "{error}");
        // An overlap in the layout's order is found like one of ranges.
        epoch.put(src.slice(0..3)?, column)?;
        epoch.put(src.slice(0..2)?, column.at(2))?;
        let rejected = epoch.try_complete(&s).expect_err("they overlap");
        let error = &rejected.error;
        assert!(
            matches!(
                error,
                Error::Epoch(EpochError::Overlap {
                    first: 2,
                    end: 3,
                    ..
                })
            ),
            "{error}"
        );
        // Dropping revokes the window, on the other rank, too, which must find its own overlap first.
        world.all_gather("both have looked", Vec::new())?;
        drop((inbox, rejected));
        Ok(())
    });
    outcomes.into_iter().for_each(|outcome| outcome.unwrap());
}

/// A recording lends the undeclared elements like any other step.
#[test]
fn recorded_with_the_rest() {
    let outcomes = World::local(2, |world: World| -> Result<()> {
        let (rank, peer) = (world.rank(), 1 - world.rank());
        stream!(let s = world.stream()?);
        let mut window = RangeWindow::<u64>::new("recorded", 12);
        let column = Layout::subarray(&[4, 3], &[0..4, 1..2])?;
        let to = window.layout_to(peer, &column);
        let (inbox, outbox) = window.open(&s)?;
        let src = Region::from_slice(&world, &[rank as u64 + 1; 4])?.on(&s)?;
        let (graph, back) = s.capture((src, inbox, outbox), |s, (mut src, inbox, outbox)| {
            let mut exposed = inbox.post(s)?;
            let mut epoch = outbox.start();
            epoch.put(&src, to)?;
            let outbox = epoch.complete(s)?;
            let count = |mut rest: CellsMut<'_, u64>, src: &mut [u64]| {
                for range in rest.ranges() {
                    rest.slice_mut(range.clone())
                        .iter_mut()
                        .for_each(|value| *value += 1);
                }
                src.iter_mut().for_each(|value| *value += 10);
            };
            s.launch(count, (exposed.rest_mut()?, &mut src))?;
            Ok((src, exposed.wait(s)?, outbox))
        })?;
        let (_src, mut inbox, _outbox) = graph.replay(&s, back, 7)?;
        let put = peer as u64 + 1 + 60;
        assert_eq!(*inbox.host_mut(&s)?, [7, put, 7].repeat(4));
        Ok(())
    });
    outcomes.into_iter().for_each(|outcome| outcome.unwrap());
}
