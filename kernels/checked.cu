// ptx: compute_80
//
// Kernels for tests that break the contract of kernels that put, as `TIDEGATE_CHECKS` finds it.
//
// # Model
//
// Each takes what a right kernel takes. `how` says what it does wrong.
//
// # Failure
//
// It is recorded in the table of the outbox. Indices stay within the lengths.

#define TIDEGATE_CHECKS
#include "machine.cuh"
#include "tidegate.cuh"

// A block puts all elements but the last. The first thread names another place (1), the address is not aligned (2), or a
// warp puts that is not whole (3). Otherwise (0) it is right.
extern "C" __global__ void put_checked(tidegate::OutSlots<u64> out, tidegate::Out<u64> to, const u64 *x, u64 len, u32 how) {
    if (blockIdx.x != 0 || len < 2) return;
    const u64 first = how == 1 && threadIdx.x == 0 ? 1 : 0;
    const u64 *from = how == 2 ? (const u64 *)((const u8 *)x + 4) : x;
    if (how == 3) out.put(tidegate::Warp(), to, first, from, len - 1);
    else out.put(tidegate::Block(), to, first, from, len - 1);
}

// Each thread completes the target, and then puts (1), or completes it again (2). Otherwise (0) it is right.
extern "C" __global__ void last_checked(tidegate::LastSlots<u64> out, tidegate::Out<u64> to, const u64 *x, u64 len, u32 how) {
    out.put(tidegate::Grid(), to, 0, x, len);
    out.complete();
    if (how == 1 && len && tidegate::Grid().rank() == 0) out.put_value(to, 0, x[0]);
    if (how == 2) out.complete();
}
