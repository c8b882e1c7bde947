//! Submission, graphs and reclaiming, over a driver of no device ([`driver`]): what is asked of a vendor's driver, in
//! which order, and what becomes of a stream when the driver refuses.

mod driver;
mod graphs;
mod reclaiming;
mod submission;
mod vendor;

use std::sync::Arc;

use tidegate_gpu::GpuStream;
use tidegate_gpu::driver::Stream as Raw;
use tidegate_hal::batch::{
    Action, Add, Awaited, Batch, Move, QUANTUM, Shape, Side, Step, Tag, Wait,
};
use tidegate_hal::device::StreamConfig;
use tidegate_hal::memory::{Block as _, Ptr, Sharing};

use driver::{Null, number};

/// A device, its driver, and memory for the words of batches.
struct Bench {
    device: tidegate_gpu::GpuDevice,
    null: &'static Null,
    words: Arc<tidegate_gpu::GpuBlock>,
}

const WORDS: usize = 4096;

impl Bench {
    fn new() -> Self {
        let (device, null) = vendor::open(32).expect("it opens");
        let words = device.alloc(WORDS, Sharing::Peers).expect("memory");
        Bench {
            device,
            null,
            words: Arc::new(words),
        }
    }

    /// The same, with another process of the job that uses the device in turn. So waits have gates.
    fn gated() -> Self {
        let bench = Bench::new();
        bench.device.shared_with(1, 0);
        // Operands are counted in memory that is allocated from now on.
        let words = bench.device.alloc(WORDS, Sharing::Peers).expect("memory");
        Bench {
            words: Arc::new(words),
            ..bench
        }
    }

    fn stream(&self) -> GpuStream {
        self.stream_that_keeps(Arc::new(()))
    }

    fn stream_that_keeps(&self, keep: Arc<()>) -> GpuStream {
        let config = StreamConfig {
            name: "stream".into(),
            bell: Ptr::NULL,
            keep,
            inline: false,
            ranks_on_node: 1,
            priority: Default::default(),
            helper: None,
            stamped: false,
        };
        // SAFETY: nobody rings the bell.
        unsafe { self.device.stream(config) }.expect("a stream")
    }

    /// A word of its own for each number.
    fn word(&self, number: usize) -> Ptr {
        assert!(64 * (number + 1) <= WORDS);
        self.words.base().byte_add(64 * number)
    }

    fn wait(&self, number: usize) -> Step {
        Step::Wait(Wait {
            word: self.word(number),
            operand: self.word(number).byte_add(8),
            quantum: QUANTUM,
            tag: Tag {
                window: None,
                peer: 1,
                awaited: Awaited::Exposure,
            },
            landed: None,
            ring: None,
        })
    }

    fn add(&self, number: usize) -> Step {
        Step::Add(Add {
            tag: None,
            word: self.word(number),
            value: QUANTUM,
            bell: Ptr::NULL,
            turn: None,
        })
    }

    /// A batch of as many lanes, each of which waits for a word and adds to another.
    fn batch(&self, lanes: usize) -> Arc<Batch> {
        let lane = |lane| vec![self.wait(2 * lane), self.add(2 * lane + 1)];
        // SAFETY: the words live as long as the batch; no batch is carried out.
        Arc::new(unsafe { Batch::new((0..lanes).map(lane), vec![self.words.clone()]) })
    }

    /// A batch with a put that is large enough for a copy engine.
    fn large(&self) -> Arc<Batch> {
        const BYTES: usize = 64 << 20;
        let memory = [0; 2].map(|_| self.device.alloc(BYTES, Sharing::Private).expect("memory"));
        let memory = memory.map(Arc::new);
        let side = |of: usize| Side {
            base: memory[of].base(),
            flip: 0,
            shape: Shape::Linear,
        };
        let put = Step::Move(Move {
            action: Action::Copy,
            size: 8,
            count: BYTES / 8,
            src: side(0),
            dst: side(1),
            parity: Ptr::NULL,
            early: false,
            landing: None,
            buffers: 2,
        });
        let lane = vec![self.wait(0), put, self.add(1)];
        let keep = memory.iter().cloned().map(|each| each as _);
        let keep = keep.chain([self.words.clone() as _]).collect();
        // SAFETY: as for `batch`.
        Arc::new(unsafe { Batch::new([lane], keep) })
    }
}

/// The number of a stream in the driver's list of calls.
fn of(stream: &GpuStream) -> usize {
    number(stream.as_raw().0)
}

fn raw(stream: &GpuStream) -> Raw {
    stream.as_raw()
}

/// What streams keep alive, and a test can see freed.
fn seen() -> (Arc<()>, impl Fn() -> bool) {
    let thing = Arc::new(());
    let weak = Arc::downgrade(&thing);
    (thing, move || weak.strong_count() == 0)
}
