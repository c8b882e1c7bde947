//! The command line of `tidegate doctor`.

use super::rank;
use crate::info::DeviceChoice;
use crate::options::{JobArgs, JobEnd};
use crate::say::say;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use tidegate_hal::variables::RENDEZVOUS_TIMEOUT;

/// The arguments of `tidegate doctor`.
#[derive(Debug, Args)]
#[command(mut_arg("ranks", |arg| arg.help(RANKS)))]
pub(crate) struct DoctorArgs {
    /// The devices that the ranks take
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,

    /// Also write the report as a page, on the host of rank 0
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,

    /// Seconds for measuring the pairs of ranks, up to 20
    #[arg(long, value_name = "SECONDS", default_value_t = 6, value_parser = clap::value_parser!(u64).range(0..=20))]
    seconds: u64,

    /// Be a rank of the job whose launcher has started this process: `mpirun -n 4 tidegate doctor --rank`
    #[arg(long)]
    rank: bool,

    #[command(flatten)]
    options: JobArgs,
}

/// What `--help` says of the number of ranks.
const RANKS: &str = "Number of ranks; the default is all ranks of --nodes, all slots of --hosts, or one for each GPU \
                     and at least two";

/// Seconds that the ranks wait for each other, if nothing says how long.
const MEET: &str = "20";

impl DoctorArgs {
    pub(crate) fn run(mut self, defaults: &[(&str, &str)]) -> u8 {
        if self.rank {
            let limit = Duration::from_secs(self.seconds);
            return rank::run(self.device, limit, self.html.as_deref());
        }
        let this = match std::env::current_exe() {
            Ok(this) => this,
            Err(error) => {
                say(format_args!("finding this program: {error}"));
                return 1;
            }
        };
        let options = &mut self.options;
        if options.ranks.is_none() && options.nodes.is_none() && options.hosts.is_none() {
            options.ranks = Some(self.device.gpus().max(2));
        }
        options.no_label = true;
        // A rank that finds something ends with an error, of which its report has said all.
        options.quiet = !options.verbose;
        let name = RENDEZVOUS_TIMEOUT.name;
        let of_options = options.envs.iter().any(|(each, _)| each == name)
            || options.exports.iter().any(|(each, _)| each == name);
        if !of_options && std::env::var_os(name).is_none() {
            options.envs.push((name.to_owned(), MEET.to_owned()));
        }
        let there = options.remote_tidegate.clone();
        let mut program: Vec<OsString> = vec![there.unwrap_or(this).into()];
        let (device, seconds) = (self.device.name(), self.seconds.to_string());
        program.extend(
            [
                "doctor",
                "--rank",
                "--device",
                &device,
                "--seconds",
                &seconds,
            ]
            .map(Into::into),
        );
        if let Some(file) = self.html {
            program.extend(["--html".into(), file.into()]);
        }
        let JobEnd { code, is_unread } = self.options.run(program, defaults);
        if code > 1 && !is_unread {
            say(format_args!(
                "the job ends with code {code}, and not with a report"
            ));
        }
        code
    }
}
