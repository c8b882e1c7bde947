//! What words count.

/// What one epoch adds to a word, however many blocks, copy engines or NICs took part.
pub const QUANTUM: u64 = 1 << 20;

/// The bit of a word that ends every wait whose count has not been reached.
///
/// It is not the top bit, because a stream memory operation compares `word - value` as a *signed* number. This bit makes
/// the difference greater whatever the count is, so such a wait ends too. With the top bit, a wait whose count had been
/// reached would begin again.
///
/// A device may set it by writing `0x40` to its byte, the last of the eight (bits 56 to 63). So no count may reach bit 56.
/// With a [`QUANTUM`] of 2^20, that is 2^36 epochs. Core refuses epochs with a peer beyond 2^36 - 2^20.
pub const POISON: u64 = 1 << 62;
