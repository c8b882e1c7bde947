//! Tests of how transfers are cut into pieces, and of the elements that are gathered for them.

use std::collections::HashSet;

use tidegate_hal::batch::{Shape, Side};
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::{RemoteMemory, RemotePtr, RemoteSide};

use super::*;
use crate::engine::gather::{LENT, Pool, Source};
use crate::wire::memory::{Faults, MemoryWire, Net};

/// The number of elements at this end. Each has 8 bytes, and its value is its index. The elements of odd firings lie
/// behind those of even ones.
const HERE: usize = 20_000;
const FLIP: usize = 8 * HERE;
/// The bytes of the peer's memory.
const THERE: usize = 1 << 20;

struct Pair {
    here: Vec<u64>,
    base: *mut u64,
    _there: Vec<u64>,
    _registered: Keep,
    region: RemoteMemory,
}

impl Pair {
    fn new() -> Self {
        let mut there = vec![0u64; THERE / 8];
        let mut wire = Net::new(1, Faults::default()).wire(0);
        let base = there.as_mut_ptr().cast();
        // SAFETY: nothing accesses the memory by the wire.
        let (key, registered) = unsafe { wire.register(base, THERE, Arc::new(())) }.unwrap();
        let remote = wire.import(0, &key, THERE).unwrap();
        let mut here: Vec<_> = (0..2 * HERE as u64).collect();
        Pair {
            base: here.as_mut_ptr(),
            here,
            _there: there,
            _registered: registered,
            region: RemoteMemory(Arc::new(RemoteRegion::<MemoryWire> {
                number: 0,
                remote,
                rails: Vec::new(),
                mail: None,
            })),
        }
    }

    fn transfer(&self, direction: Direction, count: usize, here: Shape, there: Shape) -> Transfer {
        Transfer {
            action: Action::Copy,
            direction,
            size: 8,
            count,
            local: Side {
                base: Ptr(self.base.cast()),
                flip: FLIP,
                shape: here,
            },
            remote: RemoteSide {
                base: RemotePtr {
                    memory: self.region.clone(),
                    offset: 16,
                },
                flip: 0,
                shape: there,
            },
            stage: 0,
        }
    }

    fn prepared(&self, transfer: &Transfer, most: usize, gathered: usize) -> Prepared {
        let mut cut = Cut {
            most,
            gathered,
            pieces: Vec::new(),
            rows: Vec::new(),
        };
        // SAFETY: the program is never fired.
        unsafe { cut.transfer(transfer) }.unwrap();
        let Cut { pieces, rows, .. } = cut;
        Prepared(Arc::new(Script::<MemoryWire> {
            longest: 0,
            asks: asks(&pieces),
            pieces,
            rows,
            parts: None,
            signal: 0,
            first: 0,
            poison: 0,
            word: (resolve(&transfer.remote.base).unwrap(), 0),
            requests: None,
            _keep: Vec::new(),
        }))
    }
}

fn strided(loops: &[(u32, i32)]) -> Shape {
    let mut dims = [(1, 0); Shape::MAX_DIMS];
    dims[..loops.len()].copy_from_slice(loops);
    let rank = loops.len() as u32;
    Shape::Strided { dims, rank }
}

/// The values of the elements that these loops choose, in their order.
fn elements(loops: &[(u32, i32)]) -> Vec<u64> {
    loops.iter().fold(vec![0], |inner, (count, stride)| {
        let turns = (0..i64::from(*count)).map(|turn| turn * i64::from(*stride));
        turns
            .flat_map(|by| inner.iter().map(move |at| at.wrapping_add_signed(by)))
            .collect()
    })
}

fn of(program: &Prepared) -> &Script<MemoryWire> {
    script(program)
}

/// The source of a piece, for a firing that has something in progress.
fn source(pool: &mut Pool, program: &Prepared, number: usize, odd: bool) -> Option<Source> {
    // SAFETY: all elements lie in the memory here.
    unsafe { pool.source::<MemoryWire>(program, number, odd, false) }
}

