//! Code objects made by hand.

use super::*;

/// Metadata of one kernel, as clang writes it: three parameters, and one that the runtime passes.
fn note() -> Vec<u8> {
    fn text(text: &str) -> Vec<u8> {
        [&[0xa0 | text.len() as u8][..], text.as_bytes()].concat()
    }
    fn argument(size: u8, kind: &str) -> Vec<u8> {
        let offset = [text(".offset"), vec![0]].concat();
        let size = [text(".size"), vec![size]].concat();
        [vec![0x83], offset, size, text(".value_kind"), text(kind)].concat()
    }
    let arguments = [
        argument(8, "global_buffer"),
        argument(4, "by_value"),
        argument(80, "by_value"),
        argument(8, "hidden_multigrid_sync_arg"),
    ];
    let first = [
        vec![0x82],
        text(".name"),
        text("first"),
        text(".args"),
        vec![0x94],
        arguments.concat(),
    ];
    let second = [vec![0x81], text(".name"), text("second")];
    let kernels = [vec![0x92], first.concat(), second.concat()].concat();
    [vec![0x81], text("amdhsa.kernels"), kernels].concat()
}

/// A code object with one note.
fn code_object(metadata: &[u8]) -> Vec<u8> {
    let mut note = Vec::new();
    for number in [7, metadata.len() as u32, 32] {
        note.extend(number.to_le_bytes());
    }
    note.extend(b"AMDGPU\0\0");
    note.extend(metadata);
    note.resize(note.len().next_multiple_of(4), 0);
    let mut code = vec![0; 64 + 56];
    code[..4].copy_from_slice(ELF);
    code[4..7].copy_from_slice(&[2, 1, 1]); // 64 bits, little-endian, version 1
    code[16] = 3; // a shared object
    code[18..20].copy_from_slice(&EM_AMDGPU.0.to_le_bytes());
    code[20] = 1;
    code[32] = 64; // segments' headers
    code[52] = 64;
    code[54] = 56;
    code[56] = 1; // one segment
    code[64] = 4; // of notes
    code[64 + 8] = 120; // where
    let len = note.len() as u64;
    code[64 + 32..64 + 40].copy_from_slice(&len.to_le_bytes()); // how much
    code[64 + 48] = 4; // aligned to
    [code, note].concat()
}

fn refused(code: &[u8]) -> String {
    CodeObject::new(code, "gfx942:sramecc+:xnack-")
        .unwrap_err()
        .to_string()
}

/// A bundle of entries.
fn bundle(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let heads: usize = entries.iter().map(|(name, _)| 24 + name.len()).sum();
    let mut offset = (BUNDLE.len() + 8 + heads) as u64;
    let mut bytes = [BUNDLE, &(entries.len() as u64).to_le_bytes()].concat();
    for (name, code) in entries {
        for number in [offset, code.len() as u64, name.len() as u64] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend(name.as_bytes());
        offset += code.len() as u64;
    }
    bytes.extend(entries.iter().flat_map(|(_, code)| *code));
    bytes
}

#[test]
fn metadata_says_the_sizes_that_a_caller_passes() {
    let code = code_object(&note());
    let made = CodeObject::new(&code, "gfx90a").unwrap();
    assert_eq!(made.kernels["first"], [8, 4, 80]);
    assert_eq!(made.kernels["second"], []);
    assert_eq!(made.words.len(), code.len().div_ceil(8));
    assert_eq!(made.words[0].to_ne_bytes(), code[..8]);
}

#[test]
fn a_code_object_is_whole_or_refused() {
    let code = code_object(&note());
    for len in 4..code.len() {
        refused(&code[..len]);
    }
    assert!(refused(&code[..code.len() - 1]).contains("a segment is not in it"));
    let mut cut = note();
    cut.truncate(cut.len() - 1);
    assert!(refused(&code_object(&cut)).contains("metadata cannot be read"));
    // Values that are nested without end, and a list that says that it is longer than everything.
    let inside = |value: &[u8]| [&[0x81, 0xa1, b'x'][..], value].concat();
    for lie in [&vec![0x91; 1 << 20][..], &[0xdd, 0xff, 0xff, 0xff, 0xff, 1]] {
        let error = refused(&code_object(&inside(lie)));
        assert!(error.contains("metadata cannot be read"), "{error}");
    }
    let mut other = code_object(&note());
    other[120 + 8] = 33;
    assert!(refused(&other).contains("without metadata"));
    other[18] = 62;
    assert!(refused(&other).contains("another machine"));
}

