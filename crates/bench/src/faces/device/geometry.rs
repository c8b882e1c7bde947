//! The parameters of device kernels: `kernels/faces.cuh`, in Rust.
//!
//! # Model
//!
//! [`FacesGeometry`] is the struct of that header, field by field; every kernel takes it by value. It holds all that
//! follows from the size of a block, its neighbours and its place, so that a thread divides by multiplying. The header
//! explains each field.
//!
//! # Failures
//!
//! [`FacesGeometry::new`] refuses blocks that the kernels cannot address (`faces_geometry_fits`).

use crate::faces::kernels::element_offset;
use crate::faces::layout::{Direction, Geometry, Kind};
use crate::faces::params::{Init, ParamsError};
use tidegate_core::Element;
use tidegate_core::element::{LAYOUT_START, mix};

/// Items of a tile, and the threads of a block.
pub const TILE: u32 = 128;

/// Threads that a multiprocessor holds: beyond that, more blocks only cost their launch.
const RESIDENT: usize = 2048;

/// Tiles that a block of the kernel has at a time that makes all shares: half a multiprocessor's threads at most, since
/// the other half is for others.
pub const SHARE_TILES: u32 = 4;

/// Divides by a fixed number `d` with a multiplication and a shift, which GPUs do faster than a division.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FacesDivisor {
    /// `ceil(2^(31 + shift) / d)`.
    pub magic: u32,
    /// The number of bits to shift by, `ceil(log2(d))`.
    pub shift: u32,
}

/// One rank's block and messages, for kernels of a device.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the header says it")]
pub struct FacesGeometry {
    pub values: u64,
    pub offset: [u64; 3],
    pub n: u32,
    pub m: [u32; 3],
    pub neighbours: u32,
    pub cube: u32,
    pub slot: [u32; Direction::COUNT],
    pub packed: u32,
    pub elements: u32,
    pub span: [u32; 3],
    pub messages: u32,
    pub by_n: FacesDivisor,
    pub by_step: FacesDivisor,
    pub by_inner: FacesDivisor,
    pub by_m: [FacesDivisor; 3],
    pub by_span: [FacesDivisor; 3],
    pub pack_tiles: [u32; 8],
    pub unpack_tiles: [u32; 8],
    pub compute_tiles: [u32; 4],
}

/// Four words of 8 bytes, and words of 4: 1 + 3 + 1 + 1 + 26 + 1 + 1 + 3 + 1 of the numbers, 2 for each of 9 divisors,
/// 8 + 8 + 4 of tiles. Without padding, as an element must be.
const _: () = assert!(size_of::<FacesGeometry>() == 4 * 8 + (38 + 2 * 9 + 20) * 4);
const _: () = assert!(size_of::<FacesGeometry>() == 336);

// SAFETY: integers alone, without padding, which was just checked; the hash is this type's own.
unsafe impl Element for FacesGeometry {
    const LAYOUT: u64 = mix(mix(LAYOUT_START, 0xface5), 336);
}

/// The recommended grids, in blocks of [`TILE`] threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "named after the kernels")]
pub struct FacesGrids {
    pub init: u32,
    pub pack: u32,
    pub unpack: u32,
    pub compute: u32,
    pub shares: u32,
}

impl FacesDivisor {
    /// For divisions of numbers below 2^31.
    pub fn new(divisor: u32) -> FacesDivisor {
        let shift = u64::from(divisor).next_power_of_two().trailing_zeros();
        let magic = (1u64 << (31 + shift)).div_ceil(u64::from(divisor));
        FacesDivisor {
            magic: magic as u32,
            shift,
        }
    }
}

