// Tests of the machine, as a program: built with `machine.cpp` and `kernels.cpp`, with the same flags.
//
// Model: each test is a process of its own, since an error of the machine stays. It drives grids as the driver does: steps of all that are in progress, by
// turns. Besides the kernels of the table there are some of this file, for what no real one does.
//
// Failure: a line for each thing that is not as it should be, and an exit status that is not 0. A test that does not end is ended after a minute.

#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <functional>
#include <string>
#include <vector>

#include "cuda.hpp"
#include "machine.hpp"

#include "../../../kernels/batch_layout.cuh"
#include "../../../kernels/faces.cuh"

static int failures;

#define CHECK(what)                                                  \
    do {                                                             \
        if (!(what)) {                                               \
            printf("line %d: not so: %s\n", __LINE__, #what);        \
            failures++;                                              \
        }                                                            \
    } while (0)

static double seconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec * 1e-9;
}

template <typename... A>
static tidegate_grid *begin(const void *kernel, unsigned blocks, unsigned threads, A... arguments) {
    const void *all[] = {&arguments..., nullptr};
    const unsigned grid[3] = {blocks, 1, 1}, block[3] = {threads, 1, 1};
    CHECK(kernel);
    return tidegate_begin(kernel, (void *const *)all, grid, block, 0);
}

// Steps of one grid to its end; how many.
static int run(tidegate_grid *grid, int most = 1000000) {
    int steps = 0;
    while (steps++ < most && !tidegate_error())
        if (tidegate_step(grid, 1) & TIDEGATE_OVER) break;
    tidegate_end(grid);
    return steps;
}

static const void *named(const char *name) { return tidegate_kernel(name); }

static bool failed_with(const char *what) {
    const char *error = tidegate_error();
    return error && strstr(error, what);
}

// ---- Kernels of the table ----

static void each_element() {
    std::vector<double> x(1237, 1.5);
    CHECK(run(begin(named("increment"), 3, 100, x.data(), (u64)x.size())) == 1);
    for (double value : x) CHECK(value == 2.5);
    std::vector<u64> y(999);
    run(begin(named("count"), 7, 33, y.data(), (u64)998, (u64)5));
    for (u64 i = 0; i < 998; i++) CHECK(y[i] == 5 + i);
    CHECK(y[998] == 0);
    CHECK(!named("no such kernel"));
    CHECK(named("copy_slot_triple") && named("copy_slot") && named("tidegate_reduce"));
}

// `faces_unpack` looks slots up together, with a barrier; the other takes the same from one buffer.
static void barriers(unsigned threads, unsigned blocks) {
    const unsigned m[3] = {3, 2, 2};
    const u64 offset[3] = {0, 0, 0};
    const FacesGeometry g = faces_geometry(4, m, (1u << 26) - 1, offset);
    std::vector<double> u(g.values), received(g.packed), other;
    run(begin(named("faces_init"), 5, 64, g, u.data(), (u64)u.size()));
    for (size_t i = 0; i < received.size(); i++) received[i] = sqrt(i + 2.0);
    const std::vector<double> before = u;
    other = u;
    u64 operand = 1 << 20;
    std::vector<Slot> slots;
    for (int k = 0; k < 26; k++) slots.push_back({(unsigned char *)&received[g.slot[k]], 0, 0, &operand});
    tidegate_grid *grid = begin(named("faces_unpack"), blocks, threads, g, slots.data(), (u64)26, u.data(), (u64)u.size());
    // It lets the next come at once, and waits.
    unsigned flags = tidegate_step(grid, 0);
    CHECK(!(flags & TIDEGATE_OVER) && (flags & TIDEGATE_LETS) && (flags & TIDEGATE_MOVED));
    CHECK(u == before);
    CHECK(tidegate_step(grid, 0) == TIDEGATE_LETS);
    run(grid);
    run(begin(named("faces_unpack_packed"), blocks, threads, g, received.data(), (u64)received.size(), other.data(), (u64)other.size()));
    CHECK(u != before && u == other);
}

