// For device code of programs that use tidegate: the types that a kernel gets for the parameters of `kernel!`, the puts
// of a kernel that fills an open epoch, and the epochs of a kernel that owns a half of a window. Include this file. It
// includes `tidegate_put.cuh`, `tidegate_own.cuh`, `machine.cuh` and a file of `machine/`, all in its folder; with
// hipcc also <hip/hip_runtime.h>. It needs C++17. The docs of `tidegate::kernel::Parameter` promise the layout of
// `Slot`.
//
// # Model
//
// | in `kernel!`                   | in the kernel                                              |
// |--------------------------------|------------------------------------------------------------|
// | `x: &[f64]`                    | `const double *x, unsigned long long len` (in elements)    |
// | `x: &mut [f64]`                | `double *x, unsigned long long len`                        |
// | `x: Cells<f64>`, `CellsMut<…>` | the same, of the whole region that the part is of          |
// | `inbox: Slots<f64>`            | `const tidegate::Slot *slots, unsigned long long count`    |
// | `from: In<f64>`                | `unsigned from`: the slot is `slots[from]`, in the table   |
// |                                | before it (or behind it, where none stands before)         |
// | `out: OutSlots<f64>`           | `tidegate::OutSlots<double> out`                           |
// | `out: LastSlots<f64>`          | `tidegate::LastSlots<double> out`                          |
// | `out: AllSlots<f64>`           | `tidegate::AllSlots<double> out`                           |
// | `out: OutRanges<f64>`, …       | `tidegate::OutRanges<double> out`; `LastRanges`, `AllRanges` |
// | `in: KernelInbox<f64>`         | `tidegate::KernelInbox<double> in`                         |
// | `out: KernelOutbox<f64>`       | `tidegate::KernelOutbox<double> out`                       |
// | `to: Out<f64>`                 | `tidegate::Out<double> to`                                 |
// | `by: f64`, `Plain<T>`          | `double by`, a struct of the same layout                   |
//
// A kernel is `extern "C" __global__`. `nvcc -std=c++17 -ptx -arch=compute_80 -I FOLDER kernels.cu` makes the PTX
// that `Module::load` takes, where FOLDER has this file. For AMD GPUs, `hipcc -std=c++17 --genco --offload-arch=gfx942
// -fno-strict-aliasing -I FOLDER kernels.cu -o kernels.co` makes a code object.
//
//     #include "tidegate.cuh"
//
//     // sums[k] = the sum of what came in slot k, where k is the block
//     extern "C" __global__ void sum(const tidegate::Slot *slots, unsigned long long count, double *sums, unsigned long long len) {
//       unsigned long long k = blockIdx.x;
//       if (k >= count || k >= len || threadIdx.x != 0) return;
//       const double *came = tidegate::current<double>(slots[k]);
//       double sum = 0;
//       for (unsigned long long i = 0; i < slots[k].len; i++) sum += came[i];
//       sums[k] = sum;
//     }
//
// # Kernels that put
//
// `Outbox::open` and `Opened::complete` enclose the kernels of an epoch. Such a kernel stores straight into the slots of
// its targets:
//
//     // Adds 1 to each number, puts all of them to a neighbour, and lets it go on.
//     extern "C" __global__ void step(double *x, unsigned long long len, tidegate::LastSlots<double> out, tidegate::Out<double> to) {
//       for (unsigned long long i = tidegate::Grid().rank(); i < len; i += tidegate::Grid().size()) {
//         x[i] += 1;
//         out.put_value(to, i, x[i]);
//       }
//       out.complete();
//     }
//
// A *team* puts together: `Thread`, `Warp`, `Block` or `Grid`. `out.put(tidegate::Block(), to, first, x, count)` puts
// `count` elements at `x` to the elements from `first` on. With `OutSlots` a kernel cannot complete a target, with
// `LastSlots` it can put to that target alone, and with `AllSlots` it completes all targets at once.
//
// `OutRanges`, `LastRanges` and `AllRanges` are the same for a window by range, and also get: `out.get(tidegate::Block(),
// from, first, x, count)` fills `x` with elements of a target's memory, and `out.get_value(from, index)` returns one.
//
// # Kernels that own halves
//
// `Inbox::lend` and `Outbox::lend` give a launch the halves of a window, and its kernel makes epochs by itself:
//
//     // Passes numbers on around a ring of ranks, so many times.
//     extern "C" __global__ void pass(double *x, unsigned long long len, tidegate::KernelInbox<double> in, unsigned from,
//                                     tidegate::KernelOutbox<double> out, tidegate::Out<double> to, unsigned times) {
//       tidegate::Grid all;
//       auto inbox = in.own(all);
//       auto outbox = out.own(all);
//       while (times-- && !inbox.failed()) {
//         auto exposed = tidegate::move(inbox).post();
//         auto epoch = tidegate::move(outbox).start();
//         for (unsigned long long i = all.rank(); i < len; i += all.size()) epoch.put_value(to, i, x[i]);
//         outbox = tidegate::move(epoch).complete();
//         inbox = tidegate::move(exposed).wait();
//         const double *came = inbox.read(from);
//         for (unsigned long long i = all.rank(); i < len && i < inbox.len_of(from); i += all.size()) x[i] = came[i];
//       }
//       tidegate::move(inbox).close();
//       tidegate::move(outbox).close();
//     }
//
// The team that owns a half is a `Block` or the `Grid`. Each call takes the token of one state, and returns that of the
// next state, which has the calls of that state: an inbox that is exposed cannot be read, and nothing can be put before
// `start`. `inbox.failed()` tells a kernel that its stream has failed, so that it need not go on.
//
// `inbox.barrier()`, which every token has, is a barrier of the team. A block that posts or completes also counts itself.
// So behind a post, `exposed.await_team()` waits until all blocks have posted, and behind a complete, before the next
// start, `outbox.await_team()` waits until all have completed. That takes less time than a barrier. In `pass`, each thread
// uses elements of its own. A kernel whose threads use the elements of others calls `exposed.await_team()` before its puts
// (the others have written what it sends), and `outbox.await_team()` before it overwrites `x` (the others have sent it).
//
// `inbox.find(from)` and `outbox.find(to)` look a slot up for all epochs of the kernel. What they return is plain data,
// which `read`, or `put`, `put_value` and `slot`, take in place of the number, and which a block can keep in shared memory.
// It is for the half and the kernel that it was made by.
//
// # The contract of a kernel that puts
//
// The binding of the kernel (`unsafe` in Rust) promises these points, for every grid and all arguments. A point with a
// star is checked if TIDEGATE_CHECKS is defined before this file is included.
//
// 1. `OutSlots` and the other five are used by the functions of this file only.
// 2. All threads of a team call a put or get of the team together, with the same arguments. *(blocks: the arguments) The
//    size of a block that has a `Warp` is a multiple of the warp's*.
// 3. The elements at `x` are in memory that the kernel may read (or write, for a get), aligned for their type*. If other
//    threads have written them, a barrier of the team comes before the put. If other threads read them, one comes behind
//    the get.
// 4. No thread writes the elements at `x` before the put's threads have come to their next barrier.
// 5. Two threads of one kernel do not put to the same element, and none gets what another one puts, unless a barrier of
//    both is in between. Otherwise its contents are not defined. (Of two kernels, the later one counts.)
// 6. Every thread of a block that completes a target calls `complete` exactly once*, and uses that target before*.
//    `complete()` is called by all blocks of the grid, `complete(n)` by exactly n blocks, at least one. (Another number
//    is found without TIDEGATE_CHECKS, and fails the stream, perhaps after the target has gone on.)
// 7. The kernel waits for no other rank, and for no block that may not have begun.
// 8. If the function waits for earlier work by itself (`Function::waits_itself`), it uses the slots behind that wait only.
//
// # The contract of a kernel that owns halves
//
// Points 2 to 5 hold for its puts, too. Besides, for every grid and all arguments:
//
// 1. The parameters and the tokens are used by the functions of this file only. One team takes each half, once, by `own`.
//    What `epoch.slot(to)` returns is for puts of that epoch only.
// 2. All threads of the team make the same calls on all tokens that it has, in one order. (Once the stream has failed,
//    blocks of a grid may differ, as `failed` tells them. The threads of a block never do.)
// 3. Slots of the inbox are read by `read`, with ordinary loads (not `__ldg`), as far as their length, in a block that has
//    called `wait` since they were last exposed. Nothing of them is read between `post` and `wait`.
// 4. The kernel posts before it starts. (With two buffers, the post of the epoch before is enough.) Nothing that it waits
//    for depends on its own later work, or on later work of its stream.
// 5. Every path of every thread ends each epoch, and closes each half that it has taken, before the kernel ends.
// 6. A block waits for other blocks of this kernel by `barrier` and `await_team` only, and for none of another kernel.
//    Besides, the `post` or `complete` of a grid may wait until all blocks have come through the `wait` or `start` before.
//    So nothing in front of that depends on what a block does behind the call, not even by way of a peer.
//
// If all threads of a kernel end without keeping 5, the item behind it finds that, and the stream fails by name. So it does
// if a call uses a token that was moved away, reads or puts to a slot that does not exist, or uses one that was found in
// another half.
//
// # Failure
//
// A kernel keeps to the lengths of slices that it is given: nothing checks that. But each put and get checks its slot. A
// put that does not fit, or that goes to a slot which does not exist, stores nothing, and records a fault. (A get of a
// value returns zeros then, and another get leaves `x` as it was.) So does a put to a target that an earlier kernel has
// completed. Then `Opened::complete` makes the stream fail by name, and the targets
// with it.
//
// Kernels run even on a stream that has failed. They complete no target then, and store nothing to a target that has not
// posted. The waits and the barriers of a kernel that owns a half return at once then. So the kernel must end whatever its
// slots contain, and whatever other blocks have written. A kernel of many epochs asks whether it has `failed`, and closes its
// halves then, so that it ends soon.

