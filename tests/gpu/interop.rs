//! Streams, memory and kernels of another library: `cudarc`'s safe layer.

use std::sync::Arc;

use cudarc::driver::{
    CudaContext, CudaSlice, CudaStream as Theirs, DevicePtr as _, LaunchConfig, PushKernelArg as _,
};
use tidegate::cuda::prelude::*;
use tidegate::cuda::{CudaBlock, CudaStream};
use tidegate::error::DeviceError;
use tidegate::kernel::foreign;

use crate::gpu::common::ranks;

#[test]
#[ignore = "needs a GPU: run by scripts/gpu.sh"]
fn a_stream_a_slice_and_a_kernel_come_in_and_go_out() {
    ranks(1, |world, k| {
        let context = CudaContext::new(world.device().ordinal()).unwrap();
        // cudarc's events would be recorded in our captures.
        // SAFETY: everything is on one stream.
        unsafe { context.disable_event_tracking() };
        let theirs: Arc<Theirs> = context.new_stream().unwrap();
        let module = context
            .load_module(cudarc::nvrtc::Ptx::from_src(tidegate_kernels::SAMPLES_PTX))
            .unwrap();
        let count = module.load_function("count").unwrap();
        let slice: CudaSlice<u64> = theirs.clone_htod(&[1u64; 1000]).unwrap();
        theirs.synchronize().unwrap();

        let raw = theirs.cu_stream();
        let keep = theirs.clone();
        // SAFETY: the stream is non-blocking, in the primary context, and lives as long as `keep`. Nothing else is
        // enqueued on it while regions are at home there.
        let adopted = unsafe {
            world.adopt_stream("theirs", move |device, config| {
                CudaStream::adopt(device, raw, keep, config)
            })
        };
        stream!(let s = adopted.unwrap());
        let address = slice.device_ptr(&theirs).0;
        // SAFETY: `slice` owns 1000 numbers there, and nobody else uses them.
        let block = unsafe { CudaBlock::adopt(world.device(), address, 8000, Box::new(slice)) };
        // SAFETY: as above.
        let region = unsafe { Region::<u64, OnHost>::adopt(&world, block, 1000) }
            .ok()
            .unwrap();
        let mut region = region.on(&s).unwrap();
        s.launch(k.tick.threads(1, 32), (&mut region,)).unwrap();
        // Their kernel, on our region: x[i] = 40 + i.
        let launch = |_: &CudaStream, parameters: &tidegate::kernel::Parameters| {
            let mut addresses = parameters.addresses();
            // SAFETY: the first parameter of a slice is its address, the second its length.
            let read = |at: Option<*const u8>| unsafe { at.unwrap().cast::<u64>().read() };
            let (x, len) = (read(addresses.next()), read(addresses.next()));
            let first = 40u64;
            let mut builder = theirs.launch_builder(&count);
            builder.arg(&x).arg(&len).arg(&first);
            // SAFETY: those are the parameters of `count`.
            unsafe { builder.launch(LaunchConfig::for_num_elems(1000)) }
                .map(drop)
                .map_err(|error| DeviceError::System {
                    what: "launching count",
                    detail: error.to_string(),
                })
        };
        // SAFETY: `count` writes the slice that it is given, on the stream that is adopted.
        s.launch(unsafe { foreign(launch) }, (&mut region,))
            .unwrap();
        s.launch(k.tick.threads(1, 32), (&mut region,)).unwrap();
        let host = region.into_host(&s).unwrap();
        let owner = host.into_block().ok().unwrap().into_adopted().ok().unwrap();
        let slice = owner.downcast::<CudaSlice<u64>>().unwrap();
        let back = theirs.clone_dtoh(&*slice).unwrap();
        assert_eq!((back[0], back[1], back[999]), (41, 41, 1039));
    });
}
