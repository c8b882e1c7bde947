//! What is left of a bed. One test, alone in its program: numbers of namespaces are used again.

use std::process::Command;
use tidegate_testbed::{Bed, WireChoice};

#[test]
fn nothing_is_left() {
    for wire in [WireChoice::Auto, WireChoice::Relay] {
        let builder = Bed::builder(2).wire(wire);
        for builder in [builder.clone(), builder.user_namespace()] {
            let Some(bed) = builder.build_or_skip("nothing_is_left") else {
                continue;
            };
            let mut command = Command::new("readlink");
            command.arg("/proc/self/ns/net");
            bed.enter(1, &mut command);
            let name = command.output().unwrap().stdout;
            let name = String::from_utf8(name).unwrap().trim().to_owned();
            assert!(name.starts_with("net:["), "{name}");
            assert!(is_held(&name), "{wire:?}");
            // It holds the namespace that it would enter.
            drop(command);
            drop(bed);
            assert!(!is_held(&name), "{wire:?}: {name}");
            assert_eq!(children(), Vec::<String>::new());
        }
    }
}

/// Whether this process has a descriptor of a namespace.
fn is_held(name: &str) -> bool {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap();
    let mut targets = fds.filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
    targets.any(|target| target.as_os_str() == name)
}

fn children() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let of = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("children")).ok();
    let lists = tasks.filter_map(|task| of(task.ok()?));
    lists
        .flat_map(|list| {
            list.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .collect()
}
