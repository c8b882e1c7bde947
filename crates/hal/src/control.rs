//! The control plane: how the ranks of a job meet, exchange handles, and learn that a rank has ended.
//!
//! # Model
//!
//! A job has `size` ranks, and each holds one [`Control`]. No data goes through it. It is used when a window is opened
//! ([`Control::confer`]), when the ranks tell each other results ([`Control::exchange`]), and when something is revoked
//! or reported ([`Control::notify`]). The service behind it watches the peers, and calls the [`Sink`].
//!
//! # Teams
//!
//! Some ranks can make a *team* ([`Control::found`]), which has collective calls of its own. A rank may be in calls of
//! several teams at a time, by several threads. Everything here gives ranks the numbers that they have in the job, also
//! in the calls of a team.
//!
//! # Growth
//!
//! Everything that a job does often goes through [`Control::confer`]. A rank sends letters to the ranks that they
//! concern, and hears one decision, whatever the number of ranks. An exchange brings each rank as many bytes as all
//! ranks contribute, so it is for small things that all must know.
//!
//! # Failure
//!
//! A peer that dies, or that leaves while others still need it, is an [`Event`]. It also ends every collective call of
//! its teams to which it had not yet come. Such a call has no time limit of its own, because ranks may be unequally
//! busy without any error.

use std::any::Any;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use crate::ids::TeamId;
use crate::process::Forked;

/// Names a piece of memory, so that a peer can map it.
#[derive(Clone, Debug)]
pub enum Handle {
    /// A file descriptor (a memfd, an exported device allocation); a process that holds it keeps the memory alive. All
    /// clones of the handle are the same descriptor.
    Fd(Arc<OwnedFd>),
    /// Memory of this process, for ranks that are threads.
    Local(Arc<dyn Any + Send + Sync>),
    /// A handle that was sent and did not arrive, because a process had no room for it. The text says which process,
    /// and names the limit. A rank that tries to map it gets an error; the call that brings it succeeds.
    Lost(String),
    /// Bytes by which a [`Bus`](crate::far::Bus) reaches the memory. Only a control plane that was made for the bus
    /// carries them.
    Key(Vec<u8>),
}

/// What one rank sends to another, with a [`Letter`].
#[derive(Clone, Debug, Default)]
pub struct Packet {
    /// Opaque bytes; at most [`Packet::MAX_BYTES`].
    pub bytes: Vec<u8>,
    /// Handles; at most [`Packet::MAX_HANDLES`]. Only peers of the same node receive them.
    pub handles: Vec<Handle>,
}

impl Packet {
    /// The most bytes one packet may carry.
    pub const MAX_BYTES: usize = 1 << 20;
    /// The most handles one packet may carry.
    pub const MAX_HANDLES: usize = 8;
    /// The most bytes of the label of a call, or of the name of a team.
    pub const MAX_LABEL: usize = 4096;
}

/// What one rank brings to [`Control::confer`].
#[derive(Clone, Debug, Default)]
pub struct Proposal {
    /// What the rank says of the matter, at most [`Packet::MAX_BYTES`] together with the reason of its objection. The
    /// others hear of it only if the ranks differ.
    pub header: Vec<u8>,
    /// How many bytes at the beginning of the header must be the same on all ranks.
    pub alike: usize,
    /// Each rank gets the bits that any rank has set.
    pub flags: u32,
    /// Why this rank refuses, if it does.
    pub objection: Option<Objection>,
    /// What it tells single ranks, perhaps itself: at most one letter for each, in ascending order of the ranks.
    pub letters: Vec<Letter>,
}

impl Proposal {
    /// The bytes that must be the same on all ranks.
    pub fn compared(&self) -> &[u8] {
        &self.header[..self.alike.min(self.header.len())]
    }
}

/// Why a rank refuses what the ranks confer about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Objection {
    /// The kind of objection. If several ranks object, the least kind counts.
    pub kind: u8,
    /// The text or value that all ranks hear, if this is the lowest rank with an objection of this kind.
    pub reason: Vec<u8>,
}

/// What one rank tells another in [`Control::confer`].
#[derive(Clone, Debug)]
pub struct Letter {
    /// The receiver, in what a rank brings; the sender, in what it gets.
    pub rank: usize,
    /// The content.
    pub packet: Packet,
}

/// What the ranks have decided in [`Control::confer`]: the same on all ranks, but for the letters.
#[derive(Debug)]
pub enum Decision {
    /// No rank objects, and their headers do not differ.
    Agreed {
        /// The bits that any rank has set.
        flags: u32,
        /// The letters to this rank, in ascending order of their senders. The handles are duplicates.
        letters: Vec<Letter>,
    },
    /// What must be the same in the headers is not. This comes before all objections.
    Differs {
        /// The header of the lowest rank.
        first: Vec<u8>,
        /// The lowest rank whose header differs.
        rank: usize,
        /// Its header.
        other: Vec<u8>,
    },
    /// At least one rank objects.
    Refused {
        /// The least kind of all objections.
        kind: u8,
        /// The lowest ranks with objections of this kind, at most [`Decision::MOST_NAMED`] of them.
        ranks: Vec<usize>,
        /// The reason of the first of them.
        reason: Vec<u8>,
    },
}

