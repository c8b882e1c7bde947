// A part of batch.cu: short lanes whose few bytes land with tags.
//
// An add to a word comes after a fence, and a fence takes a trip to the peer and back. Bytes with a tag beside them
// need none. A store of 8 bytes is one access, so a reader that finds the tag of its epoch has the 4 bytes beside it.
// So the put is over when its stores are in flight. The waiting rank copies the landed bytes to the slot, and adds to
// the word itself. An origin that puts in another way adds to the word, after a fence, as usual: a wait accepts both.
//
// Behind such a wait, its lane may copy the slot to another place. The thread that finds bytes puts them there, too. So
// for data that has landed, the copy needs no barrier, and reads nothing again.
//
// Memory order. A pair is two relaxed accesses of 8 bytes. Each carries its own tag, so its contents need no order. The
// landing is written again in the buffer's next epoch, after the exposure, which the target's post released when the
// wait was over. The wait writes the slot, and later kernels read it. If an origin writes the slot in a later epoch,
// that comes after the same post. If it wrote the slot in an earlier epoch, that epoch came by the word, and its wait
// acquired the word. A word that counts a later epoch releases all landings before: see `look`.

// Twice four bytes, which a thread moves at a time, and their two tags.
struct Pair {
    u32 first, second;
};

DEV u32 tag_of(u64 from, u64 quantum) { return (u32)((from + quantum) >> QUANTUM_BITS); }

// The number of an epoch is one less than its tag.
DEV bool is_odd(u32 tag) { return !(tag & 1); }

DEV Pair fetch_pair(u64 src, u64 i, u64 bytes) {
    Pair pair = {0, 0};
    fetch(pair.first, src + 8 * i);
    if (8 * i + 4 < bytes) fetch(pair.second, src + 8 * i + 4);
    return pair;
}

DEV void land(u64 landing, u64 i, Pair pair, u32 tag) {
    store_both(landing + 16 * i, pair.first | (u64)tag << 32, pair.second | (u64)tag << 32);
}

// Waits for an exposure, as one thread. Returns whether it has come.
DEV bool await_exposure(const Launch &launch, const Turn &turn, u32 stop, u64 word, u64 from, const WaitStep *wait) {
    u64 value = load_acquire(word);
    // As in `wait_for`.
#pragma unroll 1
    for (int looks = 0; !stop && !turn.follow && looks < 64; looks++) {
        if (reached(value, from, QUANTUM)) return true;
        value = load_acquire(word);
    }
    return !has_failed(launch) && wait_long(launch, wait, from, true);
}

// Carries out a wait for the exposure, and a put that fills its slot. One team does it, a warp or a block. It is for
// puts that its threads can move at once: for longer ones, a fence would take less time.
template <typename Team>
APART void run_landing(const Launch &launch, Team team, Stand *stand, const Lane *at, Part part) {
    const u64 first = team.rank(), src = at->src, bytes = at->count, pairs = (bytes + 7) / 8;
    const u64 word = at->word, quantum = at->quantum, operand = at->operand;
    const u64 landings = at->landing, flip = at->landing_flip;
    const Turn turn(launch, part);
    turn.await();
    // Fetch the data while the exposure is looked at: all of it, if it is as short as the host promises.
    Pair early;
    if (first < pairs) early = fetch_pair(src, first, bytes);
    if (first == 0) {
        u64 from = load_relaxed(operand);
        u32 stop = load_relaxed32(&turn.state->stop);
        const bool exposed = await_exposure(launch, turn, stop, word, from, (const WaitStep *)(launch.program + 16ull * at->steps));
        stand->failed = !exposed;
        stand->epoch = from;
        STAMP(if (exposed) marks().waited(from, quantum);)
    }
    team.barrier();
    if (stand->failed) {
        if (first == 0) give_up(launch, at->steps, true);
        return;
    }
    turn.pass(first == 0);
    const u32 tag = tag_of(stand->epoch, quantum);
    const u64 landing = landings + (is_odd(tag) ? flip : 0);
    if (first < pairs) land(landing, first, early, tag);
    for (u64 i = first + Team::size; i < pairs; i += Team::size) land(landing, i, fetch_pair(src, i, bytes), tag);
    if (first == 0) store_relaxed(operand, stand->epoch + quantum);
    STAMP(if (first == 0) marks().moves(), end_leg();)
}

// The search of a thread of a wait: its pairs, from `next` on, one after the other.
template <typename Team>
struct Search {
    u64 word, from, quantum, landing, slot, bytes;
    u64 to;  // where the lane copies the slot, or 0
    u64 next;
    u32 tag;
    bool come;     // the word had, when it was looked at last
    bool by_word;  // nothing has landed: the slot is as the origin has left it

    // Puts the thread's next pair to a place that gets all of them.
    DEV void bring(u64 place, Pair pair) const {
        put(place + next, pair.first);
        if (next + 4 < bytes) put(place + next + 4, pair.second);
    }

    // Copies the thread's part of what has come by the word. (The thread has acquired the word, if it has pairs.)
    DEV void copy_slot(u32 rank) {
        if (((slot | to | bytes) & 15) == 0) {
            const u64 from = slot, place = to;
            copy<V16>([=](u64 i) { return from + i * sizeof(V16); }, [=](u64 i) { return place + i * sizeof(V16); }, rank, Team::size, bytes / sizeof(V16));
        } else {
            for (next = 8 * rank; next < bytes; next += 8 * Team::size) bring(to, fetch_pair(slot, next / 8, bytes));
        }
    }

