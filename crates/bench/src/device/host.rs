//! The host: kernels are closures, memory is memory.

use super::{BenchDevice, Words, WordsIn};
use tidegate_core::window::Slots;
use tidegate_core::{Element, OnHost, Region, Result, Stream, World};
use tidegate_hal::device::DeviceError;
use tidegate_host::Host;

impl BenchDevice for Host {
    type Gather = ();

    fn available() -> std::result::Result<(), DeviceError> {
        Ok(())
    }

    fn label(&self) -> String {
        "host".into()
    }

    fn look<T: Element + Default>(
        region: &Region<T, OnHost<Self>>,
        check: &mut dyn FnMut(&[T]),
    ) -> Result<()> {
        check(region);
        Ok(())
    }

    fn gather_kernel(_: &World<Self>) -> Result<()> {
        Ok(())
    }

    fn gather<'s>(
        (): &(),
        stream: &Stream<'s, Self>,
        inbox: &WordsIn<'s, Self>,
        out: &mut Words<'s, Self>,
    ) -> Result<()> {
        let kernel = |slots: Slots<'_, u64>, out: &mut [u64]| {
            let mut rest = out;
            for slot in slots.iter() {
                let (here, next) = rest.split_at_mut(slot.len());
                here.copy_from_slice(slot);
                rest = next;
            }
        };
        stream.launch(kernel, (inbox.view(), out))
    }
}
