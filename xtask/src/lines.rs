//! `cargo xtask lines`: how much code there is to read, package by package.
//!
//! A line counts if it has something besides comments and white space. Tests, benchmarks and examples do not count.
//! Generated files (whose first line says `@generated`) are counted separately.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::ops::AddAssign;
use std::path::Path;
use std::process::ExitCode;

use self::scan::Scanned;
use crate::args::Args;
use crate::changed::git;
use crate::step::root;

mod scan;

/// Packages of programs that users run, and that no other program contains.
const PROGRAMS: [&str; 1] = ["crates/cli"];

/// Packages that users never build: tools, benchmarks, and code for tests.
const NOT_SHIPPED: [&str; 8] = [
    "crates/bench",
    "crates/fake",
    "crates/fake-cuda",
    "crates/loopback",
    "crates/testbed",
    "tests/changing",
    "xtask",
    "xtask/imports",
];

/// Folders of a package that are no part of its library or programs.
const NO_CODE: [&str; 4] = ["tests", "benches", "examples", "fuzz"];

/// Lines of code.
#[derive(Clone, Copy, Default, Debug, PartialEq)]
struct Lines {
    written: usize,
    generated: usize,
    tests: usize,
}

impl AddAssign for Lines {
    fn add_assign(&mut self, other: Self) {
        self.written += other.written;
        self.generated += other.generated;
        self.tests += other.tests;
    }
}

/// Runs the task.
pub(crate) fn main(mut args: Args) -> Result<ExitCode, String> {
    let all = args.flag("--all");
    args.finish()?;
    let root = root();
    let listed = git(
        &root,
        &[
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.rs",
            "*Cargo.toml",
        ],
    )?;
    let mut texts = BTreeMap::new();
    let mut packages = BTreeSet::new();
    for path in listed.lines() {
        if let Some(package) = path.strip_suffix("Cargo.toml") {
            packages.insert(package.trim_end_matches('/').to_owned());
        } else if let Ok(text) = fs::read_to_string(root.join(path)) {
            // A file that git lists may have been deleted.
            texts.insert(path.to_owned(), text);
        }
    }
    let files = count(&texts, &packages);
    let mut of_packages: BTreeMap<&str, Lines> = BTreeMap::new();
    for (path, lines) in &files {
        *of_packages.entry(package_of(path, &packages)).or_default() += *lines;
    }
    let group = |package: &str| match package {
        _ if PROGRAMS.contains(&package) => "programs",
        _ if NOT_SHIPPED.contains(&package) => "not shipped",
        _ => "the library",
    };
    for title in ["the library", "programs", "not shipped"] {
        let rows = of_packages
            .iter()
            .filter(|(package, _)| group(package) == title);
        print_table(title, rows.map(|(package, lines)| (*package, *lines)));
    }
    if all {
        let mut files: Vec<_> = files.into_iter().filter(|(_, it)| it.written > 0).collect();
        files.sort_by_key(|(_, lines)| std::cmp::Reverse(lines.written));
        print_table("files", files.into_iter());
    }
    Ok(ExitCode::SUCCESS)
}

fn print_table<N: AsRef<str>>(title: &str, rows: impl Iterator<Item = (N, Lines)>) {
    println!("{title:44} {:>8} {:>9} {:>8}", "code", "generated", "tests");
    let mut sum = Lines::default();
    let row = |name: &str, it: Lines| {
        println!(
            "  {name:42} {:8} {:9} {:8}",
            it.written, it.generated, it.tests
        );
    };
    for (name, lines) in rows {
        let name = name.as_ref();
        row(
            if name.is_empty() {
                "(the facade)"
            } else {
                name
            },
            lines,
        );
        sum += lines;
    }
    row("together", sum);
    println!();
}

/// The folder of a file's package: the nearest one above it.
fn package_of<'a>(path: &str, packages: &'a BTreeSet<String>) -> &'a str {
    let mut folders = Path::new(path).ancestors().skip(1);
    let package = folders.find_map(|folder| packages.get(folder.to_str()?));
    package.map_or("", String::as_str)
}

