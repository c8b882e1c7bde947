//! The environment variables that tidegate reads: the one list from which parsers take names and limits, `tidegate info`
//! what it prints, and a test what `docs/environment.md` must say.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::net::IpAddr;

/// An environment variable.
#[derive(Debug)]
pub struct Variable {
    /// Its name.
    pub name: &'static str,
    /// The values that it can have.
    pub form: Form,
    /// What it says. It begins with `own: ` if ranks of a job may have different values.
    pub meaning: &'static str,
    /// What holds if it is not set. Empty for variables that users do not set.
    pub default: &'static str,
}

/// The values that a variable can have.
#[derive(Clone, Copy, Debug)]
pub enum Form {
    /// Any text, or a text that another crate parses.
    Text,
    /// A number between two limits, which are allowed.
    Number(u64, u64),
    /// A number, or this word.
    NumberOr(&'static str),
    /// One of these words.
    Words(&'static [&'static str]),
    /// An IP address.
    Address,
}

use Form::*;

/// No limit for a number.
const MOST: u64 = u64::MAX;
/// The longest time, in seconds or milliseconds.
const MOST_TIME: u64 = 86_400_000;

macro_rules! variables {
    ($($constant:ident = $name:literal, $form:expr, $meaning:literal, $default:literal;)*) => {
        $(
            #[doc = concat!("`", $name, "`: ", $meaning)]
            pub const $constant: Variable = Variable {
                name: $name,
                form: $form,
                meaning: $meaning,
                default: $default,
            };
        )*

        /// The variables of users and launchers, in the order of the page on them.
        pub static ALL: &[Variable] = &[$($constant),*];
    };
}

