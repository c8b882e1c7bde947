//! What a notice says: which word a quantum is to be added to.
//!
//! # Model
//!
//! 64 bits, made by the origin and carried out by the target's agent, which alone touches the target's words: so an add by a notice is atomic with everything that the target does to them.
//!
//! | bits | what |
//! |---|---|
//! | 63 | poison the word, instead of adding a quantum |
//! | 55 to 62 | the number of the target's registration in which the bell begins |
//! | 31 to 54 | that of the word |
//! | 0 to 30 | where the word is in it, in words of 8 bytes |
//!
//! Numbers are given once in the life of an endpoint: a notice that comes late, when its window is gone, names nothing.

use tidegate_hal::nic::NicError;

const POISON: u64 = 1 << 63;
const BELL_BITS: u32 = 8;
const REGION_BITS: u32 = 24;
const OFFSET_BITS: u32 = 31;

/// A notice, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) bell: u32,
    pub(crate) word: u32,
    /// In bytes.
    pub(crate) offset: usize,
    pub(crate) poison: bool,
}

impl Notice {
    /// How many registrations notices can tell apart. (Bells are among the first, since a rank registers its own when it joins.)
    pub(crate) const REGIONS: u32 = 1 << REGION_BITS;

    pub(crate) fn encode(self) -> Result<u64, NicError> {
        let words = (self.offset / 8) as u64;
        let fits = self.offset.is_multiple_of(8)
            && words < 1 << OFFSET_BITS
            && self.bell < 1 << BELL_BITS
            && self.word < Self::REGIONS;
        if !fits {
            return Err(NicError::BadKey(format!(
                "no notice can name a word at byte {} of registration {}",
                self.offset, self.word
            )));
        }
        let poison = if self.poison { POISON } else { 0 };
        let regions = u64::from(self.bell) << REGION_BITS | u64::from(self.word);
        Ok(poison | regions << OFFSET_BITS | words)
    }

    pub(crate) fn decode(bits: u64) -> Self {
        let part = |from: u32, bits_wide: u32| (bits >> from) & ((1 << bits_wide) - 1);
        Notice {
            bell: part(OFFSET_BITS + REGION_BITS, BELL_BITS) as u32,
            word: part(OFFSET_BITS, REGION_BITS) as u32,
            offset: part(0, OFFSET_BITS) as usize * 8,
            poison: bits & POISON != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Notice;

    #[test]
    fn notices_come_back_as_they_were() {
        for poison in [false, true] {
            for (bell, word, offset) in [
                (0, 0, 0),
                (1, 2, 64),
                (255, (1 << 24) - 1, ((1 << 31) - 1) * 8),
            ] {
                let notice = Notice {
                    bell,
                    word,
                    offset,
                    poison,
                };
                assert_eq!(Notice::decode(notice.encode().unwrap()), notice);
            }
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |bell, word, offset| {
            let notice = Notice {
                bell,
                word,
                offset,
                poison: false,
            };
            notice.encode().is_err()
        };
        assert!(refused(256, 0, 0) && refused(0, 1 << 24, 0));
        assert!(refused(0, 0, 4) && refused(0, 0, 1 << 34));
    }
}
