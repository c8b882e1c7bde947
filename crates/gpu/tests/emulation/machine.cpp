// A machine that runs grids of the batch kernel: several streams at a time, each a list of launches and of calls into the test.
//
// Model: a thread is a fiber. One of them runs at a time; in a primitive it may give way to another, of its block or not, as a generator of pseudo-random numbers says. Blocks may be
// late. A barrier is strict: a thread that has left while others wait at one is an error, although a GPU may forgive it. Where a launch lets the next of its stream come, that one
// may begin as soon as all blocks have said so; what it does before the one before is over is up to the kernel.
//
// Failure: a run that makes no progress (every thread waits at a barrier, or there is no end after so many turns or primitives), an access that is not aligned or outside of what
// the test has named, and a fiber that has used up its stack end the run with a message.
//
// It knows of the kernel what the host knows, too, and is compiled once and optimised, whichever kernel it is linked with.

// Before the kernel: it redefines words that these headers use.
#include "shared.hpp"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "hooks.hpp"
#include "machine.cuh"
#include "batch_layout.cuh"

extern "C" void tidegate_batch(const Launch launch);
extern "C" void tidegate_reduce(const Launch launch);

Index threadIdx, blockIdx;

namespace machine {

// ---- What the test and the machine agree on (mirrored in `crates/gpu/src/lower/emulated/machine.rs`) ----

enum { ITEM_LAUNCH = 0, ITEM_CALL = 1, ITEM_DELAY = 2 };

struct Item {
    u64 kind;
    u64 value;  // launch: blocks; call: given to it; delay: turns
    const Launch *launch;
    u64 reduces;  // launch: of the kernel that does nothing else
};

struct Stream {
    const Item *items;
    u64 count, times;
};

struct Range {
    u64 begin, end;
    u64 writable;
};

struct Run {
    const Stream *streams;
    u64 count;
    u64 seed;
    u64 turns;   // the most
    u64 points;  // likewise: of primitives where a thread may give way, for one that never does
    // Plain accesses are allowed here only; all are if there is none.
    const Range *ranges;
    u64 range_count;
    void *context;
    void (*call)(void *context, u64 stream, u64 value, u64 time);
    void (*added)(void *context, u64 word);
};

// ---- Fibers ----

#define STACK (64 << 10)
#define CANARY 0x7469646567617465ull

struct Group;

struct Fiber {
    jmp_buf at;
    ucontext_t first;
    u64 *stack;
    Group *group;
    u32 thread;
    bool fenced;  // and has written nothing since
    u64 promised; // a word that it is to add 1 to
};

struct Warps {
    u32 waiting, left;
};

// A block that is being carried out.
struct Group {
    std::vector<Fiber *> fibers, ready, waiting;
    std::vector<Warps> warps;
    std::vector<std::vector<Fiber *>> warp_waiting;
    std::vector<u8> shared;
    const Launch *launch;
    bool reduces;
    u32 block, left;
    u64 stream, from;  // not before this turn
    u64 grid;          // how many of its stream come before it
    size_t place;      // among those that can go on
    bool listed, lets;
    bool passed;       // has said that it waits for nobody any more, but for what has been promised
    std::set<u64> promised;  // words of which one of its threads has seen that a quantum was, in this launch
};

struct Progress {
    u64 item, time, until;
    u64 over;             // grids
    u64 blocks[2];        // that are not over: of this grid, and the next
    u64 reluctant;        // blocks of this grid that have not let the next come
    std::vector<Fiber *> held;  // until this grid is over
    bool running, next;   // next: it has begun
};

static jmp_buf home;
static ucontext_t unused;
static Fiber *current;
static std::vector<Fiber *> idle;
static std::vector<Group *> idle_groups, groups;  // `groups`: those that have a fiber that can go on
static std::vector<Group *> late;
static std::vector<Progress> progress;
static Group *loaded;
static const Run *run;
static u64 dice, turn, rarely, stay, looks, passes, settled;
static std::map<u64, u64> promised;  // how many blocks are to add 1 to a word
static u64 points;  // that the run has come to
static char message[256];

// What is shared: all variables of the library that each thread of the host has its own of.
static __thread u64 touched;
static u8 *shared;
static u64 shared_bytes;

static u64 roll() {
    dice ^= dice << 13;
    dice ^= dice >> 7;
    dice ^= dice << 17;
    return dice * 0x2545f4914f6cdd1dull >> 16;
}

void fail(const char *what, u64 at) {
    if (!message[0]) snprintf(message, sizeof message, "%s: %#llx (block %u, thread %u)", what, at, blockIdx.x, threadIdx.x);
    // Nothing of it runs any more.
    if (current) _longjmp(home, 1);
}

static void leave() {
    if (!_setjmp(current->at)) _longjmp(home, 1);
}

static void list(Group *group) {
    if (group->listed || group->ready.empty()) return;
    group->listed = true;
    group->place = groups.size();
    groups.push_back(group);
}

static void unlist(Group *group) {
    groups.back()->place = group->place;
    groups[group->place] = groups.back();
    groups.pop_back();
    group->listed = false;
}

void yield() {
    current->group->ready.push_back(current);
    leave();
}

void point() {
    if (++points > run->points) fail("no end after so many primitives", points);
    if (rarely && roll() % rarely == 0) yield();
}

void linger() {
    for (u64 turns = rarely ? roll() % 64 : 0; turns; turns--) yield();
}

static void wait_at(std::vector<Fiber *> &waiting, u32 left, u32 all) {
    waiting.push_back(current);
    if (waiting.size() + left == all) {
        if (left) fail("a thread has left, and others wait at a barrier", left);
        auto &ready = current->group->ready;
        ready.insert(ready.end(), waiting.begin(), waiting.end());
        waiting.clear();
    }
    leave();
}

void block_barrier() { wait_at(current->group->waiting, current->group->left, THREADS); }

void warp_barrier() {
    u32 warp = current->thread / WARP;
    wait_at(current->group->warp_waiting[warp], current->group->warps[warp].left, WARP);
}

void looked() { looks++; }

// Time goes on whenever it is asked for.
u64 nanoseconds() {
    static u64 now;
    point();
    return ++now;
}

void fence() {
    point();
    current->fenced = true;
}

void wrote() { current->fenced = false; }

bool is_fenced() { return current->fenced; }

void wait_for_previous() {
    point();
    // What was done before is not what is waited for here.
    current->fenced = false;
    Progress &at = progress[current->group->stream];
    if (at.over == current->group->grid) return;
    at.held.push_back(current);
    leave();
}

void let_next_come() {
    Group *group = current->group;
    Progress &at = progress[group->stream];
    // There is room for two.
    if (at.over != group->grid) fail("the next grid is let come, and the one before is not over", group->grid);
    // Which was not asked for: then nobody here waits for a peer any more that could be kept from coming.
    if (!(group->launch->flags & LAUNCH_NEXT) && !group->passed) {
        group->passed = true;
        passes++;
    }
    if (!group->lets) at.reluctant--;
    group->lets = true;
    point();
}

void awaits(u64 word) {
    if (current->group->passed) {
        if (!current->group->promised.count(word)) fail("a wait in a block that has let the next grid come, since it waits for nobody", word);
        settled++;
    }
    if (current->promised) fail("a wait of a team that has promised to wait for nobody", word);
}

void found(u64 word, u64 value) {
    u64 part = value % QUANTUM, lacks = QUANTUM - part;
    // Of words that no kernel promises anything of it is the test that adds.
    auto it = promised.find(word);
    u64 most = it == promised.end() ? MOST_BLOCKS : it->second;
    // (When it has come it is no less so, nor when more has.)
    if (part && lacks <= most) current->group->promised.insert(word);
}

void promises(u64 word) {
    if (current->promised) fail("a team promises twice", word);
    current->promised = word;
    promised[word]++;
}

void keeps(u64 word, u64 value) {
    if (!current->promised) return;
    if (current->promised != word || value != 1) fail("something else was promised", word);
    current->promised = 0;
    promised[word]--;
}

void added(u64 word) {
    if (run->added) run->added(run->context, word);
}

void check(u64 at, u64 bytes, bool writes) {
    if (at % bytes) fail("an access that is not aligned", at);
    if (!run->range_count) return;
    const Range *end = run->ranges + run->range_count;
    const Range *range = std::upper_bound(run->ranges, end, at, [](u64 at, const Range &range) { return at < range.begin; });
    if (range == run->ranges || at + bytes > (range - 1)->end || (writes && !(range - 1)->writable)) fail(writes ? "a write out of bounds" : "a read out of bounds", at);
}

// What a fiber does all its life: one thread after the other.
static void live() {
    Fiber *me = current;
    for (;;) {
        leave();
        me->fenced = false;
        me->promised = 0;
        if (me->group->reduces) tidegate_reduce(*me->group->launch);
        else tidegate_batch(*me->group->launch);
        if (me->promised) fail("a promise was not kept", me->promised);
        Group *group = me->group;
        group->left++;
        group->warps[me->thread / WARP].left++;
        if (*me->stack != CANARY) fail("a stack is used up", 0);
        if (!group->waiting.empty() && group->waiting.size() + group->left == THREADS) fail("a thread has left, and others wait at a barrier", 0);
        auto &warp = group->warp_waiting[me->thread / WARP];
        if (!warp.empty() && warp.size() + group->warps[me->thread / WARP].left == WARP) fail("a thread has left, and others wait at a barrier of their warp", 0);
    }
}

static Fiber *fiber() {
    if (idle.empty()) {
        const u64 many = 256;
        u8 *stacks = (u8 *)mmap(nullptr, many * STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) return nullptr;
        for (u64 i = 0; i < many; i++) {
            Fiber *fiber = new Fiber;
            fiber->stack = (u64 *)(stacks + i * STACK);
            *fiber->stack = CANARY;
            getcontext(&fiber->first);
            fiber->first.uc_stack.ss_sp = fiber->stack;
            fiber->first.uc_stack.ss_size = STACK;
            fiber->first.uc_link = &unused;
            makecontext(&fiber->first, live, 0);
            current = fiber;
            if (!_setjmp(home)) setcontext(&fiber->first);
            current = nullptr;
            idle.push_back(fiber);
        }
    }
    Fiber *fiber = idle.back();
    idle.pop_back();
    return fiber;
}

static void begin(u64 stream, const Item &item, u64 grid) {
    const u32 blocks = (u32)item.value;
    for (u32 block = 0; block < blocks; block++) {
        Group *group;
        if (idle_groups.empty()) {
            group = new Group;
        } else {
            group = idle_groups.back();
            idle_groups.pop_back();
        }
        group->launch = item.launch;
        group->reduces = item.reduces;
        group->block = block;
        group->stream = stream;
        group->grid = grid;
        group->left = 0;
        group->listed = group->lets = group->passed = false;
        group->promised.clear();
        group->waiting.clear();
        group->warps.assign(WARPS, Warps());
        group->warp_waiting.assign(WARPS, std::vector<Fiber *>());
        // Nobody may rely on what was there.
        group->shared.assign(shared_bytes, 0xa5);
        group->fibers.clear();
        group->ready.clear();
        for (u32 thread = 0; thread < THREADS; thread++) {
            Fiber *fiber = machine::fiber();
            if (!fiber) return fail("no memory for stacks", 0);
            fiber->group = group;
            fiber->thread = thread;
            group->fibers.push_back(fiber);
            group->ready.push_back(fiber);
        }
        group->from = roll() % 4 ? 0 : turn + roll() % 4096;
        if (group->from > turn) late.push_back(group);
        else list(group);
    }
    progress[stream].blocks[grid - progress[stream].over] = blocks;
}

// The next item of a stream is the one to do.
static void step(const Stream &what, Progress &at) {
    at.item++;
    if (at.item == what.count) {
        at.item = 0;
        at.time++;
    }
}

// The launch behind the one that runs, if there is one and it may begin.
static const Item *follower(const Stream &what, const Progress &at) {
    const Item &item = what.items[at.item];
    bool may = item.kind == ITEM_LAUNCH && at.blocks[0] && !at.reluctant && !at.next;
    bool last = at.item + 1 == what.count;
    if (!may || (last && at.time + 1 == what.times)) return nullptr;
    const Item *next = &what.items[last ? 0 : at.item + 1];
    return next->kind == ITEM_LAUNCH ? next : nullptr;
}

// The grid of a stream is over.
static void end(Progress &at) {
    at.over++;
    at.blocks[0] = at.reluctant = at.next ? at.blocks[1] : 0;
    for (Fiber *fiber : at.held) {
        fiber->group->ready.push_back(fiber);
        list(fiber->group);
    }
    at.held.clear();
}

// Begins what can be begun; whether anything is left.
static bool advance() {
    bool left = false;
    for (u64 stream = 0; stream < run->count; stream++) {
        const Stream &what = run->streams[stream];
        Progress &at = progress[stream];
        while (what.count && at.time < what.times && !message[0]) {
            const Item &item = what.items[at.item];
            if (at.running) {
                if (at.blocks[0] || at.until > turn) {
                    const Item *next = follower(what, at);
                    if (next && roll() % 2) {
                        at.next = true;
                        begin(stream, *next, at.over + 1);
                    }
                    break;
                }
                at.running = at.next;
                if (item.kind == ITEM_LAUNCH) end(at);
                at.next = false;
                step(what, at);
                continue;
            }
            at.running = true;
            at.until = 0;
            if (item.kind == ITEM_LAUNCH) {
                at.reluctant = item.value;
                begin(stream, item, at.over);
            } else if (item.kind == ITEM_CALL) {
                run->call(run->context, stream, item.value, at.time);
            } else {
                at.until = turn + roll() % (item.value + 1);
            }
        }
        left |= what.count && at.time < what.times;
    }
    return left;
}

static void load(Group *group) {
    if (loaded == group) return;
    if (loaded) memcpy(loaded->shared.data(), shared, shared_bytes);
    memcpy(shared, group->shared.data(), shared_bytes);
    loaded = group;
}

// One turn of a fiber.
static void go_on(Group *group) {
    auto &ready = group->ready;
    size_t which = roll() % ready.size();
    current = ready[which];
    ready[which] = ready.back();
    ready.pop_back();
    load(group);
    threadIdx.x = current->thread;
    blockIdx.x = group->block;
    if (!_setjmp(home)) _longjmp(current->at, 1);
    current = nullptr;
}

static void turns() {
    Group *last = nullptr;
    u64 looked = 0;
    bool ended = true;  // since `advance` looked
    for (turn = 1;; turn++) {
        if (ended || turn - looked >= 64 || groups.empty()) {
            looked = turn;
            ended = false;
            if (!advance()) return;
            for (size_t i = 0; i < late.size();) {
                if (late[i]->from <= turn) {
                    list(late[i]);
                    late[i] = late.back();
                    late.pop_back();
                } else {
                    i++;
                }
            }
        }
        if (message[0]) return;
        if (turn > run->turns) return fail("no end after so many turns", turn);
        if (groups.empty()) {
            bool delayed = !late.empty();
            for (auto &at : progress) delayed |= at.running && at.until > turn;
            if (!delayed) return fail("every thread waits at a barrier", 0);
            continue;
        }
        Group *group = last && last->listed && roll() % stay ? last : groups[roll() % groups.size()];
        last = group;
        go_on(group);
        if (message[0]) return;
        if (group->left == THREADS) {
            unlist(group);
            idle.insert(idle.end(), group->fibers.begin(), group->fibers.end());
            if (loaded == group) loaded = nullptr;
            last = nullptr;
            Progress &at = progress[group->stream];
            at.blocks[group->grid - at.over]--;
            if (!group->lets && group->grid == at.over) at.reluctant--;
            idle_groups.push_back(group);
            ended = true;
        } else if (group->ready.empty()) {
            unlist(group);
        }
    }
}

}  // namespace machine

