// The machine of NVIDIA GPUs, in inline PTX. Each access that another GPU, a CPU or a NIC can see spells out its order
// and its scope.

#define WARP 32

#define DEV __device__ __forceinline__
// For functions that are too large to be inlined everywhere: the call costs less than the registers would.
#define APART __device__ __noinline__

// Whether the next grid of the stream can begin while this one runs. Then some blocks say when it may.
#if __CUDA_ARCH__ >= 900
#define BEGINS_EARLY 1
#else
#define BEGINS_EARLY 0
#endif

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
// Loads two neighbouring words. Each load is one access; the pair need not be.
DEV void load_both(u64 at, u64 &first, u64 &second) {
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(at) : "memory");
}
DEV void store_both(u64 at, u64 first, u64 second) {
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" ::"l"(at), "l"(first), "l"(second) : "memory");
}
DEV void add_release(u64 at, u64 value) {
    asm volatile("red.release.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// The fence of `add_release`, when the fence and the add are made apart.
DEV void fence() {
    asm volatile("fence.acq_rel.sys;" ::: "memory");
}
DEV void add_relaxed(u64 at, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// Adds without order: the add says nothing about memory. (The remark marks it for readers of the PTX.)
DEV void add_unordered(u64 at, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1; // promises" ::"l"(at), "l"(value) : "memory");
}
DEV void or_release(u64 at, u64 value) {
    asm volatile("red.release.sys.global.or.b64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
// The next two functions count in memory of this device, for a word of the host. Only one GPU uses the count. They
// release and acquire within that GPU. So the thread that counts last has seen everything before all counts, and its
// store, at system scope, releases all of that.
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
// Stores to a register of another device. Each such store counts, so it is made exactly once. It has no order of its
// own: a fence before it gives it one.
DEV void store_register(u64 at, u64 value) {
    asm volatile("st.mmio.relaxed.sys.global.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV u32 or_fetch32(u32 *at, u32 value) {
    u32 old;
    asm volatile("atom.acq_rel.sys.global.or.b32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(value) : "memory");
    return old;
}
// Counts up to `last`, and then begins again at 0. Returns the old count.
DEV u32 count_to(u64 at, u32 last) {
    u32 old;
    asm volatile("atom.relaxed.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(last) : "memory");
    return old;
}
// The same, but each count also releases and acquires, within this GPU.
DEV u32 arrive(u64 at, u32 last) {
    u32 old;
    asm volatile("atom.acq_rel.gpu.global.inc.u32 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(last) : "memory");
    return old;
}
// Subtracts 1 from a number that the block shares. Returns the old number.
DEV u32 count_down(u32 *at) {
    u32 old;
    asm volatile("atom.relaxed.cta.shared::cta.add.u32 %0, [%1], -1;" : "=r"(old) : "r"((u32)__cvta_generic_to_shared(at)) : "memory");
    return old;
}
// An address of which the compiler does not know that all threads have the same one.
DEV u64 of_thread(u64 at) { return at; }
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
// (32-bit floats have no such function, because `red.add.f32` treats subnormal numbers as 0, unlike everything else.)
DEV void red_f64(u64 at, double value) {
    asm volatile("red.relaxed.sys.global.add.f64 [%0], %1;" ::"l"(at), "d"(value) : "memory");
}
DEV void red_u64(u64 at, u64 value) {
    asm volatile("red.relaxed.sys.global.add.u64 [%0], %1;" ::"l"(at), "l"(value) : "memory");
}
DEV void red_u32(u64 at, u32 value) {
    asm volatile("red.relaxed.sys.global.add.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
// Floats of 16 bits, by their bits. Results are rounded to the nearest, of two equally near ones to the even one.
DEV float float_of_f16(u16 bits) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
}
DEV u16 f16_of(float value) {
    u16 bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
DEV u16 bf16_of(float value) {
    u16 bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(value));
    return bits;
}
// Two sums in a word. Subnormal numbers are kept.
DEV u32 add_f16x2(u32 a, u32 b) {
    u32 sums;
    asm("add.rn.f16x2 %0, %1, %2;" : "=r"(sums) : "r"(a), "r"(b));
    return sums;
}
// (Compute capability 8.0 has no plain addition.)
DEV u32 add_bf16x2(u32 a, u32 b) {
    u32 sums;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(sums) : "r"(a), "r"(0x3f803f80), "r"(b));
    return sums;
}
DEV void pause(u32 nanoseconds) {
    asm volatile("nanosleep.u32 %0;" ::"r"(nanoseconds));
}
// `let_next_come` allows the next kernel of the stream to begin, and to wait until this one is over.
// `wait_for_previous` waits until the kernel before is over. (Both do nothing in launches that do not ask for it.)
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
// Loads data of any type, from any memory. (NVIDIA's compilers draw no conclusions from types.)
template <typename T>
DEV T load_data(u64 at) { return *(const T *)at; }
// Loads data for a move. It bypasses L1, which does not see what another GPU writes.
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
// Nanoseconds since some moment.
DEV u64 global_timer() {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}
// Tells the compiler that an address is in global memory.
DEV void assume_global(const void *at) { __builtin_assume(__isGlobal(at)); }