variables! {
    RANK = "RANK", Number(0, MOST),
        "own: the number of this rank, from 0",
        "if neither this nor WORLD_SIZE is set, another launcher says it; without one, the process is a job of \
         one rank";
    WORLD_SIZE = "WORLD_SIZE", Number(1, MOST),
        "the number of ranks",
        "as RANK";
    MASTER_ADDR = "MASTER_ADDR", Text,
        "the host name or address at which rank 0 listens; it listens at this address only",
        "needed, if WORLD_SIZE is not 1";
    MASTER_PORT = "MASTER_PORT", Number(1, 65535),
        "the port at which rank 0 listens, 1 to 65535",
        "needed, if WORLD_SIZE is not 1";
    SECRET = "TIDEGATE_SECRET", Text,
        "the secret by which ranks prove that they belong to the job, 16 bytes or more",
        "needed, unless the launcher has a key-value store";
    JOB_ID = "TIDEGATE_JOB_ID", Text,
        "a name of the job: a rank does not join a job of another name, even with the same secret",
        "empty";
    RENDEZVOUS_TIMEOUT = "TIDEGATE_RENDEZVOUS_TIMEOUT", Number(1, MOST_TIME),
        "seconds that ranks wait for each other when the job begins",
        "60";
    HEARTBEAT_MS = "TIDEGATE_HEARTBEAT_MS", Number(10, MOST_TIME),
        "milliseconds between two heartbeats of a rank, 10 or more",
        "1000";
    SILENCE_MS = "TIDEGATE_SILENCE_MS", Number(100, MOST_TIME),
        "milliseconds of silence after which a rank counts as lost: at least 3 heartbeats. A NIC that does not \
         answer counts as lost after twice this time, but not before 20 s",
        "10000";
    LAUNCHER = "TIDEGATE_LAUNCHER", Words(&["pmix", "pmi", "pmi2", "slurm", "none"]),
        "which launcher started this process: pmix, pmi, pmi2, slurm, or none (the process is a job of one rank). \
         Ignored if RANK is set",
        "recognised";
    LIBPMIX = "TIDEGATE_LIBPMIX", Text,
        "the path of the PMIx library that belongs to the launcher; needed if Open MPI came with its own",
        "libpmix.so.2";
    NODE = "TIDEGATE_NODE", Text,
        "own: the name of this rank's node. Only ranks whose nodes have the same name map each other's memory",
        "a name made of the machine, its namespaces and the user";
    ADDRESS = "TIDEGATE_ADDRESS", Address,
        "own: the IP address at which other hosts reach this host's NIC. With another launcher, rank 0 also \
         listens there. Needed between hosts",
        "the loopback address";
    ROUTE = "TIDEGATE_ROUTE", Text,
        "own: how this rank reaches others. auto: it maps ranks of its node, and reaches the others by NIC. \
         mapped: windows that need a NIC are refused. nic: by NIC only. nic:1,3: as auto, but these ranks by NIC",
        "auto";
    PROVIDER = "TIDEGATE_PROVIDER", Text,
        "libfabric's provider, for example tcp, tcp;ofi_rxm, sockets, verbs;ofi_rxm",
        "the first that has what is needed: tcp from libfabric 1.18 on, tcp;ofi_rxm before";
    ENGINE = "TIDEGATE_ENGINE", Words(&["auto", "software", "triggered"]),
        "the engine that starts transfers: software (a thread), triggered (the NIC), auto (the NIC if its \
         hardware can, else a thread)",
        "auto";
    LIBFABRIC = "TIDEGATE_LIBFABRIC", Text,
        "own: the path of the libfabric.so.1 to load",
        "the system's";
    CHUNKS = "TIDEGATE_CHUNKS", Text,
        "the size of the chunks in which puts through pinned memory go to the NIC: never, BYTES, or BYTES:FROM \
         for puts of FROM bytes or more",
        "1048576:2097152 with GPUs, never with host streams";
    RAILS = "TIDEGATE_RAILS", Number(1, 4),
        "the number of endpoints, 1 to 4, by which a rank with a GPU sends long messages. Each has two threads",
        "over tcp and tcp;ofi_rxm: 2 if each rank has 8 processors, 3 if 16, 4 if 32; otherwise 1";
    LOG = "TIDEGATE_LOG", Words(&["off", "warn", "info", "debug"]),
        "own: which of its own events tidegate writes to standard error, where the program has no subscriber of \
         tracing: off, warn, info, debug. off: not even those that need no subscriber",
        "those that need no subscriber";
    DEVICE = "TIDEGATE_DEVICE", Number(0, MOST),
        "own: the number of the GPU that this rank takes, from 0. With n GPUs, number n is GPU 0 again, and so on",
        "the rank's number among the ranks of its node";
    GPU_WAITING_STREAMS = "TIDEGATE_GPU_WAITING_STREAMS", Number(1, MOST),
        "how many streams of a process wait for other ranks; overrides WorldOptions::waiting_streams",
        "what the program says, or 2 (12 if ranks are threads of one process)";
    CUDA_DEVICE_MAX_CONNECTIONS = "CUDA_DEVICE_MAX_CONNECTIONS", Number(1, 32),
        "the number of hardware queues of a process, 1 to 32. tidegate run sets 32",
        "the driver's: 8, under MPS 2";
    CUDA_MODULE_LOADING = "CUDA_MODULE_LOADING", Text,
        "when the driver loads code. tidegate run sets EAGER, because loading while a stream waits can block the \
         job",
        "the driver's";
    CUDA_VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES", Text,
        "the GPUs that a process sees, and their order",
        "all";
    GPU_EARLY = "TIDEGATE_GPU_EARLY", Text,
        "how early a batch may be launched, from compute capability 9.0 on: no; launch (when no work before it \
         waits any more); anything else (also while the batch before it waits)",
        "unset";
    GPU_COPY_ENGINE_FROM = "TIDEGATE_GPU_COPY_ENGINE_FROM", NumberOr("never"),
        "the size in bytes from which copy engines make the puts to a peer: a number, or never",
        "4 MiB to other GPUs, 24 MiB within one";
    GPU_LAND_UP_TO = "TIDEGATE_GPU_LAND_UP_TO", Number(0, 4096),
        "the size in bytes up to which slots get their data without a fence: a number, at most 4096; 0 for none",
        "4096";
    GPU_REDUCE_UP_TO = "TIDEGATE_GPU_REDUCE_UP_TO", Number(0, 1 << 20),
        "the size in bytes up to which vectors that are reduced at once get their data without a fence: a number, at most 1048576",
        "65536";
    GPU_GATES = "TIDEGATE_GPU_GATES", Words(&["auto", "always", "never"]),
        "when streams wait by memory operations in front of the kernel: auto (if ranks share the GPU without \
         MPS), always, never",
        "auto";
    GPU_STRIKES = "TIDEGATE_GPU_STRIKES", Words(&["auto", "no"]),
        "whether streams store to registers of NICs: auto (if the driver maps them), no",
        "auto";
    TRACE = "TIDEGATE_TRACE", Text,
        "own: the folder to which this rank writes its events, for tidegate trace",
        "no events are written";
    METRICS = "TIDEGATE_METRICS", Text,
        "own: the folder to which this rank writes its counters every second, for Prometheus. It takes the feature \
         prometheus",
        "no counters are written";
    PROFILER = "TIDEGATE_PROFILER", Words(&["auto", "nvtx", "roctx", "no"]),
        "own: which profiler of the host gets a range for each call: nvtx, roctx, auto (the one that has started \
         the program), no. It takes the feature profiler",
        "auto";
    NVTX_INJECTION = "NVTX_INJECTION64_PATH", Text,
        "own: the library of a profiler that shows ranges of NVTX. The profiler sets it",
        "";
    SSH = "TIDEGATE_SSH", Text,
        "the command and first arguments that tidegate run --hosts logs in with; the option --ssh overrides it",
        "ssh";
    RANKS_HERE = "TIDEGATE_RANKS_HERE", Text,
        "how many ranks share the processors that this rank may use. It decides the default of TIDEGATE_RAILS",
        "";
    LISTEN_FD = "TIDEGATE_LISTEN_FD", Text,
        "on rank 0: a listening socket that it inherits, as DESCRIPTOR:INODE",
        "";
    ENDS_FD = "TIDEGATE_ENDS_FD", Text,
        "a file of memory that the rank inherits, as DESCRIPTOR:INODE. There the rank tells the launcher because \
         of which other rank it fails",
        "";
}

