//! The command line of `tidegate info`.

use super::device::DeviceChoice;
use super::variables::{self, Setting};
use super::{machine, rank};
use crate::options::JobArgs;
use crate::say::{print, say};
use clap::Args;
use std::ffi::OsString;

/// The arguments of `tidegate info`.
#[derive(Debug, Args)]
pub(crate) struct InfoArgs {
    /// Also list the variables that are not set, with their defaults
    #[arg(short, long)]
    all: bool,

    /// The devices that the ranks take
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    device: DeviceChoice,

    /// Be a rank of the job whose launcher has started this process: `mpirun -n 4 tidegate info --rank`
    #[arg(long)]
    rank: bool,

    /// This machine and the variables have been told of: be a rank, and tell of the job only
    #[arg(long, hide = true)]
    job_only: bool,

    /// The options of the job
    #[command(flatten)]
    options: JobArgs,
}

impl InfoArgs {
    pub(crate) fn run(self, defaults: &[(&str, &str)]) -> u8 {
        if self.rank || self.job_only {
            return rank::run(self.device, |out| match self.job_only {
                true => Ok(()),
                false => self.here(&[], out),
            });
        }
        let options = &self.options;
        let has_job = options.ranks.is_some() || options.nodes.is_some() || options.hosts.is_some();
        let mut text = Vec::new();
        let job_defaults = if has_job { defaults } else { &[] };
        if let Err(error) = self.here(job_defaults, &mut text) {
            say(format_args!("{error}"));
            return 1;
        }
        match print(&text) {
            true if has_job => self.job(defaults),
            printed => (!printed).into(),
        }
    }

    /// Tells of this machine and its variables.
    fn here(&self, defaults: &[(&str, &str)], out: &mut Vec<u8>) -> std::io::Result<()> {
        let settings = Setting::all(&self.options, defaults);
        variables::problems(&settings, out)?;
        machine::tell(out)?;
        variables::tell(&settings, self.all, out)
    }

    /// Starts the ranks.
    fn job(mut self, defaults: &[(&str, &str)]) -> u8 {
        let this = match std::env::current_exe() {
            Ok(this) => this,
            Err(error) => {
                say(format_args!("finding this program: {error}"));
                return 1;
            }
        };
        self.options.no_label = true;
        let there = self.options.remote_tidegate.clone();
        let mut program: Vec<OsString> = vec![there.unwrap_or(this).into()];
        let device = self.device.name();
        program.extend(["info", "--job-only", "--device", &device].map(Into::into));
        self.options.run(program, defaults).code
    }
}
