//! The options that describe a job on the command line, but for its program.

use super::bed::BedArgs;
use super::bind::Bind;
use super::error::LaunchError;
use super::hosts::Hosts;
use super::job::{Input, Job, Output};
use super::nodes::Nodes;
use super::outcome::Outcome;
use super::say::say;
use clap::Args;
use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::Duration;

/// The options that describe a job, but for its program.
#[derive(Debug, Args)]
pub struct JobArgs {
    /// Number of ranks; the default is all ranks of --nodes, or all slots of --hosts
    #[arg(short = 'n', long, value_name = "N")]
    pub ranks: Option<usize>,

    /// Act as several nodes, which do not map each other's memory: `2x4` is two nodes of four ranks each, `3,1` is one
    /// of three and one of one
    #[arg(long, value_name = "NODES")]
    pub nodes: Option<Nodes>,

    /// The wire between the nodes
    #[command(flatten)]
    pub bed: BedArgs,

    /// Run on the hosts in this file, one per line, over ssh: `alice@node2 slots=4 port=2222  # ranks 0 to 3`
    ///
    /// A host has one slot unless its line gives another number, and several lines of one host add up. Ranks fill the
    /// hosts in the order of the file. ssh must not ask for a password. The program, the working directory and tidegate
    /// must have the same paths on all hosts. The hosts get variables whose names begin with TIDEGATE_, RUST_LOG,
    /// RUST_BACKTRACE, and those of -x and -e.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["nodes", "netns"])]
    pub hosts: Option<PathBuf>,

    /// How to log in to the hosts: a command and its first arguments, with spaces between; the default is TIDEGATE_SSH,
    /// or `ssh`
    #[arg(long, value_name = "COMMAND", requires = "hosts")]
    pub ssh: Option<String>,

    /// Path of the program tidegate on the hosts; the default is the path of this one
    #[arg(long, value_name = "PATH", requires = "hosts")]
    pub remote_tidegate: Option<PathBuf>,

    /// Address at which the others reach the first host; the default is its name in the file
    #[arg(long, value_name = "ADDRESS", requires = "hosts")]
    pub address: Option<String>,

    /// The part of the machine to which each rank is bound
    #[arg(long, value_name = "TO", default_value = "none")]
    pub bind: Bind,

    /// Do not put `[rank] ` in front of each line of output
    #[arg(long)]
    pub no_label: bool,

    /// Seconds for the other ranks to end by themselves after one has failed, and for all ranks after a signal that
    /// asks the launcher to end. After such a signal, output that nobody reads is kept for as long
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = seconds)]
    pub grace: Duration,

    /// Set a variable for all ranks; may be repeated
    #[arg(short = 'e', long = "env", value_name = "NAME=VALUE", value_parser = variable)]
    pub envs: Vec<(String, String)>,

    /// Give all ranks, on other hosts too, a variable of this environment, or another value for it; may be repeated
    #[arg(short = 'x', long = "export", value_name = "NAME[=VALUE]", value_parser = exported)]
    pub exports: Vec<(OsString, OsString)>,

    /// Report nothing about the ranks: no failures, stopped ranks, signals or lost output
    #[arg(short, long)]
    pub quiet: bool,

    /// Also report to what each rank is bound
    #[arg(short, long, conflicts_with = "quiet")]
    pub verbose: bool,
}

/// How a job of the command line ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct JobEnd {
    /// The exit code of the job.
    pub(crate) code: u8,
    /// Not all output was read. A program that prints more would wait for a reader.
    pub(crate) is_unread: bool,
}

/// The environment variable that says how to log in to hosts.
const SSH: &str = tidegate_hal::variables::SSH.name;

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

fn exported(text: &str) -> Result<(OsString, OsString), String> {
    let (name, value) = match text.split_once('=') {
        Some((name, value)) => (name, Some(value.into())),
        None => (text, std::env::var_os(text)),
    };
    match value {
        _ if name.is_empty() => Err("not NAME or NAME=VALUE".to_owned()),
        Some(value) => Ok((name.into(), value)),
        None => Err("it is not set in this environment".to_owned()),
    }
}

impl JobArgs {
    /// The job that the options describe, without a bed.
    pub(super) fn job(
        self,
        program: Vec<OsString>,
        defaults: &[(&str, &str)],
    ) -> Result<Job, LaunchError> {
        let hosts = self.hosts.map(Hosts::read).transpose()?;
        let mut program = program.into_iter();
        let ranks = self.ranks.or_else(|| Some(self.nodes.as_ref()?.ranks()));
        let ranks = ranks.or_else(|| Some(hosts.as_ref()?.slots()));
        let mut job = Job::new(
            program.next().unwrap_or_default(),
            ranks.unwrap_or_default(),
        )
        .args(program)
        .grace(self.grace)
        .forward_signals(true)
        .explain(!self.quiet)
        .verbose(self.verbose)
        .bind(self.bind)
        .output(if self.no_label {
            Output::Plain
        } else {
            Output::Labelled
        })
        // A process group in the background must not read from a terminal, or it would be stopped.
        .input(if std::io::stdin().is_terminal() {
            Input::Null
        } else {
            Input::Inherited
        });
        if let Some(nodes) = self.nodes {
            job = job.nodes(nodes);
        }
        if let Some(mut hosts) = hosts {
            if let Some(command) = self.ssh.or_else(|| std::env::var(SSH).ok()) {
                hosts = hosts.ssh(&command);
            }
            if let Some(program) = self.remote_tidegate {
                hosts = hosts.program(program);
            }
            if let Some(address) = self.address {
                hosts = hosts.address(address);
            }
            job = job.hosts(hosts);
        }
        // The user's variables come later, and so take precedence.
        for (name, value) in defaults {
            job = job.default_env(name, value);
        }
        for (name, value) in self.exports {
            job = job.env(name, value);
        }
        for (name, value) in self.envs {
            job = job.env(name, value);
        }
        Ok(job)
    }

    /// Runs the job, on its bed if it has one.
    fn outcome(
        mut self,
        program: Vec<OsString>,
        defaults: &[(&str, &str)],
    ) -> Result<Outcome, LaunchError> {
        let explain = !self.quiet;
        let args = std::mem::take(&mut self.bed);
        let bed = match &self.nodes {
            Some(nodes) => args.bed(nodes)?,
            None => None,
        };
        let Some(bed) = bed else {
            return self.job(program, defaults)?.run();
        };
        if explain {
            say(format_args!("{bed}"));
        }
        let job = self.job(program, defaults)?.bed(&bed).spawn()?;
        args.cut_in_time(&bed, explain);
        let outcome = job.wait();
        if let Some(traffic) = bed.traffic().filter(|_| explain && !outcome.is_unread) {
            say(format_args!("the relay: {traffic}"));
        }
        Ok(outcome)
    }

    /// Runs the job.
    pub(super) fn run(self, program: Vec<OsString>, defaults: &[(&str, &str)]) -> JobEnd {
        match self.outcome(program, defaults) {
            Ok(outcome) => JobEnd {
                code: outcome.exit_code().max(outcome.is_lost.into()),
                is_unread: outcome.is_unread,
            },
            Err(error) => {
                say(format_args!("{error}"));
                JobEnd {
                    code: error.exit_code(),
                    is_unread: false,
                }
            }
        }
    }
}
