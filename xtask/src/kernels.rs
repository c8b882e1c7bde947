//! `cargo xtask kernels`: makes the PTX in `kernels/` from the sources beside it, or compares it with them.
//!
//! [`sources`], which the build script shares, has the list of sources and of their targets.

use std::fs;
use std::path::Path;
use std::process::ExitCode;

use crate::args::Args;
use crate::need::{self, Need};
use crate::nvrtc::{Header, Nvrtc};
use crate::provide::provide;
use crate::skipped;
use crate::step::root;

#[path = "../../kernels/sources.rs"]
mod sources;

use sources::{Source, check_head, files};

/// The compiler, in the version that makes all committed PTX. Raise it when users may be required to have drivers that
/// load a newer version's output, and then make all files again.
pub(crate) const NVRTC: Need = Need::Pip {
    name: NAME,
    version: VERSION,
};
const NAME: &str = "nvidia-cuda-nvrtc";
const VERSION: &str = "13.0.88";
/// The folder of its libraries in that package.
const LIBRARIES: &str = "nvidia/cu13/lib";

/// Runs the task.
pub(crate) fn main(mut args: Args) -> Result<ExitCode, String> {
    let check = args.flag("--check");
    let no_install = args.flag("--no-install");
    args.finish()?;
    let root = root();
    let folder = root.join("kernels");
    // It only goes to `target/`, like cargo's downloads, so it needs no more rights than a build.
    if let Err(missing) = provide(&[NVRTC], &root, !no_install) {
        if !check || skipped::is_ci() {
            return Err(missing);
        }
        println!("skipped: {missing}");
        return Ok(ExitCode::SUCCESS);
    }
    let nvrtc = Nvrtc::load(&root.join(need::pip_folder(NAME, VERSION)).join(LIBRARIES))?;
    let made = make(&nvrtc, &folder)?;
    let ok = if check {
        report(&folder, &made)?
    } else {
        write(&folder, &made)?;
        true
    };
    Ok(if ok {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The expected content of a PTX file.
struct Made {
    file: String,
    text: String,
}

/// Compiles all sources in a folder.
fn make(nvrtc: &Nvrtc, folder: &Path) -> Result<Vec<Made>, String> {
    let headers: Vec<Header> = files(folder, ".cuh")?
        .into_iter()
        .map(|(name, text)| Header {
            name: format!("{name}.cuh"),
            text,
        })
        .collect();
    let mut made = Vec::new();
    for source in Source::all(folder)? {
        let name = format!("{}.cu", source.name);
        for target in &source.targets {
            let options = [&format!("--gpu-architecture={target}"), "--std=c++17"];
            let text = nvrtc
                .compile(&name, &source.text, &headers, &options)
                .map_err(|why| format!("kernels/{name} does not compile for {target}: {why}"))?;
            let file = source.ptx(target);
            check_head(&text, target).map_err(|why| format!("kernels/{file} {why}"))?;
            made.push(Made { file, text });
        }
    }
    if made.is_empty() {
        return Err(format!(
            "there are no device sources in {}",
            folder.display()
        ));
    }
    Ok(made)
}

/// Writes only the files that differ, since a build compiles everything that is newer.
fn write(folder: &Path, made: &[Made]) -> Result<(), String> {
    for Made { file, text } in made {
        let path = folder.join(file);
        let is_new = fs::read(&path).is_ok_and(|old| old == text.as_bytes());
        if !is_new {
            fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        println!(
            "kernels/{file}: {}",
            if is_new { "unchanged" } else { "written" }
        );
    }
    Ok(())
}

/// Reports whether each file is as expected, and PTX files without a source. Returns whether all is well.
fn report(folder: &Path, made: &[Made]) -> Result<bool, String> {
    let committed = files(folder, ".ptx")?;
    let committed: Vec<(String, String)> = committed
        .into_iter()
        .map(|(name, text)| (format!("{name}.ptx"), text))
        .collect();
    let problems = problems(&committed, made);
    for Made { file, .. } in made {
        if !problems.iter().any(|problem| problem.file == *file) {
            println!("kernels/{file}: fresh");
        }
    }
    for Problem { file, what } in &problems {
        println!("kernels/{file} {what}");
    }
    if !problems.is_empty() {
        println!("`cargo xtask kernels` makes them anew; commit what it writes, with the source");
    }
    Ok(problems.is_empty())
}

/// What is wrong with a file.
struct Problem {
    file: String,
    what: String,
}

/// Compares the committed files (name and text) with the expected ones.
fn problems(committed: &[(String, String)], made: &[Made]) -> Vec<Problem> {
    let stale = made.iter().filter_map(|Made { file, text }| {
        let what = match committed.iter().find(|(name, _)| name == file) {
            None => "is missing".to_owned(),
            Some((_, old)) => stale(old, text)?,
        };
        let file = file.clone();
        Some(Problem { file, what })
    });
    let orphans = committed
        .iter()
        .filter(|(name, _)| made.iter().all(|made| made.file != *name))
        .map(|(name, _)| Problem {
            file: name.clone(),
            what: "is made from no source: remove it".to_owned(),
        });
    stale.chain(orphans).collect()
}

/// The first line in which a committed text differs from the expected one, if any. The comparison is byte for byte.
fn stale(committed: &str, made: &str) -> Option<String> {
    if committed == made {
        return None;
    }
    // `lines` would ignore the kind of line ends, and the end of the file.
    let (mut old, mut new) = (committed.split('\n'), made.split('\n'));
    let mut number = 1;
    loop {
        let (old, new) = (old.next(), new.next());
        if old != new {
            let quote = |line: Option<&str>| match line {
                Some(line) => format!("{line:?}"),
                None => "(the file ends)".to_owned(),
            };
            return Some(format!(
                "is stale; the first line that differs is {number}\n    committed:    {}\n    its source's: {}",
                quote(old),
                quote(new)
            ));
        }
        number += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRESH: &str = ".version 9.0\n.target sm_80\n\tret;\n";

    fn made(file: &str) -> Made {
        Made {
            file: file.to_owned(),
            text: FRESH.to_owned(),
        }
    }

    #[test]
    fn a_stale_file_is_reported_with_its_first_line_that_differs() {
        assert_eq!(stale(FRESH, FRESH), None);
        let why = stale(&FRESH.replace("\tret", "\texit"), FRESH).unwrap();
        assert_eq!(
            why,
            "is stale; the first line that differs is 3\n    committed:    \"\\texit;\"\n    its source's: \"\\tret;\""
        );
    }

    #[test]
    fn every_byte_counts() {
        let crlf = FRESH.replacen('\n', "\r\n", 1);
        assert!(stale(&crlf, FRESH).unwrap().contains("is 1\n"));
        let cut = FRESH.trim_end();
        let why = stale(cut, FRESH).unwrap();
        assert!(
            why.contains("is 4\n") && why.contains("(the file ends)"),
            "{why}"
        );
        let longer = format!("{FRESH}\n");
        assert!(stale(&longer, FRESH).unwrap().contains("is 5\n"));
        assert!(stale("", FRESH).unwrap().contains("is 1\n"));
    }

    #[test]
    fn missing_and_left_over_files_are_reported() {
        let committed = [
            ("a.ptx".to_owned(), FRESH.to_owned()),
            ("b.ptx".to_owned(), FRESH.replace("80", "90")),
            ("old.ptx".to_owned(), FRESH.to_owned()),
        ];
        let found = problems(&committed, &[made("a.ptx"), made("b.ptx"), made("c.ptx")]);
        let found: Vec<_> = found
            .iter()
            .map(|problem| (problem.file.as_str(), problem.what.lines().next().unwrap()))
            .collect();
        assert_eq!(
            found,
            [
                ("b.ptx", "is stale; the first line that differs is 2"),
                ("c.ptx", "is missing"),
                ("old.ptx", "is made from no source: remove it"),
            ]
        );
    }
}
