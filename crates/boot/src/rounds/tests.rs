//! What is decided, compared with a model that keeps all that the ranks say.

use super::*;
use crate::votes::tests::{any_vote, model};
use proptest::prelude::*;
use tidegate_hal::control::ControlError;

fn call(label: &str) -> Call {
    Call::new(Kind::Confer, label)
}

fn world(size: usize) -> Rounds {
    Rounds::new(TeamId::WORLD, Members::First(size))
}

fn come(rounds: &mut Rounds, rank: usize, round: u64, label: &str) -> Option<Outcome> {
    match rounds.come(rank, round, call(label), Vote::default()) {
        Ok(Came::Counted(outcome)) => outcome,
        other => panic!("{other:?}"),
    }
}

fn agreed() -> Option<Outcome> {
    Some(Outcome::Agreed { flags: 0 })
}

fn lost(rank: u32) -> Option<Outcome> {
    let reason = "gone".into();
    Some(Outcome::Failed(Failure::Lost { rank, reason }))
}

#[test]
fn a_round_is_decided_when_all_have_come() {
    let mut rounds = world(3);
    for round in 0..3 {
        assert_eq!(come(&mut rounds, 2, round, "a"), None);
        assert_eq!(come(&mut rounds, 0, round, "a"), None);
        assert_eq!(come(&mut rounds, 1, round, "a"), agreed());
    }
}

#[test]
fn different_calls_fail_at_once_and_each_rank_hears_of_another() {
    let mut rounds = world(4);
    assert_eq!(come(&mut rounds, 2, 0, "open"), None);
    let Some(Outcome::Failed(failure)) = come(&mut rounds, 1, 0, "free") else {
        panic!("{rounds:?}")
    };
    let says = |mine: &Call| match failure.error(mine) {
        ControlError::Mismatch { rank, theirs, .. } => (rank, theirs),
        other => panic!("{other}"),
    };
    assert_eq!(says(&call("free")), (2, "open".into()));
    assert_eq!(says(&call("open")), (1, "free".into()));
    assert_eq!(says(&call("another")), (1, "free".into()));
    let exchange = Call::new(Kind::Exchange, "free");
    assert_eq!(says(&exchange), (1, "free (no exchange)".into()));
    // The news may cross with what others say. There is no later round.
    let late = rounds.come(3, 0, call("free"), Vote::default());
    assert_eq!(late, Ok(Came::Late));
    assert_eq!(rounds.end(0, "gone"), None);
    assert!(rounds.come(3, 1, call("free"), Vote::default()).is_err());
    assert_eq!(rounds.letter(3, 0, 0), Ok(false));
}

#[test]
fn a_rank_that_ends_fails_the_round_to_which_it_has_not_come() {
    let mut rounds = world(3);
    come(&mut rounds, 1, 0, "a");
    assert_eq!(rounds.end(2, "gone"), lost(2));
    // It has come to this round, and so fails the next one.
    let mut rounds = world(3);
    come(&mut rounds, 1, 0, "a");
    assert_eq!(rounds.end(1, "gone"), None);
    come(&mut rounds, 0, 0, "a");
    assert_eq!(come(&mut rounds, 2, 0, "a"), agreed());
    assert_eq!(come(&mut rounds, 0, 1, "a"), lost(1));
    // No round is open. The first that has ended is named.
    let mut rounds = world(3);
    assert_eq!(rounds.end(2, "gone"), None);
    assert_eq!(rounds.end(2, "again"), None);
    assert_eq!(rounds.end(1, "gone"), None);
    assert_eq!(rounds.letter(1, 0, 0), Ok(false), "it has ended");
    assert_eq!(come(&mut rounds, 0, 0, "a"), lost(2));
}

