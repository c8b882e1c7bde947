use proptest::prelude::*;

use super::*;

/// A word, and its signals that have arrived early.
struct One {
    word: Word,
    heard: Heard,
}

impl One {
    fn new() -> Self {
        One {
            word: Word::new(0),
            heard: Heard::default(),
        }
    }

    /// The count of the word when this quantum, or one of so many parts of it, has arrived, too.
    fn comes(&mut self, number: u64, one_of: Option<u32>) -> u64 {
        self.heard
            .comes(&self.word, number % Notice::NUMBERS, one_of);
        self.word.load()
    }

    /// Whether nothing is kept of signals that are over.
    fn is_empty(&self) -> bool {
        let begun = self.heard.begun.iter().any(|(come, _)| *come > 0);
        !begun && !self.heard.early.contains(&true)
    }
}

#[test]
fn a_signal_that_overtakes_waits_for_those_before() {
    let mut one = One::new();
    for (number, count) in [(0, 1), (2, 1), (1, 3), (3, 4), (5, 4), (6, 4), (4, 7)] {
        assert_eq!(one.comes(number, None), count * QUANTUM, "{number}");
    }
    assert!(one.is_empty());
}

#[test]
fn no_signal_stands_for_one_that_is_lost() {
    let mut one = One::new();
    for number in [0, 2, 3] {
        assert_eq!(one.comes(number, None), QUANTUM);
    }
    one.word.poison();
    assert_eq!(one.comes(1, None), (4 * QUANTUM) | POISON);
}

#[test]
fn a_signal_in_parts_comes_with_the_last_of_them() {
    let mut one = One::new();
    // Some parts of the next signal come before all parts of this one. A signal that is over has no parts any more.
    for (number, count) in [
        (0, 0),
        (1, 0),
        (0, 0),
        (1, 0),
        (1, 0),
        (0, 2),
        (1, 2),
        (2, 2),
        (2, 2),
        (2, 3),
    ] {
        assert_eq!(one.comes(number, Some(3)), count * QUANTUM, "{number}");
    }
    assert!(one.is_empty());
    // Parts that disagree on their number do not count, and a signal that comes whole needs no parts.
    assert_eq!(one.comes(3, Some(2)), 3 * QUANTUM);
    assert_eq!(one.heard.comes(&one.word, 3, Some(4)), None);
    assert_eq!(one.comes(4, None), 3 * QUANTUM);
    assert_eq!(one.comes(3, Some(2)), 5 * QUANTUM);
    assert!(one.is_empty());
}

#[test]
fn none_counts_twice() {
    let mut one = One::new();
    assert_eq!(one.heard.comes(&one.word, 1, None), Some(false));
    assert_eq!(one.heard.comes(&one.word, 1, None), None);
    assert_eq!(one.heard.comes(&one.word, 0, None), Some(true));
    assert_eq!(one.heard.comes(&one.word, 1, None), None);
    assert_eq!(one.word.load(), 2 * QUANTUM);
    assert!(one.is_empty());
}

/// Memory with a bell, and with words that peers may add to. A quarter of it is neither.
const STEP: usize = 32;
const WORDS: usize = 6;
const BYTES: usize = 256;

struct Block {
    regions: Arc<Regions>,
    block: Arc<[Word]>,
    /// The numbers of the bell, of the words, and of memory that signals may not touch.
    numbers: [Numbered; 3],
}

impl Block {
    fn new() -> Self {
        let regions = Arc::new(Regions::default());
        let words = (0..BYTES / size_of::<Word>()).map(|_| Word::new(0));
        let block: Arc<[Word]> = words.collect();
        let base = block.as_ptr().cast_mut().cast::<u8>();
        let bell = Arc::new(Bell::default());
        let add =
            |base, bytes, signalled, keep: Keep| regions.add(base, bytes, signalled, keep).unwrap();
        let at = Arc::as_ptr(&bell).cast_mut().cast();
        let words = |count| Signalled::Words { count, step: STEP };
        let numbers = [
            add(at, size_of::<Bell>(), Signalled::Bell, bell.clone()),
            add(base, BYTES, words(WORDS), Arc::new(block.clone())),
            add(base, BYTES, words(0), Arc::new(block.clone())),
        ];
        Block {
            regions,
            block,
            numbers,
        }
    }

