//! Errors that somebody could make in the kernel: each is found by a test that is there for it.

use super::machine::{Machine, SMALL};
use super::{failure, moves, protocol};

type Check = fn(&mut Machine) -> Result<(), String>;

const MOVES: Check = |machine| moves::check(machine, 0..400);
const PARITIES: Check = |machine| moves::check_parities(machine, 0..200);
const EPOCHS: Check = |machine| protocol::check(machine, 0..60, 20);
const POISON: Check = |machine| failure::check_poison(machine, 0..150);
const ABORT: Check = |machine| failure::check_abort(machine, 0..100);
const FOLLOW: Check = |machine| failure::check_follow(machine, 0..500);
const REPORTS: Check = |machine| failure::check_reports(machine, 0..20);

/// What is found by what: `(check, before, after)`.
const MUTANTS: &[(Check, &str, &str)] = &[
    // The barrier before an add, and the one after a wait.
    (
        EPOCHS,
        "team.barrier();\n                if (team.rank() == 0) {\n                    // All",
        "if (team.rank() == 0) {\n                    // All",
    ),
    (
        EPOCHS,
        "    team.barrier();\n    return !stand->failed;",
        "    return !stand->failed;",
    ),
    // One stand for all waits of a team.
    (
        PARITIES,
        "stand = stand == stands ? stands + 1 : stands;",
        "stand = stands;",
    ),
    // Every block advances the operand; the first does; none does; so do tickets.
    (
        EPOCHS,
        "if (before == count - 1 || !wait->arrivals) {",
        "if (true) {",
    ),
    (
        EPOCHS,
        "if (before == count - 1 || !wait->arrivals) {",
        "if (before == 0) {",
    ),
    (
        EPOCHS,
        "if (before == count - 1 || !wait->arrivals) {",
        "if (!wait->arrivals) {",
    ),
    // The counter does not begin again where it should.
    (
        EPOCHS,
        "count_to(wait->arrivals, count - 1 + (u32)(from >> 63))",
        "count_to(wait->arrivals, count + (u32)(from >> 63))",
    ),
    // The parts of an add are more than it, or less; all are in the first.
    (
        EPOCHS,
        "index == 0 ? add->value - (count - 1) : 1",
        "index == 0 ? add->value : 1",
    ),
    (
        EPOCHS,
        "index == 0 ? add->value - (count - 1) : 1",
        "index == 0 ? add->value - count : 1",
    ),
    (
        EPOCHS,
        "index == 0 ? add->value - (count - 1) : 1",
        "index == 0 ? add->value : 0",
    ),
    // Waits that are too long, or too short, or that read poison as a count.
    (EPOCHS, ">= (i64)quantum;", "> (i64)quantum;"),
    (EPOCHS, ">= (i64)quantum;", ">= (i64)quantum - 200;"),
    (
        POISON,
        "(i64)((value & ~POISON) - from)",
        "(i64)(value - from)",
    ),
    // The wrong buffers.
    (EPOCHS, "return epoch & 1;", "return !(epoch & 1);"),
    (
        EPOCHS,
        "if (is_odd(move, stand->epoch)) dst.base += move->dst_flip;",
        "",
    ),
    (
        PARITIES,
        "load_relaxed(move->parity) >> QUANTUM_BITS) - 1)",
        "load_relaxed(move->parity) >> QUANTUM_BITS))",
    ),
    // Failure that goes no further, or too far.
    (POISON, "if (value & POISON) {", "if (false) {"),
    (
        POISON,
        "or_release(((const AddStep *)step)->word, POISON);",
        "(void)0;",
    ),
    (
        FOLLOW,
        "step->kind == STEP_ADD && (step->flags & ADD_HAS_WAITER)",
        "step->kind == STEP_ADD",
    ),
    (
        POISON,
        "if (team.rank() == 0) poison_rest(next);",
        "(void)0;",
    ),
    (
        POISON,
        "    if (or_fetch32(&launch.state->stop, 1) & 1) return;  // another team was first\n",
        "    or_fetch32(&launch.state->stop, 1);\n",
    ),
    (
        POISON,
        "if (!failed) run_lane(launch, Block()",
        "if (true) run_lane(launch, Block()",
    ),
    (
        POISON,
        "    if (failed) {\n        if (speaks)",
        "    if (false) {\n        if (speaks)",
    ),
    (
        POISON,
        "u64 epoch = from >> QUANTUM_BITS;",
        "u64 epoch = (from >> QUANTUM_BITS) + 7;",
    ),
    (
        FOLLOW,
        "if (looks % 16 == 0 && has_failed(launch)) break;",
        "",
    ),
    (ABORT, "if (stop && !(stop & 1)) {", "if (false) {"),
    (FOLLOW, "if (theirs && !stop) {", "if (false) {"),
    (
        FOLLOW,
        "while (!(or_fetch32(&other->stop, 0) & 2)) pause(50);",
        "",
    ),
    // Reports that stay, or never come.
    (
        REPORTS,
        "if (reported) store_release32(&blocked->active, 0);",
        "",
    ),
    (REPORTS, "looks == 4096", "looks == 1u << 30"),
    (REPORTS, "if (wait->quantum == 0 && epoch) epoch--;", ""),
    // Moves.
    (
        MOVES,
        "at += (i64)(i - next * shape->count[d]) * shape->stride[d];",
        "at += (i64)(i - next * shape->count[d]) * (u32)shape->stride[d];",
    ),
    (
        MOVES,
        "DEV u64 update(u64 at, u32 bytes, Next next) {",
        "DEV u64 update(u64 at, u32 bytes, Next next) {\n    if (bytes < 4) bytes = 4, at &= ~3ull;",
    ),
    (
        MOVES,
        "first + DEPTH * stride, stride",
        "first + (DEPTH - 1) * stride, 2 * stride",
    ),
    (
        MOVES,
        "carry((const MoveStep *)step, stand->epoch, first, (u64)count * Team::size);",
        "carry((const MoveStep *)step, stand->epoch, first, Team::size);",
    ),
    (
        MOVES,
        "case OP_MIN: return (b != b || a < b) ? a : b;",
        "case OP_MIN: return a < b ? a : b;",
    ),
    (
        MOVES,
        "was == compare ? value : was",
        "was == value ? compare : was",
    ),
    (
        MOVES,
        "window + 16 : program + 16;",
        "window + 16 : window + 16;",
    ),
];

/// Looks for every second of them.
fn find(from: usize) {
    let mut missed = Vec::new();
    for (number, (check, before, after)) in MUTANTS.iter().enumerate().skip(from).step_by(2) {
        let Some(mut machine) = Machine::new(SMALL, &[(before, after)]) else {
            return;
        };
        if check(&mut machine).is_ok() {
            missed.push(format!("{number}: `{before}` became `{after}`"));
        }
    }
    assert!(missed.is_empty(), "errors are not found: {missed:#?}");
}

#[test]
fn errors_in_the_kernel_are_found() {
    find(0);
}

#[test]
fn more_errors_in_the_kernel_are_found() {
    find(1);
}
