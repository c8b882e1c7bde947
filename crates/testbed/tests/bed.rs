//! Beds of each kind: what gets through, when, and what is left. Programs in the nodes are this program again.

use std::io::{BufRead, BufReader, Read};
use std::net::UdpSocket;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_testbed::{Bed, Builder, Wire, WireChoice};

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(20);

/// Not a test: what a program in a node does.
#[test]
fn role_of_a_program() {
    let Ok(role) = std::env::var("TEST_ROLE") else {
        return;
    };
    let words: Vec<_> = role.split(' ').collect();
    match words[..] {
        ["echo", at] => echo(at),
        ["ping", to, count, limit] => {
            ping(to, count.parse().unwrap(), limit.parse().unwrap());
        }
        ["spray", to, count] => spray(to, count.parse().unwrap()),
        ["burst", to, count] => burst(to, count.parse().unwrap()),
        _ => panic!("no such role: {role}"),
    }
    // Not by returning: the test harness would go on.
    std::process::exit(0);
}

/// Sends back what comes, until it is killed or its stdin ends.
fn echo(at: &str) {
    let socket = UdpSocket::bind(at).unwrap();
    std::thread::spawn(|| {
        let _ = std::io::stdin().read(&mut [0]);
        std::process::exit(0);
    });
    println!("ready");
    let mut buffer = [0; 2048];
    loop {
        let (bytes, from) = socket.recv_from(&mut buffer).unwrap();
        let _ = socket.send_to(&buffer[..bytes], from);
    }
}

/// Sends one datagram after the other, and says which of them came back, and after how long at best.
fn ping(to: &str, count: u32, limit: u64) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(to).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_millis(limit)))
        .unwrap();
    let (mut pattern, mut best) = (String::new(), Duration::MAX);
    for number in 0..count {
        let start = Instant::now();
        socket.send(&number.to_le_bytes()).unwrap();
        let answered = loop {
            let mut answer = [0; 4];
            match socket.recv(&mut answer) {
                Ok(4) if answer == number.to_le_bytes() => break true,
                // To an earlier one, which had been given up.
                Ok(_) => {}
                Err(_) => break false,
            }
        };
        if answered {
            best = best.min(start.elapsed());
        }
        pattern.push(if answered { '+' } else { '-' });
    }
    println!("pattern {pattern}");
    println!("best {}", best.as_micros());
}

/// Sends many datagrams without waiting for answers, and says which were answered.
fn spray(to: &str, count: u8) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(to).unwrap();
    for number in 0..count {
        socket.send(&[number]).unwrap();
    }
    let quiet = Duration::from_secs(10);
    socket.set_read_timeout(Some(quiet)).unwrap();
    let mut pattern = vec![b'-'; usize::from(count)];
    let mut answer = [0];
    while socket.recv(&mut answer).is_ok() {
        pattern[usize::from(answer[0])] = b'+';
    }
    println!("pattern {}", String::from_utf8_lossy(&pattern));
}

/// Sends many datagrams at once, and says how long it took until the last was back.
fn burst(to: &str, count: u32) {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    socket.connect(to).unwrap();
    socket.set_read_timeout(Some(LONG)).unwrap();
    let start = Instant::now();
    for _ in 0..count {
        socket.send(&[0; 1208]).unwrap();
    }
    for _ in 0..count {
        socket.recv(&mut [0; 2048]).unwrap();
    }
    println!("took {}", start.elapsed().as_micros());
}

fn program(bed: &Bed, node: usize, role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "role_of_a_program", "--nocapture", "--quiet"])
        .env("TEST_ROLE", role)
        .stdout(Stdio::piped());
    bed.enter(node, &mut command);
    command
}

/// An echo in a node. It ends with its stdin, so at the latest with this process.
struct Echo {
    child: Child,
    at: String,
}

impl Echo {
    fn start(bed: &Bed, node: usize) -> Self {
        let at = format!("{}:{}", bed.address(node), bed.port());
        let mut command = program(bed, node, &format!("echo {at}"));
        let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        assert!(lines.any(|line| line.ends_with("ready")));
        Self { child, at }
    }
}

