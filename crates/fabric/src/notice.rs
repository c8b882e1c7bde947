//! The 64 bits of a notice: one word, or two, to which a quantum is to be added.
//!
//! # Model
//!
//! The origin makes a notice, and the target's agent carries it out. Only the agent touches the target's words. So an
//! add by a notice is atomic with everything that the target does to them.
//!
//! | bits | meaning |
//! |---|---|
//! | 63 | poison the word, instead of adding a quantum |
//! | 51 to 62 | a second word that also gets a quantum: its distance from the first, in words of 8 bytes, with a sign, up to 1024; 0 if there is none. A value below that range: the notice is a *part*, one of 2, 3, … 4097 |
//! | 49, 50 | the number of the second word's quantum; for a part, the lowest two bits of the number of parts |
//! | 47, 48 | the number of the word's quantum: how many the word counts before this one, modulo 4 |
//! | 43 to 46 | the number of the target's registration in which the bell begins |
//! | 19 to 42 | the number of the registration that contains the word |
//! | 0 to 18 | the place of the word in it, in words of 8 bytes |
//!
//! An endpoint gives each number of a registration only once. So a notice that arrives after its window is gone names
//! nothing. The numbers of quanta show what is missing: the next quantum does not replace one that was lost, or that it
//! has overtaken. An origin is at most two quanta ahead of what its target has heard, since it needs exposures.

use tidegate_hal::nic::NicError;

/// The bit that says that a notice poisons its word. It is the bit for the last notice: if a poison overtook a quantum,
/// the quantum would seem to be lost.
const POISON: u64 = crate::wire::LAST;
const OFFSET_BITS: u32 = 19;
const REGION_BITS: u32 = 24;
const BELL_BITS: u32 = 4;
const NUMBER_BITS: u32 = 2;
const FURTHER_BITS: u32 = 12;
const REGION_AT: u32 = OFFSET_BITS;
const BELL_AT: u32 = REGION_AT + REGION_BITS;
const NUMBER_AT: u32 = BELL_AT + BELL_BITS;
const OTHER_NUMBER_AT: u32 = NUMBER_AT + NUMBER_BITS;
const FURTHER_AT: u32 = OTHER_NUMBER_AT + NUMBER_BITS;
/// The farthest that another word can be, in words.
const FARTHEST: i64 = 1 << (FURTHER_BITS - 2);
/// The value instead of a distance that says that a notice is one of two parts, or of up to five; the next value says
/// up to nine.
const FEWEST: i64 = -(1 << (FURTHER_BITS - 1));
const _: () = assert!(FURTHER_AT + FURTHER_BITS == 63);

/// A notice, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) bell: u32,
    pub(crate) word: u32,
    /// The offset of the word in bytes.
    pub(crate) offset: usize,
    /// The number of the quantum, modulo [`Notice::NUMBERS`].
    pub(crate) number: u64,
    /// The distance to the other word in bytes, and the number of its quantum.
    pub(crate) further: Option<(isize, u64)>,
    /// The number of parts, if the notice is for one part of the data; all together bring the quantum. Then there is no
    /// other word.
    pub(crate) one_of: Option<u32>,
    pub(crate) poison: bool,
}

/// The same notice, for the quantum with this number.
pub(crate) fn numbered(notice: u64, number: u64) -> u64 {
    notice | part(number, 0, NUMBER_BITS) << NUMBER_AT
}

/// The same notice, for each of `parts` parts of the data. It names one word, and is no poison.
///
/// # Panics
///
/// If there are fewer than two, or more than [`Notice::PARTS`].
pub(crate) fn one_of(notice: u64, parts: usize) -> u64 {
    assert!((2..=Notice::PARTS).contains(&parts), "{parts} parts");
    let more = parts as u64 - 2;
    let which = FEWEST + (more >> NUMBER_BITS) as i64;
    notice
        | part(which as u64, 0, FURTHER_BITS) << FURTHER_AT
        | part(more, 0, NUMBER_BITS) << OTHER_NUMBER_AT
}

fn part(bits: u64, from: u32, wide: u32) -> u64 {
    (bits >> from) & ((1 << wide) - 1)
}

impl Notice {
    /// How many registrations notices can distinguish. (Bells are among the first, because a rank registers its own
    /// when it joins.)
    pub(crate) const REGIONS: u32 = 1 << REGION_BITS;
    /// How many numbers of quanta notices can distinguish.
    pub(crate) const NUMBERS: u64 = 1 << NUMBER_BITS;
    /// The most parts that a signal may have.
    pub(crate) const PARTS: usize = 1 + (((-FARTHEST - FEWEST) as usize) << NUMBER_BITS);

    pub(crate) fn encode(self) -> Result<u64, NicError> {
        let words = (self.offset / 8) as u64;
        let (further, other) = self.further.unwrap_or((0, 0));
        let further = further / 8;
        debug_assert!(self.one_of.is_none(), "what stands for all is made first");
        let fits = self.offset.is_multiple_of(8)
            && words < 1 << OFFSET_BITS
            && self.bell < 1 << BELL_BITS
            && self.word < Self::REGIONS
            && further.unsigned_abs() as i64 <= FARTHEST;
        if !fits {
            return Err(NicError::BadKey(format!(
                "no notice can name a word at byte {} of registration {}",
                self.offset, self.word
            )));
        }
        let poison = if self.poison { POISON } else { 0 };
        let further = part(further as u64, 0, FURTHER_BITS) << FURTHER_AT
            | part(other, 0, NUMBER_BITS) << OTHER_NUMBER_AT;
        let regions = u64::from(self.bell) << BELL_AT | u64::from(self.word) << REGION_AT;
        Ok(numbered(poison | further | regions | words, self.number))
    }

