//! Code objects: the one for this device, a check that it is complete, and the sizes of its kernels' parameters.
//!
//! The runtime is told no length, and reads as far as the sizes in the code say. It does not tell the parameters of a
//! kernel. They are in the code object's metadata: a note with a map in the format MessagePack.

use std::collections::HashMap;

use object::Endianness;
use object::elf::{EM_AMDGPU, FileHeader64, NoteType};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use serde::Deserialize;
use tidegate_ffi::hip::CompilerError;
use tidegate_hal::code::Code;
use tidegate_hal::device::DeviceError;

use crate::compile::compiled;

/// The first bytes of an ELF file.
const ELF: &[u8] = b"\x7fELF";
/// The first bytes of what `hipcc --genco` writes: code objects for several targets. Behind them are the number of
/// entries, and for each entry its offset, its size, the size of its target's name (8 bytes each, little-endian), and
/// that name.
const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// `NT_AMDGPU_METADATA`, of the notes of `AMDGPU`.
const METADATA: NoteType = NoteType(32);
/// The first bytes of a bundle that is compressed.
const COMPRESSED: &[u8] = b"CCOB";

/// A code object.
#[derive(Debug)]
pub(crate) struct CodeObject {
    /// The ELF file, in words, so that its contents are aligned.
    pub(crate) words: Vec<u64>,
    /// The sizes of each kernel's parameters.
    pub(crate) kernels: HashMap<String, Vec<usize>>,
}

impl CodeObject {
    /// The form of some code for an architecture, as the runtime names it: `gfx942`, or `gfx942:sramecc+:xnack-`. If
    /// there is none, the source is compiled.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Unsupported`] if there is none, with the targets that there are, and no compiler.
    /// [`DeviceError::Code`] if the form's bytes are no code, no code for this architecture, or not complete; or if the
    /// compiler refuses the source.
    pub(crate) fn choose(code: &Code<'_>, architecture: &str) -> Result<Self, DeviceError> {
        let own = code
            .forms()
            .iter()
            .find(|(target, _)| runs(target, architecture));
        let own = own.map(|(_, form)| *form);
        // A bundle without code for the architecture is no reason not to compile.
        let bundle = || {
            let bundle = code.form("hip")?;
            let suits = code.source().is_none() || entry(bundle, architecture).is_ok();
            suits.then_some(bundle)
        };
        if let Some(form) = own.or_else(bundle).or(code.bytes()) {
            return Self::new(form, architecture);
        }
        let unsupported = |source: &str| DeviceError::Unsupported {
            device: "hip",
            what: format!(
                "the GPU's architecture is {architecture}, there is code for {}, and {source}",
                code.targets()
            ),
        };
        let source = code.source().ok_or_else(|| unsupported("no source"))?;
        match compiled(source, architecture) {
            Ok(made) => Self::new(&made, architecture),
            Err(error @ CompilerError::Refused { .. }) => Err(DeviceError::Code(format!(
                "`{}`, compiled for {architecture}: {error}",
                source.name
            ))),
            Err(error) => Err(unsupported(&format!("a source, but {error}"))),
        }
    }

    fn new(code: &[u8], architecture: &str) -> Result<Self, DeviceError> {
        let code = if code.starts_with(BUNDLE) {
            entry(code, architecture)
        } else {
            Ok(code)
        };
        let checked = code.and_then(|code| Ok((code, kernels(code)?)));
        let (code, kernels) = checked.map_err(DeviceError::Code)?;
        let words = code.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(word)
        });
        Ok(CodeObject {
            words: words.collect(),
            kernels,
        })
    }
}

/// Whether code for a target runs on an architecture: the names agree, and so does each feature that the target names.
fn runs(target: &str, architecture: &str) -> bool {
    let mut has = architecture.split(':');
    let mut wants = target.split(':');
    has.next() == wants.next() && wants.all(|feature| has.clone().any(|each| each == feature))
}

