// ptx: compute_80 compute_90
//
// The batch kernel: one launch carries out a whole batch, whatever the number of peers.
//
// # Model
//
// A batch is a set of independent lanes. A lane is a list of steps: wait for a word, move data, add to a word. The host
// lowers the batch to a *program* in device memory (`crates/gpu/src/lower`). The program is the same for every launch,
// because the value that a wait compares with, its operand, is beside the word, and the wait advances it. So a launch
// can be recorded once and replayed.
//
// A lane is carried out by a *team*:
//
//   a warp           lanes that move little, or nothing; a block carries out up to WARPS of them. (Not a thread: the
//                    threads of a warp would poll one after the other.)
//   `count` blocks   lanes that move much; each block does its share of every move, and adds its share of every add
//
// The host makes sure that all blocks of a batch can be resident at a time. So no team waits for one that has not
// begun.
//
// # Memory order
//
// The barrier of a team (bar.sync, bar.warp.sync) orders its accesses before the one thread's `red.release.sys` that
// adds. Release is cumulative, so a reader that acquires the word sees what all threads of the team wrote. A wait is
// one thread's `ld.acquire.sys`, and then the barrier, if the team has more to do. If a lane has several blocks, each
// releases its own accesses and adds its part of the quantum. The word reaches the count only when all parts have been
// added, and no block waits for another. Data of a peer is never read through the non-coherent path.
//
// Puts of few bytes land with tags, and need none of this: see batch_landings.cuh.
//
// Not every bus carries atomic operations to memory of the host, where doorbells of NICs may be. Nobody else adds to
// such a word. So the sum is counted in device memory (`ring`), and stored to the word by `st.release.sys`. If there
// are several blocks, each counts its part and acquires the earlier counts. The last one stores, and its release covers
// the writes of all.
//
// The thread that has rung a doorbell also stores to the NIC's register, once, after a fence at system scope
// (`strike`). So a NIC that reads because of the store sees everything that the doorbell's release covers, and the
// doorbell.
//
// # Promises
//
// A kernel that is launched early takes its place while the one before it runs. It could take the room of a kernel that
// the one before waits for (see `pass`). So a block of a lane in short adds in two steps. When its own wait is over,
// and its put is in flight, it adds all of its part but 1. This promises the rest: from now on it waits for nobody, and
// has its place. When it has put its share, it adds the 1, with release. (Listed units are all in flight before the
// promise. There the promise hides the end of the lane, but not a long transfer.)
//
// Consider a lane that only waits. Once its word lacks at most 1 per block, the lane lets the next kernel begin, whose
// start then takes no extra time. After 64 looks it does not do so any more. A promise says nothing about data, and has
// no order; a wait still ends only with the whole quantum. Lanes that go step by step, CPUs and NICs add whole parts,
// and promise nothing. All parts of a quantum together are one quantum, so no other part is mistaken for a promise.
//
// # Failure
//
// A word with POISON set ends a wait whose count has not been reached. The first team that fails records its wait and
// sets `stop`; the others see that while they wait. Teams of a failed stream move nothing, and poison the words that
// they should have added to. The host can set `stop`, too.
//
// # Files
//
// The parts form one text in this order, because each uses those before it. This file has the lane in short, which is
// what nearly every lane is, and the kernels.

#include "machine.cuh"
#include "batch_layout.cuh"
#include "batch_stamps.cuh"
#include "batch_waits.cuh"
#include "batch_halves.cuh"
#include "batch_moves.cuh"
#include "batch_units.cuh"
#include "batch_reductions.cuh"
#include "batch_lanes.cuh"
#include "batch_landings.cuh"
#include "batch_folds.cuh"

// ---- Lanes in short ----

// The result of a short lane's wait: the count was reached; or it was not at once, or the stream may have failed.
enum { SHORT_REACHED = 0, SHORT_NOT_YET = 1 };

// Carries out everything after the wait of a short lane.
template <typename Team>
DEV void end_short(Team team, const Lane &lane, u64 from, u32 before, Part part) {
    STAMP(if (team.rank() == 0 && (lane.kind & LANE_COPIES)) marks().moves();)
    if (lane.kind & LANE_ADDS) {
        team.barrier();
        // The promise has added the rest of the part.
        STAMP(if (team.rank() == 0) marks().adds();)
        if (team.rank() == 0) add_release(lane.out, 1);
        STAMP(if (team.rank() == 0) marks().added();)
    }
    // Nobody waits for the following.
    if (team.rank() == 0 && (lane.kind & LANE_WAITS) && lane.quantum && (before == part.count - 1 || !lane.arrivals)) store_relaxed(lane.operand, from + lane.quantum);
    STAMP(if (team.rank() == 0) end_leg();)
}

