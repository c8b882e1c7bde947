// ptx: compute_80 compute_90
//
// The kernels of Faces on a GPU: what a share does to a block, and what a run does around it.
//
// # Model
//
// faces.cuh explains points, copies, tiles and groups. A thread of `pack` has one value of a message. A thread of
// `unpack` and `compute` has one global point with all its copies: it reads them all before it writes the first, and no
// other thread touches them. So no thread waits for another, except for the slots that a block looks up together.
// `unpack` (surface) may run at the same time as `compute` (interior).
//
// The results are, bit for bit, those of the CPU (`crates/bench/src/faces/kernels`): copies are summed in pairs along
// x, those sums along y, those along z. A copy that does not exist counts as -0.0, which changes no sum (0.0 would:
// -0.0 + 0.0 is 0.0). Products of initial values are rounded on their own, never fused with the sums that follow.
//
// Data of peers is read with ordinary loads, because the non-coherent path could still have what was there before.
//
// # Cost
//
// Predicted for a rank of 2x2x2 at the small size (15x14x13 elements of 12x12x12 points: 37.7 MB), which has 7
// messages, together 0.68 MB. The floor is what the bytes take at 4.3 TB/s, sectors of 32 bytes counted in full (a
// value of an x face is a sector of its own).
//
//   kernel   read                             written   floor     loads that wait for one another
//   init     -                                37.7 MB    8.8 us   none
//   pack     1.30 MB                          0.68 MB    0.5 us   the value
//   unpack   1.89 MB of block, 0.68 received  1.89 MB    1.0 us   a slot's operand, the value (packed: the value)
//   compute  29.0 MB                          29.0 MB   13.5 us   the value
//
// With all 26 neighbours: pack 2.60 and 1.35 MB, 0.9 us; unpack 2.60, 1.35 and 2.60 MB, 1.5 us. Unless other data has
// displaced them, all but the received values are in the L2 cache (50 MB), and faster. At such sizes, the launch and
// the loads that wait for one another count as much as the bytes. So each thread has one item, and each item has all of
// its loads in flight at once.
//
// # Failures
//
// No errors are reported, because the host has checked the geometry and the lengths. A kernel does nothing if a length
// does not fit its geometry.

#include "machine.cuh"
#include "faces.cuh"

namespace faces {

// Blocks of up to 1024 threads can be launched, so no kernel may use more than 64 registers.
#define KERNEL extern "C" __global__ void __launch_bounds__(1024)
// One block of each multiprocessor, so its threads may use more registers.
#define PERSISTENT_KERNEL extern "C" __global__ void __launch_bounds__(512)
#define INLINE static __device__ __forceinline__
#define INLINE_MEMBER __device__ __forceinline__

// From compute capability 9.0 on, a kernel may be launched while the one before it on the stream still runs. This
// kernel lets the next one begin early. It can do at once what depends on its arguments only. Before it touches memory
// that anybody writes, and on every path to its end, it waits for the end of the one before (`await`), because the next
// kernel waits for this one only. For a launch that does not ask for it, both do nothing.
struct Turn {
  INLINE_MEMBER Turn() { let_next_come(); }
  // Of a kernel that waits for peers: nothing takes room beside it that its peers may need.
  struct Alone {};
  INLINE_MEMBER explicit Turn(Alone) {}

  INLINE_MEMBER void await() const { wait_for_previous(); }

  INLINE_MEMBER ~Turn() { await(); }
};

// The threads that have a tile together: those of a block, or, where the block is a multiple of a tile, so many of them.
struct Crew {
  u32 first, crews;    // which one it is, and how many there are
  u32 thread, threads; // which thread of it this is, and how many it has

