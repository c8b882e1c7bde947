//! Code for architectures that no code object is for: the source is compiled at run time, by AMD's compiler.
//!
//! The committed code objects pass a check of their memory order. Nothing checks this code, so it is as good as the
//! compiler that is there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidegate_ffi::hip::{Compiler, CompilerError};
use tidegate_hal::code::SourceText;
use tidegate_hal::lock;

/// Compiled code, by the architecture, and the texts of the source and its headers.
type Cache = HashMap<(String, Vec<String>), Arc<[u8]>>;

/// Compiles a source for an architecture, once in a process. Other threads wait meanwhile: they mostly ask for the same
/// code.
///
/// # Errors
///
/// [`CompilerError`]: there is no compiler, or it refuses the source.
pub(crate) fn compiled(
    source: &SourceText<'_>,
    architecture: &str,
) -> Result<Arc<[u8]>, CompilerError> {
    static CACHE: Mutex<Option<Cache>> = Mutex::new(None);
    let headers = source.headers.iter().flat_map(|(name, text)| [name, text]);
    let texts = [&source.text].into_iter().chain(headers);
    let texts = texts.map(ToString::to_string).collect();
    let mut cache = lock(&CACHE);
    let cache = cache.get_or_insert_default();
    let key = (architecture.to_owned(), texts);
    if let Some(code) = cache.get(&key) {
        return Ok(code.clone());
    }
    let code: Arc<[u8]> = compile(Compiler::load()?, source, architecture)?.into();
    cache.insert(key, code.clone());
    Ok(code)
}

fn compile(
    compiler: &Compiler,
    source: &SourceText<'_>,
    architecture: &str,
) -> Result<Vec<u8>, CompilerError> {
    let mut headers = source.headers.to_vec();
    // Programs include `tidegate.cuh`, which needs others.
    let own = tidegate_kernels::HEADERS.iter();
    let is_new = |name: &str| source.headers.iter().all(|(given, _)| *given != name);
    headers.extend(own.filter(|(name, _)| is_new(name)));
    let options = [
        &format!("--offload-arch={architecture}"),
        "-std=c++17",
        "-O3",
        // Programs may read numbers of one type as those of another, as CUDA's compilers allow.
        "-fno-strict-aliasing",
        // As the committed code objects: products and sums are not fused.
        "-ffp-contract=off",
    ];
    compiler.compile(source.name, source.text, &headers, &options)
}

#[cfg(test)]
mod tests;
