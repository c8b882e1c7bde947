//! Clang and LLD for AMD GPUs, which Zig's compiler has in it. They need neither ROCm nor a GPU.
//!
//! Zig comes from PyPI in one version, for any Linux, so that everybody makes the same bytes. A source is compiled to
//! assembly, which can be checked, and the assembly to a code object.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::need::{self, Need};

/// The compiler, in the version that makes all committed code objects.
pub(crate) const ZIG: Need = Need::Pip {
    name: NAME,
    version: VERSION,
};
const NAME: &str = "ziglang";
const VERSION: &str = "0.17.0";

/// The oldest version of code objects that has what the kernels need. ROCm 5.7 and newer load it.
const OBJECT_VERSION: &str = "-mcode-object-version=5";

/// The compiler, and a folder for its files.
pub(crate) struct Zig {
    program: PathBuf,
    scratch: PathBuf,
}

impl Zig {
    /// The installed one.
    pub(crate) fn installed(root: &Path) -> Result<Zig, String> {
        let zig = Zig {
            program: root
                .join(need::pip_folder(NAME, VERSION))
                .join("ziglang/zig"),
            scratch: root.join("target/amd"),
        };
        zig.folder("")?;
        Ok(zig)
    }

    /// A folder of this name for files.
    pub(crate) fn folder(&self, name: &str) -> Result<PathBuf, String> {
        let folder = self.scratch.join(name);
        fs::create_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        Ok(folder)
    }

    /// Compiles `<name>.cu` of a folder to the assembly of a kind of GPU.
    pub(crate) fn assembly(&self, folder: &Path, name: &str, gpu: &str) -> Result<String, String> {
        let output = self.scratch.join(format!("{name}.{gpu}.s"));
        let mut clang = self.clang(folder, gpu);
        clang
            .args(["-include", "machine.cuh"])
            .arg(format!("{name}.cu"))
            .arg("-o")
            .arg(&output);
        run(&mut clang)?;
        fs::read_to_string(&output).map_err(|error| format!("{}: {error}", output.display()))
    }

    /// Compiles a user's source of a folder, as hipcc does: it includes `tidegate.cuh` alone, and has the words of its
    /// toolkit. `more` are further arguments.
    pub(crate) fn user(
        &self,
        folder: &Path,
        name: &str,
        gpu: &str,
        more: &[&str],
    ) -> Result<(), String> {
        let mut clang = self.clang(folder, gpu);
        clang.args(["-I", ".", "-I", "..", "-Wall", "-Wextra", "-Werror"]);
        clang.args(more);
        let output = self.scratch.join(format!("{name}.{gpu}.user.s"));
        run(clang.arg(format!("{name}.cu")).arg("-o").arg(output))
    }

    /// Clang, as it compiles every source.
    fn clang(&self, folder: &Path, gpu: &str) -> Command {
        let mut clang = Command::new(&self.program);
        clang
            .current_dir(folder)
            .args(["clang", "-x", "hip", "--cuda-device-only", "-S"])
            .arg(format!("--offload-arch={gpu}"))
            // No header, no library, and nothing that depends on where the source is.
            .args(["-nogpuinc", "-nogpulib", "-fuse-cuid=none", "-Qn"])
            .args(["-std=c++17", "-O3", OBJECT_VERSION])
            // Products and sums must not be fused, since Faces compares bits.
            .arg("-ffp-contract=off");
        clang
    }

    /// Makes a code object of the assembly of [`Zig::assembly`].
    pub(crate) fn object(&self, name: &str, gpu: &str, assembly: &str) -> Result<Vec<u8>, String> {
        let file = |ending: &str| self.scratch.join(format!("{name}.{gpu}.{ending}"));
        let (source, object, output) = (file("s"), file("o"), file("co"));
        fs::write(&source, assembly).map_err(|error| format!("{}: {error}", source.display()))?;
        let mut clang = Command::new(&self.program);
        clang
            .args(["clang", "--target=amdgcn-amd-amdhsa", "-c"])
            .args(["-x", "assembler", OBJECT_VERSION])
            .arg(format!("-mcpu={gpu}"))
            .arg(&source)
            .arg("-o")
            .arg(&object);
        run(&mut clang)?;
        let mut lld = Command::new(&self.program);
        lld.args(["ld.lld", "-shared", "--strip-all", "--no-undefined"])
            .arg(&object)
            .arg("-o")
            .arg(&output);
        run(&mut lld)?;
        fs::read(&output).map_err(|error| format!("{}: {error}", output.display()))
    }
}

/// Runs a compiler. The error is its output.
fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        eprint!("{said}");
        Ok(())
    } else {
        Err(said.trim().to_owned())
    }
}
