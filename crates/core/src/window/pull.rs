//! Long data that targets read from the memory of origins.
//!
//! # Model
//!
//! Through a slot, data are copied twice. If a target can [read](tidegate_hal::process::memory) the origin's memory, a put
//! of long data puts their address alone. The target copies the data from there ([`Pull`]), and adds to the origin's *read*
//! word. The origin waits for that before its stream goes on to later calls, since they may write the memory.
//!
//! Between two ranks that do so, each epoch has one such add and one such wait, whether its data are long or not.
//!
//! # Failure
//!
//! The memory of an origin whose stream fails is soon used for other things. So before that, such a stream poisons the word
//! that the target has waited for, although its count may have been reached. A target looks at it when it has read.

use std::sync::Arc;

use tidegate_hal::batch::{Add, Awaited, Pull, QUANTUM, Step, Tag, Turn, Wait};
use tidegate_hal::ids::WindowId;
use tidegate_hal::memory::Ptr;
use tidegate_hal::nic::Keep;

use super::ring::is_long;
use super::shape::Shape;
use super::{Link, Peer};

/// A cache line, since elements are aligned to one at most.
#[repr(align(64))]
struct Line(#[expect(dead_code, reason = "streams read it")] [u64; Line::WORDS]);

impl Line {
    const WORDS: usize = 8;
}

/// An address that is put, in as many elements as it takes.
pub(super) struct Address {
    lines: Arc<[Line]>,
    pub(super) elements: usize,
}

impl Address {
    /// The address of data, for elements of this size.
    pub(super) fn of(data: Ptr, size: usize) -> Self {
        let elements = size_of::<u64>().div_ceil(size);
        let mut lines = vec![[0; Line::WORDS]; (elements * size).div_ceil(size_of::<Line>())];
        lines[0][0] = data.0.expose_provenance() as u64;
        Address {
            lines: lines.into_iter().map(Line).collect(),
            elements,
        }
    }

    /// Where the address itself lies.
    pub(super) fn at(&self) -> Ptr {
        Ptr(self.lines.as_ptr().cast_mut().cast())
    }

    /// What must live as long as the address is put.
    pub(super) fn keep(self) -> Keep {
        Arc::new(self.lines)
    }
}

/// Whether data of so many bytes are pulled from or by a peer.
pub(super) fn are_pulled(peer: &Peer, bytes: usize) -> bool {
    peer.reads.is_some() && is_long(bytes)
}

/// The step that copies data of an origin, `offset` bytes behind the address that is put to `slot`.
pub(super) fn pull_step(
    origin: &Peer,
    window: WindowId,
    (slot, flip): (Ptr, usize),
    offset: usize,
    (to, bytes): (Ptr, usize),
) -> Step {
    let (reads, ring) = (origin.reads.zip(origin.ring)).expect("its data are pulled");
    Step::Pull(Pull {
        origin: reads,
        address: slot,
        flip,
        buffers: ring.buffers,
        parity: origin.operand,
        offset,
        to,
        bytes,
        guard: origin.word,
        tag: tag(origin, window, Awaited::Completion),
    })
}

/// The step that tells an origin that its data of this epoch have been read.
pub(super) fn has_read(origin: &Peer, window: WindowId) -> Step {
    let Link::Mapped { word, bell } = origin.link else {
        unreachable!("only what is mapped has rings")
    };
    Step::Add(Add {
        word: word.byte_add(Shape::READ),
        value: QUANTUM,
        bell,
        tag: Some(tag(origin, window, Awaited::Read)),
        turn: None,
    })
}

/// The lane that waits until a target has read the data of so many epochs.
pub(super) fn until_read(target: &Peer, window: WindowId, epochs: usize) -> Vec<Step> {
    let Link::Mapped { word, bell } = target.link else {
        unreachable!("only what is mapped has rings")
    };
    let wait = Wait {
        word: target.word.byte_add(Shape::READ),
        operand: target.word.byte_add(Shape::READ_OPERAND),
        quantum: QUANTUM,
        tag: tag(target, window, Awaited::Read),
        landed: None,
        ring: None,
    };
    let poison = Add {
        word,
        value: 0,
        bell,
        tag: None,
        turn: Some(Turn::Never),
    };
    let mut lane = vec![Step::Wait(wait); epochs];
    lane.push(Step::Add(poison));
    lane
}

fn tag(peer: &Peer, window: WindowId, awaited: Awaited) -> Tag {
    Tag {
        window: Some(window),
        peer: peer.rank as u32,
        awaited,
    }
}
