// A part of batch.cu: folds of few bytes, which land with tags.
//
// Such a lane is all that a rank does in a short reduction: it puts a vector to some ranks, waits for theirs, and
// combines these with its own. As a put, a wait and a reduction of other lanes this would take two launches, because a
// reduction begins when all vectors are there. Here each thread has pairs of its own. It puts them, looks for the same
// pairs of the other vectors, and combines what it finds. So nothing stands between the last pair and the result: no
// barrier, and no way through memory.
//
// Several blocks may carry out a long one. Each has pairs of its own, and finds them by itself. Only words and operands
// are for all, so the last block of them changes these.
//
// The result may lie where the rank's own vector does: the thread that writes a pair has read the same pair before. The
// slots are written by nobody but their origins.
//
// The protocol of landings is that of batch_landings.cuh.

// Of how many vectors a thread has data in flight at a time: one pair of each. First it fetches what it puts, and then
// it looks for what lands. A pair that lands takes 4 registers with its tags, and 2 more once it is found. 4 vectors
// take 24 of the 64 registers that a thread has here on NVIDIA's GPUs. (`lacks` is chosen among 4 in `combine`.)
#define ABREAST 4

// What all threads of the lane's team need. It is in the memory that they share, because there are too few registers.
// In a thread's own memory it would be behind the caches, which each acquire empties. (A program has at most one such
// lane.)
struct FoldLane {
    Vector vectors[MOST_VECTORS];  // first those to put, then the terms
    const Lane *at;
    u64 src, out, dst, steps;
    u32 bytes;
    u32 team, threads;  // the threads of the team, and of all blocks
    u32 puts, all;       // vectors
    u32 scalar, unit;
    u32 sums;  // the type of floats of which all terms are summed, or NO_SUM
    Part part;
    Stand stands[2];
};

DEV FoldLane &fold_lane() {
    __shared__ FoldLane one;
    return one;
}

// Whether both halves of a pair have their epoch's tag.
DEV bool has_landed(u64 first, u64 second, u32 tag) { return (u32)(first >> 32) == tag && (u32)(second >> 32) == tag; }

DEV u64 bits_of(Pair pair) { return pair.first | (u64)pair.second << 32; }

// Combines the elements of two pairs.
APART u64 combined_elements(u32 scalar, u32 op, u32 unit, u64 a, u64 b) {
    u64 both = 0;
#pragma unroll 1
    for (u32 at = 0; at < 64; at += 8u << unit) both |= combined(scalar, op, a >> at, b >> at) << at;
    return both;
}

// The same for sums of floats, which most folds are. A call would take longer than all else that is done with a pair.
enum { NO_SUM = 255 };
DEV u64 sum_of_floats(u32 scalar, u64 a, u64 b) {
    if (scalar == S_F64) return combined<double>(OP_SUM, a, b);
    const u32 a2 = (u32)(a >> 32), b2 = (u32)(b >> 32);
    if (scalar == S_F32) return combined<float>(OP_SUM, (u32)a, (u32)b) | combined<float>(OP_SUM, a2, b2) << 32;
    if (scalar == S_F16) return add_f16x2((u32)a, (u32)b) | (u64)add_f16x2(a2, b2) << 32;
    return add_bf16x2((u32)a, (u32)b) | (u64)add_bf16x2(a2, b2) << 32;
}

// A warp or a block. What they do is the same, and so is the code.
struct Either {
    u32 size;
    DEV static Either now() { return {fold_lane().team}; }
    DEV bool is_block() const { return size > WARP; }
    DEV u32 rank() const { return threadIdx.x & (size - 1); }  // a power of two
    DEV void barrier() const {
        if (is_block()) block_barrier();
        else warp_barrier();
    }
};

// A vector's parity is that of its epoch. So its landing and its slot have one place each, once the epoch is known.
// (What is put is not a slot. Other threads read where it is meanwhile.)
DEV void take_epoch(Vector &vector, u64 from, bool is_slot) {
    vector.from = from;
    if (!is_odd(tag_of(from, QUANTUM))) return;
    vector.landing += vector.landing_flip;
    if (is_slot) vector.src += vector.flip;
}

