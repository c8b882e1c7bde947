//! `cargo xtask weight`: how much a user of the library downloads: the published packages, and the other crates that a
//! build for the host alone needs.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::args::Args;
use crate::step::root;

/// The most other crates that the library may need without its default features.
const MOST_CRATES: usize = 25;
/// The largest package that crates.io accepts.
const MOST_BYTES: u64 = 10 << 20;

/// Runs the task.
pub(crate) fn main(args: Args) -> Result<ExitCode, String> {
    args.finish()?;
    let root = root();
    let mut code = ExitCode::SUCCESS;
    let crates = crates(&root)?;
    println!("{} other crates for the host alone:", crates.len());
    println!(
        "    {}",
        crates.iter().cloned().collect::<Vec<_>>().join(", ")
    );
    if crates.len() > MOST_CRATES {
        println!("that is more than {MOST_CRATES}");
        code = ExitCode::FAILURE;
    }
    for (name, bytes) in packages(&root.join("target/package"))? {
        println!("{:>7.1} kB  {name}", bytes as f64 / 1e3);
        if bytes > MOST_BYTES {
            println!("that is more than {MOST_BYTES} bytes");
            code = ExitCode::FAILURE;
        }
    }
    Ok(code)
}

/// The other crates in a build without default features.
fn crates(root: &Path) -> Result<BTreeSet<String>, String> {
    const TREE: &str = "tree -p tidegate --no-default-features -e normal,build --prefix none";
    let output = Command::new("cargo")
        .args(TREE.split(' '))
        .current_dir(root)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("cargo: {error}"))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`cargo {TREE}` fails: {}", said.trim()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let named = text.lines().filter_map(|line| {
        let (name, rest) = line.split_once(' ')?;
        Some(format!("{name} {}", rest.split(' ').next()?))
    });
    Ok(named.filter(|name| !name.starts_with("tidegate")).collect())
}

/// The packages that `cargo package` has left in a folder: names and sizes.
fn packages(folder: &Path) -> Result<Vec<(String, u64)>, String> {
    let why = |error| format!("{}: {error} (`cargo package` makes it)", folder.display());
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).map_err(why)? {
        let entry = entry.map_err(why)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.ends_with(".crate") {
            all.push((name, entry.metadata().map_err(why)?.len()));
        }
    }
    all.sort();
    Ok(all)
}
