//! The rules that keep waits from blocking a job. Each has a *control*, which is the same program without the rule.
//!
//! # Model
//!
//! A control hangs, or is very slow. So it runs in a child, which is killed, by its number, when it has made no
//! progress for a while after it printed that it waits. If a control does *not* hang, the test fails, because then the
//! rule is not what helps. The program that keeps the rule also runs in a child, and must end.
//!
//! The waiting rank usually has a window with itself: the inbox waits on one stream, and the same thread completes on
//! another, later.

use std::cell::{Cell, RefCell};
use std::io::{Read as _, Write as _};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use cudarc::driver::{
    CudaContext, CudaModule, DevicePtr as _, LaunchConfig, PushKernelArg as _, result,
};
use cudarc::nvrtc::Ptx;
use tidegate::cuda::Cuda;
use tidegate::cuda::QUEUES;
use tidegate::cuda::gpu::{COPY_ENGINE_FROM, GATES, WAITING_STREAMS};
use tidegate::cuda::prelude::*;
use tidegate::kernel::Module;
use tidegate_cli::{Job, Output};

use crate::gpu::common::{Kernels, O, S, W, ranks};

pub(super) const ROLE: &str = "TIDEGATE_GPU_RULE";
pub(super) const LOADING: &str = "CUDA_MODULE_LOADING";

/// How long a child may do nothing after it printed that it waits.
const PATIENCE: Duration = Duration::from_secs(8);
/// How long a child may take in all.
const DEADLINE: Duration = Duration::from_secs(60);

/// Prints a child's message at once.
pub(super) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{text}").and_then(|()| out.flush());
}

/// The end of a child.
pub(super) struct Ended {
    /// It ended by itself, with success.
    pub(super) well: bool,
    /// It had to be killed after it printed that it waits.
    pub(super) hung: bool,
    pub(super) text: String,
}

/// Runs a role in a child.
pub(super) fn child(role: &str, environment: &[(&str, &str)]) -> Ended {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "cuda::roles::a_rank", "--ignored", "--nocapture"])
        .arg("--quiet")
        .env(ROLE, role)
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let (mut from, text) = (
        child.stdout.take().unwrap(),
        Arc::new(Mutex::new(String::new())),
    );
    let into = text.clone();
    let reader = std::thread::spawn(move || {
        let mut some = [0; 512];
        while let Ok(count @ 1..) = from.read(&mut some) {
            into.lock()
                .unwrap()
                .push_str(&String::from_utf8_lossy(&some[..count]));
        }
    });
    let (begin, mut waits_since) = (Instant::now(), None);
    let (status, hung) = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break (Some(status), false);
        }
        if text.lock().unwrap().contains("waiting") {
            waits_since.get_or_insert_with(Instant::now);
        }
        let hung = waits_since.is_some_and(|since| since.elapsed() > PATIENCE);
        if hung || begin.elapsed() > DEADLINE {
            child.kill().unwrap();
            child.wait().unwrap();
            break (None, hung);
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    reader.join().unwrap();
    let text = text.lock().unwrap().clone();
    Ended {
        well: status.is_some_and(|status| status.success()),
        hung,
        text,
    }
}

pub(super) fn hangs(role: &str, environment: &[(&str, &str)]) {
    let Ended { well, hung, text } = child(role, environment);
    println!("{role} {environment:?}: hung: {hung}");
    assert!(
        hung,
        "`{role}` with {environment:?} breaks the rule and should hang, but {} it: the rule is not what helps here\n{text}",
        if well {
            "ends well without"
        } else {
            "fails otherwise than by"
        }
    );
}

pub(super) fn ends(role: &str, environment: &[(&str, &str)]) {
    let Ended { well, hung, text } = child(role, environment);
    println!("{role} {environment:?}: well: {well}");
    assert!(
        well && text.contains("went on"),
        "`{role}` with {environment:?} keeps to the rule and should end well (hung: {hung})\n{text}"
    );
}

pub(super) type Halves<'s> = (crate::gpu::common::I<'s, u64>, O<'s, u64>);

/// A window of a rank with itself.
pub(super) fn own_window<'s>(name: &str, s: &S<'s>) -> Result<Halves<'s>> {
    let mut window = SlotWindow::new(name);
    window.slot_from(0, 0, 8);
    window.slot_to(0, 0);
    window.open(s)
}