    /// Whether notices may name this word.
    fn is_declared(index: usize) -> bool {
        let at = index * size_of::<Word>();
        at.is_multiple_of(STEP) && at / STEP < WORDS
    }
}

#[test]
fn notices_name_words_and_bells_that_were_declared() {
    let table = Block::new();
    let [bell, words, none] = [0, 1, 2].map(|which: usize| table.numbers[which].number);
    let notice = |bell, word, offset, further| Notice {
        bell,
        word,
        offset,
        number: 0,
        further,
        one_of: None,
        poison: false,
    };
    let strays = [
        notice(bell, words, 8, None),
        notice(bell, words, STEP * WORDS, None),
        notice(bell, words, 0, Some((8, 0))),
        notice(bell, words, 0, Some((-8, 0))),
        notice(bell, none, 0, None),
        notice(bell, bell, 0, None),
        notice(words, words, 0, None),
        notice(bell, 7, 0, None),
    ];
    for (stray, before) in strays.into_iter().zip(0..) {
        for poison in [false, true] {
            table.regions.hear(Notice { poison, ..stray });
        }
        assert_eq!(table.regions.strays.count(), 2 * before + 2, "{stray:?}");
    }
    assert!(table.block.iter().all(|word| word.load() == 0));
    table
        .regions
        .hear(notice(bell, words, STEP, Some((STEP as isize, 0))));
    assert_eq!(table.block[2 * STEP / 8].load(), QUANTUM);
    // When a registration has ended, its number names nothing.
    let count = table.regions.strays.count();
    let Block {
        regions,
        block,
        numbers,
    } = table;
    drop(numbers);
    regions.hear(notice(bell, words, 0, None));
    assert_eq!((regions.strays.count(), block[0].load()), (count + 1, 0));
}

#[test]
fn words_beyond_the_memory_are_not_declared() {
    let regions = Arc::new(Regions::default());
    let block: Arc<[Word]> = (0..8).map(|_| Word::new(0)).collect();
    let refused = |from: usize, bytes, signalled| {
        let base = block.as_ptr().cast_mut().cast::<u8>().wrapping_add(from);
        regions
            .add(base, bytes, signalled, Arc::new(block.clone()))
            .is_err()
    };
    let words = |count, step| Signalled::Words { count, step };
    assert!(
        !refused(0, 64, words(8, 8)) && !refused(0, 8, words(1, 0)) && !refused(3, 5, words(0, 3))
    );
    assert!(
        refused(0, 64, words(9, 8)) && refused(0, 64, words(2, 64)) && refused(0, 7, words(1, 8))
    );
    assert!(refused(4, 64, words(1, 8)) && refused(0, 64, words(2, 4)));
    assert!(refused(0, 64, words(usize::MAX, 8)) && refused(0, 64, words(2, usize::MAX - 7)));
    assert!(refused(4, 64, Signalled::Bell) && refused(0, size_of::<Bell>() - 1, Signalled::Bell));
}

/// Any 64 bits, most of which name something that exists.
fn bits() -> impl Strategy<Value = u64> {
    let named = (any::<u64>(), 0..4u64, 0..4u64, 0..BYTES as u64 / 4);
    let named = named.prop_map(|(bits, bell, word, offset)| {
        let kept = bits & !((1 << 47) - 1);
        kept | bell << 43 | word << 19 | offset
    });
    prop_oneof![1 => any::<u64>(), 4 => named]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]

    /// Whatever arrives, only declared memory changes. Each notice is carried out, or counted as a stray.
    #[test]
    fn any_bits_do_no_harm(all in prop::collection::vec(bits(), 1..200)) {
        let table = Block::new();
        for bits in all {
            table.regions.hear(Notice::decode(bits));
        }
        for (index, word) in table.block.iter().enumerate() {
            prop_assert!(Block::is_declared(index) || word.load() == 0, "word {index}");
            prop_assert_eq!(word.load() & !POISON & (QUANTUM - 1), 0);
        }
    }
}