  static INLINE_MEMBER Crew block() { return {blockIdx.x, gridDim.x, threadIdx.x, blockDim.x}; }
  static INLINE_MEMBER Crew part_of_block() {
    if (blockDim.x % FACES_TILE) return block();
    const u32 crews = blockDim.x / FACES_TILE;
    // Neighbouring tiles are those of different blocks, so that all have alike much to do.
    return {blockIdx.x + gridDim.x * (threadIdx.x / FACES_TILE), gridDim.x * crews, threadIdx.x % FACES_TILE, FACES_TILE};
  }
};

INLINE u32 over(u32 x, FacesDivisor by) { return (u32)((u64)(2u * x) * by.magic >> 32) >> by.shift; }

// Cuts the lowest digit off a mixed-radix number: `x` becomes x / d, and the result is x % d.
INLINE u32 digit(u32 &x, u32 d, FacesDivisor by) {
  const u32 all = x;
  x = over(all, by);
  return all - x * d;
}

// The group of a tile.
INLINE u32 group_of(const u32 (&tiles)[FACES_GROUPS + 1], u32 tile) {
  u32 group = 0u;
#pragma unroll
  for (u32 k = 1u; k < FACES_GROUPS; k++) group += tile >= tiles[k] ? 1u : 0u;
  return group;
}

// A global point, named by its copy in element `j`. In a dimension in which it is `pair`ed, the other copy is in the
// element before.
struct Point {
  u32 i[3], j[3];
  bool pair[3];
};

// Sets dimension `d` of the point to inner coordinate `c`, 1 to span.
INLINE void set_inner(const FacesGeometry &g, Point &p, u32 d, u32 c) {
  p.i[d] = digit(c, g.n - 1u, g.by_step);
  p.j[d] = c;
  p.pair[d] = p.i[d] == 0u;
}

// Sets dimension `d` of a point to the lower or the upper end.
INLINE void set_end(const FacesGeometry &g, Point &p, u32 d, bool upper) {
  p.i[d] = upper ? g.n - 1u : 0u;
  p.j[d] = upper ? g.m[d] - 1u : 0u;
  p.pair[d] = false;
}

// The direction of an offset in the dimensions of `set`, upwards in those of `upper`.
INLINE u32 direction(u32 set, u32 upper) {
  int k = 13;
  if (set & 1u) k += upper & 1u ? 1 : -1;
  if (set & 2u) k += upper & 2u ? 3 : -3;
  if (set & 4u) k += upper & 4u ? 9 : -9;
  return (u32)(k > 13 ? k - 1 : k);
}

// The index of a point in the block.
INLINE u64 block_index(const FacesGeometry &g, const Point &p) {
  const u32 element = p.j[0] + g.m[0] * (p.j[1] + g.m[1] * p.j[2]);
  return (u64)element * g.cube + (p.i[0] + g.n * (p.i[1] + g.n * p.i[2]));
}

// The distance from a copy back to the lower one of the pair in each dimension of `pairs`: an element back, and all its
// points on.
INLINE u64 block_back(const FacesGeometry &g, u32 pairs) {
  u64 back = 0u;
  if (pairs & 1u) back += g.cube - (g.n - 1u);
  if (pairs & 2u) back += (u64)g.m[0] * g.cube - (g.n - 1u) * g.n;
  if (pairs & 4u) back += (u64)(g.m[0] * g.m[1]) * g.cube - (g.n - 1u) * g.n * g.n;
  return back;
}

// The index of a point in a message, which extends in the dimensions that are not in `set`. It is the lower copy in
// those of `pairs`.
INLINE u32 message_index(const FacesGeometry &g, const Point &p, u32 set, u32 pairs) {
  u32 at = 0u, stride = 1u;
#pragma unroll
  for (u32 d = 0u; d < 3u; d++)
    if (!(set >> d & 1u)) {
      at += p.i[d] * stride;
      if (pairs >> d & 1u) at += (g.n - 1u) * stride;
      stride *= g.n;
    }
#pragma unroll
  for (u32 d = 0u; d < 3u; d++)
    if (!(set >> d & 1u)) {
      at += p.j[d] * stride;
      if (pairs >> d & 1u) at -= stride;
      stride *= g.m[d];
    }
  return at;
}

// The current buffer of the slot of direction `k`, if there is a neighbour. It is looked up in two steps, so that other
// work fits in between. The first step reads the table, which nobody writes any more, and the second reads how many
// epochs have come.
struct Lookup {
  const unsigned char *base;
  u64 flip;
  const u64 *operand;

