//! The test programs of the workspace. Their names divide `cargo test --workspace` into commands that may run beside
//! each other. (Naming packages would not help, since cargo would unify features again, and rebuild most of the
//! workspace.)

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The names of the test programs that need no feature, sorted.
pub(crate) fn test_programs(root: &Path) -> Result<BTreeSet<String>, String> {
    let mut packages = vec![root.to_owned()];
    packages.extend(entries(&root.join("crates"))?);
    let mut names = BTreeSet::new();
    for package in packages {
        let manifest = fs::read_to_string(package.join("Cargo.toml"))
            .map_err(|error| format!("{}: {error}", package.display()))?;
        for test in entries(&package.join("tests"))? {
            let name = test
                .file_stem()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let is_program = test.extension().is_some_and(|extension| extension == "rs")
                || test.join("main.rs").is_file();
            if is_program && !needs_a_feature(&manifest, &name) {
                names.insert(name);
            }
        }
    }
    Ok(names)
}

/// The contents of a folder; nothing if it does not exist.
fn entries(folder: &Path) -> Result<Vec<PathBuf>, String> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let error = |error| format!("{}: {error}", folder.display());
    let entries = fs::read_dir(folder).map_err(error)?;
    entries
        .map(|entry| Ok(entry.map_err(error)?.path()))
        .collect()
}

/// Whether the manifest says that the test program needs a feature. Cargo refuses to build such a program by name
/// without it.
fn needs_a_feature(manifest: &str, test: &str) -> bool {
    let mut tables = manifest.split("\n[");
    let name = format!("name = \"{test}\"");
    tables.any(|table| {
        table.starts_with("[test]]")
            && table.lines().any(|line| line == name)
            && table.contains("\nrequired-features")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_in_files_and_folders() {
        let names = test_programs(&crate::step::root()).unwrap();
        for name in ["host", "alone", "gpu", "protocol", "forget"] {
            assert!(names.contains(name), "{name}");
        }
        // Folders of modules are no programs; `mpi` and `job` need an MPI.
        for name in ["common", "counting", "mpi", "job"] {
            assert!(!names.contains(name), "{name}");
        }
    }
}
