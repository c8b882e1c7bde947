//! Attacks that types cannot refuse, and that are refused at run time.

mod captures;
mod memory;
mod slots;

use tidegate::host::prelude::*;

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
    named("w", s)
}

fn named<'s>(name: &str, s: &Stream<'s>) -> Result<(Inbox<'s, f64>, Outbox<'s, f64>)> {
    let mut window = SlotWindow::new(name).buffers(Buffers::Single);
    window.slot_from(0, 0, 4);
    window.slot_to(0, 0);
    window.open(s)
}

/// The one slot of such a window.
fn slot(outbox: &Outbox<'_, f64>) -> Out<f64> {
    outbox.slots().next().expect("there is one")
}

fn complete<'s>(s: &Stream<'s>, outbox: Outbox<'s, f64>) -> Result<Outbox<'s, f64>> {
    outbox.start().complete(s)
}

fn error_of<T>(result: Result<T>) -> Error {
    result.err().expect("it is refused")
}
