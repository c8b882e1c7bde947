//! What has changed: since this branch left `main`, or in the last commit where it is `main`; and what is not committed.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

/// What git says; nothing where there is no git, or no such thing.
fn git(root: &Path, args: &[&str]) -> String {
    let mut git = Command::new("git");
    git.args(args).current_dir(root).stdin(Stdio::null());
    let output = git.stderr(Stdio::null()).output();
    let said = output.ok().filter(|output| output.status.success());
    said.map_or_else(String::new, |output| {
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    })
}

/// The commit with which the tree is compared.
pub(crate) fn base(root: &Path) -> String {
    let fork = ["origin/main", "main"].map(|main| git(root, &["merge-base", "HEAD", main]));
    let head = git(root, &["rev-parse", "HEAD"]);
    let mut bases = fork
        .into_iter()
        .filter(|base| !base.is_empty() && *base != head);
    bases.next().unwrap_or_else(|| "HEAD~".to_owned())
}

/// The lines that differ.
pub(crate) fn diff(root: &Path) -> String {
    git(root, &["diff", "-U0", &base(root)])
}

/// How many commits there are up to this one: another number with each.
pub(crate) fn commits(root: &Path) -> u64 {
    git(root, &["rev-list", "--count", "HEAD"])
        .parse()
        .unwrap_or(0)
}

/// The packages of which a file has changed.
pub(crate) fn packages(root: &Path) -> BTreeSet<String> {
    let changed = git(root, &["diff", "--name-only", &base(root)]);
    let new = git(root, &["ls-files", "--others", "--exclude-standard"]);
    let files = changed.lines().chain(new.lines());
    files.filter_map(|file| package(root, file)).collect()
}

/// The package that a file belongs to: the nearest above it.
fn package(root: &Path, file: &str) -> Option<String> {
    let folders = Path::new(file).ancestors().skip(1);
    let mut manifests =
        folders.filter_map(|folder| fs::read_to_string(root.join(folder).join("Cargo.toml")).ok());
    let name = |manifest: String| {
        let package = manifest.split_once("[package]")?.1.to_owned();
        let mut lines = package.lines();
        let line = lines.find_map(|line| line.strip_prefix("name = "))?;
        Some(line.trim_matches('"').to_owned())
    };
    manifests.find_map(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_belong_to_the_nearest_package() {
        let root = crate::steps::root();
        for (file, name) in [
            ("xtask/src/changed.rs", "xtask"),
            ("crates/core/src/window/mod.rs", "tidegate-core"),
            ("tests/changing/src/lib.rs", "tidegate-changing"),
            ("tests/host/main.rs", "tidegate"),
            ("README.md", "tidegate"),
        ] {
            assert_eq!(package(&root, file).as_deref(), Some(name), "{file}");
        }
    }
}
