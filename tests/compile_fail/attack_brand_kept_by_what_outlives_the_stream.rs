//! Values from before the stream keep what is at home on it: one that is never dropped, one whose `Drop` uses the
//! stream, a cell, and a trait object that takes any brand.
#![forbid(unsafe_code)]

use std::cell::RefCell;
use std::mem::ManuallyDrop;
use tidegate::host::prelude::*;

fn never_dropped(world: &World) -> Result<()> {
    let mut kept = ManuallyDrop::new(Vec::new());
    for _ in 0..2 {
        stream!(let a = world.stream()?);
        if let Some(x) = kept.pop() {
            let x: Region<u64, On<'_>> = x;
            x.into_host(&a)?;
        }
        kept.push(Region::<u64, _>::zeroed(world, 1)?.on(&a)?);
    }
    Ok(())
}

struct Uses<'s>(Option<(&'s Stream<'s>, Region<u64, On<'s>>)>);

impl Drop for Uses<'_> {
    fn drop(&mut self) {
        if let Some((s, x)) = self.0.take() {
            let _ = x.into_host(s);
        }
    }
}

fn dropped_behind_it(world: &World) -> Result<()> {
    let mut uses = Uses(None);
    stream!(let b = world.stream()?);
    uses.0 = Some((&b, Region::zeroed(world, 1)?.on(&b)?));
    Ok(())
}

fn in_a_cell(world: &World) -> Result<()> {
    let cell = RefCell::new(None);
    {
        stream!(let c = world.stream()?);
        *cell.borrow_mut() = Some(Region::<u64, _>::zeroed(world, 1)?.on(&c)?);
    }
    stream!(let other = world.stream()?);
    let x = cell.borrow_mut().take();
    x.unwrap().into_host(&other).map(drop)
}

trait Keeps<'s> {
    fn keep(&mut self, x: Region<u64, On<'s>>);
}

impl<'s> Keeps<'s> for Option<Region<u64, On<'s>>> {
    fn keep(&mut self, x: Region<u64, On<'s>>) {
        *self = Some(x);
    }
}

fn of_any_brand(world: &World, keeps: &mut dyn for<'s> Keeps<'s>) -> Result<()> {
    stream!(let d = world.stream()?);
    keeps.keep(Region::zeroed(world, 1)?.on(&d)?);
    Ok(())
}

fn main() {
    let world = World::init().unwrap();
    let mut kept = None;
    of_any_brand(&world, &mut kept).unwrap();
    drop((never_dropped, dropped_behind_it, in_a_cell));
}
