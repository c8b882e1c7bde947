// The language of the kernels, for a processor: the primitives of the batch kernel, and what the others use besides.
#pragma once

#include "hooks.hpp"
#define TIDEGATE_MACHINE
#include "../../cuda/tests/emulation/shim.hpp"

extern Index blockDim, gridDim;

static inline void __syncthreads() { machine::block_barrier(); }

// Their sums and products are never fused: the machine is compiled without that.
static inline double __dadd_rn(double a, double b) { return a + b; }
static inline double __dmul_rn(double a, double b) { return a * b; }
static inline int __popc(u32 bits) { return __builtin_popcount(bits); }

// No order, as there.
static inline u64 atomicAdd(u64 *at, u64 value) { return __atomic_fetch_add(atomic<u64>((u64)at), value, __ATOMIC_RELAXED); }

static inline u64 global_timer() { return machine::nanoseconds(); }

#define __isGlobal(pointer) true
#define __builtin_assume(fact) (void)(fact)
