//! All collectives, of any size, beside those of an MPI or of NCCL.
//!
//! # Model
//!
//! A measurement is a number of calls that are enqueued one after the other, 1,000 of them if they are short. The
//! result is the time of one, on the slowest rank. The numbers are 4-byte floats. The size is that of a vector, or of
//! the block that goes from one rank to another. `algbw` and `busbw` are bandwidths as nccl-tests defines them.
//!
//! Several *ways* do the same: this library's calls, enqueued (`st`), replayed (`st-graph`), or done by the calling
//! thread (`inline`); with the feature `mpi` the calls of an MPI; with `--peers nccl` those of NCCL, enqueued and
//! recorded, from buffers that are registered as symmetric windows and from others. For each size, all ways take turns.
//! On GPUs, this library puts several replays of a recording into one graph of the driver. NCCL's recorded calls lie in
//! graphs of at least as many calls, so that neither side needs more launches.
//!
//! Before the clock starts, each way is called with data that changes, and its results are compared. They are compared
//! again after the last round of calls.
//!
//! `sent` is the most that a rank sends to other ranks in a call of this library, as `observe` counts it in a job of its
//! own. (A job of an MPI has no such job.) `blocks` is how many blocks the widest kernel of a call has on a GPU, and so
//! the most multiprocessors that the call takes. NCCL's are those of the kernels in a recording of the same call.
//!
//! With `--observe` the benchmark measures no time. It prints what one call sends.
//!
//! # Failures
//!
//! Arguments that do not go together ([`Misfit`], [`Unfit`](crate::transport::Unfit)), and a missing MPI or device, are
//! refused before there is a rank. Wrong data, or an error of another library, ends the program with code 1.

mod args;
mod case;
mod kind;
#[cfg(feature = "mpi")]
mod mpi;
mod nccl;
mod observed;
mod ours;
mod table;

pub use args::{By, CollectivesArgs, Misfit};
pub use kind::Kind;

use crate::cli::Device;
use crate::device::BenchDevice;
#[cfg(not(feature = "mpi"))]
use crate::mpi::NoMpi;
use crate::ranks::{Done, Ranks, Transport};
use crate::transport::Transport as To;
use args::NUMBER;
use case::Case;
use clap::Parser as _;
use nccl::Nccl;
use observed::Sent;
use std::collections::HashMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use table::{Measured, Row};
use tidegate_core::{Team, World};
use tidegate_cuda::Cuda;
use tidegate_hip::Hip;
use tidegate_host::Host;

/// Set for the processes that are ranks.
const IS_RANK: &str = "TIDEGATE_COLLECTIVES_RANK";

/// A device, and the other libraries that go with it.
trait CollectivesDevice: BenchDevice {
    /// Another library, ready to be called.
    type Peer;

    /// Joins all ranks in the other library, if one of the ways asks for it; collective.
    fn peer(team: &Team<Self>, args: &CollectivesArgs) -> Result<Self::Peer, Box<dyn Error>>;

    /// The name of the other library.
    fn name(peer: &Self::Peer) -> Result<String, Box<dyn Error>>;

    /// Measures all calls by the other library, on this rank; collective.
    fn theirs(peer: &Self::Peer, world: &World<Self>, by: By, case: &Case) -> Answer;
}

type Answer = Result<Measured, Box<dyn Error>>;

impl CollectivesDevice for Host {
    type Peer = ();

    fn peer(_: &Team<Self>, _: &CollectivesArgs) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    #[cfg(feature = "mpi")]
    fn name((): &()) -> Result<String, Box<dyn Error>> {
        Ok(crate::mpi::calls::library())
    }

    #[cfg(not(feature = "mpi"))]
    fn name((): &()) -> Result<String, Box<dyn Error>> {
        Ok(String::new())
    }

    #[cfg(feature = "mpi")]
    fn theirs((): &(), _: &World<Self>, _: By, case: &Case) -> Answer {
        let seconds = mpi::measure(case)?;
        Ok(Measured {
            seconds,
            blocks: None,
        })
    }

    #[cfg(not(feature = "mpi"))]
    fn theirs((): &(), _: &World<Self>, _: By, _: &Case) -> Answer {
        Err("this was built without MPI".into())
    }
}

impl CollectivesDevice for Cuda {
    type Peer = Option<Nccl>;

