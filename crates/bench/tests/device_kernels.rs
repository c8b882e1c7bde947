//! The device kernels of Faces against those of the CPU, bit for bit.
//!
//! There is no device: the device's source is compiled for the CPU (`emulation/`). So this proves which values the
//! kernels read, in which order they sum them and where they write; not that a device's compiler, or its memory, does
//! what it should.
//!
//! Memory that a kernel must not touch is poisoned. It must stay as it is; and a sum that took it in is a NaN, which no sum
//! of the CPU is.

mod emulation;

use emulation::geometry::{FacesGeometry, Slot};
use emulation::{Emulator, Shape};
use std::ops::Deref;
use tidegate_bench::faces::kernels::{self, Packed};
use tidegate_bench::faces::layout::{Direction, Geometry};
use tidegate_bench::faces::params::{Grid, Init, Size};

/// Signalling, and with a payload: arithmetic does not give this.
const POISON: u64 = 0x7ff4_dead_beef_0bad;
const SURFACE: u32 = 0;
const INTERIOR: u32 = 1;

/// Few blocks, many; fewer threads than a tile has items, more; fewer than there are directions.
const SHAPES: [Shape; 5] = [
    Shape(1, 32),
    Shape(3, 256),
    Shape(200, 128),
    Shape(7, 96),
    Shape(2, 5),
];

const SIZES: [Size; 7] = [
    Size { n: 3, m: [2, 2, 2] },
    Size { n: 4, m: [3, 2, 5] },
    Size { n: 5, m: [2, 4, 3] },
    Size { n: 3, m: [5, 4, 2] },
    Size { n: 4, m: [1, 3, 2] },
    Size { n: 3, m: [1, 1, 1] },
    Size {
        n: 12,
        m: [2, 3, 2],
    },
];

/// Every size on: a rank alone, all of 2x2x2, all of 3x2x1, and one that has all 26 neighbours.
fn geometries() -> impl Iterator<Item = Geometry> {
    let ranks = |grid: [usize; 3]| (0..grid.iter().product()).map(move |rank| (Grid(grid), rank));
    let places: Vec<(Grid, usize)> = ranks([1, 1, 1])
        .chain(ranks([2, 2, 2]))
        .chain(ranks([3, 2, 1]))
        .chain([(Grid([3, 3, 3]), 13)])
        .collect();
    SIZES.into_iter().flat_map(move |size| {
        places
            .clone()
            .into_iter()
            .map(move |(grid, rank)| Geometry::new(grid, size, rank).unwrap())
    })
}

/// One launch shape for each geometry, and so all of them for every size.
fn cases() -> impl Iterator<Item = (Geometry, FacesGeometry, Shape)> {
    geometries()
        .zip(SHAPES.into_iter().cycle())
        .map(|(geometry, shape)| {
            let device = FacesGeometry::new(&geometry, Init::Same);
            (geometry, device, shape)
        })
}

/// Values with poison around them.
struct Guarded(Vec<f64>);

impl Guarded {
    const MARGIN: usize = 64;

    fn new(values: &[f64]) -> Guarded {
        let margin = vec![f64::from_bits(POISON); Self::MARGIN];
        Guarded([&margin, values, &margin].concat())
    }

    fn poisoned(len: usize) -> Guarded {
        Guarded::new(&vec![f64::from_bits(POISON); len])
    }

    fn as_mut_ptr(&mut self) -> *mut f64 {
        self.0[Self::MARGIN..].as_mut_ptr()
    }

    fn count(&self) -> u64 {
        self.len() as u64
    }

    /// Fails at the first value that is not the expected one, to the bit, and if a margin was written.
    fn assert_is(&self, expected: &[f64], what: &dyn std::fmt::Debug) {
        assert_eq!(self.len(), expected.len());
        let differs = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
        if let Some(at) = self.iter().zip(expected).position(differs) {
            panic!(
                "{what:?}: value {at} is {:?}, not {:?}",
                self[at], expected[at]
            );
        }
        let margins = self
            .0
            .iter()
            .take(Self::MARGIN)
            .chain(self.0.iter().rev().take(Self::MARGIN));
        assert!(
            margins.clone().all(|value| value.to_bits() == POISON),
            "{what:?}: written outside of the buffer"
        );
    }
}

