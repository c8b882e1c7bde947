//! The batch kernel, run by the processor.
//!
//! # Model
//!
//! g++ compiles the same `kernels/batch.cu` that runs on GPUs, over a machine of fibers (`crates/gpu/tests/emulation`).
//! A run has several streams, each with a list of launches and of calls into the test. The run's seed decides which
//! thread goes on. The batches are lowered by the crate's own code. So these tests check the following without a GPU:
//!
//! * [`moves`]: every move has the same result, to the byte, as the host's mover; accumulates to one place, and atomic
//!   moves that meet, come in their order;
//! * [`protocol`]: ranks exchange epochs with unchanged launches, while an observer checks every add;
//! * [`order`]: batches of a stream, where a batch may begin before the one in front is over;
//! * [`waits`]: lanes that only wait, in one launch and the next;
//! * [`neighbours`]: lanes that share a block, each at an epoch of its own;
//! * [`landings`]: bytes that land with tags, seen from either side;
//! * [`folds`]: what lands is combined as it comes;
//! * [`failure`]: poison, abort, streams that follow others, and reports of waits that take long;
//! * [`checks`]: numbers that are too great;
//! * [`mutants`]: each of these tests finds the errors that it is meant to find;
//! * [`couriers`]: copies beside the kernel are made under an exposure, or not at all;
//! * [`stamps`]: the kernel of `kernels/stamped.cu`, which passes the other tests, too.
//!
//! The emulation does not see memory orders. Each vendor's crate checks them in the code that the kernel is compiled to.
//!
//! # Failure
//!
//! Without g++ the tests are skipped. With `CI` set, they fail.

mod checks;
mod couriers;
mod edge;
mod failure;
mod folds;
mod landings;
mod launched;
mod machine;
mod memory;
mod moves;
mod mutants;
mod neighbours;
mod order;
mod protocol;
#[path = "../../../../../tests/common/skipped.rs"]
mod skipped;
mod stamps;
mod steps;
mod waits;

use machine::Machine;
use protocol::Form;

/// A machine with small teams, if there is a compiler.
fn small() -> Option<Machine> {
    Machine::new(machine::SMALL, &[])
}

#[test]
fn both_sides_agree_on_what_lies_where() {
    for sizes in [32, 64].map(super::Sizes::of_wave) {
        let Some(machine) = Machine::new(sizes, &[]) else {
            return;
        };
        assert_eq!(machine.layout(), machine::layout(sizes));
    }
}

#[test]
fn moves_are_those_of_the_host() {
    let Some(mut machine) = small() else { return };
    moves::check(&mut machine, 0..1000).unwrap();
}

#[test]
fn moves_of_whole_blocks_are_those_of_the_host() {
    for sizes in [32, 64].map(super::Sizes::of_wave) {
        let Some(mut machine) = Machine::new(sizes, &[]) else {
            return;
        };
        moves::check(&mut machine, 0..60).unwrap();
    }
}

#[test]
fn accumulates_to_one_place_come_in_their_order() {
    let Some(mut machine) = small() else { return };
    moves::reductions::check(&mut machine, 0..300).unwrap();
}

#[test]
fn atomic_moves_that_meet_come_in_their_order() {
    let Some(mut machine) = small() else { return };
    moves::turns::check(&mut machine, 0..300).unwrap();
}

#[test]
fn integers_wrap_and_no_number_loses_as_on_the_host() {
    let Some(mut machine) = small() else { return };
    moves::extremes::check(&mut machine).unwrap();
}

#[test]
fn parities_are_those_of_their_waits() {
    let Some(mut machine) = small() else { return };
    moves::check_parities(&mut machine, 0..300).unwrap();
}

#[test]
fn epochs_are_neither_early_nor_late() {
    let Some(mut machine) = small() else { return };
    protocol::check(&mut machine, Form::Whole, 0..60, 50).unwrap();
}

#[test]
fn epochs_of_whole_blocks() {
    for sizes in [32, 64].map(super::Sizes::of_wave) {
        let Some(mut machine) = Machine::new(sizes, &[]) else {
            return;
        };
        protocol::check(&mut machine, Form::Whole, 0..3, 10).unwrap();
    }
}

#[test]
fn lanes_that_only_wait_pass_once_for_each_launch() {
    let Some(mut machine) = small() else { return };
    waits::check(&mut machine, 0..400).unwrap();
}

#[test]
fn what_has_landed_is_in_the_slot_and_counted() {
    let Some(mut machine) = small() else { return };
    landings::check_waits(&mut machine, 0..400).unwrap();
}

#[test]
fn puts_that_land_do_nothing_else() {
    let Some(mut machine) = small() else { return };
    landings::check_puts(&mut machine, 0..300).unwrap();
}