// The pair of a term that has come by the word. As in `Search::look`, no tag is left behind that could be mistaken for
// a later epoch's.
DEV u64 fetch_by_word(const Vector &term, u32 at, u32 bytes) {
    const u64 tag = (u64)tag_of(term.from, QUANTUM) << 32;
    store_both(term.landing + 2 * at, tag, tag);
    return bits_of(fetch_pair(term.src, at / 8, bytes));
}

// What a thread does once its pairs are put: it combines its pairs, from `next` on, one after the other.
struct Fold {
    u32 next;
    u32 lacks;    // the first term whose pair was missing when it was looked for last
    u64 by_word;  // the terms, by their numbers, that have not landed. Their slots are as their origins left them

    // Combines the pairs at `next`. It looks a few times for each. Returns whether all have come. If it is not `LATE`,
    // it leaves terms that come by the word to a later call.
    template <bool LATE>
    DEV bool combine(int times) {
        FoldLane &lane = fold_lane();
        const u32 puts = lane.puts, number = lane.all - puts, bytes = lane.bytes, sums = lane.sums;
        u64 all = 0;
#pragma unroll 1
        for (u32 begin = 0; begin < number; begin += ABREAST) {
            Vector *const terms = lane.vectors + puts + begin;
            u64 found[ABREAST];
            u32 missing = 0, come = 0;
#pragma unroll
            for (u32 k = 0; k < ABREAST; k++) {
                if (begin + k >= number) continue;
                if (!terms[k].operand) found[k] = bits_of(fetch_pair(terms[k].src, next / 8, bytes));
                else if (LATE && by_word >> (begin + k) & 1) found[k] = fetch_by_word(terms[k], next, bytes);
                else missing |= 1u << k;
            }
#pragma unroll 1
            for (int looks = 1; missing; looks++) {
                u64 first[ABREAST], second[ABREAST];
#pragma unroll
                for (u32 k = 0; k < ABREAST; k++)
                    if (missing >> k & 1) load_both(terms[k].landing + 2 * next, first[k], second[k]);
#pragma unroll
                for (u32 k = 0; k < ABREAST; k++) {
                    if (!(missing >> k & 1)) continue;
                    if (has_landed(first[k], second[k], tag_of(terms[k].from, QUANTUM))) {
                        found[k] = (u32)first[k] | second[k] << 32;
                        missing &= ~(1u << k);
                    } else if (come >> k & 1) {
                        // The word had come before this look, so the tags will not: see `Search::look`.
                        if (!LATE) return false;
                        by_word |= 1ull << (begin + k);
                        terms[k].by_word = 1;
                        found[k] = fetch_by_word(terms[k], next, bytes);
                        missing &= ~(1u << k);
                    }
                }
                // No later load is in flight together with an acquire. So words are looked at less often.
                if (missing && (looks % 4 == 0 || looks >= times)) {
                    come = 0;
#pragma unroll 1
                    for (u32 k = 0; k < ABREAST; k++)
                        if (missing >> k & 1 && reached(load_acquire(terms[k].word), terms[k].from, QUANTUM)) come |= 1u << k;
                    if (looks >= times && !come) {
                        lacks = begin + (missing & 1 ? 0 : missing & 2 ? 1 : missing & 4 ? 2 : 3);
                        return false;
                    }
                }
            }
#pragma unroll
            for (u32 k = 0; k < ABREAST; k++) {
                if (begin + k >= number) continue;
                if (begin + k == 0) all = found[k];
                else if (sums != NO_SUM) all = sum_of_floats(sums, all, found[k]);
                else all = combined_elements(lane.scalar, terms[k].op, lane.unit, all, found[k]);
            }
        }
        put(lane.dst + next, (u32)all);
        if (next + 4 < bytes) put(lane.dst + next + 4, (u32)(all >> 32));
        return true;
    }

    // Combines the rest of the thread's pairs. Returns whether all have come.
    template <bool LATE>
    DEV bool look(int times) {
        for (; next < fold_lane().bytes; next += 8 * fold_lane().threads)
            if (!combine<LATE>(times)) return false;
        return true;
    }
};

// The rest of the waits for exposures, if one takes longer than an instant. All threads share them. Returns whether all
// have come.
APART bool expose_late(const Launch &launch) {
    FoldLane &lane = fold_lane();
    const Either team = Either::now();
    bool come = !has_failed(launch);
    for (u32 t = team.rank(); t < lane.puts && come; t += team.size)
        come = wait_long(launch, (const WaitStep *)(lane.steps + 16ull * lane.vectors[t].wait), lane.vectors[t].from, lane.part.index == 0);
    // (`failed` is for what comes next: a fast thread may set it before a slow one has read this.)
    if (!come) lane.stands[1].epoch = 1;
    team.barrier();
    return lane.stands[1].epoch == 0;
}

