// A part of batch.cu: reductions, which combine values from several places, one after the other.
//
// Each thread has elements of its own, so nothing else works on them. It writes each once. Sums of elements of 4 or 8
// bytes, and of floats of 2, are what programs do with long vectors. They take whole lines of 16 bytes, and several of
// these at a time. Everything else goes element by element, so that there is little code.

DEV float plus(float a, float b) { return a + b; }
DEV double plus(double a, double b) { return a + b; }
DEV u32 plus(u32 a, u32 b) { return a + b; }
DEV u64 plus(u64 a, u64 b) { return a + b; }
DEV F16 plus(F16 a, F16 b) { return a + b; }
DEV Bf16 plus(Bf16 a, Bf16 b) { return a + b; }

template <typename T>
DEV u32 sum4(u32 a, u32 b) { return (u32)bits_of(plus(of_bits<T>(a), of_bits<T>(b))); }
template <>
DEV u32 sum4<F16>(u32 a, u32 b) { return F16::add(a, b); }
template <>
DEV u32 sum4<Bf16>(u32 a, u32 b) { return Bf16::add(a, b); }
template <typename T>
DEV V16 sum_line(V16 a, V16 b) {
    if (sizeof(T) <= 4) return {sum4<T>(a.x, b.x), sum4<T>(a.y, b.y), sum4<T>(a.z, b.z), sum4<T>(a.w, b.w)};
    const u64 low = bits_of(plus(of_bits<T>(a.x | (u64)a.y << 32), of_bits<T>(b.x | (u64)b.y << 32)));
    const u64 high = bits_of(plus(of_bits<T>(a.z | (u64)a.w << 32), of_bits<T>(b.z | (u64)b.w << 32)));
    return {(u32)low, (u32)(low >> 32), (u32)high, (u32)(high >> 32)};
}

// Where a term lies. `epoch` is that of the lane's last wait.
DEV u64 place(const Term &term, u64 epoch) {
    const bool odd = term.last ? epoch & 1 : is_odd(term.parity);
    return term.src + (odd ? term.flip : 0);
}

// Terms of a reduction, which are combined with what is at `start`. The first of them is at `lead`.
struct Terms {
    const Term *terms;
    u32 number;
    u64 epoch, start, lead;
    DEV u64 at(u32 t) const { return t ? place(terms[t], epoch) : lead; }
};

// How many lines of 16 bytes a thread fetches of one vector at a time. It adds them to its sums before it fetches those
// of the next vector, so this many are in flight. (At first there are twice as many: two vectors make the first sums.)
// On NVIDIA's GPUs a thread has 64 registers here. The sums and the fetched lines take 32; with 8 lines they would take
// all of them.
#define LINES 4

// (The host makes sure that numbers of lines fit 31 bits.)
template <typename T>
DEV void sum(const Terms &terms, u64 dst, u32 lines, u64 elements, u32 first, u32 stride) {
#pragma unroll 1
    for (u32 i = first; i < lines; i += LINES * stride) {
        // Behind the end, the first line is fetched once more. A value that is fetched only on a condition is otherwise
        // what it was before. So the compiler would keep all of them all the time: in memory, as there are too many.
        u64 at[LINES];
        V16 all[LINES], next[LINES];
#pragma unroll
        for (u32 k = 0; k < LINES; k++) {
            at[k] = (u64)(i + k * stride < lines ? i + k * stride : i) * sizeof(V16);
            fetch(all[k], terms.start + at[k]);
        }
#pragma unroll 1
        for (u32 t = 0; t < terms.number; t++) {
            const u64 from = terms.at(t);
#pragma unroll
            for (u32 k = 0; k < LINES; k++) fetch(next[k], from + at[k]);
#pragma unroll
            for (u32 k = 0; k < LINES; k++) all[k] = sum_line<T>(all[k], next[k]);
        }
#pragma unroll
        for (u32 k = 0; k < LINES; k++)
            if (i + k * stride < lines) put(dst + at[k], all[k]);
    }
#pragma unroll 1
    for (u64 i = first; i < elements; i += stride) {
        const u64 at = (u64)lines * sizeof(V16) + i * sizeof(T);
        T all = of_bits<T>(fetch_bits(terms.start + at, sizeof(T)));
#pragma unroll 1
        for (u32 t = 0; t < terms.number; t++) all = plus(all, of_bits<T>(fetch_bits(terms.at(t) + at, sizeof(T))));
        put_bits(dst + at, sizeof(T), bits_of(all));
    }
}