fn samples() -> Ptx {
    Ptx::from_src(tidegate_kernels::SAMPLES_PTX)
}

/// Does something while a stream waits for the next action of the same thread.
pub(super) fn behind_a_wait(world: &W, k: &Kernels, what: &str) {
    let context = CudaContext::new(world.device().ordinal()).unwrap();
    let (raw, lazy): (_, Arc<CudaModule>) = (
        context.new_stream().unwrap(),
        context.load_module(samples()).unwrap(),
    );
    let numbers = Region::<u64, _>::zeroed(world, 1000).unwrap();
    // SAFETY: the context is current; what is allocated is freed below, or by the end of the process.
    let memory = unsafe { result::malloc_sync(1 << 20) }.unwrap();
    stream!(let s = world.stream().unwrap());
    stream!(let t = world.stream().unwrap());
    let mut x = Region::<u64, _>::zeroed(world, 8).unwrap().on(&t).unwrap();
    let (inbox, outbox) = own_window("own", &s).unwrap();
    let outbox = s.hand_off(outbox, &t).unwrap();
    let inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
    // By now it is at its wait.
    std::thread::sleep(Duration::from_millis(200));
    assert!(!s.is_idle(), "the stream waits for this thread");
    say("waiting");
    match what {
        "load raw" => drop(context.load_module(samples()).unwrap()),
        "load" => {
            let error = Module::<Cuda>::load(world, tidegate_kernels::SAMPLES_PTX.as_bytes());
            let error = error.err().unwrap().to_string();
            assert!(error.contains("may be waiting"), "{error}");
        }
        "use raw" => {
            let busy = lazy.load_function("busy").unwrap();
            let (address, len, time) = (memory, 1u64, 1000u64);
            let mut builder = raw.launch_builder(&busy);
            builder.arg(&address).arg(&len).arg(&time);
            // SAFETY: those are the parameters of `busy`, and the memory has room for a number.
            unsafe { builder.launch(LaunchConfig::for_num_elems(32)) }.unwrap();
            raw.synchronize().unwrap();
        }
        "use" => t.launch(k.busy.threads(1, 32), (&mut x, 1000u64)).unwrap(),
        // SAFETY: nothing uses it.
        "free raw" => unsafe { result::free_sync(memory) }.unwrap(),
        _ => drop(numbers),
    }
    say("went on");
    let outbox = outbox.start().complete(&t).unwrap();
    s.synchronize().unwrap();
    t.synchronize().unwrap();
    drop((inbox, outbox));
}

/// Rule 18: behind a kernel that waits, loading code and freeing memory block, and the signal for the wait never comes.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn nothing_is_called_that_blocks_behind_a_wait() {
    let lazily = [(QUEUES, "32"), (LOADING, "LAZY")];
    let eagerly = [(QUEUES, "32"), (LOADING, "EAGER")];
    for (what, environment) in [("load", eagerly), ("use", lazily), ("free", eagerly)] {
        ends(what, &environment);
        hangs(&format!("{what} raw"), &environment);
    }
}

/// Registers of NICs are mapped and dropped behind a kernel that waits. Ending a registration there would block.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn registers_are_mapped_and_let_go_behind_a_wait() {
    let environment = [(QUEUES, "32"), (LOADING, "EAGER")];
    ends("register", &environment);
    hangs("unregister raw", &environment);
}

/// Many streams each wait, with a kernel behind the wait, for one stream that gets its work last.
pub(super) fn queues(lie: bool) {
    if lie {
        // The driver reads the variable when it starts, and uses that value.
        let context = CudaContext::new(0).unwrap();
        std::mem::forget(context);
        // SAFETY: no other thread of the process looks at the environment now: the harness waits for this one, and the
        // driver has started.
        unsafe { std::env::set_var(QUEUES, "32") };
    }
    ranks(1, |world, k| {
        stream!(let t = world.stream().unwrap());
        match waiting(&world, &k, &t, 10, &mut Vec::new(), &|| Ok(())) {
            Ok(()) => say("went on"),
            Err(error) => say(&format!("refused: {error}")),
        }
    });
}

