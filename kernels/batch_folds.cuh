// A part of batch.cu: folds of few bytes, which land with tags.
//
// Such a lane is all that a rank does in a short reduction: it puts a vector to some ranks, waits for theirs, and
// combines these with its own. As a put, a wait and a reduction of other lanes this would take two launches, because a
// reduction begins when all vectors are there. Here each thread has pairs of its own. It puts them, looks for the same
// pairs of the other vectors, and combines what it finds. So nothing stands between the last pair and the result: no
// barrier, and no way through memory.
//
// The result may lie where the rank's own vector does: the thread that writes a pair has read the same pair before. The
// slots are written by nobody but their origins.
//
// The protocol of landings is that of batch_landings.cuh.

// How many vectors a thread has in flight at a time.
#define ABREAST 4

// The vectors of the block's lane. (A program has at most one such lane.)
DEV Vector *shared_vectors() {
    __shared__ Vector all[MOST_VECTORS];
    return all;
}

// Whether both halves of a pair have their epoch's tag.
DEV bool has_landed(u64 first, u64 second, u32 tag) { return (u32)(first >> 32) == tag && (u32)(second >> 32) == tag; }

DEV u64 bits_of(Pair pair) { return pair.first | (u64)pair.second << 32; }

// Combines the elements of two pairs. It is not inlined, because it is long, and the loop around it is unrolled.
APART u64 combined_pair(u32 scalar, u32 op, u32 unit, u64 a, u64 b) {
    u64 both = 0;
#pragma unroll 1
    for (u32 at = 0; at < 64; at += 8u << unit) both |= combined(scalar, op, a >> at, b >> at) << at;
    return both;
}

// A warp or a block. What they do is the same, and so is the code.
struct Either {
    u32 size;
    DEV bool is_block() const { return size > WARP; }
    DEV u32 rank() const { return threadIdx.x % size; }
    DEV void barrier() const {
        if (is_block()) block_barrier();
        else warp_barrier();
    }
};

// What a thread does once its pairs are put: it combines its pairs, from `next` on, one after the other.
struct Fold {
    Vector *terms;
    u32 number, scalar, unit;
    u64 dst, bytes, next;
    // By the numbers of terms: those whose words had come when they were looked at last, and those that have not landed.
    // The slots of the latter are as their origins left them.
    u64 come, by_word;
    u32 lacks;  // the first term whose pair was missing when it was looked for last

    // The pair of a vector that does not land, or has not. As in `Search::look`, no tag is left behind that could be
    // mistaken for a later epoch's.
    DEV u64 fetch_from(const Vector &term, u64 landing, u32 tag) const {
        if (term.operand) store_both(landing, (u64)tag << 32, (u64)tag << 32);
        return bits_of(fetch_pair(term.src + (is_odd(tag) ? term.flip : 0), next / 8, bytes));
    }

    // Combines the pairs at `next`. It looks a few times for each. Returns whether all have come.
    DEV bool combine(int times) {
        u64 all = 0;
#pragma unroll 1
        for (u32 begin = 0; begin < number; begin += ABREAST) {
            u64 found[ABREAST], at[ABREAST];
            u32 tags[ABREAST], missing = 0;
#pragma unroll
            for (u32 k = 0; k < ABREAST; k++) {
                if (begin + k >= number) continue;
                const Vector &term = terms[begin + k];
                tags[k] = tag_of(term.from, QUANTUM);
                at[k] = term.landing + (is_odd(tags[k]) ? term.landing_flip : 0) + 2 * next;
                if (term.operand && !(by_word >> (begin + k) & 1)) missing |= 1u << k;
                else found[k] = fetch_from(term, at[k], tags[k]);
            }
#pragma unroll 1
            for (int looks = 1; missing; looks++) {
                if (looks > times) {
                    lacks = begin + (missing & 1 ? 0 : missing & 2 ? 1 : missing & 4 ? 2 : 3);
                    return false;
                }
                u64 first[ABREAST], second[ABREAST];
#pragma unroll
                for (u32 k = 0; k < ABREAST; k++)
                    if (missing >> k & 1) load_both(at[k], first[k], second[k]);
#pragma unroll
                for (u32 k = 0; k < ABREAST; k++) {
                    if (!(missing >> k & 1)) continue;
                    if (has_landed(first[k], second[k], tags[k])) {
                        found[k] = (u32)first[k] | second[k] << 32;
                        missing &= ~(1u << k);
                    } else if (come >> (begin + k) & 1) {
                        // The word had come before this look, so the tags will not: see `Search::look`.
                        by_word |= 1ull << (begin + k);
                        terms[begin + k].by_word = 1;
                        found[k] = fetch_from(terms[begin + k], at[k], tags[k]);
                        missing &= ~(1u << k);
                    }
                }
                // No later load is in flight together with an acquire. So words are looked at less often.
                if (missing && (looks % 4 == 0 || looks == times)) {
#pragma unroll
                    for (u32 k = 0; k < ABREAST; k++) {
                        if (!(missing >> k & 1)) continue;
                        const Vector &term = terms[begin + k];
                        if (reached(load_acquire(term.word), term.from, QUANTUM)) come |= 1ull << (begin + k);
                    }
                }
            }
#pragma unroll
            for (u32 k = 0; k < ABREAST; k++) {
                if (begin + k >= number) continue;
                all = begin + k == 0 ? found[k] : combined_pair(scalar, terms[begin + k].op, unit, all, found[k]);
            }
        }
        put(dst + next, (u32)all);
        if (next + 4 < bytes) put(dst + next + 4, (u32)(all >> 32));
        return true;
    }

