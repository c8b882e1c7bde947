//! A one-way put with its epochs: raw MPI (post, start, complete, wait on `MPI_Win_allocate` and on `MPI_Win_create`)
//! against windows over MPI, in one process, in turn. Far ranks are compared with `MPI_Win_create`, which uses the same
//! part of an MPI as data between nodes.
//!
//! `mpirun -n 2 pingpong [rounds]`. Reports medians over runs of half a round trip, in us, and the ratio to raw MPI.

use std::error::Error;
use std::time::Instant;

use mpi::ffi;
use mpi::topology::SimpleCommunicator;
use mpi::traits::*;
use tidegate_core::window::{Buffers, BySlot, Out, SlotWindow};
use tidegate_core::{stream, window};
use tidegate_host::Host;
use tidegate_mpi::windows::{self, Form, Options};

type World = tidegate_core::World<Host>;
type Stream<'s> = tidegate_core::Stream<'s, Host>;
type Source<'s> = tidegate_core::Region<u8, tidegate_core::On<'s, Host>>;
type Inbox<'s> = window::Inbox<'s, u8, Host, BySlot>;
type Outbox<'s> = window::Outbox<'s, u8, Host, BySlot>;

const RUNS: usize = 101;
/// Methods before this number are compared with the first one, and the others with this one.
const FAR: usize = 3;

/// Raw MPI.
struct Raw {
    window: ffi::MPI_Win,
    peer: ffi::MPI_Group,
    to: i32,
    src: Vec<u8>,
    _memory: Vec<u8>,
}

impl Raw {
    fn new(comm: &SimpleCommunicator, bytes: usize, allocate: bool) -> Self {
        let to = 1 - comm.rank();
        let mut base: *mut u8 = std::ptr::null_mut();
        // SAFETY: these are constants of the binding.
        let (mut window, mut all, mut peer) = unsafe {
            (
                ffi::RSMPI_WIN_NULL,
                ffi::RSMPI_GROUP_NULL,
                ffi::RSMPI_GROUP_NULL,
            )
        };
        let (size, comm) = (bytes as ffi::MPI_Aint, comm.as_raw());
        let mut memory = vec![0u8; if allocate { 0 } else { bytes }];
        // SAFETY: MPI runs, both ranks make these calls, and the arguments live meanwhile; the memory is freed after
        // the window.
        unsafe {
            let (info, at) = (ffi::RSMPI_INFO_NULL, &raw mut window);
            if allocate {
                ffi::MPI_Win_allocate(size, 1, info, comm, (&raw mut base).cast(), at);
            } else {
                ffi::MPI_Win_create(memory.as_mut_ptr().cast(), size, 1, info, comm, at);
            }
            ffi::MPI_Win_get_group(window, &raw mut all);
            ffi::MPI_Group_incl(all, 1, &raw const to, &raw mut peer);
        }
        Raw {
            window,
            peer,
            to,
            src: vec![1; bytes],
            _memory: memory,
        }
    }

    fn put(&self) {
        let n = self.src.len() as i32;
        // SAFETY: the window is live, the peer exposes as many bytes, and the source lives until the epoch is complete.
        unsafe {
            ffi::MPI_Win_start(self.peer, 0, self.window);
            ffi::MPI_Put(
                self.src.as_ptr().cast(),
                n,
                ffi::RSMPI_UINT8_T,
                self.to,
                0,
                n,
                ffi::RSMPI_UINT8_T,
                self.window,
            );
            ffi::MPI_Win_complete(self.window);
        }
    }

    fn get(&self) {
        // SAFETY: the window is live.
        unsafe {
            ffi::MPI_Win_post(self.peer, 0, self.window);
            ffi::MPI_Win_wait(self.window);
        }
    }

    fn run(&self, rounds: usize) {
        for _ in 0..rounds {
            if self.to == 1 {
                self.put();
                self.get();
            } else {
                self.get();
                self.put();
            }
        }
    }
}

/// A window over MPI.
struct Ours<'s> {
    src: Source<'s>,
    inbox: Option<Inbox<'s>>,
    outbox: Option<Outbox<'s>>,
    to: Out<u8>,
}

impl<'s> Ours<'s> {
    fn new(s: &Stream<'s>, world: &World, bytes: usize) -> tidegate_core::Result<Self> {
        let peer = 1 - world.rank();
        let mut window = SlotWindow::new("pingpong").buffers(Buffers::Single);
        window.slot_from(peer, 0, bytes);
        let to = window.slot_to(peer, 0);
        let (inbox, outbox) = window.open(s)?;
        Ok(Ours {
            to,
            src: tidegate_core::Region::from_slice(world, &vec![1u8; bytes])?.on(s)?,
            inbox: Some(inbox),
            outbox: Some(outbox),
        })
    }