/// Variables that only tests and benches of tidegate read.
pub static DEVELOPERS: &[&str] = &[
    "TIDEGATE_BLESS",
    "TIDEGATE_COLLECTIVES_RANK",
    "TIDEGATE_EMULATED_MACHINE",
    "TIDEGATE_FACES_ROWS",
    "TIDEGATE_FAKE_CUDA",
    "TIDEGATE_FAULTS",
    "TIDEGATE_FAULTS_FROM",
    "TIDEGATE_GPU_ALL",
    "TIDEGATE_GPU_ALL_READY",
    "TIDEGATE_GPU_EPOCHS",
    "TIDEGATE_GPU_RANKS",
    "TIDEGATE_GPU_READY",
    "TIDEGATE_GPU_REFUSED",
    "TIDEGATE_GPU_ROLE",
    "TIDEGATE_GPU_RULE",
    "TIDEGATE_GPU_SEED",
    "TIDEGATE_KEEP_REPORT",
    "TIDEGATE_LOOM_COUNT",
    "TIDEGATE_MPIRUN",
    "TIDEGATE_MUTANT",
    "TIDEGATE_MUTANTS",
    "TIDEGATE_MUTANTS_DIFF",
    "TIDEGATE_OSU_RANK",
    "TIDEGATE_OVER_CUDA",
    "TIDEGATE_OVER_CUDA_ARCHITECTURE",
    "TIDEGATE_OVER_CUDA_NAMED",
    "TIDEGATE_REQUIRE_CUDA",
    "TIDEGATE_SCHEDULES",
    "TIDEGATE_SCHEDULES_SEED",
    "TIDEGATE_SKIPS",
    "TIDEGATE_SLURM",
    "TIDEGATE_SOAK_RUNS",
    "TIDEGATE_SOAK_SEED",
    "TIDEGATE_TEST_HOSTS",
    "TIDEGATE_TEST_MARK",
    "TIDEGATE_TEST_ROLE",
    "TIDEGATE_TEST_SECRET",
    "TIDEGATE_TEST_UNHEARD",
    "TIDEGATE_TURN",
];

impl Variable {
    /// The limits of a number.
    ///
    /// # Panics
    ///
    /// If the variable is no number.
    pub const fn limits(&self) -> (u64, u64) {
        match self.form {
            Number(least, most) => (least, most),
            _ => panic!("the variable is no number"),
        }
    }

    /// Whether ranks of a job may have different values.
    pub fn is_own(&self) -> bool {
        self.meaning.starts_with("own: ")
    }

