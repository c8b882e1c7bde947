//! Short forms of lanes, and posts.

use super::{ABORT, EPOCHS, FOLLOW, MOVES, Mutant, POISON, REPORTS};

pub(super) const MUTANTS: &[Mutant] = &[
    // Barriers in short forms.
    (
        EPOCHS,
        "    team.barrier();\n    if (stand->failed == SHORT_NOT_YET) {\n        run_late",
        "    if (stand->failed == SHORT_NOT_YET) {\n        run_late",
    ),
    (
        EPOCHS,
        "units.fetch_units();\n    u64 from;\n    u32 before;\n    look_shortly(turn, team, stand, lane, part, from, before);\n    team.barrier();",
        "units.fetch_units();\n    u64 from;\n    u32 before;\n    look_shortly(turn, team, stand, lane, part, from, before);",
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
    // The state is written while some threads have not read it.
    (
        EPOCHS,
        "stand[1].failed = !ok;\n    }\n    team.barrier();\n    if (!stand[1].failed)",
        "stand->failed = !ok;\n    }\n    team.barrier();\n    if (!stand->failed)",
    ),
    // Copies behind their wait: too early, out of the wrong buffer, or to a place that has none.
    (
        EPOCHS,
        "    team.barrier();\n    if (stand->failed == SHORT_REACHED) {",
        "    if (stand->failed == SHORT_REACHED) {",
    ),
    (
        EPOCHS,
        "    if (stand->failed == SHORT_REACHED) {",
        "    if (true) {",
    ),
    (EPOCHS, "lane.src + (behind ? flip : 0)", "lane.src"),
    (EPOCHS, "lane.dst + (behind ? 0 : flip)", "lane.dst + flip"),
    (EPOCHS, "lane.dst + (behind ? 0 : flip)", "lane.dst"),
    // Their operands, counters, and parts of adds.
    (
        EPOCHS,
        "(before == part.count - 1 || !lane.arrivals)",
        "true",
    ),
    (
        EPOCHS,
        "(before == part.count - 1 || !lane.arrivals)",
        "before == 0",
    ),
    (
        EPOCHS,
        "(before == part.count - 1 || !lane.arrivals)",
        "!lane.arrivals",
    ),
    (
        EPOCHS,
        "store_relaxed(lane.operand, from + lane.quantum)",
        "store_relaxed(lane.operand, from)",
    ),
    (
        EPOCHS,
        "count_to(lane.arrivals, part.count - 1 + (u32)(from >> 63))",
        "count_to(lane.arrivals, part.count + (u32)(from >> 63))",
    ),
    (
        EPOCHS,
        "count_to(lane.arrivals, part.count - 1 + (u32)(from >> 63))",
        "count_to(lane.arrivals & ~128ull, part.count - 1 + (u32)(from >> 63))",
    ),
    // Promises: a wrong amount, or at another word; kept before the rest has come, or never kept; made before the wait
    // is over, in a short wait or a long one; or not made after a long wait.
    (
        EPOCHS,
        "part_of(lane.value, part.index, part.count) - 1",
        "part_of(lane.value, part.index, part.count)",
    ),
    (
        EPOCHS,
        "part_of(lane.value, part.index, part.count) - 1",
        "part_of(lane.value, 0, part.count) - 1",
    ),
    (
        EPOCHS,
        "add_unordered(lane.out, part_of",
        "add_unordered(lane.out + 8, part_of",
    ),
    (
        EPOCHS,
        "add_release(lane.out, 1);",
        "add_release(lane.out, 2);",
    ),
    (EPOCHS, "add_release(lane.out, 1);", "(void)0;"),
    (
        EPOCHS,
        "            ok = false;\n#pragma",
        "            ok = false;\n            promise(lane, part);\n#pragma",
    ),
    (
        EPOCHS,
        "    if (team.rank() == 0) promise(lane, part);\n    if (first + DEPTH",
        "    if (first + DEPTH",
    ),
    (
        EPOCHS,
        "    if (team.rank() == 0) promise(lane, part);\n    if (first + DEPTH",
        "    promise(lane, part);\n    if (first + DEPTH",
    ),
    (
        EPOCHS,
        "    if (team.rank() == 0) promise(lane, part);\n    end_short",
        "    end_short",
    ),
    (
        EPOCHS,
        "    if (team.rank() == 0) promise(lane, part);\n    end_short",
        "    promise(lane, part);\n    end_short",
    ),
    (
        EPOCHS,
        "    if (team.rank() == 0) promise(lane, part);\n    u64 first",
        "    u64 first",
    ),
    (
        EPOCHS,
        "    if (team.rank() == 0) promise(lane, part);\n    u64 first",
        "    promise(lane, part);\n    u64 first",
    ),
    (
        EPOCHS,
        "    if (team.rank() == 0) promise(lane, part);\n    Units",
        "    Units",
    ),
    (
        EPOCHS,
        "    if (team.rank() == 0) promise(lane, part);\n    Units",
        "    promise(lane, part);\n    Units",
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
        "dst = lane.dst + (behind ? 0 : flip);\n    copy",
        "dst = lane.dst;\n    copy",
    ),
    // Their copies: the units, and the tail.
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
    // Lists: the place in the list, its length, and the buffer that is used.
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
        "if (at + k * stride < count) put(dst + (u64)targets",
        "if (at + k * stride <= count) put(dst + (u64)targets",
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
        "units.put_all(lane.dst + (stand->epoch & 1 ? lane.flip : 0));\n    end_short(team, lane, from, before, part);",
        "units.put_all(lane.dst);\n    end_short(team, lane, from, before, part);",
    ),
    (
        EPOCHS,
        "units.put_all(lane.dst + (stand->epoch & 1 ? lane.flip : 0));\n    if (team.rank() == 0) promise(lane, part);\n    end_short(team, lane, from, before, part);\n}\n\ntemplate",
        "units.put_all(lane.dst);\n    if (team.rank() == 0) promise(lane, part);\n    end_short(team, lane, from, before, part);\n}\n\ntemplate",
    ),
    (
        MOVES,
        "while (at < count) {\n            u64 next",
        "if (at < count) {\n            u64 next",
    ),
    // Gathers: the entries for 16 bytes of units, and the units; the last bytes; and the copy after the wait.
    (
        MOVES,
        "fetch(both, list + 8ull * i);",
        "fetch(both, list + 4ull * i);",
    ),
    (
        MOVES,
        "places[1] = (u32)(both >> 32);",
        "places[1] = (u32)both;",
    ),
    (
        MOVES,
        "fetch(all, list + 16ull * i);",
        "fetch(all, list + 4ull * i);",
    ),
    (MOVES, "places[2] = all.z;", "places[2] = all.w;"),
    (
        MOVES,
        "(u32)(units[0] >> 32), (u32)units[1],",
        "(u32)units[1], (u32)(units[0] >> 32),",
    ),
    (
        MOVES,
        "return {units[0], units[1], units[2], units[3]};",
        "return {units[0], units[1], units[3], units[2]};",
    ),
    (
        MOVES,
        "last(count * each + first)",
        "last(count * each + first + 1)",
    ),
    (MOVES, "if (last < rest) put(", "if (last + 1 < rest) put("),
    (
        MOVES,
        "if (last < rest) fetch(place,",
        "if (false) fetch(place,",
    ),
    (
        MOVES,
        "src + (u64)place * sizeof(Unit)",
        "src + (u64)place * 8",
    ),
    (
        MOVES,
        "if (at + k * stride < count) put(dst + (u64)(at",
        "if (at + k * stride <= count) put(dst + (u64)(at",
    ),
    (MOVES, "            look_up_from(next);\n", ""),
    (MOVES, "            fetch_from(at);\n", ""),
    (
        MOVES,
        "while (at < count) {\n            u32 next",
        "if (at < count) {\n            u32 next",
    ),
    // After a long wait a block takes another share than after a short one.
    (
        EPOCHS,
        "Units units(lane, part.index * Team::size + team.rank(), part.count * Team::size);\n    units.begin();\n    units.fetch_units();",
        "Units units(lane, team.rank(), part.count * Team::size);\n    units.begin();\n    units.fetch_units();",
    ),
    // The stream's state, and the report of a wait that takes long.
    (
        ABORT,
        "stop || turn.follow || !ok ? SHORT",
        "turn.follow || !ok ? SHORT",
    ),
    (
        FOLLOW,
        "stop || turn.follow || !ok ? SHORT",
        "stop || !ok ? SHORT",
    ),
    (
        EPOCHS,
        "stop || turn.follow || !ok ? SHORT",
        "stop || turn.follow ? SHORT",
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
        "from, part.index == 0);\n        stand[1]",
        "from, false);\n        stand[1]",
    ),
    (
        REPORTS,
        "ok = wait_long(launch, wait, from, index == 0);",
        "ok = wait_long(launch, wait, from, false);",
    ),
    // Posts: without a fence, or with the fence at the wrong time; in a failed stream; by every thread.
    (EPOCHS, "    fence();\n    if ((stop", "    if ((stop"),
    (
        EPOCHS,
        "u32 steps = at->steps;\n    const Turn turn(launch, part);\n    turn.await();\n    turn.pass(true);\n    u32 stop = load_relaxed32(&turn.state->stop);\n    fence();",
        "u32 steps = at->steps;\n    fence();\n    const Turn turn(launch, part);\n    turn.await();\n    turn.pass(true);\n    u32 stop = load_relaxed32(&turn.state->stop);\n",
    ),
    (
        FOLLOW,
        "if ((stop || turn.follow) && has_failed(launch)) give_up",
        "if (stop && has_failed(launch)) give_up",
    ),
    (
        FOLLOW,
        "if ((stop || turn.follow) && has_failed(launch)) give_up",
        "if (false) give_up",
    ),
    (
        FOLLOW,
        "give_up(launch, steps, false);\n    else {\n        add",
        "give_up(launch, steps, false);\n    {\n        add",
    ),
    (
        FOLLOW,
        "has_failed(launch)) give_up(launch, steps, false);",
        "has_failed(launch)) (void)0;",
    ),
    (EPOCHS, "if (threadIdx.x % WARP == 0) run_post", "run_post"),
    // Counted lanes: more elements than there are; the last bytes are forgotten, whether the source has more or not, or
    // are moved with the bytes behind them; units of another round; parts of a unit at another place.
    (
        MOVES,
        "u64 bytes = (counted < most ? counted : most) * size;",
        "u64 bytes = counted * size;",
    ),
    (
        MOVES,
        "u64 end = whole < room && rest ? whole + 1 : whole;",
        "u64 end = whole;",
    ),
    (
        MOVES,
        "u64 end = whole < room && rest ? whole + 1 : whole;",
        "u64 end = rest ? whole + 1 : whole;",
    ),
    (
        MOVES,
        "if (whole == room && first < rest) {",
        "if (false) {",
    ),
    (
        MOVES,
        "if (whole == room && first < rest) {",
        "if (first < rest) {\n            whole = room;",
    ),
    (
        MOVES,
        "else if (i < end) put_some(dst + i * sizeof(Unit), units[k], rest);",
        "else if (i < end) put(dst + i * sizeof(Unit), units[k]);",
    ),
    (
        MOVES,
        "at += DEPTH * stride;\n            fetch_from(at, end);",
        "at += DEPTH * stride;",
    ),
    (
        MOVES,
        "fetch_from(at, most * size / sizeof(Unit));",
        "fetch_from(at, most / sizeof(Unit));",
    ),
    (MOVES, "if (bytes >= 12) put(to + 8, unit.z);", ""),
    (
        MOVES,
        "bytes < 8 ? unit.y : bytes < 12 ? unit.z : unit.w;",
        "bytes < 8 ? unit.y : unit.z;",
    ),
    (MOVES, "i++, last >>= 8) put(to + i", "i++) put(to + i"),
];
