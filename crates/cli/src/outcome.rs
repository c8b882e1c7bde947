//! How a job ended.

use std::process::ExitStatus;
use std::time::Duration;

/// How one rank ended.
///
/// # Examples
///
/// ```
/// use tidegate_cli::{Job, Output};
///
/// let outcome = Job::new("pwd", 2).output(Output::Captured).run()?;
/// for (rank, ended) in outcome.ranks.iter().enumerate() {
///     println!("rank {rank}, process {}: {} after {:?}", ended.pid, ended.status, ended.after);
/// }
/// # Ok::<(), tidegate_cli::LaunchError>(())
/// ```
#[derive(Clone)]
#[non_exhaustive]
pub struct RankOutcome {
    /// Its process number.
    pub pid: u32,
    /// How it ended.
    pub status: ExitStatus,
    /// Its stdout, if that was captured.
    pub stdout: Vec<u8>,
    /// Its stderr, if that was captured.
    pub stderr: Vec<u8>,
    /// When it ended, counted from the start of the job.
    pub after: Duration,
    /// The rank because of which a call of this one failed, as far as this one has told. Its own failure followed from
    /// that, if it failed.
    pub because_of: Option<usize>,
}

impl std::fmt::Debug for RankOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RankOutcome")
            .field("pid", &self.pid)
            .field("status", &self.status)
            .field("stdout", &String::from_utf8_lossy(&self.stdout))
            .field("stderr", &String::from_utf8_lossy(&self.stderr))
            .field("after", &self.after)
            .field("because_of", &self.because_of)
            .finish()
    }
}

/// How a job ended.
///
/// # Examples
///
/// ```
/// use tidegate_cli::Job;
///
/// let outcome = Job::new("true", 2).run()?;
/// match outcome.first_failure {
///     None => println!("all {} ranks have ended well", outcome.ranks.len()),
///     Some(rank) => println!("rank {rank} has failed first: {}", outcome.ranks[rank].status),
/// }
/// # assert!(outcome.success());
/// # Ok::<(), tidegate_cli::LaunchError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Outcome {
    /// The outcome of each rank.
    pub ranks: Vec<RankOutcome>,
    /// The rank that failed first. Others may have failed because of it, and ended before it.
    pub first_failure: Option<usize>,
    /// Not all output was read. A caller that prints more would wait for a reader.
    pub(crate) is_unread: bool,
    /// Some of the output is lost.
    pub(crate) is_lost: bool,
}

impl Outcome {
    /// Whether all ranks ended with status 0.
    pub fn success(&self) -> bool {
        self.first_failure.is_none()
    }

    /// The exit code of the job: 0 if no rank failed; else that of the rank that failed first, or 128 plus the number
    /// of its signal.
    pub fn exit_code(&self) -> u8 {
        let failed = self.first_failure.and_then(|rank| self.ranks.get(rank));
        failed.map_or(0, |rank| code_of(rank.status))
    }
}

fn code_of(status: ExitStatus) -> u8 {
    use std::os::unix::process::ExitStatusExt;
    let code = status.code().or(status.signal().map(|signal| 128 + signal));
    code.and_then(|code| u8::try_from(code).ok()).unwrap_or(1)
}
