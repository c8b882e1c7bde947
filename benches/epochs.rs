//! The cost of epochs: `cargo bench --bench epochs`. Ranks are threads.
//!
//! - `enqueue`: the host's time for an epoch (post, one put, complete, wait), in three forms. The stream works meanwhile.
//! - `latency`: one way, from a put to the other rank's next one, with all of it enqueued (`stream`) or done by the
//!   calling threads themselves (`inline`).
//! - `put`: bytes a second, by the size of the put.
//! - `barrier`: on the stream, for some numbers of ranks.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use tidegate::host::prelude::*;

/// Epochs that are enqueued at a time: fewer than a queue holds, so that none of them waits for room.
const BURST: u64 = 200;

/// Both ends of a window, and the source of the puts.
#[derive(Carry)]
struct Ends<'s> {
    src: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    /// Where it puts, if it does.
    to: Option<Out<u64>>,
}

/// A window in which every rank puts `len` numbers to `to` and gets as many from `from`.
fn open<'s>(
    s: &Stream<'s>,
    from: Option<usize>,
    to: Option<usize>,
    len: usize,
) -> Result<Ends<'s>> {
    let mut window = SlotWindow::new("epochs");
    if let Some(from) = from {
        window.slot_from(from, 0, len);
    }
    let to = to.map(|to| window.slot_to(to, 0));
    let (inbox, outbox) = window.open(s)?;
    Ok(Ends {
        src: Region::zeroed(s.world(), len)?.on(s)?,
        inbox,
        outbox,
        to,
    })
}

/// Runs ranks as threads; how long rank 0 says that it took.
fn ranks(n: usize, rank: impl Fn(&World) -> Result<Duration> + Sync) -> Duration {
    let times = World::local(n, |world| rank(&world).expect("no rank fails"));
    times[0]
}

/// The epoch's one put.
fn put<'s, 'b>(
    outbox: Outbox<'s, u64>,
    to: Option<Out<u64>>,
    src: &'b Region<u64, On<'s>>,
) -> Result<Access<'s, 'b, u64>> {
    let mut epoch = outbox.start();
    epoch.put(src, to.expect("this rank puts"))?;
    Ok(epoch)
}

fn separate<'s>(s: &Stream<'s>, ends: Ends<'s>) -> Result<Ends<'s>> {
    let exposed = ends.inbox.post(s)?;
    let epoch = put(ends.outbox, ends.to, &ends.src)?;
    let outbox = epoch.complete(s)?;
    let inbox = exposed.wait(s)?;
    Ok(Ends {
        inbox,
        outbox,
        ..ends
    })
}

fn fused<'s>(s: &Stream<'s>, ends: Ends<'s>) -> Result<Ends<'s>> {
    let epoch = put(ends.outbox, ends.to, &ends.src)?;
    let (inbox, outbox) = exchange(s, ends.inbox, epoch)?;
    Ok(Ends {
        inbox,
        outbox,
        ..ends
    })
}

/// The time for `count` epochs of one rank with itself, less that of waiting for the stream.
fn enqueue(
    count: u64,
    step: impl for<'s> Fn(&Stream<'s>, Ends<'s>) -> Result<Ends<'s>> + Sync,
) -> Duration {
    ranks(1, |world| {
        stream!(let s = world.stream()?);
        let mut ends = open(&s, Some(0), Some(0), 1)?;
        let mut total = Duration::ZERO;
        let mut left = count;
        while left > 0 {
            let burst = left.min(BURST);
            let start = Instant::now();
            for _ in 0..burst {
                ends = step(&s, ends)?;
            }
            total += start.elapsed();
            s.synchronize()?;
            left -= burst;
        }
        Ok(total)
    })
}

fn enqueueing(c: &mut Criterion) {
    let mut group = c.benchmark_group("enqueue");
    group.bench_function("post, put, complete, wait", |b| {
        b.iter_custom(|count| enqueue(count, separate));
    });
    group.bench_function("put, exchange", |b| {
        b.iter_custom(|count| enqueue(count, fused));
    });
    group.bench_function("replay of one epoch", |b| {
        b.iter_custom(|count| {
            ranks(1, |world| {
                stream!(let s = world.stream()?);
                let ends = open(&s, Some(0), Some(0), 1)?;
                let (graph, mut ends) = s.capture(ends, separate)?;
                let mut total = Duration::ZERO;
                let mut left = count;
                while left > 0 {
                    let burst = left.min(BURST);
                    let start = Instant::now();
                    for _ in 0..burst {
                        ends = graph.replay(&s, ends, 1)?;
                    }
                    total += start.elapsed();
                    s.synchronize()?;
                    left -= burst;
                }
                Ok(total)
            })
        });
    });
    group.finish();
}