/// Opens `left` windows on as many streams. When all are open, starts their waits, and then completes on `t`.
fn waiting<'t>(
    world: &W,
    k: &Kernels,
    t: &S<'t>,
    left: usize,
    outboxes: &mut Vec<O<'t, u64>>,
    start: &dyn Fn() -> Result<()>,
) -> Result<()> {
    if left == 0 {
        // This is printed first, since starting may be what hangs.
        say("waiting");
        start()?;
        for outbox in outboxes.drain(..) {
            let _ = outbox.start().complete(t)?;
        }
        return t.synchronize();
    }
    stream!(let s = world.stream()?);
    let (inbox, outbox) = own_window(&format!("own {left}"), &s)?;
    outboxes.push(s.hand_off(outbox, t)?);
    let inbox = Cell::new(Some(inbox));
    let x = RefCell::new(Region::<u64, _>::zeroed(world, 8)?.on(&s)?);
    let start_all = || {
        start()?;
        if let Some(before) = inbox.take() {
            inbox.set(Some(before.post(&s)?.wait(&s)?));
        }
        // This stops a queue, since it may not begin before the wait is over.
        s.launch(k.tick.threads(1, 32), (&mut *x.borrow_mut(),))
    };
    waiting(world, k, t, left - 1, outboxes, &start_all)?;
    s.synchronize()
}

/// Rule 19: work behind a wait in one hardware queue waits too, even if it is of another stream.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn streams_have_hardware_queues_of_their_own() {
    let few = [(QUEUES, "8"), (LOADING, "EAGER"), (WAITING_STREAMS, "24")];
    let many = [(QUEUES, "32"), (LOADING, "EAGER"), (WAITING_STREAMS, "24")];
    ends("queues", &many);
    // With the default number of queues, one stream too many is refused.
    let Ended { well, text, .. } = child("queues", &few);
    assert!(
        well && text.contains("refused: out of hardware queues"),
        "{text}"
    );
    hangs("queues, and a lie", &few);
}

/// A kernel that waits for a word, and one that writes it.
const SPIN: &str = "
.version 7.0
.target sm_80
.address_size 64
.visible .entry spin(.param .u64 word)
{
    .reg .u64 %at;
    .reg .u32 %value;
    .reg .pred %zero;
    ld.param.u64 %at, [word];
AGAIN:
    ld.volatile.global.u32 %value, [%at];
    setp.eq.u32 %zero, %value, 0;
    @%zero bra AGAIN;
    ret;
}
.visible .entry set(.param .u64 word)
{
    .reg .u64 %at;
    .reg .u32 %value;
    ld.param.u64 %at, [word];
    mov.u32 %value, 1;
    st.volatile.global.u32 [%at], %value;
    ret;
}
";

/// This many blocks, of at most half a multiprocessor each, wait for a kernel that comes after them.
pub(super) fn spin(world: &W, blocks: usize) {
    let context = CudaContext::new(world.device().ordinal()).unwrap();
    // SAFETY: both streams use the word like words of the protocol, so no events are needed.
    unsafe { context.disable_event_tracking() };
    let module = context.load_module(Ptx::from_src(SPIN)).unwrap();
    let (wait, set) = (
        module.load_function("spin").unwrap(),
        module.load_function("set").unwrap(),
    );
    let (a, b) = (context.new_stream().unwrap(), context.new_stream().unwrap());
    let word = a.alloc_zeros::<u32>(1).unwrap();
    a.synchronize().unwrap();
    let address = word.device_ptr(&a).0;
    let over = |blocks: usize| LaunchConfig {
        grid_dim: (blocks as u32, 1, 1),
        block_dim: (1024, 1, 1),
        shared_mem_bytes: 0,
    };
    let mut builder = a.launch_builder(&wait);
    builder.arg(&address);
    // SAFETY: the parameter is the word's address.
    unsafe { builder.launch(over(blocks)) }.unwrap();
    // By now all blocks that find room are resident.
    std::thread::sleep(Duration::from_millis(200));
    say("waiting");
    let mut builder = b.launch_builder(&set);
    builder.arg(&address);
    // SAFETY: as above.
    unsafe { builder.launch(over(1)) }.unwrap();
    b.synchronize().unwrap();
    a.synchronize().unwrap();
    say("went on");
}

