//! `?` on every call, in functions that return errors of any kind.

use std::error::Error as StdError;

use tidegate::host::prelude::*;
use tidegate::{IndexSet, window::Tested};

/// Every call that takes a token by value, with a plain `?` behind it.
macro_rules! program {
    ($name:ident, $result:ty) => {
        #[test]
        fn $name() {
            fn main() -> $result {
                let world: World = World::init()?;
                stream!(let mut s = world.stream()?);
                stream!(let mut t = world.stream()?);
                let mut window = SlotWindow::new("w");
                let from = window.slot_from(0, 0, 4);
                let to = window.slot_to(0, 0);
                let (inbox, outbox) = window.open(&s)?;
                let x = Region::from_slice(&world, &[1.0; 4])?;
                let (low, high) = x.split_at(2)?;
                let x = low.join(high)?.on(&s)?;
                let all = Group::new([0]);
                let mut epoch = outbox.start_to(&all)?;
                epoch.put(&x, to)?;
                let outbox = epoch.complete(&s)?;
                let inbox = inbox.expose_to(&s, &all)?;
                let exposed = inbox.post_to(&s, &all)?;
                let outbox = outbox.start().complete(&s)?;
                let inbox = match exposed.test(&s)? {
                    Tested::Done(inbox) => inbox,
                    Tested::Pending(exposed) => exposed.wait(&s)?,
                };
                let outbox = outbox.start().complete(&s)?;
                let inbox = inbox.expose(&s)?;
                let (inbox, outbox) = exchange(&s, inbox, outbox.start())?;
                let exposed = inbox.post(&s)?;
                let outbox = outbox.start().complete(&s)?;
                let lent = (x, exposed.wait(&s)?, outbox);
                let (graph, lent) = s.capture(lent, |s, (x, inbox, outbox)| {
                    let mut epoch = outbox.start();
                    epoch.put(&x, to)?;
                    let (inbox, outbox) = exchange(s, inbox, epoch)?;
                    Ok((x, inbox, outbox))
                })?;
                let (x, mut inbox, _outbox) = graph.replay(&s, lent, 2)?;
                assert_eq!(inbox.read(&s)?.slot(from), [1.0; 4]);
                let y = Region::from_slice(&world, &[2.0; 4])?.on(&t)?;
                let (pair, (x, y)) = s.capture_with(&mut t, (x, y), |_, _, lent| Ok(lent))?;
                let (x, y) = pair.replay(&s, &t, (x, y), 1)?;
                let x = s.hand_off(x, &t)?;
                let sets = [IndexSet::from_indices([0])?, IndexSet::from_indices([1, 2])?];
                let [one, two] = y.into_host(&t)?.partition(sets)?;
                let parts = [one.on(&t)?, two.on(&t)?].map(|part| part.into_host(&t));
                let [one, two] = parts;
                let y = Region::reunite([one?, two?])?;
                assert_eq!((x.into_host(&t)?[0], y[3]), (1.0, 2.0));
                t.synchronize()?;
                Err(Error::other("all of it was done"))?
            }
            let error = main().expect_err("that is how it ends");
            assert_eq!(error.to_string(), "all of it was done");
        }
    };
}

program!(anyhows, anyhow::Result<()>);
program!(eyres, eyre::Result<()>);
program!(boxed, std::result::Result<(), Box<dyn StdError>>);
program!(boxed_to_be_sent, std::result::Result<(), Box<dyn StdError + Send + Sync>>);
program!(its_own, Result<()>);

/// A program's own error passes through a step unchanged.
#[test]
fn an_error_of_the_program_in_a_step() -> anyhow::Result<()> {
    fn table() -> anyhow::Result<f64> {
        anyhow::Context::context("many".parse(), "the table is spoilt")
    }
    let world: World = World::init()?;
    stream!(let mut s = world.stream()?);
    let x = Region::from_slice(&world, &[1.0; 4])?.on(&s)?;
    let captured = s.capture(x, |s, mut x| {
        let factor = table().map_err(Error::other)?;
        s.launch(move |x: &mut [f64]| x[0] *= factor, &mut x)?;
        Ok(x)
    });
    let error = anyhow::Error::from(captured.expect_err("there is no number"));
    assert_eq!(error.to_string(), "the table is spoilt");
    let chain: Vec<_> = error.chain().map(ToString::to_string).collect();
    assert_eq!(chain, ["the table is spoilt", "invalid float literal"]);
    Ok(())
}
