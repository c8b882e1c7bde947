//! HIP 5.2, as Debian has it (`libamdhip64-5`), has the compiler in its library, and needs no GPU to compile. It is too
//! old for everything else.

use tidegate_hal::code::Code;

use super::*;
use crate::code::CodeObject;
use crate::skipped;

fn old() -> Result<Compiler, CompilerError> {
    // SAFETY: this is the name of AMD's library.
    unsafe { Compiler::load_from(&["libamdhip64.so.5"]) }
}

#[test]
fn all_sources_are_compiled_for_architectures_without_a_code_object() {
    let compiler = match old() {
        Ok(compiler) => compiler,
        Err(error) => {
            let test = "all_sources_are_compiled_for_architectures_without_a_code_object";
            return skipped::skipped(test, &error.to_string());
        }
    };
    for (name, code) in tidegate_kernels::ALL {
        let committed = CodeObject::choose(code, "gfx942").unwrap();
        for architecture in ["gfx906:sramecc-:xnack-", "gfx1030"] {
            let made = compile(&compiler, code.source().unwrap(), architecture);
            let made = made.unwrap_or_else(|error| panic!("{name} for {architecture}: {error}"));
            let made = CodeObject::choose(&Code::from(&made), architecture).unwrap();
            // The same kernels, with the same parameters.
            assert_eq!(made.kernels, committed.kernels, "{name}, {architecture}");
        }
    }
}

#[test]
fn the_compilers_messages_are_the_error() {
    let compiler = match old() {
        Ok(compiler) => compiler,
        Err(error) => {
            let test = "the_compilers_messages_are_the_error";
            return skipped::skipped(test, &error.to_string());
        }
    };
    let source = |text| SourceText {
        name: "mistake.cu",
        text,
        headers: &[],
    };
    let text = "#include \"tidegate.cuh\"\nextern \"C\" __global__ void k(tidegate::Slot s) { nothing(); }";
    let error = compile(&compiler, &source(text), "gfx1030").unwrap_err();
    let error = error.to_string();
    assert!(error.contains("hiprtcCompileProgram"), "{error}");
    assert!(error.contains("undeclared identifier 'nothing'"), "{error}");
    let zero = compile(&compiler, &source("a\0b"), "gfx1030");
    assert_eq!(zero, Err(CompilerError::Zero));
}

#[test]
fn without_a_compiler_the_names_are_told() {
    // SAFETY: there is no such library.
    let error = unsafe { Compiler::load_from(&["libhiprtc.so.none"]) }.err();
    let error = error.expect("there is none").to_string();
    assert!(error.contains("tried libhiprtc.so.none ("), "{error}");
    // SAFETY: the library of C has no compiler, and its initialisers have run.
    let error = unsafe { Compiler::load_from(&["libc.so.6"]) }.err();
    let error = error.expect("it is another").to_string();
    assert!(error.contains("no symbol hiprtcCreateProgram"), "{error}");
}
