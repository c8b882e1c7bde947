//! Things that a step needs and that may be missing on the machine: how to find them, and how to install them.
//!
//! As root, missing things are installed. Otherwise nothing is changed, and the summary names what is missing and the
//! commands that install it.

use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::command::{Cmd, cmd};

/// The nightly that is installed if there is none. Miri and the sanitizers exist only in nightlies.
///
/// It has a date, because a nightly may lack Miri on some days, and because a new lint or a new check of Miri must not
/// fail an unchanged tree. The tests were written against this one. Raise it together with `rust-toolchain.toml`.
const PINNED_NIGHTLY: &str = "nightly-2026-05-20";

/// The folder for packages of PyPI, below the repository's root. It is beside the other build output, so that the
/// system's Python is not touched (which Debian forbids anyway). Each package has a folder of its own, so that one
/// version does not replace another. (Packages are unpacked and not installed, because `pip install --target` leaves
/// out files for `lib`.)
const PIP_FOLDER: &str = "target/wheels";

/// A Python program that unpacks a wheel to a folder. The folder gets its name when it is complete. (`extractall` forgets
/// which files are programs.)
const UNPACK: &str = "import glob, os, shutil, sys, zipfile; to = sys.argv[1]; \
    shutil.rmtree(to + '.part', True); \
    wheels = [zipfile.ZipFile(wheel) for wheel in glob.glob(to + '.wheel/*.whl')]; \
    [wheel.extractall(to + '.part') for wheel in wheels]; \
    [os.chmod(os.path.join(to + '.part', file.filename), 0o755) for wheel in wheels for file in wheel.infolist() \
     if file.external_attr >> 16 & 0o111 and not file.is_dir()]; \
    os.rename(to + '.part', to); shutil.rmtree(to + '.wheel')";

/// Something a step cannot run without.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// A component of a Rust toolchain, from rustup.
    Component {
        /// The toolchain that must have it.
        toolchain: Toolchain,
        /// Its name in rustup.
        name: &'static str,
    },
    /// The standard library of another target, for the pinned toolchain, from rustup.
    Target(&'static str),
    /// A program on `PATH`, from crates.io.
    Cargo {
        /// The program and the package that has it.
        program: &'static str,
        /// The version that is installed where there is none.
        version: &'static str,
    },
    /// A program on `PATH`, from a Debian or Ubuntu package.
    Apt {
        /// The program that must exist.
        program: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// A file of a Debian or Ubuntu package that has no program.
    AptFile {
        /// Its path. One folder in it can be `*`.
        pattern: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// A shared library that a build looks for by name, from a Debian or Ubuntu package.
    Library {
        /// Its name, up to its version.
        name: &'static str,
        /// The package that has it.
        package: &'static str,
    },
    /// A package from PyPI, in exactly this version. Its files are in [`pip_folder`].
    Pip {
        /// Its name on PyPI.
        name: &'static str,
        /// Its version.
        version: &'static str,
    },
}

/// One of the toolchains that the project uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Toolchain {
    /// The oldest one that builds the packages: see [`minimum`].
    Minimum,
    /// The one of `rust-toolchain.toml`, under which this program runs.
    Pinned,
    /// A nightly: see [`nightly`].
    Nightly,
}

impl Toolchain {
    /// As rustup calls it; none for the pinned one, which needs no name here.
    fn name(self) -> Option<String> {
        match self {
            Toolchain::Minimum => Some(minimum()),
            Toolchain::Pinned => None,
            Toolchain::Nightly => Some(nightly()),
        }
    }
}

impl Need {
    /// Whether it is on the machine.
    pub(crate) fn is_present(&self, root: &Path) -> bool {
        match *self {
            Need::Component { toolchain, name } => has_component(toolchain, name),
            Need::Target(name) => {
                output(Command::new("rustup").args(["target", "list", "--installed"]))
                    .is_some_and(|list| list.lines().any(|line| line == name))
            }
            Need::Cargo { program, .. } | Need::Apt { program, .. } => {
                find_program(program).is_some()
            }
            Need::AptFile { pattern, .. } => has_file(pattern),
            Need::Library { name, .. } => has_library(name),
            // The folder is complete, since it gets its name last.
            Need::Pip { name, version } => root.join(pip_folder(name, version)).is_dir(),
        }
    }

    /// The commands that install it, in order.
    pub(crate) fn install(&self) -> Vec<Cmd> {
        match *self {
            Need::Component { toolchain, name } => vec![match toolchain.name() {
                None => cmd("rustup component add").arg(name),
                Some(toolchain) if is_installed(&toolchain) => {
                    cmd("rustup component add --toolchain")
                        .arg(toolchain)
                        .arg(name)
                }
                // Without the flag, rustup would also replace itself, by any version that it is offered.
                Some(toolchain) => {
                    cmd("rustup toolchain install --no-self-update --profile minimal")
                        .arg(toolchain)
                        .arg("-c")
                        .arg(name)
                }
            }],
            Need::Target(name) => vec![cmd("rustup target add").arg(name)],
            Need::Cargo { program, version } => {
                vec![cmd("cargo install --locked").arg(format!("{program}@{version}"))]
            }
            Need::Apt { package, .. }
            | Need::AptFile { package, .. }
            | Need::Library { package, .. } => apt_install(package),
            Need::Pip { name, version } => {
                let has_pip = output(Command::new("python3").args(["-m", "pip", "--version"]));
                let mut commands = match has_pip {
                    Some(_) => Vec::new(),
                    None => apt_install("python3-pip"),
                };
                commands.push(
                    cmd("python3 -m pip download --no-deps --only-binary :all: --dest")
                        .arg(pip_folder(name, &format!("{version}.wheel")))
                        .arg(format!("{name}=={version}"))
                        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
                );
                commands.push(cmd("python3 -c").arg(UNPACK).arg(pip_folder(name, version)));
                commands
            }
        }
    }
}

/// The commands that install a Debian or Ubuntu package.
fn apt_install(package: &str) -> Vec<Cmd> {
    vec![
        cmd("apt-get update -q"),
        cmd("apt-get install -q -y --no-install-recommends")
            .arg(package)
            .env("DEBIAN_FRONTEND", "noninteractive"),
    ]
}

/// The folder of a [`Need::Pip`], below the repository's root.
pub(crate) fn pip_folder(name: &str, version: &str) -> PathBuf {
    Path::new(PIP_FOLDER).join(format!("{name}-{version}"))
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Need::Component { toolchain, name } => match toolchain {
                Toolchain::Minimum => write!(f, "Rust {}'s component {name}", minimum()),
                Toolchain::Pinned => write!(f, "rustup component {name}"),
                Toolchain::Nightly => write!(f, "nightly's rustup component {name}"),
            },
            Need::Target(name) => write!(f, "rustup target {name}"),
            Need::Cargo { program, version } => write!(f, "{program} {version} (by cargo install)"),
            Need::Apt { program, package } if program == package => {
                write!(f, "apt package {package}")
            }
            Need::Apt { program, package } => write!(f, "{program} (apt package {package})"),
            Need::AptFile { pattern, package } => write!(f, "{pattern} (apt package {package})"),
            Need::Library { name, package } => write!(f, "{name} (apt package {package})"),
            Need::Pip { name, version } => write!(f, "pip package {name}=={version}"),
        }
    }
}

