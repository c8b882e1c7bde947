//! The command line of the launcher.

use super::bed::BedArgs;
use super::error::LaunchError;
use super::job::{Input, Job, Output};
use super::nodes::Nodes;
use super::outcome::Outcome;
use super::say::say;
use super::signals::{keep_ends_of_children, survive_file_limits};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::Duration;
use tidegate_hal::limits::WithLimit;

/// The command line of `tidegate`.
#[derive(Debug, Parser)]
#[command(name = "tidegate", version, about = "Starts tidegate jobs")]
pub struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Start a program as the ranks of one job on this host, which may act as several nodes
    Run(RunArgs),
}

/// The arguments of `tidegate run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// How many ranks; with --nodes as many as those have
    #[arg(short = 'n', long, value_name = "N", required_unless_present = "nodes")]
    pub ranks: Option<usize>,

    /// Act as several nodes, which do not map each other's memory: `2x4` are two of four ranks each, `3,1` one of three
    /// and one of one
    #[arg(long, value_name = "NODES")]
    pub nodes: Option<Nodes>,

    /// What is between the nodes
    #[command(flatten)]
    pub bed: BedArgs,

    /// Do not put `[rank] ` in front of each line of output
    #[arg(long)]
    pub no_label: bool,

    /// Seconds that the other ranks get to end by themselves when one has failed
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub grace: Duration,

    /// Set a variable for all ranks; may be repeated
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub envs: Vec<(String, String)>,

    /// Say nothing about ranks that fail
    #[arg(short, long)]
    pub quiet: bool,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let seconds: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string())
}

fn variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.to_owned(), value.to_owned())),
        _ => Err("not NAME=VALUE".to_owned()),
    }
}

impl Cli {
    /// Does what the command line asks for; the exit code of the job. `defaults` are variables that ranks get where
    /// nobody has set them.
    pub fn run(self, defaults: &[(&str, &str)]) -> u8 {
        keep_ends_of_children();
        survive_file_limits();
        match self.command {
            Subcommands::Run(args) => args.run(defaults),
        }
    }
}

impl RunArgs {
    /// The job that is asked for, without a bed.
    pub fn job(self, defaults: &[(&str, &str)]) -> Job {
        let mut program = self.program.into_iter();
        let ranks = self.ranks.or_else(|| Some(self.nodes.as_ref()?.ranks()));
        let mut job = Job::new(
            program.next().unwrap_or_default(),
            ranks.unwrap_or_default(),
        )
        .args(program)
        .grace(self.grace)
        .forward_signals(true)
        .explain(!self.quiet)
        .output(if self.no_label {
            Output::Plain
        } else {
            Output::Labelled
        })
        // A process group in the background must not read from a terminal: it would be stopped.
        .input(if std::io::stdin().is_terminal() {
            Input::Null
        } else {
            Input::Inherited
        });
        if let Some(nodes) = self.nodes {
            job = job.nodes(nodes);
        }
        // What the user sets comes later, and so counts.
        for (name, value) in defaults {
            job = job.default_env(name, value);
        }
        for (name, value) in self.envs {
            job = job.env(name, value);
        }
        job
    }

    /// Runs the job, on its bed if it is to have one.
    fn outcome(mut self, defaults: &[(&str, &str)]) -> Result<Outcome, LaunchError> {
        let explain = !self.quiet;
        let args = std::mem::take(&mut self.bed);
        let bed = match &self.nodes {
            Some(nodes) => args.bed(nodes)?,
            None => None,
        };
        let Some(bed) = bed else {
            return self.job(defaults).run();
        };
        if explain {
            say(format_args!("{bed}"));
        }
        let job = self.job(defaults).bed(&bed).spawn()?;
        args.cut_in_time(&bed, explain);
        let outcome = job.wait();
        if let Some(traffic) = bed.traffic().filter(|_| explain && !outcome.is_unread) {
            say(format_args!("the relay: {traffic}"));
        }
        Ok(outcome)
    }

    fn run(self, defaults: &[(&str, &str)]) -> u8 {
        match self.outcome(defaults) {
            Ok(outcome) => outcome.exit_code().max(outcome.is_lost.into()),
            Err(error) => {
                say(format_args!("{error}"));
                let kind = match &error {
                    LaunchError::Spawn { source, .. } => Some(source.kind()),
                    _ => None,
                };
                // The codes that shells use.
                match kind {
                    Some(std::io::ErrorKind::NotFound) => 127,
                    Some(_) => 126,
                    None => 1,
                }
            }
        }
    }
}

/// As much as main threads usually have.
const STACK: usize = 8 << 20;

/// The whole of the program `tidegate`; see [`Cli::run`].
pub fn main(defaults: &[(&str, &str)]) -> ExitCode {
    // A thread's stack does not depend on `ulimit -s`, as the main thread's does.
    let builder = std::thread::Builder::new().stack_size(STACK);
    let code = std::thread::scope(|scope| {
        let run = builder.spawn_scoped(scope, || Cli::parse().run(defaults));
        run.map(|thread| thread.join())
    });
    match code {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(panic)) => std::panic::resume_unwind(panic),
        Err(error) => {
            let error = WithLimit(&error);
            say(format_args!("starting the launcher's thread: {error}"));
            ExitCode::FAILURE
        }
    }
}
