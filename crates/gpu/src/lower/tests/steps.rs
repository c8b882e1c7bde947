//! The steps of a lane that has no short form.

use super::*;

/// The steps of a lane that begins here, to its end.
fn walk(mut rest: &[u8]) -> impl Iterator<Item = (Head, &[u8])> {
    let mut is_over = false;
    std::iter::from_fn(move || {
        let head: Head = (!is_over).then(|| read(rest))?;
        is_over = head.kind == STEP_END;
        let step = rest;
        rest = &rest[usize::from(head.length) * 16..];
        Some((head, step))
    })
}

/// The steps of the first lane.
fn steps(program: &Program) -> impl Iterator<Item = (Head, &[u8])> {
    walk(&program.bytes[16 * first(program).steps as usize..])
}

#[test]
fn a_word_of_the_host_is_counted_on_the_device() {
    // The lane is carried out by its steps.
    let kinds = [0x3000, HOST].map(|word| {
        let lowered = program(vec![vec![wait(0x2000), put(8), add(word)]], 16).unwrap();
        let (_, add) = steps(&lowered)
            .find(|(head, _)| head.kind == STEP_ADD)
            .unwrap();
        let is_by_steps = first(&lowered).kind & LANE_STEPS != 0;
        (is_by_steps, read::<AddStep>(add).count)
    });
    assert_eq!(kinds, [(false, 0), (true, HOST as u64 + COUNTS)]);
    // Several blocks count together in quanta; a value that is not a multiple is counted by one team.
    let odd = Step::Add(adding(HOST, QUANTUM + 1));
    let lanes = vec![vec![wait(0x2000), put(1 << 20), odd]];
    assert_eq!(teams(&program(lanes, 16).unwrap()), [0, 1]);
}

/// A step stores to a register; it has no short form.
#[test]
fn a_store_is_a_step() {
    for word in [0x3000, HOST] {
        let lowered = program(vec![vec![add(word), store(0x5000)]], 8).unwrap();
        assert_eq!(first(&lowered).kind, LANE_STEPS);
        let (kinds, all): (Vec<_>, Vec<_>) = steps(&lowered)
            .map(|(head, step)| (head.kind, step))
            .unzip();
        assert_eq!(kinds, [STEP_ADD, STEP_STORE, STEP_END]);
        let stored: StoreStep = read(all[1]);
        assert_eq!((stored.to, stored.value), (0x5000, 1));
    }
}

/// Short copies in a row are dealt to warps, but not with one that is much longer, nor with others in between.
#[test]
fn copies_that_stand_in_a_row_are_marked() {
    let rows = |lane: Vec<Step>| -> Vec<u16> {
        let program = lowered(vec![lane], 16, false).unwrap();
        walk(&program.bytes[program.blocks * program.stride..])
            .filter(|(head, _)| head.kind == STEP_MOVE)
            .map(|(_, step)| read::<MoveStep>(step).row)
            .collect()
    };
    let puts = |lengths: &[usize]| {
        let mut lane = vec![wait(0x2000)];
        lane.extend(lengths.iter().map(|doubles| put(*doubles)));
        lane.push(add(0x3000));
        lane
    };
    assert_eq!(rows(puts(&[8; 3])), [0; 3]);
    assert_eq!(rows(puts(&[8; 5])), [5, 0, 0, 0, 0]);
    assert_eq!(rows(puts(&[8, 16, 24, 8])), [4, 0, 0, 0]);
    // A long copy ends the row, and another row may begin behind it.
    let long = [8, 8, 8, 8, 4096, 8, 8, 8, 8, 8];
    assert_eq!(rows(puts(&long)), [4, 0, 0, 0, 0, 5, 0, 0, 0, 0]);
    assert_eq!(rows(puts(&[4096, 3000, 4096, 2048, 2046])), [4, 0, 0, 0, 0]);
    // The bytes that are not whole units are a step of their own. It is part of the row for short copies, but not for
    // long ones.
    assert_eq!(rows(puts(&[9; 4])), [8, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(rows(puts(&[2049; 4])), [0; 8]);
    let mut parted = puts(&[8; 8]);
    parted.insert(4, add(HOST));
    assert_eq!(rows(parted), [0, 0, 0, 5, 0, 0, 0, 0]);
}
