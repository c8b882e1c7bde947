//! Kernels of other libraries.
//!
//! # Model
//!
//! [`foreign`] makes a kernel of code that enqueues by other means (a library's own launch, a copy). It is launched
//! with regions like any other kernel, and gets their addresses.
//!
//! # Failure
//!
//! An error of the code is the error of the launch. If there are too many parameters, the code is not called. A half that
//! is lent is not an argument of such a kernel: the compiler refuses it ([`WaitsForNobody`]).

use tidegate_hal::device::{Call, Device, DeviceError, Parameters, Reclaim as _, Stream as _};

use super::{Argument, Kernel, Lowered, WaitsForNobody};
use crate::argument::check_handles;
use crate::error::Result;
use crate::stream::Stream;

/// A kernel that enqueues by other means: see [`foreign`].
///
/// # Examples
///
/// ```
/// use tidegate::error::DeviceError;
/// use tidegate::host::HostStream;
/// use tidegate::kernel::{Foreign, foreign};
/// use tidegate::kernel::Parameters;
///
/// # tidegate::doc::stream(|_, _| {
/// // SAFETY: it enqueues nothing.
/// let kernel: Foreign<_> = unsafe { foreign(|_: &HostStream, _: &Parameters| Ok::<_, DeviceError>(())) };
/// # drop(kernel);
/// # Ok(()) });
/// ```
pub struct Foreign<F>(F);

/// Makes a kernel of a function that enqueues work on a device's stream by other means. The function gets the stream,
/// and the parameters that a function of a module would get (see [`Parameter`](super::Parameter)). The launch calls it
/// once.
///
/// There is room for [`Parameters::MAX`] parameters, of [`Parameters::MAX_BYTES`] in all. If there are more, the launch
/// is refused ([`KernelError::TooManyArguments`](crate::error::KernelError::TooManyArguments)), and the function is not
/// called.
///
/// If the function returns an error, the launch returns it as [`Error::Device`](crate::Error::Device). What the
/// function has enqueued until then stays on the stream.
///
/// Such a kernel cannot own a half of a window (`inbox.lend()`, `outbox.lend()`): the compiler refuses the argument
/// ([`WaitsForNobody`]). A kernel with a half waits with all of its blocks, so all of them must run at the same time. Only
/// the launch of a function of a module makes sure of that. Work that waits for peers in its own way, such as a
/// collective of NCCL, finds room beside the batches and kernels of other streams only if you leave it.
///
/// # Safety
///
/// - The function enqueues its work on this stream and no other.
/// - The work accesses only memory that the parameters name, each slice within its length, and writes only through
///   exclusive ones.
/// - The work ends, and not before the work that precedes it on the stream. (So in a kernel that is launched
///   programmatically, each thread waits for the preceding work; and directly behind a call of an epoch, no kernel is
///   launched programmatically.)
/// - The kernel is launched with arguments of the types that the function is written for. Nothing checks that, so the
///   caller keeps the kernel to itself, or documents it.
/// - Whatever the work needs beside the arguments lives until the stream has passed it, and as long as any recording of
///   it.
///
/// # Examples
///
/// ```
/// # use tidegate::host::prelude::*;
/// use tidegate::kernel::Parameters;
/// use tidegate::host::HostStream;
/// use tidegate::kernel::foreign;
///
/// # tidegate::doc::stream(|world, s| {
/// # let x = Region::from_slice(world, &[1.0; 4])?.on(s)?;
/// // SAFETY: it enqueues nothing; another library's call would stand here.
/// let library = unsafe {
///     foreign(|_: &HostStream, parameters: &Parameters| {
///         assert_eq!(parameters.addresses().len(), 2); // `x` is an address and a length
///         Ok(())
///     })
/// };
/// s.launch(library, (&x,))?;
/// # Ok(()) });
/// ```
pub unsafe fn foreign<S, F>(enqueue: F) -> Foreign<F>
where
    F: FnOnce(&S, &Parameters) -> Result<(), DeviceError>,
{
    Foreign(enqueue)
}

