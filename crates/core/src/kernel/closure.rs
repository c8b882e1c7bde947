//! Kernels that are closures of this process.

use tidegate_hal::device::{ClosureDevice, Device, Issues};

use super::{Argument, Kernel, Lowered};
use crate::element::Element;
use crate::error::Result;
use crate::part::Part;
use crate::place::On;
use crate::region::Region;
use crate::stream::Stream;
use crate::window::{
    ByRange, BySlot, Discipline, Inbox, InboxView, Last, LastOfAll, LentInbox, LentOutbox, Memory,
    MemoryMut, OpenedSlots, Rest, RestMut, SeenAsItIs,
};

/// Kernels with one argument that is not in a tuple.
macro_rules! kernel_of_one {
    ($($argument:ty;)*) => {$(
        impl<'s, 'b, T, D, F> Kernel<'s, D, $argument> for F
        where
            T: Element,
            D: ClosureDevice,
            F: for<'k> Fn(<<$argument as Argument<'s, D>>::Lowered as Lowered>::View<'k>) + Clone + Send + 'static,
        {
            fn enqueue(self, stream: &Stream<'s, D>, mut argument: $argument) -> Result<()> {
                enqueue_closure(stream, argument.lower(stream)?, self)?;
                argument.launched(stream);
                Ok(())
            }
        }
    )*};
}

kernel_of_one! {
    &'b Region<T, On<'s, D>>;
    &'b mut Region<T, On<'s, D>>;
    &'b Part<T, On<'s, D>>;
    &'b mut Part<T, On<'s, D>>;
    InboxView<'b, 's, T, D>;
    Memory<'b, 's, T, D>;
    MemoryMut<'b, 's, T, D>;
    Rest<'b, 's, T, D>;
    RestMut<'b, 's, T, D>;
    OpenedSlots<'b, 's, T, D, BySlot>;
    OpenedSlots<'b, 's, T, D, ByRange>;
    Last<'b, 's, T, D, BySlot>;
    Last<'b, 's, T, D, ByRange>;
    LastOfAll<'b, 's, T, D, BySlot>;
    LastOfAll<'b, 's, T, D, ByRange>;
    LentInbox<'b, 's, T, D>;
    LentOutbox<'b, 's, T, D>;
}

/// Kernels that do not exist. They are declared for the compiler's error, which says what to pass instead.
macro_rules! no_kernel_of {
    ($($inbox:ty;)*) => {$(
        impl<'s, T: Element, K: Discipline, D: Device, F> Kernel<'s, D, $inbox> for F
        where
            Inbox<'s, T, D, K>: SeenAsItIs,
        {
            fn enqueue(self, _: &Stream<'s, D>, _: $inbox) -> Result<()> {
                unreachable!("nothing is `SeenAsItIs`")
            }
        }
    )*};
}

no_kernel_of! {
    Inbox<'s, T, D, K>;
    &Inbox<'s, T, D, K>;
    &mut Inbox<'s, T, D, K>;
}

/// Two types that have no values. Both could be the arguments of any kernel, for all that the compiler knows before it
/// has looked at them. So it cannot guess the arguments of a launch from the kernel. If it did, it would report each
/// wrong argument by itself, and refuse a closure of two arguments that a function has returned.
pub enum Undecided<const OR: bool> {}

macro_rules! undecided {
    ($($or:literal)*) => {$(
        impl<'s, D: ClosureDevice, F> Kernel<'s, D, Undecided<$or>> for F {
            fn enqueue(self, _: &Stream<'s, D>, arguments: Undecided<$or>) -> Result<()> {
                match arguments {}
            }
        }
    )*};
}

undecided!(false true);

fn enqueue_closure<D, L, F>(stream: &Stream<'_, D>, lowered: L, kernel: F) -> Result<()>
where
    D: ClosureDevice,
    L: Lowered,
    F: for<'k> Fn(L::View<'k>) + Clone + Send + 'static,
{
    // SAFETY: the view covers memory of this stream (by the brand), or of a peer: each put checks that against what the
    // peer has granted. The memory is alive until the stream has passed, since regions and halves are retired in stream
    // order. It is accessed only in stream order, and a peer's only in an epoch.
    unsafe { D::launch::<F, _>(stream.raw(), move |stream| kernel(lowered.view(stream))) }?;
    Ok(())
}

macro_rules! kernel_of {
    ($($_parameter:ident $name:ident),+) => {
        impl<'s, Dev, Fun, $($name),+> Kernel<'s, Dev, ($($name,)+)> for Fun
        where
            Dev: ClosureDevice,
            $($name: Argument<'s, Dev>,)+
            Fun: for<'k> Fn($(<$name::Lowered as Lowered>::View<'k>),+) + Clone + Send + 'static,
        {
            #[allow(non_snake_case)]
            fn enqueue(self, stream: &Stream<'s, Dev>, arguments: ($($name,)+)) -> Result<()> {
                let ($(mut $name,)+) = arguments;
                let lowered = ($($name.lower(stream)?,)+);
                let kernel = move |stream: &dyn Issues| {
                    let ($($name,)+) = lowered;
                    // SAFETY: the executor calls this for the kernel that the arguments were enqueued with.
                    unsafe { self($($name.view(stream)),+) }
                };
                // SAFETY: as for a kernel of one argument.
                unsafe { Dev::launch::<Fun, _>(stream.raw(), kernel) }?;
                $($name.launched(stream);)+
                Ok(())
            }
        }
    };
}

for_tuples!(kernel_of);
