//! The launcher's end of the connection to one host, which is a process of ssh.

use super::file::{HostEntry, Hosts};
use super::frames::{CREDIT, FromHost, Incoming, ToHost, VERSION, frame};
use crate::child::end_with;
use crate::error::LaunchError;
use crate::printer::StdStream;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use rustix::process::{Signal, getpid};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};
use tidegate_boot::starter::SECRET;

/// How long an agent may take to end its ranks after the connection has ended.
const TO_END: Duration = Duration::from_secs(5);
/// How much of ssh's error output is kept until it is read.
const MOST_ERRORS: usize = 16 << 10;
/// A login shell does not print more than this.
const MOST_BEFORE_GREETING: usize = 1 << 20;

/// Sends messages to an agent, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct HostSender(Sender<Option<Vec<u8>>>);

impl HostSender {
    /// If the connection has ended, the message is lost. That is noticed where the other end is read.
    pub(crate) fn send(&self, message: &ToHost) {
        let _ = self.0.send(Some(frame(message)));
    }

    /// Signals the process of a rank, or also the programs that it has started.
    pub(crate) fn signal(&self, rank: usize, signal: Signal, to_all: bool) {
        let signal = signal.as_raw();
        self.send(&ToHost::Signal {
            rank,
            signal,
            to_all,
        });
    }

    fn close(&self) {
        let _ = self.0.send(None);
    }
}

/// The connection to a host. Dropping it ends the ranks there, and waits a moment for that.
pub(crate) struct HostLink {
    name: String,
    ranks: Range<usize>,
    ssh: Child,
    program: String,
    sender: HostSender,
    out: Option<File>,
    errors: Option<File>,
    incoming: Incoming,
    greeted: bool,
    /// The error output of ssh that has not been taken yet.
    said: Vec<u8>,
    /// Messages that came before they were wanted.
    kept: VecDeque<FromHost>,
    /// How much output of each stream has come for which the agent has got no new credit.
    owed: [usize; 2],
}

/// A word, quoted for the host's shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// The command that logs in to a host, and starts an agent there.
fn command(hosts: &Hosts, host: &HostEntry, program: &Path, limit: Duration) -> Command {
    let (ssh, words) = match hosts.ssh.split_first() {
        Some((ssh, words)) => (ssh.as_str(), words),
        None => ("ssh", &[][..]),
    };
    let mut command = Command::new(ssh);
    command.args(words);
    if Path::new(ssh).file_name().is_some_and(|name| name == "ssh") {
        // If an option is given twice, ssh takes the first, so the user's words take precedence. ssh must not ask
        // questions, since its input is ours. And it must notice a host that has gone.
        let limit = format!("ConnectTimeout={}", limit.as_secs().clamp(1, 10));
        command.args(["-T", "-o", "BatchMode=yes", "-o", &limit]);
        command.args(["-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"]);
    }
    if let Some(port) = host.port {
        command.args(["-p", &port.to_string()]);
    }
    if let Some(user) = &host.user {
        command.args(["-l", user]);
    }
    let remote = format!("exec {} node", quoted(&program.to_string_lossy()));
    command.arg(&host.name).arg(remote);
    command
}

