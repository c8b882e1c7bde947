//! The launcher as a program of its own.

use std::process::{Command, Output};

fn tidegate(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate"));
    command.args(args);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_launcher_with_a_stack_of_64_kib_works() {
    let script = "ulimit -s 64; exec \"$0\" \"$@\"";
    let run = |args: &[&str]| {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script, env!("CARGO_BIN_EXE_tidegate")]);
        command.args(args).output().unwrap()
    };
    let output = run(&["run", "-n", "2", "/bin/sh", "-c", "echo here; exit 5"]);
    assert_eq!(output.status.code(), Some(5), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("[1] here"));
    assert_eq!(run(&["run", "--help"]).status.code(), Some(0));
    assert_eq!(run(&["run"]).status.code(), Some(2));
}

#[test]
fn output_that_finds_no_room_is_an_error_and_said() {
    let full = || {
        std::fs::File::options()
            .write(true)
            .open("/dev/full")
            .unwrap()
    };
    for (script, code) in [("echo x", 1), ("echo x; exit 5", 5)] {
        let output = tidegate(&["run", "-n", "2", "/bin/sh", "-c", script])
            .stdout(full())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(
            said(&output).contains("is lost: No space left"),
            "{output:?}"
        );
    }
}

/// Whatever a daemon may start a job with: no standard streams, no variables, no directory, no right to any file.
#[test]
fn a_launcher_needs_nothing_of_its_parent() {
    let folder = tempfile::tempdir().unwrap();
    let program = std::env::current_exe().unwrap();
    for state in [
        "exec 0<&-",
        "exec 0<&- 1>&- 2>&-",
        "umask 0777",
        "cd \"$GONE\" && rmdir \"$GONE\"",
        "for name in $(env | cut -d= -f1); do unset $name 2>/dev/null || true; done",
    ] {
        let gone = folder.path().join("gone");
        std::fs::create_dir_all(&gone).unwrap();
        let output = Command::new("/bin/sh")
            .arg("-c")
            .arg(format!("{state}; exec \"$0\" \"$@\""))
            .arg(env!("CARGO_BIN_EXE_tidegate"))
            .args(["run", "-n", "2", "-e", "TIDEGATE_TEST_ROLE=ring"])
            .arg(&program)
            .args(["--exact", "jobs::a_rank", "--nocapture", "--quiet"])
            .env("GONE", gone)
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{state}: {output:?}");
    }
}
