//! Long writes, by several rails: see [`super::rail`].

use std::ops::Range;

use tidegate_hal::nic::Direction;

use super::program::Piece;
use super::rail::Job;
use super::work::{Engine, Firing, Flight};
use crate::RemoteRegion;
use crate::notice::Stripe;
use crate::wire::{Op, Wire};

/// Writes of more bytes go by several rails. (A shorter one takes another queue's signal along, which none in stripes
/// does: see [`ALONG`](super::post::ALONG).)
pub(super) const SHARED: usize = 64 << 10;
/// Stripes begin at multiples of so many bytes: two threads write to no page together.
const PAGE: usize = 4096;

/// The bytes of a stripe; it has some, if there are more than [`SHARED`].
fn part(bytes: usize, stripe: Stripe) -> Range<usize> {
    let each = bytes.div_ceil(stripe.of as usize);
    let each = each.next_multiple_of(PAGE);
    let at = |index: u32| (index as usize * each).min(bytes);
    at(stripe.index)..at(stripe.index + 1)
}

impl<W: Wire> RemoteRegion<W> {
    /// By how many endpoints of this rank its peer's memory is reached.
    fn ways(&self) -> usize {
        1 + self.rails.len()
    }
}

impl Firing {
    /// What the engine itself posts of its last piece, whose bytes are at `from`, when the rest was handed to rails.
    pub(super) fn first_stripe<'a, W: Wire>(
        &self,
        piece: &'a Piece<W>,
        from: *const u8,
        notice: u64,
    ) -> Op<'a, W> {
        let of = self.handed as u32 + 1;
        let stripe = Stripe { index: 0, of };
        Op::Write {
            from,
            bytes: part(piece.bytes, stripe).len(),
            to: &piece.remote.remote,
            offset: piece.offset(self.is_odd()),
            notice: Some(stripe.stripes(notice)),
        }
    }
}

impl<W: Wire> Engine<W> {
    /// Hands all stripes but the first of a firing's last piece, whose bytes are at `from`, to the rails, if it is long
    /// and they have room.
    ///
    /// # Safety
    ///
    /// As [`Wire::post`], until all of them are over.
    pub(super) unsafe fn hand_stripes(&mut self, index: usize, from: *const u8, notice: u64) {
        let agenda = self.queues.get(index).expect("it has a firing");
        let firing = agenda.firing.as_mut().expect("it has a firing");
        let (program, odd) = (firing.program.clone(), firing.is_odd());
        let piece = &super::program::script::<W>(&program).pieces[firing.next];
        let ways = piece.remote.ways().min(Stripe::MOST as usize);
        let rails = &self.rails[..ways - 1];
        if piece.bytes <= SHARED || !rails.iter().all(|rail| rail.has_room()) {
            return;
        }
        for (rail, at) in rails.iter().zip(1..) {
            let of = ways as u32;
            let stripe = Stripe { index: at, of };
            let bytes = part(piece.bytes, stripe);
            let job = Job {
                queue: agenda.queue.clone(),
                from: from.wrapping_add(bytes.start),
                bytes: bytes.len(),
                to: piece.remote.clone(),
                offset: piece.offset(odd) + bytes.start,
                notice: Some(stripe.stripes(notice)),
                cookie: self.flights.next() as u64,
            };
            self.flights.add(Flight::Handed(index));
            // SAFETY: the caller's promise.
            unsafe { rail.hand(job) };
        }
        firing.handed = rails.len();
        firing.under_way += rails.len();
        self.handed += rails.len();
    }

    /// Hands a firing's next piece, which brings no signal, to a rail, if it is long: each to another, and every so
    /// many to none. Whether it did.
    ///
    /// # Safety
    ///
    /// As [`Wire::post`], until it is over.
    pub(super) unsafe fn hand_on(&mut self, index: usize, from: *const u8) -> bool {
        let agenda = self.queues.get(index).expect("it is worked on");
        let firing = agenda.firing.as_mut().expect("there is one");
        let (program, odd) = (firing.program.clone(), firing.is_odd());
        let piece = &super::program::script::<W>(&program).pieces[firing.next];
        let rail = match firing.next % piece.remote.ways() {
            0 => return false,
            number => &self.rails[number - 1],
        };
        if piece.direction != Direction::Put || piece.bytes <= SHARED || !rail.has_room() {
            return false;
        }
        let job = Job {
            queue: agenda.queue.clone(),
            from,
            bytes: piece.bytes,
            to: piece.remote.clone(),
            offset: piece.offset(odd),
            notice: None,
            cookie: self.flights.next() as u64,
        };
        self.flights.add(Flight::Handed(index));
        // SAFETY: the caller's promise.
        unsafe { rail.hand(job) };
        firing.under_way += 1;
        firing.next += 1;
        self.handed += 1;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stripes_are_all_of_it_and_none_is_empty() {
        for bytes in [SHARED + 1, SHARED + 4096, 240_000, 1 << 20, (16 << 20) - 1] {
            for of in 2..=Stripe::MOST {
                let mut end = 0;
                for index in 0..of {
                    let part = part(bytes, Stripe { index, of });
                    assert!(part.start == end && !part.is_empty(), "{bytes}: {part:?}");
                    assert!(part.start.is_multiple_of(PAGE));
                    end = part.end;
                }
                assert_eq!(end, bytes);
            }
        }
    }
}
