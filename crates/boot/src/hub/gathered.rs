//! What ranks say in an exchange, until all are told.

use crate::wire::Said;

/// How many bytes of an exchange go into one message, unless one rank says more.
const MOST_GATHERED: usize = 64 << 10;

/// What ranks have said in the open exchange of a team, and the others have not been told. Each message costs all
/// members something, so one message tells what many ranks say.
#[derive(Debug, Default)]
pub(super) struct Gathered {
    said: Vec<Said>,
    bytes: usize,
}

impl Gathered {
    /// Whether it should be told before so many bytes are added.
    pub(super) fn has_much(&self, more: usize) -> bool {
        self.bytes + more > MOST_GATHERED
    }

    pub(super) fn add(&mut self, said: Said) {
        self.bytes += said.bytes.len();
        self.said.push(said);
    }

    pub(super) fn take(self) -> Vec<Said> {
        self.said
    }
}
