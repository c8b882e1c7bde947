//! What each rank of any control plane must see.

use tidegate_hal::control::{Control, ControlError};

/// Calls come in order, and what the ranks have said in the order of the ranks.
pub(crate) fn exchanges_in_order(control: &impl Control, rounds: u8) {
    let ranks = control.size() as u8;
    for round in 0..rounds {
        let said = vec![control.rank() as u8, round];
        let all = control.exchange("step", said).unwrap();
        assert_eq!(all, (0..ranks).map(|r| vec![r, round]).collect::<Vec<_>>());
    }
}

/// One rank makes another call than the rest: the error names both, and no call succeeds after that.
pub(crate) fn names_both_labels_of_a_mismatch_and_stays_failed(control: &impl Control) {
    let label = if control.rank() == 1 {
        "free"
    } else {
        "create"
    };
    let error = control.exchange(label, Vec::new()).unwrap_err();
    let ControlError::Mismatch { rank, mine, theirs } = error else {
        panic!("{error}")
    };
    assert_eq!(mine, label);
    assert_ne!(theirs, label);
    assert_eq!(rank == 1, control.rank() != 1);
    let again = control.exchange("create", Vec::new());
    assert!(matches!(again, Err(ControlError::Closed(_))), "{again:?}");
}
