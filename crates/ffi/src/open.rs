//! Opening a library by the first of its names that opens.
//!
//! # Model
//!
//! A library has a list of names, which are tried in order. For some libraries, an environment variable replaces the
//! list by one name. The first name that opens is taken. Its module then checks that it is the right library. Later
//! names are not tried in its place, because two libraries of a kind in one process are never intended.
//!
//! # Failure
//!
//! If no name opens, the error lists each name with the dynamic loader's message.

use std::ffi::{OsStr, OsString, c_int};

#[cfg(any(feature = "cuda", feature = "hip"))]
use libloading::Library;
use libloading::os::unix;

/// The names that were tried, with the loader's message for each.
pub(crate) type Tried = Vec<(String, String)>;

/// The name in the environment variable, if there is one, or else the `usual` ones.
pub(crate) fn chosen(variable: &str, usual: &[&str]) -> Vec<OsString> {
    match std::env::var_os(variable) {
        Some(path) if !path.is_empty() => vec![path],
        _ => usual.iter().map(OsString::from).collect(),
    }
}

/// Opens the first of `names` that can be opened, and returns that name. The dynamic loader searches its usual places
/// for a name without a slash. `flags` are those of `dlopen`.
///
/// # Errors
///
/// The names that were tried, if none can be opened.
///
/// # Safety
///
/// Opening a library runs its initialisers, which must be sound to run.
pub(crate) unsafe fn first<S: AsRef<OsStr>>(
    names: &[S],
    flags: c_int,
) -> Result<(unix::Library, String), Tried> {
    let mut tried = Vec::new();
    for name in names {
        let name = name.as_ref();
        let shown = name.to_string_lossy().into_owned();
        // SAFETY: the caller vouches for the library's initialisers.
        match unsafe { unix::Library::open(Some(name), flags) } {
            Ok(library) => return Ok((library, shown)),
            Err(error) => {
                let said = reason(&shown, &error);
                tried.push((shown, said));
            }
        }
    }
    Err(tried)
}

/// The function called `name`.
///
/// # Safety
///
/// `F` is the type of a function pointer, and the function that `library` has under `name` is of this type.
#[cfg(any(feature = "cuda", feature = "hip"))]
pub(crate) unsafe fn find<F: Copy>(library: &Library, name: &str) -> Option<F> {
    // SAFETY: the caller vouches for `F`; `Option` of a function pointer has its size, and is `None` for a symbol whose
    // address is null.
    let symbol = unsafe { library.get::<Option<F>>(name) };
    symbol.ok().and_then(|symbol| *symbol)
}

/// The text of a message about the names that were tried.
pub(crate) fn list(tried: &[(String, String)]) -> String {
    if tried.is_empty() {
        return "nothing: no names were given".to_owned();
    }
    let one = |(name, said): &(String, String)| format!("{name} ({said})");
    tried.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The dynamic loader's message, which is short if there is no such file. (If a library lacks another one, the message
/// names that.)
fn reason(name: &str, error: &libloading::Error) -> String {
    let mut text = error.to_string();
    let mut source = std::error::Error::source(error);
    while let Some(inner) = source {
        text = format!("{text}: {inner}");
        source = inner.source();
    }
    let missing = format!("{name}: cannot open shared object file: No such file or directory");
    match text.ends_with(&missing) {
        true => "not found".to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLAGS: c_int = unix::RTLD_NOW | unix::RTLD_LOCAL;

    #[test]
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    fn the_first_that_opens_is_taken() {
        // SAFETY: the C library is in the process already.
        let opened = unsafe { first(&["libno-such-thing.so.1", "libc.so.6", "libm.so.6"], FLAGS) };
        assert_eq!(opened.expect("it is there").1, "libc.so.6");
    }

    #[test]
    fn each_that_does_not_open_is_named() {
        let names = ["libno-such-thing.so.1", "libno-such-thing.so"];
        // SAFETY: there are no such libraries.
        let tried = unsafe { first(&names, FLAGS) }.expect_err("there are none");
        let found: Vec<_> = tried.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(found, names);
        let text = list(&tried);
        #[cfg(all(target_os = "linux", target_env = "gnu"))]
        assert_eq!(tried[0].1, "not found");
        for (name, said) in &tried {
            assert!(
                !said.is_empty() && text.contains(&format!("{name} ({said})")),
                "{text}"
            );
        }
        assert!(list(&[]).contains("no names"));
    }

    #[test]
    fn a_variable_names_another() {
        // The first library is in every process, and the second in none.
        assert_eq!(
            chosen("PATH", &["a"]),
            [std::env::var_os("PATH").expect("it is set")]
        );
        assert_eq!(chosen("TIDEGATE_NO_SUCH_VARIABLE", &["a", "b"]), ["a", "b"]);
    }
}
