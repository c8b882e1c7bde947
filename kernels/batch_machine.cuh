// A part of batch.cu: the machine, in inline PTX. An order and a scope are spelled out wherever another GPU, a CPU or a
// NIC looks.
//
// An emulation brings primitives of its own instead.

struct alignas(16) V16 {
    u32 x, y, z, w;
};

#define DEV __device__ __forceinline__
// What is too large to stand wherever it is used: a call costs less than the registers.
#define APART __device__ __noinline__

// Whether the next grid can take its place while this one is at work: then some say when it may.
#if defined(TIDEGATE_EMULATED) || __CUDA_ARCH__ >= 900
#define BEGINS_EARLY 1
#else
#define BEGINS_EARLY 0
#endif

#ifndef TIDEGATE_EMULATED
DEV u64 load_acquire(u64 at) {
    u64 value;
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
DEV u64 load_relaxed(u64 at) {
    u64 value;
    asm volatile("ld.relaxed.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
    return value;
}
DEV u32 load_relaxed32(const u32 *at) {
    u32 value;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
    return value;
}
DEV void store_relaxed(u64 at, u64 value) {
    asm volatile("st.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV void store_release32(u32 *at, u32 value) {
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
// Two words beside each other at a time: each is one access, the two together need not be.
DEV void load_both(u64 at, u64 &first, u64 &second) {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(at) : "memory");
}
DEV void store_both(u64 at, u64 first, u64 second) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(first), "l"(second) : "memory");
}
DEV void add_release(u64 at, u64 value) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// What `add_release` is, in two.
DEV void fence() {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
DEV void add_relaxed(u64 at, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// With no order: it says nothing of memory. (Those who read the PTX know it by the remark.)
DEV void add_unordered(u64 at, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1; // promises" ::"l"(at), "l"(value) : "memory");
}
DEV void or_release(u64 at, u64 value) {
    asm volatile("red.release.sys.global.or.b64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// The two below count in memory of this device, for a word of the host: one GPU, and no other, uses the count. They
// release and acquire within it: who stores what was counted last has seen what all that counted before had done, and
// his store, at system scope, releases all of it.
DEV u64 add_fetch(u64 at, u64 value) {
    u64 old;
    asm volatile("atom.acq_rel.gpu.global.add.u64 %0, [%1], %2;" : "=l"(old) : "l"(at), "l"(value) : "memory");
    return old;
}
DEV u64 or_fetch(u64 at, u64 value) {
    u64 old;
    asm volatile("atom.acq_rel.gpu.global.or.b64 %0, [%1], %2;" : "=l"(old) : "l"(at), "l"(value) : "memory");
    return old;
}
DEV void store_release(u64 at, u64 value) {
    asm volatile("st.release.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// To a register of another device, where each store counts: it is made once, as it stands here. It has no order of its
// own but what a fence gives it.
DEV void store_register(u64 at, u64 value) {
    asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV u32 or_fetch32(u32 *at, u32 value) {
    u32 old;
    asm volatile("atom.acq_rel.sys.global.or.b32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");
    return old;
}
// Counts to `last` and begins again.
DEV u32 count_to(u64 at, u32 last) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(last) : "memory");
    return old;
}
// Of what the block shares: one less; what it was.
DEV u32 count_down(u32 *at) {
    u32 old;
    asm volatile("atom.relaxed.cta.shared::cta.add.u32 %0, [%1], -1;" : "=r"(old) : "r"((u32)__cvta_generic_to_shared(at)) : "memory");
    return old;
}
DEV u32 swap32(u64 at, u32 compare, u32 value) {
    u32 old;
    asm volatile("atom.relaxed.sys.global.cas.b32 %0, [%1], %2, %3;" : "=r"(old) : "l"(at), "r"(compare), "r"(value) : "memory");
    return old;
}
DEV u64 swap64(u64 at, u64 compare, u64 value) {
    u64 old;
    asm volatile("atom.relaxed.sys.global.cas.b64 %0, [%1], %2, %3;" : "=l"(old) : "l"(at), "l"(compare), "l"(value) : "memory");
    return old;
}
// (There is no such for floats of 32 bits: `red.add.f32` takes subnormal numbers for 0, and nothing else does.)
DEV void red_f64(u64 at, double value) {
    asm volatile("red.relaxed.sys.global.add.f64 [%0], %1;" ::"l"(at), "d"(value) : "memory");
}
DEV void red_u64(u64 at, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV void red_u32(u64 at, u32 value) {
    asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
DEV void pause(u32 nanoseconds) {
    asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds));
}
// What comes next on the stream may take its place, and wait there until this one is over; and this one goes on when
// what stands before it is over. (Only a launch that asks for it has a next one so early; to others both are nothing.)
DEV void let_next_come() {
#if BEGINS_EARLY
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
DEV void wait_for_previous() {
#if BEGINS_EARLY
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
// A team's barrier.
DEV void block_barrier() {
    asm volatile("bar.sync 0;" ::: "memory");
}
DEV void warp_barrier() {
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
}
// Moves data; never cached in L1, where what another GPU writes is not seen.
DEV void fetch(V16 &value, u64 at) {
    asm volatile("ld.global.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(at) : "memory");
}
DEV void fetch(u64 &value, u64 at) {
    asm volatile("ld.global.L1::no_allocate.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
}
DEV void fetch(u32 &value, u64 at) {
    asm volatile("ld.global.L1::no_allocate.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
}
DEV void fetch(u16 &value, u64 at) {
    asm volatile("ld.global.L1::no_allocate.u16 %0, [%1];" : "=h"(value) : "l"(at) : "memory");
}
DEV void fetch(u8 &value, u64 at) {
    u16 wide;
    asm volatile("ld.global.L1::no_allocate.u8 %0, [%1];" : "=h"(wide) : "l"(at) : "memory");
    value = (u8)wide;
}
DEV void put(u64 at, V16 value) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w) : "memory");
}
DEV void put(u64 at, u64 value) {
    asm volatile("st.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV void put(u64 at, u32 value) {
    asm volatile("st.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
DEV void put(u64 at, u16 value) {
    asm volatile("st.global.u16 [%0], %1;" ::"l"(at), "h"(value) : "memory");
}
DEV void put(u64 at, u8 value) {
    asm volatile("st.global.u8 [%0], %1;" ::"l"(at), "h"((u16)value) : "memory");
}
#endif
