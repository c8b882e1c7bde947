//! Lanes that put, wait for what lands, and reduce.

use super::{FOLD_REPORTS, FOLDS, Mutant};

const COME: &str = "return (u32)(first >> 32) == tag && (u32)(second >> 32) == tag; }";
const COUNT: &str = "if (!vector.by_word) red_u64(vector.word, QUANTUM);";

pub(super) const MUTANTS: &[Mutant] = &[
    // One tag is checked for both halves of a pair.
    (FOLDS, COME, "return (u32)(first >> 32) == tag; }"),
    (FOLDS, COME, "return (u32)(second >> 32) == tag; }"),
    // The wrong buffer: of a landing, at either side; of a slot.
    (
        FOLDS,
        "at[k] = term.landing + (is_odd(tags[k]) ? term.landing_flip : 0) + 2 * next;",
        "at[k] = term.landing + 2 * next;",
    ),
    (
        FOLDS,
        "land(vector.landing + (is_odd(tag) ? vector.landing_flip : 0), i,",
        "land(vector.landing, i,",
    ),
    (
        FOLDS,
        "return bits_of(fetch_pair(term.src + (is_odd(tag) ? term.flip : 0), next / 8, bytes));",
        "return bits_of(fetch_pair(term.src, next / 8, bytes));",
    ),
    // The word of a later epoch is taken for this one's; tags are left behind that match a later epoch.
    (
        FOLDS,
        "} else if (come >> (begin + k) & 1) {",
        "} else if (reached(load_acquire(terms[begin + k].word), terms[begin + k].from, QUANTUM)) {",
    ),
    (
        FOLDS,
        "if (term.operand) store_both(landing, (u64)tag << 32, (u64)tag << 32);",
        "",
    ),
    // Later pairs of a vector that has come by the word are looked for where they would land.
    (
        FOLDS,
        "if (term.operand && !(by_word >> (begin + k) & 1)) missing |= 1u << k;",
        "if (term.operand) missing |= 1u << k;",
    ),
    // The word is not added to for data that has landed; it is added to twice for data that has not.
    (FOLDS, COUNT, ""),
    (FOLDS, COUNT, "red_u64(vector.word, QUANTUM);"),
    (FOLDS, "terms[begin + k].by_word = 1;", ""),
    // Operands stay as they are: of puts, and of what lands.
    (
        FOLDS,
        "for (u32 t = rank; t < puts; t += team.size) store_relaxed(vectors[t].operand, vectors[t].from + QUANTUM);",
        "",
    ),
    (
        FOLDS,
        "store_relaxed(vector.operand, vector.from + QUANTUM);",
        "",
    ),
    // Each group of terms begins anew; the elements of a pair are one; some of them are left out.
    (
        FOLDS,
        "all = begin + k == 0 ? found[k] :",
        "all = k == 0 ? found[k] :",
    ),
    (
        FOLDS,
        "for (u32 at = 0; at < 64; at += 8u << unit) both",
        "for (u32 at = 0; at < 32; at += 8u << unit) both",
    ),
    (
        FOLDS,
        "if (next + 4 < bytes) put(dst + next + 4, (u32)(all >> 32));",
        "",
    ),
    // A thread has only its first pair.
    (
        FOLDS,
        "for (; next < bytes; next += 8 * threads)\n            if (!combine(times)) return false;",
        "for (; next < bytes; next += 64 * threads)\n            if (!combine(times)) return false;",
    ),
    (
        FOLDS,
        "if (i != rank || begin != 0) fetch_abreast(begin, i);",
        "if (begin != 0) fetch_abreast(begin, i);",
    ),
    (
        FOLDS,
        "if (i != rank || begin != 0) fetch_abreast(begin, i);",
        "if (i != rank) fetch_abreast(begin, i);",
    ),
    // What the result overwrites is not saved.
    (
        FOLDS,
        "if (8 * i + 4 < bytes) put(kept + 8 * i + 4, pair.second);",
        "",
    ),
    // It puts before all exposures have come, or although the stream has failed; nobody hears that it does not.
    (
        FOLDS,
        "        ok = ok && exposed;",
        "        ok = ok || exposed;",
    ),
    (FOLDS, "    if (!ok) stands[0].failed = 1;", ""),
    (
        FOLDS,
        "        if (first) give_up(launch, at->steps, false);\n        return;\n    }\n    STAMP(const u64 exposed_at",
        "        return;\n    }\n    STAMP(const u64 exposed_at",
    ),
    // Each thread finds out for itself whether it has all of its data.
    (
        FOLDS,
        "ok = !stands[1].failed || fold_late",
        "ok = true || fold_late",
    ),
    (
        FOLDS,
        "turn.pass(first);\n    if (!ok) return;",
        "if (!ok) return;",
    ),
    // Poison hides what had landed; it is no fault; nobody looks for the rest of what landed in part.
    (FOLDS, "if (!there || term.lacks) {", "if (true) {"),
    (FOLDS, "if (!there || term.lacks) {", "if (!there) {"),
    (
        FOLDS,
        "if (ended >> fold.lacks & 1) fold.terms[fold.lacks].lacks = 1;",
        "",
    ),
    (
        FOLDS,
        "if (ended >> fold.lacks & 1) fold.terms[fold.lacks].lacks = 1;",
        "fold.terms[fold.lacks].lacks = 1;",
    ),
    (
        FOLDS,
        "lacks = begin + (missing & 1 ? 0 : missing & 2 ? 1 : missing & 4 ? 2 : 3);",
        "lacks = begin;",
    ),
    (
        FOLDS,
        "                        record_fault(launch, fault);\n                        ended = END;",
        "                        ended = END;",
    ),
    // A stream that has failed, or follows one that has, goes on.
    (
        FOLDS,
        "bool ok = !first || !(stop || turn.follow) || !has_failed(launch);",
        "bool ok = true;",
    ),
    (
        FOLDS,
        "bool ok = !first || !(stop || turn.follow) || !has_failed(launch);",
        "bool ok = !first || !stop || !has_failed(launch);",
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
    // There are more vectors than threads, and more terms than bits of a word.
    (
        FOLDS,
        "vector.from = from;\n",
        "vector.from = from;\n        if (t >= 16) break;\n",
    ),
    (
        FOLDS,
        "come |= 1ull << (begin + k);",
        "come |= 1u << ((begin + k) % 32);",
    ),
];
