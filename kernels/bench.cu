// ptx: compute_80
//
// Kernels of benchmarks: one that looks at results, and those that put.
//
// # Model
//
// `bench_gather` copies the contents of a window's slots, one after the other, to where the host can read them. It is
// not part of anything that is timed.
//
// The others do what the performance tests of NVSHMEM do, in one launch: they put the same words again and again. A
// *unit* is a thread, a warp or a block. All units of the grid share the words, in parts of whole lines of 16 bytes.
//
// # Failures
//
// No errors are reported. Elements that do not fit into the destination are left out. The host knows the expected
// contents, and notices.

#include "machine.cuh"
#include "tidegate.cuh"

using tidegate::Slot;

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

// Unit `number` of `count` puts its part of the words, so many times. With `quiet` it waits each time until its words
// have left.
template <class Unit>
DEV void puts(Unit unit, u64 number, u64 count, const tidegate::OutSlots<u64> &out, tidegate::Out<u64> to, const u64 *x, u64 len, u64 turns, bool quiet) {
  const u64 each = ((len + count - 1u) / count + 1u) / 2u * 2u;
  const u64 begin = each * number < len ? each * number : len, mine = each < len - begin ? each : len - begin;
  const tidegate::OutSlot<u64> there = out.slot(to);
  for (u64 turn = 0u; turn < turns; turn++) {
    if (mine) there.put(unit, begin, x + begin, mine);
    if (!quiet) continue;
    unit.meet();
    if (unit.rank() == 0u) fence();
    unit.meet();
  }
}

struct OneThread : tidegate::Thread {
  DEV void meet() const {}
};
struct OneWarp : tidegate::Warp {
  DEV void meet() const { warp_barrier(); }
};
struct OneBlock : tidegate::Block {
  DEV void meet() const { block_barrier(); }
};

extern "C" __global__ void __launch_bounds__(1024) bench_puts(tidegate::OutSlots<u64> out, tidegate::Out<u64> to, const u64 *x, u64 len, u32 unit, u64 turns, u32 quiet) {
  const u64 me = tidegate::Grid().rank(), all = tidegate::Grid().size();
  if (unit == 0u) puts(OneThread(), me, all, out, to, x, len, turns, quiet != 0u);
  if (unit == 1u) puts(OneWarp(), me / WARP, all / WARP, out, to, x, len, turns, quiet != 0u);
  if (unit == 2u) puts(OneBlock(), blockIdx.x, gridDim.x, out, to, x, len, turns, quiet != 0u);
}

// Each thread puts words, one after the other.
extern "C" __global__ void __launch_bounds__(1024) bench_values(tidegate::OutSlots<u64> out, tidegate::Out<u64> to, const u64 *x, u64 len, u64 turns) {
  const u64 me = tidegate::Grid().rank(), all = tidegate::Grid().size();
  const tidegate::OutSlot<u64> there = out.slot(to);
  for (u64 turn = 0u; turn < turns; turn++)
    for (u64 i = me; i < len; i += all) there.put_value(i, x[i]);
}

// Puts all words, and completes the target.
extern "C" __global__ void __launch_bounds__(1024) bench_pass(tidegate::LastSlots<u64> out, tidegate::Out<u64> to, const u64 *x, u64 len) {
  out.put(tidegate::Grid(), to, 0u, x, len);
  out.complete();
}

// Passes words to and fro, so many times, by itself: it owns both halves. The one that is `second` waits first. What comes
// first behind a wait is the next put. The post and the next start follow while that is on its way, as two buffers allow.
// The number of the turn is added to the last word. `errors[0]` counts the turns whose last word was not the sum of `theirs`
// and that number.
extern "C" __global__ void __launch_bounds__(512) bench_owned(tidegate::KernelInbox<u64> in, tidegate::KernelOutbox<u64> out, u32 from, tidegate::Out<u64> to, const u64 *x, u64 len, u64 turns, u64 theirs, u64 *errors, u64 length, u32 second) {
  const tidegate::Block block;
  auto inbox = in.own(block);
  auto outbox = out.own(block);
  const auto here = inbox.find(from);
  const auto there = outbox.find(to);
  const bool leads = block.rank() == 0u;
  const u64 last = len - 1u, word = x[last];
  u64 wrong = 0u;
  auto exposed = tidegate::move(inbox).post();
  auto epoch = tidegate::move(outbox).start();
  for (u64 turn = 0u;; turn++) {
    const bool more = turn + 1u < turns && !epoch.failed();
    if (second) inbox = tidegate::move(exposed).wait();
    epoch.put(block, there, 0u, x, last);
    if (leads) epoch.put_value(there, last, word + turn);
    outbox = tidegate::move(epoch).complete();
    // What has come is looked at while that is on its way.
    const u64 seen = turn + second;
    if (leads && seen && inbox.read(here)[last] != theirs + seen - 1u) wrong++;
    if (!second && turn) exposed = tidegate::move(inbox).post();
    if (second && more) exposed = tidegate::move(inbox).post();
    if (more) epoch = tidegate::move(outbox).start();
    if (!second) inbox = tidegate::move(exposed).wait();
    if (!more) break;
  }
  if (leads && length) errors[0] += wrong;
  tidegate::move(inbox).close();
  tidegate::move(outbox).close();
}
