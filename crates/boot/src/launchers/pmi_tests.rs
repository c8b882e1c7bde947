//! Tests with a server of this file, which works like a launcher's, or goes wrong at a given request.
//! `tests/launchers.rs` has tests with real launchers.

#[path = "../../../../tests/common/held.rs"]
mod held;

use super::super::environment::StoreKind;
use super::super::record;
use super::*;
use crate::launchers::session::HeldStore;
use held::Held;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);
const SHORT: Duration = Duration::from_millis(600);

/// How the server goes wrong when rank 1 sends a request of a given name.
#[derive(Clone, Copy)]
enum Fault {
    Closes,
    IsSilent,
    Says(&'static str),
}

#[derive(Clone)]
struct Launcher {
    ranks: usize,
    vallen: &'static str,
    keylen: &'static str,
    /// Whether the server speaks version 1.
    first: bool,
    fault: Option<(&'static str, Fault)>,
}

impl Launcher {
    fn new(ranks: usize) -> Self {
        Self {
            ranks,
            vallen: "1024",
            keylen: "64",
            first: true,
            fault: None,
        }
    }

    fn fails(mut self, at: &'static str, fault: Fault) -> Self {
        self.fault = Some((at, fault));
        self
    }
}

#[derive(Default)]
struct Shelf {
    values: Mutex<HashMap<String, String>>,
    /// How many ranks have come to the barrier, over all rounds.
    came: Mutex<usize>,
    changed: Condvar,
}

impl Shelf {
    fn fence(&self, ranks: usize) {
        let mut came = self.came.lock().unwrap();
        *came += 1;
        let round = came.div_ceil(ranks) * ranks;
        self.changed.notify_all();
        // If a rank does not come, the test must not hang.
        let waiting = |came: &mut usize| *came < round;
        drop(
            self.changed
                .wait_timeout_while(came, LONG, waiting)
                .unwrap(),
        );
    }
}

/// Serves one rank until it leaves, or until the fault.
fn serve(launcher: &Launcher, rank: usize, shelf: &Shelf, stream: UnixStream) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut second = false;
    loop {
        let mut text = String::new();
        if second {
            let mut length = [0; 6];
            if reader.read_exact(&mut length).is_err() {
                return;
            }
            let length: usize = std::str::from_utf8(&length)
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            text = String::from_utf8(body).unwrap();
        } else if reader.read_line(&mut text).unwrap_or(0) == 0 {
            return;
        }
        let border = if second { ';' } else { ' ' };
        let words = text
            .trim()
            .split(border)
            .filter_map(|word| word.split_once('='));
        let words: HashMap<&str, &str> = words.collect();
        let command = words["cmd"];
        let mut answer = match command {
            "init" if words["pmi_version"] == "1" && !launcher.first => {
                "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1".to_owned()
            }
            "init" => format!(
                "cmd=response_to_init pmi_version={} pmi_subversion=1 rc=0",
                words["pmi_version"]
            ),
            "get_maxes" => format!(
                "cmd=maxes kvsname_max=256 keylen_max={} vallen_max={}",
                launcher.keylen, launcher.vallen
            ),
            "get_my_kvsname" => "cmd=my_kvsname kvsname=kvs_7".to_owned(),
            "put" | "kvs-put" => {
                let longest = launcher.vallen.parse::<usize>().unwrap();
                assert!(
                    words["value"].len() < longest || second,
                    "a value is too long"
                );
                let (key, value) = (words["key"].to_owned(), words["value"].to_owned());
                shelf.values.lock().unwrap().insert(key, value);
                if second {
                    "cmd=kvs-put-response;rc=0;"
                } else {
                    "cmd=put_result rc=0 msg=success"
                }
                .to_owned()
            }
            "barrier_in" | "kvs-fence" => {
                shelf.fence(launcher.ranks);
                if second {
                    "cmd=kvs-fence-response;rc=0;"
                } else {
                    "cmd=barrier_out"
                }
                .to_owned()
            }
            "get" | "kvs-get" => match (shelf.values.lock().unwrap().get(words["key"]), second) {
                (Some(value), false) => format!("cmd=get_result rc=0 msg=success value={value}"),
                (None, false) => "cmd=get_result rc=-1 msg=key_not_found".to_owned(),
                (Some(value), true) => {
                    format!("cmd=kvs-get-response;found=TRUE;value={value};rc=0;")
                }
                (None, true) => "cmd=kvs-get-response;found=FALSE;rc=0;".to_owned(),
            },
            "fullinit" => format!(
                "cmd=fullinit-response;pmi-version=2;rank={rank};size={};rc=0;",
                launcher.ranks
            ),
            "job-getid" => "cmd=job-getid-response;jobid=7.0;rc=0;".to_owned(),
            "finalize" => if second {
                "cmd=finalize-response;rc=0;"
            } else {
                "cmd=finalize_ack"
            }
            .to_owned(),
            other => panic!("a request that no client makes: {other}"),
        };
        if let Some((at, fault)) = launcher.fault
            && at == command
            && rank == 1
        {
            match fault {
                Fault::Closes => return,
                Fault::IsSilent => {
                    // Waits until the rank has given up.
                    let _ = reader.read_line(&mut text);
                    return;
                }
                Fault::Says(text) => answer = text.to_owned(),
            }
        }
        let bytes = match second {
            true => read::frame(&answer),
            false => format!("{answer}\n").into_bytes(),
        };
        if (&stream).write_all(&bytes).is_err() {
            return;
        }
        second |= command == "init" && words["pmi_version"] == "2" && answer.ends_with("rc=0");
    }
}

/// All ranks meet.
fn meet(
    launcher: &Launcher,
    version: Option<u32>,
    timeout: Duration,
) -> Vec<Result<Config, BootError>> {
    meet_at(launcher, version, |_| timeout)
}

/// Like [`meet`], with a timeout for each rank.
fn meet_at(
    launcher: &Launcher,
    version: Option<u32>,
    timeout: impl Fn(usize) -> Duration,
) -> Vec<Result<Config, BootError>> {
    let shelf = Arc::new(Shelf::default());
    let mut ranks = Vec::new();
    for rank in 0..launcher.ranks {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let (launcher, shelf) = (launcher.clone(), Arc::clone(&shelf));
        let (size, timeout) = (launcher.ranks, timeout(rank));
        std::thread::spawn(move || serve(&launcher, rank, &shelf, theirs));
        ranks.push(std::thread::spawn(move || {
            let began = Instant::now();
            let started = started(rank, size);
            let talk = Talk::new(ours.into(), began + timeout);
            let store = greet(talk, &Server::Fd(7), version, &started);
            let store = store.map_err(|error| error.of("a test", "greeting", began))?;
            let (met, listener, session) = meeting::hold(store, &started, began)?;
            let mut config = met.config();
            config.listener = listener;
            assert!(session.is_none(), "there is no MPI here");
            Ok(config)
        }));
    }
    ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
}

fn started(rank: usize, size: usize) -> Started {
    Started {
        by: "a test",
        rank: Some(rank),
        size: Some(size),
        local: Some(size),
        host: None,
        job: None,
        way: StoreKind::Nothing,
    }
}

fn agree(met: Vec<Result<Config, BootError>>) {
    let configs: Vec<_> = met.into_iter().map(Result::unwrap).collect();
    let at = configs[0].listener.as_ref().unwrap().local_addr().unwrap();
    assert!(at.ip().is_loopback(), "all are on this host");
    for (rank, config) in configs.iter().enumerate() {
        assert_eq!((config.rank, config.size), (rank, configs.len()));
        assert_eq!(config.address, at.to_string());
        assert_eq!(config.secret, configs[0].secret);
        assert!(config.secret.len() == 64);
    }
}

#[test]
fn ranks_meet_in_either_version() {
    for ranks in [2, 5] {
        agree(meet(&Launcher::new(ranks), None, LONG));
        agree(meet(&Launcher::new(ranks), Some(2), LONG));
    }
    let mut second_only = Launcher::new(3);
    second_only.first = false;
    agree(meet(&second_only, None, LONG));
}

#[test]
fn values_are_split_where_the_store_has_little_room() {
    let mut small = Launcher::new(3);
    small.vallen = "20";
    agree(meet(&small, None, LONG));
    // Rank 0 reports that there is too little room. The others wait for it until their deadline.
    let first = |launcher: &Launcher| {
        let timeouts = |rank| if rank == 0 { LONG } else { SHORT };
        meet_at(launcher, None, timeouts).remove(0).unwrap_err()
    };
    small.vallen = "10";
    let error = first(&small);
    assert!(error.to_string().contains("room for 9 bytes"), "{error}");
    let mut small = Launcher::new(2);
    small.keylen = "9";
    let error = first(&small);
    assert!(error.to_string().contains("8 bytes a key"), "{error}");
    small.keylen = "many";
    let error = first(&small);
    assert!(error.to_string().contains("keylen_max"), "{error}");
}

const STEPS: [&[&str]; 2] = [
    &[
        "init",
        "get_maxes",
        "get_my_kvsname",
        "barrier_in",
        "get",
        "finalize",
    ],
    &[
        "init",
        "fullinit",
        "job-getid",
        "kvs-fence",
        "kvs-get",
        "finalize",
    ],
];

/// The steps in which all ranks meet, and those after them.
const FENCES: [&str; 2] = ["barrier_in", "kvs-fence"];
const AFTER: [&str; 3] = ["get", "kvs-get", "finalize"];

/// Checks the error of rank 1 if its server goes wrong at each step, in both versions.
fn at_each_step(fault: Fault, timeout: Duration, check: impl Fn(&str, &BootError) + Sync) {
    let at = |version: Option<u32>, step: &'static str| {
        let launcher = Launcher::new(2).fails(step, fault);
        let began = Instant::now();
        // If rank 1 does not come to the fence, the others need not wait for long; if it does, it meets them there.
        let comes = FENCES.contains(&step) || AFTER.contains(&step);
        let others = if comes { timeout } else { SHORT };
        let timeouts = |rank| if rank == 1 { timeout } else { others };
        let met = meet_at(&launcher, version, timeouts).remove(1);
        let error = met.unwrap_err();
        assert!(began.elapsed() < LONG / 2, "{step}: {error}");
        check(step, &error);
    };
    std::thread::scope(|scope| {
        for (version, steps) in [None, Some(2)].into_iter().zip(STEPS) {
            for step in steps {
                let at = &at;
                scope.spawn(move || at(version, step));
            }
        }
    });
}

