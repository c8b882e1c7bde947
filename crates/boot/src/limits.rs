//! Which limit an error of the operating system comes from.

use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::io;

/// Shows an error with the limit that it comes from, if it is one of those that a user can raise.
pub(crate) struct WithLimit<'a>(pub(crate) &'a io::Error);

impl fmt::Display for WithLimit<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)?;
        let limit = |resource| match getrlimit(resource).current {
            Some(limit) => limit.to_string(),
            None => "no limit".to_owned(),
        };
        match Errno::from_io_error(self.0) {
            Some(Errno::MFILE) => write!(
                f,
                "; the limit of open descriptors of a process (RLIMIT_NOFILE, `ulimit -n`) is {}",
                limit(Resource::Nofile)
            ),
            Some(Errno::NFILE) => {
                f.write_str("; the system has too many open files (`sysctl fs.file-max`)")
            }
            // Of what is explained here, only new processes and threads fail so.
            Some(Errno::AGAIN) => write!(
                f,
                "; the limit of processes and threads of this user (RLIMIT_NPROC, `ulimit -u`) is {}, and a control group can \
                 have a limit of its own (pids.max)",
                limit(Resource::Nproc)
            ),
            Some(Errno::NOMEM) => write!(
                f,
                "; the limit of a process's address space (RLIMIT_AS, `ulimit -v`) is {}",
                limit(Resource::As)
            ),
            Some(Errno::FBIG) => write!(
                f,
                "; the limit of file sizes (RLIMIT_FSIZE, `ulimit -f`) is {}",
                limit(Resource::Fsize)
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::WithLimit;
    use std::io;

    #[test]
    fn an_error_names_its_limit() {
        let explained = |number| WithLimit(&io::Error::from_raw_os_error(number)).to_string();
        let names = [
            (24, "RLIMIT_NOFILE"),
            (23, "fs.file-max"),
            (11, "RLIMIT_NPROC"),
            (12, "RLIMIT_AS"),
            (27, "RLIMIT_FSIZE"),
        ];
        for (number, name) in names {
            let text = explained(number);
            assert!(text.contains(name) && text.contains("os error"), "{text}");
        }
        assert_eq!(explained(2), io::Error::from_raw_os_error(2).to_string());
    }
}
