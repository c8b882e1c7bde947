// The kernels of Faces, compiled for the CPU.
//
// # Model
//
// The device's source is included as it is, over `kernels/machine/host.hpp`. A launch runs block after block. The threads of
// a block are coroutines on one thread: each runs to the barrier or to its end, and they pass the barrier when all have come
// to it. So barriers work, and a block is deterministic. Launches of different threads run at the same time.
//
// # Failures
//
// A launch returns 1 if threads of one block wait at a barrier that others of it never come to: a device may hang there.

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <ucontext.h>

#include <functional>
#include <memory>
#include <vector>

#include "hooks.hpp"

struct Index {
  unsigned int x, y, z;
};
static thread_local Index threadIdx, blockIdx, blockDim = {1, 1, 1}, gridDim = {1, 1, 1};

#include "faces.cu"

// The persistent kernel waits for a peer, and is compiled with the others. No launcher below starts it: its waits need a rank
// that runs meanwhile, which only the fake driver has.
namespace machine {
void yield() { abort(); }
void may_look_again(u64, u64) { abort(); }
}  // namespace machine

namespace {

constexpr size_t STACK = 32 * 1024;

// One thread of a block.
struct Coroutine {
  ucontext_t context;
  std::unique_ptr<char[]> stack;
  bool ended;
};

struct Scheduler {
  std::vector<Coroutine> threads;
  ucontext_t context;
  const std::function<void()> *kernel;
};

thread_local Scheduler scheduler;

void run_thread() {
  (*scheduler.kernel)();
  scheduler.threads[threadIdx.x].ended = true;
}

// Runs a block. False if some threads end while others wait at a barrier.
bool run_block() {
  auto &threads = scheduler.threads;
  const unsigned int count = blockDim.x;
  for (unsigned int t = threads.size(); t < count; t++) threads.push_back({{}, std::make_unique<char[]>(STACK), false});
  for (unsigned int t = 0; t < count; t++) {
    Coroutine &thread = threads[t];
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.get();
    thread.context.uc_stack.ss_size = STACK;
    thread.context.uc_link = &scheduler.context;
    thread.ended = false;
    makecontext(&thread.context, run_thread, 0);
  }
  for (;;) {
    unsigned int ended = 0;
    for (unsigned int t = 0; t < count; t++) {
      threadIdx.x = t;
      swapcontext(&scheduler.context, &threads[t].context);
      ended += threads[t].ended;
    }
    if (ended == count) return true;
    if (ended != 0) return false;
  }
}

int launch(unsigned int blocks, unsigned int threads, const std::function<void()> &kernel) {
  scheduler.kernel = &kernel;
  gridDim.x = blocks;
  blockDim.x = threads;
  for (unsigned int block = 0; block < blocks; block++) {
    blockIdx.x = block;
    if (!run_block()) return 1;
  }
  return 0;
}

}  // namespace

void machine::block_barrier() { swapcontext(&scheduler.threads[threadIdx.x].context, &scheduler.context); }

// Nobody looks at it: threads run to their next barrier.
bool machine::moved;

void machine::fail(const char *what, u64 at) {
    fprintf(stderr, "%s: %llu\n", what, at);
    abort();
}

// A launch begins when the one before is over.
void machine::wait_for_previous() {}
void machine::let_next_come() {}

typedef unsigned long long Len;
typedef unsigned int Count;

extern "C" {

int geometry_fits(Count n, const Count *m) { return faces_geometry_fits(n, m); }

void geometry(Count n, const Count *m, Count neighbours, const Len *offset, FacesGeometry *to) {
  *to = faces_geometry(n, m, neighbours, offset);
}

void grids(const FacesGeometry *g, Count sms, FacesGrids *to) { *to = faces_grids(g, sms); }

int launch_init(Count blocks, Count threads, const FacesGeometry *g, double *u, Len u_len) {
  return launch(blocks, threads, [=] { faces_init(*g, u, u_len); });
}

int launch_init_part(Count blocks, Count threads, const FacesGeometry *g, Count mode, double *u, Len u_len) {
  return launch(blocks, threads, [=] { faces_init_part(*g, mode, u, u_len); });
}

int launch_copy_part(Count blocks, Count threads, const FacesGeometry *g, Count mode, const double *u, Len u_len, double *copy, Len copy_len) {
  return launch(blocks, threads, [=] { faces_copy_part(*g, mode, u, u_len, copy, copy_len); });
}

int launch_pack(Count blocks, Count threads, const FacesGeometry *g, const double *u, Len u_len, double *out, Len out_len) {
  return launch(blocks, threads, [=] { faces_pack(*g, u, u_len, out, out_len); });
}

int launch_unpack(Count blocks, Count threads, const FacesGeometry *g, const Slot *slots, Len slots_len, double *u, Len u_len) {
  return launch(blocks, threads, [=] { faces_unpack(*g, slots, slots_len, u, u_len); });
}

int launch_unpack_packed(Count blocks, Count threads, const FacesGeometry *g, const double *received, Len received_len, double *u, Len u_len) {
  return launch(blocks, threads, [=] { faces_unpack_packed(*g, received, received_len, u, u_len); });
}

int launch_compute(Count blocks, Count threads, const FacesGeometry *g, double *u, Len u_len) {
  return launch(blocks, threads, [=] { faces_compute(*g, u, u_len); });
}

}  // extern "C"
