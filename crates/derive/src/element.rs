//! `#[derive(Element)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, Member, Result};

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
    let fields: Vec<Member> = data.fields.members().collect();
    let values: Vec<_> = (0..fields.len())
        .map(|index| format_ident!("__{index}"))
        .collect();
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    // Where the next field begins; behind the last, where the struct ends.
    let nexts = fields[fields.len().min(1)..]
        .iter()
        .map(|next| quote!(::core::mem::offset_of!(#name, #next)))
        .chain([quote!(::core::mem::size_of::<#name>())]);
    let gaps = fields
        .iter()
        .zip(&types)
        .zip(nexts)
        .map(|((field, ty), next)| {
            let end =
                quote!(::core::mem::offset_of!(#name, #field) + ::core::mem::size_of::<#ty>());
            gap(field, &quote!(#next - (#end)))
        });
    Ok(quote! {
        // SAFETY: all fields are elements (`LAYOUT` of each is named), and the constant does not evaluate if there is
        // padding, or nothing at all, or too large an alignment. The function below compiles only if the struct has
        // these fields and no others: an attribute macro may change it after the derive has seen it. Macros and modules
        // are named by their whole paths: the program may have others of these names.
        unsafe impl ::tidegate::Element for #name {
            const LAYOUT: u64 = {
                let fields: usize = 0 #(+ ::core::mem::size_of::<#types>())*;
                ::core::assert!(fields != 0, "an element has a size other than 0");
                #(#gaps)*
                ::core::assert!(::core::mem::size_of::<#name>() == fields, "an element has no padding");
                ::core::assert!(::core::mem::align_of::<#name>() <= 64, "an element is aligned to 64 bytes at most");
                let hash = ::tidegate::element::LAYOUT_START;
                #(let hash = ::tidegate::element::mix(hash, <#types as ::tidegate::Element>::LAYOUT);)*
                hash
            };
        }

        const _: () = {
            // Evaluated even where the constant is not used.
            const _: u64 = <#name as ::tidegate::Element>::LAYOUT;

            #[allow(dead_code)]
            fn check(here: &mut #name) {
                let #name { #(#fields: #values,)* } = here;
                // In an array a reference is not coerced: `&&u64` would do for `&u64`.
                #(let #values = [#values]; let _: [&mut #types; 1] = #values;)*
            }
        };
    })
}

/// Says that so many bytes stand empty behind a field, and what would fill them, unless there are none.
fn gap(field: &Member, bytes: &TokenStream) -> TokenStream {
    let field = match field {
        Member::Named(name) => name.to_string(),
        Member::Unnamed(index) => index.index.to_string(),
    };
    // A message in a constant is a literal, so there is one for each number of bytes; most fields are aligned to 8.
    let known = 1..8_usize;
    let messages = known.clone().map(|count| {
        let (bytes, stand) = match count {
            1 => ("byte", "stands"),
            _ => ("bytes", "stand"),
        };
        format!(
            "an element has no padding, and here {count} {bytes} behind `{field}` {stand} empty: \
             fill them with a field, `_pad: [u8; {count}]`"
        )
    });
    let more = format!(
        "an element has no padding, and here 8 bytes or more behind `{field}` stand empty: \
         fill them with a field, `_pad: [u8; …]`"
    );
    quote! {
        match #bytes {
            0 => {}
            #(#known => ::core::panic!(#messages),)*
            _ => ::core::panic!(#more),
        }
    }
}