    // Combines the rest of the pairs of a thread of so many. Returns whether all have come.
    DEV bool look(u32 threads, int times) {
        for (; next < bytes; next += 8 * threads)
            if (!combine(times)) return false;
        return true;
    }
};

// The rest of a fold that takes longer than an instant, as in `landed_late`. All threads look together.
APART bool fold_late(const Launch &launch, Either team, Stand *stands, const Lane *at, Fold fold) {
    const u64 END = 1ull << 63;
    const bool first = team.rank() == 0;
    const auto wait_of = [&](u32 t) { return (const WaitStep *)(launch.program + 16ull * (at->steps + fold.terms[t].wait)); };
    const auto blocked = [&](u32 t) { return &launch.mirror->blocked[wait_of(t)->slot]; };
    u64 reported = 0;  // the terms, by their numbers
    const auto end_report = [&](u32 t) {
        if (reported >> t & 1) store_release32(&blocked(t)->active, 0);
        reported &= ~(1ull << t);
    };
    bool ok = false;
    for (u32 round = 0;; round++) {
        // As in `landed_late`.
        Stand *stand = stands + round % 2;
        if (first) {
            // The terms of which nothing more will come, because their words are poisoned.
            u64 ended = has_failed(launch) ? END : 0;
#pragma unroll 1
            for (u32 t = 0; t < fold.number && !(ended & END); t++) {
                const Vector &term = fold.terms[t];
                if (!term.operand) continue;
                const u64 value = load_relaxed(term.word), epoch = term.from >> QUANTUM_BITS;
                const WaitStep *wait = wait_of(t);
                const bool has_come = reached(value, term.from, QUANTUM);
                // What had landed before the poison is visible once the poison is acquired.
                const bool poisoned = !has_come && value & POISON && load_acquire(term.word) & POISON;
                u64 one, other;
                const u32 tag = tag_of(term.from, QUANTUM);
                load_both(term.landing + (is_odd(tag) ? term.landing_flip : 0), one, other);
                const bool there = has_come || has_landed(one, other, tag);
                if (poisoned) {
                    // If a pair is missing, it will not come. Usually all of them are missing; but a rank may have died
                    // while its pairs landed.
                    ended |= 1ull << t;
                    if (!there || term.lacks) {
                        Fault fault = {FAULT_WAIT, wait->window, wait->peer, wait->awaited, epoch};
                        record_fault(launch, fault);
                        ended = END;
                    }
                } else if (there) {
                    end_report(t);
                } else if (round >= 64 && round % 64 == 0 && !load_relaxed32(&blocked(t)->active)) {
                    blocked(t)->window = wait->window;
                    blocked(t)->peer = wait->peer;
                    blocked(t)->awaited = wait->awaited;
                    blocked(t)->epoch = epoch;
                    store_release32(&blocked(t)->active, 1);
                    reported |= 1ull << t;
                }
            }
            stand->epoch = ended;
            stand->failed = 0;
        }
        team.barrier();
        const u64 ended = stand->epoch;
        if (ended & END) break;
        if (!fold.look(team.size, round < 64 ? 16 : 1)) {
            stand->failed = 1;
            if (ended >> fold.lacks & 1) fold.terms[fold.lacks].lacks = 1;
        }
        team.barrier();
        ok = !stand->failed;
        if (ok) break;
        if (round > 16) pause(round > 256 ? 1000 : 50);
    }
    for (u32 t = 0; t < fold.number; t++) end_report(t);
    return ok;
}

