//! `cargo xtask kernels`: makes the PTX and the code objects in `kernels/` from the sources beside them, or compares them.
//!
//! [`sources`], which the build script shares, has the list of sources and of their targets.

use std::path::Path;
use std::process::ExitCode;
use std::{fs, io, thread};

use crate::args::Args;
use crate::isa;
use crate::need::{self, Need};
use crate::nvrtc::{Header, Nvrtc};
use crate::provide::provide;
use crate::skipped;
use crate::step::root;
use crate::wrong;
use crate::zig::{ZIG, Zig};

#[path = "../../kernels/sources.rs"]
mod sources;

use sources::{AMD, INCLUDED, Source, check_head, files};

/// The compiler, in the version that makes all committed PTX. Raise it when users may be required to have drivers that
/// load a newer version's output, and then make all files again.
const NVRTC: Need = Need::Pip {
    name: NAME,
    version: VERSION,
};
const NAME: &str = "nvidia-cuda-nvrtc";
const VERSION: &str = "13.0.88";
/// The folder of its libraries in that package.
const LIBRARIES: &str = "nvidia/cu13/lib";

/// Everything that the task needs.
pub(crate) const NEEDS: &[Need] = &[NVRTC, ZIG];

/// Runs the task.
pub(crate) fn main(mut args: Args) -> Result<ExitCode, String> {
    let check = args.flag("--check");
    let mutants = args.flag("--mutants");
    let no_install = args.flag("--no-install");
    args.finish()?;
    let root = root();
    let folder = root.join("kernels");
    // It only goes to `target/`, like cargo's downloads, so it needs no more rights than a build.
    if let Err(missing) = provide(NEEDS, &root, !no_install) {
        if !(check || mutants) || skipped::is_ci() {
            return Err(missing);
        }
        println!("skipped: {missing}");
        return Ok(ExitCode::SUCCESS);
    }
    let sources = Source::all(&folder)?;
    if sources.is_empty() {
        return Err(format!(
            "there are no device sources in {}",
            folder.display()
        ));
    }
    let zig = Zig::installed(&root)?;
    if mutants {
        isa::judge(&zig, &folder, &AMD)?;
        return Ok(ExitCode::SUCCESS);
    }
    let nvrtc = Nvrtc::load(&root.join(need::pip_folder(NAME, VERSION)).join(LIBRARIES))?;
    for gpu in AMD {
        for checks in [&[][..], &["-DTIDEGATE_CHECKS"]] {
            zig.user(&folder.join("users"), "step", gpu, checks)?;
        }
    }
    let headers = headers(&folder)?;
    wrong::check((&nvrtc, &headers), &zig, &folder)?;
    let mut made = ptx((&nvrtc, &headers), &sources)?;
    made.extend(code_objects(&zig, &folder, &sources)?);
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

/// The expected content of a file.
struct Made {
    file: String,
    bytes: Vec<u8>,
}

/// What the sources of a folder may include.
fn headers(folder: &Path) -> Result<Vec<Header>, String> {
    let mut headers = Vec::new();
    for (within, ending) in INCLUDED {
        for (name, text) in files(&folder.join(within), ending)? {
            let name = format!("{within}{name}{ending}");
            headers.push(Header { name, text });
        }
    }
    Ok(headers)
}

/// Compiles all sources to PTX.
fn ptx((nvrtc, headers): (&Nvrtc, &[Header]), sources: &[Source]) -> Result<Vec<Made>, String> {
    let mut made = Vec::new();
    for source in sources {
        let name = format!("{}.cu", source.name);
        for target in &source.targets {
            let options = [&format!("--gpu-architecture={target}"), "--std=c++17"];
            let text = nvrtc
                .compile(&name, &source.text, headers, &options)
                .map_err(|why| format!("kernels/{name} does not compile for {target}: {why}"))?;
            let file = source.ptx(target);
            check_head(&text, target).map_err(|why| format!("kernels/{file} {why}"))?;
            let bytes = text.into_bytes();
            made.push(Made { file, bytes });
        }
    }
    Ok(made)
}

/// Compiles all sources of a folder for all AMD GPUs.
/// A kind of GPU for which there are no code objects. Users compile for such GPUs at run time, and the machine of AMD's
/// GPUs has code of its own for this kind (gfx12), so the sources must compile for it. `isa` does not know its rules.
const COMPILED: &str = "gfx1200";

fn code_objects(zig: &Zig, folder: &Path, sources: &[Source]) -> Result<Vec<Made>, String> {
    let compiles = |name: &str| {
        let assembly = zig.assembly(folder, name, COMPILED)?;
        zig.object(name, COMPILED, &assembly).map(drop)
    };
    let make = |source: &Source, gpu: &str| {
        let name = &source.name;
        let assembly = zig
            .assembly(folder, name, gpu)
            .map_err(|why| format!("kernels/{name}.cu does not compile for {gpu}: {why}"))?;
        let file = source.code_object(gpu);
        let faults = isa::check(&assembly, gpu).map_err(|why| format!("kernels/{file}: {why}"))?;
        if !faults.is_empty() {
            return Err(format!("kernels/{file}: {}", faults.join("\n")));
        }
        let bytes = zig
            .object(name, gpu, &assembly)
            .map_err(|why| format!("kernels/{file}: {why}"))?;
        Ok(Made { file, bytes })
    };
    // Each kind of GPU takes a thread.
    let make_all = |gpu| sources.iter().map(|source| make(source, gpu)).collect();
    thread::scope(|scope| {
        let threads = AMD.map(|gpu| scope.spawn(move || make_all(gpu)));
        for Source { name, .. } in sources {
            compiles(name).map_err(|why| {
                format!("kernels/{name}.cu does not compile for {COMPILED}: {why}")
            })?;
        }
        let mut all = Vec::new();
        for thread in threads {
            let made: Result<Vec<_>, String> = thread.join().expect("nobody panics");
            all.extend(made?);
        }
        Ok(all)
    })
}

/// Writes only the files that differ, since a build compiles everything that is newer.
fn write(folder: &Path, made: &[Made]) -> Result<(), String> {
    for Made { file, bytes } in made {
        let path = folder.join(file);
        let is_new = fs::read(&path).is_ok_and(|old| old == *bytes);
        if !is_new {
            fs::write(&path, bytes).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        println!(
            "kernels/{file}: {}",
            if is_new { "unchanged" } else { "written" }
        );
    }
    Ok(())
}

/// Reports whether each file is as expected, and files without a source. Returns whether all is well.
fn report(folder: &Path, made: &[Made]) -> Result<bool, String> {
    let committed = committed(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
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

/// The compiled files of a folder.
fn committed(folder: &Path) -> io::Result<Vec<Made>> {
    let mut committed = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let file = entry.file_name().to_string_lossy().into_owned();
        if file.ends_with(".ptx") || file.ends_with(".co") {
            let bytes = fs::read(entry.path())?;
            committed.push(Made { file, bytes });
        }
    }
    committed.sort_by(|a, b| a.file.cmp(&b.file));
    Ok(committed)
}

/// What is wrong with a file.
struct Problem {
    file: String,
    what: String,
}

/// Compares the committed files with the expected ones.
fn problems(committed: &[Made], made: &[Made]) -> Vec<Problem> {
    let stale = made.iter().filter_map(|Made { file, bytes }| {
        let what = match committed.iter().find(|old| old.file == *file) {
            None => "is missing".to_owned(),
            Some(old) => stale(&old.bytes, bytes)?,
        };
        let file = file.clone();
        Some(Problem { file, what })
    });
    let orphans = committed
        .iter()
        .filter(|old| made.iter().all(|made| made.file != old.file))
        .map(|old| Problem {
            file: old.file.clone(),
            what: "is made from no source: remove it".to_owned(),
        });
    stale.chain(orphans).collect()
}

/// Where a committed file first differs from the expected one, if it does: the line of a text, or the place in a code
/// object. The comparison is byte for byte.
fn stale(committed: &[u8], made: &[u8]) -> Option<String> {
    if committed == made {
        return None;
    }
    let (Ok(committed), Ok(made)) = (str::from_utf8(committed), str::from_utf8(made)) else {
        let same = committed
            .iter()
            .zip(made)
            .take_while(|(old, new)| old == new);
        let place = same.count();
        return Some(format!("is stale; the first byte that differs is {place}"));
    };
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
        with(file, FRESH.as_bytes())
    }

    fn with(file: &str, bytes: &[u8]) -> Made {
        Made {
            file: file.to_owned(),
            bytes: bytes.to_owned(),
        }
    }

    fn stale(committed: &str, made: &str) -> Option<String> {
        super::stale(committed.as_bytes(), made.as_bytes())
    }

    #[test]
    fn a_stale_code_object_is_reported_with_its_first_byte_that_differs() {
        let why = super::stale(b"\x7fELF\xff\0", b"\x7fELF\xff\x01").unwrap();
        assert_eq!(why, "is stale; the first byte that differs is 5");
        let why = super::stale(b"\x7fELF\xff", b"\x7fELF\xff\x01").unwrap();
        assert_eq!(why, "is stale; the first byte that differs is 5");
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
            made("a.ptx"),
            with("b.ptx", FRESH.replace("80", "90").as_bytes()),
            made("old.ptx"),
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
