//! Calls that a token does not have. The compiler's error names the call to use instead. Nobody can make these calls,
//! because no type implements the traits that they require.

use tidegate_hal::device::Device;

use super::argument::InboxView;
use super::handle::In;
use super::inbox::{Exposed, Inbox};
use super::outbox::Outbox;
use super::view::Slots;
use super::{BySlot, Discipline};
use crate::element::Element;
use crate::error::Result;
use crate::stream::Stream;

/// A bound that no inbox fulfils.
#[diagnostic::on_unimplemented(
    message = "an inbox is read by a kernel of its stream, or by the host after it has waited for the stream",
    label = "not a view of the inbox",
    note = "pass `inbox.view()` to a kernel: `s.launch(move |slots: Slots<'_, f64>| look(slots.slot(from)), inbox.view())?` (if the window is not by slot, `inbox.memory()`, as `&[T]`)",
    note = "the host waits for the stream: `inbox.read(&s)?.slot(from)` (if the window is not by slot, `inbox.host_mut(&s)?`)",
    note = "`from` is the handle that `slot_from` returned"
)]
pub trait SeenAsItIs {}

/// A bound that no inbox fulfils.
#[diagnostic::on_unimplemented(
    message = "a wait ends an exposure, and this inbox is not exposed",
    label = "not a call of an inbox",
    note = "`let exposed = inbox.post(&s)?;` exposes the inbox, and `let inbox = exposed.wait(&s)?;` waits for what its origins put",
    note = "`inbox.expose(&s)?` does both, and `exchange(&s, inbox, epoch)?` also completes an epoch"
)]
pub trait IsExposed {}

/// A bound that no exposed inbox fulfils.
#[diagnostic::on_unimplemented(
    message = "exposed memory belongs to its origins until they are waited for",
    label = "not a call of an exposed inbox",
    note = "`let inbox = exposed.wait(&s)?;` returns the inbox: then a kernel of the stream can see it through `inbox.view()`, and the host through `inbox.read(&s)?`",
    note = "in a window by range, a kernel may meanwhile use the elements that no origin has declared: `exposed.rest()?`"
)]
pub trait WaitedFor {}

/// A bound that no outbox fulfils.
#[diagnostic::on_unimplemented(
    message = "an operation belongs to an epoch, and this outbox has none open",
    label = "not a call of an outbox",
    note = "`let mut epoch = outbox.start();` opens an epoch, and `epoch.put(&x, to)?` notes an operation",
    note = "`epoch.complete(&s)?` or `exchange(&s, inbox, epoch)?` enqueues what was noted, and returns the outbox"
)]
pub trait InAnEpoch {}

macro_rules! not_here {
    ($(<$($parameter:ident: $bound:ident),*> $token:ty, $wanted:ident { $(fn $call:ident(&self $(, $argument:ty)*) -> $returned:ty;)* })*) => {$(
        impl<'s, $($parameter: $bound),*> $token {
            $(
                #[doc(hidden)]
                #[allow(missing_docs, clippy::missing_errors_doc, clippy::unused_self, reason = "nobody can call it")]
                pub fn $call(&self, $(_: $argument),*) -> $returned
                where
                    Self: $wanted,
                {
                    unreachable!("nothing implements the trait")
                }
            )*
        }
    )*};
}

not_here! {
    <T: Element, D: Device> Inbox<'s, T, D, BySlot>, SeenAsItIs {
        fn slot(&self, In<T>) -> &[T];
    }
    <T: Element, D: Device> InboxView<'_, 's, T, D>, SeenAsItIs {
        fn slot(&self, In<T>) -> &[T];
    }
    <T: Element, D: Device, K: Discipline> Inbox<'s, T, D, K>, IsExposed {
        fn wait(&self, &Stream<'s, D>) -> Result<Inbox<'s, T, D, K>>;
    }
    <T: Element, D: Device, K: Discipline> Exposed<'s, T, D, K>, WaitedFor {
        fn slot(&self, In<T>) -> &[T];
        fn post(&self, &Stream<'s, D>) -> Result<Exposed<'s, T, D, K>>;
        fn view(&self) -> InboxView<'_, 's, T, D>;
        fn read(&self, &Stream<'s, D>) -> Result<Slots<'_, T>>;
        fn host_mut(&self, &Stream<'s, D>) -> Result<&mut [T]>;
    }
    <T: Element, D: Device, K: Discipline> Outbox<'s, T, D, K>, InAnEpoch {
        fn put(&self, impl Sized, impl Sized) -> Result<()>;
        fn get(&self, impl Sized, impl Sized) -> Result<()>;
        fn accumulate(&self, impl Sized, impl Sized, super::Op) -> Result<()>;
        fn complete(&self, &Stream<'s, D>) -> Result<Outbox<'s, T, D, K>>;
    }
}