    /// Checks a value, as far as its form tells.
    ///
    /// # Errors
    ///
    /// What the value must be.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_hal::variables::RAILS;
    ///
    /// assert_eq!(RAILS.check("4".as_ref()), Ok(()));
    /// assert_eq!(RAILS.check("five".as_ref()), Err("it must be a number from 1 to 4".into()));
    /// ```
    pub fn check(&self, value: &OsStr) -> Result<(), String> {
        let text = value.to_str().ok_or("it is not UTF-8")?.trim();
        let number = |least, most| {
            let number = text.parse::<u64>();
            number.is_ok_and(|number| (least..=most).contains(&number))
        };
        match self.form {
            Text => Ok(()),
            Number(least, MOST) if !number(least, MOST) => {
                Err(format!("it must be a number, {least} or more"))
            }
            Number(least, most) if !number(least, most) => {
                Err(format!("it must be a number from {least} to {most}"))
            }
            NumberOr(word) if text != word && !number(0, MOST) => {
                Err(format!("it must be a number, or {word}"))
            }
            Words(words) if !words.contains(&text) => {
                Err(format!("it must be one of: {}", words.join(", ")))
            }
            Address if text.parse::<IpAddr>().is_err() => Err("it must be an IP address".into()),
            _ => Ok(()),
        }
    }
}

/// A variable whose name begins as tidegate's do, and that nothing reads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misspelt {
    /// Its name.
    pub name: String,
    /// The known name that is nearest to it.
    pub nearest: &'static str,
}

impl fmt::Display for Misspelt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, nearest } = self;
        write!(
            f,
            "{name} is set, and nothing reads it; the nearest name is {nearest}"
        )
    }
}

/// The misspelt ones among some names of variables, sorted.
///
/// # Examples
///
/// ```
/// let found = tidegate_hal::variables::misspelt(["TIDEGATE_RUOTE", "TIDEGATE_NODE", "HOME"].map(Into::into));
/// assert_eq!(found.len(), 1);
/// assert_eq!(found[0].nearest, "TIDEGATE_ROUTE");
/// ```
pub fn misspelt(names: impl IntoIterator<Item = OsString>) -> Vec<Misspelt> {
    let known = || ALL.iter().map(|each| each.name);
    let mut found: Vec<_> = names
        .into_iter()
        .map(|name| name.to_string_lossy().into_owned())
        .filter(|name| name.starts_with(PREFIX))
        .filter(|name| {
            !known()
                .chain(DEVELOPERS.iter().copied())
                .any(|each| each == name)
        })
        .collect();
    found.sort_unstable();
    let nearest = |name: &str| {
        let ours = known().filter(|each| each.starts_with(PREFIX));
        ours.min_by_key(|each| distance(name, each))
            .unwrap_or_default()
    };
    let pair = |name: String| Misspelt {
        nearest: nearest(&name),
        name,
    };
    found.into_iter().map(pair).collect()
}

/// The beginning of the names of tidegate's own variables.
const PREFIX: &str = "TIDEGATE_";

/// How many bytes must be inserted, removed or replaced to make one name of the other.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.bytes().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let nearest = |name: &str| misspelt([name.into()]).pop().map(|found| found.nearest);
        assert_eq!(nearest("TIDEGATE_ENGIN"), Some("TIDEGATE_ENGINE"));
        assert_eq!(nearest("TIDEGATE_GPU_GATE"), Some("TIDEGATE_GPU_GATES"));
        assert_eq!(nearest("TIDEGATE_HEARTBEAT"), Some("TIDEGATE_HEARTBEAT_MS"));
        for known in ["TIDEGATE_NODE", "TIDEGATE_TURN", "tidegate_node", "RANKS"] {
            assert_eq!(nearest(known), None);
        }
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!((distance("", "ab"), distance("ab", "")), (2, 2));
    }

    #[test]
    fn values_are_checked_by_their_form() {
        let bad = |variable: &Variable, value: &str| variable.check(value.as_ref()).unwrap_err();
        assert!(bad(&DEVICE, "first").contains("0 or more"));
        assert!(bad(&SILENCE_MS, "99").contains("from 100 to"));
        assert!(bad(&GPU_COPY_ENGINE_FROM, "4M").contains("or never"));
        assert!(bad(&ENGINE, "hardware").contains("software"));
        assert!(bad(&ADDRESS, "node1").contains("address"));
        for (variable, value) in [
            (DEVICE, " 3 "),
            (GPU_COPY_ENGINE_FROM, "never"),
            (ADDRESS, "::1"),
            (NODE, ""),
        ] {
            assert_eq!(variable.check(value.as_ref()), Ok(()));
        }
    }
}