/// One stream has the whole share, so the next one that would wait is refused.
pub(super) fn quota(world: &W) {
    stream!(let s = world.stream().unwrap());
    stream!(let t = world.stream().unwrap());
    let (inbox, outbox) = own_window("first", &s).unwrap();
    let exposed = inbox.post(&s).unwrap();
    let (other, unused) = own_window("second", &t).unwrap();
    let error = other.post(&t).err().unwrap();
    let text = error.to_string();
    assert!(
        matches!(error, Error::Device(_)) && text.contains("blocks that may wait"),
        "{text}"
    );
    let outbox = outbox.start().complete(&s).unwrap();
    let inbox = exposed.wait(&s).unwrap();
    s.synchronize().unwrap();
    say("went on");
    drop((inbox, outbox, unused));
}

/// Rule 20: blocks that wait leave room for what they wait for.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn blocks_that_wait_leave_room() {
    let environment = [(QUEUES, "32"), (LOADING, "EAGER")];
    ends("share", &environment);
    hangs("fill", &environment);
    let whole = [(QUEUES, "32"), (LOADING, "EAGER"), (WAITING_STREAMS, "1")];
    ends("quota", &whole);
}

pub(super) const EPOCHS: u32 = 50;

/// Two processes on one GPU send a message to and fro. Rank 0 prints how many microseconds it took.
pub(super) fn to_and_fro() {
    let world = W::init().unwrap();
    let (rank, other) = (world.rank(), 1 - world.rank());
    say(&format!("by MPS: {}", world.device().mps()));
    stream!(let s = world.stream().unwrap());
    let mut window = SlotWindow::new("to and fro");
    window.slot_from(other, 0, 8);
    let to = window.slot_to(other, 0);
    let (mut inbox, mut outbox) = window.open(&s).unwrap();
    let src = Region::from_slice(&world, &[rank as u64; 8])
        .unwrap()
        .on(&s)
        .unwrap();
    let mut begin = Instant::now();
    for turn in 0..EPOCHS + 5 {
        if turn == 5 {
            // Both are there, and everything that is made once has been made.
            s.synchronize().unwrap();
            world.all_gather("begin", Vec::new()).unwrap();
            begin = Instant::now();
        }
        let exposed = inbox.post(&s).unwrap();
        if rank == 0 {
            let mut epoch = outbox.start();
            epoch.put(&src, to).unwrap();
            outbox = epoch.complete(&s).unwrap();
            inbox = exposed.wait(&s).unwrap();
        } else {
            inbox = exposed.wait(&s).unwrap();
            let mut epoch = outbox.start();
            epoch.put(&src, to).unwrap();
            outbox = epoch.complete(&s).unwrap();
        }
    }
    s.synchronize().unwrap();
    if rank == 0 {
        say(&format!("took {}", begin.elapsed().as_micros()));
    }
    world.all_gather("end", Vec::new()).unwrap();
    drop((inbox, outbox));
}

/// Runs a job of a role on one GPU, however many there are. It is killed if it takes too long.
pub(super) fn job(ranks: usize, role: &str, environment: &[(&str, &str)]) -> Ended {
    let mut job = Job::this_program(ranks)
        .unwrap()
        .args(["--exact", "cuda::roles::a_rank", "--ignored", "--nocapture"])
        .arg("--quiet")
        .env(ROLE, role)
        .env("CUDA_VISIBLE_DEVICES", "0")
        .output(Output::Captured);
    for (name, value) in environment {
        job = job.env(name, value);
    }
    let running = job.spawn().unwrap();
    let (remote, over) = (running.remote(), Arc::new(Mutex::new(false)));
    let ended = over.clone();
    let guard = std::thread::spawn(move || {
        let begin = Instant::now();
        while begin.elapsed() < DEADLINE && !*ended.lock().unwrap() {
            std::thread::sleep(Duration::from_millis(20));
        }
        let hung = !*ended.lock().unwrap();
        if hung {
            remote.kill();
        }
        hung
    });
    let outcome = running.wait();
    *over.lock().unwrap() = true;
    let hung = guard.join().unwrap();
    let ranks = outcome.ranks.iter();
    let said = ranks
        .map(|rank| String::from_utf8_lossy(&rank.stdout) + String::from_utf8_lossy(&rank.stderr));
    Ended {
        well: outcome.success(),
        hung,
        text: said.collect(),
    }
}

