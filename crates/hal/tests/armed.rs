//! The armed programs of a queue come in order, run by run, until the queue gives up.

use std::sync::Arc;

use tidegate_hal::armed::Armed;
use tidegate_hal::nic::{NicError, Prepared};

/// Programs that contain these numbers.
fn programs(numbers: impl IntoIterator<Item = u32>) -> Arc<[Prepared]> {
    let one = |number| Prepared(Arc::new(number));
    numbers.into_iter().map(one).collect()
}

fn number(program: Option<&Prepared>) -> Option<u32> {
    program.map(|program| *program.0.downcast_ref::<u32>().expect("a number"))
}

#[test]
fn programs_come_in_the_order_in_which_they_were_armed() {
    let mut armed = Armed::default();
    for (numbers, times) in [(vec![1, 2], 3), (vec![3], 2), (vec![4, 5, 6], 1)] {
        let added = armed.arm(&programs(numbers.clone()), times);
        assert_eq!(added.unwrap(), numbers.len() * times as usize);
    }
    let all = [1, 2, 1, 2, 1, 2, 3, 3, 4, 5, 6];
    // The indices of the programs that end a run.
    let ends = [5, 7, 10];
    for (index, expected) in all.into_iter().enumerate() {
        assert_eq!(number(armed.first()), Some(expected));
        let seen = (0..).map_while(|after| number(armed.get(after)));
        assert_eq!(seen.collect::<Vec<_>>(), all[index..]);
        assert_eq!(armed.through().is_some(), ends.contains(&index), "{index}");
    }
    assert!(armed.is_empty() && armed.first().is_none() && armed.through().is_none());
}

#[test]
fn a_run_keeps_its_programs_until_it_is_through() {
    let mut armed = Armed::default();
    let programs = programs([1]);
    let kept = || Arc::strong_count(&programs) - 1;
    assert_eq!(armed.arm(&programs, 0).unwrap(), 0);
    assert_eq!((kept(), armed.is_empty()), (0, true));
    armed.arm(&programs, 2).unwrap();
    assert!(armed.through().is_none());
    assert_eq!(kept(), 1);
    drop(armed.through().expect("that was the last"));
    assert_eq!(kept(), 0);
}

#[test]
fn more_than_can_be_counted_is_no_error() {
    let mut armed = Armed::default();
    assert_eq!(armed.arm(&programs([1, 2]), u64::MAX).unwrap(), usize::MAX);
    armed.arm(&programs([3]), 1).unwrap();
    armed.through();
    assert_eq!(number(armed.get(0)), Some(2));
    assert_eq!(number(armed.get(1)), Some(1));
}

#[test]
fn who_has_given_up_takes_nothing() {
    let mut armed = Armed::default();
    armed.arm(&programs([1, 2]), 2).unwrap();
    armed.arm(&programs([3]), 1).unwrap();
    armed.through();
    let runs = armed.give_up().expect("the first time");
    let numbers = runs.iter().flat_map(|run| run.iter());
    let numbers: Vec<_> = numbers.map(|program| number(Some(program))).collect();
    assert_eq!(numbers, [Some(1), Some(2), Some(3)]);
    assert!(armed.has_given_up() && armed.is_empty() && armed.give_up().is_none());
    assert!(matches!(
        armed.arm(&programs([4]), 1),
        Err(NicError::GivenUp)
    ));
    assert_eq!(armed.arm(&programs([4]), 0).unwrap(), 0);
    assert!(armed.is_empty());
}
