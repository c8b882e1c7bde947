//! The cost of a put with its signal over libfabric: through tidegate, and in a bare loop over the same provider.
//!
//! `cargo bench --bench wire [-- --provider NAME --rounds N --json FILE]`. Two ranks, each a process. All ways take
//! turns within a round; the figures are medians over the rounds of the mean over a round's epochs.
//!
//! - `ping-pong`: one way, half of a round trip. The put of one rank answers the put of the other.
//! - `exchange`: both put at the same time, and wait.
//!
//! The bare loops have no exposure (a put overwrites the last one), nor buffers by turns. `delivered` learns at once of a
//! put that the target has refused or that was lost; `bare` never does. (tidegate does, when it looks.) `waitable` has a
//! completion queue that a thread can sleep on, as tidegate's listener does; the other loops would have to poll for ever.
//! `injected` has no completions.
//!
//! Ratios are the bare loop's time divided by that of the way: above 1 is faster than the bare loop.
//!
//! After all rounds of a case, the received data is compared with the data that was sent. The clock is rank 0's.

mod raw;

use std::fmt::Write as _;
use std::time::Instant;

use tidegate::host::prelude::*;
use tidegate::{Route, WorldOptions};
use tidegate_bench::results::stats::median;
use tidegate_cli::Job;
use tidegate_fabric::wire::libfabric::{Choice, FabricWire};
use tidegate_fabric::{ENVIRONMENT, Fabric, Options};
use tidegate_ffi::fabric::WaitObject;

use raw::{Form, Raw};

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const SIZES: [usize; 2] = [8, 64 << 10];
/// Numbers that an endpoint's address fits in.
const ADDRESS: usize = 256;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pattern {
    PingPong,
    Exchange,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    Raw(Form),
    Eager,
    Graph,
    Inline,
}

impl Way {
    fn name(self) -> &'static str {
        match self {
            Way::Raw(Form::Plain) => "bare",
            Way::Raw(Form::Delivered) => "bare, delivered",
            Way::Raw(Form::Injected) => "bare, injected",
            Way::Raw(Form::Waitable) => "bare, waitable",
            Way::Eager => "tidegate, eager",
            Way::Graph => "tidegate, graph",
            Way::Inline => "tidegate, inline",
        }
    }
}

const WAYS: [Way; 7] = [
    Way::Raw(Form::Plain),
    Way::Raw(Form::Delivered),
    Way::Raw(Form::Injected),
    Way::Raw(Form::Waitable),
    Way::Eager,
    Way::Graph,
    Way::Inline,
];

/// Both ends of a window, and the source of the puts.
#[derive(Carry)]
struct Ends<'s> {
    src: Region<u64, On<'s>>,
    inbox: Inbox<'s, u64>,
    outbox: Outbox<'s, u64>,
    from: In<u64>,
    to: Out<u64>,
}

/// The words that a rank sends.
fn words(rank: usize, len: usize) -> Vec<u64> {
    let word = |index: usize| (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ rank as u64;
    (0..len).map(word).collect()
}

fn open<'s>(s: &Stream<'s>, name: &str, len: usize) -> Result<Ends<'s>> {
    let rank = s.world().rank();
    let peer = 1 - rank;
    let mut window = SlotWindow::new(name);
    let (from, to) = (window.slot_from(peer, 0, len), window.slot_to(peer, 0));
    let (inbox, outbox) = window.open(s)?;
    Ok(Ends {
        src: Region::from_slice(s.world(), &words(rank, len))?.on(s)?,
        inbox,
        outbox,
        from,
        to,
    })
}

/// Compares the received words with those that the peer sends.
fn check<'s>(s: &Stream<'s>, way: Way, ends: &mut Ends<'s>) -> Outcome<()> {
    let slots = ends.inbox.read(s)?;
    let came = slots.slot(ends.from);
    if came != words(1 - s.world().rank(), came.len()) {
        return Err(format!("{}: the received data is wrong", way.name()).into());
    }
    Ok(())
}

/// Puts, and waits for the peer's put.
fn step<'s>(s: &Stream<'s>, ends: Ends<'s>) -> Result<Ends<'s>> {
    let mut epoch = ends.outbox.start();
    epoch.put(&ends.src, ends.to)?;
    let (inbox, outbox) = exchange(s, ends.inbox, epoch)?;
    Ok(Ends {
        inbox,
        outbox,
        ..ends
    })
}