// Promises the team's add. The team waits for nobody any more, so its add will come, whatever else begins on the GPUs.
// A rank that waits for the add may let its next kernel begin: see `run_wait`.
DEV void promise(const Lane &lane, Part part) {
    if (lane.kind & LANE_ADDS) add_unordered(lane.out, part_of(lane.value, part.index, part.count) - 1);
}

// One thread looks for all whether a short lane can go on. The operand that it has read, and how many blocks had read
// it before, are for `end_short`.
template <typename Team>
DEV void look_shortly(const Turn &turn, Team team, Stand *stand, const Lane &lane, Part part, u64 &from, u32 &before) {
    from = 0;
    before = 0;
    if (team.rank() == 0) {
        bool ok = true;
        u32 stop = load_relaxed32(&turn.state->stop);
        if (lane.kind & LANE_WAITS) {
            from = load_relaxed(lane.operand);
            u64 value = load_acquire(lane.word);
            // As in `wait_for`.
            if (lane.arrivals) before = count_to(lane.arrivals, part.count - 1 + (u32)(from >> 63));
            ok = false;
#pragma unroll 1
            for (int looks = 0; looks < 64 && !(ok = reached(value, from, lane.quantum)); looks++) value = load_acquire(lane.word);
        }
        stand->failed = stop || turn.follow || !ok ? SHORT_NOT_YET : SHORT_REACHED;
        stand->epoch = ((from + lane.quantum) >> QUANTUM_BITS) - 1;
        STAMP(if (stand->failed == SHORT_REACHED && (lane.kind & LANE_WAITS)) marks().waited(from, lane.quantum);)
    }
}

// The rest of a short lane's wait that takes long. Returns whether the count was reached.
template <typename Team>
APART bool wait_late(const Launch &launch, Team team, Stand *stand, const Lane *at, u64 from, Part part) {
    u32 steps = at->steps, waits = at->kind & LANE_WAITS;
    if (team.rank() == 0) {
        bool ok = !has_failed(launch);
        if (ok && waits) ok = wait_long(launch, (const WaitStep *)(launch.program + 16ull * steps), from, part.index == 0);
        stand[1].failed = !ok;
    }
    team.barrier();
    if (!stand[1].failed) {
        STAMP(if (team.rank() == 0 && waits) marks().waited(from, at->quantum);)
        pass_block(part.alone, team.rank() == 0);
        return true;
    }
    if (team.rank() == 0) give_up(launch, steps, waits);
    return false;
}

// Carries out a short lane whose wait is over, and of whose data nothing has been fetched.
template <typename Team>
DEV void move_behind(Team team, Stand *stand, const Lane &lane, u64 from, u32 before, Part part) {
    if (team.rank() == 0) promise(lane, part);
    u64 first = (u64)part.index * Team::size + team.rank(), stride = (u64)part.count * Team::size;
    const u64 flip = stand->epoch & 1 ? lane.flip : 0;
    const bool behind = lane.kind & LANE_BEHIND;
    u64 src = lane.src + (behind ? flip : 0), dst = lane.dst + (behind ? 0 : flip);
    copy<V16>([=](u64 i) { return src + i * sizeof(V16); }, [=](u64 i) { return dst + i * sizeof(V16); }, first, stride, lane.count);
    u64 end = lane.count * sizeof(V16) + first;
    if (first < lane.tail) {
        u8 byte;
        fetch(byte, src + end);
        put(dst + end, byte);
    }
    end_short(team, lane, from, before, part);
}

// Goes on with a short lane whose wait takes long. It fetches the data again: to keep the fetched data would slow down
// lanes that do not wait.
template <typename Team>
APART void run_late(const Launch &launch, Team team, Stand *stand, const Lane *at, u64 from, u32 before, Part part) {
    if (!wait_late(launch, team, stand, at, from, part)) return;
    const Lane lane = *at;
    move_behind(team, stand, lane, from, before, part);
}

