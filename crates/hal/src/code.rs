//! Device code, as plain data.

/// Device code: the same functions in forms for several devices. A device takes the form that it can execute.
///
/// Each form has a target:
///
/// | target | the bytes |
/// |---|---|
/// | `sm_80`, `sm_90`, … | PTX for NVIDIA GPUs of this compute capability and newer ones |
/// | `cuda` | PTX, a cubin, or a fatbin, for any NVIDIA GPU |
/// | `gfx90a`, `gfx942:xnack-`, … | a code object for AMD GPUs of this architecture |
/// | `hip` | a bundle of code objects for AMD GPUs (`hipcc --genco --no-offload-compress`) |
///
/// Bytes alone are code, too: they are taken as a form of the device that loads them.
///
/// # Examples
///
/// ```
/// # use tidegate_hal::code::Code;
/// # macro_rules! include_bytes { ($file:literal) => { b"" } }
/// const CODE: Code = Code::new(&[
///     ("cuda", include_bytes!("kernels.ptx")),
///     ("gfx942", include_bytes!("kernels.gfx942.co")),
/// ]);
/// assert_eq!(CODE.forms().len(), 2);
/// ```
#[derive(Clone, Copy)]
pub struct Code<'a> {
    bytes: Option<&'a [u8]>,
    forms: &'a [(&'a str, &'a [u8])],
    source: Option<SourceText<'a>>,
}

/// The source of device code.
#[derive(Clone, Copy, Debug)]
pub struct SourceText<'a> {
    /// Its name, for a compiler's messages.
    pub name: &'a str,
    /// The text. It may include `tidegate.cuh`, which the device brings.
    pub text: &'a str,
    /// Names and texts of other files that it includes.
    pub headers: &'a [(&'a str, &'a str)],
}

impl<'a> Code<'a> {
    /// Code in these forms: each is a target and its bytes.
    pub const fn new(forms: &'a [(&'a str, &'a [u8])]) -> Self {
        Code {
            bytes: None,
            forms,
            source: None,
        }
    }

    /// The code together with its source. If no form suits an AMD GPU, `libhiprtc` compiles the source when the code is
    /// loaded. Other devices do not use it.
    ///
    /// # Examples
    ///
    /// ```
    /// use tidegate_hal::code::{Code, SourceText};
    ///
    /// const SOURCE: SourceText = SourceText {
    ///     name: "kernels.cu",
    ///     text: "extern \"C\" __global__ void nothing() {}",
    ///     headers: &[],
    /// };
    /// const CODE: Code = Code::new(&[]).with_source(SOURCE);
    /// assert_eq!(CODE.source().map(|source| source.name), Some("kernels.cu"));
    /// ```
    pub const fn with_source(self, source: SourceText<'a>) -> Self {
        Code {
            source: Some(source),
            ..self
        }
    }

    /// The source, if the code has one.
    pub const fn source(&self) -> Option<&SourceText<'a>> {
        self.source.as_ref()
    }

    /// The code, if it is bytes alone.
    pub const fn bytes(&self) -> Option<&'a [u8]> {
        self.bytes
    }

    /// The forms, each with its target.
    pub const fn forms(&self) -> &'a [(&'a str, &'a [u8])] {
        self.forms
    }

    /// The form of a target; `None` if there is none of this very name.
    pub fn form(&self, target: &str) -> Option<&'a [u8]> {
        let form = self.forms.iter().find(|(of, _)| *of == target);
        form.map(|(_, bytes)| *bytes)
    }

    /// The targets, for messages.
    pub fn targets(&self) -> String {
        let targets: Vec<_> = self.forms.iter().map(|(target, _)| *target).collect();
        match &targets[..] {
            [] => "nothing".into(),
            targets => targets.join(", "),
        }
    }
}

impl<'a> From<&'a [u8]> for Code<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Code {
            bytes: Some(bytes),
            forms: &[],
            source: None,
        }
    }
}

impl<'a, const LEN: usize> From<&'a [u8; LEN]> for Code<'a> {
    fn from(bytes: &'a [u8; LEN]) -> Self {
        bytes.as_slice().into()
    }
}

impl<'a> From<&'a Vec<u8>> for Code<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        bytes.as_slice().into()
    }
}

/// Without the bytes, which are long.
impl std::fmt::Debug for Code<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.bytes {
            Some(bytes) => write!(f, "Code({} bytes)", bytes.len()),
            None => write!(f, "Code({})", self.targets()),
        }
    }
}
