//! Ranks that Slurm's `srun` has started: without a store, with PMI, and with PMIx. The test starts a Slurm of one node
//! in a network namespace. `cargo xtask test --only slurm` gets Slurm without installing it.

#[path = "common/foreign.rs"]
mod foreign;

use foreign::{Ended, exchange, join, run};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tidegate_hal::control::Control;
use tidegate_testbed::Bed;

/// The variable with the folder into which Slurm's packages (of Debian) were unpacked.
const PREFIX: &str = "TIDEGATE_SLURM";

/// This is not a test, but a rank's program.
#[test]
fn role_of_a_rank() {
    match std::env::var("TEST_ROLE").as_deref() {
        Err(_) => return,
        Ok("die") => {
            let control = join();
            exchange(&control);
            if control.rank() == 1 {
                let own = rustix::process::getpid();
                rustix::process::kill_process(own, rustix::process::Signal::KILL).expect("a kill");
            }
            let error = control.exchange("never", Default::default());
            error.expect_err("rank 1 is dead");
        }
        Ok(_) => {
            let control = join();
            exchange(&control);
            control.leave();
        }
    }
    // It does not return, because the test harness would go on.
    std::process::exit(0);
}

/// A Slurm of one node. Dropping it ends its daemons.
struct Slurm {
    prefix: PathBuf,
    bed: Bed,
    folder: tempfile::TempDir,
    daemons: Vec<Child>,
}

