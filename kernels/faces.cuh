// Faces on a GPU: the arguments of the kernels, and how many threads each should have.
//
// # Model
//
// No header of the host is needed: device compilers, run-time compilers and plain C++ can all read this file. All
// structs are plain data without padding, so that other languages can build them byte by byte. The first parameter of
// every kernel is a FacesGeometry by value.
//
// A global point of a block has one coordinate for each dimension, 0 to m*(n-1). The first and the last coordinate are
// the surface. Between them are the `span` = m*(n-1) - 1 inner coordinates. An inner coordinate that is a multiple of
// n-1 is between two elements, and has two copies: the last point of an element and the first of the next. One thread
// owns a global point with all its copies.
//
// Work is cut into tiles of FACES_TILE items. A tile has items of one kind only, so that everything that depends on the
// kind is the same for a whole thread block. The host counts the first tile of each kind. Kernels stride over the tiles
// by the grid, and over a tile by the block. So every launch shape is correct, and the recommended one is fast.
// Divisions by numbers of the geometry are multiplications by numbers that the host has prepared (FacesDivisor).
//
// # Failures
//
// No errors are reported, because the host has checked the geometry (faces_geometry_fits) and the lengths of all
// buffers. A kernel does nothing if a length that it is given is too small.

#ifndef TIDEGATE_FACES_CUH
#define TIDEGATE_FACES_CUH

#include "tidegate.cuh"

#if defined(__CUDACC__) || defined(__HIP__)
#define FACES_BOTH __host__ __device__
// The argument is read in place, also by index, and never copied to local memory.
#define FACES_ARGUMENT const __grid_constant__ struct FacesGeometry
#else
#define FACES_BOTH
#define FACES_ARGUMENT const struct FacesGeometry
#endif

// The number of items of a tile, and the recommended number of threads of a block.
#define FACES_TILE 128u

// The order of tiles: six faces, by ascending direction, then all edges and corners.
#define FACES_GROUPS 7

// `mode` of faces_init_part and faces_copy_part.
#define FACES_SURFACE 0u
#define FACES_INTERIOR 1u

// x / d = ((2*x * magic) >> 32) >> shift for 0 <= x < 2^31, with shift = ceil(log2(d)) and
// magic = ceil(2^(31 + shift) / d): rounding up by less than 1 = less than 2^shift / d errs, over
// x < 2^31, by less than 1/d.
struct FacesDivisor {
  unsigned int magic;
  unsigned int shift;
};

// One rank's block and messages. Direction k is the offset (dx,dy,dz), each -1, 0 or 1 and not all 0, with k = (dx+1) +
// 3*(dy+1) + 9*(dz+1), and 1 less from 14 on.
struct FacesGeometry {
  unsigned long long values;           // points of the block: n^3 * m[0] * m[1] * m[2]
  unsigned long long offset[3];        // added to an element's place before its initial value
  unsigned int n;                      // points of an element's side, at least 3
  unsigned int m[3];                   // elements
  unsigned int neighbours;             // bit k: there is a neighbour in direction k
  unsigned int cube;                   // n^3
  unsigned int slot[26];               // begin of each direction's message in a packed buffer, in f64
  unsigned int packed;                 // values of a packed buffer
  unsigned int elements;               // m[0] * m[1] * m[2]
  unsigned int span[3];                // inner coordinates: m * (n-1) - 1
  unsigned int messages;               // how many neighbours there are
  struct FacesDivisor by_n;            // n
  struct FacesDivisor by_step;         // n - 1
  struct FacesDivisor by_inner;        // n - 2
  struct FacesDivisor by_m[3];         // m
  struct FacesDivisor by_span[3];      // span
  unsigned int pack_tiles[FACES_GROUPS + 1];    // first tile of each group; the last is their number
  unsigned int unpack_tiles[FACES_GROUPS + 1];  // as above
  unsigned int compute_tiles[4];       // of points with two copies in z; in y, not z; in x only
};

using tidegate::Slot;

