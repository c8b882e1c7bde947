//! Memory for the tests, and its contents.

use std::alloc::{Layout, alloc_zeroed, dealloc};

use tidegate_hal::memory::Ptr;

use super::machine::Range;
use crate::lower::random::Rng;

/// Memory of a test: pieces with gaps between them. A test can look at all of it.
pub(super) struct Arena {
    base: *mut u8,
    bytes: usize,
    used: usize,
    pieces: Vec<Range>,
}

impl Arena {
    const ALIGN: usize = 4096;

    /// An arena that is filled with numbers from the generator.
    pub(super) fn new(bytes: usize, rng: &mut Rng) -> Self {
        let layout = Layout::from_size_align(bytes, Self::ALIGN).expect("a small piece of memory");
        // SAFETY: the size is not 0.
        let base = unsafe { alloc_zeroed(layout) };
        assert!(!base.is_null());
        let pattern: Vec<u64> = (0..512).map(|_| rng.next()).collect();
        for at in (0..bytes).step_by(Self::ALIGN) {
            // SAFETY: within the arena, which is a multiple of the pattern.
            unsafe { base.add(at).cast::<u64>().copy_from(pattern.as_ptr(), 512) };
        }
        Arena {
            base,
            bytes,
            used: 0,
            pieces: Vec::new(),
        }
    }

    /// A piece that begins `beyond` bytes behind a boundary of 64, with gaps around it.
    pub(super) fn take(&mut self, bytes: usize, beyond: usize, writable: bool) -> *mut u8 {
        let at = (self.used + 48).next_multiple_of(64) + beyond;
        self.used = at + bytes + 16;
        assert!(self.used <= self.bytes, "the arena is large enough");
        let piece = self.base.wrapping_add(at);
        let begin = piece.addr() as u64;
        self.pieces.push(Range {
            begin,
            end: begin + bytes as u64,
            writable: u64::from(writable),
        });
        piece
    }

    /// Extends the piece that contains an element to whole words of 4 bytes. If an element is updated atomically, no
    /// one else uses the bytes beside it.
    pub(super) fn widen_at(&mut self, element: Ptr) {
        let at = element.0.addr() as u64;
        let of = |piece: &&mut Range| (piece.begin..piece.end).contains(&at);
        let piece = self.pieces.iter_mut().find(of).expect("a piece");
        (piece.begin, piece.end) = (piece.begin & !3, piece.end.next_multiple_of(4));
    }

    /// A word of the protocol, with a first value.
    pub(super) fn word(&mut self, value: u64) -> Ptr {
        let at = self.take(8, 0, false);
        // SAFETY: the piece was just taken.
        unsafe { at.cast::<u64>().write(value) };
        Ptr(at)
    }

    /// The pointer for an address in the arena.
    pub(super) fn at(&self, address: u64) -> *mut u8 {
        self.base.with_addr(address as usize)
    }

    pub(super) fn pieces(&self) -> &[Range] {
        &self.pieces
    }

    /// The used part of the arena, and a little more. Nothing else may be using it.
    pub(super) fn all(&self) -> &[u8] {
        let used = (self.used + 4096).min(self.bytes);
        // SAFETY: the memory is live and initialised, and nothing writes it meanwhile, as the function requires.
        unsafe { std::slice::from_raw_parts(self.base, used) }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        let layout = Layout::from_size_align(self.bytes, Self::ALIGN).expect("as in `new`");
        // SAFETY: allocated with this layout.
        unsafe { dealloc(self.base, layout) };
    }
}

/// The value of a word in a test's memory.
pub(super) fn value(word: Ptr) -> u64 {
    // SAFETY: tests give words of their arenas.
    unsafe { word.0.cast::<u64>().read() }
}

/// Changes a word of a test's memory.
pub(super) fn change(word: Ptr, with: impl FnOnce(u64) -> u64) {
    // SAFETY: as above; between two primitives nothing else happens.
    unsafe { word.0.cast::<u64>().write(with(value(word))) };
}
