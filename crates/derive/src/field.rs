//! Fields, in the form that both derives need.

use proc_macro2::{Delimiter, Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote_spanned};
use syn::ext::IdentExt;
use syn::{Fields, Member};

/// The facts about one field of a struct from which the derives emit code.
pub(crate) struct Field {
    pub(crate) member: Member,
    /// The name of the field in messages.
    pub(crate) name: String,
    /// The beginning and the end of the type's text, so that errors about the field point there. The type itself is not
    /// emitted, because a macro in its place may expand to another type each time.
    pub(crate) type_begin: Span,
    pub(crate) type_end: Span,
}

impl Field {
    pub(crate) fn all(fields: &Fields) -> Vec<Field> {
        fields
            .members()
            .zip(fields)
            .map(|(member, field)| {
                let mut ends = field
                    .ty
                    .to_token_stream()
                    .into_iter()
                    .map(|tree| match tree {
                        TokenTree::Group(group) => (group.span_open(), group.span_close()),
                        other => (other.span(), other.span()),
                    });
                let here = Span::mixed_site();
                let first = ends.next().unwrap_or((here, here));
                let last = ends.last().unwrap_or(first);
                Field {
                    name: match &member {
                        Member::Named(name) => name.unraw().to_string(),
                        Member::Unnamed(index) => index.index.to_string(),
                    },
                    member,
                    type_begin: here.located_at(first.0),
                    type_end: here.located_at(last.1),
                }
            })
            .collect()
    }

    /// A closure expression with the span of the type.
    pub(crate) fn closure(&self, argument: TokenStream, body: TokenStream) -> TokenStream {
        let mut body = Group::new(Delimiter::Brace, body);
        body.set_span(self.type_end);
        quote_spanned!(self.type_begin=> |#argument| #body)
    }
}
