// What the primitives of `kernels/machine/host.hpp` call of the emulated machine.
//
// Threads are fibers of one thread of the host, and change places in primitives only (`machine.cpp`). So all that a run
// does follows from its seed, and memory is sequentially consistent: what is proved here is the protocol in all
// interleavings of primitives, not the orders that the primitives ask for. Those are looked for in what the vendors'
// compilers write (`crates/cuda/src/ptx`, `xtask/src/isa`).
#pragma once

typedef unsigned int u32;
typedef unsigned long long u64;

struct Index {
    u32 x, y, z;
};
extern Index threadIdx, blockIdx;

namespace machine {
// How much is shared, at least.
extern const u64 least_shared;
// Where another thread may go on, if the run's dice say so.
void point();
// As `point`, for longer.
void linger();
// Where another thread goes on: this one cannot, or only looks.
void yield();
// Likewise, behind a look at a word: whoever looks may look again.
inline void may_look_again(u64, u64) { yield(); }
void block_barrier();
void warp_barrier();
// Until the grid before, of the same stream, is over.
void wait_for_previous();
// The grid behind may begin when all blocks have come here.
void let_next_come();
// A look at what a peer adds to, and what it has found.
void awaits(u64 word);
void found(u64 word, u64 value);
// The team of this thread waits for nobody any more, and adds 1 to a word when it has put its share; it has done so.
void promises(u64 word);
void keeps(u64 word, u64 value);
// A look at how a stream stands.
void looked();
// Ends the run with a message.
void fail(const char *what, u64 at);
// A fence; that something was written; whether nothing was since the fence.
void fence();
void wrote();
bool is_fenced();
// The clock, which only the stamped kernel reads.
u64 nanoseconds();
// Tells the test of an add to a word.
void added(u64 word);
// Whether plain accesses may go there.
void check(u64 at, u64 bytes, bool writes);
}  // namespace machine
