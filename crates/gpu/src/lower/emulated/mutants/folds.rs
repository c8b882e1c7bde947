//! Lanes that put, wait for what lands, and reduce.

use super::{FOLD_REPORTS, FOLDS, Mutant};

const COME: &str = "return (u32)(first >> 32) == tag && (u32)(second >> 32) == tag; }";
const COUNT: &str = "if (t >= lane.puts && !vector.by_word) red_u64(vector.word, QUANTUM);";

pub(super) const MUTANTS: &[Mutant] = &[
    // One tag is checked for both halves of a pair.
    (FOLDS, COME, "return (u32)(first >> 32) == tag; }"),
    (FOLDS, COME, "return (u32)(second >> 32) == tag; }"),
    // The wrong buffer: of a landing, at either side; of a slot.
    (
        FOLDS,
        "    vector.landing += vector.landing_flip;",
        "    if (vector.op) vector.landing += vector.landing_flip;",
    ),
    (
        FOLDS,
        "    if (!is_odd(tag_of(from, QUANTUM))) return;\n",
        "",
    ),
    (FOLDS, "    if (is_slot) vector.src += vector.flip;", ""),
    // The word of a later epoch is taken for this one's; tags are left behind that match a later epoch.
    (
        FOLDS,
        "} else if (come >> k & 1) {",
        "} else if (reached(load_acquire(terms[k].word), terms[k].from, QUANTUM)) {",
    ),
    (
        FOLDS,
        "    store_both(term.landing + 2 * at, tag, tag);",
        "",
    ),
    // Later pairs of a vector that has come by the word are looked for where they would land.
    (
        FOLDS,
        "else if (LATE && by_word >> (begin + k) & 1) found",
        "else if (false) found",
    ),
    // The word is not added to for data that has landed; it is added to twice for data that has not.
    (FOLDS, COUNT, ""),
    (
        FOLDS,
        COUNT,
        "if (t >= lane.puts) red_u64(vector.word, QUANTUM);",
    ),
    (FOLDS, "terms[k].by_word = 1;", ""),
    // What comes by the word is left to a later call for ever.
    (
        FOLDS,
        "                        if (!LATE) return false;",
        "                        return false;",
    ),
    // Words that had come count for terms that have been found since.
    (FOLDS, "                    come = 0;\n", ""),
    // Operands stay as they are: of puts, and of what lands.
    (
        FOLDS,
        "for (u32 t = thread; t < lane.all; t += again.size) {",
        "for (u32 t = lane.puts + thread; t < lane.all; t += again.size) {",
    ),
    (
        FOLDS,
        "store_relaxed(vector.operand, vector.from + QUANTUM);",
        "",
    ),
    // Each group of terms begins anew; the elements of a pair are one; some of them are left out.
    (
        FOLDS,
        "if (begin + k == 0) all = found[k];",
        "if (k == 0) all = found[k];",
    ),
    (
        FOLDS,
        "for (u32 at = 0; at < 64; at += 8u << unit) both",
        "for (u32 at = 0; at < 32; at += 8u << unit) both",
    ),
    (
        FOLDS,
        "if (next + 4 < bytes) put(lane.dst + next + 4, (u32)(all >> 32));",
        "",
    ),
    // A thread has only its first pair.
    (
        FOLDS,
        "for (; next < fold_lane().bytes; next += 8 * fold_lane().threads)",
        "for (; next < fold_lane().bytes; next += 64 * fold_lane().threads)",
    ),
    (
        FOLDS,
        "if (i != mine || begin != 0) fetch_abreast(begin, i);",
        "if (begin != 0) fetch_abreast(begin, i);",
    ),
    (
        FOLDS,
        "if (i != mine || begin != 0) fetch_abreast(begin, i);",
        "if (i != mine) fetch_abreast(begin, i);",
    ),
    // What the result overwrites is not saved.
    (
        FOLDS,
        "if (8 * i + 4 < bytes) put(lane.out + 8 * i + 4, pair.second);",
        "",
    ),
    // It puts before all exposures have come, or although the stream has failed; nobody hears that it does not.
    (FOLDS, "late = late || !reached(value, from, QUANTUM);", ""),
    (
        FOLDS,
        "    if (late || stop || turn.follow) lane.stands[0].failed = 1;",
        "",
    ),
    (FOLDS, "    if (!come) lane.stands[1].epoch = 1;", ""),
    (
        FOLDS,
        "t < lane.puts && come; t += team.size)",
        "t < lane.puts && come; t += 2 * team.size)",
    ),
    (
        FOLDS,
        "        if (Either::now().rank() == 0) give_up(launch, lane.at->steps, false);\n",
        "",
    ),
    // A verdict is read from where the next one is written.
    (
        FOLDS,
        "if (!come) lane.stands[1].epoch = 1;\n    team.barrier();\n    return lane.stands[1].epoch == 0;",
        "if (!come) lane.stands[1].failed = 1;\n    team.barrier();\n    return lane.stands[1].failed == 0;",
    ),
    // Each thread finds out for itself whether it has all of its data.
    (
        FOLDS,
        "ok = !lane.stands[1].failed || fold_late",
        "ok = true || fold_late",
    ),
    (
        FOLDS,
        "turn.pass(thread == 0);\n    if (!ok) return;",
        "if (!ok) return;",
    ),
    // Poison hides what had landed; it is no fault; nobody looks for the rest of what landed in part.
    (FOLDS, "if (!there || term.lacks) {", "if (true) {"),
    (FOLDS, "if (!there || term.lacks) {", "if (!there) {"),
    (
        FOLDS,
        "if (ended >> fold.lacks & 1) terms[fold.lacks].lacks = 1;",
        "",
    ),
    (
        FOLDS,
        "if (ended >> fold.lacks & 1) terms[fold.lacks].lacks = 1;",
        "terms[fold.lacks].lacks = 1;",
    ),
    (
        FOLDS,
        "lacks = begin + (missing & 1 ? 0 : missing & 2 ? 1 : missing & 4 ? 2 : 3);",
        "lacks = begin;",
    ),
    (
        FOLDS,
        "                        fail_wait(launch, wait, epoch);\n                        ended = END;",
        "                        ended = END;",
    ),
    // A stream that has failed, or follows one that has, goes on.
    (
        FOLDS,
        "bool come = !has_failed(launch);",
        "bool come = true;",
    ),
    (
        FOLDS,
        "if (late || stop || turn.follow) lane.stands[0].failed = 1;",
        "if (late || stop) lane.stands[0].failed = 1;",
    ),
    // A report does not end, or is about what has landed; nothing is reported.
    (
        FOLD_REPORTS,
        "if (reported >> t & 1) store_release32(&blocked(t)->active, 0);",
        "",
    ),
    (
        FOLD_REPORTS,
        "const bool there = has_come || has_landed(one, other, tag);",
        "const bool there = has_come;",
    ),
    (FOLD_REPORTS, "} else if (there) {", "} else if (false) {"),
    (FOLD_REPORTS, "reported |= 1ull << t;", ""),
    (
        FOLD_REPORTS,
        "load_both(term.landing + begin, one, other);",
        "load_both(term.landing, one, other);",
    ),
    // Each of several blocks has all pairs, or counts for all; or the first one that is ready counts; or none does.
    (
        FOLDS,
        "mine = lane.part.index * team.size + rank;",
        "mine = rank;",
    ),
    (
        FOLDS,
        "    if (last != 0) {\n        // All",
        "    if (false) {\n        // All",
    ),
    (
        FOLDS,
        "if (lane.stands[0].epoch != last) return;",
        "if (lane.stands[0].epoch != 0) return;",
    ),
    (
        FOLDS,
        "lane.threads = part.count * as.size;",
        "lane.threads = as.size;",
    ),
    // Sums of floats are those of other floats, or of other operations.
    (
        FOLDS,
        "lane.sums = at->value >> 32 ? (u32)at->value : NO_SUM;",
        "lane.sums = (u32)at->value < S_F32 ? NO_SUM : (u32)at->value;",
    ),
    (
        FOLDS,
        "if (scalar == S_F16) return add_f16x2",
        "if (scalar == S_BF16) return add_f16x2",
    ),
    // There are more vectors than threads.
    (
        FOLDS,
        "        take_epoch(vector, from, t >= puts);\n",
        "        take_epoch(vector, from, t >= puts);\n        if (t >= 16) break;\n",
    ),
];