/// How long two processes on one GPU took for their messages, and their output.
pub(super) fn to_and_fro_on_one_gpu(
    gates: &str,
    environment: &[(&str, &str)],
) -> (Duration, String) {
    let usual = [(GATES, gates), (QUEUES, "32"), (LOADING, "EAGER")];
    let Ended { well, text, .. } = job(2, "to and fro", &[&usual[..], environment].concat());
    assert!(well, "with gates {gates}: {text}");
    let took = text.lines().find_map(|line| line.strip_prefix("took "));
    let took = took.and_then(|micros| micros.trim().parse().ok());
    let took = took.unwrap_or_else(|| panic!("no time was said: {text}"));
    (Duration::from_micros(took), text)
}

/// Rule 21: processes that share a GPU get it in time slices, and a kernel that waits uses up its slice.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn waits_on_a_shared_gpu_take_no_slices() {
    let took = |gates| to_and_fro_on_one_gpu(gates, &[]).0;
    let (gated, spinning) = (took("auto"), took("never"));
    let each = |took: Duration| took.as_micros() as f64 / f64::from(EPOCHS);
    println!(
        "to and fro, us: {:.1} with gates, {:.1} without",
        each(gated),
        each(spinning)
    );
    assert!(
        spinning > 5 * gated,
        "without gates it takes {spinning:?}, with gates {gated:?}: if the first is short, kernels that wait do not crawl here (is MPS running?), and gates are not what helps"
    );
}

/// A large put to a rank that never posts. Copy engines would make it.
pub(super) fn not_exposed(world: &W, k: &Kernels) {
    const LEN: usize = 1 << 20;
    stream!(let s = world.stream().unwrap());
    let window = SlotWindow::<u64>::new("large").buffers(Buffers::Single);
    let mut window = window.fail_after(Duration::from_millis(500));
    let to = match world.rank() {
        0 => Some(window.slot_to(1, 0)),
        _ => {
            window.slot_from(0, 0, LEN);
            None
        }
    };
    let (inbox, outbox) = window.open(&s).unwrap();
    if let Some(to) = to {
        let src = Region::from_slice(world, &vec![7u64; LEN]);
        let src = src.unwrap().on(&s).unwrap();
        let mut epoch = outbox.start();
        epoch.put(&src, to).unwrap();
        let outbox = epoch.complete(&s).unwrap();
        let begin = Instant::now();
        let error = s.synchronize().unwrap_err();
        assert!(matches!(error, Error::Wait(_)), "{error}");
        assert!(begin.elapsed() < Duration::from_secs(5));
        drop((src, inbox, outbox));
        // The courier waits for ever. The device still works, but loads no more code.
        let error = Module::<Cuda>::load(world, tidegate_kernels::SAMPLES_PTX.as_bytes());
        let error = error.err().unwrap().to_string();
        assert!(error.contains("may be waiting"), "{error}");
        stream!(let t = world.stream().unwrap());
        let mut x = Region::<u64, _>::zeroed(world, 8).unwrap().on(&t).unwrap();
        t.launch(k.tick.threads(1, 32), (&mut x,)).unwrap();
        x.into_host(&t).unwrap();
        world.all_gather("given up", Vec::new()).unwrap();
        say("went on");
    } else {
        world.all_gather("given up", Vec::new()).unwrap();
        // No wait has failed here, so the data counts, and must be the old data.
        let mut seen = Region::<u64, _>::zeroed(world, LEN)
            .unwrap()
            .on(&s)
            .unwrap();
        s.launch(
            k.copy_slot.threads(LEN, 256),
            (inbox.view(), 0u64, &mut seen),
        )
        .unwrap();
        let mut back = vec![1; LEN];
        seen.into_host(&s).unwrap().read(0, &mut back).unwrap();
        assert!(
            back.iter().all(|x| *x == 0),
            "a put was made without an exposure"
        );
        drop((inbox, outbox));
    }
}

/// The process ends, too, while a courier waits.
#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_large_put_that_was_not_exposed_is_not_made() {
    let environment = [
        (QUEUES, "32"),
        (LOADING, "EAGER"),
        (COPY_ENGINE_FROM, "4194304"),
    ];
    ends("not exposed", &environment);
}
