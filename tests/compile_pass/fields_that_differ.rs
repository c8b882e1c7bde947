//! If a replay gets other things, its error names the field that differs.

use tidegate::error::Error;
use tidegate::host::prelude::*;

#[derive(Carry)]
struct Energy<'s> {
    mine: Region<f64, On<'s>>,
    sums: Vec<Region<f64, On<'s>>>,
}

#[derive(Carry)]
struct State<'s> {
    x: Region<f64, On<'s>>,
    energy: Energy<'s>,
    two: (Region<f64, On<'s>>, Region<f64, On<'s>>),
}

fn state<'s>(world: &World, s: &Stream<'s>) -> Result<State<'s>> {
    let region = || -> Result<_> { Region::zeroed(world, 4)?.on(s) };
    let sums = vec![region()?, region()?];
    Ok(State {
        x: region()?,
        energy: Energy {
            mine: region()?,
            sums,
        },
        two: (region()?, region()?),
    })
}

/// The field that the error of a capture names.
fn of_a_capture(step: impl for<'c> FnOnce(State<'c>) -> State<'c>) -> Result<Error> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let refused = s.capture(state(&world, &s)?, |_, state| Ok(step(state)));
    Ok(refused.err().expect("it is refused"))
}

#[test]
fn a_field_that_a_step_has_swapped() -> Result<()> {
    let error = of_a_capture(|mut state| {
        std::mem::swap(&mut state.x, &mut state.energy.mine);
        state
    })?;
    assert!(error.to_string().contains("; `x` (place 0) differs "), "{error}");
    let error = of_a_capture(|mut state| {
        state.energy.sums.swap(0, 1);
        state
    })?;
    let words = "; `energy.sums.0` (place 2) differs ";
    assert!(error.to_string().contains(words), "{error}");
    let error = of_a_capture(|state| State {
        two: (state.two.1, state.two.0),
        ..state
    })?;
    assert!(error.to_string().contains("; `two.0` (place 4) differs "), "{error}");
    Ok(())
}

#[test]
fn a_field_that_a_replay_brings_anew() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (graph, mut back) = s.capture(state(&world, &s)?, |_, state| Ok(state))?;
    back.energy.mine = Region::zeroed(&world, 4)?.on(&s)?;
    let error = graph.replay(&s, back, 1).err().expect("it is refused");
    let words = "other regions or windows (`energy.mine` (place 1) differs)";
    assert!(error.to_string().contains(words), "{error}");
    Ok(())
}

/// Each half of a pair has the number in which the step gets it.
#[test]
fn a_field_of_the_second_stream() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    stream!(let t = world.stream()?);
    let lent = (state(&world, &s)?, state(&world, &t)?);
    let refused = s.capture_with(&mut t, lent, |_, _, (here, mut there)| {
        std::mem::swap(&mut there.two.0, &mut there.two.1);
        Ok((here, there))
    });
    let error = refused.err().expect("it is refused");
    assert!(error.to_string().contains("; `1.two.0` (place 10) differs "), "{error}");
    Ok(())
}

/// A value without a name is named by its place only.
#[test]
fn a_region_that_is_all_there_is() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let [lent, other] = [(); 2].map(|()| Region::<f64>::zeroed(&world, 4));
    let (lent, other) = (lent?.on(&s)?, other?.on(&s)?);
    let (graph, _lent) = s.capture(lent, |_, lent| Ok(lent))?;
    let error = graph.replay(&s, other, 1).expect_err("it is refused");
    assert!(error.to_string().ends_with("windows (place 0 differs)"), "{error}");
    Ok(())
}