static void before() {
    u64 ticks[2] = {};
    tidegate_grid *grid = begin(named("tick_early"), 2, 40, ticks, (u64)2);
    for (int i = 0; i < 3; i++) CHECK(!(tidegate_step(grid, 0) & TIDEGATE_OVER) && !ticks[0]);
    CHECK(tidegate_step(grid, 1) == (TIDEGATE_OVER | TIDEGATE_LETS | TIDEGATE_MOVED) && ticks[0] == 1);
    tidegate_end(grid);
    // Of many, only some begin early; what is given up leaves no trace.
    for (int i = 0; i < 3; i++) {
        grid = begin(named("tick_early"), 5000, 1024, ticks, (u64)2);
        CHECK(!(tidegate_step(grid, 0) & (TIDEGATE_OVER | TIDEGATE_LETS)));
        tidegate_end(grid);
    }
    CHECK(ticks[0] == 1);
    CHECK(run(begin(named("tick_early"), 5000, 1024, ticks, (u64)2)) == 1 && ticks[0] == 2);
}

// One that is busy keeps no other from going on.
static void busy() {
    u64 count[2] = {};
    const double at = seconds();
    tidegate_grid *long_one = begin(named("busy"), 3, 64, count, (u64)1, (u64)50000000);
    tidegate_step(long_one, 1);
    run(begin(named("tick"), 1, 1, count + 1, (u64)1));
    CHECK(count[1] == 1 && count[0] == 0);
    CHECK(run(long_one) > 1 && count[0] == 1 && seconds() - at >= 0.05);
}

// ---- The batch kernel ----

// A program of one lane by itself: a record, the lane, and the steps that it has for what takes long.
struct Program {
    Record record;
    Lane lane;
    alignas(16) WaitStep wait;
    alignas(16) Step end;
} __attribute__((aligned(16)));

struct Batch {
    Program program;
    State state;
    Mirror mirror;

    Batch(u32 kind, u32 team, u32 blocks) {
        memset((void *)this, 0, sizeof *this);
        program.record.team = (u8)team;
        program.record.lanes = 1;
        program.record.count = (u16)blocks;
        program.lane.kind = (u16)kind;
        program.lane.unit = 4;
        program.lane.steps = offsetof(Program, wait) / 16;
        program.lane.quantum = program.lane.value = QUANTUM;
        program.wait.step = {STEP_WAIT, (sizeof(WaitStep) + 15) / 16, 0};
    }

    void waits(u64 *word, u64 *operand) {
        program.lane.word = program.wait.word = (u64)word;
        program.lane.operand = program.wait.operand = (u64)operand;
        program.wait.quantum = QUANTUM;
    }

    tidegate_grid *launch() {
        Launch launch = {(const u8 *)&program, &state, &mirror, {}, sizeof program, 0};
        return begin(named("tidegate_batch"), 1, THREADS, launch);
    }
};

