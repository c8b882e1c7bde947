// ptx: compute_80
//
// The kernels of the examples on GPUs (`examples/*_cuda.rs`): what a user's own look like.
//
// # Model
//
// tidegate.cuh says what a kernel gets for each parameter, and what a slot is. All kernels work in any grid: each thread
// takes every so many-th element.
//
// # Failure
//
// None: indices stay within the lengths.

#include "tidegate.cuh"

using tidegate::Slot;
using tidegate::current;

typedef unsigned long long u64;

#define EACH(i, len) u64 i = blockIdx.x * (u64)blockDim.x + threadIdx.x, step_##i = (u64)gridDim.x * blockDim.x; i < (len); i += step_##i

// --- ring ---

// x += 1
extern "C" __global__ void increment(double *x, u64 len) {
    for (EACH(i, len)) x[i] += 1;
}

// Counts the elements of all slots that differ from `src`.
extern "C" __global__ void compare(const Slot *slots, u64 count, const double *src, u64 len, u64 *errors, u64 counters) {
    if (!counters) return;
    for (u64 k = 0; k < count; k++) {
        const double *came = current<double>(slots[k]);
        for (EACH(i, len))
            if (i >= slots[k].len || came[i] != src[i]) atomicAdd(errors, 1ull);
    }
}

// --- halo2d ---

// Where what a neighbour sends belongs: the first ghost cell, and from each to the next.
struct Ghosts {
    u64 first, stride;
};

// Fills the ghosts of `u` with what came: slot k belongs to ghosts k.
extern "C" __global__ void fill_ghosts(const Slot *slots, u64 count, const Ghosts *ghosts, u64 sides, double *u, u64 len) {
    for (u64 k = 0; k < count && k < sides; k++) {
        const double *came = current<double>(slots[k]);
        for (EACH(i, slots[k].len)) {
            u64 at = ghosts[k].first + i * ghosts[k].stride;
            if (at < len) u[at] = came[i];
        }
    }
}

// Each unknown of `to` becomes the average of its neighbours in `from`; `width` unknowns a row, between two ghosts.
extern "C" __global__ void sweep(const double *from, u64 len, double *to, u64 room, u64 width, u64 height) {
    u64 row = width + 2;
    if (row * (height + 2) > len || len > room) return;
    for (EACH(i, width * height)) {
        u64 at = (i / width + 1) * row + i % width + 1;
        to[at] = (from[at - 1] + from[at + 1] + from[at - row] + from[at + row]) / 4;
    }
}

// --- pipeline ---

// x[i] = value
extern "C" __global__ void fill(u64 *x, u64 len, u64 value) {
    for (EACH(i, len)) x[i] = value;
}

// sum[0] += the products of what came in the first slot and `mine`
extern "C" __global__ void multiply(const Slot *slots, u64 count, const u64 *mine, u64 len, u64 *sum, u64 sums) {
    if (!count || !sums) return;
    const u64 *came = current<u64>(slots[0]);
    u64 products = 0;
    for (EACH(i, len))
        if (i < slots[0].len) products += came[i] * mine[i];
    if (products) atomicAdd(sum, products);
}
