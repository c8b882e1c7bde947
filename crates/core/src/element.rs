//! Element types: the plain data that regions and windows hold.

use std::marker::PhantomData;

use tidegate_hal::batch::Scalar;

use crate::place::Of;

/// A type of plain data: it has no padding, and any bytes of its size are a valid value.
///
/// Implemented for the integers and floats whose size is the same everywhere (`i8` to `i128`, `u8` to `u128`, `f32`,
/// `f64`), and for arrays of elements. `#[derive(Element)]` implements it for a struct of elements, and checks
/// everything below at compile time. Use `u64` instead of `usize`, and `u8` instead of `bool`, for which not all bytes
/// are valid. Features add types of other crates:
///
/// | feature | elements |
/// |---|---|
/// | `half` | `half::f16`, `half::bf16` |
/// | `complex` | `num_complex::Complex<T>` of an element `T` |
/// | `bytemuck` | `element::PodElement<T>` of any `bytemuck::Pod` |
///
/// A tuple is not an element, because Rust does not fix the order of its fields. A kernel on a GPU could not read it,
/// and the ranks of two builds might disagree. Use a struct with `#[repr(C)]`.
///
/// An element has less than 4 GiB, and is aligned to at most 64 bytes; with other types a region or a window does not
/// compile. (A kernel on a GPU takes by value only elements that are aligned to at most 16 bytes.)
///
/// ```
/// use tidegate::host::prelude::*;
///
/// /// The sum of all elements.
/// fn sum<T: Element + std::iter::Sum<T>>(world: &World, values: &[T]) -> T {
///     let region = Region::from_slice(world, values).unwrap();
///     region.iter().copied().sum()
/// }
///
/// # tidegate::doc::ranks(1, |world| {
/// assert_eq!(sum(&world, &[u128::MAX - 1, 1]), u128::MAX);
/// assert_eq!(sum(&world, &[0.5f32, 1.5]), 2.0);
/// # Ok(()) });
/// ```
///
/// # Safety
///
/// The type has a size other than 0, and an alignment of at most 64, which is the alignment of every block of memory.
/// It has no padding, no invalid bytes, no interior mutability, and no pointers. `LAYOUT` differs, as far as a hash
/// can, between types whose bytes mean different things.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be put into a region or window",
    label = "not plain data",
    note = "elements are integers and floats of a fixed size (`u64` instead of `usize`, `u8` instead of `bool`), arrays of elements, and structs of them (not tuples) with `#[derive(Clone, Copy, Element)] #[repr(C)]`"
)]
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// A hash of the layout. The ranks compare it when they open a window.
    const LAYOUT: u64;

    /// The derive begins its check of the fields here. This is a member of the trait, because a program may put another
    /// crate in the place of every path that the derive could write.
    #[doc(hidden)]
    const FIELDS: Fields<Self> = Fields::none();
}

/// The most bytes that an element may have. Moves on streams and by NICs have 32 bits for its size.
///
/// ```compile_fail,E0080
/// # use tidegate_core::{Element, Region, World, stream, window::SlotWindow};
/// # use tidegate_host::Host;
/// # #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Both([u8; 1 << 31], [u8; 1 << 31]);
/// # // SAFETY: plain data.
/// # unsafe impl Element for Both {
/// #     const LAYOUT: u64 = 0;
/// # }
/// World::<Host>::local(1, |world| Region::<Both, _>::zeroed(&world, 1).map(drop));
/// ```
///
/// ```compile_fail,E0080
/// # use tidegate_core::{Element, Region, World, stream, window::SlotWindow};
/// # use tidegate_host::Host;
/// # #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Both([u8; 1 << 31], [u8; 1 << 31]);
/// # // SAFETY: plain data.
/// # unsafe impl Element for Both {
/// #     const LAYOUT: u64 = 0;
/// # }
/// World::<Host>::local(1, |world| {
///     stream!(let s = world.stream().unwrap());
///     SlotWindow::<Both>::new("w").open(&s).map(drop).unwrap();
/// });
/// ```
pub(crate) const LARGEST: usize = u32::MAX as usize;