    // Looks a few times for each pair. Returns whether all have come. Calls `then`, more than once, when the word
    // promises them.
    template <typename Then>
    DEV bool look(int times, Then then) {
        for (; next < bytes; next += 8 * Team::size) {
            bool landed = false;
#pragma unroll 1
            for (int looks = 0; looks < times && !landed; looks++) {
                // Both loads are in flight together. But the word may have been reached for a later epoch, which came
                // by the word after one that landed. So the word proves something only if this thread acquired it
                // *before* it looked at the pair: had this epoch landed, the tags would be there.
                const bool before = come;
                u64 first, second;
                load_both(landing + 2 * next, first, second);
                const u64 value = load_acquire(word);
                come = reached(value, from, quantum);
                if (BEGINS_EARLY && !come && promised(value, from, quantum)) then();
                if ((u32)(first >> 32) == tag && (u32)(second >> 32) == tag) {
                    const Pair pair = {(u32)first, (u32)second};
                    bring(slot, pair);
                    if (to) bring(to, pair);
                    landed = true;
                } else if (before) {
                    // This keeps all tags as recent as the buffer's last epoch, so that no tag is mistaken for that of
                    // an epoch 2^32 later.
                    for (; next < bytes; next += 8 * Team::size) store_both(landing + 2 * next, (u64)tag << 32, (u64)tag << 32);
                    by_word = true;
                    return true;
                }
            }
            if (!landed) return false;
        }
        return true;
    }
};

enum { NOT_COME = 0, HAS_LANDED = 1, BY_WORD = 2 };

// The rest of `run_landed` if it takes longer than an instant. All threads look together, until all have found their
// pairs, or these will not come. (Arguments are by value, so that those of the first looks stay in registers.)
template <typename Team>
APART u32 landed_late(const Launch &launch, Team team, Stand *stands, const Lane *at, Search<Team> search) {
    enum { GO_ON = 0, POISONED = 1, FAILED = 2 };
    const bool first = team.rank() == 0;
    const WaitStep *wait = (const WaitStep *)(launch.program + 16ull * at->steps);
    Blocked *blocked = &launch.mirror->blocked[wait->slot];
    const u64 epoch = search.from >> QUANTUM_BITS;
    bool is_reported = false, ok = false;
    for (u32 round = 0;; round++) {
        // The two are used in turn, because a slow thread may read one while the first thread is at the next.
        Stand *stand = stands + round % 2;
        if (first) {
            u64 value = load_acquire(search.word);
            bool poisoned = (value & POISON) && !reached(value, search.from, search.quantum);
            stand->epoch = has_failed(launch) ? FAILED : poisoned ? POISONED : GO_ON;
            stand->failed = 0;
            // As in `wait_long`.
            if (round >= 64 && round % 64 == 0 && !load_relaxed32(&blocked->active)) {
                report(blocked, wait, epoch);
                is_reported = true;
            }
        }
        team.barrier();
        const u64 end = stand->epoch;
        // Data that has landed by the time of the poison counts.
        if (end == FAILED || !search.look(round < 64 ? 16 : 1, [] {})) stand->failed = 1;
        team.barrier();
        ok = !stand->failed;
        if (ok || end != GO_ON) {
            if (first && !ok && end == POISONED) fail_wait(launch, wait, epoch);
            break;
        }
        if (round > 16) pause(round > 256 ? 1000 : 50);
    }
    if (is_reported) store_release32(&blocked->active, 0);
    return !ok ? NOT_COME : search.by_word ? BY_WORD : HAS_LANDED;
}

// Carries out a lane that is a wait for a word whose data may land instead, and perhaps a copy. If the word promises its
// data, the next kernel may begin, as in `run_wait`. For landing data, it may begin as soon as the first of it is there.
template <typename Team>
APART void run_landed(const Launch &launch, Team team, Stand *stands, const Lane *at, Part part) {
    const bool first = team.rank() == 0;
    if (first) stands[1].failed = 0;
    team.barrier();
    const u64 operand = at->operand, landings = at->landing, landing_flip = at->landing_flip, slot = at->dst, flip = at->flip;
    Search<Team> search;
    search.to = at->out;
    search.word = at->word;
    search.quantum = at->quantum;
    search.bytes = at->count;
    search.next = 8 * team.rank();
    search.come = search.by_word = false;
    const Turn turn(launch, part);
    turn.await();
    const u32 stop = load_relaxed32(&turn.state->stop);
    search.from = load_relaxed(operand);
    search.tag = tag_of(search.from, search.quantum);
    search.landing = landings + (is_odd(search.tag) ? landing_flip : 0);
    search.slot = slot + (is_odd(search.tag) ? flip : 0);
    // As in `wait_for`.
    bool passed = false;
    const auto pass = [&] {
        if (!passed) turn.pass(first);
        passed = true;
    };
    if (stop || turn.follow || !search.look(64, pass)) stands[1].failed = 1;
    team.barrier();
    u32 how = search.by_word ? BY_WORD : HAS_LANDED;
    if (stands[1].failed) how = landed_late(launch, team, stands, at, search);
    pass();
    if (how == BY_WORD && search.to) search.copy_slot(team.rank());
    if (first && how != NOT_COME) {
        // Nobody else adds for this epoch, so this wait does.
        if (how == HAS_LANDED) red_u64(search.word, search.quantum);
        store_relaxed(operand, search.from + search.quantum);
        STAMP(marks().waited(search.from, search.quantum);)
        STAMP(if (search.to) marks().moves();)
        STAMP(end_leg();)
    }
}