// The rest of a fold that takes longer than an instant, as in `landed_late`. All threads look together.
APART bool fold_late(const Launch &launch, Fold fold) {
    const u64 END = 1ull << 63;
    FoldLane &lane = fold_lane();
    const Either team = Either::now();
    const bool first = team.rank() == 0;
    const u64 begin = 16ull * lane.part.index * team.size;  // of the block's pairs, in a landing
    Vector *const terms = lane.vectors + lane.puts;
    const u32 number = lane.all - lane.puts;
    const auto wait_of = [&](u32 t) { return (const WaitStep *)(lane.steps + 16ull * terms[t].wait); };
    const auto blocked = [&](u32 t) { return &launch.mirror->blocked[wait_of(t)->slot]; };
    u64 reported = 0;  // the terms, by their numbers
    const auto end_report = [&](u32 t) {
        if (reported >> t & 1) store_release32(&blocked(t)->active, 0);
        reported &= ~(1ull << t);
    };
    bool ok = false;
    for (u32 round = 0;; round++) {
        // As in `landed_late`.
        Stand *stand = lane.stands + round % 2;
        if (first) {
            // The terms of which nothing more will come, because their words are poisoned.
            u64 ended = has_failed(launch) ? END : 0;
#pragma unroll 1
            for (u32 t = 0; t < number && !(ended & END); t++) {
                const Vector &term = terms[t];
                if (!term.operand) continue;
                const u64 value = load_relaxed(term.word), epoch = term.from >> QUANTUM_BITS;
                const WaitStep *wait = wait_of(t);
                const bool has_come = reached(value, term.from, QUANTUM);
                // What had landed before the poison is visible once the poison is acquired.
                const bool poisoned = !has_come && value & POISON && load_acquire(term.word) & POISON;
                u64 one, other;
                const u32 tag = tag_of(term.from, QUANTUM);
                load_both(term.landing + begin, one, other);
                const bool there = has_come || has_landed(one, other, tag);
                if (poisoned) {
                    // If a pair of this block is missing, it will not come. Usually all of them are missing; but a rank
                    // may have died while its pairs landed.
                    ended |= 1ull << t;
                    if (!there || term.lacks) {
                        fail_wait(launch, wait, epoch);
                        ended = END;
                    }
                } else if (there) {
                    end_report(t);
                } else if (round >= 64 && round % 64 == 0 && !load_relaxed32(&blocked(t)->active)) {
                    report(blocked(t), wait, epoch);
                    reported |= 1ull << t;
                }
            }
            stand->epoch = ended;
            stand->failed = 0;
        }
        team.barrier();
        const u64 ended = stand->epoch;
        if (ended & END) break;
        if (!fold.look<true>(round < 64 ? 16 : 1)) {
            stand->failed = 1;
            if (ended >> fold.lacks & 1) terms[fold.lacks].lacks = 1;
        }
        team.barrier();
        ok = !stand->failed;
        if (ok) break;
        if (round > 16) pause(round > 256 ? 1000 : 50);
    }
    for (u32 t = 0; t < number; t++) end_report(t);
    return ok;
}

