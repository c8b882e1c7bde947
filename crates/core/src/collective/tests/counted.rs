//! Counted all-to-alls, against an oracle, with numbers that kernels find.

use super::*;
use crate::error::{Cause, StreamError};

/// How many rows a rank sends to another in a call.
fn count(from: usize, to: usize, call: usize, most: usize) -> usize {
    (from * 7 + to * 3 + call * 5) % (most + 1)
}

/// An element of the input of a rank.
fn element(rank: usize, at: usize, call: usize) -> [u8; 3] {
    [rank as u8, at as u8, call as u8]
}

/// The regions of a call.
struct Rows<'s> {
    it: CountedAllToAll<'s, [u8; 3], Host>,
    x: OnStream<'s, [u8; 3]>,
    y: OnStream<'s, [u8; 3]>,
    counts: OnStream<'s, u64>,
    received: OnStream<'s, u64>,
    /// How many calls there have been, for the kernels.
    calls: OnStream<'s, u64>,
    most: usize,
    width: usize,
}

// SAFETY: all leaves are visited; they alone mention the brand.
unsafe impl<'s> crate::Carry<'s, Host> for Rows<'s> {
    type At<'t> = Rows<'t>;
    fn visit(&mut self, visitor: &mut crate::carry::Visitor<'_, Host>) {
        self.it.visit(visitor);
        self.x.visit(visitor);
        self.y.visit(visitor);
        self.counts.visit(visitor);
        self.received.visit(visitor);
        self.calls.visit(visitor);
    }
}

impl<'s> Rows<'s> {
    fn open(s: &S<'s>, most: usize, width: usize) -> Result<Self> {
        let world = s.world();
        let ranks = world.size();
        let all = ranks * most * width;
        Ok(Rows {
            it: CountedAllToAll::open(s, "rows", most, width)?,
            x: Region::zeroed(world, all)?.on(s)?,
            y: Region::zeroed(world, all)?.on(s)?,
            counts: Region::zeroed(world, ranks)?.on(s)?,
            received: Region::zeroed(world, ranks)?.on(s)?,
            calls: Region::zeroed(world, 1)?.on(s)?,
            most,
            width,
        })
    }

    /// Kernels fill the input, and find the numbers of rows. Then they are sent.
    fn step(&mut self, s: &S<'s>) -> Result<()> {
        let (rank, most) = (s.world().rank(), self.most);
        let find = move |x: &mut [[u8; 3]], counts: &mut [u64], calls: &mut [u64]| {
            let call = calls[0] as usize;
            calls[0] += 1;
            for (at, x) in x.iter_mut().enumerate() {
                *x = element(rank, at, call);
            }
            for (to, counts) in counts.iter_mut().enumerate() {
                *counts = count(rank, to, call, most) as u64;
            }
        };
        s.launch(find, (&mut self.x, &mut self.counts, &mut self.calls))?;
        s.launch(|y: &mut [[u8; 3]]| y.fill([99; 3]), &mut self.y)?;
        let Rows {
            it,
            x,
            y,
            counts,
            received,
            ..
        } = self;
        it.enqueue(s, x, counts, y, received)
    }

    fn check(&self, s: &S<'s>) -> Result<()> {
        let (ranks, rank) = (s.world().size(), s.world().rank());
        let call = self.calls.to_vec(s)?[0] as usize - 1;
        let (y, received) = (self.y.to_vec(s)?, self.received.to_vec(s)?);
        let block = self.most * self.width;
        for from in 0..ranks {
            let rows = count(from, rank, call, self.most);
            assert_eq!(received[from], rows as u64, "from {from}, call {call}");
            for at in 0..block {
                let sent = element(from, rank * block + at, call);
                let expected = if at < rows * self.width {
                    sent
                } else {
                    [99; 3]
                };
                assert_eq!(
                    y[from * block + at],
                    expected,
                    "{at} from {from}, call {call}"
                );
            }
        }
        Ok(())
    }
}

fn rows(world: &World<Host>) -> Result<()> {
    for (most, width) in [(4, 1), (3, 5), (0, 2), (1, 1)] {
        stream!(let mut s = world.stream()?);
        let mut rows = Rows::open(&s, most, width)?;
        for _ in 0..5 {
            rows.step(&s)?;
            rows.check(&s)?;
        }
        let (graph, mut rows) = s.capture(rows, |s, mut rows| {
            rows.step(s)?;
            rows.step(s)?;
            Ok(rows)
        })?;
        graph.verify(&s)?.proof().unwrap();
        for times in [1, 3] {
            rows = graph.replay(&s, rows, times)?;
            rows.check(&s)?;
            rows.step(&s)?;
            rows.check(&s)?;
        }
    }
    Ok(())
}

#[test]
fn kernels_say_how_many_rows_are_sent() {
    for size in [1, 2, 3, 6] {
        for result in World::<Host>::local(size, |world| rows(&world)) {
            result.unwrap();
        }
    }
}