    fn peer(team: &Team<Self>, args: &CollectivesArgs) -> Result<Self::Peer, Box<dyn Error>> {
        if !args.ways.iter().any(|by| by.is_nccl()) {
            return Ok(None);
        }
        let longest = args.kinds.iter().flat_map(|kind| {
            let counts = args.counts(*kind).into_iter();
            counts.map(|count| kind.lengths(0, team.size(), count))
        });
        let longest = longest.map(|(input, output)| input.max(output)).max();
        let bytes = longest.unwrap_or(1).max(1) * NUMBER;
        // Symmetric windows are of whole pages of the GPU's.
        Ok(Some(Nccl::new(team, bytes.next_multiple_of(2 << 20))?))
    }

    fn name(peer: &Self::Peer) -> Result<String, Box<dyn Error>> {
        peer.as_ref().map_or(Ok(String::new()), Nccl::label)
    }

    fn theirs(peer: &Self::Peer, world: &World<Self>, by: By, case: &Case) -> Answer {
        let nccl = peer.as_ref().ok_or("NCCL was not joined")?;
        nccl.measure(world, by, case)
    }
}

impl CollectivesDevice for Hip {
    type Peer = ();

    fn peer(_: &Team<Self>, _: &CollectivesArgs) -> Result<(), Box<dyn Error>> {
        Ok(())
    }

    fn name((): &()) -> Result<String, Box<dyn Error>> {
        Ok(String::new())
    }

    fn theirs((): &(), _: &World<Self>, _: By, _: &Case) -> Answer {
        Err(Misfit::NcclWithoutCuda.into())
    }
}