// Two grids: each waits for the other, which copies and adds.
static void words() {
    // Words lie apart.
    alignas(16) static u64 words[4][8];
    std::vector<u64> from(1000, 7), to(1000, 0), back(1000, 0);
    Batch there(LANE_WAITS | LANE_COPIES | LANE_ADDS, TEAM_BLOCKS, 1), here(LANE_WAITS | LANE_COPIES | LANE_ADDS, TEAM_WARPS, 1);
    there.waits(words[0], words[1]);
    there.program.lane.src = (u64)from.data(), there.program.lane.dst = (u64)to.data(), there.program.lane.count = 500;
    there.program.lane.out = (u64)words[2];
    here.waits(words[2], words[3]);
    here.program.lane.src = (u64)to.data(), here.program.lane.dst = (u64)back.data(), here.program.lane.count = 499, here.program.lane.tail = 16 - 1;
    here.program.lane.out = (u64)words[0];
    for (u64 epoch = 1; epoch <= 20; epoch++) {
        for (u64 i = 0; i < from.size(); i++) from[i] = epoch * 1000 + i + (255ull << 56);
        tidegate_grid *a = there.launch(), *b = here.launch();
        // Nothing moves until the host begins: and then it is not said that something does.
        for (int i = 0; i < 1000; i++) {
            unsigned flags = tidegate_step(a, 1) | tidegate_step(b, 1);
            CHECK(!(flags & TIDEGATE_OVER) && (i < 2 || !(flags & TIDEGATE_MOVED)));
        }
        __atomic_fetch_add(words[0], QUANTUM, __ATOMIC_RELEASE);
        unsigned done = 0, steps = 0;
        while (done != 3 && steps++ < 1000 && !tidegate_error()) {
            if (!(done & 1) && (tidegate_step(a, 1) & TIDEGATE_OVER)) done |= 1;
            if (!(done & 2) && (tidegate_step(b, 1) & TIDEGATE_OVER)) done |= 2;
        }
        CHECK(done == 3);
        tidegate_end(a);
        tidegate_end(b);
        // What the second has added is taken back: here the host begins each epoch.
        words[0][0] -= QUANTUM;
        CHECK(to == from && !memcmp(back.data(), from.data(), 16 * 499 + 15) && back[999] == from[999] << 8 >> 8);
        CHECK(words[0][0] == epoch * QUANTUM && words[1][0] == epoch * QUANTUM && words[2][0] == epoch * QUANTUM && words[3][0] == epoch * QUANTUM);
    }
}

struct Both {
    alignas(64) u64 word[2];
    alignas(64) u64 operand[2][8];
    alignas(64) u64 data[2][4096];
};

// Two processes, each with a machine: what comes with a word is there.
static void processes(u32 team, int epochs) {
    Both *both = (Both *)mmap(nullptr, sizeof(Both), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    both->word[0] = QUANTUM;
    const pid_t child = fork();
    const int me = child == 0;
    std::vector<u64> mine(4096);
    Batch wait(LANE_WAITS, team, 1), put(LANE_COPIES | LANE_ADDS, team, 1);
    wait.waits(&both->word[me], both->operand[me]);
    put.program.lane.src = (u64)mine.data(), put.program.lane.dst = (u64)both->data[!me], put.program.lane.count = 2048;
    put.program.lane.out = (u64)&both->word[!me];
    u64 wrong = 0;
    for (int epoch = 1; epoch <= epochs && !tidegate_error(); epoch++) {
        tidegate_grid *grid = wait.launch();
        for (;;) {
            unsigned flags = tidegate_step(grid, 1);
            if ((flags & TIDEGATE_OVER) || tidegate_error()) break;
            if (!(flags & TIDEGATE_MOVED)) sched_yield();
        }
        tidegate_end(grid);
        // Who begins has got nothing yet. Until it is put to, the peer puts nothing.
        const u64 came = me ? epoch : epoch - 1;
        for (u64 i = 0; came && i < mine.size(); i++) wrong += both->data[me][i] != came * 8192 + 2 * i + !me;
        for (u64 i = 0; i < mine.size(); i++) mine[i] = (u64)epoch * 8192 + 2 * i + me;
        CHECK(run(put.launch()) == 1);
    }
    CHECK(!wrong);
    if (child == 0) _exit(failures != 0);
    int status;
    waitpid(child, &status, 0);
    CHECK(status == 0);
}

// ---- Kernels of this file ----

static void shares(void *const *arguments) {
    __shared__ u32 values[256];
    u64 *out = *(u64 **)arguments[0];
    const u32 all = blockDim.x * blockDim.y * blockDim.z;
    const u32 me = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    for (u32 round = 0; round < 10; round++) {
        values[me] = me + round + blockIdx.x + 10 * blockIdx.y + 100 * blockIdx.z;
        __syncthreads();
        u64 sum = 0;
        for (u32 i = 0; i < all; i++) sum += values[i];
        if (me % 3 == round % 3) machine::yield();
        __syncthreads();
        if (me == round) out[(blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z)) * 10 + round] = sum;
    }
}

static void leaves(void *const *) {
    if (threadIdx.x != 3) __syncthreads();
}

static void leaves_late(void *const *) {
    if (threadIdx.x == 99) machine::yield();
    else machine::warp_barrier();
}

