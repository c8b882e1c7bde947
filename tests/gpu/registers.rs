//! Registers of NICs behind a wait: the program of a child of `rules`.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::sync::Arc;
use std::time::Duration;

use cudarc::driver::{CudaContext, sys};
use tidegate::cuda::prelude::*;
use tidegate_hal::device::Device as _;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::Register;

use super::rules::{own_window, say};
use crate::gpu::common::W;

/// A page in the place of a NIC's.
struct Page(*mut u8);

// SAFETY: only the GPU accesses it.
unsafe impl Send for Page {}
// SAFETY: as above.
unsafe impl Sync for Page {}

impl Page {
    const LAYOUT: Layout = match Layout::from_size_align(1 << 16, 1 << 16) {
        Ok(layout) => layout,
        Err(_) => panic!("a power of two"),
    };
}

impl Drop for Page {
    fn drop(&mut self) {
        // SAFETY: it was allocated so, and nothing leads there any more.
        unsafe { dealloc(self.0, Self::LAYOUT) };
    }
}

/// Maps registers and drops them while a stream waits for the next action of the same thread.
pub(super) fn behind_a_wait(world: &W, raw: bool) {
    // SAFETY: the size is not 0.
    let page = Arc::new(Page(unsafe { alloc_zeroed(Page::LAYOUT) }));
    let (at, bytes) = (page.0, Page::LAYOUT.size());
    let map = |offset| {
        let register = Register {
            at: Ptr(at.wrapping_add(offset)),
            keep: page.clone(),
        };
        // SAFETY: the page is kept, and nothing else uses it.
        unsafe { world.device().map_register(&register) }.unwrap()
    };
    let context = CudaContext::new(world.device().ordinal()).unwrap();
    context.bind_to_thread().unwrap();
    if raw {
        // SAFETY: the page is as long, and is not freed while it is registered.
        unsafe { sys::cuMemHostRegister_v2(at.cast(), bytes, 0) }
            .result()
            .unwrap();
    }
    {
        stream!(let s = world.stream().unwrap());
        stream!(let t = world.stream().unwrap());
        let (inbox, outbox) = own_window("own", &s).unwrap();
        let outbox = s.hand_off(outbox, &t).unwrap();
        let inbox = inbox.post(&s).unwrap().wait(&s).unwrap();
        std::thread::sleep(Duration::from_millis(200));
        assert!(!s.is_idle(), "the stream waits for this thread");
        say("waiting");
        if raw {
            // SAFETY: it is registered, and no device uses it.
            unsafe { sys::cuMemHostUnregister(at.cast()) }
                .result()
                .unwrap();
        } else {
            // There are two registers in a page, which is registered once.
            let (first, second) = (map(0), map(64));
            assert_eq!(first.at.byte_add(64), second.at);
            drop((first, second));
            // It stays registered, and is kept, as long as a stream waits. So it can be mapped again.
            assert_eq!(Arc::strong_count(&page), 2);
            drop(map(128));
            assert_eq!(Arc::strong_count(&page), 2);
        }
        say("went on");
        let outbox = outbox.start().complete(&t).unwrap();
        s.synchronize().unwrap();
        t.synchronize().unwrap();
        drop((inbox, outbox));
    }
    // Streams have ended, and nothing waits.
    assert_eq!(Arc::strong_count(&page), 1, "the page is taken back");
    if !raw {
        // The page can be registered again. The last of these registers outlives the streams, and ends the
        // registration.
        let (first, second) = (map(0), map(64));
        drop(first);
        assert_eq!(Arc::strong_count(&page), 3);
        drop(second);
        assert_eq!(Arc::strong_count(&page), 1, "it is taken back at once");
    }
}
