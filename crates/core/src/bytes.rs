//! Values as bytes, which devices copy.

use tidegate_hal::batch::RawTag;
use tidegate_hal::memory::Ptr;

use crate::element::Element;

/// A type all of whose bytes are initialised, and do not change while the value is borrowed.
///
/// # Safety
///
/// It has no padding and no interior mutability, and neither have its fields.
pub(crate) unsafe trait NoPadding {}

// SAFETY: an element promises more.
unsafe impl<T: Element> NoPadding for T {}
// SAFETY: it is a number.
unsafe impl NoPadding for Ptr {}

/// Implements [`NoPadding`] for a struct with these fields. It does not compile if there is a byte between or behind
/// them.
macro_rules! no_padding {
    ($Struct:ty: $($field:ident)*) => {
        const _: () = {
            const fn size<T: $crate::bytes::NoPadding>(_: fn(&$Struct) -> &T) -> usize {
                size_of::<T>()
            }
            assert!(size_of::<$Struct>() == 0 $(+ size(|whole| &whole.$field))*);
        };
        // SAFETY: no field has padding, and together they are as large as the struct.
        unsafe impl $crate::bytes::NoPadding for $Struct {}
    };
}
pub(crate) use no_padding;

no_padding!(RawTag: window peer awaited);

/// The bytes of the values.
pub(crate) fn bytes_of<T: NoPadding>(values: &[T]) -> &[u8] {
    // SAFETY: all of their bytes are initialised, and none changes while the values are borrowed.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}
