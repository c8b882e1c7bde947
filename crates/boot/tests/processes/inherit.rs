//! The listening socket that rank 0 inherits. Only the process for which it is meant takes it, and only once.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::process::{Command, exit};
use tidegate_boot::Config;

use super::ground::{LONG, has, job};

const LISTEN_FD: &str = "TIDEGATE_LISTEN_FD";

/// The part of ranks and their helpers before they join, if `role` is one of this file.
pub(crate) fn play(role: &str) {
    match role {
        "helper" => helper(),
        "starts helpers" if std::env::var("RANK").unwrap() == "0" => start_helpers(),
        "takes twice" => take_twice(),
        _ => {}
    }
}

/// The descriptor's number in the variable.
fn number() -> i32 {
    let value = std::env::var(LISTEN_FD).unwrap();
    value.split(':').next().unwrap().parse().unwrap()
}

/// A listener of this program under that number, and all files that were opened to get the number.
fn own_listener() -> (TcpListener, Vec<std::fs::File>) {
    let mut others = Vec::new();
    loop {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        if listener.as_raw_fd() == number() {
            return (listener, others);
        }
        assert!(listener.as_raw_fd() < number(), "the number is not free");
        drop(listener);
        others.push(std::fs::File::open("/dev/null").unwrap());
    }
}

fn assert_works(listener: &TcpListener) {
    let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut called, _) = listener.accept().unwrap();
    caller.write_all(b"x").unwrap();
    called.read_exact(&mut [0]).unwrap();
}

/// A process that inherits the variables of rank 0, but not its socket.
fn helper() {
    let (listener, _others) = own_listener();
    let error = tidegate_boot::TcpControl::from_env().unwrap_err();
    println!("helper: {error}");
    assert_works(&listener);
    exit(0);
}

fn start_helpers() {
    // The first helper starts before rank 0 has taken its socket, and closes inherited descriptors, as some programs
    // do. The second one starts when rank 0 listens.
    let program = std::env::current_exe().unwrap();
    let args = ["--exact", "role_of_a_rank", "--nocapture", "--quiet"];
    let status = Command::new("/bin/bash")
        .arg("-c")
        .arg(format!("exec {}>&-; exec \"$0\" \"$@\"", number()))
        .arg(&program)
        .args(args)
        .env("TEST_ROLE", "helper")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    let control = tidegate_boot::TcpControl::from_env().unwrap();
    let status = Command::new(program)
        .args(args)
        .env("TEST_ROLE", "helper")
        .status()
        .unwrap();
    assert!(status.success(), "{status}");
    drop(control);
    exit(0);
}

#[test]
fn a_helper_of_rank_0_keeps_its_own_descriptor() {
    let outcome = job("starts helpers", 2)
        .env("TIDEGATE_RENDEZVOUS_TIMEOUT", LONG.as_secs().to_string())
        .run()
        .unwrap();
    assert!(outcome.success(), "{outcome:?}");
    let said = String::from_utf8_lossy(&outcome.ranks[0].stdout).into_owned();
    let errors: Vec<_> = said
        .lines()
        .filter(|line| line.contains("helper: "))
        .collect();
    assert_eq!(errors.len(), 2, "{said}");
    for error in errors {
        let words = [
            "listening at 127.0.0.1:",
            "a program that rank 0 has started tries to join",
            "in use",
        ];
        assert!(words.iter().all(|words| error.contains(words)), "{error}");
    }
}

fn take_twice() {
    if std::env::var("RANK").unwrap() == "0" {
        let threads = [(); 8].map(|()| std::thread::spawn(Config::from_env));
        let configs = threads.map(|thread| thread.join().unwrap().unwrap().unwrap());
        let taken = configs.iter().filter(|config| config.listener.is_some());
        println!("taken {} times", taken.count());
        drop(configs);
        // The number is free again, and now belongs to this program.
        let (listener, _others) = own_listener();
        let again = Config::from_env().unwrap().unwrap();
        println!("taken again: {}", again.listener.is_some());
        drop(again);
        assert_works(&listener);
    }
    exit(0);
}

#[test]
fn the_socket_is_taken_once() {
    let outcome = job("takes twice", 2).run().unwrap();
    assert!(outcome.success(), "{outcome:?}");
    assert!(has(&outcome, 0, "taken 1 times"), "{outcome:?}");
    assert!(has(&outcome, 0, "taken again: false"), "{outcome:?}");
}

#[test]
fn programs_between_the_launcher_and_the_rank_pass_the_socket_on() {
    let outcome = tidegate_cli::Job::new("/bin/sh", 3)
        // The shell stays alive, and so does its copy of the socket.
        .args([
            "-c",
            "\"$PROGRAM\" --exact role_of_a_rank --nocapture --quiet; exit $?",
        ])
        .env("PROGRAM", std::env::current_exe().unwrap())
        .env("TEST_ROLE", "nothing")
        .output(tidegate_cli::Output::Captured)
        .run()
        .unwrap();
    assert!(outcome.success(), "{outcome:?}");
}