impl FacesGeometry {
    /// That of a rank's block.
    ///
    /// # Errors
    ///
    /// [`ParamsError::TooLarge`] where the kernels' 32-bit numbers do not suffice.
    pub fn new(geometry: &Geometry, init: Init) -> Result<FacesGeometry, ParamsError> {
        if !fits(geometry) {
            let what = "the block, by kernels of a device,";
            return Err(ParamsError::TooLarge { what });
        }
        let small = |value: usize| value as u32;
        let (n, m) = (geometry.size().n, geometry.size().m);
        let span = m.map(|m| m * (n - 1) - 1);
        let tiles = |items: usize| small(items.div_ceil(TILE as usize));
        let neighbours: u32 = geometry.neighbours().map(|(d, _)| 1 << d.index()).sum();
        let (mut pack, mut unpack) = ([0; 8], [0; 8]);
        let faces = Direction::all().filter(|d| d.kind() == Kind::Face);
        for (group, d) in faces.enumerate() {
            let along = |skip: usize| {
                let mut along = (0..3).filter(|k| d.offset()[*k] == 0);
                along.nth(skip).expect("a face has two dimensions")
            };
            let (a, b) = (along(0), along(1));
            let (sent, summed) = match geometry.neighbour(d) {
                Some(_) => (geometry.message_len(d), span[a] * span[b]),
                // Only the points between elements have several copies.
                None => (0, (m[b] - 1) * span[a] + (m[a] - 1) * span[b]),
            };
            pack[group + 1] = pack[group] + tiles(sent);
            unpack[group + 1] = unpack[group] + tiles(summed);
        }
        let edges = match neighbours {
            0 => 0,
            _ => 4 * n * m.iter().sum::<usize>() + 8,
        };
        pack[7] = pack[6] + tiles(edges);
        unpack[7] = unpack[6] + tiles(4 * span.iter().sum::<usize>() + 8);
        let in_z = tiles(span[0] * span[1] * (m[2] - 1));
        let in_y = in_z + tiles(span[0] * (n - 2) * (m[1] - 1) * m[2]);
        let in_x = in_y + tiles((n - 2) * (n - 2) * (m[0] - 1) * m[1] * m[2]);
        let by = |value: usize| FacesDivisor::new(small(value));
        Ok(FacesGeometry {
            values: geometry.len() as u64,
            offset: element_offset(geometry, init).map(|offset| offset as u64),
            n: small(n),
            m: m.map(small),
            neighbours,
            cube: small(n * n * n),
            slot: Direction::table(|d| small(geometry.slot(d).start)),
            packed: small(geometry.packed_len()),
            elements: small(geometry.size().elements()),
            span: span.map(small),
            messages: neighbours.count_ones(),
            by_n: by(n),
            by_step: by(n - 1),
            by_inner: by(n - 2),
            by_m: m.map(by),
            by_span: span.map(by),
            pack_tiles: pack,
            unpack_tiles: unpack,
            compute_tiles: [0, in_z, in_y, in_x],
        })
    }

    /// The recommended grids for a device of so many multiprocessors.
    pub fn grids(&self, multiprocessors: usize) -> FacesGrids {
        let most = u32::try_from(multiprocessors * (RESIDENT / TILE as usize)).unwrap_or(u32::MAX);
        let grid = |tiles: u32| tiles.clamp(1, most.max(1));
        FacesGrids {
            init: grid(self.elements),
            pack: grid(self.pack_tiles[7]),
            unpack: grid(self.unpack_tiles[7]),
            compute: grid(self.compute_tiles[3]),
            // All of its blocks run at the same time, and wait for one another: one on each multiprocessor, but for one.
            shares: self.pack_tiles[7]
                .max(self.unpack_tiles[7])
                .div_ceil(SHARE_TILES)
                .clamp(1, multiprocessors.max(2) as u32 - 1),
        }
    }
}