  INLINE_MEMBER Lookup(const FacesGeometry &g, const Slot *slots, u32 k) : base(nullptr), flip(0u), operand(nullptr) {
    if (k >= 26u || !(g.neighbours >> k & 1u)) return;
    const Slot *slot = slots + __popc(g.neighbours & ((1u << k) - 1u));
    base = slot->base;
    flip = slot->flip;
    operand = slot->operand;
  }

  INLINE_MEMBER const double *current() const {
    // Before the first epoch the operand is 0, and this is the odd buffer, because the even one may be being written.
    const bool odd = flip != 0u && (((*operand >> 20) - 1u) & 1u) != 0u;
    return (const double *)(base + (odd ? flip : 0u));
  }
};

// Finds the messages of all directions with a neighbour in the slots of a window. The threads of a block look them up
// in parallel, one each. All threads of the block call `wait` together, after the turn's wait and before the first use.
struct InSlots {
  const Slot *slots;
  const double **table;
  Lookup mine;
  bool pending;

  INLINE_MEMBER InSlots(const FacesGeometry &g, const Slot *slots, const double **table)
      : slots(slots), table(table), mine(g, slots, threadIdx.x), pending(true) {}

  INLINE_MEMBER void wait(const FacesGeometry &g) {
    if (!pending) return;
    pending = false;
    if (threadIdx.x < 26u) table[threadIdx.x] = mine.current();
    // For blocks with fewer threads than directions.
    for (u32 k = threadIdx.x + blockDim.x; k < 26u; k += blockDim.x) table[k] = Lookup(g, slots, k).current();
    __syncthreads();
  }

  INLINE_MEMBER const double *message(const FacesGeometry &, u32 k) const {
    const double *message = table[k];
    assume_global(message);
    return message;
  }
};

// Finds the messages where a kernel that owns the inbox has noted them.
struct Noted {
  const double *const *table;

  INLINE_MEMBER void wait(const FacesGeometry &) {}
  INLINE_MEMBER const double *message(const FacesGeometry &, u32 k) const {
    const double *message = table[k];
    assume_global(message);
    return message;
  }
};

// Finds the messages in one buffer.
struct Packed {
  const double *values;

