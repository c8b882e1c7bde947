//! The memory that this rank has registered, by number. Notices find their words and bells here.
//!
//! # Model
//!
//! A word counts the signals of one queue, and each quantum has a number. A quantum whose number is not the next one is
//! *early*: it has overtaken another, or the other was lost, for example with a connection. It is kept until those
//! before it have come. So one epoch's signal is never taken for another's, whatever the order of the network. A signal
//! that is lost is missing in the count for ever, and its origin finds that out.
//!
//! A signal may come in *parts*. Each part has a notice that says how many parts there are, and nothing orders them.
//! The signal has come when that many parts have. The thread that receives the last part has synchronised, by the
//! table's lock, with those that received the others. So its add to the word publishes the data of all parts.
//!
//! # Trust
//!
//! Anybody who reaches the endpoint can send it any 64 bits. A notice can ring bells and add to words, and nothing
//! else, and only those that were [declared](Signalled) when their memory was registered. All other notices are
//! [strays](crate::strays). Early signals and parts have a place in the table, of a few bytes for each word. With some
//! providers the network does not say who sent a notice. So a peer could add to the words of another: peers must be
//! trusted (see [`crate`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use tidegate_hal::batch::{POISON, QUANTUM};
use tidegate_hal::nic::{Keep, NicError, Signalled};
use tidegate_words::{Bell, Word};

use crate::base::{NAME, lock};
use crate::mail::Mail;
use crate::notice::Notice;
use crate::strays::Strays;

/// Registered memory of this rank.
struct Region {
    base: usize,
    words: Words,
    /// If this is mail, its words are for the engine.
    mail: Option<Arc<Mail>>,
    _keep: Keep,
}

/// The parts of it that notices may name.
enum Words {
    /// The bell at its beginning.
    Bell,
    /// Words from its beginning on, each this many bytes after the one before.
    Every(usize, Vec<Heard>),
}

/// Signals of a word that have arrived, at least in part, and cannot be added yet.
#[derive(Clone, Default)]
struct Heard {
    /// Signals that have overtaken others, by number.
    early: [bool; Notice::NUMBERS as usize],
    /// Signals of which some parts have arrived, by number: how many, and of how many.
    begun: [(u32, u32); Notice::NUMBERS as usize],
}

/// The table. No number is given twice.
#[derive(Default)]
pub(crate) struct Regions {
    table: Mutex<Table>,
    /// Whether letters have come that the engine has not read.
    has_letters: AtomicBool,
    strays: Arc<Strays>,
}

#[derive(Default)]
struct Table {
    /// Sorted by number, because each notice looks up its region on the way to a waiting stream.
    regions: Vec<(u32, Region)>,
    next: u32,
    /// The letters that have come, each by the number of its word.
    letters: Vec<(Arc<Mail>, usize)>,
}

/// The index of the region with this number.
fn find(regions: &[(u32, Region)], number: u32) -> Option<usize> {
    regions.binary_search_by_key(&number, |one| one.0).ok()
}

/// A number in the table, until it is dropped.
pub(crate) struct Numbered {
    table: Weak<Regions>,
    pub(crate) number: u32,
}

impl Drop for Numbered {
    fn drop(&mut self) {
        if let Some(table) = self.table.upgrade() {
            let mut inner = lock(&table.table);
            let at = find(&inner.regions, self.number);
            let region = at.map(|at| inner.regions.remove(at));
            drop(inner);
            // Outside the lock, because this may be the last to keep the memory.
            drop(region);
        }
    }
}

impl Regions {
    pub(crate) fn new(strays: Arc<Strays>) -> Self {
        Regions {
            table: Mutex::default(),
            has_letters: AtomicBool::new(false),
            strays,
        }
    }

    /// Gives memory a number.
    pub(crate) fn add(
        self: &Arc<Self>,
        base: *mut u8,
        bytes: usize,
        signalled: Signalled,
        keep: Keep,
    ) -> Result<Numbered, NicError> {
        self.number(base, bytes, signalled, None, keep)
    }

