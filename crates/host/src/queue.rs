//! A stream's queue: the owner puts items in, and the stream's thread takes them out.
//!
//! # Model
//!
//! The queue is a chain of rings. Items go into one ring until one place of it is left. That place takes the receiving
//! end of a new ring, and the next items go there. The thread that empties the queue follows, and frees the old ring. A
//! ring is reused as long as it has room, so a program that does not run far ahead allocates nothing.
//!
//! A stream has two queues: one of its items, and one of the kernels among them, which take several times as much memory.
//! So a program that enqueues short batches fills few lines of the caches.
//!
//! Each new ring is twice as large as the one before, up to [`LARGEST`]. A stream that has caught up gets a ring of
//! [`SMALLEST`] items again, which stays in the processor's caches.

use rtrb::{Consumer, Producer, RingBuffer};

use crate::executor::Item;
use crate::job::Job;

/// How many items may wait in a queue. A full queue refuses items until [`SMALLEST`] items have been done.
pub(crate) const MOST: u64 = 1 << 20;
/// How many places the first ring has.
const SMALLEST: usize = 1024;
/// How many places a ring has at most.
const LARGEST: usize = 16 * SMALLEST;

enum Entry<T> {
    Item(T),
    /// The last entry of a ring. The queue goes on in this other ring.
    Next(Consumer<Entry<T>>),
}

/// The documentation of streams says how much memory an item takes.
const _: () = assert!(size_of::<Entry<Item>>() <= 32 && size_of::<Entry<Job>>() <= 112);

/// The end of the queue at which items are put in.
pub(crate) struct Inlet<T> {
    ring: Producer<Entry<T>>,
    places: usize,
    /// How many places are known to be free: at least one, for the link to the next ring.
    free: usize,
}

/// The end of the queue at which items are taken out.
pub(crate) struct Outlet<T>(Consumer<Entry<T>>);

/// Makes an empty queue.
pub(crate) fn queue<T>() -> (Inlet<T>, Outlet<T>) {
    let (inlet, consumer) = ring(SMALLEST);
    (inlet, Outlet(consumer))
}

fn ring<T>(places: usize) -> (Inlet<T>, Consumer<Entry<T>>) {
    let (ring, consumer) = RingBuffer::new(places);
    let inlet = Inlet {
        ring,
        places,
        free: places,
    };
    (inlet, consumer)
}

impl<T> Inlet<T> {
    /// Whether there is room for `items` items; if so, their pushes will succeed. `waiting` returns how many items have
    /// not been done.
    #[inline]
    pub(crate) fn has_room(&mut self, items: usize, waiting: impl FnOnce() -> u64) -> bool {
        self.free > items || self.makes_room(items, waiting())
    }

    #[cold]
    fn makes_room(&mut self, items: usize, waiting: u64) -> bool {
        self.free = self.ring.slots();
        let caught_up = waiting < SMALLEST as u64 / 2;
        if self.free > items && (self.places == SMALLEST || !caught_up) {
            return true;
        }
        // The new ring takes no more than that, so the queue never holds more than `MOST`.
        let left = MOST.saturating_sub(waiting) as usize;
        // One place is for the link to the next ring.
        let least = SMALLEST.max(items.saturating_add(1));
        if left < least {
            return false;
        }
        let places = if caught_up {
            least
        } else {
            (2 * self.places).min(LARGEST).clamp(least, left)
        };
        let (next, consumer) = ring(places);
        self.put(Entry::Next(consumer));
        *self = next;
        true
    }

    /// Puts in an item for which there [is room](Inlet::has_room).
    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        debug_assert!(
            self.free > 1,
            "the last place is for the way to the next ring"
        );
        self.put(Entry::Item(item));
    }

    /// Puts in the last item. It always has a place, because it needs none for a link after it.
    pub(crate) fn push_last(&mut self, item: T) {
        self.put(Entry::Item(item));
    }

    #[inline]
    fn put(&mut self, entry: Entry<T>) {
        if self.ring.push(entry).is_err() {
            unreachable!("a place was known to be free, and only this end takes places");
        }
        self.free -= 1;
    }
}

