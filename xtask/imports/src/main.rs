//! Finds files that import each other in a cycle: `cargo xtask imports`, which is also the step `imports` of
//! `cargo xtask test`.
//!
//! To read one file of a cycle, one must read all of them. So files form layers: a file imports only from layers below
//! it.
//!
//! A file imports another if one of its paths names something that the other file defines, through any re-exports.
//! Paths in `use`, expressions, types, patterns and the tokens of macros count. A parent that declares its child, or
//! re-exports the child's items without using them, imports nothing. Code for tests counts only in test programs.

mod graph;
mod read;
mod resolve;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::{fs, thread};

use serde_json::Value;

use crate::resolve::Edges;
use crate::tree::{FileId, Tree};

const HOW_TO_MEND: &str = "\
Move what two files of a cycle both need to a file of its own, which imports neither. Put an `impl` block beside the type
that stands higher: `impl Lower { fn upper(&self) -> Upper }` belongs into the file of `Upper`. Let a `mod.rs` only declare,
document and re-export. Import a name from the file that defines it, or through its parent's re-export.";

fn main() -> ExitCode {
    let names: Vec<String> = std::env::args().skip(1).collect();
    match run(&names) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("imports: {why}");
            ExitCode::from(2)
        }
    }
}

/// Checks the packages of these names, or all. Returns whether they have no cycles.
fn run(names: &[String]) -> Result<bool, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2);
    let root = root.expect("this package lies two folders below the repository's root");
    let mut packages = packages(root)?;
    if let Some(name) = names.iter().find(|name| !packages.contains_key(*name)) {
        let known: Vec<_> = packages.keys().map(String::as_str).collect();
        let known = known.join(", ");
        return Err(format!("there is no package `{name}`; there are {known}"));
    }
    packages.retain(|name, _| names.is_empty() || names.contains(name));
    let reports = reports(root, &packages)?;
    let mut bad = Vec::new();
    for (package, report) in &reports {
        println!("{package}: {} cycles", report.cycles);
        print!("{}", report.text);
        if report.cycles > 0 {
            bad.push(package);
        }
    }
    for package in &bad {
        println!("\n{package} has import cycles");
    }
    if !bad.is_empty() {
        println!("\n{HOW_TO_MEND}");
    }
    Ok(bad.is_empty())
}

/// A target of a package.
struct Target {
    /// Its kind and name, for a reader.
    name: String,
    root: PathBuf,
    is_test: bool,
}

/// The workspace's packages with their targets, as cargo sees them.
fn packages(root: &Path) -> Result<BTreeMap<String, Vec<Target>>, String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["metadata", "--no-deps", "--offline", "--format-version=1"]);
    let output = cargo.current_dir(root).output();
    let output = output.map_err(|why| format!("cannot start cargo: {why}"))?;
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        return Err(format!("`cargo metadata` fails: {why}"));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)
        .map_err(|why| format!("`cargo metadata` says no JSON: {why}"))?;
    let mut packages = BTreeMap::new();
    for package in array(&metadata["packages"])? {
        let mut targets = Vec::new();
        for target in array(&package["targets"])? {
            let kind = text(&target["kind"][0])?;
            targets.push(Target {
                name: format!("{kind} {}", text(&target["name"])?),
                root: text(&target["src_path"])?.into(),
                is_test: kind == "test",
            });
        }
        packages.insert(text(&package["name"])?.to_owned(), targets);
    }
    Ok(packages)
}

fn array(value: &Value) -> Result<&Vec<Value>, String> {
    let array = value.as_array();
    array.ok_or_else(|| format!("`cargo metadata` has no list where it should: {value}"))
}

fn text(value: &Value) -> Result<&str, String> {
    let text = value.as_str();
    text.ok_or_else(|| format!("`cargo metadata` has no text where it should: {value}"))
}

/// The cycles of a package.
#[derive(Default)]
struct Report {
    cycles: usize,
    text: String,
}

/// Checks all targets, on as many threads as there are processors.
fn reports(
    root: &Path,
    packages: &BTreeMap<String, Vec<Target>>,
) -> Result<BTreeMap<String, Report>, String> {
    let targets = packages
        .iter()
        .flat_map(|(package, targets)| targets.iter().map(move |target| (package, target)));
    let targets: Vec<_> = targets.collect();
    let workers = thread::available_parallelism().map_or(1, usize::from);
    let look = |worker: usize| {
        let own = targets.iter().enumerate().skip(worker).step_by(workers);
        let look = own.map(|(at, (_, target))| (at, report(root, target)));
        look.collect::<Vec<_>>()
    };
    let mut found = thread::scope(|scope| {
        let workers: Vec<_> = (0..workers)
            .map(|worker| scope.spawn(move || look(worker)))
            .collect();
        let found = workers
            .into_iter()
            .map(|it| it.join().expect("no worker panics"));
        found.flatten().collect::<Vec<_>>()
    });
    found.sort_by_key(|(at, _)| *at);
    let mut reports = BTreeMap::<String, Report>::new();
    for (at, report) in found {
        let report = report?;
        let (package, _) = targets[at];
        let all = reports.entry(package.clone()).or_default();
        all.cycles += report.cycles;
        all.text += &report.text;
    }
    Ok(reports)
}

/// The cycles of one target.
fn report(root: &Path, target: &Target) -> Result<Report, String> {
    let load = |path: &Path| fs::read_to_string(root.join(path));
    let file = target.root.strip_prefix(root).unwrap_or(&target.root);
    let tree = read::read(file, target.is_test, load)?;
    let edges = resolve::edges(&tree);
    let mut report = Report::default();
    for cycle in cycles(&tree, &edges) {
        report.cycles += 1;
        report.text += &describe(&tree, &edges, &cycle, &target.name);
    }
    Ok(report)
}

/// The cycles of a tree, each with its files in order.
fn cycles(tree: &Tree, edges: &Edges<'_>) -> Vec<Vec<FileId>> {
    let mut next = vec![Vec::new(); tree.files.len()];
    for (from, to) in edges.keys() {
        next[*from].push(*to);
    }
    let mut cycles = graph::cycles(&next);
    for cycle in &mut cycles {
        cycle.sort_by_key(|file| &tree.files[*file]);
    }
    cycles
}

/// A cycle as text: its files, and the lines where each imports another.
fn describe(tree: &Tree, edges: &Edges<'_>, cycle: &[FileId], target: &str) -> String {
    let name = |file: FileId| tree.files[file].display();
    let mut text = format!("  {} files of {target} import each other:\n", cycle.len());
    for &file in cycle {
        // Writing to a string does not fail.
        let _ = writeln!(text, "    {}", name(file));
    }
    let inside = edges
        .iter()
        .filter(|((from, to), _)| cycle.contains(from) && cycle.contains(to));
    let mut lines: Vec<_> = inside.collect();
    lines.sort_by_key(|((from, _), mention)| (&tree.files[*from], mention.line));
    for ((from, to), mention) in lines {
        let (line, path) = (mention.line, mention.path.join("::"));
        let _ = writeln!(
            text,
            "  {}:{line} imports {path} from {}",
            name(*from),
            name(*to)
        );
    }
    text
}
