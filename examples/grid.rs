//! The ranks form a grid. Each row and each column is a team, with a window and an all-reduce of its own: a step passes
//! a number round the ring of the row and that of the column, and adds up both.
//!
//! Run it with `cargo run --example grid`, or on 6 ranks: `cargo run -p tidegate-cli -- run -n 6
//! target/debug/examples/grid`.

use tidegate::host::prelude::*;

/// What a rank has in one of its two teams. Both teams have windows and collectives of the same names.
#[derive(Carry)]
struct Line<'s> {
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    to_right: Out<u64>,
    sum: AllReduce<'s, u64>,
    /// The number that goes round, and the sum over the line.
    here: Region<u64, On<'s>>,
    total: Region<u64, On<'s>>,
}

impl<'s> Line<'s> {
    fn open(team: &Team, s: &Stream<'s>) -> Result<Self> {
        let (left, right) = team.ring(); // numbers in the team
        let mut window = SlotWindow::new("ring");
        window.slot_from(left, 0, 1);
        let to_right = window.slot_to(right, 0);
        let (inbox, outbox) = window.open(&team.on(s))?;
        let me = team.world().rank() as u64;
        Ok(Line {
            inbox,
            outbox,
            to_right,
            sum: AllReduce::open(&team.on(s), "sum", 1, Op::Sum)?,
            here: Region::from_slice(team.world(), &[me])?.on(s)?,
            total: Region::zeroed(team.world(), 1)?.on(s)?,
        })
    }

    /// Passes the number on, and adds up those of all ranks of the line.
    fn step(mut self, s: &Stream<'s>) -> Result<Self> {
        let mut epoch = self.outbox.start();
        epoch.put(&self.here, self.to_right)?;
        let (inbox, outbox) = exchange(s, self.inbox, epoch)?;
        let take = |slots: Slots<'_, u64>, here: &mut [u64]| {
            slots.iter().for_each(|slot| here.copy_from_slice(slot));
        };
        s.launch(take, (inbox.view(), &mut self.here))?;
        self.sum.enqueue_into(s, &self.here, &mut self.total)?;
        Ok(Line {
            inbox,
            outbox,
            ..self
        })
    }
}

fn main() -> Result<()> {
    let world = World::init()?;
    let (rank, size) = (world.rank(), world.size());
    // The widest grid with no more columns than rows.
    let columns = (1..=size)
        .rev()
        .find(|n| size.is_multiple_of(*n) && n * n <= size);
    let columns = columns.unwrap_or(1);
    let (mine, above) = (rank % columns, rank / columns);
    let row = world
        .split("rows", above, mine)?
        .expect("every rank has a row");
    let column = world
        .split("columns", mine, above)?
        .expect("every rank has a column");

    stream!(let s = world.stream()?);
    let lines = (Line::open(&row, &s)?, Line::open(&column, &s)?);
    let (graph, lines) = s.capture(lines, |s, (row, column)| {
        Ok((row.step(s)?, column.step(s)?))
    })?;
    graph.verify(&s)?.proof()?;
    let (in_row, in_column) = graph.replay(&s, lines, row.size() * column.size())?;

    for (line, team) in [(in_row, &row), (in_column, &column)] {
        let expected: usize = team.ranks().iter().sum();
        assert_eq!(line.total.into_host(&s)?[0], expected as u64);
        // After as many steps as there are ranks, each has its own number again.
        assert_eq!(line.here.into_host(&s)?[0], rank as u64);
    }
    println!(
        "rank {rank}: {} columns, row {above}, column {mine}: all sums are right",
        columns
    );
    Ok(())
}
