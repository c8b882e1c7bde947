//! An ssh server of the test's own, on the loopback address.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::skip::skipped;

/// Long enough for a loaded machine.
const LONG: Duration = Duration::from_secs(60);

/// A server with keys of its own, at two ports, which look like two hosts. Dropping it ends the server.
pub(crate) struct Sshd {
    // It comes first, so that it has ended before the folder is deleted.
    _server: Server,
    folder: TempDir,
    pub(crate) ports: [u16; 2],
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Debian has the server here, which is not on every user's path.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into()]);
    folders
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}

/// Free ports. Another process may take one before the server does.
fn free_ports() -> [u16; 2] {
    let listeners = [(), ()].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().port())
}

fn make_key(folder: &Path, name: &str) {
    let made = Command::new(find("ssh-keygen").unwrap())
        .args(["-q", "-t", "ed25519", "-N", "", "-f"])
        .arg(folder.join(name))
        .stdin(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success(), "ssh-keygen: {made}");
}

impl Sshd {
    /// Starts the server. `None`: the machine has no ssh, and the test is skipped.
    pub(crate) fn start(test: &str) -> Option<Self> {
        let programs = ["ssh", "sshd", "ssh-keygen"].map(|name| (name, find(name)));
        if let Some((name, _)) = programs.iter().find(|(_, found)| found.is_none()) {
            skipped(test, &format!("there is no {name}"));
            return None;
        }
        // As root, the server needs this folder, which its service normally makes.
        if rustix::process::geteuid().is_root() {
            let _ = std::fs::create_dir("/run/sshd");
        }
        let folder = tempfile::tempdir().unwrap();
        ["host", "user", "other"]
            .iter()
            .for_each(|name| make_key(folder.path(), name));
        for _ in 0..5 {
            let ports = free_ports();
            let server = serve(folder.path(), ports);
            // From here on, dropping the value ends the server.
            let mut server = Server(server);
            if server.is_up(folder.path(), ports) {
                configure_client(folder.path(), ports);
                return Some(Self {
                    folder,
                    _server: server,
                    ports,
                });
            }
        }
        let log = std::fs::read_to_string(folder.path().join("log"));
        panic!("the server does not start: {log:?}")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The command that logs in, for `--ssh`.
    pub(crate) fn command(&self) -> String {
        format!("ssh -F {}", self.path("ssh_config").display())
    }

    /// From now on the client expects another key of the second host.
    pub(crate) fn change_the_second_host(&self) {
        let known = std::fs::read_to_string(self.path("known_hosts")).unwrap();
        let first = known.lines().next().unwrap();
        let other = std::fs::read_to_string(self.path("other.pub")).unwrap();
        let second = format!("[127.0.0.1]:{} {other}", self.ports[1]);
        std::fs::write(self.path("known_hosts"), format!("{first}\n{second}")).unwrap();
    }

    /// A file that lists both hosts, with this many slots each.
    pub(crate) fn hosts(&self, slots: [usize; 2]) -> PathBuf {
        let lines = self.ports.iter().zip(slots);
        let lines = lines.map(|(port, slots)| format!("127.0.0.1 port={port} slots={slots}\n"));
        let path = self.path("hosts");
        std::fs::write(&path, lines.collect::<String>()).unwrap();
        path
    }
}

/// The process of the server.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Server {
    /// Waits until its log says that it listens at both ports. (If anything answers there, that may be another process.)
    /// Returns false if it has ended, or has found a port taken: then it goes on with the other one.
    fn is_up(&mut self, folder: &Path, ports: [u16; 2]) -> bool {
        let began = Instant::now();
        loop {
            let has_ended = self.0.try_wait().unwrap().is_some();
            let log = std::fs::read_to_string(folder.join("log")).unwrap_or_default();
            let says = |what: &str, end: &str| {
                ports.map(|port| log.contains(&format!("{what}{port}{end}")))
            };
            if says("Server listening on 127.0.0.1 port ", ".") == [true; 2] {
                return !has_ended;
            }
            if has_ended || says("Bind to port ", " ") != [false; 2] {
                return false;
            }
            assert!(
                began.elapsed() < LONG,
                "the server does not listen: {log:?}"
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn serve(folder: &Path, ports: [u16; 2]) -> Child {
    let shown = folder.display();
    let config = format!(
        "Port {}\nPort {}\nListenAddress 127.0.0.1\nHostKey {shown}/host\nPidFile none\n\
         AuthorizedKeysFile {shown}/user.pub\nUsePAM no\nStrictModes no\nUseDNS no\nMaxStartups 100\n\
         PermitRootLogin yes\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
        ports[0], ports[1],
    );
    std::fs::write(folder.join("sshd_config"), config).unwrap();
    Command::new(find("sshd").unwrap())
        .args(["-D", "-f"])
        .arg(folder.join("sshd_config"))
        .arg("-E")
        .arg(folder.join("log"))
        .stdin(Stdio::null())
        .spawn()
        .unwrap()
}

fn configure_client(folder: &Path, ports: [u16; 2]) {
    let shown = folder.display();
    let config = format!(
        "IdentityFile {shown}/user\nIdentitiesOnly yes\nUserKnownHostsFile {shown}/known_hosts\n\
         GlobalKnownHostsFile none\nStrictHostKeyChecking yes\nLogLevel ERROR\n"
    );
    std::fs::write(folder.join("ssh_config"), config).unwrap();
    let key = std::fs::read_to_string(folder.join("host.pub")).unwrap();
    let known = ports.map(|port| format!("[127.0.0.1]:{port} {key}"));
    std::fs::write(folder.join("known_hosts"), known.concat()).unwrap();
}
