//! The hosts of a job, and the file that lists them.

use crate::error::LaunchError;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use tidegate_boot::starter::MAX_RANKS;

/// A machine for ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostEntry {
    /// The name for ssh.
    pub(super) name: String,
    pub(super) user: Option<String>,
    pub(super) port: Option<u16>,
    slots: usize,
}

impl fmt::Display for HostEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(user) = &self.user {
            write!(f, "{user}@")?;
        }
        f.write_str(&self.name)?;
        match self.port {
            Some(port) => write!(f, " port {port}"),
            None => Ok(()),
        }
    }
}

/// The machines of a job, and how to reach them. The text has one host per line:
///
/// ```
/// use tidegate_cli::Hosts;
///
/// let hosts: Hosts = "
///     node1 slots=4             # ranks 0 to 3
///     alice@node2 port=2222     # rank 4
/// "
/// .parse()?;
/// assert_eq!(hosts.slots(), 5);
/// # Ok::<(), tidegate_cli::LaunchError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hosts {
    all: Vec<HostEntry>,
    pub(super) ssh: Vec<String>,
    pub(super) program: Option<PathBuf>,
    pub(super) address: Option<String>,
}

impl Hosts {
    /// Reads a file of hosts.
    ///
    /// # Errors
    ///
    /// [`LaunchError::HostsFile`] with the line, or [`LaunchError::NoHostsFile`] if the file cannot be read.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use tidegate_cli::{Hosts, Job};
    ///
    /// let hosts = Hosts::read("hosts.txt")?;
    /// let job = Job::new("/opt/solver", hosts.slots()).hosts(hosts);
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    pub fn read(path: impl AsRef<Path>) -> Result<Self, LaunchError> {
        let path = path.as_ref();
        let text = std::fs::read_to_string(path).map_err(|source| LaunchError::NoHostsFile {
            path: path.to_owned(),
            source,
        })?;
        text.parse()
    }

    /// Sets the command that logs in, instead of `ssh`: words with spaces between.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Hosts;
    ///
    /// let hosts = "node1\nnode2".parse::<Hosts>()?.ssh("ssh -i /etc/job_key");
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    #[must_use]
    pub fn ssh(mut self, command: &str) -> Self {
        self.ssh = command.split_whitespace().map(str::to_owned).collect();
        self
    }

    /// Sets the path of the program `tidegate` on the hosts. The default is the path of this program.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Hosts;
    ///
    /// let hosts = "node1\nnode2".parse::<Hosts>()?.program("/opt/bin/tidegate");
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> Self {
        self.program = Some(path.into());
        self
    }

    /// Sets the address at which the others reach the first host. The default is its name in the list.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_cli::Hosts;
    ///
    /// let hosts = "node1\nnode2".parse::<Hosts>()?.address("10.0.0.1"); // of node1, as node2 reaches it
    /// # Ok::<(), tidegate_cli::LaunchError>(())
    /// ```
    #[must_use]
    pub fn address(mut self, address: impl Into<String>) -> Self {
        self.address = Some(address.into());
        self
    }

    /// The number of slots on all hosts.
    pub fn slots(&self) -> usize {
        self.all
            .iter()
            .fold(0, |sum, host| sum.saturating_add(host.slots))
    }

    /// The hosts for this many ranks, with the number of ranks of each. The first hosts are filled first.
    pub(super) fn shares(&self, ranks: usize) -> Vec<(&HostEntry, usize)> {
        let mut left = ranks;
        let take = |host: &'_ HostEntry| {
            let own = host.slots.min(left);
            left -= own;
            own
        };
        let own: Vec<usize> = self.all.iter().map(take).collect();
        let shares = self.all.iter().zip(own);
        shares.filter(|(_, own)| *own > 0).collect()
    }
}

impl FromStr for Hosts {
    type Err = LaunchError;

