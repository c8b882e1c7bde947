//! Kernels that must not compile (`kernels/users/wrong.cu`): both compilers refuse each of them, with the message that the
//! source quotes.

use std::fs;
use std::path::Path;

use crate::nvrtc::{Header, Nvrtc};
use crate::zig::Zig;

/// A kernel that must not compile.
#[derive(Debug, PartialEq, Eq)]
struct Wrong {
    number: usize,
    nvidia: String,
    amd: String,
}

/// The kernels of a source.
fn kernels(text: &str) -> Result<Vec<Wrong>, String> {
    let mut all: Vec<Wrong> = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(number) = line.strip_prefix("#elif WRONG == ") {
            all.push(Wrong {
                number: number.parse().map_err(|_| line.to_owned())?,
                nvidia: String::new(),
                amd: String::new(),
            });
        }
        let Some(last) = all.last_mut() else {
            continue;
        };
        if let Some(said) = line.strip_prefix("// NVIDIA: ") {
            last.nvidia = said.to_owned();
        }
        if let Some(said) = line.strip_prefix("// AMD: ") {
            last.amd = said.to_owned();
        }
    }
    match all
        .iter()
        .find(|each| each.nvidia.is_empty() || each.amd.is_empty())
    {
        Some(wrong) => Err(format!("number {} quotes no message", wrong.number)),
        None => Ok(all),
    }
}

/// Whether a compiler refuses a kernel as it should. `said` is what it says.
fn refuses(said: Result<(), String>, expected: &str) -> Result<(), String> {
    match said {
        Ok(()) => Err("it compiles".into()),
        Err(said) if said.contains(expected) => Ok(()),
        Err(said) => Err(format!("not {expected:?}, but: {said}")),
    }
}

/// Checks all of them.
pub(crate) fn check(
    (nvrtc, headers): (&Nvrtc, &[Header]),
    zig: &Zig,
    folder: &Path,
) -> Result<(), String> {
    let file = folder.join("users/wrong.cu");
    let of_file = |why: String| format!("{}: {why}", file.display());
    let text = fs::read_to_string(&file).map_err(|error| of_file(error.to_string()))?;
    let nvidia = |number: usize| {
        let define = format!("-DWRONG={number}");
        let options = ["--gpu-architecture=compute_80", "--std=c++17", &define];
        nvrtc
            .compile("wrong.cu", &text, headers, &options)
            .map(drop)
    };
    let amd = |number: usize| {
        let define = format!("-DWRONG={number}");
        zig.user(&folder.join("users"), "wrong", "gfx90a", &["-w", &define])
    };
    nvidia(0).and_then(|()| amd(0)).map_err(of_file)?;
    for wrong in kernels(&text).map_err(of_file)? {
        let by = |vendor: &str, why: String| of_file(format!("{}, {vendor}: {why}", wrong.number));
        refuses(nvidia(wrong.number), &wrong.nvidia).map_err(|why| by("NVIDIA", why))?;
        refuses(amd(wrong.number), &wrong.amd).map_err(|why| by("AMD", why))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kernel_quotes_both_messages() {
        let text =
            "#if WRONG == 0\n  right();\n#elif WRONG == 1\n  // NVIDIA: a\n  // AMD: b\n#endif\n";
        let wrong = Wrong {
            number: 1,
            nvidia: "a".into(),
            amd: "b".into(),
        };
        assert_eq!(kernels(text).unwrap(), [wrong]);
        assert!(kernels("#elif WRONG == 1\n// AMD: b\n").is_err());
        assert!(refuses(Ok(()), "a").is_err());
        assert!(refuses(Err("b".into()), "a").is_err());
        assert!(refuses(Err("cab".into()), "a").is_ok());
    }
}
