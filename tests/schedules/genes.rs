//! The numbers that proptest generates and shrinks. Each is read modulo the number of choices. So leaving out some, or
//! making some zero, gives a simpler job that is still valid.

use proptest::collection::vec;
use proptest::prelude::*;

use super::value::mix;

/// The genes of a job.
#[derive(Clone, Debug)]
pub(crate) struct Genes {
    pub(crate) ranks: usize,
    /// The number of streams of each rank, and which of them are inline.
    pub(crate) lanes: Vec<(usize, u8)>,
    pub(crate) windows: Vec<WindowGene>,
    /// Types and lengths of additional data regions.
    pub(crate) regions: Vec<(u8, u8)>,
    pub(crate) segments: Vec<Segment>,
}

#[derive(Clone, Debug)]
pub(crate) struct WindowGene {
    pub(crate) ty: u8,
    pub(crate) kind: u8,
    /// Origin, target, and length.
    pub(crate) edges: Vec<(u8, u8, u8)>,
}

/// Some meetings, which may overlap; or a loop of them.
#[derive(Clone, Debug)]
pub(crate) struct Segment {
    pub(crate) meetings: Vec<MeetingGene>,
    /// The number of times. 0 means once, and then operations may occur that cannot be captured.
    pub(crate) times: u8,
    /// Whether the loop before this one is repeated at the end.
    pub(crate) again: bool,
    pub(crate) tape: Vec<u8>,
}

/// One epoch of one window.
#[derive(Clone, Debug)]
pub(crate) struct MeetingGene {
    pub(crate) window: u8,
    /// Pairs of ranks that do not take part.
    pub(crate) absent: u16,
    pub(crate) tape: Vec<u8>,
}

/// Choices, read from a tape. If the tape is zero, or at its end, the first choice is taken.
pub(crate) struct Choices<'t> {
    tape: &'t [u8],
    salt: u64,
    at: u64,
}

impl<'t> Choices<'t> {
    pub(crate) fn new(tape: &'t [u8], salt: u64) -> Self {
        Choices { tape, salt, at: 0 }
    }

    /// A number below `n`.
    pub(crate) fn pick(&mut self, n: usize) -> usize {
        self.at += 1;
        if self.tape.is_empty() || n == 0 {
            return 0;
        }
        match self.tape[self.at as usize % self.tape.len()] {
            0 => 0,
            byte => (mix(mix(self.salt, self.at), u64::from(byte)) % n as u64) as usize,
        }
    }

    /// True about once in `n` times.
    pub(crate) fn once_in(&mut self, n: usize) -> bool {
        self.pick(n) == n - 1
    }

    pub(crate) fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.pick(all.len())]
    }

    /// Any number that is not a choice. It stays different when the tape shrinks.
    pub(crate) fn salt(&mut self) -> u64 {
        self.at += 1;
        mix(self.salt, self.at) & 0xffff
    }
}

fn tape(most: usize) -> impl Strategy<Value = Vec<u8>> {
    vec(any::<u8>(), 0..=most)
}

prop_compose! {
    fn window()(
        ty in any::<u8>(),
        kind in any::<u8>(),
        edges in vec(any::<(u8, u8, u8)>(), 1..=7),
    ) -> WindowGene {
        WindowGene { ty, kind, edges }
    }
}

prop_compose! {
    fn meeting()(
        window in any::<u8>(),
        absent in prop_oneof![Just(0u16), any::<u16>()],
        tape in tape(12),
    ) -> MeetingGene {
        MeetingGene { window, absent, tape }
    }
}

prop_compose! {
    fn segment()(
        meetings in vec(meeting(), 1..=6),
        times in prop_oneof![3 => Just(0u8), 2 => 2u8..=9],
        again in any::<bool>(),
        tape in tape(12),
    ) -> Segment {
        Segment { meetings, times, again, tape }
    }
}

prop_compose! {
    /// Any job.
    pub(crate) fn genes()(
        ranks in 1usize..=5,
        lanes in vec((1usize..=3, prop_oneof![3 => Just(0u8), 1 => any::<u8>()]), 5),
        windows in vec(window(), 1..=4),
        regions in vec(any::<(u8, u8)>(), 1..=4),
        segments in vec(segment(), 1..=5),
    ) -> Genes {
        Genes { ranks, lanes, windows, regions, segments }
    }
}
