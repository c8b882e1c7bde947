// A part of tidegate.cuh: what a kernel does that fills an open epoch. That file has the contract.
//
// # Model
//
// The table of an outbox lies in memory of this GPU: a head, a cell for each target, and an entry for each slot
// (`crates/core/src/window/grants.rs`). The stream has waited for the targets, and then given their grants. A put looks
// at the grant of its target, and stores. Loads of the table are ordinary ones, which L1 keeps: while the kernel runs,
// only its own completions change the table. (So a put that breaks the contract, behind a completion of the same kernel,
// may find the old grant.)
//
// # Memory order
//
// The barrier of a block orders its stores before the one thread that counts the block. The count is an acquire and a
// release within the GPU. So the thread that counts last has seen the stores of all blocks, and its add, a release at
// system scope, covers them. Only that thread pays for a fence of the whole system.

#ifndef TIDEGATE_PUT_CUH
#define TIDEGATE_PUT_CUH

// The functions of the machine are in a namespace of their own, and its macros end with this file. (In sources that
// include the machine by themselves, both are outside.)
#if !defined(TIDEGATE_MACHINE_CUH)
#define TIDEGATE_OWN_MACHINE
namespace tidegate {
namespace of_machine {
#include "machine.cuh"
}
using namespace of_machine;
}  // namespace tidegate
#endif

