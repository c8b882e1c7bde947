//! Inherited things: descriptors, of which the library takes none that the program owns, and limits.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio, exit};

use tidegate::host::prelude::*;

use crate::processes;

const ATTACK: &str = "TEST_ATTACK";
const LISTEN_FD: &str = "TIDEGATE_LISTEN_FD";
/// A number that is free in a helper.
const NUMBER: i32 = 20;

/// A descriptor of the program itself under that number, and all files that were opened to get the number.
fn own<T: AsFd>(number: i32, open: impl Fn() -> T) -> (T, Vec<File>) {
    let mut others = Vec::new();
    loop {
        let mine = open();
        match mine.as_fd().as_raw_fd() {
            found if found == number => return (mine, others),
            found => assert!(found < number, "{number} is not free"),
        }
        drop(mine);
        others.push(File::open("/dev/null").unwrap());
    }
}

fn listen() -> TcpListener {
    TcpListener::bind("127.0.0.1:0").unwrap()
}

fn inode(fd: impl AsFd) -> u64 {
    let path = format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd());
    std::fs::metadata(path).unwrap().ino()
}

fn assert_listens(listener: &TcpListener) {
    let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    caller.write_all(b"x").unwrap();
    listener.accept().unwrap().0.read_exact(&mut [0]).unwrap();
}

/// This is not a test, but the ranks' program.
#[test]
fn a_rank() {
    processes::play(|role, world| match role {
        "attacks" => attacks(&world),
        _ => file_limit(&world, role),
    });
}

/// The error of this process's attempt to join.
fn refused() -> String {
    let world: Result<World> = World::init();
    world.expect_err("there is a rank 0 already").to_string()
}

/// This is not a test, but the program of rank 0's helpers.
#[test]
fn a_helper() {
    let Ok(attack) = std::env::var(ATTACK) else {
        return;
    };
    let variable = std::env::var(LISTEN_FD).unwrap_or_default();
    let number = variable.split(':').next().unwrap().parse();
    let taken = "listening at 127.0.0.1:";
    let (expected, error) = match &*attack {
        "the variable of rank 0" | "the inode of another's listener" => {
            let (mine, _others) = own(number.unwrap(), listen);
            let error = refused();
            assert_listens(&mine);
            (taken, error)
        }
        "open across exec" => {
            let (mine, _others) = own(NUMBER, listen);
            rustix::io::fcntl_setfd(&mine, rustix::io::FdFlags::empty()).unwrap();
            let error = refused();
            assert_listens(&mine);
            (taken, error)
        }
        "the inode of a file" => {
            let (mut mine, _others) = own(NUMBER, || File::open("/etc/passwd").unwrap());
            rustix::io::fcntl_setfd(&mine, rustix::io::FdFlags::empty()).unwrap();
            let error = refused();
            assert!(mine.read_to_string(&mut String::new()).unwrap() > 0);
            (taken, error)
        }
        "standard input" => {
            let error = refused();
            let mine: OwnedFd = std::io::stdin().as_fd().try_clone_to_owned().unwrap();
            assert_listens(&TcpListener::from(mine));
            (LISTEN_FD, error)
        }
        "a connection of its own" => {
            let pair = || UnixStream::pair().unwrap();
            let (mine, _others) = own(NUMBER, || pair().0);
            drop(mine);
            let (mut mine, mut peer) = pair();
            assert_eq!(mine.as_raw_fd(), NUMBER);
            let error = refused();
            mine.write_all(b"x").unwrap();
            let mut found = [0; 2];
            assert_eq!(peer.read(&mut found).unwrap(), 1, "it was written to");
            assert_eq!(&found, b"x\0");
            ("PMI_FD=20", error)
        }
        other => panic!("there is no attack {other}"),
    };
    assert!(error.contains(expected), "{attack}: {error}");
    exit(0);
}

/// Rank 0's program in the role `attacks`.
fn attacks(world: &World) -> Result<()> {
    if world.rank() == 0 {
        let (listener, file) = (listen(), File::open("/etc/passwd").unwrap());
        let named = |fd: &dyn AsFd| format!("{NUMBER}:{}", inode(fd.as_fd()));
        let attack = |attack: &str, variables: &[(&str, &str)], stdin: Stdio| {
            let mut command = Command::new(std::env::current_exe().unwrap());
            command
                .args(["--exact", "inherited::a_helper", "--nocapture", "--quiet"])
                .env(ATTACK, attack)
                .stdin(stdin);
            for (name, value) in variables {
                match value.is_empty() {
                    true => command.env_remove(name),
                    false => command.env(name, value),
                };
            }
            assert!(command.status().unwrap().success(), "{attack}");
        };
        attack("the variable of rank 0", &[], Stdio::null());
        let another = named(&listener);
        for each in ["the inode of another's listener", "open across exec"] {
            attack(each, &[(LISTEN_FD, &another)], Stdio::null());
        }
        attack(
            "the inode of a file",
            &[(LISTEN_FD, &named(&file))],
            Stdio::null(),
        );
        let input = format!("0:{}", inode(&listener));
        let stdin = OwnedFd::from(listener.try_clone().unwrap()).into();
        attack("standard input", &[(LISTEN_FD, &input)], stdin);
        let by_pmi = [
            ("RANK", ""),
            ("WORLD_SIZE", ""),
            ("TIDEGATE_SECRET", ""),
            ("PMI_FD", "20"),
            ("PMI_RANK", "0"),
            ("PMI_SIZE", "2"),
        ];
        attack("a connection of its own", &by_pmi, Stdio::null());
        assert_listens(&listener);
    }
    world.all_gather("the end", Vec::new()).map(drop)
}

#[test]
fn nothing_inherited_makes_the_library_take_what_the_program_owns() {
    let outcome = processes::run("inherited::a_rank", "attacks", 2);
    processes::assert_success(&outcome, &[]);
}

/// The ranks in the role's name may have files of 1 MB, and all ranks open a window of 8 MiB.
fn file_limit(world: &World, role: &str) -> Result<()> {
    use rustix::process::{Resource, Rlimit, setrlimit};
    if role.contains(&world.rank().to_string()) {
        let limit = Some(1_000_000);
        let (current, maximum) = (limit, limit);
        setrlimit(Resource::Fsize, Rlimit { current, maximum }).unwrap();
    }
    stream!(let s = world.stream()?);
    let peer = 1 - world.rank();
    let mut window = SlotWindow::<f64>::new("big");
    window.slot_from(peer, 0, 1 << 20);
    window.slot_to(peer, 0);
    window.open(&s).map(|_| ())
}

/// The kernel would kill the rank by a signal.
#[test]
fn a_limit_of_file_sizes_is_an_error_on_all_ranks() {
    for role in ["file limit 0,1", "file limit 1"] {
        let outcome = processes::run("inherited::a_rank", role, 2);
        for end in &outcome.ranks {
            let error = processes::error(end);
            assert!(
                error.contains("RLIMIT_FSIZE") && error.contains("1000000 bytes"),
                "{error}"
            );
        }
    }
}