  INLINE_MEMBER void wait(const FacesGeometry &) {}
  INLINE_MEMBER const double *message(const FacesGeometry &g, u32 k) const { return values + g.slot[k]; }
};

// Finds no messages: there are none inside a block.
struct Nowhere {
  INLINE_MEMBER const double *message(const FacesGeometry &, u32) const { return nullptr; }
};

// Whether a point has copy `c`, as far as its pairs determine that. If bit d of a copy's number is set, it is the
// second copy in dimension d. In the dimensions of FIXED, that one belongs to a neighbour; in the others, it is the
// lower one of a pair.
template <u32 FIXED>
INLINE bool paired(const Point &p, u32 c) {
  bool all = true;
#pragma unroll
  for (u32 d = 0u; d < 3u; d++)
    if ((c & ~FIXED) >> d & 1u) all = all && p.pair[d];
  return all;
}

// Reads the copies of a point that are in the block. The others are -0.0 until they are read.
template <u32 FIXED>
INLINE void read_own(const FacesGeometry &g, const Point &p, const double *u, double (&value)[8]) {
  const double *const first = u + block_index(g, p);
#pragma unroll
  for (u32 c = 0u; c < 8u; c++) {
    value[c] = -0.0;
    if ((c & FIXED) == 0u && paired<FIXED>(p, c)) value[c] = *(first - block_back(g, c));
  }
}

// Reads the received copies, sums all, and writes the sum to the copies in the block. The point is at the end of the
// dimensions of FIXED, the upper end in those of `upper`. Each non-empty subset of them leads to a message, if there is
// such a neighbour.
template <u32 FIXED, class Received>
INLINE void sum_copies(const FacesGeometry &g, const Received &received, const Point &p, u32 upper, double (&value)[8], double *u) {
#pragma unroll
  for (u32 set = 1u; set < 8u; set++)
    if ((set & ~FIXED) == 0u) {
      const u32 k = direction(set, upper);
      const bool has = (g.neighbours >> k & 1u) != 0u;
      const double *const message = received.message(g, k);
#pragma unroll
      for (u32 c = 1u; c < 8u; c++)
        if ((c & FIXED) == set && has && paired<FIXED>(p, c)) value[c] = message[message_index(g, p, set, c & ~FIXED)];
    }
  const double low = (value[0] + value[1]) + (value[2] + value[3]);
  const double high = (value[4] + value[5]) + (value[6] + value[7]);
  const double sum = low + high;
  double *const first = u + block_index(g, p);
#pragma unroll
  for (u32 c = 0u; c < 8u; c++)
    if ((c & FIXED) == 0u && paired<FIXED>(p, c)) *(first - block_back(g, c)) = sum;
}

// ---- Initial values, and copies for inspection ----

INLINE bool at_end(const FacesGeometry &g, u32 d, u32 i, u32 j) {
  return (i == 0u && j == 0u) || (i == g.n - 1u && j == g.m[d] - 1u);
}

// Calls `visit(index, i, j, surface)` for the points of this block's share of the elements.
template <class Visit>
INLINE void for_each_point(const FacesGeometry &g, const Visit &visit) {
  for (u32 element = blockIdx.x; element < g.elements; element += gridDim.x) {
    u32 j[3] = {0u, 0u, element};
    j[0] = digit(j[2], g.m[0], g.by_m[0]);
    j[1] = digit(j[2], g.m[1], g.by_m[1]);
    for (u32 at = threadIdx.x; at < g.cube; at += blockDim.x) {
      u32 i[3] = {0u, 0u, at};
      i[0] = digit(i[2], g.n, g.by_n);
      i[1] = digit(i[2], g.n, g.by_n);
      const bool surface = at_end(g, 0u, i[0], j[0]) || at_end(g, 1u, i[1], j[1]) || at_end(g, 2u, i[2], j[2]);
      visit((u64)element * g.cube + at, i, j, surface);
    }
  }
}

INLINE double initial_value(const FacesGeometry &g, const u32 (&i)[3], const u32 (&j)[3]) {
  double value = __dmul_rn(1e4, (double)(j[2] + g.offset[2]));
  value = __dadd_rn(value, __dmul_rn(100.0, (double)(j[1] + g.offset[1])));
  value = __dadd_rn(value, (double)(j[0] + g.offset[0]));
  value = __dadd_rn(value, __dmul_rn(1e-2, (double)i[2]));
  value = __dadd_rn(value, __dmul_rn(1e-4, (double)i[1]));
  return __dadd_rn(value, __dmul_rn(1e-6, (double)i[0]));
}

KERNEL faces_init(FACES_ARGUMENT g, double *u, u64 u_len) {
  const Turn turn;
  turn.await();
  if (u_len < g.values) return;
  for_each_point(g, [&](u64 index, const u32(&i)[3], const u32(&j)[3], bool) { u[index] = initial_value(g, i, j); });
}

KERNEL faces_init_part(FACES_ARGUMENT g, u32 mode, double *u, u64 u_len) {
  const Turn turn;
  turn.await();
  if (u_len < g.values) return;
  for_each_point(g, [&](u64 index, const u32(&i)[3], const u32(&j)[3], bool surface) {
    if (surface == (mode == FACES_SURFACE)) u[index] = initial_value(g, i, j);
  });
}

KERNEL faces_copy_part(FACES_ARGUMENT g, u32 mode, const double *u, u64 u_len, double *copy, u64 copy_len) {
  const Turn turn;
  turn.await();
  if (u_len < g.values || copy_len < g.values) return;
  for_each_point(g, [&](u64 index, const u32(&)[3], const u32(&)[3], bool surface) {
    if (surface == (mode == FACES_SURFACE)) copy[index] = u[index];
  });
}

// ---- Pack, and send ----

// Where packed values go: to one buffer, or straight to the slots of the neighbours.
struct ToBuffer {
  double *values;

