//! Closures, recursion, arms that exit, loops, and forgotten streams: a block that declares a stream has an end,
//! wherever it stands.
#![forbid(unsafe_code)]

use std::convert::Infallible;
use std::process::exit;
use tidegate::host::prelude::*;

fn same<'s>(_: &Stream<'s>, _: &Stream<'s>) {}

fn in_a_closure(world: &World) -> Result<()> {
    stream!(let a = world.stream()?);
    let inner = || -> Result<()> {
        stream!(let b = world.stream()?);
        same(&a, &b);
        exit(0)
    };
    inner()
}

fn calls_itself<'s>(world: &World, outer: &Stream<'s>) -> Result<()> {
    stream!(let c = world.stream()?);
    same(outer, &c);
    calls_itself(world, &c)
}

fn in_arms(world: &World, some: Option<usize>) -> Result<()> {
    stream!(let a = world.stream()?);
    let Some(_) = some else {
        stream!(let d = world.stream()?);
        same(&a, &d);
        exit(0)
    };
    'block: {
        stream!(let e = world.stream()?);
        same(&a, &e);
        break 'block;
    }
    Ok(())
}

fn forgotten(world: &World) -> Result<()> {
    stream!(let a = world.stream()?);
    stream!(let f = world.stream()?);
    same(&a, &f);
    std::mem::forget((a, f));
    Ok(())
}

fn of_no_value(world: &World) -> Infallible {
    stream!(let a = world.stream().unwrap());
    stream!(let g = world.stream().unwrap());
    same(&a, &g);
    loop {}
}

async fn of_no_value_later(world: World) -> Infallible {
    stream!(let a = world.stream().unwrap());
    stream!(let h = world.stream().unwrap());
    same(&a, &h);
    std::future::pending().await
}

fn main() {
    drop((in_a_closure, calls_itself, in_arms, forgotten, of_no_value, of_no_value_later));
}