// Carries out the lane.
APART void run_fold(const Launch &launch, Either team, Stand *stands, const Lane *at, Part part) {
    const u32 rank = team.rank(), puts = (u32)at->from, all = puts + (u32)at->to;
    const bool first = rank == 0;
    const u64 own = at->src, kept = at->out, bytes = at->count, pairs = (bytes + 7) / 8;
    Vector *vectors = shared_vectors();
    // No kernel writes the list, so it is brought here before the work before this batch is over.
    const u64 list = (u64)launch.program + 16ull * (at->steps + at->tail);
    for (u32 i = rank; i < all * (u32)(sizeof(Vector) / sizeof(V16)); i += team.size) {
        V16 line;
        fetch(line, list + i * sizeof(V16));
        ((V16 *)vectors)[i] = line;
    }
    if (first) stands[0].failed = stands[1].failed = 0;
    team.barrier();
    Fold fold;
    fold.terms = vectors + puts;
    fold.number = all - puts;
    fold.scalar = (u32)at->value;
    fold.unit = at->unit;
    fold.dst = at->dst;
    fold.bytes = bytes;
    fold.next = 8 * rank;
    fold.come = fold.by_word = fold.lacks = 0;
    const Turn turn(launch, part);
    turn.await();

    // Fetch the first pairs while the exposures are looked at.
    Pair pairs_of[ABREAST], copied = {0, 0};
    const auto fetch_abreast = [&](u32 begin, u64 i) {
#pragma unroll
        for (u32 k = 0; k < ABREAST; k++)
            if (begin + k < puts) pairs_of[k] = fetch_pair(vectors[begin + k].src, i, bytes);
    };
    if (rank < pairs) {
        fetch_abreast(0, rank);
        if (kept) copied = fetch_pair(own, rank, bytes);
    }
    const u32 stop = load_relaxed32(&turn.state->stop);
    bool ok = !first || !(stop || turn.follow) || !has_failed(launch);
    // The threads share the waits. Of the waits for data, only the operands are needed now.
    for (u32 t = rank; t < all; t += team.size) {
        Vector &vector = vectors[t];
        if (!vector.operand) continue;
        const u64 from = load_relaxed(vector.operand);
        vector.from = from;
        if (t >= puts) continue;
        const WaitStep *wait = (const WaitStep *)(launch.program + 16ull * (at->steps + vector.wait));
        const bool exposed = await_exposure(launch, turn, stop, vector.word, from, wait);
        ok = ok && exposed;
    }
    if (!ok) stands[0].failed = 1;
    team.barrier();
    if (stands[0].failed) {
        if (first) give_up(launch, at->steps, false);
        return;
    }
    STAMP(const u64 exposed_at = global_timer();)

    for (u64 i = rank; i < pairs; i += team.size) {
#pragma unroll 1
        for (u32 begin = 0; begin < puts; begin += ABREAST) {
            if (i != rank || begin != 0) fetch_abreast(begin, i);
#pragma unroll
            for (u32 k = 0; k < ABREAST; k++) {
                if (begin + k >= puts) continue;
                const Vector &vector = vectors[begin + k];
                const u32 tag = tag_of(vector.from, QUANTUM);
                land(vector.landing + (is_odd(tag) ? vector.landing_flip : 0), i, pairs_of[k], tag);
            }
        }
        if (kept) {
            const Pair pair = i == rank ? copied : fetch_pair(own, i, bytes);
            put(kept + 8 * i, pair.first);
            if (8 * i + 4 < bytes) put(kept + 8 * i + 4, pair.second);
        }
    }
    for (u32 t = rank; t < puts; t += team.size) store_relaxed(vectors[t].operand, vectors[t].from + QUANTUM);

    if (stop || turn.follow || !fold.look(team.size, 64)) stands[1].failed = 1;
    team.barrier();
    ok = !stands[1].failed || fold_late(launch, team, stands, at, fold);
    turn.pass(first);
    if (!ok) return;
    // As in `run_landed`: the word counts what has landed.
    for (u32 t = puts + rank; t < all; t += team.size) {
        const Vector &vector = vectors[t];
        if (!vector.operand) continue;
        if (!vector.by_word) red_u64(vector.word, QUANTUM);
        store_relaxed(vector.operand, vector.from + QUANTUM);
    }
    // All legs are written now: earlier, that would delay what they are about.
    STAMP(const u64 there_at = global_timer();)
    STAMP(if (first) for (u32 t = 0; t < all; t++) if (vectors[t].operand) stamp_leg(launch, at, vectors[t], t < puts ? exposed_at : there_at);)
    STAMP(if (first) marks().moves(), end_leg();)
}