  INLINE_MEMBER void put(const FacesGeometry &g, u32 k, u32 at, double value) const { values[g.slot[k] + at] = value; }
};
struct ToSlots {
  const tidegate::OutSlot<double> *slots;

  INLINE_MEMBER void put(const FacesGeometry &, u32 k, u32 at, double value) const { slots[k].put_value(at, value); }
};

// Value `at` of the message to a face of dimension F.
template <u32 F, class To>
INLINE void pack_face(const Turn &turn, const FacesGeometry &g, bool upper, u32 at, const double *u, const To &to) {
  constexpr u32 A = F == 0u ? 1u : 0u, B = F == 2u ? 1u : 2u;
  const u32 sides = upper ? 7u : 0u;
  if (at >= g.n * g.n * g.m[A] * g.m[B]) return;
  Point p;
  set_end(g, p, F, upper);
  u32 rest = at;
  p.i[A] = digit(rest, g.n, g.by_n);
  p.i[B] = digit(rest, g.n, g.by_n);
  p.j[A] = digit(rest, g.m[A], g.by_m[A]);
  p.j[B] = rest;
  const u64 from = block_index(g, p);
  turn.await();
  to.put(g, direction(1u << F, sides), at, u[from]);
}

// Value `at` of the four messages to the edges along A. By the sides of their other two dimensions, their order is:
// both lower, first upper, second upper, both upper.
template <u32 A, class To>
INLINE void pack_edge(const Turn &turn, const FacesGeometry &g, u32 at, const double *u, const To &to) {
  constexpr u32 F = A == 0u ? 1u : 0u, S = A == 2u ? 1u : 2u;
  Point p;
  u32 rest = at;
  p.i[A] = digit(rest, g.n, g.by_n);
  p.j[A] = digit(rest, g.m[A], g.by_m[A]);
  const u32 upper = (rest & 1u) << F | (rest >> 1) << S;
  set_end(g, p, F, rest & 1u);
  set_end(g, p, S, rest >> 1);
  const u32 k = direction(1u << F | 1u << S, upper);
  const u64 from = block_index(g, p);
  turn.await();
  if (g.neighbours >> k & 1u) to.put(g, k, p.i[A] + g.n * p.j[A], u[from]);
}

template <class To>
INLINE void pack(const Crew &crew, const Turn &turn, const FacesGeometry &g, const double *u, const To &to) {
  for (u32 tile = crew.first; tile < g.pack_tiles[FACES_GROUPS]; tile += crew.crews) {
    const u32 group = group_of(g.pack_tiles, tile);
    const u32 start = (tile - g.pack_tiles[group]) * FACES_TILE;
    for (u32 t = crew.thread; t < FACES_TILE; t += crew.threads) {
      u32 at = start + t;
      switch (group) {
        case 0: case 5: pack_face<2>(turn, g, group == 5u, at, u, to); break;
        case 1: case 4: pack_face<1>(turn, g, group == 4u, at, u, to); break;
        case 2: case 3: pack_face<0>(turn, g, group == 3u, at, u, to); break;
        default: {
          const u32 edges[3] = {4u * g.n * g.m[0], 4u * g.n * g.m[1], 4u * g.n * g.m[2]};
          if (at < edges[0]) {
            pack_edge<0>(turn, g, at, u, to);
          } else if ((at -= edges[0]) < edges[1]) {
            pack_edge<1>(turn, g, at, u, to);
          } else if ((at -= edges[1]) < edges[2]) {
            pack_edge<2>(turn, g, at, u, to);
          } else if ((at -= edges[2]) < 8u) {
            const u32 k = direction(7u, at);
            Point p;
            for (u32 d = 0u; d < 3u; d++) set_end(g, p, d, at >> d & 1u);
            turn.await();
            if (g.neighbours >> k & 1u) to.put(g, k, 0u, u[block_index(g, p)]);
          }
        }
      }
    }
  }
}

KERNEL faces_pack(FACES_ARGUMENT g, const double *u, u64 u_len, double *out, u64 out_len) {
  const Turn turn;
  if (u_len < g.values || out_len < g.packed) return;
  pack(Crew::block(), turn, g, u, ToBuffer{out});
}

// Puts the values straight to the neighbours, and completes them. Slot j is that of the j-th neighbour, by direction.
KERNEL faces_send(FACES_ARGUMENT g, const double *u, u64 u_len, tidegate::AllSlots<double> out) {
  __shared__ tidegate::OutSlot<double> slots[26];
  const Turn turn;
  turn.await();
  for (u32 k = threadIdx.x; k < 26u; k += blockDim.x)
    if (g.neighbours >> k & 1u) slots[k] = out.slot({(u32)__popc(g.neighbours & ((1u << k) - 1u))});
  __syncthreads();
  if (u_len >= g.values) pack(Crew::block(), turn, g, u, ToSlots{slots});
  out.complete();
}

// ---- Unpack ----

// Sets point `at` of the points of a face of dimension F that are on no edge. Returns false if there are not so many.
// If nothing is `received`, these are the points that elements share, and first those that are pairs in the second
// dimension of the face.
template <u32 F>
INLINE bool face_point(const FacesGeometry &g, bool received, bool upper, u32 at, Point &p) {
  constexpr u32 A = F == 0u ? 1u : 0u, B = F == 2u ? 1u : 2u;
  set_end(g, p, F, upper);
  const u32 pairs = received ? g.span[A] * g.span[B] : (g.m[B] - 1u) * g.span[A];
  if (at < pairs) {
    u32 rest = at;
    set_inner(g, p, A, 1u + digit(rest, g.span[A], g.by_span[A]));
    set_inner(g, p, B, received ? 1u + rest : (1u + rest) * (g.n - 1u));
    return true;
  }
  u32 rest = at - pairs;
  if (received || rest >= (g.m[A] - 1u) * g.span[B]) return false;
  set_inner(g, p, B, 1u + digit(rest, g.span[B], g.by_span[B]));
  set_inner(g, p, A, (1u + rest) * (g.n - 1u));
  return !p.pair[B];
}

template <u32 F, class Received>
INLINE void unpack_face(const Turn &turn, const FacesGeometry &g, Received &received, bool upper, u32 at, bool active,
                        double *u) {
  const u32 sides = upper ? 7u : 0u;
  Point p;
  double value[8];
  active = active && face_point<F>(g, g.neighbours >> direction(1u << F, sides) & 1u, upper, at, p);
  turn.await();
  // These loads are in flight while the slots are looked up.
  if (active) read_own<1u << F>(g, p, u, value);
  received.wait(g);
  if (active) sum_copies<1u << F>(g, received, p, sides, value, u);
}

// Sets point `at` of the points of the four edges along A (in the order of `pack_edge`) that are no corner.
template <u32 A, class Received>
INLINE void unpack_edge(const FacesGeometry &g, const Received &received, u32 at, double *u) {
  constexpr u32 F = A == 0u ? 1u : 0u, S = A == 2u ? 1u : 2u;
  Point p;
  double value[8];
  u32 rest = at;
  set_inner(g, p, A, 1u + digit(rest, g.span[A], g.by_span[A]));
  set_end(g, p, F, rest & 1u);
  set_end(g, p, S, rest >> 1);
  read_own<1u << F | 1u << S>(g, p, u, value);
  sum_copies<1u << F | 1u << S>(g, received, p, (rest & 1u) << F | (rest >> 1) << S, value, u);
}

template <class Received>
INLINE void unpack_corner(const FacesGeometry &g, const Received &received, u32 upper, double *u) {
  Point p;
  double value[8];
#pragma unroll
  for (u32 d = 0u; d < 3u; d++) set_end(g, p, d, upper >> d & 1u);
  read_own<7>(g, p, u, value);
  sum_copies<7>(g, received, p, upper, value, u);
}

template <class Received>
INLINE void unpack(const Crew &crew, const Turn &turn, const FacesGeometry &g, Received &received, double *u) {
  for (u32 tile = crew.first; tile < g.unpack_tiles[FACES_GROUPS]; tile += crew.crews) {
    const u32 group = group_of(g.unpack_tiles, tile);
    const u32 start = (tile - g.unpack_tiles[group]) * FACES_TILE;
    // All threads of a crew make the same number of rounds, and have the same group. So they reach every `wait` together.
    for (u32 t = 0u; t < FACES_TILE; t += crew.threads) {
      const bool active = t + crew.thread < FACES_TILE;
      u32 at = start + t + crew.thread;
      switch (group) {
        case 0: case 5: unpack_face<2>(turn, g, received, group == 5u, at, active, u); break;
        case 1: case 4: unpack_face<1>(turn, g, received, group == 4u, at, active, u); break;
        case 2: case 3: unpack_face<0>(turn, g, received, group == 3u, at, active, u); break;
        default:
          turn.await();
          received.wait(g);
          if (!active) break;
          if (at < 4u * g.span[0]) {
            unpack_edge<0>(g, received, at, u);
          } else if ((at -= 4u * g.span[0]) < 4u * g.span[1]) {
            unpack_edge<1>(g, received, at, u);
          } else if ((at -= 4u * g.span[1]) < 4u * g.span[2]) {
            unpack_edge<2>(g, received, at, u);
          } else if ((at -= 4u * g.span[2]) < 8u) {
            unpack_corner(g, received, at, u);
          }
      }
    }
  }
}

KERNEL faces_unpack(FACES_ARGUMENT g, const Slot *slots, u64 slots_len, double *u, u64 u_len) {
  const Turn turn;
  if (u_len < g.values || slots_len < g.messages) return;
  __shared__ const double *table[26];
  InSlots received(g, slots, table);
  unpack(Crew::block(), turn, g, received, u);
}

KERNEL faces_unpack_packed(FACES_ARGUMENT g, const double *received, u64 received_len, double *u, u64 u_len) {
  const Turn turn;
  if (u_len < g.values || received_len < g.packed) return;
  Packed messages = {received};
  unpack(Crew::block(), turn, g, messages, u);
}

// ---- All shares in one kernel ----

// The number of the slot in direction k, if there is a neighbour.
INLINE u32 slot_of(const FacesGeometry &g, u32 k) { return (u32)__popc(g.neighbours & ((1u << k) - 1u)); }

// Calls `visit` for the directions with a neighbour, each by the same thread of the block every time.
template <class Visit>
INLINE void for_each_neighbour(const FacesGeometry &g, const Visit &visit) {
  for (u32 k = threadIdx.x; k < 26u; k += blockDim.x)
    if (g.neighbours >> k & 1u) visit(k);
}

// Makes so many shares: sends the surface, waits for what the neighbours send, and sums both.
PERSISTENT_KERNEL faces_shares(FACES_ARGUMENT g, double *u, u64 u_len, tidegate::KernelInbox<double> in, tidegate::KernelOutbox<double> out, u64 count) {
  __shared__ tidegate::FoundOut<double> to[26];
  __shared__ tidegate::FoundIn<double> from[26];
  __shared__ tidegate::OutSlot<double> slots[26];
  __shared__ const double *table[26];
  const Turn turn{Turn::Alone()};
  auto inbox = in.own(tidegate::Grid());
  auto outbox = out.own(tidegate::Grid());
  const bool fits = u_len >= g.values && inbox.count() >= g.messages && outbox.count() >= g.messages;
  if (!fits) count = 0u;
  for_each_neighbour(g, [&](u32 k) {
    if (!fits) return;
    to[k] = outbox.find({slot_of(g, k)});
    from[k] = inbox.find(slot_of(g, k));
  });
  for (; count && !inbox.failed() && !outbox.failed(); count--) {
    auto exposed = tidegate::move(inbox).post();
    auto epoch = tidegate::move(outbox).start();
    for_each_neighbour(g, [&](u32 k) { slots[k] = epoch.slot(to[k]); });
    // No block sends what another one has yet to sum.
    exposed.await_team();
    pack(Crew::part_of_block(), turn, g, u, ToSlots{slots});
    outbox = tidegate::move(epoch).complete();
    inbox = tidegate::move(exposed).wait();
    for_each_neighbour(g, [&](u32 k) { table[k] = inbox.read(from[k]); });
    // No block sums what another one has yet to send.
    outbox.await_team();
    Noted received = {table};
    unpack(Crew::part_of_block(), turn, g, received, u);
  }
  tidegate::move(inbox).close();
  tidegate::move(outbox).close();
}

// ---- Compute ----

INLINE void sum_inside(const FacesGeometry &g, const Point &p, double *u) {
  double value[8];
  read_own<0>(g, p, u, value);
  sum_copies<0>(g, Nowhere{}, p, 0u, value, u);
}

KERNEL faces_compute(FACES_ARGUMENT g, double *u, u64 u_len) {
  const Turn turn;
  turn.await();
  if (u_len < g.values) return;
  for (u32 tile = blockIdx.x; tile < g.compute_tiles[3]; tile += gridDim.x) {
    const u32 kind = (tile >= g.compute_tiles[1] ? 1u : 0u) + (tile >= g.compute_tiles[2] ? 1u : 0u);
    const u32 start = (tile - g.compute_tiles[kind]) * FACES_TILE;
    for (u32 t = threadIdx.x; t < FACES_TILE; t += blockDim.x) {
      u32 rest = start + t;
      Point p;
      if (kind == 0u) {
        // Points between two elements in z.
        set_inner(g, p, 0u, 1u + digit(rest, g.span[0], g.by_span[0]));
        set_inner(g, p, 1u, 1u + digit(rest, g.span[1], g.by_span[1]));
        p.i[2] = 0u, p.j[2] = 1u + rest, p.pair[2] = true;
        if (rest < g.m[2] - 1u) sum_inside(g, p, u);
      } else if (kind == 1u) {
        // Points between two elements in y, and not in z.
        set_inner(g, p, 0u, 1u + digit(rest, g.span[0], g.by_span[0]));
        p.i[2] = 1u + digit(rest, g.n - 2u, g.by_inner);
        p.j[2] = digit(rest, g.m[2], g.by_m[2]), p.pair[2] = false;
        p.i[1] = 0u, p.j[1] = 1u + rest, p.pair[1] = true;
        if (rest < g.m[1] - 1u) sum_inside(g, p, u);
      } else {
        // Points between two elements in x only.
        p.i[1] = 1u + digit(rest, g.n - 2u, g.by_inner);
        p.i[2] = 1u + digit(rest, g.n - 2u, g.by_inner);
        p.j[1] = digit(rest, g.m[1], g.by_m[1]), p.pair[1] = false;
        p.j[2] = digit(rest, g.m[2], g.by_m[2]), p.pair[2] = false;
        p.i[0] = 0u, p.j[0] = 1u + rest, p.pair[0] = true;
        if (rest < g.m[0] - 1u) sum_inside(g, p, u);
      }
    }
  }
}

}  // namespace faces

// Programs that have kernels of their own include this file.
#undef KERNEL
#undef PERSISTENT_KERNEL
#undef INLINE
#undef INLINE_MEMBER
