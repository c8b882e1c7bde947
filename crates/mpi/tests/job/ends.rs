//! Ends of jobs, in good order and after failures.

use std::path::Path;
use std::time::{Duration, Instant};

use mpi::traits::*;
use tidegate::error::Cause;
use tidegate::host::prelude::*;
use tidegate_boot::TcpControl;
use tidegate_mpi::windows::{Form, JoinError, Options, join};

use crate::faulty;
use crate::rank::{Job, MODES, Mode};

/// A late put, to a window that the target has dropped, and its signal, touch nothing of a later window. The exposure
/// was given in advance.
pub(crate) fn late_put(world: World) {
    const LEN: usize = 1000;
    stream!(let s = world.stream().unwrap());
    for round in 0..10 {
        let mut window = SlotWindow::<u64>::new("old");
        let mut held = None;
        if world.rank() == 1 {
            window.slot_from(0, 0, LEN);
            drop(window.open(&s).unwrap());
            s.synchronize().unwrap();
        } else {
            let to = window.slot_to(1, 0);
            held = Some((window.open(&s).unwrap(), to));
        }
        // Rank 1 counts its old memory as free.
        let mut window = RangeWindow::<u64>::new("new", LEN);
        window.range_to(1 - world.rank(), 0..LEN);
        let (mut inbox, _outbox) = window.open(&s).unwrap();
        if let Some(((_inbox, outbox), to)) = held.take() {
            let src = Region::from_slice(&world, &[7; LEN]).unwrap().on(&s);
            let src = src.unwrap();
            let mut epoch = outbox.start();
            epoch.put(&src, to).unwrap();
            drop(epoch.complete(&s).unwrap());
            s.synchronize().unwrap();
        }
        world.all_gather("put", Vec::new()).unwrap();
        let memory = inbox.host_mut(&s).unwrap();
        assert!(memory.iter().all(|x| *x == 0), "round {round}: {memory:?}");
        world.all_gather("looked", Vec::new()).unwrap();
    }
}

/// A rank puts to a target that computes and does not wait. The agent drives MPI where MPI needs that. The target
/// computes until the put is done, which it learns through a file, so it calls nothing that could drive MPI.
pub(crate) fn target_computes(world: World) {
    const LONG: Duration = Duration::from_secs(300);
    stream!(let s = world.inline_stream().unwrap());
    let mut window = SlotWindow::<u64>::new("busy").buffers(Buffers::Double);
    let peer = 1 - world.rank();
    let from = window.slot_from(peer, 0, 1000);
    let to = window.slot_to(peer, 0);
    let (inbox, mut outbox) = window.open(&s).unwrap();
    let src = Region::from_slice(&world, &[3u64; 1000])
        .unwrap()
        .on(&s)
        .unwrap();
    let name = format!("tidegate-computes-{}", std::process::id());
    let names = world.all_gather("begin", name.into_bytes()).unwrap();
    let is_through = std::env::temp_dir().join(String::from_utf8_lossy(&names[0]).as_ref());
    if world.rank() == 0 {
        // The first exposure was given when the window was opened.
        let mut epoch = outbox.start();
        epoch.put(&src, to).unwrap();
        outbox = epoch.complete(&s).unwrap();
        s.synchronize().unwrap();
        std::fs::write(&is_through, "").unwrap();
    } else {
        let begun = Instant::now();
        while !is_through.exists() {
            assert!(
                begun.elapsed() < LONG,
                "a put waits for a rank that computes"
            );
            (0..10_000).for_each(|_| std::hint::spin_loop());
        }
    }
    let mut inbox = inbox;
    if world.rank() == 1 {
        let exposed = inbox.post(&s).unwrap();
        inbox = exposed.wait(&s).unwrap();
        assert_eq!(inbox.read(&s).unwrap().slot(from)[999], 3);
    }
    world.all_gather("end", Vec::new()).unwrap();
    if world.rank() == 0 {
        std::fs::remove_file(&is_through).unwrap();
    }
    drop((inbox, outbox));
}

/// An epoch that is dropped in its middle ends the waits of all others, with its cause.
pub(crate) fn dropped(world: World) {
    let (left, right) = world.ring();
    stream!(let s = world.stream().unwrap());
    let mut window = SlotWindow::<u64>::new("dropped");
    window.slot_from(left, 0, 4);
    window.slot_to(right, 0);
    let (inbox, outbox) = window.open(&s).unwrap();
    if world.rank() == 0 {
        drop(inbox.post(&s).unwrap());
        world.all_gather("over", Vec::new()).unwrap();
        return;
    }
    let waited = failing_wait(inbox, &s);
    let cause = match &waited {
        Error::Wait(wait) => &wait.cause,
        Error::Revoked { cause, .. } => cause,
        other => panic!("{other}"),
    };
    assert!(matches!(cause, Cause::Dropped { rank: 0, .. }), "{waited}");
    drop(outbox);
    world.all_gather("over", Vec::new()).unwrap();
}

