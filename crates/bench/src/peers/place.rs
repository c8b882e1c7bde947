//! Where the programs are, how they are built, and how they are started.

use super::calls::{CONNECTIONS, Call, ENVIRONMENT};
use super::error::PeersError;
use super::peer::Peer;
use crate::cli::FacesArgs;
use crate::results::files::{self, failed};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The programs of the peers that were asked for.
#[derive(Debug)]
pub struct Peers {
    dir: PathBuf,
    /// The programs that are missing, and why.
    missing: Vec<(Peer, String)>,
    mpi: Mpi,
}

/// How programs of the installed MPI are started.
#[derive(Debug, Default, PartialEq)]
struct Mpi {
    /// Variables that the file `mpi.env` sets.
    env: Vec<(String, String)>,
    /// Arguments that the file `mpirun.args` adds.
    args: Vec<String>,
}

/// The places of the build script: where the sources were when this was compiled, and below the current folder.
fn scripts() -> Vec<PathBuf> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/build.sh");
    let below = PathBuf::from("crates/bench/peers/build.sh");
    vec![here, below]
}

impl Peers {
    /// Looks for the programs in the folder of `--peers-at`, and builds missing ones if the sources are found.
    ///
    /// # Errors
    ///
    /// [`PeersError`]: nothing there and nothing to build it from; a file that cannot be read or a folder that cannot be made. That a program
    /// could not be *built* is no error but a failed row: the others are run.
    pub fn find(args: &FacesArgs) -> Result<Peers, PeersError> {
        Peers::find_or_build(args, &scripts())
    }

    pub(super) fn find_or_build(
        args: &FacesArgs,
        scripts: &[PathBuf],
    ) -> Result<Peers, PeersError> {
        let missing = |dir: &Path| -> Vec<Peer> {
            let all = args.peers.iter().copied();
            all.filter(|peer| !program(dir, *peer).is_file()).collect()
        };
        let dir = &args.peers_at;
        let said = dir.join("build.txt");
        // A program that could not be built once is not built again in every run.
        let mut not_built = std::fs::read_to_string(&said).unwrap_or_default();
        let lacking = missing(dir);
        if !lacking.is_empty() && not_built.is_empty() {
            let Some(script) = scripts.iter().find(|script| script.is_file()) else {
                return Err(PeersError::NotFound {
                    missing: lacking,
                    dir: dir.clone(),
                    looked_for: scripts.to_vec(),
                });
            };
            std::fs::create_dir_all(dir).map_err(failed("make", dir))?;
            eprintln!("faces: building the peers in {}", dir.display());
            let built = Command::new("bash")
                .arg(script)
                .arg(dir)
                .stdin(Stdio::null())
                .output()
                .map_err(failed("run", script))?;
            for text in [built.stdout, built.stderr] {
                not_built += &String::from_utf8_lossy(&text);
            }
            eprint!("{not_built}");
            files::write(&said, &not_built)?;
        }
        // Absolute, since a launcher may start a program elsewhere.
        let dir = std::fs::canonicalize(dir).map_err(failed("find", dir))?;
        let reason = |peer: Peer| {
            let said = format!("NOT BUILT {peer}: ");
            let mut lines = not_built.lines();
            let line = lines.find_map(|line| line.strip_prefix(&said).map(str::to_owned));
            line.or_else(|| not_built.lines().last().map(str::to_owned))
                .unwrap_or_else(|| "the build script said nothing".into())
        };
        let lacking = missing(&dir).into_iter();
        let logs = dir.join("logs");
        std::fs::create_dir_all(&logs).map_err(failed("make", &logs))?;
        Ok(Peers {
            missing: lacking
                .map(|peer| {
                    let (why, said) = (reason(peer), said.display());
                    (
                        peer,
                        format!("not built: {why} (said in {said}: without it, it is tried again)"),
                    )
                })
                .collect(),
            mpi: match args.peers.contains(&Peer::Mpi) {
                true => Mpi::read(&dir)?,
                false => Mpi::default(),
            },
            dir,
        })
    }

    pub(super) fn logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    /// Why a peer cannot be run.
    pub(super) fn missing(&self, peer: Peer) -> Option<&str> {
        let mut all = self.missing.iter();
        all.find_map(|(other, why)| (*other == peer).then_some(why.as_str()))
    }

    /// The program with all that it is started with. Those of MPI need a launcher.
    pub(super) fn command(&self, call: &Call, args: &FacesArgs) -> Result<Command, PeersError> {
        let program = program(&self.dir, call.peer);
        let mut command = match call.peer {
            Peer::Mpi => {
                let mut command = self.mpi.mpirun(args.ranks());
                command.arg(program);
                command
            }
            _ => Command::new(program),
        };
        command.args(&call.args);
        if std::env::var_os(CONNECTIONS.0).is_none() {
            command.env(CONNECTIONS.0, CONNECTIONS.1);
        }
        command
            .envs(ENVIRONMENT)
            .envs(call.env.iter().copied())
            .stdin(Stdio::null());
        Ok(command)
    }
}

fn program(dir: &Path, peer: Peer) -> PathBuf {
    dir.join(peer.name())
}

impl Mpi {
    /// `mpi.env` (`NAME=VALUE` a line) and `mpirun.args` (an argument a line), if they are there. Empty lines, and
    /// those that begin with `#`, say nothing.
    fn read(dir: &Path) -> Result<Mpi, PeersError> {
        let lines = |name: &str| -> Result<(PathBuf, Vec<(usize, String)>), PeersError> {
            let path = dir.join(name);
            let text = match path.exists() {
                true => files::read(&path)?,
                false => String::new(),
            };
            let lines = (1..).zip(text.lines().map(str::trim));
            let said = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
            Ok((path, said.map(|(k, line)| (k, line.to_owned())).collect()))
        };
        let (path, env) = lines("mpi.env")?;
        let env = env.into_iter().map(|(line, text)| {
            match text.split_once('=').filter(|(name, _)| !name.is_empty()) {
                Some((name, value)) => Ok((name.to_owned(), value.to_owned())),
                None => Err(PeersError::Environment {
                    path: path.clone(),
                    line,
                    text,
                }),
            }
        });
        Ok(Mpi {
            env: env.collect::<Result<_, _>>()?,
            args: lines("mpirun.args")?
                .1
                .into_iter()
                .map(|(_, a)| a)
                .collect(),
        })
    }

    /// `mpirun` for so many ranks. Open MPI's must be told that ranks may be started by root and need no processor of
    /// their own; others do not know these options.
    fn mpirun(&self, ranks: usize) -> Command {
        let start = || {
            let mut command = Command::new("mpirun");
            command.envs(self.env.iter().map(|(name, value)| (name, value)));
            command
        };
        let version = start().arg("--version").stdin(Stdio::null()).output();
        let open =
            version.is_ok_and(|said| String::from_utf8_lossy(&said.stdout).contains("Open MPI"));
        let mut command = start();
        if open {
            command.args([
                "--allow-run-as-root",
                "--bind-to",
                "none",
                "--oversubscribe",
            ]);
        }
        command.args(&self.args).args(["-n", &ranks.to_string()]);
        command
    }
}