impl Deref for Guarded {
    type Target = [f64];
    fn deref(&self) -> &[f64] {
        &self.0[Self::MARGIN..self.0.len() - Self::MARGIN]
    }
}

/// Numbers whose sums depend on their order, and both zeros.
struct Random(u64);

impl Random {
    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        match self.0 % 16 {
            0 => -0.0,
            1 => 0.0,
            _ => {
                ((self.0 >> 12) as f64 / (1u64 << 51) as f64 - 1.0)
                    * 2f64.powi((self.0 % 60) as i32)
            }
        }
    }

    fn values(&mut self, len: usize) -> Vec<f64> {
        (0..len).map(|_| self.next()).collect()
    }

    /// A block of which only the surface, or only the interior, is not poisoned.
    fn part(&mut self, geometry: &Geometry, mode: u32) -> Vec<f64> {
        let in_part = |index| geometry.is_surface(index) == (mode == SURFACE);
        let mut value = |index| {
            if in_part(index) {
                self.next()
            } else {
                f64::from_bits(POISON)
            }
        };
        (0..geometry.len()).map(&mut value).collect()
    }
}

/// A poisoned block with the values of one part of another.
fn only(geometry: &Geometry, mode: u32, block: &[f64]) -> Vec<f64> {
    let value = |(index, value): (usize, &f64)| {
        if geometry.is_surface(index) == (mode == SURFACE) {
            *value
        } else {
            f64::from_bits(POISON)
        }
    };
    block.iter().enumerate().map(value).collect()
}

fn name(geometry: &Geometry, shape: Shape) -> String {
    format!(
        "{:?} of {:?}, {:?}, {shape:?}",
        geometry.rank(),
        geometry.grid(),
        geometry.size()
    )
}

#[test]
fn a_geometry_is_built_alike_in_rust_and_in_the_header() {
    let Some(emulator) = Emulator::get("a_geometry_is_built_alike") else {
        return;
    };
    assert_eq!(size_of::<FacesGeometry>(), 336);
    let published = [
        Size::SMALL,
        Size {
            n: 12,
            m: [95, 94, 93],
        },
    ];
    let published = published.into_iter().flat_map(|size| {
        (0..27).map(move |rank| Geometry::new(Grid([3, 3, 3]), size, rank).unwrap())
    });
    for geometry in geometries().chain(published) {
        for init in [Init::Same, Init::Global] {
            let built = FacesGeometry::new(&geometry, init);
            assert_eq!(built, emulator.geometry(&built));
        }
        let m = geometry.size().m.map(|m| m as u32);
        assert!(emulator.fits(geometry.size().n as u32, m));
    }
}

#[test]
fn blocks_that_32_bits_cannot_count_are_refused() {
    let Some(emulator) = Emulator::get("blocks_that_32_bits_cannot_count") else {
        return;
    };
    for (n, m) in [
        (2, [2, 2, 2]),
        (1025, [2, 2, 2]),
        (3, [0, 2, 2]),
        (3, [2, 65536, 2]),
        (12, [1000, 1000, 1000]),
        (12, [2, 1000, 1000]),
    ] {
        assert!(!emulator.fits(n, m), "{n} {m:?}");
    }
    assert!(emulator.fits(12, [200, 200, 200]));
}

#[test]
fn the_recommended_grid_of_the_small_size() {
    let Some(emulator) = Emulator::get("the_recommended_grid") else {
        return;
    };
    let geometry = Geometry::new(Grid([2, 2, 2]), Size::SMALL, 0).unwrap();
    let grids = emulator.grids(&FacesGeometry::new(&geometry, Init::Same), 132);
    // One tile a block for kernels that a share waits for; no more blocks than can be resident for the others.
    assert_eq!((grids.pack, grids.unpack), (678, 658));
    assert!(grids.init <= 132 * 16 && grids.compute <= 132 * 16);
    let alone = Geometry::new(Grid([1, 1, 1]), Size { n: 3, m: [1, 1, 1] }, 0).unwrap();
    let grids = emulator.grids(&FacesGeometry::new(&alone, Init::Same), 132);
    assert!(
        grids
            .init
            .min(grids.pack)
            .min(grids.unpack)
            .min(grids.compute)
            >= 1
    );
}

