//! Jobs on several hosts over ssh. A server on the loopback address stands for two hosts.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use tidegate::Buffers;
use tidegate_cli::{Hosts, Job};
use tidegate_fabric::wire::libfabric::Choice;

use crate::processes::{play, take_flag};
use crate::ring;
use crate::skip::{provided, tcp};
use crate::sshd::Sshd;

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(120);

/// `tidegate run` on both hosts, with this many ranks each. The program's name is still to be added.
fn tidegate(sshd: &Sshd, slots: [usize; 2]) -> Command {
    let mut command = super::launcher();
    command.arg("run").arg("--hosts").arg(sshd.hosts(slots));
    command.args(["--ssh", &sshd.command()]);
    command.stdin(Stdio::null());
    command
}

fn run(command: &mut Command, script: &str) -> Output {
    command.args(["/bin/sh", "-c", script]).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The lines of all ranks, in order.
fn lines(output: &Output) -> Vec<String> {
    let mut lines: Vec<_> = text(&output.stdout).lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// The process numbers that ranks have left in a folder.
fn pids(folder: &Path) -> Vec<u32> {
    let entries = std::fs::read_dir(folder).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .filter_map(|name| name.strip_prefix("pid-")?.parse().ok())
        .collect()
}

/// Waits until so many ranks have left their process numbers, and returns them.
fn wait_for_pids(folder: &Path, count: usize) -> Vec<u32> {
    let began = Instant::now();
    loop {
        let pids = pids(folder);
        if pids.len() >= count {
            return pids;
        }
        assert!(
            began.elapsed() < LONG,
            "the ranks do not leave their numbers"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A shell script for a rank that prints a line, then leaves its process number, and runs for ever.
const FOR_EVER: &str = "echo started; : > $MARKS/pid-$$; while :; do sleep 0.1; done";

fn assert_all_end(pids: &[u32]) {
    let began = Instant::now();
    while pids
        .iter()
        .any(|pid| Path::new(&format!("/proc/{pid}")).exists())
    {
        assert!(began.elapsed() < LONG, "ranks are left");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The command line of a process, and its initial environment.
fn started_with(pid: u32) -> [Vec<u8>; 2] {
    ["cmdline", "environ"]
        .map(|file| std::fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default())
}

fn processes() -> Vec<u32> {
    let entries = std::fs::read_dir("/proc").unwrap();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    names.filter_map(|name| name.parse().ok()).collect()
}

fn has(bytes: &[u8], part: &str) -> bool {
    bytes
        .windows(part.len())
        .any(|window| window == part.as_bytes())
}

/// This is not a test, but the program of the next test's ranks.
#[test]
fn a_rank() {
    play(|role, world| {
        let (rank, size) = (world.rank(), world.size());
        ring::run(world.clone(), Buffers::Double, 20)?;
        // The test looks for the secret in all processes.
        let secret = std::env::var("TIDEGATE_SECRET").unwrap();
        println!(
            "{role}: {rank} of {size}, process {}, secret {secret}",
            std::process::id()
        );
        take_flag(&format!("go on {rank}"));
        Ok(())
    });
}

#[test]
fn ranks_of_two_hosts_exchange_and_nobody_else_sees_their_secret() {
    let test = "ranks_of_two_hosts_exchange_and_nobody_else_sees_their_secret";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    if !provided(test, tcp()) {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut launcher = tidegate(&sshd, [2, 2])
        .args([
            "-x",
            "TIDEGATE_TEST_ROLE=ring",
            "-x",
            &format!("{}={}", Choice::PROVIDER, tcp()),
        ])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "ssh::a_rank", "--nocapture", "--quiet"])
        .current_dir(folder.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let printed = BufReader::new(launcher.stdout.take().unwrap()).lines();
    let mut ranks = Vec::new();
    let mut secret = String::new();
    for line in printed.map_while(std::io::Result::ok) {
        let Some((said, own)) = line.split_once(", secret ") else {
            continue;
        };
        let (said, process) = said.split_once(", process ").unwrap();
        ranks.push((said.to_owned(), process.parse::<u32>().unwrap()));
        assert!(secret.is_empty() || secret == own);
        own.clone_into(&mut secret);
        if ranks.len() == 4 {
            break;
        }
    }
    ranks.sort();
    let said: Vec<_> = ranks.iter().map(|(said, _)| said.clone()).collect();
    let expected: Vec<_> = (0..4)
        .map(|rank| format!("[{rank}] ring: {rank} of 4"))
        .collect();
    assert_eq!(said, expected);
    assert!(secret.len() >= 32);

    let own: BTreeSet<u32> = ranks.iter().map(|(_, process)| *process).collect();
    let (mut clients, mut agents, mut holders) = (0, 0, BTreeSet::new());
    for process in processes() {
        let [command, environment] = started_with(process);
        assert!(!has(&command, &secret), "the command line of {process}");
        if has(&environment, &secret) {
            holders.insert(process);
        }
        clients += usize::from(has(&command, &sshd.command().replace(' ', "\0")));
        agents += usize::from(has(&command, "tidegate\0node\0"));
    }
    // The ranks have the secret, so it would have been seen elsewhere, and ssh was running when the test looked.
    assert_eq!(holders, own);
    assert!(
        clients >= 2 && agents >= 2,
        "{clients} clients, {agents} agents"
    );
    for rank in 0..4 {
        std::fs::write(folder.path().join(format!("go on {rank}")), "").unwrap();
    }
    assert!(launcher.wait().unwrap().success());
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn ranks_on_hosts_have_the_same_environment_as_here() {
    let test = "ranks_on_hosts_have_the_same_environment_as_here";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let script = "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR $TIDEGATE_ADDRESS \
        $A $B $TIDEGATE_JOB_ID ${HIDDEN-none} $(basename $PWD) $TIDEGATE_NODE";
    let name = folder
        .path()
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .to_owned();
    let run_with = |arguments: &[&str]| {
        let mut command = tidegate(&sshd, [3, 2]);
        let a = if arguments.is_empty() {
            "a"
        } else {
            "with a ' in it"
        };
        command
            .args(arguments)
            .args(["-x", "A", "-e", "B=b", "-x", "B=not this"])
            .env("A", a)
            .env("HIDDEN", "x")
            .env("TIDEGATE_JOB_ID", "job")
            .current_dir(folder.path());
        run(&mut command, script)
    };
    let output = run_with(&[]);
    assert!(output.status.success(), "{output:?}");
    let [first, second] = sshd.ports;
    let line = |rank: usize, local: usize, of: usize, port: u16| {
        format!(
            "[{rank}] {rank} 5 {local} {of} 127.0.0.1 127.0.0.1 a b job none {name} 127.0.0.1 port {port}"
        )
    };
    assert_eq!(
        lines(&output),
        [
            line(0, 0, 3, first),
            line(1, 1, 3, first),
            line(2, 2, 3, first),
            line(3, 0, 2, second),
            line(4, 1, 2, second)
        ]
    );
    // If there are fewer ranks than slots, the last slots are empty. There cannot be more ranks than slots.
    let output = run_with(&["-n", "2", "--no-label"]);
    assert!(output.status.success(), "{output:?}");
    assert!(
        lines(&output)[0].starts_with("0 2 0 2 127.0.0.1 127.0.0.1 with a ' in it b"),
        "{output:?}"
    );
    let output = run_with(&["-n", "6"]);
    assert_eq!(output.status.code(), Some(1));
    let said = text(&output.stderr);
    assert!(
        said.contains("the hosts have 5 slots, and the job 6 ranks"),
        "{said}"
    );
}

#[test]
fn a_rank_that_fails_on_a_host_ends_the_job_with_its_code() {
    let test = "a_rank_that_fails_on_a_host_ends_the_job_with_its_code";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    let marks = tempfile::tempdir().unwrap();
    let script = format!(
        "if test $RANK = 3; then until test $(ls $MARKS | wc -l) = 3; do sleep 0.01; done; echo error >&2; exit 7; fi; {FOR_EVER}"
    );
    let mut command = tidegate(&sshd, [2, 2]);
    command.args([
        "--grace",
        "0.1",
        "-x",
        &format!("MARKS={}", marks.path().display()),
    ]);
    let output = run(&mut command, &script);
    assert_eq!(output.status.code(), Some(7), "{output:?}");
    assert_eq!(
        lines(&output),
        ["[0] started", "[1] started", "[2] started"]
    );
    let said = text(&output.stderr);
    assert!(said.contains("[3] error\n"), "{said}");
    assert!(
        said.contains("tidegate: rank 3 failed (exit status: 7)"),
        "{said}"
    );
    let pids = pids(marks.path());
    assert_eq!(pids.len(), 3);
    assert_all_end(&pids);
}

/// Rank 0 ends first, on another host, and tells that it fails because of rank 3.
#[test]
fn a_rank_that_others_on_hosts_name_has_failed_first() {
    let test = "a_rank_that_others_on_hosts_name_has_failed_first";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    let marks = tempfile::tempdir().unwrap();
    let script = "case $RANK in
        0) printf '\\4\\0\\0\\0' | dd of=/proc/self/fd/${TIDEGATE_ENDS_FD%%:*} bs=4 conv=notrunc 2>/dev/null
           echo $$ > $MARKS/new; mv $MARKS/new $MARKS/0; exit 1;;
        3) until test -e $MARKS/0; do sleep 0.01; done
           while kill -0 $(cat $MARKS/0) 2>/dev/null; do sleep 0.01; done; : > $MARKS/3; exit 7;;
        esac; until test -e $MARKS/3; do sleep 0.01; done";
    let mut command = tidegate(&sshd, [2, 2]);
    let marks = format!("MARKS={}", marks.path().display());
    command.args(["--grace", "60", "-x", &marks]);
    let output = run(&mut command, script);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(7), "{said}");
    for part in [
        "rank 3 failed (exit status: 7)",
        "rank 0 ended because of it",
    ] {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn all_that_ranks_on_hosts_print_comes_back() {
    let test = "all_that_ranks_on_hosts_print_comes_back";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    // This is more than may be on its way at once.
    let script = "i=0; while test $i -lt 200; do head -c 20000 /dev/zero | tr '\\0' x; echo; i=$((i+1)); done";
    let output = run(&mut tidegate(&sshd, [1, 1]), script);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let all = lines(&output);
    assert_eq!(all.len(), 400);
    assert!(all.iter().all(|line| line.len() == 20_004));
    // A reader that stops after a line does not keep the ranks from ending.
    let mut launcher = tidegate(&sshd, [1, 1])
        .args(["/bin/sh", "-c", "yes"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    let mut reader = BufReader::new(launcher.stdout.take().unwrap());
    reader.read_line(&mut line).unwrap();
    assert!(line.ends_with("] y\n"), "{line}");
    kill_process(Pid::from_child(&launcher), Signal::TERM).unwrap();
    assert_eq!(launcher.wait().unwrap().code(), Some(128 + 15));
}

#[test]
fn a_program_starts_ranks_on_hosts_and_signals_them() {
    let test = "a_program_starts_ranks_on_hosts_and_signals_them";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    let hosts = Hosts::read(sshd.hosts([1, 1])).unwrap();
    let hosts = hosts
        .ssh(&sshd.command())
        .program(env!("CARGO_BIN_EXE_tidegate"));
    let marks = tempfile::tempdir().unwrap();
    // This is more than an agent may send before it gets new credit.
    let script = "trap 'exit 0' USR1; head -c 3000000 /dev/zero; echo end >&2; : > $MARKS/pid-$$
        while :; do sleep 0.01; done";
    let job = Job::new("/bin/sh", 2)
        .args(["-c", script])
        .env("MARKS", marks.path())
        .hosts(hosts)
        .output(tidegate_cli::Output::Captured);
    let running = job.spawn().unwrap();
    let expected: BTreeSet<_> = wait_for_pids(marks.path(), 2).into_iter().collect();
    let own: BTreeSet<_> = (0..2).filter_map(|rank| running.pid(rank)).collect();
    assert_eq!(own, expected);
    for rank in 0..2 {
        running.signal(rank, Signal::USR1).unwrap();
    }
    let outcome = running.wait();
    assert!(outcome.success(), "{:?}", outcome.first_failure);
    for rank in &outcome.ranks {
        assert_eq!(
            (rank.stdout.len(), &*rank.stderr),
            (3_000_000, &b"end\n"[..])
        );
    }
}

/// A job whose rank 0 may read `input`.
fn read_by_rank_0(sshd: &Sshd, script: &str, input: &[u8]) -> Output {
    use std::io::Write;
    let mut launcher = tidegate(sshd, [1, 1])
        .args(["/bin/sh", "-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut pipe = launcher.stdin.take().unwrap();
    // If nobody reads all of it, this fails when the launcher ends.
    let _ = pipe.write_all(input);
    drop(pipe);
    launcher.wait_with_output().unwrap()
}

#[test]
fn rank_0_on_a_host_reads_the_input_of_the_launcher() {
    let test = "rank_0_on_a_host_reads_the_input_of_the_launcher";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    let input = vec![b'x'; 1_000_000];
    let output = read_by_rank_0(&sshd, "wc -c", &input);
    assert_eq!(lines(&output), ["[0] 1000000", "[1] 0"], "{output:?}");
    assert_eq!(
        lines(&read_by_rank_0(&sshd, "wc -c", b"")),
        ["[0] 0", "[1] 0"]
    );
    // A rank that reads less, or nothing, ends all the same.
    for script in [
        "head -c 3 > /dev/null; echo x",
        "exec <&-; echo x; sleep 0.2",
        "echo x",
    ] {
        let output = read_by_rank_0(&sshd, script, &input);
        assert_eq!(lines(&output), ["[0] x", "[1] x"], "{script}: {output:?}");
        assert!(output.status.success());
    }
}

/// Runs ranks that must not start. Returns the launcher's messages.
fn refused(mut command: Command, code: i32) -> String {
    let marks = tempfile::tempdir().unwrap();
    command.args(["-x", &format!("MARKS={}", marks.path().display())]);
    let began = Instant::now();
    let output = run(&mut command, FOR_EVER);
    assert_eq!(output.status.code(), Some(code), "{output:?}");
    assert!(began.elapsed() < LONG / 2, "{:?}", began.elapsed());
    assert!(pids(marks.path()).is_empty(), "{output:?}");
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn a_host_that_cannot_run_its_ranks_is_named_and_nothing_starts() {
    let test = "a_host_that_cannot_run_its_ranks_is_named_and_nothing_starts";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    let [_, second] = sshd.ports;

    let said = {
        let mut command = tidegate(&sshd, [1, 1]);
        command.args(["--remote-tidegate", "/no/such/program"]);
        refused(command, 1)
    };
    assert!(said.contains("tidegate: host 127.0.0.1 port "), "{said}");
    assert!(
        said.contains("/no/such/program") && said.contains("--remote-tidegate"),
        "{said}"
    );

    // The program is not tidegate.
    let mut command = tidegate(&sshd, [1, 1]);
    command.args(["--remote-tidegate", "/bin/true"]);
    let said = refused(command, 1);
    assert!(said.contains("ssh has ended (exit status: 0)"), "{said}");

    // One of the hosts does not answer: no other process can listen at this port, and this one does not.
    let reserved = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    rustix::net::bind(&reserved, &SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
    let closed = SocketAddr::try_from(rustix::net::getsockname(&reserved).unwrap());
    let closed = closed.unwrap().port();
    let file = tempfile::NamedTempFile::new().unwrap();
    let hosts = format!("127.0.0.1 port={second}\n127.0.0.1 port={closed}\n");
    std::fs::write(file.path(), hosts).unwrap();
    let mut command = super::launcher();
    command
        .arg("run")
        .arg("--hosts")
        .arg(file.path())
        .args(["--ssh", &sshd.command()]);
    let said = refused(command, 1);
    assert!(
        said.contains(&format!("host 127.0.0.1 port {closed}: ")),
        "{said}"
    );
    assert!(said.contains("Connection refused"), "{said}");

    // A host accepts the connection, and sends nothing.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = silent.local_addr().map(|at| (at.port(), silent)).unwrap();
    std::fs::write(file.path(), format!("127.0.0.1 port={}\n", silent.0)).unwrap();
    let mut command = super::launcher();
    command
        .arg("run")
        .arg("--hosts")
        .arg(file.path())
        .args(["--ssh", &sshd.command()]);
    command.args(["-e", "TIDEGATE_RENDEZVOUS_TIMEOUT=2"]);
    let said = refused(command, 1);
    assert!(
        said.contains(&format!("host 127.0.0.1 port {}: ", silent.0)),
        "{said}"
    );

    // The ranks' program does not exist there, nor does their folder.
    let output = tidegate(&sshd, [1, 1])
        .arg("/no/such/program")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(127), "{output:?}");
    let said = text(&output.stderr);
    assert!(
        said.contains("host 127.0.0.1 port ") && said.contains("/no/such/program"),
        "{said}"
    );

    // The host's key is another one. (This comes last, since it changes the client's known keys.)
    sshd.change_the_second_host();
    let said = refused(tidegate(&sshd, [1, 1]), 1);
    assert!(
        said.contains(&format!("host 127.0.0.1 port {second}: ")),
        "{said}"
    );
    assert!(said.contains("Host key verification failed"), "{said}");
}

/// A job of ranks that run for ever, after all have started.
fn running(sshd: &Sshd, marks: &Path, arguments: &[&str]) -> (Child, Vec<u32>) {
    let mut launcher = tidegate(sshd, [2, 2])
        .args(arguments)
        .args([
            "-x",
            &format!("MARKS={}", marks.display()),
            "/bin/sh",
            "-c",
            FOR_EVER,
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The launcher shows no output before all ranks have started.
    let printed = BufReader::new(launcher.stdout.take().unwrap()).lines();
    assert_eq!(printed.take(4).map_while(Result::ok).count(), 4);
    let pids = wait_for_pids(marks, 4);
    assert_eq!(pids.len(), 4);
    (launcher, pids)
}

#[test]
fn a_launcher_that_waits_for_a_host_can_be_interrupted() {
    let test = "a_launcher_that_waits_for_a_host_can_be_interrupted";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    let host = format!("127.0.0.1 port={}\n", silent.local_addr().unwrap().port());
    std::fs::write(file.path(), host).unwrap();
    let launcher = super::launcher()
        .arg("run")
        .arg("--hosts")
        .arg(file.path())
        .args(["--ssh", &sshd.command(), "true"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // It listens to signals before it starts ssh, and ssh gets no further than this.
    let connection = silent.accept().unwrap();
    let ssh = children(launcher.id());
    kill_process(Pid::from_child(&launcher), Signal::INT).unwrap();
    let output = launcher.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130), "{output:?}");
    assert!(!ssh.is_empty());
    assert_all_end(&ssh);
    drop(connection);
}

/// Agents that end only when all connections have been closed, and a host that fails when they have answered.
#[test]
fn hosts_of_a_job_that_does_not_start_end_at_the_same_time() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("hosts"), "one\ntwo\nbad\n").unwrap();
    let script = "cd ${0%/*}
        if test $1 = bad; then
            until test -e greeted.one -a -e greeted.two; do sleep 0.01; done; exit 3
        fi
        sh -c \"$2\" < /dev/null; : > greeted.$1
        cat > /dev/null; : > closed.$1
        until test -e closed.one -a -e closed.two; do sleep 0.01; done; : > ended.$1";
    std::fs::write(at("ssh"), script).unwrap();
    let launcher = super::launcher()
        .arg("run")
        .arg("--hosts")
        .arg(at("hosts"))
        .args(["--ssh", &format!("/bin/sh {}", at("ssh").display()), "true"])
        .output()
        .unwrap();
    let said = text(&launcher.stderr);
    assert!(said.contains("host bad: ssh has ended"), "{said}");
    assert!(at("ended.one").exists() && at("ended.two").exists());
}

/// All the others print without a pause, and the credit is used up when the first rank prints something.
#[test]
fn ranks_of_a_host_that_print_much_leave_credit_to_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    std::fs::write(at("hosts"), "one slots=24\n").unwrap();
    std::fs::write(at("ssh"), "exec sh -c \"$2\"").unwrap();
    let script = format!(
        "test $RANK = 0 || exec yes
        until test -e {}; do sleep 0.01; done; echo mine; exec sleep 600",
        at("done").display()
    );
    let mut launcher = super::launcher()
        .arg("run")
        .arg("--hosts")
        .arg(at("hosts"))
        .args(["--ssh", &format!("/bin/sh {}", at("ssh").display())])
        .args(["/bin/sh", "-c", &script])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stdout = launcher.stdout.take().unwrap();
    let began = Instant::now();
    while rustix::io::ioctl_fionread(&stdout).unwrap() < 32_000 {
        assert!(began.elapsed() < LONG, "the pipe is not full");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    std::fs::write(at("done"), "").unwrap();
    let mut lines = BufReader::new(stdout.take(64 << 20)).lines();
    let found = lines.any(|line| line.unwrap() == "[0] mine");
    launcher.kill().unwrap();
    launcher.wait().unwrap();
    assert!(found, "it got no credit");
}

/// The child processes of a process.
fn children(pid: u32) -> Vec<u32> {
    let mut all = Vec::new();
    for task in std::fs::read_dir(format!("/proc/{pid}/task")).unwrap() {
        let children = std::fs::read_to_string(task.unwrap().path().join("children")).unwrap();
        all.extend(
            children
                .split_whitespace()
                .map(|child| child.parse::<u32>().unwrap()),
        );
    }
    all
}

#[test]
fn a_broken_connection_ends_the_job_and_names_the_host() {
    let test = "a_broken_connection_ends_the_job_and_names_the_host";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    let marks = tempfile::tempdir().unwrap();
    let (launcher, pids) = running(&sshd, marks.path(), &["--grace", "0.1"]);
    let second = sshd.ports[1].to_string();
    let is_second = |child: &u32| has(&started_with(*child)[0], &second);
    let ssh = children(launcher.id()).into_iter().find(is_second).unwrap();
    // This is the launcher's own child, for which it has not waited yet.
    kill_process(Pid::from_raw(ssh as i32).unwrap(), Signal::KILL).unwrap();
    let output = launcher.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(255), "{said}");
    let lost = format!(
        "tidegate: host 127.0.0.1 port {second}: lost, with ranks 2, 3: ssh has ended (signal: 9"
    );
    assert!(said.contains(&lost), "{said}");
    assert_all_end(&pids);
}

#[test]
fn ranks_on_hosts_get_signals_and_end_with_their_launcher() {
    let test = "ranks_on_hosts_get_signals_and_end_with_their_launcher";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    for (signal, code) in [
        (Signal::INT, Some(130)),
        (Signal::TERM, Some(143)),
        (Signal::KILL, None),
    ] {
        let marks = tempfile::tempdir().unwrap();
        let (launcher, pids) = running(&sshd, marks.path(), &[]);
        kill_process(Pid::from_child(&launcher), signal).unwrap();
        let output = launcher.wait_with_output().unwrap();
        assert_eq!(
            output.status.code(),
            code,
            "{signal:?}: {}",
            text(&output.stderr)
        );
        assert_all_end(&pids);
    }
}

#[test]
fn an_agent_that_is_killed_takes_its_ranks_along() {
    let test = "an_agent_that_is_killed_takes_its_ranks_along";
    let Some(sshd) = Sshd::start(test) else {
        return;
    };
    let marks = tempfile::tempdir().unwrap();
    let (launcher, pids) = running(&sshd, marks.path(), &["--grace", "0.1"]);
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pids[0])).unwrap();
    let rest = stat.rsplit_once(')').unwrap().1;
    let agent: i32 = rest.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(has(&started_with(agent as u32)[0], "tidegate\0node\0"));
    kill_process(Pid::from_raw(agent).unwrap(), Signal::KILL).unwrap();
    let output = launcher.wait_with_output().unwrap();
    let said = text(&output.stderr);
    assert!(
        !output.status.success() && said.contains(": lost, with ranks "),
        "{said}"
    );
    assert_all_end(&pids);
}
