//! `#[derive(Element)]`.

use proc_macro2::{Span, TokenStream};
use quote::{quote, quote_spanned};
use syn::{Data, DeriveInput, Error, Result};

use crate::field::Field;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "only structs can be elements: not all bytes are a valid enum or union",
        ));
    };
    if !input.generics.params.is_empty() || input.generics.where_clause.is_some() {
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
                return Err(meta.error("an element cannot be packed: its fields must be aligned"));
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
    let fields = Field::all(&data.fields);
    let checks = fields.iter().map(|field| {
        let Field {
            member,
            name,
            type_begin: begin,
            type_end: end,
        } = field;
        let borrow = field.closure(
            quote_spanned!(*begin=> whole @ _: &mut Self),
            quote_spanned!(*end=> let Self { #member: field @ _, .. } = whole; field),
        );
        quote_spanned!(*begin=> .field(#name, #borrow))
    });
    let members = fields.iter().map(|field| &field.member);
    let whole = quote_spanned!(Span::mixed_site()=> |whole @ _: &mut Self| {
        let Self { #(#members: _,)* } = whole;
    });
    Ok(quote! {
        // SAFETY: the constant evaluates only if each field is an element, and if there are no other fields. (An
        // attribute macro may change the struct after the derive has seen it.) It also evaluates only without padding,
        // with a size other than 0, and with at most the alignment of memory. `Fields` checks this, and it comes from
        // the trait itself.
        unsafe impl ::tidegate::Element for #name {
            const LAYOUT: u64 = <Self as ::tidegate::Element>::FIELDS
                #(#checks)*
                .layout(#whole);
        }

        // This is evaluated even if the constant is not used.
        const _: u64 = <#name as ::tidegate::Element>::LAYOUT;
    })
}
