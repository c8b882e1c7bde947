//! How many epochs a window half or a barrier has had, and the limit of that number.
//!
//! # Model
//!
//! The words that ranks wait for count epochs in quanta of 2^20, and are never reset. A device may write the byte of
//! [`POISON`](tidegate_hal::batch::POISON) as a whole, so a word may only count to 2^36 epochs, below that byte. That
//! is 38 hours of epochs of 2 us. So no rank begins more than [`MOST`] epochs with a peer.
//!
//! Each rank counts on its host, when epochs are enqueued or replayed. Ranks that enqueue the same epochs, in the same
//! calls and groups, refuse the same epoch, and all epochs before it are carried out. If the calls differ, one rank may
//! refuse earlier. Of a collective, ranks may refuse different calls: its rounds are epochs with different peers, and each
//! rank counts its own. A rank refuses a group if one of its members has no epochs left, and a replay if one of its epochs would
//! be too many. The program then has to open a new window.
//!
//! # Failure
//!
//! [`EpochError::LastEpoch`](crate::error::EpochError::LastEpoch), before anything is enqueued.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use tidegate_hal::batch::{POISON, QUANTUM};

use crate::error::{EpochError, Error, Result, WindowName};
use crate::half_kind::HalfKind;

/// The most epochs that a rank has with a peer: nearly as many as a word can count.
pub(crate) const MOST: u64 = (1 << 36) - (1 << 20);

/// A word counts the epochs, and with several buffers some exposures more. This stays below the byte of poison.
const _: () = {
    assert!(POISON == 0x40 << 56);
    assert!((MOST + 64) * QUANTUM < 1 << 56);
};

/// The number of epochs that one half has had.
pub(crate) struct Epochs {
    window: WindowName,
    pub(crate) half: HalfKind,
    /// The ranks of the peers.
    ranks: Box<[usize]>,
    /// How many exposures each origin has when the window opens. They are not among the counted epochs.
    early: u64,
    /// Epochs with all peers.
    all: AtomicU64,
    /// For each peer, epochs with some of the peers, including this one.
    some: Box<[AtomicU64]>,
    /// The largest of `some`.
    most: AtomicU64,
    /// Epochs that kernels have made, with all peers. Only the half's stream writes this.
    by_kernels: AtomicU64,
    /// Whether the half was ever lent to a kernel.
    is_lent: AtomicBool,
    /// Whether half of the epochs are for kernels of a GPU, which the host does not count.
    is_halved: AtomicBool,
}

/// The epochs of a recording in one replay.
#[derive(Default)]
pub(crate) struct RecordedEpochs(Vec<(Arc<Epochs>, u64, Vec<u64>)>);

impl Epochs {
    /// The count for a half with these peers. It begins at `before`. When the window opens, each origin has `early` more
    /// exposures.
    pub(crate) fn new(
        window: WindowName,
        half: HalfKind,
        ranks: Box<[usize]>,
        before: u64,
        early: u64,
    ) -> Arc<Self> {
        Arc::new(Epochs {
            window,
            half,
            early,
            all: AtomicU64::new(before),
            some: ranks.iter().map(|_| AtomicU64::new(0)).collect(),
            ranks,
            most: AtomicU64::new(0),
            by_kernels: AtomicU64::new(0),
            is_lent: AtomicBool::new(false),
            is_halved: AtomicBool::new(false),
        })
    }

    /// Refuses an epoch that would be one too many.
    #[inline]
    pub(crate) fn admit(&self, members: Option<&[usize]>) -> Result<()> {
        self.admit_more(members, 1)
    }

    /// Like [`Epochs::admit`], for so many epochs.
    pub(crate) fn admit_more(&self, members: Option<&[usize]>, epochs: u64) -> Result<()> {
        let some = match members {
            None => self.most.load(Relaxed),
            Some(members) => members.iter().map(|peer| self.of(*peer)).max().unwrap_or(0),
        };
        self.check(self.all.load(Relaxed).saturating_add(some), epochs)
    }

    /// Counts an epoch that has been enqueued.
    #[inline]
    pub(crate) fn count(&self, members: Option<&[usize]>) {
        match members {
            None => more(&self.all, 1),
            Some(members) => members.iter().for_each(|peer| self.add(*peer, 1)),
        }
    }

