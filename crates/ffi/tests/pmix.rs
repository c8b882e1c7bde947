//! Tests of PMIx: the errors when there is no library, and the layouts, which are compared with an installed header.
//! The tests of `crates/boot` run it under a launcher.

use std::mem::{offset_of, size_of};
use std::path::Path;
use std::process::Command;
use tidegate_ffi::pmix::sys::{self, pmix_info_t, pmix_proc_t, pmix_value_t};
use tidegate_ffi::pmix::{LIBRARIES, Library, LoadError};

#[path = "../../../tests/common/skipped.rs"]
mod skipped;

use skipped::skipped as skip;

/// Loads from `names`, which must be no PMIx.
fn refused(names: &[&str]) -> LoadError {
    // SAFETY: there is nothing with these names, or it is the C library, which this process has already.
    unsafe { Library::load_from(names) }.expect_err("there is no PMIx under these names")
}

#[test]
fn a_library_that_is_not_pmix_is_refused_by_name() {
    let names = ["/nowhere/libpmix.so.2", "lib\0pmix.so"];
    let error = refused(&names);
    let LoadError::Library { tried } = &error else {
        panic!("{error:?}");
    };
    assert_eq!(tried.len(), 2);
    assert!(
        error.to_string().contains("/nowhere/libpmix.so.2"),
        "{error}"
    );
    assert!(refused(&[]).to_string().contains("no names were given"));
    let error = refused(&["/nowhere/libpmix.so.2", "libc.so.6", "/nowhere/else"]);
    let symbol = LoadError::Symbol {
        library: "libc.so.6".into(),
        symbol: "PMIx_Get_version",
    };
    assert_eq!(error, symbol);
}

#[test]
fn the_installed_library_tells_its_version_and_finds_no_server() {
    let test = "the_installed_library_tells_its_version_and_finds_no_server";
    let library = match Library::load() {
        Ok(library) => library,
        Err(error) => return skip(test, &error.to_string()),
    };
    let said = format!("{library:?}");
    assert!(LIBRARIES.iter().any(|name| said.contains(name)), "{said}");
    if std::env::var_os("PMIX_NAMESPACE").is_some() {
        return skip(test, "this process has a PMIx server");
    }
    let error = library.init().expect_err("no server started this process");
    assert_eq!(error.call, "PMIx_Init");
    assert!(error.code != 0 && !error.text.is_empty(), "{error}");
}

/// The folders that may have the header: those of Debian's libpmix-dev, and of an installation from source.
const FOLDERS: &[&str] = &[
    "/usr/lib/x86_64-linux-gnu/pmix2/include",
    "/usr/lib/aarch64-linux-gnu/pmix2/include",
    "/usr/include",
    "/usr/local/include",
];

#[test]
fn the_layouts_are_those_of_the_header() {
    let test = "the_layouts_are_those_of_the_header";
    let folder = FOLDERS
        .iter()
        .find(|folder| Path::new(folder).join("pmix.h").is_file());
    let Some(folder) = folder else {
        return skip(test, "there is no pmix.h (libpmix-dev)");
    };
    let types = [
        ("sizeof(pmix_proc_t)", size_of::<pmix_proc_t>()),
        ("offsetof(pmix_proc_t, rank)", offset_of!(pmix_proc_t, rank)),
        ("sizeof(pmix_value_t)", size_of::<pmix_value_t>()),
        ("sizeof(((pmix_value_t*)0)->type)", 2),
        (
            "offsetof(pmix_value_t, data)",
            offset_of!(pmix_value_t, data),
        ),
        (
            "offsetof(pmix_value_t, data.flag)",
            offset_of!(pmix_value_t, data),
        ),
        (
            "offsetof(pmix_value_t, data.string)",
            offset_of!(pmix_value_t, data),
        ),
        (
            "offsetof(pmix_value_t, data.integer)",
            offset_of!(pmix_value_t, data),
        ),
        (
            "offsetof(pmix_value_t, data.uint32)",
            offset_of!(pmix_value_t, data),
        ),
        ("sizeof(bool)", size_of::<bool>()),
        ("sizeof(pmix_info_t)", size_of::<pmix_info_t>()),
        (
            "offsetof(pmix_info_t, flags)",
            offset_of!(pmix_info_t, flags),
        ),
        (
            "offsetof(pmix_info_t, value)",
            offset_of!(pmix_info_t, value),
        ),
        ("sizeof(pmix_status_t)", size_of::<sys::pmix_status_t>()),
        ("sizeof(pmix_rank_t)", size_of::<sys::pmix_rank_t>()),
        ("sizeof(pmix_scope_t)", size_of::<sys::pmix_scope_t>()),
        ("PMIX_MAX_NSLEN", sys::PMIX_MAX_NSLEN),
        ("PMIX_MAX_KEYLEN", sys::PMIX_MAX_KEYLEN),
    ];
    let constants = [
        ("PMIX_SUCCESS", i64::from(sys::PMIX_SUCCESS)),
        ("PMIX_ERR_TIMEOUT", sys::PMIX_ERR_TIMEOUT.into()),
        (
            "PMIX_ERR_PARTIAL_SUCCESS",
            sys::PMIX_ERR_PARTIAL_SUCCESS.into(),
        ),
        ("PMIX_RANK_WILDCARD", sys::PMIX_RANK_WILDCARD.into()),
        ("PMIX_GLOBAL", sys::PMIX_GLOBAL.into()),
        ("PMIX_BOOL", sys::PMIX_BOOL.into()),
        ("PMIX_STRING", sys::PMIX_STRING.into()),
        ("PMIX_INT", sys::PMIX_INT.into()),
        ("PMIX_UINT32", sys::PMIX_UINT32.into()),
    ];
    let names = [
        ("PMIX_COLLECT_DATA", "pmix.collect"),
        ("PMIX_TIMEOUT", "pmix.timeout"),
        ("PMIX_JOB_SIZE", "pmix.job.size"),
        ("PMIX_LOCAL_SIZE", "pmix.local.size"),
    ];
    let mut text = String::from("#include <stddef.h>\n#include <string.h>\n#include <pmix.h>\n");
    for (name, value) in types {
        text += &format!("_Static_assert({name} == {value}, \"{value} for {name}\");\n");
    }
    for (name, value) in constants {
        text += &format!("_Static_assert(({name}) == ({value}), \"{value} for {name}\");\n");
    }
    for (name, value) in names {
        // Of a string, the compiler can compare the length only. The program that it makes compares the text.
        text += &format!("_Static_assert(sizeof({name}) == sizeof(\"{value}\"), \"{name}\");\n");
    }
    text += "int main(void) {\n";
    for (name, value) in names {
        text += &format!("if (strcmp({name}, \"{value}\")) return 1;\n");
    }
    text += "return 0; }\n";
    let work = tempfile::tempdir().expect("a folder");
    let (source, program) = (work.path().join("layout.c"), work.path().join("layout"));
    std::fs::write(&source, text).expect("a file");
    let mut compiler = Command::new("cc");
    compiler.arg("-std=c11").arg("-I").arg(folder);
    compiler.arg(&source).arg("-o").arg(&program);
    let output = compiler.output().expect("a C compiler: Rust's linker");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let status = Command::new(&program).status().expect("it was compiled");
    assert!(status.success(), "an attribute has another name");
}