#[test]
fn a_server_that_closes_is_an_error_at_every_step() {
    at_each_step(Fault::Closes, LONG, |step, error| {
        assert!(
            matches!(
                error,
                BootError::Store {
                    launcher: "a test",
                    ..
                }
            ),
            "{step}: {error}"
        );
        assert!(
            error.to_string().contains("closed the connection"),
            "{step}: {error}"
        );
    });
}

#[test]
fn a_server_that_is_silent_is_given_up_at_every_step() {
    at_each_step(Fault::IsSilent, SHORT, |step, error| {
        assert!(
            matches!(error, BootError::StoreSilent { .. }),
            "{step}: {error}"
        );
    });
}

#[test]
fn garbage_is_an_error_at_every_step_and_is_not_repeated() {
    for garbage in [
        "hello",
        "",
        "cmd=something_else rc=0",
        "cmd=get_result rc=0 value=x5ec7e7\ncmd=get_result rc=0",
        "cmd=get_result rc=0 value=.tidegate1,x5ec7e7",
        "cmd=kvs-get-response;found=TRUE;value=.tidegate9;",
        "cmd=x x5ec7e7 x5ec7e7;x5ec7e7",
    ] {
        // If garbage looks like the beginning of an answer, the deadline ends the wait.
        at_each_step(Fault::Says(garbage), SHORT, |step, error| {
            assert!(!error.to_string().contains("5ec7e7"), "{step}: {error}");
            let typed = matches!(
                error,
                BootError::Store { .. } | BootError::StoreSilent { .. }
            );
            assert!(typed, "{step}: {error}");
        });
    }
}

