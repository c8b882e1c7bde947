// A part of batch.cu: lanes that only reduce.

// How many terms are fetched at a time.
#define TERMS 4

// Combines elements with values from several places, one after the other. Each element is written once, and no wait
// comes between two terms. Each thread has elements of its own, so nothing else works on them.
struct Reduction {
    u64 dst, count;
    const Term *terms;  // behind a step
    u32 number, scalar, unit;

    DEV Reduction(u64 dst, u64 count, const u8 *step, u32 number, u32 scalar, u32 unit)
        : dst(dst), count(count), terms((const Term *)(step + (sizeof(MoveStep) + 15) / 16 * 16)), number(number), scalar(scalar), unit(unit) {}

    DEV void carry_out(u64 first, u64 stride) const {
        const u32 bytes = 1u << unit;
#pragma unroll 1
        for (u64 i = first; i < count; i += stride) {
            const u64 at = dst + (i << unit);
            u64 all = terms[0].op == OP_REPLACE ? 0 : fetch_bits(at, bytes);
#pragma unroll 1
            for (u32 t = 0; t < number; t += TERMS) {
                u64 from[TERMS], values[TERMS];
#pragma unroll
                for (int k = 0; k < TERMS; k++)
                    if (t + k < number) from[k] = terms[t + k].src + (is_odd(terms[t + k].parity) ? terms[t + k].flip : 0);
#pragma unroll
                for (int k = 0; k < TERMS; k++)
                    if (t + k < number) values[k] = fetch_bits(from[k] + (i << unit), bytes);
                const u32 here = number - t < TERMS ? number - t : TERMS;
#pragma unroll 1
                for (u32 k = 0; k < here; k++) {
                    all = combined(scalar, terms[t + k].op, all, values[0]);
#pragma unroll
                    for (int next = 1; next < TERMS; next++) values[next - 1] = values[next];
                }
            }
            put_bits(at, bytes, all);
        }
    }
};

// Carries out a lane that only reduces data from before this batch. It waits for nobody, and nobody waits for it. Each
// thread checks by itself whether the stream has failed, because the threads have nothing else in common. `first` and
// `stride` determine this thread's elements.
DEV void run_reduction(const Launch &launch, const Lane *at, Part part, u64 first, u64 stride) {
    const u8 *step = launch.program + 16ull * at->steps;
    const Reduction reduction(at->dst, at->count, step, (u32)at->to, at->scalar, at->unit);
    const Turn turn(launch, part);
    turn.await();
    // No lane of the block waits for a peer.
    let_next_come();
    u32 stop = load_relaxed32(&turn.state->stop);
    if ((stop || turn.follow) && has_failed(launch)) return;
    reduction.carry_out(first, stride);
    STAMP(if (first == 0) marks().moves(), end_leg();)
}
