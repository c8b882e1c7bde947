//! `#[derive(Carry)]`.

use proc_macro2::{Span, TokenStream};
use quote::{format_ident, quote, quote_spanned};
use syn::punctuated::Punctuated;
use syn::{
    Data, DeriveInput, Error, GenericParam, Ident, Lifetime, Result, Token, Type, TypeParam,
    TypeParamBound, WherePredicate, parse_quote,
};

use crate::field::Field;

/// Derives the trait for a struct of things of this device, unless the struct names another.
pub(crate) fn derive(input: &DeriveInput, mut device: Type) -> Result<TokenStream> {
    let Data::Struct(data) = &input.data else {
        return Err(Error::new_spanned(
            &input.ident,
            "`Carry` can be derived for structs",
        ));
    };
    let mut params = input.generics.params.iter();
    let Some(GenericParam::Lifetime(brand)) = params.next() else {
        let message = "`Carry` needs the lifetime of the stream's brand, as in `struct State<'s>`";
        return Err(Error::new_spanned(&input.ident, message));
    };
    let clause = &input.generics.where_clause;
    let predicates = || clause.iter().flat_map(|clause| &clause.predicates);
    let is_of_lifetime = |predicate| matches!(predicate, &WherePredicate::Lifetime(_));
    if !brand.bounds.is_empty() || predicates().any(is_of_lifetime) {
        return Err(Error::new_spanned(
            &input.generics,
            "`Carry` needs a lifetime without bounds",
        ));
    }
    let mut types = Vec::new();
    for param in params {
        let GenericParam::Type(param) = param else {
            let message = "`Carry` needs one lifetime, that of the stream's brand, and types";
            return Err(Error::new_spanned(param, message));
        };
        let name = &param.ident;
        let elsewhere = predicates().filter_map(|predicate| match predicate {
            WherePredicate::Type(of) => is_named(&of.bounded_ty, name).then_some(&of.bounds),
            _ => None,
        });
        if elsewhere.chain([&param.bounds]).any(name_a_device) {
            device = parse_quote!(#name);
        }
        types.push(TypeParam {
            attrs: Vec::new(),
            default: None,
            ..param.clone()
        });
    }
    let names: Vec<_> = types.iter().map(|param| &param.ident).collect();
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
    // This lifetime has another name than the struct's, whatever that is.
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
        // SAFETY: `At` is the same struct with another brand. Every field is `Carry`, so only fields mention the brand,
        // and each is visited once, in order. The function compiles only if the struct has exactly these fields. (An
        // attribute macro may change it after the derive has seen it.) And it compiles only if each field with another
        // brand is what its `Carry` says.
        unsafe impl<#brand, #(#types),*> ::tidegate::Carry<#brand, #device>
            for #name<#brand, #(#names),*>
        #clause
        {
            type At<#other> = #name<#other, #(#names),*>;

            fn visit(&mut self, #visitor: &mut ::tidegate::capture::Visitor<'_, #device>) {
                let Self { #(#members: #values @ _,)* } = self;
                #(#visits)*
            }
        }
    })
}

/// Whether a type is this parameter.
fn is_named(bounded: &Type, name: &Ident) -> bool {
    matches!(bounded, Type::Path(path) if path.path.is_ident(name))
}

/// Whether bounds make a type a device, judging by the names of the traits. A wrong guess does not compile.
fn name_a_device(bounds: &Punctuated<TypeParamBound, Token![+]>) -> bool {
    bounds.iter().any(|bound| {
        let TypeParamBound::Trait(bound) = bound else {
            return false;
        };
        let last = bound.path.segments.last();
        last.is_some_and(|last| {
            let devices = ["Device", "ClosureDevice", "HostAccess", "LaunchDevice"];
            devices.iter().any(|name| last.ident == name)
        })
    })
}