/// Writes all bytes. If ssh has ended, this is an error and no signal, even if this program does not ignore `SIGPIPE`.
fn write_all(input: &UnixStream, mut bytes: &[u8]) -> rustix::io::Result<()> {
    while !bytes.is_empty() {
        match send(input, bytes, SendFlags::NOSIGNAL) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

impl HostLink {
    /// Logs in to a host in the background.
    pub(super) fn start(
        hosts: &Hosts,
        host: &HostEntry,
        ranks: Range<usize>,
        limit: Duration,
    ) -> Result<Self, LaunchError> {
        let own = std::env::current_exe();
        let program = match (&hosts.program, own) {
            (Some(program), _) => program.clone(),
            (None, Ok(own)) => own,
            (None, Err(error)) => return Err(LaunchError::io("finding this program", error)),
        };
        let mut command = command(hosts, host, &program, limit);
        let no_socket = |error| LaunchError::io("making a socket for ssh", error);
        let (input, end) = UnixStream::pair().map_err(no_socket)?;
        command
            .stdin(OwnedFd::from(end))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // It may be the secret of another job, of which this launcher is a rank.
            .env_remove(SECRET)
            // A terminal's Ctrl-C is for the launcher, which tells the ranks.
            .process_group(0);
        let launcher = getpid();
        // SAFETY: between fork and exec the closure only makes system calls, as at the start of a rank.
        unsafe {
            command.pre_exec(move || {
                end_with(launcher)?;
                Ok(())
            });
        }
        let failed = |source: std::io::Error| LaunchError::Host {
            host: host.to_string(),
            reason: format!("{:?} cannot be started: {source}", command_name(hosts)),
            code: 1,
        };
        let mut ssh = command.spawn().map_err(failed)?;
        let out = File::from(OwnedFd::from(ssh.stdout.take().expect("it is a pipe")));
        let errors = File::from(OwnedFd::from(ssh.stderr.take().expect("it is a pipe")));
        let (sender, messages) = channel::<Option<Vec<u8>>>();
        let mut link = Self {
            name: host.to_string(),
            ranks,
            ssh,
            program: program.to_string_lossy().into_owned(),
            sender: HostSender(sender),
            out: None,
            errors: None,
            incoming: Incoming::default(),
            greeted: false,
            said: Vec::new(),
            kept: VecDeque::new(),
            owed: [0; 2],
        };
        for file in [&out, &errors] {
            rustix::io::ioctl_fionbio(file, true)
                .map_err(|error| LaunchError::io("reading from ssh", error))?;
        }
        (link.out, link.errors) = (Some(out), Some(errors));
        // This thread may wait for the network. It ends with the connection.
        std::thread::Builder::new()
            .name("tidegate-ssh".into())
            .spawn(move || {
                while let Ok(Some(frame)) = messages.recv() {
                    if write_all(&input, &frame).is_err() {
                        break;
                    }
                }
            })
            .map_err(|error| LaunchError::io("starting the thread that speaks to ssh", error))?;
        Ok(link)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The ranks of the host.
    pub(crate) fn ranks(&self) -> Range<usize> {
        self.ranks.clone()
    }

    /// The error of this host.
    pub(super) fn failed(&self, reason: String, code: u8) -> LaunchError {
        LaunchError::Host {
            host: self.name.clone(),
            reason,
            code,
        }
    }

    pub(crate) fn sender(&self) -> &HostSender {
        &self.sender
    }

    /// It is ready when a message has come. `None`: the connection has ended.
    pub(crate) fn out(&self) -> Option<BorrowedFd<'_>> {
        self.out.as_ref().map(File::as_fd)
    }

    /// It is ready when ssh has printed an error. `None`: there will be no more.
    pub(crate) fn errors(&self) -> Option<BorrowedFd<'_>> {
        self.errors.as_ref().map(File::as_fd)
    }

    /// Takes the messages that have come. If they are the last, returns why.
    pub(crate) fn hear(&mut self, messages: &mut Vec<FromHost>) -> Result<(), String> {
        messages.extend(self.kept.drain(..));
        let Some(out) = &mut self.out else {
            return Ok(());
        };
        let mut chunk = [0; 64 << 10];
        let mut is_over = None;
        // A bounded number of reads, so that other hosts get their turn.
        for _ in 0..16 {
            match out.read(&mut chunk) {
                Ok(0) => {
                    is_over = Some(String::new());
                    break;
                }
                Ok(count) => self.incoming.extend(&chunk[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    is_over = Some(error.to_string());
                    break;
                }
            }
        }
        if let Err(reason) = self.take(messages) {
            is_over = Some(reason);
        }
        match is_over {
            None => Ok(()),
            Some(reason) => Err(self.end(reason)),
        }
    }

    fn take(&mut self, messages: &mut Vec<FromHost>) -> Result<(), String> {
        if !self.greeted {
            match self.incoming.greeting() {
                Some(version) if version == VERSION => self.greeted = true,
                Some(version) => {
                    let program = &self.program;
                    return Err(format!(
                        "{program} is tidegate {version} there, and {VERSION} here"
                    ));
                }
                None if self.incoming.len() > MOST_BEFORE_GREETING => {
                    return Err("what it prints is not from tidegate".to_owned());
                }
                None => return Ok(()),
            }
        }
        let wrong = |error| format!("what comes from its tidegate cannot be read: {error}");
        while let Some(message) = self.incoming.next().map_err(wrong)? {
            messages.push(message);
        }
        Ok(())
    }

    /// Keeps a message for the next [`HostLink::hear`].
    pub(super) fn keep(&mut self, message: FromHost) {
        self.kept.push_back(message);
    }

    /// Whether messages are kept.
    pub(crate) fn has_kept(&self) -> bool {
        !self.kept.is_empty()
    }

    /// Reads the error output of ssh, or of an agent that cannot send a message.
    pub(crate) fn hear_errors(&mut self) {
        let Some(errors) = &mut self.errors else {
            return;
        };
        let mut chunk = [0; 4096];
        loop {
            match errors.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => {
                    let room = MOST_ERRORS.saturating_sub(self.said.len());
                    self.said.extend_from_slice(&chunk[..count.min(room)]);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => break,
            }
        }
        self.errors = None;
    }

    /// The whole lines of error output since the last call. At the end of the output, everything.
    pub(crate) fn take_lines(&mut self) -> Vec<String> {
        let whole = match self.errors {
            None => self.said.len(),
            Some(_) if self.said.len() >= MOST_ERRORS => self.said.len(),
            Some(_) => {
                let newline = self.said.iter().rposition(|byte| *byte == b'\n');
                newline.map_or(0, |last| last + 1)
            }
        };
        let text: Vec<u8> = self.said.drain(..whole).collect();
        let text = String::from_utf8_lossy(&text);
        let lines = text
            .lines()
            .map(str::trim_end)
            .filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }

    /// Notes output for which the agent gets new credit once there is room.
    pub(crate) fn owe(&mut self, stream: StdStream, bytes: usize) {
        self.owed[stream as usize] += bytes;
    }

    /// Sends new credit for a stream, since there is room.
    pub(crate) fn grant(&mut self, stream: StdStream) {
        // This is not done for a few bytes.
        let bytes = self.owed[stream as usize];
        if bytes >= CREDIT / 4 {
            self.owed[stream as usize] = 0;
            self.sender.send(&ToHost::Credit { stream, bytes });
        }
    }

    /// Notes that the connection has ended. Returns why, in ssh's words if there are any.
    fn end(&mut self, reason: String) -> String {
        self.out = None;
        self.sender.close();
        let limit = if self.greeted { TO_END } else { TO_END / 5 };
        let status = self.finish(Instant::now() + limit);
        self.hear_errors();
        self.errors = None;
        let said = self.take_lines().join("; ");
        let how = match (reason.is_empty(), status) {
            (false, _) => reason,
            (true, Some(status)) => format!("ssh has ended ({status})"),
            (true, None) => "ssh closed its output, and was killed".to_owned(),
        };
        let hint = match status.and_then(|status| status.code()) {
            Some(126 | 127) if !self.greeted => {
                "; --remote-tidegate says where the hosts have the program tidegate"
            }
            _ => "",
        };
        if said.is_empty() {
            format!("{how}{hint}")
        } else {
            format!("{how}: {said}{hint}")
        }
    }

    /// Ends the connection now. The ranks of the host are lost.
    pub(crate) fn kill(&mut self) {
        let _ = self.ssh.kill();
    }

    /// Ends the connections to all hosts, and waits a moment for the ends of their ranks.
    pub(super) fn end_all(links: &mut [HostLink]) {
        links.iter_mut().for_each(HostLink::begin_end);
        let until = Instant::now() + TO_END;
        for link in links {
            link.finish(until);
        }
    }

    /// Makes the agent end its ranks, and itself; and then ssh ends, too. Without an agent, kills ssh.
    fn begin_end(&mut self) {
        self.sender.close();
        if !self.greeted {
            let _ = self.ssh.kill();
        }
    }

    /// Waits for the end of ssh. `None`: it had to be killed.
    fn finish(&mut self, until: Instant) -> Option<std::process::ExitStatus> {
        while Instant::now() < until {
            match self.ssh.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => std::thread::sleep(Duration::from_millis(2)),
                Err(_) => break,
            }
        }
        let _ = self.ssh.kill();
        let _ = self.ssh.wait();
        None
    }
}

fn command_name(hosts: &Hosts) -> &str {
    hosts.ssh.first().map_or("ssh", String::as_str)
}

impl Drop for HostLink {
    fn drop(&mut self) {
        Self::end_all(std::slice::from_mut(self));
    }
}