#ifndef TIDEGATE_CUH
#define TIDEGATE_CUH

// The words of the language. (Our own sources are compiled without a toolkit, and include `machine.cuh` first.)
#if defined(__HIP__) && !defined(__HIPCC_RTC__) && !defined(TIDEGATE_MACHINE_CUH)
#include <hip/hip_runtime.h>
#endif

#if defined(__CUDACC__) || defined(__HIP__)
#define TIDEGATE_DEVICE __device__ __forceinline__
#else
#define TIDEGATE_DEVICE inline
#endif

namespace tidegate {

// One inbound slot of a window. If `flip` is 0, its buffer is at `base`. Otherwise the first epoch's is at `base`, the
// second epoch's at `base + flip`, and so on in turn. The operand of the epoch's wait, which counts epochs in quanta of
// 2^20, tells which one is current.
struct Slot {
  unsigned char *base;
  unsigned long long len;   // elements
  unsigned long long flip;  // bytes
  const unsigned long long *operand;
};

static_assert(sizeof(struct Slot) == 32, "no padding");

// The `slot.len` elements that the last epoch has brought. Peers have written them, so read them with ordinary loads,
// never through the non-coherent path (`__ldg`, `const __restrict__`).
template <class T> TIDEGATE_DEVICE const T *current(const Slot &slot) {
  bool odd = slot.flip && (((*slot.operand >> 20) - 1) & 1);
  return (const T *)(slot.base + (odd ? slot.flip : 0));
}

}  // namespace tidegate

#if defined(__CUDACC__) || defined(__HIP__) || defined(TIDEGATE_EMULATED)
#include "tidegate_put.cuh"
#endif

#endif  // TIDEGATE_CUH
