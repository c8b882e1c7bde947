//! A sparse matrix times a vector, many times in one kernel, which puts while it computes.
//!
//! Each rank has some rows of the matrix, and the elements of the vector that belong to them. Its rows refer to elements
//! of other ranks, too. In each product, the kernel first computes the elements that other ranks need. It puts each of
//! them as soon as it has it, straight into the slots of those ranks. Then it computes the rest, while the data is on its
//! way. So no element is packed, and nobody waits for a product that is not needed yet.
//!
//! The host lends the kernel both halves of the window ([`Inbox::lend`], [`Outbox::lend`]). Each rank compares its part
//! with a serial run: the bits are the same.
//!
//! Run it with `cargo run --example spmv`, or on 8 ranks: `cargo run -p tidegate-cli -- run -n 8
//! target/debug/examples/spmv`.

use std::collections::BTreeMap;
use std::ops::Range;

use tidegate::host::prelude::*;

/// The number of rows.
const ROWS: usize = 1200;
/// The number of products.
const PRODUCTS: usize = 60;

/// An element of the matrix: its column, and its value.
type Element = (usize, f64);

/// A row of the matrix. It refers to elements near its own, and to a few at random. Its values add up to about 1, so
/// products neither grow nor vanish.
fn row(i: usize) -> Vec<Element> {
    let mut seed = 88_172_645_463_325_252_u64 ^ (i as u64) << 20; // of a xorshift generator
    let mut random = |below: usize| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        (seed >> 11) as usize % below
    };
    let near = [ROWS - 2, ROWS - 1, 0, 1, 2].map(|distance| (i + distance) % ROWS);
    let far = [random(ROWS), random(ROWS)];
    let columns = near
        .into_iter()
        .chain(far.into_iter().filter(|_| i.is_multiple_of(16)));
    columns
        .map(|j| (j, (1 + random(100)) as f64 / 260.0))
        .collect()
}

fn first(i: usize) -> f64 {
    (i as f64 * 0.37).sin()
}

/// The rows of a rank.
fn rows_of(rank: usize, ranks: usize) -> Range<usize> {
    ROWS * rank / ranks..ROWS * (rank + 1) / ranks
}

/// The elements of rank `from` that the rows of rank `to` refer to, in ascending order.
fn needed(from: usize, to: usize, ranks: usize) -> Vec<usize> {
    let theirs = rows_of(from, ranks);
    let columns = rows_of(to, ranks).flat_map(row).map(|(j, _)| j);
    let mut needed: Vec<_> = columns.filter(|j| theirs.contains(j)).collect();
    needed.sort_unstable();
    needed.dedup();
    needed
}

/// One rank's part of the matrix.
#[derive(Clone)]
struct Part {
    /// Each row, and where its element goes: to slots of other ranks, and to which of their elements. The rows that
    /// other ranks wait for come first.
    rows: Vec<Row>,
    /// Where the elements of each slot go: this rank's elements come first in a vector, then those of others.
    received: Vec<(In<f64>, usize)>,
    /// The length of a vector with the elements of others.
    len: usize,
}

#[derive(Clone)]
struct Row {
    /// The number of its element on this rank.
    own: usize,
    /// The columns are places in the vector.
    elements: Vec<Element>,
    to: Vec<(Out<f64>, usize)>,
}