// Any operations, on elements of any type.
DEV void combine(const Terms &terms, u64 dst, u64 elements, u32 scalar, u32 unit, u64 first, u64 stride) {
    const u32 bytes = 1u << unit;
#pragma unroll 1
    for (u64 i = first; i < elements; i += stride) {
        const u64 at = i << unit;
        u64 all = fetch_bits(terms.start + at, bytes);
#pragma unroll 1
        for (u32 t = 0; t < terms.number; t++) all = combined(scalar, terms.terms[t].op, all, fetch_bits(terms.at(t) + at, bytes));
        put_bits(dst + at, bytes, all);
    }
}

// A reduction, with what a thread needs at first.
struct Reduction {
    u64 dst, elements;
    u32 lines, scalar, op, unit;
    Terms terms;
    bool replaces;
    Term first, second;

    DEV Reduction(const MoveStep *move) : dst(move->dst), elements(move->result), lines((u32)move->count), scalar(move->scalar), op(move->op), unit(move->unit) {
        terms.terms = (const Term *)((const u8 *)move + (sizeof(MoveStep) + 15) / 16 * 16);
        terms.number = move->sub;
        first = terms.terms[0];
        replaces = first.op == OP_REPLACE;
        second = terms.terms[terms.number > 1];
    }

    // The terms behind the value at their `start`. That value is the destination's, unless the first term replaces it.
    DEV Terms behind_start(u64 epoch) const {
        Terms these = terms;
        these.epoch = epoch;
        these.start = dst;
        these.lead = place(first, epoch);
        if (replaces) {
            these.terms++;
            these.number--;
            these.start = these.lead;
            if (these.number) these.lead = place(second, epoch);
        }
        return these;
    }

    // Carries out this thread's part.
    DEV void carry_out(u64 epoch, u32 begin, u32 stride) const {
        const Terms these = behind_start(epoch);
        if (op != OP_SUM) combine(these, dst, elements, scalar, unit, begin, stride);
        else if (scalar == S_F32) sum<float>(these, dst, lines, elements, begin, stride);
        else if (scalar == S_F64) sum<double>(these, dst, lines, elements, begin, stride);
        else if (scalar == S_F16) sum<F16>(these, dst, lines, elements, begin, stride);
        else if (scalar == S_BF16) sum<Bf16>(these, dst, lines, elements, begin, stride);
        else if (unit == 2) sum<u32>(these, dst, lines, elements, begin, stride);
        else sum<u64>(these, dst, lines, elements, begin, stride);
    }
};

// A reduction among other steps. A function that is called has fewer registers for itself.
APART void reduce(const MoveStep *move, u64 epoch, u32 first, u32 stride) { Reduction(move).carry_out(epoch, first, stride); }

// Carries out a lane that only reduces data from before this batch. It waits for nobody, and nobody waits for it. Each
// thread checks by itself whether the stream has failed, because the threads have nothing else in common. `first` and
// `stride` determine this thread's elements.
DEV void run_reduction(const Launch &launch, const Lane *at, Part part, u32 first, u32 stride) {
    // No kernel writes the step, so it is read before the work before this batch is over.
    const Reduction reduction((const MoveStep *)(launch.program + 16ull * at->steps));
    const Turn turn(launch, part);
    turn.await();
    // No lane of the block waits for a peer.
    let_next_come();
    u32 stop = load_relaxed32(&turn.state->stop);
    if ((stop || turn.follow) && has_failed(launch)) return;
    reduction.carry_out(0, first, stride);
    STAMP(if (first == 0) marks().moves(), end_leg();)
}
