//! What must not compile does not, and says why in words that a newcomer can read.
//!
//! `compile_fail/rowNN_*.rs` are misuses, by the rows of "What must not compile"; `compile_fail/attack_*.rs` are
//! attempts to get round the types; `compile_fail/unused_*.rs` deny what is a warning. Each misuse has a twin of the same name in `compile_pass/`, which differs from it
//! by the fix alone, compiles, and runs: so it is the misuse that is refused.
//! `TRYBUILD=overwrite cargo test --test types compile_fail` writes the expected errors anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The lines in which a misuse and its twin may differ, each way.
const FIX: usize = 5;

#[test]
fn what_must_not_compile_does_not() {
    trybuild::TestCases::new().compile_fail("tests/compile_fail/*.rs");
}

/// The names of the programs in a folder of the tests, with their texts.
fn programs(folder: &str) -> BTreeMap<String, String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    fs::read_dir(folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be listed").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "rs"))
        .map(|path| {
            let name = path.file_stem().expect("it has a name").to_string_lossy();
            let text = fs::read_to_string(&path).expect("it can be read");
            (name.into_owned(), text)
        })
        .collect()
}

/// How many lines of `one` the other does not have.
fn lines_without(one: &str, other: &str) -> usize {
    let mut left: BTreeMap<&str, usize> = BTreeMap::new();
    other
        .lines()
        .for_each(|line| *left.entry(line.trim()).or_default() += 1);
    let missing = |line: &&str| match left.get_mut(line.trim()) {
        Some(count @ 1..) => {
            *count -= 1;
            false
        }
        _ => true,
    };
    one.lines().filter(missing).count()
}

#[test]
fn every_misuse_has_a_twin_that_differs_by_the_fix() {
    let (misuses, twins) = (programs("compile_fail"), programs("compile_pass"));
    let listed = include_str!("compile_pass.rs");
    let listed: BTreeSet<_> = listed.lines().map(str::trim).collect();
    let mut rows = BTreeSet::new();
    for (name, misuse) in misuses.iter().filter(|(name, _)| name.starts_with("row")) {
        let twin = twins
            .get(name)
            .unwrap_or_else(|| panic!("{name} has no twin"));
        assert!(
            listed.contains(&name[..]),
            "{name} is not in compile_pass.rs"
        );
        let (more, less) = (lines_without(misuse, twin), lines_without(twin, misuse));
        assert!(
            misuse != twin && more <= FIX && less <= FIX,
            "{name}: {more} lines for {less}"
        );
        rows.insert(&name[3..5]);
    }
    let all: Vec<_> = (1..=17).map(|row| format!("{row:02}")).collect();
    assert!(rows.iter().eq(all.iter()), "rows {rows:?}");
    let strays: Vec<_> = twins
        .keys()
        .filter(|name| name.starts_with("row") && !misuses.contains_key(*name))
        .collect();
    assert!(strays.is_empty(), "twins of nothing: {strays:?}");
}
