//! A file and two holders, in one process and in two.

use std::io::{BufRead, BufReader, Write as _};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::process::{Child, Command, Stdio};

use super::*;

fn record(number: u8) -> Record {
    Record {
        handle: [number; 64],
        device: [number + 1; 16],
        offset: u64::from(number) + 2,
        size: 4096,
    }
}

#[test]
fn a_peer_finds_the_record_that_its_descriptor_means() {
    let exports = Exports::new().unwrap();
    let slots = [1, 2, 3].map(|number| exports.write(record(number)).unwrap());
    let handles = slots.map(|slot| exports.handle(slot).unwrap());
    let imports = Imports::default();
    for (number, handle) in [1, 2, 3].into_iter().zip(&handles) {
        let (_held, found) = imports.hold(handle).unwrap().unwrap();
        assert_eq!(found, record(number));
    }
    for (slot, handle) in slots.iter().zip(&handles) {
        assert_eq!(exports.own(handle).unwrap(), Some(*slot));
    }
    let other = Exports::new().unwrap();
    assert_eq!(other.own(&handles[0]).unwrap(), None);
}

#[test]
fn memory_that_is_mapped_is_not_freed() {
    let exports = Exports::new().unwrap();
    let [first, second] = [1, 2].map(|number| exports.write(record(number)).unwrap());
    let (handle, again) = (
        exports.handle(first).unwrap(),
        exports.handle(first).unwrap(),
    );
    let [one, other] = [Imports::default(), Imports::default()];
    let (held, _) = one.hold(&handle).unwrap().unwrap();
    let (twice, _) = one.hold(&again).unwrap().unwrap();
    let (elsewhere, _) = other.hold(&handle).unwrap().unwrap();
    assert!(!exports.revoke(first).unwrap());
    assert!(exports.revoke(second).unwrap(), "nobody holds this one");
    drop(held);
    assert!(!exports.revoke(first).unwrap(), "it is mapped twice");
    drop(twice);
    assert!(
        !exports.revoke(first).unwrap(),
        "another process has it, too"
    );
    drop(elsewhere);
    assert!(exports.revoke(first).unwrap());
}

#[test]
fn who_comes_too_late_gets_an_error() {
    let exports = Exports::new().unwrap();
    let slot = exports.write(record(1)).unwrap();
    let handle = exports.handle(slot).unwrap();
    assert!(exports.revoke(slot).unwrap());
    let imports = Imports::default();
    assert!(imports.hold(&handle).unwrap().is_none());
    // A later record has a place of its own, and the old descriptor does not mean it.
    let next = exports.write(record(2)).unwrap();
    assert_ne!(next, slot);
    assert!(imports.hold(&handle).unwrap().is_none());
    let later = exports.handle(next).unwrap();
    assert!(imports.hold(later).unwrap().is_some());
    // The attempts have left no lock.
    assert!(exports.revoke(next).unwrap());
    assert!(exports.revoke(slot).unwrap());
}

#[test]
fn records_that_were_cleared_take_no_memory() {
    let exports = Exports::new().unwrap();
    let blocks = || exports.file.metadata().unwrap().blocks();
    let empty = blocks();
    for number in 1..100 {
        let slot = exports.write(record(number)).unwrap();
        assert!(blocks() > empty);
        assert!(exports.revoke(slot).unwrap());
    }
    assert_eq!(blocks(), empty);
}

#[test]
fn a_peer_costs_one_descriptor() {
    let exports = Exports::new().unwrap();
    let imports = Imports::default();
    let held: Vec<_> = (0..20)
        .map(|number| {
            let slot = exports.write(record(number)).unwrap();
            let held = imports.hold(exports.handle(slot).unwrap());
            held.unwrap().unwrap().0
        })
        .collect();
    let files: std::collections::HashSet<_> =
        held.iter().map(|held| held.peer.file.as_raw_fd()).collect();
    assert_eq!(files.len(), 1);
    drop(held);
    let second = Exports::new().unwrap();
    let slot = second.write(record(1)).unwrap();
    let _held = imports.hold(second.handle(slot).unwrap()).unwrap().unwrap();
    assert_eq!(
        tidegate_hal::lock(&imports.0).len(),
        1,
        "the first peer is gone"
    );
}

/// The variable by which a child knows that it is one.
const PEER: &str = "LIFE_TEST_IS_PEER";

/// A peer that is another process: this test, started again, with the descriptor as its standard input.
fn peer(handle: OwnedFd) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "life::tests::a_peer_in_another_process",
            "--nocapture",
        ])
        .env(PEER, "1")
        .stdin(handle)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let said = BufReader::new(child.stdout.take().unwrap());
    (child, said)
}

fn wait_for(said: &mut impl BufRead, word: &str) {
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        assert_ne!(
            said.read_line(&mut line).unwrap(),
            0,
            "it ended before it said {word}"
        );
    }
}

#[test]
fn a_peer_in_another_process() {
    if std::env::var_os(PEER).is_some() {
        let imports = Imports::default();
        let (_held, found) = imports.hold(std::io::stdin()).unwrap().unwrap();
        assert_eq!(found, record(7));
        println!("HELD");
        std::io::stdout().flush().unwrap();
        loop {
            std::thread::park();
        }
    }
    let exports = Exports::new().unwrap();
    let slot = exports.write(record(7)).unwrap();
    let peers = [0, 1].map(|_| peer(exports.handle(slot).unwrap()));
    let mut peers = peers.map(|(child, mut said)| {
        wait_for(&mut said, "HELD");
        child
    });
    assert!(!exports.revoke(slot).unwrap());
    for (index, child) in peers.iter_mut().enumerate() {
        // The peer ends without a chance to do anything.
        child.kill().unwrap();
        child.wait().unwrap();
        assert_eq!(exports.revoke(slot).unwrap(), index == 1);
    }
}
