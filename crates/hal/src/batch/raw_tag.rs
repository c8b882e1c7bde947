//! A wait's tag, encoded in numbers. Kernels return them if the wait fails or takes long, and do not interpret them.

use super::{Awaited, Tag};
use crate::ids::{TeamId, WindowId};

/// The kinds of awaited things by number. The stamped kernel knows that of an event.
const AWAITED: [Awaited; 7] = [
    Awaited::Exposure,
    Awaited::Completion,
    Awaited::Barrier,
    Awaited::Ticket,
    Awaited::Event,
    Awaited::Kernel,
    Awaited::Read,
];

/// The team's number for a wait that belongs to no window.
const NO_TEAM: u32 = TeamId::MOST + 1;
const _: () = assert!(NO_TEAM < 1 << 24);

/// A [`Tag`] as kernels of devices read and write it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawTag {
    /// The sequence number of the window in its team.
    pub window: u32,
    /// The peer that is waited for.
    pub peer: u32,
    /// The awaited thing in the lowest byte, and the team above it.
    pub awaited: u32,
}

impl From<Tag> for RawTag {
    fn from(tag: Tag) -> Self {
        let code = AWAITED.iter().position(|each| *each == tag.awaited);
        let code = code.expect("every kind has a number") as u32;
        let team = tag.window.map_or(NO_TEAM, |window| window.team.number());
        RawTag {
            window: tag.window.map_or(0, |window| window.sequence),
            peer: tag.peer,
            awaited: team << 8 | code,
        }
    }
}

impl From<RawTag> for Tag {
    fn from(raw: RawTag) -> Self {
        let sequence = raw.window;
        let team = TeamId::new(raw.awaited >> 8);
        let awaited = AWAITED.get(raw.awaited as usize & 0xff).copied();
        Tag {
            window: team.map(|team| WindowId { team, sequence }),
            peer: raw.peer,
            awaited: awaited.unwrap_or(Awaited::Event),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_hands_back_the_tag_that_it_was_given() {
        let teams = [0, 1, TeamId::MOST].map(|number| TeamId::new(number).unwrap());
        let sequences = [0, 7, u32::MAX];
        let windows = teams.map(|team| sequences.map(|sequence| Some(WindowId { team, sequence })));
        for window in windows.into_iter().flatten().chain([None]) {
            for awaited in AWAITED {
                let tag = Tag {
                    window,
                    peer: 3,
                    awaited,
                };
                assert_eq!(Tag::from(RawTag::from(tag)), tag);
            }
        }
    }
}