static_assert(sizeof(struct FacesDivisor) == 8, "no padding");
static_assert(sizeof(struct FacesGeometry) == 336, "no padding");

// The direction of an offset.
FACES_BOTH inline unsigned int faces_direction(int dx, int dy, int dz) {
  unsigned int k = (unsigned int)(13 + dx + 3 * dy + 9 * dz);
  return k > 13u ? k - 1u : k;
}

FACES_BOTH inline struct FacesDivisor faces_divisor(unsigned int d) {
  struct FacesDivisor by = {0u, 0u};
  while ((1ull << by.shift) < d) by.shift++;
  by.magic = (unsigned int)(((1ull << (31u + by.shift)) + d - 1ull) / d);
  return by;
}

FACES_BOTH inline unsigned int faces_tiles(unsigned long long items) {
  return (unsigned int)((items + FACES_TILE - 1u) / FACES_TILE);
}

// Whether a block can be addressed: n >= 3, every m >= 1, and fewer than 2^31 elements, points of an element, and items
// of any kernel.
FACES_BOTH inline bool faces_geometry_fits(unsigned int n, const unsigned int m[3]) {
  const unsigned long long limit = 1ull << 31;
  if (n < 3u || n > 1024u) return false;
  unsigned long long side[3], elements = 1u;
  for (int d = 0; d < 3; d++) {
    if (m[d] < 1u || m[d] > 65535u) return false;
    side[d] = (unsigned long long)n * m[d];
    elements *= m[d];
    if (elements >= limit) return false;
  }
  // If each of the three faces is less than a 16th of 2^31, all messages together fit: they are six faces, and a
  // little.
  for (int d = 0; d < 3; d++)
    if (side[d] * side[(d + 1) % 3] >= limit / 16u) return false;
  // No kind of compute has more than n * n items for each element.
  return elements < limit / n / n;
}

// Computes everything that follows from the size, the neighbours and the place of a block.
FACES_BOTH inline struct FacesGeometry faces_geometry(unsigned int n, const unsigned int m[3],
                                                      unsigned int neighbours,
                                                      const unsigned long long offset[3]) {
  struct FacesGeometry g;
  g.n = n;
  g.cube = n * n * n;
  g.neighbours = neighbours;
  g.elements = m[0] * m[1] * m[2];
  g.values = (unsigned long long)g.cube * g.elements;
  g.by_n = faces_divisor(n);
  g.by_step = faces_divisor(n - 1u);
  g.by_inner = faces_divisor(n - 2u);
  for (int d = 0; d < 3; d++) {
    g.offset[d] = offset[d];
    g.m[d] = m[d];
    g.span[d] = m[d] * (n - 1u) - 1u;
    g.by_m[d] = faces_divisor(m[d]);
    g.by_span[d] = faces_divisor(g.span[d]);
  }
  unsigned int k = 0u, end = 0u, pack = 0u, unpack = 0u, group = 0u;
  g.messages = 0u;
  for (int dz = -1; dz <= 1; dz++)
    for (int dy = -1; dy <= 1; dy++)
      for (int dx = -1; dx <= 1; dx++) {
        const int side[3] = {dx, dy, dz};
        unsigned int len = 1u, kind = 0u;
        for (int d = 0; d < 3; d++)
          if (side[d] == 0) {
            len *= n * m[d];
            kind++;
          }
        if (kind == 3u) continue;
        const unsigned int has = neighbours >> k & 1u;
        // Slots begin at multiples of 128 bytes.
        g.slot[k] = end;
        end = (end + len + 15u) & ~15u;
        g.messages += has;
        if (kind == 2u) {
          const unsigned int a = dx == 0 ? 0u : 1u, b = dz == 0 ? 2u : 1u;
          g.pack_tiles[group] = pack;
          g.unpack_tiles[group] = unpack;
          pack += has ? faces_tiles(len) : 0u;
          // All inner points of the face. Without a neighbour, only those between elements.
          const unsigned long long points = (unsigned long long)g.span[a] * g.span[b];
          const unsigned long long pairs = (unsigned long long)(m[b] - 1u) * g.span[a] +
                                           (unsigned long long)(m[a] - 1u) * g.span[b];
          unpack += faces_tiles(has ? points : pairs);
          group++;
        }
        k++;
      }
  g.packed = end;
  g.pack_tiles[6] = pack;
  g.unpack_tiles[6] = unpack;
  g.pack_tiles[7] =
      pack + (neighbours != 0u ? faces_tiles(4ull * n * (m[0] + m[1] + m[2]) + 8u) : 0u);
  g.unpack_tiles[7] = unpack + faces_tiles(4ull * (g.span[0] + g.span[1] + g.span[2]) + 8u);
  const unsigned long long inner = n - 2u;
  g.compute_tiles[0] = 0u;
  g.compute_tiles[1] = faces_tiles((unsigned long long)g.span[0] * g.span[1] * (m[2] - 1u));
  g.compute_tiles[2] =
      g.compute_tiles[1] + faces_tiles(g.span[0] * inner * (m[1] - 1u) * m[2]);
  g.compute_tiles[3] =
      g.compute_tiles[2] + faces_tiles(inner * inner * (m[0] - 1u) * m[1] * m[2]);
  return g;
}

