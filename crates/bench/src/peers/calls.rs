//! The calls of the programs: the command line of Faces, in the peers' words.
//!
//! | Faces | peers |
//! |---|---|
//! | `--exchange`, whole shares, `--pair` | `--mode exchange`, `share`, `pair` |
//! | `--grid`, `--size` | `--grid`, `--m`, `--n` |
//! | the last of `--counts` | `--ni`; in shares `--shares`, rounded to whole graphs |
//! | `--unroll` | `--unroll`: one, and 20 or more, since our graphs too are replayed in rows of many |
//! | `--compute` | `--compute`, in one launch shape |

use super::peer::Peer;
use crate::cli::FacesArgs;
use crate::exchange;
use crate::faces::params::Counts;

/// Exchanges of a graph of theirs, at least.
const IN_GRAPH: u64 = 20;
/// Rounds of messages between two ranks: each has many sizes.
const PAIR_ROUNDS: &str = "5";
/// As many channels as NCCL may have.
const CHANNELS: [(&str, &str); 2] = [
    ("NCCL_MIN_P2P_NCHANNELS", "32"),
    ("NCCL_MAX_P2P_NCHANNELS", "32"),
];

/// One run of one program.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Call {
    /// Names it in messages and logs: peer, mode, form.
    pub(super) label: String,
    pub(super) peer: Peer,
    pub(super) args: Vec<String>,
    /// In addition to [`ENVIRONMENT`].
    pub(super) env: &'static [(&'static str, &'static str)],
}

/// The environment of all programs: no multicast anywhere; and, on one host, no network.
pub(super) const ENVIRONMENT: [(&str, &str); 4] = [
    ("NCCL_NVLS_ENABLE", "0"),
    ("NVSHMEM_DISABLE_NVLS", "1"),
    ("NVSHMEM_DISABLE_NCCL", "1"),
    ("NVSHMEM_REMOTE_TRANSPORT", "none"),
];

/// This too, unless it is set already: MPS allows fewer.
pub(super) const CONNECTIONS: (&str, &str) = ("CUDA_DEVICE_MAX_CONNECTIONS", "32");

/// The value of the programs' option `--mode`.
pub(super) fn mode(args: &FacesArgs) -> &'static str {
    match (args.pair, args.exchange) {
        (true, _) => "pair",
        (_, true) => "exchange",
        _ => "share",
    }
}

/// The calls of all peers that were asked for, in that order. Forms that may hang are last, so that they cost no others.
pub(super) fn calls(args: &FacesArgs) -> Vec<Call> {
    let each = args.peers.iter().flat_map(|peer| forms(*peer, args));
    let mut all: Vec<_> = each.collect();
    all.sort_by_key(|call| call.args.ends_with(&HANGS.map(str::to_owned)));
    all
}

/// Options of forms that may hang: in NVSHMEM 3.8.0 puts with signals on a stream do not end if they were captured.
const HANGS: [&str; 2] = ["--limit", "10"];

/// Options of one form, and its environment.
type Form = (
    &'static str,
    &'static [&'static str],
    &'static [(&'static str, &'static str)],
);

fn forms(peer: Peer, args: &FacesArgs) -> Vec<Call> {
    let all: &[Form] = match peer {
        _ if args.pair => &[("", &[], &[])],
        Peer::Mpi | Peer::Hostrma | Peer::Floor => &[("", &[], &[])],
        Peer::Nccl => &[
            ("", &["--only", "send/recv"], &[]),
            (
                "channels",
                &[
                    "--only",
                    "send/recv",
                    "--without",
                    "host sync",
                    "--tag",
                    "32 channels",
                ],
                &CHANNELS,
            ),
            ("puts", &["--only", "put_signal"], &[]),
            ("device", &["--only", "device, "], &[]),
        ],
        // A failing call ends an NVSHMEM program, so forms that may fail in a capture run in calls of their own.
        Peer::Nvshmem => &[
            ("puts", &["--only", "device: put"], &[]),
            ("stores", &["--only", "device: nvshmem_ptr"], &[]),
            (
                "stream",
                &["--only", "on-stream", "--without", "graph"],
                &[],
            ),
            ("barrier", &["--only", "barrier_all, graph"], &[]),
            (
                "graph",
                &["--only", "wait each, graph", HANGS[0], HANGS[1]],
                &[],
            ),
            (
                "graph-all",
                &["--only", "wait_until_all, graph", HANGS[0], HANGS[1]],
                &[],
            ),
            (
                "graph-nbi",
                &["--only", "quiet, graph", HANGS[0], HANGS[1]],
                &[],
            ),
        ],
    };
    let call = |(form, options, env): &Form| {
        let mut words = vec![peer.name(), mode(args)];
        if peer == Peer::Floor {
            words.pop();
        }
        if args.compute && mode(args) == "share" && peer != Peer::Floor {
            words.push("compute");
        }
        words.extend(Some(*form).filter(|form| !form.is_empty()));
        let mut all = common(peer, args);
        all.extend(options.iter().map(|&option| option.to_owned()));
        if options.iter().any(|option| option.starts_with("device")) && !args.pair {
            // Of many launch shapes: none of them is at its best alone in a graph. Ours, too, stand in rows of graphs.
            let unroll = args.unroll.max(IN_GRAPH);
            let unroll = match args.exchange {
                true => format!("{unroll},{}", 10 * unroll),
                false => IN_GRAPH.to_string(),
            };
            all.extend(["--unroll".to_owned(), unroll]);
        }
        Call {
            label: words.join("-"),
            peer,
            args: all,
            env,
        }
    };
    all.iter().map(call).collect()
}

/// The options that describe the exchange.
fn common(peer: Peer, args: &FacesArgs) -> Vec<String> {
    let mut all = Vec::new();
    let mut say = |name: &str, value: String| all.extend([format!("--{name}"), value]);
    // Theirs to keep, so that all their ranks are ended before we end the program.
    say(
        "limit",
        args.peers_limit.saturating_sub(5).max(1).to_string(),
    );
    if peer == Peer::Floor {
        return all;
    }
    say("mode", mode(args).into());
    if args.pair {
        say("rounds", PAIR_ROUNDS.into());
        return all;
    }
    let three = |[x, y, z]: [usize; 3]| format!("{x},{y},{z}");
    say("grid", three(args.grid.0));
    say("m", three(args.size.m));
    say("n", args.size.n.to_string());
    if args.exchange {
        let Counts { ni, .. } = exchange::counts(args);
        say("ni", ni.to_string());
        say("unroll", format!("1,{}", args.unroll.max(IN_GRAPH)));
    } else {
        let params = args.unchecked();
        let whole = params.counts.ni.next_multiple_of(IN_GRAPH);
        let limit = params.max_shares() / IN_GRAPH * IN_GRAPH;
        say("shares", whole.min(limit).max(IN_GRAPH).to_string());
        say("unroll", format!("1,{IN_GRAPH}"));
        if args.compute {
            all.push("--compute".to_owned());
        }
    }
    all
}
