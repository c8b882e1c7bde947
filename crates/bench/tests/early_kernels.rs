//! The kernels of Faces may begin while what stands before them is at work: what they promise for it
//! (`Function::waits_itself`), on all ways through the PTX that is loaded then.

#[path = "../../kernels/flow.rs"]
mod flow;

use std::collections::BTreeSet;

use flow::{always, follow};

const TEXT: &str = tidegate_kernels::FACES_SM_90_PTX;

fn waits(line: &str) -> bool {
    line.starts_with("griddepcontrol.wait")
}

fn entries() -> Vec<&'static str> {
    let names = TEXT.lines().filter_map(|line| {
        let name = line.strip_prefix(".visible .entry ")?;
        name.strip_suffix('(')
    });
    names.collect()
}

#[test]
fn they_wait_before_they_touch_what_others_write_and_before_they_end() {
    let names = entries();
    assert_eq!(names.len(), 7, "{names:?}");
    for name in names {
        let needs = |line: &str| {
            // A guarded instruction is one, too.
            let code = match line.strip_prefix('@') {
                Some(rest) => rest.split_once(' ').map_or("", |(_, code)| code.trim()),
                None => line,
            };
            // But for the table of an inbox, in words of 64 bits, all that is read are values.
            let reads = code.starts_with("ld.global") && !code.starts_with("ld.global.u64");
            let writes = ["st.global", "red.", "atom."];
            reads || writes.iter().any(|start| code.starts_with(start)) || code.starts_with("ret")
        };
        assert!(always(TEXT, name, waits, |_| false, needs) > 1, "{name}");
        // Of a slot: where it is, what the flip is, and where the count of epochs is; not the count.
        let (mut table, mut behind) = (BTreeSet::new(), BTreeSet::new());
        follow(
            TEXT,
            name,
            waits,
            |_| false,
            |at, line, has| {
                if line.contains("ld.global.u64") {
                    if has { &mut behind } else { &mut table }.insert(at);
                }
            },
        );
        let expected = if name == "faces_unpack" { 3 } else { 0 };
        assert_eq!(table.len(), expected, "{name}");
        assert_eq!(
            behind.len() > table.len(),
            expected > 0,
            "{name}: {behind:?}"
        );
    }
}

#[test]
fn they_let_the_next_come_first() {
    for name in entries() {
        let lets = |line: &str| line.starts_with("griddepcontrol.launch_dependents");
        let needs =
            |line: &str| waits(line) || line.contains("ld.global.") || line.contains("st.global.");
        assert!(always(TEXT, name, lets, |_| false, needs) > 1, "{name}");
    }
}