impl Decision {
    /// How many ranks that refuse are named at most.
    pub const MOST_NAMED: usize = 16;
}

/// Something that happened to a peer, or that it said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The peer is gone without having said so: killed, crashed, or cut off.
    Lost {
        /// The rank that is lost.
        rank: usize,
        /// How it was noticed, for error messages.
        reason: String,
    },
    /// The peer ended its part of the job in good order.
    Left {
        /// The rank that has left.
        rank: usize,
    },
    /// A message sent by [`Control::notify`].
    Message {
        /// The rank that sent it.
        from: usize,
        /// What it sent.
        bytes: Vec<u8>,
    },
}

/// The name and the ranks of a team, as a text for people shows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The name of the team.
    pub name: String,
    /// Its ranks, in the order of the team.
    pub ranks: Vec<usize>,
}

impl Group {
    /// How many ranks the text names.
    const MOST_NAMED: usize = 16;
}

/// As in "`rows` of ranks 4, 5 and 7".
impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`{}` of rank", self.name)?;
        let ranks = &self.ranks;
        let named = &ranks[..ranks.len().min(Self::MOST_NAMED)];
        let left_out = ranks.len() - named.len();
        for (index, rank) in named.iter().enumerate() {
            match index {
                0 if ranks.len() == 1 => write!(f, " {rank}")?,
                0 => write!(f, "s {rank}")?,
                _ if index + 1 == ranks.len() => write!(f, " and {rank}")?,
                _ => write!(f, ", {rank}")?,
            }
        }
        match left_out {
            0 => Ok(()),
            _ => write!(f, " and {left_out} more"),
        }
    }
}

/// The reason that peers are given when a rank's program unwinds.
pub const PANICKED: &str = "its program has panicked";

/// Receives the events. The service calls it from its own thread, one event at a time. It must not block on the control
/// plane.
pub type Sink = Arc<dyn Fn(Event) + Send + Sync>;

