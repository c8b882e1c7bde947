//! Steps from which several tests make lanes.

use tidegate_hal::batch::{Add, Awaited, QUANTUM, Shape, Side, Step, Tag, Wait};
use tidegate_hal::ids::{TeamId, WindowId};
use tidegate_hal::memory::Ptr;

/// A window of a team other than the world.
pub(super) const fn window(sequence: u32) -> Option<WindowId> {
    let team = TeamId::new(5).unwrap();
    Some(WindowId { team, sequence })
}

/// The window of these waits.
pub(super) const WINDOW: Option<WindowId> = window(7);

/// `peer` says which wait it is.
pub(super) fn wait(word: Ptr, operand: Ptr, quantum: u64, peer: u32) -> Step {
    Step::Wait(Wait {
        word,
        operand,
        quantum,
        tag: Tag {
            window: WINDOW,
            peer,
            awaited: Awaited::Event,
        },
        landed: None,
        ring: None,
    })
}

pub(super) fn add(word: Ptr, bell: Ptr) -> Step {
    Step::Add(Add {
        tag: None,
        word,
        value: QUANTUM,
        bell,
        turn: None,
    })
}

pub(super) fn linear(base: Ptr) -> Side {
    Side {
        base,
        flip: 0,
        shape: Shape::Linear,
    }
}
