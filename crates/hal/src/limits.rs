//! Which limit of the system a refused call has met.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::DeviceError;

/// The error for a refused system call, which was made while `doing` something that takes `bytes` bytes of memory. If
/// the system was short of something, the error names the limit.
#[cold]
pub fn refused(doing: &'static str, bytes: usize, error: Errno) -> DeviceError {
    let (what, limit) = match error {
        Errno::MFILE => ("descriptors", no_descriptors()),
        Errno::NFILE => ("descriptors", NO_FILES.to_owned()),
        Errno::NOMEM | Errno::NOSPC | Errno::AGAIN => no_memory(bytes),
        other => {
            let detail = other.to_string();
            return DeviceError::System {
                what: doing,
                detail,
            };
        }
    };
    let detail = format!("{doing} ({bytes} bytes): {limit}");
    DeviceError::Exhausted { what, detail }
}

/// Shows an error of the system. If it comes from a limit that a user can raise, it names the limit, too.
#[derive(Debug)]
pub struct WithLimit<'a>(pub &'a io::Error);

impl fmt::Display for WithLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let limit = match Errno::from_io_error(self.0) {
            Some(Errno::MFILE) => no_descriptors(),
            Some(Errno::NFILE) => NO_FILES.to_owned(),
            // The calls that report errors in this way fail with `EAGAIN` only for lack of processes or threads.
            Some(Errno::AGAIN) => {
                let most = no_more(
                    Resource::Nproc,
                    "processes and threads",
                    "RLIMIT_NPROC, `ulimit -u`",
                );
                format!("{most}; a control group can allow fewer (pids.max)")
            }
            Some(Errno::NOMEM) => no_memory(STACK).1,
            Some(Errno::FBIG) => no_larger_files(),
            _ => return Ok(()),
        };
        write!(f, ": {limit}")
    }
}

/// About how much of the address space a new thread takes.
const STACK: usize = 8 << 20;
const NO_FILES: &str = "the machine may have no more open files (/proc/sys/fs/file-max)";

/// The message for a process that may open no more descriptors.
pub fn no_descriptors() -> String {
    no_more(
        Resource::Nofile,
        "descriptors",
        "RLIMIT_NOFILE, `ulimit -n`",
    )
}

/// The message for a file, or memory for peers, that may not be as large as needed.
pub fn no_larger_files() -> String {
    no_more(
        Resource::Fsize,
        "bytes in a file",
        "RLIMIT_FSIZE, `ulimit -f`",
    )
}

fn no_more(resource: Resource, what: &str, name: &str) -> String {
    match getrlimit(resource).current {
        Some(most) => format!("this process may have no more than {most} {what} ({name})"),
        None => format!("this process may have any number of {what} ({name})"),
    }
}

fn no_memory(bytes: usize) -> (&'static str, String) {
    const MOST: &str = "/proc/sys/vm/max_map_count";
    let most = number(MOST).unwrap_or(u64::MAX);
    // A few mappings may have been removed since the refusal.
    if lines("/proc/self/maps").is_some_and(|count| count + 8 >= most) {
        let limit = format!("this process may have no more than {most} mappings ({MOST})");
        return ("mappings", limit);
    }
    // The file counts in pages.
    let used = number("/proc/self/statm").unwrap_or(0) * rustix::param::page_size() as u64;
    let limit = getrlimit(Resource::As).current;
    if limit.is_some_and(|limit| used.saturating_add(bytes as u64) > limit) {
        let limit = no_more(Resource::As, "bytes", "RLIMIT_AS, `ulimit -v`");
        return ("address space", limit);
    }
    ("memory", "the system has no more to give".to_owned())
}

/// The number that a file begins with.
fn number(path: &str) -> Option<u64> {
    let mut start = [0; 32];
    let count = File::open(path).ok()?.read(&mut start).ok()?;
    let digits = start[..count]
        .iter()
        .take_while(|byte| byte.is_ascii_digit());
    let number = digits.fold(0u64, |sum, digit| sum * 10 + u64::from(digit - b'0'));
    Some(number)
}

/// How many lines a file has. It reads piece by piece, because there may be no memory for the whole file.
fn lines(path: &str) -> Option<u64> {
    let (mut file, mut piece, mut lines) = (File::open(path).ok()?, [0; 4096], 0);
    loop {
        match file.read(&mut piece).ok()? {
            0 => return Some(lines),
            count => lines += piece[..count].iter().filter(|byte| **byte == b'\n').count() as u64,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_its_limit() {
        let said = |number| WithLimit(&io::Error::from_raw_os_error(number)).to_string();
        let names = [
            (24, "RLIMIT_NOFILE"),
            (23, "file-max"),
            (11, "RLIMIT_NPROC"),
            (27, "RLIMIT_FSIZE"),
        ];
        for (number, name) in names {
            let text = said(number);
            assert!(text.contains(name) && text.contains("os error"), "{text}");
        }
        assert_eq!(said(2), io::Error::from_raw_os_error(2).to_string());
    }

    #[test]
    fn a_refusal_names_the_limit_that_was_met() {
        let said = |error| refused("mapping", 1 << 20, error).to_string();
        assert!(said(Errno::MFILE).contains("RLIMIT_NOFILE"));
        assert!(said(Errno::NFILE).contains("file-max"));
        assert!(said(Errno::NOMEM).contains("out of memory: mapping (1048576 bytes)"));
        assert!(matches!(
            refused("mapping", 1, Errno::PERM),
            DeviceError::System { .. }
        ));
        assert!(lines("/proc/self/maps").unwrap() > 5);
        assert!(number("/proc/sys/vm/max_map_count").unwrap() > 1000);
    }
}
