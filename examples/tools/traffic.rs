//! A tool that anybody could write: how many bytes go from which rank to which, by which window.
//!
//! It is an observer. A program adds it, as `main` does here, and the observer prints its table in the end. Or the program
//! runs with `TIDEGATE_TRACE=FOLDER`, and the tool reads the files:
//!
//! ```text
//! cargo run -p tidegate-cli -- run -n 4 target/debug/examples/traffic
//! TIDEGATE_TRACE=/tmp/events cargo run -p tidegate-cli -- run -n 4 target/debug/examples/traffic
//! target/debug/examples/traffic /tmp/events
//! ```

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use tidegate::WorldOptions;
use tidegate::host::prelude::*;
use tidegate::observe::{self, Event, Known, Observer};

/// From which rank, to which, by which window: how many epochs, and how many bytes.
type Table = BTreeMap<(u32, u32, Arc<str>), (u64, u64)>;

/// The traffic of one rank.
#[derive(Default)]
struct Traffic(Mutex<(Known, Table)>);

impl Observer for Traffic {
    fn event(&self, event: &Event) {
        let (known, table) = &mut *self.0.lock().unwrap();
        known.learn(event);
        // A leg ends when a stream has carried out a part of a batch: here, the puts to one rank.
        if let Event::Leg { leg, .. } = event
            && let Some(part) = known.part(leg)
            && let Some(to) = part.completes()
        {
            let from = known.joined().expect("it is the first event").rank;
            let window = to.window.and_then(|window| known.window(window));
            let key = (from, to.peer, window.cloned().unwrap_or_default());
            let (epochs, bytes) = table.entry(key).or_default();
            *epochs += 1;
            *bytes += part.bytes;
        }
    }
}

impl Traffic {
    fn table(&self) -> Table {
        self.0.lock().unwrap().1.clone()
    }
}

fn print(table: &Table) {
    println!("from    to  epochs       bytes  window");
    for ((from, to, window), (epochs, bytes)) in table {
        println!("{from:>4}  {to:>4}  {epochs:>6}  {bytes:>10}  {window}");
    }
}

/// Reads the files of all ranks.
fn read(folder: &Path) -> Result<Table> {
    let mut table = Table::new();
    for file in std::fs::read_dir(folder).map_err(Error::other)? {
        let path = file.map_err(Error::other)?.path();
        if path.extension().is_some_and(|kind| kind == "tidegate") {
            let traffic = Traffic::default();
            for event in observe::read(&path).map_err(Error::other)? {
                traffic.event(&event);
            }
            table.extend(traffic.table());
        }
    }
    Ok(table)
}

const STEPS: usize = 10;

/// How many elements a rank puts to its right neighbour.
fn elements(rank: usize) -> usize {
    100 * (rank + 1)
}

/// A program to look at: each rank puts to its right neighbour.
fn program(world: &World) -> Result<()> {
    let (left, right) = world.ring();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u64>::new("ring");
    window.slot_from(left, 0, elements(left));
    let to = window.slot_to(right, 0);
    let (inbox, outbox) = window.open(&s)?;
    let src = Region::zeroed(world, elements(world.rank()))?.on(&s)?;
    // Replays count, too: streams stamp what they do, whoever asked for it.
    let (graph, lent) = s.capture((inbox, outbox, src), |s, (inbox, outbox, src)| {
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        let (inbox, outbox) = exchange(s, inbox, epoch)?;
        Ok((inbox, outbox, src))
    })?;
    drop(graph.replay(&s, lent, STEPS)?);
    s.synchronize()
}

fn main() -> Result<()> {
    if let Some(folder) = std::env::args().nth(1) {
        print(&read(folder.as_ref())?);
        return Ok(());
    }
    let traffic = Arc::new(Traffic::default());
    let world = World::init_with(WorldOptions::new().observer(traffic.clone()))?;
    let (rank, (_, right)) = (world.rank(), world.ring());
    program(&world)?;
    drop(world); // the observer gets the last events
    let table = traffic.table();
    print(&table);
    let key = (rank as u32, right as u32, "ring".into());
    let bytes = STEPS * elements(rank) * size_of::<u64>();
    assert_eq!(table, Table::from([(key, (STEPS as u64, bytes as u64))]));
    Ok(())
}