    /// Gives mail a number.
    pub(crate) fn add_mail(self: &Arc<Self>, mail: &Arc<Mail>) -> Result<Numbered, NicError> {
        let words = Signalled::Words {
            count: 2 * mail.lines(),
            step: size_of::<Word>(),
        };
        let (base, keep) = (mail.memory.at(0), mail.clone() as Keep);
        self.number(base, mail.bytes(), words, Some(mail.clone()), keep)
    }

    fn number(
        self: &Arc<Self>,
        base: *mut u8,
        bytes: usize,
        signalled: Signalled,
        mail: Option<Arc<Mail>>,
        keep: Keep,
    ) -> Result<Numbered, NicError> {
        let (align, end) = match signalled {
            Signalled::Bell => (align_of::<Bell>(), Some(size_of::<Bell>())),
            Signalled::Words { count: 0, .. } => (1, Some(0)),
            Signalled::Words { count, step } if step.is_multiple_of(size_of::<Word>()) => {
                let last = (count - 1).checked_mul(step);
                let end = last.and_then(|last| last.checked_add(size_of::<Word>()));
                (align_of::<Word>(), end)
            }
            Signalled::Words { .. } => (1, None),
        };
        if !base.addr().is_multiple_of(align) || end.is_none_or(|end| end > bytes) {
            return Err(NicError::Unsupported {
                nic: NAME,
                what: format!("{signalled:?} in {bytes} bytes at {base:p}"),
            });
        }
        let words = match signalled {
            Signalled::Bell => Words::Bell,
            Signalled::Words { count, step } => Words::Every(step, vec![Heard::default(); count]),
        };
        let mut table = lock(&self.table);
        let number = table.next;
        if number >= Notice::REGIONS {
            return Err(NicError::Exhausted {
                nic: NAME,
                what: "registrations",
                detail: format!("{number} were made in the life of this endpoint"),
            });
        }
        table.next += 1;
        let region = Region {
            base: base.expose_provenance(),
            words,
            mail,
            _keep: keep,
        };
        table.regions.push((number, region));
        Ok(Numbered {
            table: Arc::downgrade(self),
            number,
        })
    }

    /// Carries out a notice, if it names something that was declared.
    pub(crate) fn hear(&self, notice: Notice) {
        if let Err(why) = self.carry_out(notice) {
            self.strays.drops(why);
        }
    }

    /// Whether letters have come that the engine has not read.
    #[inline]
    pub(crate) fn has_letters(&self) -> bool {
        self.has_letters.load(Ordering::Acquire)
    }