macro_rules! kernel_of {
    ($($_parameter:ident $name:ident),+) => {
        #[diagnostic::do_not_recommend]
        impl<'s, Dev, Fun, $($name),+> Kernel<'s, Dev, ($($name,)+)> for Foreign<Fun>
        where
            Dev: Device,
            $($name: Argument<'s, Dev, Lowered: WaitsForNobody>,)+
            Fun: FnOnce(&Dev::Stream, &Parameters) -> Result<(), DeviceError>,
        {
            #[allow(non_snake_case)]
            fn enqueue(self, stream: &Stream<'s, Dev>, arguments: ($($name,)+)) -> Result<()> {
                let ($(mut $name,)+) = arguments;
                let mut parameters = Parameters::new();
                {
                    let ($($name,)+) = ($($name.lower(stream)?,)+);
                    check_handles(&[$($name.of_slots()),+])?;
                    $($name.push(&mut parameters);)+
                }
                if !parameters.fit() {
                    return Err(super::too_many());
                }
                // The library may have to wait for room on the stream.
                let calls = stream.raw().reclaim().calls();
                let launch = || (self.0)(stream.raw(), &parameters);
                let launched = calls.during(Call::Launch, launch);
                // This is needed even if the function failed, since it may have enqueued a part of its work.
                $($name.launched(stream);)+
                stream.raw().enqueued()?;
                Ok(launched?)
            }
        }
    };
}

for_tuples!(kernel_of);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::{Error, KernelError};
    use crate::kernel::Plain;
    use crate::window::SlotWindow;
    use crate::{Region, World};
    use tidegate_host::{Host, HostStream};

    /// Device code uses a handle's number as an index into the table before it. With the handle of another window it
    /// might read beyond that table.
    #[test]
    fn handles_of_other_windows_are_an_error() {
        World::<Host>::local(1, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let open = |name: &str, slots: u64| {
                let mut window = SlotWindow::<u64>::new(name);
                let handles =
                    (0..slots).map(|key| (window.slot_from(0, key, 1), window.slot_to(0, key)));
                let last = handles.last().unwrap().0;
                let (inbox, outbox) = window.open(&s).unwrap();
                (inbox, outbox, last)
            };
            let ((one, _out, of_one), (two, _out_too, of_two)) = (open("one", 1), open("two", 7));
            let called = std::cell::Cell::new(0);
            let kernel = || {
                let enqueue = |_: &HostStream, _: &Parameters| {
                    called.set(called.get() + 1);
                    Ok(())
                };
                // SAFETY: it enqueues nothing.
                unsafe { foreign(enqueue) }
            };
            let refused = |result: Result<()>| match result {
                Err(Error::Kernel(KernelError::ForeignSlot { slot })) => assert_eq!(slot, 6),
                other => panic!("{other:?}"),
            };
            refused(s.launch(kernel(), (one.view(), of_two)));
            refused(s.launch(kernel(), (of_two, one.view())));
            refused(s.launch(kernel(), (two.view(), of_two, one.view(), of_one, of_two)));
            let swapped = s.launch(kernel(), (two.view(), of_one, one.view(), of_two));
            assert!(matches!(
                swapped,
                Err(Error::Kernel(KernelError::ForeignSlot { slot: 0 }))
            ));
            assert_eq!(called.get(), 0);
            s.launch(kernel(), (of_one, one.view(), of_one, two.view(), of_two))
                .unwrap();
            s.launch(kernel(), (of_one, of_two)).unwrap();
            assert_eq!(called.get(), 2);
        });
    }

    #[test]
    fn parameters_without_room_are_an_error() {
        World::<Host>::local(1, |world| {
            crate::stream!(let s = world.stream().unwrap());
            let region = Region::<u8, _>::zeroed(&world, 1).unwrap().on(&s).unwrap();
            let called = std::cell::Cell::new(0);
            let kernel = || {
                let enqueue = |_: &HostStream, parameters: &Parameters| {
                    assert!(parameters.fit());
                    called.set(called.get() + parameters.addresses().len());
                    Ok(())
                };
                // SAFETY: it enqueues nothing.
                unsafe { foreign(enqueue) }
            };
            const HALF: usize = Parameters::MAX_BYTES / 2;
            let half = Plain([0u8; HALF]);
            s.launch(kernel(), (&region, half)).unwrap();
            assert_eq!(called.get(), 3);
            let refused = s.launch(kernel(), (&region, half, half)).unwrap_err();
            assert!(matches!(refused, Error::Kernel(_)), "{refused}");
            assert!(refused.to_string().contains("32764 bytes"), "{refused}");
            // Nothing was enqueued, and the arguments are unchanged.
            assert_eq!(called.get(), 3);
            s.launch(kernel(), (&region, half)).unwrap();
            assert_eq!(&*region.into_host(&s).unwrap(), [0]);
        });
    }
}