/// The whole program.
pub fn main() -> ExitCode {
    match run(&CollectivesArgs::parse()) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            eprintln!("collectives: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The program, as a rank, or as the process that starts the ranks.
///
/// # Errors
///
/// Something that is missing, before there is a rank; an error of a rank.
pub fn run(args: &CollectivesArgs) -> Done {
    let args = args.with_ways();
    args.fit()?;
    let mpi = match args.ways.contains(&By::Mpi) {
        true => Some("the way `mpi`"),
        false => (args.start.over.transport == To::Mpi).then_some("`--transport mpi`"),
    };
    let windows = args.start.over.transport == To::Mpi;
    args.start.over.fits(args.ranks as usize, windows)?;
    if let Some(what) = mpi {
        return over_mpi(&args, what, windows);
    }
    match args.device {
        Device::Host => run_on::<Host>(&args),
        Device::Cuda => run_on::<Cuda>(&args),
        Device::Hip => run_on::<Hip>(&args),
    }
}

fn ranks(args: &CollectivesArgs) -> Ranks<'_> {
    Ranks {
        is_rank: IS_RANK,
        ranks: args.ranks as usize,
        start: &args.start,
    }
}

/// As [`run`], without any MPI.
fn run_on<D: CollectivesDevice>(args: &CollectivesArgs) -> Done {
    let ranks = ranks(args);
    // An observer costs time. So what the calls send is counted in a job of its own, before the clocks start.
    let mut sends = Sends::new();
    if args.observe || ranks.is_one() && (!args.brief || args.json.is_some()) {
        let sent = Arc::new(Sent::default());
        let observer = sent.clone();
        let code = ranks.run::<D>(
            |options| options.observer(observer),
            |worlds| {
                sends = observe(args, worlds[0].world, &sent)?;
                Ok(0)
            },
        )?;
        if args.observe {
            return Ok(code);
        }
    }
    ranks.run::<D>(|options| options, |worlds| measure(args, worlds, &sends))
}

#[cfg(not(feature = "mpi"))]
fn over_mpi(_: &CollectivesArgs, what: &str, _: bool) -> Done {
    Err(NoMpi {
        what: what.into(),
        bench: "collectives",
        example: "--ways st,mpi",
    }
    .into())
}

#[cfg(feature = "mpi")]
fn over_mpi(args: &CollectivesArgs, _: &str, windows: bool) -> Done {
    ranks(args).run_over_mpi(windows, |worlds| measure(args, worlds, &Sends::new()))
}

fn case<D: CollectivesDevice>(
    args: &CollectivesArgs,
    team: &Team<D>,
    kind: Kind,
    count: usize,
) -> Case {
    let calls = [args.calls(kind, count), args.unroll];
    // Ranks of a team have their team's numbers. All teams are of one size, one behind the other.
    let number = (team.world().rank() - team.rank()) / team.size();
    Case::new(
        kind,
        number as u32,
        [team.rank(), team.size()],
        count,
        calls,
    )
}

/// This rank's team; collective.
fn team<D: CollectivesDevice>(
    args: &CollectivesArgs,
    world: &World<D>,
) -> Result<Team<D>, Box<dyn Error>> {
    if args.teams == 1 {
        return Ok(world.everyone());
    }
    let team = world.split("teams", world.rank() / args.team_size(), world.rank())?;
    Ok(team.expect("each rank has named one"))
}

/// One rank's part of all measurements; rank 0 prints them. `sends` is what the calls send.
fn measure<D: CollectivesDevice>(
    args: &CollectivesArgs,
    transports: &[Transport<'_, D>],
    sends: &Sends,
) -> Done {
    let world = transports
        .first()
        .ok_or("there is nothing to run over")?
        .world;
    let teams = transports.iter().map(|over| team(args, over.world));
    let teams = teams.collect::<Result<Vec<_>, _>>()?;
    let peer = D::peer(&teams[0], args)?;
    let theirs = D::name(&peer)?;
    let mut rows = Vec::new();
    for kind in &args.kinds {
        for count in args.counts(*kind) {
            let case = case(args, &teams[0], *kind, count);
            let mut new = Vec::new();
            for by in args.ways.iter().copied().filter(|by| by.does(*kind)) {
                let row = |over: &str, transport| {
                    let row = Row {
                        kind: *kind,
                        by,
                        over: over.to_owned(),
                        ranks: case.ranks,
                        count,
                        calls: case.calls,
                        us: Vec::new(),
                        blocks: None,
                        sent: sends.get(&(*kind, count)).copied().filter(|_| by.is_ours()),
                    };
                    (row, transport)
                };
                match by.is_ours() {
                    true => new.extend(
                        transports
                            .iter()
                            .zip(&teams)
                            .map(|(over, team)| row(&over.name, Some(team))),
                    ),
                    false => new.push(row(&theirs, None)),
                }
            }
            for _ in 0..args.rounds {
                for (row, over) in &mut new {
                    let mine = match over {
                        Some(team) => ours::measure(team, row.by, &case, args)?,
                        None => D::theirs(&peer, world, row.by, &case)?,
                    };
                    let blocks = mine.blocks.unwrap_or(0) as f64;
                    let all = world.all_gather_elements("measured", &[mine.seconds, blocks])?;
                    let most = |at: usize| all.iter().map(|of| of[at]).fold(0.0, f64::max);
                    row.us.push(most(0) * 1e6 / case.calls as f64);
                    row.blocks = mine.blocks.map(|_| most(1) as usize);
                }
            }
            rows.extend(new.into_iter().map(|(row, _)| row));
        }
        if world.rank() == 0 && !args.brief {
            let device = world.device().label();
            let device = match args.teams {
                1 => device,
                teams => format!("{teams} such teams, {device}"),
            };
            print!("{}", table::block(*kind, &device, &rows));
        }
    }
    if world.rank() == 0 {
        print!("{}", table::ratios(&rows));
        if let Some(path) = &args.json {
            let all: Vec<_> = rows.iter().map(Row::json).collect();
            let text = serde_json::to_string_pretty(&all)?;
            crate::results::files::write(path, &text)?;
        }
    }
    Ok(0)
}

/// How long events may take to come to the observer after the work that they tell of.
const LATE: Duration = Duration::from_millis(30);

/// The most bytes that a rank sends in a call, by the collective and the number of elements.
type Sends = HashMap<(Kind, usize), u64>;

/// One call of each collective and size. Returns what it sends, which rank 0 prints if that was asked for.
fn observe<D: CollectivesDevice>(
    args: &CollectivesArgs,
    world: &World<D>,
    sent: &Sent,
) -> Result<Sends, Box<dyn Error>> {
    let mut table = crate::table::Table::new(
        [
            "collective",
            "size",
            "bytes sent",
            "messages",
            "bytes / size",
        ],
        &[0],
    );
    let (team, mut sends) = (team(args, world)?, Sends::new());
    for kind in &args.kinds {
        for count in args.counts(*kind) {
            ours::once(&team, &case(args, &team, *kind, count), args)?;
            std::thread::sleep(LATE);
            let all = world.all_gather_elements("sent", &sent.take())?;
            let most = |at: usize| all.iter().map(|of| of[at]).max().unwrap_or(0);
            let (bytes, size) = (most(0), (count * NUMBER) as u64);
            sends.insert((*kind, count), bytes);
            table.row([
                kind.name(),
                size.to_string(),
                bytes.to_string(),
                most(1).to_string(),
                format!("{:.3}", bytes as f64 / size.max(1) as f64),
            ]);
        }
    }
    if world.rank() == 0 && args.observe {
        print!(
            "# the most that a rank sends in a call, of {} ranks\n{}",
            team.size(),
            table.text()
        );
    }
    Ok(sends)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tidegate_core::WorldOptions;

    fn args(line: &str) -> CollectivesArgs {
        CollectivesArgs::parse_from(line.split_whitespace()).with_ways()
    }

    /// Each collective of ranks that are threads, short and in several pieces. The check compares all results.
    #[test]
    fn ranks_as_threads() {
        measured("--ranks 3 --sizes 8,3000 --iterations 20 --short 1024 --piece 512");
    }

    /// The other team's data would be wrong.
    #[test]
    fn teams_at_the_same_time() {
        measured("--ranks 4 --teams 2 --sizes 3000 --iterations 10 --short 1024 --piece 512");
    }

    fn measured(line: &str) {
        let args = args(&format!("collectives {line}"));
        args.fit().unwrap();
        World::<Host>::local(args.ranks as usize, |world| {
            let team = team(&args, &world).unwrap();
            for kind in &args.kinds {
                for count in args.counts(*kind) {
                    let case = case(&args, &team, *kind, count);
                    for by in [By::St, By::StGraph, By::Inline] {
                        let measured = ours::measure(&team, by, &case, &args).unwrap();
                        assert!(measured.seconds > 0.0 && measured.blocks.is_none());
                    }
                }
            }
        });
    }

    /// An all-reduce of a long vector sends as few bytes as can be: each rank sends all chunks but its own, and its own
    /// to all others.
    #[test]
    fn a_long_all_reduce_sends_two_vectors_less_two_chunks() {
        for ranks in [2, 3, 4, 8] {
            for count in [17_000, 30_000] {
                let sent: Vec<_> = (0..ranks).map(|_| Arc::new(Sent::default())).collect();
                let options = |rank: usize| WorldOptions::new().observer(sent[rank].clone());
                World::<Host>::local_with(ranks, options, |world| {
                    let args = args("collectives");
                    let team = team(&args, &world).unwrap();
                    let case = case(&args, &team, Kind::AllReduce, count);
                    ours::once(&team, &case, &args).unwrap();
                });
                for sent in &sent {
                    let [bytes, messages] = sent.take();
                    let least = (2 * (ranks - 1) * count * NUMBER) as f64 / ranks as f64;
                    assert!(
                        bytes as f64 <= 1.05 * least,
                        "{ranks} ranks, {count}: {bytes} {least}"
                    );
                    assert!(messages >= 2 * (ranks as u64 - 1));
                }
            }
        }
    }

    #[test]
    fn arguments_that_do_not_go_together() {
        let misfit = |line: &str| args(line).fit().unwrap_err();
        assert_eq!(
            misfit("collectives --ways st,nccl"),
            Misfit::NcclWithoutCuda
        );
        assert_eq!(
            misfit("collectives --device hip --peers nccl"),
            Misfit::NcclWithoutCuda
        );
        assert_eq!(
            misfit("collectives --device cuda --ways mpi"),
            Misfit::MpiOnGpus
        );
        assert_eq!(
            misfit("collectives --device cuda --ways inline"),
            Misfit::InlineOnGpus
        );
        assert_eq!(args("collectives --device cuda --peers nccl").fit(), Ok(()));
        assert_eq!(misfit("collectives --ranks 4 --teams 3"), Misfit::Teams);
        assert_eq!(
            misfit("collectives --ranks 4 --teams 2 --ways mpi"),
            Misfit::MpiInTeams
        );
        assert_eq!(misfit("collectives --min 1048576 --max 8"), Misfit::Sizes);
        let listed = args("collectives --max 4 --sizes 8,4");
        assert_eq!(
            (listed.fit(), listed.counts(Kind::Scan)),
            (Ok(()), vec![2, 1])
        );
        // Such a factor is too large for a second size.
        let far = args("collectives --min 8 --factor 2305843009213693952");
        assert_eq!(far.counts(Kind::Scan), [2, 16 << 20]);
        let all = args("collectives");
        assert_eq!(all.counts(Kind::Barrier), [0]);
        let counts = all.counts(Kind::Scan);
        assert_eq!((counts[0], counts.last()), (2, Some(&(16 << 20))));
        let calls = [2, 16 << 10, 1 << 18, 16 << 20].map(|count| all.calls(Kind::Scan, count));
        assert_eq!(calls, [1000, 1000, 70, 10]);
    }

    /// Without the feature, MPI is missed before a rank starts.
    #[cfg(not(feature = "mpi"))]
    #[test]
    fn mpi_is_missed() {
        for line in [
            "collectives --ways st,mpi",
            "collectives --ways st --transport mpi",
        ] {
            let args = CollectivesArgs::parse_from(line.split_whitespace());
            let error = run(&args).unwrap_err().downcast::<NoMpi>().unwrap();
            assert!(error.to_string().contains("--features mpi"), "{error}");
        }
    }
}
