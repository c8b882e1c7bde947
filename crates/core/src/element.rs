//! What windows and regions hold: plain data.

use std::marker::PhantomData;

use tidegate_hal::batch::Scalar;

use crate::place::Of;

/// A type of plain data: any bytes of its size are a valid value, and it has no padding.
///
/// Implemented for the integers and floats whose size is the same everywhere (`i8` to `i64`, `u8` to `u64`, `f32`,
/// `f64`: put `u64` for `usize`, and `u8` for `bool`, of which not all bytes are a value), and for arrays of elements;
/// for structs of elements by `#[derive(Element)]`, which checks all of the below at compile time. An element has less
/// than 4 GiB: a region or a window of larger ones does not compile.
///
/// # Safety
///
/// The type has a size other than 0, an alignment of at most 64 (that of every block of memory), no padding, no bytes
/// that are invalid, no interior mutability, no pointers; `LAYOUT` differs (as far as a hash can) between types whose
/// bytes mean different things.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be put into a region or window",
    label = "not plain data",
    note = "elements are integers and floats of a fixed size (`u64` instead of `usize`, `u8` instead of `bool`), arrays of elements, and structs of them with `#[derive(Clone, Copy, Element)] #[repr(C)]`"
)]
pub unsafe trait Element: Copy + Send + Sync + 'static {
    /// A hash of the layout, compared between ranks when a window is created.
    const LAYOUT: u64;

    /// Where the derive begins to check the fields. It is a member of the trait, because a program may put another
    /// crate in the place of each path that the derive could write instead.
    #[doc(hidden)]
    const FIELDS: Fields<Self> = Fields::none();
}

/// The most bytes that an element may have: moves, on streams and by NICs, say its size in 32 bits.
///
/// ```compile_fail,E0080
/// # use tidegate_core::{Element, Region, World, stream, window::Window};
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
/// # use tidegate_core::{Element, Region, World, stream, window::Window};
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
///     Window::<Both, _>::by_slot("w").open(&s).map(drop).unwrap();
/// });
/// ```
pub(crate) const LARGEST: usize = u32::MAX as usize;

/// The fields of a struct that the derive has gone through; the rest of its check.
///
/// The derive names no types: each field comes as a function that borrows it, and the compiler infers its type. So a type
/// that a macro writes is written once, in the struct.
#[doc(hidden)]
pub struct Fields<S> {
    /// Bytes of the fields so far, which is where the next one begins.
    end: usize,
    layout: u64,
    /// The name of the last one.
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

    /// The next field, by name and by what borrows it.
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

    /// The hash of the struct, which has no other fields: the function names all.
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

/// Says that so many bytes stand empty behind a field, and what fills them.
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

/// A number in decimal digits, in a constant.
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
    // FNV-1a, a byte at a time.
    let bytes = with.to_le_bytes();
    let mut hash = hash;
    let mut i = 0;
    while i < bytes.len() {
        hash = (hash ^ bytes[i] as u64).wrapping_mul(0x0000_0100_0000_01b3);
        i += 1;
    }
    hash
}

/// The hash of nothing.
#[doc(hidden)]
pub const LAYOUT_START: u64 = 0xcbf2_9ce4_8422_2325;

/// A type that accumulates, fetch-and-ops and compare-and-swaps work on.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be accumulated",
    note = "accumulate, fetch_and_op and compare_and_swap work on integers and floats"
)]
pub trait Arithmetic: Element + sealed::Sealed {
    #[doc(hidden)]
    const SCALAR: Scalar;
    #[doc(hidden)]
    const FLOAT: bool;
}

mod sealed {
    pub trait Sealed {}
}

macro_rules! elements {
    ($($ty:ty, $scalar:ident, $float:literal, $code:literal;)*) => {$(
        // SAFETY: a primitive number: no padding, all bytes valid.
        unsafe impl Element for $ty {
            const LAYOUT: u64 = mix(LAYOUT_START, $code);
        }
        impl sealed::Sealed for $ty {}
        impl Arithmetic for $ty {
            const SCALAR: Scalar = Scalar::$scalar;
            const FLOAT: bool = $float;
        }
    )*};
}

elements! {
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

// SAFETY: an array of N elements is N times its element, without padding in between; N is not 0, or the constant does
// not evaluate.
unsafe impl<T: Element, const N: usize> Element for [T; N] {
    const LAYOUT: u64 = {
        assert!(N != 0, "elements have a size other than 0");
        // Sooner than where they are used, which is found when code is made.
        assert!(
            size_of::<Self>() <= LARGEST,
            "elements have less than 4 GiB"
        );
        mix(mix(LAYOUT_START, 11 + N as u64), T::LAYOUT)
    };
}
