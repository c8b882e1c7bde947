// ptx: compute_80 compute_90
//
// Small kernels for the examples and the tests, as a user would write them.
//
// # Model
//
// A slice is an address and a length in elements. An inbox is a table of slots and their number. All kernels work in
// any grid: each thread takes elements at a constant stride.
//
// # Failure
//
// There is none: indices stay within the lengths.

#include "machine.cuh"
#include "tidegate.cuh"

using tidegate::Slot;
using tidegate::current;

#define EACH(i, len) u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x, step_##i = (u64)gridDim.x * blockDim.x; i < (len); i += step_##i

// x += 1
extern "C" __global__ void increment(double *x, u64 len) {
    for (EACH(i, len)) x[i] += 1;
}

// x[i] = first + i
extern "C" __global__ void count(u64 *x, u64 len, u64 first) {
    for (EACH(i, len)) x[i] = first + i;
}

// Takes the number in `state[0]` and advances it by `by`; x[i] = number * scale + i. If each repetition of a replay
// must do something different, the difference must come from memory of the device.
extern "C" __global__ void produce(u64 *x, u64 len, u64 *state, u64 states, u64 scale) {
    u64 number = state[0];
    for (EACH(i, len)) x[i] = number * scale + i;
}

// state[0] += 1
extern "C" __global__ void tick(u64 *state, u64 states) {
    if (blockIdx.x == 0 && threadIdx.x == 0 && states) state[0] += 1;
}

// Like `tick`. Compiled for 9.0, it waits by itself for earlier work, so that it can be launched early.
extern "C" __global__ void tick_early(u64 *state, u64 states) {
    wait_for_previous();
    if (blockIdx.x == 0 && threadIdx.x == 0 && states) state[0] += 1;
}

// Counts in `errors[0]` the elements `first..end` of slot `which` that are not `number * scale + i`, where the number
// is in `state[0]`.
extern "C" __global__ void consume(const Slot *slots, u64 count, u64 which, u64 first, u64 end, const u64 *state, u64 states, u64 scale, u64 *errors, u64 length) {
    if (which >= count || !states || !length) return;
    u64 number = state[0];
    const u64 *x = current<u64>(slots[which]);
    if (end > slots[which].len) end = slots[which].len;
    for (EACH(i, end))
        if (i >= first && x[i] != number * scale + i) atomicAdd(errors, 1ull);
}

// Copies slot `which` to `to`, as far as both reach.
extern "C" __global__ void copy_slot(const Slot *slots, u64 count, u64 which, u64 *to, u64 length) {
    if (which >= count) return;
    const u64 *x = current<u64>(slots[which]);
    u64 end = slots[which].len < length ? slots[which].len : length;
    for (EACH(i, end)) to[i] = x[i];
}

// Writes to an address that is not mapped, as a kernel that breaks its contract does. For tests.
extern "C" __global__ void trespass(u64 *x, u64 len) {
    *(volatile u64 *)8 = len;
}

// Keeps a multiprocessor busy for so many nanoseconds.
extern "C" __global__ void busy(u64 *x, u64 len, u64 nanoseconds) {
    u64 begin = global_timer(), now;
    do now = global_timer();
    while (now - begin < nanoseconds);
    if (len && blockIdx.x == 0 && threadIdx.x == 0) x[0] += 1;
}
