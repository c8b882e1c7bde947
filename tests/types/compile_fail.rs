//! What must not compile does not, and says why in words that a newcomer can read.
//!
//! `compile_fail/rowNN_*.rs` are misuses, by the rows of "What must not compile"; `compile_fail/attack_*.rs` are
//! attempts to get round the types; `compile_fail/mistake_*.rs` are what people write first, to see that the error leads to
//! the mend; `compile_fail/unused_*.rs` deny what is a warning.
//!
//! Each misuse has a twin that differs from it by the fix alone, compiles, and runs: so it is the misuse that is refused. Both are
//! one file. Lines that end with `// wrong` are not in the twin, and those that begin with `// right: ` only there.
//! `TIDEGATE_BLESS=1 cargo test --test types compile_fail` writes the expected errors anew.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::said::said;

/// The lines in which a misuse and its twin may differ, each way.
const FIX: usize = 5;

/// The compiler, told to check a program against the libraries that cargo has built for this very test.
fn compiler() -> Command {
    let mut words = tidegate_changing::compiler!().into_iter();
    let mut compiler = Command::new(words.next().expect("the compiler's path"));
    while let Some(word) = words.next() {
        if ["--extern", "-L", "--target"].contains(&word) {
            compiler.args([word, words.next().expect("a value")]);
        } else if word.starts_with("--edition") {
            compiler.arg(word);
        }
    }
    // Nothing is linked: what is refused is refused before. A program that nobody runs has code that nobody calls.
    compiler.args(["--emit=metadata", "-A", "dead_code", "--verbose"]);
    compiler.current_dir(env!("CARGO_MANIFEST_DIR"));
    compiler
}

/// What is wrong with a program that must not compile; nothing if it is refused as it should be.
fn look(name: &str, folder: &Path) -> Option<String> {
    let path = format!("tests/compile_fail/{name}.rs");
    let mut compiler = compiler();
    let output = compiler
        .arg(&path)
        .arg("--out-dir")
        .arg(folder)
        .stdin(Stdio::null())
        .output()
        .expect("the compiler runs");
    if output.status.success() {
        return Some(format!("{path} compiles"));
    }
    let root = env!("CARGO_MANIFEST_DIR");
    let found = said(&String::from_utf8_lossy(&output.stderr), &path, root);
    let kept = Path::new(root).join(&path).with_extension("stderr");
    if std::env::var_os("TIDEGATE_BLESS").is_some_and(|text| !text.is_empty()) {
        fs::write(&kept, found).expect("the expected errors can be written");
        return None;
    }
    let expected = fs::read_to_string(&kept).unwrap_or_default();
    (found != expected).then(|| {
        format!(
            "{path}: expected\n{expected}\nfound\n{found}\n(TIDEGATE_BLESS=1 keeps what was found)"
        )
    })
}

#[test]
fn what_must_not_compile_does_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let programs: Vec<_> = programs("compile_fail").into_keys().collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some(name) = programs.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = look(name, folder.path());
            wrong.lock().expect("nobody panics").extend(found);
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let wrong = wrong.into_inner().expect("nobody panics");
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
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

/// The lines of a program that only it has, and those that only its twin has.
fn marked(program: &str) -> (usize, usize) {
    let of = |is_marked: fn(&&str) -> bool| program.lines().filter(is_marked).count();
    (
        of(|line| line.ends_with("// wrong")),
        of(|line| line.trim_start().starts_with("// right: ")),
    )
}

#[test]
fn every_misuse_differs_from_its_twin_by_the_fix() {
    let programs = programs("compile_fail");
    let mut rows = BTreeSet::new();
    for (name, misuse) in programs.iter().filter(|(name, _)| name.starts_with("row")) {
        let (wrong, right) = marked(misuse);
        assert!(
            wrong + right > 0 && wrong <= FIX && right <= FIX,
            "{name}: {wrong} lines for {right}"
        );
        rows.insert(&name[3..5]);
    }
    let all: Vec<_> = (1..=17).map(|row| format!("{row:02}")).collect();
    assert!(rows.iter().eq(all.iter()), "rows {rows:?}");
}
