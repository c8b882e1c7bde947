// What lies in `kernels/`: which device sources there are, what is made of each, and what any PTX must begin with.
//
// The build script (`kernels/build.rs`) and `cargo xtask kernels` are two programs that must agree on it: both have this file as
// a module.

use std::fs;
use std::io;
use std::path::Path;

/// What every device source is compiled for, and what `<name>.ptx` is. The driver compiles it on for any newer GPU.
pub(crate) const BASE: &str = "compute_80";

/// The AMD GPUs that every device source is compiled for, each to a code object: no driver compiles for them.
pub(crate) const AMD: [&str; 4] = ["gfx90a", "gfx942", "gfx950", "gfx1100"];

/// The folders, and the endings of names in them, of the files that a source may include.
pub(crate) const INCLUDED: [(&str, &str); 3] =
    [("", ".cuh"), ("machine/", ".cuh"), ("", "batch.cu")];

/// The newest PTX that a driver of CUDA 13.0 (580) loads. Newer toolkits write newer PTX, which it refuses.
const NEWEST_PTX: (u32, u32) = (9, 0);

/// A device source: `<name>.cu`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Source {
    /// The file's name without `.cu`.
    pub(crate) name: String,
    /// Its text.
    pub(crate) text: String,
    /// What it is compiled for: `compute_80`, and the others that its `// ptx:` line names.
    pub(crate) targets: Vec<String>,
}

impl Source {
    /// The source of that name and text.
    pub(crate) fn new(name: &str, text: String) -> Result<Source, String> {
        let named = text
            .lines()
            .take_while(|line| line.starts_with("//") || line.trim().is_empty())
            .find_map(|line| line.strip_prefix("// ptx:"));
        let targets: Vec<String> = match named {
            None => vec![BASE.to_owned()],
            Some(targets) => targets.split_whitespace().map(str::to_owned).collect(),
        };
        let is_known = |target: &String| {
            target
                .strip_prefix("compute_")
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        };
        if !targets.iter().all(is_known) || !targets.iter().any(|target| target == BASE) {
            return Err(format!(
                "{name}.cu: its `// ptx:` line should read like `// ptx: {BASE} compute_90`"
            ));
        }
        Ok(Source {
            name: name.to_owned(),
            text,
            targets,
        })
    }

    /// The device sources of a folder, by name.
    pub(crate) fn all(folder: &Path) -> Result<Vec<Source>, String> {
        files(folder, ".cu")?
            .into_iter()
            .map(|(name, text)| Source::new(&name, text))
            .collect()
    }

    /// What its PTX for that target is called: `<name>.ptx`, or `<name>.sm_90.ptx`.
    pub(crate) fn ptx(&self, target: &str) -> String {
        if target == BASE {
            format!("{}.ptx", self.name)
        } else {
            format!("{}.{}.ptx", self.name, sm(target))
        }
    }

    /// What its code object for that AMD GPU is called: `<name>.gfx942.co`.
    pub(crate) fn code_object(&self, gpu: &str) -> String {
        format!("{}.{gpu}.co", self.name)
    }
}

/// The files of a folder with that ending: name without it, and text; in order.
pub(crate) fn files(folder: &Path, ending: &str) -> Result<Vec<(String, String)>, String> {
    let read = || -> io::Result<Vec<(String, String)>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            // Whatever an editor leaves there begins with a dot.
            let name = entry.file_name().to_string_lossy().into_owned();
            if let Some(stem) = name.strip_suffix(ending).filter(|_| !name.starts_with('.')) {
                files.push((stem.to_owned(), fs::read_to_string(entry.path())?));
            }
        }
        files.sort();
        Ok(files)
    };
    read().map_err(|error| format!("{}: {error}", folder.display()))
}

/// What is wrong with the head of a PTX file that was made for `target`.
pub(crate) fn check_head(ptx: &str, target: &str) -> Result<(), String> {
    let directive = |name: &str| {
        ptx.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
            .map(str::trim)
    };
    let version = directive(".version").unwrap_or_default();
    let numbers = version
        .split_once('.')
        .and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    if numbers.is_none_or(|numbers: (u32, u32)| numbers > NEWEST_PTX) {
        let (major, minor) = NEWEST_PTX;
        return Err(format!(
            "is of PTX version `{version}`, and drivers of CUDA 13.0 load none beyond {major}.{minor}"
        ));
    }
    let found = directive(".target").unwrap_or_default();
    if found != sm(target) {
        return Err(format!("is for `{found}`, not for `{}`", sm(target)));
    }
    Ok(())
}

/// What PTX calls a target: `sm_80` for `compute_80`.
pub(crate) fn sm(target: &str) -> String {
    target.replacen("compute_", "sm_", 1)
}