// A short lane whose copy reads what the wait is for: a slot that a peer has filled. Once the wait is over, the next
// kernel may begin while the data is copied. It is not inlined, because a call before this batch's turn costs nothing.
template <typename Team>
APART void run_behind(const Launch &launch, Team team, Stand *stand, const Lane *at, Part part) {
    const Lane lane = *at;
    const Turn turn(launch, part);
    turn.await();
    u64 from;
    u32 before;
    look_shortly(turn, team, stand, lane, part, from, before);
    team.barrier();
    if (stand->failed == SHORT_REACHED) {
        turn.pass(team.rank() == 0);
        move_behind(team, stand, lane, from, before, part);
    } else {
        run_late(launch, team, stand, at, from, before, part);
    }
}

// A short lane, in straight code. To find the next instruction costs as much as to find the next word. So it calls only
// what it needs, and keeps nothing over a call.
template <typename Team>
DEV void run_short(const Launch &launch, Team team, Stand *stand, const Lane *at, Part part) {
    const Lane lane = *at;
    const Turn turn(launch, part);
    turn.await();
    u64 first = (u64)part.index * Team::size + team.rank(), stride = (u64)part.count * Team::size;
    // Fetch the data while the exposure is looked at.
    V16 early[DEPTH];
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
        if (first + k * stride < lane.count) fetch(early[k], lane.src + (first + k * stride) * sizeof(V16));
    // The rest after whole units goes byte by byte. (Measured: a store of 8 bytes to a peer takes much longer than 8
    // stores of one byte, which are combined on their way.)
    u8 tail;
    u64 end = lane.count * sizeof(V16) + first;
    if (first < lane.tail) fetch(tail, lane.src + end);
    u64 from;
    u32 before;
    look_shortly(turn, team, stand, lane, part, from, before);
    team.barrier();
    if (stand->failed == SHORT_NOT_YET) {
        run_late(launch, team, stand, at, from, before, part);
        return;
    }
    turn.pass(team.rank() == 0);
    u64 dst = lane.dst + (stand->epoch & 1 ? lane.flip : 0);
#pragma unroll
    for (int k = 0; k < DEPTH; k++)
        if (first + k * stride < lane.count) put(dst + (first + k * stride) * sizeof(V16), early[k]);
    if (first < lane.tail) put(dst + end, tail);
    // (If this came before the puts, the fetched data would wait for it.)
    if (team.rank() == 0) promise(lane, part);
    if (first + DEPTH * stride < lane.count) {
        u64 src = lane.src;
        copy<V16>([=](u64 i) { return src + i * sizeof(V16); }, [=](u64 i) { return dst + i * sizeof(V16); }, first + DEPTH * stride, stride, lane.count);
    }
    end_short(team, lane, from, before, part);
}

// Like `run_late`, for listed units. (Some of several blocks may be late and others not: the share of a block is the
// same.)
template <typename Team, typename Units>
APART void run_listed_late(const Launch &launch, Team team, Stand *stand, const Lane *at, u64 from, u32 before, Part part) {
    if (!wait_late(launch, team, stand, at, from, part)) return;
    const Lane lane = *at;
    if (team.rank() == 0) promise(lane, part);
    Units units(lane, part.index * Team::size + team.rank(), part.count * Team::size);
    units.begin();
    units.fetch_units();
    units.put_all(lane.dst + (stand->epoch & 1 ? lane.flip : 0));
    end_short(team, lane, from, before, part);
}

// Like `run_short`, for listed units. It is not inlined, because a call before this batch's turn costs nothing. Nothing
// is kept over a later call: fetched data would be kept in memory, and go there only when it has arrived.
template <typename Team, typename Units>
APART void run_listed(const Launch &launch, Team team, Stand *stand, const Lane *at, Part part) {
    const Lane lane = *at;
    const Turn turn(launch, part);
    // List entries that are read here are at hand when this batch's turn comes.
    Units units(lane, part.index * Team::size + team.rank(), part.count * Team::size);
    units.begin();
    turn.await();
    units.fetch_units();
    u64 from;
    u32 before;
    look_shortly(turn, team, stand, lane, part, from, before);
    team.barrier();
    if (stand->failed == SHORT_NOT_YET) {
        run_listed_late<Team, Units>(launch, team, stand, at, from, before, part);
        return;
    }
    turn.pass(team.rank() == 0);
    units.put_all(lane.dst + (stand->epoch & 1 ? lane.flip : 0));
    if (team.rank() == 0) promise(lane, part);
    end_short(team, lane, from, before, part);
}