/// The oldest Rust that builds the packages, as an argument for `cargo +...`: the `rust-version` of the workspace.
pub(crate) fn minimum() -> String {
    // With the number of a release: rustup would take `1.88` for a toolchain beside `1.88.0`.
    format!("{}.0", env!("CARGO_PKG_RUST_VERSION"))
}

/// The nightly to use, as an argument for `cargo +...` and `rustup --toolchain`.
///
/// It is the pinned date if that is installed. Otherwise it is a plain `nightly` that is not older than the pinned
/// toolchain, so that its owner need not download a second one. Otherwise it is the pinned date, which must be
/// installed.
pub(crate) fn nightly() -> String {
    let version = |rustc: &mut Command| output(rustc).and_then(|version| minor_version(&version));
    let usable = || {
        version(Command::new("rustup").args(["run", "nightly", "rustc", "--version"]))
            >= version(Command::new("rustc").arg("--version"))
    };
    if !is_installed(PINNED_NIGHTLY) && is_installed("nightly") && usable() {
        "nightly".to_owned()
    } else {
        PINNED_NIGHTLY.to_owned()
    }
}

/// Whether this process may install packages for the machine.
pub(crate) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// The program's place on `PATH`.
fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// Whether a file with this name exists, with any folder in place of `*`.
fn has_file(pattern: &str) -> bool {
    let Some((folder, rest)) = pattern.split_once("/*/") else {
        return Path::new(pattern).is_file();
    };
    let folders = std::fs::read_dir(folder).into_iter().flatten().flatten();
    folders
        .map(|folder| folder.path().join(rest))
        .any(|file| file.is_file())
}

