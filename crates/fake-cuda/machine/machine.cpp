// A machine that carries out grids of kernels, for a driver that has no GPU. Built by `cargo xtask`, with `kernels.cpp`, as a library.
//
// Model: a thread is a fiber, and all fibers take turns on the driver's one thread. A step of a grid runs its threads until all that are left wait:
// at a barrier, for the grid before, or for a word, at which they have just looked in vain and look again in the next step. A fiber whose thread
// has ended goes on with one that has not begun; so threads that never wait need no change of stacks. A block begins when no thread of those
// before can go on: blocks that wait keep none from coming. Only where the grid before is not over are no more begun than are soon held: they
// could do nothing yet.
//
// Other threads of the host and other processes use the same memory at the same time. So what the primitives do (`kernels/machine/host.hpp`) is atomic, with the order
// that the device's has; what lies in between are ordinary accesses. Of what no other GPU looks at this thread is the only user.
//
// What a block shares are the variables that the compiler takes for a thread's own. Of those there is one piece, whose contents are exchanged when a thread
// of another block goes on; what a block finds there at first is what some block has left, as on a GPU.
//
// A barrier is strict: to leave while others wait at one is an error, although a GPU may forgive it.
//
// Failure: a thread that breaks a rule (a barrier that some have left, a stack that is used up, an access that is not aligned) and a lack of memory end
// everything with a message, as an error of a GPU ends its context. A thread that goes round in a loop without a primitive that gives way never comes
// back, and one that writes where nothing is mapped ends the process.

#include "machine.hpp"

#include "../../gpu/tests/emulation/shared.hpp"

#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <ucontext.h>

#include <new>

#include "cuda.hpp"

Index threadIdx, blockIdx, blockDim, gridDim;

namespace machine {

#define STACK (64ull << 10)
// From one stack to the next. They do not lie at the same places of the caches then, and the end of one shares a page with the beginning of another.
#define STRIDE (STACK + 320)
#define CANARY 0x7469646567617465ull
// Below this a thread that waits has come too close to the end of its stack.
#define MARGIN 2048
// What the variables that a block shares may take.
#define SHARED (96ull << 10)
// How many blocks and how many stacks are asked for at a time.
#define BLOCKS 64
#define STACKS 256
// So many threads may wait for the grid before until no more blocks are begun.
#define EARLY 1024
#define MOST_THREADS 1024u

struct Block;

struct Fiber {
    void *at[5];  // the compiler's own jumps, which save no more than must be
    u64 *stack;
    Fiber *next;
    Block *block;
    Index index;
    u32 number;       // in its block
    bool fresh;       // it has never run
    bool idle;        // all that its thread has done lately is to look
    u64 word, value;  // where it has looked last, and what was there
};

struct Queue {
    Fiber *first, *last;

    void push(Fiber *fiber) {
        fiber->next = nullptr;
        (first ? last->next : first) = fiber;
        last = fiber;
    }

    void append(Queue &other) {
        if (!other.first) return;
        (first ? last->next : first) = other.first;
        last = other.last;
        other.first = nullptr;
    }

    Fiber *pop() {
        Fiber *fiber = first;
        if (fiber) first = fiber->next;
        return fiber;
    }
};

// A barrier of a block or of a warp.
struct Gate {
    Queue queue;
    u32 waiting, left;
};

// A block that is being carried out.
struct Block {
    Index index, thread;  // `thread`: the next that begins
    u32 begun;
    bool lets;
    bool has_kept;  // what it shares lies in `kept`, unless it is in its place
    Gate gate, warps[MOST_THREADS / WARP];
    u8 *kept;
    Block *before, *after;  // of those of its grid
};

}  // namespace machine

struct tidegate_grid {
    const machine::Kernel *kernel;
    Index block_dim, grid_dim;
    u32 threads, held_count;
    u64 blocks, begun, over, lets;
    bool previous_over;
    Index block;              // the next that begins
    machine::Block *opening;  // some of its threads have not begun
    machine::Block *open;
    // What can go on; what looks again in the next step; what waits for the grid before.
    machine::Queue ready, polling, held;
    void *arguments[machine::MOST_ARGUMENTS];
    alignas(16) u8 room[machine::ROOM];
};

