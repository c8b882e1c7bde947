//! Macros for `tests/types`: an attribute that changes a struct after a derive above it has seen it, and what says how
//! the test itself is compiled.

use std::fs;

use proc_macro::TokenStream;
use quote::quote;
use syn::{ItemStruct, Type, parse_macro_input};

/// Gives all fields the type that stands in the attribute.
#[proc_macro_attribute]
pub fn fields(ty: TokenStream, item: TokenStream) -> TokenStream {
    let ty = parse_macro_input!(ty as Type);
    let mut item = parse_macro_input!(item as ItemStruct);
    for field in &mut item.fields {
        field.ty = ty.clone();
    }
    quote!(#item).into()
}

/// The compiler that compiles this, and its arguments: an array of strings. With these a test compiles other programs
/// against the very libraries that cargo has built for it, of which there may be several versions in the target folder.
#[proc_macro]
pub fn compiler(_: TokenStream) -> TokenStream {
    let program = fs::read_link("/proc/self/exe").expect("the compiler's path can be read");
    let arguments = fs::read("/proc/self/cmdline").expect("its arguments can be read");
    let arguments = String::from_utf8(arguments).expect("its arguments are text");
    let words = arguments.split_terminator('\0').skip(1);
    let program = program.to_str().expect("its path is text");
    quote!([#program, #(#words),*]).into()
}
