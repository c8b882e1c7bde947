//! The device sources of `kernels/`, as [`Code`] for the GPUs of NVIDIA and of AMD.
//!
//! There is one constant for each source: [`BATCH`] is `kernels/batch.cu`. It has PTX for NVIDIA GPUs, code objects,
//! which are machine code, for some AMD GPUs, and the source for the others. There is also one constant for each PTX
//! file. `BATCH_PTX` is for every GPU from compute capability 8.0 on. `BATCH_SM_90_PTX` is the same source for 9.0 and
//! beyond.
//!
//! The constants hold the committed files, so that a build needs neither CUDA nor ROCm. If CUDA 13.0 is installed, the PTX
//! is the output of its nvcc ([`NVCC`] says which). There are no cubins, because the driver compiles PTX in milliseconds
//! and keeps the result. `kernels/README.md` says how the committed files are made and kept fresh.

use tidegate_hal::code::{Code, SourceText};

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

#[cfg(test)]
#[path = "../sources.rs"]
mod sources;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sources::{AMD, BASE, INCLUDED, Source, check_head, sm};

    const HEAD: &str = "// ...\n\n.version 9.0\n.target sm_80\n.address_size 64\n";

    /// The PTX of some code for a target.
    fn ptx<'a>(code: &Code<'a>, target: &str) -> &'a str {
        let form = code.form(&sm(target));
        str::from_utf8(form.expect("it is embedded")).unwrap()
    }

    #[test]
    fn every_source_is_embedded_and_loads() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources = Source::all(folder).unwrap();
        assert_eq!(sources.len(), ALL.len());
        for (source, (name, code)) in sources.iter().zip(ALL) {
            assert_eq!(source.name, *name);
            for target in &source.targets {
                check_head(ptx(code, target), target).unwrap_or_else(|why| panic!("{name} {why}"));
            }
            assert_eq!(code.forms().len(), source.targets.len() + AMD.len());
            assert_eq!(code.source().unwrap().text, source.text);
        }
    }

    #[test]
    fn what_a_source_may_include_is_embedded() {
        for (within, ending) in INCLUDED {
            let fits = |name: &str| name.starts_with(within) && name.ends_with(ending);
            assert!(
                HEADERS.iter().any(|(name, _)| fits(name)),
                "{within}*{ending}"
            );
        }
    }

    #[test]
    fn every_source_has_a_code_object_for_each_amd_gpu_with_all_its_kernels() {
        for (source, code) in ALL {
            for gpu in AMD {
                let object = code.form(gpu);
                let object = object.unwrap_or_else(|| panic!("{source} has none for {gpu}"));
                assert_eq!(object[..5], *b"\x7fELF\x02");
                // The machine is that of AMD's GPUs, and the lowest byte of the flags says which one.
                assert_eq!(object[18..20], [224, 0]);
                let kind = match gpu {
                    "gfx90a" => 0x3f,
                    "gfx942" => 0x4c,
                    "gfx950" => 0x4f,
                    _ => 0x41,
                };
                assert_eq!(object[48], kind, "{source}, {gpu}");
                // A kernel's descriptor has the kernel's name and `.kd`.
                for entry in entries(ptx(code, BASE)) {
                    let name = format!("\0{entry}.kd\0");
                    let is_there = object
                        .windows(name.len())
                        .any(|part| part == name.as_bytes());
                    assert!(is_there, "{source} has no {entry} for {gpu}");
                }
            }
        }
    }

    #[test]
    fn kernels_are_found_by_the_names_in_their_sources() {
        for (source, code) in ALL {
            let entries = entries(ptx(code, BASE));
            assert!(!entries.is_empty(), "{source} has no kernel");
            for entry in &entries {
                assert!(!entry.starts_with("_Z"), "{entry} is not extern \"C\"");
            }
            let known: &[&str] = match *source {
                "batch" => &["tidegate_batch", "tidegate_reduce"],
                "stamped" => &[
                    "tidegate_batch_stamped",
                    "tidegate_reduce_stamped",
                    "tidegate_clock",
                ],
                "faces" => &["faces_pack", "faces_unpack", "faces_compute"],
                _ => &[],
            };
            for kernel in known {
                assert!(entries.contains(kernel), "{source} has no {kernel}");
            }
        }
    }

    /// The names of the kernels that a program has.
    fn entries(ptx: &str) -> Vec<&str> {
        ptx.lines()
            .filter_map(|line| line.strip_prefix(".visible .entry ")?.split('(').next())
            .collect()
    }

    #[test]
    fn what_a_driver_would_not_load_is_told() {
        assert_eq!(check_head(HEAD, "compute_80"), Ok(()));
        assert_eq!(
            check_head(&HEAD.replace("9.0", "8.4"), "compute_80"),
            Ok(())
        );
        for (wrong, word) in [
            (HEAD.replace("9.0", "9.1"), "9.1"),
            (HEAD.replace("9.0", "10.0"), "10.0"),
            (HEAD.replace("sm_80", "sm_90"), "sm_90"),
            (HEAD.replace("sm_80", "sm_80a"), "sm_80a"),
            (String::new(), "version"),
        ] {
            let why = check_head(&wrong, "compute_80").unwrap_err();
            assert!(why.contains(word), "{why}");
        }
    }

    #[test]
    fn a_source_says_what_it_is_compiled_for() {
        let source = |text: &str| Source::new("x", text.to_owned());
        assert_eq!(
            source("// About x.\n\nint y;").unwrap().targets,
            ["compute_80"]
        );
        let both = source("// About x.\n// ptx: compute_80 compute_90\n\nint y;").unwrap();
        assert_eq!(both.targets, ["compute_80", "compute_90"]);
        assert_eq!(both.ptx("compute_80"), "x.ptx");
        assert_eq!(both.ptx("compute_90"), "x.sm_90.ptx");
        assert_eq!(both.code_object("gfx942"), "x.gfx942.co");
        for wrong in ["// ptx: sm_80", "// ptx: compute_90", "// ptx:"] {
            assert!(source(wrong).is_err(), "{wrong}");
        }
    }
}
