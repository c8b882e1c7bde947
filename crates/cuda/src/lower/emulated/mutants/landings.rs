//! Bytes that land with tags.

use super::{EPOCHS, FOLLOW, LANDED, LANDING, Mutant, POISON};

const COME: &str = "if ((u32)(first >> 32) == tag && (u32)(second >> 32) == tag) {";
const COUNT: &str = "if (how == HAS_LANDED) red_u64(search.word, search.quantum);";

const PROMISED: &str = "if (BEGINS_EARLY && !come && ::promised(value, from, quantum)) promised();";

pub(super) const MUTANTS: &[Mutant] = &[
    // One tag stands for both halves of a pair.
    (LANDED, COME, "if ((u32)(first >> 32) == tag) {"),
    (LANDED, COME, "if ((u32)(second >> 32) == tag) {"),
    // Any tag will do; that of the epoch before will.
    (LANDED, COME, "if ((first >> 32) && (second >> 32)) {"),
    (
        EPOCHS,
        "DEV u32 tag_of(u64 from, u64 quantum) { return (u32)((from + quantum) >> QUANTUM_BITS); }",
        "DEV u32 tag_of(u64 from, u64 quantum) { return 1; }",
    ),
    // The buffers: of the landing, at either end; of the slot.
    (
        LANDED,
        "landings + (is_odd(search.tag) ? landing_flip : 0)",
        "landings",
    ),
    (LANDED, "slot + (is_odd(search.tag) ? flip : 0)", "slot"),
    (LANDING, "landings + (is_odd(tag) ? flip : 0)", "landings"),
    (
        EPOCHS,
        "DEV bool is_odd(u32 tag) { return !(tag & 1); }",
        "DEV bool is_odd(u32 tag) { return tag & 1; }",
    ),
    // The word: not added to for what has landed; added to twice for what has not.
    (LANDED, COUNT, ""),
    (LANDED, COUNT, "red_u64(search.word, search.quantum);"),
    (EPOCHS, COUNT, "red_u64(search.word, search.quantum);"),
    // The last bytes: not sent; put where none belong.
    (
        LANDING,
        "if (8 * i + 4 < bytes) fetch(pair.second, src + 8 * i + 4);",
        "",
    ),
    (
        LANDED,
        "if (next + 4 < bytes) put(slot + next + 4, (u32)second);",
        "",
    ),
    // It lands before the exposure has come; although the stream has failed.
    (
        LANDING,
        "if (!exposed) exposed = !has_failed(launch) && wait_long(launch, (const WaitStep *)(launch.program + 16ull * at->steps), from, true);\n        stand->failed = !exposed;\n        stand->epoch = from;",
        "stand->failed = false;\n        stand->epoch = from;",
    ),
    (
        LANDING,
        "for (int looks = 0; !stop && !turn.follow && looks < 64 && !(exposed",
        "for (int looks = 0; !turn.follow && looks < 64 && !(exposed",
    ),
    (
        FOLLOW,
        "for (int looks = 0; !stop && !turn.follow && looks < 64 && !(exposed",
        "for (int looks = 0; !stop && looks < 64 && !(exposed",
    ),
    (
        FOLLOW,
        "if (stop || turn.follow || !search.look(64, pass))",
        "if (stop || !search.look(64, pass))",
    ),
    // Who fails leaves the word as it is.
    (
        LANDING,
        "if (first == 0) give_up(launch, at->steps, true);",
        "",
    ),
    (
        POISON,
        "if (first == 0) give_up(launch, at->steps, true);",
        "",
    ),
    // The operands are not advanced, or before all is there.
    (
        LANDING,
        "if (first == 0) store_relaxed(operand, stand->epoch + quantum);",
        "",
    ),
    (
        LANDED,
        "store_relaxed(operand, search.from + search.quantum);",
        "",
    ),
    // A part is enough; a poison counts more than what had landed; and is no fault.
    (
        LANDED,
        "if (!landed) return false;",
        "if (!landed) return true;",
    ),
    (
        LANDED,
        "if (end == FAILED || !search.look(round < 64 ? 16 : 1, [] {})) stand->failed = 1;",
        "if (end != GO_ON || !search.look(round < 64 ? 16 : 1, [] {})) stand->failed = 1;",
    ),
    (
        LANDED,
        "if (first && !ok && end == POISONED) {",
        "if (first && !ok && end == FAILED) {",
    ),
    // The word of a later epoch is taken for that of this one; tags are left that are those of an epoch to come.
    (LANDED, "} else if (before) {", "} else if (come) {"),
    (
        LANDED,
        "store_both(landing + 2 * next, (u64)tag << 32, (u64)tag << 32);",
        "continue;",
    ),
    // The next kernel is let come by what has not been promised; by no promise; more than once.
    (LANDED, PROMISED, "if (value != from) promised();"),
    (LANDED, PROMISED, "promised();"),
    (LANDED, PROMISED, ""),
    (
        LANDED,
        "if (!passed) turn.pass(first);\n        passed = true;",
        "turn.pass(first);",
    ),
    // Threads find out each for itself whether they have all.
    (
        LANDED,
        "u32 how = search.by_word ? BY_WORD : HAS_LANDED;\n    if (stands[1].failed) how",
        "u32 how = search.by_word ? BY_WORD : HAS_LANDED;\n    if (false) how",
    ),
];