impl Drop for Echo {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// What a program in a node says after a word.
fn said(bed: &Bed, node: usize, role: &str, word: &str) -> String {
    let output = program(bed, node, role).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = text.lines();
    let line = lines.find_map(|line| line.split_once(&format!("{word} ")));
    line.unwrap_or_else(|| panic!("no {word}: {output:?}"))
        .1
        .to_owned()
}

fn pattern(bed: &Bed, node: usize, echo: &Echo, count: u32, limit: u64) -> String {
    let role = format!("ping {} {count} {limit}", echo.at);
    said(bed, node, &role, "pattern")
}

/// Each way to make a bed, as far as this machine has it.
fn each_kind(test: &str, nodes: usize, body: impl Fn(Builder, &str)) {
    let builder = || Bed::builder(nodes);
    for (name, builder) in [
        ("as it is", builder()),
        ("relay", builder().wire(WireChoice::Relay)),
        ("in a user namespace", builder().user_namespace()),
        (
            "relay in a user namespace",
            builder().user_namespace().wire(WireChoice::Relay),
        ),
    ] {
        if builder.clone().build_or_skip(test).is_some() {
            body(builder, name);
        }
    }
}

#[test]
fn all_nodes_reach_each_other_and_links_can_be_cut() {
    each_kind("all_nodes_reach_each_other", 3, |builder, kind| {
        let bed = builder.build().unwrap();
        let echo = Echo::start(&bed, 1);
        for node in 0..3 {
            assert_eq!(pattern(&bed, node, &echo, 3, 20_000), "+++", "{kind}");
        }
        bed.cut(1).unwrap();
        assert_eq!(pattern(&bed, 0, &echo, 2, 200), "--", "{kind}");
        // On the node itself, and elsewhere, nothing is different.
        assert_eq!(pattern(&bed, 1, &echo, 2, 20_000), "++", "{kind}");
        let other = Echo::start(&bed, 2);
        assert_eq!(pattern(&bed, 0, &other, 2, 20_000), "++", "{kind}");
        bed.mend(1).unwrap();
        assert_eq!(pattern(&bed, 0, &echo, 3, 20_000), "+++", "{kind}");
    });
}

#[test]
fn nobody_else_is_on_the_wire() {
    each_kind("nobody_else_is_on_the_wire", 2, |builder, kind| {
        let devices = || {
            let text = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
            let names = text.lines().filter_map(|line| line.split_once(':'));
            names
                .map(|(name, _)| name.trim().to_owned())
                .collect::<Vec<_>>()
        };
        let before = devices();
        let (one, two) = (builder.clone().build().unwrap(), builder.build().unwrap());
        assert_eq!(devices(), before, "{kind}");
        // The same addresses, and yet others.
        let echo = Echo::start(&one, 1);
        assert_eq!(pattern(&one, 0, &echo, 2, 20_000), "++", "{kind}");
        assert_eq!(pattern(&two, 0, &echo, 2, 200), "--", "{kind}");
    });
}

#[test]
fn packets_take_their_time() {
    let builder = Bed::builder(2).delay(Duration::from_millis(5));
    let Some(bed) = builder.build_or_skip("packets_take_their_time") else {
        return;
    };
    let echo = Echo::start(&bed, 1);
    let role = format!("ping {} 20 2000", echo.at);
    let best: u64 = said(&bed, 0, &role, "best").parse().unwrap();
    assert!(best >= 10_000, "{best} us there and back: {bed}");
}

#[test]
fn a_wire_lets_so_much_through() {
    let builder = Bed::builder(2).rate(2_000_000);
    let Some(bed) = builder.build_or_skip("a_wire_lets_so_much_through") else {
        return;
    };
    let echo = Echo::start(&bed, 1);
    // Of 1250 bytes each with their headers: 5 ms a packet, and back they overlap with those to come.
    let took: u64 = said(&bed, 0, &format!("burst {} 20", echo.at), "took")
        .parse()
        .unwrap();
    assert!(took >= 104_000, "{took} us: {bed}");
}

#[test]
fn the_same_packets_are_lost_again() {
    let builder = |seed| Bed::builder(2).loss(0.2).seed(seed);
    let run = |seed| {
        let bed = builder(seed).build_or_skip("the_same_packets_are_lost_again")?;
        assert_eq!(bed.wire(), Wire::Relay);
        let echo = Echo::start(&bed, 1);
        let role = format!("spray {} 100", echo.at);
        let pattern = said(&bed, 0, &role, "pattern");
        let lost = pattern.matches('-').count() as u64;
        assert!((15..60).contains(&lost), "{pattern}");
        assert_eq!(bed.traffic().unwrap().lost, lost);
        Some(pattern)
    };
    let Some(first) = run(3) else { return };
    assert_eq!(Some(&first), run(3).as_ref());
    assert_ne!(Some(&first), run(4).as_ref());
}

#[test]
fn the_wire_that_is_wanted_or_none() {
    let test = "the_wire_that_is_wanted_or_none";
    let Some(bed) = Bed::builder(1).build_or_skip(test) else {
        return;
    };
    assert_ne!(bed.wire(), Wire::Netem);
    assert!(bed.to_string().contains("neither delay nor loss"), "{bed}");
    let shaped = || Bed::builder(2).delay(Duration::from_millis(1));
    match shaped().wire(WireChoice::Kernel).build() {
        Ok(bed) => assert_eq!(bed.wire(), Wire::Netem),
        Err(error) => {
            assert!(error.is_missing(), "{error}");
            let bed = shaped().build_or_skip(test);
            assert!(bed.is_none_or(|bed| bed.wire() == Wire::Relay));
        }
    }
}