// Carries out the lane.
APART void run_fold(const Launch &launch, Either as, const Lane *at, Part part) {
    FoldLane &lane = fold_lane();
    Vector *const vectors = lane.vectors;
    // No kernel writes the list, so it is brought here before the work before this batch is over.
    {
        const u32 rank = as.rank();
        const u64 steps = (u64)launch.program + 16ull * at->steps, list = steps + 16ull * at->tail;
        const u32 puts = (u32)at->from, all = puts + (u32)at->to;
        for (u32 i = rank; i < all * (u32)(sizeof(Vector) / sizeof(V16)); i += as.size) {
            V16 line;
            fetch(line, list + i * sizeof(V16));
            ((V16 *)vectors)[i] = line;
        }
        if (rank == 0) {
            lane.at = at;
            lane.src = at->src;
            lane.out = at->out;
            lane.dst = at->dst;
            lane.steps = steps;
            lane.bytes = (u32)at->count;
            lane.team = as.size;
            lane.threads = part.count * as.size;
            lane.puts = puts;
            lane.all = all;
            lane.scalar = (u32)at->value;
            lane.unit = at->unit;
            lane.sums = at->value >> 32 ? (u32)at->value : NO_SUM;
            lane.part = part;
            lane.stands[0].failed = lane.stands[1].failed = 0;
            lane.stands[1].epoch = 0;
        }
    }
    as.barrier();
    const Either team = Either::now();
    const u32 rank = team.rank(), mine = lane.part.index * team.size + rank;
    const Turn turn(launch, part);
    turn.await();

    const u32 stop = load_relaxed32(&turn.state->stop);
    // The last threads share the waits for exposures. Meanwhile the first ones fetch their pairs. Of the waits for data,
    // only the operands are needed now.
    const u32 puts = lane.puts, bytes = lane.bytes;
    Pair pairs_of[ABREAST];
    const auto fetch_abreast = [&](u32 begin, u32 i) {
#pragma unroll
        for (u32 k = 0; k < ABREAST; k++)
            if (begin + k < puts) pairs_of[k] = fetch_pair(vectors[begin + k].src, i, bytes);
    };
    if (8 * mine < bytes) fetch_abreast(0, mine);
    bool late = false;
    for (u32 t = team.size - 1 - rank; t < lane.all; t += team.size) {
        Vector &vector = vectors[t];
        if (!vector.operand) continue;
        const u64 from = load_relaxed(vector.operand);
        if (t < puts) {
            u64 value = load_acquire(vector.word);
#pragma unroll 1
            for (int looks = 1; looks < 64 && !reached(value, from, QUANTUM); looks++) value = load_acquire(vector.word);
            late = late || !reached(value, from, QUANTUM);
        }
        take_epoch(vector, from, t >= puts);
    }
    if (late || stop || turn.follow) lane.stands[0].failed = 1;
    Either::now().barrier();
    if (lane.stands[0].failed && !expose_late(launch)) {
        if (Either::now().rank() == 0) give_up(launch, lane.at->steps, false);
        return;
    }
    STAMP(const u64 exposed_at = global_timer();)

    for (u32 i = mine; 8 * i < bytes; i += lane.threads) {
#pragma unroll 1
        for (u32 begin = 0; begin < puts; begin += ABREAST) {
            if (i != mine || begin != 0) fetch_abreast(begin, i);
#pragma unroll
            for (u32 k = 0; k < ABREAST; k++) {
                if (begin + k >= puts) continue;
                land(vectors[begin + k].landing, i, pairs_of[k], tag_of(vectors[begin + k].from, QUANTUM));
            }
        }
        if (lane.out) {
            const Pair pair = fetch_pair(lane.src, i, bytes);
            put(lane.out + 8 * i, pair.first);
            if (8 * i + 4 < bytes) put(lane.out + 8 * i + 4, pair.second);
        }
    }

    Fold fold = {8 * mine, 0, 0};
    if (stop || turn.follow || !fold.look<false>(64)) lane.stands[1].failed = 1;
    Either::now().barrier();
    const bool ok = !lane.stands[1].failed || fold_late(launch, fold);
    const Either again = Either::now();
    const u32 thread = again.rank();
    turn.pass(thread == 0);
    if (!ok) return;
    // All legs are written now: earlier, that would delay what they are about.
    STAMP(const u64 there_at = global_timer();)
    STAMP(if (thread == 0) for (u32 t = 0; t < lane.all; t++) if (vectors[t].operand) stamp_leg(launch, lane.at, vectors[t], t < lane.puts ? exposed_at : there_at);)
    STAMP(if (thread == 0) marks().moves(), end_leg();)
    const u32 last = lane.part.count - 1;
    if (last != 0) {
        // All blocks have read the operands once the last one comes here. (A slow thread may still read `failed`.)
        if (thread == 0) lane.stands[0].epoch = count_to(lane.at->arrivals, last);
        Either::now().barrier();
        if (lane.stands[0].epoch != last) return;
    }
    for (u32 t = thread; t < lane.all; t += again.size) {
        const Vector &vector = vectors[t];
        if (!vector.operand) continue;
        // As in `run_landed`: the word counts what has landed.
        if (t >= lane.puts && !vector.by_word) red_u64(vector.word, QUANTUM);
        store_relaxed(vector.operand, vector.from + QUANTUM);
    }
}
