//! `#[derive(Carry)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, GenericParam, Member, Result, Type, parse_quote};

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
    let fields: Vec<Member> = data.fields.members().collect();
    let values: Vec<_> = (0..fields.len())
        .map(|index| format_ident!("__{index}"))
        .collect();
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let names: Vec<_> = fields
        .iter()
        .map(|field| match field {
            Member::Named(name) => name.to_string(),
            Member::Unnamed(index) => index.index.to_string(),
        })
        .collect();
    Ok(quote! {
        // SAFETY: `At` is the same struct with another brand; every field is `Carry`, so nothing else mentions the
        // brand, and is visited once, in order. The function below compiles only if the struct has these fields and no
        // others (an attribute macro may change it after the derive has seen it), and if each field with another brand
        // is what its `Carry` says.
        unsafe impl<#brand> ::tidegate::Carry<#brand, #device> for #name<#brand> {
            type At<'__at> = #name<'__at>;

            fn visit(&mut self, visitor: &mut ::tidegate::capture::Visitor<'_, #device>) {
                #(
                    visitor.enter(#names);
                    <#types as ::tidegate::Carry<#brand, #device>>::visit(&mut self.#fields, visitor);
                    visitor.leave();
                )*
            }
        }

        const _: () = {
            #[allow(dead_code)]
            fn check<#brand, '__at>(here: &mut #name<#brand>, there: &mut #name<'__at>) {
                let #name { #(#fields: #values,)* } = here;
                // In an array a reference is not coerced: one to a `Box` would do for one to what is in it.
                #(let #values = [#values]; let _: [&mut #types; 1] = #values;)*
                let #name { #(#fields: #values,)* } = there;
                #(let #values = [#values];
                let _: [&mut <#types as ::tidegate::Carry<#brand, #device>>::At<'__at>; 1] = #values;)*
            }
        };
    })
}