namespace tidegate {

// ---- Teams ----

// The threads that carry out a put together.
struct Thread {
  DEV u64 rank() const { return 0; }
  DEV u64 size() const { return 1; }
};
struct Block {
  DEV u64 rank() const { return threadIdx.x + (u64)blockDim.x * (threadIdx.y + (u64)blockDim.y * threadIdx.z); }
  DEV u64 size() const { return (u64)blockDim.x * blockDim.y * blockDim.z; }
};
// A warp of NVIDIA's GPUs, a wave of AMD's. The size of the block must be a multiple of its size.
struct Warp {
  static constexpr unsigned width = WARP;
  DEV u64 rank() const { return Block().rank() % WARP; }
  DEV u64 size() const { return WARP; }
};
struct Grid {
  DEV u64 block() const { return blockIdx.x + (u64)gridDim.x * (blockIdx.y + (u64)gridDim.y * blockIdx.z); }
  DEV u64 blocks() const { return (u64)gridDim.x * gridDim.y * gridDim.z; }
  DEV u64 rank() const { return block() * Block().size() + Block().rank(); }
  DEV u64 size() const { return blocks() * Block().size(); }
};

// ---- The table ----

struct OutHead {
  u64 fault;
  u64 unused[7];
};
struct OutTarget {
  u64 given, check, passed;
  u64 done;  // the address of the target's word
  u32 zero, arrived;
  u64 bell;  // of host streams
  u64 unused[2];
};
struct OutEntry {
  u64 base;
  u64 len;      // elements
  u64 flip;     // bytes
  u64 operand;  // the address of the word that counts the epochs
  const OutTarget *target;
};
// `crates/core/src/window/grants.rs` states the same.
static_assert(sizeof(OutHead) == 64 && sizeof(OutTarget) == 64 && sizeof(OutEntry) == 40, "as in the table");
static_assert(sizeof(void *) == 8, "as in the table");

enum : u64 { GRANT_QUANTUM = 1ull << 20, GRANT_POISON = 1ull << 62 };

// What a kernel does wrong. `crates/core/src/error/put_fault.rs` decodes it.
enum PutFault { BEYOND = 1, NO_SLOT = 2, COMPLETED = 3, OTHER_TARGET = 4, COMPLETED_TWICE = 5, NOT_TOGETHER = 6, UNALIGNED = 7 };

// The first fault counts.
DEV void record(OutHead *head, u32 fault, u64 slot, u64 end) {
  const u64 most_slot = (1ull << 20) - 1, most_end = (1ull << 40) - 1;
  swap64((u64)&head->fault, 0, fault | (slot < most_slot ? slot : most_slot) << 4 | (end < most_end ? end : most_end) << 24);
}

// ---- Copies ----

// A unit of the kernel's own data, or of a peer's.
template <class Unit, bool of_peer> DEV Unit load_unit(u64 at) {
  if constexpr (of_peer) {
    Unit unit;
    fetch(unit, at);
    return unit;
  } else {
    return load_data<Unit>(at);
  }
}

template <class Unit, bool of_peer> DEV void copy_units(u64 to, u64 from, u64 units, u64 rank, u64 size) {
  // Several loads are on their way before the first is stored.
  const u32 depth = 8;
  u64 i = rank;
#pragma unroll 1
  for (; i + (depth - 1) * size < units; i += depth * size) {
    Unit some[depth];
#pragma unroll
    for (u32 k = 0; k < depth; k++) some[k] = load_unit<Unit, of_peer>(from + (i + k * size) * sizeof(Unit));
#pragma unroll
    for (u32 k = 0; k < depth; k++) put(to + (i + k * size) * sizeof(Unit), some[k]);
  }
#pragma unroll 1
  for (; i < units; i += size) put(to + i * sizeof(Unit), load_unit<Unit, of_peer>(from + i * sizeof(Unit)));
}

template <unsigned bytes> struct UnitOf;
template <> struct UnitOf<1> { typedef u8 type; };
template <> struct UnitOf<2> { typedef u16 type; };
template <> struct UnitOf<4> { typedef u32 type; };
template <> struct UnitOf<8> { typedef u64 type; };

// Copies bytes whose addresses are multiples of `align`, by one of `size` threads. They are of a peer's memory, or go there.
template <unsigned align, bool of_peer> DEV void copy(u64 to, u64 from, u64 bytes, u64 rank, u64 size) {
  const unsigned least = align < 8 ? align : 8;
  typedef typename UnitOf<least>::type Unit;
  // Most puts of one value end here.
  if (bytes <= least) {
    if (bytes && rank == 0) put(to, load_unit<Unit, of_peer>(from));
    return;
  }
  if ((to ^ from) % sizeof(V16) != 0) {
    copy_units<Unit, of_peer>(to, from, bytes / least, rank, size);
    return;
  }
  u64 before = (0 - to) % sizeof(V16);
  if (before > bytes) before = bytes;
  const u64 units = (bytes - before) / sizeof(V16), behind = before + units * sizeof(V16);
  copy_units<V16, of_peer>(to + before, from + before, units, rank, size);
  // What is before and behind the whole lines.
  const u64 first = before / least, all = first + (bytes - behind) / least;
#pragma unroll 1
  for (u64 i = rank; i < all; i += size) {
    const u64 at = i < first ? i * least : behind + (i - first) * least;
    put(to + at, load_unit<Unit, of_peer>(from + at));
  }
}

template <class T> DEV void copy_value(u64 to, const T &value) {
  if constexpr (sizeof(T) == alignof(T) && sizeof(T) <= 8) {
    typedef typename UnitOf<sizeof(T)>::type Unit;
    put(to, load_data<Unit>((u64)&value));
  } else {
    const unsigned least = alignof(T) < 8 ? alignof(T) : 8;
    typedef typename UnitOf<least>::type Unit;
#pragma unroll
    for (u64 i = 0; i < sizeof(T) / least; i++) put(to + i * least, load_data<Unit>((u64)&value + i * least));
  }
}

// An element of a peer's memory; zeros if there is no address.
template <class T> DEV T load_value(u64 from) {
  const unsigned least = alignof(T) < 8 ? alignof(T) : 8;
  typedef typename UnitOf<least>::type Unit;
  alignas(alignof(T)) Unit units[sizeof(T) / least] = {};
  if (from) {
#pragma unroll
    for (u64 i = 0; i < sizeof(T) / least; i++) fetch(units[i], from + i * least);
  }
  return load_data<T>((u64)units);
}

#if defined(TIDEGATE_CHECKS)
// Whether all threads of the team have the same arguments. (A thread that is missing is not found: the others wait for it.)
template <class Team> DEV bool is_together(Team, u64, u64, u64, u64) { return true; }
DEV bool is_together(Warp warp, u64, u64, u64, u64) { return Block().size() % warp.size() == 0; }
DEV bool is_together(Block block, u64 slot, u64 first, u64 from, u64 count) {
  __shared__ u64 said[4];
  __shared__ u32 differ;
  block_barrier();
  if (block.rank() == 0) said[0] = slot, said[1] = first, said[2] = from, said[3] = count, differ = 0;
  block_barrier();
  if (said[0] != slot || said[1] != first || said[2] != from || said[3] != count) *(volatile u32 *)&differ = 1;
  block_barrier();
  return !*(volatile u32 *)&differ;
}
// What is wrong with the arguments of a team, whose own elements are at `own`.
template <unsigned align, class Team> DEV u32 check_team(Team team, u64 slot, u64 first, u64 own, u64 count) {
  if (!is_together(team, slot, first, own, count)) return NOT_TOGETHER;
  return own % align ? UNALIGNED : 0;
}
#else
template <unsigned, class Team> DEV u32 check_team(Team, u64, u64, u64, u64) { return 0; }
#endif

// Whether the block of this thread is the last of so many to come here. The count begins again at 0. (The next kernel
// that counts there comes later in the order of the stream.)
DEV bool is_last(OutTarget *target, u32 blocks) { return blocks < 2 || arrive((u64)&target->arrived, blocks - 1) == blocks - 1; }

// ---- The slots of an open outbox ----

// The number of an outbound slot: `Out::index` of its handle.
template <class T> struct Out {
  unsigned index;
};

DEV bool fits(u64 first, u64 count, u64 len) { return first <= len && count <= len - first; }
DEV u64 end_of(u64 first, u64 count) { return count > ~0ull - first ? ~0ull : first + count; }

// One slot, looked up: a value that is put needs a comparison and a store then. It is plain data, so a block can keep it
// in shared memory. If the stream has failed, nothing is put.
template <class T> struct OutSlot {
  OutHead *head;
  u64 at;
  u64 limit;  // elements that may be put: all, or 0
  u64 len;
  u32 index;

  DEV void put_value(u64 i, const T &value) const {
    if (i < limit) copy_value(at + i * sizeof(T), value);
    else if (i >= len) record(head, BEYOND, index, i + 1);
  }
  // All threads of the team call it.
  template <class Team> DEV void put(Team team, u64 first, const T *from, u64 count) const {
    if (may(check_team<alignof(T)>(team, index, first, (u64)from, count), first, count))
      copy<alignof(T), false>(at + first * sizeof(T), (u64)from, count * sizeof(T), team.rank(), team.size());
  }

 protected:
  DEV bool may(u32 found, u64 first, u64 count) const {
    if (!found && fits(first, count, limit)) return true;
    if (!found && !fits(first, count, len)) found = BEYOND;
    if (found) record(head, found, index, end_of(first, count));
    return false;
  }
};

// The same of a range, which a kernel can get from, too. If the stream has failed, it gets zeros.
template <class T> struct OutRange : OutSlot<T> {
  DEV T get_value(u64 i) const {
    if (i >= this->len) record(this->head, BEYOND, this->index, i + 1);
    return load_value<T>(i < this->limit ? this->at + i * sizeof(T) : 0);
  }
  template <class Team> DEV void get(Team team, u64 first, T *to, u64 count) const {
    if (this->may(check_team<alignof(T)>(team, this->index, first, (u64)to, count), first, count))
      copy<alignof(T), true>((u64)to, this->at + first * sizeof(T), count * sizeof(T), team.rank(), team.size());
  }
};

// All outbound slots of a window. A kernel can put to them, and nothing else.
template <class T> class OutSlots {
  OutHead *head;
  u32 slots;
#if defined(TIDEGATE_CHECKS)
  // The highest bit says that this thread has completed a target.
  mutable u32 number;
  DEV u32 targets() const { return number & ~0u >> 1; }
  DEV bool has_completed() const { return number >> 31; }
  DEV void completes() const { number |= 1u << 31; }
#else
  u32 number;
  DEV u32 targets() const { return number; }
  DEV bool has_completed() const { return false; }
  DEV void completes() const {}
#endif

  template <class> friend class LastSlots;
  template <class> friend class AllSlots;
  template <class> friend class OutRanges;
  template <class> friend class LastRanges;
  template <class> friend class AllRanges;

  DEV const OutEntry *entry(u32 slot) const { return (const OutEntry *)((u64)head + sizeof(OutHead) + targets() * sizeof(OutTarget)) + slot; }

  // Where the elements are to be stored; 0 if they may not be. `only` is the one target that may be put to, or 0. `found`
  // is what is wrong already. (A fault is recorded in one place, since each one would be inlined.)
  DEV u64 place(u32 slot, u64 first, u64 count, const OutTarget *only, u32 found) const {
    u64 at = 0, end = 0;
    if (!found && slot >= slots) found = NO_SLOT;
    if (!found) {
      const OutEntry entry = *this->entry(slot);
      // Both are on their way at once.
      const u64 given = entry.target->given, operand = *(const u64 *)entry.operand;
      if (!fits(first, count, entry.len)) {
        found = BEYOND;
        end = end_of(first, count);
      } else if (only && entry.target != only) {
        found = OTHER_TARGET;
      } else if (given & GRANT_POISON) {
        return 0;
      } else if (!(given / GRANT_QUANTUM % 2) || has_completed()) {
        found = COMPLETED;
      } else {
        const u64 odd = (operand / GRANT_QUANTUM - 1) % 2;
        at = entry.base + (odd ? entry.flip : 0) + first * sizeof(T);
      }
    }
    if (found) record(head, found, slot, end);
    return at;
  }

  template <class Team> DEV void put_to(Team team, Out<T> to, u64 first, const T *from, u64 count, const OutTarget *only) const {
    const u64 at = place(to.index, first, count, only, check_team<alignof(T)>(team, to.index, first, (u64)from, count));
    if (at) copy<alignof(T), false>(at, (u64)from, count * sizeof(T), team.rank(), team.size());
  }

  template <class Team> DEV void get_from(Team team, Out<T> from, u64 first, T *to, u64 count, const OutTarget *only) const {
    const u64 at = place(from.index, first, count, only, check_team<alignof(T)>(team, from.index, first, (u64)to, count));
    if (at) copy<alignof(T), true>((u64)to, at, count * sizeof(T), team.rank(), team.size());
  }

  // One thread completes a target, behind everything that the kernel has put. If the stream has failed, what it has
  // put may be wrong: the batch behind the kernel poisons the target's word. (The swap finds all but one of several
  // threads that come at the same time.)
  DEV void complete_target(OutTarget *target, const u32 *stop, bool again) const {
    // All three loads are on their way before the first is looked at.
    const u64 given = load_relaxed((u64)&target->given), fault = load_relaxed((u64)&head->fault);
    const u32 failed = load_relaxed32(stop);
    if (failed || given & GRANT_POISON || fault) return;
    if (again || !(given / GRANT_QUANTUM % 2) || swap64((u64)&target->given, given, given + GRANT_QUANTUM) != given) {
      record(head, COMPLETED_TWICE, 0, 0);
      return;
    }
    add_release(of_thread(target->done), GRANT_QUANTUM);
    store_relaxed((u64)&target->check, load_relaxed((u64)&target->check) + GRANT_QUANTUM);
  }

  DEV OutSlot<T> slot_of(Out<T> to, const OutTarget *only) const {
    const u64 len = len_of(to), at = place(to.index, 0, len, only, 0);
    return OutSlot<T>{head, at, at ? len : 0, len, to.index};
  }

  DEV void put_value_to(Out<T> to, u64 index, const T &value, const OutTarget *only) const {
    const u64 at = place(to.index, index, 1, only, 0);
    if (at) copy_value(at, value);
  }

 public:
  // The number of slots.
  DEV u64 len() const { return slots; }

  // The number of elements of a slot; 0 if there is no such slot.
  DEV u64 len_of(Out<T> to) const { return to.index < slots ? entry(to.index)->len : 0; }

  // Puts `count` elements to a slot, from its element `first` on. All threads of the team call it.
  template <class Team> DEV void put(Team team, Out<T> to, u64 first, const T *from, u64 count) const { put_to(team, to, first, from, count, 0); }

  // Puts one element to a slot. One thread calls it.
  DEV void put_value(Out<T> to, u64 index, const T &value) const { put_value_to(to, index, value, 0); }

  // A slot that has been looked up, for threads that put to it more than once.
  DEV OutSlot<T> slot(Out<T> to) const { return slot_of(to, 0); }
};

// All ranges that the window declares of its targets' memory. A kernel puts to them as to slots, and gets from them.
template <class T> class OutRanges : public OutSlots<T> {
 public:
  // Gets `count` elements of a range, from its element `first` on, to `to`. All threads of the team call it. If the
  // stream has failed, nothing is got.
  template <class Team> DEV void get(Team team, Out<T> from, u64 first, T *to, u64 count) const { this->get_from(team, from, first, to, count, 0); }

  // Gets one element of a range. One thread calls it. If the stream has failed, it gets zeros.
  DEV T get_value(Out<T> from, u64 index) const { return load_value<T>(this->place(from.index, index, 1, 0, 0)); }

  // A range that has been looked up, for threads that use many of its values.
  DEV OutRange<T> range(Out<T> of) const { return OutRange<T>{this->slot(of)}; }
};

// The outbound slots to one target, and the right to complete that target.
template <class T> class LastSlots {
 protected:
  OutSlots<T> out;
  OutTarget *target;
  const u32 *stop;  // of the stream: not zero once it has failed

 public:
  // As of `OutSlots`.
  DEV u64 len() const { return out.len(); }
  DEV u64 len_of(Out<T> to) const { return out.len_of(to); }
  template <class Team> DEV void put(Team team, Out<T> to, u64 first, const T *from, u64 count) const { out.put_to(team, to, first, from, count, target); }
  DEV void put_value(Out<T> to, u64 index, const T &value) const { out.put_value_to(to, index, value, target); }
  DEV OutSlot<T> slot(Out<T> to) const { return out.slot_of(to, target); }

  // Completes the target: it may read everything that has been put. All threads of `blocks` blocks call it.
  DEV void complete(u32 blocks) const {
    const bool again = out.has_completed();
    out.completes();
    block_barrier();
    if (Block().rank() == 0 && (again || is_last(target, blocks))) out.complete_target(target, stop, again);
  }

  // The same for a kernel all of whose blocks call it. They are fewer than 2^32.
  DEV void complete() const { complete((u32)Grid().blocks()); }
};

// The same of ranges.
template <class T> class LastRanges : public LastSlots<T> {
 public:
  // As of `OutRanges`.
  template <class Team> DEV void get(Team team, Out<T> from, u64 first, T *to, u64 count) const { this->out.get_from(team, from, first, to, count, this->target); }
  DEV T get_value(Out<T> from, u64 index) const { return load_value<T>(this->out.place(from.index, index, 1, this->target, 0)); }
  DEV OutRange<T> range(Out<T> of) const { return OutRange<T>{this->slot(of)}; }
};

// All outbound slots, and the right to complete all targets.
template <class T> class AllSlots {
 protected:
  OutSlots<T> out;
  const u32 *stop;  // as of `LastSlots`

 public:
  // As of `OutSlots`.
  DEV u64 len() const { return out.len(); }
  DEV u64 len_of(Out<T> to) const { return out.len_of(to); }
  template <class Team> DEV void put(Team team, Out<T> to, u64 first, const T *from, u64 count) const { out.put(team, to, first, from, count); }
  DEV void put_value(Out<T> to, u64 index, const T &value) const { out.put_value(to, index, value); }
  DEV OutSlot<T> slot(Out<T> to) const { return out.slot(to); }

  // Completes all targets. All threads of `blocks` blocks call it. The threads of the last block have a target each.
  DEV void complete(u32 blocks) const {
    __shared__ u32 last;
    OutTarget *const targets = (OutTarget *)((u64)out.head + sizeof(OutHead));
    const bool again = out.has_completed();
    out.completes();
    block_barrier();
    if (Block().rank() == 0) last = out.targets() && (again || is_last(targets, blocks));
    block_barrier();
    if (!last) return;
    for (u64 k = Block().rank(); k < out.targets(); k += Block().size()) out.complete_target(targets + k, stop, again);
  }
  DEV void complete() const { complete((u32)Grid().blocks()); }
};

// The same of ranges.
template <class T> class AllRanges : public AllSlots<T> {
 public:
  // As of `OutRanges`.
  template <class Team> DEV void get(Team team, Out<T> from, u64 first, T *to, u64 count) const { this->out.get_from(team, from, first, to, count, 0); }
  DEV T get_value(Out<T> from, u64 index) const { return load_value<T>(this->out.place(from.index, index, 1, 0, 0)); }
  DEV OutRange<T> range(Out<T> of) const { return OutRange<T>{this->slot(of)}; }
};

static_assert(sizeof(AllSlots<double>) == 24 && sizeof(AllRanges<double>) == 24, "as the parameters of `kernel!`");
static_assert(sizeof(OutRanges<double>) == 16 && sizeof(LastRanges<double>) == 32, "as the parameters of `kernel!`");
static_assert(sizeof(OutSlots<double>) == 16 && sizeof(LastSlots<double>) == 32 && sizeof(Out<double>) == 4, "as the parameters of `kernel!`");

}  // namespace tidegate

// (Here, because it needs the words of the machine, too.)
#include "tidegate_own.cuh"

#if defined(TIDEGATE_OWN_MACHINE)
#undef SAYS
#undef AT_SYSTEM
#undef AT_DEVICE
#undef FENCE_BEFORE_DRAIN
#undef FENCE_BEHIND_BARRIER
#undef WARP
#undef DEV
#undef APART
#undef BEGINS_EARLY
#endif

#endif  // TIDEGATE_PUT_CUH
