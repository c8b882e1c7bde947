//! `#[derive(Element)]` and `#[derive(Carry)]` for tidegate.
//!
//! Both emit an `unsafe impl` into a program that may be hostile, and keep to this:
//!
//! - The trait is the only path that matters. A program may put a crate of its own in the place of `::core` and
//!   `::tidegate`; an impl of another trait does no harm. All checks are methods and constants that the trait itself leads to.
//! - No type of a field is emitted: a macro that stands for one may make another of it each time. The compiler infers the
//!   types from values.
//! - Each name that is bound is `name @ _`, or it might be a constant of the program's.
//! - An attribute macro may change the struct after the derive has seen it: so a pattern names all fields.

mod carry;
mod element;
mod field;

use proc_macro::TokenStream;
use proc_macro2::{Span, TokenTree};
use quote::quote;
use syn::{DeriveInput, Type, parse_macro_input, parse_quote};

/// Derives `tidegate::Element` for a struct of elements (`u64`, not `usize`; `u8`, not `bool`): it must be `#[repr(C)]` or
/// `#[repr(transparent)]`, `Copy`, without padding and without generics. All of it is checked at compile time; where there
/// is padding the error says behind which field, and how much of it to make a field.
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

/// Derives `tidegate::Carry` for a struct of things of the host: `Carry` of `tidegate::host`.
///
/// The struct's first parameter is a lifetime: the brand of the stream that its fields are at home on. The fields are
/// carried themselves (regions, window halves, barriers, all-reduces, other such structs), or plain values. Types may
/// follow: one with a bound `Device` is the device. `#[carry(device = …)]` names the device where the derive cannot know it.
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

/// As `CarryHost`, for things of a CUDA device: `Carry` of `tidegate::cuda`.
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

/// `named!(s = value)` declares a variable with the name `s` that the caller's program does not see, and
/// `named!(mut s = value)` one that it sees: errors name it, since `mut` stands where the program has the name.
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