/// `count` times there and back between two ranks.
fn ping_pong<'s>(s: &Stream<'s>, rank: usize, count: u64) -> Result<Duration> {
    let mut ends = open(s, Some(1 - rank), Some(1 - rank), 1)?;
    // One epoch first, so that both ranks are ready.
    ends = separate(s, ends)?;
    s.synchronize()?;
    // The answering rank waits first, and puts last: each of its exchanges answers the message that its previous one waited
    // for.
    let answers = rank == 1;
    let start = Instant::now();
    if answers {
        ends.inbox = ends.inbox.expose(s)?;
    }
    for _ in u64::from(answers)..count {
        ends = fused(s, ends)?;
    }
    if answers {
        ends.outbox = put(ends.outbox, ends.to, &ends.src)?.complete(s)?;
    }
    s.synchronize()?;
    Ok(start.elapsed())
}

fn latency(c: &mut Criterion) {
    let mut group = c.benchmark_group("latency, one way");
    // A round trip is two ways.
    group.bench_function("stream", |b| {
        b.iter_custom(|count| {
            ranks(2, |world| {
                stream!(let s = world.stream()?);
                Ok(ping_pong(&s, world.rank(), count)? / 2)
            })
        });
    });
    group.bench_function("inline", |b| {
        b.iter_custom(|count| {
            ranks(2, |world| {
                stream!(let s = world.inline_stream()?);
                Ok(ping_pong(&s, world.rank(), count)? / 2)
            })
        });
    });
    group.finish();
}

/// `count` puts of rank 0 to rank 1, until the last one has been received.
fn puts(count: u64, bytes: usize) -> Duration {
    ranks(2, |world| {
        stream!(let s = world.stream()?);
        let len = bytes / size_of::<u64>();
        let data = if world.rank() == 0 {
            open(&s, None, Some(1), len)?
        } else {
            open(&s, Some(0), None, len)?
        };
        let mut barrier = Barrier::open(&s, "both")?;
        barrier.enqueue(&s)?;
        s.synchronize()?;
        let start = Instant::now();
        let Ends {
            src,
            mut inbox,
            mut outbox,
            to,
        } = data;
        for _ in 0..count {
            if world.rank() == 0 {
                outbox = put(outbox, to, &src)?.complete(&s)?;
            } else {
                inbox = inbox.expose(&s)?;
            }
        }
        barrier.enqueue(&s)?;
        s.synchronize()?;
        Ok(black_box(start.elapsed()))
    })
}

fn bandwidth(c: &mut Criterion) {
    let mut group = c.benchmark_group("put");
    for bytes in [8, 512, 8 << 10, 128 << 10, 1 << 20, 4 << 20] {
        group.throughput(Throughput::BytesDecimal(bytes as u64));
        group.bench_function(BenchmarkId::from_parameter(bytes), |b| {
            b.iter_custom(|count| puts(count, bytes));
        });
    }
    group.finish();
}

fn barrier(c: &mut Criterion) {
    let mut group = c.benchmark_group("barrier");
    for n in [2, 3, 8] {
        group.bench_function(BenchmarkId::from_parameter(n), |b| {
            b.iter_custom(|count| {
                ranks(n, |world| {
                    stream!(let s = world.stream()?);
                    let mut barrier = Barrier::open(&s, "barrier")?;
                    barrier.enqueue(&s)?;
                    s.synchronize()?;
                    let start = Instant::now();
                    for _ in 0..count {
                        barrier.enqueue(&s)?;
                    }
                    s.synchronize()?;
                    Ok(start.elapsed())
                })
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = epochs;
    config = Criterion::default()
        .sample_size(10)
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1));
    targets = enqueueing, latency, bandwidth, barrier
}
criterion_main!(epochs);
