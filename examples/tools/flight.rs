//! A tool that anybody could write: a flight recorder. It keeps the last thousand events of each rank, and writes them to
//! a file when a stream fails, a window is revoked, or another rank ends.
//!
//! The program here makes that happen. Its last rank drops a token in the middle of an epoch, so the others wait in vain.
//!
//! Run it with `cargo run -p tidegate-cli -- run -n 4 target/debug/examples/flight`.

use std::collections::VecDeque;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tidegate::WorldOptions;
use tidegate::host::prelude::*;
use tidegate::observe::{Event, Known, Observer};

/// How many events are kept.
const LAST: usize = 1000;

#[derive(Default)]
struct Flight {
    folder: PathBuf,
    kept: Mutex<(Known, VecDeque<Event>)>,
}

impl Observer for Flight {
    fn event(&self, event: &Event) {
        let (known, last) = &mut *self.kept.lock().unwrap();
        known.learn(event);
        if last.len() == LAST {
            last.pop_front();
        }
        last.push_back(event.clone()); // text is made only when it is needed
        if matches!(
            event,
            Event::Failed { .. } | Event::Revoked { .. } | Event::Gone { .. }
        ) {
            let rank = known.joined().map_or(0, |joined| joined.rank);
            let mut text = String::new();
            for event in last {
                let seconds = event.at().map(|at| format!("{:.6}", at as f64 / 1e9));
                let line = known.line(event);
                text += &format!("{:>16}  {line}\n", seconds.unwrap_or_default());
            }
            // An observer has nobody to return an error to.
            if let Err(error) = fs::write(self.folder.join(format!("flight-{rank}.txt")), text) {
                eprintln!("rank {rank}: {error}");
            }
        }
    }
}

/// Epochs with both neighbours. In the last one, the culprit drops its token.
fn program(world: &World, culprit: usize) -> Result<()> {
    let (left, right) = world.ring();
    stream!(let s = world.stream()?);
    let mut window = SlotWindow::<u64>::new("halo");
    window.slot_from(left, 0, 8);
    let to = window.slot_to(right, 0);
    let (mut inbox, mut outbox) = window.open(&s)?;
    let src = Region::zeroed(world, 8)?.on(&s)?;
    for step in 0..10 {
        let exposed = inbox.post(&s)?;
        let mut epoch = outbox.start();
        epoch.put(&src, to)?;
        if step == 9 && world.rank() == culprit {
            drop(epoch); // a bug of this program
            return s.synchronize();
        }
        outbox = epoch.complete(&s)?;
        inbox = exposed.wait(&s)?;
    }
    s.synchronize()
}

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("flight-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(Error::other)?;
    let flight = Arc::new(Flight {
        folder: folder.clone(),
        ..Flight::default()
    });
    let world = World::init_with(WorldOptions::new().observer(flight))?;
    let (rank, culprit) = (world.rank(), world.size() - 1);
    // All ranks of a ring wait for the culprit, directly or through others. A rank may have heard of it before.
    let failed =
        program(&world, culprit).map_or_else(|error| error.to_string(), |()| String::new());
    drop(world);

    let file = folder.join(format!("flight-{rank}.txt"));
    let text = fs::read_to_string(file).map_err(Error::other)?;
    let named = format!("rank {culprit}");
    let lines = text.lines().filter(|line| line.contains("revoked"));
    let said: Vec<_> = lines.filter(|line| line.contains(&named)).collect();
    assert!(!said.is_empty(), "{failed}\n{text}");
    println!("rank {rank}: {}", said[0].trim_start());
    fs::remove_dir_all(folder).map_err(Error::other)
}
