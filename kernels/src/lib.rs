//! The compiled device sources of `kernels/`: PTX for NVIDIA GPUs, and code objects for AMD GPUs.
//!
//! There is one constant for each PTX file. `BATCH_PTX` is `kernels/batch.cu`, for every GPU from compute capability 8.0
//! on; `BATCH_SM_90_PTX` is the same source for 9.0 and beyond. They hold the committed PTX, so that a build needs no CUDA.
//! If CUDA 13.0 is installed, they hold the output of its nvcc ([`NVCC`] says which). There are no cubins, because the
//! driver compiles PTX in milliseconds and keeps the result.
//!
//! Code objects are machine code for one kind of AMD GPU: [`code_object`] finds them. They are always the committed ones.
//! `kernels/README.md` says how the committed files are made and kept fresh.

/// A PTX file, as [`ALL`] lists it.
#[derive(Clone, Copy, Debug)]
pub struct Ptx {
    /// Its name: `batch.ptx`.
    pub file: &'static str,
    /// What it was compiled for: `compute_80`. Newer GPUs run it too.
    pub target: &'static str,
    /// What the driver loads.
    pub text: &'static str,
}

include!(concat!(env!("OUT_DIR"), "/kernels.rs"));

/// The code object of a source (`batch` for `kernels/batch.cu`) for a kind of AMD GPU (`gfx942`). It is an ELF file, as
/// `hipModuleLoadData` takes it. There is none if the source or the kind of GPU is unknown.
pub fn code_object(source: &str, gpu: &str) -> Option<&'static [u8]> {
    let mut all = CODE_OBJECTS.iter();
    let (.., bytes) = all.find(|(name, kind, _)| (*name, *kind) == (source, gpu))?;
    Some(bytes)
}

#[cfg(test)]
#[path = "../sources.rs"]
mod sources;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sources::{AMD, Source, check_head};

    const HEAD: &str = "// ...\n\n.version 9.0\n.target sm_80\n.address_size 64\n";

    #[test]
    fn every_source_is_embedded_and_loads() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
        let sources = Source::all(folder).unwrap();
        for source in &sources {
            for target in &source.targets {
                let file = source.ptx(target);
                let ptx = ALL.iter().find(|ptx| ptx.file == file);
                let ptx = ptx.unwrap_or_else(|| panic!("{file} is not embedded"));
                assert_eq!(ptx.target, target);
                check_head(ptx.text, target).unwrap_or_else(|why| panic!("{file} {why}"));
            }
        }
        let targets = sources.iter().flat_map(|source| &source.targets);
        assert_eq!(targets.count(), ALL.len());
    }

    #[test]
    fn every_source_has_a_code_object_for_each_amd_gpu_with_all_its_kernels() {
        for ptx in ALL.iter().filter(|ptx| ptx.target == "compute_80") {
            let source = ptx.file.strip_suffix(".ptx").unwrap();
            for gpu in AMD {
                let object = code_object(source, gpu);
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
                for entry in entries(ptx.text) {
                    let name = format!("\0{entry}.kd\0");
                    let is_there = object
                        .windows(name.len())
                        .any(|part| part == name.as_bytes());
                    assert!(is_there, "{source} has no {entry} for {gpu}");
                }
            }
        }
        assert!(code_object("batch", "gfx803").is_none());
        assert!(code_object("none", "gfx942").is_none());
    }

    #[test]
    fn kernels_are_found_by_the_names_in_their_sources() {
        for ptx in ALL {
            let entries = entries(ptx.text);
            assert!(!entries.is_empty(), "{} has no kernel", ptx.file);
            for entry in &entries {
                assert!(!entry.starts_with("_Z"), "{entry} is not extern \"C\"");
            }
            let known: &[&str] = match ptx.file.split('.').next() {
                Some("batch") => &["tidegate_batch", "tidegate_reduce"],
                Some("faces") => &["faces_pack", "faces_unpack", "faces_compute"],
                _ => &[],
            };
            for kernel in known {
                assert!(entries.contains(kernel), "{} has no {kernel}", ptx.file);
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