// The recommended grid, in blocks of FACES_TILE threads; at least one block.
struct FacesGrids {
  unsigned int init;    // also of faces_init_part and faces_copy_part
  unsigned int pack;
  unsigned int unpack;  // also of faces_unpack_packed
  unsigned int compute;
};

// `sms` is the number of the device's multiprocessors, 132 for an H200.
FACES_BOTH inline struct FacesGrids faces_grids(const struct FacesGeometry *g, unsigned int sms) {
  // Small grids have one block for each tile, so all loads are in flight at once. Beyond the number of blocks that can
  // be resident (2048 threads for each SM), more blocks only cost their launch.
  const unsigned int most = sms * (2048u / FACES_TILE);
  const unsigned int tiles[4] = {g->elements, g->pack_tiles[7], g->unpack_tiles[7],
                                 g->compute_tiles[3]};
  unsigned int grid[4];
  for (int i = 0; i < 4; i++) grid[i] = tiles[i] < 1u ? 1u : tiles[i] < most ? tiles[i] : most;
  struct FacesGrids grids = {grid[0], grid[1], grid[2], grid[3]};
  return grids;
}

#if defined(__CUDACC__) || defined(__global__)

extern "C" {

// Gives every point of the block its initial value.
__global__ void faces_init(FACES_ARGUMENT g, double *u, unsigned long long u_len);

// Like faces_init, for the points of the surface or of the interior only.
__global__ void faces_init_part(FACES_ARGUMENT g, unsigned int mode, double *u,
                                unsigned long long u_len);

// Copies the points of the surface or of the interior to the same places of `copy`.
__global__ void faces_copy_part(FACES_ARGUMENT g, unsigned int mode, const double *u,
                                unsigned long long u_len, double *copy,
                                unsigned long long copy_len);

// Writes the raw values of every message that has a receiver to their places in `out`, and nothing in between. Reads
// the surface.
__global__ void faces_pack(FACES_ARGUMENT g, const double *u, unsigned long long u_len,
                           double *out, unsigned long long out_len);

// Sets every copy of every point of the surface to the sum of all copies of that point, own and received. slots[k] came
// from the k-th direction that has a neighbour. Reads and writes the surface.
__global__ void faces_unpack(FACES_ARGUMENT g, const struct Slot *slots,
                             unsigned long long slots_len, double *u, unsigned long long u_len);

// The same, from a buffer in the form that faces_pack writes.
__global__ void faces_unpack_packed(FACES_ARGUMENT g, const double *received,
                                    unsigned long long received_len, double *u,
                                    unsigned long long u_len);

// Sets every copy of every point that elements share, strictly inside the block, to their sum. Reads and writes the
// interior.
__global__ void faces_compute(FACES_ARGUMENT g, double *u, unsigned long long u_len);

}  // extern "C"

#endif

#endif