#[test]
fn what_is_out_of_order_is_refused() {
    let vote = Vote::default;
    let mut rounds = world(3);
    for (rank, round) in [(0, 1), (3, 0), (0, u64::MAX)] {
        assert!(rounds.come(rank, round, call("a"), vote()).is_err());
        assert!(rounds.letter(rank, round, 1).is_err());
    }
    assert_eq!(rounds.letter(0, 0, 1), Ok(true));
    for to in [0, 1, 3, usize::MAX] {
        assert!(rounds.letter(0, 0, to).is_err(), "{to}");
    }
    let exchange = rounds.come(0, 0, Call::new(Kind::Exchange, "a"), vote());
    assert!(exchange.is_err(), "there are no letters in an exchange");
    assert_eq!(rounds.letter(0, 0, 2), Ok(true));
    come(&mut rounds, 0, 0, "a");
    assert!(rounds.come(0, 0, call("a"), vote()).is_err());
    assert!(rounds.letter(0, 0, 2).is_err());
    for rank in [1, 2] {
        come(&mut rounds, rank, 0, "a");
    }
    assert!(rounds.come(0, 0, call("a"), vote()).is_err());
    assert_eq!(rounds.letter(0, 1, 1), Ok(true));
}

/// Votes of all ranks, and the order in which they come.
fn any_round() -> impl Strategy<Value = (Vec<Vote>, Vec<usize>)> {
    prop::collection::vec(any_vote(), 1..40).prop_flat_map(|votes| {
        let ranks: Vec<_> = (0..votes.len()).collect();
        (Just(votes), Just(ranks).prop_shuffle())
    })
}

proptest! {
    #[test]
    fn little_is_kept_and_the_decision_is_that_about_all((votes, order) in any_round()) {
        let mut rounds = world(votes.len());
        let mut decided = None;
        for rank in order {
            prop_assert_eq!(decided, None);
            let came = rounds.come(rank, 0, call("a"), votes[rank].clone());
            let Ok(Came::Counted(outcome)) = came else {
                panic!("{came:?}")
            };
            decided = outcome;
        }
        prop_assert_eq!(decided, Some(model(&votes)));
    }

    /// What several ranks say may come together, in parts of any size, and again.
    #[test]
    fn ranks_may_come_together((votes, order) in any_round(), part in 1usize..6) {
        let mut rounds = world(votes.len());
        let mut decided = None;
        let parts = order.chunks(part).map(|ranks| {
            let mut tally = Tally::default();
            for rank in ranks {
                tally.merge(Tally::of(*rank as u32, call("a"), votes[*rank].clone()));
            }
            tally
        });
        let parts: Vec<_> = parts.collect();
        for (index, tally) in parts.iter().enumerate() {
            for tally in [tally, &parts[index / 2]] {
                if decided.is_some() {
                    let late = rounds.come_together(0, tally.clone());
                    prop_assert_eq!(late, Ok(Came::Late));
                    continue;
                }
                let came = rounds.come_together(0, tally.clone());
                let Ok(Came::Counted(outcome)) = came else {
                    panic!("{came:?}")
                };
                decided = outcome;
            }
        }
        prop_assert_eq!(decided, Some(model(&votes)));
    }

    /// A round has one outcome, whatever happens, and none follows a failure.
    #[test]
    fn outcomes_are_final(steps in prop::collection::vec((0usize..4, 0u8..8), 0..40)) {
        let mut rounds = world(4);
        let (mut outcomes, mut failed) = (0, false);
        for (rank, kind) in steps {
            let outcome = match kind {
                0 => rounds.end(rank, "gone"),
                kind => {
                    let label = if kind == 1 { "b" } else { "a" };
                    match rounds.come(rank, rounds.round(), call(label), Vote::default()) {
                        Ok(Came::Counted(outcome)) => outcome,
                        Ok(Came::Late) | Err(_) => None,
                    }
                }
            };
            prop_assert!(outcome.is_none() || !failed);
            failed |= matches!(outcome, Some(Outcome::Failed(_)));
            outcomes += u64::from(outcome.is_some() && !failed);
            prop_assert_eq!(rounds.round(), outcomes);
        }
    }
}