namespace machine {

bool moved;

static jmp_buf home;
static tidegate_grid *running;
static Fiber *current;
static Fiber *idle;           // that have no thread
static Block *unused;
static __thread u64 touched;
static u8 *shared;  // where the variables are that blocks share
static u64 shared_bytes;
static Block *loaded;  // whose contents these have
static char message[256];

void fail(const char *what, u64 at) {
    const Index &block = blockIdx, &thread = threadIdx;
    snprintf(message, sizeof message, "%s: %#llx (%s, block %u,%u,%u, thread %u,%u,%u)", what, at, running->kernel->name, block.x, block.y, block.z, thread.x,
             thread.y, thread.z);
    _longjmp(home, 1);
}

// ---- What there is a store of ----

static void *pages(u64 bytes) {
    void *at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED) return nullptr;
    // Of most stacks one page is ever used.
    madvise(at, bytes, MADV_NOHUGEPAGE);
    return at;
}

static Fiber *take_fiber() {
    if (!idle) {
        u8 *stacks = (u8 *)pages(STACKS * STRIDE);
        Fiber *fibers = stacks ? new (std::nothrow) Fiber[STACKS]() : nullptr;
        if (!fibers) fail("no memory for stacks", STACKS * STRIDE);
        for (u64 i = 0; i < STACKS; i++) {
            Fiber *fiber = &fibers[i];
            fiber->stack = (u64 *)(stacks + i * STRIDE);
            *fiber->stack = CANARY;
            fiber->fresh = true;
            fiber->next = idle;
            idle = fiber;
        }
    }
    Fiber *fiber = idle;
    idle = fiber->next;
    return fiber;
}

static void give_back(Fiber *fiber) {
    fiber->next = idle;
    idle = fiber;
}

static Block *take_block() {
    if (!unused) {
        u8 *areas = (u8 *)pages(BLOCKS * SHARED);
        Block *blocks = areas ? new (std::nothrow) Block[BLOCKS]() : nullptr;
        if (!blocks) fail("no memory for blocks", BLOCKS * SHARED);
        for (u64 i = 0; i < BLOCKS; i++) {
            blocks[i].kept = areas + i * SHARED;
            blocks[i].after = unused;
            unused = &blocks[i];
        }
    }
    Block *block = unused;
    unused = block->after;
    return block;
}

static void give_back(Block *block) {
    if (loaded == block) loaded = nullptr;
    block->after = unused;
    unused = block;
}

static void load(Block *block) {
    if (loaded == block) return;
    if (loaded) {
        memcpy(loaded->kept, shared, shared_bytes);
        loaded->has_kept = true;
    }
    if (block->has_kept) memcpy(shared, block->kept, shared_bytes);
    loaded = block;
}

// ---- Blocks and threads ----

static void advance(Index &at, const Index &most) {
    if (++at.x < most.x) return;
    at.x = 0;
    if (++at.y < most.y) return;
    at.y = 0;
    at.z++;
}

static bool may_open(const tidegate_grid *grid) { return grid->begun < grid->blocks && (grid->previous_over || grid->held_count < EARLY); }

static Block *open(tidegate_grid *grid) {
    Block *block = take_block();
    const u32 warps = (grid->threads + WARP - 1) / WARP;
    block->index = grid->block;
    advance(grid->block, grid->grid_dim);
    block->thread = Index();
    block->begun = 0;
    block->lets = block->has_kept = false;
    block->gate = Gate();
    for (u32 i = 0; i < warps; i++) block->warps[i] = Gate();
    block->before = nullptr;
    block->after = grid->open;
    if (grid->open) grid->open->before = block;
    grid->open = block;
    grid->begun++;
    return block;
}

static void close(tidegate_grid *grid, Block *block) {
    (block->before ? block->before->after : grid->open) = block->after;
    if (block->after) block->after->before = block->before;
    grid->over++;
    if (!block->lets) grid->lets++;
    give_back(block);
}