    fn put(&mut self, s: &Stream<'s>) -> tidegate_core::Result<()> {
        let mut epoch = self.outbox.take().expect("between epochs").start();
        epoch.put(&self.src, self.to)?;
        self.outbox = Some(epoch.complete(s)?);
        Ok(())
    }

    fn get(&mut self, s: &Stream<'s>) -> tidegate_core::Result<()> {
        let exposed = self.inbox.take().expect("between epochs").post(s)?;
        self.inbox = Some(exposed.wait(s)?);
        Ok(())
    }

    fn run(&mut self, s: &Stream<'s>, first: bool, rounds: usize) -> tidegate_core::Result<()> {
        for _ in 0..rounds {
            if first {
                self.put(s)?;
                self.get(s)?;
            } else {
                self.get(s)?;
                self.put(s)?;
            }
        }
        s.synchronize()
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let rounds: usize = std::env::args().nth(1).map_or(Ok(300), |n| n.parse())?;
    let (universe, _) =
        mpi::initialize_with_threading(mpi::Threading::Multiple).ok_or("MPI does not start")?;
    let comm = universe.world().duplicate();
    let first = comm.rank() == 0;
    let world = |options: &Options| windows::world(&comm, options);
    let near = world(&Options::new())?;
    let far = |form| world(&Options::new().not_shared().form(form));
    let (words, messages) = (far(Form::Words)?, far(Form::Messages)?);
    stream!(let a = near.inline_stream()?);
    stream!(let b = near.stream()?);
    stream!(let c = words.inline_stream()?);
    stream!(let d = messages.inline_stream()?);
    stream!(let e = messages.stream()?);
    if first {
        let version = mpi::environment::library_version()?;
        println!("{}", version.lines().next().unwrap_or(""));
        println!(
            "one way, us: raw, MPI_Win_allocate | near, inline | near, a stream || raw, MPI_Win_create | far, words, inline | far, messages, inline | far, messages, a stream"
        );
    }
    for bytes in [8, 1024, 65536, 1 << 20] {
        let (allocated, created) = (Raw::new(&comm, bytes, true), Raw::new(&comm, bytes, false));
        let mut by_near = Ours::new(&a, &near, bytes)?;
        let mut by_near_stream = Ours::new(&b, &near, bytes)?;
        let mut by_words = Ours::new(&c, &words, bytes)?;
        let mut by_messages = Ours::new(&d, &messages, bytes)?;
        let mut by_messages_stream = Ours::new(&e, &messages, bytes)?;
        let rounds = (rounds * 65536 / (65536 + 8 * bytes)).max(5);
        let mut times = vec![Vec::new(); 7];
        for run in 0..=RUNS {
            for (way, times) in times.iter_mut().enumerate() {
                comm.barrier();
                let begun = Instant::now();
                match way {
                    0 => allocated.run(rounds),
                    1 => by_near.run(&a, first, rounds)?,
                    2 => by_near_stream.run(&b, first, rounds)?,
                    FAR => created.run(rounds),
                    4 => by_words.run(&c, first, rounds)?,
                    5 => by_messages.run(&d, first, rounds)?,
                    _ => by_messages_stream.run(&e, first, rounds)?,
                }
                let took = begun.elapsed().as_secs_f64() * 1e6 / rounds as f64 / 2.0;
                // The first run warms up.
                if run > 0 {
                    times.push(took);
                }
            }
        }
        if first {
            let median = |times: &mut Vec<f64>| {
                times.sort_by(f64::total_cmp);
                times[times.len() / 2]
            };
            let medians: Vec<_> = times.iter_mut().map(median).collect();
            let tenths: Vec<_> = times.iter().map(|times| times[times.len() / 10]).collect();
            for (what, all) in [("median", medians), ("lowest tenth", tenths)] {
                print!("{bytes:>8} B  {what:>12}");
                for group in [&all[..FAR], &all[FAR..]] {
                    print!("  | {:8.3}", group[0]);
                    for ours in &group[1..] {
                        print!("  {ours:8.3} ({:.2})", ours / group[0]);
                    }
                }
                println!();
            }
        }
        for mut raw in [allocated, created] {
            // SAFETY: both ranks make this call, and nobody uses the window any more.
            unsafe { ffi::MPI_Win_free(&raw mut raw.window) };
        }
    }
    Ok(())
}
