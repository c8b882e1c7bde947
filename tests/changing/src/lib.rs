//! An attribute that changes a struct after a derive above it has seen it; for `tests/compile_fail`.

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
