//! `Carry` for tuples, collections and plain data.

use tidegate_hal::device::Device;

use super::visit::{Carry, Visitor};
use crate::cartesian::Cartesian;

macro_rules! carry_tuple {
    ($($name:ident $index:literal),*) => {
        // SAFETY: each member is carried and visited once, in order.
        unsafe impl<'s, Dev: Device, $($name: Carry<'s, Dev>),*> Carry<'s, Dev> for ($($name,)*) {
            type At<'t> = ($($name::At<'t>,)*);

            #[allow(non_snake_case, unused_variables)]
            fn visit(&mut self, visitor: &mut Visitor<'_, Dev>) {
                let ($($name,)*) = self;
                $(visitor.within($index, $name);)*
            }
        }
    };
}

carry_tuple!();
carry_tuple!(A "0");
carry_tuple!(A "0", B "1");
carry_tuple!(A "0", B "1", C "2");
carry_tuple!(A "0", B "1", C "2", E "3");
carry_tuple!(A "0", B "1", C "2", E "3", F "4");
carry_tuple!(A "0", B "1", C "2", E "3", F "4", G "5");
carry_tuple!(A "0", B "1", C "2", E "3", F "4", G "5", H "6");
carry_tuple!(A "0", B "1", C "2", E "3", F "4", G "5", H "6", I "7");

macro_rules! carry_plain {
    ($($plain:ty)*) => {$(
        // SAFETY: there is no leaf and no brand.
        unsafe impl<'s, D: Device> Carry<'s, D> for $plain {
            type At<'t> = $plain;

            fn visit(&mut self, _visitor: &mut Visitor<'_, D>) {}
        }
    )*};
}

carry_plain!(bool usize isize u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64);
#[cfg(feature = "half")]
carry_plain!(half::f16 half::bf16);

// SAFETY: there is no leaf and no brand.
unsafe impl<'s, D: Device, const N: usize> Carry<'s, D> for Cartesian<N> {
    type At<'t> = Cartesian<N>;

    fn visit(&mut self, _visitor: &mut Visitor<'_, D>) {}
}

// SAFETY: the elements are carried and visited once, in order.
unsafe impl<'s, D: Device, X: Carry<'s, D>, const N: usize> Carry<'s, D> for [X; N] {
    type At<'t> = [X::At<'t>; N];

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        visitor.each(self);
    }
}

// SAFETY: the elements are carried and visited once, in order.
unsafe impl<'s, D: Device, X: Carry<'s, D>> Carry<'s, D> for Vec<X> {
    type At<'t> = Vec<X::At<'t>>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        visitor.each(self);
    }
}

// SAFETY: the value, if there is one, is carried and visited once.
unsafe impl<'s, D: Device, X: Carry<'s, D>> Carry<'s, D> for Option<X> {
    type At<'t> = Option<X::At<'t>>;

    fn visit(&mut self, visitor: &mut Visitor<'_, D>) {
        self.iter_mut().for_each(|each| each.visit(visitor));
    }
}
