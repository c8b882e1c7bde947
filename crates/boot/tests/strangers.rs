//! Strangers, which do not belong to a job: they are refused, and the job goes on.

mod common;

use common::{LONG, SECRET, configs, events, run, write_to_all};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;
use tidegate_boot::{BootError, Config, TcpControl};
use tidegate_hal::control::{Control, ControlError, Event, Handle};

/// Whether the other end closes the connection (after it has sent what it wants).
fn is_closed(stream: &mut TcpStream) -> bool {
    stream.set_read_timeout(Some(LONG)).unwrap();
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::ConnectionReset,
    }
}

fn impatient(mut config: Config) -> Config {
    config.timeout = Duration::from_millis(400);
    config
}

/// Asserts that the other end says what is wrong with a configuration. On a slow machine its answer may be too late,
/// but not every time.
fn is_refused(what: &str, config: impl Fn() -> Config) {
    let mut last = String::new();
    for _ in 0..5 {
        match TcpControl::join(impatient(config())).unwrap_err() {
            BootError::Unreachable { last: why, .. } if why.contains(what) => return,
            error => last = error.to_string(),
        }
    }
    panic!("{last}");
}

/// All kinds of strangers, one after the other.
fn strangers(address: &str) {
    for bytes in [
        &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
        &[0xff; 4096],
        &[0; 200],
        b"tidegat2",
        b"tidegat1 and then nothing that means anything at all, but long enough to be a proof of something",
    ] {
        let mut stranger = TcpStream::connect(address).unwrap();
        // The other end may close before this one has written.
        let _ = stranger.write_all(bytes);
        assert!(is_closed(&mut stranger), "{bytes:?}");
    }
    let mut silent = TcpStream::connect(address).unwrap();
    silent.shutdown(Shutdown::Write).unwrap();
    assert!(is_closed(&mut silent));
}

#[test]
fn strangers_change_nothing_before_and_after_the_start() {
    let mut configs = configs(3);
    let address = configs[0].address.clone();
    let late = configs.pop().unwrap();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let body = |config| {
            let control = TcpControl::join(config).unwrap();
            let events = events(&control);
            let mut rounds = 0;
            // All ranks see the same flag after the same exchange, because rank 0 decides.
            loop {
                let over = u8::from(control.rank() == 0 && done.load(Ordering::SeqCst));
                let all = control.exchange("step", vec![over]).unwrap();
                rounds += 1;
                if all[0] == [1] {
                    break;
                }
            }
            drop(control);
            assert!(
                !events
                    .iter()
                    .any(|event| matches!(event, Event::Lost { .. }))
            );
            rounds
        };
        let ranks: Vec<_> = configs
            .into_iter()
            .map(|config| scope.spawn(move || body(config)))
            .collect();
        strangers(&address);
        is_refused("SECRET", || {
            Config::new(2, 3, &*address, "another secret, of another job")
        });
        is_refused("WORLD_SIZE", || Config::new(2, 4, &*address, SECRET));
        let mut renamed = impatient(Config::new(2, 3, &*address, SECRET));
        renamed.job_id = "yesterday".into();
        assert!(TcpControl::join(renamed).is_err());

        let last = scope.spawn(move || body(late));
        // It is refused before the start or after it, but never accepted: rank 1 is there, or will be.
        strangers(&address);
        // A process that claims to be rank 0 listens itself, and no rank comes.
        let second = impatient(Config::new(0, 3, "127.0.0.1:0", SECRET));
        let error = TcpControl::join(second).unwrap_err();
        assert!(matches!(error, BootError::MissingRanks { .. }), "{error}");
        done.store(true, Ordering::SeqCst);
        let rounds: Vec<usize> = ranks
            .into_iter()
            .chain([last])
            .map(|rank| rank.join().unwrap())
            .collect();
        assert!(rounds.windows(2).all(|pair| pair[0] == pair[1]));
    });
}

#[test]
fn a_second_rank_of_the_same_number_is_refused_with_proof() {
    let configs = configs(2);
    let address = configs[0].address.clone();
    run(configs, |joined| {
        let control = joined.unwrap();
        if control.rank() == 0 {
            let error = TcpControl::join(Config::new(1, 2, &*address, SECRET)).unwrap_err();
            assert!(
                matches!(&error, BootError::Refused(reason) if reason.contains("taken")),
                "{error}"
            );
        }
        control.exchange("after", Vec::new()).unwrap();
    });
}

#[test]
fn a_crowd_of_strangers_does_not_keep_a_rank_out() {
    let mut configs = configs(2);
    let address = configs[0].address.clone();
    let late = configs.pop().unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(move || TcpControl::join(configs.remove(0)).unwrap());
        // More strangers than may wait at a time, and none of them sends anything.
        let crowd: Vec<_> = (0..150)
            .map(|_| TcpStream::connect(&*address).unwrap())
            .collect();
        let second = TcpControl::join(late).unwrap();
        let first = first.join().unwrap();
        drop(crowd);
        drop(second);
        drop(first);
    });
}

/// A relay between rank 1 and the hub that can be told to misbehave.
struct Relay {
    address: String,
    listener: TcpListener,
    hub: String,
    /// The bytes that went to the hub, for a replay.
    record: Mutex<Vec<u8>>,
    /// The change to the next bytes that go to the hub.
    mischief: AtomicUsize,
    /// How many pieces go to the hub before the connection breaks.
    cut_after: usize,
}

const NONE: usize = 0;
const FLIP: usize = 1;
const REPEAT: usize = 2;
const REFLECT: usize = 3;
const OVERSIZED: usize = 4;