// Gives a fiber the next thread that has not begun.
static void take(tidegate_grid *grid, Fiber *me) {
    if (!grid->opening) grid->opening = open(grid);
    Block *block = grid->opening;
    me->block = block;
    me->number = block->begun++;
    me->index = block->thread;
    me->idle = false;
    me->word = 0;
    moved = true;
    if (block->begun == grid->threads) grid->opening = nullptr;
    else advance(block->thread, grid->block_dim);
}

static u32 warp_size(const tidegate_grid *grid, u32 warp) {
    const u32 rest = grid->threads - warp * WARP;
    return rest < WARP ? rest : WARP;
}

static void finish(tidegate_grid *grid, Fiber *me) {
    Block *block = me->block;
    Gate &all = block->gate, &warp = block->warps[me->number / WARP];
    all.left++;
    warp.left++;
    moved = true;
    if (all.waiting && all.waiting + all.left == grid->threads) fail("a thread has left, and others wait at a barrier", all.left);
    const u32 size = warp_size(grid, me->number / WARP);
    if (warp.waiting && warp.waiting + warp.left == size) fail("a thread has left, and others wait at a barrier of their warp", warp.left);
    if (all.left == grid->threads) close(grid, block);
}

// ---- Turns ----

static void enter(Fiber *me) {
    current = me;
    threadIdx = me->index;
    blockIdx = me->block->index;
    load(me->block);
}

// What a fiber does all its life: one thread after the other.
static void live();

[[noreturn, gnu::noinline]] static void resume(Fiber *fiber) {
    enter(fiber);
    if (fiber->fresh) {
        static ucontext_t first;
        fiber->fresh = false;
        getcontext(&first);
        first.uc_stack.ss_sp = fiber->stack + 2;
        first.uc_stack.ss_size = STACK - 2 * sizeof(u64);
        first.uc_link = nullptr;
        makecontext(&first, live, 0);
        setcontext(&first);
        abort();
    }
    __builtin_longjmp(fiber->at, 1);
}

// Goes on with another thread, or ends the step.
[[noreturn, gnu::noinline]] static void go_on() {
    tidegate_grid *grid = running;
    if (Fiber *fiber = grid->ready.pop()) resume(fiber);
    if (grid->opening || may_open(grid)) {
        Fiber *fiber = take_fiber();
        take(grid, fiber);
        resume(fiber);
    }
    _longjmp(home, 1);
}

// Until another thread goes on with this one, which it must know of.
[[gnu::noinline]] static void leave() {
    if ((u64)__builtin_frame_address(0) < (u64)current->stack + MARGIN) fail("a stack is used up", STACK);
    if (!__builtin_setjmp(current->at)) go_on();
}

static void live() {
    Fiber *me = current;
    for (;;) {
        for (;;) {
            running->kernel->run(running->arguments);
            tidegate_grid *grid = running;
            finish(grid, me);
            // Those of a block begin before others go on, so that they come to its barrier; those that can go on come before the next block, for they
            // leave room.
            if (!grid->opening && (grid->ready.first || !may_open(grid))) break;
            take(grid, me);
            enter(me);
        }
        if (*me->stack != CANARY) fail("a stack is used up", STACK);
        give_back(me);
        leave();
    }
}

void yield() {
    current->idle = true;
    running->polling.push(current);
    leave();
}

void may_look_again(u64 word, u64 value) {
    Fiber *me = current;
    if (me->word == word && me->value == value) return yield();
    me->word = word;
    me->value = value;
    me->idle = false;
    moved = true;
}

