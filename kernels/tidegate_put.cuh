// A part of tidegate.cuh: what a kernel does that fills an open epoch. That file has the contract.
//
// # Model
//
// The table of an outbox lies in memory of this GPU: a head, a cell for each target, and an entry for each slot
// (`crates/core/src/window/grants.rs`). The stream has waited for the targets, and then given their grants. A put looks
// at the grant of its target, and stores. Loads of the table are ordinary ones, which L1 keeps: while the kernel runs,
// only its own completions change the table.
//
// # Memory order
//
// The barrier of a block orders its stores before the one thread that counts the block. The count is an acquire and a
// release within the GPU. So the thread that counts last has seen the stores of all blocks, and its add, a release at
// system scope, covers them. Only that thread pays for a fence of the whole system.

#ifndef TIDEGATE_PUT_CUH
#define TIDEGATE_PUT_CUH

// The functions of the machine are in a namespace of their own, and its macros end with this file. (AMD's words of the
// language have to be outside. So have all of them in sources that include the machine by themselves.)
#if !defined(TIDEGATE_MACHINE_CUH)
#if defined(__AMDGCN__)
#include "machine.cuh"
#else
#define TIDEGATE_OWN_MACHINE
namespace tidegate {
namespace of_machine {
#include "machine.cuh"
}
using namespace of_machine;
}  // namespace tidegate
#endif
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
// A warp of NVIDIA's GPUs, a wave of AMD's. The size of the block is a multiple of its size.
struct Warp {
  DEV u64 rank() const { return Block().rank() % WARP; }
  DEV u64 size() const { return WARP; }
};
struct Grid {
  DEV u64 block() const { return blockIdx.x + (u64)gridDim.x * (blockIdx.y + (u64)gridDim.y * blockIdx.z); }
  // A grid has fewer than 2^32 blocks that complete something.
  DEV u32 blocks() const { return gridDim.x * gridDim.y * gridDim.z; }
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
  u64 arrived;
  u64 unused[3];
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
DEV void record(OutHead *head, PutFault fault, u64 slot, u64 end) {
  const u64 most_slot = (1ull << 20) - 1, most_end = (1ull << 40) - 1;
  swap64((u64)&head->fault, 0, fault | (slot < most_slot ? slot : most_slot) << 4 | (end < most_end ? end : most_end) << 24);
}

// ---- Copies ----

template <class Unit> DEV void copy_units(u64 to, u64 from, u64 units, u64 rank, u64 size) {
  // Several loads are on their way before the first is stored.
  const u32 depth = 8;
  u64 i = rank;
#pragma unroll 1
  for (; i + (depth - 1) * size < units; i += depth * size) {
    Unit some[depth];
#pragma unroll
    for (u32 k = 0; k < depth; k++) some[k] = *(const Unit *)(from + (i + k * size) * sizeof(Unit));
#pragma unroll
    for (u32 k = 0; k < depth; k++) put(to + (i + k * size) * sizeof(Unit), some[k]);
  }
#pragma unroll 1
  for (; i < units; i += size) put(to + i * sizeof(Unit), *(const Unit *)(from + i * sizeof(Unit)));
}

template <unsigned bytes> struct UnitOf;
template <> struct UnitOf<1> { typedef u8 type; };
template <> struct UnitOf<2> { typedef u16 type; };
template <> struct UnitOf<4> { typedef u32 type; };
template <> struct UnitOf<8> { typedef u64 type; };

// Copies bytes whose addresses are multiples of `align`, by one of `size` threads.
template <unsigned align> DEV void copy(u64 to, u64 from, u64 bytes, u64 rank, u64 size) {
  const unsigned least = align < 8 ? align : 8;
  typedef typename UnitOf<least>::type Unit;
  if ((to ^ from) % sizeof(V16) != 0) {
    copy_units<Unit>(to, from, bytes / least, rank, size);
    return;
  }
  u64 before = (0 - to) % sizeof(V16);
  if (before > bytes) before = bytes;
  const u64 units = (bytes - before) / sizeof(V16), behind = before + units * sizeof(V16);
  copy_units<V16>(to + before, from + before, units, rank, size);
  // What is before and behind the whole lines.
  const u64 first = before / least, all = first + (bytes - behind) / least;
#pragma unroll 1
  for (u64 i = rank; i < all; i += size) {
    const u64 at = i < first ? i * least : behind + (i - first) * least;
    put(to + at, *(const Unit *)(from + at));
  }
}

template <class T> DEV void copy_value(u64 to, const T &value) {
  if constexpr (sizeof(T) == alignof(T) && sizeof(T) <= 8) {
    typedef typename UnitOf<sizeof(T)>::type Unit;
    put(to, *(const Unit *)&value);
  } else {
    const unsigned least = alignof(T) < 8 ? alignof(T) : 8;
    typedef typename UnitOf<least>::type Unit;
#pragma unroll
    for (u64 i = 0; i < sizeof(T) / least; i++) put(to + i * least, ((const Unit *)&value)[i]);
  }
}

#if defined(TIDEGATE_CHECKS)
// Whether all threads of the team have the same arguments.
template <class Team> DEV bool is_together(Team, u64, u64, u64, u64) { return true; }
DEV bool is_together(Block block, u64 slot, u64 first, u64 from, u64 count) {
  __shared__ u64 said[4];
  block_barrier();
  if (block.rank() == 0) said[0] = slot, said[1] = first, said[2] = from, said[3] = count;
  block_barrier();
  bool same = said[0] == slot && said[1] == first && said[2] == from && said[3] == count;
  block_barrier();
  return same;
}
#endif

// ---- The slots of an open outbox ----

// The number of an outbound slot: `Out::index` of its handle.
template <class T> struct Out {
  unsigned index;
};

// All outbound slots of a window. A kernel can put to them, and nothing else.
template <class T> class OutSlots {
  OutHead *head;
  u32 slots, targets;

  template <class> friend class LastSlots;

  DEV const OutEntry *entry(u32 slot) const { return (const OutEntry *)((u64)head + sizeof(OutHead) + targets * sizeof(OutTarget)) + slot; }

  // Where the elements are to be stored; 0 if they may not be. `only` is the one target that may be put to, or 0.
  DEV u64 place(u32 slot, u64 first, u64 count, const OutTarget *only) const {
    if (slot >= slots) {
      record(head, NO_SLOT, slot, 0);
      return 0;
    }
    const OutEntry entry = *this->entry(slot);
    if (first > entry.len || count > entry.len - first) {
      record(head, BEYOND, slot, count > ~0ull - first ? ~0ull : first + count);
      return 0;
    }
    if (only && entry.target != only) {
      record(head, OTHER_TARGET, slot, 0);
      return 0;
    }
    const u64 given = entry.target->given;
    if (given & GRANT_POISON) return 0;
    if (!(given / GRANT_QUANTUM % 2)) {
      record(head, COMPLETED, slot, 0);
      return 0;
    }
    const u64 odd = (*(const u64 *)entry.operand / GRANT_QUANTUM - 1) % 2;
    return entry.base + (odd ? entry.flip : 0) + first * sizeof(T);
  }

  template <class Team> DEV void put_to(Team team, Out<T> to, u64 first, const T *from, u64 count, const OutTarget *only) const {
#if defined(TIDEGATE_CHECKS)
    if (!is_together(team, to.index, first, (u64)from, count)) {
      record(head, NOT_TOGETHER, to.index, 0);
      return;
    }
    if ((u64)from % alignof(T)) {
      record(head, UNALIGNED, to.index, 0);
      return;
    }
#endif
    const u64 at = place(to.index, first, count, only);
    if (at) copy<alignof(T)>(at, (u64)from, count * sizeof(T), team.rank(), team.size());
  }

  DEV void put_value_to(Out<T> to, u64 index, const T &value, const OutTarget *only) const {
    const u64 at = place(to.index, index, 1, only);
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
};

// The outbound slots to one target, and the right to complete that target.
template <class T> class LastSlots {
  OutSlots<T> out;
  OutTarget *target;

 public:
  // As of `OutSlots`.
  DEV u64 len() const { return out.len(); }
  DEV u64 len_of(Out<T> to) const { return out.len_of(to); }
  template <class Team> DEV void put(Team team, Out<T> to, u64 first, const T *from, u64 count) const { out.put_to(team, to, first, from, count, target); }
  DEV void put_value(Out<T> to, u64 index, const T &value) const { out.put_value_to(to, index, value, target); }

  // Completes the target: it may read everything that has been put. All threads of `blocks` blocks call it.
  DEV void complete(u32 blocks) const {
    block_barrier();
    if (Block().rank() != 0) return;
    // (The count begins again at 0. The next kernel that completes the target comes later in the order of the stream.)
    if (blocks > 1 && arrive((u64)&target->arrived, blocks - 1) != blocks - 1) return;
    const u64 given = load_relaxed((u64)&target->given);
    if (given & GRANT_POISON || load_relaxed((u64)&out.head->fault)) return;
    if (!(given / GRANT_QUANTUM % 2)) {
      record(out.head, COMPLETED_TWICE, 0, 0);
      return;
    }
    store_relaxed((u64)&target->given, given + GRANT_QUANTUM);
    add_release(of_thread(target->done), GRANT_QUANTUM);
    store_relaxed((u64)&target->check, load_relaxed((u64)&target->check) + GRANT_QUANTUM);
  }

  // The same for a kernel all of whose blocks call it.
  DEV void complete() const { complete(Grid().blocks()); }
};

static_assert(sizeof(OutSlots<double>) == 16 && sizeof(LastSlots<double>) == 24 && sizeof(Out<double>) == 4, "as the parameters of `kernel!`");

}  // namespace tidegate

#if defined(TIDEGATE_OWN_MACHINE)
#undef WARP
#undef DEV
#undef APART
#undef BEGINS_EARLY
#endif

#endif  // TIDEGATE_PUT_CUH
