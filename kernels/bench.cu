// ptx: compute_80
//
// What benchmarks look at results with.
//
// # Model
//
// `bench_gather` copies what the slots of a window hold, one slot after the other, to where the host can read it. It is
// not on any path that is timed.
//
// # Failures
//
// None are reported: what does not fit into the destination is left out, and the host, which knows what should be
// there, sees that.

#include "tidegate.cuh"

using tidegate::Slot;

typedef unsigned long long u64;

// The slots hold words of 8 bytes. Peers have written them: they are read with ordinary loads, never through the
// non-coherent path.
extern "C" __global__ void __launch_bounds__(1024) bench_gather(const Slot *slots, u64 slots_len, u64 *out, u64 out_len) {
  const u64 thread = (u64)blockIdx.x * blockDim.x + threadIdx.x;
  const u64 threads = (u64)gridDim.x * blockDim.x;
  u64 begin = 0u;
  for (u64 k = 0u; k < slots_len; k++) {
    const Slot slot = slots[k];
    const bool odd = slot.flip != 0u && (((*slot.operand >> 20) - 1u) & 1u) != 0u;
    const u64 *const from = (const u64 *)(slot.base + (odd ? slot.flip : 0u));
    for (u64 i = thread; i < slot.len && begin + i < out_len; i += threads) out[begin + i] = from[i];
    begin += slot.len;
  }
}