#[test]
fn a_server_that_refuses_says_why() {
    let launcher = Launcher::new(2).fails("get", Fault::Says("cmd=get_result rc=-1 msg=not_today"));
    let error = meet(&launcher, None, LONG).remove(1).unwrap_err();
    assert!(
        error.to_string().contains("refuses: -1 not_today"),
        "{error}"
    );
    let launcher = Launcher::new(2).fails(
        "kvs-get",
        Fault::Says("cmd=kvs-get-response;rc=3;errmsg=no;"),
    );
    let error = meet(&launcher, Some(2), LONG).remove(1).unwrap_err();
    assert!(error.to_string().contains("refuses: 3 no"), "{error}");
}

#[test]
fn a_rank_that_cannot_be_is_refused() {
    for says in [
        "cmd=fullinit-response;rank=2;size=2;rc=0;",
        "cmd=fullinit-response;rank=0;size=2;rc=0;",
        "cmd=fullinit-response;rank=1;size=0;rc=0;",
        "cmd=fullinit-response;rank=1;size=3;rc=0;",
        "cmd=fullinit-response;rank=-1;size=2;rc=0;",
        "cmd=fullinit-response;rank=1;size=99999999999999999999;rc=0;",
        "cmd=fullinit-response;rc=0;",
    ] {
        let launcher = Launcher::new(2).fails("fullinit", Fault::Says(says));
        let timeouts = |rank| if rank == 1 { LONG } else { SHORT };
        let error = meet_at(&launcher, Some(2), timeouts).remove(1).unwrap_err();
        assert!(matches!(error, BootError::Store { .. }), "{says}: {error}");
    }
}

