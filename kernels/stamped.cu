// ptx: compute_80 compute_90
//
// The batch kernel for streams that are stamped: the text of batch.cu, with the times of batch_stamps.cuh. It is apart,
// so that the kernel for all other streams is the same as without stamps. And a kernel that tells the host this GPU's
// time.

#define STAMPED
#define tidegate_batch tidegate_batch_stamped
#define tidegate_reduce tidegate_reduce_stamped
#include "batch.cu"

// After so many nanoseconds without a question, the kernel ends by itself: the host may have stopped.
#define CLOCK_PATIENCE 2000000000ull

// What host and GPU say to each other, in pinned memory. Questions are numbered.
struct Clock {
    u64 asked;
    u64 unused[7];
    u64 time, answered;
};

// Answers the questions `first` to `last` with the time. A larger number means that the host asks no more.
extern "C" __global__ void tidegate_clock(Clock *clock, u64 first, u64 last) {
    for (u64 question = first; question <= last; question++) {
        const u64 begun = global_timer();
        u64 asked;
        while ((asked = load_acquire((u64)&clock->asked)) < question)
            if (global_timer() - begun > CLOCK_PATIENCE) return;
        if (asked > last) return;
        store_relaxed((u64)&clock->time, global_timer());
        store_release((u64)&clock->answered, question);
    }
}