template <typename Team, template <typename> class Units>
DEV void run_listed(const Launch &launch, Team team, Stand *stand, const Lane *at, Part part) {
    switch (at->unit) {
        case 4: run_listed<Team, Units<V16>>(launch, team, stand, at, part); break;
        case 3: run_listed<Team, Units<u64>>(launch, team, stand, at, part); break;
        default: run_listed<Team, Units<u32>>(launch, team, stand, at, part); break;
    }
}

// The same for counted elements, in wide units or as numbers of 8 bytes.
template <typename Team>
DEV void run_counted(const Launch &launch, Team team, Stand *stand, const Lane *at, Part part) {
    if (at->unit == 4) run_listed<Team, Counted<V16>>(launch, team, stand, at, part);
    else run_listed<Team, Counted<u64>>(launch, team, stand, at, part);
}

// Carries out a lane whose target a kernel has completed. As a rule the kernel has kept its contract: its word has been
// reached, and both numbers are 0. Then nothing is left to do. Otherwise the lane goes step by step, and poisons its words.
APART void run_checks(const Launch &launch, Warp team, Stand *stands, const Lane *at, Part part) {
    const u64 word = at->word, operand = at->operand, quantum = at->quantum, faults = at->src, blocks = at->dst;
    const Turn turn(launch, part);
    turn.await();
    if (team.rank() == 0) {
        u64 fault, block;
        const u64 from = load_relaxed(operand), value = load_acquire(word);
        fetch(fault, faults);
        fetch(block, blocks);
        const u32 stop = load_relaxed32(&turn.state->stop);
        const bool ok = !stop && !turn.follow && !fault && !block && reached(value, from, quantum);
        if (ok) {
            store_relaxed(operand, from + quantum);
            STAMP(marks().waited(from, quantum), end_leg();)
        }
        stands[1].failed = !ok;
    }
    team.barrier();
    if (stands[1].failed) run_steps<false>(launch, team, stands, at, part);
    else turn.pass(team.rank() == 0);
}

template <typename Team>
DEV void run_lands(const Launch &launch, Team team, Stand *stands, const Lane *at, Part part) {
    if (at->kind & LANE_ADDS) run_landing(launch, team, stands, at, part);
    else run_landed(launch, team, stands, at, part);
}

// Carries out a lane that only adds: a post. It has nothing to wait for, but earlier work of the stream must have been
// seen. So the fence is in flight while the stream's state is read.
DEV void run_post(const Launch &launch, const Lane *at, Part part) {
    u64 out = at->out, value = at->value;
    u32 steps = at->steps;
    const Turn turn(launch, part);
    turn.await();
    turn.pass(true);
    u32 stop = load_relaxed32(&turn.state->stop);
    fence();
    if ((stop || turn.follow) && has_failed(launch)) give_up(launch, steps, false);
    else {
        add_relaxed(out, value);
        STAMP(marks().added(), end_leg();)
    }
}

// Carries out a lane that only waits, mostly for a peer's put. One thread has the lane to itself. When the count is
// reached, it only advances the operand and ends. When everything has been promised, the next kernel may begin while
// the data is in flight, because the data needs no room that this kernel could take.
DEV void run_wait(const Launch &launch, const Lane *at, Part part) {
    u64 word = at->word, operand = at->operand, quantum = at->quantum;
    const Turn turn(launch, part);
    turn.await();
    u64 from = load_relaxed(operand);
    u32 stop = load_relaxed32(&turn.state->stop);
    u64 value = load_acquire(word);
    bool ok = false, passed = false;
    if (!stop && !turn.follow) {
        // As in `wait_for`.
#pragma unroll 1
        for (int looks = 0; looks < 64 && !(ok = reached(value, from, quantum)); looks++) {
            if (BEGINS_EARLY && !passed && promised(value, from, quantum)) {
                turn.pass(true);
                passed = true;
            }
            value = load_acquire(word);
        }
    }
    if (!ok) {
        const WaitStep *wait = (const WaitStep *)(launch.program + 16ull * at->steps);
        if (has_failed(launch) || !wait_long(launch, wait, from, true)) return;
    }
    if (!passed) turn.pass(true);
    if (quantum) store_relaxed(operand, from + quantum);
    STAMP(marks().waited(from, quantum), end_leg();)
}

