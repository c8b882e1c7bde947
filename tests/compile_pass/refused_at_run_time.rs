//! Attacks that types cannot refuse, and that are refused at run time.

use tidegate::error::Error;
use tidegate::prelude::*;
use tidegate::{Buffers, Rejected};

/// An inbox in one of its two states.
#[derive(Carry)]
struct Either<'s> {
    inbox: Option<Inbox<'s, f64>>,
    exposed: Option<Exposed<'s, f64>>,
}

impl<'s> Either<'s> {
    fn closed(inbox: Inbox<'s, f64>) -> Self {
        Either {
            inbox: Some(inbox),
            exposed: None,
        }
    }

    fn open(exposed: Exposed<'s, f64>) -> Self {
        Either {
            inbox: None,
            exposed: Some(exposed),
        }
    }
}

fn window<'s>(s: &Stream<'s>) -> Result<(Inbox<'s, f64>, Outbox<'s, f64>)> {
    let window = Window::by_slot("w").buffers(Buffers::Single);
    window.slot_from(0, 0, 4).slot_to(0, 0).open(s)
}

fn complete<'s>(s: &Stream<'s>, outbox: Outbox<'s, f64>) -> Result<Outbox<'s, f64>> {
    Ok(outbox.start().complete(s)?)
}

/// Replayed, a post that the types do not show would leave an inbox that kernels can view while it is exposed.
#[test]
fn a_step_that_leaves_its_inbox_posted() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, _outbox) = window(&s)?;
    let refused = s.capture(Either::closed(inbox), |s, lent| {
        let inbox = lent.inbox.expect("it was lent");
        Ok(Either::open(inbox.post(s)?))
    });
    assert!(matches!(refused, Err(Error::NotReplayable { .. })));
    Ok(())
}

/// A recording of a whole epoch, replayed with an inbox that is exposed already, would expose it twice.
#[test]
fn a_recording_for_an_inbox_replayed_with_an_exposure() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, outbox) = window(&s)?;
    let (graph, (inbox, outbox)) = s.capture((inbox, outbox), |s, (inbox, outbox)| {
        let exposed = inbox.post(s)?;
        let outbox = complete(s, outbox)?;
        Ok((exposed.wait(s)?, outbox))
    })?;
    let exposed = inbox.post(&s)?;
    let Err(Rejected { error, value }) = graph.replay(&s, (exposed, outbox), 1) else {
        panic!("it was replayed");
    };
    assert!(matches!(error, Error::OtherGraph { .. }), "{error}");
    let (exposed, outbox) = value;
    let outbox = complete(&s, outbox)?;
    let inbox = exposed.wait(&s)?;
    graph.replay(&s, (inbox, outbox), 3)?;
    s.synchronize()
}

/// A recording that waits for one group, replayed with an exposure to another one, would not wait for that one.
#[test]
fn a_recording_for_one_group_replayed_with_another() -> Result<()> {
    let world: World = World::init()?;
    stream!(let s = world.stream()?);
    let (inbox, outbox) = window(&s)?;
    let (myself, nobody) = (Group::new([0]), Group::new([]));
    let exposed = inbox.post_to(&s, &nobody)?;
    let (graph, exposed) = s.capture(exposed, |s, exposed| {
        Ok(exposed.wait(s)?.post_to(s, &nobody)?)
    })?;
    let exposed = graph.replay(&s, exposed, 3)?;
    let exposed = exposed.wait(&s)?.post_to(&s, &myself)?;
    let Err(Rejected { error, value }) = graph.replay(&s, exposed, 1) else {
        panic!("it was replayed");
    };
    assert!(matches!(error, Error::OtherGraph { .. }), "{error}");
    complete(&s, outbox)?;
    value.wait(&s)?;
    s.synchronize()
}