#[test]
fn a_rank_that_does_not_come_ends_the_fence_for_the_others() {
    let mut launcher = Launcher::new(2);
    launcher.ranks = 3;
    let launcher = launcher.fails("get_maxes", Fault::Closes);
    let began = Instant::now();
    // On a slow machine some ranks may not have come to the fence by then. Then the test tries a longer timeout.
    let timeouts = [SHORT, 4 * SHORT, 16 * SHORT].into_iter();
    let at_the_fence = |error: &BootError| {
        let fence = "waiting for all ranks";
        matches!(error, BootError::StoreSilent { doing, .. } if *doing == fence)
    };
    let met = timeouts
        .map(|timeout| meet(&launcher, None, timeout))
        .find(|met| {
            [0, 2]
                .iter()
                .all(|rank| met[*rank].as_ref().is_err_and(at_the_fence))
        });
    let mut met = met.expect("they wait for it there");
    assert!(began.elapsed() < LONG / 2);
    assert!(matches!(met.remove(1), Err(BootError::Store { .. })));
}

#[test]
fn a_descriptor_that_is_no_connection_is_refused() {
    let deadline = Instant::now() + LONG;
    let file = std::fs::File::open("/dev/null").unwrap();
    use std::os::fd::AsRawFd;
    let error = open(&Server::Fd(file.as_raw_fd()), deadline).unwrap_err();
    assert!(error.to_string().contains("no connection"), "{error}");
    let error = open(&Server::Fd(1_000_000), deadline).unwrap_err();
    assert!(error.to_string().contains("not open"), "{error}");
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let error = open(&Server::Fd(socket.as_raw_fd()), deadline).unwrap_err();
    assert!(error.to_string().contains("no connection"), "{error}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let error = open(&Server::Fd(listener.as_raw_fd()), deadline).unwrap_err();
    assert!(error.to_string().contains("no connection"), "{error}");
    // A connection of the program itself, under the number that an inherited variable names.
    let (own, _other) = UnixStream::pair().unwrap();
    let error = open(&Server::Fd(own.as_raw_fd()), deadline).unwrap_err();
    assert!(error.to_string().contains("opened itself"), "{error}");
    rustix::io::fcntl_setfd(&own, rustix::io::FdFlags::empty()).unwrap();
    open(&Server::Fd(own.as_raw_fd()), deadline).unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let port = |address: &str| Server::Port {
        address: address.into(),
        id: "0".into(),
    };
    open(&port(&address), deadline).unwrap();
    let held = Held::new();
    let nobody = format!("127.0.0.1:{}", held.port);
    assert!(open(&port(&nobody), deadline).is_err());
    assert!(open(&port("no port"), deadline).is_err());
}

#[test]
fn a_port_is_told_who_comes_and_tells_the_rank() {
    let run = |answers: &'static str| {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let mut line = [0; 19];
            theirs.read_exact(&mut line).unwrap();
            assert_eq!(&line, b"cmd=initack pmiid=3");
            theirs.write_all(answers.as_bytes()).unwrap();
        });
        let found = introduce(&mut Talk::new(ours.into(), Instant::now() + LONG), "3");
        server.join().unwrap();
        found
    };
    let good = "cmd=initack rc=0\ncmd=set size=4\ncmd=set rank=2\ncmd=set debug=0\n";
    assert_eq!(run(good).unwrap(), (2, 4));
    for bad in [
        "cmd=initack rc=1\n",
        "cmd=initack rc=0\ncmd=set size=4\ncmd=set size=4\ncmd=set debug=0\n",
        "cmd=initack rc=0\ncmd=set size=4\ncmd=get\n",
        "cmd=initack rc=0\ncmd=set size=4\n",
        "",
    ] {
        assert!(run(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_loopback_address_of_another_host_is_an_error_at_once() {
    #[derive(Debug)]
    struct Elsewhere;
    impl Store for Elsewhere {
        fn place(&self) -> (usize, usize) {
            (1, 2)
        }
        fn room(&self) -> usize {
            1000
        }
        fn put(&mut self, _: &str, _: &str) -> Result<(), StoreError> {
            panic!("rank 1 puts nothing")
        }
        fn fence(&mut self) -> Result<(), StoreError> {
            Ok(())
        }
        fn get(&mut self, key: &str) -> Result<String, StoreError> {
            assert_eq!(key, record::key(0));
            let secret = "ab".repeat(32);
            Ok(format!(".tidegate1,{secret},{secret},127.0.0.1:4000"))
        }
        fn leave(&mut self, _: Instant) -> Result<(), StoreError> {
            Ok(())
        }
        fn is_mpis_too(&self) -> bool {
            false
        }
    }
    let found = meeting::hold(Box::new(Elsewhere), &started(1, 2), Instant::now());
    let error = found.err().unwrap();
    assert!(error.to_string().contains("TIDEGATE_ADDRESS"), "{error}");
    assert!(!error.to_string().contains("abab"), "{error}");
    assert!(HeldStore::conclude(Box::new(Elsewhere)).unwrap().is_none());
}