impl Slurm {
    fn start(prefix: PathBuf, bed: Bed) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut slurm = Self {
            prefix,
            bed,
            folder,
            daemons: Vec::new(),
        };
        let host = rustix::system::uname();
        let host = host.nodename().to_str().expect("a name");
        let at = slurm.folder.path().display();
        let plugins = slurm.prefix.join("usr/lib/x86_64-linux-gnu/slurm-wlm");
        let text = format!(
            "ClusterName=test\n\
             SlurmctldHost={host}(127.0.0.1)\n\
             SlurmUser=root\n\
             AuthType=auth/none\n\
             CredType=cred/none\n\
             StateSaveLocation={at}/state\n\
             SlurmdSpoolDir={at}/spool\n\
             SlurmctldPidFile={at}/slurmctld.pid\n\
             SlurmdPidFile={at}/slurmd.pid\n\
             PluginDir={}\n\
             ProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\n\
             JobAcctGatherType=jobacct_gather/none\n\
             AccountingStorageType=accounting_storage/none\n\
             SelectType=select/cons_tres\n\
             SelectTypeParameters=CR_CPU\n\
             MpiDefault=none\n\
             KillWait=2\n\
             SlurmdParameters=config_overrides\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=8\n\
             PartitionName=all Nodes={host} Default=YES MaxTime=INFINITE State=UP\n",
            plugins.display(),
        );
        for name in ["state", "spool"] {
            std::fs::create_dir(slurm.folder.path().join(name)).expect("a folder");
        }
        std::fs::write(slurm.folder.path().join("slurm.conf"), text).expect("a file");
        let stepd = slurm.prefix.join("usr/sbin/slurmstepd-wlm");
        let stepd = stepd.to_str().expect("a name");
        for (name, args) in [
            ("usr/sbin/slurmctld-wlm", &["-D", "-i"][..]),
            ("usr/sbin/slurmd-wlm", &["-D", "-d", stepd]),
        ] {
            let log = slurm.folder.path().join(name.replace('/', "-"));
            let log = std::fs::File::create(log).expect("a file");
            let mut command = slurm.command(name);
            command.args(args).stdin(Stdio::null());
            command.stdout(log.try_clone().expect("a file")).stderr(log);
            slurm
                .daemons
                .push(command.spawn().expect("the daemon starts"));
        }
        slurm.wait();
        slurm
    }

    fn command(&self, name: &str) -> Command {
        let lib = self.prefix.join("usr/lib/x86_64-linux-gnu");
        let mut command = Command::new(self.prefix.join(name));
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        command.env(
            "LD_LIBRARY_PATH",
            format!("{0}:{0}/slurm-wlm", lib.display()),
        );
        self.bed.enter(0, &mut command);
        command
    }

    /// Waits until its node is ready.
    fn wait(&self) {
        let began = Instant::now();
        loop {
            let mut sinfo = self.command("usr/bin/sinfo");
            let output = sinfo.args(["-h", "-o", "%T"]).output().expect("it runs");
            if output.stdout.starts_with(b"idle") {
                return;
            }
            assert!(
                began.elapsed() < Duration::from_secs(60),
                "{output:?}\n{}",
                self.logs()
            );
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    fn logs(&self) -> String {
        let read = |name: &str| std::fs::read_to_string(self.folder.path().join(name));
        let logs = ["usr-sbin-slurmctld-wlm", "usr-sbin-slurmd-wlm"].map(read);
        logs.into_iter().flatten().collect()
    }

    fn srun(&self, mpi: &str, ranks: usize, role: &str, env: &[(&str, &str)]) -> Ended {
        let mut srun = self.command("usr/bin/srun");
        srun.args([&format!("--mpi={mpi}"), "-n", &ranks.to_string()]);
        srun.arg(std::env::current_exe().expect("this program"));
        srun.args(["--exact", "role_of_a_rank", "--nocapture", "--quiet"]);
        srun.env("TEST_ROLE", role).envs(env.iter().copied());
        run(srun)
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        for daemon in &mut self.daemons {
            let _ = rustix::process::kill_process(
                rustix::process::Pid::from_child(daemon),
                rustix::process::Signal::TERM,
            );
        }
        for daemon in &mut self.daemons {
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(20) {
                if !matches!(daemon.try_wait(), Ok(None)) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(20));
            }
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
#[ignore = "starts Slurm's daemons: `cargo xtask test --only slurm`"]
fn ranks_of_srun_join_by_pmi_by_pmix_and_by_a_secret() {
    let test = "ranks_of_srun_join_by_pmi_by_pmix_and_by_a_secret";
    let prefix = std::env::var_os(PREFIX).expect("TIDEGATE_SLURM names a folder");
    assert!(Path::new(&prefix).join("usr/bin/srun").is_file());
    let bed = Bed::builder(1).build_or_skip(test);
    let slurm = Slurm::start(prefix.into(), bed.expect("this takes namespaces"));
    let secret = ("TIDEGATE_SECRET", "a secret that only this test knows");
    for (mpi, env) in [
        ("none", &[secret][..]),
        ("pmi2", &[]),
        ("pmi2", &[("TIDEGATE_LAUNCHER", "pmi2")]),
        ("pmix", &[]),
        ("pmix", &[secret]),
    ] {
        for ranks in [1, 2, 4] {
            let ended = slurm.srun(mpi, ranks, "exchange", env);
            assert!(ended.status.success(), "{mpi} {ended:#?}\n{}", slurm.logs());
            for rank in 0..ranks {
                let report = format!("rank {rank} of {ranks} on 1 nodes");
                assert_eq!(ended.count(&report), 1, "{mpi} {ended:#?}");
            }
            println!("--mpi={mpi}, {ranks} ranks: {:?}", ended.took);
        }
    }
    // Without a store, and without a secret.
    let ended = slurm.srun("none", 2, "exchange", &[]);
    assert!(!ended.status.success(), "{ended:#?}");
    let error = ended.report("error");
    for part in ["Slurm started", "--mpi=pmix", "TIDEGATE_SECRET"] {
        assert!(error.contains(part), "{error}");
    }
    for mpi in ["pmi2", "pmix"] {
        let ended = slurm.srun(mpi, 4, "die", &[]);
        assert!(!ended.status.success(), "{mpi} {ended:#?}");
        assert_eq!(ended.count("rank 1 of 4 on 1 nodes"), 1, "{mpi} {ended:#?}");
    }
}
