//! Code for architectures that no code object is for: the source is compiled at run time, by AMD's compiler.
//!
//! The committed code objects pass a check of their memory order, which this code does not. It is as good as the
//! compiler that is there.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use tidegate_ffi::hip::{Compiler, CompilerError};
use tidegate_hal::code::SourceText;
use tidegate_hal::lock;

/// The header that programs include.
const HEADER: &str = "tidegate.cuh";

/// Compiled code, by architecture and text.
type Cache = HashMap<(String, String), Arc<[u8]>>;

/// Compiles a source for an architecture: once in a process.
///
/// # Errors
///
/// No compiler, or its messages.
pub(crate) fn compiled(
    source: &SourceText<'_>,
    architecture: &str,
) -> Result<Arc<[u8]>, CompilerError> {
    static CACHE: Mutex<Option<Cache>> = Mutex::new(None);
    let headers = source.headers.iter().flat_map(|(name, text)| [name, text]);
    let text: String = [&source.text].into_iter().chain(headers).copied().collect();
    let mut cache = lock(&CACHE);
    let cache = cache.get_or_insert_default();
    let key = (architecture.to_owned(), text);
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
    if headers.iter().all(|(name, _)| *name != HEADER) {
        let own = tidegate_kernels::HEADERS.iter();
        headers.extend(own.filter(|(name, _)| *name == HEADER));
    }
    let options = [
        &format!("--offload-arch={architecture}"),
        "-std=c++17",
        "-O3",
        // As the committed code objects: products and sums are not fused.
        "-ffp-contract=off",
    ];
    compiler.compile(source.name, source.text, &headers, &options)
}

#[cfg(test)]
mod tests;
