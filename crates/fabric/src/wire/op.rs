//! What a wire is asked to do, and what comes of that.

/// The highest bit of a notice: it is not to overtake what has come before it.
pub const LAST: u64 = 1 << 63;

/// What a wire can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of one write or read; at least 8.
    pub bytes: usize,
    /// The most operations that are under way at a time; at least 1.
    pub depth: usize,
}

/// Whether an operation was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Posted {
    /// An event with its cookie will come.
    Taken,
    /// Not now: nothing was done.
    Full,
}

/// What has happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// The operation with this cookie is over; see the module for where.
    Done(u64),
    /// It has failed, and why: it is over at this end, and touches memory of this end no more. (The other end may have got
    /// some of it, or all.)
    Failed(u64, String),
    /// A peer has sent a notice.
    Notice(u64),
    /// Something of a chain is complete: it is worth to be asked.
    Moved,
    /// The operation of a chain with this context has failed, and why.
    Broken(usize, String),
    /// Peers have written here, and maybe added to words.
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
