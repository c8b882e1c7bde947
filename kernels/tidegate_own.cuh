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
// Each block of a grid looks at the words by itself, and so acquires what the peers have released. An add comes behind what
// all blocks have done: they count in the table's head, and the block that counts last adds. There are two such counts,
// used in turn. A peer may answer an epoch once it has the add of the epoch before. So blocks are at most one epoch apart.
//
// # Failure
//
// A kernel fails its stream in the way of a batch: it records the fault in the stream's state, and in the mirror that the
// host reads. From then on no wait and no barrier of the kernel blocks, no thread of the block stores to a peer once it has
// heard, and no add is made. So the kernel comes to its end, sooner if it asks (`failed`), and the item behind it poisons
// the words of all peers.

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
  u64 state;       // 0 while the half is closed; otherwise what is wrong with a kernel that ends now
  u32 closed;      // blocks that have closed the half, until the last one has
  u32 arrived[2];  // the same of blocks that have come to the end of an epoch (or to a post), by turns
  u32 window, rank, awaited;  // says in a fault which window it is, and which rank
  u32 met;                    // blocks that have come to a barrier, until the last one has
  u32 none;
  u64 barriers;  // how many have been passed
  u64 unused[2];
};
struct OwnPeer {
  u64 word, operand;          // what this rank waits for
  u64 out;                    // the address of the peer's word
  u32 window, rank, awaited;  // says what is awaited
  u32 unused;
  u64 more[3];
};
// `crates/core/src/window/lent.rs` and `crates/gpu/src/lower/layout.rs` state the same.
static_assert(sizeof(OwnHead) == 64 && sizeof(OwnPeer) == 64, "as in the table");
static_assert(sizeof(OwnState) == 32 && sizeof(OwnMirror) == 32 + 32 * 64, "as in the stream's state");

