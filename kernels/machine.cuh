// The machine that carries out a source. Everything that depends on a compiler or on a vendor is in `machine/`. Each
// file there has the same functions, for one kind of machine. `machine/ptx.cuh` says what they do.

#ifndef TIDEGATE_MACHINE_CUH
#define TIDEGATE_MACHINE_CUH

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long i64;

// A whole line of 16 bytes.
struct alignas(16) V16 {
    u32 x, y, z, w;
};

#if defined(TIDEGATE_EMULATED)
#include "machine/host.hpp"
#elif defined(__AMDGCN__) || defined(__HIP__)
#include "machine/amd.cuh"
#else
#include "machine/ptx.cuh"
#endif

#endif
