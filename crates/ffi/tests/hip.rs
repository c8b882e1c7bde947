//! Finding the HIP runtime: what is said where there is none, or one that is too old.

use tidegate_ffi::hip::{Driver, HipError, LIBRARIES, LoadError, MIN_VERSION, OLDER};

#[path = "../../../tests/common/skipped.rs"]
mod skipped;

use skipped::skipped as skip;

/// HIP 5.2 of Debian's package `libamdhip64-5`.
const OLD: &str = "libamdhip64.so.5";

/// Loads from `names`, which must be no runtime that is new enough.
fn refused(names: &[&str]) -> LoadError {
    // SAFETY: the names are of nothing, of the C library, which this process has already, or of the runtime.
    unsafe { Driver::load_from(names, MIN_VERSION) }.expect_err("there is none under these names")
}

/// The old runtime, by force.
fn old() -> Result<Driver, LoadError> {
    // SAFETY: this is the name of the runtime.
    unsafe { Driver::load_from(&[OLD], 0) }
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let names = [
        "/nowhere/libamdhip64.so.7",
        "libtidegate-no-such-library.so",
    ];
    let error = refused(&names);
    let LoadError::Library { tried } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(tried.len(), 2);
    for name in names {
        assert!(error.to_string().contains(name), "{error}");
    }
    assert!(refused(&[]).to_string().contains("no names were given"));
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_library_that_is_something_else_is_refused_with_the_symbol_it_lacks() {
    let error = refused(&["/nowhere/libamdhip64.so.7", "libc.so.6", "/nowhere/else"]);
    assert_eq!(
        error,
        LoadError::Symbol {
            library: "libc.so.6".into(),
            symbol: "hipRuntimeGetVersion"
        }
    );
}

#[test]
fn the_machines_own_runtime_is_there_or_an_error_names_all_that_was_tried() {
    match Driver::load() {
        Ok(driver) => assert!(LIBRARIES.contains(&driver.library()), "{driver:?}"),
        Err(error @ LoadError::Library { .. }) => {
            for name in LIBRARIES.iter().chain(OLDER) {
                assert!(error.to_string().contains(name), "{error}");
            }
        }
        Err(error) => {
            // An old one is found, and named.
            let text = error.to_string();
            assert!(text.contains("libamdhip64.so"), "{text}");
            assert!(text.contains("found and too old"), "{text}");
        }
    }
}

#[test]
fn an_old_runtime_is_found_and_too_old() {
    if let Err(error) = old() {
        return skip("an_old_runtime_is_found_and_too_old", &error.to_string());
    }
    let error = refused(&["libamdhip64.so.7", OLD]);
    let LoadError::TooOld {
        library,
        found,
        needed,
    } = &error
    else {
        panic!("{error:?}");
    };
    assert_eq!((library.as_str(), *needed), (OLD, MIN_VERSION));
    assert!((50_000_000..MIN_VERSION).contains(found), "{found}");
    let text = error.to_string();
    assert!(
        text.starts_with("libamdhip64.so.5 is found and too old: it is HIP 5."),
        "{text}"
    );
    assert!(
        text.ends_with("6.0 is needed (ROCm 6.0 or newer)"),
        "{text}"
    );
}

#[test]
fn errors_have_the_runtimes_words_and_a_missing_function_is_named() {
    let test = "errors_have_the_runtimes_words_and_a_missing_function_is_named";
    let driver = match old() {
        Ok(driver) => driver,
        Err(error) => return skip(test, &error.to_string()),
    };
    // SAFETY: without a graph and a stream, nothing is uploaded: this release does not have the call.
    let missing = unsafe { driver.graph_upload(std::ptr::null_mut(), std::ptr::null_mut()) };
    let missing = missing.unwrap_err();
    assert!(missing.is_missing(), "{missing}");
    let text = missing.to_string();
    assert!(
        text.starts_with("hipGraphUpload: missing function: libamdhip64.so.5 (HIP 5."),
        "{text}"
    );
    if std::path::Path::new("/dev/kfd").exists() {
        return skip(test, "there is an AMD GPU");
    }
    // SAFETY: the call takes flags only.
    let error: HipError = unsafe { driver.init(0) }.unwrap_err();
    assert!(
        error.is_no_device() && error.name.starts_with("hipError"),
        "{error}"
    );
    assert!(!error.text.is_empty(), "{error}");
    let mut count = -1;
    // SAFETY: one int is written, to one that lives.
    let error = unsafe { driver.get_device_count(&mut count) }.unwrap_err();
    assert!(error.is_no_device(), "{error}");
}