// Runs streams to their end. Null, or why not.
extern "C" const char *tidegate_run(const machine::Run *what) {
    using namespace machine;
    run = what;
    message[0] = 0;
    dice = what->seed * 0x9e3779b97f4a7c15ull | 1;
    for (int i = 0; i < 8; i++) roll();
    // How often threads change places differs from run to run.
    const u64 rates[] = {0, 3, 16, 100}, stays[] = {1, 4, 32, 200};
    rarely = rates[roll() % 4];
    stay = stays[roll() % 4];
    progress.assign(what->count, Progress());
    looks = passes = settled = points = 0;
    promised.clear();
    // It has an address once it has been touched.
    touched++;
    const Shared found = find_shared(&home);
    shared = found.at, shared_bytes = found.bytes;
    if (shared_bytes < least_shared) return "the shared memory was not found";
    loaded = nullptr;
    turns();
    if (message[0]) {
        // Fibers that are in the middle of something are given up.
        groups.clear();
        late.clear();
        current = nullptr;
        return message;
    }
    return nullptr;
}

// How often the last run has looked how a stream stands.
extern "C" u64 tidegate_looks() { return machine::looks; }

// How many blocks of it have said that they wait for nobody any more.
extern "C" u64 tidegate_passes() { return machine::passes; }