/// The elements that the operation of a piece would read.
fn bytes_of(program: &Prepared, number: usize, odd: bool) -> Vec<u64> {
    let source = source(&mut Pool::new(), program, number, odd).unwrap();
    let words = source.address.cast::<u64>();
    // SAFETY: the source has so many bytes until it is dropped.
    (0..of(program).pieces[number].bytes / 8)
        .map(|at| unsafe { words.add(at).read_unaligned() })
        .collect()
}

/// The faces of a block, its edges and corners, and stranger shapes.
const SHAPES: [&[(u32, i32)]; 8] = [
    &[(30, 1), (20, 30)],
    &[(30, 1), (20, 900)],
    &[(30, 30), (20, 900)],
    &[(7, 3), (5, 100), (4, 1000), (3, 7), (2, 11)],
    &[(1, 1)],
    &[(2, 1), (9, 5), (2, 4000)],
    &[(4, 2), (3, 0)],
    &[(511, 1), (3, 1000)],
];

#[test]
fn data_that_is_contiguous_at_the_peer_is_one_piece() {
    let pair = Pair::new();
    for loops in SHAPES {
        let expected = elements(loops);
        let shape = strided(loops);
        let transfer = pair.transfer(Direction::Put, expected.len(), shape, Shape::Linear);
        let program = pair.prepared(&transfer, THERE, PIECE);
        let [piece] = &of(&program).pieces[..] else {
            panic!("{loops:?}: {} pieces", of(&program).pieces.len());
        };
        assert_eq!(
            (piece.offset, piece.bytes),
            (16, 8 * expected.len()),
            "{loops:?}"
        );
        assert_eq!(bytes_of(&program, 0, false), expected, "{loops:?}");
        let odd: Vec<_> = expected.iter().map(|at| at + HERE as u64).collect();
        assert_eq!(bytes_of(&program, 0, true), odd, "{loops:?}");
    }
    // A row is as long as its stretches lie evenly.
    let rows = |loops| {
        let transfer = pair.transfer(Direction::Put, 600, strided(loops), Shape::Linear);
        of(&pair.prepared(&transfer, THERE, PIECE)).rows.len()
    };
    assert_eq!(rows(&[(30, 30), (20, 900)]), 1);
    assert_eq!(rows(&[(30, 29), (20, 900)]), 20);
}

#[test]
fn pieces_are_as_long_as_they_may_be() {
    let pair = Pair::new();
    for loops in SHAPES {
        let expected = elements(loops);
        let transfer = pair.transfer(
            Direction::Put,
            expected.len(),
            strided(loops),
            Shape::Linear,
        );
        // A wire of short operations; one of long ones, so that only what is gathered is short; and nobody who gathers.
        for (most, gathered) in [(72, 72), (4096, 80), (64, 0), (THERE, 0)] {
            let program = pair.prepared(&transfer, most, gathered);
            let script = of(&program);
            let mut found = Vec::new();
            for (number, piece) in script.pieces.iter().enumerate() {
                let limit = if piece.rows.is_empty() {
                    most
                } else {
                    gathered
                };
                assert!(piece.bytes <= limit);
                assert_eq!(piece.offset, 16 + 8 * found.len());
                found.extend(bytes_of(&program, number, false));
            }
            assert_eq!(found, expected, "{loops:?}: {most}, {gathered}");
            assert!(gathered > 0 || script.rows.is_empty());
        }
    }
}

#[test]
fn stretches_that_are_long_or_apart_there_are_operations_of_their_own() {
    let pair = Pair::new();
    let pieces = |direction, here, there, count| {
        let transfer = pair.transfer(direction, count, here, there);
        let program = pair.prepared(&transfer, THERE, PIECE);
        assert_eq!(of(&program).rows, []);
        of(&program).pieces.len()
    };
    for direction in [Direction::Put, Direction::Get] {
        let short = || strided(&[(4, 1), (10, 100)]);
        assert_eq!(pieces(direction, short(), short(), 40), 10);
        assert_eq!(pieces(direction, Shape::Linear, short(), 40), 10);
        let long = strided(&[(SHORT as u32 / 8, 1), (5, 1000)]);
        assert_eq!(pieces(direction, long, Shape::Linear, 5 * SHORT / 8), 5);
    }
}

