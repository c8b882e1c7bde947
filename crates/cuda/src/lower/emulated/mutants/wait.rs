//! Lanes that only wait.

use super::{EPOCHS, LOOKS, MOVES, Mutant, NEIGHBOURS, ORDER, REPORTS, WAITS};

const BEGIN: &str = "quantum = at->quantum;\n    const Turn turn(launch, part);\n    turn.await();\n    u64 from = load_relaxed(operand);\n    u32 stop = load_relaxed32(&turn.state->stop);\n";
const ADVANCE: &str = "if (quantum) store_relaxed(operand, from + quantum);";
const LATE: &str = "if (has_failed(launch) || !wait_long(launch, wait, from, true)) return;";

pub(super) const MUTANTS: &[Mutant] = &[
    // The operand: not advanced; not by what was waited for; to wherever the word is; of tickets too.
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
    // It is advanced before the word has come.
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
    // It waits no longer than an instant.
    (WAITS, LATE, "if (has_failed(launch)) return;"),
    (WAITS, LATE, "return;"),
    // How the stream stands: nobody asks; or asks, and does not hear the answer; or is not told of those that it follows.
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
    // What is waited for: nothing; less than an epoch; so much that only who waits long comes to an end.
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
    // What has been promised: one less than there must be; what a block has not promised at all; half of it; whatever has
    // come; with poison for a count; and nobody is let come, or the wait ends by it.
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
    // Who lets the next launch come: whoever passes, or one too early, or nobody; each thread of a team; who has passed once
    // more; before anybody has counted the teams.
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
        "*waiting() = record.lanes;\n        block_barrier();",
        "*waiting() = record.lanes;",
    ),
    (
        ORDER,
        "pass(part.alone, team.rank() == 0);\n        return true;",
        "return true;",
    ),
    // The step that it goes on with, and its report.
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
    // Every thread waits; whoever waits only waits.
    (WAITS, "if (threadIdx.x % WARP == 0) run_wait", "run_wait"),
    (
        MOVES,
        "} else if (kind == LANE_WAITS) {",
        "} else if (kind & LANE_WAITS) {",
    ),
    // Who goes on before the batch before is over, or makes room for a third.
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