/// `count` epochs, of which `steps` enqueues some. The answering rank waits first, and puts last: each of its steps answers
/// the message that its previous step waited for, and exposes for the next one.
fn epochs<'s>(
    s: &Stream<'s>,
    pattern: Pattern,
    mut ends: Ends<'s>,
    count: u64,
    steps: impl FnOnce(Ends<'s>, u64) -> Result<Ends<'s>>,
) -> Result<(Ends<'s>, f64)> {
    let answers = pattern == Pattern::PingPong && s.world().rank() == 1;
    let begin = Instant::now();
    if answers {
        ends.inbox = ends.inbox.expose(s)?;
    }
    ends = steps(ends, count - u64::from(answers))?;
    if answers {
        let mut epoch = ends.outbox.start();
        epoch.put(&ends.src, ends.to)?;
        ends.outbox = epoch.complete(s)?;
    }
    s.synchronize()?;
    Ok((ends, begin.elapsed().as_secs_f64() * 1e6 / count as f64))
}

/// Sends these bytes to the peer, and returns the peer's.
fn swap(s: &Stream<'_>, said: &[u64]) -> Result<Vec<u64>> {
    let mut ends = open(s, "said", said.len())?;
    ends.src = Region::from_slice(s.world(), said)?.on(s)?;
    let ends = step(s, ends)?;
    let mut seen = Region::<u64, _>::zeroed(s.world(), said.len())?.on(s)?;
    let from = ends.from;
    s.launch(
        move |inbox: Slots<'_, u64>, seen: &mut [u64]| seen.copy_from_slice(inbox.slot(from)),
        (ends.inbox.view(), &mut seen),
    )?;
    let seen = seen.into_host(s)?;
    Ok(seen.to_vec())
}

/// Epochs of a bare loop; microseconds each.
fn bare(
    raw: &mut Raw,
    rank: usize,
    pattern: Pattern,
    form: Form,
    bytes: usize,
    epochs: u64,
) -> Outcome<f64> {
    let begin = Instant::now();
    for _ in 0..epochs {
        match (pattern, rank) {
            (Pattern::PingPong, 1) => {
                raw.wait()?;
                raw.put(bytes, form)?;
            }
            _ => {
                raw.put(bytes, form)?;
                raw.wait()?;
            }
        }
    }
    let elapsed = begin.elapsed();
    raw.drain()?;
    Ok(elapsed.as_secs_f64() * 1e6 / epochs as f64)
}

fn eager<'s>(s: &Stream<'s>, mut ends: Ends<'s>, count: u64) -> Result<Ends<'s>> {
    for _ in 0..count {
        ends = step(s, ends)?;
    }
    Ok(ends)
}

/// The arguments of a rank.
struct Plan {
    provider: String,
    rounds: usize,
    json: Option<String>,
    only: Option<String>,
}

impl Plan {
    fn read() -> Outcome<Self> {
        let mut plan = Plan {
            provider: "tcp;ofi_rxm".into(),
            rounds: 21,
            json: None,
            only: None,
        };
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or(format!("{arg} needs a value"));
            match arg.as_str() {
                "--provider" => plan.provider = value()?,
                "--rounds" => plan.rounds = value()?.parse()?,
                "--json" => plan.json = Some(value()?),
                "--only" => plan.only = Some(value()?),
                // Cargo's own.
                "--bench" => {}
                other => return Err(format!("there is no argument `{other}`").into()),
            }
        }
        Ok(plan)
    }
}