/// A compare-and-swap is refused if the MPI would crash in it, and nothing is lost. Otherwise it works.
pub(crate) fn swap(job: &mut Job) {
    let mode = Mode::Apart(Form::Words);
    let world = job.world(mode);
    stream!(let s = world.stream().unwrap());
    let mut window = AtomicWindow::<i64>::new("swap", 1);
    let at = window.target(0);
    let (inbox, outbox) = window.open(&s).unwrap();
    let region = |value| {
        Region::from_slice(&world, &[value])
            .unwrap()
            .on(&s)
            .unwrap()
    };
    let (compare, desired, mut was) = (region(0), region(5), region(9));
    let exposed = inbox.post(&s).unwrap();
    let mut epoch = outbox.start();
    let swaps = job.swaps(mode) && world.rank() == 1;
    if world.rank() == 1 {
        match epoch.compare_and_swap(&compare, &desired, &mut was, at) {
            Ok(()) => assert!(swaps),
            Err(error) => {
                let text = error.to_string();
                assert!(!swaps && text.contains("MPI_Compare_and_swap"), "{text}");
            }
        }
    }
    drop(epoch.complete(&s).unwrap());
    drop(exposed.wait(&s).unwrap());
    s.synchronize().unwrap();
    let found = if swaps { 0 } else { 9 };
    assert_eq!(was.into_host(&s).unwrap()[..], [found]);
}

/// Reductions that an MPI computes wrongly are refused, and nothing is lost; the others are right.
pub(crate) fn reductions(job: &mut Job) {
    const HIGH: u32 = 1 << 31;
    for (mode, may_refuse) in [(Mode::Near, false), (Mode::Apart(Form::Words), true)] {
        let world = job.world(mode);
        let rank = world.rank();
        stream!(let s = world.stream().unwrap());
        let mut window = AtomicWindow::<u32>::new("reductions", 2);
        let target = window.target(0);
        let (mut inbox, outbox) = window.open(&s).unwrap();
        if rank == 0 {
            inbox.host_mut(&s).unwrap().fill(HIGH);
        }
        world.all_gather("filled", Vec::new()).unwrap();
        let one = Region::from_slice(&world, &[1]).unwrap().on(&s).unwrap();
        let exposed = inbox.post(&s).unwrap();
        let mut epoch = outbox.start();
        let mut refused = [false; 2];
        if rank == 1 {
            // If these were taken as signed numbers, the other one would be left.
            for (first, op) in [Op::Max, Op::Min].into_iter().enumerate() {
                if let Err(error) = epoch.accumulate(&one, target.at(first), op) {
                    let text = error.to_string();
                    assert!(may_refuse && text.contains("wrongly"), "{text}");
                    refused[first] = true;
                }
            }
        }
        drop(epoch.complete(&s).unwrap());
        let mut inbox = exposed.wait(&s).unwrap();
        let said = world.all_gather("refused", vec![refused[0].into(), refused[1].into()]);
        if rank == 0 {
            let refused = &said.unwrap()[1];
            let min = if refused[1] == 1 { HIGH } else { 1 };
            assert_eq!(inbox.host_mut(&s).unwrap()[..], [HIGH, min]);
        }
    }
}

/// Posts and waits. Returns the error of whichever call fails.
fn failing_wait<'s>(inbox: Inbox<'s, u64>, s: &Stream<'s>) -> Error {
    let exposed = match inbox.post(s) {
        Ok(exposed) => exposed,
        Err(error) => return error,
    };
    match exposed.wait(s) {
        Ok(_inbox) => s.synchronize().unwrap_err(),
        Err(error) => error,
    }
}