__attribute__((noinline)) static u64 deep(u64 depth) {
    volatile u8 some[64];
    some[0] = (u8)depth;
    u64 below = depth ? deep(depth - 1) : 0;
    if (depth == 0) machine::yield();
    return below + some[0];
}
static void uses_stack(void *const *arguments) {
    u64 *at = *(u64 **)arguments[0];
    atomicAdd(at + 1, deep(*at));
}

static void misaligned(void *const *arguments) { red_u64(**(u64 **)arguments[0], 1); }

static void adds(void *const *arguments) {
    u64 *at = *(u64 **)arguments[0];
    red_f64((u64)at, 0.5);
    red_u64((u64)(at + 2), 3);
    red_u32((u64)(at + 3), ~0u);
}

// All blocks wait for the last one.
static void waits_for_last(void *const *arguments) {
    const u64 word = *(u64 *)arguments[0];
    if (threadIdx.x == 0) {
        if (blockIdx.x + 1 == gridDim.x) add_release(word, 1);
        while (!load_acquire(word)) pause(50);
    }
    __syncthreads();
}

static const u32 pointer[] = {8};
static const void *own(void (*run)(void *const *)) { return new machine::Kernel{"one of the test", run, pointer, 1}; }

// Blocks of three dimensions, each with variables of its own, whose threads go on by turns.
static void shared() {
    std::vector<u64> sums(2 * 3 * 4 * 10);
    const unsigned blocks[3] = {2, 3, 4}, threads[3] = {8, 4, 5};
    u64 *out = sums.data();
    void *arguments[] = {&out};
    CHECK(run(tidegate_begin(own(shares), arguments, blocks, threads, 0)) == 11);
    for (u64 block = 0; block < 24; block++)
        for (u64 round = 0; round < 10; round++) {
            const u64 each = round + block % 2 + 10 * (block / 2 % 3) + 100 * (block / 6);
            CHECK(sums[block * 10 + round] == 160 * 159 / 2 + 160 * each);
        }
}

static void last() {
    u64 word = 0;
    CHECK(run(begin(own(waits_for_last), 500, 64, &word)) <= 3 && word == 1);
    CHECK(run(begin(own(waits_for_last), 500, 64, &word)) == 1 && word == 2);
}

static void rules() {
    u64 depth[] = {300, 0}, *at = depth, sum = 0;
    for (u64 i = 0; i <= 300; i++) sum += (u8)i;
    run(begin(own(uses_stack), 1, 40, at));
    CHECK(!tidegate_error() && depth[1] == 40 * sum);
    u64 value = 0;
    tidegate_grid *other = begin(named("tick"), 1, 1, &value, (u64)1);
    run(begin(own(leaves), 1, 40, at));
    CHECK(failed_with("a thread has left, and others wait at a barrier"));
    CHECK(tidegate_step(other, 1) == 0 && value == 0);
    tidegate_end(other);
}

static void warps() {
    u64 none = 0;
    run(begin(own(leaves_late), 1, 96, &none));
    CHECK(!tidegate_error());
    run(begin(own(leaves_late), 1, 128, &none));
    CHECK(failed_with("of their warp"));
}

static void stacks() {
    u64 depth[] = {300, 0}, *at = depth;
    for (; !tidegate_error() && depth[0] < 1500; depth[0] += 5) run(begin(own(uses_stack), 1, 1, at));
    CHECK(failed_with("a stack is used up"));
}

static void alignment() {
    u64 at = (u64)&at + 4;
    run(begin(own(misaligned), 1, 1, &at));
    CHECK(failed_with("not aligned"));
}

static void trespass() {
    u64 none = 0;
    run(begin(named("trespass"), 1, 1, &none, (u64)1));
    CHECK(failed_with("nothing is mapped"));
    const unsigned one[3] = {1, 1, 1}, many[3] = {1025, 1, 1};
    CHECK(!tidegate_begin(named("tick"), nullptr, one, many, 0));
}

