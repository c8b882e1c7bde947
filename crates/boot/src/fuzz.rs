//! Bytes that nobody should have sent, for all that reads bytes of others. Nothing panics, believes them, or allocates
//! out of proportion.
//!
//! `cargo xtask soak` runs this with many more cases.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use proptest::prelude::*;

use crate::hop::{self, Hop};
use crate::launchers::{environment, read, record, slurm};
use crate::link::{Body, Framer, Unframer};
use crate::secret::Key;
use crate::{door, handshake};

/// The longest sequence of random bytes.
const LONGEST: usize = 400;
/// Bytes that may be asked for, in all, while one sequence of bytes is read. Each part of a hop may be as short as three
/// bytes, and takes some 200 in memory.
const MOST_BYTES: usize = 1 << 16;

/// The system's allocator, which counts the bytes that each thread asks for.
struct Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

thread_local! {
    static ASKED: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: everything is done by the system's allocator; counting touches no memory but the counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ASKED.set(ASKED.get() + layout.size());
        // SAFETY: the caller's promises are those of the system's allocator.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: as above; the system's allocator made it.
        unsafe { System.dealloc(ptr, layout) }
    }
}

fn key() -> Key {
    Key::of_job(b"a key for tests", "", 2)
}

fn decode(body: &[u8]) {
    if let Ok(hop) = hop::decode(body) {
        assert_eq!(hop::decode(&hop.encode()), Ok(hop));
    }
}

/// Reads a stream of frames, in pieces of `piece` bytes, after `good` frames that are genuine. Returns how many
/// messages were found: never more than the genuine ones, since nobody can guess a tag.
fn read_stream(bytes: &[u8], piece: usize, good: usize) -> usize {
    let mut framer = Framer::new(key());
    let mut stream = Vec::new();
    for _ in 0..good {
        let frame = framer.frame(&Body::of(&Hop::Again));
        stream.extend(frame.parts().concat());
    }
    stream.extend_from_slice(bytes);
    let mut unframer = Unframer::new(key());
    let mut found = 0;
    for piece in stream.chunks(piece) {
        unframer.feed(piece);
        loop {
            match unframer.next() {
                Ok(Some(_)) => found += 1,
                Ok(None) => break,
                Err(_) => return found,
            }
        }
    }
    found
}

/// Whether the proof of a caller is believed.
fn check_proof(bytes: &[u8]) -> bool {
    let mut proof = [0; handshake::PROOF_LEN];
    let len = bytes.len().min(proof.len());
    proof[..len].copy_from_slice(&bytes[..len]);
    handshake::check_proof(&proof, &[7; 32], &key(), 2).is_ok()
}

/// Whether the proof of a rank of the same node is believed.
fn check_guest(bytes: &[u8]) -> bool {
    door::check_hello(&key(), &[3; 16], bytes).is_some()
}

/// Reads what a launcher's server may have said, in both protocols. Returns the number of answers.
fn read_launcher(bytes: &[u8]) -> usize {
    let mut found = 0;
    for take in [read::line, read::message] {
        let mut rest = bytes;
        while let Ok(Some((used, answer))) = take(rest) {
            assert!(used > 0 && used <= rest.len());
            read_record(answer.get("value").unwrap_or_default());
            rest = &rest[used..];
            found += 1;
        }
    }
    read_record(&String::from_utf8_lossy(bytes));
    found
}

/// Reads the value of a launcher's store.
fn read_record(piece: &str) {
    let mut line = String::new();
    if record::add_piece(&mut line, piece).is_ok()
        && let Ok(record) = record::Record::parse(&line)
    {
        assert!(!record.addresses.is_empty());
        assert!(record.reachable(&record.loopback).len() == record.addresses.len());
    }
}

/// What launchers of PMI-1 and PMI-2 answer.
fn answers() -> [Vec<u8>; 2] {
    let secret = "5e".repeat(32);
    let record = format!(".tidegate1,{secret},{secret},10.0.0.1:4000,[fd00::1]:4000");
    let lines = format!("cmd=barrier_out rc=0\ncmd=get_result rc=0 value={record}\n");
    let fence = "cmd=kvs-fence-response;rc=0;";
    let get = format!("cmd=kvs-get-response;found=TRUE;value={record};rc=0;");
    [
        lines.into_bytes(),
        [read::frame(fence), read::frame(&get)].concat(),
    ]
}

/// Random bytes, or something genuine with some bits, bytes or its length changed.
fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let random = prop::collection::vec(any::<u8>(), 0..LONGEST);
    let message = hop::tests::any_hop().prop_map(|hop| hop.encode());
    let genuine = prop_oneof![2 => message, 1 => prop::sample::select(answers().to_vec())];
    let changes = prop::collection::vec((0..5, any::<prop::sample::Index>(), any::<u8>()), 0..4);
    let damaged = (genuine, changes).prop_map(|(mut bytes, changes)| {
        for (change, at, by) in changes {
            let at = at.index(bytes.len().max(1));
            match (change, bytes.get_mut(at)) {
                (0, Some(byte)) => *byte ^= 1 << (by % 8),
                (1, Some(byte)) => *byte = by,
                // Lengths are what a decoder might believe.
                (2, Some(byte)) => *byte = 0xff,
                (3, Some(_)) => bytes.truncate(at),
                _ => bytes.extend(vec![by; usize::from(by % 20)]),
            }
        }
        bytes
    });
    prop_oneof![1 => random, 3 => damaged]
}

proptest! {
    #[test]
    fn bytes_that_nobody_sent_are_not_believed(bytes in bytes(), piece in 1usize..100, good in 0usize..4) {
        let before = ASKED.get();
        decode(&bytes);
        let found = read_stream(&bytes, piece, good);
        let believed = check_proof(&bytes) || check_guest(&bytes);
        read_launcher(&bytes);
        let asked = ASKED.get() - before;
        prop_assert_eq!(found, good, "a frame was believed");
        prop_assert!(!believed, "a proof was believed");
        prop_assert!(asked <= MOST_BYTES, "{} bytes", asked);
    }

    #[test]
    fn a_launcher_may_have_any_environment(value in "[ -~]{0,40}") {
        let text = |name: &'static str| Ok((name != environment::LAUNCHER).then(|| value.clone()));
        if let Ok(Some(started)) = environment::started(&text) {
            prop_assert!(started.rank < started.size || started.size.is_none());
        }
        let _ = slurm::first_host(&value);
    }
}

#[test]
fn genuine_answers_of_launchers_are_read() {
    assert_eq!(answers().map(|bytes| read_launcher(&bytes)), [2, 2]);
}