/// The code object of a bundle that runs on the architecture.
fn entry<'a>(bundle: &'a [u8], architecture: &str) -> Result<&'a [u8], String> {
    let mut names = Vec::new();
    let mut find = || {
        let piece = |at: u64, len: u64| {
            let end = usize::try_from(at.checked_add(len)?).ok()?;
            bundle.get(usize::try_from(at).ok()?..end)
        };
        let mut at = BUNDLE.len() as u64;
        let mut number = |skip: u64| {
            at += skip;
            let number = piece(at, 8)?.try_into().ok()?;
            at += 8;
            Some((u64::from_le_bytes(number), at))
        };
        let (entries, _) = number(0)?;
        let mut skip = 0;
        for _ in 0..entries {
            let ((offset, _), (size, _)) = (number(skip)?, number(0)?);
            let (len, name) = number(0)?;
            let name = String::from_utf8_lossy(piece(name, len)?);
            // `hipv4-amdgcn-amd-amdhsa--gfx942:xnack-`; the host's entry has no kind of GPU.
            let target = name.rsplit_once("--").map_or("", |(_, target)| target);
            if runs(target, architecture) {
                return piece(offset, size).map(Some);
            }
            names.push(name.into_owned());
            skip = len;
        }
        Some(None)
    };
    let found = find().ok_or("a bundle of code objects that is not whole")?;
    found.ok_or_else(|| format!("a bundle without code for {architecture}: it has {names:?}"))
}

/// Checks that a code object contains everything that its headers name, and finds its kernels.
fn kernels(code: &[u8]) -> Result<HashMap<String, Vec<usize>>, String> {
    if code.is_empty() {
        return Err("there are no bytes of code".into());
    }
    if code.starts_with(COMPRESSED) {
        return Err("a compressed bundle: compile with `--no-offload-compress`".into());
    }
    if !code.starts_with(ELF) {
        let head = &code[..code.len().min(16)];
        return Err(format!(
            "it begins as no code does (a code object, or a bundle of them): with `{}`",
            head.escape_ascii()
        ));
    }
    let cut =
        |error: object::Error| format!("a code object (an ELF file) that is not whole: {error}");
    let header = FileHeader64::<Endianness>::parse(code).map_err(cut)?;
    let endian = header.endian().map_err(cut)?;
    let machine = header.e_machine(endian);
    if machine != EM_AMDGPU {
        return Err(format!(
            "an ELF file for another machine than AMD's GPUs, which is number {}: number {}",
            EM_AMDGPU.0, machine.0
        ));
    }
    let not_whole = |what: &str| format!("a code object that is not whole: {what} is not in it");
    for section in header.section_headers(endian, code).map_err(cut)? {
        section
            .data(endian, code)
            .map_err(|_| not_whole("a section"))?;
    }
    let mut kernels = None;
    for segment in header.program_headers(endian, code).map_err(cut)? {
        segment
            .data(endian, code)
            .map_err(|()| not_whole("a segment"))?;
        let Some(mut notes) = segment.notes(endian, code).map_err(cut)? else {
            continue;
        };
        while let Some(note) = notes.next().map_err(cut)? {
            if note.name() == b"AMDGPU" && note.n_type(endian) == METADATA {
                kernels = Some(sizes(note.desc())?);
            }
        }
    }
    kernels.ok_or_else(|| "a code object without metadata".into())
}

/// A code object's metadata, as far as it is needed here.
#[derive(Deserialize)]
struct Metadata {
    #[serde(rename = "amdhsa.kernels")]
    kernels: Vec<Kernel>,
}

#[derive(Deserialize)]
struct Kernel {
    #[serde(rename = ".name")]
    name: String,
    #[serde(rename = ".args", default)]
    arguments: Vec<Argument>,
}

#[derive(Deserialize)]
struct Argument {
    #[serde(rename = ".size")]
    size: usize,
    #[serde(rename = ".value_kind", default)]
    kind: String,
}

/// The sizes of the parameters of each kernel of a note. The runtime passes those that are hidden.
fn sizes(note: &[u8]) -> Result<HashMap<String, Vec<usize>>, String> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(note);
    // The stack has no room for values that are nested without end.
    reader.set_max_depth(32);
    let metadata = Metadata::deserialize(&mut reader)
        .map_err(|error| format!("a code object whose metadata cannot be read: {error}"))?;
    let own = |kernel: Kernel| {
        let arguments = kernel.arguments.iter();
        let own = arguments.filter(|argument| !argument.kind.starts_with("hidden_"));
        (kernel.name, own.map(|argument| argument.size).collect())
    };
    Ok(metadata.kernels.into_iter().map(own).collect())
}

#[cfg(test)]
mod tests;
