//! Makes the constants that hold the device sources beside this file, with their PTX and their code objects.
//!
//! A build embeds the committed PTX and code objects, so it needs neither CUDA nor ROCm. If an nvcc of CUDA 13.0 is
//! found, it compiles the PTX anew, so that an edit of a `.cu` takes effect at once. It must be 13.0, because newer
//! ones write PTX that a 580 driver does not load. If nvcc fails, the build warns, and embeds the committed PTX.
//!
//! nvcc is looked for in `NVCC` (its path; empty: do not look), `CUDA_HOME/bin`, `CUDA_PATH/bin`, and on `PATH`. An
//! nvcc that comes onto `PATH` later is noticed when a source changes.

use std::env;
use std::error::Error;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

mod sources;

use sources::{AMD, INCLUDED, Source, check_head, files, sm};

/// Where the environment may say that CUDA is.
const PLACES: [&str; 3] = ["NVCC", "CUDA_HOME", "CUDA_PATH"];

fn main() -> Result<(), Box<dyn Error>> {
    let kernels = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").ok_or("not run by cargo")?);
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("not run by cargo")?);
    println!("cargo::rerun-if-changed={}", kernels.display());
    for place in PLACES {
        println!("cargo::rerun-if-env-changed={place}");
    }

    let sources = Source::all(&kernels)?;
    let nvcc = find_nvcc().and_then(|nvcc| {
        println!("cargo::rerun-if-changed={}", nvcc.path.display());
        let compiled = sources
            .iter()
            .try_for_each(|source| compile(&nvcc, &kernels, source, &out));
        match compiled {
            Ok(()) => Some(nvcc),
            Err(why) => {
                println!(
                    "cargo::warning=the committed PTX is used instead: {}",
                    why.replace('\n', "; ")
                );
                None
            }
        }
    });
    let texts = if nvcc.is_some() { &out } else { &kernels };
    fs::write(
        out.join("kernels.rs"),
        constants(&sources, &kernels, texts, nvcc.as_ref())?,
    )?;
    Ok(())
}

/// An nvcc of CUDA 13.0.
struct Nvcc {
    path: PathBuf,
    /// As it prints it: `V13.0.88`.
    version: String,
}

