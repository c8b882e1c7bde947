// For device code of programs that use tidegate: the types that a kernel gets for the parameters of `kernel!`. Include
// this file, or copy it: it needs no other header. The docs of `tidegate::kernel::Parameter` promise the layout of
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
// | `by: f64`, `Plain<T>`          | `double by`, a struct of the same layout                   |
//
// A kernel is `extern "C" __global__`. `nvcc -ptx -arch=compute_80 kernels.cu` makes the PTX that `Module::load` takes.
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
// # Failure
//
// No error is reported. A kernel keeps to the lengths that it is given.

#ifndef TIDEGATE_CUH
#define TIDEGATE_CUH

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

#endif  // TIDEGATE_CUH