#[test]
fn init() {
    let Some(emulator) = Emulator::get("init") else {
        return;
    };
    for (geometry, _, shape) in cases() {
        for init in [Init::Same, Init::Global] {
            let device = FacesGeometry::new(&geometry, init);
            let what = name(&geometry, shape);
            let mut expected = vec![0.0; geometry.len()];
            kernels::init(&geometry, init, expected.as_mut_slice());
            let mut u = Guarded::poisoned(geometry.len());
            // SAFETY: a block of this length.
            unsafe { emulator.init(shape, &device, u.as_mut_ptr(), u.count()) };
            u.assert_is(&expected, &what);
            for mode in [SURFACE, INTERIOR] {
                let mut u = Guarded::poisoned(geometry.len());
                // SAFETY: as above.
                unsafe { emulator.init_part(shape, &device, mode, u.as_mut_ptr(), u.count()) };
                u.assert_is(&only(&geometry, mode, &expected), &(mode, &what));
            }
        }
    }
}

#[test]
fn copy_part() {
    let Some(emulator) = Emulator::get("copy_part") else {
        return;
    };
    let mut random = Random(1);
    for (geometry, device, shape) in cases() {
        for mode in [SURFACE, INTERIOR] {
            let u = Guarded::new(&random.values(geometry.len()));
            let mut copy = Guarded::poisoned(geometry.len());
            // SAFETY: two blocks of this length.
            unsafe {
                emulator.copy_part(
                    shape,
                    &device,
                    mode,
                    u.as_ptr(),
                    u.count(),
                    copy.as_mut_ptr(),
                    u.count(),
                );
            }
            copy.assert_is(&only(&geometry, mode, &u), &name(&geometry, shape));
        }
    }
}

#[test]
fn pack() {
    let Some(emulator) = Emulator::get("pack") else {
        return;
    };
    let mut random = Random(2);
    for (geometry, device, shape) in cases() {
        let u = Guarded::new(&random.part(&geometry, SURFACE));
        let mut out = Guarded::poisoned(geometry.packed_len());
        // Memory between the messages, and of slots without a neighbour, stays poisoned.
        let mut expected = out.to_vec();
        kernels::pack(&geometry, &*u, &mut expected);
        // SAFETY: a block and a packed buffer of these lengths.
        unsafe {
            emulator.pack(
                shape,
                &device,
                u.as_ptr(),
                u.count(),
                out.as_mut_ptr(),
                out.count(),
            )
        };
        out.assert_is(&expected, &name(&geometry, shape));
    }
}

/// Messages where there is a neighbour, poison elsewhere.
fn received(geometry: &Geometry, random: &mut Random) -> Vec<f64> {
    let mut packed = vec![f64::from_bits(POISON); geometry.packed_len()];
    for (d, _) in geometry.neighbours() {
        for value in &mut packed[geometry.slot(d)] {
            *value = random.next();
        }
    }
    packed
}

#[test]
fn unpack_packed() {
    let Some(emulator) = Emulator::get("unpack_packed") else {
        return;
    };
    let mut random = Random(3);
    for (geometry, device, shape) in cases() {
        let mut u = Guarded::new(&random.part(&geometry, SURFACE));
        let messages = Guarded::new(&received(&geometry, &mut random));
        let mut expected = u.to_vec();
        kernels::unpack(
            &geometry,
            expected.as_mut_slice(),
            &Packed::new(&geometry, &messages),
        );
        // SAFETY: a block and a packed buffer of these lengths.
        unsafe {
            emulator.unpack_packed(
                shape,
                &device,
                messages.as_ptr(),
                messages.count(),
                u.as_mut_ptr(),
                u.count(),
            );
        }
        u.assert_is(&expected, &name(&geometry, shape));
    }
}

