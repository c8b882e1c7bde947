//! The structs of `kernels/faces.cuh`, built in Rust.

use tidegate_bench::faces::layout::{Direction, Geometry};
use tidegate_bench::faces::params::Init;

/// Items of a tile.
const TILE: usize = 128;

/// `FacesDivisor`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Divisor {
    magic: u32,
    shift: u32,
}

impl Divisor {
    fn new(divisor: usize) -> Divisor {
        let shift = divisor.next_power_of_two().trailing_zeros();
        let magic = (1u64 << (31 + shift)).div_ceil(divisor as u64);
        Divisor {
            magic: u32::try_from(magic).expect("less than 2^32"),
            shift,
        }
    }
}

/// `FacesGeometry`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FacesGeometry {
    values: u64,
    offset: [u64; 3],
    n: u32,
    m: [u32; 3],
    neighbours: u32,
    cube: u32,
    slot: [u32; Direction::COUNT],
    packed: u32,
    elements: u32,
    span: [u32; 3],
    messages: u32,
    by_n: Divisor,
    by_step: Divisor,
    by_inner: Divisor,
    by_m: [Divisor; 3],
    by_span: [Divisor; 3],
    pack_tiles: [u32; 8],
    unpack_tiles: [u32; 8],
    compute_tiles: [u32; 4],
}

impl FacesGeometry {
    pub(crate) fn new(geometry: &Geometry, init: Init) -> FacesGeometry {
        let small = |value: usize| u32::try_from(value).expect("the geometry fits");
        let (n, m) = (geometry.size().n, geometry.size().m);
        let neighbours = geometry.neighbours().map(|(d, _)| 1u32 << d.index()).sum();
        let offset = match init {
            Init::Same => [0; 3],
            Init::Global => [0, 1, 2].map(|d| (geometry.place()[d] * m[d]) as u64),
        };
        let span = m.map(|m| m * (n - 1) - 1);
        let tiles = |items: usize| items.div_ceil(TILE);
        let mut pack = vec![0];
        let mut unpack = vec![0];
        let faces =
            Direction::all().filter(|d| d.offset().iter().filter(|&&o| o != 0).count() == 1);
        for d in faces {
            let along: Vec<usize> = (0..3).filter(|&k| d.offset()[k] == 0).collect();
            let (a, b) = (along[0], along[1]);
            let (sent, summed) = match geometry.neighbour(d) {
                Some(_) => (geometry.message_len(d), span[a] * span[b]),
                None => (0, (m[b] - 1) * span[a] + (m[a] - 1) * span[b]),
            };
            pack.push(pack[pack.len() - 1] + tiles(sent));
            unpack.push(unpack[unpack.len() - 1] + tiles(summed));
        }
        let edges = if neighbours == 0 {
            0
        } else {
            4 * n * m.iter().sum::<usize>() + 8
        };
        pack.push(pack[6] + tiles(edges));
        unpack.push(unpack[6] + tiles(4 * span.iter().sum::<usize>() + 8));
        let in_z = tiles(span[0] * span[1] * (m[2] - 1));
        let in_y = in_z + tiles(span[0] * (n - 2) * (m[1] - 1) * m[2]);
        let in_x = in_y + tiles((n - 2) * (n - 2) * (m[0] - 1) * m[1] * m[2]);
        FacesGeometry {
            values: geometry.len() as u64,
            offset,
            n: small(n),
            m: m.map(small),
            neighbours,
            cube: small(n * n * n),
            slot: Direction::table(|d| small(geometry.slot(d).start)),
            packed: small(geometry.packed_len()),
            elements: small(m.iter().product()),
            span: span.map(small),
            messages: small(geometry.neighbours().count()),
            by_n: Divisor::new(n),
            by_step: Divisor::new(n - 1),
            by_inner: Divisor::new(n - 2),
            by_m: m.map(Divisor::new),
            by_span: span.map(Divisor::new),
            pack_tiles: std::array::from_fn(|k| small(pack[k])),
            unpack_tiles: std::array::from_fn(|k| small(unpack[k])),
            compute_tiles: [0, in_z, in_y, in_x].map(small),
        }
    }

    /// An empty one, to be filled in.
    pub(crate) fn empty() -> FacesGeometry {
        let none = Divisor { magic: 0, shift: 0 };
        FacesGeometry {
            values: 0,
            offset: [0; 3],
            n: 0,
            m: [0; 3],
            neighbours: 0,
            cube: 0,
            slot: [0; Direction::COUNT],
            packed: 0,
            elements: 0,
            span: [0; 3],
            messages: 0,
            by_n: none,
            by_step: none,
            by_inner: none,
            by_m: [none; 3],
            by_span: [none; 3],
            pack_tiles: [0; 8],
            unpack_tiles: [0; 8],
            compute_tiles: [0; 4],
        }
    }

    /// The arguments from which the header makes the same.
    pub(crate) fn arguments(&self) -> (u32, [u32; 3], u32, [u64; 3]) {
        (self.n, self.m, self.neighbours, self.offset)
    }
}

/// `FacesGrids`.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Grids {
    pub(crate) init: u32,
    pub(crate) pack: u32,
    pub(crate) unpack: u32,
    pub(crate) compute: u32,
}

/// `Slot`.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) base: *const f64,
    pub(crate) len: u64,
    /// In bytes.
    pub(crate) flip: u64,
    pub(crate) operand: *const u64,
}