// How often it has looked, behind that, for what had been promised.
extern "C" u64 tidegate_settled() { return machine::settled; }

// The sizes of everything that both sides know, and where its fields are.
extern "C" u64 tidegate_layout(u64 *out) {
    u64 count = 0;
    auto note = [&](u64 value) { out[count++] = value; };
#define FIELD(type, field) note(offsetof(type, field))
    note(THREADS), note(WARPS), note(MAX_BLOCKED), note(POISON), note(1ull << QUANTUM_BITS), note(PART), note(MOST_BLOCKS), note(MOST_VECTORS);
    note(TEAM_WARPS), note(TEAM_BLOCKS);
    note(STEP_END), note(STEP_WAIT), note(STEP_MOVE), note(STEP_ADD), note(STEP_STORE), note(STEP_CHECK);
    note(LANE_STEPS), note(LANE_WAITS), note(LANE_COPIES), note(LANE_ADDS), note(LANE_LANDS), note(LANE_LISTED), note(LANE_GATHERS), note(LANE_COUNTED), note(LANE_REDUCES);
    note(ADD_HAS_WAITER), note(MOVE_EARLY), note(MOVE_LAST_PARITY), note(MOVE_BEHIND), note(MOVE_ALONE), note(LAUNCH_NEXT);
    note(SHAPE_LINEAR), note(SHAPE_STRIDED), note(SHAPE_INDEXED);
    note(ACTION_COPY), note(ACTION_ACCUMULATE), note(ACTION_FETCH), note(ACTION_SWAP), note(ACTION_COUNTED), note(ACTION_REDUCE);
    note(FAULT_WAIT), note(FAULT_COUNT);
    note(sizeof(Record)), FIELD(Record, team), FIELD(Record, lanes), FIELD(Record, index), FIELD(Record, count), FIELD(Record, batch);
    note(sizeof(Lane)), FIELD(Lane, kind), FIELD(Lane, steps), FIELD(Lane, word), FIELD(Lane, operand), FIELD(Lane, quantum), FIELD(Lane, arrivals), FIELD(Lane, src);
    FIELD(Lane, dst), FIELD(Lane, flip), FIELD(Lane, count), FIELD(Lane, out), FIELD(Lane, value), FIELD(Lane, tail), FIELD(Lane, landing), FIELD(Lane, landing_flip), FIELD(Lane, from), FIELD(Lane, to), FIELD(Lane, unit), FIELD(Lane, unused);
    note(sizeof(Step)), FIELD(Step, kind), FIELD(Step, length), FIELD(Step, flags);
    note(sizeof(WaitStep)), FIELD(WaitStep, word), FIELD(WaitStep, operand), FIELD(WaitStep, quantum), FIELD(WaitStep, arrivals), FIELD(WaitStep, window);
    FIELD(WaitStep, peer), FIELD(WaitStep, awaited), FIELD(WaitStep, slot);
    note(sizeof(AddStep)), FIELD(AddStep, word), FIELD(AddStep, value), FIELD(AddStep, count);
    note(sizeof(StoreStep)), FIELD(StoreStep, to), FIELD(StoreStep, value);
    note(sizeof(CheckStep)), FIELD(CheckStep, count), FIELD(CheckStep, most), FIELD(CheckStep, window), FIELD(CheckStep, peer), FIELD(CheckStep, awaited);
    note(sizeof(MoveStep)), FIELD(MoveStep, count), FIELD(MoveStep, src), FIELD(MoveStep, dst), FIELD(MoveStep, src_flip), FIELD(MoveStep, dst_flip), FIELD(MoveStep, parity);
    FIELD(MoveStep, result), FIELD(MoveStep, compare), FIELD(MoveStep, size), FIELD(MoveStep, sub), FIELD(MoveStep, action), FIELD(MoveStep, op), FIELD(MoveStep, scalar);
    FIELD(MoveStep, unit), FIELD(MoveStep, src_shape), FIELD(MoveStep, dst_shape), FIELD(MoveStep, row);
    note(sizeof(Shape)), FIELD(Shape, table), FIELD(Shape, rank), FIELD(Shape, count), FIELD(Shape, stride);
    note(sizeof(Term)), FIELD(Term, src), FIELD(Term, flip), FIELD(Term, parity), FIELD(Term, op), FIELD(Term, last);
    note(sizeof(Vector)), FIELD(Vector, word), FIELD(Vector, operand), FIELD(Vector, src), FIELD(Vector, flip), FIELD(Vector, landing), FIELD(Vector, landing_flip), FIELD(Vector, op);
    FIELD(Vector, wait), FIELD(Vector, by_word), FIELD(Vector, lacks), FIELD(Vector, from);
    note(sizeof(Fault)), FIELD(Fault, kind), FIELD(Fault, window), FIELD(Fault, peer), FIELD(Fault, awaited), FIELD(Fault, epoch);
    note(sizeof(State)), FIELD(State, stop), FIELD(State, fault), FIELD(State, ring), FIELD(State, slots), FIELD(State, head), FIELD(State, taken), FIELD(State, dropped), FIELD(State, telling);
    note(sizeof(Blocked)), FIELD(Blocked, active), FIELD(Blocked, window), FIELD(Blocked, peer), FIELD(Blocked, awaited), FIELD(Blocked, epoch);
    note(sizeof(Mirror)), FIELD(Mirror, failed), FIELD(Mirror, fault), FIELD(Mirror, blocked);
    note(sizeof(Launch)), FIELD(Launch, program), FIELD(Launch, state), FIELD(Launch, mirror), FIELD(Launch, follow), FIELD(Launch, stride), FIELD(Launch, flags);
#undef FIELD
    return count;
}