    fn from_str(text: &str) -> Result<Self, LaunchError> {
        let mut all: Vec<HostEntry> = Vec::new();
        for (number, line) in text.lines().enumerate() {
            let words = line.split('#').next().unwrap_or_default();
            if words.trim().is_empty() {
                continue;
            }
            let host: HostEntry = words.parse().map_err(|reason| LaunchError::HostsFile {
                line: number + 1,
                reason,
            })?;
            let same = |known: &&mut HostEntry| {
                (&known.user, &known.name, known.port) == (&host.user, &host.name, host.port)
            };
            match all.iter_mut().find(same) {
                Some(known) => known.slots += host.slots,
                None => all.push(host),
            }
        }
        if all.is_empty() {
            Err(LaunchError::HostsFile {
                line: 1,
                reason: "it names no host".to_owned(),
            })
        } else {
            Ok(Self {
                all,
                ssh: vec!["ssh".to_owned()],
                program: None,
                address: None,
            })
        }
    }
}

impl FromStr for HostEntry {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let mut words = line.split_whitespace();
        let login = words.next().ok_or("it names no host")?;
        let (user, name) = match login.rsplit_once('@') {
            Some((user, name)) => (Some(user), name),
            None => (None, login),
        };
        let name = name
            .strip_prefix('[')
            .and_then(|name| name.strip_suffix(']'))
            .unwrap_or(name);
        for part in user.into_iter().chain([name]) {
            // ssh would take such a word for an option.
            if part.is_empty() || part.starts_with('-') {
                return Err(format!("{login:?} is no name of a host"));
            }
        }
        if name
            .split_once(':')
            .is_some_and(|(_, rest)| !rest.contains(':'))
        {
            return Err(format!(
                "{login:?} has a colon: a port of ssh is said by `port=N`"
            ));
        }
        let (mut slots, mut port) = (None, None);
        for word in words {
            let wrong = || format!("{word:?} is neither `slots=N` nor `port=N`");
            let (key, value) = word.split_once('=').ok_or_else(wrong)?;
            match key {
                "slots" => {
                    let number = value.parse().ok().filter(|n| (1..=MAX_RANKS).contains(n));
                    slots = Some(number.ok_or_else(wrong)?);
                }
                "port" => {
                    let number = value.parse().ok().filter(|port| *port > 0);
                    port = Some(number.ok_or_else(wrong)?);
                }
                _ => return Err(wrong()),
            }
        }
        Ok(Self {
            name: name.to_owned(),
            user: user.map(str::to_owned),
            port,
            slots: slots.unwrap_or(1),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(text: &str, ranks: usize) -> Vec<(String, usize)> {
        let hosts: Hosts = text.parse().unwrap();
        let shares = hosts.shares(ranks).into_iter();
        shares.map(|(host, own)| (host.to_string(), own)).collect()
    }

    #[test]
    fn a_file_has_a_host_a_line() {
        let text = "# all of them\n\n a slots=2 # two\nbob@b port=2222\n[fe80::1]\n::1 slots=3\n";
        let hosts: Hosts = text.parse().unwrap();
        assert_eq!(hosts.slots(), 7);
        let all = [("a", 2), ("bob@b port 2222", 1), ("fe80::1", 1), ("::1", 3)];
        let all = all.map(|(name, own)| (name.to_owned(), own));
        assert_eq!(shares(text, 7), all);
        assert_eq!(shares(text, 3), all[..2]);
        assert_eq!(shares(text, 1), [("a".to_owned(), 1)]);
    }

    #[test]
    fn lines_of_one_host_add_up() {
        assert_eq!(
            shares("a\nb\na\nc@a\na slots=2", 6),
            [("a", 4), ("b", 1), ("c@a", 1)].map(|(name, own)| (name.to_owned(), own))
        );
    }

    #[test]
    fn a_line_that_names_no_host_is_refused() {
        for bad in [
            "a b",
            "a slots=0",
            "a slots=x",
            "a port=0",
            "a port=70000",
            "a max=3",
            "-oProxyCommand=x",
            "-l@a",
            "@a",
            "a@",
            "a:22",
        ] {
            let error = format!("ok\n{bad}\n").parse::<Hosts>().unwrap_err();
            assert!(
                matches!(error, LaunchError::HostsFile { line: 2, .. }),
                "{bad}: {error}"
            );
        }
        assert!("# nobody\n".parse::<Hosts>().is_err());
    }
}