impl Part {
    /// Declares the slots of the window, too.
    fn new(window: &mut SlotWindow<f64>, rank: usize, ranks: usize) -> Self {
        let mine = rows_of(rank, ranks);
        let mut places: BTreeMap<usize, usize> = mine.clone().zip(0..).collect();
        let mut to = vec![Vec::new(); mine.len()];
        let mut received = Vec::new();
        for other in (0..ranks).filter(|other| *other != rank) {
            let (gets, puts) = (needed(other, rank, ranks), needed(rank, other, ranks));
            if !gets.is_empty() {
                received.push((window.slot_from(other, 0, gets.len()), places.len()));
                for j in gets {
                    places.insert(j, places.len());
                }
            }
            if !puts.is_empty() {
                let slot = window.slot_to(other, 0);
                (0..)
                    .zip(puts)
                    .for_each(|(k, j)| to[j - mine.start].push((slot, k)));
            }
        }
        let rows = mine.zip(to).enumerate().map(|(own, (i, to))| {
            let elements = row(i).into_iter().map(|(j, a)| (places[&j], a));
            let elements = elements.collect();
            Row { own, elements, to }
        });
        let mut rows: Vec<_> = rows.collect();
        rows.sort_by_key(|row| row.to.is_empty());
        Part {
            rows,
            received,
            len: places.len(),
        }
    }

    /// The kernel: `x` becomes the matrix times `x`, [`PRODUCTS`] times. `y` is for the result of a product. At first,
    /// `x` has the elements of others, too.
    fn products(
        &self,
        mut inbox: KernelInbox<'_, f64>,
        mut outbox: KernelOutbox<'_, f64>,
        x: &mut [f64],
        y: &mut [f64],
    ) {
        let product = |row: &Row, x: &[f64]| row.elements.iter().map(|(j, a)| a * x[*j]).sum();
        let needed = self.rows.partition_point(|row| !row.to.is_empty());
        let (outer, inner) = self.rows.split_at(needed);
        for _ in 0..PRODUCTS {
            // What came last was copied to `x`, so the others may put again.
            let exposed = inbox.post();
            let mut epoch = outbox.start();
            for row in outer {
                let value = product(row, x);
                row.to
                    .iter()
                    .for_each(|(slot, k)| epoch.put_one(*slot, *k, value));
                y[row.own] = value;
            }
            outbox = epoch.complete();
            inner.iter().for_each(|row| y[row.own] = product(row, x));
            inbox = exposed.wait();
            x[..y.len()].copy_from_slice(y);
            for (slot, place) in &self.received {
                let came = inbox.read().slot(*slot);
                x[*place..][..came.len()].copy_from_slice(came);
            }
        }
    }
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, ranks) = (world.rank(), world.size());
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::new("elements");
    let part = Part::new(&mut window, rank, ranks);
    let (mut inbox, mut outbox) = window.open(&s)?;

    // Each rank knows the elements of the first vector.
    let mine = rows_of(rank, ranks);
    let mut start: Vec<f64> = mine.clone().map(first).collect();
    for other in (0..ranks).filter(|other| *other != rank) {
        start.extend(needed(other, rank, ranks).into_iter().map(first));
    }
    assert_eq!(start.len(), part.len);
    let mut x = Region::from_slice(&world, &start)?.on(&s)?;
    let mut y = Region::<f64>::zeroed(&world, mine.len())?.on(&s)?;
    let kernel =
        move |x: &mut [f64],
              y: &mut [f64],
              inbox: KernelInbox<'_, f64>,
              outbox: KernelOutbox<'_, f64>| part.products(inbox, outbox, x, y);
    s.launch(kernel, (&mut x, &mut y, inbox.lend(), outbox.lend()))?;
    let found = y.into_host(&s)?;

    // The serial run.
    let matrix: Vec<_> = (0..ROWS).map(row).collect();
    let mut all: Vec<f64> = (0..ROWS).map(first).collect();
    for _ in 0..PRODUCTS {
        let product = |row: &Vec<Element>| row.iter().map(|(j, a)| a * all[*j]).sum();
        all = matrix.iter().map(product).collect();
    }
    assert_eq!(found[..], all[mine]);
    if rank == 0 {
        let norm = all.iter().map(|x| x * x).sum::<f64>().sqrt();
        println!(
            "{ranks} ranks, {PRODUCTS} products of {ROWS} rows: norm {norm:.3e}, the bits are right"
        );
    }
    Ok(())
}