#[test]
fn what_lands_is_combined_in_order() {
    let Some(mut machine) = small() else { return };
    folds::check(&mut machine, 0..400).unwrap();
}

#[test]
fn only_what_is_missing_of_a_fold_is_reported() {
    let Some(mut machine) = small() else { return };
    folds::check_reports(&mut machine, 0..40).unwrap();
}

#[test]
fn lanes_of_a_block_keep_to_themselves() {
    let Some(mut machine) = small() else { return };
    neighbours::check(&mut machine, 0..100).unwrap();
}

#[test]
fn poison_ends_what_depends_on_it_and_nothing_else() {
    let Some(mut machine) = small() else { return };
    failure::check_poison(&mut machine, Form::Whole, 0..150).unwrap();
}

#[test]
fn a_number_that_is_too_great_ends_a_stream() {
    let Some(mut machine) = small() else { return };
    checks::check(&mut machine, 0..600).unwrap();
}

#[test]
fn the_host_ends_a_stream() {
    let Some(mut machine) = small() else { return };
    failure::check_abort(&mut machine, Form::Whole, 0..100).unwrap();
}

#[test]
fn a_stream_fails_as_the_one_that_it_follows() {
    let Some(mut machine) = small() else { return };
    failure::check_follow(&mut machine, 0..1000).unwrap();
}

#[test]
fn waits_that_take_long_are_reported_while_they_do() {
    let Some(mut machine) = small() else { return };
    failure::check_reports(&mut machine, 0..40).unwrap();
}

#[test]
fn waits_that_share_a_place_are_reported_by_turns() {
    let Some(mut machine) = small() else { return };
    failure::check_reports_by_turns(&mut machine, 0..20).unwrap();
}

#[test]
fn a_look_takes_over_a_failure_for_what_comes_after() {
    let Some(mut machine) = small() else { return };
    failure::check_look(&mut machine, 0..300).unwrap();
}

#[test]
fn a_batch_goes_on_when_the_one_before_is_over() {
    let Some(mut machine) = small() else { return };
    order::check(&mut machine, 0..80).unwrap();
}

#[test]
fn a_team_looks_once_how_its_stream_stands() {
    let Some(mut machine) = small() else { return };
    order::check_looks(&mut machine, 0..100).unwrap();
}

#[test]
fn parts_move_what_the_whole_does() {
    let Some(mut machine) = small() else { return };
    protocol::check(&mut machine, Form::Parts, 0..60, 20).unwrap();
}

#[test]
fn couriers_move_what_the_whole_does() {
    let Some(mut machine) = small() else { return };
    protocol::check(&mut machine, Form::Apart, 0..60, 20).unwrap();
}

#[test]
fn parts_end_as_the_whole_does() {
    let Some(mut machine) = small() else { return };
    failure::check_poison(&mut machine, Form::Parts, 0..80).unwrap();
    failure::check_abort(&mut machine, Form::Parts, 0..60).unwrap();
}

#[test]
fn couriers_go_under_an_exposure_or_not_at_all() {
    let Some(mut machine) = small() else { return };
    couriers::check(&mut machine, 0..200).unwrap();
}

#[test]
fn stamps_say_when_each_leg_was() {
    let Some(mut machine) = Machine::stamped(None) else {
        return;
    };
    stamps::check_all(&mut machine).unwrap();
}

#[test]
fn errors_of_stamps_are_found() {
    for change in stamps::ERRORS {
        let Some(mut machine) = Machine::stamped(Some(change)) else {
            return;
        };
        let found = stamps::check_all(&mut machine);
        assert!(found.is_err(), "{change:?}");
    }
}

/// All that the other tests check holds of the stamped kernel, too.
#[test]
fn the_stamped_kernel_does_what_the_other_does() {
    let Some(mut machine) = Machine::stamped(None) else {
        return;
    };
    let machine = &mut machine;
    moves::check(machine, 0..300).unwrap();
    moves::reductions::check(machine, 0..100).unwrap();
    moves::turns::check(machine, 0..100).unwrap();
    protocol::check(machine, Form::Whole, 0..20, 30).unwrap();
    protocol::check(machine, Form::Apart, 0..20, 20).unwrap();
    waits::check(machine, 0..150).unwrap();
    landings::check_waits(machine, 0..400).unwrap();
    landings::check_puts(machine, 0..100).unwrap();
    folds::check(machine, 0..100).unwrap();
    neighbours::check(machine, 0..30).unwrap();
    failure::check_poison(machine, Form::Whole, 0..60).unwrap();
    failure::check_abort(machine, Form::Whole, 0..40).unwrap();
    failure::check_follow(machine, 0..300).unwrap();
    checks::check(machine, 0..100).unwrap();
    order::check(machine, 0..30).unwrap();
    order::check_looks(machine, 0..40).unwrap();
    couriers::check(machine, 0..200).unwrap();
}