/// The nvcc to use, if there is one.
fn find_nvcc() -> Option<Nvcc> {
    if let Some(path) = env::var_os("NVCC") {
        if path.is_empty() {
            return None;
        }
        let path = PathBuf::from(path);
        let version = version(&path);
        if version.is_none() {
            // Another nvcc that is found is passed over in silence. But the user asked for this one.
            println!(
                "cargo::warning=NVCC is not an nvcc of CUDA 13.0: {}",
                path.display()
            );
        }
        return Some(Nvcc {
            version: version?,
            path,
        });
    }
    let homes = PLACES[1..]
        .iter()
        .filter_map(env::var_os)
        .map(|home| PathBuf::from(home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    let candidates = homes
        .chain(env::split_paths(&path))
        .map(|folder| folder.join("nvcc"));
    candidates.filter(|path| path.is_file()).find_map(|path| {
        Some(Nvcc {
            version: version(&path)?,
            path,
        })
    })
}

/// The version that an nvcc says it has, if it is one of CUDA 13.0.
fn version(nvcc: &Path) -> Option<String> {
    let output = Command::new(nvcc).arg("--version").output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text
        .split([' ', ',', '\n'])
        .find(|word| word.starts_with("V13.0."))?;
    Some(version.to_owned())
}

/// Compiles a source to all its PTX files.
fn compile(nvcc: &Nvcc, kernels: &Path, source: &Source, out: &Path) -> Result<(), String> {
    for target in &source.targets {
        let file = out.join(source.ptx(target));
        let output = Command::new(&nvcc.path)
            .current_dir(kernels)
            .args(["-ptx", "-std=c++17", "-arch", target, "-o"])
            .arg(&file)
            .arg(format!("{}.cu", source.name))
            .output()
            .map_err(|error| format!("{} does not start: {error}", nvcc.path.display()))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            return Err(format!(
                "nvcc fails on kernels/{}.cu: {}",
                source.name,
                said.trim()
            ));
        }
        let text =
            fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
        check_head(&text, target)
            .map_err(|why| format!("what nvcc makes of kernels/{}.cu {why}", source.name))?;
    }
    Ok(())
}

/// The constants, as Rust source: one for each PTX file, one for all forms of a source, and a list of the latter.
fn constants(
    sources: &[Source],
    kernels: &Path,
    texts: &Path,
    nvcc: Option<&Nvcc>,
) -> Result<String, Box<dyn Error>> {
    let mut code = String::new();
    let mut all = String::new();
    for source in sources {
        let name = &source.name;
        let about = head(source);
        let mut forms = String::new();
        for target in &source.targets {
            let file = source.ptx(target);
            if let Some(path) = found(texts, &file)? {
                let constant = constant(&file);
                let about =
                    format!("`kernels/{name}.cu`, compiled for {target}.\n\n```text\n{about}\n```");
                let target = sm(target);
                writeln!(code, "#[doc = {about:?}]")?;
                writeln!(code, "pub const {constant}: &str = include_str!({path:?});")?;
                writeln!(forms, "({target:?}, {constant}.as_bytes()),")?;
            }
        }
        for gpu in AMD {
            // Code objects are always the committed ones.
            if let Some(path) = found(kernels, &source.code_object(gpu))? {
                writeln!(forms, "({gpu:?}, include_bytes!({path:?})),")?;
            }
        }
        let constant = constant(name);
        let about = format!("`kernels/{name}.cu`, for all GPUs.\n\n```text\n{about}\n```");
        writeln!(code, "#[doc = {about:?}]")?;
        let file = format!("{name}.cu");
        let path = kernels.join(&file);
        let path = path.to_str().ok_or("a path that is not UTF-8")?;
        let source = format!(
            "SourceText {{ name: {file:?}, text: include_str!({path:?}), headers: HEADERS }}"
        );
        writeln!(
            code,
            "pub const {constant}: Code<'static> = Code::new(&[{forms}]).with_source({source});"
        )?;
        writeln!(all, "({name:?}, {constant}),")?;
    }
    let mut headers = String::new();
    for (within, ending) in INCLUDED {
        for (name, _) in files(&kernels.join(within), ending)? {
            let name = format!("{within}{name}{ending}");
            let path = kernels.join(&name);
            let path = path.to_str().ok_or("a path that is not UTF-8")?;
            writeln!(headers, "({name:?}, include_str!({path:?})),")?;
        }
    }
    writeln!(code, "/// The headers of all sources: names and texts.")?;
    writeln!(code, "pub const HEADERS: &[(&str, &str)] = &[{headers}];")?;
    let version = nvcc.map(|nvcc| &nvcc.version);
    writeln!(code, "/// All sources, by name.")?;
    writeln!(code, "pub const ALL: &[(&str, Code<'static>)] = &[{all}];")?;
    writeln!(
        code,
        "/// The version of the nvcc that this build compiled the PTX with; `None`: it is the committed one."
    )?;
    writeln!(code, "pub const NVCC: Option<&str> = {version:?};")?;
    Ok(code)
}

/// The path of a compiled file. There is none while a source is being written.
fn found(folder: &Path, file: &str) -> Result<Option<String>, Box<dyn Error>> {
    let path = folder.join(file);
    if !path.is_file() {
        println!("cargo::warning=kernels/{file} is missing: `cargo xtask kernels` makes it");
        return Ok(None);
    }
    let path = path.to_str().ok_or("a path that is not UTF-8")?;
    Ok(Some(path.to_owned()))
}

/// The name of the constant for a file.
fn constant(file: &str) -> String {
    file.to_ascii_uppercase().replace(['.', '-'], "_")
}

/// The comment that a source begins with: what is said of it.
fn head(source: &Source) -> String {
    let lines = source
        .text
        .lines()
        .map_while(|line| line.strip_prefix("//"));
    let said: Vec<&str> = lines
        .filter(|line| !line.starts_with(" ptx:"))
        .map(|line| line.strip_prefix(' ').unwrap_or(line))
        .collect();
    said.join("\n").trim().to_owned()
}