#[test]
fn rows_go_over_nics_too() {
    for (size, staged) in [(2, false), (3, true), (3, false)] {
        for route in [Route::Nic, Route::NicTo([0].into())] {
            let nic = |_| {
                let options = WorldOptions::new()
                    .nic(Loopback::new(Options::default()))
                    .route(route.clone());
                if staged { options.staged() } else { options }
            };
            for result in World::<Host>::local_with(size, nic, |world| rows(&world)) {
                result.unwrap();
            }
        }
    }
}

/// Rank 1 sends more rows than there is room for: to a rank, or to itself. All ranks hear of it, over NICs as well.
#[test]
fn too_many_rows_are_an_error_that_names_them() {
    for (target, routed, most) in [(0, false, 4), (1, false, 4), (2, true, 4), (2, false, 0)] {
        for number in [most as u64 + 1, u64::MAX, 1 << 63] {
            let nic = |_| match routed {
                true => WorldOptions::new()
                    .nic(Loopback::new(Options::default()))
                    .route(Route::Nic),
                false => WorldOptions::new(),
            };
            let results = World::<Host>::local_with(3, nic, |world| {
                stream!(let s = world.stream().unwrap());
                let mut rows = Rows::open(&s, most, 2).unwrap();
                let rank = world.rank();
                let too_many = move |counts: &mut [u64]| {
                    if rank == 1 {
                        counts[target] = number;
                    }
                };
                s.launch(too_many, &mut rows.counts).unwrap();
                let called =
                    rows.it
                        .enqueue(&s, &rows.x, &rows.counts, &mut rows.y, &mut rows.received);
                // Other ranks notice when they need this one: in a later call, perhaps.
                let again = called.and_then(|()| {
                    rows.it
                        .enqueue(&s, &rows.x, &rows.counts, &mut rows.y, &mut rows.received)
                });
                again.and_then(|()| s.synchronize())
            });
            for (rank, result) in results.into_iter().enumerate() {
                let error = result.unwrap_err();
                match (rank, &error) {
                    (
                        1,
                        Error::Stream(StreamError::CountTooGreat {
                            rank,
                            target: to,
                            count,
                            window,
                            ..
                        }),
                    ) => {
                        assert_eq!((*rank, *to, *count), (1, target, number));
                        assert_eq!(&*window.name, "rows");
                    }
                    (0 | 2, Error::Wait(failed)) => {
                        let text = failed.to_string();
                        let said = matches!(failed.cause, Cause::StreamFailed { rank: 1, .. });
                        assert!(said && text.contains(&number.to_string()), "{text}");
                    }
                    (0 | 2, Error::Revoked { .. }) => {}
                    _ => panic!("rank {rank}: {error}"),
                }
            }
        }
    }
}

#[test]
fn rows_that_cannot_be_are_refused() {
    World::<Host>::local(2, |world| {
        stream!(let s = world.stream().unwrap());
        let huge = usize::MAX / 2;
        for (most, width) in [(1, 0), (1, huge), (huge, 1), (1, 1 << 30)] {
            let opened = CountedAllToAll::<[u64; 4], Host>::open(&s, "rows", most, width);
            let error = opened.err().unwrap();
            let typed = matches!(error, Error::Open(WindowError::Rows { .. }));
            assert!(typed, "{error}");
        }
        let last = world.rank();
        let other = CountedAllToAll::<f32, Host>::open(&s, "rows", 4, 1 + last).map(drop);
        let more = CountedAllToAll::<f32, Host>::open(&s, "rows", 4 + last, 1).map(drop);
        let types = match last {
            0 => CountedAllToAll::<f32, Host>::open(&s, "rows", 4, 1).map(drop),
            _ => CountedAllToAll::<u32, Host>::open(&s, "rows", 4, 1).map(drop),
        };
        for opened in [other, more, types] {
            let error = opened.unwrap_err();
            let typed = matches!(error, Error::Open(WindowError::Disagreement { .. }));
            assert!(typed, "{error}");
        }
        let mut it = CountedAllToAll::<u8, Host>::open(&s, "rows", 2, 3).unwrap();
        let region = |len| {
            Region::<u8, _>::zeroed(&world, len)
                .unwrap()
                .on(&s)
                .unwrap()
        };
        let number = |len| {
            Region::<u64, _>::zeroed(&world, len)
                .unwrap()
                .on(&s)
                .unwrap()
        };
        for [x, y, counts, received] in [
            [11, 12, 2, 2],
            [12, 13, 2, 2],
            [12, 12, 1, 2],
            [12, 12, 2, 3],
        ] {
            let (mut y, mut received) = (region(y), number(received));
            let called = it.enqueue(&s, &region(x), &number(counts), &mut y, &mut received);
            let error = called.unwrap_err();
            let typed = matches!(error, Error::Epoch(EpochError::CountMismatch { .. }));
            assert!(typed, "{error}");
        }
    });
}
