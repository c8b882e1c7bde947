// What the primitives of `kernels/machine/host.hpp` call of this machine. Threads give way only where they cannot go on, and
// other processes use the same memory meanwhile.
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

#pragma GCC visibility push(hidden)
namespace machine {

// ---- The primitives' ----

// Some thread did something in this step.
extern bool moved;

// Where this thread gives way, and has nothing to do but to look again.
void yield();
// It has looked at a word. If it has found the same there before, it lets others go on.
void may_look_again(u64 word, u64 value);
void block_barrier();
void warp_barrier();
// Until what stands before this grid is over.
void wait_for_previous();
// The grid behind may begin when all blocks have come here, or to their end.
void let_next_come();
// Ends it all with a message.
[[noreturn]] void fail(const char *what, u64 at);
// Of the clock. Others go on before.
u64 nanoseconds();

inline void fence() { __atomic_thread_fence(__ATOMIC_ACQ_REL); }
inline void wrote() { moved = true; }
inline void added(u64) { moved = true; }
inline void check(u64 at, u64 bytes, bool) {
    if (at % bytes) fail("an access that is not aligned", at);
}

// The rest is about what an emulation with a plan of its own asks, and proves.
inline void point() {}
inline void linger() {}
inline void awaits(u64) {}
inline void found(u64, u64) {}
inline void promises(u64) {}
inline void keeps(u64, u64) {}
inline void looked() {}
inline bool is_fenced() { return true; }

// ---- The kernels' ----

// Bytes that all arguments of a kernel may have, each at a multiple of 16, and how many.
const u32 ROOM = 1024, MOST_ARGUMENTS = 32;

struct Kernel {
    const char *name;
    // One thread of it.
    void (*run)(void *const *arguments);
    const u32 *sizes;  // of its arguments
    u32 arguments;
};
extern const Kernel kernels[];
extern const u32 kernel_count;

}  // namespace machine
#pragma GCC visibility pop