/// Why a control-plane call failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ControlError {
    /// A rank ended, or withdrew, before it contributed to the collective call.
    #[error("rank {rank} will not come ({reason}); {label} takes all ranks")]
    PeerLost {
        /// The rank that will not come.
        rank: usize,
        /// The collective call, as this rank names it.
        label: String,
        /// How it was noticed.
        reason: String,
    },
    /// Two ranks are in different collective calls.
    #[error("ranks are in different collective calls: this one in {mine}, rank {rank} in {theirs}")]
    Mismatch {
        /// The other rank.
        rank: usize,
        /// What this rank called.
        mine: String,
        /// What the other rank called.
        theirs: String,
    },
    /// Two ranks make different teams, and each team needs the other rank.
    #[error("ranks make different teams: this one makes {mine}, rank {rank} makes {theirs}")]
    Teams {
        /// The other rank.
        rank: usize,
        /// The team that this rank makes.
        mine: Box<Group>,
        /// The team that the other rank makes.
        theirs: Box<Group>,
    },
    /// Something exceeds [`Packet::MAX_BYTES`] (some control planes take fewer), [`Packet::MAX_HANDLES`] or
    /// [`Packet::MAX_LABEL`].
    #[error(
        "{label}: {}; what is larger goes through a window, or by several calls",
        too_large(*.bytes, *.handles, *.most)
    )]
    TooLarge {
        /// The call, as this rank names it.
        label: String,
        /// Bytes in it.
        bytes: usize,
        /// The most that there may be.
        most: usize,
        /// Handles in it.
        handles: usize,
    },
    /// This rank has already left the job, or the service behind the control plane has ended.
    #[error("the control plane is closed: {0}")]
    Closed(String),
    /// This process was forked from the one that joined the job.
    #[error(transparent)]
    Forked(#[from] Forked),
    /// The job could not be joined; the text says at which step and why.
    #[error("cannot join the job: {0}")]
    Rendezvous(String),
    /// The operating system refused something.
    #[error("{what}: {source}")]
    Io {
        /// What was being done.
        what: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

/// Which of the two limits is exceeded.
fn too_large(bytes: usize, handles: usize, most: usize) -> String {
    if bytes > most {
        return format!("a rank brings at most {most} bytes to such a call, and this one {bytes}");
    }
    let most = Packet::MAX_HANDLES;
    format!("a rank brings at most {most} handles to such a call, and this one {handles}")
}

/// One rank's end of the control plane.
pub trait Control: Send + Sync + 'static {
    /// This rank, `0..size`.
    fn rank(&self) -> usize;

    /// How many ranks the job has; at least 1.
    fn size(&self) -> usize;

    /// Which node a rank runs on. Equal numbers can exchange [`Handle`]s.
    fn node(&self, rank: usize) -> usize;

    /// A collective over all ranks of a team: each tells all others the same bytes, and gets the bytes of all ranks in
    /// ascending order of the ranks, with its own.
    ///
    /// The n-th collective call of each rank in a team belongs to the n-th call of every other. The ranks' labels are
    /// compared, so that ranks that disagree about the next call get an error that names both. A label is a text for
    /// people ("opening a window").
    ///
    /// # Errors
    ///
    /// [`ControlError::PeerLost`] if a rank ends before contributing, [`ControlError::Mismatch`],
    /// [`ControlError::TooLarge`], [`ControlError::Closed`], [`ControlError::Forked`]. After any of them but `TooLarge`
    /// every later collective call of the team fails.
    fn exchange_in(
        &self,
        team: TeamId,
        label: &str,
        bytes: Vec<u8>,
    ) -> Result<Vec<Vec<u8>>, ControlError>;

    /// A collective over all ranks of a team: each tells some ranks something, and all come to one decision. It costs a
    /// rank its letters and one decision, however many ranks there are. Calls are matched like those of
    /// [`Control::exchange_in`].
    ///
    /// If the ranks do not agree, no rank gets a letter. A handle for which a process has no room is [`Handle::Lost`]
    /// in the letter.
    ///
    /// # Errors
    ///
    /// The errors of [`Control::exchange_in`]. That the ranks do not agree is no error, and the next call finds them in
    /// step.
    ///
    /// # Panics
    ///
    /// If a letter is for a rank that the team does not have, or if the letters are not in ascending order of the
    /// ranks.
    fn confer_in(
        &self,
        team: TeamId,
        label: &str,
        proposal: Proposal,
    ) -> Result<Decision, ControlError>;

    /// [`Control::exchange_in`] over all ranks of the job.
    ///
    /// # Errors
    ///
    /// The same.
    fn exchange(&self, label: &str, bytes: Vec<u8>) -> Result<Vec<Vec<u8>>, ControlError> {
        self.exchange_in(TeamId::WORLD, label, bytes)
    }

    /// [`Control::confer_in`] over all ranks of the job.
    ///
    /// # Errors
    ///
    /// The same.
    fn confer(&self, label: &str, proposal: Proposal) -> Result<Decision, ControlError> {
        self.confer_in(TeamId::WORLD, label, proposal)
    }

    /// Makes a team of these ranks, of which this rank is one. The call is collective over them. It waits until all of
    /// them have called with the same name and the same ranks in the same order.
    ///
    /// # Errors
    ///
    /// [`ControlError::Teams`] if a rank makes another team that has this rank, too. All ranks of both teams get it. So do
    /// those of a longer cycle of teams, in which each team waits for a rank that makes the next one.
    /// [`ControlError::PeerLost`], [`ControlError::TooLarge`], [`ControlError::Closed`], [`ControlError::Forked`].
    /// After an error, other teams can be made.
    ///
    /// # Panics
    ///
    /// If the ranks are not different ranks of the job, and this rank among them.
    fn found(&self, name: &str, ranks: &[usize]) -> Result<TeamId, ControlError>;

    /// Ends this rank's part in a team. Calls of the team that need the rank fail. When all ranks have ended theirs,
    /// nothing remains of the team, and another may get its number.
    fn dissolve(&self, team: TeamId);

    /// Sends `bytes` to every rank of `to` (or to all others, if `None`); does not wait. Messages of one
    /// sender arrive in order; messages to a rank that ended are lost.
    ///
    /// # Errors
    ///
    /// [`ControlError::TooLarge`], [`ControlError::Closed`], [`ControlError::Forked`].
    fn notify(&self, to: Option<&[usize]>, bytes: &[u8]) -> Result<(), ControlError>;

    /// Installs the receiver of events, in place of an earlier one. It first gets the events that came before.
    fn subscribe(&self, sink: Sink);

    /// Tells the peers that this rank ends its part in good order. Dropping a `Control` that has not left says the
    /// same, unless its thread panics. In a forked child, neither says anything.
    fn leave(&self);

    /// Tells the peers that this rank ends its part with an error. They receive [`Event::Lost`] with this reason, and
    /// a collective call to which it has not come names it. Dropping a `Control` while its thread panics does the same,
    /// with [`PANICKED`].
    fn fail(&self, reason: &str);

    /// Notes that a call of this rank's program fails because of what `rank` did, and the text about it. If the program
    /// then fails, its peers are told so, and the launcher. The first note counts, until a collective call succeeds. If
    /// `rank` is this rank, or has itself failed because of this rank, then this rank fails by itself.
    ///
    /// A control plane that gives no account of failures ignores the call, which is the default.
    fn follows(&self, rank: usize, why: &str) {
        let _ = (rank, why);
    }
}
