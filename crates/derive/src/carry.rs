//! `#[derive(Carry)]`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::{Data, DeriveInput, Error, GenericParam, Lifetime, Result, Type, parse_quote};

use crate::Field;

pub(crate) fn derive(input: &DeriveInput) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "`Carry` can be derived for structs",
        ));
    };
    let mut params = input.generics.params.iter();
    let (Some(GenericParam::Lifetime(brand)), None) = (params.next(), params.next()) else {
        let message = "`Carry` wants one generic parameter: the lifetime of the stream's brand, as in `struct State<'s>`";
        return Err(Error::new_spanned(&input.ident, message));
    };
    if !brand.bounds.is_empty() || input.generics.where_clause.is_some() {
        return Err(Error::new_spanned(
            &input.generics,
            "`Carry` wants a lifetime without bounds",
        ));
    }
    let mut device: Type = parse_quote!(::tidegate::Host);
    for attribute in input
        .attrs
        .iter()
        .filter(|attribute| attribute.path().is_ident("carry"))
    {
        attribute.parse_nested_meta(|meta| {
            if !meta.path.is_ident("device") {
                return Err(meta.error("expected `device = …`"));
            }
            device = meta.value()?.parse()?;
            Ok(())
        })?;
    }
    let (name, brand) = (&input.ident, &brand.lifetime);
    // A lifetime with another name, whatever the struct's is called.
    let other = Lifetime::new(&format!("'{}_other", brand.ident), Span::mixed_site());
    let fields = Field::all(&data.fields);
    let members = fields.iter().map(|field| &field.member);
    let values: Vec<_> = (0..fields.len())
        .map(|index| format_ident!("field{index}", span = Span::mixed_site()))
        .collect();
    let visitor = format_ident!("visitor", span = Span::mixed_site());
    let visits = fields.iter().zip(&values).map(|(field, value)| {
        let Field {
            member,
            name: called,
            type_begin: begin,
            type_end: end,
        } = field;
        let other = field.closure(
            quote_spanned!(*begin=> whole @ _, _),
            quote_spanned! {*end=>
                let #name { #member: field @ _, .. } = whole;
                let field @ _ = [field];
                field
            },
        );
        quote_spanned!(*begin=> #visitor.field::<Self, _>(#called, #value, #other);)
    });
    Ok(quote! {
        // SAFETY: `At` is the same struct with another brand; every field is `Carry`, so nothing else mentions the
        // brand, and is visited once, in order. The function compiles only if the struct has these fields and no
        // others (an attribute macro may change it after the derive has seen it), and if each field with another brand
        // is what its `Carry` says.
        unsafe impl<#brand> ::tidegate::Carry<#brand, #device> for #name<#brand> {
            type At<#other> = #name<#other>;

            fn visit(&mut self, #visitor: &mut ::tidegate::capture::Visitor<'_, #device>) {
                let Self { #(#members: #values @ _,)* } = self;
                #(#visits)*
            }
        }
    })
}
