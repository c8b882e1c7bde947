//! The kernels of Faces may begin while earlier work still runs. For that they promise to wait by themselves
//! (`Function::waits_itself`): this test checks the promise on all ways through the PTX.

#[path = "../../../kernels/flow.rs"]
mod flow;

use std::collections::BTreeSet;

use flow::{always, follow};

const TEXT: &str = tidegate_kernels::FACES_SM_90_PTX;

/// The kernel that owns halves of a window. It never begins early, and nothing begins while it waits for peers.
const ALONE: &str = "faces_shares";

fn waits(line: &str) -> bool {
    line.starts_with("griddepcontrol.wait")
}

fn entries() -> Vec<&'static str> {
    let names = TEXT.lines().filter_map(|line| {
        let name = line.strip_prefix(".visible .entry ")?;
        name.strip_suffix('(')
    });
    names.filter(|name| *name != ALONE).collect()
}

/// The instruction of a line, without its guard.
fn code(line: &str) -> &str {
    match line.strip_prefix('@') {
        Some(rest) => rest.split_once(' ').map_or("", |(_, code)| code.trim()),
        None => line,
    }
}

/// Whether it accesses memory that others reach: by whatever path, also where the compiler does not know which memory
/// it is.
fn accesses(line: &str) -> bool {
    let code = code(line);
    let all = ["ld.", "st.", "red.", "atom.", "cp.", "call"];
    let own = [".param", ".shared", ".local", ".const"];
    let kind = code.split([' ', '\t']).next().unwrap_or("");
    all.iter().any(|start| code.starts_with(start)) && !own.iter().any(|own| kind.contains(own))
}

/// The table of an inbox is in words of 64 bits, and nothing else that they read is.
fn is_table(line: &str) -> bool {
    code(line).starts_with("ld.global.u64")
}

/// The count of epochs, of which one bit is of interest.
fn is_count(line: &str) -> bool {
    let code = code(line);
    code.starts_with("ld.u8") || code.starts_with("ld.global.u8")
}

/// The fault of a kernel, if it has one.
fn check(text: &str, name: &str) -> Result<(), String> {
    let (mut early, mut table, mut counts, mut ends) =
        (Vec::new(), BTreeSet::new(), BTreeSet::new(), 0);
    let mut sees = |at: usize, line: &str, has: bool| {
        let end = code(line).starts_with("ret");
        ends += usize::from(end);
        if is_count(line) {
            counts.insert(at);
        }
        if !has && is_table(line) {
            table.insert(at);
        } else if !has && (end || accesses(line)) {
            early.push(line.to_owned());
        }
    };
    follow(text, name, waits, |_| false, &mut sees);
    // Of a slot: where it is, what the flip is, and where the count of epochs is. A kernel that puts reads a count, too,
    // of what its batches have done.
    let (expected, looks) = match name {
        "faces_unpack" => (3, true),
        "faces_send" => (0, true),
        _ => (0, false),
    };
    let is_right = early.is_empty() && ends > 0;
    if !is_right || table.len() != expected || counts.is_empty() == looks {
        return Err(format!(
            "{name}: {early:?} before the wait, {} words of the table; {} counts",
            table.len(),
            counts.len()
        ));
    }
    Ok(())
}

#[test]
fn they_wait_before_they_touch_what_others_write_and_before_they_end() {
    let names = entries();
    assert_eq!(names.len(), 8, "{names:?}");
    for name in names {
        check(TEXT, name).unwrap();
    }
}

/// The count is read early, and a value written, through pointers whose memory the compiler does not know.
#[test]
fn what_comes_too_early_is_found() {
    let unpack = TEXT.find(".visible .entry faces_unpack(").unwrap();
    let table = unpack + TEXT[unpack..].find("ld.global.u64").unwrap();
    for line in ["ld.u8 %rs1, [%rd1+2];", "st.f64 [%rd1], %fd1;", "ret;"] {
        let (before, behind) = TEXT.split_at(table);
        let wrong = format!("{before}{line}\n\t{behind}");
        assert!(check(&wrong, "faces_unpack").is_err(), "{line}");
    }
    assert!(check(&TEXT.replace("griddepcontrol.wait;", ""), "faces_pack").is_err());
}

#[test]
fn a_kernel_that_waits_for_peers_lets_nothing_come() {
    let begins = TEXT.find(&format!(".visible .entry {ALONE}(")).unwrap();
    let text = &TEXT[begins..];
    let text = &text[..text.find("\n}").unwrap()];
    assert!(!text.contains("griddepcontrol.launch_dependents"));
}

#[test]
fn they_let_the_next_come_first() {
    for name in entries() {
        let lets = |line: &str| line.starts_with("griddepcontrol.launch_dependents");
        let needs = |line: &str| waits(line) || accesses(line);
        assert!(always(TEXT, name, lets, |_| false, needs) > 1, "{name}");
    }
}
