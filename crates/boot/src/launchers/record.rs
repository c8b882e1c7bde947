//! What rank 0 puts into the store.
//!
//! # Model
//!
//! One line of words between commas: a mark, the secret, whose loopback this is, and where rank 0 can be reached. It
//! has no character that any of the protocols needs for itself. Stores have a longest value: so the line is put in
//! pieces, `tidegate-0`, `tidegate-1` and so on, each of which says whether another follows.
//!
//! # Failure
//!
//! What is no such line is refused, with what is wrong about it, and without its secret.

use crate::secret::hex;
use hmac_sha256::Hash;
use std::net::SocketAddr;

const MARK: &str = "tidegate1";
/// More pieces than this are not read.
pub(crate) const MOST_PIECES: usize = 64;
/// A store with less room for a value than this is of no use.
pub(crate) const LEAST_ROOM: usize = 16;

/// Says that another piece follows, or that none does.
const MORE: char = '+';
const LAST: char = '.';

/// How the ranks get to rank 0, and what proves that they may.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// In hexadecimal digits, 64 of them.
    pub(crate) secret: String,
    /// Equal for processes that share a loopback interface.
    pub(crate) loopback: String,
    /// The likeliest first.
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
    /// In pieces of at most `room` bytes.
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
        // All of it is ASCII: any byte is a border.
        let piece = |number: usize| {
            let from = number * (room - 1);
            let mark = if number + 1 < count { MORE } else { LAST };
            format!("{mark}{}", &line[from..line.len().min(from + room - 1)])
        };
        Ok((0..count).map(piece).collect())
    }

    /// All of it.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("{MARK},{},{}", self.secret, self.loopback);
        for address in &self.addresses {
            line.push(',');
            line.push_str(&address.to_string());
        }
        line
    }

    /// What the pieces say together.
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

    /// Where a process with this loopback should look for rank 0, by turns; empty: rank 0 is out of its reach.
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

/// Puts pieces together; `true`: another is to come.
pub(crate) fn add_piece(line: &mut String, piece: &str) -> Result<bool, String> {
    let more = match piece.chars().next() {
        Some(MORE) => true,
        Some(LAST) => false,
        _ => return Err("what rank 0 has put there is garbled".into()),
    };
    line.push_str(&piece[1..]);
    Ok(more)
}

/// Equal for processes that share a loopback interface: of one kernel, and one network namespace.
pub(crate) fn loopback_id() -> std::io::Result<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id");
    let net = std::fs::read_link("/proc/self/ns/net");
    let (Ok(boot), Ok(net)) = (boot, net) else {
        // Where that cannot be known, it is nobody else's.
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
    fn what_is_put_in_pieces_comes_out_whole() {
        for room in [LEAST_ROOM, 17, 100, 1022, 100_000] {
            let pieces = record(5).pieces(room).unwrap();
            assert!(pieces.iter().all(|piece| piece.len() <= room));
            assert_eq!(gather(&pieces).unwrap(), record(5), "{room}");
        }
        assert!(record(5).pieces(LEAST_ROOM - 1).is_err());
        assert!(record(100).pieces(LEAST_ROOM).is_err());
    }

    #[test]
    fn what_is_no_record_is_refused_without_its_secret() {
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
