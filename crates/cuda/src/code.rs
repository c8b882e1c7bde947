//! The form of some code that a GPU can execute, and a check that it is complete. The driver is told no length, and reads
//! as far as the sizes in the code say.

use std::ffi::CString;

use object::Endianness;
use object::elf::{EM_CUDA, FileHeader64};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use tidegate_hal::code::Code;
use tidegate_hal::device::DeviceError;

/// No PTX is shorter, since it names a version and a target.
const HEAD_BYTES: usize = 16;
/// The first bytes of an ELF file.
const ELF: [u8; 4] = *b"\x7fELF";
/// The first bytes of a fatbin. Behind them are its version (2 bytes), the size of this header (2 bytes), and the size
/// of the rest (8 bytes), all little-endian.
const FATBIN: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();

/// Chooses the form for a GPU of this compute capability: PTX for the newest capability that the GPU has.
///
/// # Errors
///
/// [`DeviceError::Unsupported`] if there is none, with the targets that there are.
pub(crate) fn choose<'a>(
    code: &Code<'a>,
    (major, minor): (u32, u32),
) -> Result<&'a [u8], DeviceError> {
    let known = |(target, form): &(&str, &'a [u8])| {
        let number: u32 = target.strip_prefix("sm_")?.parse().ok()?;
        (number <= 10 * major + minor).then_some((number, *form))
    };
    let newest = code
        .forms()
        .iter()
        .filter_map(known)
        .max_by_key(|each| each.0);
    let newest = newest.map(|(_, form)| form);
    let form = newest.or_else(|| code.form("cuda")).or(code.bytes());
    form.ok_or_else(|| DeviceError::Unsupported {
        device: "cuda",
        what: format!(
            "the GPU has compute capability {major}.{minor}, and there is code for {}",
            code.targets()
        ),
    })
}

/// Code as the driver takes it.
#[derive(Debug)]
pub(crate) enum Loadable {
    /// PTX.
    Text(CString),
    /// A whole cubin or fatbin, in words, so that its contents are aligned.
    Image(Vec<u64>),
}

impl Loadable {
    /// # Errors
    ///
    /// A description of the bytes, if they are no code, or not complete.
    pub(crate) fn new(code: &[u8]) -> Result<Self, DeviceError> {
        let no = |why: String| DeviceError::Code(why);
        if code.starts_with(&ELF) {
            cubin(code).map_err(no)?;
        } else if code.starts_with(&FATBIN) {
            fatbin(code).map_err(no)?;
        } else {
            return text(code).map(Loadable::Text).map_err(no);
        }
        let words = code.chunks(8).map(|bytes| {
            let mut word = [0; 8];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_ne_bytes(word)
        });
        Ok(Loadable::Image(words.collect()))
    }
}

/// PTX, with or without a NUL at its end.
fn text(code: &[u8]) -> Result<CString, String> {
    let end = code.iter().rposition(|byte| *byte != 0);
    let code = &code[..end.map_or(0, |last| last + 1)];
    let text = |byte: &u8| byte.is_ascii_graphic() || byte.is_ascii_whitespace();
    let head = &code[..code.len().min(HEAD_BYTES)];
    if head.is_empty() {
        return Err("there are no bytes of code".into());
    }
    if head.len() < HEAD_BYTES || !head.iter().all(text) {
        return Err(format!(
            "it begins as no code does (PTX, a cubin, or a fatbin): with `{}`",
            head.escape_ascii()
        ));
    }
    CString::new(code).map_err(|error| {
        format!(
            "it begins as text, as PTX does, but byte {} is a zero",
            error.nul_position()
        )
    })
}

/// Checks that a cubin contains everything that its headers name.
fn cubin(code: &[u8]) -> Result<(), String> {
    let cut = |error: object::Error| format!("a cubin (an ELF file) that is not whole: {error}");
    let header = FileHeader64::<Endianness>::parse(code).map_err(cut)?;
    let endian = header.endian().map_err(cut)?;
    let machine = header.e_machine(endian);
    if machine != EM_CUDA {
        return Err(format!(
            "an ELF file for another machine than NVIDIA's GPUs, which is number {}: number {}",
            EM_CUDA.0, machine.0
        ));
    }
    let not_whole = |what: &str| cut_off("a cubin", what);
    for section in header.section_headers(endian, code).map_err(cut)? {
        let data = section.data(endian, code);
        data.map_err(|_| not_whole("a section"))?;
    }
    for segment in header.program_headers(endian, code).map_err(cut)? {
        let data = segment.data(endian, code);
        data.map_err(|()| not_whole("a segment"))?;
    }
    Ok(())
}

/// Checks that a fatbin is as long as its header says.
fn fatbin(code: &[u8]) -> Result<(), String> {
    let header = code.first_chunk::<16>();
    let header = header.ok_or_else(|| cut_off("a fatbin", "its header"))?;
    let begin = u16::from_le_bytes([header[6], header[7]]);
    let [.., a, b, c, d, e, f, g, h] = *header;
    let rest = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
    let end = u64::from(begin).checked_add(rest);
    if usize::from(begin) < header.len() || end.is_none_or(|end| end > code.len() as u64) {
        return Err(cut_off("a fatbin", "what its header says"));
    }
    Ok(())
}

