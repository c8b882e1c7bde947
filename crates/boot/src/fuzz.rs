//! Functions that read bytes of others, for tests that pass arbitrary bytes.
//!
//! Every function takes any bytes and returns. A panic, or memory out of proportion to the input, is a bug.

use crate::door;
use crate::handshake;
use crate::launchers;
use crate::link::{Body, Framer, Unframer};
use crate::secret::Key;
use crate::wire;

/// Decodes one message. Returns whether it was one, and asserts that it survives encoding and decoding.
pub fn decode_message(body: &[u8]) -> bool {
    match wire::decode(body) {
        Ok(message) => {
            assert_eq!(wire::decode(&message.encode()), Ok(message));
            true
        }
        Err(_) => false,
    }
}

/// Reads a stream of frames, in pieces of `piece` bytes, after `good` genuine frames. Returns how many messages were
/// found. It must never be more than the genuine ones, since a tag cannot be guessed.
pub fn read_stream(bytes: &[u8], piece: usize, good: usize) -> usize {
    let key = Key::of_job(b"a key for tests", "", 2);
    let mut framer = Framer::new(key.clone());
    let mut stream = Vec::new();
    for _ in 0..good {
        let frame = framer.frame(&Body::of(&wire::Message::Beat));
        stream.extend(frame.parts().concat());
    }
    stream.extend_from_slice(bytes);
    let mut unframer = Unframer::new(key);
    let mut found = 0;
    for piece in stream.chunks(piece.max(1)) {
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

/// Checks a caller's proof. Returns whether it is valid, which it must not be for bytes that were made without the key.
pub fn check_proof(bytes: &[u8]) -> bool {
    let key = Key::of_job(b"a key for tests", "", 2);
    let mut proof = [0; handshake::PROOF_LEN];
    let len = bytes.len().min(proof.len());
    proof[..len].copy_from_slice(&bytes[..len]);
    handshake::check_proof(&proof, &[7; 32], &key, 2).is_ok()
}

/// Checks the proof that a process of this host sends to a node's leader.
pub fn check_guest(bytes: &[u8]) -> bool {
    let key = Key::of_job(b"a key for tests", "", 2);
    door::check_proof(&key, &[3; 16], &[7; 32], bytes).is_some()
}

/// Reads the bytes of a launcher's server in versions 1 and 2 of its protocol, as answers, and as the value of rank 0.
/// Returns how many answers were found, and asserts that no answer is longer than the input.
pub fn read_launcher(bytes: &[u8]) -> usize {
    let mut found = 0;
    let mut rest = bytes;
    while let Ok(Some((used, answer))) = launchers::read::line(rest) {
        assert!(used > 0 && used <= rest.len());
        launchers::believe(answer.get("value").unwrap_or_default());
        rest = &rest[used..];
        found += 1;
    }
    rest = bytes;
    while let Ok(Some((used, answer))) = launchers::read::message(rest) {
        assert!(used > 0 && used <= rest.len());
        launchers::believe(answer.get("value").unwrap_or_default());
        rest = &rest[used..];
        found += 1;
    }
    launchers::believe(&String::from_utf8_lossy(bytes));
    found
}

/// Reads an environment whose every variable has this value, except for the choice of a launcher.
pub fn read_environment(value: &str) {
    launchers::read_environment(value);
}

/// Genuine bytes of a launcher's server, for a test that damages them. `which` is even for version 1.
pub fn sample_launcher(which: usize) -> Vec<u8> {
    let secret = "5e".repeat(32);
    let record = format!(".tidegate1,{secret},{secret},10.0.0.1:4000,[fd00::1]:4000");
    if which.is_multiple_of(2) {
        format!("cmd=barrier_out rc=0\ncmd=get_result rc=0 value={record}\n").into_bytes()
    } else {
        let mut bytes = launchers::read::frame("cmd=kvs-fence-response;rc=0;");
        let get = format!("cmd=kvs-get-response;found=TRUE;value={record};rc=0;");
        bytes.extend(launchers::read::frame(&get));
        bytes
    }
}

/// How many kinds of messages [`sample_message`] makes.
pub const SAMPLES: usize = 16;

/// A genuine encoded message, for a test that damages it. `which` counts from 0 to [`SAMPLES`].
pub fn sample_message(which: usize) -> Vec<u8> {
    use wire::Message as M;
    let reason = || "because".to_owned();
    let message = match which % SAMPLES {
        0 => M::Join { node: [1; 32] },
        1 => M::Start {
            nodes: vec![0, 0, 1, 1],
        },
        2 => M::Door { name: [2; 16] },
        3 => M::Ready,
        4 => M::Go,
        5 => M::Abort { reason: reason() },
        6 => M::Beat,
        7 => M::Contribution {
            rank: 3,
            round: 1 << 40,
            handles: 2,
            label: "window".into(),
            bytes: vec![9; 100],
        },
        8 => M::Withdrawn {
            rank: 1,
            reason: reason(),
        },
        9 => M::Notify {
            from: 2,
            to: Some(vec![0, 1]),
            bytes: vec![8; 50],
        },
        10 => M::Lost {
            rank: 2,
            reason: reason(),
        },
        11 => M::Left { rank: 3 },
        12 => M::Leave,
        13 => M::Accepted { round: 5 },
        14 => M::Fail { reason: reason() },
        _ => M::Bye,
    };
    message.encode()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn nothing_that_reads_panics_or_believes(
            bytes in prop::collection::vec(any::<u8>(), 0..300), piece in 1usize..100, good in 0usize..5
        ) {
            decode_message(&bytes);
            prop_assert!(read_stream(&bytes, piece, good) == good);
            prop_assert!(!check_proof(&bytes));
            prop_assert!(!check_guest(&bytes));
            read_launcher(&bytes);
        }

        #[test]
        fn a_launcher_may_say_anything(which in 0usize..2, at in any::<u16>(), bit in 0u8..8, cut in any::<u16>()) {
            let mut bytes = sample_launcher(which);
            prop_assert_eq!(read_launcher(&bytes), 2);
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= 1 << bit;
            read_launcher(&bytes);
            read_launcher(&bytes[usize::from(cut) % bytes.len()..]);
        }

        #[test]
        fn a_launcher_may_have_any_environment(value in "[ -~]{0,40}") {
            read_environment(&value);
        }

        #[test]
        fn damaged_messages_are_refused_or_other_messages(which in 0..SAMPLES, at in any::<u16>(), bit in 0u8..8) {
            let mut body = sample_message(which);
            prop_assert!(decode_message(&body));
            let at = usize::from(at) % body.len();
            body[at] ^= 1 << bit;
            decode_message(&body);
            decode_message(&body[..at]);
        }
    }
}