    /// The letters that have come since the last call: for each, its mail, and the number of its word.
    pub(crate) fn take_letters(&self) -> Vec<(Arc<Mail>, usize)> {
        self.has_letters.store(false, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.table).letters)
    }

    /// The mail of the registration in which this is a signalled word, and the word's line.
    pub(crate) fn mail_of(&self, word: usize) -> Option<(Arc<Mail>, usize)> {
        let table = lock(&self.table);
        let mut mails = table
            .regions
            .iter()
            .filter_map(|(_, one)| one.mail.as_ref());
        mails.find_map(|mail| Some((mail.clone(), mail.line_of(word)?)))
    }

    fn carry_out(&self, notice: Notice) -> Result<(), &'static str> {
        let mut table = lock(&self.table);
        let Table {
            regions, letters, ..
        } = &mut *table;
        let place = |number: u32| find(regions, number);
        let gone = "a notice named memory that is not registered (any more)";
        let of_word = place(notice.word).ok_or(gone)?;
        let mail = regions[of_word].1.mail.clone();
        // No thread sleeps on the words of mail.
        let bell = if mail.is_some() {
            None
        } else {
            let of_bell = place(notice.bell).ok_or(gone)?;
            let Words::Bell = regions[of_bell].1.words else {
                return Err("a notice was to ring what is no bell");
            };
            Some(regions[of_bell].1.base)
        };
        let region = &mut regions[of_word].1;
        let index = |offset: Option<usize>| {
            let index = offset.and_then(|offset| region.index(offset));
            index.ok_or("a notice named what is no word for peers")
        };
        let first = (index(Some(notice.offset))?, notice.number);
        let other = match notice.further {
            None => None,
            Some((further, number)) => {
                Some((index(notice.offset.checked_add_signed(further))?, number))
            }
        };
        // SAFETY: `add` found a bell's room in registered memory, which the table keeps while it is locked;
        // `Nic::register`'s caller declared it to be one. All bytes are some bell, and it is only accessed atomically.
        let bell: Option<&Bell> =
            bell.map(|bell| unsafe { &*std::ptr::with_exposed_provenance(bell) });
        let (mut added, mut twice) = (false, false);
        for (index, number) in std::iter::once(first).chain(other) {
            let (word, heard) = region.word(index);
            if notice.poison {
                word.poison();
                added = true;
            } else {
                match heard.comes(word, number, notice.one_of) {
                    Some(comes) => added |= comes,
                    None => twice = true,
                }
            }
            if let Some(mail) = mail.as_ref().filter(|_| added) {
                letters.push((mail.clone(), index));
                self.has_letters.store(true, Ordering::Release);
            }
        }
        match bell {
            Some(bell) if notice.poison => bell.wake_all(),
            Some(bell) if added => bell.ring(),
            _ => {}
        }
        if twice {
            Err("a signal has come twice")
        } else {
            Ok(())
        }
    }
}

impl Region {
    /// The index of the word at this offset.
    fn index(&self, offset: usize) -> Option<usize> {
        match &self.words {
            Words::Every(step, words) if !words.is_empty() => {
                let index = offset.checked_div(*step).unwrap_or(0);
                (index < words.len() && index * step == offset).then_some(index)
            }
            _ => None,
        }
    }

    /// A word by its index, and its signals that have arrived early.
    fn word(&mut self, index: usize) -> (&Word, &mut Heard) {
        let Words::Every(step, words) = &mut self.words else {
            unreachable!("it has an index");
        };
        let at = self.base + index * *step;
        let heard = &mut words[index];
        // SAFETY: the index is one of the words for which `add` found room, aligned, in registered memory, which is
        // kept as long as this; `Nic::register`'s caller declared it to be one. It is only accessed atomically.
        (unsafe { &*std::ptr::with_exposed_provenance(at) }, heard)
    }
}

impl Heard {
    /// Takes the quantum of this number, or one of `one_of` parts of it. If it is complete and the next one, adds it to
    /// the word, with those after it that had arrived before. Otherwise keeps it. Returns whether it added something.
    /// `None` if it had arrived before, or if its parts do not fit together.
    fn comes(&mut self, word: &Word, number: u64, one_of: Option<u32>) -> Option<bool> {
        // Nothing else adds to the word, and the table is locked.
        let next = || (word.load() & !POISON) / QUANTUM % Notice::NUMBERS;
        let ahead = (number + Notice::NUMBERS - next()) % Notice::NUMBERS;
        let place = (number % Notice::NUMBERS) as usize;
        if ahead == Notice::NUMBERS - 1 || self.early[place] {
            return None;
        }
        if let Some(parts) = one_of {
            let (come, of) = &mut self.begun[place];
            if *come > 0 && *of != parts {
                return None;
            }
            (*come, *of) = (*come + 1, parts);
            if *come < parts {
                return Some(false);
            }
        }
        self.begun[place] = (0, 0);
        if ahead > 0 {
            self.early[place] = true;
            return Some(false);
        }
        word.add(QUANTUM);
        while std::mem::take(&mut self.early[next() as usize]) {
            word.add(QUANTUM);
        }
        Some(true)
    }
}

#[cfg(test)]
mod tests;
