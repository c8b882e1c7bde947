//! A command of a step: it is built once, printed so that it can be pasted into a shell, and then executed.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::Path;
use std::process::{Command, Stdio};

/// A program with its arguments and the environment variables that matter.
pub(crate) struct Cmd {
    program: OsString,
    args: Vec<OsString>,
    envs: Vec<(&'static str, OsString)>,
    hidden_envs: Vec<(&'static str, OsString)>,
    is_beside: bool,
}

/// A command from one line, split at white space. Use [`Cmd::arg`] for an argument that may contain a space.
pub(crate) fn cmd(line: &str) -> Cmd {
    let mut words = line.split_whitespace().map(OsString::from);
    let program = words.next().expect("a command names a program");
    Cmd {
        program,
        args: words.collect(),
        envs: Vec::new(),
        hidden_envs: Vec::new(),
        is_beside: false,
    }
}

impl Cmd {
    /// Adds one argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.args.push(arg.as_ref().to_owned());
        self
    }

    /// Adds arguments from one line, split at white space.
    pub(crate) fn args(mut self, line: &str) -> Self {
        self.args
            .extend(line.split_whitespace().map(OsString::from));
        self
    }

    /// Sets an environment variable for this command.
    pub(crate) fn env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.envs.push((name, value.as_ref().to_owned()));
        self
    }

    /// Sets an environment variable that is not printed, since it is of no use in a shell.
    pub(crate) fn hidden_env(mut self, name: &'static str, value: impl AsRef<OsStr>) -> Self {
        self.hidden_envs.push((name, value.as_ref().to_owned()));
        self
    }

    /// Lets it run at the same time as the command before it, and as those beside which that one may run. It is for a
    /// command that keeps at most one processor busy, and can wait longer without harm.
    pub(crate) fn beside(mut self) -> Self {
        self.is_beside = true;
        self
    }

    /// Whether it may run beside the command before it.
    pub(crate) fn is_beside(&self) -> bool {
        self.is_beside
    }

    /// Whether it runs only some tests, by the arguments behind `--`, which cargo passes on. Then at least one must
    /// pass.
    pub(crate) fn chooses_tests(&self) -> bool {
        let has = |word: &str| self.args.iter().any(|arg| arg == word);
        self.program == "cargo" && has("test") && has("--")
    }

    /// The command, ready to be started in `dir`.
    ///
    /// Standard input is closed, since no check may ask a question. The variables by which cargo describes *this*
    /// package (`CARGO_PKG_NAME`, ...) are removed. Otherwise build scripts that watch them would run again whenever
    /// they are called in another way.
    pub(crate) fn to_command(&self, dir: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .current_dir(dir)
            .stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            let described = ["CARGO_PKG_", "CARGO_MANIFEST_"];
            if name
                .to_str()
                .is_some_and(|name| described.iter().any(|prefix| name.starts_with(prefix)))
            {
                command.env_remove(name);
            }
        }
        let envs = self.envs.iter().chain(&self.hidden_envs);
        command.envs(envs.map(|(name, value)| (name, value)));
        command
    }
}

impl fmt::Display for Cmd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.envs {
            write!(f, "{name}={} ", quote(value))?;
        }
        f.write_str(&quote(&self.program))?;
        for arg in &self.args {
            write!(f, " {}", quote(arg))?;
        }
        Ok(())
    }
}

/// The word, quoted for a shell.
fn quote(word: &OsStr) -> String {
    let word = word.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.into_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_as_a_shell_reads_it() {
        let command = cmd("cargo test --workspace")
            .env("RUSTFLAGS", "--cfg loom")
            .arg("it's");
        assert_eq!(
            command.to_string(),
            r"RUSTFLAGS='--cfg loom' cargo test --workspace 'it'\''s'"
        );
    }
}
