//! The operations of a wire, and their events.

/// The highest bit of a notice. It says that the notice must not overtake earlier ones.
pub const LAST: u64 = 1 << 63;

/// The limits of a wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of one write or read; at least 8.
    pub bytes: usize,
    /// The most operations in progress at a time; at least 1.
    pub depth: usize,
}

/// Whether the wire has accepted an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// It has, and an event with the operation's cookie will come.
    Taken,
    /// It has not, for now. Nothing was done.
    Full,
}

/// An event of a wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The operation with this cookie is over, here or at both ends: see the [module](super).
    Done(u64),
    /// The operation with this cookie has failed, for this reason. It is over at this end, and no longer touches memory
    /// here. (The other end may have received some of it, or all.)
    Failed(u64, String),
    /// A peer has sent a notice.
    Notice(u64),
    /// A work of a chain is complete, so chains should be polled.
    Moved,
    /// The operation of a chain with this context has failed, and why.
    Broken(usize, String),
    /// Peers have written here, and may have added to words.
    Written,
}

/// One operation. `R` is a peer's registered memory, as its wire knows it.
pub enum Op<'a, R> {
    /// Copies from here to there, and brings a notice with the data if there is one.
    Write {
        /// The bytes.
        from: *const u8,
        /// How many.
        bytes: usize,
        /// Where they go.
        to: &'a R,
        /// Bytes from the beginning of that memory.
        offset: usize,
        /// For the peer's agent.
        notice: Option<u64>,
    },
    /// Copies from there to here.
    Read {
        /// Where the bytes go.
        to: *mut u8,
        /// How many.
        bytes: usize,
        /// Where they come from.
        from: &'a R,
        /// Bytes from the beginning of that memory.
        offset: usize,
    },
    /// Brings a notice.
    Notify(u64),
}

impl<'a, R> Op<'a, R> {
    /// The same operation for another wire. `remote` says what a peer's memory is to that wire.
    pub fn handed_on<S>(self, remote: impl FnOnce(&'a R) -> &'a S) -> Op<'a, S> {
        match self {
            Op::Write {
                from,
                bytes,
                to,
                offset,
                notice,
            } => Op::Write {
                from,
                bytes,
                to: remote(to),
                offset,
                notice,
            },
            Op::Read {
                to,
                bytes,
                from,
                offset,
            } => Op::Read {
                to,
                bytes,
                from: remote(from),
                offset,
            },
            Op::Notify(notice) => Op::Notify(notice),
        }
    }
}
