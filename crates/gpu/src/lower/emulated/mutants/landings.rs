//! Bytes that land with tags.

use super::{EPOCHS, FOLLOW, LANDED, LANDING, Mutant, POISON};

const COME: &str = "if ((u32)(first >> 32) == tag && (u32)(second >> 32) == tag) {";
const COUNT: &str = "if (how == HAS_LANDED) red_u64(search.word, search.quantum);";

const PROMISED: &str = "if (BEGINS_EARLY && !come && promised(value, from, quantum)) then();";

pub(super) const MUTANTS: &[Mutant] = &[
    // One tag is checked for both halves of a pair.
    (LANDED, COME, "if ((u32)(first >> 32) == tag) {"),
    (LANDED, COME, "if ((u32)(second >> 32) == tag) {"),
    // Any tag is accepted; the tag of the epoch before is accepted.
    (LANDED, COME, "if ((first >> 32) && (second >> 32)) {"),
    (
        EPOCHS,
        "DEV u32 tag_of(u64 from, u64 quantum) { return (u32)((from + quantum) >> QUANTUM_BITS); }",
        "DEV u32 tag_of(u64 from, u64 quantum) { return 1; }",
    ),
    // The wrong buffer: of the landing, at either side; of the slot.
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
    // The word is not added to for data that has landed; it is added to twice for data that has not.
    (LANDED, COUNT, ""),
    (LANDED, COUNT, "red_u64(search.word, search.quantum);"),
    (EPOCHS, COUNT, "red_u64(search.word, search.quantum);"),
    // The last bytes are not sent; or more bytes than there are.
    (
        LANDING,
        "if (8 * i + 4 < bytes) fetch(pair.second, src + 8 * i + 4);",
        "",
    ),
    (
        LANDED,
        "if (next + 4 < bytes) put(place + next + 4, pair.second);",
        "",
    ),
    // Behind the wait, bytes are not copied: those that land, or those that come by the slot.
    (LANDED, "if (to) bring(to, pair);", ""),
    (
        LANDED,
        "if (how == BY_WORD && search.to) search.copy_slot(team.rank());",
        "",
    ),
    // Some of these are not: beyond whole lines, or beyond the first pairs.
    (
        LANDED,
        "if (((slot | to | bytes) & 15) == 0) {",
        "if (((slot | to) & 15) == 0) {",
    ),
    (
        LANDED,
        "next < bytes; next += 8 * Team::size) bring(to,",
        "false; next += 8 * Team::size) bring(to,",
    ),
    // The data lands before the exposure has come, or although the stream has failed.
    (
        LANDING,
        "        stand->failed = !exposed;",
        "        stand->failed = false;",
    ),
    (
        LANDING,
        "for (int looks = 0; !stop && !turn.follow && looks < 64; looks++) {",
        "for (int looks = 0; !turn.follow && looks < 64; looks++) {",
    ),
    (
        FOLLOW,
        "for (int looks = 0; !stop && !turn.follow && looks < 64; looks++) {",
        "for (int looks = 0; !stop && looks < 64; looks++) {",
    ),
    (
        FOLLOW,
        "if (stop || turn.follow || !search.look(64, pass))",
        "if (stop || !search.look(64, pass))",
    ),
    // A failed stream leaves the word as it is.
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
    // The operands are not advanced, or are advanced before all data is there.
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
    // A part is enough; poison hides data that had landed; poison is no fault.
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
        "if (first && !ok && end == POISONED) fail_wait",
        "if (first && !ok && end == FAILED) fail_wait",
    ),
    // The word of a later epoch is taken for this one's; tags are left behind that match a later epoch.
    (LANDED, "} else if (before) {", "} else if (come) {"),
    (
        LANDED,
        "store_both(landing + 2 * next, (u64)tag << 32, (u64)tag << 32);",
        "continue;",
    ),
    // The next kernel begins without a promise; never by a promise; more than once.
    (LANDED, PROMISED, "if (value != from) then();"),
    (LANDED, PROMISED, "then();"),
    (LANDED, PROMISED, ""),
    (
        LANDED,
        "if (!passed) turn.pass(first);\n        passed = true;",
        "turn.pass(first);",
    ),
    // Each thread finds out for itself whether it has all of its data.
    (
        LANDED,
        "u32 how = search.by_word ? BY_WORD : HAS_LANDED;\n    if (stands[1].failed) how",
        "u32 how = search.by_word ? BY_WORD : HAS_LANDED;\n    if (false) how",
    ),
];
