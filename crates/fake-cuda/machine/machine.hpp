// The machine that carries out grids of the kernels on a processor: what the driver calls.
//
// All calls but those about kernels come from one thread. Several grids can be in progress at a time: each goes on in its own `tidegate_step`s only.
#pragma once

#pragma GCC visibility push(default)
extern "C" {

struct tidegate_grid;

// The kernel of this name, or null.
const void *tidegate_kernel(const char *name);

// The sizes of the kernel's arguments, as its source says: how many there are, of which up to `room` are written.
unsigned tidegate_sizes(const void *kernel, unsigned *sizes, unsigned room);

// Begins a grid. The arguments are copied: `arguments[i]` points to the i-th. Of blocks and of threads of a block there are three dimensions
// each; no kernel here has shared memory whose size the launch says. Nothing runs yet. Null if there is no memory,
// or, with an error, if no GPU has such blocks.
tidegate_grid *tidegate_begin(const void *kernel, void *const *arguments, const unsigned *blocks, const unsigned *threads, unsigned shared_bytes);

enum {
    TIDEGATE_OVER = 1,   // all threads have ended
    TIDEGATE_LETS = 2,   // every block has let the next grid come, or has ended
    TIDEGATE_MOVED = 4,  // some thread did other than to look again at what it waits for
};

// Runs each thread of the grid that can go on, until it gives way once. `previous_over`: what stands before the grid on its stream is over. Returns
// the flags above; none behind an error.
unsigned tidegate_step(tidegate_grid *grid, int previous_over);

// Gives back what a grid has. It need not be over.
void tidegate_end(tidegate_grid *grid);

// What went wrong, or null. Behind that nothing runs any more, of no grid.
const char *tidegate_error(void);

}  // extern "C"
#pragma GCC visibility pop
