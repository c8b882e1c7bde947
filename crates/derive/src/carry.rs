//! `#[derive(Carry)]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Data, DeriveInput, Error, GenericParam, Index, Result, Type, parse_quote};

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
    let fields: Vec<_> = data
        .fields
        .iter()
        .enumerate()
        .map(|(index, field)| match &field.ident {
            Some(ident) => quote!(#ident),
            None => {
                let index = Index::from(index);
                quote!(#index)
            }
        })
        .collect();
    let types: Vec<_> = data.fields.iter().map(|field| &field.ty).collect();
    let check = format_ident!("__carry_fields_of_{}", name);
    Ok(quote! {
        // SAFETY: `At` is the same struct with another brand; every field is visited once, in order; every field is `Carry` (as `visit`
        // requires, and as the function below requires for `At` too), so nothing else mentions the brand.
        unsafe impl<#brand> ::tidegate::Carry<#brand, #device> for #name<#brand> {
            type At<'__at> = #name<'__at>;

            fn visit(&mut self, visitor: &mut ::tidegate::capture::Visitor<'_, #device>) {
                #(<#types as ::tidegate::Carry<#brand, #device>>::visit(&mut self.#fields, visitor);)*
            }
        }

        #[doc(hidden)]
        #[allow(non_snake_case, dead_code)]
        fn #check<#brand, '__at>(value: #name<#brand>) {
            fn same<'s, 't, X: ::tidegate::Carry<'s, #device>>(_: X) -> ::core::option::Option<X::At<'t>> {
                ::core::option::Option::None
            }
            #({
                let _ = |value: #types| same::<'_, '__at, #types>(value);
            })*
            let _ = value;
        }
    })
}