u64 nanoseconds() {
    yield();
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void wait_at(Gate &gate, u32 all) {
    Fiber *me = current;
    if (gate.waiting + 1 + gate.left < all) {
        gate.waiting++;
        gate.queue.push(me);
        return leave();
    }
    if (gate.left) fail("a thread has left, and others wait at a barrier", gate.left);
    // Threads that wait for a word together come to barriers again and again.
    if (!me->idle) moved = true;
    running->ready.append(gate.queue);
    gate.waiting = 0;
}

void block_barrier() { wait_at(current->block->gate, running->threads); }

void warp_barrier() {
    const u32 warp = current->number / WARP;
    wait_at(current->block->warps[warp], warp_size(running, warp));
}

void wait_for_previous() {
    if (running->previous_over) return;
    running->held.push(current);
    running->held_count++;
    leave();
}

void let_next_come() {
    Block *block = current->block;
    if (block->lets) return;
    block->lets = true;
    running->lets++;
    moved = true;
}

// Gives up what the threads in a queue were about.
static void drop(Queue &queue) {
    while (Fiber *fiber = queue.pop()) {
        fiber->fresh = true;
        give_back(fiber);
    }
}

}  // namespace machine

using namespace machine;

const void *tidegate_kernel(const char *name) {
    for (u32 i = 0; i < kernel_count; i++)
        if (!strcmp(kernels[i].name, name)) return &kernels[i];
    return nullptr;
}

unsigned tidegate_sizes(const void *what, unsigned *sizes, unsigned room) {
    const Kernel *kernel = (const Kernel *)what;
    for (u32 i = 0; i < kernel->arguments && i < room; i++) sizes[i] = kernel->sizes[i];
    return kernel->arguments;
}

tidegate_grid *tidegate_begin(const void *what, void *const *arguments, const unsigned *blocks, const unsigned *threads, unsigned) {
    if (!shared) {
        // They have an address once one has been touched.
        touched++;
        const Shared found = find_shared(&home);
        shared = found.at, shared_bytes = found.bytes;
        if (!shared || shared_bytes > SHARED) return nullptr;
    }
    const u64 each = (u64)threads[0] * threads[1] * threads[2];
    if (!each || each > MOST_THREADS) {
        if (!message[0]) snprintf(message, sizeof message, "no GPU takes blocks of %llu threads", each);
        return nullptr;
    }
    tidegate_grid *grid = new (std::nothrow) tidegate_grid;
    if (!grid) return nullptr;
    // All but the room for arguments.
    memset((void *)grid, 0, offsetof(tidegate_grid, room));
    grid->kernel = (const Kernel *)what;
    grid->grid_dim = {blocks[0], blocks[1], blocks[2]};
    grid->block_dim = {threads[0], threads[1], threads[2]};
    grid->blocks = (u64)blocks[0] * blocks[1] * blocks[2];
    grid->threads = (u32)each;
    u32 used = 0;
    for (u32 i = 0; i < grid->kernel->arguments; i++) {
        grid->arguments[i] = grid->room + used;
        memcpy(grid->room + used, arguments[i], grid->kernel->sizes[i]);
        used += (grid->kernel->sizes[i] + 15) / 16 * 16;
    }
    return grid;
}

unsigned tidegate_step(tidegate_grid *grid, int previous_over) {
    if (message[0]) return 0;
    running = grid;
    moved = false;
    if (previous_over && !grid->previous_over) {
        grid->previous_over = true;
        if (grid->held.first) moved = true;
        grid->ready.append(grid->held);
        grid->held_count = 0;
    }
    grid->ready.append(grid->polling);
    blockDim = grid->block_dim;
    gridDim = grid->grid_dim;
    if (!_setjmp(home)) go_on();
    if (message[0]) return 0;
    return (grid->over == grid->blocks ? TIDEGATE_OVER : 0) | (grid->lets == grid->blocks ? TIDEGATE_LETS : 0) | (moved ? TIDEGATE_MOVED : 0);
}

void tidegate_end(tidegate_grid *grid) {
    drop(grid->ready);
    drop(grid->polling);
    drop(grid->held);
    while (Block *block = grid->open) {
        drop(block->gate.queue);
        for (u32 i = 0; i * WARP < grid->threads; i++) drop(block->warps[i].queue);
        grid->open = block->after;
        give_back(block);
    }
    delete grid;
}

const char *tidegate_error(void) { return message[0] ? message : nullptr; }