/// Two transfers of one program are two pieces, even if one ends where the other begins: each has a flip and a stage of
/// its own.
#[test]
fn transfers_are_pieces_of_their_own() {
    let pair = Pair::new();
    let first = pair.transfer(Direction::Put, 8, strided(&[(8, 5)]), Shape::Linear);
    let mut next = first.clone();
    next.remote.base.offset += 64;
    let mut cut = Cut::<MemoryWire> {
        most: THERE,
        gathered: PIECE,
        pieces: Vec::new(),
        rows: Vec::new(),
    };
    for transfer in [&first, &next] {
        // SAFETY: the program is never fired.
        unsafe { cut.transfer(transfer) }.unwrap();
    }
    let pieces: Vec<_> = cut
        .pieces
        .iter()
        .map(|piece| (piece.rows.clone(), piece.offset))
        .collect();
    assert_eq!(pieces, [(0..1, 16), (1..2, 80)]);
}

#[test]
fn a_program_says_how_far_it_asks() {
    let pair = Pair::new();
    // The elements are far apart at the peer, so each is a piece.
    let apart = || strided(&[(9, 500)]);
    let put = pair.transfer(Direction::Put, 9, Shape::Linear, apart());
    let get = pair.transfer(Direction::Get, 9, Shape::Linear, apart());
    let counted = |transfer| {
        let program = pair.prepared(transfer, THERE, PIECE);
        (of(&program).pieces.len(), of(&program).asks)
    };
    assert_eq!((counted(&put), counted(&get)), ((9, 0), (9, 9)));
}

/// The data of a get goes where its shape says, and nothing else is touched. A get that has failed touches nothing.
#[test]
fn the_data_of_a_get_is_scattered() {
    for loops in SHAPES {
        let pair = Pair::new();
        let elements = elements(loops);
        if elements.iter().collect::<HashSet<_>>().len() < elements.len() {
            // The value of a place that is written twice is not defined.
            continue;
        }
        let transfer = pair.transfer(
            Direction::Get,
            elements.len(),
            strided(loops),
            Shape::Linear,
        );
        let program = pair.prepared(&transfer, THERE, PIECE);
        assert_eq!(of(&program).pieces.len(), 1);
        if of(&program).rows.is_empty() {
            // The operation writes to its destination directly.
            continue;
        }
        let mut expected = pair.here.clone();
        for (odd, failed) in [(false, true), (false, false), (true, false)] {
            let source = source(&mut Pool::new(), &program, 0, odd).unwrap();
            let words = source.address.cast::<u64>();
            for (at, element) in elements.iter().enumerate() {
                let value = 1_000_000 + at as u64;
                // SAFETY: the lent buffer has room for so many elements.
                unsafe { words.add(at).write_unaligned(value) };
                if !failed {
                    expected[*element as usize + if odd { HERE } else { 0 }] = value;
                }
            }
            if let Some(lent) = source.lent.filter(|_| !failed) {
                // SAFETY: all elements lie in the memory here.
                unsafe { lent.came::<MemoryWire>() };
            }
            assert!(pair.here == expected, "{loops:?}: {odd}, {failed}");
        }
    }
}

/// A put of so many bytes, which must be gathered.
fn put_of(pair: &Pair, bytes: usize) -> Prepared {
    let count = bytes / 8;
    // The rows overlap, so that the source is long enough for any size.
    let here = strided(&[(16, 2), (count as u32 / 16, 1)]);
    let transfer = pair.transfer(Direction::Put, count, here, Shape::Linear);
    pair.prepared(&transfer, THERE, PIECE)
}

#[test]
#[cfg_attr(miri, ignore = "it counts, and copies much")]
fn the_bytes_of_lent_buffers_are_bounded() {
    let pair = Pair::new();
    let program = put_of(&pair, PIECE);
    let (mut pool, mut lent) = (Pool::new(), Vec::new());
    loop {
        pool.turn();
        match source(&mut pool, &program, 0, false) {
            Some(source) => lent.push(source),
            None => break,
        }
    }
    assert_eq!(lent.len() * PIECE, LENT);
    // A firing that has nothing in progress gets a buffer all the same.
    // SAFETY: all elements lie in the memory here.
    let first = unsafe { pool.source::<MemoryWire>(&program, 0, false, true) };
    assert!(first.is_some());
    drop((first, lent.pop()));
    assert!(source(&mut pool, &program, 0, false).is_some());
}

