//! Lanes that are carried out by their steps: waits, moves, adds, failure.

use super::{
    ABORT, CHECKS, EPOCHS, EXTREMES, FOLLOW, LOOKS, MOVES, Mutant, PARITIES, POISON, REDUCTIONS,
    REPORTS, REPORTS_BY_TURNS, TURNS,
};

pub(super) const MUTANTS: &[Mutant] = &[
    // Signed integers are added and multiplied as signed; u16 as `int`.
    (
        EXTREMES,
        "case OP_SUM: return (T)((u64)a + (u64)b);",
        "case OP_SUM: return a + b;",
    ),
    (
        EXTREMES,
        "case OP_PROD: return (T)((u64)a * (u64)b);",
        "case OP_PROD: return a * b;",
    ),
    // A NaN wins against a number; the old value already wins against an equal one.
    (
        EXTREMES,
        "{ return (b != b || a < b) ? a : b; }",
        "{ return a < b ? a : b; }",
    ),
    (
        EXTREMES,
        "{ return (b != b || a > b) ? a : b; }",
        "{ return (b != b || !(b > a)) ? a : b; }",
    ),
    // Floats of 16 bits: one kind for the other, and one that comes from a wrong place in its word.
    (
        REDUCTIONS,
        "return add_f16x2(a, b);",
        "return add_bf16x2(a, b);",
    ),
    (
        REDUCTIONS,
        "else if (scalar == S_F16) sum<F16>",
        "else if (scalar == S_BF16) sum<F16>",
    ),
    (
        EXTREMES,
        "return __uint_as_float((u32)bits << 16);",
        "return __uint_as_float((u32)bits << 15);",
    ),
    // Checks: of the greatest number; without a barrier, poison or the right report; where a slow thread still reads;
    // and the epoch that the moves behind them have.
    (
        MOVES,
        "if (count <= check->most)",
        "if (count < check->most)",
    ),
    // A lane whose target a kernel has completed: both numbers count, and its wait is over.
    (
        CHECKS,
        "!turn.follow && !fault && !block",
        "!turn.follow && !block",
    ),
    (
        CHECKS,
        "!turn.follow && !fault && !block",
        "!turn.follow && !fault",
    ),
    (
        CHECKS,
        "if (ok) {\n            store_relaxed(operand, from + quantum);",
        "if (ok) {",
    ),
    (
        CHECKS,
        "team.barrier();\n                if (stand->failed) {",
        "if (stand->failed) {",
    ),
    (
        CHECKS,
        "if (team.rank() == 0) poison_rest(next);\n                    return;\n                }\n                break;\n            }\n            case STEP_MOVE",
        "return;\n                }\n                break;\n            }\n            case STEP_MOVE",
    ),
    (
        CHECKS,
        "check->awaited, count}",
        "check->awaited, check->most}",
    ),
    (
        CHECKS,
        "stand = stand == stands ? stands + 1 : stands;\n                if (team.rank() == 0) {\n                    stand->failed = !check",
        "if (team.rank() == 0) {\n                    stand->failed = !check",
    ),
    (PARITIES, "stand->epoch = last->epoch;", ""),
    // The number of the other buffer.
    (
        MOVES,
        "move->compare + (odd ? move->result : 0)",
        "move->compare",
    ),
    // The barrier before an add, and the one after a wait.
    (
        EPOCHS,
        "team.barrier();\n                if (team.rank() == 0) {\n                    u64 part",
        "if (team.rank() == 0) {\n                    u64 part",
    ),
    (
        EPOCHS,
        "    team.barrier();\n    return !stand->failed;",
        "    return !stand->failed;",
    ),
    // All waits of a team use the same state.
    (
        PARITIES,
        "bool ok;\n                stand = stand == stands ? stands + 1 : stands;",
        "bool ok;\n                stand = stands;",
    ),
    // Every block advances the operand; the first one does; none does; tickets advance it, too.
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
    // The counter does not start again at zero.
    (
        EPOCHS,
        "count_to(wait->arrivals, count - 1 + (u32)(from >> 63))",
        "count_to(wait->arrivals, count + (u32)(from >> 63))",
    ),
    // The parts of an add sum up to more than the add, or to less; all are in the first part; or a part is as small as
    // what a promise leaves.
    (
        EPOCHS,
        "index == 0 ? value - PART * (count - 1) : PART",
        "index == 0 ? value : PART",
    ),
    (
        EPOCHS,
        "index == 0 ? value - PART * (count - 1) : PART",
        "index == 0 ? value - PART * count : PART",
    ),
    (
        EPOCHS,
        "index == 0 ? value - PART * (count - 1) : PART",
        "index == 0 ? value : 0",
    ),
    (
        EPOCHS,
        "index == 0 ? value - PART * (count - 1) : PART",
        "index == 0 ? value - (count - 1) : 1",
    ),
    // Waits that are too long or too short, or that take poison for a count.
    (EPOCHS, ">= (i64)quantum;", "> (i64)quantum;"),
    (EPOCHS, ">= (i64)quantum;", ">= (i64)quantum - 200;"),
    (
        POISON,
        "(i64)((value & ~POISON) - from) >= (i64)quantum;",
        "(i64)(value - from) >= (i64)quantum;",
    ),
    // The wrong buffers.
    (EPOCHS, "return epoch & 1;", "return !(epoch & 1);"),
    (
        EPOCHS,
        "move->dst + (is_odd(move, stand->epoch) ? move->dst_flip : 0);",
        "move->dst;",
    ),
    (
        PARITIES,
        "load_relaxed(parity) >> QUANTUM_BITS) - 1)",
        "load_relaxed(parity) >> QUANTUM_BITS))",
    ),
    // Terms of a reduction: those of the other epoch; in another order; the first ones again; without the old value; too
    // many. Elements behind the lines that are not there; those of another block.
    (
        REDUCTIONS,
        "return term.src + (odd ? term.flip : 0);",
        "return term.src + (odd ? 0 : term.flip);",
    ),
    (
        REDUCTIONS,
        "term.last ? epoch & 1",
        "term.last ? !(epoch & 1)",
    ),
    (
        REDUCTIONS,
        "combined(scalar, terms.terms[t].op, all, fetch_bits(terms.at(t) + at, bytes));",
        "combined(scalar, terms.terms[t].op, fetch_bits(terms.at(t) + at, bytes), all);",
    ),
    (
        REDUCTIONS,
        "{ return t ? place(terms[t], epoch) : lead;",
        "{ return lead;",
    ),
    (REDUCTIONS, "these.start = these.lead;", ""),
    (
        REDUCTIONS,
        "if (these.number) these.lead = place(second, epoch);",
        "",
    ),
    (REDUCTIONS, "these.number--;", ""),
    (
        REDUCTIONS,
        "const u64 at = (u64)lines * sizeof(V16) + i * sizeof(T);",
        "const u64 at = i * sizeof(T);",
    ),
    (
        REDUCTIONS,
        "all[k] = sum_line<T>(all[k], next[k]);",
        "all[k] = sum_line<T>(next[k], next[k]);",
    ),
    // One line for all that a thread has in flight.
    (
        REDUCTIONS,
        "fetch(next[k], from + at[k]);",
        "fetch(next[k], from + at[0]);",
    ),
    (
        REDUCTIONS,
        "reduce(move, stand->epoch, index * Team::size + team.rank(), count * Team::size);",
        "reduce(move, stand->epoch, team.rank(), count * Team::size);",
    ),
    // The bytes beside an element that is smaller than a word.
    (
        MOVES,
        "bool alone = move->step.flags & MOVE_ALONE;",
        "bool alone = false;",
    ),
    // Moves to the same elements do not meet, or meet at the wrong time.
    (
        TURNS,
        "if (move->step.flags & MOVE_BEHIND) team.barrier();",
        "",
    ),
    (
        TURNS,
        "if (move->step.flags & MOVE_BEHIND) team.barrier();",
        "if (move->step.flags & MOVE_BEHIND && Team::size > WARP) team.barrier();",
    ),
    // In a reduction by several blocks: another block's elements; and a reduction of a failed stream.
    (
        REDUCTIONS,
        "part, part.index * team + threadIdx.x % team, part.count * team);",
        "part, threadIdx.x % team, part.count * team);",
    ),
    (
        FOLLOW,
        "if ((stop || turn.follow) && has_failed(launch)) return;\n    reduction.carry_out",
        "if (stop && has_failed(launch)) return;\n    reduction.carry_out",
    ),
    // A failure that is not passed on, or is passed on too far.
    (POISON, "if (value & POISON) {", "if (false) {"),
    (POISON, "else or_release(add->word, POISON);", "(void)0;"),
    // A word of the host: stored after a part, never, with an old count, or from zero.
    (
        EPOCHS,
        "if (parts == 1 || !(count & (QUANTUM - 1)))",
        "if (true)",
    ),
    (
        EPOCHS,
        "if (parts == 1 || !(count & (QUANTUM - 1)))",
        "if (parts == 1)",
    ),
    // Parts of a ring are announced only with the whole ring.
    (
        EPOCHS,
        "if (parts == 1 || !(count & (QUANTUM - 1)))",
        "if (!(count & (QUANTUM - 1)))",
    ),
    (
        EPOCHS,
        "add_fetch(add->count, part) + part;",
        "add_fetch(add->count, part);",
    ),
    (
        EPOCHS,
        "store_release(add->word, count);",
        "store_release(add->word, part);",
    ),
    (
        EPOCHS,
        "if (add->count) rang = ring(add, part, count);",
        "if (false) ;",
    ),
    // A register: never stored to, by a block that is not the last, or by every thread; before the ring, before the
    // data is there, without a fence, or in spite of a failure.
    (
        EPOCHS,
        "                team.barrier();\n                if (team.rank() == 0 && rang)",
        "                if (team.rank() == 0 && rang)",
    ),
    (
        EPOCHS,
        "if (team.rank() == 0 && rang) strike((const StoreStep *)step);",
        "",
    ),
    (
        EPOCHS,
        "if (team.rank() == 0 && rang) strike((const StoreStep *)step);",
        "if (team.rank() == 0) strike((const StoreStep *)step);",
    ),
    (
        EPOCHS,
        "if (team.rank() == 0 && rang) strike((const StoreStep *)step);",
        "if (team.rank() == 0 && (rang || index == 0)) strike((const StoreStep *)step);",
    ),
    (
        EPOCHS,
        "if (team.rank() == 0 && rang) strike((const StoreStep *)step);",
        "if (team.rank() == 0 && (count == 1 ? rang : index == 0)) strike((const StoreStep *)step);",
    ),
    (
        EPOCHS,
        "if (team.rank() == 0 && rang) strike((const StoreStep *)step);",
        "if (rang) strike((const StoreStep *)step);",
    ),
    (
        EPOCHS,
        "        store_release(add->word, count);\n        return true;",
        "        store_release(add->word, count);\n        return parts == 1;",
    ),
    (
        EPOCHS,
        "const AddStep *add = (const AddStep *)step;\n                team.barrier();",
        "const AddStep *add = (const AddStep *)step;\n                if (((const Step *)next)->kind == STEP_STORE && team.rank() == 0) strike((const StoreStep *)next);\n                team.barrier();",
    ),
    (
        POISON,
        "        steps += step->length * 16;\n    }\n}",
        "        if (step->kind == STEP_STORE) strike((const StoreStep *)step);\n        steps += step->length * 16;\n    }\n}",
    ),
    (
        EPOCHS,
        "    fence();\n    store_register",
        "    store_register",
    ),
    (
        EPOCHS,
        "store_register(store->to, store->value);",
        "store_register(store->to, 1);",
    ),
    (
        POISON,
        "if (add->count) store_release(add->word, or_fetch(add->count, POISON) | POISON);",
        "if (add->count) (void)0;",
    ),
    (
        FOLLOW,
        "step->kind == STEP_ADD && (step->flags & ADD_HAS_WAITER)",
        "step->kind == STEP_ADD",
    ),
    (
        POISON,
        "if (!ok) {\n                    if (team.rank() == 0) poison_rest(next);",
        "if (!ok) {",
    ),
    (
        ABORT,
        "    if (or_fetch32(&launch.state->stop, 1) & 1) return;  // another team was first\n",
        "    or_fetch32(&launch.state->stop, 1);\n",
    ),
    // A team that does not look at the stream's state, ignores it, or looks again and again.
    (
        FOLLOW,
        "if (team.rank() == 0) stand->failed = has_failed(launch);",
        "if (team.rank() == 0) stand->failed = false;",
    ),
    (
        POISON,
        "        if (stand->failed) {\n            if (team.rank() == 0) poison_rest(steps);",
        "        if (stand->failed) {",
    ),
    (
        POISON,
        "    if (!(first && (stop || launch.follow[0]) && has_failed(launch))) {",
        "    if (true) {",
    ),
    (
        FOLLOW,
        "for (int i = 0; i < 2; i++) {\n        State *other",
        "for (int i = 0; i < 1; i++) {\n        State *other",
    ),
    (LOOKS, "                first = false;\n", ""),
    (LOOKS, "(first && (stop || launch.follow[0])", "(first"),
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
    (
        REPORTS,
        "looks >= 4096 && looks % 1024 == 0",
        "looks == 1u << 30",
    ),
    (
        REPORTS_BY_TURNS,
        "looks >= 4096 && looks % 1024 == 0 && !load_relaxed32(&blocked->active)",
        "looks == 4096",
    ),
    (
        REPORTS_BY_TURNS,
        "looks % 1024 == 0 && !load_relaxed32(&blocked->active)",
        "looks % 1024 == 0 && !reported",
    ),
    (REPORTS, "if (wait->quantum == 0 && epoch) epoch--;", ""),
    // Moves.
    (
        MOVES,
        "at += (i64)(i - next * shape->count[d]) * shape->stride[d];",
        "at += (i64)(i - next * shape->count[d]) * (u32)shape->stride[d];",
    ),
    (
        MOVES,
        "DEV u64 update(u64 at, u32 bytes, bool alone, Next next) {",
        "DEV u64 update(u64 at, u32 bytes, bool alone, Next next) {\n    if (bytes < 4) bytes = 4, at &= ~3ull;",
    ),
    (
        MOVES,
        "carry(move, stand->epoch, index * Team::size + team.rank(), count * Team::size);",
        "carry(move, stand->epoch, index * Team::size + team.rank(), Team::size);",
    ),
    (
        MOVES,
        "{ return (b != b || a < b) ? a : b; }",
        "{ return a < b ? a : b; }",
    ),
    (
        MOVES,
        "was == compare ? value : was",
        "was == value ? compare : was",
    ),
    // Endless loops without a look at a word that others change.
    (
        MOVES,
        "for (; i < count; i += stride) {\n        Unit value;",
        "for (; i < count;) {\n        Unit value;",
    ),
    // Two waits are counted together.
    (
        EPOCHS,
        "count_to(wait->arrivals,",
        "count_to(wait->arrivals & ~128ull,",
    ),
    // A counted copy: more elements than there are; bytes that are counted as elements; bytes before and behind whole
    // units are forgotten, or are at the wrong place; the buffer of the other epochs.
    (MOVES, "if (count > move->count) count = move->count;", ""),
    (
        MOVES,
        "u64 bytes = count * move->size, head",
        "u64 bytes = count, head",
    ),
    (MOVES, "if (head > bytes) head = bytes;", ""),
    (
        MOVES,
        "for (u64 i = first; i < bytes - body; i += stride) {",
        "for (u64 i = first; i < head; i += stride) {",
    ),
    (
        MOVES,
        "for (u64 i = first; i < bytes - body; i += stride) {",
        "for (u64 i = first + head; i < bytes - body; i += stride) {",
    ),
    (MOVES, "u64 at = i < head ? i : i + body;", "u64 at = i;"),
    (
        MOVES,
        "auto to = [=](u64 i) { return dst + head + (i << move->unit); };",
        "auto to = [=](u64 i) { return dst + (i << move->unit); };",
    ),
    (
        MOVES,
        "u64 src = move->src + (odd ? move->src_flip : 0), dst = move->dst + (odd ? move->dst_flip : 0);\n    u64 bytes",
        "u64 src = move->src, dst = move->dst + (odd ? move->dst_flip : 0);\n    u64 bytes",
    ),
    (
        MOVES,
        "u64 src = move->src + (odd ? move->src_flip : 0), dst = move->dst + (odd ? move->dst_flip : 0);\n    u64 bytes",
        "u64 src = move->src + (odd ? move->src_flip : 0), dst = move->dst;\n    u64 bytes",
    ),
];