extern "C" __global__ void __launch_bounds__(THREADS, 2) tidegate_batch(const __grid_constant__ Launch launch) {
    __shared__ Stand stands[WARPS][2];
    // No kernel writes records and steps (counters have lines of their own). So they can be read before the earlier
    // work is over.
    const u8 *own = launch.program + (u64)blockIdx.x * launch.stride;
    const Record record = *(const Record *)own;
    u32 member = record.team == TEAM_BLOCKS ? 0 : threadIdx.x / WARP;
    count_teams(record.lanes);
    if (member >= record.lanes) return;
    const Lane *lane = (const Lane *)(own + sizeof(Record)) + member;
    u32 kind = lane->kind;
    STAMP(open_lane(launch, record, lane - member, member);)
    const bool shares = record.team == TEAM_BLOCKS;
    const Part part = {shares ? record.index : 0u, shares ? record.count : 1u, shares || record.lanes == 1};
    if (record.team == TEAM_BLOCKS) {
        if (!(kind & LANE_STEPS)) {
            if (kind & LANE_LANDS) run_lands(launch, Block(), stands[0], lane, part);
            else if (kind & LANE_GATHERS) run_listed<Block, Gathered>(launch, Block(), stands[0], lane, part);
            else if (kind & LANE_LISTED) run_listed<Block, Scattered>(launch, Block(), stands[0], lane, part);
            else if (kind & LANE_COUNTED) run_counted(launch, Block(), stands[0], lane, part);
            else if (kind & LANE_BEHIND) run_behind(launch, Block(), stands[0], lane, part);
            else run_short(launch, Block(), stands[0], lane, part);
            return;
        }
    } else if (kind == LANE_ADDS) {
        if (threadIdx.x % WARP == 0) run_post(launch, lane, part);
        return;
    } else if (kind == LANE_WAITS) {
        if (threadIdx.x % WARP == 0) run_wait(launch, lane, part);
        return;
    } else if (kind == LANE_CHECKS) {
        run_checks(launch, Warp(), stands[member], lane, part);
        return;
    } else if (kind & LANE_LANDS) {
        run_lands(launch, Warp(), stands[member], lane, part);
        return;
    } else if (!(kind & LANE_STEPS)) {
        if (kind & LANE_GATHERS) run_listed<Warp, Gathered>(launch, Warp(), stands[member], lane, part);
        else if (kind & LANE_LISTED) run_listed<Warp, Scattered>(launch, Warp(), stands[member], lane, part);
        else if (kind & LANE_COUNTED) run_counted(launch, Warp(), stands[member], lane, part);
        else if (kind & LANE_BEHIND) run_behind(launch, Warp(), stands[member], lane, part);
        else run_short(launch, Warp(), stands[member], lane, part);
        return;
    }
    if (record.team == TEAM_BLOCKS) run_steps<false>(launch, Block(), stands[0], lane, part);
    else run_steps<false>(launch, Warp(), stands[member], lane, part);
}

// A batch of which a lane reduces. It is a kernel of its own, because all lanes of a kernel have the same number of
// registers. In one kernel with this, lanes that gather had to keep some values in memory. Here lanes have few short
// forms: folds of what lands, reductions, and posts. The others go step by step.
extern "C" __global__ void __launch_bounds__(THREADS, 2) tidegate_reduce(const __grid_constant__ Launch launch) {
    __shared__ Stand stands[WARPS][2];
    const Record &record = *(const Record *)(launch.program + (u64)launch.stride * blockIdx.x);
    const bool shares = record.team == TEAM_BLOCKS;
    const u32 team = shares ? THREADS : WARP, member = threadIdx.x / team;
    const Lane *lane = (const Lane *)(&record + 1) + member;
    const Part part = {record.index, record.count, record.lanes == 1 || shares};
    count_teams(record.lanes);
    if (record.lanes <= member) return;
    STAMP(open_lane(launch, record, (const Lane *)(&record + 1), member);)
    if (lane->kind & LANE_LANDS) {
        run_fold(launch, Either{team}, lane, part);
    } else if (lane->kind == LANE_ADDS) {
        if (threadIdx.x % team == 0) run_post(launch, lane, part);
    } else if (lane->kind & LANE_REDUCES) run_reduction(launch, lane, part, part.index * team + threadIdx.x % team, part.count * team);
    else if (shares) run_steps<true>(launch, Block(), stands[0], lane, part);
    else run_steps<true>(launch, Warp(), stands[member], lane, part);
}
