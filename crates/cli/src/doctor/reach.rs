//! Calls between nodes, at the addresses that their NICs will use. They show that an address is right, and how far two
//! clocks are apart.

use serde::{Deserialize, Serialize};
use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long a call may take.
const PATIENCE: Duration = Duration::from_secs(2);
/// How often a caller asks for the time. The quickest answer is the most exact one.
const QUESTIONS: usize = 16;

/// How far the clock of another host (`CLOCK_REALTIME`) is ahead of the own one, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    pub(super) ahead: i64,
    /// The greatest possible error: half the round trip.
    pub(super) error: u64,
}

impl Clock {
    /// A clock that said `there` between two looks at the own clock.
    fn between(before: u64, there: u64, after: u64) -> Self {
        let error = after.saturating_sub(before) / 2;
        let middle = before + error;
        let ahead = i128::from(there) - i128::from(middle);
        Self {
            ahead: ahead.clamp(i64::MIN.into(), i64::MAX.into()) as i64,
            error,
        }
    }
}

/// Answers the calls of other nodes until it is dropped.
pub(super) struct Door {
    pub(super) port: u16,
    /// Callers must know it: so a call that reaches another program is no success.
    pub(super) number: u64,
    is_closed: Arc<AtomicBool>,
}

impl Door {
    pub(super) fn open(address: IpAddr) -> io::Result<Self> {
        use std::hash::{BuildHasher as _, RandomState};
        let listener = TcpListener::bind((address, 0))?;
        listener.set_nonblocking(true)?;
        let port = listener.local_addr()?.port();
        let number = RandomState::new().hash_one(port);
        let is_closed = Arc::new(AtomicBool::new(false));
        let closed = is_closed.clone();
        let answer = move || {
            while !closed.load(Ordering::Relaxed) {
                match listener.accept() {
                    Ok((stream, _)) => {
                        // If no thread can be had, the caller is told by the end of its connection.
                        let thread = std::thread::Builder::new().name("doctor-answer".into());
                        let _ = thread.spawn(move || answer(stream, number));
                    }
                    Err(_) => std::thread::sleep(Duration::from_millis(1)),
                }
            }
        };
        let thread = std::thread::Builder::new().name("doctor-door".into());
        thread.spawn(answer)?;
        Ok(Self {
            port,
            number,
            is_closed,
        })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }
}

/// Tells the time as often as it is asked.
fn answer(mut stream: TcpStream, number: u64) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_nodelay(true)?;
    let mut asked = [0; 8];
    loop {
        stream.read_exact(&mut asked)?;
        if u64::from_le_bytes(asked) != number {
            return Ok(());
        }
        stream.write_all(&now().to_le_bytes())?;
    }
}

/// Calls the door of a rank.
pub(super) fn call(address: SocketAddr, number: u64) -> Result<Clock, String> {
    let begun = Instant::now();
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!(
                "port {}: no answer within {} s",
                address.port(),
                PATIENCE.as_secs()
            )
        }
        io::ErrorKind::UnexpectedEof => format!("port {}: another program answers", address.port()),
        _ => format!("port {}: {error}", address.port()),
    };
    let ask = || -> io::Result<Clock> {
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        let mut best: Option<Clock> = None;
        for _ in 0..QUESTIONS {
            let before = now();
            stream.write_all(&number.to_le_bytes())?;
            let mut there = [0; 8];
            stream.read_exact(&mut there)?;
            let clock = Clock::between(before, u64::from_le_bytes(there), now());
            if best.is_none_or(|best| clock.error < best.error) {
                best = Some(clock);
            }
            if begun.elapsed() > PATIENCE {
                break;
            }
        }
        best.ok_or(io::ErrorKind::TimedOut.into())
    };
    ask().map_err(failed)
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn a_clock_is_compared_in_the_middle_of_the_round_trip() {
        let clock = |ahead, error| Clock { ahead, error };
        assert_eq!(Clock::between(100, 150, 200), clock(0, 50));
        assert_eq!(Clock::between(100, 1150, 200), clock(1000, 50));
        assert_eq!(Clock::between(1000, 50, 1200), clock(-1050, 100));
        assert_eq!(Clock::between(0, u64::MAX, 0), clock(i64::MAX, 0));
    }

    #[test]
    fn a_door_answers_who_knows_its_number() {
        let home: IpAddr = Ipv4Addr::LOCALHOST.into();
        let door = Door::open(home).unwrap();
        let clock = call((home, door.port).into(), door.number).unwrap();
        assert!(clock.ahead.unsigned_abs() <= clock.error + 1, "{clock:?}");
        let other = call((home, door.port).into(), door.number ^ 1).unwrap_err();
        assert!(other.contains("another program answers"), "{other}");
    }

    #[test]
    fn an_address_without_a_door_is_an_error() {
        let home: IpAddr = Ipv4Addr::LOCALHOST.into();
        // A port that is free again as soon as the listener is gone.
        let port = TcpListener::bind((home, 0))
            .unwrap()
            .local_addr()
            .unwrap()
            .port();
        let error = call((home, port).into(), 1).unwrap_err();
        assert!(error.starts_with(&format!("port {port}: ")), "{error}");
    }
}
