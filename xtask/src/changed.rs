//! The changes since this branch left `main`, or in the last commit on `main` itself; and those that are not committed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// The output of git.
pub(crate) fn git(root: &Path, args: &[&str]) -> Result<String, String> {
    let mut git = Command::new("git");
    let output = git
        .args(args)
        .current_dir(root)
        .stdin(Stdio::null())
        .output();
    let why = match output {
        Ok(output) if output.status.success() => {
            return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
        }
        Ok(output) => String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        Err(error) => error.to_string(),
    };
    Err(format!("`git {}` fails: {why}", args.join(" ")))
}

/// The commit with which the tree is compared; none if there is no earlier commit, as in a clone of depth 1.
fn base(root: &Path) -> Result<Option<String>, String> {
    let head = git(root, &["rev-parse", "HEAD"])?;
    // Either may be missing.
    let mut forks = ["origin/main", "main"]
        .into_iter()
        .filter_map(|main| git(root, &["merge-base", "HEAD", main]).ok());
    let fork = forks.find(|fork| *fork != head);
    Ok(fork.or_else(|| git(root, &["rev-parse", "--verify", "HEAD~"]).ok()))
}

/// The lines that differ; none if there is nothing to compare with.
pub(crate) fn diff(root: &Path) -> Result<String, String> {
    match base(root)? {
        Some(base) => git(root, &["diff", "-U0", &base]),
        None => Ok(String::new()),
    }
}

/// The variable that makes a run take the same parts as another run.
const TURN: &str = "TIDEGATE_TURN";

/// Which of `parts` parts this run takes, for checks that take too long for each run. The hash of the commit decides,
/// so the part changes with each commit, in a clone of any depth.
pub(crate) fn turn(root: &Path, parts: usize) -> Result<usize, String> {
    // A number that is divisible by 2, 3 and 5, and that is short enough to be typed.
    const TURNS: u64 = 30;
    let turn = match std::env::var(TURN) {
        Ok(turn) => turn
            .parse()
            .map_err(|_| format!("{TURN} is `{turn}`, which is no number"))?,
        Err(_) => {
            let hash = git(root, &["rev-parse", "--short=12", "HEAD"])?;
            let hash = u64::from_str_radix(&hash, 16);
            let hash = hash.map_err(|why| format!("HEAD is no number: {why}"))?;
            usize::try_from(hash % TURNS).expect("it is small")
        }
    };
    println!(
        "part {} of {parts}; {TURN}={turn} repeats this choice",
        turn % parts + 1
    );
    Ok(turn % parts)
}

/// The packages with changed files, and whether each has a library.
pub(crate) fn packages(root: &Path) -> Result<BTreeMap<String, bool>, String> {
    let base = base(root)?.ok_or(
        "there is no commit before this one, so it is not known what has changed (`git fetch --deepen 1` gets it)",
    )?;
    let changed = git(root, &["diff", "--name-only", &base])?;
    let new = git(root, &["ls-files", "--others", "--exclude-standard"])?;
    let files = changed.lines().chain(new.lines());
    Ok(files.filter_map(|file| package(root, file)).collect())
}

/// The package of a file (the nearest above it), and whether it has a library.
fn package(root: &Path, file: &str) -> Option<(String, bool)> {
    let mut folders = Path::new(file)
        .ancestors()
        .skip(1)
        .map(|folder| root.join(folder));
    folders.find_map(|folder| {
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).ok()?;
        let (_, package) = manifest.split_once("[package]")?;
        let line = package
            .lines()
            .find_map(|line| line.strip_prefix("name = "))?;
        let name = line.trim_matches('"').to_owned();
        Some((name, folder.join("src/lib.rs").is_file()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_nearest_package() {
        let root = crate::step::root();
        for (file, name) in [
            ("xtask/src/changed.rs", "xtask"),
            ("crates/core/src/window/mod.rs", "tidegate-core"),
            ("tests/changing/src/lib.rs", "tidegate-changing"),
            ("tests/host/main.rs", "tidegate"),
            ("README.md", "tidegate"),
        ] {
            let has_library = name != "xtask";
            let package = package(&root, file);
            assert_eq!(package, Some((name.to_owned(), has_library)), "{file}");
        }
    }

    #[test]
    fn a_git_that_fails_is_an_error() {
        let nowhere = Path::new("/proc");
        for error in [diff(nowhere).err(), packages(nowhere).err()] {
            let error = error.expect("there is no repository");
            assert!(error.contains("`git rev-parse HEAD` fails: "), "{error}");
        }
        assert!(turn(nowhere, 3).is_err() || std::env::var_os(TURN).is_some());
    }
}