/// Whether there is such a library in the folders of Debian and LLVM: `libclang.so`, `libclang-14.so.1`, …
fn has_library(name: &str) -> bool {
    let children = |folder: &Path| {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        entries.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let above = children(Path::new("/usr/lib"));
    let folders = above
        .iter()
        .flat_map(|folder| [folder.clone(), folder.join("lib")]);
    folders.flat_map(|folder| children(&folder)).any(|file| {
        is_library(
            &file.file_name().unwrap_or_default().to_string_lossy(),
            name,
        )
    })
}

/// Whether a file is the library, possibly with a version: `libclang-cpp.so` is not `libclang`.
fn is_library(file: &str, name: &str) -> bool {
    file.strip_prefix(name).is_some_and(|rest| {
        let version = rest.strip_prefix('-').unwrap_or(rest);
        let number = version.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
        rest.starts_with(".so")
            || (version.starts_with(|c: char| c.is_ascii_digit()) && number.starts_with("so"))
    })
}

fn has_component(toolchain: Toolchain, name: &str) -> bool {
    let mut list = Command::new("rustup");
    list.args(["component", "list", "--installed"]);
    match toolchain.name() {
        Some(toolchain) => {
            if !is_installed(&toolchain) {
                return false; // and do not ask: asking about a toolchain can install it
            }
            list.arg("--toolchain").arg(toolchain);
        }
        // A Rust that does not come from rustup has its components as programs.
        None if find_program("rustup").is_none() => {
            return find_program(name)
                .or_else(|| find_program(&format!("cargo-{name}")))
                .is_some();
        }
        None => {}
    }
    output(&mut list).is_some_and(|list| list.lines().any(|line| is_named(line, name)))
}

fn is_installed(toolchain: &str) -> bool {
    output(Command::new("rustup").args(["toolchain", "list"]))
        .is_some_and(|list| list.lines().any(|line| is_named(line, toolchain)))
}

/// Whether a line of one of rustup's lists is about `name`: that name alone, or followed by a target triple. A digit
/// must not follow: `nightly-2026-01-01-x86_64-unknown-linux-gnu` is not `nightly`.
fn is_named(line: &str, name: &str) -> bool {
    let word = line.split_whitespace().next().unwrap_or_default();
    word.strip_prefix(name)
        .is_some_and(|rest| match rest.strip_prefix('-') {
            Some(triple) => !triple.starts_with(|c: char| c.is_ascii_digit()),
            None => rest.is_empty(),
        })
}

/// The `97` of `rustc 1.97.0-nightly (...)`.
fn minor_version(text: &str) -> Option<u32> {
    let version = text
        .split_whitespace()
        .find(|word| word.starts_with("1."))?;
    version.split(['.', '-']).nth(1)?.parse().ok()
}

/// The output of a command, if it starts and succeeds.
fn output(command: &mut Command) -> Option<String> {
    let output = command
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .output()
        .ok()?;
    output
        .status
        .success()
        .then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_rustups_lists() {
        assert!(is_named(
            "nightly-x86_64-unknown-linux-gnu (active)",
            "nightly"
        ));
        assert!(!is_named(
            "nightly-2026-01-01-x86_64-unknown-linux-gnu",
            "nightly"
        ));
        assert!(is_named(
            "nightly-2026-01-01-aarch64-unknown-linux-gnu",
            "nightly-2026-01-01"
        ));
        assert!(is_named("rust-src", "rust-src"));
        assert!(is_named("miri-x86_64-unknown-linux-gnu", "miri"));
        assert!(!is_named("rustfmt-x86_64-unknown-linux-gnu", "rust"));
        assert!(!is_named("", "rust"));
    }

    #[test]
    fn knows_libraries_by_name() {
        for file in [
            "libclang.so",
            "libclang-14.so",
            "libclang-14.so.14.0.6",
            "libclang.so.1",
        ] {
            assert!(is_library(file, "libclang"), "{file}");
        }
        for file in [
            "libclang-cpp.so.14",
            "libclang_rt.so",
            "libclang.a",
            "libclangAST.so",
        ] {
            assert!(!is_library(file, "libclang"), "{file}");
        }
    }

    #[test]
    fn reads_versions() {
        assert_eq!(
            minor_version("rustc 1.97.0-nightly (e50aa6fba 2026-05-19)"),
            Some(97)
        );
        assert_eq!(minor_version("no version"), None);
    }

    #[test]
    fn files_are_found_in_whichever_folder() {
        let folder = env!("CARGO_MANIFEST_DIR");
        assert!(has_file(&format!("{folder}/src/need.rs")));
        assert!(has_file(&format!("{folder}/*/need.rs")));
        assert!(!has_file(&format!("{folder}/*/no-such-file")));
        assert!(!has_file("/no-such-folder/*/need.rs"));
    }

    #[test]
    fn names_what_is_missing_and_how_to_get_it() {
        let absent = Need::Apt {
            program: "no-such-program-as-this",
            package: "some-package",
        };
        assert!(!absent.is_present(Path::new(".")));
        assert_eq!(
            absent.to_string(),
            "no-such-program-as-this (apt package some-package)"
        );
        assert!(
            absent
                .install()
                .iter()
                .any(|cmd| cmd.to_string().ends_with("some-package"))
        );
        assert!(
            Need::Apt {
                program: "sh",
                package: "dash"
            }
            .is_present(Path::new("."))
        );
    }
}