/// Counts each file.
fn count(texts: &BTreeMap<String, String>, packages: &BTreeSet<String>) -> BTreeMap<String, Lines> {
    let scanned: BTreeMap<&String, Scanned> = texts
        .iter()
        .map(|(path, text)| (path, scan::scan(text)))
        .collect();
    // Modules of tests: their files, and the folders of their child modules.
    let mut tests = Vec::new();
    for (path, scanned) in &scanned {
        for module in &scanned.test_modules {
            tests.push(module_at(path, module));
        }
    }
    let is_test = |path: &str| {
        let package = package_of(path, packages);
        let inside = Path::new(
            path.strip_prefix(package)
                .unwrap_or(path)
                .trim_start_matches('/'),
        );
        let mut names = inside.iter().filter_map(|name| name.to_str());
        names.any(|name| NO_CODE.contains(&name) || name == "tests.rs")
            || tests.iter().any(|module| {
                let rest = path.strip_prefix(module.as_str());
                rest.is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
            })
    };
    let lines = |path: &str, scanned: &Scanned| {
        let (code, tests) = (scanned.code, scanned.tests);
        if is_test(path) {
            return Lines {
                tests: code + tests,
                ..Lines::default()
            };
        }
        let generated = texts[path]
            .lines()
            .next()
            .is_some_and(|line| line.contains("@generated"));
        let (written, generated) = if generated { (0, code) } else { (code, 0) };
        Lines {
            written,
            generated,
            tests,
        }
    };
    let counted = scanned
        .iter()
        .map(|(path, scanned)| ((*path).clone(), lines(path, scanned)));
    counted.collect()
}

/// The path of a child module of the module in this file, without `.rs`.
fn module_at(path: &str, module: &scan::Module) -> String {
    let path = Path::new(path);
    let folder = path.parent().unwrap_or(Path::new(""));
    let child = match &module.path {
        Some(told) => folder.join(told.trim_end_matches(".rs")),
        None => {
            let stem = path.file_stem().and_then(|stem| stem.to_str());
            match stem {
                Some("lib" | "main" | "mod") | None => folder.join(&module.name),
                Some(stem) => folder.join(stem).join(&module.name),
            }
        }
    };
    child.display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(files: &[(&str, &str)]) -> BTreeMap<String, Lines> {
        let texts = files
            .iter()
            .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()));
        let packages = ["", "crates/a"].map(str::to_owned);
        count(&texts.collect(), &packages.into())
    }

    #[test]
    fn files_of_tests_are_told_by_name_and_by_declaration() {
        let counted = counted(&[
            ("crates/a/src/lib.rs", "#[cfg(test)]\nmod model;\nmod b;\n"),
            ("crates/a/src/model.rs", "fn one() {}\n"),
            ("crates/a/src/model/deep.rs", "fn one() {}\n"),
            ("crates/a/src/models.rs", "fn one() {}\n"),
            (
                "crates/a/src/b.rs",
                "#[cfg(test)]\n#[path = \"c_tests.rs\"]\nmod it;\n",
            ),
            ("crates/a/src/c_tests.rs", "fn one() {}\n"),
            ("crates/a/tests/d.rs", "fn one() {}\n"),
            ("tests/e.rs", "fn one() {}\n"),
            ("src/f.rs", "// @generated by hand\nfn one() {}\n"),
        ]);
        let lines = |written, generated, tests| Lines {
            written,
            generated,
            tests,
        };
        assert_eq!(counted["crates/a/src/lib.rs"], lines(1, 0, 2));
        for test in [
            "crates/a/src/model.rs",
            "crates/a/src/model/deep.rs",
            "crates/a/src/c_tests.rs",
            "crates/a/tests/d.rs",
            "tests/e.rs",
        ] {
            assert_eq!(counted[test], lines(0, 0, 1), "{test}");
        }
        assert_eq!(counted["crates/a/src/models.rs"], lines(1, 0, 0));
        assert_eq!(counted["src/f.rs"], lines(0, 1, 0));
    }

    #[test]
    fn a_file_belongs_to_the_nearest_package() {
        let packages = ["", "xtask", "xtask/imports"].map(str::to_owned).into();
        for (path, package) in [
            ("src/lib.rs", ""),
            ("xtask/src/a.rs", "xtask"),
            ("xtask/imports/src/a.rs", "xtask/imports"),
        ] {
            assert_eq!(package_of(path, &packages), package);
        }
    }
}
