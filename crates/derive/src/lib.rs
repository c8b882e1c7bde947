//! `#[derive(Element)]` and `#[derive(Carry)]` for tidegate.
//!
//! Both emit an `unsafe impl` into a program that may be hostile. So they follow these rules:
//!
//! - The impl names only one path that matters, that of the trait. A program may put a crate of its own in the place of
//!   `::core` or `::tidegate`; then the impl is for another trait, which does no harm. All checks are methods and
//!   constants that the trait itself leads to.
//! - They emit no type of a field: a macro in its place may expand to another type each time. The compiler infers the
//!   types from values.
//! - Each name is bound as `name @ _`, because a plain name could be a constant of the program.
//! - A pattern names all fields of the struct, because an attribute macro may change the struct after the derive has
//!   seen it.

mod carry;
mod element;
mod field;

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenTree};
use quote::quote;
use syn::{DeriveInput, Type, parse_macro_input, parse_quote};

/// Derives `tidegate::Element` for a struct of elements (`u64`, not `usize`; `u8`, not `bool`). The struct must be
/// `Copy` and `#[repr(C)]` or `#[repr(transparent)]`, without padding and without generics. All of this is checked at
/// compile time. If there is padding, the error names the field before it, and the size of the field that would fill
/// it.
///
/// The derive names the crate `tidegate`. If your Cargo.toml gives it another name, as in `tg = { package = "tidegate",
/// … }`, add `extern crate tg as tidegate;` to the root of your crate.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(1, |world| {
/// # stream!(let s = world.stream()?);
/// #[derive(Clone, Copy, Debug, PartialEq, Element)]
/// #[repr(C)]
/// struct Particle {
///     position: [f64; 3],
///     number: u64,
/// }
///
/// let one = Particle { position: [0.5; 3], number: 1 };
/// let particles = Region::from_slice(&world, &[one; 10])?;
/// assert_eq!(particles[9], one);
/// # Ok(()) });
/// ```
#[proc_macro_derive(Element)]
pub fn derive_element(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    element::derive(&input)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}

/// Derives `tidegate::Carry` for a struct of the host's regions and window halves: `Carry` of `tidegate::host`.
///
/// The struct's first parameter is a lifetime: the brand of the stream that its fields are at home on. The fields can
/// be carried themselves (regions, window halves, barriers, all-reduces, other such structs), or are plain values. Type
/// parameters may follow; one with a bound `Device` is the device. If the derive cannot find the device, name it by
/// `#[carry(device = …)]`.
///
/// The derive names the crate `tidegate`: see the derive of `Element` for a crate that has another name.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(1, |world| {
/// # stream!(let s = world.stream()?);
/// #[derive(Carry)]
/// struct Step<'s> {
///     x: Region<f64, On<'s>>,
///     inbox: Inbox<'s, f64>,
///     outbox: Outbox<'s, f64>,
/// }
///
/// let (inbox, outbox) = SlotWindow::new("none").open(&s)?;
/// let step = Step { x: Region::zeroed(&world, 1)?.on(&s)?, inbox, outbox };
/// let (graph, step) = s.capture(step, |s, mut step| {
///     s.launch(|x: &mut [f64]| x[0] += 1.0, &mut step.x)?;
///     Ok(step)
/// })?;
/// let step = graph.replay(&s, step, 5)?;
/// assert_eq!(step.x.into_host(&s)?[0], 5.0);
/// # Ok(()) });
/// ```
#[proc_macro_derive(CarryHost, attributes(carry))]
pub fn derive_carry_host(input: TokenStream) -> TokenStream {
    derive_carry(input, parse_quote!(::tidegate::host::Host))
}

/// Like `CarryHost`, for a CUDA device: `Carry` of `tidegate::cuda`.
///
/// # Examples
///
/// ```
/// use tidegate::cuda::prelude::*;
///
/// #[derive(Carry)]
/// struct Step<'s> {
///     x: Region<f64, On<'s>>,
///     inbox: Inbox<'s, f64>,
///     outbox: Outbox<'s, f64>,
/// }
/// ```
#[proc_macro_derive(CarryCuda, attributes(carry))]
pub fn derive_carry_cuda(input: TokenStream) -> TokenStream {
    derive_carry(input, parse_quote!(::tidegate::cuda::Cuda))
}

/// Like `CarryHost`, for a HIP device: `Carry` of `tidegate::hip`.
///
/// # Examples
///
/// ```
/// use tidegate::hip::prelude::*;
///
/// #[derive(Carry)]
/// struct Step<'s> {
///     x: Region<f64, On<'s>>,
///     inbox: Inbox<'s, f64>,
///     outbox: Outbox<'s, f64>,
/// }
/// ```
#[proc_macro_derive(CarryHip, attributes(carry))]
pub fn derive_carry_hip(input: TokenStream) -> TokenStream {
    derive_carry(input, parse_quote!(::tidegate::hip::Hip))
}

/// `named!(s = value)` declares a variable with the name `s` that the caller's program does not see. `named!(mut s =
/// value)` declares one that it sees. The token `mut` has the span of the program's name, so errors name the variable.
#[doc(hidden)]
#[proc_macro]
pub fn named(input: TokenStream) -> TokenStream {
    let mut input = proc_macro2::TokenStream::from(input).into_iter();
    match [input.next(), input.next()] {
        [
            Some(TokenTree::Ident(mut token)),
            Some(TokenTree::Ident(name)),
        ] => {
            token.set_span(name.span());
            quote!(#[allow(unused_mut, unused_variables)] let #token #name #(#input)*;).into()
        }
        [Some(TokenTree::Ident(mut name)), Some(is)] => {
            name.set_span(Span::mixed_site());
            quote!(#[allow(unused_variables, clippy::redundant_pattern)] let #name @ _ #is #(#input)*;).into()
        }
        _ => quote!(compile_error!("a name")).into(),
    }
}

fn derive_carry(input: TokenStream, device: Type) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    carry::derive(&input, device)
        .unwrap_or_else(|error| error.to_compile_error())
        .into()
}