    /// Whether this rank has no epochs left with any of these peers (with all of them if `members` is `None`). They
    /// have none left with this rank either, so none of them waits for another. (Not if kernels have half of the epochs
    /// here: then the peers may have some left.)
    pub(crate) fn are_over(&self, members: Option<&[usize]>) -> bool {
        if self.is_halved.load(Relaxed) {
            return false;
        }
        let fewest = match members {
            None => self.some.iter().map(|some| some.load(Relaxed)).min(),
            Some(members) => members.iter().map(|peer| self.of(*peer)).min(),
        };
        fewest.is_some_and(|some| {
            self.check(self.all.load(Relaxed).saturating_add(some), 1)
                .is_err()
        })
    }

    /// For each peer: its rank, the epochs that were enqueued with it, and the exposures that it had at first.
    pub(crate) fn with_each(&self) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let all = self.all.load(Relaxed);
        let ranks = self.ranks.iter().zip(&self.some);
        ranks.map(move |(rank, some)| (*rank, all + some.load(Relaxed), self.early))
    }

    /// The window that the half belongs to.
    pub(crate) fn window(&self) -> &WindowName {
        &self.window
    }

    fn of(&self, peer: usize) -> u64 {
        self.some[peer].load(Relaxed)
    }

    fn add(&self, peer: usize, epochs: u64) {
        more(&self.some[peer], epochs);
        self.most
            .store(self.of(peer).max(self.most.load(Relaxed)), Relaxed);
    }

    /// Counts an epoch that a kernel begins, and refuses it if it would be one too many. It knows the epochs that are
    /// enqueued behind the kernel. The host may enqueue one more at this moment, which the limit has room for.
    pub(crate) fn begin_by_kernel(&self) -> Result<()> {
        self.admit(None)?;
        more(&self.by_kernels, 1);
        Ok(())
    }

    /// Notes that kernels of a GPU make epochs, which the host does not count. From now on the host has half of the
    /// epochs, and kernels have the other half: they compare with what the words have counted in all.
    pub(crate) fn halve(&self) {
        self.is_halved.store(true, Relaxed);
    }

    /// Notes that the half is lent to a kernel.
    pub(crate) fn note_lent(&self) {
        self.is_lent.store(true, Relaxed);
    }

    /// Whether the half was ever lent to a kernel. Then the host does not know how many epochs it has had.
    pub(crate) fn is_lent(&self) -> bool {
        self.is_lent.load(Relaxed)
    }

    fn check(&self, before: u64, more: u64) -> Result<()> {
        let before = before.saturating_add(self.by_kernels.load(Relaxed));
        let most = match self.is_halved.load(Relaxed) {
            true => MOST / 2,
            false => MOST,
        };
        if before.saturating_add(more) <= most {
            Ok(())
        } else {
            Err(Error::Epoch(EpochError::LastEpoch {
                window: self.window.clone(),
                most,
            }))
        }
    }
}

/// Adds to a number of epochs. Each half has one owner at a time, so there is only one writer.
fn more(epochs: &AtomicU64, more: u64) {
    epochs.store(epochs.load(Relaxed) + more, Relaxed);
}

impl RecordedEpochs {
    /// Notes one epoch of a half.
    pub(crate) fn note(&mut self, epochs: &Arc<Epochs>, members: Option<&[usize]>) {
        let (all, some) = self.of(epochs);
        match members {
            None => *all += 1,
            Some(members) => members.iter().for_each(|peer| some[*peer] += 1),
        }
    }

    /// Notes a half whose epochs are made by a kernel of the recording.
    pub(crate) fn note_lent(&mut self, epochs: &Arc<Epochs>) {
        self.of(epochs);
    }

    /// Adds what another stream of the same recording has noted.
    pub(crate) fn extend(&mut self, other: Self) {
        for (epochs, more_of_all, more_of_some) in other.0 {
            let (all, some) = self.of(&epochs);
            *all += more_of_all;
            some.iter_mut()
                .zip(more_of_some)
                .for_each(|(some, more)| *some += more);
        }
    }

    fn of(&mut self, epochs: &Arc<Epochs>) -> (&mut u64, &mut [u64]) {
        let known = self.0.iter().position(|(it, ..)| Arc::ptr_eq(it, epochs));
        let index = known.unwrap_or_else(|| {
            let none = vec![0; epochs.some.len()];
            self.0.push((epochs.clone(), 0, none));
            self.0.len() - 1
        });
        let (_, all, some) = &mut self.0[index];
        (all, some)
    }