impl<T> Outlet<T> {
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        loop {
            match self.0.pop().ok()? {
                Entry::Item(item) => return Some(item),
                Entry::Next(next) => self.0 = next,
            }
        }
    }

    /// The next item, if it is there and in the same ring.
    #[inline]
    pub(crate) fn peek(&self) -> Option<&T> {
        match self.0.peek().ok()? {
            Entry::Item(item) => Some(item),
            Entry::Next(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_come_out_in_order_however_many_wait() {
        let (mut inlet, mut outlet) = queue();
        let (mut pushed, mut popped) = (0_u64, 0_u64);
        // Miri takes a hundred times as long, so it gets fewer items.
        let part = if cfg!(miri) { 20 } else { 1 };
        // The rings grow, and become small again when the queue has been emptied.
        for (more, less) in [
            (3_000, 100),
            (60_000, 62_000),
            (20_000, 20_900),
            (5_000, 5_000),
        ] {
            for _ in 0..more / part {
                assert!(inlet.has_room(1, || pushed - popped));
                inlet.push(pushed);
                pushed += 1;
            }
            for _ in 0..less / part {
                assert_eq!(outlet.pop(), Some(popped));
                popped += 1;
            }
        }
        assert_eq!(popped, pushed);
        assert!(outlet.pop().is_none());
    }

    #[test]
    fn a_queue_that_is_emptied_in_time_stays_as_it_is() {
        let (mut inlet, mut outlet) = queue();
        let mut pushed = 0;
        for _ in 0..if cfg!(miri) { 2 } else { 50 } {
            for _ in 0..900 {
                assert!(inlet.has_room(1, || 900));
                inlet.push(pushed);
                pushed += 1;
            }
            assert_eq!(inlet.places, SMALLEST);
            (0..900).for_each(|at| assert_eq!(outlet.pop(), Some(pushed - 900 + at)));
        }
    }

    #[test]
    fn more_items_than_a_ring_has_places_for_are_sure_of_them() {
        let (mut inlet, mut outlet) = queue();
        let many = SMALLEST as u64 + 7;
        let mut pushed = 0;
        for done in [0, many] {
            assert!(inlet.has_room(many as usize, || pushed - done));
            for _ in 0..many {
                assert!(inlet.has_room(1, || unreachable!("there is room")));
                inlet.push(pushed);
                pushed += 1;
            }
            (0..many).for_each(|at| assert_eq!(outlet.pop(), Some(pushed - many + at)));
        }
        assert!(outlet.pop().is_none());
    }

    #[test]
    #[cfg_attr(miri, ignore = "a million items")]
    fn a_full_queue_refuses_and_goes_on_when_it_is_less_full() {
        let (mut inlet, mut outlet) = queue();
        let mut waiting = 0;
        let fill = |inlet: &mut Inlet<Option<u64>>, waiting: &mut u64| {
            while inlet.has_room(1, || *waiting) {
                inlet.push(Some(*waiting));
                *waiting += 1;
            }
            assert!(
                (MOST - SMALLEST as u64..=MOST).contains(waiting),
                "{waiting}"
            );
        };
        fill(&mut inlet, &mut waiting);
        assert!(!inlet.has_room(16, || waiting));
        for _ in 0..2 * SMALLEST {
            assert!(outlet.pop().is_some());
            waiting -= 1;
        }
        // A caller that was promised several places gets them.
        assert!(!inlet.has_room(3 * SMALLEST, || waiting));
        assert!(!inlet.has_room(usize::MAX, || waiting));
        assert!(inlet.has_room(16, || waiting));
        for _ in 0..16 {
            inlet.push(Some(waiting));
            waiting += 1;
        }
        fill(&mut inlet, &mut waiting);
        inlet.push_last(None);
        for _ in 0..waiting {
            assert!(matches!(outlet.pop(), Some(Some(_))));
        }
        assert_eq!(outlet.pop(), Some(None));
        assert!(outlet.pop().is_none());
    }
}