enum : u32 { OWN_WAIT = 1, OWN_ABORTED = 2, OWN_COUNT = 3 };
// A word must not come to the byte of its poison. Half of its epochs are the host's.
enum : u64 { OWN_EPOCHS = ((1ull << 36) - (1ull << 20)) / 2 };
// What a kernel does wrong that owns a half. `crates/core/src/error/put_fault.rs` decodes it.
enum OwnersFault { NOT_CLOSED = 8, OUT_OF_TURN = 9, NO_EPOCH_LEFT = 10, LEFT_EXPOSED = 14, LEFT_OPEN = 15 };

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
inline APART bool await_long(OwnState *state, OwnMirror *mirror, const OwnPeer *peer, u64 from, u32 place) {
  OwnBlocked *blocked = &mirror->blocked[place % 64];
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
    // The host watches waits that take long. One of the waiting blocks reports for all of them.
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

// All threads of the team come here. Returns whether this block is the last one. It has then seen what all blocks did.
DEV bool gather(Block, u32 *) {
  block_barrier();
  return true;
}
DEV bool gather(Grid grid, u32 *arrived) {
  __shared__ u32 last;
  block_barrier();
  const u32 blocks = (u32)grid.blocks();
  if (Block().rank() == 0) last = blocks < 2 || arrive((u64)arrived, blocks - 1) == blocks - 1;
  block_barrier();
  return last;
}

// A barrier of the team. On a stream that has failed, some blocks may have left, and no block waits for them.
DEV void meet(Block, OwnHead *, const u32 *) { block_barrier(); }
DEV void meet(Grid grid, OwnHead *head, const u32 *stop) {
  block_barrier();
  const u32 blocks = (u32)grid.blocks();
  if (Block().rank() == 0 && blocks > 1) {
    const u64 before = load_relaxed((u64)&head->barriers);
    if (arrive((u64)&head->met, blocks - 1) == blocks - 1) store_release((u64)&head->barriers, before + 1);
    else
      for (u32 looks = 0; load_acquire((u64)&head->barriers) == before && !(looks % 16 == 0 && load_relaxed32(stop)); looks++) pause(20);
  }
  block_barrier();
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

// What all tokens of a half are made of. Each thread of the team has its own.
template <class Team> class Owned {
  static_assert(CanOwn<Team>::value, "a half is owned by a Block or by the Grid");

 protected:
  OwnHalf half;
  u64 made;   // epochs that the kernel has ended
  bool live;  // nothing has failed that this block knows of
  bool here;  // the token was not moved away

  DEV explicit Owned(const OwnHalf &lent) : half(lent), made(0), here(true) {
    block_barrier();
    if (Block().rank() == 0) *owner_failed() = has_stopped(half.state, half.mirror);
    block_barrier();
    live = !*owner_failed();
  }
  DEV Owned(Owned &&other) : half(other.half), made(other.made), live(other.live), here(other.here) { other.here = false; }
  DEV Owned &operator=(Owned &&other) {
    half = other.half;
    made = other.made;
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
  // Says what is wrong with a kernel that ends now.
  DEV void note(u64 state) const {
    if (leads(Team()) && Block().rank() == 0) store_relaxed((u64)&half.head->state, state);
  }
  // A call on a token that was moved away does nothing, and fails the stream.
  DEV void check() {
    if (here) return;
    if (Block().rank() == 0) fault(OUT_OF_TURN);
    live = false;
  }
  // Whether the words have room for one more epoch.
  DEV void check_room() {
    if (half.peers && from(0) >= OWN_EPOCHS * GRANT_QUANTUM) {
      if (Block().rank() == 0) fault(NO_EPOCH_LEFT);
      live = false;
    }
  }

  // Adds to the words of all peers, behind what the whole team has done. If the stream has failed, what the kernel has
  // computed may be wrong, and nobody must take it for complete. `faults` is where the puts of the team record faults.
  DEV void tell(const u64 *faults) const {
    if (!gather(Team(), &half.head->arrived[made % 2])) return;
    if (!half.peers && faults && Block().rank() == 0) {
      const u64 found = load_relaxed((u64)faults);
      if (found) fault(found);
    }
#pragma unroll 1
    for (u64 k = Block().rank(); k < half.peers; k += Block().size()) {
      // The fence is on its way while the words are looked at.
      const u32 stop = load_relaxed32(&half.state->stop);
      const u64 found = faults ? load_relaxed((u64)faults) : 0;
      const u64 out = peer(k)->out;
      fence();
      if (found) fault(found);
      else if (!stop) add_relaxed(of_thread(out), GRANT_QUANTUM);
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
      if (!ok && (!live || !await_long(half.state, half.mirror, peer(k), from, (u32)k))) *owner_failed() = 1;
    }
    block_barrier();
    live = live && !*(volatile u32 *)owner_failed();
  }

  // Gives the half back to the host.
  DEV void close_half() {
    check();
    if (!gather(Team(), &half.head->closed) || !live) return;
    for (u64 k = Block().rank(); k < half.peers; k += Block().size()) store_relaxed(peer(k)->operand, from(k));
    if (Block().rank() == 0) store_relaxed((u64)&half.head->state, 0);
  }

 public:
  // A barrier of the team, in the middle of an epoch or outside. All of its threads call it. What they did before is seen
  // by all of them behind it. On a stream that has failed, it returns at once.
  DEV void barrier() const { meet(Team(), half.head, &half.state->stop); }
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

  // Exposes the slots to all origins. It does not wait.
  DEV Exposed<T, Team> post() &&;

  // How many slots there are.
  DEV u64 count() const { return this->half.count; }
  // The elements of a slot.
  DEV u64 len_of(unsigned slot) const { return ((const Slot *)this->half.slots)[slot].len; }
  // What the last epoch has brought to a slot. Read it with ordinary loads, and not after the next post.
  DEV const T *read(unsigned slot) const {
    if (!this->here) this->fault(OUT_OF_TURN);
    const Slot &entry = ((const Slot *)this->half.slots)[slot];
    const u64 epochs = *entry.operand / GRANT_QUANTUM + this->made;
    return (const T *)(entry.base + ((epochs - 1) % 2 ? entry.flip : 0));
  }

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
  this->tell(0);
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

  // Gives the outbox back to the host. Every thread of the team calls this once, at the end.
  DEV void close() && { this->close_half(); }
};

// An access epoch. All targets have posted, so a put stores straight to its slot. If the stream has failed, nothing is
// put.
template <class T, class Team> class Access {
  template <class, class> friend class Outbox;
  Outbox<T, Team> outbox;
  DEV explicit Access(Outbox<T, Team> &&outbox) : outbox(move(outbox)) {}

  DEV OutHead *faults() const { return (OutHead *)outbox.half.slots; }
  DEV const OutEntry *entry(u32 slot) const { return (const OutEntry *)((u64)faults() + sizeof(OutHead) + outbox.half.peers * sizeof(OutTarget)) + slot; }

 public:
  DEV void barrier() const { outbox.barrier(); }
  DEV bool failed() const { return outbox.failed(); }
  Access(Access &&) = default;
  Access &operator=(Access &&) = default;

  // How many slots there are.
  DEV u64 count() const { return outbox.half.count; }
  // The elements of a slot.
  DEV u64 len_of(Out<T> to) const { return to.index < count() ? entry(to.index)->len : 0; }

  // A slot that has been looked up: for puts of single values, and for many puts to one slot. It is for this epoch only.
  DEV OutSlot<T> slot(Out<T> to) const {
    OutSlot<T> slot = {faults(), 0, 0, 0, to.index};
    if (!outbox.here) outbox.fault(OUT_OF_TURN);
    if (to.index >= count()) {
      record(faults(), NO_SLOT, to.index, 0);
      slot.len = ~0ull;
    } else {
      const OutEntry entry = *this->entry(to.index);
      const u64 epoch = load_data<u64>(entry.operand) / GRANT_QUANTUM + outbox.made;
      slot.at = entry.base + (epoch % 2 ? entry.flip : 0);
      slot.len = entry.len;
      slot.limit = outbox.live && outbox.here ? entry.len : 0;
    }
    return slot;
  }

  // Puts `count` elements to a slot, from its element `first` on. All threads of the team (which need not be the one that
  // owns the outbox) call it.
  template <class Putting> DEV void put(Putting team, Out<T> to, u64 first, const T *from, u64 count) const { slot(to).put(team, first, from, count); }

  // Puts one element to a slot. One thread calls it.
  DEV void put_value(Out<T> to, u64 index, const T &value) const { slot(to).put_value(index, value); }

  // Completes the epoch: all targets have what was put.
  DEV Outbox<T, Team> complete() && {
    outbox.check();
    outbox.tell(&faults()->fault);
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
