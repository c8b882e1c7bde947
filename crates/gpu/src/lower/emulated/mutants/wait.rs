//! Lanes that only wait.

use super::{EPOCHS, LOOKS, MOVES, Mutant, NEIGHBOURS, ORDER, REPORTS, WAITS};

const BEGIN: &str = "quantum = at->quantum;\n    const Turn turn(launch, part);\n    turn.await();\n    u64 from = load_relaxed(operand);\n    u32 stop = load_relaxed32(&turn.state->stop);\n";
const ADVANCE: &str = "if (quantum) store_relaxed(operand, from + quantum);";
const LATE: &str = "if (has_failed(launch) || !wait_long(launch, wait, from, true)) return;";

pub(super) const MUTANTS: &[Mutant] = &[
    // The operand: not advanced; advanced by the wrong amount; set to the word; advanced for tickets, too.
    (EPOCHS, ADVANCE, ""),
    (WAITS, ADVANCE, "store_relaxed(operand, from);"),
    (
        WAITS,
        ADVANCE,
        "if (quantum) store_relaxed(operand, from + quantum + 1);",
    ),
    (
        WAITS,
        ADVANCE,
        "if (quantum) store_relaxed(operand, from + 2 * quantum);",
    ),
    (
        WAITS,
        ADVANCE,
        "if (quantum) store_relaxed(operand, value & ~POISON);",
    ),
    (WAITS, ADVANCE, "store_relaxed(operand, from + quantum);"),
    // The operand is advanced before the word has come.
    (
        WAITS,
        "    u64 value = load_acquire(word);\n    bool ok = false, passed",
        "    if (quantum) store_relaxed(operand, from + quantum);\n    u64 value = load_acquire(word);\n    bool ok = false, passed",
    ),
    // The wait fails, and the operand is advanced.
    (
        WAITS,
        LATE,
        "if (!has_failed(launch)) wait_long(launch, wait, from, true);",
    ),
    (
        WAITS,
        LATE,
        "if (has_failed(launch)) return;\n        wait_long(launch, wait, from, true);",
    ),
    // The wait ends after a moment.
    (WAITS, LATE, "if (has_failed(launch)) return;"),
    (WAITS, LATE, "return;"),
    // The stream's state: not looked at; looked at and ignored; without the states that the stream follows.
    (
        WAITS,
        LATE,
        "if (!wait_long(launch, wait, from, true)) return;",
    ),
    (
        WAITS,
        LATE,
        "has_failed(launch);\n        if (!wait_long(launch, wait, from, true)) return;",
    ),
    (WAITS, "if (!stop && !turn.follow) {", "if (!turn.follow) {"),
    (WAITS, "if (!stop && !turn.follow) {", "if (!stop) {"),
    (
        LOOKS,
        "    if (!ok) {\n        const WaitStep *wait",
        "    {\n        const WaitStep *wait",
    ),
    // The awaited value: nothing; less than an epoch; so much that only a long wait ends.
    (
        WAITS,
        "operand = at->operand, quantum = at->quantum;",
        "operand = at->operand, quantum = at->value;",
    ),
    (
        WAITS,
        "ok = reached(value, from, quantum)",
        "ok = reached(value, from, 0)",
    ),
    (
        WAITS,
        "ok = reached(value, from, quantum)",
        "ok = reached(value, from, quantum - (quantum != 0))",
    ),
    (
        LOOKS,
        "ok = reached(value, from, quantum)",
        "ok = reached(value, from, quantum + 1)",
    ),
    (
        WAITS,
        "ok = reached(value, from, quantum)",
        "ok = value >= from + quantum",
    ),
    // Promises: accepted if one less has come than must have; if a block has not promised at all; if half has come; if
    // anything has come; with poison for a count; the next launch never begins by a promise, or the wait ends by it.
    (
        WAITS,
        "(i64)(QUANTUM - MOST_BLOCKS);",
        "(i64)(QUANTUM - MOST_BLOCKS - 1);",
    ),
    (
        EPOCHS,
        "(i64)(QUANTUM - MOST_BLOCKS);",
        "(i64)(QUANTUM - PART);",
    ),
    (
        EPOCHS,
        "(i64)(QUANTUM - MOST_BLOCKS);",
        "(i64)(QUANTUM / 2);",
    ),
    (WAITS, "(i64)(QUANTUM - MOST_BLOCKS);", "0;"),
    (
        WAITS,
        "(i64)((value & ~POISON) - from) >= (i64)(QUANTUM",
        "(i64)(value - from) >= (i64)(QUANTUM",
    ),
    (WAITS, "!passed && promised(", "false && promised("),
    (
        WAITS,
        "                turn.pass(true);\n                passed = true;",
        "                ok = true;\n                break;",
    ),
    // Letting the next launch begin: by any team that passes, by a team too early, by none; by each thread of a team;
    // by a team once too often; before the teams have been counted.
    (
        WAITS,
        "count_down(waiting()) == 1",
        "count_down(waiting()) >= 1",
    ),
    (
        WAITS,
        "count_down(waiting()) == 1",
        "count_down(waiting()) == 2",
    ),
    (
        WAITS,
        "count_down(waiting()) == 1",
        "count_down(waiting()) == 0",
    ),
    (
        NEIGHBOURS,
        "(first && count_down(waiting()) == 1)",
        "(count_down(waiting()) == 1)",
    ),
    (WAITS, "if (!passed) turn.pass(true);", "turn.pass(true);"),
    (
        WAITS,
        "*waiting() = teams;\n        block_barrier();",
        "*waiting() = teams;",
    ),
    (
        ORDER,
        "pass_block(part.alone, team.rank() == 0);\n        return true;",
        "return true;",
    ),
    // The step with which it goes on, and its report.
    (
        WAITS,
        "launch.program + 16ull * at->steps);\n        if (has_failed",
        "launch.program + 8ull * at->steps);\n        if (has_failed",
    ),
    (
        REPORTS,
        "!wait_long(launch, wait, from, true)",
        "!wait_long(launch, wait, from, false)",
    ),
    (
        WAITS,
        "!wait_long(launch, wait, from, true)",
        "!wait_long(launch, wait, from + quantum, true)",
    ),
    // Every thread waits; all lanes that wait only wait.
    (WAITS, "if (threadIdx.x % WARP == 0) run_wait", "run_wait"),
    (
        MOVES,
        "} else if (kind == LANE_WAITS) {",
        "} else if (kind & LANE_WAITS) {",
    ),
    // A lane goes on before the batch in front is over, or makes room for a third one.
    (
        WAITS,
        BEGIN,
        "quantum = at->quantum;\n    const Turn turn(launch, part);\n    u64 from = load_relaxed(operand);\n    u32 stop = load_relaxed32(&turn.state->stop);\n",
    ),
    (
        WAITS,
        BEGIN,
        "quantum = at->quantum;\n    const Turn turn(launch, part);\n    u64 from = load_relaxed(operand);\n    turn.await();\n    u32 stop = load_relaxed32(&turn.state->stop);\n",
    ),
    (
        WAITS,
        BEGIN,
        "quantum = at->quantum;\n    const Turn turn(launch, part);\n    u32 stop = load_relaxed32(&turn.state->stop);\n    turn.await();\n    u64 from = load_relaxed(operand);\n",
    ),
];
