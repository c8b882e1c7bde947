//! Streams, memory and work of another HIP library: calls of the runtime itself.

use std::ffi::c_void;
use std::ptr::{null_mut, with_exposed_provenance_mut};
use std::sync::Arc;

use tidegate::error::DeviceError;
use tidegate::hip::prelude::*;
use tidegate::hip::{HipBlock, HipStream};
use tidegate::kernel::{Parameters, foreign};
use tidegate_ffi::hip::{Driver, sys};

use crate::gpu::common::ranks;

/// A stream, by its address. Its owner destroys it.
struct TheirStream(usize);

impl Drop for TheirStream {
    fn drop(&mut self) {
        let driver = Driver::load().unwrap();
        // SAFETY: it was made by the runtime, and nobody has it any more.
        unsafe { driver.stream_destroy(with_exposed_provenance_mut(self.0)) }.unwrap();
    }
}

/// Memory, by its address. Its owner frees it.
struct TheirMemory(usize);

impl Drop for TheirMemory {
    fn drop(&mut self) {
        let driver = Driver::load().unwrap();
        // SAFETY: it was allocated by the runtime, and nobody has it any more.
        unsafe { driver.free(with_exposed_provenance_mut(self.0)) }.unwrap();
    }
}

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_stream_and_memory_come_in_and_go_out() {
    const LEN: usize = 1000;
    ranks(1, |world, k| {
        let driver = Driver::load().unwrap();
        let (mut raw, mut address): (sys::hipStream_t, *mut c_void) = (null_mut(), null_mut());
        // SAFETY: the calls check the number, and write a handle and an address to what lives; the mask has one word.
        unsafe {
            driver.set_device(world.device().ordinal() as i32).unwrap();
            let mask = u32::MAX;
            driver
                .ext_stream_create_with_cu_mask(&mut raw, 1, &mask)
                .unwrap();
            let flags = sys::hipDeviceMallocUncached;
            driver
                .ext_malloc_with_flags(&mut address, 8 * LEN, flags)
                .unwrap();
        }
        let owner = Arc::new(TheirStream(raw.expose_provenance()));
        let memory = TheirMemory(address.expose_provenance());
        // SAFETY: the memory is as long, and the stream was just made.
        unsafe {
            driver.memset_d8_async(address, 0, 8 * LEN, raw).unwrap();
            driver.stream_synchronize(raw).unwrap();
        }
        let keep = owner.clone();
        // SAFETY: the stream has a mask, and lives as long as `keep`. Nothing else is enqueued on it, and nobody uses
        // the null stream.
        let adopted = unsafe {
            world.adopt_stream("theirs", move |gpu, config| {
                HipStream::adopt(gpu, raw, keep, config)
            })
        };
        {
            stream!(let s = adopted.unwrap());
            let bytes = 8 * LEN;
            let at = memory.0 as u64;
            // SAFETY: `memory` owns so many bytes there, which are zero, and nobody else uses them.
            let block = unsafe { HipBlock::adopt(world.device(), at, bytes, Box::new(memory)) };
            // SAFETY: as above.
            let region = unsafe { Region::<u64, OnHost>::adopt(&world, block, LEN) };
            let mut region = region.ok().unwrap().on(&s).unwrap();
            s.launch(k.tick.threads(1, 32), (&mut region,)).unwrap();
            // Their work, on the second number of our region.
            let fill = |stream: &HipStream, parameters: &Parameters| {
                let first = parameters.addresses().next().unwrap();
                // SAFETY: the first parameter of a slice is its address.
                let first = unsafe { first.cast::<u64>().read() };
                let second = with_exposed_provenance_mut(first as usize + 8);
                // SAFETY: the slice has a second number, and the stream is live.
                let filled = unsafe { driver.memset_d8_async(second, 1, 8, stream.as_raw()) };
                filled.map_err(|error| DeviceError::System {
                    what: "filling a number",
                    detail: error.to_string(),
                })
            };
            // SAFETY: it writes the slice that it is given, on the stream that is adopted.
            s.launch(unsafe { foreign(fill) }, (&mut region,)).unwrap();
            s.launch(k.tick.threads(1, 32), (&mut region,)).unwrap();
            let host = region.into_host(&s).unwrap();
            let mut back = [0; 3];
            host.read(0, &mut back).unwrap();
            assert_eq!(back, [2, 0x0101_0101_0101_0101, 0]);
            let memory = host.into_block().ok().unwrap().into_adopted();
            assert!(memory.ok().unwrap().downcast::<TheirMemory>().is_ok());
        }
        assert_eq!(Arc::strong_count(&owner), 1, "the stream is given back");
    });
}
