//! `#[derive(Element)]`.

use proc_macro2::TokenStream;
use quote::quote;
use syn::{Data, DeriveInput, Error, Result};

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "only structs can be elements: not all bytes are a valid enum or union",
        ));
    };
    if !input.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &input.generics,
            "an element has no generic parameters",
        ));
    }
    let mut fixed = false;
    for attribute in input
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("repr"))
    {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("packed") {
                return Err(meta.error("fields of an element are aligned"));
            }
            fixed |= meta.path.is_ident("C") || meta.path.is_ident("transparent");
            if meta.input.peek(syn::token::Paren) {
                let inner;
                syn::parenthesized!(inner in meta.input);
                inner.parse::<TokenStream>()?;
            }
            Ok(())
        })?;
    }
    if !fixed {
        let message = "an element is `#[repr(C)]` or `#[repr(transparent)]`, so that its layout is the same on all ranks";
        return Err(Error::new_spanned(&input.ident, message));
    }
    let name = &input.ident;
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    Ok(quote! {
        // SAFETY: all fields are elements (`LAYOUT` of each is named), and the constant below does not evaluate if there is
        // padding or nothing at all.
        unsafe impl ::tidegate::Element for #name {
            const LAYOUT: u64 = {
                const SIZE: usize = 0 #(+ ::core::mem::size_of::<#types>())*;
                assert!(SIZE != 0, "an element has a size other than 0");
                assert!(::core::mem::size_of::<#name>() == SIZE, "an element has no padding");
                let hash = ::tidegate::element::LAYOUT_START;
                #(let hash = ::tidegate::element::mix(hash, <#types as ::tidegate::Element>::LAYOUT);)*
                hash
            };
        }

        // Evaluated even where the constant is not used.
        const _: u64 = <#name as ::tidegate::Element>::LAYOUT;
    })
}