/// If MPI refuses a call of one rank, the epochs of all ranks end. All learn which rank it was. Memory that MPI may
/// still send is kept, and later worlds work.
pub(crate) fn mpi_fails(job: &mut Job) {
    // Shorter data would be sent in messages.
    const LEN: usize = 100_000;
    // It is so large that the allocator would return it to the system.
    const SOURCE: usize = 1 << 23;
    let calls = [
        (&faulty::PUTS, "MPI_Put"),
        (&faulty::FLUSHES, "MPI_Win_flush"),
    ];
    for (form, (good, call)) in [Form::Words, Form::Messages].into_iter().zip(calls) {
        let world = job.world(Mode::Apart(form));
        let (rank, size) = (world.rank(), world.size());
        let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
        stream!(let s = world.stream().unwrap());
        let mut window = SlotWindow::<u64>::new("faulty");
        window.slot_from(left, 0, LEN);
        let to = window.slot_to(right, 0);
        let (inbox, outbox) = window.open(&s).unwrap();
        let src = Region::from_slice(&world, &[7; SOURCE]).unwrap();
        let place = src.as_ptr().addr() + SOURCE * 4;
        let src = src.on(&s).unwrap();
        world.all_gather("begin", Vec::new()).unwrap();
        if rank == 1 {
            good.only(10);
        }
        let begun = Instant::now();
        let mut epochs = 0;
        let mut halves = Some((inbox, outbox));
        let error = loop {
            let (inbox, outbox) = halves.take().unwrap();
            let mut epoch = outbox.start();
            epoch.put(src.slice(0..LEN).unwrap(), to).unwrap();
            match exchange(&s, inbox, epoch) {
                Ok(both) => halves = Some(both),
                Err(error) => break error,
            }
            if let Err(error) = s.synchronize() {
                break error;
            }
            epochs += 1;
            assert!(epochs < 1000, "nothing has failed");
        };
        good.mend();
        let (text, took) = (error.to_string(), begun.elapsed());
        assert!(text.contains(call), "{text}");
        assert!(rank == 1 || text.contains("rank 1"), "{text}");
        assert!(took < Duration::from_secs(300), "it took {took:?}");
        drop((halves, src));
        assert!(is_mapped(place), "MPI may still read it");
        job.comm.barrier();
    }
    crate::cases::ring::run(job.world(Mode::Near), Buffers::Double, 10).unwrap();
}

/// Whether memory is mapped at this address.
fn is_mapped(at: usize) -> bool {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().any(|line| {
        let (from, rest) = line.split_once('-').unwrap();
        let (to, _) = rest.split_once(' ').unwrap();
        let number = |text| usize::from_str_radix(text, 16).unwrap();
        (number(from)..number(to)).contains(&at)
    })
}

/// `MPI_Finalize` while windows exist and a stream waits: the wait ends, and later work is refused.
pub(crate) fn finalized(job: &mut Job) {
    for mode in MODES {
        // It is closed in good order; its windows of MPI are freed at the end.
        let world = job.world(mode);
        stream!(let s = world.stream().unwrap());
        drop(SlotWindow::<u64>::new("before").open(&s).unwrap());
    }
    let version = mpi::environment::library_version().unwrap();
    let modes = if version.contains("MPICH") {
        &MODES[..1]
    } else {
        &MODES[..]
    };
    let worlds: Vec<_> = modes.iter().map(|mode| job.world(*mode)).collect();
    // MPICH 4.0 may abort if MPI_Finalize finds a thread inside of it.
    let (one, other) = if worlds.len() == 1 { (0, 0) } else { (1, 2) };
    let worlds = [0, one, other].map(|number| &worlds[number]);
    stream!(let near = worlds[0].stream().unwrap());
    stream!(let words = worlds[1].stream().unwrap());
    stream!(let messages = worlds[2].stream().unwrap());
    stream!(let near_aside = worlds[0].stream().unwrap());
    stream!(let words_aside = worlds[1].stream().unwrap());
    stream!(let messages_aside = worlds[2].stream().unwrap());
    let waits = (
        wait_in_vain("near", &near, &near_aside),
        wait_in_vain("words", &words, &words_aside),
        wait_in_vain("messages", &messages, &messages_aside),
    );
    worlds[0].all_gather("finalize", Vec::new()).unwrap();
    job.end();
    for error in [ends(&near), ends(&words), ends(&messages)] {
        let text = error.to_string();
        assert!(text.contains("MPI_Finalize was called"), "{text}");
    }
    drop(waits);
    let later = [opens(&near), opens(&words), opens(&messages)];
    assert_eq!(later, [false; 3]);
}

fn ends(s: &Stream<'_>) -> Error {
    s.synchronize().unwrap_err()
}

fn opens(s: &Stream<'_>) -> bool {
    SlotWindow::<u64>::new("later").open(s).is_ok()
}