    /// Refuses `times` replays if a half would have too many epochs by them.
    pub(crate) fn admit(&self, times: u64) -> Result<()> {
        for (epochs, all, some) in &self.0 {
            let all = (epochs.all.load(Relaxed)).saturating_add(all.saturating_mul(times));
            let of = |(peer, more): (usize, &u64)| {
                (epochs.of(peer)).saturating_add(more.saturating_mul(times))
            };
            let most = some.iter().enumerate().map(of).max().unwrap_or(0);
            epochs.check(all, most)?;
        }
        Ok(())
    }

    /// The halves that have epochs in the recording.
    pub(crate) fn halves(&self) -> impl Iterator<Item = &Epochs> {
        self.0.iter().map(|(epochs, ..)| &**epochs)
    }

    /// Counts `times` replays, which have been submitted.
    pub(crate) fn took(&self, times: u64) {
        for (epochs, all, some) in &self.0 {
            more(&epochs.all, all * times);
            for (peer, more) in some.iter().enumerate().filter(|(_, more)| **more != 0) {
                epochs.add(peer, more * times);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_hal::ids::{TeamId, WindowId};

    use super::*;

    fn window() -> WindowName {
        WindowName {
            name: "w".into(),
            id: WindowId::first(TeamId::WORLD),
        }
    }

    fn is_last(refused: Result<()>) -> bool {
        matches!(
            refused,
            Err(Error::Epoch(EpochError::LastEpoch { most: MOST, .. }))
        )
    }

    #[test]
    fn each_peer_has_epochs_of_its_own() {
        let epochs = Epochs::new(window(), HalfKind::Outbox, [4, 5, 6].into(), MOST - 4, 0);
        (0..4).for_each(|_| epochs.add(1, 1));
        assert!(is_last(epochs.admit(Some(&[0, 1]))));
        assert!(is_last(epochs.admit(None)));
        let over = [None, Some(&[0, 1][..]), Some(&[1]), Some(&[])].map(|of| epochs.are_over(of));
        assert_eq!(over, [false, false, true, false]);
        epochs.admit(Some(&[0, 2])).unwrap();
        (0..4).for_each(|_| epochs.add(2, 1));
        assert!(is_last(epochs.admit(Some(&[2]))));
        epochs.admit(Some(&[0])).unwrap();
        epochs.admit(Some(&[])).unwrap();
        epochs.add(0, 4);
        assert!(epochs.are_over(None));
    }

    #[test]
    fn half_of_the_epochs_are_for_kernels_of_a_gpu() {
        let epochs = Epochs::new(window(), HalfKind::Inbox, [4].into(), MOST / 2 - 2, 0);
        epochs.halve();
        epochs.admit_more(None, 2).unwrap();
        let most = MOST / 2;
        let refused = epochs.admit_more(None, 3).unwrap_err();
        assert!(
            matches!(refused, Error::Epoch(EpochError::LastEpoch { most: said, .. }) if said == most)
        );
        (0..2).for_each(|_| epochs.count(None));
        // The peer has epochs left, so it must hear of a failure.
        assert!(epochs.admit(None).is_err() && !epochs.are_over(None));
    }

    #[test]
    fn recordings_of_two_streams_are_one() {
        let epochs = Epochs::new(window(), HalfKind::Outbox, [4, 5].into(), MOST - 10, 0);
        let (mut one, mut two) = (RecordedEpochs::default(), RecordedEpochs::default());
        one.note(&epochs, None);
        one.note(&epochs, Some(&[0]));
        two.note(&epochs, Some(&[0]));
        two.note(&epochs, Some(&[1]));
        one.extend(two);
        // Three with peer 0, two with peer 1.
        one.admit(3).unwrap();
        assert!(is_last(one.admit(4)));
        assert!(is_last(one.admit(u64::MAX)));
        one.took(3);
        assert!(is_last(one.admit(1)));
        epochs.admit(Some(&[0])).unwrap();
        epochs.add(0, 1);
        assert!(is_last(epochs.admit(Some(&[0]))));
        epochs.admit(Some(&[1])).unwrap();
    }
}
