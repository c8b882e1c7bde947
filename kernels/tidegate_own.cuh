// A part of tidegate.cuh: what a kernel does that owns a half of a window, and makes its epochs. That file has the
// contract.
//
// # Model
//
// The table of a half that is lent lies in memory of this GPU: a head, and a cell for each peer
// (`crates/core/src/window/lent.rs`). An epoch of a kernel is an epoch of the host: a post and a complete add a quantum to
// each peer's word, and a wait is over when this rank's own word has come a quantum further. Only the operands differ. A
// batch advances the operand of each wait. A kernel counts its epochs in a register, and advances the operands once, when
// it closes the half. So while it runs, no word of the table changes that all threads read, and L1 keeps them.
//
// Each block of a grid looks at the words by itself, and so acquires what the peers have released. Each block adds a part
// of the quantum, behind a fence of its own. So no block waits for another one's fence, and all fences are on their way at
// the same time: a fence takes as long as the way to the peer and back. The word is a quantum further once each block has
// added.
//
// The word does not say whose parts it has. With two buffers, a block could add to the next epoch before another one has
// added to this one, and the parts of both would make a quantum. So each block counts its waits in the table's head, and
// adds only when all blocks have counted as many. A block waits behind its add to the epoch before, so all have added to
// that one then. As a rule all blocks have counted long since. (An outbox also waits in the epoch itself: there, a block
// that comes late to `start` holds up the `complete` of the others.)
//
// For `await_team` and `barrier`, the blocks also count themselves at each post, complete and barrier. All blocks make the
// same calls. If they wait for each other behind their n-th arrival, none of them arrives again before all have arrived n
// times. So one count is enough: the wait is over when it is n times the number of blocks.
//
// # Memory order
//
// What a block did comes before its part: a barrier of the block, and then the fence of the thread that adds. A wait is an
// acquire load of the thread that looks, and a barrier of the block behind it.
//
// The parts of one epoch come before those of the next in the order of the word. The last thread of a block counts the
// wait, behind a barrier and by an addition that acquires and releases, so it also releases the adds of the block's other
// threads. The additions of all blocks are one release sequence. A thread that is about to add sees the full count by a
// load without order in front of its fence, or by an acquire load. All of them are on one GPU, so the order of that GPU is
// enough.
//
// # Failure
//
// A kernel fails its stream in the way of a batch: it records the fault in the stream's state, and in the mirror that the
// host reads. From then on no wait and no barrier of the kernel blocks. A thread that has heard adds nothing any more, and
// begins no epoch in which it stores. (In an epoch that is open, it may go on storing: the target has posted.)
// A block of which some thread has not added counts no wait any more. So the word keeps parts of one epoch, a fraction of a
// quantum. The kernel comes to its end, sooner if it asks (`failed`), and the item behind it poisons the words of all peers.

#ifndef TIDEGATE_OWN_CUH
#define TIDEGATE_OWN_CUH

