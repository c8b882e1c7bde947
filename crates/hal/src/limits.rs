//! Which limit a refusal of the system has met.

use std::fs::File;
use std::io::Read;

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use crate::error::DeviceError;

/// The error for what the system refused while it was `doing` something that takes `bytes` of memory: a shortage, with
/// the name of the limit, where it is one.
#[cold]
pub fn refused(doing: &'static str, bytes: usize, error: Errno) -> DeviceError {
    let (what, limit) = match error {
        Errno::MFILE => ("descriptors", no_descriptors()),
        Errno::NFILE => (
            "descriptors",
            "the machine may have no more open files (/proc/sys/fs/file-max)".to_owned(),
        ),
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

/// What is said where a process may open no more descriptors.
pub fn no_descriptors() -> String {
    let most = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    format!("this process may have no more than {most} open (RLIMIT_NOFILE, `ulimit -n`)")
}

fn no_memory(bytes: usize) -> (&'static str, String) {
    const MOST: &str = "/proc/sys/vm/max_map_count";
    let most = number(MOST).unwrap_or(u64::MAX);
    // A few may have gone since.
    if lines("/proc/self/maps").is_some_and(|count| count + 8 >= most) {
        let limit = format!("this process may have no more than {most} mappings ({MOST})");
        return ("mappings", limit);
    }
    // In pages.
    let used = number("/proc/self/statm").unwrap_or(0) * rustix::param::page_size() as u64;
    let limit = getrlimit(Resource::As).current;
    if let Some(limit) = limit.filter(|limit| used.saturating_add(bytes as u64) > *limit) {
        let limit =
            format!("this process may have no more than {limit} bytes (RLIMIT_AS, `ulimit -v`)");
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

/// How many lines a file has. There may be no memory for all of it.
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
