//! The free parts of a segment.

/// Free ranges of `0..bytes`, ascending, and no two of them adjacent.
#[derive(Debug)]
pub(super) struct Pool {
    free: Vec<(usize, usize)>,
}

impl Pool {
    pub(super) fn new(bytes: usize) -> Self {
        Pool {
            free: if bytes == 0 {
                Vec::new()
            } else {
                vec![(0, bytes)]
            },
        }
    }

    /// The alignment of a block of `bytes` bytes, and the bytes that it takes.
    fn room(bytes: usize) -> Option<(usize, usize)> {
        // A page is enough for rows of fields and for vector units.
        let align = if bytes < 4096 { 64 } else { 4096 };
        Some((align, bytes.checked_next_multiple_of(64)?))
    }

    /// Bytes of a segment that certainly has room for a block.
    pub(super) fn wanted(bytes: usize) -> Option<usize> {
        let (align, bytes) = Self::room(bytes)?;
        bytes.checked_add(align)
    }

    /// Takes the first range that has room.
    pub(super) fn take(&mut self, bytes: usize) -> Option<usize> {
        let (align, bytes) = Self::room(bytes)?;
        let (index, at) = self.free.iter().enumerate().find_map(|(index, free)| {
            let at = free.0.checked_next_multiple_of(align)?;
            (at.checked_add(bytes)? <= free.0 + free.1).then_some((index, at))
        })?;
        let (first, len) = self.free.remove(index);
        let after = (at + bytes, first + len - at - bytes);
        let before = (first, at - first);
        let rest = [before, after].into_iter().filter(|(_, len)| *len > 0);
        self.free.splice(index..index, rest);
        Some(at)
    }

    /// Gives a block back.
    pub(super) fn give(&mut self, at: usize, bytes: usize) {
        let (_, mut len) = Self::room(bytes).expect("it was taken");
        let mut at = at;
        let mut index = self.free.partition_point(|(first, _)| *first < at);
        if let Some((first, before)) = index.checked_sub(1).map(|before| self.free[before])
            && first + before == at
        {
            index -= 1;
            self.free.remove(index);
            (at, len) = (first, before + len);
        }
        if let Some((first, after)) = self.free.get(index).copied()
            && first == at + len
        {
            self.free.remove(index);
            len += after;
        }
        self.free.insert(index, (at, len));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_that_were_given_back_are_whole_again() {
        let mut pool = Pool::new(1 << 20);
        let sizes = [1, 64, 65, 4096, 5000, 100_000, 63];
        let mut taken: Vec<_> = sizes
            .iter()
            .map(|bytes| (pool.take(*bytes).unwrap(), *bytes))
            .collect();
        for (at, bytes) in &taken {
            assert_eq!(at % if *bytes < 4096 { 64 } else { 4096 }, 0);
        }
        let mut ends: Vec<_> = taken.iter().map(|(at, bytes)| (*at, at + bytes)).collect();
        ends.sort_unstable();
        assert!(ends.windows(2).all(|pair| pair[0].1 <= pair[1].0));
        taken.swap(0, 3);
        taken.swap(1, 5);
        for (at, bytes) in taken {
            pool.give(at, bytes);
        }
        assert_eq!(pool.free, [(0, 1 << 20)]);
    }

    #[test]
    fn a_segment_of_the_wanted_size_has_room() {
        for bytes in [1, 64, 4095, 4096, 4097, 1 << 20] {
            assert!(
                Pool::new(Pool::wanted(bytes).unwrap())
                    .take(bytes)
                    .is_some()
            );
        }
        assert_eq!(Pool::new(100).take(101), None);
        assert_eq!(Pool::new(1 << 20).take(usize::MAX), None);
        assert_eq!(Pool::wanted(usize::MAX), None);
    }
}