/// The state of the derive's check: the fields that it has gone through.
///
/// The derive names no types. Each field comes as a function that borrows it, and the compiler infers the type. So a
/// type that a macro produces is expanded only once, in the struct.
#[doc(hidden)]
pub struct Fields<S> {
    /// The size of the fields so far, which is where the next field begins.
    end: usize,
    layout: u64,
    /// The name of the last field.
    last: &'static str,
    of: Of<S>,
}

impl<S: Element> Fields<S> {
    const fn none() -> Self {
        Fields {
            end: 0,
            layout: LAYOUT_START,
            last: "",
            of: PhantomData,
        }
    }

    /// Checks the next field, given its name and a function that borrows it.
    #[track_caller]
    pub const fn field<T: Element>(self, name: &'static str, _: fn(&mut S) -> &mut T) -> Self {
        let begin = self.end.next_multiple_of(align_of::<T>());
        if begin != self.end {
            padding(self.last, begin - self.end);
        }
        Fields {
            end: begin + size_of::<T>(),
            layout: mix(self.layout, T::LAYOUT),
            last: name,
            of: PhantomData,
        }
    }

    /// The hash of the struct. The function's pattern names all fields, so there are no others.
    #[track_caller]
    pub const fn layout(self, _: fn(&mut S)) -> u64 {
        assert!(self.end != 0, "an element has a size other than 0");
        assert!(
            align_of::<S>() <= 64,
            "an element is aligned to 64 bytes at most"
        );
        // `end` is the sum of the fields' sizes, so this holds wherever the compiler puts them.
        if size_of::<S>() != self.end {
            padding(self.last, size_of::<S>() - self.end);
        }
        self.layout
    }
}

/// Fails the compilation, and says which field has padding behind it, and how to fill it.
#[track_caller]
const fn padding(field: &str, count: usize) -> ! {
    let digits = &mut [0; 20];
    let count_text = decimal(count, digits);
    let (bytes, stand) = match count {
        1 => (" byte", "stands"),
        _ => (" bytes", "stand"),
    };
    let parts = [
        "an element has no padding, and here ",
        count_text,
        bytes,
        " behind `",
        if field.len() <= 256 { field } else { "…" },
        "` ",
        stand,
        " empty: fill them with a field, `_pad: [u8; ",
        count_text,
        "]`",
    ];
    let mut text = [0; 512];
    let (mut end, mut part) = (0, 0);
    while part < parts.len() {
        let bytes = parts[part].as_bytes();
        text.split_at_mut(end)
            .1
            .split_at_mut(bytes.len())
            .0
            .copy_from_slice(bytes);
        end += bytes.len();
        part += 1;
    }
    match std::str::from_utf8(text.split_at(end).0) {
        Ok(text) => panic!("{}", text),
        Err(_) => unreachable!(),
    }
}

/// A number in decimal digits, computed at compile time.
const fn decimal(number: usize, digits: &mut [u8; 20]) -> &str {
    let (mut left, mut begin) = (number, digits.len());
    loop {
        begin -= 1;
        digits[begin] = b'0' + (left % 10) as u8;
        left /= 10;
        if left == 0 {
            break;
        }
    }
    match std::str::from_utf8(digits.split_at(begin).1) {
        Ok(text) => text,
        Err(_) => unreachable!(),
    }
}

/// Combines layout hashes.
#[doc(hidden)]
pub const fn mix(hash: u64, with: u64) -> u64 {
    // This is FNV-1a, byte by byte.
    let bytes = with.to_le_bytes();
    let mut hash = hash;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// The hash before anything is mixed in.
#[doc(hidden)]
pub const LAYOUT_START: u64 = 0xcbf2_9ce4_8422_2325;

/// A number that can be accumulated, and that fetch-and-ops and compare-and-swaps work on.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::Arithmetic;
///
/// # tidegate::doc::ranks(2, |world| {
/// # stream!(let s = world.stream()?);
/// /// The sum over all ranks, of any type that can be added.
/// fn total<'s, T: Arithmetic>(s: &Stream<'s>, x: &mut Region<T, On<'s>>) -> Result<()> {
///     AllReduce::open(s, "total", x.len(), Op::Sum)?.enqueue(s, x)
/// }
/// # let mut x = Region::from_slice(&world, &[1u8])?.on(&s)?;
/// # total(&s, &mut x)?;
/// # assert_eq!(x.into_host(&s)?[0], 2);
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be accumulated",
    note = "accumulate, fetch_and_op and compare_and_swap work on integers of up to 64 bits and on floats (`half::f16` and `half::bf16` with the feature `half`)"
)]
pub trait Arithmetic: Reducible<Number = Self> + sealed::Sealed {
    #[doc(hidden)]
    const SCALAR: Scalar;
    #[doc(hidden)]
    const FLOAT: bool;
}

