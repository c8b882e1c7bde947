//! The other ranks of a leader's node.

use crate::door::{Parcel, Passage};
use crate::ready::Crowd;
use rustix::event::PollFlags;
use std::os::fd::{AsFd, BorrowedFd};
use tidegate_hal::tell;

/// How many parcels for one member, and parcels for how many members, wait until all that can be read has been read. A
/// member to which several parcels go wakes once for them.
const MOST_QUEUED: usize = 16;

#[derive(Debug)]
struct Member {
    rank: usize,
    /// `None`: the member has not come yet, or has gone.
    passage: Option<Passage>,
}

#[derive(Debug)]
pub(crate) struct Members {
    /// In ascending order of the ranks.
    all: Vec<Member>,
    /// The passages of all members, by index.
    crowd: Crowd,
    /// The members to which parcels are still to be sent, by index.
    unsent: Vec<usize>,
}

impl Members {
    /// Members that have not come yet. The ranks are in ascending order.
    pub(super) fn new(ranks: &[usize]) -> std::io::Result<Self> {
        let absent = |rank: &usize| Member {
            rank: *rank,
            passage: None,
        };
        Ok(Self {
            all: ranks.iter().map(absent).collect(),
            crowd: Crowd::new()?,
            unsent: Vec::new(),
        })
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn rank(&self, index: usize) -> usize {
        self.all[index].rank
    }

    pub(super) fn position(&self, rank: usize) -> Option<usize> {
        self.all
            .binary_search_by_key(&rank, |member| member.rank)
            .ok()
    }

    pub(super) fn passage(&mut self, index: usize) -> Option<&mut Passage> {
        self.all.get_mut(index)?.passage.as_mut()
    }

    /// Lets a member in.
    pub(super) fn let_in(&mut self, rank: usize, passage: Passage) -> std::io::Result<()> {
        match self.position(rank) {
            Some(index) if self.all[index].passage.is_none() => {
                self.crowd.add(&passage, index)?;
                self.all[index].passage = Some(passage);
            }
            _ => {
                tell(|| tracing::warn!(rank, "refused a second connection of a rank of this node"))
            }
        }
        Ok(())
    }

    pub(super) fn have_all_come(&self) -> bool {
        self.all.iter().all(|member| member.passage.is_some())
    }

    pub(super) fn close(&mut self, index: usize) {
        if let Some(passage) = self.all[index].passage.take() {
            self.crowd.remove(&passage);
        }
    }

    /// Sends a parcel to the member that it is for. If that one is gone, the descriptors are closed.
    pub(super) fn pass_on(&mut self, parcel: Parcel) {
        let Some(index) = self.position(parcel.to) else {
            return;
        };
        let Some(passage) = self.passage(index) else {
            return;
        };
        passage.push(parcel);
        let is_long = passage.len() >= MOST_QUEUED;
        if !self.unsent.contains(&index) {
            self.unsent.push(index);
        }
        // This process has room for few descriptors.
        if is_long || self.unsent.len() >= MOST_QUEUED {
            self.flush();
        }
    }

    /// Sends what can be sent. Returns the ranks that take nothing any more.
    pub(super) fn flush(&mut self) -> Vec<usize> {
        let mut broken = Vec::new();
        self.unsent.retain(|index| {
            let Member { rank, passage } = &mut self.all[*index];
            let Some(passage) = passage else {
                return false;
            };
            if let Err(error) = passage.flush() {
                tell(|| tracing::debug!(rank, %error, "the passage to a rank of this node ended"));
                broken.push(*rank);
            }
            // The next attempt fails in the same way, until the member is forgotten.
            !passage.is_empty()
        });
        broken
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.unsent_passages().next().is_none()
    }

    pub(super) fn is_throttled(&self) -> bool {
        self.unsent_passages().any(|(_, passage)| passage.throttled)
    }

    fn unsent_passages(&self) -> impl Iterator<Item = (usize, &Passage)> {
        let passage = |index: &usize| Some((*index, self.all[*index].passage.as_ref()?));
        self.unsent.iter().filter_map(passage)
    }

    /// The members of which something can be read, by index.
    pub(super) fn readable(&self) -> Vec<usize> {
        self.crowd.readable()
    }

    /// What to wait for: the crowd (`None`), and members that could take nothing more, by index.
    pub(super) fn interest<'a>(
        &'a self,
        mut add: impl FnMut(Option<usize>, BorrowedFd<'a>, PollFlags),
    ) {
        add(None, self.crowd.as_fd(), PollFlags::IN);
        for (index, passage) in self.unsent_passages() {
            if passage.wants_write() {
                add(Some(index), passage.as_fd(), PollFlags::OUT);
            }
        }
    }
}