// Two processes add at the same time.
static void atomics() {
    u64 *at = (u64 *)mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const pid_t child = fork();
    for (int i = 0; i < 100; i++) run(begin(own(adds), 50, 100, at));
    if (child == 0) _exit(failures != 0);
    int status;
    waitpid(child, &status, 0);
    const u64 all = 2 * 100 * 50 * 100;
    CHECK(status == 0 && same_bits<double>(at[0]) == all / 2 && at[2] == 3 * all && at[3] == (u32)-all);
}

// ---- How long things take ----

static void times() {
    std::vector<double> x(100000);
    double at = seconds();
    for (int i = 0; i < 200; i++) run(begin(named("increment"), 100, 128, x.data(), (u64)100));
    printf("  100 blocks of 128 threads that do nothing: %.0f us\n", (seconds() - at) / 200 * 1e6);
    const unsigned m[3] = {8, 8, 8};
    const u64 offset[3] = {0, 0, 0};
    const FacesGeometry g = faces_geometry(6, m, (1u << 26) - 1, offset);
    std::vector<double> u(g.values), received(g.packed, 1.0);
    u64 operand = 1 << 20;
    std::vector<Slot> slots;
    for (int k = 0; k < 26; k++) slots.push_back({(unsigned char *)&received[g.slot[k]], 0, 0, &operand});
    at = seconds();
    for (int i = 0; i < 200; i++) run(begin(named("faces_unpack_packed"), 100, 128, g, received.data(), (u64)received.size(), u.data(), (u64)u.size()));
    printf("  faces_unpack_packed, 100 blocks of 128 threads: %.0f us\n", (seconds() - at) / 200 * 1e6);
    for (int early = 0; early < 2; early++) {
        at = seconds();
        for (int i = 0; i < 200; i++) {
            tidegate_grid *grid = begin(named("faces_unpack"), 100, 128, g, slots.data(), (u64)26, u.data(), (u64)u.size());
            if (early) tidegate_step(grid, 0);
            run(grid);
        }
        printf("  faces_unpack, 100 blocks of 128 threads%s: %.0f us\n", early ? ", early" : "", (seconds() - at) / 200 * 1e6);
    }
    u64 word[2] = {};
    Batch batch(LANE_WAITS, TEAM_WARPS, 1);
    batch.waits(word, word + 1);
    batch.program.record.lanes = 1;
    std::vector<tidegate_grid *> grids;
    for (int i = 0; i < 100; i++) grids.push_back(batch.launch());
    for (int i = 0; i < 400; i++)
        for (auto grid : grids) tidegate_step(grid, 1);
    at = seconds();
    for (int i = 0; i < 1000; i++)
        for (auto grid : grids) tidegate_step(grid, 1);
    printf("  a step of a grid with one thread that looks: %.0f ns\n", (seconds() - at) / 1e5 * 1e9);
    for (auto grid : grids) tidegate_end(grid);
}

int main(int, char **arguments) {
    const std::pair<const char *, std::function<void()>> tests[] = {
        {"each_element", each_element},
        {"barriers", [] { barriers(128, 7), barriers(20, 4), barriers(33, 27); }},
        {"before", before},
        {"busy", busy},
        {"words", words},
        {"processes", [] { processes(TEAM_WARPS, 2000), processes(TEAM_BLOCKS, 1000); }},
        {"shared", shared},
        {"last", last},
        {"rules", rules},
        {"warps", warps},
        {"stacks", stacks},
        {"alignment", alignment},
        {"trespass", trespass},
        {"atomics", atomics},
        {"times", times},
    };
    int bad = 0;
    for (auto &test : tests) {
        if (arguments[1] && strcmp(arguments[1], test.first)) continue;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            alarm(60);
            failures = 0;
            test.second();
            if (failures && tidegate_error()) printf("the machine: %s\n", tidegate_error());
            fflush(stdout);
            _exit(failures != 0);
        }
        int status;
        waitpid(child, &status, 0);
        printf("%s: %s\n", test.first, status == 0 ? "ok" : "FAILED");
        bad += status != 0;
    }
    return bad != 0;
}