/// An element that collectives reduce: a number, or several numbers that are reduced one by one. Arrays of such elements
/// are such elements, and so are complex numbers, of which there are only sums.
///
/// With the feature `half`, `f16` and `bf16` are numbers. Each step of a reduction goes by `f32`, and is rounded to the
/// nearest number of 16 bits, of two equally near ones to the even one.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// # tidegate::doc::ranks(2, |world| {
/// # stream!(let s = world.stream()?);
/// let mut momentum = Region::from_slice(&world, &[[world.rank() as f64, 1.0, -1.0]; 10])?.on(&s)?;
/// let mut sums = AllReduce::open(&s, "momentum", 10, Op::Sum)?;
/// sums.enqueue(&s, &mut momentum)?;
/// assert_eq!(momentum.into_host(&s)?[9], [1.0, 2.0, -2.0]);
/// # Ok(()) });
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be reduced",
    label = "has no sum",
    note = "reductions work on integers of up to 64 bits, floats (`half::f16` and `half::bf16` with the feature `half`), complex numbers (feature `complex`), and arrays of them",
    note = "lend the numbers of a struct as an array; or put structs into the slots of a window, and let a kernel reduce them"
)]
pub trait Reducible: Element + sealed::Sealed {
    /// The type of the numbers.
    type Number: Arithmetic;
    #[doc(hidden)]
    const NUMBERS: usize;
    /// Whether products, minima and maxima of the numbers mean nothing for the element.
    #[doc(hidden)]
    const ONLY_SUMS: bool;
}

mod sealed {
    pub trait Sealed {}
}

impl<T: Reducible, const N: usize> sealed::Sealed for [T; N] {}
impl<T: Reducible, const N: usize> Reducible for [T; N] {
    type Number = T::Number;
    const NUMBERS: usize = N * T::NUMBERS;
    const ONLY_SUMS: bool = T::ONLY_SUMS;
}

#[cfg(feature = "complex")]
impl<T: Arithmetic> sealed::Sealed for num_complex::Complex<T> {}
#[cfg(feature = "complex")]
impl<T: Arithmetic> Reducible for num_complex::Complex<T> {
    type Number = T;
    const NUMBERS: usize = 2;
    const ONLY_SUMS: bool = true;
}

/// Implements `Element` for numbers, each with a code that no other type has.
macro_rules! numbers {
    ($($ty:ty, $code:literal;)*) => {$(
        // SAFETY: a number of a fixed size: no padding, all bytes valid.
        unsafe impl Element for $ty {
            const LAYOUT: u64 = mix(LAYOUT_START, $code);
        }
    )*};
}

macro_rules! arithmetic {
    ($($ty:ty, $scalar:ident, $float:literal, $code:literal;)*) => {$(
        numbers! { $ty, $code; }
        impl sealed::Sealed for $ty {}
        impl Arithmetic for $ty {
            const SCALAR: Scalar = Scalar::$scalar;
            const FLOAT: bool = $float;
        }
        impl Reducible for $ty {
            type Number = $ty;
            const NUMBERS: usize = 1;
            const ONLY_SUMS: bool = false;
        }
    )*};
}

arithmetic! {
    i8, I8, false, 1;
    i16, I16, false, 2;
    i32, I32, false, 3;
    i64, I64, false, 4;
    u8, U8, false, 5;
    u16, U16, false, 6;
    u32, U32, false, 7;
    u64, U64, false, 8;
    f32, F32, true, 9;
    f64, F64, true, 10;
}
numbers! {
    i128, 11;
    u128, 12;
}
// Both are `#[repr(transparent)]` over a `u16`.
#[cfg(feature = "half")]
arithmetic! {
    half::f16, F16, true, 13;
    half::bf16, Bf16, true, 14;
}