namespace tidegate {

// ---- What the host and the kernel share ----

struct OwnFault {
  u32 kind, window, peer, awaited;
  u64 epoch;
};
// The first part of a stream's state, and its mirror. (`kernels/batch_layout.cuh` has the whole.)
struct OwnState {
  u32 stop;  // bit 0: something has failed; bit 1: `fault` says what; bits 8-15: the host has ended the stream
  u32 unused;
  OwnFault fault;
};
struct OwnBlocked {
  u32 active, window, peer, awaited;
  u64 epoch, unused;
};
struct OwnMirror {
  u32 failed, gate;
  OwnFault fault;
  OwnBlocked blocked[64];
};
struct OwnHead {
  u64 state;   // 0 while the half is closed; otherwise what is wrong with a kernel that ends now
  u32 closed;  // blocks that have closed the half, until the last one has
  u32 window, rank, awaited;  // says in a fault which window it is, and which rank
  u64 arrived;                // how often blocks have come to a post, a complete or a barrier, all together
  u64 waited;                 // how many waits blocks have ended, all together
  u64 unused[3];
};
struct OwnPeer {
  u64 word, operand;          // what this rank waits for
  u64 out;                    // the address of the peer's word
  u32 window, rank, awaited;  // says what is awaited
  u32 place;                  // where a long wait is reported
  u64 more[3];
};
// `crates/core/src/window/lent.rs` and `crates/gpu/src/lower/layout.rs` state the same.
static_assert(sizeof(OwnHead) == 64 && sizeof(OwnPeer) == 64, "as in the table");
static_assert(sizeof(OwnState) == 32 && sizeof(OwnMirror) == 32 + 32 * 64, "as in the stream's state");

enum : u32 { OWN_WAIT = 1, OWN_ABORTED = 2, OWN_COUNT = 3 };
// A word must not come to the byte of its poison. Half of its epochs are the host's.
enum : u64 { OWN_EPOCHS = ((1ull << 36) - (1ull << 20)) / 2 };
// What a kernel does wrong that owns a half. `crates/core/src/error/put_fault.rs` decodes it.
enum OwnersFault { NOT_CLOSED = 8, OUT_OF_TURN = 9, NO_EPOCH_LEFT = 10, NO_INBOUND = 11, FOUND_ELSEWHERE = 12, LEFT_EXPOSED = 14, LEFT_OPEN = 15 };

// ---- Failure ----

// The first fault of the stream counts.
inline APART void fail_stream(OwnState *state, OwnMirror *mirror, u32 kind, u32 window, u32 rank, u32 awaited, u64 epoch) {
  if (or_fetch32(&state->stop, 1) & 1) return;
  const OwnFault fault = {kind, window, rank, awaited, epoch};
  state->fault = fault;
  or_fetch32(&state->stop, 2);
  mirror->fault = fault;
  store_release32(&mirror->failed, 1);
}

// Whether the stream has failed, or the host has ended it.
DEV bool has_stopped(OwnState *state, OwnMirror *mirror) {
  const u32 stop = load_relaxed32(&state->stop);
  if (stop && !(stop & 1)) fail_stream(state, mirror, OWN_ABORTED, 0, 0, 0, 0);
  return stop != 0;
}

// ---- Waits ----

DEV bool has_come(u64 value, u64 from) { return (i64)((value & ~GRANT_POISON) - from) >= (i64)GRANT_QUANTUM; }

// The rest of a wait that takes longer than an instant: one thread's, for one peer.
inline APART bool await_long(OwnState *state, OwnMirror *mirror, const OwnPeer *peer, u64 from) {
  OwnBlocked *blocked = &mirror->blocked[peer->place % 64];
  bool is_reported = false, ok = false;
  for (u32 looks = 0;; looks++) {
    const u64 value = load_acquire(peer->word);
    if (has_come(value, from)) {
      ok = true;
      break;
    }
    if (value & GRANT_POISON) {
      fail_stream(state, mirror, OWN_WAIT, peer->window, peer->rank, peer->awaited, from / GRANT_QUANTUM);
      break;
    }
    if (looks % 16 == 0 && has_stopped(state, mirror)) break;
    // The host watches waits that take long. One of the blocks that wait for this peer reports for all of them. (Each peer
    // of each half has a place of its own, as long as there are at most 64.)
    if (looks >= 4096 && looks % 1024 == 0 && !load_relaxed32(&blocked->active)) {
      blocked->window = peer->window;
      blocked->peer = peer->rank;
      blocked->awaited = peer->awaited;
      blocked->epoch = from / GRANT_QUANTUM;
      store_release32(&blocked->active, 1);
      is_reported = true;
    }
    if (looks > 256) pause(looks > 8192 ? 1000 : 50);
  }
  if (is_reported) store_release32(&blocked->active, 0);
  return ok;
}

// ---- Teams ----

// Whether a half of this block has failed.
DEV u32 *owner_failed() {
  __shared__ u32 failed;
  return &failed;
}

// The part of a quantum that this block adds.
DEV u64 part_of_team(Block) { return GRANT_QUANTUM; }
DEV u64 part_of_team(Grid grid) {
  const u64 each = GRANT_QUANTUM / grid.blocks();
  return grid.block() ? each : GRANT_QUANTUM - each * (grid.blocks() - 1);
}

// What a count is when all blocks have counted themselves so often. A block alone does not count.
DEV u64 count_of(Block, u64) { return 0; }
DEV u64 count_of(Grid grid, u64 times) { return grid.blocks() > 1 ? times * grid.blocks() : 0; }

// The last thread of a block counts that the block has come here.
DEV void note_arrival(Block, u64 *) {}
DEV void note_arrival(Grid grid, u64 *count) {
  if (grid.blocks() > 1 && Block().rank() + 1 == Block().size()) add_fetch(of_thread((u64)count), 1);
}

// A thread waits until a count is so high. On a stream that has failed it does not wait, since some blocks may have left.
// Returns whether the count is so high.
DEV bool await_count(const u64 *count, u64 until, const u32 *stop) {
  for (u32 looks = 0; load_acquire((u64)count) < until; looks++) {
    if (looks % 16 == 0 && load_relaxed32(stop)) return false;
    if (looks > 256) pause(20);
  }
  return true;
}

// All threads of the team come here. Returns whether this block is the last one. It has then seen what all blocks did.
DEV bool gather(Block, u32 *) {
  block_barrier();
  return true;
}
DEV bool gather(Grid grid, u32 *count) {
  __shared__ u32 last;
  block_barrier();
  const u32 blocks = (u32)grid.blocks();
  if (Block().rank() == 0) last = blocks < 2 || arrive((u64)count, blocks - 1) == blocks - 1;
  block_barrier();
  return last;
}

// Whether a team can own a half.
template <class Team> struct CanOwn { enum { value = 0 }; };
template <> struct CanOwn<Block> { enum { value = 1 }; };
template <> struct CanOwn<Grid> { enum { value = 1 }; };

// Whether this block keeps the team's notes.
DEV bool leads(Block) { return true; }
DEV bool leads(Grid grid) { return grid.block() == 0; }

// ---- Halves ----

// Moves a token, as `std::move` does, which is not in every compiler's device code.
template <class Token> DEV Token &&move(Token &token) { return static_cast<Token &&>(token); }

// A half as the parameter of a kernel.
struct OwnHalf {
  OwnHead *head;
  const void *slots;  // the table of slots; of an outbox, its head
  u32 count;          // slots
  u32 peers;
  OwnState *state;
  OwnMirror *mirror;
};

// What `find` has found: a slot, for all epochs of the kernel. It is plain data, so a block can keep it in shared memory.
struct FoundSlot {
  const OwnHead *of;  // the half
  u64 at[2];          // where it is in the kernel's even epochs, and in the odd ones; 0 if there is no such slot
  u64 len;            // elements
  u32 index;
};
// A slot of an inbox, which `read` takes.
template <class T> struct FoundIn : FoundSlot {};
// A slot of an outbox, which puts take.
template <class T> struct FoundOut : FoundSlot {};

// What all tokens of a half are made of. Each thread of the team has its own.
template <class Team> class Owned {
  static_assert(CanOwn<Team>::value, "a half is owned by a Block or by the Grid");

 protected:
  OwnHalf half;
  u64 made;   // epochs that the kernel has ended
  u64 most;   // for so many the words have room
  mutable u64 arrivals;  // how often this block has counted itself
  bool live;  // nothing has failed that this block knows of
  bool here;  // the token was not moved away

  DEV explicit Owned(const OwnHalf &lent) : half(lent), made(0), most(~0ull), arrivals(0), here(true) {
    block_barrier();
    // The host's epochs count there, too, and of one peer they may be more than of another.
#pragma unroll 1
    for (u64 k = 0; k < half.peers; k++) {
      const u64 had = load_data<u64>(peer(k)->operand) / GRANT_QUANTUM, left = had < OWN_EPOCHS ? OWN_EPOCHS - had : 0;
      most = left < most ? left : most;
    }
    if (Block().rank() == 0) *owner_failed() = has_stopped(half.state, half.mirror);
    block_barrier();
    live = !*owner_failed();
    note(NOT_CLOSED);
  }
  DEV Owned(Owned &&other) : half(other.half), made(other.made), most(other.most), arrivals(other.arrivals), live(other.live), here(other.here) { other.here = false; }
  DEV Owned &operator=(Owned &&other) {
    half = other.half;
    made = other.made;
    most = other.most;
    arrivals = other.arrivals;
    live = other.live;
    here = other.here;
    other.here = false;
    return *this;
  }
  Owned(const Owned &) = delete;
  Owned &operator=(const Owned &) = delete;

  DEV OwnPeer *peer(u64 k) const { return (OwnPeer *)(half.head + 1) + k; }
  // How many epochs the half had before this one.
  DEV u64 from(u64 k) const { return load_data<u64>(peer(k)->operand) + made * GRANT_QUANTUM; }

  DEV void fault(u64 code) const {
    const OwnHead *head = half.head;
    fail_stream(half.state, half.mirror, OWN_COUNT, head->window, head->rank, head->awaited, code);
  }
  // A fault with the number of a slot. (As many as a fault has room for: see `record`.)
  DEV void fault_of(u64 code, u32 slot) const { fault(code | (u64)(slot < (1u << 20) - 1 ? slot : (1u << 20) - 1) << 4); }
  // Says what is wrong with a kernel that ends now.
  DEV void note(u64 state) const {
    if (leads(Team()) && Block().rank() == 0) store_relaxed((u64)&half.head->state, state);
  }
  // A call on a token that was moved away does nothing, and fails the stream.
  DEV bool is_here() const {
    if (!here && Block().rank() == 0) fault(OUT_OF_TURN);
    return here;
  }
  DEV void check() { live = is_here() && live; }
  // Whether the words have room for one more epoch.
  DEV void check_room() {
    if (made >= most) {
      if (Block().rank() == 0) fault(NO_EPOCH_LEFT);
      live = false;
    }
  }

  // Counts this block once more.
  DEV void arrive_here() const {
    note_arrival(Team(), &half.head->arrived);
    arrivals++;
  }
  // Waits until all blocks have come where this one has counted itself last.
  DEV void await_blocks() const {
    if (!is_here()) return;
    const u64 until = count_of(Team(), arrivals);
    if (until && Block().rank() == 0) await_count(&half.head->arrived, until, &half.state->stop);
    block_barrier();
  }

  // Adds this block's part to the words of all peers, behind what the block has done. If the stream has failed, what the
  // kernel has computed may be wrong, and nobody must take it for complete. The team's puts have recorded their faults in
  // `faults`. The block has ended so many `waits`.
  DEV void tell(u64 waits, const u64 *faults) const {
    block_barrier();
    arrive_here();
    const u64 part = part_of_team(Team()), until = count_of(Team(), waits);
    const u32 *stop = &half.state->stop;
    // Without peers, nobody waits for this, but a kernel must hear that its stream has failed.
    if (!half.peers && Block().rank() == 0) {
      const u64 found = faults ? load_relaxed((u64)faults) : 0;
      if (found) fault(found);
      if (found || has_stopped(half.state, half.mirror)) *owner_failed() = 1;
    }
#pragma unroll 1
    for (u64 k = Block().rank(); k < half.peers; k += Block().size()) {
      // The fence is on its way while the words are looked at.
      const u32 stopped = load_relaxed32(stop);
      const u64 found = faults ? load_relaxed((u64)faults) : 0, waited = until ? load_relaxed((u64)&half.head->waited) : 0;
      const u64 out = peer(k)->out;
      fence();
      if (found) fault(found);
      if (!found && !stopped && (waited >= until || await_count(&half.head->waited, until, stop))) add_relaxed(of_thread(out), part);
      else *owner_failed() = 1;
    }
  }

  // Waits for all peers.
  DEV void await() {
    // All threads have read the last answer.
    block_barrier();
#pragma unroll 1
    for (u64 k = Block().rank(); k < half.peers; k += Block().size()) {
      const u64 from = this->from(k);
      u64 value = load_acquire(peer(k)->word);
      bool ok = false;
      // Short waits end here.
#pragma unroll 1
      for (int looks = 0; looks < 64 && !(ok = has_come(value, from)); looks++) value = load_acquire(peer(k)->word);
      if (!ok && (!live || !await_long(half.state, half.mirror, peer(k), from))) *owner_failed() = 1;
    }
    block_barrier();
    live = live && !*(volatile u32 *)owner_failed();
    if (live && half.peers) note_arrival(Team(), &half.head->waited);
  }

  // Gives the half back to the host. The token is of no use then.
  DEV void close_half() {
    check();
    if (!here) return;
    here = false;
    if (!gather(Team(), &half.head->closed) || !live) return;
    if (Block().rank() == 0) {
      store_relaxed((u64)&half.head->state, 0);
      store_relaxed((u64)&half.head->arrived, 0);
      store_relaxed((u64)&half.head->waited, 0);
    }
    for (u64 k = Block().rank(); k < half.peers; k += Block().size()) store_relaxed(peer(k)->operand, from(k));
  }

  // Looks a slot up whose buffers take turns by the parity of the epoch: of the kernel's first one, it is that of `first`.
  DEV FoundSlot found(u32 index, u64 base, u64 flip, u64 len, u64 first) const {
    const u64 other = base + flip;
    return FoundSlot{half.head, {first % 2 ? other : base, first % 2 ? base : other}, len, index};
  }
  DEV FoundSlot found_none(u32 index) const { return FoundSlot{half.head, {0, 0}, 0, index}; }

 public:
  // A barrier of the team, in the middle of an epoch or outside. All of its threads call it. What they did before is seen
  // by all of them behind it. On a stream that has failed, it returns at once.
  DEV void barrier() const {
    block_barrier();
    if (is_here()) arrive_here();
    await_blocks();
  }
  // Whether a wait of this half has heard, in this block, that the stream has failed. Then the kernel need not go on. All
  // threads of a block get the same answer. Blocks of a grid may get different ones, and none of them waits for another
  // on a stream that has failed.
  DEV bool failed() const { return !live; }
};

template <class T, class Team> class Exposed;
template <class T, class Team> class Access;

// ---- The inbox ----

// An inbox that is closed. Nobody puts to it now, so the kernel may read its slots.
template <class T, class Team> class Inbox : Owned<Team> {
  template <class, class> friend class Exposed;
  template <class> friend class KernelInbox;
  DEV explicit Inbox(const OwnHalf &lent) : Owned<Team>(lent) {}

 public:
  using Owned<Team>::barrier;
  using Owned<Team>::failed;
  Inbox(Inbox &&) = default;
  Inbox &operator=(Inbox &&) = default;

  // Exposes the slots to all origins. It waits for no peer. (In a grid, it may wait until all blocks have ended the wait
  // before.)
  DEV Exposed<T, Team> post() &&;

  // How many slots there are.
  DEV u64 count() const { return this->half.count; }
  // The elements of a slot. One that does not exist has none.
  DEV u64 len_of(unsigned slot) const { return slot < count() ? ((const Slot *)this->half.slots)[slot].len : 0; }
  DEV u64 len_of(const FoundIn<T> &slot) const { return slot.len; }
  // A slot that has been looked up, for all epochs of the kernel. One that does not exist has no elements.
  DEV FoundIn<T> find(unsigned slot) const {
    if (slot >= count()) return FoundIn<T>{this->found_none(slot)};
    const Slot entry = ((const Slot *)this->half.slots)[slot];
    // Epoch n has brought what is read before epoch n + 1.
    return FoundIn<T>{this->found(slot, (u64)entry.base, entry.flip, entry.len, *entry.operand / GRANT_QUANTUM + 1)};
  }
  // What the last epoch has brought to a slot. Read it with ordinary loads, and not after the next post. A slot that does
  // not exist fails the stream, and has no address.
  DEV const T *read(const FoundIn<T> &slot) const {
    if (!this->here) this->fault(OUT_OF_TURN);
    if (slot.of != this->half.head) this->fault_of(FOUND_ELSEWHERE, slot.index);
    else if (!slot.at[0]) this->fault_of(NO_INBOUND, slot.index);
    return (const T *)(this->made % 2 ? slot.at[1] : slot.at[0]);
  }
  DEV const T *read(unsigned slot) const { return read(find(slot)); }

  // Gives the inbox back to the host. Every thread of the team calls this once, at the end.
  DEV void close() && { this->close_half(); }
};

// An inbox that is exposed to all origins. The kernel does not touch its slots.
template <class T, class Team> class Exposed {
  template <class, class> friend class Inbox;
  Inbox<T, Team> inbox;
  DEV explicit Exposed(Inbox<T, Team> &&inbox) : inbox(move(inbox)) {}

 public:
  DEV void barrier() const { inbox.barrier(); }
  // A barrier of the team that begins with its `post`: waits until all blocks have come there, and sees what they did
  // before. It is shorter than `barrier`, which begins here.
  DEV void await_team() const { inbox.await_blocks(); }
  DEV bool failed() const { return inbox.failed(); }
  Exposed(Exposed &&) = default;
  Exposed &operator=(Exposed &&) = default;

  // Waits until all origins have completed.
  DEV Inbox<T, Team> wait() && {
    inbox.check();
    inbox.await();
    inbox.made += 1;
    inbox.note(NOT_CLOSED);
    return move(inbox);
  }
};

template <class T, class Team> DEV Exposed<T, Team> Inbox<T, Team>::post() && {
  this->check();
  this->check_room();
  this->note(LEFT_EXPOSED);
  this->tell(this->made, 0);
  return Exposed<T, Team>(move(*this));
}

// ---- The outbox ----

// An outbox that is closed.
template <class T, class Team> class Outbox : Owned<Team> {
  template <class, class> friend class Access;
  template <class> friend class KernelOutbox;
  DEV explicit Outbox(const OwnHalf &lent) : Owned<Team>(lent) {}

 public:
  using Owned<Team>::barrier;
  using Owned<Team>::failed;
  Outbox(Outbox &&) = default;
  Outbox &operator=(Outbox &&) = default;

  // Waits until all targets have posted, and begins an epoch with them.
  DEV Access<T, Team> start() &&;

  // How many slots there are.
  DEV u64 count() const { return this->half.count; }

  // A slot that has been looked up, for all epochs of the kernel. One that does not exist has no elements.
  DEV FoundOut<T> find(Out<T> to) const {
    if (to.index >= count()) return FoundOut<T>{this->found_none(to.index)};
    const OutHead *head = (const OutHead *)this->half.slots;
    const OutEntry entry = ((const OutEntry *)((u64)(head + 1) + this->half.peers * sizeof(OutTarget)))[to.index];
    return FoundOut<T>{this->found(to.index, entry.base, entry.flip, entry.len, *(const u64 *)entry.operand / GRANT_QUANTUM)};
  }

  // A barrier of the team that begins with the last `complete`, which all blocks have called. See `Exposed::await_team`.
  DEV void await_team() const { this->await_blocks(); }

  // Gives the outbox back to the host. Every thread of the team calls this once, at the end.
  DEV void close() && {
    // A put that came too late, through the slot of an epoch that is over.
    block_barrier();
    const u64 found = Block().rank() == 0 ? load_relaxed((u64)this->half.slots) : 0;
    if (found) this->fault(found);
    this->close_half();
  }
};

// An access epoch. All targets have posted, so a put stores straight to its slot. If the stream has failed, nothing is
// put.
template <class T, class Team> class Access {
  template <class, class> friend class Outbox;
  Outbox<T, Team> outbox;
  DEV explicit Access(Outbox<T, Team> &&outbox) : outbox(move(outbox)) {}

  DEV OutHead *faults() const { return (OutHead *)outbox.half.slots; }

 public:
  DEV void barrier() const { outbox.barrier(); }
  DEV bool failed() const { return outbox.failed(); }
  Access(Access &&) = default;
  Access &operator=(Access &&) = default;

  // How many slots there are.
  DEV u64 count() const { return outbox.count(); }
  // The elements of a slot. One that does not exist has none.
  DEV u64 len_of(Out<T> to) const { return find(to).len; }
  DEV u64 len_of(const FoundOut<T> &to) const { return to.len; }
  DEV FoundOut<T> find(Out<T> to) const { return outbox.find(to); }

  // A slot that has been looked up, for puts of this epoch.
  DEV OutSlot<T> slot(const FoundOut<T> &to) const {
    if (!outbox.here) outbox.fault(OUT_OF_TURN);
    const bool ours = to.of == outbox.half.head, is = ours && to.at[0];
    if (!is) record(faults(), ours ? (u32)NO_SLOT : (u32)FOUND_ELSEWHERE, to.index, 0);
    return OutSlot<T>{faults(), outbox.made % 2 ? to.at[1] : to.at[0], is && outbox.live && outbox.here ? to.len : 0, is ? to.len : ~0ull, to.index};
  }
  DEV OutSlot<T> slot(Out<T> to) const { return slot(find(to)); }

  // Puts `count` elements to a slot, from its element `first` on. All threads of the team (which need not be the one that
  // owns the outbox) call it.
  template <class Putting, class To> DEV void put(Putting team, const To &to, u64 first, const T *from, u64 count) const { slot(to).put(team, first, from, count); }

  // Puts one element to a slot. One thread calls it.
  template <class To> DEV void put_value(const To &to, u64 index, const T &value) const { slot(to).put_value(index, value); }

  // Completes the epoch: all targets have what was put. It waits for no peer. (In a grid, it may wait until all blocks have
  // started.)
  DEV Outbox<T, Team> complete() && {
    outbox.check();
    outbox.tell(outbox.made + 1, &faults()->fault);
    outbox.made += 1;
    outbox.note(NOT_CLOSED);
    return move(outbox);
  }
};

template <class T, class Team> DEV Access<T, Team> Outbox<T, Team>::start() && {
  this->check();
  this->check_room();
  this->note(LEFT_OPEN);
  this->await();
  return Access<T, Team>(move(*this));
}

// ---- Parameters ----

// The inbox as a kernel gets it. A team of the kernel takes it, once: all of its threads call `own`.
template <class T> class KernelInbox {
  OwnHalf half;

 public:
  template <class Team> DEV Inbox<T, Team> own(Team) const { return Inbox<T, Team>(half); }
};

// The outbox as a kernel gets it. See `KernelInbox`.
template <class T> class KernelOutbox {
  OwnHalf half;

 public:
  template <class Team> DEV Outbox<T, Team> own(Team) const { return Outbox<T, Team>(half); }
};

static_assert(sizeof(KernelInbox<double>) == 40 && sizeof(KernelOutbox<double>) == 40, "as the parameters of `kernel!`");

}  // namespace tidegate

#endif  // TIDEGATE_OWN_CUH
