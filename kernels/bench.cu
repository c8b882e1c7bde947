// ptx: compute_80
//
// A kernel by which benchmarks look at results.
//
// # Model
//
// `bench_gather` copies the contents of a window's slots, one after the other, to where the host can read them. It is
// not part of anything that is timed.
//
// # Failures
//
// No errors are reported. Elements that do not fit into the destination are left out. The host knows the expected
// contents, and notices.

#include "tidegate.cuh"

using tidegate::Slot;

typedef unsigned long long u64;

// The slots contain words of 8 bytes. Peers have written them, so they are read with ordinary loads, never through the
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
