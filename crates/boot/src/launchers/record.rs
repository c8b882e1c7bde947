//! The record that rank 0 puts into the store.
//!
//! # Model
//!
//! It is one line of words between commas: a mark, the secret, the identity of the loopback interface, and the
//! addresses of rank 0. It contains no character that is special in any of the protocols. Stores limit the length of
//! values. So the line is divided into pieces, `tidegate-0`, `tidegate-1` and so on, and each piece says whether
//! another one follows.
//!
//! # Failure
//!
//! An invalid line is refused. The error says what is wrong, and does not contain the secret.

use crate::secret::hex;
use hmac_sha256::Hash;
use std::net::SocketAddr;

const MARK: &str = "tidegate1";
/// No more pieces than this are read.
pub(crate) const MOST_PIECES: usize = 64;
/// A store with less room for a value is of no use.
pub(crate) const LEAST_ROOM: usize = 16;

/// The mark of a piece that another piece follows.
const MORE: char = '+';
const LAST: char = '.';

/// How the ranks reach rank 0, and the secret by which they prove that they may.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// 64 hexadecimal digits.
    pub(crate) secret: String,
    /// Equal for processes that share a loopback interface.
    pub(crate) loopback: String,
    /// The addresses of rank 0, with the likeliest first.
    pub(crate) addresses: Vec<SocketAddr>,
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("addresses", &self.addresses)
            .finish_non_exhaustive()
    }
}

/// The key of a piece.
pub(crate) fn key(piece: usize) -> String {
    format!("tidegate-{piece}")
}

impl Record {
    /// The line in pieces of at most `room` bytes.
    pub(crate) fn pieces(&self, room: usize) -> Result<Vec<String>, String> {
        if room < LEAST_ROOM {
            return Err(format!("it has room for {room} bytes a value"));
        }
        let line = self.line();
        let count = line.len().div_ceil(room - 1);
        if count > MOST_PIECES {
            return Err(format!(
                "{} bytes do not fit into {MOST_PIECES} values of {room}",
                line.len()
            ));
        }
        // The line is ASCII, so it can be cut anywhere.
        let piece = |number: usize| {
            let from = number * (room - 1);
            let mark = if number + 1 < count { MORE } else { LAST };
            format!("{mark}{}", &line[from..line.len().min(from + room - 1)])
        };
        Ok((0..count).map(piece).collect())
    }

    /// The whole line.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{MARK},{},{}", self.secret, self.loopback);
        for address in &self.addresses {
            line.push(',');
            line.push_str(&address.to_string());
        }
        line
    }

    /// Reads the line that the pieces make together.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let mut words = line.split(',');
        if words.next() != Some(MARK) {
            return Err("what rank 0 has put there is of another version of tidegate".into());
        }
        let mut digits = || {
            let word = words.next().unwrap_or_default();
            let good = word.len() == 64 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
            good.then(|| word.to_owned())
        };
        let (Some(secret), Some(loopback)) = (digits(), digits()) else {
            return Err("what rank 0 has put there is garbled".into());
        };
        let addresses: Result<Vec<SocketAddr>, _> = words.map(str::parse).collect();
        match addresses {
            Ok(addresses) if !addresses.is_empty() => Ok(Self {
                secret,
                loopback,
                addresses,
            }),
            _ => Err("what rank 0 has put there has no addresses".into()),
        }
    }

    /// The addresses at which a process with this loopback should look for rank 0, in turn. If there are none, it
    /// cannot reach rank 0.
    pub(crate) fn reachable(&self, from: &str) -> Vec<SocketAddr> {
        let (near, far): (Vec<_>, Vec<_>) =
            self.addresses.iter().partition(|at| at.ip().is_loopback());
        if self.loopback == from {
            near.into_iter().chain(far).collect()
        } else {
            far
        }
    }
}

/// Appends a piece. Returns whether another one follows.
pub(crate) fn add_piece(line: &mut String, piece: &str) -> Result<bool, String> {
    let more = match piece.chars().next() {
        Some(MORE) => true,
        Some(LAST) => false,
        _ => return Err("what rank 0 has put there is garbled".into()),
    };
    line.push_str(&piece[1..]);
    Ok(more)
}

/// A text that is equal for processes that share a loopback interface: those of one kernel and one network namespace.
pub(crate) fn loopback_id() -> std::io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let net = std::fs::read_link("/proc/self/ns/net");
    let (Ok(boot), Ok(net)) = (boot, net) else {
        // If it cannot be known, the text differs from that of every other process.
        return Ok(hex(&crate::secret::random::<32>()?));
    };
    let mut hash = Hash::new();
    hash.update(b"loopback\0");
    hash.update(boot.trim());
    hash.update(b"\0");
    hash.update(net.as_os_str().as_encoded_bytes());
    Ok(hex(&hash.finalize()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(addresses: usize) -> Record {
        Record {
            secret: "5e".repeat(32),
            loopback: "10".repeat(32),
            addresses: (0..addresses)
                .map(|n| format!("[fd00::{n:x}]:4000").parse().unwrap())
                .collect(),
        }
    }

    fn gather(pieces: &[String]) -> Result<Record, String> {
        let mut line = String::new();
        for (number, piece) in pieces.iter().enumerate() {
            assert_eq!(add_piece(&mut line, piece)?, number + 1 < pieces.len());
        }
        Record::parse(&line)
    }

    #[test]
    fn a_record_in_pieces_comes_out_whole() {
        for room in [LEAST_ROOM, 17, 100, 1022, 100_000] {
            let pieces = record(5).pieces(room).unwrap();
            assert!(pieces.iter().all(|piece| piece.len() <= room));
            assert_eq!(gather(&pieces).unwrap(), record(5), "{room}");
        }
        assert!(record(5).pieces(LEAST_ROOM - 1).is_err());
        assert!(record(100).pieces(LEAST_ROOM).is_err());
    }

    #[test]
    fn an_invalid_record_is_refused_without_its_secret() {
        let good = record(1).pieces(1000).unwrap()[0][1..].to_owned();
        for bad in [
            "".to_owned(),
            "tidegate2,x".to_owned(),
            good.replace("5e5e", "5e"),
            good.replace("5e5e", "zzzz"),
            good.replace(":4000", ""),
            good.rsplit_once(',').unwrap().0.to_owned(),
        ] {
            let error = Record::parse(&bad).unwrap_err();
            assert!(!error.contains("5e5e"), "{error}");
        }
        assert!(add_piece(&mut String::new(), "").is_err());
        assert!(add_piece(&mut String::new(), "é").is_err());
        assert!(!format!("{:?}", record(1)).contains("5e5e"));
    }

    #[test]
    fn loopback_is_for_those_who_share_it() {
        let mut record = record(1);
        record.addresses.push("127.0.0.1:4000".parse().unwrap());
        let near = record.reachable(&record.loopback);
        assert!(near[0].ip().is_loopback() && near.len() == 2);
        assert_eq!(record.reachable("other").len(), 1);
        record.addresses.remove(0);
        assert!(record.reachable("other").is_empty());
        assert_eq!(loopback_id().unwrap().len(), 64);
    }
}
