//! What a rank says of those below it, and what it hears for them.

use super::*;

/// A rank whose child has heard less than the rank itself.
fn with_slow_child(now: Instant) -> Branch {
    let mut branch = Branch::new(3);
    branch.find_parent(now);
    branch.attach(7, 5, 5, now).expect("7 is no child yet");
    branch.hear_beat(9);
    branch.take_up(now);
    branch
}

#[test]
fn a_new_parent_is_told_how_much_the_ranks_below_have_heard() {
    let now = Instant::now();
    let mut child = with_slow_child(now);
    child.lose_parent();
    let Hop::Attach { heard, all_heard } = child.attachment() else {
        panic!("a rank says something else to a parent")
    };
    assert_eq!((heard, all_heard), (9, 5));
    let mut parent = Branch::new(2);
    parent.find_parent(now);
    parent.hear_beat(20);
    parent
        .attach(3, heard, all_heard, now)
        .expect("3 is no child yet");
    let ups = parent.take_up(now);
    assert!(ups.iter().all(|up| up.heard == 5), "{ups:?}");
    let attached = Message::Attached { rank: 3, heard: 9 };
    let is_said = |up: &Up| {
        let mut items = up.items.iter();
        items.any(|item| matches!(&**item, Item::Said { message, .. } if *message == attached))
    };
    assert!(
        ups.iter().any(is_said),
        "the child has missed nothing up to 9"
    );
    // It is so when that is said again, too.
    parent.lose_parent();
    parent.find_parent(now);
    let ups = parent.take_up(now);
    assert!(ups.iter().any(is_said), "{ups:?}");
    assert!(ups.iter().all(|up| up.heard == 5), "{ups:?}");
}

#[test]
fn a_lost_child_counts_until_the_hub_knows_of_it() {
    let now = Instant::now();
    let mut branch = with_slow_child(now);
    branch.lose_child(7, "closed", now);
    assert_eq!(branch.all_heard(), 5);
    let seq = branch.said;
    let heard = |seq| Passed {
        number: 10,
        below: None,
        to: To::One(3),
        message: Message::Heard { seq },
    };
    let hears = |branch: &mut Branch, passed: Passed, upto| {
        let items = vec![Arc::new(passed)];
        branch.hear_down(Down { upto, items });
    };
    hears(&mut branch, heard(seq - 1), 10);
    assert_eq!(branch.all_heard(), 5);
    let last = Passed {
        number: 11,
        ..heard(seq)
    };
    hears(&mut branch, last, 11);
    assert_eq!(branch.all_heard(), 11);
}
