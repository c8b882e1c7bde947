//! The command line. It is too simple to need a parser from elsewhere (`Cargo.toml` says why that matters here).

/// The arguments not yet taken. A task takes what it knows, then calls [`Args::finish`], which refuses the rest.
pub(crate) struct Args {
    rest: Vec<String>,
}

impl Args {
    pub(crate) fn new(args: impl IntoIterator<Item = String>) -> Self {
        Self {
            rest: args.into_iter().collect(),
        }
    }

    /// Takes the task's name, which is the first argument. `--help` and `-h` count as `help` at any place.
    pub(crate) fn task(&mut self) -> Option<String> {
        if self.flag("--help") | self.flag("-h") {
            return Some("help".to_owned());
        }
        (!self.rest.is_empty()).then(|| self.rest.remove(0))
    }

    /// Takes a flag. Returns whether it was given.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.rest.len();
        self.rest.retain(|arg| arg != name);
        self.rest.len() != before
    }

    /// Takes every value of an option that may have several: `--only a b`, `--only a,b`, `--only=a --only b`.
    /// `None` if the option was not given.
    pub(crate) fn values(&mut self, name: &str) -> Result<Option<Vec<String>>, String> {
        let mut found = None;
        let mut at = 0;
        while at < self.rest.len() {
            let taken: Vec<String> = if self.rest[at] == name {
                let end = self.rest[at + 1..]
                    .iter()
                    .position(|arg| arg.starts_with('-'))
                    .map_or(self.rest.len(), |len| at + 1 + len);
                self.rest.drain(at..end).skip(1).collect()
            } else if let Some(value) = self.rest[at]
                .strip_prefix(name)
                .and_then(|arg| arg.strip_prefix('='))
            {
                let value = value.to_owned();
                self.rest.remove(at);
                vec![value]
            } else {
                at += 1;
                continue;
            };
            let values: Vec<String> = taken
                .iter()
                .flat_map(|arg| arg.split(','))
                .filter(|v| !v.is_empty())
                .map(str::to_owned)
                .collect();
            if values.is_empty() {
                return Err(format!("{name} needs a value"));
            }
            found.get_or_insert_with(Vec::new).extend(values);
        }
        Ok(found)
    }

    /// All arguments that have not been taken, for another program.
    pub(crate) fn rest(self) -> Vec<String> {
        self.rest
    }

    /// Refuses arguments that have not been taken.
    pub(crate) fn finish(self) -> Result<(), String> {
        match self.rest.first() {
            None => Ok(()),
            Some(arg) => Err(format!(
                "unexpected argument `{arg}`; `cargo xtask help` says what there is"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args::new(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn values_in_every_spelling() {
        let mut args = args("test --only a b,c --list --only=d");
        assert_eq!(args.task().as_deref(), Some("test"));
        assert_eq!(
            args.values("--only").unwrap().unwrap(),
            ["a", "b", "c", "d"]
        );
        assert!(args.flag("--list"));
        assert_eq!(args.values("--skip").unwrap(), None);
        args.finish().unwrap();
    }

    #[test]
    fn refuses_what_it_does_not_know() {
        assert!(args("--only --list").values("--only").is_err());
        assert!(args("--only=").values("--only").is_err());
        assert!(args("--onyl fmt").finish().unwrap_err().contains("--onyl"));
    }

    #[test]
    fn help_is_a_task() {
        assert_eq!(args("test --help").task().as_deref(), Some("help"));
        assert_eq!(args("").task(), None);
    }
}
