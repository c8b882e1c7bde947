//! The PTX of the device sources in `kernels/`, for whoever loads it: the CUDA back end and the benchmarks.
//!
//! One constant a file: `BATCH_PTX` is what became of `kernels/batch.cu`, for every GPU from compute capability 8.0 on;
//! `BATCH_SM_90_PTX` is the same source for 9.0 and beyond. They hold the committed PTX, so that a build needs no CUDA, or what
//! the nvcc of an installed CUDA 13.0 made of the sources in this build ([`NVCC`] says which). `kernels/build.rs` sees to that;
//! `kernels/README.md` says how the committed ones are made and kept fresh.
//!
//! There are no cubins: the driver compiles PTX in milliseconds and keeps the result, and what runs should not depend on what
//! was installed where it was built.

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

#[cfg(test)]
#[path = "../sources.rs"]
mod sources;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::sources::{Source, check_head};

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
        for wrong in ["// ptx: sm_80", "// ptx: compute_90", "// ptx:"] {
            assert!(source(wrong).is_err(), "{wrong}");
        }
    }
}