/// Whether all numbers of the kernels stay within their 32 bits.
fn fits(geometry: &Geometry) -> bool {
    const LIMIT: u128 = 1 << 31;
    let (n, m) = (geometry.size().n as u128, geometry.size().m);
    let m = m.map(|m| m as u128);
    let side = m.map(|m| n * m);
    (3..=1024).contains(&n)
        && m.iter().all(|m| (1..=65535).contains(m))
        && (0..3).all(|d| side[d] * side[(d + 1) % 3] < LIMIT / 16)
        && m.iter().product::<u128>() < LIMIT / n / n
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::faces::params::{Grid, Size};
    use std::mem::offset_of;

    fn geometry(grid: [usize; 3], m: [usize; 3], n: usize, rank: usize) -> Geometry {
        Geometry::new(Grid(grid), Size { m, n }, rank).unwrap()
    }

    /// The names, offsets and sizes of the fields, as the header declares them.
    fn declared() -> Vec<(String, usize, usize)> {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../kernels/faces.cuh");
        let header = std::fs::read_to_string(path).unwrap();
        let body = header.split_once("struct FacesGeometry {").unwrap().1;
        let body = body.split_once("\n};").unwrap().0;
        let mut offset = 0;
        let fields = body.lines().filter_map(|line| line.split(';').next());
        let fields = fields
            .map(str::trim)
            .filter(|line| !line.is_empty() && !line.starts_with("//"));
        fields
            .map(|field| {
                let (kind, name) = field.rsplit_once(' ').expect(field);
                // The one length that is not a number has a space in it.
                let (kind, name) = match name {
                    "1]" => ("unsigned int", field.trim_start_matches("unsigned int ")),
                    _ => (kind.trim(), name),
                };
                let (name, count) = match name.split_once('[') {
                    None => (name, 1),
                    Some((name, "FACES_GROUPS + 1]")) => (name, 8),
                    Some((name, count)) => (name, count.trim_end_matches(']').parse().unwrap()),
                };
                let size = match kind {
                    "unsigned long long" | "struct FacesDivisor" => 8,
                    "unsigned int" => 4,
                    other => panic!("{other} in {field}"),
                };
                let at = offset;
                offset += size * count;
                (name.to_owned(), at, size * count)
            })
            .collect()
    }

    #[test]
    fn is_the_struct_of_the_header() {
        macro_rules! fields {
            ($($name:ident)*) => {
                [$((stringify!($name), offset_of!(FacesGeometry, $name))),*]
            };
        }
        let ours = fields!(values offset n m neighbours cube slot packed elements span messages by_n by_step
            by_inner by_m by_span pack_tiles unpack_tiles compute_tiles);
        let theirs = declared();
        let end = theirs.last().map(|(_, at, size)| at + size).unwrap();
        let theirs: Vec<_> = theirs.iter().map(|(name, at, _)| (&**name, *at)).collect();
        assert_eq!(ours.as_slice(), theirs);
        assert_eq!(size_of::<FacesGeometry>(), end);
    }

    #[test]
    fn divides() {
        for d in [1u32, 2, 3, 5, 7, 11, 12, 140, 153, 1023, 65535] {
            let by = FacesDivisor::new(d);
            let over = |x: u32| ((u64::from(2 * x) * u64::from(by.magic)) >> 32) as u32 >> by.shift;
            let last = i32::MAX as u32;
            let edges = (1..100).flat_map(|k| [k * d - 1, k * d, k * d + 1]);
            for x in edges.chain([0, 1, last / d * d, last / d * d - 1, last - 1, last]) {
                assert_eq!(over(x), x / d, "{x} / {d}");
            }
        }
    }

    #[test]
    fn a_middle_rank_of_the_small_size() {
        let g = geometry([2, 2, 2], Size::SMALL.m, 12, 0);
        let f = FacesGeometry::new(&g, Init::Same).unwrap();
        assert_eq!((f.messages, f.values), (7, g.len() as u64));
        assert_eq!(f.packed as usize, g.packed_len());
        assert!(f.pack_tiles.is_sorted() && f.unpack_tiles.is_sorted());
        // 84,510 values of three faces, in tiles of 128, and the edges and corners.
        let faces: u32 = [26_208u32, 28_080, 30_240]
            .map(|v| v.div_ceil(TILE))
            .iter()
            .sum();
        assert_eq!(f.pack_tiles[6], faces);
        let grids = f.grids(132);
        assert_eq!(grids.pack, f.pack_tiles[7].min(132 * 16));
        assert_eq!(grids.compute, 132 * 16);
    }

    #[test]
    fn refuses_what_cannot_be_addressed() {
        assert!(FacesGeometry::new(&geometry([1; 3], Size::LARGE.m, 12, 0), Init::Same).is_ok());
        let wide = geometry([1; 3], [70_000, 1, 1], 3, 0);
        assert!(FacesGeometry::new(&wide, Init::Same).is_err());
    }
}
