//! The work of each team, and when a batch goes on.

use super::{
    EPOCHS, LANDED, LANDING, MOVES, Mutant, NEIGHBOURS, ORDER, PARITIES, REDUCTIONS, WAITS,
};

pub(super) const MUTANTS: &[Mutant] = &[
    // Threads get different elements for one move than for the next.
    (
        REDUCTIONS,
        "for (u64 i = first; i < move->count; i += stride) {\n        u64 at",
        "for (u64 i = (first + move->src / 64) % stride; i < move->count; i += stride) {\n        u64 at",
    ),
    // Lanes that are taken for other kinds.
    (
        EPOCHS,
        "} else if (kind == LANE_ADDS) {",
        "} else if (kind & LANE_ADDS) {",
    ),
    (MOVES, "} else if (!(kind & LANE_STEPS)) {", "} else {"),
    // Copies in a row: those without a warp of their own; a warp's share of a copy.
    (
        MOVES,
        "number < moves; number += groups)",
        "number < moves; number += moves)",
    ),
    (
        MOVES,
        "epoch, warp % each * WARP + team.rank() % WARP,",
        "epoch, team.rank() % WARP,",
    ),
    (
        MOVES,
        "return (const u8 *)first + moves * length;",
        "return (const u8 *)first + (moves + 1) * length;",
    ),
    // Blocks with the wrong work: another block's; lanes that are read from the wrong place.
    (
        MOVES,
        "launch.program + (u64)blockIdx.x * launch.stride;",
        "launch.program + (u64)blockIdx.x / 2 * launch.stride;",
    ),
    (
        MOVES,
        "(own + sizeof(Record)) + member;",
        "(own + sizeof(Record));",
    ),
    (
        MOVES,
        "launch.program + 16ull * lane->steps;\n    u64 length",
        "launch.program + 8ull * lane->steps;\n    u64 length",
    ),
    // More warps than lanes, or fewer; the number of a warp.
    (
        EPOCHS,
        "if (member >= record.lanes) return;",
        "if (member >= record.lanes) member = 0;",
    ),
    (
        MOVES,
        "if (member >= record.lanes) return;",
        "if (member > record.lanes) return;",
    ),
    (
        MOVES,
        "if (member >= record.lanes) return;",
        "if (member + 1 >= record.lanes && member) return;",
    ),
    (
        EPOCHS,
        "record.team == TEAM_BLOCKS ? 0 : threadIdx.x / WARP;",
        "0;",
    ),
    (
        NEIGHBOURS,
        "run_short(launch, Warp(), stands[member], lane, part);",
        "run_short(launch, Warp(), stands[0], lane, part);",
    ),
    (
        MOVES,
        "run_short(launch, Warp(), stands[member], lane, part);",
        "run_short(launch, Warp(), stands[member], lane, {member, 1, part.alone});",
    ),
    (
        PARITIES,
        "run_steps<false>(launch, Warp(), stands[member], lane",
        "run_steps<false>(launch, Warp(), stands[0], lane",
    ),
    (
        MOVES,
        "run_steps<false>(launch, Warp(), stands[member], lane, part);",
        "run_steps<false>(launch, Warp(), stands[member], lane, {member, 1, part.alone});",
    ),
    (
        EPOCHS,
        "run_steps<false>(launch, Block(), stands[0], lane, part);",
        "run_steps<false>(launch, Block(), stands[0], lane, {0, part.count, true});",
    ),
    (
        EPOCHS,
        "run_steps<false>(launch, Block(), stands[0], lane, part);",
        "run_steps<false>(launch, Block(), stands[0], lane, {part.index, part.count + 1, true});",
    ),
    (
        EPOCHS,
        "run_short(launch, Block(), stands[0], lane, part);",
        "run_short(launch, Block(), stands[0], lane, {0, part.count, true});",
    ),
    (
        EPOCHS,
        "run_short(launch, Block(), stands[0], lane, part);",
        "run_short(launch, Block(), stands[0], lane, {part.index, part.count + 1, true});",
    ),
    (
        EPOCHS,
        "run_listed<Block, Gathered>(launch, Block(), stands[0], lane, part);",
        "run_listed<Block, Gathered>(launch, Block(), stands[0], lane, {0, part.count, true});",
    ),
    (
        EPOCHS,
        "run_listed<Block, Gathered>(launch, Block(), stands[0], lane, part);",
        "run_listed<Block, Gathered>(launch, Block(), stands[0], lane, {part.index, part.count + 1, true});",
    ),
    (
        NEIGHBOURS,
        "run_listed<Warp, Scattered>(launch, Warp(), stands[member], lane, part);",
        "run_listed<Warp, Scattered>(launch, Warp(), stands[0], lane, part);",
    ),
    (
        NEIGHBOURS,
        "run_listed<Warp, Gathered>(launch, Warp(), stands[member], lane, part);",
        "run_listed<Warp, Gathered>(launch, Warp(), stands[0], lane, part);",
    ),
    (
        MOVES,
        "run_listed<Warp, Scattered>(launch, Warp(), stands[member], lane, part);",
        "run_listed<Warp, Scattered>(launch, Warp(), stands[member], lane, {member, 1, part.alone});",
    ),
    (
        NEIGHBOURS,
        "run_listed<Warp, Gathered>(launch, Warp(), stands[member], lane, part);",
        "run_listed<Warp, Gathered>(launch, Warp(), stands[member], lane, {member, 1, part.alone});",
    ),
    // A batch goes on before the batch in front is over, or makes room for a third one.
    (
        ORDER,
        "wait_for_previous();\n        if (lets_next_come) let_next_come();\n",
        "if (lets_next_come) let_next_come();\n",
    ),
    (
        ORDER,
        "wait_for_previous();\n        if (lets_next_come) let_next_come();\n",
        "if (lets_next_come) wait_for_previous(), let_next_come();\n",
    ),
    (
        ORDER,
        "wait_for_previous();\n        if (lets_next_come) let_next_come();\n",
        "if (lets_next_come) let_next_come();\n        wait_for_previous();\n",
    ),
    (
        ORDER,
        "wait_for_previous();\n        if (lets_next_come) let_next_come();\n",
        "wait_for_previous();\n        let_next_come();\n",
    ),
    (
        ORDER,
        "const Lane lane = *at;\n    const Turn turn(launch, part);\n    turn.await();\n    u64 first",
        "const Lane lane = *at;\n    const Turn turn(launch, part);\n    u64 first",
    ),
    (
        ORDER,
        "    turn.await();\n    u64 from;\n    u32 before;\n    look_shortly",
        "    u64 from;\n    u32 before;\n    look_shortly",
    ),
    (
        ORDER,
        "units.begin();\n    turn.await();\n    units.fetch_units();\n",
        "units.begin();\n    units.fetch_units();\n    turn.await();\n",
    ),
    // The same in the function for gathers.
    (
        ORDER,
        "units.begin();\n    turn.await();\n    units.fetch_units();\n",
        "units.begin();\n    if (sizeof(units) != sizeof(Gathered<u64>)) turn.await();\n    units.fetch_units();\n    turn.await();\n",
    ),
    (
        ORDER,
        "u32 steps = at->steps;\n    const Turn turn(launch, part);\n    turn.await();\n    turn.pass(true);\n",
        "u32 steps = at->steps;\n    const Turn turn(launch, part);\n    turn.pass(true);\n",
    ),
    (
        ORDER,
        "        steps = window;\n    }\n    turn.await();\n",
        "        steps = window;\n    }\n",
    ),
    // A block makes room while a lane of it still waits; or never, though no lane waits.
    (
        NEIGHBOURS,
        "if (BEGINS_EARLY && (alone || (first && count_down(waiting()) == 1))) let_next_come();",
        "let_next_come();",
    ),
    (
        NEIGHBOURS,
        "shares || record.lanes == 1};",
        "shares || record.lanes >= 1};",
    ),
    (ORDER, "(alone || (first &&", "((first &&"),
    (
        ORDER,
        "turn.pass(team.rank() == 0);\n    units.put_all(",
        "units.put_all(",
    ),
    (
        ORDER,
        "turn.pass(team.rank() == 0);\n    u64 dst = lane.dst",
        "u64 dst = lane.dst",
    ),
    (
        ORDER,
        "    turn.pass(true);\n    u32 stop = load_relaxed32(&turn.state->stop);\n    fence();",
        "    u32 stop = load_relaxed32(&turn.state->stop);\n    fence();",
    ),
    (
        WAITS,
        "if (!passed) turn.pass(true);\n    if (quantum) store_relaxed(operand, from + quantum);",
        "if (quantum) store_relaxed(operand, from + quantum);",
    ),
    (
        WAITS,
        "    const Turn turn(launch, part);\n    turn.await();\n    u64 from = load_relaxed(operand);",
        "    const Turn turn(launch, part);\n    turn.await();\n    turn.pass(true);\n    u64 from = load_relaxed(operand);",
    ),
    (
        ORDER,
        "    u32 before;\n    look_shortly(turn, team, stand, lane, part, from, before);\n    team.barrier();\n    if (stand->failed == SHORT_NOT_YET) {\n        run_late(",
        "    u32 before;\n    turn.pass(team.rank() == 0);\n    look_shortly(turn, team, stand, lane, part, from, before);\n    team.barrier();\n    if (stand->failed == SHORT_NOT_YET) {\n        run_late(",
    ),
    (
        ORDER,
        "    u32 before;\n    look_shortly(turn, team, stand, lane, part, from, before);\n    team.barrier();\n    if (stand->failed == SHORT_NOT_YET) {\n        run_listed_late<",
        "    u32 before;\n    turn.pass(team.rank() == 0);\n    look_shortly(turn, team, stand, lane, part, from, before);\n    team.barrier();\n    if (stand->failed == SHORT_NOT_YET) {\n        run_listed_late<",
    ),
    (
        ORDER,
        "    u32 steps = at->steps, waits = at->kind & LANE_WAITS;\n",
        "    u32 steps = at->steps, waits = at->kind & LANE_WAITS;\n    pass_block(part.alone, team.rank() == 0);\n",
    ),
    (
        LANDING,
        "flip = at->landing_flip;\n    const Turn turn(launch, part);\n    turn.await();\n",
        "flip = at->landing_flip;\n    const Turn turn(launch, part);\n    turn.await();\n    turn.pass(first == 0);\n",
    ),
    (
        LANDED,
        "    pass();\n    if (how == BY_WORD",
        "    if (how == BY_WORD",
    ),
    (
        LANDED,
        "    u32 how = search.by_word ? BY_WORD : HAS_LANDED;\n    if (stands",
        "    u32 how = search.by_word ? BY_WORD : HAS_LANDED;\n    turn.pass(first);\n    if (stands",
    ),
    (
        LANDING,
        "    turn.pass(first == 0);\n    const u32 tag = tag_of(",
        "    const u32 tag = tag_of(",
    ),
    // Some steps are missing; or steps that are too many to be kept at hand are carried out too early.
    (
        ORDER,
        "        team.barrier();\n        steps = window;",
        "        steps = window;",
    ),
    (
        ORDER,
        "        steps = window;\n    }\n    turn.await();\n",
        "        steps = window;\n        turn.await();\n    }\n",
    ),
    // The same for counted lanes: a block makes another block's share, or a share of more than there are; the warps of
    // a block share a state, or use the wrong share.
    (
        MOVES,
        "run_counted(launch, Block(), stands[0], lane, part);",
        "run_counted(launch, Block(), stands[0], lane, {0, part.count, true});",
    ),
    (
        MOVES,
        "run_counted(launch, Block(), stands[0], lane, part);",
        "run_counted(launch, Block(), stands[0], lane, {part.index, part.count + 1, true});",
    ),
    (
        MOVES,
        "run_counted(launch, Warp(), stands[member], lane, part);",
        "run_counted(launch, Warp(), stands[0], lane, part);",
    ),
    (
        MOVES,
        "run_counted(launch, Warp(), stands[member], lane, part);",
        "run_counted(launch, Warp(), stands[member], lane, {member, 1, part.alone});",
    ),
];
