//! A program may use any names, even those that the derives and `stream!` use, or that have another meaning elsewhere.
#![allow(non_camel_case_types)]

use tidegate::host::prelude::{Carry, Element, Init, On, Region, Result, World, stream};

/// No field is taken for one of the macro's own names.
#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(C)]
struct Option {
    field: u64,
    whole: u32,
    r#type: [u16; 2],
}

#[derive(Clone, Copy, Debug, PartialEq, Element)]
#[repr(transparent)]
struct r#impl(Option);

#[derive(Carry)]
struct Some<'__at> {
    field0: Region<Option, On<'__at>>,
    visitor: (Region<r#impl, On<'__at>>, u64),
    whole: None<'__at>,
    r#fn: [bool; 2],
}

#[derive(Carry)]
struct None<'s_other>(std::option::Option<Region<u64, On<'s_other>>>, usize);

/// A macro writes it, so its fields have names from both sides.
macro_rules! written {
    ($name:ident, $field:ident) => {
        #[derive(Carry)]
        struct $name<'s> {
            $field: Region<u64, On<'s>>,
            field: u64,
        }
    };
}
written!(Written, visitor);

#[test]
fn they_are_carried_whole() -> Result<()> {
    let world: World = World::init()?;
    stream!(let unbound = world.stream()?);
    stream!(let guard = world.stream()?);
    let option = Option {
        field: 1,
        whole: 2,
        r#type: [3, 4],
    };
    let some = Some {
        field0: Region::from_slice(&world, &[option; 4])?.on(&unbound)?,
        visitor: (Region::from_slice(&world, &[r#impl(option)])?.on(&unbound)?, 5),
        whole: None(std::option::Option::Some(Region::zeroed(&world, 2)?.on(&unbound)?), 6),
        r#fn: [true, false],
    };
    let some = unbound.hand_off(some, &guard)?;
    assert_eq!(some.field0.into_host(&guard)?[3], option);
    assert_eq!(some.visitor.0.into_host(&guard)?[0], r#impl(option));
    assert_eq!((some.visitor.1, some.whole.1, some.r#fn), (5, 6, [true, false]));
    let region = some.whole.0.expect("it is there");
    let written = guard.hand_off(Written { visitor: region, field: 7 }, &unbound)?;
    assert_eq!((written.visitor.into_host(&unbound)?[..].to_vec(), written.field), (vec![0; 2], 7));
    Ok(())
}