/// Waits on a stream for an epoch that no rank completes. The origin is this rank, whose half is on another stream,
/// where the wait is not refused.
fn wait_in_vain<'s, 't>(
    name: &str,
    s: &Stream<'s>,
    aside: &Stream<'t>,
) -> (Inbox<'s, u64>, Outbox<'t, u64>) {
    let (rank, size) = (s.world().rank(), s.world().size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    let mut window = SlotWindow::<u64>::new(name).buffers(Buffers::Single);
    window.slot_from(left, 0, 4);
    window.slot_to(right, 0);
    let (inbox, outbox) = window.open(s).unwrap();
    let outbox = s.hand_off(outbox, aside).unwrap();
    let exposed = inbox.post(s).unwrap();
    (exposed.wait(s).unwrap(), outbox)
}

/// MPI was initialised for fewer threads than call it.
pub(crate) fn too_few_threads(job: &mut Job) {
    let error = join(&job.comm, job.control(false), &Options::new())
        .err()
        .expect("it is refused");
    assert!(matches!(error, JoinError::Threads { .. }), "{error}");
    assert!(error.to_string().contains("MPI_THREAD_MULTIPLE"));
}

/// Mismatches are reported when the ranks meet.
pub(crate) fn refused(job: &mut Job) {
    let error = join(
        &job.comm,
        std::sync::Arc::new(TcpControl::solo()),
        &Options::new(),
    );
    let rank = job.comm.rank() as usize;
    match error.err().expect("it is refused") {
        JoinError::Mismatch { comm, control } => {
            assert_eq!((comm, control), ((rank, 2), (0, 1)));
        }
        other => panic!("{other}"),
    }
    // As many bytes as without MPI.
    let world = job.world(Mode::Near);
    world.all_gather("large", vec![1; 1 << 20]).unwrap();
    assert!(
        world
            .all_gather("too large", vec![1; (1 << 20) + 1])
            .is_err()
    );
}

/// If a rank is killed, all others name it, and their waits end.
pub(crate) fn killed(job: &mut Job) {
    killed_in(job, Mode::Near);
}

/// Like `killed`, if ranks reach each other by calls of MPI. It uses messages, since Open MPI would wait for the dead
/// rank in an accumulate.
pub(crate) fn killed_apart(job: &mut Job) {
    killed_in(job, Mode::Apart(Form::Messages));
}

fn killed_in(job: &mut Job, mode: Mode) {
    let world = job.world(mode);
    let (rank, size) = (world.rank(), world.size());
    let (left, right) = ((rank + size - 1) % size, (rank + 1) % size);
    stream!(let s = world.stream().unwrap());
    let mut window = SlotWindow::<u64>::new("killed");
    window.slot_from(left, 0, 4);
    window.slot_to(right, 0);
    let (inbox, outbox) = window.open(&s).unwrap();
    // Another job may have had this process number.
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    let name = format!("tidegate-killed-{}-{now}", std::process::id());
    let names = world.all_gather("begin", name.into_bytes()).unwrap();
    let rolls = std::env::temp_dir().join(String::from_utf8_lossy(&names[0]).as_ref());
    if rank == size - 1 {
        // The rank does not die by a signal, which ends the whole job with some MPIs, nor in a way that MPI notices.
        // SAFETY: the process ends here, and must not clean up.
        unsafe { exit_now() };
    }
    let begun = Instant::now();
    let error = failing_wait(inbox, &s);
    let (text, took) = (error.to_string(), begun.elapsed());
    assert!(text.contains(&format!("rank {}", size - 1)), "{text}");
    assert!(took < Duration::from_secs(300), "it took {took:?}");
    job.say("named");
    drop(outbox);
    // The others must learn about the dead rank before this one ends. Each leaves a file when it has, and then another
    // for rank 0 when it has seen that all have. There is no other way, since this world has failed, and so has MPI.
    leaves_word("named", &rolls, rank);
    await_all("named", &rolls, size - 1);
    leaves_word("gone", &rolls, rank);
    if rank == 0 {
        await_all("gone", &rolls, size - 1);
        std::fs::remove_dir_all(&rolls).unwrap();
    }
    // MPI's own end would wait for the dead rank.
    // SAFETY: as above.
    unsafe { exit_now() };
}

/// Leaves a file for ranks that cannot be reached in another way.
fn leaves_word(what: &str, rolls: &Path, rank: usize) {
    std::fs::create_dir_all(rolls).unwrap();
    std::fs::write(rolls.join(format!("{what} {rank}")), "").unwrap();
}

/// Waits until the first `ranks` ranks have left theirs.
fn await_all(what: &str, rolls: &Path, ranks: usize) {
    let begun = Instant::now();
    for rank in 0..ranks {
        while !rolls.join(format!("{what} {rank}")).exists() {
            assert!(
                begun.elapsed() < Duration::from_secs(300),
                "{rank}: {what}?"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// # Safety
///
/// Nothing that must not be interrupted runs any more.
unsafe fn exit_now() -> ! {
    unsafe extern "C" {
        fn _exit(code: std::ffi::c_int) -> !;
    }
    // SAFETY: the caller's promise.
    unsafe { _exit(0) }
}
