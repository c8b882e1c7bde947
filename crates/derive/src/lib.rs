//! `#[derive(Element)]` and `#[derive(Carry)]` for tidegate.

mod carry;
mod element;

use proc_macro::TokenStream;
use syn::{DeriveInput, parse_macro_input};

/// Derives `tidegate::Element` for a struct of elements (`u64`, not `usize`; `u8`, not `bool`): it must be `#[repr(C)]` or
/// `#[repr(transparent)]`, `Copy`, without padding and without generics. All of it is checked at compile time; where there
/// is padding the error says behind which field, and how much of it to make a field.
#[proc_macro_derive(Element)]
pub fn derive_element(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    element::derive(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// Derives `tidegate::Carry` for a struct of what is carried (regions, window halves, barriers, all-reduces, other such
/// structs), with one lifetime: the brand of the stream that they are at home on. `#[carry(device = Cuda)]` names a device other than `tidegate::Host`.
#[proc_macro_derive(Carry, attributes(carry))]
pub fn derive_carry(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    carry::derive(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
