//! The command line of the launcher.

use super::doctor::DoctorArgs;
use super::error::LaunchError;
use super::hosts::agent;
use super::info::InfoArgs;
use super::job::Job;
use super::options::JobArgs;
use super::say::say;
use super::signals::{keep_ends_of_children, survive_file_limits};
use super::trace::{TraceArgs, traced};
use clap::{Args, Parser, Subcommand};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use tidegate_hal::limits::WithLimit;
use tidegate_hal::variables::TRACE;

/// The command line of `tidegate`.
#[derive(Debug, Parser)]
#[command(
    name = "tidegate",
    version,
    about = "Starts tidegate jobs, and looks at them"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Subcommands,
}

#[derive(Debug, Subcommand)]
enum Subcommands {
    /// Start a program as the ranks of one job: on this host, which may act as several nodes, or on several hosts
    Run(Box<RunArgs>),
    /// Say what this machine has, which variables count, and how the ranks of a job reach each other
    Info(Box<InfoArgs>),
    /// Say what is wrong with a job and what to do about it, and how fast each pair of ranks is
    Doctor(Box<DoctorArgs>),
    /// Say what the ranks of a traced job did when, and which of them waited for which
    Trace(Box<TraceArgs>),
    /// The command that `run --hosts` starts on each host
    #[command(hide = true)]
    Node,
}

/// The arguments of `tidegate run`.
#[derive(Debug, Args)]
#[command(mut_arg("ranks", |arg| arg.required_unless_present_any(["nodes", "hosts"])))]
pub struct RunArgs {
    /// The options of the job
    #[command(flatten)]
    pub options: JobArgs,

    /// Let the ranks write what they do to this folder, and tell of it after the job: see `tidegate trace`
    ///
    /// Files of ranks from an earlier trace in the folder are removed. With --hosts, the folder must be one that all
    /// hosts share; otherwise collect the files, and call `tidegate trace`.
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,

    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

impl Cli {
    /// Does what the command line asks for, and returns the exit code of the job. `defaults` are variables that ranks
    /// get if nothing else sets them.
    ///
    /// # Examples
    ///
    /// ```
    /// use clap::Parser;
    /// use tidegate_cli::Cli;
    ///
    /// let cli = Cli::try_parse_from(["tidegate", "run", "-n", "2", "false"]).unwrap();
    /// assert_eq!(cli.run(&[]), 1); // what `false` exits with
    /// ```
    pub fn run(self, defaults: &[(&str, &str)]) -> u8 {
        keep_ends_of_children();
        survive_file_limits();
        match self.command {
            Subcommands::Run(args) => args.run(defaults),
            Subcommands::Info(args) => args.run(defaults),
            Subcommands::Doctor(args) => args.run(defaults),
            Subcommands::Trace(args) => args.run(),
            Subcommands::Node => agent(),
        }
    }
}

impl RunArgs {
    /// The job that the arguments describe, without a bed and without [`trace`](Self::trace).
    ///
    /// # Errors
    ///
    /// If the file of hosts cannot be read, or is invalid.
    ///
    /// # Examples
    ///
    /// ```
    /// use clap::Parser;
    /// use tidegate_cli::RunArgs;
    ///
    /// #[derive(Parser)]
    /// struct Own {
    ///     #[command(flatten)]
    ///     run: RunArgs,
    /// }
    ///
    /// let own = Own::try_parse_from(["own", "-n", "2", "true"]).unwrap();
    /// let outcome = own.run.job(&[("OMP_NUM_THREADS", "1")])?.run()?;
    /// assert!(outcome.success());
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn job(self, defaults: &[(&str, &str)]) -> Result<Job, LaunchError> {
        self.options.job(self.program, defaults)
    }

    /// Runs the job, and returns its exit code.
    fn run(mut self, defaults: &[(&str, &str)]) -> u8 {
        let Some(folder) = self.trace.take() else {
            return self.options.run(self.program, defaults).code;
        };
        traced(&folder, |folder| {
            self.options.exports.push((TRACE.name.into(), folder));
            self.options.run(self.program, defaults)
        })
    }
}

/// The usual stack size of a main thread.
const STACK: usize = 8 << 20;

/// The whole program `tidegate`; see [`Cli::run`].
///
/// # Examples
///
/// ```no_run
/// fn main() -> std::process::ExitCode {
///     tidegate_cli::main(&[("OMP_NUM_THREADS", "1")])
/// }
/// ```
pub fn main(defaults: &[(&str, &str)]) -> ExitCode {
    // A thread's stack does not depend on `ulimit -s`, while the main thread's does.
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
