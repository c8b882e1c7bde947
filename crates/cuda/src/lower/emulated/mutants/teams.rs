//! Who does what, and when a batch goes on.

use super::{EPOCHS, MOVES, Mutant, NEIGHBOURS, ORDER, PARITIES};

pub(super) const MUTANTS: &[Mutant] = &[
    // Lanes that are taken for others.
    (
        EPOCHS,
        "} else if (kind == LANE_ADDS) {",
        "} else if (kind & LANE_ADDS) {",
    ),
    (MOVES, "} else if (!(kind & LANE_STEPS)) {", "} else {"),
    // Copies in a row: those that no warp is left for; a warp's share of one.
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
    // Blocks that find the wrong work: another's; lanes that are looked for where they are not.
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
    // More warps than lanes, or fewer; who is which.
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
        "run_short(launch, Warp(), stands[member], lane, 0, 1);",
        "run_short(launch, Warp(), stands[0], lane, 0, 1);",
    ),
    (
        MOVES,
        "run_short(launch, Warp(), stands[member], lane, 0, 1);",
        "run_short(launch, Warp(), stands[member], lane, member, 1);",
    ),
    (
        PARITIES,
        "run_steps(launch, Warp(), stands[member], lane",
        "run_steps(launch, Warp(), stands[0], lane",
    ),
    (
        MOVES,
        "run_steps(launch, Warp(), stands[member], lane, 0, 1);",
        "run_steps(launch, Warp(), stands[member], lane, member, 1);",
    ),
    (
        EPOCHS,
        "run_steps(launch, Large(), stands[0], lane, record.index, record.count);",
        "run_steps(launch, Large(), stands[0], lane, 0, record.count);",
    ),
    (
        EPOCHS,
        "run_steps(launch, Large(), stands[0], lane, record.index, record.count);",
        "run_steps(launch, Large(), stands[0], lane, record.index, record.count + 1);",
    ),
    (
        EPOCHS,
        "run_short(launch, Block(), stands[0], lane, record.index, record.count);",
        "run_short(launch, Block(), stands[0], lane, 0, record.count);",
    ),
    (
        EPOCHS,
        "run_short(launch, Block(), stands[0], lane, record.index, record.count);",
        "run_short(launch, Block(), stands[0], lane, record.index, record.count + 1);",
    ),
    (
        EPOCHS,
        "run_listed<Block, Gathered>(launch, Block(), stands[0], lane, record.index, record.count);",
        "run_listed<Block, Gathered>(launch, Block(), stands[0], lane, 0, record.count);",
    ),
    (
        EPOCHS,
        "run_listed<Block, Gathered>(launch, Block(), stands[0], lane, record.index, record.count);",
        "run_listed<Block, Gathered>(launch, Block(), stands[0], lane, record.index, record.count + 1);",
    ),
    (
        NEIGHBOURS,
        "run_listed<Warp, Scattered>(launch, Warp(), stands[member], lane, 0, 1);",
        "run_listed<Warp, Scattered>(launch, Warp(), stands[0], lane, 0, 1);",
    ),
    (
        NEIGHBOURS,
        "run_listed<Warp, Gathered>(launch, Warp(), stands[member], lane, 0, 1);",
        "run_listed<Warp, Gathered>(launch, Warp(), stands[0], lane, 0, 1);",
    ),
    (
        MOVES,
        "run_listed<Warp, Scattered>(launch, Warp(), stands[member], lane, 0, 1);",
        "run_listed<Warp, Scattered>(launch, Warp(), stands[member], lane, member, 1);",
    ),
    (
        NEIGHBOURS,
        "run_listed<Warp, Gathered>(launch, Warp(), stands[member], lane, 0, 1);",
        "run_listed<Warp, Gathered>(launch, Warp(), stands[member], lane, member, 1);",
    ),
    // Who goes on before the batch before is over, or makes room for a third.
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
        "const Lane lane = *at;\n    const Turn turn(launch);\n    turn.await();\n",
        "const Lane lane = *at;\n    const Turn turn(launch);\n",
    ),
    (
        ORDER,
        "units.begin();\n    turn.await();\n    units.fetch_units();\n",
        "units.begin();\n    units.fetch_units();\n    turn.await();\n",
    ),
    // The same of what is gathered alone.
    (
        ORDER,
        "units.begin();\n    turn.await();\n    units.fetch_units();\n",
        "units.begin();\n    if (sizeof(units) != sizeof(Gathered<u64>)) turn.await();\n    units.fetch_units();\n    turn.await();\n",
    ),
    (
        ORDER,
        "u32 steps = at->steps;\n    const Turn turn(launch);\n    turn.await();\n",
        "u32 steps = at->steps;\n    const Turn turn(launch);\n",
    ),
    (
        ORDER,
        "        steps = window;\n    }\n    turn.await();\n",
        "        steps = window;\n    }\n",
    ),
    // Steps that are not all there; those that are too many to be kept at hand, carried out too early.
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
];