fn cut_off(code: &str, what: &str) -> String {
    format!("{code} that is not whole: {what} is not in it")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(code: &[u8]) -> String {
        Loadable::new(code).unwrap_err().to_string()
    }

    /// A cubin with one section of 4 bytes, at its end.
    fn cubin() -> Vec<u8> {
        let mut code = vec![0; 64 + 2 * 64 + 4];
        code[..4].copy_from_slice(&ELF);
        code[4..7].copy_from_slice(&[2, 1, 1]); // 64 bits, little-endian, version 1
        code[16] = 2; // executable
        code[18..20].copy_from_slice(&EM_CUDA.0.to_le_bytes());
        code[20] = 1;
        code[40] = 64; // sections' headers
        code[52] = 64;
        code[58] = 64;
        code[60] = 2; // the null section, and one
        let section = 64 + 64;
        code[section + 4] = 1; // of data
        code[section + 24] = 192; // where
        code[section + 32] = 4; // how much
        code
    }

    #[test]
    fn a_gpu_gets_the_newest_form_that_it_can_execute() {
        let all = Code::new(&[
            ("gfx942", b"object"),
            ("sm_80", b"eight"),
            ("sm_90", b"nine"),
            ("cuda", b"any"),
        ]);
        for (capability, form) in [
            ((7, 5), &b"any"[..]),
            ((8, 0), b"eight"),
            ((8, 9), b"eight"),
            ((9, 0), b"nine"),
            ((12, 1), b"nine"),
        ] {
            assert_eq!(choose(&all, capability).unwrap(), form);
        }
        assert_eq!(choose(&b"bytes".into(), (8, 0)).unwrap(), b"bytes");
        let others = Code::new(&[("gfx942", b"object"), ("sm_90", b"nine")]);
        let error = choose(&others, (8, 6)).unwrap_err();
        assert!(matches!(
            error,
            DeviceError::Unsupported { device: "cuda", .. }
        ));
        let error = error.to_string();
        assert!(
            error.contains("capability 8.6, and there is code for gfx942, sm_90"),
            "{error}"
        );
    }

    #[test]
    fn text_is_ptx_with_and_without_a_nul_behind_it() {
        let ptx = b".version 8.0\n.target sm_80\n";
        for code in [&ptx[..], &[ptx, &b"\0"[..]].concat()] {
            let Loadable::Text(text) = Loadable::new(code).unwrap() else {
                panic!("it is text");
            };
            assert_eq!(text.to_bytes(), ptx);
        }
        assert!(matches!(
            Loadable::new(tidegate_kernels::BATCH_PTX.as_bytes()),
            Ok(Loadable::Text(_))
        ));
    }

    #[test]
    fn bytes_that_are_no_code_are_refused_by_what_they_are() {
        assert!(refused(b"").contains("no bytes of code"));
        assert!(refused(b"\0\0").contains("no bytes of code"));
        let short = refused(b"hello");
        assert!(short.contains("begins as no code does"), "{short}");
        assert!(short.contains("`hello`"), "{short}");
        // The wrapper of a fatbin, which contains an address.
        let wrapper = refused(&[&0x4662_43b1_u32.to_le_bytes()[..], &[1; 20]].concat());
        assert!(wrapper.contains("begins as no code does"), "{wrapper}");
        let zero = refused(b".version 8.0\n.target\0 sm_80\n");
        assert!(zero.contains("byte 20 is a zero"), "{zero}");
        let mut other = cubin();
        other[18] = 62;
        let other = refused(&other);
        assert!(other.contains("another machine"), "{other}");
        assert!(other.contains("number 62"), "{other}");
    }

    #[test]
    fn a_cubin_is_whole_or_refused() {
        let code = cubin();
        let Loadable::Image(words) = Loadable::new(&code).unwrap() else {
            panic!("it is an image");
        };
        assert_eq!(words.len() * 8, code.len().next_multiple_of(8));
        assert_eq!(words[0].to_ne_bytes(), code[..8]);
        for len in 4..code.len() {
            let error = refused(&code[..len]);
            assert!(error.contains("not whole"), "{len}: {error}");
        }
        let mut long = code;
        long[128 + 32..128 + 40].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(refused(&long).contains("a section is not in it"));
    }

    #[test]
    fn a_fatbin_is_whole_or_refused() {
        let mut code = [&FATBIN[..], &[1, 0, 16, 0], &24u64.to_le_bytes(), &[7; 24]].concat();
        assert!(matches!(Loadable::new(&code), Ok(Loadable::Image(words)) if words.len() == 5));
        for len in 4..code.len() {
            let error = refused(&code[..len]);
            assert!(error.contains("not whole"), "{len}: {error}");
        }
        code[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert!(refused(&code).contains("not whole"));
        code[6] = 8;
        code[8..16].copy_from_slice(&1u64.to_le_bytes());
        assert!(refused(&code).contains("not whole"));
    }
}