/// The hashes of types with one parameter begin with these. (The hash of an array begins with 11 and the length.)
#[cfg(feature = "complex")]
const COMPLEX: u64 = u64::MAX;
#[cfg(feature = "bytemuck")]
const POD: u64 = u64::MAX - 1;

// SAFETY: it is `#[repr(C)]` and has two values of one type, so there is no padding, and all bytes are valid.
#[cfg(feature = "complex")]
unsafe impl<T: Element> Element for num_complex::Complex<T> {
    const LAYOUT: u64 = {
        assert!(
            size_of::<Self>() <= LARGEST,
            "elements have less than 4 GiB"
        );
        mix(mix(LAYOUT_START, COMPLEX), T::LAYOUT)
    };
}

/// Makes an element of any `bytemuck::Pod`, for types of other crates.
///
/// Ranks compare only its size and its alignment, so two different types of the same size are taken for the same. For a
/// struct of your own use `#[derive(Element)]`, which compares the fields.
///
/// `bytemuck::TransparentWrapper` turns a slice of `T` into a slice of `PodElement<T>` and back, without a copy.
///
/// ```
/// use bytemuck::{Pod, TransparentWrapper, Zeroable};
/// use tidegate::element::PodElement;
/// use tidegate::host::prelude::*;
///
/// #[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
/// #[repr(C)]
/// struct Particle {
///     at: [f64; 3],
///     number: u64,
/// }
///
/// # tidegate::doc::ranks(1, |world| {
/// let particles = [Particle { at: [0.5; 3], number: 1 }; 10];
/// let region = Region::from_slice(&world, PodElement::wrap_slice(&particles))?;
/// assert_eq!(PodElement::peel_slice(&region), particles);
/// assert_eq!(region[0].0.number, 1);
/// # Ok(()) });
/// ```
///
/// A type that is not `Pod` does not compile. Here there is padding behind `small`, and not all bytes are a valid
/// `char`.
///
/// ```compile_fail,E0277
/// # use tidegate_core::{Region, World, element::PodElement};
/// # use tidegate_host::Host;
/// #[derive(Clone, Copy)]
/// #[repr(C)]
/// struct Padded {
///     small: u8,
///     large: u32,
/// }
/// # World::<Host>::local(1, |world| {
/// let _ = Region::<PodElement<Padded>, _>::zeroed(&world, 4);
/// # });
/// ```
///
/// ```compile_fail,E0277
/// # use tidegate_core::{Region, World, element::PodElement};
/// # use tidegate_host::Host;
/// # World::<Host>::local(1, |world| {
/// let _ = Region::<PodElement<char>, _>::zeroed(&world, 4);
/// # });
/// ```
#[cfg(feature = "bytemuck")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PodElement<T>(pub T);

// SAFETY: it is `#[repr(transparent)]` over a `T`.
#[cfg(feature = "bytemuck")]
unsafe impl<T> bytemuck::TransparentWrapper<T> for PodElement<T> {}

// SAFETY: it has the layout of `T`, and `Pod` promises that all bytes of a `T` are valid, and that there is no padding,
// no interior mutability and no pointer. `Pod` allows a size of 0 and larger alignments, but with these the constant
// does not evaluate, here and where a region is made.
#[cfg(feature = "bytemuck")]
unsafe impl<T: bytemuck::Pod + Send + Sync> Element for PodElement<T> {
    const LAYOUT: u64 = {
        assert!(size_of::<T>() != 0, "an element has a size other than 0");
        assert!(
            align_of::<T>() <= 64,
            "an element is aligned to 64 bytes at most"
        );
        assert!(size_of::<T>() <= LARGEST, "elements have less than 4 GiB");
        let layout = mix(mix(LAYOUT_START, POD), size_of::<T>() as u64);
        mix(layout, align_of::<T>() as u64)
    };
}

// SAFETY: an array is its `N` elements one behind the other, without padding between them. If `N` is 0, the constant
// does not evaluate.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const LAYOUT: u64 = {
        assert!(N != 0, "elements have a size other than 0");
        // This reports the error earlier than the check at the place of use, which happens when code is generated.
        assert!(
            size_of::<Self>() <= LARGEST,
            "elements have less than 4 GiB"
        );
        mix(mix(LAYOUT_START, 11 + N as u64), T::LAYOUT)
    };
}
