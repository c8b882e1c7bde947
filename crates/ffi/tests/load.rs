//! Tests of the errors when there is no driver.

use tidegate_ffi::cuda::{Driver, LIBRARIES, LoadError};

/// Loads from `names`, which must be no driver.
fn refused(names: &[&str]) -> LoadError {
    // SAFETY: there is nothing with these names, or it is the C library, which this process has already.
    unsafe { Driver::load_from(names) }.expect_err("there is no driver under these names")
}

#[test]
fn a_library_that_is_not_there_is_named() {
    let names = ["/nowhere/libcuda.so.1", "libtidegate-no-such-library.so"];
    let error = refused(&names);
    let LoadError::Library { tried } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(
        tried.iter().map(|(name, _)| name).collect::<Vec<_>>(),
        names
    );
    assert!(tried.iter().all(|(_, said)| !said.is_empty()));
    for name in names {
        assert!(error.to_string().contains(name), "{error}");
    }
}

#[test]
fn a_name_with_a_nul_inside_is_an_error() {
    let error = refused(&["lib\0cuda.so"]);
    assert!(matches!(error, LoadError::Library { .. }), "{error:?}");
    assert!(refused(&[]).to_string().contains("no names were given"));
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn a_library_that_is_something_else_is_refused_with_the_first_symbol_it_lacks() {
    let error = refused(&["/nowhere/libcuda.so.1", "libc.so.6", "/nowhere/else"]);
    assert_eq!(
        error,
        LoadError::Symbol {
            library: "libc.so.6".into(),
            symbol: "cuInit"
        }
    );
    assert!(error.to_string().contains("cuInit"), "{error}");
}

#[test]
fn the_machines_own_driver_is_there_or_an_error_names_all_that_was_tried() {
    // SAFETY: these are the driver's names.
    let alone = unsafe { Driver::load_from(LIBRARIES) };
    match (Driver::load(), alone) {
        (Ok(driver), Ok(_)) => {
            assert!(LIBRARIES.contains(&driver.library()), "{driver:?}");
            assert!(std::ptr::eq(driver, Driver::load().expect("it was there")));
        }
        (Err(error), Err(same)) => {
            assert_eq!(error, same);
            if let LoadError::Library { .. } = error {
                for name in LIBRARIES {
                    assert!(error.to_string().contains(name), "{error}");
                }
            }
        }
        (cached, alone) => panic!("{cached:?}, but {alone:?}"),
    }
}