impl Relay {
    fn new(hub: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        Self {
            address: listener.local_addr().unwrap().to_string(),
            listener,
            hub: hub.to_owned(),
            record: Mutex::default(),
            mischief: AtomicUsize::new(NONE),
            cut_after: usize::MAX,
        }
    }

    /// Relays one connection to its end.
    fn carry(&self) {
        let (rank, _) = self.listener.accept().unwrap();
        let hub = TcpStream::connect(&*self.hub).unwrap();
        let from_hub: Mutex<Vec<u8>> = Mutex::default();
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut chunk = [0; 4096];
                while let Ok(count @ 1..) = (&hub).read(&mut chunk) {
                    *from_hub.lock().unwrap() = chunk[..count].to_vec();
                    if (&rank).write_all(&chunk[..count]).is_err() {
                        break;
                    }
                }
                let _ = rank.shutdown(Shutdown::Both);
            });
            let mut chunk = [0; 4096];
            let mut pieces = 0;
            while pieces < self.cut_after
                && let Ok(count @ 1..) = (&rank).read(&mut chunk)
            {
                pieces += 1;
                let mut bytes = chunk[..count].to_vec();
                self.record.lock().unwrap().extend_from_slice(&bytes);
                match self.mischief.swap(NONE, Ordering::SeqCst) {
                    FLIP => bytes[count / 2] ^= 1,
                    REPEAT => bytes.extend_from_within(..),
                    REFLECT => bytes = from_hub.lock().unwrap().clone(),
                    OVERSIZED => bytes = vec![0xff; 64],
                    _ => {}
                }
                if (&hub).write_all(&bytes).is_err() {
                    break;
                }
            }
            let _ = hub.shutdown(Shutdown::Both);
        });
    }
}

#[test]
fn damaged_repeated_reflected_and_oversized_frames_end_only_their_rank() {
    for mischief in [FLIP, REPEAT, REFLECT, OVERSIZED] {
        let mut configs = configs(3);
        let relay = Relay::new(&configs[0].address);
        configs[1].address.clone_from(&relay.address);
        thread::scope(|scope| {
            scope.spawn(|| relay.carry());
            run(configs, |joined| {
                let control = joined.unwrap();
                let events = events(&control);
                control.exchange("before", Vec::new()).unwrap();
                if control.rank() == 1 {
                    relay.mischief.store(mischief, Ordering::SeqCst);
                    control
                        .notify(Some(&[0]), b"a message that does not arrive")
                        .unwrap();
                    let event = events.recv_timeout(LONG).unwrap();
                    assert!(
                        matches!(event, Event::Lost { rank: 0, .. }),
                        "{mischief}: {event:?}"
                    );
                    return;
                }
                // A message that was repeated has arrived once.
                let mut event = events.recv_timeout(LONG).unwrap();
                if matches!(event, Event::Message { .. }) {
                    assert!(control.rank() == 0 && mischief == REPEAT);
                    event = events.recv_timeout(LONG).unwrap();
                }
                assert!(
                    matches!(&event, Event::Lost { rank: 1, .. }),
                    "{mischief}: {event:?}"
                );
                // The others can still send messages, and know why they cannot exchange.
                let other = 2 - control.rank();
                control.notify(Some(&[other]), b"hello").unwrap();
                let event = events.recv_timeout(LONG).unwrap();
                assert!(matches!(&event, Event::Message { bytes, .. } if bytes == b"hello"));
                let error = control.exchange("after", Vec::new()).unwrap_err();
                assert!(matches!(error, ControlError::PeerLost { rank: 1, .. }));
            });
        });
    }
}

#[test]
fn a_recorded_connection_is_worth_nothing() {
    let mut configs = configs(2);
    let hub = configs[0].address.clone();
    let relay = Relay::new(&hub);
    configs[1].address.clone_from(&relay.address);
    thread::scope(|scope| {
        scope.spawn(|| relay.carry());
        run(configs, |joined| {
            let control = joined.unwrap();
            control.exchange("before", Vec::new()).unwrap();
            if control.rank() == 0 {
                let mut replay = TcpStream::connect(&*hub).unwrap();
                let _ = replay.write_all(&relay.record.lock().unwrap());
                assert!(is_closed(&mut replay));
            }
            control.exchange("after", Vec::new()).unwrap();
        });
    });
}

/// At whatever step a rank is cut off, every rank gets an error or succeeds, and none hangs.
#[test]
fn a_rank_may_be_cut_off_at_every_step() {
    for cut_after in 0..9 {
        let mut configs = configs(3);
        for config in &mut configs {
            config.timeout = Duration::from_secs(2);
        }
        let mut relay = Relay::new(&configs[0].address);
        relay.cut_after = cut_after;
        configs[1].address.clone_from(&relay.address);
        let results = thread::scope(|scope| {
            scope.spawn(move || relay.carry());
            run(configs, |joined| {
                let control = joined.map_err(|error| format!("join: {error}"))?;
                for _ in 0..20 {
                    let all = write_to_all(&control, "step", &[1], &[memory()])
                        .map_err(|error| format!("confer: {error}"))?;
                    assert!(all.iter().all(|packet| packet.handles.len() == 1));
                }
                Ok::<_, String>(())
            })
        });
        assert!(
            results.iter().all(Result::is_err),
            "{cut_after}: {results:?}"
        );
    }
}

fn memory() -> Handle {
    let fd = rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
    Handle::Fd(Arc::new(fd))
}