#[test]
fn unpack_from_slots_in_any_epoch() {
    let Some(emulator) = Emulator::get("unpack_from_slots") else {
        return;
    };
    let mut random = Random(4);
    // The operand of the wait, if the slot has two buffers, and whether the odd one is the current one.
    let states = [
        (None, false),
        (Some(1 << 20), false),
        (Some(2 << 20), true),
        (Some(3 << 20), false),
        (Some(0), true),
    ];
    for (case, (geometry, device, shape)) in cases().enumerate() {
        let mut u = Guarded::new(&random.part(&geometry, SURFACE));
        let messages = received(&geometry, &mut random);
        let mut expected = u.to_vec();
        kernels::unpack(
            &geometry,
            expected.as_mut_slice(),
            &Packed::new(&geometry, &messages),
        );
        // Each slot in another state, and with poison in the buffer that is not current.
        let state = |k: usize| states[(case + k) % states.len()];
        let directions: Vec<Direction> = geometry.neighbours().map(|(d, _)| d).collect();
        let memory: Vec<(Guarded, Option<u64>)> = (0..directions.len())
            .map(|k| {
                let message = &messages[geometry.slot(directions[k])];
                let other = vec![f64::from_bits(POISON); message.len()];
                let buffers = match state(k) {
                    (None, _) => message.to_vec(),
                    (Some(_), false) => [message, &other].concat(),
                    (Some(_), true) => [&other, message].concat(),
                };
                (Guarded::new(&buffers), state(k).0)
            })
            .collect();
        let slots: Vec<Slot> = memory
            .iter()
            .zip(&directions)
            .map(|((buffers, operand), &d)| Slot {
                base: buffers.as_ptr(),
                len: geometry.message_len(d) as u64,
                flip: operand.map_or(0, |_| (geometry.message_len(d) * size_of::<f64>()) as u64),
                // Without a second buffer no kernel reads it.
                operand: operand.as_ref().map_or(std::ptr::null(), |operand| operand),
            })
            .collect();
        // SAFETY: a block of this length, and slots that lead to messages, and to operands where they have two buffers.
        unsafe {
            emulator.unpack(
                shape,
                &device,
                slots.as_ptr(),
                slots.len() as u64,
                u.as_mut_ptr(),
                u.count(),
            )
        };
        u.assert_is(&expected, &name(&geometry, shape));
    }
}

#[test]
fn compute() {
    let Some(emulator) = Emulator::get("compute") else {
        return;
    };
    let mut random = Random(5);
    for (geometry, device, shape) in cases() {
        let mut u = Guarded::new(&random.part(&geometry, INTERIOR));
        let mut expected = u.to_vec();
        kernels::compute(&geometry, expected.as_mut_slice());
        // SAFETY: a block of this length.
        unsafe { emulator.compute(shape, &device, u.as_mut_ptr(), u.count()) };
        u.assert_is(&expected, &name(&geometry, shape));
    }
}

#[test]
fn a_length_that_does_not_fit_does_nothing() {
    let Some(emulator) = Emulator::get("a_length_that_does_not_fit") else {
        return;
    };
    let shape = Shape(1, 128);
    let geometry = Geometry::new(Grid([2, 2, 2]), SIZES[0], 0).unwrap();
    let device = FacesGeometry::new(&geometry, Init::Same);
    let mut u = Guarded::poisoned(geometry.len());
    let mut out = Guarded::poisoned(geometry.packed_len());
    let (short, len) = (u.count() - 1, u.count());
    let messages = vec![0.0; geometry.packed_len()];
    let slots: Vec<Slot> = Vec::new();
    // SAFETY: buffers of at least these lengths; there are no slots to be followed.
    unsafe {
        emulator.init(shape, &device, u.as_mut_ptr(), short);
        emulator.init_part(shape, &device, SURFACE, u.as_mut_ptr(), short);
        emulator.compute(shape, &device, u.as_mut_ptr(), short);
        emulator.unpack_packed(
            shape,
            &device,
            messages.as_ptr(),
            messages.len() as u64,
            u.as_mut_ptr(),
            short,
        );
        emulator.unpack_packed(
            shape,
            &device,
            messages.as_ptr(),
            messages.len() as u64 - 1,
            u.as_mut_ptr(),
            len,
        );
        emulator.unpack(shape, &device, slots.as_ptr(), 0, u.as_mut_ptr(), len);
        emulator.pack(
            shape,
            &device,
            messages.as_ptr(),
            short,
            out.as_mut_ptr(),
            out.count(),
        );
        emulator.pack(
            shape,
            &device,
            messages.as_ptr(),
            len,
            out.as_mut_ptr(),
            out.count() - 1,
        );
    }
    let poisoned = |len| vec![f64::from_bits(POISON); len];
    u.assert_is(&poisoned(u.len()), &"the block");
    out.assert_is(&poisoned(out.len()), &"the messages");
}