#[test]
fn bytes_that_are_no_code_are_refused_by_what_they_are() {
    assert!(refused(b"").contains("no bytes of code"));
    assert!(refused(b".version 8.0\n").contains("with `.version 8.0\\n`"));
    assert!(refused(b"CCOB\x02\0").contains("--no-offload-compress"));
}

#[test]
fn a_bundle_has_code_for_the_architecture_or_is_refused() {
    let code = code_object(&note());
    let host = ("host-x86_64-unknown-linux--", &b""[..]);
    for target in ["gfx942", "gfx942:xnack-", "gfx942:sramecc+:xnack-"] {
        let name = format!("hipv4-amdgcn-amd-amdhsa--{target}");
        let other = ("hipv4-amdgcn-amd-amdhsa--gfx90a", &b"other"[..]);
        let bytes = bundle(&[host, other, (&name, &code)]);
        let made = CodeObject::new(&bytes, "gfx942:sramecc+:xnack-").unwrap();
        assert_eq!(made.kernels.len(), 2, "{target}");
        for len in BUNDLE.len()..bytes.len() {
            refused(&bytes[..len]);
        }
    }
    for target in ["gfx942:xnack+", "gfx940", "gfx9", ""] {
        let name = format!("hipv4-amdgcn-amd-amdhsa--{target}");
        let error = refused(&bundle(&[host, (&name, &code)]));
        assert!(
            error.contains("a bundle without code for gfx942:sramecc+:xnack-"),
            "{error}"
        );
        assert!(error.contains(&name), "{error}");
    }
    let mut lies = bundle(&[("hipv4-amdgcn-amd-amdhsa--gfx942", &code)]);
    lies[BUNDLE.len() + 8..][..8].copy_from_slice(&u64::MAX.to_le_bytes());
    assert!(refused(&lies).contains("not whole"));
}

#[test]
fn an_architecture_gets_its_own_form() {
    let code = code_object(&note());
    let second = code_object(&[[0x81].as_slice(), b"\xaeamdhsa.kernels\x90"].concat());
    let kernels = |forms: &[(&str, &[u8])], architecture: &str| {
        CodeObject::choose(&Code::new(forms), architecture).map(|made| made.kernels.len())
    };
    let forms: [(&str, &[u8]); 4] = [
        ("cuda", b"text"),
        ("gfx942:xnack+", &second),
        ("gfx942", &code),
        ("hip", &second),
    ];
    assert_eq!(kernels(&forms, "gfx942:sramecc+:xnack-").unwrap(), 2);
    assert_eq!(kernels(&forms, "gfx942:sramecc+:xnack+").unwrap(), 0);
    assert_eq!(kernels(&forms, "gfx90a").unwrap(), 0);
    let bytes = CodeObject::choose(&(&code).into(), "gfx90a").unwrap();
    assert_eq!(bytes.kernels.len(), 2);
    let error = kernels(&forms[..3], "gfx000:sramecc+").unwrap_err();
    assert!(matches!(
        error,
        DeviceError::Unsupported { device: "hip", .. }
    ));
    let error = error.to_string();
    let needs = "is gfx000:sramecc+, there is code for cuda, gfx942:xnack+, gfx942, and no source";
    assert!(error.contains(needs), "{error}");
}

#[test]
fn the_committed_code_objects_are_read() {
    let parameter = [size_of::<tidegate_gpu::layout::LaunchParameter>()];
    for kind in ["gfx90a", "gfx942", "gfx950", "gfx1100"] {
        let batch = &tidegate_kernels::BATCH;
        let batch = CodeObject::choose(batch, &format!("{kind}:xnack-")).unwrap();
        for kernel in ["tidegate_batch", "tidegate_reduce"] {
            assert_eq!(batch.kernels[kernel], parameter, "{kind}");
        }
        let examples = CodeObject::choose(&tidegate_kernels::EXAMPLES, kind).unwrap();
        assert!(!examples.kernels.is_empty(), "{kind}");
        assert!(
            examples
                .kernels
                .values()
                .all(|sizes| sizes.iter().all(|size| *size > 0))
        );
    }
}

/// The runtime that is made of a CUDA driver finds the PTX of each code object by the name of a kernel. A source that it
/// does not know would be refused in all tests that load it.
#[test]
fn the_runtime_over_cuda_knows_all_sources() {
    let rows = include_str!("../over_cuda.c");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels");
    let mut sources = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".cu") {
            assert!(rows.contains(&format!("\"{name}.ptx\"")), "{name}.cu");
            sources += 1;
        }
    }
    assert!(sources > 0);
}