#[test]
#[cfg_attr(miri, ignore = "it counts, and copies much")]
fn a_turn_copies_a_bounded_amount() {
    let pair = Pair::new();
    let program = put_of(&pair, PIECE);
    let mut pool = Pool::new();
    for _ in 0..3 {
        pool.turn();
        for _ in 0..4 {
            assert!(!pool.is_spent());
            assert!(source(&mut pool, &program, 0, false).is_some());
        }
        assert!(pool.is_spent());
        assert!(source(&mut pool, &program, 0, false).is_none());
    }
}

/// Repeated epochs allocate nothing, whatever the sizes and the order of their pieces.
#[test]
#[cfg_attr(miri, ignore = "it counts, and copies much")]
fn buffers_are_used_again() {
    let pair = Pair::new();
    let sizes = [512, PIECE, 4096, PIECE, 512, 128, PIECE / 2];
    let programs = sizes.map(|bytes| put_of(&pair, bytes));
    let mut pool = Pool::new();
    let mut round = |turned: usize| {
        let all = (0..3 * programs.len()).map(|at| {
            pool.turn();
            source(
                &mut pool,
                &programs[(at + turned) % programs.len()],
                0,
                false,
            )
            .unwrap()
        });
        drop(all.collect::<Vec<_>>());
        pool.made()
    };
    let made = round(0);
    assert_eq!(made, 3 * sizes.len());
    for turned in 0..10 {
        assert_eq!(round(turned), made);
    }
}

/// `puts` long puts and a short one, cut for `rails` rails.
fn cut(puts: usize, bytes: usize, rails: usize) -> Vec<ScriptPiece<MemoryWire>> {
    let pair = Pair::new();
    let remote = resolve::<MemoryWire>(&RemotePtr {
        memory: pair.region.clone(),
        offset: 0,
    });
    let remote = remote.unwrap();
    let more = RemoteRegion {
        number: 0,
        remote: remote.remote.clone(),
        rails: vec![remote.remote.clone(); rails - 1],
        mail: None,
    };
    let more = Arc::new(more);
    let piece = |index: usize, bytes| ScriptPiece {
        direction: Direction::Put,
        rows: 0..0,
        local: std::ptr::without_provenance_mut(64 + index * bytes),
        local_flip: 8,
        bytes,
        remote: more.clone(),
        offset: index * bytes,
        flip: 16,
        stage: index as u32,
        rail: 0,
    };
    let pieces = (0..puts).map(|index| piece(index, bytes));
    stripes(pieces.chain([piece(puts, 64)]).collect())
}

#[test]
fn stripes_cover_their_piece_and_none_is_empty() {
    for bytes in [LONG + 1, LONG + 4096, 240_000, 1 << 20, (16 << 20) - 1] {
        for rails in 1..=MOST_RAILS {
            let cut = cut(3, bytes, rails);
            assert_eq!(cut.len(), 3 * rails + 1);
            for (stage, stripes) in cut.chunks(rails).take(3).enumerate() {
                // The engine's own stripe is posted last. It is the beginning of the piece.
                let mut end = stage * bytes;
                for (rail, stripe) in stripes.iter().rev().enumerate() {
                    assert_eq!((stripe.rail, stripe.stage as usize), (rail, stage));
                    assert!(stripe.offset == end && stripe.bytes > 0);
                    assert_eq!(stripe.local.addr(), 64 + end);
                    assert_eq!((stripe.local_flip, stripe.flip), (8, 16));
                    end += stripe.bytes;
                }
                assert_eq!(end, (stage + 1) * bytes);
            }
            assert_eq!((cut[3 * rails].rail, cut[3 * rails].bytes), (0, 64));
        }
    }
}
