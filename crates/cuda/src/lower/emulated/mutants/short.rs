//! Lanes in short, and posts.

use super::{ABORT, EPOCHS, FOLLOW, MOVES, Mutant, POISON, REPORTS};

pub(super) const MUTANTS: &[Mutant] = &[
    // Barriers of lanes in short.
    (
        EPOCHS,
        "    team.barrier();\n    if (stand->failed == SHORT_NOT_YET) {\n        run_late",
        "    if (stand->failed == SHORT_NOT_YET) {\n        run_late",
    ),
    (
        EPOCHS,
        "    team.barrier();\n    if (stand->failed == SHORT_NOT_YET) {\n        if (!wait_late",
        "    if (stand->failed == SHORT_NOT_YET) {\n        if (!wait_late",
    ),
    (
        EPOCHS,
        "if (lane.kind & LANE_ADDS) {\n        team.barrier();",
        "if (lane.kind & LANE_ADDS) {",
    ),
    (
        EPOCHS,
        "stand[1].failed = !ok;\n    }\n    team.barrier();",
        "stand[1].failed = !ok;\n    }",
    ),
    // A stand that is written while some have not read it.
    (
        EPOCHS,
        "stand[1].failed = !ok;\n    }\n    team.barrier();\n    if (!stand[1].failed)",
        "stand->failed = !ok;\n    }\n    team.barrier();\n    if (!stand->failed)",
    ),
    // Their operands, counters, and parts of adds.
    (EPOCHS, "(before == count - 1 || !lane.arrivals)", "true"),
    (
        EPOCHS,
        "(before == count - 1 || !lane.arrivals)",
        "before == 0",
    ),
    (
        EPOCHS,
        "(before == count - 1 || !lane.arrivals)",
        "!lane.arrivals",
    ),
    (
        EPOCHS,
        "store_relaxed(lane.operand, from + lane.quantum)",
        "store_relaxed(lane.operand, from)",
    ),
    (
        EPOCHS,
        "count_to(lane.arrivals, count - 1 + (u32)(from >> 63))",
        "count_to(lane.arrivals, count + (u32)(from >> 63))",
    ),
    (
        EPOCHS,
        "count_to(lane.arrivals, count - 1 + (u32)(from >> 63))",
        "count_to(lane.arrivals & ~128ull, count - 1 + (u32)(from >> 63))",
    ),
    (
        EPOCHS,
        "index == 0 ? lane.value - (count - 1) : 1",
        "index == 0 ? lane.value : 1",
    ),
    (
        EPOCHS,
        "index == 0 ? lane.value - (count - 1) : 1",
        "index == 0 ? lane.value - count : 1",
    ),
    (
        EPOCHS,
        "index == 0 ? lane.value - (count - 1) : 1",
        "index == 0 ? lane.value : 0",
    ),
    // Their buffers.
    (
        EPOCHS,
        "stand->epoch = ((from + lane.quantum) >> QUANTUM_BITS) - 1;",
        "stand->epoch = (from + lane.quantum) >> QUANTUM_BITS;",
    ),
    (
        EPOCHS,
        "u64 dst = lane.dst + (stand->epoch & 1 ? lane.flip : 0);\n#pragma",
        "u64 dst = lane.dst;\n#pragma",
    ),
    (
        MOVES,
        "dst = lane.dst + (stand->epoch & 1 ? lane.flip : 0);\n    copy",
        "dst = lane.dst;\n    copy",
    ),
    // What they copy: the units, and the tail.
    (MOVES, "if (first < lane.tail) put(dst + end, tail);", ""),
    (
        MOVES,
        "if (first < lane.tail) fetch(tail, lane.src + end);",
        "fetch(tail, lane.src + end);",
    ),
    (
        MOVES,
        "u64 end = lane.count * sizeof(V16) + first;\n    if (first < lane.tail) fetch",
        "u64 end = first;\n    if (first < lane.tail) fetch",
    ),
    (
        MOVES,
        "u64 end = lane.count * sizeof(V16) + first;\n    if (first < lane.tail) {",
        "u64 end = first;\n    if (first < lane.tail) {",
    ),
    (
        MOVES,
        "u64 end = lane.count * sizeof(V16) + first;\n    if (first < lane.tail) {",
        "u64 end = lane.count * sizeof(V16) + first;\n    if (first + 1 < lane.tail) {",
    ),
    (
        MOVES,
        "first + DEPTH * stride, stride, lane.count);",
        "first + (DEPTH - 1) * stride, 2 * stride, lane.count);",
    ),
    (
        MOVES,
        "first + DEPTH * stride, stride, units);",
        "first + (DEPTH - 1) * stride, 2 * stride, units);",
    ),
    (
        MOVES,
        "return dst + i * sizeof(V16); }, first, stride, lane.count);",
        "return dst + i * sizeof(V16); }, first + stride, stride, lane.count);",
    ),
    (
        MOVES,
        "if (first + k * stride < lane.count) put(",
        "if (first + k * stride <= lane.count) put(",
    ),
    // What is listed: where it is looked up, how far, and in which buffer it ends.
    (
        MOVES,
        "fetch(places[k], list + 4 * i);",
        "fetch(places[k], list + 4 * first);",
    ),
    (
        MOVES,
        "if (list && i < count) fetch(places[k], list + 4 * i);",
        "",
    ),
    (
        MOVES,
        "look_up(from, places, at);",
        "look_up(to, places, at);",
    ),
    (
        MOVES,
        "look_up(to, targets, at);",
        "look_up(from, targets, at);",
    ),
    (
        MOVES,
        "src + (u64)places[k] * sizeof(Unit));",
        "src + (u64)places[k] * 8);",
    ),
    (
        MOVES,
        "dst + (u64)targets[k] * sizeof(Unit), units[k]);",
        "dst + (u64)targets[k] * 8, units[k]);",
    ),
    (
        MOVES,
        "if (at + k * stride < count) put(dst",
        "if (at + k * stride <= count) put(dst",
    ),
    (MOVES, "            look_up(from, places, next);\n", ""),
    (MOVES, "            look_up(to, targets, next);\n", ""),
    (
        MOVES,
        "at = next;\n            fetch_units();",
        "at = next;",
    ),
    (
        EPOCHS,
        "listed.put_all(lane.dst + (stand->epoch & 1 ? lane.flip : 0));",
        "listed.put_all(lane.dst);",
    ),
    (MOVES, "while (at < count) {", "if (at < count) {"),
    // How their streams stand, and what they wait for when it takes long.
    (
        ABORT,
        "stop || launch.follow[0] || !ok ? SHORT",
        "launch.follow[0] || !ok ? SHORT",
    ),
    (
        FOLLOW,
        "stop || launch.follow[0] || !ok ? SHORT",
        "stop || !ok ? SHORT",
    ),
    (
        EPOCHS,
        "stop || launch.follow[0] || !ok ? SHORT",
        "stop || launch.follow[0] ? SHORT",
    ),
    (FOLLOW, "bool ok = !has_failed(launch);", "bool ok = true;"),
    (
        EPOCHS,
        "if (ok && waits) ok = wait_long(",
        "if (false) ok = wait_long(",
    ),
    (
        POISON,
        "if (team.rank() == 0) give_up(launch, steps, waits);",
        "",
    ),
    (
        POISON,
        "give_up(launch, steps, waits);\n    return false;",
        "give_up(launch, steps, waits);\n    return true;",
    ),
    (
        POISON,
        "launch.program + 16ull * steps;\n",
        "launch.program + 16ull * steps + 16 * ((const Step *)(launch.program + 16ull * steps))->length;\n",
    ),
    (
        REPORTS,
        "from, index == 0);\n        stand[1]",
        "from, false);\n        stand[1]",
    ),
    (
        REPORTS,
        "ok = wait_long(launch, wait, from, index == 0);",
        "ok = wait_long(launch, wait, from, false);",
    ),
    // Posts: without a fence, or with it at the wrong time; of a failed stream; by every thread.
    (EPOCHS, "    fence();\n    if ((stop", "    if ((stop"),
    (
        EPOCHS,
        "u32 steps = at->steps;\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n    u32 stop = load_relaxed32(&launch.state->stop);\n    fence();",
        "u32 steps = at->steps;\n    fence();\n    wait_for_previous();\n    if (launch.flags & LAUNCH_NEXT) let_next_come();\n    u32 stop = load_relaxed32(&launch.state->stop);\n",
    ),
    (
        FOLLOW,
        "if ((stop || launch.follow[0]) && has_failed(launch)) give_up",
        "if (stop && has_failed(launch)) give_up",
    ),
    (
        FOLLOW,
        "if ((stop || launch.follow[0]) && has_failed(launch)) give_up",
        "if (false) give_up",
    ),
    (
        FOLLOW,
        "give_up(launch, steps, false);\n    else add",
        "give_up(launch, steps, false);\n    add",
    ),
    (
        FOLLOW,
        "has_failed(launch)) give_up(launch, steps, false);",
        "has_failed(launch)) (void)0;",
    ),
    (EPOCHS, "if (threadIdx.x % WARP == 0) run_post", "run_post"),
];