fn rank(plan: &Plan) -> Outcome<()> {
    let wire = FabricWire::open(&Choice::at("127.0.0.1").provider(&plan.provider))?;
    let nic = Fabric::over(wire, Options::default());
    let options = WorldOptions::new().nic(nic).route(Route::Nic);
    let world = World::init_with(options)?;
    let rank = world.rank();
    stream!(let s = world.stream()?);
    stream!(let inline = world.inline_stream()?);
    let open_raw = |wait| -> Outcome<Raw> {
        let mut raw = Raw::open(&plan.provider, &words(rank, SIZES[1] / 8), wait)?;
        let mut said = raw.address()?;
        said.resize(ADDRESS, 0);
        raw.connect(&swap(&s, &said)?)?;
        Ok(raw)
    };
    let mut raw = open_raw(WaitObject::NONE)?;
    let mut waitable = open_raw(WaitObject::UNSPEC)?;
    let mut json = String::new();
    for bytes in SIZES {
        let count = if bytes > 4096 { 300 } else { 1000 };
        for pattern in [Pattern::PingPong, Pattern::Exchange] {
            let mut on_s = open(&s, "eager", bytes / 8)?;
            let mut on_inline = open(&inline, "inline", bytes / 8)?;
            let recorded = open(&s, "recorded", bytes / 8)?;
            let (graph, mut recorded) = s.capture(recorded, step)?;
            let mut times = vec![Vec::new(); WAYS.len()];
            for round in 0..=plan.rounds {
                for (way, times) in WAYS.iter().zip(&mut times) {
                    if *way == Way::Raw(Form::Injected) && bytes > 64 {
                        continue;
                    }
                    if plan
                        .only
                        .as_ref()
                        .is_some_and(|only| !way.name().contains(only))
                    {
                        continue;
                    }
                    let time = match way {
                        Way::Raw(form) => {
                            let raw = match form {
                                Form::Waitable => &mut waitable,
                                _ => &mut raw,
                            };
                            bare(raw, rank, pattern, *form, bytes, count)?
                        }
                        Way::Eager => {
                            let steps = |ends, count| eager(&s, ends, count);
                            let (back, time) = epochs(&s, pattern, on_s, count, steps)?;
                            on_s = back;
                            time
                        }
                        Way::Inline => {
                            let steps = |ends, count| eager(&inline, ends, count);
                            let (back, time) = epochs(&inline, pattern, on_inline, count, steps)?;
                            on_inline = back;
                            time
                        }
                        Way::Graph => {
                            let steps = |ends, count: u64| graph.replay(&s, ends, count as usize);
                            let (back, time) = epochs(&s, pattern, recorded, count, steps)?;
                            recorded = back;
                            time
                        }
                    };
                    // The first is for warming up.
                    if round > 0 {
                        times.push(if pattern == Pattern::PingPong {
                            time / 2.0
                        } else {
                            time
                        });
                    }
                }
            }
            let went = |way: Way| {
                WAYS.iter()
                    .zip(&times)
                    .any(|(one, times)| *one == way && !times.is_empty())
            };
            if went(Way::Eager) {
                check(&s, Way::Eager, &mut on_s)?;
            }
            if went(Way::Graph) {
                check(&s, Way::Graph, &mut recorded)?;
            }
            if went(Way::Inline) {
                check(&inline, Way::Inline, &mut on_inline)?;
            }
            for (form, raw) in [(Form::Plain, &raw), (Form::Waitable, &waitable)] {
                if went(Way::Raw(form)) && raw.received(bytes) != words(1 - rank, bytes / 8) {
                    return Err("a bare loop: the received data is wrong".into());
                }
            }
            if rank == 0 {
                let medians: Vec<_> = times.iter_mut().map(|times| median(times)).collect();
                println!("{pattern:?}, {bytes} B ({} rounds of {count})", plan.rounds);
                for ((way, time), all) in WAYS.iter().zip(&medians).zip(&times) {
                    let Some(time) = time else { continue };
                    let over = |form: Form| {
                        let base = WAYS.iter().position(|way| *way == Way::Raw(form));
                        let base = base.and_then(|base| medians[base]);
                        base.map_or("-".into(), |base| format!("{:.2}", base / time))
                    };
                    println!(
                        "  {:18} {time:8.2} us ({:.2} to {:.2})   bare / it {}, injected {}, waitable {}, delivered {}",
                        way.name(),
                        all[all.len() / 10],
                        all[all.len() * 9 / 10],
                        over(Form::Plain),
                        over(Form::Injected),
                        over(Form::Waitable),
                        over(Form::Delivered)
                    );
                    let _ = writeln!(
                        json,
                        "  {{\"pattern\": \"{pattern:?}\", \"bytes\": {bytes}, \"way\": \"{}\", \"median_us\": {time:.3}, \"rounds\": {}, \"epochs\": {count}}},",
                        way.name(),
                        plan.rounds
                    );
                }
            }
        }
    }
    if let (0, Some(path)) = (rank, &plan.json) {
        let rows = json.trim_end().trim_end_matches(',');
        std::fs::write(
            path,
            format!(
                "{{\"provider\": \"{}\", \"rows\": [\n{rows}\n]}}\n",
                plan.provider
            ),
        )?;
    }
    Ok(())
}

fn main() -> Outcome<()> {
    let plan = Plan::read()?;
    if std::env::var_os("RANK").is_some() {
        return rank(&plan);
    }
    let mut job = Job::new(std::env::current_exe()?, 2).args(std::env::args().skip(1));
    for (name, value) in ENVIRONMENT {
        job = job.default_env(name, value);
    }
    let outcome = job.run()?;
    if outcome.success() {
        Ok(())
    } else {
        Err("a rank has failed".into())
    }
}