    pub(crate) fn decode(bits: u64) -> Self {
        // The highest bit is the sign.
        let further = (part(bits, FURTHER_AT, FURTHER_BITS) << (64 - FURTHER_BITS)) as i64
            >> (64 - FURTHER_BITS);
        let other = part(bits, OTHER_NUMBER_AT, NUMBER_BITS);
        let is_part = further < -FARTHEST;
        let one_of =
            is_part.then_some(2 + (((further - FEWEST) as u32) << NUMBER_BITS) + other as u32);
        Notice {
            bell: part(bits, BELL_AT, BELL_BITS) as u32,
            word: part(bits, REGION_AT, REGION_BITS) as u32,
            offset: part(bits, 0, OFFSET_BITS) as usize * 8,
            number: part(bits, NUMBER_AT, NUMBER_BITS),
            further: (further != 0 && !is_part).then_some((further as isize * 8, other)),
            one_of,
            poison: bits & POISON != 0,
        }
    }

    /// One notice that replaces two, if possible: both words get a quantum, are of one registration, and are near each
    /// other.
    pub(crate) fn pair(one: u64, other: u64) -> Option<u64> {
        let (one, other) = (Self::decode(one), Self::decode(other));
        let plain =
            |notice: Notice| notice.further.is_none() && notice.one_of.is_none() && !notice.poison;
        let same = (one.bell, one.word) == (other.bell, other.word) && one.offset != other.offset;
        if !(same && plain(one) && plain(other)) {
            return None;
        }
        let further = Some((other.offset as isize - one.offset as isize, other.number));
        Notice { further, ..one }.encode().ok()
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
                (15, (1 << 24) - 1, ((1 << 19) - 1) * 8),
            ] {
                let notice = Notice {
                    bell,
                    word,
                    offset,
                    number: 0,
                    further: None,
                    one_of: None,
                    poison,
                };
                let bits = notice.encode().unwrap();
                assert_eq!(Notice::decode(bits), notice);
                let number = 6;
                let bits = super::numbered(bits, number);
                assert_eq!(
                    Notice::decode(bits),
                    Notice {
                        number: 2,
                        ..notice
                    }
                );
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_are_refused() {
        let refused = |bell, word, offset| {
            let notice = Notice {
                bell,
                word,
                offset,
                number: 0,
                further: None,
                one_of: None,
                poison: false,
            };
            notice.encode().is_err()
        };
        assert!(refused(16, 0, 0) && refused(0, 1 << 24, 0));
        assert!(refused(0, 0, 4) && refused(0, 0, 1 << 22));
    }

    #[test]
    fn parts_say_how_many_there_are() {
        let whole = Notice {
            bell: 15,
            word: (1 << 24) - 1,
            offset: ((1 << 19) - 1) * 8,
            number: 3,
            further: None,
            one_of: None,
            poison: false,
        };
        let bits = whole.encode().unwrap();
        for parts in 2..=Notice::PARTS {
            let part = super::one_of(bits, parts);
            let one_of = Some(parts as u32);
            assert_eq!(Notice::decode(part), Notice { one_of, ..whole });
            // A part takes no other word along.
            let other = Notice { offset: 0, ..whole }.encode().unwrap();
            assert_eq!(Notice::pair(part, other), None);
        }
        // No distance is mistaken for a number of parts.
        let far = |words: isize| {
            let further = Some((8 * words, 1));
            Notice { further, ..whole }.encode()
        };
        for words in [-1024, -1023, 1024] {
            let said = Notice::decode(far(words).unwrap());
            assert_eq!((said.further, said.one_of), (Some((8 * words, 1)), None));
        }
        for words in [-1025, -2048, 1025, 2048] {
            assert!(far(words).is_err());
        }
    }

    #[test]
    fn two_in_one() {
        let notice = |bell, word, offset, poison| {
            let notice = Notice {
                bell,
                word,
                offset,
                number: offset as u64 / 8 % 3,
                further: None,
                one_of: None,
                poison,
            };
            notice.encode().unwrap()
        };
        let far = 64 * 127;
        for (one, other) in [(0, 8), (8, 0), (64, 64 + far), (64 + far, 64)] {
            let pair = Notice::pair(notice(1, 7, one, false), notice(1, 7, other, false));
            let said = Notice::decode(pair.unwrap());
            assert_eq!((said.bell, said.word, said.poison), (1, 7, false));
            assert_eq!((said.offset, said.number), (one, one as u64 / 8 % 3));
            let (further, number) = said.further.unwrap();
            assert_eq!(
                one.checked_add_signed(further),
                Some(other),
                "{one} and {other}"
            );
            assert_eq!(number, other as u64 / 8 % 3);
        }
        let one = notice(1, 7, 64, false);
        for other in [
            notice(1, 7, 64, false),
            notice(1, 8, 0, false),
            notice(2, 7, 0, false),
            notice(1, 7, 0, true),
            notice(1, 7, 64 + (8 << 10) + 8, false),
        ] {
            assert_eq!(Notice::pair(one, other), None);
            assert_eq!(Notice::pair(other, one), None);
        }
        let pair = Notice::pair(one, notice(1, 7, 0, false)).unwrap();
        assert_eq!(Notice::pair(pair, notice(1, 7, 128, false)), None);
    }
}
